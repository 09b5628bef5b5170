"""Long sums in blocks of blocks. Chapter: spec/render.md.

A float that grows for a million additions loses a digit of its sum for each tenfold. So what a long
loop adds up is added to an accumulator of its own for a while, and that one to the next.
"""
from __future__ import annotations

from dataclasses import dataclass

from impl.dtypes import sum_accumulator
from impl.ir import Ops, RangeKind, UOp, identity
from impl.lowering.blocks import Accumulate, Begin, Block, Define, Item, Loop
from impl.lowering.lower import Lowered
from impl.render.dialect import Dialect, Operand
from impl.render.reductions import Reductions
from impl.render.values import width_of

#: After so many additions an accumulator is added to the next one.
_BLOCK = 64
#: A chain of up to so many additions stays one.
_CHAIN = 128
#: So many accumulators can be doubled; the tiles of products have more, and use all registers.
_MOST_SUMS = 8


@dataclass(frozen=True)
class Level:
    """A loop over blocks: how many iterations of the loop below it each one has, and the sums that
    its blocks are added to.
    """

    size: int
    outer: dict[UOp, list[Operand]]


class Cascades(Reductions):
    """Loops that add up for long are cut into blocks, and blocks of blocks."""

    def __init__(self, low: Lowered, dialect: Dialect, kept: frozenset[UOp]) -> None:
        super().__init__(low, dialect, kept)
        #: Of the loops that are open the levels of each, the outermost first.
        self.levels: dict[Block, list[Level]] = {}

    def _cascade(self, block: Block, name: str) -> list[str]:
        """The lines that open a loop, if it is cut; none if it is not."""
        sizes = self._block_sizes(block)
        self.levels[block] = []
        first, last = "0", self._extent(block.loop) if sizes and block.loop is not None else ""
        for size in sizes:  # r[impl render.reduce.rounding+2]
            counter = self._fresh("b", 1)[0]
            self._line(self.dialect.counted(counter, first, last, str(size)))
            self.indent += 1
            self._begin_block(block, size)
            end = f"{counter} + {size}"
            first, last = counter, self.dialect.choice(f"{end} < {last}", end, last)
        return [self.dialect.counted(name, first, last)] if sizes else []

    def _block_sizes(self, block: Block) -> list[int]:
        """How many iterations the blocks of each level have, the largest first."""
        loop = block.loop
        if loop is None or loop.arg[1] is not RangeKind.REDUCE or loop.src[0].op is not Ops.CONST:
            return []
        sums, count = _summed(block), int(self._extent(loop))
        if not sums or not all(node.arg is Ops.ADD and node.dtype.kind == "f" for node in sums) \
                or sum(len(self.sums.get(node, ())) for node in sums) > _MOST_SUMS:
            return []
        size = max(1, _BLOCK // _additions(block))
        if count * _additions(block) <= _CHAIN or count <= size:
            return []
        sizes = [size]
        while count > sizes[0] * _CHAIN:
            sizes.insert(0, sizes[0] * _BLOCK)
        return sizes

    def _begin_block(self, block: Block, size: int) -> None:
        """Accumulators of a level, in place of those that it is added to."""
        outer = {}
        for node in _summed(block):
            outer[node] = self.sums[node]
            dtype, vector = sum_accumulator(node.dtype), self.low.vector.get(node)
            start, kind = self.dialect.literal(identity(node.arg, node.dtype), dtype), ""
            if vector is not None:
                start, kind = self.dialect.vector_start(dtype, width_of(vector), start)
            type_name = self.dialect.vector_type(kind) if kind else self.dialect.type_of(dtype)
            names = self._fresh("a", len(outer[node]))
            for fresh in names:
                self._line(self.dialect.changing(type_name, fresh, start))
            self.sums[node] = [(fresh, kind) for fresh in names]
        self.levels[block].append(Level(size, outer))

    def _end_cascade(self, block: Block) -> None:
        """After the loop: each level is added to the one around it."""
        for level in reversed(self.levels.pop(block, [])):
            for node, outer in level.outer.items():
                dtype, vector = sum_accumulator(node.dtype), self.low.vector.get(node)
                for target, part in zip(outer, self.sums[node], strict=True):
                    if vector is None:
                        text = self.dialect.combine(Ops.ADD, dtype, part[0], target[0])
                    else:
                        found = self.dialect.vector_combine(
                            Ops.ADD, dtype, width_of(vector), (part, target))
                        text = self.dialect.vector_cast(found, dtype, target[1])
                    self._line(self.dialect.assign(target[0], text))
                self.sums[node] = outer
            self.indent -= 1
            self._line(self.dialect.closed())


def _items(block: Block) -> list[Item]:
    """What happens in a block, in inner loops too."""
    found, todo = list[Item](), [block]
    while todo:
        for item in todo.pop().items:
            found.append(item)
            if isinstance(item, Loop):
                todo.append(item.block)
    return found


def _summed(block: Block) -> list[UOp]:
    """The reductions that began before a block, and take in elements in it; none if it does more
    than read and compute for them.
    """
    begun: set[UOp] = set()
    stepped: dict[UOp, None] = {}
    for item in _items(block):
        if isinstance(item, Begin):
            begun.update(item.nodes)
        elif isinstance(item, Accumulate):
            stepped.update(dict.fromkeys(item.nodes))
        elif not isinstance(item, (Define, Loop)):
            return []
    return [node for node in stepped if node not in begun]


def _additions(block: Block) -> int:
    """How many additions one iteration makes to an accumulator."""
    inner = [item.block for item in block.items if isinstance(item, Loop)]
    count = 1
    for each in inner:
        if each.loop is not None and _summed(each):
            extent = int(each.loop.src[0].arg) if each.loop.src[0].op is Ops.CONST else _CHAIN
            count = max(count, min(extent * _additions(each), _CHAIN))
    return count
