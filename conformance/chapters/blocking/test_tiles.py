"""Products that a unit for matrices computes. Chapter: spec/blocking.md."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.chapters.choosing.test_choosing import exact
from conformance.kernels import kernel_builder as kb
from conformance.kernels.devices import PROCESSORS
from conformance.trace import verifies
from impl import Context, Tensor
from impl.blocking import Tiles
from impl.choosing import hand_steps
from impl.cpu import machine
from impl.dialects import C
from impl.dtypes import DType, dtypes
from impl.ir import RangeKind, UOp
from impl.kernel import Analysis, DeviceLimits, Way
from impl.lowering.lower import lower
from impl.render import render
from impl.steps import Own, StepError, Upcast, apply_steps

WIDE = DeviceLimits(vector_bytes=64, vector_registers=32, tiles=("int8", "bfloat16"))
SUMS = {dtypes.int8: dtypes.int32, dtypes.bfloat16: dtypes.float32}


def product(dtype: DType, rows: int, inner: int, columns: int, turned: bool = False,
            after: bool = False) -> UOp:
    """The kernel of a product; with `after` it goes on with the sums."""
    with Context(DEVICE="CPU"):
        a = Tensor.empty(rows, inner, dtype=dtype).realize()
        b = Tensor.empty(columns, inner, dtype=dtype).realize().T if turned else \
            Tensor.empty(inner, columns, dtype=dtype).realize()
        made = a.matmul(b, dtype=SUMS[dtype])
        return (made.relu() if after else made).schedule()[0].ast


def planned(ast: UOp, limits: DeviceLimits = WIDE) -> UOp:
    """The kernel after the steps that rules choose."""
    return apply_steps(ast, [step for step, _ in hand_steps(ast, limits)])


def has_tiles(ast: UOp, limits: DeviceLimits = WIDE) -> bool:
    return any(isinstance(step, Tiles) for step, _ in hand_steps(ast, limits))


@verifies("choosing.product.unit")
@verifies("steps.value.equal")
@pytest.mark.parametrize("dtype", SUMS, ids=str)
def test_a_unit_computes_products_of_any_size(dtype: DType) -> None:
    """Whole tiles, parts of them in each direction, more of the sum and of the columns than panels
    have, rows that are copied, since they lie 2048 bytes apart.
    """
    generator = np.random.default_rng(0)
    for rows, inner, columns, turned, after in (
            (33, 47, 37, False, True), (9, 1100, 64, True, False), (64, 40, 288, False, True),
            (34, 2048, 290, False, False)):
        a, b = (generator.integers(-100, 100, shape)
                for shape in ((rows, inner), (inner, columns)))
        wanted = np.maximum(a @ b, 0) if after else a @ b
        made = planned(product(dtype, rows, inner, columns, turned, after), WIDE)
        assert any(name.startswith("TILES") for name in made.arg.steps), made.arg.steps
        given = [kb.from_host(each.astype(np.int8 if dtype is dtypes.int8 else np.float32), dtype)
                 for each in (a, np.ascontiguousarray(b.T) if turned else b)]
        for device in PROCESSORS:
            out = np.zeros((rows, columns), SUMS[dtype].numpy)
            exact(made, *given, out, device=device)
            assert (out == wanted).all(), (rows, inner, columns, turned, device)


@verifies("choosing.product.unit")
def test_only_a_unit_that_is_there_gets_products_that_it_reads() -> None:
    whole = product(dtypes.int8, 64, 64, 64)
    assert has_tiles(whole)
    assert has_tiles(product(dtypes.bfloat16, 64, 64, 64))
    assert not has_tiles(whole, replace(WIDE, tiles=("bfloat16",)))
    for columns in (501, 512):  # threads leave it a whole stage
        made = planned(product(dtypes.int8, 500, 500, columns), replace(WIDE, threads=2, parts=8))
        assert list(lower(made).tiles) == [made.src[0]], columns
    assert not has_tiles(kb.matmul(64, 64, 64))
    with Context(DEVICE="CPU"):
        across = Tensor.empty(64, 64, dtype=dtypes.int8).realize().T
        other = Tensor.empty(64, 64, dtype=dtypes.int8).realize()
        assert not has_tiles(across.matmul(other, dtype=dtypes.int32).schedule()[0].ast)


@verifies("choosing.product.unit")
def test_a_unit_is_used_if_the_system_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    features = frozenset("x8664 avx512f amxtile amxint8".split())
    monkeypatch.setattr(machine, "_tiles_allowed", lambda: True)
    assert machine.unit_types(features) == ("int8",)
    assert machine.unit_types(features | {"amxbf16"}) == ("int8", "bfloat16")
    assert machine.unit_types(features - {"amxtile"}) == ()
    monkeypatch.setattr(machine, "_tiles_allowed", lambda: False)
    assert machine.unit_types(features) == ()


@verifies("lowering.tiles.whole")
def test_a_stage_for_a_unit_is_one_call_as_long_as_it_is_a_product() -> None:
    """Later steps may change its loops: then it is lowered as it stands."""
    a, b = np.random.default_rng(0).integers(-100, 100, (2, 32, 32)).astype(np.int8)
    made = planned(product(dtypes.int8, 32, 32, 32))
    assert [store.arg for store in made.src] == [Way.TILES]
    assert list(lower(made).tiles) == [made.src[0]]
    assert "tiles_i8(p2 + " in render(made, C()).text
    known = Analysis(made)
    row = next(i for i, loop in enumerate(known.ranges) if loop.arg[1] is RangeKind.LOOP)
    for changed in (Upcast(row, 8).apply(known), made.replace(
            src=(made.src[0].replace(arg=None),))):
        assert "tiles_i8" not in render(changed, C()).text
        for device in PROCESSORS:
            out = np.zeros((32, 32), np.int32)
            exact(changed, a, b, out, device=device)
            assert (out == a.astype(np.int32) @ b).all()


@verifies("lowering.tiles.whole")
def test_a_text_for_a_unit_works_without_it() -> None:
    """A text is compiled for another processor, too."""
    if "x8664" not in machine.own_features() and "x86" not in machine.processor():
        pytest.skip("x86-64 is no target here")
    for dtype in SUMS:
        a, b = np.random.default_rng(0).integers(-100, 100, (2, 16, 16))
        given = [kb.from_host(each.astype(np.int8 if dtype is dtypes.int8 else np.float32), dtype)
                 for each in (a, b)]
        out = np.zeros((16, 16), SUMS[dtype].numpy)
        exact(planned(product(dtype, 16, 16, 16)), *given, out, device="CPU", CPU_TARGET="x86-64")
        assert (out == a @ b).all()


@verifies("steps.legal.refused")
def test_a_unit_needs_rows_and_columns_of_a_stage() -> None:
    whole = product(dtypes.int8, 32, 32, 32)
    with pytest.raises(StepError, match="one stage with two loops"):
        Tiles(2).apply(Analysis(whole))
    floats = apply_steps(kb.matmul(32, 32, 32), [Own(1), Own(0)])
    axis = next(i for i, loop in enumerate(Analysis(floats).ranges)
                if loop.arg[1] is RangeKind.REDUCE)
    with pytest.raises(StepError, match="none that a unit reads"):
        Tiles(axis).apply(Analysis(floats))
