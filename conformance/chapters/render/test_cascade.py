"""Long sums are added up in blocks: how exact they are, and what the text looks like."""
from __future__ import annotations

import re

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.trace import verifies
from impl import Tensor
from impl.dialects.c import C
from impl.ir import Ops, new_range
from impl.render.printer import render

random = np.random.default_rng(0)
BOUND = 512 * 2.0 ** -24


@pytest.mark.slow
@verifies("conventions.sum.bound")
@pytest.mark.parametrize("shape, axis", [
    ((3_000_000,), 0), ((2, 400_000), 1), ((400_000, 3), 0), ((100, 70, 100), (0, 2)),
    ((400_000, 40), 0), ((5001,), 0), ((300, 2000), (0, 1))])
@pytest.mark.parametrize("start", [0.0, 0.1, 1e6])
def test_long_sums_keep_their_digits(shape: tuple[int, ...], axis: int | tuple[int, ...],
                                     start: float) -> None:
    spread = 0 if start == 0.1 else random.standard_normal(shape)  # all alike is hardest
    x = np.broadcast_to(start + spread, shape).astype(np.float32)
    found, exact = Tensor(x).sum(axis).numpy(), x.astype(np.float64).sum(axis)
    assert (abs(found - exact) <= BOUND * abs(x).astype(np.float64).sum(axis)).all()


@verifies("conventions.sum.bound")
def test_a_deviation_beside_a_large_mean() -> None:
    x = (1e6 + 100 * random.standard_normal((2, 300_000))).astype(np.float32)
    for found, exact in ((Tensor(x).std(1), x.std(1, ddof=1, dtype=np.float64)),
                         (Tensor(np.ascontiguousarray(x.T)).std(0), x.std(1, ddof=1,
                                                                          dtype=np.float64))):
        assert np.allclose(found.numpy(), exact, rtol=1e-3)


@verifies("render.reduce.rounding+2")
@pytest.mark.parametrize("length, loops", [(100, 1), (128, 1), (129, 2), (5000, 2), (10_000, 3),
                                           (1_000_003, 4)])
def test_levels_of_a_long_loop(length: int, loops: int) -> None:
    """One loop for the elements, and one for each level of blocks."""
    row, k = new_range(3, kb.GLOBAL), new_range(length, kb.REDUCE)
    element = kb.load(kb.param(1), kb.flat((row, length), (k, 1)))
    kernel = kb.kernel(kb.store(kb.param(0), row, kb.reduce(Ops.ADD, element, k)), prefix=(row,))
    text = render(kernel, C()).body
    assert len(re.findall(r"for \(", text)) == loops + 1
    assert len(re.findall(r"float a\d+", text)) == loops
