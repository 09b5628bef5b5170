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
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from impl import settings, symbolic
from impl.caching.positions import Families
from impl.caching.rows import Described, Rows, has_sizes
from impl.caching.sizes import Forms
from impl.effects import Buffer, Effects, leaf_of, way
from impl.ir import MOVEMENT, Ops, UOp, free_after_fork, stand_on, unnamed

PlanType = TypeVar("PlanType")


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


def canonicalize(effects: Effects, device_key: Hashable) -> Canonical:
    """Number buffers and variables by appearance, and describe every node by its sources' places.

    r[caching.key.alias], r[caching.key.settings], r[caching.key.circumstances]
    """
    if isinstance(effects, Described):
        described = effects.description
    else:
        described = Rows()
        described.add(effects.roots)
    place, slots, variables = described.place, described.slots, described.variables
    roots = tuple([place[root] for root in effects.roots])
    held = {slots[leaf.arg[0]] for leaf in effects.held if leaf.arg[0] in slots}
    # r[impl caching.key.held, caching.key.settings, caching.key.circumstances]
    key = tuple(described.rows), roots, tuple(sorted(held)), settings.plan_text(), device_key
    # A plan names slots only; no run leaves a buffer in it. r[impl caching.result.independent]
    return Canonical(key, list(slots), variables.binds, variables.values)


def for_all_sizes(effects: Effects) -> Effects:
    """The same graph with every size for all values: what a plan is made from.

    Node by node: the nodes stand at the same places. Without symbolic sizes it is the same object.
    """
    own = isinstance(effects, Described) and effects.description.sized
    if not own and not has_sizes(effects.nodes):
        return effects
    done: dict[UOp, UOp] = {}

    def plainly(arg: Any) -> Any:
        return symbolic.map_sizes(arg, symbolic.without_values)

    for node in effects.nodes:
        shape, leaf = plainly(node.shape), leaf_of(node)
        if leaf is not None:
            done[node] = memory = leaf.arg[0].leaf(shape)
            if node.op in MOVEMENT:  # perhaps the view of a write: it keeps its operation
                done[node] = unnamed(node, (), plainly(node.arg), shape, memory)
        elif node.op is Ops.CONST or node.op is Ops.BIND:
            done[node] = node
        else:
            sources = tuple(done[s] for s in node.src)
            done[node] = unnamed(node, sources, plainly(node.arg), shape)
            for step in way(node) if node.op is Ops.AFTER else ():
                below = step.src[0]
                if below not in done:
                    done[below] = unnamed(below, (), plainly(below.arg), plainly(below.shape))
                stand_on(done[step], done[below])  # r[impl effects.view-write.region]
    return Effects([done[n] for n in effects.roots], [done[n] for n in effects.nodes],
                   {leaf.arg[0].leaf(plainly(leaf.shape)) for leaf in effects.held},
                   effects.rescued)


def stable_name(key: tuple[Any, ...]) -> str:
    """A name of a key that is the same in every process (r[caching.key.stable])."""
    return hashlib.sha256(repr(key).encode()).hexdigest()  # r[impl caching.key.stable]


#: A full table drops one in so many of its plans.
_DROPPED = 64


class PlanCache(Generic[PlanType]):
    """A bounded table from keys to plans; those used longest ago go first. Thread-safe."""

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.entries: dict[tuple[Any, ...], list[Any]] = {}  # the plan, and when it was used
        self.short: dict[tuple[Any, ...], list[Any]] = {}  # the same, by short keys
        self.families, self.forms = Families(), Forms()
        self.uses = itertools.count()
        self.lock = free_after_fork(threading.RLock())
        self.hits = self.misses = 0

    @property
    def plans(self) -> dict[tuple[Any, ...], PlanType]:
        """All plans by their keys."""
        return {key: plan for key, (plan, _) in self.entries.items()}

    def get(self, key: tuple[Any, ...], last: bool = True) -> PlanType | None:
        """The plan, if it is there; counts a hit, or a miss if it is the last key to be tried."""
        with self.lock:
            entry = self.entries.get(key)  # r[impl caching.hit.equal]
            if entry is None:
                self.misses += last
                return None
            self.hits += 1
            entry[1] = next(self.uses)
            plan: PlanType = entry[0]
            return plan

    def get_short(self, key: tuple[Any, ...]) -> PlanType | None:
        """The plan that was found before for what a short key describes; counts a hit.

        Who asks has the turn to realize, and looks once: that needs no lock.
        """
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
        """Keep a plan; beyond the capacity the oldest is dropped (r[caching.bound.kept])."""
        with self.lock:
            self.entries[key] = [plan, next(self.uses)]
            if len(self.entries) > self.capacity:  # r[impl caching.bound.kept]
                # Several at once: whoever looks for the oldest looks at the whole table.
                for old in heapq.nsmallest(self.capacity // _DROPPED + 1, list(self.entries),
                                           key=lambda each: self.entries[each][1]):
                    self.entries.pop(old, None)
                self.short.clear()

    def clear(self) -> None:
        """Forget everything, the counts too."""
        with self.lock:
            self.entries.clear()
            self.short.clear()
            self.families.known.clear()
            self.forms.known.clear()
            self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self.entries)
