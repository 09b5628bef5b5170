"""PyTorch's compiler, as the benchmark sees it: `torch.compile` with inductor, and g++.

`cold` is the first call of a function that was never compiled, with every cache of graphs off and
with the C++ compiler left out: generated kernels are replaced by functions that do nothing. What
remains is tracing, fusing and generating code. Kernels are the calls in the generated wrapper:
fused kernels and those of libraries. Bytes are what inductor's scheduler logs as its estimate.
"""
from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

from conformance.bench import calls, growing
from conformance.bench.operations import EPSILON
from conformance.bench.peers import NotMeasured, Numbers, Ready, repeated, timed
from conformance.bench.workloads import RATE, Array, Workload

CALL = re.compile(r"^\s+(?:\w+ = )?(?:cpp_fused\w*|extern_kernels\.\w+|torch\.ops\.[\w.]+"
                  r"|aten\.[\w.]+)\(", re.M)
Tensors = dict[str, Any]


def make() -> TorchPeer:
    """The adapter."""
    return TorchPeer(import_module("torch"))


class TorchPeer:
    """Functions of dictionaries of tensors, compiled whole."""

    def __init__(self, library: Any) -> None:
        self.torch, self.words = library, TorchWords(library)
        self.dynamo = import_module("torch._dynamo")
        self.inductor = import_module("torch._inductor.utils")
        self.metrics = import_module("torch._inductor.metrics")
        self.compile_log = import_module("torch._inductor.compile_fx").inductor_metrics_log
        self.dynamo.config.recompile_limit = 10_000
        if os.environ.get("OMP_NUM_THREADS"):
            library.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def version(self) -> str:
        return str(self.torch.__version__)

    def function(self, workload: Workload) -> Callable[[Tensors], list[Any]]:
        """The workload, not compiled yet."""
        if not workload.parameters:
            return lambda p: [workload.compute(p, self.words)]
        names = workload.parameters

        def step(p: Tensors) -> list[Any]:
            changed = {name: p[name] for name in names}
            gradients, value = self.torch.func.grad_and_value(
                lambda some: workload.compute({**p, **some}, self.words))(changed)
            return [value, *(p[name] - RATE * gradients[name] for name in names)]
        return step

    def inputs(self, workload: Workload) -> Tensors:
        made = {name: self.torch.from_numpy(array) for name, array in workload.inputs.items()}
        return {name: one.long() if one.dtype == self.torch.int32 else one
                for name, one in made.items()}

    # What is asked

    def fresh(self, function: Callable[..., Any]) -> Any:
        """A compiled function with nothing remembered of it."""
        self.dynamo.reset()
        return self.torch.compile(function, fullgraph=True, dynamic=False)

    def values(self, workload: Workload) -> list[Array]:
        made = self.fresh(self.function(workload))(self.inputs(workload))
        return [tensor.numpy() for tensor in made]

    def ready(self, workload: Workload) -> Ready:
        inputs, made = self.inputs(workload), self.fresh(self.function(workload))
        with self.torch.no_grad():
            made(inputs)

        def run() -> Any:
            with self.torch.no_grad():
                return made(inputs)
        return Ready(run, lambda answer: [tensor.numpy() for tensor in answer])

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

    def call(self, names: int) -> Numbers:
        with self.torch.no_grad():
            return calls.measured(names, self.torch.from_numpy, self.fresh,
                                  lambda result: result, lambda result: result)

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


class TorchWords:
    """The operations of workloads, in torch."""

    def __init__(self, library: Any) -> None:
        self.torch, self.F = library, library.nn.functional
        self.relu, self.argmax = library.relu, library.argmax
        self.cumsum = library.cumsum

    def gelu(self, x: Any) -> Any:
        return self.F.gelu(x, approximate="tanh")

    def sum(self, x: Any, axis: int | None = None) -> Any:
        return x.sum() if axis is None else x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.amax(axis)

    def sort(self, x: Any) -> Any:
        return self.torch.sort(x, -1)[0]

    def softmax(self, x: Any) -> Any:
        return self.torch.softmax(x, -1)

    def layer_norm(self, x: Any, scale: Any = None, shift: Any = None) -> Any:
        return self.F.layer_norm(x, x.shape[-1:], scale, shift, EPSILON)

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return self.F.rms_norm(x, x.shape[-1:], scale, EPSILON)

    def cross_entropy(self, scores: Any, targets: Any) -> Any:
        return self.F.cross_entropy(scores.flatten(0, -2), targets.flatten())

    def reshape(self, x: Any, *shape: int) -> Any:
        return x.reshape(shape)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.permute(axes)

    def rows(self, table: Any, numbers: Any) -> Any:
        return table[numbers]

    def attention(self, query: Any, key: Any, value: Any, causal: bool = False,
                  mask: Any = None) -> Any:
        return self.F.scaled_dot_product_attention(query, key, value, attn_mask=mask,
                                                   is_causal=causal)

    def conv2d(self, x: Any, weight: Any, stride: int = 1, padding: int = 0,
               groups: int = 1) -> Any:
        return self.F.conv2d(x, weight, None, stride, padding, 1, groups)

    def wide_product(self, x: Any, y: Any) -> Any:
        return self.torch._int_mm(x, y)


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
