"""Steps for products: shared loops and copied operands. Chapter: spec/kernel.md.

A processor computes a product at full speed when its operands lie in the caches, in the order in
which they are read. `Pack` copies an operand there, once for all that read it; `Share` says within
which loop the copy is good.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from impl import symbolic
from impl.dtypes import HALF
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import (
    LANES,
    PRODUCTS,
    Analysis,
    Way,
    accessed,
    growth,
    loaded,
    shared_loops,
    stage_of,
)
from impl.kernel.steps import Rewriter, Step, StepError, with_stores

#: A packed operand has at most this many bytes.
MOST_PACKED = 64 << 20


@dataclass(frozen=True)
class Share(Step):
    """Make the last loop of the prefix a BLOCK loop: stages share it, its iterations have an order.

    Always legal: an order is one of any. What stages copy outside of it serves all iterations.
    """

    def apply(self, known: Analysis) -> UOp:
        """The loop becomes the outermost of all stages."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.GLOBAL,))
        if loop is not known.info.prefix[-1]:
            raise StepError(self.name, "it is not the last loop of the prefix", "name that one")
        own = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.BLOCK))
        rewriter = Rewriter(known, {loop: own}, {loop: (own,)})
        stores = []
        for store in known.ast.src:
            done = rewriter.store(store, False)
            stores.append(done.replace(src=(*done.src[:2], own, *done.src[2:])))
        return with_stores(known, stores, self.name, known.info.prefix[:-1])


@dataclass(frozen=True)
class Cut(Step):
    """Make two loops of an output loop: an outer one, and `amount` iterations inside of it.

    Then threads may share the outer one, and the stages own the other; or lanes the inner one, so
    that each has an iteration of every round. Legal for an extent that is a multiple of `amount`.
    """

    amount: int

    def apply(self, known: Analysis) -> UOp:
        """The same iterations in the same order."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.GLOBAL, RangeKind.LOOP))
        size = self.size_of(loop)
        if not 1 < self.amount < size or size % self.amount:
            raise StepError(self.name, f"the loop has {size} iterations", "ask for a divisor")
        both = (new_range(size // self.amount, loop.arg[1]), new_range(self.amount, loop.arg[1]))
        place = symbolic.add(symbolic.mul(both[0], self.amount), both[1])
        rewriter = Rewriter(known, {loop: place}, {loop: both})
        prefix = tuple(new for old in known.info.prefix
                       for new in (both if old is loop else (old,)))
        stores = [rewriter.store(store, False) for store in known.ast.src]
        return with_stores(known, stores, self.name, prefix)


@dataclass(frozen=True)
class Chunk(Step):
    """Cut a sum into chunks of `amount`: a BLOCK loop adds one after the other to a LOCAL.

    Then what one chunk reads of an operand can be copied and stays in a cache. Legal for the only
    loop of a sum that one stage alone uses, with a fixed extent; not for half types, whose sums are
    rounded once, at the end. A rest is added last. A float sum is combined in another order.
    """

    amount: int

    def apply(self, known: Analysis) -> UOp:
        """Every element is added once; the LOCAL starts at zero."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.REDUCE,))
        size = self.size_of(loop)
        if not 1 < self.amount < size:
            raise StepError(self.name, f"the loop has {size} iterations", "ask for fewer")
        node, place = self._sum(known, loop)
        store = known.ast.src[place]
        shared = shared_loops(store)
        own = self._own(known, store, shared)
        if set(known.loops(known.free[node])) - {*known.info.prefix, *shared, *own}:
            raise StepError(self.name, "another reduction is around the sum", "cut the sum into "
                            "chunks before that one is made")
        sizes = [self.size_of(r) for r in own]
        number = known.free_local()
        local = UOp(Ops.LOCAL, node.dtype, (), (number, math.prod(sizes)))
        target = local_place(local, own, sizes)
        so_far = UOp(Ops.LOAD, node.dtype, (target,))
        step = new_range(size // self.amount, RangeKind.BLOCK)

        def more(extent: int, first: symbolic.Index) -> UOp:
            """The sum so far, and the elements of a chunk."""
            inner = new_range(extent, RangeKind.REDUCE)
            value = symbolic.rebuild(node.src[0], {loop: symbolic.add(first, inner)})
            return UOp(Ops.ADD, node.dtype, (
                so_far, UOp(Ops.REDUCE, node.dtype, (value, inner), Ops.ADD)))

        chunk = more(self.amount, symbolic.mul(step, self.amount))
        zero = UOp.const(node.dtype, 0)
        done = [UOp(Ops.STORE, node.dtype, (target, zero, *shared, *own)),
                UOp(Ops.STORE, node.dtype, (target, chunk, *shared, step, *own)),
                store.replace(src=(store.src[0], store.src[1].substitute({node: so_far}),
                                   *store.src[2:]))]
        if rest := size % self.amount:
            last = more(rest, size - rest)
            done.insert(2, UOp(Ops.STORE, node.dtype, (target, last, *shared, *own)))
        stores = known.ast.src
        return with_stores(known, [*stores[:place], *done, *stores[place + 1:]], self.name)

    def _sum(self, known: Analysis, loop: UOp) -> tuple[UOp, int]:
        """The sum over the loop, and the place of the stage that uses it."""
        found = [n for n in known.order if n.op is Ops.REDUCE and loop in n.src[1:]]
        places = [i for i, s in enumerate(known.ast.src) if loop in s.toposort()]
        if len(found) != 1 or len(found[0].src) != 2 or len(places) != 1 \
                or found[0].arg is not Ops.ADD or found[0].dtype in HALF:
            raise StepError(self.name, "it is not the loop of one sum of one stage",
                            "name one that is")
        return found[0], places[0]

    def _own(self, known: Analysis, store: UOp, shared: tuple[UOp, ...]) -> list[UOp]:
        """The loops of the stage that have sums of their own, lanes and what is contiguous last."""
        along = growth(known.order, known.ranges)[store.src[0].src[1]] or {}
        own = [r for r in store.src[2:] if r not in shared]
        return sorted(own, key=lambda r: (r.arg[1] in LANES, -along.get(r, 0)))


@dataclass(frozen=True)
class Pack(Step):
    """Copy an operand of the products that are summed over a loop, in the order they read it.

    `factor` says which of the two. A stage before the one that reads it stores the operand (all
    that is computed from memory, conversions and conditions too) in a LOCAL: for all iterations
    of the reductions, lanes and own loops of the stage that it depends on; the reductions
    inside, then the lanes. Legal if these have fixed extents and no stage stores what the operand
    reads after it was copied.
    """

    factor: int

    def apply(self, known: Analysis) -> UOp:
        """A copy has the same elements."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.REDUCE,))
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
        # r[impl kernel.pack.stored+3]
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


@dataclass(frozen=True)
class Fetch(Step):
    """Ask for the memory where a sum will be stored, before the sum over a loop begins.

    Then it is in a cache by the time the sum is there. Legal for a loop of a reduction on whose
    way to an argument no other step has decided.
    """

    def apply(self, known: Analysis) -> UOp:
        """When memory comes to a cache is no part of a value."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.REDUCE,))
        found = [store for store in known.ast.src if store.arg is None
                 and store.src[0].src[0].op is Ops.PARAM and loop in store.src[1].toposort()]
        if not found:
            raise StepError(self.name, "no stage stores what is reduced over it to an argument",
                            "name a loop of a reduction whose result is stored")
        return with_stores(known, [store.replace(arg=Way.AHEAD) if store in found else store
                                   for store in known.ast.src], self.name)


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


__all__ = ["MOST_PACKED", "Aside", "Chunk", "Cut", "Fetch", "Pack", "Share",
           "gated", "local_place", "with_places"]
