"""One plan for programs that differ in positions and numbers only. Chapter: spec/caching.md.

`x[0] * 2` and `x[1] * 3` are two programs: a Python number is a number in the code. A loop over the
rows of a tensor would plan and compile each of them. So the numbers in which programs of one
*family* differ become variables, as soon as there are several.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from impl import symbolic
from impl.caching.rows import Described, Row, Rows
from impl.dtypes import dtypes, float_bits
from impl.effects import Effects, way
from impl.ir import COMPARISONS, Ops, UOp, in_memory, unnamed

_SHRINK, _PAD, _AFTER, _CONST = Ops.SHRINK, Ops.PAD, Ops.AFTER, Ops.CONST
#: From so many programs of a family on, they have one plan. The first ones have plans of their own,
#: whose kernels know more: most programs have no family.
_MANY = 3
#: Families are forgotten when there are so many.
_MOST_FAMILIES = 1024
#: Whoever reads a number in one of these does nothing else than to compute with it.
ARITHMETIC = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAXIMUM, Ops.MINIMUM, Ops.WHERE,
                         Ops.EXPAND, Ops.RESHAPE, Ops.STORE)) | COMPARISONS
NUMBERS = ("float32", "int32")


@dataclass(slots=True)
class _Family:
    """The numbers of the first of its programs, which of them differ, and how many came. It is
    left if one plan for all would have more kernels than a program by itself.
    """

    first: list[Any]
    differ: set[int] = field(default_factory=set)
    count: int = 1
    left: bool = False


class Families:
    """All families of programs, by what is the same in them."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], _Family] = {}

    def general(self, effects: Described, key: tuple[Any, ...]) -> Described | None:
        """A program without a plan, with variables where its family differs; None: leave it.

        `key` is that of the program itself.
        """
        found = _numbers_of(key[0])
        values = [value for one in found for value in one.values]
        if not values or has_computed_way(effects):
            return None
        common = _common(found, key)
        family = self.known.get(common)
        if family is None:
            if len(self.known) >= _MOST_FAMILIES:
                self.known.clear()
            self.known[common] = _Family(values)
            return None
        family.count += 1
        family.differ.update(number for number, value in enumerate(values)
                             if value != family.first[number])
        # r[impl caching.family.shared+2]
        many = family.count >= _MANY and not family.left
        return _general(effects, found, family.differ) if many else None

    def leave(self, key: tuple[Any, ...]) -> None:
        """Let each program of this one's family have a plan of its own from now on."""
        self.known[_common(_numbers_of(key[0]), key)].left = True


def _common(found: Sequence[_Numbers], key: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is the same in a family: keys without their numbers."""
    return tuple([one.row for one in found]), *key[1:]


class _Numbers:
    """The numbers that a row says, and the row without them."""

    __slots__ = ("row", "values")

    def __init__(self, row: Row, values: list[Any]) -> None:
        self.row, self.values = row, values


def _numbers_of(rows: Sequence[Row]) -> list[_Numbers]:
    """The numbers of all rows."""
    kept = {source for row in rows if row[0] not in ARITHMETIC for source in row[3:]}
    used = {source for row in rows if row[0] in ARITHMETIC for source in row[3:]}
    found = []
    for place, row in enumerate(rows):
        op, values = row[0], list[Any]()
        if op is _SHRINK or op is _PAD:
            values = [pair[0] for pair in row[2] if _is_plain(pair)]
            row = op, row[1], _lengths(op, row[2]), *row[3:]
        elif op is _CONST and row[1] in NUMBERS and place in used and place not in kept:
            row, values = row[:2], [row[2]]
        elif op is _AFTER:  # the steps of its view are rows themselves
            row = row[:5]
        found.append(_Numbers(row, values))
    return found


def _is_plain(pair: tuple[Any, Any]) -> bool:
    return type(pair[0]) is int and type(pair[1]) is int


def _lengths(op: Ops, pairs: tuple[tuple[Any, Any], ...]) -> tuple[Any, ...]:
    """What stays of an argument when the positions are left out."""
    sign = -1 if op is _SHRINK else 1
    return tuple([sign * pair[0] + pair[1] if _is_plain(pair) else pair for pair in pairs])


def has_computed_way(effects: Effects) -> bool:
    """Whether a view that is written through was computed: then no row says its steps."""
    return any(in_memory(step) is not None
               for node in effects.nodes if node.op is _AFTER for step in way(node))


def _general(effects: Described, found: list[_Numbers], differ: set[int]) -> Described:
    """The program with a variable in the place of each of these numbers."""
    done: dict[UOp, UOp] = {}
    nodes: list[UOp] = []
    for node, one, first in zip(effects.description.place, found, _counted(found), strict=True):
        theirs = any(first + place in differ for place in range(len(one.values)))
        if one.row[0].__class__ is int or not node.src or node.op is Ops.BIND:
            made = [*bound_number(node, f"number#{first}")] if theirs else [node]
        else:
            sources = tuple([done[source] for source in node.src])
            arg = _moved(node, first, differ) if theirs else node.arg
            made = [node if arg is node.arg and sources == node.src
                    else unnamed(node, sources, arg, node.shape)]
        nodes += made
        done[node] = made[-1]
    roots, description = [done[root] for root in effects.roots], Rows(sized=True)
    description.add(roots)
    return Described(roots, nodes, effects.held, effects.rescued, description=description)


def _counted(found: list[_Numbers]) -> Iterator[int]:
    """How many numbers come before those of each row."""
    number = 0
    for one in found:
        yield number
        number += len(one.values)


def bound_to(name: str, least: int, most: int, value: int) -> UOp:
    """A variable, whose name no variable of a program has, with its value."""
    return bind_to(UOp(Ops.DEFINE_VAR, dtypes.index, (), (name, least, most)), value)


def bind_to(variable: UOp, value: int) -> UOp:
    """A variable with a value."""
    return UOp(Ops.BIND, dtypes.index, (variable, UOp.const(dtypes.index, value)))


def bits_of(number: float) -> int:
    """The bits of a number, as an int32."""
    return float_bits(number) if number.__class__ is float else int(number)


def bound_number(node: UOp, name: str) -> Iterator[UOp]:
    """A variable with the bits of a number, and what makes the number of it again."""
    wide = dtypes.int32
    bound = bound_to(name, int(wide.min), int(wide.max), bits_of(node.arg))
    yield bound
    bits = UOp(Ops.CAST, wide, (bound,))
    yield bits
    if node.dtype is not wide:
        yield UOp(Ops.BITCAST, node.dtype, (bits,))


def _moved(node: UOp, first: int, differ: set[int]) -> tuple[tuple[int, int], ...]:
    """The argument of a SHRINK or a PAD whose positions from this number on are in `differ`."""
    pairs, number = [], first
    for pair, size in zip(node.arg, node.src[0].shape or (), strict=True):
        if _is_plain(pair):
            if number in differ and not symbolic.is_symbolic(size):
                low, high = pair
                length = high - low if node.op is _SHRINK else high + low
                most = size - length if node.op is _SHRINK else length
                place = bound_to(f"position#{number}", 0, most, low)
                other = symbolic.add(place, length) if node.op is _SHRINK \
                    else symbolic.sub(length, place)
                pair = symbolic.size_in_plan(low, place), symbolic.size_in_plan(pair[1], other)
            number += 1
        pairs.append(pair)
    return tuple(pairs)
