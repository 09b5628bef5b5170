"""Tiles of a product that a mask hides whole. Chapter: spec/blocking.md."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, local, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor
from impl.blocking import Hide
from impl.choosing import hand_steps
from impl.dialects import C
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits
from impl.render import render
from impl.searching import optimize
from impl.steps import StepError, apply_steps

WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)
SIZE, DEPTH = 64, 16


def masked(op: Ops = Ops.CMPLE, seen: bool = False, turned: bool = False) -> UOp:
    """out[r] = sum of (x y)[r, k] where k <= r, else of 0.25; `seen`: and all once more;
    `turned`: where r <= k.
    """
    r, j = new_range(SIZE, RangeKind.GLOBAL), new_range(SIZE, RangeKind.LOOP)
    d, k = new_range(DEPTH, RangeKind.REDUCE), new_range(SIZE, RangeKind.REDUCE)
    product = reduce(Ops.ADD, kb.apply(Ops.MUL, load(param(1), flat((r, DEPTH), (d, 1))),
                                       load(param(2), flat((d, SIZE), (j, 1)))), d)
    sides = tuple(UOp(Ops.CAST, dtypes.int32, (n,)) for n in ((r, k) if turned else (k, r)))
    chosen = UOp(Ops.WHERE, FLOAT, (UOp(op, dtypes.bool, sides), load(local(0, SIZE), k),
                                    kb.number(FLOAT, 0.25)))
    if seen:
        chosen = kb.apply(Ops.ADD, chosen, load(local(0, SIZE), k))
    total = reduce(Ops.ADD, chosen, k)
    return kb.kernel(store(local(0, SIZE), j, product, j), store(param(0), r, total), prefix=(r,))


def steps(ast: UOp) -> list[str]:
    return [step.name for step, _ in hand_steps(ast, WIDE)]


def hidden(ast: UOp, columns: int = 16, rows: int = 8) -> UOp:
    known = Analysis(ast)
    loop = known.ast.src[0].src[2]
    return apply_steps(ast, [Hide(known.position[loop], columns, rows)])


@verifies("choosing.product.hidden")
def test_hidden_tiles_are_left_out() -> None:
    assert any(name.startswith("HIDE(") for name in steps(masked()))
    assert not any(name.startswith("HIDE(") for name in steps(masked(seen=True)))


@verifies("blocking.hide.read+2")
@verifies("steps.value.equal")
@pytest.mark.parametrize("op", [Ops.CMPLE, Ops.CMPLT])
def test_what_is_left_out_was_not_seen(op: Ops) -> None:
    generator = np.random.default_rng(0)
    x, y = (generator.integers(-4, 5, size).astype(np.float32) for size in
            ((SIZE, DEPTH), (DEPTH, SIZE)))
    scores = x @ y
    place = np.arange(SIZE)
    below = place[None, :] < place[:, None] if op is Ops.CMPLT else place[None, :] <= place[:, None]
    wanted = np.where(below, scores, 0.25).sum(1)
    ast = masked(op)
    for made in (ast, optimize(ast, WIDE), *(hidden(ast, columns, rows) for columns, rows in
                                             ((1, 1), (7, 5), (16, 8), (64, 64)))):
        for device in ("REFERENCE", "CPU"):
            out = np.zeros(SIZE, np.float32)
            kb.run(made, out, x.ravel(), y.ravel(), device=device)
            np.testing.assert_array_equal(out, wanted)


@verifies("blocking.hide.read+2")
@verifies("steps.legal.refused")
def test_what_is_seen_is_not_left_out() -> None:
    for ast in (masked(seen=True), masked(Ops.CMPEQ), masked(turned=True)):
        with pytest.raises(StepError, match="HIDE"):
            hidden(ast)
    with pytest.raises(StepError, match="HIDE"):
        hidden(masked(), 0, 8)


def chosen_by(kind: str) -> UOp:
    """Rows of a LOCAL under a mask whose limit is read, or whose elements are places of a table."""
    r, j, k = (new_range(size, each) for size, each in (
        (8, RangeKind.GLOBAL), (SIZE, RangeKind.LOOP), (SIZE, RangeKind.REDUCE)))
    row, limit = local(0, SIZE, dtypes.int32), param(1, dtypes.int32)
    places = tuple(UOp(Ops.CAST, dtypes.int32, (n,)) for n in (k, UOp(Ops.CAST, dtypes.index, (
        load(limit, r),))))
    value = load(row, k)
    if kind == "address":
        value = load(param(2, dtypes.int32), UOp(Ops.CAST, dtypes.index, (value,)))
    seen = UOp(Ops.WHERE, dtypes.int32, (UOp(Ops.CMPLE, dtypes.bool, places), value,
                                         kb.number(dtypes.int32, 0)))
    stores = [store(row, j, UOp(Ops.CAST, dtypes.int32, (j,)), j),
              store(limit, r, kb.number(dtypes.int32, SIZE)),
              store(param(0, dtypes.int32), r, reduce(Ops.ADD, seen, k))]
    return kb.kernel(*[each for each in stores if kind == "stored" or each is not stores[1]],
                     prefix=(r,))


@verifies("blocking.hide.read+2")
@verifies("steps.legal.refused")
@pytest.mark.parametrize("kind", ["stored", "address"])
def test_what_a_mask_comes_too_late_for_is_not_left_out(kind: str) -> None:
    """The limit is stored after the row; or an element that was not stored chooses an address."""
    with pytest.raises(StepError, match="HIDE"):
        hidden(chosen_by(kind))


@verifies("blocking.hide.read+2")
@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
def test_a_mask_may_be_read_from_memory(device: str) -> None:
    limits = np.array([0, 5, 63, 31, 32, -1, 16, 70], np.int32)
    for ast in (chosen_by("read"), hidden(chosen_by("read"))):
        out = np.zeros(8, np.int32)
        kb.run(ast, out, limits, device=device)
        assert out.tolist() == [sum(range(min(limit, 63) + 1)) for limit in limits]


@verifies("lowering.gate.skipped+2")
def test_an_iteration_that_stores_nothing_is_left() -> None:
    assert "continue;" in render(optimize(masked(), WIDE), C()).body
    assert "continue;" not in render(masked(), C()).body


@verifies("blocking.hide.read+2")
@pytest.mark.device("CPU")
@pytest.mark.parametrize("places", [9, 33, 64, 101])
def test_causal_attention_shows_what_is_not_finite(places: int) -> None:
    """Also in keys and values that nobody looks at: a zero times infinity is not zero."""
    generator = np.random.default_rng(places)
    arrays = [generator.standard_normal((2, places, 24)).astype(np.float32) for _ in range(3)]
    arrays[1][0, places // 2, 3], arrays[1][1, places - 1, 0] = np.inf, np.nan
    arrays[2][1, places - 2, 5] = np.inf
    found = []
    for noopt in (1, 0):
        with Context(NOOPT=noopt):
            query, key, value = (Tensor(array).realize() for array in arrays)
            found.append(query.scaled_dot_product_attention(key, value, is_causal=True).numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5, atol=1e-6)
    assert np.isnan(found[0]).any() and np.isfinite(found[0]).any()
