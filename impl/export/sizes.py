"""Whether what was captured is right for all values of variables. Chapter: spec/export.md."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from impl import symbolic
from impl.ir import Ops, UOp
from impl.replay.recording import Captured
from impl.replay.results import mapped
from impl.tensor import Tensor


def other_values(captured: Captured) -> dict[UOp, UOp] | None:
    """Each bound variable with another value, for which all comparisons come out as before; None
    if there are no variables, or no such values near the old ones or at the bounds.
    """
    binds = list(dict.fromkeys(captured.arguments.variables.values()))
    for values in _tried(binds) if binds else ():
        now = dict(zip(binds, values, strict=True))
        if all(bool(symbolic.evaluate(condition, now)) is outcome
               for condition, outcome in captured.comparisons.items()):
            return {bind: symbolic.Variable(*bind.src[0].arg).bind(value)
                    for bind, value in now.items()}
    return None


def _tried(binds: list[UOp]) -> Iterator[list[int]]:
    """Values to try, near the old ones first."""
    for step in (1, -1, 2, -2):
        values = [int(b.src[1].arg) + step for b in binds]
        if all(b.src[0].arg[1] <= v <= b.src[0].arg[2] for b, v in zip(binds, values, strict=True)):
            yield values
    for place in (1, 2):
        values = [int(b.src[0].arg[place]) for b in binds]
        if all(v != int(b.src[1].arg) for b, v in zip(binds, values, strict=True)):
            yield values


def with_values(given: Any, binds: dict[UOp, UOp]) -> Any:
    """Arguments with other values of their variables; a tensor of another size holds zeros."""
    def changed(size: symbolic.Size) -> Any:
        return symbolic.as_size(size.expression.substitute(binds))

    def change(value: Any) -> Any:
        if isinstance(value, UOp) and value.op is Ops.BIND:
            return binds.get(value, value)
        if symbolic.is_symbolic(value):
            return changed(value)
        shape = value.shape if isinstance(value, Tensor) else ()
        if not any(map(symbolic.is_symbolic, shape)):
            return value
        greatest = [symbolic.greatest(size) for size in shape]
        parts = tuple(slice(0, symbolic.map_sizes(size, changed)) for size in shape)
        return Tensor.zeros(*greatest, dtype=value.dtype, device=value.device)[parts] \
            .contiguous().realize()
    return mapped(given, change)
