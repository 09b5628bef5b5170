"""Running results: several elements at once, where each needs the one before it.

Chapter: spec/blocking.md. What waits is the addition to the one result before; what is added can be
made ready meanwhile. So the elements of a block are combined with each other first.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import REDUCERS, Analysis, accessed, buffer_key, growth
from impl.steps.declaration import Amount, Declaration
from impl.steps.rewriting import Rewriter
from impl.steps.step import Step, StepError, with_stores


class _Link(NamedTuple):
    """`store` combines what was stored one iteration before with an element."""

    store: UOp
    before: UOp
    element: UOp


@dataclass(frozen=True)
class Chain(Step):
    """Take `amount` iterations of a running result at once: first among each other, then with
    the result before them.

    Legal for a BLOCK loop of fixed extent, the innermost one, whose only store, to an argument,
    combines what was stored one iteration before with an element that reads nothing of what is
    stored: in every iteration but the first. Combining in another order is what
    r[conventions.reassociation.reduction] allows. A rest follows one by one.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="n elements of a running result at once: combined with each other first, then "
             "with the result before",
        why="only the result before has to be waited for",
        loops=(RangeKind.BLOCK,),
        amount=Amount(),
        only="the innermost loop of the only store, to an argument, which combines what was "
             "stored one iteration before in all iterations but the first")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The same elements, combined in the same order and with other brackets."""
        # r[impl steps.value.equal]
        size, link = self.size_of(loop), find_link(known, loop)
        if link is None:
            raise StepError(self.name, "what is stored along it is no running result",
                            "name the loop of one")
        whole, rest = divmod(size, self.amount)
        outer = new_range(whole, RangeKind.BLOCK)
        op, stores = link.store.src[1].op, list[UOp]()
        local = UOp(Ops.LOCAL, link.before.dtype, (), (known.free_local(), 1))
        place_of_it = UOp(Ops.INDEX, local.dtype, (local, UOp.const(dtypes.index, 0), TRUE))
        before = UOp(Ops.LOAD, local.dtype, (place_of_it,))
        together: UOp | None = None
        for place in range(self.amount):
            here = symbolic.add(symbolic.mul(outer, self.amount), place)
            rewriter = Rewriter(known, {loop: here}, {loop: (outer,)})
            element = rewriter.value(link.element)
            moved = rewriter.store(link.store, False)
            if together is None:
                stores.append(moved.replace(src=(place_of_it, rewriter.value(link.before),
                                                 *moved.src[2:])))
            together = element if together is None else UOp(op, element.dtype, (together, element))
            value = UOp(op, element.dtype, (before, together))
            stores.append(moved.replace(src=(moved.src[0], value, *moved.src[2:])))
        if rest:
            left = new_range(rest, RangeKind.BLOCK)
            stores.append(Rewriter(known, {loop: symbolic.add(left, whole * self.amount)},
                                   {loop: (left,)}).store(link.store, False))
        return with_stores(known, stores, self.name)


def find_link(known: Analysis, loop: UOp) -> _Link | None:
    """The running result along a loop, if that is all that the kernel computes."""
    store = known.ast.src[0]
    index, value = store.src[:2]
    if len(known.ast.src) > 1 or value.op not in REDUCERS or loop is not store.src[-1]:
        return None  # a loop inside of it has a result before for each iteration
    if index.src[0].op is Ops.LOCAL:  # r[impl kernel.local.own]: it would be stored again
        return None
    own = buffer_key(index.src[0])
    reading = [any(node.op is Ops.LOAD and accessed(node) == own
                   for node in part.toposort()) for part in value.src]
    if sorted(reading) != [False, True]:
        return None
    before, element = value.src if reading[0] else value.src[::-1]
    load = before.src[1] if before.op is Ops.WHERE and before.src[2].op is Ops.CONST else before
    grows = growth(known.order, (loop,))[index.src[1]]
    if load.op is not Ops.LOAD or not grows or not _linked(before, index, loop):
        return None
    step_back = symbolic.add(load.src[0].src[1], grows[loop])
    return _Link(store, before, element) if step_back is index.src[1] else None


def _linked(before: UOp, index: UOp, loop: UOp) -> bool:
    """Whether every iteration that stores needs the result before, unless it is the first one."""
    load = before.src[1] if before.op is Ops.WHERE else before
    conditions = [load.src[0].src[2], *(before.src[:1] if before.op is Ops.WHERE else ())]
    stored = symbolic.conjuncts(index.src[2])
    later = {loop: symbolic.add(loop, 1)}
    return loop not in index.src[2].toposort() and all(
        part in stored or symbolic.rebuild(part, later) is TRUE
        for condition in conditions for part in symbolic.conjuncts(condition))
