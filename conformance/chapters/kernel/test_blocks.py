"""Loops that stages share: their order, and where they stand. Chapter: spec/kernel.md."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.chapters.choosing.test_choosing import exact
from conformance.kernels import kernel_builder as kb
from conformance.kernels.devices import PROCESSORS, on_each_processor
from conformance.kernels.kernel_builder import flat, load, local, param, store
from conformance.trace import verifies
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import verify_kernel

BLOCK, LOOP, GLOBAL, REDUCE = RangeKind.BLOCK, RangeKind.LOOP, RangeKind.GLOBAL, RangeKind.REDUCE


@verifies("kernel.block.loops")
@on_each_processor
def test_an_iteration_runs_its_stages_before_the_next(device: str) -> None:
    """A LOCAL that holds one piece is enough: it is stored anew in every iteration."""
    piece, i, j, k = (new_range(n, kind) for n, kind in
                      ((6, BLOCK), (4, LOOP), (4, LOOP), (4, REDUCE)))
    buffer = local(0, 4)
    total = kb.reduce(Ops.ADD, load(buffer, k), k)
    value = kb.apply(Ops.SUB, load(buffer, flat((j, 1))), total)
    ast = kb.kernel(store(buffer, i, load(param(1), flat((piece, 4), (i, 1))), piece, i),
                    store(param(0), flat((piece, 4), (j, 1)), value, piece, j))
    given = np.arange(24, dtype=np.float32) ** 2
    wanted = given.reshape(6, 4) - given.reshape(6, 4).sum(1, keepdims=True)
    out = exact(ast, np.zeros(24, np.float32), given, device=device)
    assert (out.reshape(6, 4) == wanted).all()


@verifies("kernel.block.loops")
@on_each_processor
def test_iterations_run_in_order(device: str) -> None:
    """A sum over a shared loop in memory: each iteration adds to what the last one left."""
    row, step = new_range(3, GLOBAL), new_range(5, BLOCK)
    first, i, last = new_range(4, LOOP), new_range(4, LOOP), new_range(4, LOOP)
    buffer = local(0, 4)
    more = load(param(1), flat((row, 20), (step, 4), (i, 1)))
    doubled = kb.apply(Ops.MUL, load(buffer, i), kb.number(dtypes.float32, 2))
    ast = kb.kernel(store(buffer, first, kb.number(dtypes.float32, 1), first),
                    store(buffer, i, kb.apply(Ops.ADD, doubled, more), step, i),
                    store(param(0), flat((row, 4), (last, 1)), load(buffer, last), last),
                    prefix=(row,))
    given = np.random.default_rng(0).integers(-4, 5, (3, 5, 4)).astype(np.float32)
    wanted = np.ones((3, 4), np.float32)
    for at in range(5):
        wanted = wanted * 2 + given[:, at]
    assert (exact(ast, np.zeros((3, 4), np.float32), given, device=device) == wanted).all()


@verifies("kernel.block.loops")
def test_what_is_stored_anew_is_read_anew() -> None:
    """A value without loops of its own is not taken out of the loop that changes its memory."""
    step, inner = new_range(7, BLOCK), new_range(2, BLOCK)
    buffer, doubled = local(0, 1), local(1, 1)
    given = load(param(1), step)
    again = kb.apply(Ops.ADD, load(doubled, 0), load(param(1), inner))
    ast = kb.kernel(store(buffer, 0, given, step),
                    store(doubled, 0, kb.apply(Ops.ADD, load(buffer, 0), load(buffer, 0)), step),
                    store(param(0), flat((step, 2), (inner, 1)), again, step, inner))
    values = np.arange(7, dtype=np.float32)
    for device in PROCESSORS:
        out = exact(ast, np.zeros((7, 2), np.float32), values, device=device)
        assert (out == 2 * values[:, None] + values[:2]).all()


@verifies("kernel.block.loops")
def test_stages_that_share_a_loop_stand_side_by_side() -> None:
    one, two, i = new_range(3, BLOCK), new_range(4, BLOCK), new_range(5, LOOP)

    def stage(number: int, *loops: UOp) -> UOp:
        return store(param(number), flat(*((r, 1) for r in loops)), load(param(9), 0), *loops)

    def sums(*loops: UOp) -> UOp:
        value = kb.reduce(Ops.ADD, load(param(9), flat(*((r, 1) for r in loops))), *loops)
        return store(param(0), 0, value)

    verify_kernel(kb.kernel(stage(0, one, two, i), stage(1, one, two), stage(2, one), stage(3)))
    for wrong in (kb.kernel(stage(0, one), stage(1), stage(2, one)),
                  kb.kernel(stage(0, one, two), stage(1, two)),
                  kb.kernel(stage(0, one, two), stage(1, two, one)),
                  kb.kernel(stage(0, one, two), stage(1, one), stage(2, one, two)),
                  kb.kernel(stage(0, i, one)), kb.kernel(sums(one)),
                  kb.kernel(stage(0), prefix=(one,))):
        with pytest.raises(GraphError, match="BLOCK"):
            verify_kernel(wrong)
