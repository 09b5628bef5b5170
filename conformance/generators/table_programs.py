"""Programs whose tables of one size are made of each other, in ways that fit in place and not.

A scheduler may let a value lie where another one lay that nobody reads any more. That is right
where each element is made of the element at its place, or of its row once that has been read; it
is wrong where an element is read after its place has been written. All numbers are whole, so that
an answer is right or wrong.
"""
from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import Program

Way = Callable[[Draft, str, str], str]


def _along(do: str, axis: int, turned: bool = False) -> Way:
    """What an axis is reduced to is taken from each of its elements, or from those of the line
    opposite."""
    def way(draft: Draft, x: str, y: str) -> str:
        shape = list(draft.kinds[x].shape)
        read = draft.add("flip", x, axes=[1 - axis]) if turned else x
        line = draft.add(do, read, axes=[axis], keepdims=True)
        return draft.add("sub", y, draft.add("expand", line, shape=shape))
    return way


def _across(do: str) -> Way:
    """A row is made with what its column is reduced to: other rows are read than the one that is
    written."""
    def way(draft: Draft, x: str, y: str) -> str:
        turned = draft.add("permute", x, order=[1, 0])
        line = draft.add(do, turned, axes=[1], keepdims=True)
        return draft.add("sub", y, draft.add("expand", line, shape=list(draft.kinds[x].shape)))
    return way


def _shifted(draft: Draft, x: str, y: str) -> str:
    rows, columns = draft.kinds[x].shape
    lower = draft.add("pad", x, widths=[[1, 0], [0, 0]])
    return draft.add("add", draft.add("shrink", lower, bounds=[[0, rows], [0, columns]]), y)


def _scaled(draft: Draft, x: str, y: str) -> str:
    return draft.add("sub", draft.add("mul", x, draft.constant(draft.kinds[x], 5)), y)


WAYS: tuple[Way, ...] = (
    lambda draft, x, y: draft.add("add", x, y), _scaled, _shifted,
    lambda draft, x, y: draft.add("add", draft.add("flip", x, axes=[0]), y),
    lambda draft, x, y: draft.add("flip", draft.add("neg", x), axes=[1]),
    lambda draft, x, y: draft.add("neg", draft.add("permute", x, order=[1, 0])),
    lambda draft, x, y: draft.add("cumsum", x, axis=0),
    lambda draft, x, y: draft.add("cumsum", x, axis=1),
    lambda draft, x, y: draft.add("matmul", x, y),
    _along("max", 1), _along("min", 0), _along("sum", 0), _along("sum", 1),
    _along("max", 1, turned=True), _along("sum", 0, turned=True),
    _across("max"), _across("sum"))

#: The ways that read a line of the table for each element.
LINES = range(9, len(WAYS))


def _inputs(draft: Draft, size: int) -> list[str]:
    return [draft.add("input", dtype="int32", shape=[size, size], data=protocol.encode(
        (np.arange(size * size, dtype=np.int32).reshape(size, size) + number) % 97))
        for number in range(2)]


def _observing(draft: Draft, *names: str) -> Program:
    draft.append({"do": "drop", "names": [each for each in draft.kinds if each not in names]})
    draft.append({"do": "observe", "names": [*names]})
    return protocol.program(draft.statements)


def chain(way: int, size: int) -> Program:
    """Three tables, each made of the one before in one way, which nobody reads afterwards."""
    draft = Draft()
    value, _ = _inputs(draft, size)
    value = draft.add("neg", value)
    for _ in range(3):
        value = draft.add("contiguous", WAYS[way](draft, value, value))
    return _observing(draft, value)


def between_sums(way: int, size: int, other: bool = False) -> Program:
    """A table that is made of running sums, or of them and an `other` table, and of which running
    sums are made."""
    draft = Draft()
    x, y = _inputs(draft, size)
    first = draft.add("contiguous", draft.add("cumsum", x, axis=0))
    value = draft.add("contiguous", WAYS[way](draft, first, y if other else first))
    return _observing(draft, draft.add("cumsum", value, axis=0))


def random_program(seed: int, size: int) -> Program:
    """Up to eight tables of `size` rows and columns, of which the last and another one are seen."""
    chooser, draft = Random(seed), Draft()
    pool = _inputs(draft, size)
    for _ in range(chooser.randrange(3, 9)):
        x, y = chooser.choice(pool[-4:]), chooser.choice(pool[-4:])
        made = chooser.choice(WAYS)(draft, x, y)
        pool.append(draft.add("contiguous", made) if chooser.random() < 0.5 else made)
    return _observing(draft, *dict.fromkeys([pool[-1], chooser.choice(pool[2:])]))
