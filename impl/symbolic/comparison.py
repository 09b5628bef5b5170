"""Conditions on indices, decided where bounds decide. Chapter: spec/symbolic.md."""
from __future__ import annotations

import math

from impl.dtypes import dtypes
from impl.ir import FALSE, TRUE, Ops, UOp
from impl.symbolic.arithmetic import add, as_node, recombine, sub
from impl.symbolic.bounds import Index, const
from impl.symbolic.terms import Terms, accumulate, span_of, sum_of, terms_of

_CONST, _CMPLT, _AND = Ops.CONST, Ops.CMPLT, Ops.AND
_bool, _index = dtypes.bool, dtypes.index


def less_than(left: Index, right: Index) -> UOp:
    """left < right, a bool; TRUE or FALSE where the bounds decide."""
    left, right = as_node(left), as_node(right)
    terms, constant = terms_of(left)
    more, extra = terms_of(right)
    for atom, factor in more.items():
        accumulate(terms, atom, -factor)
    limit = extra - recombine(terms, constant)
    low, high = span_of(terms, 0)
    if high < limit:  # r[impl symbolic.comparison.implied]
        return TRUE
    if low >= limit:
        return FALSE
    terms, limit = _divided_comparison(terms, limit)
    return _comparison(_CMPLT, terms, limit)


def _divided_comparison(terms: Terms, limit: int) -> tuple[Terms, int]:
    """terms < limit, divided by a common factor; terms too small to matter are left out."""
    for divisor in sorted({abs(factor) for factor in terms.values()}, reverse=True):
        rest = {a: f for a, f in terms.items() if f % divisor}
        low, high = span_of(rest, 0)
        # With 0 <= rest < g: g*y + rest < g*m just if y < m. Without rest any limit rounds up.
        if divisor > 1 and (not rest or (0 <= low and high < divisor and limit % divisor == 0)):
            kept = {a: f // divisor for a, f in terms.items() if a not in rest}
            return kept, -(-limit // divisor)
    divisor = math.gcd(*terms.values())
    return {a: f // divisor for a, f in terms.items()}, -(-limit // divisor)


def _comparison(op: Ops, terms: Terms, limit: int) -> UOp:
    """The comparison with no negative factor: negative terms go to the right side."""
    left = {a: f for a, f in terms.items() if f > 0}
    right = {a: -f for a, f in terms.items() if f < 0}
    if left:
        return UOp(op, _bool, (sum_of(left, 0), sum_of(right, limit)))
    return UOp(op, _bool, (const(-limit), sum_of(right, 0)))


def less_equal(left: Index, right: Index) -> UOp:
    """left <= right, a bool: for whole numbers the same as left < right + 1."""
    return less_than(left, add(right, 1))


def equal(left: Index, right: Index) -> UOp:
    """left == right, a bool; TRUE or FALSE where the bounds or a common factor decide."""
    terms, constant = terms_of(sub(left, right))
    limit = -constant
    if not terms:
        return TRUE if limit == 0 else FALSE
    low, high = span_of(terms, 0)
    divisor = math.gcd(*terms.values())
    if not low <= limit <= high or limit % divisor:
        return FALSE
    if low == high:
        return TRUE
    if next(iter(terms.values())) < 0:
        divisor = -divisor
    return _comparison(Ops.CMPEQ, {a: f // divisor for a, f in terms.items()}, limit // divisor)


def logical_and(left: UOp | bool, right: UOp | bool) -> UOp:
    """left and right, both bools. Conditions that others imply are left out."""
    left = left if isinstance(left, UOp) else (TRUE if left else FALSE)
    right = right if isinstance(right, UOp) else (TRUE if right else FALSE)
    if left is FALSE or right is FALSE:
        return FALSE
    if left is TRUE or left is right:
        return right
    if right is TRUE:
        return left
    kept: list[UOp] = []  # r[impl symbolic.comparison.implied]
    for condition in conjuncts(left) + conjuncts(right):
        if not _join(kept, condition):
            return FALSE
    node = kept[0]
    for condition in kept[1:]:
        node = UOp(_AND, _bool, (node, condition))
    return node


def conjuncts(condition: UOp) -> list[UOp]:
    """The conditions of a conjunction built by `logical_and`, in order; none for TRUE."""
    found = []
    while condition.op is _AND and condition.dtype is _bool:
        found.append(condition.src[1])
        condition = condition.src[0]
    if condition is not TRUE:
        found.append(condition)
    return found[::-1]


def _join(kept: list[UOp], condition: UOp) -> bool:
    """Add a condition to a list of which none implies another; False: it contradicts one."""
    limit = limit_of(condition)
    for place, other in enumerate(kept):
        if other is condition:
            return True
        if limit is not None:
            known = limit_of(other)
            if known is not None and known[0] is limit[0]:
                if known[1] == limit[1]:  # both from below or both from above: keep the stronger
                    if (limit[2] > known[2]) == limit[1]:
                        kept[place] = condition
                    return True
                below, above = (limit, known) if limit[1] else (known, limit)
                if below[2] > above[2]:
                    return False
    kept.append(condition)
    return True


def limit_of(condition: UOp) -> tuple[UOp, bool, int] | None:
    """Of n < x or x < n: x, whether it is limited from below, and its least or greatest value.

    None for other conditions, and for data: between 0 and 1 there is no index, but many a float.
    """
    if condition.op is not _CMPLT or condition.src[0].dtype is not _index:
        return None
    left, right = condition.src
    if left.op is _CONST:
        return right, True, left.arg + 1
    return (left, False, right.arg - 1) if right.op is _CONST else None
