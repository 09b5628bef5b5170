"""Random programs with sizes and positions that depend on bound variables.

A program is a list of steps on a NumPy array and, in the same words, on a tensor. It is drawn once
and run for several values of its variables, so that one plan has to be right for all of them.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ROWS = 24
GREATEST = 8

Values = dict[str, Any]
Step = Callable[["Side", Values], None]


class Side:
    """One side of a comparison: its inputs, and the value that the steps work on."""

    def __init__(self, library: Any, inputs: dict[str, Any]) -> None:
        self.library, self.inputs = library, inputs
        self.now: Any = None

    @property
    def is_numpy(self) -> bool:
        """Whether this is the side that says what is right."""
        return self.library is np


@dataclass
class SymbolicProgram:
    """Steps, in words and as functions; `variables` are the names with their intervals."""

    variables: dict[str, tuple[int, int]]
    steps: list[tuple[str, Step]] = field(default_factory=list)

    def run(self, side: Side, values: Values) -> Any:
        """All steps; the result."""
        for _, step in self.steps:
            step(side, values)
        return side.now

    def __str__(self) -> str:
        return "; ".join(words for words, _ in self.steps)


def inputs_of(seed: int) -> dict[str, np.ndarray]:
    """Arrays large enough for every value of the variables."""
    draw = np.random.default_rng(seed)
    return {"a": draw.integers(-9, 10, (ROWS, 4)).astype(np.float32),
            "b": draw.integers(-9, 10, (ROWS, 4)).astype(np.float32),
            "w": draw.integers(-3, 4, (4, 5)).astype(np.float32)}


def draw_program(seed: int, least: int = 1) -> SymbolicProgram:
    """A program over variables n and m from `least` to GREATEST."""
    draw = random.Random(seed)
    program = SymbolicProgram({"n": (least, GREATEST), "m": (least, GREATEST)})
    program.steps.append(draw.choice(_STARTS)(draw))
    for _ in range(draw.randint(1, 4)):
        program.steps.append(draw.choice(_MIDDLES)(draw))
    if draw.random() < 0.6:
        program.steps.append(draw.choice(_ENDS)(draw))
    return program


# ---------------------------------------------------------------- the first value: rows by 4

def _first_rows(draw: random.Random) -> tuple[str, Step]:
    source, name, more = draw.choice("ab"), draw.choice("nm"), draw.randint(0, 2)

    def step(side: Side, values: Values) -> None:
        side.now = side.inputs[source][:values[name] + more]
    return f"x = {source}[:{name} + {more}]", step


def _window(draw: random.Random) -> tuple[str, Step]:
    source, start, length = draw.choice("ab"), *draw.choice([("n", "m"), ("m", "n")])

    def step(side: Side, values: Values) -> None:
        at = values[start]
        side.now = side.inputs[source][at:at + values[length] + 1]
    return f"x = {source}[{start}:{start} + {length} + 1]", step


def _three_starts(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        a, b, n, m = side.inputs["a"], side.inputs["b"], values["n"], values["m"]
        side.now = a[n:n + 3] + b[m:m + 3] * 2 + a[n + m:n + m + 3]
    return "x = a[n:n + 3] + b[m:m + 3] * 2 + a[n + m:n + m + 3]", step


def _middle_rows(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        side.now = side.inputs["b"][values["n"]:-values["m"]]
    return "x = b[n:-m]", step


def _written(draw: random.Random) -> tuple[str, Step]:
    start, whole = draw.choice("nm"), draw.random() < 0.5

    def step(side: Side, values: Values) -> None:
        target = side.inputs["a"].copy() if side.is_numpy else side.inputs["a"].clone()
        at = values[start]
        target[at:at + 2] = side.inputs["b"][at:at + 2] + 1
        side.now = target if whole else target[:at + 1]
    return f"x = copy of a; x[{start}:{start} + 2] = b[same] + 1; whole: {whole}", step


def _counted(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        n, m = values["n"], values["m"]
        if side.is_numpy:
            line = np.arange(n * m + 1, dtype=np.float32)
        else:
            line = side.library.arange(n * m + 1).float()
        side.now = line.reshape(n * m + 1, 1) + side.inputs["a"][0]
    return "x = arange(n * m + 1).reshape(-1, 1) + a[0]", step


# ---------------------------------------------------------------- rows by columns stays so

def _elementwise(draw: random.Random) -> tuple[str, Step]:
    number = draw.randint(-3, 3)

    def step(side: Side, values: Values) -> None:
        side.now = side.now * number + 1
    return f"x = x * {number} + 1", step


def _flipped(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        side.now = side.now[::-1]
    return "x = x[::-1]", step


def _joined(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        parts = [side.now, side.now[:1] + 5]
        side.now = np.concatenate(parts) if side.is_numpy else side.library.cat(*parts)
    return "x = cat(x, x[:1] + 5)", step


def _padded(draw: random.Random) -> tuple[str, Step]:
    name = draw.choice("nm")

    def step(side: Side, values: Values) -> None:
        widths = ((values[name], 1), (0, 0))
        side.now = np.pad(side.now, widths) if side.is_numpy else side.now.pad(widths)
    return f"x = pad(x, (({name}, 1), (0, 0)))", step


def _reshaped(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        rows, columns = side.now.shape
        side.now = (side.now.reshape(columns, rows) + 1).reshape(-1).reshape(rows, columns)
    return "x = (x.reshape(columns, rows) + 1).reshape(rows, columns)", step


def _turned(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        rows, columns = side.now.shape
        turned = side.now.T * 2
        side.now = turned.reshape(columns * rows).reshape(rows, columns)
    return "x = (x.T * 2).reshape(-1).reshape(rows, columns)", step


def _repeated(draw: random.Random) -> tuple[str, Step]:
    name = draw.choice("nm")

    def step(side: Side, values: Values) -> None:
        row = side.now[:1]
        shape = (values[name] + 1, row.shape[1])
        wide = np.broadcast_to(row, shape) if side.is_numpy else row.expand(*shape)
        side.now = wide - side.inputs["a"][:values[name] + 1, :1]
    return f"x = x[:1].expand({name} + 1, columns) - a[:{name} + 1, :1]", step


def _centred(draw: random.Random) -> tuple[str, Step]:
    axis = draw.randint(0, 1)

    def step(side: Side, values: Values) -> None:
        if side.is_numpy:
            side.now = side.now - side.now.max(axis, keepdims=True)
        else:
            side.now = side.now - side.now.max(axis, keepdim=True)
    return f"x = x - x.max({axis}, keepdim=True)", step


def _divided(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        side.now = side.now + side.now.sum(0) * values["n"]
    return "x = x + x.sum(0) * n", step


def _stored(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        if not side.is_numpy:
            side.now = side.now.contiguous()
    return "x = x.contiguous()", step


def _taken(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        side.now = side.now[::2]
    return "x = x[::2]", step


# ---------------------------------------------------------------- the last step

def _summed(draw: random.Random) -> tuple[str, Step]:
    axis = draw.choice([0, 1, None])

    def step(side: Side, values: Values) -> None:
        side.now = side.now.sum(axis)
    return f"x = x.sum({axis})", step


def _averaged(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        side.now = side.now.mean(0)
    return "x = x.mean(0)", step


def _product(draw: random.Random) -> tuple[str, Step]:
    kind = draw.choice(["rows", "inner", "both"])

    def step(side: Side, values: Values) -> None:
        x = side.now
        if kind == "both":
            side.now = x @ x.T
        else:
            side.now = x.T @ x if kind == "inner" else x[:, :4] @ side.inputs["w"]
    return f"x = product of kind {kind}", step


def _last_row(draw: random.Random) -> tuple[str, Step]:
    def step(side: Side, values: Values) -> None:
        side.now = side.now[-1] * 3
    return "x = x[-1] * 3", step


_STARTS = [_first_rows, _window, _three_starts, _middle_rows, _written, _counted]
_MIDDLES = [_elementwise, _flipped, _joined, _padded, _reshaped, _turned, _repeated, _centred,
            _divided, _stored, _taken]
_ENDS = [_summed, _averaged, _product, _last_row]
