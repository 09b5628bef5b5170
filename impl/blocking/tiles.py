"""Products of matrices by a processor's unit for them. Chapter: spec/blocking.md."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.blocking.pack import local_place
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, Way
from impl.kernel.tiles import tiles_of
from impl.steps.declaration import Declaration
from impl.steps.step import Step, StepError, with_stores


@dataclass(frozen=True)
class Tiles(Step):
    """Have a unit for matrices compute the sums of a stage, for all its rows and columns.

    They are stored as they are, or to a LOCAL from which the stage goes on. Legal for the loop of
    the only sum of a kernel with one stage, of products of int8 in int32 or of bfloat16 in
    float32, that has a loop of rows and one of columns (see OWN), of fixed extent. The operand of
    the rows lies side by side along the sum.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a unit for matrices computes the sums for all rows and columns of a stage",
        why="a unit multiplies small matrices at once",
        loops=(RangeKind.REDUCE,),
        only="the only loop of the only sum, of products of int8 in int32 or of bfloat16 in "
             "float32, in a stage with a loop of rows and one of columns")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The same products, added in another order."""
        # r[impl steps.value.equal]
        sums = [node for node in known.order if node.op is Ops.REDUCE]
        if len(known.ast.src) != 1 or len(sums) != 1 or len(known.ast.src[0].src) != 4:
            raise StepError(self.name, "it is not the only sum of one stage with two loops",
                            "leave the product to the other steps")
        store, found = known.ast.src[0], None
        for row, column in (store.src[2:], store.src[:1:-1]):
            made = self._stages(store, sums[0], row, column)
            if tiles_of(made[0]) is not None:
                found = made
                break
        if found is None:
            raise StepError(self.name, "its operands are none that a unit reads",
                            "leave the product to the other steps")
        return with_stores(known, found, self.name)

    def _stages(self, store: UOp, node: UOp, row: UOp, column: UOp) -> list[UOp]:
        """The stage of the sums, and the one that goes on with them."""
        whole = store.replace(src=(*store.src[:2], row, column), arg=Way.TILES)
        if store.src[1] is node and tiles_of(whole) is not None:
            return [whole]
        sizes = [self.size_of(each) for each in (row, column)]
        local = UOp(Ops.LOCAL, node.dtype, (), (0, sizes[0] * sizes[1]))
        place = local_place(local, [row, column], sizes)
        fresh = [new_range(size, RangeKind.LOOP) for size in sizes]
        done = {row: fresh[0], column: fresh[1],
                node: UOp(Ops.LOAD, node.dtype, (local_place(local, fresh, sizes),))}
        after = [symbolic.rebuild(part, done) for part in store.src[:2]]
        return [UOp(Ops.STORE, node.dtype, (place, node, row, column), Way.TILES),
                store.replace(src=(*after, *fresh))]


__all__ = ["Tiles"]
