"""Random numbers that are a function of a seed and a counter. Chapter: spec/tensor.md.

Value number n of a program is threefry2x32 of (key, n): the same on every device, whatever runs
first. The counter advances when an expression is written, by the number of values in it.

Where a tensor's numbers start is a bound variable, not a constant of the graph: a training step
draws other numbers each time, and its plan is found in the cache all the same.
"""
from __future__ import annotations

import heapq
import itertools
import math
import struct
import time
import weakref
from typing import Any

from impl.dtypes import SIGNIFICANDS, DType, dtypes
from impl.effects import lock
from impl.gradient import nodes
from impl.gradient.nodes import binary, cast, scale, unary
from impl.ir import Ops, Shape, UOp

_LIMIT = 1 << 31


class Slots:
    """Names for bound variables: the least free number, freed when the bound node dies.

    So a step that is written again uses the same names again.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.numbers = itertools.count()
        self.free: list[int] = []
        self.watched: dict[int, weakref.ref[UOp]] = {}

    def bind(self, value: int) -> UOp:
        """A new variable with this value."""
        number = heapq.heappop(self.free) if self.free else next(self.numbers)
        variable = UOp(Ops.DEFINE_VAR, dtypes.index, (), (f"{self.prefix}#{number}", 0, _LIMIT - 1))
        bound = UOp(Ops.BIND, dtypes.index, (variable, UOp.const(dtypes.index, value)))
        self.watched[number] = weakref.ref(bound, lambda _: self._release(number))
        return bound

    def _release(self, number: int) -> None:
        if heapq is None:  # the interpreter is shutting down
            return
        del self.watched[number]
        heapq.heappush(self.free, number)


class Generator:
    """The key and the counter."""

    def __init__(self) -> None:
        self.counters, self.keys = Slots("random"), Slots("random-key")
        self.counter = 0
        self.key: UOp | None = None
        self.high = 0
        # So much of a seed is a variable; the rest is in the kernels, which are kept on disk.
        self.first = time.time_ns() % _LIMIT
        self.seed(self.first)

    def seed(self, seed: int) -> None:
        """Start again with a seed of up to 63 bits."""
        with lock:
            self.key = None  # its name is free now, unless an expression still uses it
            self.key = self.keys.bind(seed % _LIMIT)
            self.high = (seed >> 31) & 0xFFFFFFFF
            self.number = seed & (1 << 63) - 1
            self.counter = 0

    @property
    def chosen(self) -> bool:
        """Whether somebody has set a seed."""
        return self.number != self.first

    def state(self) -> bytes:
        """The seed and the counter: where the random numbers are."""
        with lock:
            return struct.pack("<QQ", self.number, self.counter)

    def restore(self, state: bytes) -> None:
        """Go on where they were."""
        seed, counter = struct.unpack("<QQ", state)
        with lock:
            self.seed(seed)
            self.counter = counter

    def reserve(self, count: int) -> int:
        """Where the next `count` values start."""
        # r[impl tensor.random.bits, replay.thread.isolated+2]
        with lock:
            start = self.counter
            self.counter += count
            return start


generator = Generator()


def reserve(count: int) -> int:
    """Where the next `count` random values start; for whoever replays a captured graph."""
    return generator.reserve(count)


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: tuple[UOp, UOp], counter: tuple[UOp, UOp]) -> tuple[UOp, UOp]:
    """Threefry-2x32 with 20 rounds, on uint32 nodes (Salmon and others, 2011)."""
    parity = binary(Ops.XOR, binary(Ops.XOR, *key), UOp.const(dtypes.uint32, 0x1BD11BDA))
    keys = (*key, parity)
    x, y = nodes.add(counter[0], key[0]), nodes.add(counter[1], key[1])
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = nodes.add(x, y)
            left = binary(Ops.SHL, y, UOp.const(dtypes.uint32, rotation))
            right = binary(Ops.SHR, y, UOp.const(dtypes.uint32, 32 - rotation))
            y = binary(Ops.XOR, binary(Ops.OR, left, right), x)
        x = nodes.add(x, keys[(group + 1) % 3])
        injected = nodes.add(keys[(group + 2) % 3], UOp.const(dtypes.uint32, group + 1))
        y = nodes.add(y, injected)
    return x, y  # r[impl tensor.random.bits]


def random_words(count: int) -> tuple[UOp, UOp]:
    """Two random uint32 for each of `count` values, of shape (count,)."""
    start = generator.reserve(int(count))  # of a symbolic size: how many it is in this call
    first = cast(generator.counters.bind(start % _LIMIT), dtypes.uint32)
    high = UOp.const(dtypes.uint32, start >> 31)
    low = nodes.add(cast(nodes.iota(count), dtypes.uint32), first)
    assert generator.key is not None
    key = (cast(generator.key, dtypes.uint32), UOp.const(dtypes.uint32, generator.high))
    return threefry(key, (low, high))


def _shaped(build: Any, shape: Shape, dtype: DType) -> UOp:
    """A node of this shape, built from two words for each element."""
    count = math.prod(shape)
    if not count:
        return nodes.full(UOp.const(dtype, 0), shape)
    return nodes.reshape(build(*random_words(count)), shape)


def _unit(x: UOp, y: UOp, dtype: DType) -> UOp:
    """A float in [0, 1) with as many random bits as the dtype has digits."""
    if dtype is dtypes.float64:
        high = cast(binary(Ops.SHR, x, UOp.const(x.dtype, 5)), dtype)
        low = cast(binary(Ops.SHR, y, UOp.const(y.dtype, 6)), dtype)
        return scale(nodes.add(scale(high, 2.0 ** 26), low), 2.0 ** -53)
    digits = SIGNIFICANDS.get(dtype, 24)
    whole = cast(binary(Ops.SHR, x, UOp.const(x.dtype, 32 - digits)), dtypes.float32)
    return cast(scale(whole, 2.0 ** -digits), dtype)


def uniform_node(shape: Shape, dtype: DType = dtypes.float32) -> UOp:
    """Floats spread evenly over [0, 1)."""
    return _shaped(lambda x, y: _unit(x, y, dtype), shape, dtype)


def normal_node(shape: Shape, dtype: DType = dtypes.float32) -> UOp:
    """Floats of the standard normal distribution, by the method of Box and Muller."""
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32

    def build(x: UOp, y: UOp) -> UOp:
        one = UOp.const(wide, 1)
        # 1 - u lies in (0, 1], where the logarithm is finite.
        radius = unary(Ops.SQRT, scale(unary(Ops.LOG, nodes.sub(one, _unit(x, y, wide))), -2.0))
        angle = scale(_unit(y, x, wide), 2 * math.pi)
        return cast(nodes.mul(radius, unary(Ops.COS, angle)), dtype)

    return _shaped(build, shape, dtype)


def integer_node(shape: Shape, low: int, high: int, dtype: DType) -> UOp:
    """Whole numbers from `low` to `high - 1`, each as likely as the others to within 2**-32."""
    span = high - low

    def build(x: UOp, y: UOp) -> UOp:
        # The high half of a 64-bit product: (word * span) >> 32.
        product = nodes.mul(cast(x, dtypes.uint64), UOp.const(dtypes.uint64, span))
        offset = cast(binary(Ops.SHR, product, UOp.const(dtypes.uint64, 32)), dtype)
        return nodes.add(offset, UOp.const(dtype, low))

    return _shaped(build, shape, dtype)
