"""Kernels whose LOCALs begin full of what is wrong, so that a stale read shows.

Chapter: spec/kernel.md.
"""
from __future__ import annotations

import math

from impl.dtypes import DType, Scalar
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, buffer_key


def poisoned(ast: UOp) -> UOp:
    """The kernel with stages before the others, which fill each of its LOCALs.

    They run in each iteration of the prefix: what the one before left is no value of this one.
    """
    # r[impl kernel.local.own]
    buffers = {buffer_key(n): n for n in Analysis(ast).order if n.op is Ops.LOCAL}
    fills = []
    for buffer in buffers.values():
        loop = new_range(buffer.arg[1], RangeKind.LOOP)
        place = UOp(Ops.INDEX, buffer.dtype, (buffer, loop, TRUE))
        value = UOp.const(buffer.dtype, wrong(buffer.dtype))
        fills.append(UOp(Ops.STORE, buffer.dtype, (place, value, loop)))
    return ast.replace(src=(*fills, *ast.src))


def wrong(dtype: DType) -> Scalar:
    """A value that shows in whatever is computed from it."""
    return math.nan if dtype.kind == "f" else dtype.max
