"""Long sums, a part at a time. Chapter: spec/blocking.md."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.blocking.pack import local_place
from impl.dtypes import HALF
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import (
    LANES,
    Analysis,
    growth,
    shared_loops,
)
from impl.steps.declaration import Amount, Declaration
from impl.steps.step import Step, StepError, with_stores


@dataclass(frozen=True)
class Chunk(Step):
    """Cut a sum into chunks of `amount`: a BLOCK loop adds one after the other to a LOCAL.

    Then what one chunk reads of an operand can be copied and stays in a cache. Legal for a loop of
    a sum that one stage alone uses, with a fixed extent; not for half types, whose sums are rounded
    once, at the end. A rest is added last. A float sum is combined in another order.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a BLOCK loop sums n elements at a time to a LOCAL",
        why="what a part reads stays in a cache",
        loops=(RangeKind.REDUCE,),
        amount=Amount(below=True),
        only="a loop of one sum of one stage, of no half type")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Every element is added once; the LOCAL starts at zero."""
        # r[impl steps.value.equal]
        size = self.size_of(loop)
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
            loops = [new_range(extent if r is loop else self.size_of(r), RangeKind.REDUCE)
                     for r in node.src[1:]]
            places: dict[UOp, UOp] = dict(zip(node.src[1:], loops, strict=True))
            places[loop] = symbolic.add(first, places[loop])
            value = symbolic.rebuild(node.src[0], places)
            return UOp(Ops.ADD, node.dtype, (
                so_far, UOp(Ops.REDUCE, node.dtype, (value, *loops), Ops.ADD)))

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
        if len(found) != 1 or len(places) != 1 or found[0].arg is not Ops.ADD \
                or any(r.arg[1] is not RangeKind.REDUCE for r in found[0].src[1:]) \
                or found[0].dtype in HALF:
            raise StepError(self.name, "it is not the loop of one sum of one stage",
                            "name one that is")
        return found[0], places[0]

    def _own(self, known: Analysis, store: UOp, shared: tuple[UOp, ...]) -> list[UOp]:
        """The loops of the stage that have sums of their own, lanes and what is contiguous last."""
        along = growth(known.order, known.ranges)[store.src[0].src[1]] or {}
        own = [r for r in store.src[2:] if r not in shared]
        return sorted(own, key=lambda r: (r.arg[1] in LANES, -along.get(r, 0)))
