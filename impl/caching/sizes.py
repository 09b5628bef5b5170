"""One plan for programs that differ in sizes. Chapter: spec/caching.md.

Sentences of 17 words and of 23 are two programs: their sizes are parts of the code. A model that
meets one length after the other would plan and compile each of them. So the sizes in which programs
of one *form* differ become expressions of a few variables, as soon as there are two. Kernels for
all sizes may add up floats in another order: so SHARE_SIZES=1 has to ask for it.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from impl import symbolic
from impl.caching.positions import (
    ARITHMETIC,
    NUMBERS,
    bind_to,
    bits_of,
    bound_number,
    bound_to,
    has_computed_way,
)
from impl.caching.rows import Described, Row, Rows, has_sizes
from impl.effects import Effects, leaf_of
from impl.ir import ELEMENTWISE, Ops, UOp, unnamed

_SHRINK, _PAD, _AFTER, _CONST, _IOTA = Ops.SHRINK, Ops.PAD, Ops.AFTER, Ops.CONST, Ops.IOTA
#: An axis of one element, or of none, makes another program: it is no case of a longer one.
_LEAST = 2
#: How many programs of a form say what their sizes have in common, and how many variables they may
#: have: their products are looked through.
_MOST_SAMPLES, _MOST_VARIABLES = 8, 6
#: Forms are forgotten when there are so many, and how often each of one's sizes came.
_MOST_FORMS = 1024
#: A program that has come so often, or has computed so many elements in each of its kernels, gets a
#: plan of its own. Its kernels are some times as fast; one takes the compiler a tenth of a second.
_OFTEN, _WORTH = 16, 200_000_000
#: What reads values whose sizes depend on variables: all whose shape is known here.
_KNOWN = ELEMENTWISE | {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK, Ops.PAD, Ops.FLIP,
                        Ops.REDUCE, Ops.GATHER, Ops.SCAN, Ops.SCATTER, Ops.CONTIGUOUS}


class _Stated(NamedTuple):
    """What a row says: all but its sizes and numbers, its sizes, and its numbers.

    Of the sizes, `starts` says which are places where something begins.
    """

    row: Row
    sizes: tuple[int, ...] = ()
    starts: tuple[bool, ...] = ()
    numbers: tuple[Any, ...] = ()


class _Term(NamedTuple):
    """A size: a product of variables, by their places, times a factor, and a constant."""

    factor: int
    variables: tuple[int, ...]
    constant: int

    def value(self, values: Sequence[int]) -> int:
        """The size for some values of the variables."""
        return self.factor * math.prod([values[v] for v in self.variables]) + self.constant


class _Variable(NamedTuple):
    """A size that others depend on: which one of the program's, and between which bounds."""

    size: int
    least: int
    most: int


@dataclass(slots=True)
class _Model:
    """What the sizes of all programs of a form have in common."""

    variables: list[_Variable]
    terms: list[_Term]

    def values(self, sizes: Sequence[int]) -> list[int] | None:
        """The values of the variables; None if the sizes are no case of this."""
        values = [sizes[one.size] for one in self.variables]
        within = all(one.least <= value <= one.most
                     for one, value in zip(self.variables, values, strict=True))
        same = within and all(term.value(values) == size
                              for term, size in zip(self.terms, sizes, strict=True))
        return values if same else None


@dataclass(slots=True)
class _Form:
    """Programs with the same operations. It is left if one plan for all would be a worse one.

    `found` is the key of the program with variables, and these slot by slot. `kernels` is how many
    one program of the form has by itself; 0 until one was planned.
    """

    samples: list[tuple[int, ...]]
    numbers: tuple[Any, ...]
    differ: set[int] = field(default_factory=set)  # the numbers that are not the same in all
    uses: dict[tuple[int, ...], int] = field(default_factory=dict)
    model: _Model | None = None
    kernels: int = 0
    left: bool = False
    found: tuple[tuple[Any, ...], list[UOp]] | None = None

    def count(self, sizes: tuple[int, ...]) -> int:
        """How often a program with these sizes has come, this time included."""
        uses = self.uses[sizes] = self.uses.get(sizes, 0) + 1
        if len(self.uses) > _MOST_FORMS:
            self.uses.clear()
        return uses

    def learn(self, effects: Described, stated: list[_Stated],
              sizes: tuple[int, ...]) -> list[int] | None:
        """The values of variables for a program that tells more of the form; None for none."""
        if len(self.samples) >= _MOST_SAMPLES:
            self.left = True
            return None
        self.samples.append(sizes)
        starts = [start for one in stated for start in one.starts]
        for apart in (True, False):
            model = _model(self.samples, starts, apart)
            values = None if model is None else model.values(sizes)
            if model is not None and values is not None and _general(
                    effects, stated, self.differ, model, values) is not None:
                self.model, self.found = model, None
                return values
        return None


class Case:
    """A program as a case of its form: there is one plan for all of them."""

    def __init__(self, form: _Form, effects: Described, stated: list[_Stated], values: list[int],
                 numbers: tuple[Any, ...], uses: int) -> None:
        self.form, self.effects, self.stated = form, effects, stated
        self.values, self.numbers, self.uses = values, numbers, uses

    def program(self) -> Described | None:
        """The program with variables; None if it would be none for other values of them."""
        assert self.form.model is not None
        return _general(self.effects, self.stated, self.form.differ, self.form.model, self.values)

    def may_share(self, kernels: int) -> bool:
        """Whether this program may use a plan for all this time, if alone it has so many kernels.
        """
        return self.uses <= shared_uses(self.effects, kernels)

    def leave(self) -> None:
        """Let each program of this form have a plan of its own from now on."""
        self.form.left = True

    def keep(self, key: tuple[Any, ...], binds: Sequence[UOp], kernels: int) -> None:
        """Note what its program with variables turned out to be: its key, and these by slot; and
        how many kernels it has.
        """
        self.form.found, self.form.kernels = (key, [bind.src[0] for bind in binds]), kernels

    def known(self, own: Sequence[int]) -> tuple[Effects, tuple[Any, ...], list[UOp],
                                                 list[int]] | None:
        """What the program with variables is in this call, if one of the form was made before: its
        nodes and its key, and its variables with their values by slot.

        `own` are those of the program itself. They appear in both in the same order, and so do
        buffers.
        """
        if self.form.found is None:
            return None
        key, variables = self.form.found
        theirs, given = iter(own), dict(self._given())
        values = [given[v.arg[0]] if v.arg[0] in given else next(theirs) for v in variables]
        binds = [bind_to(v, value) for v, value in zip(variables, values, strict=True)]
        return self._placed(), key, binds, values

    def _given(self) -> Iterator[tuple[str, int]]:
        for place, value in enumerate(self.values):
            yield f"size#{place}", value
        for number in self.form.differ:
            value = self.numbers[number]
            yield f"number#{number}", bits_of(
                float.fromhex(value) if value.__class__ is str else value)

    def _placed(self) -> Effects:
        """The nodes as they are, each at the place that it has in the program with variables."""
        nodes: list[UOp] = []
        number = 0
        for node, one in zip(self.effects.description.place, self.stated, strict=True):
            times = 1
            if one.numbers:
                if number in self.form.differ:
                    times = 3 if node.dtype.kind == "f" else 2  # as `bound_number` makes them
                number += 1
            nodes += [node] * times
        return Effects(self.effects.roots, nodes, self.effects.held, self.effects.rescued)


def shared_uses(effects: Effects, kernels: int) -> int:
    """How often a program may use a plan for all sizes, if it alone has so many kernels: the more
    it computes, with its own sizes, the less. If nobody knows how many (0), as often as any.
    """
    elements = sum(math.prod(node.shape or ()) for node in effects.nodes
                   if node.op in ELEMENTWISE and leaf_of(node) is None)
    return min(_OFTEN, kernels * _WORTH // max(1, elements)) if kernels else _OFTEN


class Forms:
    """All forms of programs."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], _Form] = {}

    def case(self, effects: Described, key: tuple[Any, ...]) -> Case | None:
        """A program without a plan as one of a form that differ in sizes; None: leave it.

        `key` is that of the program itself.
        """
        if has_computed_way(effects) or has_sizes(effects.nodes):
            return None
        stated = _stated(key[0])
        sizes = tuple([size for one in stated for size in one.sizes])
        numbers = tuple([number for one in stated for number in one.numbers])
        form = self._form(_common(stated, key), sizes, numbers)
        if form.left or not sizes or sizes == form.samples[0] and len(form.samples) == 1:
            return None
        differ = {n for n, (one, other) in enumerate(zip(numbers, form.numbers, strict=True))
                  if one != other}
        if not differ <= form.differ:
            form.differ |= differ
            form.found = None
        uses = form.count(sizes)
        if uses > shared_uses(effects, form.kernels):  # r[impl caching.sizes.often+2]
            return None
        values = None if form.model is None else form.model.values(sizes)
        if values is None:
            values = form.learn(effects, stated, sizes)
        return None if values is None else Case(form, effects, stated, values, numbers, uses)

    def _form(self, common: tuple[Any, ...], sizes: tuple[int, ...],
              numbers: tuple[Any, ...]) -> _Form:
        form = self.known.get(common)
        if form is None:
            if len(self.known) >= _MOST_FORMS:
                self.known.clear()
            form = self.known[common] = _Form([sizes], numbers)
        return form


def _common(stated: Sequence[_Stated], key: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is the same in a form: keys without sizes and numbers."""
    return tuple([one.row for one in stated]), *key[1:]


def _stated(rows: Sequence[Row]) -> list[_Stated]:
    """What each row says."""
    kept = {source for row in rows if row[0] not in ARITHMETIC for source in row[3:]}
    used = {source for row in rows if row[0] in ARITHMETIC for source in row[3:]}
    found = []
    for place, row in enumerate(rows):
        op = row[0]
        if op.__class__ is int:
            found.append(_of_leaf(row))
        elif op is Ops.RESHAPE or op is Ops.EXPAND:
            found.append(_of_axes((op, row[1], *row[3:]), row[2]))
        elif op is _IOTA:
            found.append(_of_axes(row[:2], row[2:]))
        elif op is _SHRINK or op is _PAD:
            found.append(_of_pairs(row))
        elif op is _CONST and row[1] in NUMBERS and place in used and place not in kept:
            found.append(_Stated(row[:2], numbers=(row[2],)))
        else:  # the steps of a write's view are rows themselves
            found.append(_Stated(row[:5] if op is _AFTER else row))
    return found


def _of_axes(row: Row, axes: Sequence[int]) -> _Stated:
    """A row and the sizes of some axes. Where there is one element, the row says so."""
    sizes = tuple([size for size in axes if size >= _LEAST])
    marks = tuple([_LEAST if size >= _LEAST else size for size in axes])
    return _Stated((*row, marks), sizes, (False,) * len(sizes))


def _of_leaf(row: Row) -> _Stated:
    slot, device, size, dtype, shape, constant = row
    whole = size is None or size == math.prod(shape) or size
    return _of_axes((slot, device, whole, dtype, constant), shape)


def _of_pairs(row: Row) -> _Stated:
    """Of a SHRINK where each axis starts and how long it is, of a PAD what is put at both ends."""
    if row[0] is _PAD:
        sizes = tuple([one for pair in row[2] for one in pair])
        return _Stated((*row[:2], len(row[2]), *row[3:]), sizes, (True,) * len(sizes))
    lengths = _of_axes((*row[:2], *row[3:]), [high - low for low, high in row[2]])
    starts = tuple([low for low, _ in row[2]])
    return _Stated(lengths.row, lengths.sizes + starts,
                   lengths.starts + (True,) * len(starts))


# ---------------------------------------------------------------- what sizes have in common

def _model(samples: Sequence[tuple[int, ...]], starts: Sequence[bool],
           apart: bool) -> _Model | None:
    """The sizes of all samples as expressions of as few of them as possible.

    If they are taken `apart`, a length is no other one and a number: so what only seems to depend
    on another one is found to be a variable.
    """
    columns = list(zip(*samples, strict=True))
    order = sorted(range(len(columns)), key=lambda n: (starts[n], columns[n]))
    known: list[tuple[int, ...]] = []
    variables: list[int] = []
    terms: dict[tuple[tuple[int, ...], bool], _Term] = {}
    for number in order:
        column, start = columns[number], starts[number]
        if (column, start) in terms:
            continue
        term = _term(column, known, start or not apart)
        if term is None:
            if start or len(known) == _MOST_VARIABLES:
                return None
            term = _Term(1, (len(known),), 0)
            known.append(column)
            variables.append(number)
        terms[column, start] = term
    found = [terms[column, start] for column, start in zip(columns, starts, strict=True)]
    return _Model([_Variable(number, _least(place, found, starts), _most(columns[number]))
                   for place, number in enumerate(variables)], found)


def _term(column: tuple[int, ...], known: Sequence[tuple[int, ...]],
          shifted: bool) -> _Term | None:
    """A column of sizes as an expression of others; None if it is none."""
    if len(set(column)) == 1:
        return _Term(0, (), column[0])
    for count in (1, 2, 3):
        for places in itertools.combinations_with_replacement(range(len(known)), count):
            whole = [math.prod(each) for each in zip(*[known[p] for p in places], strict=True)]
            factor, rest = divmod(column[0], whole[0])
            if factor and not rest and all(factor * b == a
                                           for a, b in zip(column, whole, strict=True)):
                return _Term(factor, places, 0)
    for place, other in enumerate(known) if shifted else ():
        step = next((b - a, d - c) for a, b, c, d in zip(
            column, column[1:], other, other[1:], strict=False) if (a, c) != (b, d))
        factor, rest = divmod(step[0], step[1]) if step[1] else (0, 1)
        constant = column[0] - factor * other[0]
        if factor > 0 and not rest and all(factor * b + constant == a for a, b in zip(
                column, other, strict=True)):
            return _Term(factor, (place,), constant)
    return None


def _least(place: int, terms: Sequence[_Term], starts: Sequence[bool]) -> int:
    """The least that a variable can be, such that every size is one that a program may have."""
    needed = [-((term.constant - (0 if start else _LEAST)) // term.factor)
              for term, start in zip(terms, starts, strict=True) if term.variables == (place,)]
    return max(_LEAST, *needed)


def _most(column: Sequence[int]) -> int:
    """The most that a variable can be: what is twice as long has a plan of its own."""
    return 2 << (max(column) - 1).bit_length()


# ---------------------------------------------------------------- the program with variables

class _Misfit(Exception):
    """The sizes are right for this program, and would be wrong for another one."""


def _general(effects: Described, stated: list[_Stated], differ: set[int], model: _Model,
             values: Sequence[int]) -> Described | None:
    """The program with its sizes as expressions; None if it would be none for other values."""
    bound = [bound_to(f"size#{place}", one.least, one.most, value)
             for place, (one, value) in enumerate(zip(model.variables, values, strict=True))]
    sizes = map(_Sizes(bound, values).of, model.terms)
    made = _Maker(sizes, differ)
    try:
        for node, one in zip(effects.description.place, stated, strict=True):
            made.add(node, one)
    except _Misfit:
        return None
    roots, description = [made.done[root] for root in effects.roots], Rows(sized=True)
    description.add(roots)
    return Described(roots, made.nodes, effects.held, effects.rescued, description=description)


class _Sizes:
    """Terms as sizes, each made once."""

    def __init__(self, bound: Sequence[UOp], values: Sequence[int]) -> None:
        self.bound, self.values = bound, values
        self.made: dict[_Term, int] = {}

    def of(self, term: _Term) -> int:
        """The size in a plan that a term stands for."""
        found = self.made.get(term)
        if found is None:
            found = self.made[term] = self._make(term) if term.variables else term.constant
        return found

    def _make(self, term: _Term) -> int:
        factors = [symbolic.size_in_plan(self.values[v], self.bound[v]) for v in term.variables]
        whole = symbolic.element_count([term.factor, *factors])
        expression = symbolic.add(whole, term.constant)
        return symbolic.size_in_plan(term.value(self.values), expression)


class _Maker:
    """Makes the nodes of a program again, with other sizes and with variables for numbers."""

    def __init__(self, sizes: Iterator[int], differ: set[int]) -> None:
        self.sizes, self.differ, self.number = sizes, differ, 0
        self.done: dict[UOp, UOp] = {}
        self.nodes: list[UOp] = []

    def add(self, node: UOp, stated: _Stated) -> None:
        """Make one node, whose sources are made.

        Raises:
            _Misfit: for other values of the variables it would be none.
        """
        sizes = [next(self.sizes) for _ in stated.sizes]
        if stated.numbers:
            self.number += 1
            if self.number - 1 in self.differ:
                self.nodes += bound_number(node, f"number#{self.number - 1}")
                self.done[node] = self.nodes[-1]
                return
        self.nodes.append(self._made(node, stated, sizes))
        self.done[node] = self.nodes[-1]

    def _made(self, node: UOp, stated: _Stated, sizes: list[int]) -> UOp:
        leaf = leaf_of(node)
        if leaf is not None:
            return leaf.arg[0].leaf(_axes(node.shape, sizes)) if _any_size(sizes) else node
        if node.op is _IOTA:
            shape = _axes((node.arg,), sizes)
            return unnamed(node, (), shape[0], shape) if _any_size(sizes) else node
        if not node.src or node.op is Ops.BIND:
            return node
        sources = tuple([self.done[source] for source in node.src])
        if not _any_size(sizes) and not any(_any_size(s.shape or ()) for s in sources):
            return node if sources == node.src else unnamed(node, sources, node.arg, node.shape)
        if node.op not in _KNOWN:
            raise _Misfit
        arg, shape = _SHAPES.get(node.op, _same_shape)(node, sources, sizes)
        if len(shape) != len(node.shape or ()) or tuple(map(symbolic.plain, shape)) != node.shape:
            raise _Misfit
        return unnamed(node, sources, arg, shape)


def _any_size(sizes: Sequence[int]) -> bool:
    return any(size.__class__ is symbolic.Size for size in sizes)


def _axes(axes: Sequence[int] | None, sizes: Sequence[int]) -> tuple[int, ...]:
    """The axes of a program, with these sizes where it has more than one element."""
    given = iter(sizes)
    return tuple([next(given) if size >= _LEAST else size for size in axes or ()])


def _equal(one: int, other: int) -> bool:
    """Whether two sizes are equal for all values of the variables."""
    return symbolic.node_of(one) is symbolic.node_of(other)


#: An argument and a shape.
_Formed = tuple[Any, tuple[int, ...]]


def _same_shape(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    """Of what works element by element, and of what gives the shape of its first source."""
    shaped = [source.shape for source in sources if source.shape]
    if node.op in ELEMENTWISE:
        for other in shaped[1:]:
            if len(other) != len(shaped[0]) or not all(map(_equal, other, shaped[0])):
                raise _Misfit
    return node.arg, shaped[0] if shaped else ()


def _reshaped(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    shape = _axes(node.arg, sizes)
    if symbolic.element_count(shape) is not symbolic.element_count(sources[0].shape or ()):
        raise _Misfit
    return shape, shape


def _expanded(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    shape = _axes(node.arg, sizes)
    for size, old in zip(shape, sources[0].shape or (), strict=True):
        if not _equal(size, old) and not symbolic.is_number(old, 1):
            raise _Misfit
    return shape, shape


def _permuted(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    shape = sources[0].shape or ()
    return node.arg, tuple([shape[axis] for axis in node.arg])


def _shrunk(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    count = len(node.arg)
    shape = _axes([high - low for low, high in node.arg], sizes[:-count])
    starts = sizes[-count:]
    return tuple([(start, _plus(start, size))
                  for start, size in zip(starts, shape, strict=True)]), shape


def _padded(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    pairs = tuple(zip(sizes[::2], sizes[1::2], strict=True))
    return pairs, tuple([_plus(_plus(low, size), high) for (low, high), size
                         in zip(pairs, sources[0].shape or (), strict=True)])


def _plus(one: int, other: int) -> int:
    """A sum of two sizes."""
    if one.__class__ is int and other.__class__ is int:
        return one + other
    value = symbolic.plain(one) + symbolic.plain(other)
    expression = symbolic.add(symbolic.node_of(one), symbolic.node_of(other))
    return value if expression.op is _CONST else symbolic.size_in_plan(value, expression)


def _reduced(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    axes = node.arg[1]
    return node.arg, tuple([1 if axis in axes else size
                            for axis, size in enumerate(sources[0].shape or ())])


def _gathered(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    values, index = sources
    return node.arg, (*(index.shape or ()), *(values.shape or ())[1:])


def _scattered(node: UOp, sources: Sequence[UOp], sizes: list[int]) -> _Formed:
    base, index, values = [source.shape or () for source in sources]
    if not all(map(_equal, (*index, *base[1:]), values)):
        raise _Misfit
    return node.arg, base


_SHAPES = {Ops.RESHAPE: _reshaped, Ops.EXPAND: _expanded, Ops.PERMUTE: _permuted,
           _SHRINK: _shrunk, _PAD: _padded, Ops.REDUCE: _reduced, Ops.GATHER: _gathered,
           Ops.SCATTER: _scattered}
