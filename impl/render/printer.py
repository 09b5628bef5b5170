"""Prints a lowered kernel in a dialect. Chapter: spec/render.md."""
from __future__ import annotations

import math

from impl import symbolic
from impl.custom import written_text
from impl.dtypes import dtypes
from impl.errors import DTypeError
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import PRODUCTS, Way, exchanged
from impl.kernel.private import keep_private
from impl.lowering.blocks import (
    Accumulate,
    Begin,
    Block,
    Bundle,
    Define,
    Finish,
    Item,
    Leave,
    Loop,
    Prefetch,
    Skip,
    Wait,
    Write,
)
from impl.lowering.legal import legalize
from impl.lowering.lower import lower
from impl.lowering.wrapped import NARROW, WRAPPING, is_narrow
from impl.render.cascade import Cascades
from impl.render.dialect import Dialect, Launched, Operand
from impl.render.masks import compared_places
from impl.render.matrices import Fragments
from impl.render.names import identifier
from impl.render.source import SourceText
from impl.render.texts import render_text
from impl.render.values import width_of

#: A tile of so many vectors, summed so many times, is worth the compiler's time to write it out.
_LEAST_TILE, _LEAST_TURNS = 8, 1 << 17
#: Lanes count their iterations in steps of at most so many.
_MOST_STEP = 1 << 24


def render(ast: UOp, dialect: Dialect) -> SourceText:
    """The text of a kernel. Equal kernels give equal text.

    Raises:
        GraphError: the graph is no kernel.
        DTypeError: a value has a type that the language lacks.
    """
    # r[impl render.text.deterministic]
    _refuse_types(ast, dialect)
    text = written_text(ast)
    if text is not None:
        return render_text(ast, text, dialect)
    ast, kept = legalize(ast, dialect.rules), frozenset[UOp]()
    if dialect.groups is not None:
        ast, kept = keep_private(ast)
    return _Printer(lower(ast, dialect.groups is None), dialect, kept).run()


def _refuse_types(ast: UOp, dialect: Dialect) -> None:
    """Name the first type that the language lacks: another one in its place would be wrong."""
    # r[impl device.launch.refused+2, metal.error.told+3, webgpu.error.told]
    if not dialect.lacks:
        return
    for dtype in (node.dtype for node in ast.toposort()):
        if dtype in dialect.lacks:
            raise DTypeError(dialect.name, f"this device has no {dtype.name}",
                             f"cast to {'float32' if dtype.kind == 'f' else 'int32'} first, or "
                             "set DEVICE=CPU")


class _Printer(Cascades, Fragments):
    """Names values in order of appearance and writes one line for each."""

    def run(self) -> SourceText:
        """Print the whole kernel."""
        self.dialect.begin()
        if self.groups is not None:  # r[impl dialects.group.size]
            self.groups.lanes = self.known.info.lanes
            self.groups.indices(self._is_small(), self._only_wraps())
        self._declare()
        # r[impl lowering.depth.unlimited]
        stack = [(self.low.root, iter(self.low.root.items))]
        while stack:
            block, items = stack[-1]
            item = next(items, None)
            if item is None:
                stack.pop()
                if stack:
                    self.indent -= 1
                    self._line(self.dialect.closed())
                    self._end_cascade(block)
            elif isinstance(item, Loop):
                self._open(item.block)
                stack.append((item.block, iter(item.block.items)))
            else:
                self._item(item)
        if self._fence():
            self._line(self._fence())
        body = "{\n" + "\n".join(self.lines) + "\n}\n"
        return SourceText(identifier(self.known.info.name), body, self.dialect.definitions(),
                          self.dialect.signature(bool(self.phases)),
                          self.known.info.threads, self.known.info.lanes,
                          tuple(self.groups.parameters) if self.groups else (),
                          self.phases, self.scratch, self.own)

    def _is_small(self) -> bool:
        """Whether indices, loops and the numbers of lanes have 32 bits, whatever variables are."""
        # r[impl render.index.narrow]
        known = self.known
        indices = [n for n in (*known.order, *self.low.inputs) if n.dtype is dtypes.index]
        shared = [[r for r in store.src[2:] if r.arg[1] in (RangeKind.LANE, RangeKind.THREAD)]
                  for store in known.ast.src]
        counts = [math.prod(max(symbolic.bounds(loop.src[0])[1], 1) for loop in loops)
                  for loops in (known.info.prefix, *shared)]
        return all(map(is_narrow, indices)) and max(counts) < NARROW - _MOST_STEP

    def _only_wraps(self) -> bool:
        """Whether 32 bits are enough where sums wrap around: what needs more is an address that
        is used only where it is valid, and nothing but sums and products on the way to it.
        """
        # r[impl render.index.narrow]
        loops = [loop for loop in self.known.ranges if not is_narrow(loop)]
        return not loops and all(
            user.op in WRAPPING or user.op is Ops.INDEX
            for user in self.known.order for node in user.src
            if node.dtype is dtypes.index and node.op is not Ops.RANGE and not is_narrow(node))

    def _fence(self) -> str:
        """What went past the caches is in memory before anybody is told that it is."""
        past = any(store.arg is Way.PAST for store in self.known.ast.src)
        return self.dialect.fence() if past else ""

    def _item(self, item: Item) -> None:
        if isinstance(item, Define):
            self._define(item.node)
        elif isinstance(item, Begin):
            for node in item.nodes:
                self._begin(node)
        elif isinstance(item, Accumulate):
            for node in item.nodes:
                self._step(node)
        elif isinstance(item, Finish):
            for node in item.nodes:
                self._finish(node)
        elif isinstance(item, Write) and item.store in self.low.tiles:
            self._write_tiles(item.store)
        elif isinstance(item, Write):
            self._write(item.store)
        elif isinstance(item, Prefetch):
            self._fetch(item.store)
        elif isinstance(item, Skip):
            self._line("" if self.groups else self.dialect.skip(
                self._text(item.condition, (), [()])[0]))
        elif isinstance(item, Leave):
            self._line(self.dialect.phase(item.phase, True, self._fence()))
        elif isinstance(item, Wait):
            assert self.groups is not None
            if item.open is not None:
                self._line(self.groups.arrive(item.open))
            self._line(self.groups.wait())
        elif isinstance(item, Bundle):
            assert self.groups is not None
            self._line(self.groups.bundle())

    def _declare(self) -> None:
        """Pointers, variables and stage buffers, at the top of the function."""
        if self.groups:
            self._line(self.groups.ids(len(self.known.info.variables)))
        params = sorted((n for n in self.known.order if n.op is Ops.PARAM),
                        key=lambda n: (n.arg, n.dtype.rank))
        seen: set[int] = set()
        for param in params:
            name = f"p{param.arg}" + (f"_{param.dtype.name}" if param.arg in seen else "")
            seen.add(param.arg)
            self.names[param] = name
            written = (Ops.PARAM, param.arg) in self.known.stored
            self._line(self.dialect.argument(name, param, written))
            if self.groups and any(index.src[0] is param for index in self.wide):
                self._line(self.groups.aligned(name))
        # r[impl render.argument.order]
        for place, variable in enumerate(self.known.info.variables):
            self.names[variable] = f"n{place}"
            self._line(self.dialect.variable(f"n{place}", self.known.params + place,
                                             variable.dtype))
        buffers = [n for n in self.known.order if n.op is Ops.LOCAL]
        shared = self.phases and not self.known.info.prefix
        total = sum(map(_room, buffers))
        own = 0 if shared else self.dialect.own_scratch(total)
        if own:
            self.phases = self.phases or (True,)  # one thread has one phase
            self.own = own
        for place, buffer in enumerate(buffers):
            self.names[buffer] = f"m{place}"
            if shared:  # r[impl render.phase.scratch+2]
                self._line(self.dialect.shared(f"m{place}", buffer.dtype, self.scratch))
                self.scratch += _room(buffer)
            elif self.groups and buffer in self.shared:
                self._line(self.groups.group_local(f"m{place}", buffer.dtype, buffer.arg[1]))
            else:
                self._line(self.dialect.local(f"m{place}", buffer.dtype, buffer.arg[1], total))

    def _open(self, block: Block) -> None:
        loop = block.loop
        if loop is None:
            self._line(self.groups.alone() if self.groups and block.alone else
                       self.dialect.phase(block.phase, False))
            self.indent += 1
            return
        name = f"{self.dialect.counter}{next(self.loops)}"
        self.names[loop] = name
        if self.groups and loop in self.unrolled:
            self._line(self.groups.unroll())
        if self._is_tile(block):
            self._line(self.dialect.repeated())
        for line in self._cascade(block, name) or self._opening(block, loop, name):
            self._line(line)
        self.indent += 1

    def _is_tile(self, block: Block) -> bool:
        """Whether a loop does little but sum a tile of products, and so often that it counts."""
        # r[impl render.hint.pays+2]
        sums = [node for item in block.items if isinstance(item, Accumulate) for node in item.nodes
                if self._is_fused_product(node.src[0]) and node in self.low.vector]
        lanes = sum(len(self.sums[node]) for node in sums)
        turns, around = 1, block if lanes >= _LEAST_TILE else None
        while around is not None:
            if around.loop is not None:
                turns *= max(symbolic.bounds(around.loop.src[0])[1], 1)
            around = around.parent
        return turns >= _LEAST_TURNS

    def _opening(self, block: Block, loop: UOp, name: str) -> list[str]:
        """The lines that open a loop: a loop indeed, or what this lane has of its iterations."""
        kind, prefix = loop.arg[1], self.known.info.prefix
        if self.groups is None:
            if kind is RangeKind.THREAD:
                return self.dialect.share(name, self._extent(loop), self.known.info.threads)
            return self.dialect.loop(name, self._extent(loop))
        if loop in prefix:
            if loop is prefix[0]:
                self._launch(prefix)
            return self.groups.of_prefix(name, self.launched[loop])
        if kind is not RangeKind.LANE and kind is not RangeKind.THREAD:
            return self.dialect.loop(name, self._extent(loop))
        if loop in self.warps:
            return self.groups.of_warp(name, self._extent(loop))
        around = block.parent.loop if block.parent is not None else None
        if around is None or around.arg[1] is not kind:  # stages may count them in other orders
            together = [each for each in _counted_together(block) if each not in self.warps]
            extents = tuple(self._extent(each) for each in together)
            self.warp = self._warp_of(block, math.prod(map(int, extents))) \
                if all(map(str.isdecimal, extents)) else 1
            if self.warp > 1:  # each warp has an iteration
                extents = (*extents, str(self.warp))
            for place, each in enumerate(together):
                self.launched[each] = Launched(extents, place, self.known.info.lanes, name)
        return self.groups.of_lanes(name, self.launched[loop], kind is RangeKind.THREAD)

    def _warp_of(self, block: Block, iterations: int) -> int:
        """How many lanes run an iteration of a stage together, because they exchange values."""
        stack = [store.src[1] for store in self.known.ast.src if block.loop in store.src[2:]] \
            if self.warps else []
        while stack:
            node = stack.pop()
            for loop in exchanged(node):
                width = int(self._extent(loop))
                if iterations * width == self.known.info.lanes:
                    return width
            if node.op not in (Ops.LOAD, Ops.REDUCE):
                stack.extend(node.src)
        return 1

    def _launch(self, prefix: tuple[UOp, ...]) -> None:
        """The loops of the prefix are counted by the group; those that lanes share, by the lane."""
        lanes = self.known.info.lanes
        shared = [loop for loop in prefix if loop.arg[1] is RangeKind.LANE]
        whole = [loop for loop in prefix if loop not in shared]
        of_lanes, of_groups = tuple(map(self._extent, shared)), tuple(map(self._extent, whole))
        for loops, extents, index in ((whole, of_groups, "group"), (shared, of_lanes, "item")):
            for place, loop in enumerate(loops):
                self.launched[loop] = Launched(extents, place, lanes, index, of_lanes, of_groups)

    def _define(self, node: UOp) -> None:
        """A variable (one for each combination of lanes) with the value; or remember its text."""
        wide = self._wide(node)
        at = self._combinations(wide)
        vector = self.low.vector.get(node)
        if node.op is Ops.LOAD and self._is_fragment(node):
            self._take_fragment(node)
        elif node.op is Ops.LOAD and self._goes_ahead(node):
            pass  # the store says all
        elif node.op is Ops.LOAD:
            self._load(node, wide, at, vector)
        elif node.op is Ops.MMA:
            self._multiply_fragments(node)
        elif node.op is Ops.REDUCE:
            self._reduce_lanes(node, wide, at, vector)
        elif self._is_fused_product(node):
            self.factors[node] = (node.src[0], node.src[1])
        elif vector is not None:
            self._keep(node, self._whole_operation(node, wide, at, vector))
        else:
            plain = node.op in (Ops.FLOORDIV, Ops.FLOORMOD) and _plain(node)
            given = [self._text(source, wide, at) for source in node.src]
            texts = [self.dialect.operation(node, operands, plain)
                     for operands in zip(*given, strict=True)]
            self._keep(node, [(text, "") for text in texts])

    def _whole_operation(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                         vector: UOp) -> list[Operand]:
        """The operation on whole vectors."""
        within = compared_places(self, node, wide, at, vector)
        if within is not None:
            return within
        plain = node.op in (Ops.FLOORDIV, Ops.FLOORMOD) and _plain(node)
        narrow = node in self.wrapped or all(
            is_narrow(part) for part in (node, *node.src) if part.dtype is dtypes.index)
        given = [self._operands(source, wide, at, vector) for source in node.src]
        return [self.dialect.vector_operation(node, width_of(vector), operands, plain, narrow)
                for operands in zip(*given, strict=True)]

    def _is_fused_product(self, node: UOp) -> bool:
        """Whether the product goes into nothing but one sum: it is multiplied and added at once."""
        low = self.low
        if node.op not in PRODUCTS or node not in low.inline:
            return False  # r[impl render.reduce.rounding+2]
        user = low.single[node]
        return (user.op is Ops.REDUCE and user.arg is Ops.ADD and bool(user.src[1:])
                and (node.op is Ops.DOT or node.dtype in (dtypes.float32, dtypes.float64))
                and any(loop.arg[1] not in (RangeKind.UPCAST, RangeKind.UNROLL)
                        for loop in user.src[1:]))


def _counted_together(block: Block) -> list[UOp]:
    """The loop of a block and those of its kind right inside of it: lanes count them as one."""
    assert block.loop is not None
    found, kind = [block.loop], block.loop.arg[1]
    inner: Block | None = block
    while inner is not None:
        inner = next((item.block for item in inner.items if isinstance(item, Loop)
                      and item.block.loop is not None and item.block.loop.arg[1] is kind), None)
        if inner is not None and inner.loop is not None:
            found.append(inner.loop)
    return found


def _plain(node: UOp) -> bool:
    """Whether a quotient or remainder is C's: nothing negative, no zero divisor."""
    return symbolic.bounds(node.src[0])[0] >= 0 and symbolic.bounds(node.src[1])[0] > 0


def _room(buffer: UOp) -> int:
    """The bytes of a stage buffer, such that the next one begins at a cache line."""
    return int(-(-buffer.arg[1] * buffer.dtype.itemsize // 64) * 64)
