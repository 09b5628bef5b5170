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

from conformance.bench import growing
from conformance.bench.peers import NotMeasured, Numbers, repeated, timed
from conformance.bench.workloads import HEADS, LAYERS, PARTS, RATE, Array, Workload

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
        self.losses = {"mlp_step": self.mlp_loss, "gpt_step": self.gpt_loss}
        self.functions = {
            "softmax": lambda p: library.nn.softmax(p["x"], -1),
            "layer_norm": lambda p: self.layer_norm(p["x"], p["scale"], p["shift"]),
            "attention": lambda p: self.attention(p["query"], p["key"], p["value"]),
            "gpt_block": lambda p: self.block(p["x"], p, "", HEADS["gpt_block"]),
        }

    def version(self) -> str:
        return str(self.jax.__version__)

    # The workloads

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        root = self.jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return centred * root * scale + shift

    def attention(self, query: Any, key: Any, value: Any) -> Any:
        scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
        seen = self.np.tri(scores.shape[-1], dtype=bool)
        return self.jax.nn.softmax(self.np.where(seen, scores, -self.np.inf), -1) @ value

    def block(self, x: Any, p: Any, prefix: str, heads: int) -> Any:
        get = {part: p[prefix + part] for part in PARTS}
        batch, places, width = x.shape
        mixed = self.layer_norm(x, get["scale1"], get["shift1"]) @ get["qkv"] + get["qkv_bias"]
        split = mixed.reshape(batch, places, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        seen = self.attention(split[0], split[1], split[2])
        seen = seen.transpose(0, 2, 1, 3).reshape(batch, places, width)
        x = x + seen @ get["out"] + get["out_bias"]
        hidden = self.layer_norm(x, get["scale2"], get["shift2"]) @ get["wide"] + get["wide_bias"]
        return x + self.jax.nn.gelu(hidden) @ get["narrow"] + get["narrow_bias"]

    def _cross_entropy(self, scores: Any, targets: Any) -> Any:
        chosen = self.np.take_along_axis(self.jax.nn.log_softmax(scores, -1), targets[..., None],
                                         -1)
        return -chosen.mean()

    def mlp_loss(self, p: Any) -> Any:
        hidden = self.jax.nn.relu(p["x"] @ p["first"] + p["first_bias"])
        return self._cross_entropy(hidden @ p["second"] + p["second_bias"], p["y"])

    def gpt_loss(self, p: Any) -> Any:
        x = p["embedding"][p["tokens"]] + p["places"]
        for layer in range(LAYERS):
            x = self.block(x, p, f"layer{layer}.", HEADS["gpt_step"])
        return self._cross_entropy(self.layer_norm(x, p["scale"], p["shift"]) @ p["head"],
                                   p["targets"])

    def fresh(self, workload: Workload) -> Any:
        """The workload as a function that JAX has not seen."""
        if not workload.parameters:
            return self.jax.jit(lambda p: [self.functions[workload.name](p)])
        loss = self.losses[workload.name]

        def step(p: Any) -> Any:
            changed = {name: p[name] for name in workload.parameters}
            value, gradients = self.jax.value_and_grad(lambda some: loss({**p, **some}))(changed)
            return [value, *(p[name] - RATE * gradients[name] for name in workload.parameters)]
        return self.jax.jit(step)

    def inputs(self, workload: Workload) -> Any:
        return {name: self.np.asarray(array) for name, array in workload.inputs.items()}

    # What is asked

    def values(self, workload: Workload) -> list[Array]:
        return [np.asarray(array) for array in self.fresh(workload)(self.inputs(workload))]

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

    def add(self) -> Numbers:
        a, b = (self.np.asarray([1.0, 2.0, 3.0, number]) for number in (4.0, 5.0))
        np.testing.assert_array_equal(np.asarray(a + b), [2, 4, 6, 9])
        repeated(lambda: (a + b).block_until_ready(), 20)
        return {"seconds": repeated(lambda: (a + b).block_until_ready(), 200)}


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
