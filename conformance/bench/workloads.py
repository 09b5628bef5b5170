"""What a workload is: inputs, one text for all libraries, and what NumPy computes in float64.

What a library answers is checked here before anything is timed. The gradients of a training step
are checked without writing a backward pass: along a direction of all parameters, the loss has to
change as the step says. `suite` has the workloads by their names.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bench.operations import Numpy, Operations

Array = np.ndarray
Arrays = dict[str, Array]

RATE = 0.1          # of the gradient steps
HEADS = {"gpt_block": 12, "gpt_step": 4}
LAYERS = 2
#: The parts of one transformer layer, in the order in which they are applied.
PARTS = ("scale1", "shift1", "qkv", "qkv_bias", "out", "out_bias",
         "scale2", "shift2", "wide", "wide_bias", "narrow", "narrow_bias")


@dataclass(frozen=True)
class Work:
    """What a computation has to do by its definition, whoever does it.

    `read` and `written` are the bytes of inputs and outputs, each counted once. `operations` are
    those of its products; where there is none, those for each element as it is usually written.
    """

    read: int
    written: int
    operations: int


@dataclass(frozen=True)
class Workload:
    """A computation of inputs by name, with its value (the loss, for a step).

    `parameters` are the inputs that a training step replaces; it answers the loss and then them.
    `tolerance` is how far a value may be off, as a part of the greatest one.
    """

    name: str
    inputs: Arrays
    compute: Callable[[Any, Operations], Any]
    parameters: tuple[str, ...] = ()
    work: Work = Work(0, 0, 0)
    tolerance: float = 2e-4

    def value(self, inputs: Arrays) -> Array:
        """What NumPy computes, in the dtypes of the inputs."""
        return np.asarray(self.compute(inputs, Numpy()))

    def wide(self) -> Arrays:
        """The inputs in float64; those that are whole numbers stay as they are."""
        return {name: array.astype(np.float64) if array.dtype.kind == "f" else array
                for name, array in self.inputs.items()}

    def exact(self) -> Array:
        """The value in float64."""
        return self.value(self.wide())


class WrongAnswer(Exception):
    """A library computed something else."""


def check(workload: Workload, answers: Sequence[Array], expected: Array | None = None) -> None:
    """Raise `WrongAnswer` unless the answers are right within the workload's tolerance.

    `expected` is the value in float64, if somebody has computed it already.
    """
    _compare(workload.name, answers[0], workload.exact() if expected is None else expected,
             workload.tolerance)
    if workload.parameters:
        _check_step(workload, workload.wide(), answers[1:])


def _check_step(workload: Workload, exact: Arrays, changed: Sequence[Array]) -> None:
    """The slope of the loss along a direction is that of the gradients taken.

    The direction is scaled such that every parameter has an equal share in the slope: what is wrong
    with one of them is seen, however little it counts in the loss.
    """
    chooser = np.random.default_rng(5)
    moved, expected = {}, 0.0
    for name, after in zip(workload.parameters, changed, strict=True):
        gradient = (exact[name] - after.astype(np.float64)) / RATE
        direction = chooser.standard_normal(gradient.shape) + 3 * np.sign(gradient)
        share = float((direction * gradient).sum())
        moved[name] = direction / (share or 1.0)
        expected += bool(share)
    step = 1e-8
    ahead, behind = (workload.value({**exact, **{n: exact[n] + sign * step * d
                                                 for n, d in moved.items()}}) for sign in (1, -1))
    _compare(f"the gradients of {workload.name}", np.array(expected),
             (ahead - behind) / (2 * step), 4e-3)


def _compare(what: str, got: Array, expected: Array, tolerance: float) -> None:
    if got.shape != expected.shape:
        raise WrongAnswer(f"{what}: shape {got.shape}, expected {expected.shape}")
    if not got.size:
        return
    error = float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-12))
    if not error <= tolerance:
        raise WrongAnswer(f"{what}: off by {error:.2g} of the greatest value")


# ---------------------------------------------------------------- what is computed

def block(x: Any, p: Any, prefix: str, heads: int, lib: Operations) -> Any:
    """One transformer layer; x is (batch, places, width)."""
    get = {part: p[prefix + part] for part in PARTS}
    batch, places, width = x.shape
    mixed = lib.layer_norm(x, get["scale1"], get["shift1"]) @ get["qkv"] + get["qkv_bias"]
    split = lib.permute(lib.reshape(mixed, batch, places, 3, heads, width // heads), 2, 0, 3, 1, 4)
    seen = lib.attention(split[0], split[1], split[2], causal=True)
    seen = lib.reshape(lib.permute(seen, 0, 2, 1, 3), batch, places, width)
    x = x + seen @ get["out"] + get["out_bias"]
    hidden = lib.layer_norm(x, get["scale2"], get["shift2"]) @ get["wide"] + get["wide_bias"]
    return x + lib.gelu(hidden) @ get["narrow"] + get["narrow_bias"]


def mlp_loss(p: Any, lib: Operations) -> Any:
    hidden = lib.relu(p["x"] @ p["first"] + p["first_bias"])
    return lib.cross_entropy(hidden @ p["second"] + p["second_bias"], p["y"])


def gpt_loss(p: Any, lib: Operations) -> Any:
    x = lib.rows(p["embedding"], p["tokens"]) + p["places"]
    for layer in range(LAYERS):
        x = block(x, p, f"layer{layer}.", HEADS["gpt_step"], lib)
    return lib.cross_entropy(lib.layer_norm(x, p["scale"], p["shift"]) @ p["head"], p["targets"])


# ---------------------------------------------------------------- inputs

class Drawn:
    """Random inputs, the same in every process."""

    def __init__(self) -> None:
        self.chooser, self.arrays = np.random.default_rng(7), {}

    arrays: Arrays

    def floats(self, name: str, *shape: int, size: float = 1.0, around: float = 0.0) -> Drawn:
        drawn = self.chooser.standard_normal(shape) * size + around
        self.arrays[name] = drawn.astype(np.float32)
        return self

    def half(self, name: str, *shape: int) -> Drawn:
        self.arrays[name] = self.chooser.standard_normal(shape).astype(np.float16)
        return self

    def numbers(self, name: str, below: int, *shape: int) -> Drawn:
        self.arrays[name] = self.chooser.integers(0, below, shape).astype(np.int32)
        return self

    def bytes(self, name: str, *shape: int) -> Drawn:
        """int8, from the whole range."""
        self.arrays[name] = self.chooser.integers(-128, 128, shape).astype(np.int8)
        return self

    def layer(self, prefix: str, width: int) -> Drawn:
        """The weights of one transformer layer."""
        for part, inputs, outputs in (("qkv", width, 3 * width), ("out", width, width),
                                      ("wide", width, 4 * width), ("narrow", 4 * width, width)):
            self.floats(prefix + part, inputs, outputs, size=inputs**-0.5)
            self.floats(f"{prefix}{part}_bias", outputs, size=0.1)
        for number in "12":
            self.floats(f"{prefix}scale{number}", width, size=0.1, around=1)
            self.floats(f"{prefix}shift{number}", width, size=0.1)
        return self
