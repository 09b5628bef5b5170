"""JAX, as the benchmark sees it. It compiles with XLA for the CPU.

Scheduling happens inside XLA, so no stage is quite the same. `cold` is trace and lower of a fresh
function, without XLA's compiler, which is more than a schedule in one way and less in another.
Kernels are the instructions of the compiled program that do work, loops' bodies counted once.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from conformance.bench import calls, growing
from conformance.bench.operations import EPSILON
from conformance.bench.peers import NotMeasured, Numbers, Ready, repeated, timed
from conformance.bench.workloads import RATE, Array, Workload

#: Instructions that compute nothing, or whose work is in a computation that is counted itself.
IDLE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "call", "while",
        "conditional", "opt-barrier", "after-all", "reshape"}
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*?([\w\-]+)\(", re.M)
CALLED = re.compile(r"(?:body|condition|to_apply|calls)=%?([\w.\-]+)")


def make() -> JaxPeer:
    """The adapter."""
    return JaxPeer(import_module("jax"))


class JaxPeer:
    """Functions of dictionaries of arrays, compiled whole by `jax.jit`."""

    def __init__(self, library: Any) -> None:
        library.config.update("jax_platforms", "cpu")
        self.jax, self.np = library, library.numpy
        self.replays: dict[int, Callable[[], Any]] = {}
        self.words = JaxWords(library)

    def version(self) -> str:
        return str(self.jax.__version__)

    def fresh(self, workload: Workload) -> Any:
        """The workload as a function that JAX has not seen."""
        if not workload.parameters:
            return self.jax.jit(lambda p: [workload.compute(p, self.words)])

        def step(p: Any) -> Any:
            changed = {name: p[name] for name in workload.parameters}
            value, gradients = self.jax.value_and_grad(
                lambda some: workload.compute({**p, **some}, self.words))(changed)
            return [value, *(p[name] - RATE * gradients[name] for name in workload.parameters)]
        return self.jax.jit(step)

    def inputs(self, workload: Workload) -> Any:
        return {name: self.np.asarray(array) for name, array in workload.inputs.items()}

    # What is asked

    def values(self, workload: Workload) -> list[Array]:
        return [np.asarray(array) for array in self.fresh(workload)(self.inputs(workload))]

    def ready(self, workload: Workload) -> Ready:
        inputs, function = self.inputs(workload), self.fresh(workload)
        return Ready(lambda: self.jax.block_until_ready(function(inputs)),
                     lambda answer: [np.asarray(array) for array in answer])

    def _compiled(self, workload: Workload) -> Any:
        return self.fresh(workload).lower(self.inputs(workload)).compile()

    def kernels(self, workload: Workload) -> Numbers:
        compiled = self._compiled(workload)
        return {"kernels": count_kernels(compiled.as_text()),
                "bytes": float(compiled.cost_analysis()["bytes accessed"])}

    def memory(self, workload: Workload) -> Numbers:
        return {"planned": self._compiled(workload).memory_analysis().temp_size_in_bytes}

    def cold(self, workload: Workload) -> Numbers:
        inputs, function = self.inputs(workload), self.fresh(workload)
        self.jax.clear_caches()
        return {"seconds": timed(lambda: function.trace(inputs).lower())[0]}

    def hit(self, workload: Workload) -> Numbers:
        raise NotMeasured("a compiled function is called again without its graph")

    def build(self, workload: Workload) -> Numbers:
        inputs, function = self.inputs(workload), self.fresh(workload)
        self.jax.clear_caches()
        return {"seconds": timed(lambda: function.trace(inputs))[0]}

    def grown(self, program: str, count: int) -> Numbers:
        inputs, made, operations = self._program(program, count)
        self.jax.clear_caches()
        building, traced = timed(lambda: made.trace(inputs))
        lowering = timed(traced.lower)[0]
        return {"seconds": building + lowering, "building": building,
                "operations": operations[0], "nodes": len(traced.jaxpr.eqns)}

    def _program(self, program: str, count: int) -> tuple[list[Any], Any, list[int]]:
        """Inputs, the function, and a list that tracing it puts the number of operations in."""
        inputs = [self.np.asarray(array) for array in growing.inputs(program)]
        operations: list[int] = []

        def function(given: list[Any]) -> Any:
            value, counted = growing.PROGRAMS[program](given, count, JaxOperations(self.jax))
            operations.append(counted)
            return value
        return inputs, self.jax.jit(function), operations

    def grown_value(self, program: str, count: int) -> Array:
        inputs, made, _ = self._program(program, count)
        return np.asarray(made(inputs))

    def replay(self, kernels: int) -> Numbers:
        if kernels not in self.replays:
            self.replays[kernels] = self._captured(kernels)
        return {"seconds": repeated(self.replays[kernels], 20)}

    def _captured(self, kernels: int) -> Callable[[], Any]:
        """So many changes of one element in four. XLA would join additions, barriers or not."""
        start = self.np.zeros(4, self.np.float32)

        def function(x: Any, steps: Any) -> Any:
            for i in range(kernels):
                x = x.at[i % 4].add(steps[i % 4])
            return x
        steps = self.np.asarray([1.0, 2.0, 3.0, 4.0], self.np.float32)
        made = self.jax.jit(function)
        found = count_kernels(made.lower(start, steps).compile().as_text())
        if found < kernels:
            raise NotMeasured(f"{kernels} operations became {found} kernels")
        np.testing.assert_allclose(np.asarray(made(start, steps)).sum(), 2.5 * kernels)
        return lambda: made(start, steps).block_until_ready()

    def call(self, names: int) -> Numbers:
        return calls.measured(names, self.np.asarray, self.jax.jit, lambda result: result,
                              lambda result: result.block_until_ready())

    def add(self) -> Numbers:
        a, b = (self.np.asarray([1.0, 2.0, 3.0, number]) for number in (4.0, 5.0))
        np.testing.assert_array_equal(np.asarray(a + b), [2, 4, 6, 9])
        repeated(lambda: (a + b).block_until_ready(), 20)
        return {"seconds": repeated(lambda: (a + b).block_until_ready(), 200)}


class JaxWords:
    """The operations of workloads, in JAX."""

    def __init__(self, library: Any) -> None:
        self.jax, self.np, self.lax = library, library.numpy, library.lax
        self.relu, self.reshape = library.nn.relu, lambda x, *shape: x.reshape(shape)
        self.gelu = library.nn.gelu  # with tanh by default
        self.softmax = functools.partial(library.nn.softmax, axis=-1)
        self.sum, self.max = library.numpy.sum, library.numpy.max
        self.argmax, self.cumsum = library.numpy.argmax, library.numpy.cumsum
        self.sort = functools.partial(library.numpy.sort, axis=-1)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.transpose(axes)

    def layer_norm(self, x: Any, scale: Any = None, shift: Any = None) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        normal = centred * self.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
        return normal if scale is None else normal * scale + shift

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return x * self.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale

    def cross_entropy(self, scores: Any, targets: Any) -> Any:
        chosen = self.np.take_along_axis(self.jax.nn.log_softmax(scores, -1), targets[..., None],
                                         -1)
        return -chosen.mean()

    def rows(self, table: Any, numbers: Any) -> Any:
        return table[numbers]

    def attention(self, query: Any, key: Any, value: Any, causal: bool = False,
                  mask: Any = None) -> Any:
        scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
        if causal:
            seen = self.np.tri(scores.shape[-1], dtype=bool)
            scores = self.np.where(seen, scores, -self.np.inf)
        return self.softmax(scores if mask is None else scores + mask) @ value

    def conv2d(self, x: Any, weight: Any, stride: int = 1, padding: int = 0,
               groups: int = 1) -> Any:
        return self.lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2,
                                             feature_group_count=groups)

    def wide_product(self, x: Any, y: Any) -> Any:
        return self.np.matmul(x, y, preferred_element_type=self.np.int32)


class JaxOperations:
    """What `growing` needs, in JAX."""

    def __init__(self, library: Any) -> None:
        self.exp, self.sqrt = library.numpy.exp, library.numpy.sqrt
        self.relu, self.apart = library.nn.relu, library.lax.optimization_barrier
        self.mean = functools.partial(library.numpy.mean, axis=-1, keepdims=True)
        self.sum = functools.partial(library.numpy.sum, axis=-1, keepdims=True)
        self.max = functools.partial(library.numpy.max, axis=-1, keepdims=True)
        self.transpose = library.numpy.transpose


def count_kernels(text: str) -> int:
    """The instructions of a compiled program that do work, those of loops and calls included."""
    computations: dict[str, str] = {}
    for part in re.split(r"\n(?=%|ENTRY)", text):
        name = re.match(r"(ENTRY )?%?([\w.\-]+)", part)
        if name and "{" in part:
            computations["ENTRY" if name[1] else name[2]] = part
    count, waiting, seen = 0, ["ENTRY"], set()
    while waiting:
        name_now = waiting.pop()
        if name_now in seen or name_now not in computations:
            continue
        seen.add(name_now)
        for line in computations[name_now].splitlines():
            found = INSTRUCTION.match(line)
            if found is None:
                continue
            count += found[1] not in IDLE
            if found[1] in ("call", "while", "conditional"):
                waiting += CALLED.findall(line)
    return count
