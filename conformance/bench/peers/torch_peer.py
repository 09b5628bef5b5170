"""PyTorch's compiler, as the benchmark sees it: `torch.compile` with inductor, and g++.

`cold` is the first call of a function that was never compiled, with every cache of graphs off and
with the C++ compiler left out: generated kernels are replaced by functions that do nothing. What
remains is tracing, fusing and generating code. Kernels are the calls in the generated wrapper:
fused kernels and those of libraries. Bytes are what inductor's scheduler logs as its estimate.
"""
from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

from conformance.bench import growing
from conformance.bench.peers import NotMeasured, Numbers, repeated, timed
from conformance.bench.workloads import HEADS, LAYERS, PARTS, RATE, Array, Workload

CALL = re.compile(r"^\s+(?:\w+ = )?(?:cpp_fused\w*|extern_kernels\.\w+|torch\.ops\.[\w.]+"
                  r"|aten\.[\w.]+)\(", re.M)
Tensors = dict[str, Any]


def make() -> TorchPeer:
    """The adapter."""
    return TorchPeer(import_module("torch"))


class TorchPeer:
    """Functions of dictionaries of tensors, compiled whole."""

    def __init__(self, library: Any) -> None:
        self.torch, self.F = library, library.nn.functional
        self.dynamo = import_module("torch._dynamo")
        self.inductor = import_module("torch._inductor.utils")
        self.metrics = import_module("torch._inductor.metrics")
        self.compile_log = import_module("torch._inductor.compile_fx").inductor_metrics_log
        self.dynamo.config.recompile_limit = 10_000
        self.losses = {"mlp_step": self.mlp_loss, "gpt_step": self.gpt_loss}
        self.functions = {
            "softmax": lambda p: self.torch.softmax(p["x"], -1),
            "layer_norm": lambda p: self.layer_norm(p["x"], p["scale"], p["shift"]),
            "attention": lambda p: self.F.scaled_dot_product_attention(
                p["query"], p["key"], p["value"], is_causal=True),
            "gpt_block": lambda p: self.block(p["x"], p, "", HEADS["gpt_block"]),
        }

    def version(self) -> str:
        return str(self.torch.__version__)

    # The workloads

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return self.F.layer_norm(x, scale.shape, scale, shift)

    def block(self, x: Any, p: Tensors, prefix: str, heads: int) -> Any:
        get = {part: p[prefix + part] for part in PARTS}
        batch, places, width = x.shape
        mixed = self.layer_norm(x, get["scale1"], get["shift1"]) @ get["qkv"] + get["qkv_bias"]
        split = mixed.reshape(batch, places, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        seen = self.F.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        seen = seen.permute(0, 2, 1, 3).reshape(batch, places, width)
        x = x + seen @ get["out"] + get["out_bias"]
        hidden = self.layer_norm(x, get["scale2"], get["shift2"]) @ get["wide"] + get["wide_bias"]
        return x + self.F.gelu(hidden, approximate="tanh") @ get["narrow"] + get["narrow_bias"]

    def mlp_loss(self, p: Tensors) -> Any:
        hidden = (p["x"] @ p["first"] + p["first_bias"]).relu()
        return self.F.cross_entropy(hidden @ p["second"] + p["second_bias"], p["y"])

    def gpt_loss(self, p: Tensors) -> Any:
        x = p["embedding"][p["tokens"]] + p["places"]
        for layer in range(LAYERS):
            x = self.block(x, p, f"layer{layer}.", HEADS["gpt_step"])
        scores = self.layer_norm(x, p["scale"], p["shift"]) @ p["head"]
        return self.F.cross_entropy(scores.flatten(0, 1), p["targets"].flatten())

    def function(self, workload: Workload) -> Callable[[Tensors], list[Any]]:
        """The workload, not compiled yet."""
        if not workload.parameters:
            return lambda p: [self.functions[workload.name](p)]
        loss, names = self.losses[workload.name], workload.parameters

        def step(p: Tensors) -> list[Any]:
            changed = {name: p[name] for name in names}
            gradients, value = self.torch.func.grad_and_value(
                lambda some: loss({**p, **some}))(changed)
            return [value, *(p[name] - RATE * gradients[name] for name in names)]
        return step

    def inputs(self, workload: Workload) -> Tensors:
        made = {name: self.torch.from_numpy(array) for name, array in workload.inputs.items()}
        return {name: one.long() if one.dtype == self.torch.int32 else one
                for name, one in made.items()}

    # What is asked

    def fresh(self, function: Callable[[Any], Any]) -> Any:
        """A compiled function with nothing remembered of it."""
        self.dynamo.reset()
        return self.torch.compile(function, fullgraph=True, dynamic=False)

    def values(self, workload: Workload) -> list[Array]:
        made = self.fresh(self.function(workload))(self.inputs(workload))
        return [tensor.numpy() for tensor in made]

    def kernels(self, workload: Workload) -> Numbers:
        self.metrics.reset()
        with self.no_compiler(), self.logged():
            _, sources = self.inductor.run_and_get_code(
                self.fresh(self.function(workload)), self.inputs(workload))
        return {"kernels": sum(len(CALL.findall(wrapper(source))) for source in sources),
                "bytes": float(self.metrics.num_bytes_accessed)}

    def memory(self, workload: Workload) -> Numbers:
        raise NotMeasured("allocated while it runs; no plan is made")

    def cold(self, workload: Workload) -> Numbers:
        inputs, made = self.inputs(workload), self.fresh(self.function(workload))
        with self.no_compiler():
            return {"seconds": timed(lambda: made(inputs))[0]}

    def hit(self, workload: Workload) -> Numbers:
        raise NotMeasured("a compiled function is called again without its graph")

    def build(self, workload: Workload) -> Numbers:
        raise NotMeasured("tracing is not apart from compiling")

    def grown(self, program: str, count: int) -> Numbers:
        inputs, operations = self._inputs(program), []

        def function(given: Any) -> Any:
            value, counted = growing.PROGRAMS[program](given, count, TorchOperations(self.torch))
            operations.append(counted)
            return value
        function(inputs)
        made = self.fresh(self._program(program, count))
        with self.no_compiler():
            return {"seconds": timed(lambda: made(inputs))[0], "operations": operations[0]}

    def _inputs(self, program: str) -> Any:
        if program == "separate":
            raise NotMeasured("it has no way to ask for kernels that are not joined")
        return [self.torch.from_numpy(array) for array in growing.inputs(program)]

    def _program(self, program: str, count: int) -> Callable[[Any], Any]:
        operations, make = TorchOperations(self.torch), growing.PROGRAMS[program]
        return lambda given: make(given, count, operations)[0]

    def grown_value(self, program: str, count: int) -> Array:
        inputs = self._inputs(program)
        return np.asarray(self.fresh(self._program(program, count))(inputs).numpy())

    def replay(self, kernels: int) -> Numbers:
        raise NotMeasured("it has no way to ask for kernels that are not joined")

    def add(self) -> Numbers:
        a, b = (self.torch.tensor([1.0, 2.0, 3.0, number]) for number in (4.0, 5.0))
        np.testing.assert_array_equal((a + b).numpy(), [2, 4, 6, 9])
        repeated(lambda: a + b, 20)
        return {"seconds": repeated(lambda: a + b, 200)}

    @contextlib.contextmanager
    def no_compiler(self) -> Iterator[None]:
        """Generated C++ is not compiled; its functions do nothing."""
        target = import_module("torch._inductor.async_compile").AsyncCompile

        def skipped(*_: Any, **__: Any) -> Callable[..., None]:
            return lambda *_: None
        with mock.patch.object(target, "cpp_pybinding", skipped):
            yield

    @contextlib.contextmanager
    def logged(self) -> Iterator[None]:
        """Inductor counts bytes only while somebody wants to read them; nobody has to."""
        before = self.compile_log.level, self.compile_log.propagate
        self.compile_log.setLevel(logging.INFO)
        self.compile_log.propagate = False
        try:
            yield
        finally:
            self.compile_log.setLevel(before[0])
            self.compile_log.propagate = before[1]


def wrapper(source: str) -> str:
    """The part of generated code that calls the kernels."""
    start = source.find("def call(")
    return source[start:source.find("runner = ", start)]


class TorchOperations:
    """What `growing` needs, in torch."""

    def __init__(self, library: Any) -> None:
        self.exp, self.sqrt, self.relu = library.exp, library.sqrt, library.relu

    def mean(self, x: Any) -> Any:
        return x.mean(-1, keepdim=True)

    def sum(self, x: Any) -> Any:
        return x.sum(-1, keepdim=True)

    def max(self, x: Any) -> Any:
        return x.amax(-1, keepdim=True)

    def transpose(self, x: Any) -> Any:
        return x.transpose(-1, -2)

    def apart(self, x: Any) -> Any:
        raise NotMeasured("it has no way to ask for kernels that are not joined")
