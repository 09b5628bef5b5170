"""The step PADTO: a loop goes on to a multiple, and what lies beyond does nothing."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.ir import TRUE, Ops, RangeKind, UOp, identity, new_range
from impl.kernel.analysis import Analysis
from impl.steps.declaration import Declaration
from impl.steps.step import Step, StepError, with_stores


@dataclass(frozen=True)
class PadTo(Step):
    """Extend a loop to the next multiple of `amount`.

    Beyond its end nothing is stored, and nothing is loaded at an address that depends on the loop;
    a reduction combines the identity there. Legal for an output loop or a reduction's loop with a
    fixed extent that is no multiple, along which no MMA reads its operands beyond the end.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="extends a loop to a multiple of n; beyond its end nothing is loaded, stored or "
             "combined",
        why="a whole number of blocks",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE),
        only="the extent is no multiple of n; no unit would load an operand in part")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """No element is stored or combined that was not before."""
        # r[impl steps.value.equal, steps.padding.untouched]
        size = self.size_of(loop)
        if self.amount < 2 or size % self.amount == 0:
            raise StepError(self.name, f"{size} iterations are a multiple already, or none can be",
                            "ask for a multiple of at least 2 that it is not")
        padded = -(-size // self.amount) * self.amount
        longer = new_range(padded, loop.arg[1])
        inside = symbolic.less_than(longer, size)
        stores = _Padder(known, loop, longer, inside).stores()
        if any(map(_parts_operands, stores)):  # r[impl groups.matrices.refused]
            raise StepError(self.name, "an MMA would read elements that there are not",
                            "pad the loop before TC")
        prefix = tuple(longer if old is loop else old for old in known.info.prefix)
        return with_stores(known, stores, self.name, prefix)


class _Padder:
    """Puts a longer loop into the place of another one."""

    def __init__(self, known: Analysis, loop: UOp, longer: UOp, inside: UOp) -> None:
        self.known, self.loop, self.inside = known, loop, inside
        self.bit = 1 << known.position[loop]
        self.done: dict[UOp, UOp] = {loop: longer}
        self.targets = {store.src[0] for store in known.ast.src}

    def stores(self) -> list[UOp]:
        """The stores of the kernel; those that the loop repeats are gated."""
        found = []
        for store in self.known.ast.src:
            for node in store.toposort(lambda u: u not in self.done):
                if node not in self.done and node is not store:
                    self.done[node] = self._node(node)
            place, *rest = (self.done[source] for source in store.src)
            repeated = self.loop in store.src or self.loop in self.known.info.prefix
            gated = not self.known.free[store.src[0]] & self.bit
            found.append(store.replace(src=(self._gated(place) if repeated and gated else place,
                                            *rest)))
        return found

    def _node(self, node: UOp) -> UOp:
        sources = {source: self.done[source] for source in node.src}
        if node.op is Ops.REDUCE and self.loop in node.src[1:]:
            beyond = UOp.const(node.dtype, identity(node.arg, node.dtype))
            value = sources[node.src[0]]
            sources[node.src[0]] = UOp(Ops.WHERE, value.dtype, (self.inside, value, beyond))
            return node.replace(src=tuple(sources[source] for source in node.src))
        made = node if all(old is new for old, new in sources.items()) \
            else symbolic.rebuild(node, sources)
        if node.op is not Ops.INDEX or not self.known.free[node] & self.bit:
            return made
        return made if node not in self.targets and _within_local(made) else self._gated(made)

    def _gated(self, place: UOp) -> UOp:
        buffer, index, valid = place.src
        if buffer.op is Ops.LOCAL and self.loop in self.known.info.prefix:
            return place  # it is private to the iteration
        return place.replace(src=(buffer, index, symbolic.logical_and(valid, self.inside)))


def _parts_operands(store: UOp) -> bool:
    """Whether an MMA has operands of which a part is not loaded."""
    return any(fragment.src[0].src[2] is not TRUE for node in store.toposort()
               if node.op is Ops.MMA for fragment in node.src[:2])


def _within_local(place: UOp) -> bool:
    """Whether an element is one of a private array, whatever its loops are: reading it is safe."""
    buffer, index, _ = place.src
    if buffer.op is not Ops.LOCAL:
        return False
    least, most = symbolic.bounds(index)
    return least >= 0 and most < int(buffer.arg[1])
