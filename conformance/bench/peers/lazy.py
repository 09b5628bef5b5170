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

from conformance.bench import calls, growing
from conformance.bench.operations import EPSILON
from conformance.bench.peers import Numbers, Ready, repeated, timed
from conformance.bench.workloads import RATE, Array, Workload

Tensors = dict[str, Any]


class LazyWords:
    """The operations of workloads, as methods of lazy tensors. Only dtypes have other names."""

    def __init__(self, int32: Any) -> None:
        self.int32 = int32

    def relu(self, x: Any) -> Any:
        return x.relu()

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + (0.7978845608028654 * (x + 0.044715 * x * x * x)).tanh())

    def sum(self, x: Any, axis: int | None = None) -> Any:
        return x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.max(axis)

    def argmax(self, x: Any, axis: int) -> Any:
        return x.argmax(axis)

    def cumsum(self, x: Any, axis: int) -> Any:
        return x.cumsum(axis)

    def sort(self, x: Any) -> Any:
        return x.sort(-1)[0]

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def layer_norm(self, x: Any, scale: Any = None, shift: Any = None) -> Any:
        return x.layernorm() if scale is None else x.layernorm() * scale + shift

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return x * ((x * x).mean(-1, keepdim=True) + EPSILON).rsqrt() * scale

    def cross_entropy(self, scores: Any, targets: Any) -> Any:
        return scores.sparse_categorical_crossentropy(targets)

    def reshape(self, x: Any, *shape: int) -> Any:
        return x.reshape(*shape)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.permute(*axes)

    def rows(self, table: Any, numbers: Any) -> Any:
        return table[numbers]

    def attention(self, query: Any, key: Any, value: Any, causal: bool = False,
                  mask: Any = None) -> Any:
        return query.scaled_dot_product_attention(key, value, attn_mask=mask, is_causal=causal)

    def conv2d(self, x: Any, weight: Any, stride: int = 1, padding: int = 0,
               groups: int = 1) -> Any:
        return x.conv2d(weight, groups=groups, stride=stride, padding=padding)

    def wide_product(self, x: Any, y: Any) -> Any:
        return x.matmul(y, dtype=self.int32)


def graph(workload: Workload, p: Tensors, words: LazyWords) -> list[Any]:
    """The tensors to realize: the value; for a step the loss and the parameters it changes."""
    value = workload.compute(p, words)
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
    words: LazyWords

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

    def graph(self, workload: Workload, p: Tensors) -> list[Any]:
        """What `graph` makes of tensors of this library."""
        return graph(workload, p, self.words)

    def values(self, workload: Workload) -> list[Array]:
        made = self.graph(workload, self.tensors(workload))
        self.Tensor.realize(*made)
        return [np.asarray(tensor.numpy()) for tensor in made]

    def ready(self, workload: Workload) -> Ready:
        """A captured function. A step changes its parameters, which it finds where they are."""
        p, names = self.tensors(workload), list(workload.inputs)
        given = [] if workload.parameters else list(p.values())

        def step() -> Any:
            made = self.graph(workload, p)
            self.Tensor.realize(*made)
            return made[0]

        def function(*tensors: Any) -> Any:  # which knows them by no other name
            made = self.graph(workload, dict(zip(names, tensors, strict=True)))
            self.Tensor.realize(*made)
            return made[0]
        captured = self.TinyJit(step if workload.parameters else function)

        def run() -> Any:
            answer = captured(*given)
            self.wait()
            return answer

        def reset() -> None:
            for name in workload.parameters:
                p[name].assign(self.Tensor(workload.inputs[name])).realize()
        for _ in range(3):
            run()
        changed = [p[name] for name in workload.parameters]
        return Ready(run, lambda answer: [np.asarray(tensor.numpy())
                                          for tensor in (answer, *changed)], reset)

    def cold(self, workload: Workload) -> Numbers:
        self.forget()
        made = self.graph(workload, self.tensors(workload))
        gc.collect()
        return {"seconds": timed(lambda: self.schedule(made))[0]}

    def hit(self, workload: Workload) -> Numbers:
        self.schedule(self.graph(workload, self.tensors(workload)))
        return {"seconds": self.again(workload)}

    def again(self, workload: Workload) -> float:
        """The time to schedule a graph that was just scheduled, made anew."""
        made = self.graph(workload, self.tensors(workload))
        gc.collect()
        return timed(lambda: self.schedule(made))[0]

    def build(self, workload: Workload) -> Numbers:
        p = self.tensors(workload)
        gc.collect()
        return {"seconds": timed(lambda: self.graph(workload, p))[0]}

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

    def call(self, names: int) -> Numbers:
        def waited(result: Any) -> Any:
            self.wait()
            return result
        return calls.measured(names, lambda array: self.Tensor(array).realize(), self.TinyJit,
                              lambda result: result.realize(), waited)

    def add(self) -> Numbers:
        a, b = (self.Tensor([1.0, 2.0, 3.0, number]).realize() for number in (4.0, 5.0))
        np.testing.assert_array_equal((a + b).realize().numpy(), [2, 4, 6, 9])

        def one() -> None:
            (a + b).realize()
            self.wait()
        repeated(one, 20)
        return {"seconds": repeated(one, 200)}
