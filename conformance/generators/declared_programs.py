"""Every statement for every dtype: what an implementation says when it declares them.

A program has the statements of one sort, on four elements of one dtype, and observes all of them.
What is not declared is left out of it before it runs, so statements do not depend on each other.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import Array, Program, shapes
from conformance.protocol.shapes import ProgramError

SQUARE = np.array([[1, 0], [1, 1]])
#: The fields of each movement, for two rows and two columns; `expand` is given one row.
MOVES: dict[str, dict[str, Any]] = {
    "reshape": {"shape": [4]}, "expand": {"shape": [3, 2]}, "permute": {"order": [1, 0]},
    "pad": {"widths": [[1, 0], [0, 2]]}, "shrink": {"bounds": [[0, 2], [1, 2]]},
    "flip": {"axes": [0]}, "stride": {"steps": [1, 2]}}


def programs_for(dtypes: Sequence[str]) -> Iterator[Program]:
    """One program for each sort of statements and each dtype, the plainest sort first.

    A statement is left out where it is not defined.
    """
    for sort in SORTS:
        for dtype in dtypes:
            draft = Draft()
            sort(draft, dtype)
            draft.append({"do": "observe", "names": list(draft.kinds)})
            yield protocol.program(draft.statements)


def _given(draft: Draft, dtype: str, elements: Array = SQUARE) -> str:
    array = elements.astype(dtype)
    return draft.add("input", dtype=dtype, shape=list(array.shape), data=protocol.encode(array))


def _try(draft: Draft, do: str, *sources: str, **fields: Any) -> None:
    """Append a statement, unless it is not defined for the dtype of its sources."""
    with suppress(ProgramError):
        draft.add(do, *sources, **fields)


def _elementwise(draft: Draft, dtype: str) -> None:
    x = _given(draft, dtype)
    draft.constant(draft.kinds[x], True if dtype == "bool" else 1)
    for do in (*protocol.UNARY, "contiguous", "copy"):
        _try(draft, do, x)
    for do in protocol.BINARY:
        _try(draft, do, x, x)


def _along_axes(draft: Draft, dtype: str) -> None:
    x = _given(draft, dtype)
    for do in protocol.REDUCTIONS:
        _try(draft, do, x, axes=[1], keepdims=False)
    for do in ("softmax", "cumsum"):
        _try(draft, do, x, axis=1)
    _try(draft, "matmul", x, x)


def _movements(draft: Draft, dtype: str) -> None:
    x, row = _given(draft, dtype), _given(draft, dtype, SQUARE[:1])
    for do, fields in MOVES.items():
        _try(draft, do, row if do == "expand" else x, **fields)


def _casts(draft: Draft, dtype: str) -> None:
    x = _given(draft, dtype)
    for other in protocol.DTYPES:
        _try(draft, "cast", x, dtype=other)
        _try(draft, "bitcast", x, dtype=other)


def _choices(draft: Draft, dtype: str) -> None:
    """Conditions that were given and that were computed; indices of each integer dtype."""
    x = _given(draft, dtype)
    _try(draft, "where", draft.add("equal", x, x), x, x)
    _try(draft, "where", _given(draft, "bool"), x, x)
    for index in protocol.INTEGERS:
        _try(draft, "gather", x, _given(draft, index, np.array([1, 0, 1])))


def _writes(draft: Draft, dtype: str) -> None:
    for do in protocol.VIEW_STEPS:
        step, target = {"do": do, **MOVES[do]}, _given(draft, dtype)
        value = _given(draft, dtype, np.zeros(shapes.moved(step, SQUARE.shape)))
        draft.append({"do": "store", "target": target, "from": [value], "view": [step]})
    value = _given(draft, dtype, 1 - SQUARE)
    draft.append({"do": "assign", "target": _given(draft, dtype), "from": [value]})


SORTS: tuple[Callable[[Draft, str], None], ...] = (
    _elementwise, _along_axes, _movements, _casts, _choices, _writes)
