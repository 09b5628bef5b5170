"""Values that do not depend on what a LOCAL held before. Chapter: spec/kernel.md."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, local, param, store
from conformance.trace import verifies
from impl import Context, Tensor
from impl.blocking import Chunk
from impl.dtypes import DType
from impl.ir import RangeKind, UOp, new_range
from impl.searching import with_steps
from impl.steps import apply_steps


def half_stored(dtype: DType) -> UOp:
    """Each row passes through a LOCAL of eight elements, of which four are stored."""
    row, j, j2 = new_range(3, RangeKind.GLOBAL), new_range(4, RangeKind.LOOP), new_range(
        8, RangeKind.LOOP)
    held = local(0, 8, dtype)
    return kb.kernel(store(held, j, load(param(1, dtype), flat((row, 8), (j, 1))), j),
                     store(param(0, dtype), flat((row, 8), (j2, 1)), load(held, j2), j2),
                     prefix=(row,))


@verifies("kernel.local.own")
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("dtype", [FLOAT, INT], ids=["float", "int"])
def test_what_was_not_stored_is_seen_when_memory_is_poisoned(device: str, dtype: DType) -> None:
    given = np.arange(24).reshape(3, 8).astype(dtype.numpy)
    found = np.zeros_like(given)
    with Context(POISON=1, NOOPT=1):
        kb.run(half_stored(dtype), found, given, device=device)
    np.testing.assert_array_equal(found[:, :4], given[:, :4])
    np.testing.assert_array_equal(found[:, 4:], np.nan if dtype is FLOAT else dtype.max)


@verifies("kernel.local.own")
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_values_are_the_same_when_memory_is_poisoned(device: str) -> None:
    """Products of odd sizes, windows and rows: on CPU their operands are packed in LOCALs."""
    draw = np.random.default_rng(0)
    x, y, kernels = (Tensor(draw.standard_normal(shape).astype(np.float32)).realize()
                     for shape in ((37, 70), (70, 45), (9, 1, 3, 3)))
    image = x[:, :63].reshape(1, 1, 37, 63)

    def values() -> list[bytes]:
        made = (x @ y, x.softmax(-1) @ y, (x @ y).cumsum(1), image.conv2d(kernels, padding=1))
        return [each.numpy().tobytes() for each in made]
    with Context(DEVICE=device):
        plain = values()
        with Context(POISON=1):
            assert values() == plain


@verifies("kernel.local.own")
def test_sums_of_pieces_begin_anew_in_each_iteration() -> None:
    """The second row finds the sums of the first one, if nobody sets them to zero."""
    ast = with_steps(apply_steps(kb.matmul(3, 40, 96), [Chunk(2, 8)]), ())
    given = np.ones((3, 96), np.float32), np.ones((96, 40), np.float32)
    found = np.zeros((3, 40), np.float32)
    with Context(POISON=1):
        kb.run(ast, found, *given)
    np.testing.assert_array_equal(found, 96)
