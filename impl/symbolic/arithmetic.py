"""Sums, products, quotients and remainders that simplify when made. Chapter: spec/symbolic.md.

They stand together because they need each other: a sum puts a quotient and a remainder together
again, and a quotient is a sum of quotients.
"""
from __future__ import annotations

import math
from collections.abc import Iterable

from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.symbolic.bounds import Index, bounds, const
from impl.symbolic.terms import Terms, accumulate, span_of, sum_of, term_order, terms_of

_CONST, _ADD, _MUL, _FLOORDIV, _FLOORMOD = (
    Ops.CONST, Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD)
_RANGE, _DEFINE_VAR = Ops.RANGE, Ops.DEFINE_VAR
_index = dtypes.index


def recombine(terms: Terms, constant: int) -> int:
    """Turn k*n*(x // n) + k*(x mod n) into k*x wherever both stand in the sum, in place.

    The constant comes back, as `x` may have one of its own.
    """
    while True:
        found = _divided_pair(terms)
        if found is None:
            return constant
        quotient, remainder = found
        factor = terms.pop(remainder)
        del terms[quotient]
        more, extra = terms_of(remainder.src[0])
        for atom, times in more.items():
            accumulate(terms, atom, factor * times)
        constant += factor * extra


def _divided_pair(terms: Terms) -> tuple[UOp, UOp] | None:
    """A quotient and a remainder of one number by one divisor whose factors fit together."""
    for remainder, factor in terms.items():
        if remainder.op is _FLOORMOD and remainder.src[1].op is _CONST:
            wanted = factor * remainder.src[1].arg
            if any(f == wanted and a.op is _FLOORDIV for a, f in terms.items()):
                quotient = floordiv(*remainder.src)
                if terms.get(quotient) == wanted and quotient is not remainder:
                    return quotient, remainder
    return None


def as_node(value: Index) -> UOp:
    if isinstance(value, UOp):
        return value
    if value.__class__ is int:
        return const(value)
    return getattr(value, "expression", None) or const(int(value))  # a symbolic size has one


def add(left: Index, right: Index) -> UOp:
    """left + right (r[symbolic.rewriting.equal])."""
    left, right = as_node(left), as_node(right)
    if left.op is _CONST:
        left, right = right, left
    if right.op is _CONST:
        return _add_constant(left, right.arg)
    terms, constant = terms_of(left)  # r[impl symbolic.rewriting.equal]
    more, extra = terms_of(right)
    for atom, factor in more.items():
        accumulate(terms, atom, factor)
    return sum_of(terms, recombine(terms, constant + extra))


def _add_constant(node: UOp, value: int) -> UOp:
    if node.op is _CONST:
        return const(node.arg + value)
    if node.op is _ADD and node.src[1].op is _CONST:
        value += node.src[1].arg
        node = node.src[0]
    return node if value == 0 else UOp(_ADD, _index, (node, const(value)))


def sub(left: Index, right: Index) -> UOp:
    """left - right."""
    if not isinstance(right, UOp):
        return add(left, -right)
    return add(left, mul(right, -1))


def mul(left: Index, right: Index) -> UOp:
    """left * right."""
    left, right = as_node(left), as_node(right)
    if left.op is _CONST:
        left, right = right, left
    if right.op is not _CONST:
        return _product(left, right)
    factor = right.arg
    if factor == 1:
        return left
    if factor == 0:
        return const(0)
    if left.op in (_RANGE, _DEFINE_VAR):
        return UOp(_MUL, _index, (left, right))
    terms, constant = terms_of(left)
    return sum_of({atom: f * factor for atom, f in terms.items()}, constant * factor)


def _product(left: UOp, right: UOp) -> UOp:
    """A product of two unknown numbers: an atom, with the numbers that multiply them outside."""
    factor = 1
    factors = []
    for node in (left, right):
        if node.op is _MUL and node.src[1].op is _CONST:
            factor *= node.src[1].arg
            node = node.src[0]
        factors.append((node, 1))
    first, second = sorted(factors, key=term_order)
    return mul(UOp(_MUL, _index, (first[0], second[0])), factor)


class _Split:
    """x = divisor * quotient + scale * inner + rest, with 0 <= rest < scale, scale | divisor.

    So x // divisor is quotient + inner // (divisor / scale), and x mod divisor is
    scale * (inner mod (divisor / scale)) + rest, both exactly, whatever the signs. Division and
    remainder both start here, so that they stay parts of one number and can be put together again.
    `resolved` says that inner // (divisor / scale) is 0.
    """

    __slots__ = ("quotient", "quotient_constant", "inner", "constant", "divisor", "scale", "rest",
                 "rest_constant", "resolved")

    def __init__(self, terms: Terms, constant: int, divisor: int) -> None:
        self.quotient: Terms = {}
        self.quotient_constant = 0
        self.inner, self.constant, self.divisor = terms, constant, divisor
        self.scale, self.rest_constant, self.resolved = 1, 0, False
        self.rest: Terms = {}
        self.take_multiples()
        while not self.resolved and self.take_factor():
            self.take_multiples()

    def take_multiples(self) -> None:
        """Move what the divisor divides into the quotient; see whether the rest is decided."""
        # r[impl symbolic.floor.exact]: every step below is an equality of whole numbers.
        divisor, inner = self.divisor, {}
        for atom, factor in self.inner.items():
            if -divisor < factor < divisor:
                inner[atom] = factor
            else:
                times = factor // divisor if factor > 0 else -(-factor // divisor)
                accumulate(self.quotient, atom, times)
                if factor != times * divisor:
                    inner[atom] = factor - times * divisor
        times, self.constant = divmod(self.constant, divisor)
        self.quotient_constant += times
        low, high = span_of(inner, self.constant)
        if low // divisor == high // divisor:  # r[impl symbolic.division.simple]
            self.quotient_constant += low // divisor
            self.constant -= low // divisor * divisor
            self.resolved = True
        self.inner = inner

    def take_factor(self) -> bool:
        """Take a common factor of divisor and terms out, if the other terms stay below it."""
        factors = {math.gcd(factor, self.divisor) for factor in self.inner.values()}
        for factor in sorted(factors, reverse=True):
            if factor > 1:
                rest = {a: f for a, f in self.inner.items() if f % factor}
                times, left = divmod(self.constant, factor)
                low, high = span_of(rest, left)
                if low // factor == high // factor:
                    over = low // factor
                    self.add_rest(rest, left - over * factor)
                    self.inner = {a: f // factor for a, f in self.inner.items() if not f % factor}
                    self.constant = times + over
                    self.divisor //= factor
                    self.scale *= factor
                    return True
        return False

    def add_rest(self, terms: Terms, constant: int) -> None:
        """Add scale * (terms + constant) to the rest."""
        for atom, factor in terms.items():
            accumulate(self.rest, atom, self.scale * factor)
        self.rest_constant += self.scale * constant


def floordiv(left: Index, right: Index) -> UOp:
    """left // right, rounded down; 0 where right is 0."""
    left, right = as_node(left), as_node(right)
    if right.op is not _CONST:
        return _unknown_divisor(_FLOORDIV, left, right)
    divisor = right.arg
    if left.op is _CONST or divisor == 0:
        return const(left.arg // divisor if divisor else 0)
    if divisor < 0:
        left, divisor = mul(left, -1), -divisor
    if divisor == 1:
        return left
    low, high = left.bounds or bounds(left)
    if low // divisor == high // divisor:
        return const(low // divisor)
    return _divide(left, divisor)


def _divide(left: UOp, divisor: int) -> UOp:
    # r[impl symbolic.depth.iterative]: a quotient inside a quotient is opened in a loop, not by
    # recursion; `outside` is what is still to be done.
    outside: list[tuple[UOp, int]] = []
    while True:
        split = _Split(*terms_of(left), divisor)
        quotient = sum_of(split.quotient, split.quotient_constant)
        if split.resolved:
            break
        inner, divisor = split.inner, split.divisor
        atom = next(iter(inner))
        alone = len(inner) == 1 and inner[atom] == 1
        if alone and atom.op is _FLOORDIV and _positive(atom.src[1]):
            # (z // m + c) // d is (z + c*m) // (m*d): r[impl symbolic.division.simple]
            left = add(atom.src[0], split.constant * atom.src[1].arg)
            divisor *= atom.src[1].arg
            outside.append((quotient, 0))
        elif alone and split.constant == 0 and atom.op is _FLOORMOD and _multiple(atom, divisor):
            # (z mod n) // d is (z // d) mod (n / d) where d divides n
            left = atom.src[0]
            outside.append((quotient, atom.src[1].arg // divisor))
        else:
            node = UOp(_FLOORDIV, _index, (sum_of(inner, split.constant), const(divisor)))
            quotient = add(quotient, node)
            break
    for more, modulus in reversed(outside):
        quotient = add(mod(quotient, modulus) if modulus else quotient, more)
    return quotient


def mod(left: Index, right: Index) -> UOp:
    """left mod right, with the sign of right; 0 where right is 0."""
    left, right = as_node(left), as_node(right)
    if right.op is not _CONST:
        return _unknown_divisor(_FLOORMOD, left, right)
    divisor = right.arg
    if left.op is _CONST or divisor == 0:
        return const(left.arg % divisor if divisor else 0)
    if divisor < 0:
        return mul(mod(mul(left, -1), -divisor), -1)
    low, high = left.bounds or bounds(left)
    if low // divisor == high // divisor:
        return _add_constant(left, -(low // divisor) * divisor)
    return _remainder(left, divisor)


def _remainder(left: UOp, divisor: int) -> UOp:
    scale, rest = 1, const(0)
    while True:
        split = _Split(*terms_of(left), divisor)
        rest = add(rest, mul(sum_of(split.rest, split.rest_constant), scale))
        scale, divisor = scale * split.scale, split.divisor
        inner = sum_of(split.inner, split.constant)
        if split.resolved:
            break
        # r[impl symbolic.division.simple]: an inner remainder by a multiple changes nothing.
        left = inner
        for atom, factor in split.inner.items():
            if atom.op is _FLOORMOD and _positive(atom.src[1]) and (
                    factor * atom.src[1].arg % divisor == 0):
                left = add(left, mul(sub(atom.src[0], atom), factor))
        if left is inner:
            inner = UOp(_FLOORMOD, _index, (inner, const(divisor)))
            break
    return add(rest, mul(inner, scale))


def _positive(node: UOp) -> bool:
    return node.op is _CONST and node.arg > 0


def _multiple(remainder: UOp, divisor: int) -> bool:
    return _positive(remainder.src[1]) and remainder.src[1].arg % divisor == 0


def _unknown_divisor(op: Ops, left: UOp, right: UOp) -> UOp:
    """Division by a number known only at run time: simple where the bounds say so."""
    low, high = bounds(left)
    least, most = bounds(right)
    if least == most:
        return (floordiv if op is _FLOORDIV else mod)(left, least)
    counts = left.op is Ops.RANGE and left.src[0] is right  # r[impl symbolic.division.loop]
    if counts or 0 <= low and high < least:
        return const(0) if op is _FLOORDIV else left
    if left is right and (least > 0 or most < 0):
        return const(1 if op is _FLOORDIV else 0)
    return UOp(op, _index, (left, right))


def total(values: Iterable[Index]) -> UOp:
    """The sum of many indices, built once: linear in their number."""
    terms: Terms = {}
    constant = 0
    for value in values:
        more, extra = terms_of(as_node(value))
        for atom, factor in more.items():
            accumulate(terms, atom, factor)
        constant += extra
    return sum_of(terms, recombine(terms, constant))


def weighted_sum(weights: Iterable[tuple[UOp, int]]) -> UOp:
    """The sum of indices, each times a number, built once."""
    terms: Terms = {}
    constant = 0
    for value, weight in weights:
        if weight.__class__ is not int:  # a stride known at run time only
            value, weight = mul(value, weight), 1
        if value.op is _RANGE:
            accumulate(terms, value, weight)
        else:
            more, extra = terms_of(value)
            for atom, factor in more.items():
                accumulate(terms, atom, factor * weight)
            constant += extra * weight
    return sum_of(terms, recombine(terms, constant))
