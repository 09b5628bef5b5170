"""The workloads for libraries whose tensors are lazy: this one and tinygrad.

Their tensors have the same methods, so that one text serves both. An adapter adds how a schedule
is made, counted and forgotten.
"""
from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from conformance.bench import growing
from conformance.bench.peers import Numbers, repeated, timed
from conformance.bench.workloads import HEADS, LAYERS, PARTS, RATE, Array, Workload

Tensors = dict[str, Any]


def softmax(p: Tensors) -> Any:
    return p["x"].softmax(-1)


def layer_norm(p: Tensors) -> Any:
    return p["x"].layernorm() * p["scale"] + p["shift"]


def attention(p: Tensors) -> Any:
    return p["query"].scaled_dot_product_attention(p["key"], p["value"], is_causal=True)


def gelu(x: Any) -> Any:
    """The approximation with tanh; libraries disagree on the default."""
    return 0.5 * x * (1 + (0.7978845608028654 * (x + 0.044715 * x * x * x)).tanh())


def block(x: Any, p: Tensors, prefix: str, heads: int) -> Any:
    """One transformer layer; x is (batch, places, width)."""
    get = {part: p[prefix + part] for part in PARTS}
    batch, places, width = x.shape
    mixed = (x.layernorm() * get["scale1"] + get["shift1"]) @ get["qkv"] + get["qkv_bias"]
    split = mixed.reshape(batch, places, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    seen = split[0].scaled_dot_product_attention(split[1], split[2], is_causal=True)
    seen = seen.permute(0, 2, 1, 3).reshape(batch, places, width)
    x = x + seen @ get["out"] + get["out_bias"]
    hidden = (x.layernorm() * get["scale2"] + get["shift2"]) @ get["wide"] + get["wide_bias"]
    return x + gelu(hidden) @ get["narrow"] + get["narrow_bias"]


def mlp_loss(p: Tensors) -> Any:
    hidden = (p["x"] @ p["first"] + p["first_bias"]).relu()
    scores = hidden @ p["second"] + p["second_bias"]
    return scores.sparse_categorical_crossentropy(p["y"])


def gpt_loss(p: Tensors) -> Any:
    x = p["embedding"][p["tokens"]] + p["places"]
    for layer in range(LAYERS):
        x = block(x, p, f"layer{layer}.", HEADS["gpt_step"])
    scores = (x.layernorm() * p["scale"] + p["shift"]) @ p["head"]
    return scores.sparse_categorical_crossentropy(p["targets"])


VALUES: dict[str, Callable[[Tensors], Any]] = {
    "softmax": softmax, "layer_norm": layer_norm, "attention": attention,
    "gpt_block": lambda p: block(p["x"], p, "", HEADS["gpt_block"]),
    "mlp_step": mlp_loss, "gpt_step": gpt_loss,
}


def graph(workload: Workload, p: Tensors) -> list[Any]:
    """The tensors to realize: the value; for a step the loss and the parameters it changes."""
    value = VALUES[workload.name](p)
    if not workload.parameters:
        return [value]
    parameters = [p[name] for name in workload.parameters]
    gradients = value.gradient(*parameters)
    return [value, *(parameter.assign(parameter.detach() - RATE * gradient)
                     for parameter, gradient in zip(parameters, gradients, strict=True))]


class LazyOperations:
    """What `growing` needs, as methods of lazy tensors."""

    def mean(self, x: Any) -> Any:
        return x.mean(-1, keepdim=True)

    def sum(self, x: Any) -> Any:
        return x.sum(-1, keepdim=True)

    def max(self, x: Any) -> Any:
        return x.max(-1, keepdim=True)

    def exp(self, x: Any) -> Any:
        return x.exp()

    def sqrt(self, x: Any) -> Any:
        return x.sqrt()

    def relu(self, x: Any) -> Any:
        return x.relu()

    def transpose(self, x: Any) -> Any:
        return x.transpose(-1, -2)

    def apart(self, x: Any) -> Any:
        return x.contiguous()


class Realized(LazyOperations):
    """Every kernel is realized when it is written: nothing can join it with another."""

    def apart(self, x: Any) -> Any:
        return x.realize()


class LazyPeer(ABC):
    """Everything that two lazy libraries are asked in the same way."""

    Tensor: Any
    TinyJit: Any

    @abstractmethod
    def schedule(self, tensors: Sequence[Any]) -> int:
        """Make the schedule of the tensors, compile and run nothing; the number of kernels."""

    @abstractmethod
    def forget(self) -> None:
        """Empty the cache of schedules."""

    @abstractmethod
    def nodes(self, tensor: Any) -> int:
        """How many nodes are in the graph of a tensor."""

    def separating(self) -> AbstractContextManager[Any]:
        """Settings under which `growing.separate` has as many kernels as operations."""
        return nullcontext()

    def operations(self, program: str) -> LazyOperations:
        """The operations to write a program with."""
        return LazyOperations()

    def wait(self) -> None:  # noqa: B027
        """Until what was started is done."""

    def tensors(self, workload: Workload) -> Tensors:
        """The inputs, in memory."""
        made = {name: self.Tensor(array) for name, array in workload.inputs.items()}
        self.Tensor.realize(*made.values())
        return made

    def values(self, workload: Workload) -> list[Array]:
        made = graph(workload, self.tensors(workload))
        self.Tensor.realize(*made)
        return [np.asarray(tensor.numpy()) for tensor in made]

    def cold(self, workload: Workload) -> Numbers:
        self.forget()
        made = graph(workload, self.tensors(workload))
        gc.collect()
        return {"seconds": timed(lambda: self.schedule(made))[0]}

    def hit(self, workload: Workload) -> Numbers:
        self.schedule(graph(workload, self.tensors(workload)))
        return {"seconds": self.again(workload)}

    def again(self, workload: Workload) -> float:
        """The time to schedule a graph that was just scheduled, made anew."""
        made = graph(workload, self.tensors(workload))
        gc.collect()
        return timed(lambda: self.schedule(made))[0]

    def build(self, workload: Workload) -> Numbers:
        p = self.tensors(workload)
        gc.collect()
        return {"seconds": timed(lambda: graph(workload, p))[0]}

    def grown(self, program: str, count: int) -> Numbers:
        inputs = [self.Tensor(array) for array in growing.inputs(program)]
        self.Tensor.realize(*inputs)
        self.forget()
        gc.collect()
        building, (tensor, operations) = timed(
            lambda: growing.PROGRAMS[program](inputs, count, self.operations(program)))
        nodes = self.nodes(tensor)
        with self.separating() if program == "separate" else nullcontext():
            seconds, kernels = timed(lambda: self.schedule([tensor]))
        return {"seconds": seconds, "building": building, "operations": operations,
                "nodes": nodes, "kernels": kernels}

    def grown_value(self, program: str, count: int) -> Array:
        inputs = [self.Tensor(array) for array in growing.inputs(program)]
        tensor, _ = growing.PROGRAMS[program](inputs, count, LazyOperations())
        return np.asarray(tensor.numpy())

    def replay(self, kernels: int) -> Numbers:
        return {"seconds": repeated(self._captured(kernels), 20)}

    def _captured(self, kernels: int) -> Callable[[], Any]:
        """A replay of so many tiny kernels, captured already and seen to be right."""
        known: dict[int, Callable[[], Any]] = self.__dict__.setdefault("_replays", {})
        if kernels not in known:
            inputs = [self.Tensor(array).realize() for array in growing.inputs("separate")]

            def function(x: Any) -> Any:
                return growing.separate([x, *inputs[1:]], kernels, Realized())[0]
            captured = self.TinyJit(function)

            def call() -> Any:
                result = captured(inputs[0])
                self.wait()
                return result
            for _ in range(3):
                result = call().numpy()
            np.testing.assert_allclose(result, growing.expected("separate", kernels), rtol=1e-3)
            known[kernels] = call
        return known[kernels]

    def add(self) -> Numbers:
        a, b = (self.Tensor([1.0, 2.0, 3.0, number]).realize() for number in (4.0, 5.0))
        np.testing.assert_array_equal((a + b).realize().numpy(), [2, 4, 6, 9])

        def one() -> None:
            (a + b).realize()
            self.wait()
        repeated(one, 20)
        return {"seconds": repeated(one, 200)}
