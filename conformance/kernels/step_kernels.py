"""Kernels drawn by chance for those who try steps on them, and steps that want a certain kernel.

Stages that overwrite what other stages read are where a step may change an order that counts.
Products for a GPU's units have taken TC already: what is drawn comes after it.
"""
from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import (
    FLOAT,
    INT,
    apply,
    flat,
    load,
    number,
    param,
    reduce,
    store,
)
from impl.dtypes import DType, dtypes
from impl.errors import GraphError
from impl.groups import TC, Inner
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, verify_kernel
from impl.kernel.fragments import UNITS
from impl.steps import PadTo, StepError

GLOBAL, LOOP, REDUCE = RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE
#: Elements of each buffer, for each iteration of a loop around all stages.
_SIZE = 12
_BUFFERS = 4
#: The outer loop, where there is one.
_OUTER = 6


# Stages that overwrite each other's memory ---------------------------------------------------


@dataclass
class _Stages:
    """Draws stages over a few buffers, each of which any stage may read, and one may store."""

    draw: random.Random
    outer: UOp | None

    def index(self, place: UOp, kind: int) -> UOp:
        """The element at a place: the same, counted from the end, or any one; of this iteration."""
        if kind == 1:
            place = flat((place, -1), (number(dtypes.index, _SIZE - 1), 1))
        elif kind == 2:
            place = number(dtypes.index, self.draw.randrange(_SIZE))
        return flat((place, 1), (self.outer, _SIZE)) if self.outer is not None else place

    def loops(self) -> tuple[UOp, ...]:
        """The loops of a stage: one, two, or none."""
        pick = self.draw.random()
        if pick < 0.15:
            return ()
        if pick < 0.5:
            return new_range(3, LOOP), new_range(_SIZE // 3, LOOP)
        return (new_range(_SIZE, LOOP),)

    def stage(self, loops: tuple[UOp, ...]) -> UOp:
        """One store. What it reads of its own target it reads where it stores."""
        place = number(dtypes.index, self.draw.randrange(_SIZE)) if not loops else \
            loops[0] if len(loops) == 1 else flat((loops[0], _SIZE // 3), (loops[1], 1))
        target = self.draw.randrange(_BUFFERS)
        stored = self.index(place, self.draw.randrange(2))

        def read() -> UOp:
            buffer = self.draw.randrange(_BUFFERS)
            if buffer == target:
                return load(param(buffer, INT), stored)
            if self.draw.random() < 0.25:
                return self.total(buffer, target, place)
            return load(param(buffer, INT), self.index(place, self.draw.randrange(3)))
        value = read()
        for _ in range(self.draw.randrange(3)):
            op = self.draw.choice((Ops.ADD, Ops.SUB, Ops.MAXIMUM))
            value = apply(op, value, read())
        return store(param(target, INT), stored, value, *loops)

    def total(self, buffer: int, target: int, place: UOp) -> UOp:
        """A reduction over a buffer, perhaps of products with another one."""
        loop = new_range(_SIZE, REDUCE)
        value = load(param(buffer, INT), self.index(loop, 0))
        other = self.draw.randrange(_BUFFERS)
        if other != target and self.draw.random() < 0.5:
            value = apply(Ops.MUL, value, load(param(other, INT), self.index(place, 0)))
        return reduce(self.draw.choice((Ops.ADD, Ops.MAXIMUM)), value, loop)


def overwriting(seed: int) -> tuple[UOp, list[np.ndarray]]:
    """A kernel of one to four stages that store in each other's memory, and its arguments."""
    draw = random.Random(f"overwriting {seed}")
    while True:
        outer = new_range(_OUTER, GLOBAL) if draw.random() < 0.4 else None
        maker, stages = _Stages(draw, outer), list[UOp]()
        loops: tuple[UOp, ...] = ()
        for _ in range(draw.randint(1, 4)):
            loops = loops if loops and draw.random() < 0.5 else maker.loops()
            stages.append(maker.stage(loops))
        ast = kb.kernel(*stages, prefix=(outer,) if outer is not None else ())
        try:
            verify_kernel(ast)
        except GraphError:  # the order of its iterations would count
            continue
        generator = np.random.default_rng(seed)
        size = _SIZE * (_OUTER if outer is not None else 1)
        return ast, [generator.integers(-3, 4, size).astype(np.int32) for _ in range(_BUFFERS)]


# Products for units of GPUs ------------------------------------------------------------------


#: Units whose results are exact for small numbers; bfloat16 has no arrays.
_UNITS = tuple(place for place, unit in enumerate(UNITS) if unit.dtype is not dtypes.bfloat16)


def units(seed: int) -> tuple[UOp, UOp, list[np.ndarray], str]:
    """A product as it was written and after TC, its arguments, and the language of the unit."""
    draw = random.Random(f"units {seed}")
    while True:
        place = draw.choice(_UNITS)
        extents = (2, draw.choice((32, 48, 20)), draw.choice((32, 16, 30)),
                   draw.choice((16, 32, 24)))
        ast = product(UNITS[place].dtype, *extents)
        try:
            made = with_unit(ast, draw, place)
        except StepError:  # these numbers do not go together
            continue
        generator = np.random.default_rng(seed)
        batch, rows, columns, inner = extents
        numpy = UNITS[place].dtype.numpy
        arrays = [np.zeros(batch * rows * columns, np.float32),
                  generator.integers(-2, 3, batch * rows * inner).astype(numpy),
                  generator.integers(-2, 3, batch * inner * columns).astype(numpy)]
        return ast, made, arrays, "metal" if "simdgroup" in UNITS[place].name else "cuda"


def product(dtype: DType, batch: int, rows: int, columns: int, inner: int) -> UOp:
    """out[b, i, j] = the sum over k of x[b, i, k] * y[b, k, j], in float32."""
    b, i, j, k = (new_range(n, kind) for n, kind in (
        (batch, GLOBAL), (rows, GLOBAL), (columns, GLOBAL), (inner, REDUCE)))

    def single(buffer: int, index: UOp) -> UOp:
        value = load(param(buffer, dtype), index)
        return value if dtype is FLOAT else apply(Ops.CAST, value, dtype=FLOAT)
    factors = apply(Ops.MUL, single(1, flat((b, rows * inner), (i, inner), (k, 1))),
                    single(2, flat((b, inner * columns), (k, columns), (j, 1))))
    place = flat((b, rows * columns), (i, columns), (j, 1))
    return kb.kernel(store(param(0), place, reduce(Ops.ADD, factors, k)), prefix=(b, i, j))


def with_unit(ast: UOp, draw: random.Random, unit: int) -> UOp:
    """The product after TC, and what TC needs: its blocks cut off, its loops padded.

    Raises:
        StepError: the numbers that were drawn do not go together.
    """
    for which in (2, 1):
        extent = Analysis(ast).info.prefix[which].src[0].arg
        block = 32 if extent > 16 and draw.random() < 0.7 else 16
        if extent % block:
            ast = _applied(ast, PadTo, which, block)
        ast = _applied(ast, Inner, which, block)
    deep = UNITS[unit].depth * draw.choice((1, 2))
    loop = next(r for r in Analysis(ast).ranges if r.arg[1] is REDUCE)
    if loop.src[0].arg % deep:
        known = Analysis(ast)
        ast = PadTo(known.position[loop], deep).apply(known)
    known = Analysis(ast)
    loop = next(r for r in known.ranges if r.arg[1] is REDUCE)
    return TC(known.position[loop], unit, deep, draw.choice((1, 2)),
              draw.choice((1, 2))).apply(known)


def _applied(ast: UOp, step: type[PadTo] | type[Inner], which: int, amount: int) -> UOp:
    """A step for a loop of the prefix."""
    known = Analysis(ast)
    return step(known.position[known.info.prefix[which]], amount).apply(known)
