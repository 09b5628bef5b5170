"""What a kernel's graph means and what it costs. Chapter: spec/kernel.md.

A kernel is a SINK of STOREs. `Analysis` answers the questions that lowering, the reference device
and the optimisations ask about it: which loops a value depends on, how an index grows with a loop,
what an integer can be. `estimate` counts operations and bytes; `verify` checks the rules.
"""
from __future__ import annotations

import itertools
import math
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from impl import symbolic
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import ELEMENTWISE, TRUE, KernelInfo, Ops, RangeKind, UOp, toposort
from impl.kernel.fragments import UNIT_OF, loops_of

#: Ranges that become lanes (registers, vector elements) and not loops.
LANES = (RangeKind.UPCAST, RangeKind.UNROLL)
#: Operations that combine the elements of a REDUCE.
REDUCERS = (Ops.ADD, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM)
#: What is summed in a product of matrices: of numbers, or of four bytes at once.
PRODUCTS = (Ops.MUL, Ops.DOT)
_EXPRESSIONS = ELEMENTWISE - {Ops.DETACH}
_KERNEL_OPS = _EXPRESSIONS | {Ops.CONST, Ops.DEFINE_VAR, Ops.RANGE, Ops.PARAM, Ops.LOCAL, Ops.INDEX,
                              Ops.LOAD, Ops.DOT, Ops.MMA, Ops.REDUCE, Ops.TEXT, Ops.STORE, Ops.SINK}


class Way(Enum):
    """How a store goes to memory, where a step has said so: it is the argument of the STORE."""

    PAST = "past the caches"
    AHEAD = "to lines of a cache that were asked for before its value was computed"
    TILES = "by a unit for matrices, for all rows and columns of its stage"
    NEXT = "while memory is asked for what its value will need in the next iteration"


@dataclass(frozen=True)
class Early:
    """The argument of a STORE that makes a copy for a later iteration of its last BLOCK loop."""

    iterations: int  # how much later


@dataclass(frozen=True)
class DeviceLimits:
    """What a device can do, as far as the optimisation steps care. All sizes in bytes."""

    name: str = "CPU"
    vector_bytes: int = 32      # width of one vector register
    vector_registers: int = 16
    threads: int = 1
    parts: int = 1              # into how many parts a thread's share of a long kernel is cut
    second_cache: int = 512 << 10  # of one core
    third_cache: int = 8 << 20    # shared by the cores
    lanes: int = 1                # most lanes of a work-group; 1: there are no work-groups
    lockstep: int = 1             # lanes that run together: a warp
    exchange: bool = False        # whether the lanes of a warp can exchange values
    local_memory: int = 0         # what the lanes of a group share
    dots: bool = False          # whether DOT is an instruction
    tiles: tuple[str, ...] = ()   # types whose matrices a unit multiplies, see `kernel.tiles`
    asynchronous: bool = False    # whether copies to local memory go on while lanes compute
    units: tuple[str, ...] = ()   # names of the units for products of matrices, the best first

    def elements(self, itemsize: int) -> int:
        """How many elements of a vector are computed at once; narrow ones are computed as int."""
        return self.vector_bytes // max(itemsize, 4)


#: What one access of a lane of a work-group moves.
WIDE_BYTES = 16

#: What tells a kernel's buffers apart.
Key = tuple[Ops, int]


def buffer_key(buffer: UOp) -> Key:
    """The key of a kernel's buffer: two PARAMs of one position are one buffer."""
    return buffer.op, buffer.arg if buffer.op is Ops.PARAM else buffer.arg[0]


def accessed(node: UOp) -> Key:
    """The buffer that a LOAD reads or a STORE writes."""
    return buffer_key(node.src[0].src[0])


def loaded(nodes: Iterable[UOp]) -> set[Key]:
    """The buffers that those of the nodes that are LOADs read."""
    return {accessed(node) for node in nodes if node.op is Ops.LOAD}


def shared_loops(store: UOp) -> tuple[UOp, ...]:
    """The BLOCK loops of a stage: it shares them with its neighbours, outermost first."""
    return tuple(itertools.takewhile(lambda r: r.arg[1] is RangeKind.BLOCK, store.src[2:]))


def exchanged(node: UOp) -> tuple[UOp, ...]:
    """The loop over which a reduction combines what lanes exchange; none for other nodes."""
    if node.op is not Ops.REDUCE:
        return ()
    return tuple(loop for loop in node.src[1:] if loop.arg[1] is RangeKind.LANE)


class StageContents(NamedTuple):
    """The nodes below a STORE. A step changes a few stages, and keeps the others."""

    order: tuple[UOp, ...]       # all nodes, sources first
    ranges: tuple[UOp, ...]      # the loops among them
    loads: tuple[UOp, ...]
    reductions: tuple[UOp, ...]  # and what units for matrices compute
    params: int                  # one more than the number of the last PARAM


_stages: weakref.WeakKeyDictionary[UOp, StageContents] = weakref.WeakKeyDictionary()


def stage_of(store: UOp) -> StageContents:
    """The contents of a stage, collected once for each STORE."""
    found = _stages.get(store)
    if found is None:
        order = tuple(toposort(store.src))  # without the STORE, or it would live for ever
        kinds: dict[Ops, list[UOp]] = {}
        for node in order:
            kinds.setdefault(node.op, []).append(node)
        reductions = [n for n in order if n.op is Ops.REDUCE or n.op is Ops.MMA] \
            if Ops.REDUCE in kinds or Ops.MMA in kinds else ()
        found = _stages[store] = StageContents(
            order, tuple(kinds.get(Ops.RANGE, ())), tuple(kinds.get(Ops.LOAD, ())),
            tuple(reductions), max([p.arg for p in kinds.get(Ops.PARAM, ())], default=-1) + 1)
    return found


class Analysis:
    """A kernel's graph with the answers that everybody needs.

    `order` are all nodes, sources first. `ranges` are the loops, the prefix first; a set of loops
    is a bit mask over their positions. `free[node]` are the loops that the node depends on.
    """

    def __init__(self, ast: UOp, before: Analysis | None = None) -> None:
        """`before` is the kernel before a step: what the step left alone is not looked at again."""
        if ast.op is not Ops.SINK or not isinstance(ast.arg, KernelInfo):
            raise GraphError("kernel", f"{ast!r} is not a kernel", "build a SINK with a KernelInfo")
        self.ast, self.info = ast, ast.arg
        stages = [stage_of(store) for store in ast.src]
        # Each stage sources first, and what stages have in common where it is met first: as one
        # walk of the whole finds them.
        self.order = [*dict.fromkeys(itertools.chain.from_iterable(
            (*stage.order, store) for stage, store in zip(stages, ast.src, strict=True))), ast]
        prefix = dict.fromkeys(self.info.prefix)
        self.ranges = list(dict.fromkeys(itertools.chain(
            prefix, *(stage.ranges for stage in stages))))
        self.position = {loop: i for i, loop in enumerate(self.ranges)}
        self.prefix = (1 << len(prefix)) - 1
        self.lanes = self.mask(loop for loop in self.ranges if loop.arg[1] in LANES)
        self.stored = {accessed(store) for store in ast.src}
        self.params = max((stage.params for stage in stages), default=0)
        self.free: dict[UOp, int] = {}
        self._find_free(before if before is not None and self._only_adds(before) else None)
        for loop in self.info.prefix:
            if loop not in self.free:  # a loop that no value depends on still runs
                self.free[loop] = 1 << self.position[loop]

    def _find_free(self, before: Analysis | None) -> None:
        """On which loops the nodes depend; taken over from before where they were there."""
        if before is None:
            for node in self.order:
                self.free[node] = self._free(node)
            return
        masks: list[int | None] = [before.free.get(node) for node in self.order]
        moves = _moves(before.ranges, self.position)
        # Sets of loops in the places that they have now.
        moved = {mask: sum([(mask >> start & ones) << place for start, ones, place in moves])
                 for mask in set(masks) if mask is not None}
        for node, mask in zip(self.order, masks, strict=True):
            self.free[node] = self._free(node) if mask is None else moved[mask]

    def mask(self, loops: Iterable[UOp]) -> int:
        """The set of loops as a bit mask."""
        return sum(1 << self.position[loop] for loop in loops)

    def loops(self, mask: int) -> tuple[UOp, ...]:
        """The loops of a bit mask, in the kernel's order."""
        found = []
        while mask:
            lowest = mask & -mask
            found.append(self.ranges[lowest.bit_length() - 1])
            mask ^= lowest
        return tuple(found)

    def reads_stored(self, nodes: Iterable[UOp]) -> bool:
        """Whether one of the nodes loads from a buffer that some stage of the kernel stores."""
        return any(node.op is Ops.LOAD and accessed(node) in self.stored for node in nodes)

    def free_local(self) -> int:
        """The number from which on no LOCAL has one."""
        return max((node.arg[0] + 1 for node in self.order if node.op is Ops.LOCAL), default=0)

    def _only_adds(self, before: Analysis) -> bool:
        """Whether a node depends on the loops that it depended on before."""
        if self.info.prefix != before.info.prefix or not self.stored >= before.stored:
            return False
        return all(key[0] is Ops.LOCAL for key in self.stored - before.stored)

    def _free(self, node: UOp) -> int:
        mask = 0
        for source in node.src:
            mask |= self.free[source]
        if node.op is Ops.RANGE:
            mask |= 1 << self.position[node]
        elif node.op is Ops.LOAD and accessed(node) in self.stored:
            mask |= self.prefix  # what a stage stores is read in the same iteration
        elif node.op is Ops.REDUCE:
            mask &= ~self.mask(node.src[1:])  # r[impl kernel.scope.loops]
        elif node.op is Ops.TEXT:
            mask &= ~self.mask(each for each in node.src if each.op is Ops.RANGE)
        elif node.op is Ops.MMA:
            _, first, second, _ = loops_of(node)
            mask &= ~self.mask((*first, *second))
        elif node.op is Ops.STORE:
            mask &= ~self.mask(node.src[2:])
        return mask

    def extend(self, node: UOp) -> None:
        """Take a node into account that was made after the analysis."""
        for part in node.toposort(lambda u: u not in self.free):
            if part not in self.free:
                self.free[part] = self._free(part)


def _moves(before: Sequence[UOp], position: dict[UOp, int]) -> list[tuple[int, int, int]]:
    """Runs of loops that still stand side by side: where one begins, a bit mask as wide as it
    is, and where it begins now.
    """
    found: list[tuple[int, int, int]] = []
    for start, loop in enumerate(before):
        place = position.get(loop)
        if place is None:
            continue
        if found and found[-1][0] - found[-1][2] == start - place \
                and found[-1][0] + found[-1][1].bit_length() == start:
            first, ones, new = found.pop()
            found.append((first, ones << 1 | 1, new))
        else:
            found.append((start, 1, place))
    return found


Growth = dict[UOp, int]
#: What is known of many nodes: how they grow, and a divisor of each.
Growths = tuple[dict[UOp, Growth | None], dict[UOp, int]]


def growth(order: Iterable[UOp], loops: Iterable[UOp],
           before: Growths | None = None) -> dict[UOp, Growth | None]:
    """How index expressions grow with some loops.

    For a node that equals (its value with those loops at 0) + sum of coefficient * loop, the
    coefficients that are not 0; None if the node is not of that form. `before` has what was found
    for the same loops and others, and takes in what is found now.
    """
    wanted = set(loops)
    # The divisor of the value with the loops at 0; 0 is divisible by everything.
    found, divisor = ({}, {}) if before is None else before
    for node in order:
        if node in found:
            continue
        if node in wanted:
            found[node], divisor[node] = {node: 1}, 0
            continue
        parts = [found[source] for source in node.src]
        flat = parts.count({}) == len(parts)
        found[node], divisor[node] = ({} if flat else None), 1
        if node.op is Ops.CONST and node.dtype.kind in "iu":
            divisor[node] = abs(node.arg)
        elif node.op is Ops.RANGE:
            found[node] = {}
        elif node.dtype is dtypes.index and node.op in _GROWTH_RULES:
            _grow(node, found, divisor)
        elif node.op is Ops.REDUCE and not flat:
            found[node] = None
    return found


_GROWTH_RULES = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD))


def _grow(node: UOp, found: dict[UOp, Growth | None], divisor: dict[UOp, int]) -> None:
    """The growth of one sum, product, quotient or remainder of indices."""
    first, second = node.src
    one, two = found[first], found[second]
    if node.op is Ops.MUL:
        if first.op is Ops.CONST:
            first, second, one, two = second, first, two, one
        divisor[node] = divisor[first] * divisor[second]
        if one and second.op is Ops.CONST:
            found[node] = {loop: c * second.arg for loop, c in one.items() if c * second.arg}
        return
    if node.op in (Ops.ADD, Ops.SUB):
        divisor[node] = math.gcd(divisor[first], divisor[second])
        if one is not None and two is not None and (one or two):
            sign = 1 if node.op is Ops.ADD else -1
            total = {loop: one.get(loop, 0) + sign * two.get(loop, 0) for loop in one | two}
            found[node] = {loop: c for loop, c in total.items() if c}
        return
    if not one or second.op is not Ops.CONST or second.arg <= 0:
        return
    # A quotient does not see loops that stay below the common divisor of everything else.
    common = math.gcd(divisor[first], second.arg)
    sizes = [(c, loop.src[0].arg) for loop, c in one.items() if loop.src[0].op is Ops.CONST]
    inside = len(sizes) == len(one) and all(c > 0 for c, _ in sizes)
    if inside and sum(c * (size - 1) for c, size in sizes) < common:
        found[node] = {} if node.op is Ops.FLOORDIV else one


def verify_kernel(ast: UOp) -> Analysis:
    """Check a kernel against the rules of the chapter.

    Raises:
        GraphError: an operation that is no kernel operation, a loop used outside itself, a LOCAL
            that is stored after it was read, or BLOCK loops that are no nest.
    """
    known = Analysis(ast)
    for node in known.order:
        if node.op not in _KERNEL_OPS:
            # r[impl kernel.node.known]
            raise GraphError("kernel", f"{node.op.name} cannot stand in a kernel", "lower it first")
        if node.op is Ops.REDUCE and node.arg not in REDUCERS:
            raise GraphError("kernel", f"a REDUCE cannot use {node.arg!r}", "use ADD, MUL, MAXIMUM "
                             "or MINIMUM")
        if exchanged(node):
            _verify_exchange(known, node)
    read: set[UOp] = set()
    for store in ast.src:
        if store.op is not Ops.STORE:
            raise GraphError("kernel", f"{store.op.name} under SINK", "give STOREs only")
        if known.free[store] & ~known.prefix:  # r[impl kernel.scope.loops]
            loose = known.loops(known.free[store] & ~known.prefix)
            raise GraphError("kernel", f"loops {[loop.arg for loop in loose]} are used outside "
                             "themselves", "add them to the store, the reduction or the prefix")
        target = store.src[0].src[0]
        if target.op is Ops.LOCAL and target in read:  # r[impl kernel.local.own]
            raise GraphError("kernel", f"LOCAL {target.arg} is stored after it was read",
                             "use a second LOCAL")
        read.update(n.src[0].src[0] for n in store.src[1].toposort()
                    if n.op is Ops.LOAD and n.src[0] is not store.src[0])
    _verify_nest(known)
    _verify_warps(known)
    return known


def _verify_exchange(known: Analysis, node: UOp) -> None:
    """What lanes exchange is computed where all lanes of a warp come by: once in each lane."""
    # r[impl kernel.warp.whole+2]
    around = known.loops(known.free[node] & ~known.prefix)
    lanes = [loop.src[0] for loop in (*around, *exchanged(node)) if loop.arg[1] is RangeKind.LANE]
    count = math.prod(extent.arg if extent.op is Ops.CONST else 0 for extent in lanes)
    once = count == known.info.lanes if len(lanes) > 1 else known.info.lanes % max(count, 1) == 0
    if not count or not once or any(
            loop.arg[1] in (RangeKind.LOOP, RangeKind.REDUCE) for loop in around):
        raise GraphError("kernel", "lanes that do not all come by exchange values",
                         "reduce them outside of the loops of a stage")


def _verify_nest(known: Analysis) -> None:
    """A BLOCK loop is one loop: around neighbouring stages, with the same loops around it."""
    # r[impl kernel.block.loops]
    around: dict[UOp, tuple[UOp, ...]] = {}
    before: tuple[UOp, ...] = ()
    closed: set[UOp] = set()
    for store in known.ast.src:
        loops = shared_loops(store)
        for depth, loop in enumerate(loops):
            if loops[:depth] != around.setdefault(loop, loops[:depth]) or (
                    loop in closed and loop not in before):
                raise GraphError("kernel", f"the stages of BLOCK loop {loop.arg[0]} are no nest",
                                 "put stages that share a loop side by side, under the same loops")
            closed.add(loop)
        before = loops
    for node in known.order:
        inside = node.src[2 + len(shared_loops(node)):] if node.op is Ops.STORE else \
            node.src[1:] if node.op is Ops.REDUCE else ()
        if any(r.arg[1] is RangeKind.BLOCK for r in (*inside, *known.info.prefix)):
            raise GraphError("kernel", "a BLOCK loop is neither a loop of the prefix or of a "
                             "reduction, nor inside a stage", "name it first among the stage's")


def _verify_warps(known: Analysis) -> None:
    """An MMA takes whole warps, whose lanes hold what its unit says."""
    # r[impl kernel.mma.layout+2]
    for store in known.ast.src:
        shared = tuple(r for r in store.src[2:] if r.arg[1] is RangeKind.LANE)
        for node in store.src[1].toposort():
            if node.op is Ops.MMA:
                lanes = loops_of(node)[0]
                if shared[-len(lanes):] != lanes \
                        or known.info.lanes != math.prod(map(_fixed, shared)):
                    raise GraphError("kernel", "the lanes of an MMA are not whole warps",
                                     "let its loops be the last that lanes share in its stage")
                _verify_fragments(node)


def _verify_fragments(node: UOp) -> None:
    """The operands of an MMA lie in local memory, and its loops are those of its unit."""
    # r[impl kernel.mma.layout+2]
    unit, (lanes, *elements) = UNIT_OF[node.arg], loops_of(node)
    wanted = [each.elements for each in (unit.first, unit.second, unit.sum)]
    sizes = [[size for size, _, _ in digits] for digits in (unit.sum.lanes, *wanted)]
    if [list(map(_fixed, part)) for part in (lanes, *elements)] != sizes \
            or not all(r.arg[1] in LANES for part in elements for r in part):
        raise GraphError("kernel", f"an MMA has not the loops of {unit.name}",
                         "leave them as step TC makes them")
    if not all(f.op is Ops.LOAD and f.dtype is unit.dtype and f.src[0].src[2] is TRUE
               and f.src[0].src[0].op is Ops.LOCAL for f in node.src[:2]):
        raise GraphError("kernel", "an operand of an MMA is not loaded from a LOCAL",
                         "copy it there first, in the type of the unit")
    for place, load in enumerate(node.src[:2]):
        _verify_lines(load, (*lanes, *elements[place]))


def _verify_lines(load: UOp, own: Sequence[UOp]) -> None:
    """A line of an operand begins where one access of 16 bytes can begin."""
    # r[impl kernel.mma.layout+2]
    count, index = 16 // load.dtype.itemsize, load.src[0].src[1]
    divisor: dict[UOp, int] = {}
    steps = growth(index.toposort(), own, ({}, divisor))[index]
    line = 1 + sum(step * (_fixed(r) - 1) for r, step in (steps or {}).items() if step % count)
    if steps is None or divisor[index] % count or line % count:
        raise GraphError("kernel", "a line of an operand of an MMA does not begin at a multiple "
                         "of 16 bytes", "make the lines of its LOCAL longer")


def _fixed(loop: UOp) -> int:
    """The number of iterations; 0 if it is known at run time only."""
    return int(loop.src[0].arg) if loop.src[0].op is Ops.CONST else 0


@dataclass(frozen=True)
class Estimate:
    """The cost of one run of a kernel: arithmetic operations, and distinct bytes touched."""

    operations: int
    bytes: int


_FREE_OF_CHARGE = {Ops.CAST, Ops.BITCAST}


class Work:
    """What a kernel has to do, ready to be counted for any values of its variables.

    A count that no variable decides is found once: a launch asks for the others alone.
    """

    def __init__(self, ast: UOp) -> None:
        known = Analysis(ast)
        self.sizes = [_size(loop) for loop in known.ranges]
        self.symbolic = [(i, known.ranges[i].src[0].toposort())
                         for i, size in enumerate(self.sizes) if size is None]
        self.atoms = {v: v.arg[2] for _, order in self.symbolic for v in order
                      if v.op is Ops.DEFINE_VAR}
        self.operations: Counter[_Loops] = Counter()
        touches: dict[UOp, list[_Touch]] = {}
        for node in known.order:
            if node.op in ELEMENTWISE and node.op not in _FREE_OF_CHARGE:
                if node.dtype is not dtypes.index and node.src[0].dtype is not dtypes.index:
                    self._count(known.free[node])
            elif node.op is Ops.REDUCE:
                self._count(known.free[node] | known.free[node.src[0]])
            elif node.op is Ops.TEXT:  # all that it stores is one text
                self.operations[()] = node.arg.items * node.arg.operations
            elif node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
                least, most = symbolic.bounds(node.src[1])
                touch = _Touch(*self._product(known.free[node.src[1]]), least, most)
                touches.setdefault(node.src[0], []).append(touch)
        self.bytes = 0
        self.touched: list[tuple[int, int, list[_Touch]]] = []
        for param, found in touches.items():
            extent = max(t.most for t in found) - min(t.least for t in found) + 1
            if any(touch.loops for touch in found):
                self.touched.append((param.dtype.itemsize, extent, found))
            else:
                self.bytes += _moved(param.dtype.itemsize, extent, found, {})

    def _product(self, mask: int) -> tuple[int, _Loops]:
        """How often a group of loops goes round: a number, times the sizes of those loops whose
        sizes variables decide.
        """
        loops = [i for i in range(len(self.sizes)) if mask >> i & 1]
        return (math.prod([size for i in loops if (size := self.sizes[i]) is not None]),
                tuple(i for i in loops if self.sizes[i] is None))

    def _count(self, mask: int) -> None:
        number, loops = self._product(mask)
        self.operations[loops] += number

    def estimate(self, values: dict[UOp, int] | None = None) -> Estimate:
        """Operations and bytes; `values` are those of the variables (default: their greatest)."""
        sizes: dict[int, int] = {}
        if self.symbolic:
            given = {**self.atoms, **values} if values else self.atoms
            sizes = {i: max(symbolic.evaluate_in_order(order, given), 0)
                     for i, order in self.symbolic}
        operations = sum([_times(number, loops, sizes)
                          for loops, number in self.operations.items()])
        moved = [_moved(*each, sizes) for each in self.touched]
        return Estimate(operations, self.bytes + sum(moved))


#: Loops whose sizes variables decide, by their numbers.
_Loops = tuple[int, ...]


class _Touch(NamedTuple):
    """An access: how often it is made, and from which element to which."""

    number: int
    loops: _Loops
    least: int
    most: int


def _times(number: int, loops: _Loops, sizes: dict[int, int]) -> int:
    for loop in loops:
        number *= sizes[loop]
    return number


def _moved(itemsize: int, extent: int, touches: list[_Touch], sizes: dict[int, int]) -> int:
    """The bytes that accesses to `extent` elements of one argument move."""
    count = sum([min(_times(touch.number, touch.loops, sizes), touch.most - touch.least + 1)
                 for touch in touches])
    return itemsize * min(extent, count)


def _size(loop: UOp) -> int | None:
    """The number of iterations of a loop; None where variables decide it."""
    extent = loop.src[0]
    return max(int(extent.arg), 0) if extent.op is Ops.CONST else None


def estimate(ast: UOp, values: dict[UOp, int] | None = None) -> Estimate:
    """Count operations and bytes; `values` are those of the variables (default: their greatest).

    Index arithmetic is not counted. A value counts once for every combination of the loops it
    depends on; a reduction counts one operation an element.
    """
    return Work(ast).estimate(values)  # r[impl kernel.estimate.operations]


def loop_size(loop: UOp) -> int:
    """The number of iterations of a loop; the greatest, where variables decide it."""
    extent = loop.src[0]
    return max(symbolic.evaluate(extent, {v: v.arg[2] for v in extent.variables()}), 0)


def next_loads(known: Analysis) -> dict[UOp, int]:
    """Loads of arguments, and by how much their places grow with the loop that is around a stage:
    the BLOCK loop that it has for itself, or else the last loop of the prefix.
    """
    rows = [r for r in known.info.prefix if r.arg[1] not in LANES][-1:]
    alone = own_block_loops(known)
    loads = [n for n in known.order if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    if not loads or not (rows or alone):
        return {}
    grows = growth(known.order, (*rows, *alone))
    around = {load: [r for r in alone if known.free[load] >> known.position[r] & 1][-1:] or rows
              for load in loads}
    steps = {load: (grows[load.src[0].src[1]] or {}).get(loop, 0)
             for load, loops in around.items() for loop in loops}
    return {load: step for load, step in steps.items() if step > 0}


def own_block_loops(known: Analysis) -> list[UOp]:
    """The BLOCK loops that one stage has for itself, as that of a long sum, outermost first."""
    found = Counter(loop for store in known.ast.src for loop in shared_loops(store))
    return [loop for loop, count in found.items() if count == 1]
