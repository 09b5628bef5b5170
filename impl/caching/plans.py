"""Finished plans, found again by the shape of the question.

The key of a plan is the canonical graph: buffers and variables are numbered by appearance, so that
`x + y` on other buffers hits, and `x + x` does not hit `x + y`. All settings and device
properties that can change a plan belong to it. Bound values are not in the key.
"""
from __future__ import annotations

import hashlib
import heapq
import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from impl import settings, symbolic
from impl.effects import Buffer, Effects, leaf_of, way
from impl.errors import VariableError
from impl.ir import MOVEMENT, Ops, UOp, free_after_fork, toposort, unnamed

PlanType = TypeVar("PlanType")
Row = tuple[Any, ...]


# --8<-- [start:canonical]
@dataclass(slots=True)
class Canonical:
    """A graph with its buffers and variables taken out.

    `key` describes the graph completely; `buffers[i]` and `values[i]` are what slot i stands for in
    this call. Two graphs with equal keys have equal plans.
    """

    key: tuple[Any, ...]
    buffers: list[Buffer]
    variables: list[UOp] = field(default_factory=list)
    values: list[int] = field(default_factory=list)


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
        variable, value = bind.unbind()
        known = self.names.setdefault(variable.arg[0], value)
        if known != value:  # r[impl caching.values.each, linear.variables.one-value]
            raise VariableError(variable.arg[0], f"is bound to {known} and to {value} "
                                "in one schedule", "bind it once, or use two variables")
        slot = self.slots.setdefault(variable, len(self.slots))
        if slot == len(self.values):
            self.values.append(value)
            self.binds.append(bind)
        return slot


def canonicalize(effects: Effects, device_key: Hashable) -> Canonical:
    """Number buffers and variables by appearance, and describe every node by its sources' places.

    r[caching.key.alias], r[caching.key.settings], r[caching.key.values]
    """
    if effects.described is not None:
        return _canonical(effects, *effects.described, device_key)
    place: dict[UOp, int] = {}
    slots: dict[Buffer, int] = {}
    variables = _Variables()
    describe = _Describer(variables.slot).described if symbolic.present[0] else None
    rows: list[Row] = []
    held = {leaf.arg[0] for leaf in effects.held}
    for node in effects.nodes:
        place[node] = len(place)
        op, dtype = node.op, node.dtype.name
        leaf = leaf_of(node) if op is _BUFFER or node.realized is not None else None
        if leaf is not None:  # r[impl caching.key.alias]
            buffer = leaf.arg[0]
            slot = slots.setdefault(buffer, len(slots))
            # r[impl caching.key.renaming, caching.key.held]
            shape = describe(node.shape) if describe else node.shape
            # r[impl caching.key.sizes]: the size of a buffer is a value too, if its shape is
            size = buffer.size if shape is node.shape else None
            rows.append((slot, buffer.device, size, dtype, shape,
                         None if op is _BUFFER else _number(node), buffer in held))
        elif op is _BIND:  # r[impl caching.key.values]
            rows.append((op, variables.slot(node), dtype, node.src[0].arg[1:]))
        elif op is _CONST:
            rows.append((op, dtype, exact(node.arg)))
        else:  # r[impl caching.key.program]
            arg = describe(node.arg) if describe else node.arg
            rows.append((op, dtype, arg, *[place[s] for s in node.src]))
            if op is _AFTER:  # r[impl caching.key.place]
                rows += [(step.op, describe(step.arg), describe(step.shape)) if describe
                         else (step.op, step.arg, step.shape) for step in way(node)]
    found = _canonical(effects, rows, place, slots, device_key)
    found.variables, found.values = variables.binds, variables.values
    return found


def _canonical(effects: Effects, rows: list[Row], place: dict[UOp, int], slots: dict[Buffer, int],
               device_key: Hashable) -> Canonical:
    roots = tuple([place[root] for root in effects.roots])
    # r[impl caching.key.settings, caching.key.device]
    key = tuple(rows), roots, settings.plan_text(), device_key
    # A plan names slots only; no run leaves a buffer in it. r[impl caching.result.independent]
    return Canonical(key, list(slots), [], [])
# --8<-- [end:canonical]


# --8<-- [start:walk]
def walk(roots: Sequence[UOp]) -> Effects | None:
    """What `collect` finds, with the rows of `canonicalize`, in one go.

    None for a graph that writes to memory, has variables, or goes from device to device: there is
    more to ask about these.
    """
    if symbolic.present[0]:
        return None
    rows: list[Row] = []
    place: dict[UOp, int] = {}
    slots: dict[Buffer, int] = {}
    # What is open: a node, and those of its sources that were not looked at yet.
    open_nodes: list[tuple[UOp | None, Iterator[UOp]]] = [(None, iter(roots))]
    while open_nodes:
        node, sources = open_nodes[-1]
        for source in sources:
            if source in place:
                continue
            op = source.op
            leaf = source if op is _BUFFER else source.realized
            if leaf is not None:
                buffer, version, _ = leaf.arg
                if version != buffer.version:
                    return None  # an error, which `collect` finds
                slot = slots.setdefault(buffer, len(slots))
                rows.append((slot, buffer.device, buffer.size, source.dtype.name, source.shape,
                             None if op is _BUFFER else _number(source), False))
            elif op is _CONST:
                rows.append((op, source.dtype.name, exact(source.arg)))
            elif op in _SPECIAL:
                return None
            elif source.src:
                open_nodes.append((source, iter(source.src)))
                break
            else:
                rows.append((op, source.dtype.name, source.arg))
            place[source] = len(place)
        else:
            open_nodes.pop()
            if node is not None:
                rows.append((node.op, node.dtype.name, node.arg, *[place[s] for s in node.src]))
                place[node] = len(place)
    return Effects(list(roots), list(place), _NOTHING, 0, (rows, place, slots))
# --8<-- [end:walk]


_BUFFER, _BIND, _CONST, _AFTER = Ops.BUFFER, Ops.BIND, Ops.CONST, Ops.AFTER
_EXPAND, _RESHAPE = Ops.EXPAND, Ops.RESHAPE
_SPECIAL = frozenset((Ops.BIND, Ops.DEFINE_VAR, Ops.AFTER, Ops.COPY))
_NOTHING: frozenset[UOp] = frozenset()


# --8<-- [start:sizes]
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
        return symbolic.mapped(arg, self._size)  # r[impl caching.key.sizes]

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


def unbound(effects: Effects) -> Effects:
    """The same graph with every size for all values: what a plan is made from.

    Node by node: the nodes stand at the same places. Without symbolic sizes it is the same object.
    """
    if not has_sizes(effects.nodes):
        return effects
    done: dict[UOp, UOp] = {}

    def plainly(arg: Any) -> Any:
        return symbolic.mapped(arg, symbolic.without_values)

    for node in effects.nodes:
        shape, leaf = plainly(node.shape), leaf_of(node)
        if leaf is not None:
            done[node] = memory = leaf.arg[0].leaf(shape)
            if node.op in MOVEMENT:  # perhaps the view of a write: it keeps its operation
                done[node] = unnamed(node, (), plainly(node.arg), shape)
                done[node].realized = memory
        elif node.op is Ops.CONST or node.op is Ops.BIND:
            done[node] = node
        else:
            sources = tuple(done[s] for s in node.src)
            done[node] = unnamed(node, sources, plainly(node.arg), shape)
            for step in way(node) if node.op is Ops.AFTER else ():
                below = step.src[0]
                if below not in done:
                    done[below] = unnamed(below, (), plainly(below.arg), plainly(below.shape))
                done[step].src = (done[below],)  # r[impl effects.view-write.region]
    return Effects([done[n] for n in effects.roots], [done[n] for n in effects.nodes],
                   {leaf.arg[0].leaf(plainly(leaf.shape)) for leaf in effects.held},
                   effects.rescued)


def has_sizes(nodes: Iterable[UOp]) -> bool:
    """Whether a shape or a position depends on variables."""
    return symbolic.present[0] and any(
        True for node in nodes for part in (node.shape, node.arg if node.op in MOVEMENT else ())
        for _ in symbolic.sizes_in(part))
# --8<-- [end:sizes]


def exact(value: Any) -> Any:
    """A constant such that unequal constants compare unequal: 0.0 and -0.0, and NaN is itself."""
    return value.hex() if isinstance(value, float) else value


def _number(node: UOp) -> Any:
    """The number that all elements of a realized node are; None if it is made of anything else.

    A kernel computes such a number, and does not read it, so memory is not all that it depends on.
    """
    while node.op is _EXPAND or node.op is _RESHAPE:
        node = node.src[0]
    return exact(node.arg) if node.op is _CONST else None  # r[impl caching.key.program]


def stable_name(key: tuple[Any, ...]) -> str:
    """A name of a key that is the same in every process (r[caching.key.stable])."""
    return hashlib.sha256(repr(key).encode()).hexdigest()  # r[impl caching.key.stable]


# --8<-- [start:short]
def short_key(root: UOp, circumstances: Hashable) -> tuple[tuple[Any, ...], list[Buffer]] | None:
    """What describes one operation on values in memory, and their buffers; None for all else.

    It says as much as the key of the whole, and is found in a fraction of the time.
    """
    if root.op in _SPECIAL or symbolic.present[0]:
        return None
    key = [circumstances, root.op, root.dtype, root.arg]
    buffers: list[Buffer] = []
    for source in root.src:
        leaf = source if source.op is _BUFFER else source.realized
        if leaf is not None:
            buffer, version, _ = leaf.arg
            if version != buffer.version:
                return None
            buffers.append(buffer)
            key += (buffer.device, buffer.size, source.dtype, source.shape,
                    None if leaf is source else _number(source))
        elif source.op is _CONST:
            key += exact(source.arg), source.dtype
        else:
            return None
    if not buffers or len(buffers) > 1 and len(set(buffers)) < len(buffers):
        return None  # r[impl caching.key.alias]
    return tuple(key), buffers
# --8<-- [end:short]


#: A full table drops one in so many of its plans.
_DROPPED = 64


# --8<-- [start:cache]
class PlanCache(Generic[PlanType]):
    """A bounded table from keys to plans; those used longest ago go first. Thread-safe."""

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.entries: dict[tuple[Any, ...], list[Any]] = {}  # the plan, and when it was used
        self.short: dict[tuple[Any, ...], list[Any]] = {}  # the same, by short keys
        self.uses = itertools.count()
        self.lock = free_after_fork(threading.Lock())
        self.hits = self.misses = 0

    @property
    def plans(self) -> dict[tuple[Any, ...], PlanType]:
        """All plans by their keys."""
        return {key: plan for key, (plan, _) in self.entries.items()}

    def get(self, key: tuple[Any, ...]) -> PlanType | None:
        """The plan, if it is there; counts a hit or a miss."""
        with self.lock:
            entry = self.entries.get(key)  # r[impl caching.hit.equal]
            if entry is None:
                self.misses += 1
                return None
            self.hits += 1
            entry[1] = next(self.uses)
            plan: PlanType = entry[0]
            return plan

    def get_short(self, key: tuple[Any, ...]) -> PlanType | None:
        """The plan that was found before for what a short key describes; counts a hit."""
        with self.lock:
            entry = self.short.get(key)
            if entry is None:
                return None
            self.hits += 1
            entry[1] = next(self.uses)
            plan: PlanType = entry[0]
            return plan

    def put_short(self, short: tuple[Any, ...], key: tuple[Any, ...]) -> None:
        """Let a plan be found by a short key too."""
        with self.lock:
            if len(self.short) >= self.capacity:
                self.short.clear()
            if key in self.entries:
                self.short[short] = self.entries[key]

    def put(self, key: tuple[Any, ...], plan: PlanType) -> None:
        """Keep a plan; beyond the capacity the oldest is dropped (r[caching.bounded.capacity])."""
        with self.lock:
            self.entries[key] = [plan, next(self.uses)]
            if len(self.entries) > self.capacity:  # r[impl caching.bounded.capacity]
                # Several at once: whoever looks for the oldest looks at the whole table.
                for old in heapq.nsmallest(self.capacity // _DROPPED + 1, self.entries,
                                           key=lambda each: self.entries[each][1]):
                    del self.entries[old]
                self.short.clear()

    def clear(self) -> None:
        """Forget everything, the counts too."""
        with self.lock:
            self.entries.clear()
            self.short.clear()
            self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self.entries)
# --8<-- [end:cache]
