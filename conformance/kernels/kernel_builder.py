"""Kernels built by hand and at random, for the tests of the chapters about kernels and devices."""
from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import impl.cpu  # noqa: F401  (registers the device)
import impl.reference  # noqa: F401
from impl import symbolic
from impl.blocking import Pack
from impl.device import Device, Memory, Program
from impl.dtypes import DType, dtypes, from_bfloat16, to_bfloat16
from impl.ir import COMPARISONS, FLOAT_ONLY, TRUE, KernelInfo, Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis
from impl.steps import Own, PadTo, Share, Split, Step, StepError, Swap, Upcast

GLOBAL, LOOP, REDUCE = RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE
INT, FLOAT = dtypes.int32, dtypes.float32
Index = UOp | int
#: Every operation that makes a float of one float by arithmetic, a new one too.
FLOAT_FUNCTIONS = sorted({*FLOAT_ONLY, Ops.FLOOR, Ops.TRUNC, Ops.NEG} - {Ops.DIV})


def number(dtype: DType, value: float) -> UOp:
    """A constant."""
    return UOp.const(dtype, value)


def flat(*terms: tuple[Index, int]) -> UOp:
    """The sum of index * stride."""
    return symbolic.total(symbolic.mul(index, stride) for index, stride in terms)


def param(position: int, dtype: DType = FLOAT) -> UOp:
    """Argument number `position`."""
    return UOp(Ops.PARAM, dtype, (), position)


def local(position: int, size: int, dtype: DType = FLOAT) -> UOp:
    """A buffer between stages."""
    return UOp(Ops.LOCAL, dtype, (), (position, size))


def place(buffer: UOp, index: Index, valid: UOp = TRUE) -> UOp:
    """An INDEX."""
    return UOp(Ops.INDEX, buffer.dtype, (buffer, flat((index, 1)), valid))


def load(buffer: UOp, index: Index, valid: UOp = TRUE) -> UOp:
    """The element at an index."""
    return UOp(Ops.LOAD, buffer.dtype, (place(buffer, index, valid),))


def store(buffer: UOp, index: Index, value: UOp, *loops: UOp, valid: UOp = TRUE) -> UOp:
    """Write a value for all iterations of some loops."""
    return UOp(Ops.STORE, buffer.dtype, (place(buffer, index, valid), value, *loops))


def reduce(op: Ops, value: UOp, *loops: UOp) -> UOp:
    """Combine a value over loops."""
    return UOp(Ops.REDUCE, value.dtype, (value, *loops), op)


def apply(op: Ops, *given: UOp, dtype: DType | None = None) -> UOp:
    """An operation on values."""
    result = dtypes.bool if op in COMPARISONS else given[-1].dtype
    return UOp(op, dtype or result, given)


def kernel(*stores: UOp, prefix: Sequence[UOp] = (), variables: Sequence[UOp] = (),
           name: str = "kernel") -> UOp:
    """A SINK."""
    return UOp(Ops.SINK, dtypes.bool, stores, KernelInfo(name, tuple(prefix), tuple(variables)))


def run(ast: UOp, *arrays: np.ndarray, values: Sequence[int] = (),
        device: str = "CPU") -> Program:
    """Compile and run a kernel on arrays, which then hold what it stored."""
    program = Device[device].compile([ast])[0]
    launch(program, *arrays, values=values)
    return program


def launch(program: Program, *arrays: np.ndarray, values: Sequence[int] = ()) -> None:
    """Run a program on arrays, which then hold what it stored."""
    memories = []
    for array in arrays:
        memory: Memory = program.device.allocate(array.nbytes)
        program.device.copy_in(memory, array)
        memories.append(memory)
    program(memories, values)
    for array, memory in zip(arrays, memories, strict=True):
        found = program.device.copy_out(memory, dtypes.uint8, array.nbytes)
        array.reshape(-1).view(np.uint8)[:] = found


def matmul(rows: int, columns: int, inner: int, transposed: bool = False) -> UOp:
    """out = a @ b, or a @ b.T."""
    i, j, k = new_range(rows, GLOBAL), new_range(columns, GLOBAL), new_range(inner, REDUCE)
    right = flat((j, inner), (k, 1)) if transposed else flat((k, columns), (j, 1))
    product = apply(Ops.MUL, load(param(1), flat((i, inner), (k, 1))), load(param(2), right))
    return kernel(store(param(0), flat((i, columns), (j, 1)), reduce(Ops.ADD, product, k)),
                  prefix=(i, j), name="matmul")


def softmax(rows: int, columns: int) -> UOp:
    """Four loops in one kernel: maximum, exponentials into a LOCAL, sum, quotients."""
    r = new_range(rows, GLOBAL)
    k, j = new_range(columns, REDUCE), new_range(columns, LOOP)
    k2, j2 = new_range(columns, REDUCE), new_range(columns, LOOP)
    row = local(0, columns)
    top = reduce(Ops.MAXIMUM, load(param(1), flat((r, columns), (k, 1))), k)
    shifted = apply(Ops.SUB, load(param(1), flat((r, columns), (j, 1))), top)
    total = reduce(Ops.ADD, load(row, k2), k2)
    return kernel(store(row, j, apply(Ops.EXP, shifted), j),
                  store(param(0), flat((r, columns), (j2, 1)),
                        apply(Ops.DIV, load(row, j2), total), j2),
                  prefix=(r,), name="softmax")


# Special values


def special(dtype: DType, count: int = 64, seed: int = 0) -> np.ndarray:
    """Values of a type with all its edges: zeros, infinities, NaN, subnormals, limits."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.integers(0, 2, count).astype(np.bool_)
    if dtype.kind == "f":
        edges = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, -3e38, 0.5, 1.5,
                 2.5, -2.5, 88.7, -87.5, 89, -104, 128, -150, 0.1, 100, 1e10, -1e10]
        values = np.array([*edges, *(generator.standard_normal(count - len(edges)) * 3)])
        generator.shuffle(values)
        with np.errstate(all="ignore"):
            return from_host(values, dtype)
    least, most = int(dtype.min), int(dtype.max)
    wanted = [least, most, 0, 1, 2, 3, 7, most - 1, least + 1, 8, 31, 32, 33, 63, -1, -2, -7, -8]
    edges = [value for value in wanted if least <= value <= most]
    rest = generator.integers(least, most, count - len(edges), dtype=dtype.numpy, endpoint=True)
    values = np.array([*edges, *(int(x) for x in rest)], dtype.numpy)
    generator.shuffle(values)
    return values


def from_host(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Values as they lie in memory."""
    if dtype is dtypes.bfloat16:
        return to_bfloat16(values.astype(np.float32))
    return values.astype(dtype.numpy)


def to_host(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Values in memory as NumPy computes with them."""
    return from_bfloat16(values) if dtype is dtypes.bfloat16 else values


# Random kernels


@dataclass
class RandomKernel:
    """A kernel with the sizes of its arguments; argument 0 is the output."""

    ast: UOp
    sizes: list[int]
    types: list[DType]

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """Arguments: an output full of marks, and small random inputs."""
        generator = np.random.default_rng(seed)
        made = []
        for size, dtype in zip(self.sizes, self.types, strict=True):
            values = generator.integers(-4, 5, max(size, 1))
            made.append(values.astype(dtype.numpy))
        return made

    def result(self, ast: UOp, device: str, seed: int = 0) -> np.ndarray:
        """The output after running a version of the kernel."""
        arrays = self.arrays(seed)
        run(ast, *arrays, device=device)
        return arrays[0]


@dataclass
class _Maker:
    """Draws one kernel: loops, loads with their own layouts and gates, reductions, a LOCAL."""

    draw: random.Random
    sizes: list[int] = field(default_factory=lambda: [0])
    types: list[DType] = field(default_factory=lambda: [INT])

    def loops(self, kind: RangeKind, most: int) -> list[UOp]:
        count = self.draw.randint(0, most)
        return [new_range(self.draw.choice((1, 2, 3, 4, 5, 7, 8, 16, 17)), kind)
                for _ in range(count)]

    def address(self, loops: Sequence[UOp]) -> tuple[UOp, int]:
        """A dense index over some of the loops in any order, and the size of what it covers."""
        chosen = [loop for loop in loops if self.draw.random() < 0.8]
        self.draw.shuffle(chosen)
        terms, stride = [], 1
        for loop in chosen:
            terms.append((loop, stride))
            stride *= loop.src[0].arg
        return flat(*terms), stride

    def leaf(self, loops: Sequence[UOp]) -> UOp:
        """A load from a new argument, sometimes shifted and guarded; or a number."""
        if self.draw.random() < 0.15:
            return number(INT, self.draw.randint(-3, 3))
        index, size = self.address(loops)
        dtype = self.draw.choice((INT, INT, INT, dtypes.int8, dtypes.uint8, dtypes.int64))
        self.sizes.append(size)
        self.types.append(dtype)
        buffer, valid = param(len(self.sizes) - 1, dtype), TRUE
        if self.draw.random() < 0.4:
            shift = self.draw.randint(-3, 3)
            index = symbolic.add(index, shift)
            valid = symbolic.logical_and(symbolic.less_equal(0, index),
                                         symbolic.less_than(index, size))
        value = load(buffer, index, valid)
        return value if dtype is INT else apply(Ops.CAST, value, dtype=INT)

    def value(self, loops: Sequence[UOp], depth: int) -> UOp:
        """A random expression over loops."""
        pick = self.draw.random()
        if depth == 0 or pick < 0.2:
            return self.leaf(loops)
        if pick < 0.4:
            inner = self.loops(REDUCE, 2) or [new_range(self.draw.choice((3, 8, 33)), REDUCE)]
            op = self.draw.choice((Ops.ADD, Ops.ADD, Ops.ADD, Ops.MAXIMUM, Ops.MINIMUM, Ops.MUL))
            return reduce(op, self.value([*loops, *inner], depth - 1), *inner)
        one, two = self.value(loops, depth - 1), self.value(loops, depth - 1)
        if pick < 0.5:
            return apply(Ops.WHERE, apply(Ops.CMPLT, one, two), two, self.leaf(loops))
        return apply(self.draw.choice((Ops.ADD, Ops.MUL, Ops.MUL, Ops.SUB, Ops.MAXIMUM)), one, two)

    def make(self) -> RandomKernel:
        prefix, own = self.loops(GLOBAL, 2), self.loops(LOOP, 2)
        stores = []
        value = self.value([*prefix, *own], 3)
        if self.draw.random() < 0.4:
            stage = self.loops(LOOP, 2)
            index, size = self.dense(stage)
            buffer = local(0, size, INT)
            stores.append(store(buffer, index, self.value([*prefix, *stage], 2), *stage))
            k = new_range(size, REDUCE)
            again = reduce(Ops.ADD, load(buffer, k), k)
            value = apply(Ops.ADD, value, again)
        index, size = self.dense([*prefix, *own])
        self.sizes[0] = size
        stores.append(store(param(0, INT), index, value, *own))
        return RandomKernel(kernel(*stores, prefix=prefix, name="random"), self.sizes, self.types)

    def dense(self, loops: Sequence[UOp]) -> tuple[UOp, int]:
        terms, stride = [], 1
        for loop in self.draw.sample(loops, len(loops)):
            terms.append((loop, stride))
            stride *= loop.src[0].arg
        return flat(*terms), stride


def random_kernel(seed: int) -> RandomKernel:
    """The kernel of a seed: int32 throughout, so that results are compared exactly."""
    return _Maker(random.Random(seed)).make()


def random_steps(ast: UOp, seed: int, most: int = 4) -> UOp:
    """The kernel after some random legal steps."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, most)):
        known = Analysis(ast)
        if not known.ranges:
            break
        axis = draw.randrange(len(known.ranges))
        extent = known.ranges[axis].src[0].arg
        amount = draw.choice((2, 3, 4, 8, extent))
        steps: list[Any] = [Upcast(axis, amount), Upcast(axis, amount), Split(axis, amount),
                            Split(axis, amount, 0), Own(axis), PadTo(axis, amount),
                            Share(axis), Pack(axis, draw.randrange(2)),
                            Swap(axis, draw.randrange(len(known.ranges)))]
        step: Step = draw.choice(steps)
        try:
            changed = step.apply(known)
        except StepError:
            continue
        if lane_values(changed) <= 256:
            ast = changed
    return ast


def lane_values(ast: UOp) -> int:
    """The most copies of one value that lanes make, so that texts stay short."""
    known = Analysis(ast)
    most = 1
    for mask in set(known.free.values()):
        count = 1
        for lane in known.loops(mask & known.lanes):
            count *= lane.src[0].arg
        most = max(most, count)
    return most
