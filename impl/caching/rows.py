"""The rows by which a graph is described: one for each node, sources first."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from impl import symbolic
from impl.effects import Buffer, Effects, collect, constant_of, leaf_of, way
from impl.errors import VariableError
from impl.ir import MOVEMENT, Ops, UOp, bound_parts, toposort
from impl.places import Place, place_of

Row = tuple[Any, ...]
_BUFFER, _BIND, _CONST = Ops.BUFFER, Ops.BIND, Ops.CONST
_AFTER, _COPY = Ops.AFTER, Ops.COPY
#: What does more than to compute a value from others.
_SPECIAL = frozenset((Ops.BIND, Ops.DEFINE_VAR, Ops.AFTER, Ops.COPY, Ops.SHARD,
                      Ops.LOOP, Ops.CUSTOM))


class _Variables:
    """The bound variables of a schedule, numbered by appearance."""

    __slots__ = ("slots", "names", "values", "binds")

    def __init__(self) -> None:
        self.slots: dict[UOp, int] = {}
        self.names: dict[str, int] = {}  # what each name is bound to
        self.values: list[int] = []
        self.binds: list[UOp] = []

    def slot(self, bind: UOp) -> int:
        """The slot of a bound variable."""
        variable, value = bound_parts(bind)
        known = self.names.setdefault(variable.arg[0], value)
        if known != value:  # r[impl caching.values.each, linear.variables.one-value]
            raise VariableError(variable.arg[0], f"is bound to {known} and to {value} "
                                "in one schedule", "bind it once, use two variables, or "
                                "realize what has the first value before the second")
        slot = self.slots.setdefault(variable, len(self.slots))
        if slot == len(self.values):
            # Along an axis of a mesh each device has a value of its own.
            self.values.append(value if bind.arg is None else bind.arg)
            self.binds.append(bind)
        return slot


class _Describer:
    """Describes shapes and arguments that depend on variables, never by their values.

    A size is described by the rows of its expression: operations and numbers, variables by slot
    and interval.
    """

    def __init__(self, bind: Callable[[UOp], int]) -> None:
        self.bind = bind
        self.known: dict[UOp, tuple[Any, ...]] = {}

    def described(self, arg: Any) -> Any:
        """An argument with every Size replaced by its description."""
        return symbolic.map_sizes(arg, self._size)  # r[impl caching.key.circumstances]

    def _size(self, size: symbolic.Size) -> tuple[Any, ...]:
        known = self.known.get(size.expression)
        if known is None:
            known = self.known[size.expression] = tuple(self._rows(size.expression))
        return known

    def _rows(self, expression: UOp) -> Iterator[Any]:
        place: dict[UOp, int] = {}
        for node in toposort((expression,), lambda u: u.op is not Ops.BIND):
            place[node] = len(place)
            if node.op is Ops.BIND:
                yield Ops.BIND, self.bind(node), node.src[0].arg[1:]
            else:
                yield node.op, node.arg, *[place[s] for s in node.src]


def has_sizes(nodes: Iterable[UOp]) -> bool:
    """Whether a shape or a position depends on variables."""
    return symbolic.present[0] and any(
        True for node in nodes for part in (node.shape, node.arg if node.op in MOVEMENT else ())
        for _ in symbolic.sizes_in(part))


def exact(value: Any) -> Any:
    """A constant such that unequal constants compare unequal: 0.0 and -0.0, and NaN is itself."""
    return value.hex() if isinstance(value, float) else value


def number_row(node: UOp) -> Row:
    """The row of a constant."""
    return _CONST, node.dtype.name, exact(node.arg)


def leaf_row(node: UOp, buffer: Buffer, slots: dict[Buffer, int], shape: Any) -> Row:
    """The row of a node that is in memory; its shape is described already."""
    # r[impl caching.key.circumstances]: memory that no node was computed into is no known number
    constant = None if node.op is _BUFFER else constant_of(node)
    # r[impl caching.key.alias, caching.key.renaming]
    return (slots.setdefault(buffer, len(slots)), buffer.device,
            # r[impl caching.key.circumstances]: a buffer's size is a value too, if its shape is
            buffer.size if shape is node.shape else None, node.dtype.name, shape,
            None if constant is None else exact(constant.arg))


class Rows:
    """The rows of all nodes of a graph, each at the place of its node; found in one walk.

    Slots stand for buffers and for variables, numbered by appearance.
    """

    __slots__ = ("rows", "place", "slots", "variables", "copies", "sized")

    def __init__(self, sized: bool = False) -> None:
        self.rows: list[Row] = []
        self.place: dict[UOp, int] = {}
        self.slots: dict[Buffer, int] = {}
        self.variables = _Variables()
        self.copies: dict[Place, None] = {}  # the devices to which something is copied
        self.sized = sized  # whether there are sizes that no tensor has

    def add(self, roots: Sequence[UOp]) -> list[UOp]:
        """Describe all that is needed to compute these, and was not described yet; those nodes.

        Raises:
            GraphError: what is read was overwritten.
            VariableError: a variable is bound to two values.
        """
        rows, place, slots, known = self.rows, self.place, self.slots, len(self.place)
        describe = _Describer(self.variables.slot).described \
            if symbolic.present[0] or self.sized else _as_it_is
        # What is open: a node, and those of its sources that were not looked at yet.
        open_nodes: list[tuple[UOp | None, Iterator[UOp]]] = [(None, iter(roots))]
        while open_nodes:
            node, sources = open_nodes[-1]
            for source in sources:
                if source in place:
                    continue
                op, leaf = source.op, leaf_of(source)
                if leaf is not None:
                    rows.append(leaf_row(source, leaf.arg[0], slots, describe(source.shape)))
                elif op is _CONST:
                    rows.append(number_row(source))
                elif op is _BIND:  # r[impl caching.key.circumstances]
                    rows.append((op, self.variables.slot(source), source.dtype.name,
                                 source.src[0].arg[1:]))
                elif source.src:
                    open_nodes.append((source, iter(source.src)))
                    break
                else:
                    rows.append((op, source.dtype.name, describe(source.arg)))
                place[source] = len(place)
            else:
                open_nodes.pop()
                if node is not None:  # r[impl caching.key.program]
                    op = node.op
                    # r[impl caching.program.own]
                    row = op, node.dtype.name, describe(node.arg), *[place[s] for s in node.src]
                    if op is _AFTER:  # r[impl caching.key.place+2]
                        row += tuple([(step.op, describe(step.arg), describe(step.shape))
                                      for step in way(node)])
                    elif op is _COPY:
                        self.copies[place_of(node)] = None
                    rows.append(row)
                    place[node] = len(place)
        return list(itertools.islice(place, known, None))


def _as_it_is(arg: Any) -> Any:
    return arg


@dataclass(slots=True, kw_only=True)
class Described(Effects):
    """Effects with what a key says of their nodes."""

    description: Rows


def walk(roots: Sequence[UOp]) -> Described:
    """What `collect` finds, with the rows of its nodes: found in one walk."""
    description = Rows()
    found = collect(roots, description.add)
    return Described(found.roots, found.nodes, found.held, found.rescued, description=description)


def short_key(root: UOp, circumstances: Hashable) -> tuple[tuple[Any, ...], list[Buffer]] | None:
    """What describes one operation on values in memory, and their buffers; None for all else.

    It has the rows that the key of the whole would have, and is found in a fraction of the time.
    """
    if root.op in _SPECIAL or symbolic.present[0] and has_sizes((root, *root.src)):
        return None
    slots: dict[Buffer, int] = {}
    key = [circumstances, root.op, root.dtype, root.arg]
    for source in root.src:
        leaf = leaf_of(source)
        if leaf is not None:
            key.append(leaf_row(source, leaf.arg[0], slots, source.shape))
        elif source.op is _CONST:
            key.append(number_row(source))
        else:
            return None
    return (tuple(key), list(slots)) if slots else None
