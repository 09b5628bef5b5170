"""Sizes that depend on bound variables: ints that know where they come from.

`n + 1`, where n is bound to 17, is the int 18 that also carries the expression `n + 1`. All code
that works on shapes works on it as it is. What it loses on the way (`int(size)`, `max(size, 3)`)
is merely fixed at the value of this call. Chapter: spec/symbolic.md.

A plan must not look at a value. So the planner sees every `Size` as an `Extent`: the same
expression without the values. As a number it is the greatest value that it can have, which is
right for costs and for memory; it equals only what has the same expression.
"""
from __future__ import annotations

import numbers
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from impl.dtypes import dtypes
from impl.errors import GraphError, VariableError
from impl.host import np
from impl.ir import BoundVariable, Ops, UOp, toposort
from impl.symbolic.arithmetic import add, floordiv, mod, mul, sub
from impl.symbolic.bounds import bounds, const
from impl.symbolic.comparison import equal, less_equal, less_than
from impl.symbolic.evaluate import evaluate, text
from impl.symbolic.terms import Terms, accumulate, sum_of, term_order, terms_of
from impl.symbolic.variable import Variable

_index = dtypes.index
_CONST, _MUL, _BIND = Ops.CONST, Ops.MUL, Ops.BIND


class Size(int):
    """An int that depends on bound variables, and the expression (over BINDs) that says how.

    It equals every int of its value. Its hash is that of the expression, unlike that of the int:
    so a node with a `Size` in its argument is not taken for one with a plain int, or for one with
    another `Size` that has the same value today (r[symbolic.size.compared]).
    """

    expression: UOp

    def __new__(cls, value: int, expression: UOp) -> Size:
        """The int `value`, which `expression` has for the values that its BINDs hold."""
        size = int.__new__(cls, value)
        size.expression = expression
        if cls is Size:
            present[0] = True
        return size

    def __hash__(self) -> int:
        return hash((int.__hash__(self), self.expression))  # r[impl symbolic.size.compared]

    def __repr__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self) -> Any:
        return as_size, (self.expression,)

    def _result(self, value: int, expression: UOp) -> int:
        """What an operation gives: a Size, or an int if the expression is a number."""
        if expression.op is _CONST:
            return int(expression.arg)
        return Size(value, expression)

    # Arithmetic: r[impl symbolic.size.arithmetic]

    def __add__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__add__, add)

    def __sub__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__sub__, sub)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__mul__, product)

    def __floordiv__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__floordiv__, quotient)

    def __mod__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__mod__, size_remainder)

    def __radd__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__radd__, lambda a, b: add(b, a))

    def __rsub__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__rsub__, lambda a, b: sub(b, a))

    def __rmul__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__rmul__, lambda a, b: product(b, a))

    def __rfloordiv__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__rfloordiv__, lambda a, b: quotient(b, a))

    def __rmod__(self, other: Any) -> Any:
        return self._arithmetic(other, int.__rmod__, lambda a, b: size_remainder(b, a))

    def __neg__(self) -> Any:
        return self._result(-plain(self), product(self.expression, const(-1)))

    def __pos__(self) -> Any:
        return self

    def _arithmetic(self, other: Any, on_values: Callable[[int, int], int],
                    on_nodes: Callable[[UOp, UOp], UOp]) -> Any:
        if isinstance(other, UOp) and other.shape == () and other.dtype is _index:
            other = as_size(other)
        if not isinstance(other, int):
            if isinstance(other, (numbers.Number, np.ndarray)):  # which computes with the value
                _watch.fix(self)
            return NotImplemented
        value = on_values(plain(self), plain(other))
        return self._result(value, on_nodes(self.expression, node_of(other)))

    # Comparisons and conversions: a capture under way takes note of them.

    def __eq__(self, other: object) -> bool:
        if other.__class__ is Size and other.expression is self.expression:
            return True
        return self._compared(other, int.__eq__(self, other), equal, False)

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __lt__(self, other: int) -> bool:
        return self._compared(other, int.__lt__(self, other), less_than, False)

    def __le__(self, other: int) -> bool:
        return self._compared(other, int.__le__(self, other), less_equal, False)

    def __gt__(self, other: int) -> bool:
        return self._compared(other, int.__gt__(self, other), less_than, True)

    def __ge__(self, other: int) -> bool:
        return self._compared(other, int.__ge__(self, other), less_equal, True)

    def _compared(self, other: Any, result: bool, on_nodes: Callable[[UOp, UOp], UOp],
                  exchanged: bool) -> bool:
        """The result; r[symbolic.size.watched]."""
        if _watch.guards is not None and isinstance(result, bool):
            pair = self.expression, node_of(other)
            _watch.note(on_nodes(*(pair[::-1] if exchanged else pair)), result)
        elif isinstance(other, (numbers.Number, np.ndarray)):  # it asks for the value
            _watch.fix(self)
        return result

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        _watch.fix(self)
        return plain(self)

    def __float__(self) -> float:
        _watch.fix(self)
        return float(plain(self))

    def __truediv__(self, other: Any) -> Any:
        _watch.fix(self)
        return plain(self) / other

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


class Extent(Size):
    """A size in a plan: one for all values of its variables (DEFINE_VARs).

    The number is the greatest value. It equals what has the same expression, and nothing else.
    """

    def __eq__(self, other: object) -> bool:
        # r[impl symbolic.size.compared]
        return other.__class__ is Extent and other.expression is self.expression

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.expression)

    def __lt__(self, other: int) -> bool:
        return int.__lt__(self, other)

    def __le__(self, other: int) -> bool:
        return int.__le__(self, other)

    def __gt__(self, other: int) -> bool:
        return int.__gt__(self, other)

    def __ge__(self, other: int) -> bool:
        return int.__ge__(self, other)

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        return plain(self)

    def __float__(self) -> float:
        return float(plain(self))

    def __truediv__(self, other: Any) -> Any:
        return plain(self) / other

    def __repr__(self) -> str:
        return text(self.expression)

    def __reduce__(self) -> Any:
        return extent_of, (self.expression,)

    def _result(self, value: int, expression: UOp) -> int:
        return extent_of(expression)


#: Whether this process has ever made a `Size` of a tensor: without one nobody looks for any.
present = [False]


def plain(size: int) -> int:
    """The value alone, as an exact int."""
    return int.__index__(size)


def node_of(size: Any) -> UOp:
    """The expression of a Size, or the number as an index."""
    return size.expression if isinstance(size, Size) else const(plain(size))


def greatest(size: int) -> int:
    """The most that a size can be, for any values of its variables."""
    return bounds(size.expression)[1] if isinstance(size, Size) else size


def is_symbolic(size: Any) -> TypeGuard[Size]:
    """Whether a size depends on variables."""
    return isinstance(size, Size)


def as_size(value: Any) -> Any:
    """A bound variable, or index arithmetic on some, as a Size; everything else as it is.

    Raises:
        VariableError: a variable in it has no value.
    """
    if not isinstance(value, UOp) or value.shape != () or value.dtype is not _index:
        return operator.index(value) if isinstance(value, Variable) else value  # which raises
    if value.op is _CONST:
        return int(value.arg)
    atoms = binds_in(value)
    if not atoms and value.variables():
        raise VariableError(value.variables()[0].arg[0], "has no value where a size is needed",
                            "bind it: v.bind(3)")
    return Size(evaluate(value, {bind: bind.src[1].arg for bind in atoms}), value)


def size_in_plan(value: int, expression: UOp) -> Size:
    """A Size that no tensor has, so that nobody needs to look for it but who makes the plan."""
    size = int.__new__(Size, value)
    size.expression = expression
    return size


def binds_in(expression: UOp) -> list[UOp]:
    """The bound variables in an expression, in order of appearance."""
    return [u for u in toposort((expression,), lambda u: u.op is not _BIND) if u.op is _BIND]


def sizes_in(arg: Any) -> Iterator[Size]:
    """The Sizes in the argument of a node: in a tuple, or in the tuples of a tuple."""
    if isinstance(arg, tuple):
        for part in arg:
            if part.__class__ is Size:
                yield part
            elif part.__class__ is tuple:
                yield from (one for one in part if one.__class__ is Size)
    elif arg.__class__ is Size:
        yield arg


def map_sizes(arg: Any, change: Callable[[Size], Any]) -> Any:
    """An argument with every Size changed; the same object if it has none."""
    if arg.__class__ is Size:
        return change(arg)
    if arg.__class__ is tuple and _holds_size(arg):
        return tuple(change(p) if p.__class__ is Size else map_sizes(p, change) for p in arg)
    return arg


def _holds_size(arg: tuple[Any, ...]) -> bool:
    for part in arg:
        if part.__class__ is Size:
            return True
        if part.__class__ is tuple:
            for one in part:
                if one.__class__ is Size:
                    return True
    return False


def identical(first: Any, second: Any) -> bool:
    """Whether two shapes are equal for all values of their variables, and not just today."""
    if first is second:
        return True
    if not present[0]:
        return bool(first == second)
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if a.__class__ is Size or b.__class__ is Size:
            if a.__class__ is not b.__class__ or a.expression is not b.expression:
                return False
        elif a != b:
            return False
    return True


def common_size(first: int, second: int) -> int:
    """The size of an axis to which two of one size, or one of them of size 1, spread.

    Of two that are equal today the one that depends on variables (r[symbolic.size.general]).
    """
    if first.__class__ is not Size is not second.__class__:
        return second if first == 1 else first
    if is_number(first, 1):
        return second
    if is_number(second, 1):
        return first
    if first == second:
        return first if first.__class__ is Size else second
    return second if first == 1 else first


def is_number(size: Any, value: int) -> bool:
    """Whether a size is a number for all values of its variables, and not just today."""
    return bool(size.__class__ is not Size and size == value)


# ---------------------------------------------------------------- without the values

def unbound(expression: UOp) -> UOp:
    """The expression with every BIND replaced by its variable."""
    return expression.substitute({bind: bind.src[0] for bind in binds_in(expression)})


def extent_of(expression: UOp) -> int:
    """An expression over variables as the size of something in a plan."""
    if expression.op is _CONST:
        return int(expression.arg)
    # r[impl symbolic.size.greatest]
    return Extent(max(0, bounds(expression)[1]), expression)


def without_values(size: Size) -> int:
    """A Size as the planner sees it."""
    return extent_of(unbound(size.expression))


def extent(loop: UOp) -> int:
    """How many iterations a loop has; an Extent if that is known at run time only."""
    size = loop.src[0]
    return int(size.arg) if size.op is _CONST else extent_of(size)


def actual(size: int, values: Mapping[UOp, int]) -> int:
    """The number that an Extent stands for, given the values of the variables."""
    return evaluate(size.expression, values) if isinstance(size, Size) else size


# ---------------------------------------------------------------- arithmetic

def product(left: UOp, right: UOp) -> UOp:
    """The product of two sums, multiplied out: equal polynomials become one node."""
    first, constant = terms_of(left)
    second, extra = terms_of(right)
    found: Terms = {}
    for atom, factor in first.items():
        if extra:
            accumulate(found, atom, factor * extra)
        for other, times in second.items():
            accumulate(found, _monomial(atom, other), factor * times)
    if constant:
        for other, times in second.items():
            accumulate(found, other, constant * times)
    return sum_of(dict(sorted(found.items(), key=_order)), constant * extra)


def element_count(shape: Iterable[int]) -> UOp:
    """The number of elements of a shape, as an expression: one node for equal polynomials."""
    found = const(1)
    for size in shape:
        found = product(found, node_of(size))
    return found


def _factors(atom: UOp) -> list[UOp]:
    """The atoms that a product multiplies."""
    found, stack = [], [atom]
    while stack:
        node = stack.pop()
        if node.op is _MUL:
            stack.extend(node.src[::-1])
        else:
            found.append(node)
    return found


def _monomial(left: UOp, right: UOp) -> UOp:
    return _multiplied(_factors(left) + _factors(right))


def _multiplied(factors: list[UOp]) -> UOp:
    ordered = sorted(factors, key=lambda atom: term_order((atom, 1)))
    node = ordered[0]
    for factor in ordered[1:]:
        node = UOp(_MUL, _index, (node, factor))
    return node


def _order(term: tuple[UOp, int]) -> tuple[Any, ...]:
    factors = _factors(term[0])
    return len(factors), [str(term_order((atom, 1))) for atom in factors]


def quotient(left: UOp, right: UOp) -> UOp:
    """left // right; `6*n*m // (2*n)` is `3*m`, for n from 0 on too: nothing is divided by 0."""
    divisor, extra = terms_of(right)
    if len(divisor) != 1 or extra:
        return floordiv(left, right)
    (atom, factor), = divisor.items()
    terms, constant = terms_of(left)
    found: Terms = {}
    number = 0
    for mine, times in terms.items():
        rest = _factors(mine)
        for one in _factors(atom):
            if one not in rest:
                return floordiv(left, right)
            rest.remove(one)
        if times % factor:
            return floordiv(left, right)
        if rest:
            accumulate(found, _multiplied(rest), times // factor)
        else:
            number += times // factor
    return floordiv(left, right) if constant else sum_of(found, number)


def size_remainder(left: UOp, right: UOp) -> UOp:
    """left mod right; 0 where right divides left."""
    whole = product(quotient(left, right), right)
    return const(0) if whole is left else mod(left, right)


# ---------------------------------------------------------------- watching

class _Watch(threading.local):
    """What this thread has asked of Sizes while a function is captured.

    `guards` maps a condition over BINDs to its outcome: a replay is right for values with these
    outcomes.
    """

    guards: dict[UOp, bool] | None = None

    def note(self, condition: UOp, outcome: bool) -> None:
        """A comparison was made; one that always has the same outcome says nothing."""
        if self.guards is not None:
            if condition.op is not _CONST:
                self.guards[condition] = outcome  # r[impl symbolic.size.watched]

    def fix(self, size: Size) -> None:
        """The value itself was used: a replay is right for this value only."""
        if self.guards is not None:
            self.note(equal(size.expression, plain(size)), True)


_watch = _Watch()


class watching:  # noqa: N801
    """Collect what is asked of Sizes in a `with` block: conditions and their outcomes."""

    def __init__(self) -> None:
        self.guards: dict[UOp, bool] = {}

    def __enter__(self) -> dict[UOp, bool]:
        self.before = _watch.guards
        _watch.guards = self.guards
        return self.guards

    def __exit__(self, *problem: object) -> None:
        _watch.guards = self.before


def _on_variable(operation: str, variable: UOp, other: Any, reflected: bool) -> Any:
    """Arithmetic on a bound variable: a Size; on another node: a node."""
    if variable.op is not Ops.BIND and variable.op is not Ops.DEFINE_VAR:
        return _on_node(operation, variable, other, reflected)
    if variable.shape != () or variable.dtype is not _index or not isinstance(other, (int, UOp)):
        return NotImplemented
    first, second = as_size(variable), as_size(other)
    left, right = (second, first) if reflected else (first, second)
    return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
            "//": lambda: left // right, "%": lambda: left % right}[operation]()


#: What a sign means, in general and for an index.
_OPERATIONS: dict[str, tuple[Ops, Callable[[UOp, UOp], UOp]]] = {
    "+": (Ops.ADD, add), "-": (Ops.SUB, sub), "*": (Ops.MUL, mul),
    "//": (Ops.FLOORDIV, floordiv), "%": (Ops.FLOORMOD, mod)}


def _on_node(operation: str, node: UOp, other: Any, reflected: bool) -> Any:
    """What a rule writes as `x * 2`: the operation on two nodes of one type."""
    if not isinstance(other, (int, float, UOp)):
        return NotImplemented
    known = other if isinstance(other, UOp) else UOp.const(node.dtype, other)
    if known.dtype is not node.dtype:  # r[impl symbolic.node.arithmetic]
        raise GraphError(operation, f"{node.dtype.name} and {known.dtype.name} meet",
                         "convert one of them: UOp(Ops.CAST, dtype, (node,))")
    sources = (known, node) if reflected else (node, known)
    op, simpler = _OPERATIONS[operation]
    return simpler(*sources) if node.dtype is _index else UOp(op, node.dtype, sources)


def _number(node: UOp) -> int:
    """A bound variable as a size; r[symbolic.bound.number].

    Raises:
        TypeError: any other node is no number.
    """
    if node.op is not Ops.BIND or node.shape != () or node.dtype is not _index:
        raise TypeError(f"a node {node.op.name} of {node.dtype.name} is no number")
    return as_size(node)


BoundVariable.number = staticmethod(_number)
UOp.arithmetic = staticmethod(_on_variable)
