"""Comparisons of a vector's places with a number. Chapter: spec/render.md."""
from __future__ import annotations

from impl.dtypes import dtypes
from impl.ir import COMPARISONS, Ops, UOp
from impl.render.dialect import Operand
from impl.render.values import Values, width_of

#: Indices of vectors have so many bits.
_OF_INDICES = 32


def compared_places(values: Values, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                    vector: UOp) -> list[Operand] | None:
    """A comparison of `place + offset` with a bound, as one of the place with `bound - offset`.

    None where the elements that it chooses are no narrower than indices.
    """
    # r[impl render.mask.places]
    bits = values.chosen.get(node, 0)
    if node.op not in COMPARISONS or node.src[0].dtype is not dtypes.index \
            or not 0 < bits < _OF_INDICES:
        return None
    for turned, (side, bound) in enumerate((node.src, node.src[::-1])):
        offsets = _offsets(values, side, vector)
        if offsets is None or values.low.vector.get(bound) is vector:
            continue
        texts = [values._text(part, wide, at) for part in (bound, *offsets)]
        return [values.dialect.vector_within(node.op, width_of(vector), bits,
                                             f"({' - '.join(parts)})", bool(turned))
                for parts in zip(*texts, strict=True)]
    return None


def _offsets(values: Values, side: UOp, vector: UOp) -> list[UOp] | None:
    """What is added to the places of a vector, if the side is nothing but such a sum."""
    found = list[UOp]()
    while side is not vector:
        if side.op is not Ops.ADD:
            return None
        one, other = side.src
        if values.low.vector.get(other) is vector or other is vector:
            one, other = other, one
        if values.low.vector.get(other) is vector or other is vector:
            return None
        found.append(other)
        side = one
    return found
