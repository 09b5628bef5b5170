"""The reference device: what a kernel means, executed with NumPy. Chapter: spec/reference.md.

A loop becomes an axis of an array: a value with the free loops r and j is an array over (r, j).
Long loops are cut into blocks, so that no array gets large. Nothing is optimised, and every
operation is exact, so that this device is what others are compared with.
"""
from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from impl import settings, symbolic
from impl.custom import WrittenText, written_text
from impl.device import Device, DeviceBackend, Memory, Program
from impl.dtypes import (
    HALF,
    DType,
    dtypes,
    from_bfloat16,
    sum_accumulator,
    to_bfloat16,
)
from impl.errors import CompileError, DeviceError
from impl.host import np
from impl.ir import COMPARISONS, TRUE, Ops, RangeKind, UOp, identity
from impl.kernel import Growth, accessed, growth, shared_loops, verify_kernel
from impl.kernel.fragments import UNIT_OF, loops_of
from impl.kernel.poison import wrong

#: No array has more elements than this, unless a single loop step needs it.
BLOCK_ELEMENTS = 1 << 22
Array: TypeAlias = "np.ndarray"


def compute(node: UOp, given: Sequence[Array]) -> Array:
    """One operation on arrays, exact in the node's dtype."""
    # r[impl reference.operation.value]
    op, dtype = node.op, node.dtype
    if op in COMPARISONS:
        return np.asarray(_numpy(_COMPARISONS, op)(given[0], given[1]))
    if op is Ops.WHERE:
        return np.where(given[0], given[1], given[2])
    if op is Ops.DOT:
        return _dot(*given)
    if op is Ops.CAST:
        return cast(given[0], node.src[0].dtype, dtype)
    if op is Ops.BITCAST:
        return bitcast(given[0], node.src[0].dtype, dtype)
    if dtype.kind == "f":
        return round_to(_floating(op, dtype, given), dtype)
    if dtype.kind == "b":
        return np.asarray(_logical(op, given))
    return np.asarray(_integer(op, dtype, given))


def _dot(unsigned: Array, signed: Array) -> Array:
    """Sums of four products; bytes are those of int32 numbers."""
    # r[impl kernel.integer.value]
    one, two = (np.asarray(x, np.int32, order="C")[..., None].view(kind).astype(np.int32)
                for x, kind in ((unsigned, np.uint8), (signed, np.int8)))
    return np.asarray((one * two).sum(-1, dtype=np.int32))


def _floating(op: Ops, dtype: DType, given: Sequence[Array]) -> Array:
    if op in _FUNCTIONS:  # in float64, then rounded: within one unit in the last place
        return np.asarray(_numpy(_FUNCTIONS, op)(*(x.astype(np.float64) for x in given)))
    if op is Ops.RECIPROCAL:
        return np.asarray(np.divide(given[0].dtype.type(1), given[0]))
    return np.asarray(_numpy(_ARITHMETIC, op)(*given))


def _integer(op: Ops, dtype: DType, given: Sequence[Array]) -> Any:
    if op in (Ops.TRUNC, Ops.FLOOR):
        return given[0]
    if op is Ops.POW:
        return _integer_power(given[0], given[1])
    return _numpy(_ARITHMETIC, op)(*given)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Wraparound powers; with a negative exponent the reciprocal, rounded to zero."""
    # r[impl kernel.integer.value]
    found = np.power(base, np.where(exponent < 0, 0, exponent).astype(base.dtype))
    odd = np.where(exponent & 1, base, 1).astype(base.dtype)
    inverse = np.where(base == 1, 1, np.where(base == -1, odd, 0)).astype(base.dtype)
    return np.where(exponent < 0, inverse, found)


def _logical(op: Ops, given: Sequence[Array]) -> Any:
    if op in (Ops.NEG, Ops.TRUNC, Ops.FLOOR):
        return given[0]
    return _numpy(_LOGICAL if op in _LOGICAL else _ARITHMETIC, op)(*given)


def round_to(values: Array, dtype: DType) -> Array:
    """Values as the dtype has them."""
    # r[impl kernel.half.wide]
    if dtype is dtypes.bfloat16:
        return from_bfloat16(to_bfloat16(values.astype(np.float32, copy=False)))
    return values.astype(dtype.numpy, copy=False)


def cast(values: Array, source: DType, target: DType) -> Array:
    """Convert elements; a float that an integer type cannot hold gives an unspecified integer."""
    # r[impl reference.operation.value]
    if target.kind == "f":
        return round_to(values, target)
    if target.kind == "b":
        return np.asarray(values != 0)
    if source.kind == "f" and target.itemsize < 8:
        values = values.astype(np.int64 if target is dtypes.uint32 else np.int32)
    return values.astype(target.numpy, copy=False)


def bitcast(values: Array, source: DType, target: DType) -> Array:
    """The same bits, read as another type of the same size."""
    bits = to_bfloat16(values) if source is dtypes.bfloat16 else np.asarray(values, order="C")
    seen = bits.view(target.numpy)
    return from_bfloat16(seen) if target is dtypes.bfloat16 else seen


def _power(base: Array, exponent: Array) -> Array:
    """Where one exponent is repeated, NumPy takes roots and squares in place of powers."""
    shape = np.broadcast_shapes(base.shape, exponent.shape)
    return np.asarray(np.power(base, np.array(np.broadcast_to(exponent, shape), order="C")))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


#: A function of NumPy by its name, or one of ours.
_Rules = dict[Ops, str | Callable[..., Any]]


def _numpy(rules: _Rules, op: Ops) -> Any:
    """What an operation does to arrays."""
    rule = rules[op]
    return getattr(np, rule) if isinstance(rule, str) else rule


_FUNCTIONS: _Rules = {
    Ops.EXP: "exp", Ops.EXP2: "exp2", Ops.LOG: "log", Ops.LOG2: "log2", Ops.SIN: "sin",
    Ops.COS: "cos", Ops.TANH: "tanh", Ops.POW: _power,
    Ops.ERF: _erf}
_ARITHMETIC: _Rules = {
    Ops.NEG: "negative", Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.FLOOR: "floor",
    Ops.ADD: "add", Ops.SUB: "subtract", Ops.MUL: "multiply", Ops.DIV: "true_divide",
    # NumPy's own: r[impl kernel.integer.value], r[impl kernel.integer.value],
    # r[impl kernel.integer.value]
    Ops.FLOORDIV: "floor_divide", Ops.FLOORMOD: "remainder", Ops.MAXIMUM: "maximum",
    Ops.MINIMUM: "minimum", Ops.AND: "bitwise_and", Ops.OR: "bitwise_or",
    Ops.XOR: "bitwise_xor", Ops.SHL: "left_shift", Ops.SHR: "right_shift"}
_COMPARISONS: _Rules = {
    Ops.CMPLT: "less", Ops.CMPLE: "less_equal", Ops.CMPEQ: "equal", Ops.CMPNE: "not_equal"}
#: r[impl kernel.integer.value]: true where the result as an integer is not 0.
_LOGICAL: _Rules = {
    Ops.SUB: "bitwise_xor", Ops.FLOORDIV: "bitwise_and",
    Ops.FLOORMOD: lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_),
    Ops.POW: lambda a, b: a | ~b, Ops.SHL: lambda a, b: a & ~b, Ops.SHR: lambda a, b: a & ~b}


class _Frame:
    """Values for the current block of some loops. Frames nest like the loops."""

    def __init__(self, parent: _Frame | None, own: int) -> None:
        self.parent, self.own = parent, own
        self.values: dict[UOp, Array] = {}

    def level(self, free: int) -> _Frame:
        """The outermost frame in which a value with these free loops does not change."""
        frame = self
        while frame.parent is not None and not frame.own & free:
            frame = frame.parent
        return frame


class _Shape:
    """What is known about a kernel before it runs."""

    def __init__(self, ast: UOp) -> None:
        self.known = known = verify_kernel(ast)
        self.growth = growth(known.order, known.ranges)
        self._forget_locals()
        nothing = dict.fromkeys(known.ranges, UOp.const(dtypes.index, 0))
        self.base: dict[UOp, UOp] = {}
        for node in known.order:
            if node.op is Ops.INDEX and self.growth[node.src[1]] is not None:
                self.base[node] = symbolic.rebuild(node.src[1], nothing)
                known.extend(self.base[node])
        bits = {key: 1 << i for i, key in enumerate(sorted(known.stored))}
        self.reads: dict[UOp, int] = {}
        for node in known.order:
            mask = bits.get(accessed(node), 0) if node.op is Ops.LOAD else 0
            for source in node.src:
                mask |= self.reads[source]
            self.reads[node] = mask
        self.bits = bits
        self.products = {n for n in known.order if n.op is Ops.REDUCE and self._is_product(n)}
        hidden = {n.src[0] for n in self.products}
        self.masks = {known.free[n] for n in known.order if n not in hidden}

    def _forget_locals(self) -> None:
        """What a LOCAL holds differs from iteration to iteration, so no index with it is linear."""
        changing: set[UOp] = set()
        for node in self.known.order:
            local = node.op is Ops.LOAD and node.src[0].src[0].op is Ops.LOCAL
            if local or any(source in changing for source in node.src):
                changing.add(node)
                self.growth[node] = None

    def _is_product(self, node: UOp) -> bool:
        """A sum of products of two factors that both have all reduced loops."""
        value, free = node.src[0], self.known.free
        if node.arg is not Ops.ADD or value.op is not Ops.MUL or len(node.src) < 2:
            return False
        if value.dtype not in (dtypes.float32, dtypes.float64):
            return False
        loops = self.known.mask(node.src[1:])
        return all(free[factor] & loops == loops for factor in value.src)


class _Run:
    """One run of a kernel: block by block of the prefix, store by store."""

    def __init__(self, shape: _Shape, memories: Sequence[Memory], values: Sequence[int]) -> None:
        self.shape, self.known, self.memories = shape, shape.known, memories
        self.variables = dict(zip(self.known.info.variables, values, strict=True))
        self.sizes = [max(symbolic.evaluate(loop.src[0], self.variables), 0)
                      for loop in self.known.ranges]
        self.blocks = self._block_sizes()
        self.now: list[tuple[int, int]] = [(0, size) for size in self.sizes]
        self.locals: dict[UOp, Array] = {}

    def run(self) -> None:
        """Execute the kernel."""
        # r[impl kernel.order.stores]
        # r[impl kernel.local.own]
        prefix = self.known.info.prefix
        outermost = _Frame(None, 0)
        for _ in self._over(prefix):
            self.locals = {}
            self._stages(self.known.ast.src, 0, _Frame(outermost, self.known.mask(prefix)))

    def _stages(self, stores: Sequence[UOp], depth: int, frame: _Frame) -> None:
        """Stages in order; those that share their next BLOCK loop run together, step by step."""
        # r[impl kernel.block.loops]
        for shared, given in itertools.groupby(stores, lambda s: shared_loops(s)[depth:depth + 1]):
            run = list(given)
            if not shared:
                for store in run:
                    self._store(store, depth, frame)
                continue
            for _ in self._over(shared):
                self._stages(run, depth + 1, _Frame(frame, self.known.mask(shared)))

    def _store(self, store: UOp, depth: int, frame: _Frame) -> None:
        loops = store.src[2 + depth:]
        for _ in self._over(loops):
            inner = _Frame(frame, self.known.mask(loops))
            self._write(store, inner)
        stored = self.shape.bits[accessed(store)]
        around: _Frame | None = frame
        while around is not None:  # values read from what was stored are no longer true
            around.values = {n: v for n, v in around.values.items()
                             if not self.shape.reads.get(n, 0) & stored}
            around = around.parent

    def _block_sizes(self) -> list[int]:
        """How many steps of each loop are taken at once: outer loops are cut first."""
        # r[impl reference.block.size+2]
        whole = {loop for node in self.known.order if node.op is Ops.MMA
                 for part in loops_of(node) for loop in part}
        blocks = [1 if loop.arg[1] is RangeKind.BLOCK else size
                  for loop, size in zip(self.known.ranges, self.sizes, strict=True)]
        for position in range(len(blocks)):
            masks = [m for m in self.shape.masks if m >> position & 1]
            most = max((self._elements(m, blocks) for m in masks), default=0)
            if most > BLOCK_ELEMENTS and self.known.ranges[position] not in whole:
                blocks[position] = max(1, blocks[position] * BLOCK_ELEMENTS // most)
        return blocks

    def _elements(self, mask: int, sizes: Sequence[int]) -> int:
        return math.prod(size for i, size in enumerate(sizes) if mask >> i & 1)

    def _over(self, loops: Sequence[UOp]) -> Iterator[None]:
        """Visit the blocks of some loops in increasing order; `now` says which one it is."""
        places = [self.known.position[loop] for loop in loops]
        starts = [range(0, self.sizes[p], max(self.blocks[p], 1)) for p in places]
        for at in itertools.product(*starts):
            for place, start in zip(places, at, strict=True):
                self.now[place] = (start, min(start + self.blocks[place], self.sizes[place]))
            yield

    def _value(self, root: UOp, frame: _Frame) -> Array:
        """The value for the current blocks, without recursion on the depth of expressions."""
        stack = [root]
        while stack:
            node = stack[-1]
            home = frame.level(self.known.free[node])
            if node in home.values:
                stack.pop()
                continue
            waiting = [s for s in self._needs(node)
                       if s not in frame.level(self.known.free[s]).values]
            if waiting:
                stack.extend(waiting[::-1])
            else:
                home.values[stack.pop()] = self._compute(node, frame)
        return frame.level(self.known.free[root]).values[root]

    def _needs(self, node: UOp) -> tuple[UOp, ...]:
        if node.op in (Ops.REDUCE, Ops.RANGE):
            return ()
        if node.op is Ops.MMA:
            return node.src[:3]
        if node.op is Ops.LOAD:
            index = node.src[0]
            first = self.shape.base.get(index, index.src[1])
            return (first,) if index.src[2] is TRUE else (index.src[1], index.src[2])
        return node.src

    def _compute(self, node: UOp, frame: _Frame) -> Array:
        if node.op is Ops.CONST:
            kind = np.float32 if node.dtype is dtypes.bfloat16 else node.dtype.numpy
            return np.asarray(node.arg, kind)
        if node.op is Ops.RANGE:
            return np.arange(*self.now[self.known.position[node]], dtype=np.int64)
        if node.op is Ops.DEFINE_VAR:
            return np.asarray(self.variables[node], np.int64)
        if node.op is Ops.LOAD:
            return self._load(node, frame)
        if node.op is Ops.REDUCE:
            return self._reduce(node, frame)
        if node.op is Ops.MMA:
            return self._mma(node, frame)
        free = self.known.free[node]
        return compute(node, [self._aligned(s, free, frame) for s in node.src])

    def _mma(self, node: UOp, frame: _Frame) -> Array:
        """The product of matrices whose elements are spread over the loops of lanes."""
        # r[impl kernel.mma.value]
        unit, (lanes, *elements) = UNIT_OF[node.arg], loops_of(node)
        around = self.known.free[node] & ~self.known.mask((*lanes, *elements[2]))
        parts = (unit.first, unit.second, unit.sum)
        shapes = ((unit.rows, unit.depth), (unit.depth, unit.columns), (unit.rows, unit.columns))
        places = [tuple(np.array(list(part.places())).T) for part in parts]
        matrices = []
        for source, loops, place, shape in zip(node.src[:3], elements, places, shapes,
                                               strict=True):
            given = self._last(source, around, (*lanes, *loops), frame)
            matrix = np.zeros((*given.shape[:-1], *shape), np.float32)
            matrix[(..., *place)] = given
            matrices.append(matrix)
        result = (matrices[2] + matrices[0] @ matrices[1])[(..., *places[2])]
        inner = self.known.mask((*lanes, *elements[2]))
        order = [*self.known.loops(around), *lanes, *elements[2]]
        result = result.reshape(self._extent(around) + tuple(
            loop.src[0].arg for loop in order[-len(lanes) - len(elements[2]):]))
        return result.transpose([order.index(r) for r in self.known.loops(around | inner)])

    def _last(self, node: UOp, around: int, loops: Sequence[UOp], frame: _Frame) -> Array:
        """A value over `around`, and some loops counted as one, the first of them outermost."""
        free = around | self.known.mask(loops)
        value = self._aligned(node, free, frame, full=True)
        order = self.known.loops(free)
        moved = [order.index(r) for r in (*self.known.loops(around), *loops)]
        return value.transpose(moved).reshape(*self._extent(around), -1)

    def _aligned(self, node: UOp, free: int, frame: _Frame, full: bool = False) -> Array:
        """A value with an axis for each loop of `free`; size 1 where it does not depend on it."""
        own = self.known.free[node]
        value = self._value(node, frame)
        if own != free:
            value = value[tuple(slice(None) if own >> i & 1 else None
                                for i in range(free.bit_length()) if free >> i & 1)]
        return np.broadcast_to(value, self._extent(free)) if full else value

    def _extent(self, free: int) -> tuple[int, ...]:
        return tuple(self.now[i][1] - self.now[i][0]
                     for i in range(free.bit_length()) if free >> i & 1)

    def _memory(self, buffer: UOp) -> Array:
        """The elements of an argument, or of a stage buffer for every prefix iteration at hand."""
        if buffer.op is Ops.PARAM:
            return self.memories[buffer.arg].view(buffer.dtype)
        if buffer not in self.locals:
            count = math.prod(self._extent(self.known.prefix)) * buffer.arg[1]
            start = wrong(buffer.dtype) if settings.get("POISON") else 0
            self.locals[buffer] = np.full(count, start, buffer.dtype.numpy)
        return self.locals[buffer]

    def _growth(self, index: UOp) -> Growth | None:
        """How the address grows with the loops, if that is all there is to it."""
        grows = self.shape.growth[index.src[1]]
        if grows is None or index.src[2] is not TRUE:
            return None
        if index.src[0].op is Ops.LOCAL:
            grows = dict(grows)
            for loop, step in self._private(index.src[0]):
                grows[loop] = grows.get(loop, 0) + step
        return grows

    def _private(self, buffer: UOp) -> Iterator[tuple[UOp, int]]:
        """Where each prefix iteration has its own part of a stage buffer."""
        step = buffer.arg[1]
        for loop in self.known.info.prefix[::-1]:
            start, stop = self.now[self.known.position[loop]]
            yield loop, step
            step *= stop - start

    def _view(self, index: UOp, free: int, frame: _Frame) -> Array | None:
        """Memory as an array over the loops `free`, without a copy; None if it is not regular."""
        grows = self._growth(index)
        if grows is None or any(not free >> self.known.position[loop] & 1 for loop in grows):
            return None
        memory = self._memory(index.src[0])
        extent = self._extent(free)
        if 0 in extent:
            return np.zeros(extent, memory.dtype)
        first = int(self._value(self.shape.base[index], frame))
        private = set(self.known.info.prefix) if index.src[0].op is Ops.LOCAL else set()
        inner = self.shape.growth[index.src[1]] or {}
        for loop, step in grows.items():
            start = self.now[self.known.position[loop]][0]
            first += start * (inner.get(loop, 0) if loop in private else step)
        steps = [grows.get(loop, 0) * memory.itemsize for loop in self.known.loops(free)]
        return np.ndarray(extent, memory.dtype, memory.data, first * memory.itemsize, steps)

    def _addresses(self, index: UOp, free: int, frame: _Frame) -> Array:
        """The address of every element, as an array over the loops `free`."""
        found = self._aligned(index.src[1], free, frame)
        if index.src[0].op is Ops.LOCAL:
            places = [i for i in range(free.bit_length()) if free >> i & 1]
            for loop, step in self._private(index.src[0]):
                place = self.known.position[loop]
                start, stop = self.now[place]
                shape = [stop - start if i == place else 1 for i in places]
                found = found + (np.arange(stop - start) * step).reshape(shape)
        return np.broadcast_to(found, self._extent(free))

    def _load(self, node: UOp, frame: _Frame) -> Array:
        index, free = node.src[0], self.known.free[node]
        found = self._view(index, free, frame)
        if found is None:
            memory = self._memory(index.src[0])
            addresses = self._addresses(index, free, frame)
            if index.src[2] is TRUE:
                found = memory[addresses]
            else:  # r[impl kernel.access.gated]: what is not valid is not touched
                valid = self._aligned(index.src[2], free, frame, full=True)
                found = np.zeros(valid.shape, memory.dtype)
                found[valid] = memory[addresses[valid]]
        return from_bfloat16(found) if node.dtype is dtypes.bfloat16 else found

    def _write(self, store: UOp, frame: _Frame) -> None:
        index, node = store.src[0], store.src[1]
        free = self.known.prefix | self.known.mask(store.src[2:])
        value = self._aligned(node, free, frame)
        if index.src[0].dtype is dtypes.bfloat16:
            value = to_bfloat16(value)
        target = self._view(index, free, frame)
        if target is not None:
            target[...] = value
            return
        memory, addresses = self._memory(index.src[0]), self._addresses(index, free, frame)
        value = np.broadcast_to(value, addresses.shape)
        if index.src[2] is TRUE:
            memory[addresses] = value
        else:
            valid = self._aligned(index.src[2], free, frame, full=True)
            # r[impl kernel.access.gated]
            memory[addresses[valid]] = value[valid]

    def _reduce(self, node: UOp, frame: _Frame) -> Array:
        """Combine blocks of elements, in increasing order of the blocks."""
        loops, free = node.src[1:], self.known.free[node]
        own = self.known.mask(loops)
        # r[impl kernel.half.wide]
        wide = sum_accumulator(node.dtype)
        total: Array | None = None
        saved = list(self.now)
        for _ in self._over(loops):
            inner = _Frame(frame, own)
            if node in self.shape.products:
                part = self._product(node, own, inner)
            else:
                part = self._combine(node, free | own, own, wide, inner)
            total = part if total is None \
                else np.asarray(_numpy(_ARITHMETIC, node.arg)(total, part))
        self.now = saved
        if total is None:
            total = np.full(self._extent(free), identity(node.arg, wide), wide.numpy)
        return round_to(total, node.dtype) if node.dtype in HALF else total

    def _combine(self, node: UOp, free: int, own: int, wide: DType, frame: _Frame) -> Array:
        values = self._aligned(node.src[0], free, frame, full=True)
        axes = tuple(k for k, i in enumerate(i for i in range(free.bit_length()) if free >> i & 1)
                     if own >> i & 1)
        if not axes:
            return values.astype(wide.numpy, copy=False)
        function: Any = _numpy(_ARITHMETIC, node.arg)
        return np.asarray(function.reduce(values, axis=axes, dtype=wide.numpy,
                                          initial=identity(node.arg, wide)))

    def _product(self, node: UOp, own: int, frame: _Frame) -> Array:
        """A sum of products as a matrix product: the products are never all in memory."""
        free = self.known.free
        one, two = node.src[0].src
        shared = free[one] & free[two] & ~own
        left, right = free[one] & ~free[two], free[two] & ~free[one]
        first = self._matrix(one, (shared, left, own), frame)
        second = self._matrix(two, (shared, own, right), frame)
        found = np.matmul(first, second)
        order = [i for mask in (shared, left, right) for i in range(mask.bit_length())
                 if mask >> i & 1]
        shape = [self.now[i][1] - self.now[i][0] for i in order]
        return found.reshape(shape).transpose(sorted(range(len(order)), key=lambda k: order[k]))

    def _matrix(self, node: UOp, groups: tuple[int, int, int], frame: _Frame) -> Array:
        """A value as a stack of matrices, its loops grouped into three axes."""
        free = self.known.free[node]
        places = [i for i in range(free.bit_length()) if free >> i & 1]
        order = [places.index(i) for mask in groups for i in places if mask >> i & 1]
        value = self._aligned(node, free, frame, full=True).transpose(order)
        return value.reshape([math.prod(self._extent(mask)) for mask in groups])


class ReferenceProgram(Program):
    """A kernel and what is known about it before it runs."""

    def __init__(self, device: DeviceBackend, ast: UOp) -> None:
        super().__init__(device, ast)
        self.shape = _Shape(ast)

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Interpret the kernel."""
        # r[impl reference.warning.none]
        with np.errstate(all="ignore"):
            _Run(self.shape, memories, values).run()


class TextProgram(Program):
    """A kernel that is a text in Python: arguments are flat arrays, `item` is an array of all."""

    def __init__(self, device: DeviceBackend, ast: UOp, text: WrittenText) -> None:
        super().__init__(device, ast)
        self.text = text
        self.types = {n.arg: n.dtype for n in ast.toposort() if n.op is Ops.PARAM}
        self.source = textwrap.dedent(text.text)
        self.known: dict[str, Any] = {"np": np}
        try:
            exec(compile(textwrap.dedent(text.header), f"{self.name} header", "exec"), self.known)
            self.code = compile(self.source, self.name, "exec")
        except SyntaxError as error:
            raise CompileError("compile", f"{error.filename}:{error.lineno}: {error.msg}",
                               "mend the text") from None

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Have Python run the text.

        Raises:
            DeviceError: it raised something.
        """
        known = {**self.known, "items": self.text.items, "item": np.arange(self.text.items),
                 **dict(self.text.values)}
        if self.text.lanes is not None:
            known["group"], known["lane"] = np.divmod(known["item"], self.text.lanes)
        for place, name in enumerate(self.text.names):
            array = memories[place].view(self.types[place], self.text.sizes[place])
            array.flags.writeable = self.text.bounds[place] is not None
            known[name] = array
        try:
            with np.errstate(all="ignore"):
                exec(self.code, known)
        except Exception as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None and \
                    trace.tb_frame.f_code.co_filename != self.name:
                trace = trace.tb_next
            line = trace.tb_lineno if trace is not None else 0
            raise DeviceError(self.name, f"{self.name}:{line}: {type(error).__name__}: {error}",
                              "mend the text, or what is declared of it") from None


class Reference(DeviceBackend):
    """The device that every machine has."""

    kind = "REFERENCE"

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Kernels are interpreted as they are."""
        # r[impl reference.kernel.plain]
        return [ReferenceProgram(self, ast) if (text := written_text(ast)) is None
                else TextProgram(self, ast, text) for ast in asts]


Device.register(Reference, lambda: "")  # nothing is missing: r[impl reference.device.always]
