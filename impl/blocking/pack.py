"""Operands that are copied in the order in which they are read. Chapter: spec/blocking.md.

A processor computes a product at full speed when its operands lie in the caches, in the order in
which they are read. `Pack` copies an operand there, once for all that read it.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import (
    LANES,
    PRODUCTS,
    Analysis,
    accessed,
    growth,
    loaded,
    shared_loops,
    stage_of,
)
from impl.steps.declaration import Declaration
from impl.steps.step import Step, StepError, with_stores

#: A packed operand has at most this many bytes.
MOST_PACKED = 64 << 20


@dataclass(frozen=True)
class Pack(Step):
    """Copy an operand of the products that are summed over a loop, in the order they read it.

    `factor` says which of the two. A stage before the one that reads it stores the operand (all
    that is computed from memory, conversions and conditions too) in a LOCAL: for all iterations
    of the reductions, lanes and own loops of the stage that it depends on; the reductions
    inside, then the lanes. Legal if these have fixed extents and no stage stores what the operand
    reads after it was copied.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a stage copies operand `factor` of the products summed over `axis` to a LOCAL",
        why="a copy lies in the order in which it is read",
        loops=(RangeKind.REDUCE,),
        only="no stage stores what the copy is made from before it is used")

    factor: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """A copy has the same elements."""
        # r[impl steps.value.equal]
        found = self.operands(known, loop)
        stores = list(known.ast.src)
        copies: dict[UOp, UOp] = {}
        number = known.free_local()
        for value, reduced in found.items():
            user = next(s for s in stores if value in s.src[1].toposort())
            outer, inner = self.spans(known, user, value, reduced)
            self._not_stored(known, user, value, outer)
            if not inner:
                raise StepError(self.name, "the operand is one number", "leave it in a register")
            sizes = [self.size_of(r) for r in inner]
            if math.prod(sizes) * value.dtype.itemsize > MOST_PACKED:
                raise StepError(self.name, f"the copy has {math.prod(sizes)} elements",
                                "cut an outer loop first")
            along = sum(r in (*reduced, *(r for r in inner if r.arg[1] in LANES)) for r in inner)
            steps = self.strides(sizes, along, value.dtype.itemsize)
            room = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
            local = UOp(Ops.LOCAL, value.dtype, (), (number, room))
            number += 1
            fresh = {r: new_range(size, RangeKind.LOOP) for r, size in zip(inner, sizes,
                                                                           strict=True)}
            last = inner[-1]
            if last.arg[1] in LANES and sizes[-1] & (sizes[-1] - 1) == 0:
                fresh[last] = new_range(sizes[-1], RangeKind.UPCAST)
            copy = symbolic.rebuild(value, fresh)
            target = _strided(local, fresh.values(), steps)
            order = [fresh[r] for r in self.order(known, value, inner)]
            made = UOp(Ops.STORE, value.dtype, (target, copy, *outer, *order))
            stores.insert(self.before(stores, user, len(outer)), made)
            copies[value] = UOp(Ops.LOAD, value.dtype, (_strided(local, inner, steps),))
        done = [s if s not in known.ast.src else s.replace(
            src=(s.src[0], s.src[1].substitute(copies), *s.src[2:])) for s in stores]
        return with_stores(known, done, self.name)

    def operands(self, known: Analysis, loop: UOp) -> dict[UOp, tuple[UOp, ...]]:
        """The operands to be copied, each with the loops over which it is reduced."""
        found: dict[UOp, tuple[UOp, ...]] = {}
        for node in known.order:
            if node.op is not Ops.REDUCE or loop not in node.src[1:]:
                continue
            value = node.src[0]
            if value.op not in PRODUCTS or not 0 <= self.factor < 2:
                raise StepError(self.name, "it is no sum of products", "name the loop of one")
            found[value.src[self.factor]] = node.src[1:]
        for value in found:
            nodes = value.toposort()
            if any(n.op is Ops.REDUCE for n in nodes):
                raise StepError(self.name, "the operand is a reduction", "pack what it reads")
            if not any(n.op is Ops.LOAD for n in nodes):
                raise StepError(self.name, "the operand is not read from memory",
                                "pack the other one")
        return found

    def _not_stored(self, known: Analysis, user: UOp, value: UOp, outer: tuple[UOp, ...]) -> None:
        """Raise if the kernel stores what the operand reads between the copy and its only reader.
        """
        # r[impl blocking.copy.stored]
        stores = list(known.ast.src)
        users = [s for s in stores if value in stage_of(s).order]
        between = stores[self.before(stores, user, len(outer)):stores.index(user) + 1]
        if _is_stale(stores, value) and users != [user] or _is_stale(between, value):
            raise StepError(self.name, "the kernel stores what the operand reads",
                            "pack the other one")

    def spans(self, known: Analysis, user: UOp, value: UOp,
              reduced: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
        """The BLOCK loops around the copy, and the loops that it spans, outermost first."""
        free = known.loops(known.free[value])
        shared = shared_loops(user)
        depth = max((i + 1 for i, r in enumerate(shared) if r in free), default=0)
        depth = max(depth, *(_together(store, user) for store in known.ast.src
                             if store is not user and _is_stale([store], value)), 0)
        own = [r for r in user.src[2:] if r in free and r not in shared]
        target = user.src[0].src[1]
        along = growth(target.toposort(), known.ranges)[target] or {}
        lanes = sorted((r for r in own if r.arg[1] in LANES), key=lambda r: -along.get(r, 0))
        body = [r for r in own if r not in lanes]
        sums = [r for r in reduced if r in free]
        if set(free) - {*known.info.prefix, *shared, *own, *sums}:
            raise StepError(self.name, "the operand depends on a loop of a reduction around this "
                            "one", "copy it before that loop is cut")
        return shared[:depth], [*body, *sums, *lanes]

    def order(self, known: Analysis, value: UOp, loops: list[UOp]) -> list[UOp]:
        """In which order the loops of a copy stand."""
        return _reading_order(known, value, loops)

    def strides(self, sizes: Sequence[int], line: int, itemsize: int) -> list[int]:
        """How far the elements of a copy are apart along each loop. The last `line` loops are what
        one iteration of the others reads.
        """
        return [math.prod(sizes[place + 1:]) for place in range(len(sizes))]

    def before(self, stores: list[UOp], user: UOp, depth: int) -> int:
        """Where a stage stands that is in `depth` of the BLOCK loops of `user`."""
        place = stores.index(user)
        loops = shared_loops(user)[:depth + 1]
        while depth < len(shared_loops(user)) and place > 0 \
                and shared_loops(stores[place - 1])[:depth + 1] == loops:
            place -= 1
        return place


def _is_stale(stores: Sequence[UOp], value: UOp) -> bool:
    """Whether some stages store to memory that a value is read from."""
    read = loaded(value.toposort())
    return any(accessed(store) in read for store in stores)


def _together(one: UOp, two: UOp) -> int:
    """In how many BLOCK loops two stages are together."""
    pairs = zip(shared_loops(one), shared_loops(two), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))


@dataclass(frozen=True)
class Aside(Pack):
    """PACK for an operand that is computed rather than read: along the sum, one row of results
    after the other. So what it is computed from can be vectors along the sum.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="PACK, in the order in which the operand is computed",
        why="what several loads make is made once for all columns",
        loops=(RangeKind.REDUCE,),
        only="as for PACK; the operand depends on the sum")

    def spans(self, known: Analysis, user: UOp, value: UOp,
              reduced: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
        """The same loops; the lanes stand outside."""
        outer, inner = super().spans(known, user, value, reduced)
        if not any(r in reduced for r in inner):
            raise StepError(self.name, "the operand does not depend on the sum", "pack it")
        return outer, sorted(inner, key=lambda r: r.arg[1] not in LANES)

    def order(self, known: Analysis, value: UOp, loops: list[UOp]) -> list[UOp]:
        """As they lie in the copy."""
        return loops


def _reading_order(known: Analysis, value: UOp, loops: list[UOp]) -> list[UOp]:
    """The loops of a copy: those with the longest strides outside, so that lines are used whole.

    But those that decide what is valid stand around the others: a condition holds for many.
    """
    load = next(n for n in value.toposort() if n.op is Ops.LOAD)
    deciding = known.free[load.src[0].src[2]]
    grows = growth(known.order, known.ranges)[load.src[0].src[1]] or {}
    lanes = [r for r in loops[-1:] if r.arg[1] in LANES]
    rest = [r for r in loops if r not in lanes]
    return [*sorted(rest, key=lambda r: (not deciding >> known.position[r] & 1,
                                         -abs(grows.get(r, 0)))), *lanes]


def local_place(local: UOp, loops: list[UOp], sizes: list[int]) -> UOp:
    """The INDEX of an element of a packed operand: the last loop is contiguous."""
    return _strided(local, loops, [math.prod(sizes[place + 1:]) for place in range(len(sizes))])


def _strided(local: UOp, loops: Iterable[UOp], steps: Sequence[int]) -> UOp:
    """The INDEX of an element whose place grows by these steps with the loops."""
    terms = [symbolic.mul(loop, step) for loop, step in zip(loops, steps, strict=True)]
    return UOp(Ops.INDEX, local.dtype, (local, symbolic.total(terms[::-1]), TRUE))


def with_places(root: UOp, change: Callable[[UOp], UOp]) -> UOp:
    """An expression with every INDEX changed, also those from which addresses are loaded."""
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        made = symbolic.rebuilt(node, done)
        done[node] = change(made) if node.op is Ops.INDEX else made
    return done[root]


def gated(value: UOp, valid: UOp) -> UOp:
    """A value for which nothing is read unless a condition holds."""
    return value if valid is TRUE else with_places(value, lambda place: place.replace(
        src=(*place.src[:2], symbolic.logical_and(place.src[2], valid))))
