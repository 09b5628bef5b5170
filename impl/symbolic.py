"""Index arithmetic that simplifies when a node is made. Chapter: spec/symbolic.md.

An index is a `UOp` of type `dtypes.index`, built from loop variables, run-time variables, loads and
numbers. The functions below build one in a canonical form: a sum of *terms* (a number times an
*atom*) and a constant. An atom is whatever is not a sum: a RANGE, a DEFINE_VAR, a cast, a product
of atoms, a quotient or a remainder. Division and remainder round down (r[symbolic.floor.exact]).
Values are whole numbers without a limit: 64 bits hold every index of a tensor that fits memory.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from impl.dtypes import Scalar, dtypes
from impl.errors import GraphError, VariableError
from impl.ir import COMPARISONS, FALSE, TRUE, Ops, UOp, toposort

Index = UOp | int
Bounds = tuple[int, int]
#: A sum without its constant: atom -> its factor, never 0, in the order in which it is written.
Terms = dict[UOp, int]

# Reading a member of an enum is slow enough to matter in functions called for every index.
_CONST, _ADD, _MUL, _FLOORDIV, _FLOORMOD = (
    Ops.CONST, Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD)
_RANGE, _DEFINE_VAR, _CMPLT, _AND = Ops.RANGE, Ops.DEFINE_VAR, Ops.CMPLT, Ops.AND
_index, _bool = dtypes.index, dtypes.bool


@lru_cache(maxsize=4096)
def const(value: int) -> UOp:
    """The number as an index."""
    return UOp.const(_index, value)


# --8<-- [start:variable]
class Variable:
    """A whole number known only at run time, from `minimum` to `maximum`, both included.

    A program that uses a variable is scheduled and compiled once for all its values.

    Raises:
        VariableError: the interval is empty (r[symbolic.variable.interval]), or the name is one
            of those that the random numbers use (r[symbolic.variable.name]).
    """

    __slots__ = ("name", "minimum", "maximum", "uop")

    def __init__(self, name: str, minimum: int, maximum: int) -> None:
        if minimum > maximum:  # r[impl symbolic.variable.interval]
            raise VariableError("Variable", f"{name!r} goes from {minimum} to {maximum}",
                                "give the smaller bound first")
        if "#" in name:  # r[impl symbolic.variable.name]
            raise VariableError("Variable", f"the name {name!r} has a '#', which stands in names "
                                "of variables that this package makes", "take another name")
        self.name, self.minimum, self.maximum = name, int(minimum), int(maximum)
        self.uop = UOp(_DEFINE_VAR, _index, (), (name, self.minimum, self.maximum))

    def bind(self, value: int) -> UOp:
        """The variable with its value, as a node that tensor expressions accept.

        Raises:
            VariableError: the value is outside the interval (r[symbolic.variable.bind]).
        """
        if not self.minimum <= value <= self.maximum:  # r[impl symbolic.variable.bind]
            raise VariableError("bind", f"{self.name} = {value} is not from {self.minimum} "
                                f"to {self.maximum}", "bind a value in the interval, or widen it")
        return UOp(Ops.BIND, _index, (self.uop, const(int(value))))

    @staticmethod
    def unbind(node: UOp) -> tuple[Variable, int]:
        """The variable and the value that `bind` put together."""
        variable, value = node.unbind()
        return Variable(*variable.arg), value

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.minimum}, {self.maximum})"
# --8<-- [end:variable]


# --8<-- [start:bounds]
def bounds(node: Index) -> Bounds:
    """The least and the greatest value that the node can have: always true, not always tight.

    r[symbolic.bounds.sound]. Floating nodes have no bounds and are an error.
    """
    if not isinstance(node, UOp):
        return node, node
    known = node.bounds
    if known is not None:
        return known
    stack = [node]
    while stack:
        top = stack[-1]
        waiting = [s for s in top.src if s.bounds is None and s.dtype.kind != "f"]
        if waiting and top.op in _BOUND_RULES:
            stack.extend(waiting)
        else:
            top.bounds = _bounds_of(stack.pop())  # r[impl symbolic.bounds.sound]
    assert node.bounds is not None
    return node.bounds


def _bounds_of(node: UOp) -> Bounds:
    """The bounds of a node whose sources have theirs."""
    dtype = node.dtype
    if dtype.kind == "f":
        raise GraphError("bounds", f"{node!r} is a floating number", "ask only for integers")
    limits = int(dtype.min), int(dtype.max)
    rule = _BOUND_RULES.get(node.op)
    if rule is None or any(s.dtype.kind == "f" for s in node.src):
        return limits
    found = rule(node, [s.bounds or (0, 0) for s in node.src])
    # Index arithmetic is exact. Arithmetic in other types wraps around where it does not fit.
    fits = dtype is _index or (limits[0] <= found[0] and found[1] <= limits[1])
    return found if fits else limits
# --8<-- [end:bounds]


def _corners(combine: Callable[[int, int], int], left: Bounds, right: Bounds) -> Bounds:
    values = [combine(a, b) for a in left for b in right]
    return min(values), max(values)


def _quotient_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    (low, high), (least, most) = given
    if least <= 0 <= most:  # at most as large as when divided by 1 or -1
        extreme = max(abs(low), abs(high))
        return -extreme, extreme
    return _corners(lambda a, b: a // b, (low, high), (least, most))


def _remainder_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    (low, high), (least, most) = given
    if 0 <= low and high < least:
        return low, high
    if 0 < least == most and low // least == high // least:
        return low % least, high % least
    return min(least + 1, 0), max(most - 1, 0)


def _and_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    (low, high), (least, most) = given
    if low >= 0 or least >= 0:  # the one that is not negative limits the result
        return 0, min(b for a, b in given if a >= 0)
    return int(node.dtype.min), int(node.dtype.max)


def _or_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    if min(low for low, _ in given) < 0:
        return int(node.dtype.min), int(node.dtype.max)
    return 0, (1 << max(high for _, high in given).bit_length()) - 1


def _cast_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    low, high = given[0]
    if node.dtype is _bool:
        return int(low > 0 or high < 0), int((low, high) != (0, 0))
    if node.dtype.kind == "i" and (low < node.dtype.min or high > node.dtype.max):
        return int(node.dtype.min), int(node.dtype.max)  # it wraps around: any value may come out
    return low, high


def _shift_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    value, (least, most) = given
    if least < 0 or most >= 8 * node.dtype.itemsize:
        return int(node.dtype.min), int(node.dtype.max)
    if node.op is Ops.SHL:
        return _corners(lambda a, b: a << b, value, (least, most))
    return _corners(lambda a, b: a >> b, value, (least, most))


def _comparison_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    return 0, 1


_BOUND_RULES: dict[Ops, Callable[[UOp, list[Bounds]], Bounds]] = {
    Ops.CONST: lambda node, given: (int(node.arg), int(node.arg)),
    Ops.DEFINE_VAR: lambda node, given: node.arg[1:],
    Ops.BIND: lambda node, given: given[0],
    Ops.IOTA: lambda node, given: (0, max(0, node.arg - 1)),
    # An empty loop has no values at all, so that any bounds are true.
    Ops.RANGE: lambda node, given: (0, max(0, given[0][1] - 1)),
    Ops.NEG: lambda node, given: (-given[0][1], -given[0][0]),
    Ops.ADD: lambda node, given: (given[0][0] + given[1][0], given[0][1] + given[1][1]),
    Ops.SUB: lambda node, given: (given[0][0] - given[1][1], given[0][1] - given[1][0]),
    Ops.MUL: lambda node, given: _corners(lambda a, b: a * b, given[0], given[1]),
    Ops.FLOORDIV: _quotient_bounds,
    Ops.FLOORMOD: _remainder_bounds,
    Ops.MAXIMUM: lambda node, given: (max(given[0][0], given[1][0]), max(given[0][1], given[1][1])),
    Ops.MINIMUM: lambda node, given: (min(given[0][0], given[1][0]), min(given[0][1], given[1][1])),
    Ops.WHERE: lambda node, given: (min(given[1][0], given[2][0]), max(given[1][1], given[2][1])),
    Ops.CAST: _cast_bounds,
    Ops.AND: _and_bounds,
    Ops.OR: _or_bounds,
    Ops.XOR: _or_bounds,
    Ops.SHL: _shift_bounds,
    Ops.SHR: _shift_bounds,
    **{op: _comparison_bounds for op in COMPARISONS},
}


# --8<-- [start:linear]
def _linear(node: UOp) -> tuple[Terms, int]:
    """The terms and the constant of a canonical sum."""
    terms: Terms = {}
    constant = 0
    if node.op is _ADD:
        pieces = []
        while node.op is _ADD:
            pieces.append(node.src[1])
            node = node.src[0]
        pieces.append(node)
        for piece in reversed(pieces):
            if piece.op is _CONST:
                constant += piece.arg
            elif piece.op is _MUL and piece.src[1].op is _CONST:
                _accumulate(terms, piece.src[0], piece.src[1].arg)
            else:
                _accumulate(terms, piece, 1)
    elif node.op is _CONST:
        constant = node.arg
    elif node.op is _MUL and node.src[1].op is _CONST:
        terms[node.src[0]] = node.src[1].arg
    else:
        terms[node] = 1
    return terms, constant


def _accumulate(terms: Terms, atom: UOp, factor: int) -> None:
    total = terms.get(atom, 0) + factor
    if total:
        terms[atom] = total
    elif atom in terms:
        del terms[atom]


def _place(term: tuple[UOp, int]) -> tuple[int, Any]:
    """Where a term stands in a sum: variables by name, loops by number, others as they came."""
    atom = term[0]
    if atom.op is _RANGE:
        return 1, atom.arg[0]
    return (0, atom.arg[0]) if atom.op is _DEFINE_VAR else (2, 0)


def _sum(terms: Terms, constant: int) -> UOp:
    """The canonical node of a sum (r[symbolic.sum.canonical])."""
    if not terms:
        return const(constant)
    # r[impl symbolic.sum.canonical]: the order depends on the program, never on addresses.
    items = sorted(terms.items(), key=_place) if len(terms) > 1 else terms.items()
    node: UOp | None = None
    for atom, factor in items:
        term = atom if factor == 1 else UOp(_MUL, _index, (atom, const(factor)))
        node = term if node is None else UOp(_ADD, _index, (node, term))
    assert node is not None
    return node if constant == 0 else UOp(_ADD, _index, (node, const(constant)))
# --8<-- [end:linear]


def _span(terms: Terms, constant: int) -> Bounds:
    """The bounds of a sum."""
    low = high = constant
    for atom, factor in terms.items():
        least, most = atom.bounds or bounds(atom)
        if factor > 0:
            low += factor * least
            high += factor * most
        else:
            low += factor * most
            high += factor * least
    return low, high


# --8<-- [start:recombine]
def _recombine(terms: Terms, constant: int) -> int:
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
        more, extra = _linear(remainder.src[0])
        for atom, times in more.items():
            _accumulate(terms, atom, factor * times)
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
# --8<-- [end:recombine]


def _as_node(value: Index) -> UOp:
    return value if isinstance(value, UOp) else const(int(value))


# --8<-- [start:arithmetic]
def add(left: Index, right: Index) -> UOp:
    """left + right (r[symbolic.value.equal])."""
    left, right = _as_node(left), _as_node(right)
    if left.op is _CONST:
        left, right = right, left
    if right.op is _CONST:
        return _add_constant(left, right.arg)
    terms, constant = _linear(left)  # r[impl symbolic.value.equal]
    more, extra = _linear(right)
    for atom, factor in more.items():
        _accumulate(terms, atom, factor)
    return _sum(terms, _recombine(terms, constant + extra))


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
    left, right = _as_node(left), _as_node(right)
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
    terms, constant = _linear(left)
    return _sum({atom: f * factor for atom, f in terms.items()}, constant * factor)


def _product(left: UOp, right: UOp) -> UOp:
    """A product of two unknown numbers: an atom, with the numbers that multiply them outside."""
    factor = 1
    factors = []
    for node in (left, right):
        if node.op is _MUL and node.src[1].op is _CONST:
            factor *= node.src[1].arg
            node = node.src[0]
        factors.append((node, 1))
    first, second = sorted(factors, key=_place)
    return mul(UOp(_MUL, _index, (first[0], second[0])), factor)
# --8<-- [end:arithmetic]


# --8<-- [start:split]
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
                _accumulate(self.quotient, atom, times)
                if factor != times * divisor:
                    inner[atom] = factor - times * divisor
        times, self.constant = divmod(self.constant, divisor)
        self.quotient_constant += times
        low, high = _span(inner, self.constant)
        if low // divisor == high // divisor:  # r[impl symbolic.division.decided]
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
                low, high = _span(rest, left)
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
            _accumulate(self.rest, atom, self.scale * factor)
        self.rest_constant += self.scale * constant
# --8<-- [end:split]


# --8<-- [start:division]
def floordiv(left: Index, right: Index) -> UOp:
    """left // right, rounded down; 0 where right is 0."""
    left, right = _as_node(left), _as_node(right)
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
        split = _Split(*_linear(left), divisor)
        quotient = _sum(split.quotient, split.quotient_constant)
        if split.resolved:
            break
        inner, divisor = split.inner, split.divisor
        atom = next(iter(inner))
        alone = len(inner) == 1 and inner[atom] == 1
        if alone and atom.op is _FLOORDIV and _positive(atom.src[1]):
            # (z // m + c) // d is (z + c*m) // (m*d): r[impl symbolic.division.nested]
            left = add(atom.src[0], split.constant * atom.src[1].arg)
            divisor *= atom.src[1].arg
            outside.append((quotient, 0))
        elif alone and split.constant == 0 and atom.op is _FLOORMOD and _multiple(atom, divisor):
            # (z mod n) // d is (z // d) mod (n / d) where d divides n
            left = atom.src[0]
            outside.append((quotient, atom.src[1].arg // divisor))
        else:
            node = UOp(_FLOORDIV, _index, (_sum(inner, split.constant), const(divisor)))
            quotient = add(quotient, node)
            break
    for more, modulus in reversed(outside):
        quotient = add(mod(quotient, modulus) if modulus else quotient, more)
    return quotient


def mod(left: Index, right: Index) -> UOp:
    """left mod right, with the sign of right; 0 where right is 0."""
    left, right = _as_node(left), _as_node(right)
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
        split = _Split(*_linear(left), divisor)
        rest = add(rest, mul(_sum(split.rest, split.rest_constant), scale))
        scale, divisor = scale * split.scale, split.divisor
        inner = _sum(split.inner, split.constant)
        if split.resolved:
            break
        # r[impl symbolic.remainder.nested]: an inner remainder by a multiple changes nothing.
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
    if 0 <= low and high < least:
        return const(0) if op is _FLOORDIV else left
    if left is right and (least > 0 or most < 0):
        return const(1 if op is _FLOORDIV else 0)
    return UOp(op, _index, (left, right))
# --8<-- [end:division]


# --8<-- [start:comparison]
def less_than(left: Index, right: Index) -> UOp:
    """left < right, a bool; TRUE or FALSE where the bounds decide."""
    left, right = _as_node(left), _as_node(right)
    terms, constant = _linear(left)
    more, extra = _linear(right)
    for atom, factor in more.items():
        _accumulate(terms, atom, -factor)
    limit = extra - _recombine(terms, constant)
    low, high = _span(terms, 0)
    if high < limit:  # r[impl symbolic.comparison.decided]
        return TRUE
    if low >= limit:
        return FALSE
    terms, limit = _divided_comparison(terms, limit)
    return _comparison(_CMPLT, terms, limit)


def _divided_comparison(terms: Terms, limit: int) -> tuple[Terms, int]:
    """terms < limit, divided by a common factor; terms too small to matter are left out."""
    for divisor in sorted({abs(factor) for factor in terms.values()}, reverse=True):
        rest = {a: f for a, f in terms.items() if f % divisor}
        low, high = _span(rest, 0)
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
        return UOp(op, _bool, (_sum(left, 0), _sum(right, limit)))
    return UOp(op, _bool, (const(-limit), _sum(right, 0)))


def less_equal(left: Index, right: Index) -> UOp:
    """left <= right, a bool: for whole numbers the same as left < right + 1."""
    return less_than(left, add(right, 1))


def equal(left: Index, right: Index) -> UOp:
    """left == right, a bool; TRUE or FALSE where the bounds or a common factor decide."""
    terms, constant = _linear(sub(left, right))
    limit = -constant
    if not terms:
        return TRUE if limit == 0 else FALSE
    low, high = _span(terms, 0)
    divisor = math.gcd(*terms.values())
    if not low <= limit <= high or limit % divisor:
        return FALSE
    if low == high:
        return TRUE
    if next(iter(terms.values())) < 0:
        divisor = -divisor
    return _comparison(Ops.CMPEQ, {a: f // divisor for a, f in terms.items()}, limit // divisor)
# --8<-- [end:comparison]


# --8<-- [start:logical]
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
    kept: list[UOp] = []  # r[impl symbolic.logical.implied]
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
    limit = _limit(condition)
    for place, other in enumerate(kept):
        if other is condition:
            return True
        if limit is not None:
            known = _limit(other)
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


def _limit(condition: UOp) -> tuple[UOp, bool, int] | None:
    """Of n < x or x < n: x, whether it is limited from below, and its least or greatest value."""
    if condition.op is not _CMPLT:
        return None
    left, right = condition.src
    if left.op is _CONST:
        return right, True, left.arg + 1
    return (left, False, right.arg - 1) if right.op is _CONST else None
# --8<-- [end:logical]


# --8<-- [start:rebuild]
_BUILDERS: dict[Ops, Callable[..., UOp]] = {
    Ops.ADD: add, Ops.SUB: sub, Ops.MUL: mul, Ops.FLOORDIV: floordiv, Ops.FLOORMOD: mod,
    Ops.CMPLT: less_than, Ops.CMPLE: less_equal, Ops.CMPEQ: equal}


def rebuild(node: UOp, replacements: Mapping[UOp, UOp] | None = None) -> UOp:
    """The graph with nodes replaced, built again with the functions above, so simplified again.

    Use it to put `outer * 16 + inner` in the place of a loop variable. Nodes that are not index
    arithmetic stay as they are, on new sources (r[symbolic.rebuild.equal]).
    """
    done: dict[UOp, UOp] = dict(replacements or {})  # r[impl symbolic.rebuild.equal]
    for part in toposort((node,), lambda u: u not in done):
        if part not in done:
            done[part] = _rebuilt(part, tuple(done[s] for s in part.src))
    return done[node]


def _rebuilt(node: UOp, sources: tuple[UOp, ...]) -> UOp:
    if sources and sources[0].dtype is _index and node.op in _BUILDERS:
        return _BUILDERS[node.op](*sources)
    if node.op is _AND and node.dtype is _bool:
        return logical_and(*sources)
    return node if sources == node.src else node.replace(src=sources)


def assuming(node: UOp, condition: UOp) -> UOp:
    """An index that equals `node` wherever the condition holds, and may differ elsewhere.

    A padded tensor is read under a condition. Inside it a remainder can often be dropped.
    """
    forth: dict[UOp, UOp] = {}
    for part in conjuncts(condition):
        limit = _limit(part)
        if limit is not None and limit[0].op is not _ADD and limit[0].op is not _MUL:
            atom, below, value = limit
            low, high = bounds(forth.get(atom, atom))
            low, high = (max(low, value), high) if below else (low, min(high, value))
            if low > high:
                return node  # it holds nowhere
            place = f"\0assumed {len(forth)}" if atom not in forth else forth[atom].arg[0]
            forth[atom] = UOp(_DEFINE_VAR, _index, (), (place, low, high))
    if not forth:
        return node
    back = {narrow: atom for atom, narrow in forth.items()}
    return rebuild(rebuild(node, forth), back)  # r[impl symbolic.assuming.equal]
# --8<-- [end:rebuild]


# --8<-- [start:evaluate]
_MEANING: dict[Ops, Callable[..., int]] = {
    Ops.NEG: lambda a: -a,
    Ops.CAST: lambda a: a,
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else 0,
    Ops.FLOORMOD: lambda a, b: a % b if b else 0,
    Ops.MAXIMUM: max,
    Ops.MINIMUM: min,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPLE: lambda a, b: a <= b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.CMPNE: lambda a, b: a != b,
    Ops.WHERE: lambda condition, a, b: a if condition else b,
}


def evaluate(node: UOp, values: Mapping[UOp, int]) -> int:
    """The value of an index for given values of its atoms; bools count as 0 and 1.

    Raises:
        GraphError: an atom has no value, or the node is not index arithmetic.
    """
    done: dict[UOp, Scalar] = dict(values)
    for part in toposort((node,), lambda u: u not in done):
        if part in done:
            continue
        if part.op is _CONST:
            done[part] = part.arg
        elif part.op in _MEANING:
            done[part] = _MEANING[part.op](*[done[s] for s in part.src])
        else:
            raise GraphError("evaluate", f"{part!r} has no value", "give one for it")
    return int(done[node])
# --8<-- [end:evaluate]


# --8<-- [start:text]
_SIGNS = {Ops.ADD: " + ", Ops.MUL: "*", Ops.FLOORDIV: " // ", Ops.FLOORMOD: " mod ",
          Ops.CMPLT: " < ", Ops.CMPLE: " <= ", Ops.CMPEQ: " == ", Ops.CMPNE: " != ",
          Ops.AND: " and "}


def text(node: UOp) -> str:
    """An index as a person writes it; loops are r0, r1, ..., other nodes go by their operation."""
    done: dict[UOp, str] = {}
    for part in node.toposort(lambda u: u.op in _SIGNS):
        if part.op is _CONST:
            done[part] = str(part.arg)
        elif part.op is _RANGE:
            done[part] = f"r{part.arg[0]}"
        elif part.op is _DEFINE_VAR:
            done[part] = part.arg[0]
        elif part.op in _SIGNS:
            done[part] = _SIGNS[part.op].join(_operand(part, s, done[s]) for s in part.src)
        else:
            done[part] = part.op.name.lower()
    return done[node].replace(" + -", " - ")


def _operand(node: UOp, source: UOp, written: str) -> str:
    """A source in brackets, where it needs them."""
    if source.op not in _SIGNS or node.op in COMPARISONS:
        return written
    if node.op is _AND or (node.op is _ADD and source.op is not _AND):
        return written
    return f"({written})"
# --8<-- [end:text]


def total(values: Iterable[Index]) -> UOp:
    """The sum of many indices, built once: linear in their number."""
    terms: Terms = {}
    constant = 0
    for value in values:
        more, extra = _linear(_as_node(value))
        for atom, factor in more.items():
            _accumulate(terms, atom, factor)
        constant += extra
    return _sum(terms, _recombine(terms, constant))


def weighted_sum(weights: Iterable[tuple[UOp, int]]) -> UOp:
    """The sum of indices, each times a number, built once."""
    terms: Terms = {}
    constant = 0
    for value, weight in weights:
        if value.op is _RANGE:
            _accumulate(terms, value, weight)
        else:
            more, extra = _linear(value)
            for atom, factor in more.items():
                _accumulate(terms, atom, factor * weight)
            constant += extra * weight
    return _sum(terms, _recombine(terms, constant))
