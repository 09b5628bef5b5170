"""What is scheduled: inputs, and what NumPy computes in float64.

Every library writes the same computation in its own words (`peers/`). What it answers is checked
here before anything is timed. The gradients of a training step are checked without writing a
backward pass: along a direction of all parameters, the loss has to change as the step says.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

Array = np.ndarray
Arrays = dict[str, Array]

RATE = 0.1          # of the gradient steps
HEADS = {"gpt_block": 12, "gpt_step": 4}
LAYERS = 2
#: The parts of one transformer layer, in the order in which they are applied.
PARTS = ("scale1", "shift1", "qkv", "qkv_bias", "out", "out_bias",
         "scale2", "shift2", "wide", "wide_bias", "narrow", "narrow_bias")


@dataclass(frozen=True)
class Workload:
    """A computation: its inputs by name, and its value (the loss, for a step) in float64.

    `parameters` are the inputs that a training step replaces; it answers the loss and then them.
    """

    name: str
    inputs: Arrays
    value: Callable[[Arrays], Array]
    parameters: tuple[str, ...] = ()


class WrongAnswer(Exception):
    """A library computed something else."""


# --8<-- [start:check]
def check(workload: Workload, answers: Sequence[Array]) -> None:
    """Raise `WrongAnswer` unless the answers are right within float32."""
    exact = {name: array.astype(np.float64) if array.dtype.kind == "f" else array
             for name, array in workload.inputs.items()}
    _compare(workload.name, answers[0], workload.value(exact), 2e-4)
    if workload.parameters:
        _check_step(workload, exact, answers[1:])


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
# --8<-- [end:check]


def _compare(what: str, got: Array, expected: Array, tolerance: float) -> None:
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if got.shape != expected.shape:
        raise WrongAnswer(f"{what}: shape {got.shape}, expected {expected.shape}")
    error = float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-12))
    if not error <= tolerance:
        raise WrongAnswer(f"{what}: off by {error:.2g} of the greatest value")


# ---------------------------------------------------------------- the same in NumPy

def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + shift


def attention(query: Array, key: Array, value: Array) -> Array:
    """Causal: each place sees itself and what is before."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    return softmax(np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)) @ value


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))


def cross_entropy(scores: Array, targets: Array) -> Array:
    logarithms = np.log(softmax(scores))
    return -np.take_along_axis(logarithms, targets[..., None], -1).mean()


def block(x: Array, p: Arrays, prefix: str, heads: int) -> Array:
    """One transformer layer; x is (batch, places, width)."""
    get = {part: p[prefix + part] for part in PARTS}
    batch, places, width = x.shape
    mixed = layer_norm(x, get["scale1"], get["shift1"]) @ get["qkv"] + get["qkv_bias"]
    split = mixed.reshape(batch, places, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    seen = attention(*split).transpose(0, 2, 1, 3).reshape(batch, places, width)
    x = x + seen @ get["out"] + get["out_bias"]
    hidden = layer_norm(x, get["scale2"], get["shift2"]) @ get["wide"] + get["wide_bias"]
    return x + gelu(hidden) @ get["narrow"] + get["narrow_bias"]


def mlp_loss(p: Arrays) -> Array:
    hidden = np.maximum(p["x"] @ p["first"] + p["first_bias"], 0)
    return cross_entropy(hidden @ p["second"] + p["second_bias"], p["y"])


def gpt_loss(p: Arrays) -> Array:
    x = p["embedding"][p["tokens"]] + p["places"]
    for layer in range(LAYERS):
        x = block(x, p, f"layer{layer}.", HEADS["gpt_step"])
    return cross_entropy(layer_norm(x, p["scale"], p["shift"]) @ p["head"], p["targets"])


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

    def numbers(self, name: str, below: int, *shape: int) -> Drawn:
        self.arrays[name] = self.chooser.integers(0, below, shape).astype(np.int32)
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


def _softmax() -> Workload:
    return Workload("softmax", Drawn().floats("x", 4096, 1024).arrays, lambda p: softmax(p["x"]))


def _layer_norm() -> Workload:
    drawn = Drawn().floats("x", 4096, 1024).floats("scale", 1024).floats("shift", 1024)
    return Workload("layer_norm", drawn.arrays,
                    lambda p: layer_norm(p["x"], p["scale"], p["shift"]))


def _attention() -> Workload:
    drawn = Drawn()
    for name in ("query", "key", "value"):
        drawn.floats(name, 4, 8, 512, 64)
    return Workload("attention", drawn.arrays,
                    lambda p: attention(p["query"], p["key"], p["value"]))


def _mlp_step() -> Workload:
    drawn = Drawn().floats("first", 784, 512, size=0.03).floats("first_bias", 512, size=0.1)
    drawn.floats("second", 512, 10, size=0.05).floats("second_bias", 10, size=0.1)
    parameters = tuple(drawn.arrays)
    drawn.floats("x", 128, 784).numbers("y", 10, 128)
    return Workload("mlp_step", drawn.arrays, mlp_loss, parameters)


def _gpt_block() -> Workload:
    drawn = Drawn().floats("x", 1, 256, 768).layer("", 768)
    return Workload("gpt_block", drawn.arrays, lambda p: block(p["x"], p, "", HEADS["gpt_block"]))


def _gpt_step() -> Workload:
    drawn = Drawn().floats("embedding", 256, 128, size=0.3).floats("places", 64, 128, size=0.3)
    for layer in range(LAYERS):
        drawn.layer(f"layer{layer}.", 128)
    drawn.floats("scale", 128, size=0.1, around=1).floats("shift", 128, size=0.1)
    drawn.floats("head", 128, 256, size=0.09)
    parameters = tuple(drawn.arrays)
    drawn.numbers("tokens", 256, 8, 64).numbers("targets", 256, 8, 64)
    return Workload("gpt_step", drawn.arrays, gpt_loss, parameters)


MAKERS: dict[str, Callable[[], Workload]] = {
    "softmax": _softmax, "layer_norm": _layer_norm, "attention": _attention,
    "mlp_step": _mlp_step, "gpt_block": _gpt_block, "gpt_step": _gpt_step,
}


@cache
def workload(name: str) -> Workload:
    """A workload by its name."""
    return MAKERS[name]()
