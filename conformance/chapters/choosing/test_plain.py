"""Loops without reductions: merged, vectors, past the caches. Chapter: spec/choosing.md."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, local, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor, symbolic
from impl.choosing import hand_steps
from impl.dialects import C
from impl.dtypes import DType, dtypes
from impl.ir import KernelInfo, Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits
from impl.render import render
from impl.searching import optimize
from impl.steps import Abreast, Merge, Roll, StepError, Stream, Upcast, apply_steps

WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)
SMALL_CACHE = DeviceLimits(vector_bytes=64, vector_registers=32, third_cache=1 << 10)


def scaled(rows: int, columns: int, stride: int) -> UOp:
    """out[r, c] = 2 * a[r, c], of a matrix whose rows lie `stride` apart."""
    r, c = new_range(rows, RangeKind.GLOBAL), new_range(columns, RangeKind.GLOBAL)
    value = kb.apply(Ops.MUL, load(param(1), flat((r, stride), (c, 1))), kb.number(FLOAT, 2.0))
    return kb.kernel(store(param(0), flat((r, columns), (c, 1)), value), prefix=(r, c))


def names(ast: UOp, limits: DeviceLimits = WIDE) -> list[str]:
    return [step.name for step, _ in hand_steps(ast, limits)]


@verifies("choosing.plain.lanes")
def test_loops_are_merged_where_every_access_allows_it() -> None:
    assert names(scaled(3, 5, 5))[0] == "MERGE(0,1)"
    assert "MERGE(0,1)" not in names(scaled(3, 5, 6))
    k, q = new_range(30, RangeKind.REDUCE), new_range(40, RangeKind.REDUCE)
    whole = kb.kernel(store(param(0), 0, reduce(Ops.ADD, load(param(1), flat((k, 40), (q, 1))),
                                                k, q)))
    assert names(whole)[0] == "MERGE(0,1)"
    out, given = np.zeros(1, np.float32), np.arange(1200, dtype=np.float32)
    kb.run(whole, out, given)
    assert out[0] == given.sum()


@verifies("choosing.plain.lanes")
def test_loops_of_a_sum_are_merged_if_all_that_it_reads_lies_alike() -> None:
    """Not those of a window, which moves over what it reads."""
    k, q = new_range(30, RangeKind.REDUCE), new_range(40, RangeKind.REDUCE)
    x, y = (load(param(place), flat((k, 40), (q, 1))) for place in (1, 2))
    for other, wanted in ((y, True), (load(param(2), flat((k, 41), (q, 1))), False)):
        ast = kb.kernel(store(param(0), 0, reduce(Ops.ADD, kb.apply(Ops.MUL, x, other), k, q)))
        assert ("MERGE(0,1)" in names(ast)) is wanted


@verifies("choosing.plain.lanes")
def test_what_is_passed_on_element_by_element_is_a_vector() -> None:
    """One stage computes what two others store, an element in each iteration."""
    r, c = new_range(16, RangeKind.GLOBAL), new_range(64, RangeKind.GLOBAL)
    at, passed = flat((r, 64), (c, 1)), load(local(0, 1), 0)
    ast = kb.kernel(store(local(0, 1), 0, kb.apply(Ops.EXP, load(param(2), at))),
                    store(param(0), at, kb.apply(Ops.ADD, passed, passed)),
                    store(param(1), at, kb.apply(Ops.NEG, passed)), prefix=(r, c))
    assert "UPCAST(0,16)" in names(ast)
    twice, negative = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    given = np.arange(1024, dtype=np.float32) / 512
    kb.run(ast, twice, negative, given)
    assert np.allclose(twice, 2 * np.exp(given)) and np.array_equal(twice, -2 * negative)


@verifies("steps.value.equal")
@verifies("steps.legal.refused")
def test_only_neighbours_are_merged() -> None:
    """Also with indices that do not become simpler; not in the wrong order, not across stages."""
    ast = scaled(3, 5, 6)
    given = np.arange(18, dtype=np.float32)
    for device in ("CPU", "REFERENCE"):
        out = np.zeros(15, np.float32)
        with Context(NOOPT=1):
            kb.run(apply_steps(ast, [Merge(0, 1)]), out, given, device=device)
        assert (out == (2 * given.reshape(3, 6)[:, :5]).reshape(-1)).all()
    with pytest.raises(StepError, match="MERGE"):
        apply_steps(ast, [Merge(1, 0)])
    with pytest.raises(StepError, match="MERGE"):
        apply_steps(kb.matmul(4, 4, 4), [Merge(1, 2)])
    r, j, q = (new_range(4, kind) for kind in (RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.LOOP))
    two = kb.kernel(store(param(0), flat((r, 16), (j, 4), (q, 1)), load(param(2), r), j, q),
                    store(param(1), flat((r, 4), (q, 1)), load(param(2), q), q), prefix=(r,))
    with pytest.raises(StepError, match="inside each other"):
        apply_steps(two, [Merge(1, 2)])


@verifies("choosing.plain.lanes")
@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (1, 7), (3, 5), (7, 9), (5, 33), (64, 64),
                                               (13, 128), (1, 1), (2, 2), (3, 1000)])
def test_elementwise_kernels_of_any_size(rows: int, columns: int) -> None:
    """Sizes that are no multiple of a vector, with rows that lie apart or not."""
    for stride in (columns, columns + 3):
        ast = scaled(rows, columns, stride)
        given = np.random.default_rng(0).standard_normal((rows, stride)).astype(np.float32)
        out = np.zeros((rows, columns), np.float32)
        kb.run(ast, out, given.reshape(-1))
        assert (out == 2 * given[:, :columns]).all()


@verifies("choosing.plain.lanes")
def test_a_vector_is_as_wide_as_the_widest_type_allows() -> None:
    for one, two, width in ((dtypes.int8, dtypes.int8, 64), (dtypes.int8, dtypes.float32, 16),
                            (dtypes.float64, dtypes.float32, 8), (dtypes.float16, dtypes.int8, 16)):
        i = new_range(1024, RangeKind.GLOBAL)
        value = kb.apply(Ops.CAST, load(param(1, one), i), dtype=two)
        ast = kb.kernel(store(param(0, two), i, value), prefix=(i,))
        assert f"UPCAST(0,{width})" in names(ast), (one, two)
        assert f"x{width} " in render(optimize(ast, WIDE), C()).body


@verifies("choosing.plain.lanes")
def test_stages_of_a_row_are_vectors() -> None:
    body = render(optimize(kb.softmax(6, 100), WIDE), C()).body
    assert "exp_f32x16(" in body
    out, given = np.zeros(600, np.float32), np.random.default_rng(0).random(600, np.float32)
    kb.run(kb.softmax(6, 100), out, given)
    rows = np.exp(given.reshape(6, 100).astype(np.float64))
    np.testing.assert_allclose(out.reshape(6, 100), rows / rows.sum(1, keepdims=True), rtol=1e-5)


@verifies("dialects.stream.fence+2")
@verifies("choosing.memory.ahead+2")
@pytest.mark.parametrize("offset", [0, 3])
def test_large_outputs_go_past_the_caches(offset: int) -> None:
    """And are there when the kernel has ended, wherever the memory begins."""
    i = new_range(4096, RangeKind.GLOBAL)
    value = kb.apply(Ops.MUL, load(param(1), i), kb.number(FLOAT, 2.0))
    ast = kb.kernel(store(param(0), symbolic.add(i, offset), value), prefix=(i,))
    assert not any(name.startswith("STREAM") for name in names(ast))
    assert any(name.startswith("STREAM") for name in names(ast, SMALL_CACHE))
    changed = optimize(ast, SMALL_CACHE)
    body = render(changed, C()).body
    assert "stream_" in body and body.rstrip().removesuffix("}").rstrip().endswith("fence();")
    plain = UOp(Ops.SINK, changed.dtype, changed.src, KernelInfo(
        "streamed", changed.arg.prefix, changed.arg.variables))
    given, out = np.arange(4096, dtype=np.float32), np.full(4100, 7, np.float32)
    with Context(NOOPT=1):
        kb.run(plain, out, given)
    assert (out[offset:offset + 4096] == 2 * given).all()
    assert (out[:offset] == 7).all() and (out[offset + 4096:] == 7).all()


@verifies("steps.legal.refused")
def test_what_a_kernel_reads_stays_in_the_caches() -> None:
    i = new_range(64, RangeKind.GLOBAL)
    value = kb.apply(Ops.MUL, load(param(0), i), kb.number(FLOAT, 2.0))
    ast = kb.kernel(store(param(0), i, value), prefix=(i,))
    with pytest.raises(StepError, match="STREAM"):
        apply_steps(ast, [Upcast(0, 16), Stream(0)])


@pytest.mark.slow
@verifies("choosing.plain.lanes")
@pytest.mark.device("CPU")
@pytest.mark.parametrize("shape", [(5,), (3, 7), (17, 1), (1, 40), (2, 3, 37), (0, 4)])
def test_tensors_of_odd_shapes(shape: tuple[int, ...]) -> None:
    """Views as inputs, broadcasts, conditions, half types: as with NOOPT."""
    for dtype in ("float32", "float16", "bfloat16", "int32", "uint8", "float64"):
        base = (np.arange(4 * np.prod(shape)) % 13).astype(np.float32)
        found = []
        for noopt in (0, 1):
            with Context(DEVICE="CPU", NOOPT=noopt):
                x = Tensor(base).cast(dtype).reshape((4, *shape)).realize()
                turned, other = x[1].flip(len(shape) - 1), x[2]
                value = (turned < other).where(turned * 2 + other, x[0, ..., :1] - 1)
                padded = value.pad(((1, 2),) + ((0, 0),) * (len(shape) - 1))
                found.append(padded.cast("float32").numpy())
        assert np.array_equal(found[0], found[1], equal_nan=True), dtype


def rows_with_a_product() -> UOp:
    """A product into a LOCAL row, and a stage that only scales that row."""
    i, k = new_range(32, RangeKind.GLOBAL), new_range(24, RangeKind.REDUCE)
    j, q = new_range(64, RangeKind.LOOP), new_range(64, RangeKind.LOOP)
    row = kb.local(0, 64)
    product = kb.apply(Ops.MUL, load(param(1), flat((i, 24), (k, 1))),
                       load(param(2), flat((k, 64), (j, 1))))
    scaled_row = kb.apply(Ops.MUL, load(row, q), kb.number(FLOAT, 2.0))
    return kb.kernel(store(row, j, reduce(Ops.ADD, product, k), j),
                     store(param(0), flat((i, 64), (q, 1)), scaled_row, q), prefix=(i,))


@verifies("choosing.plain.lanes")
def test_lanes_are_rolled_up_where_nothing_is_reduced() -> None:
    """The product keeps its tile; the stage behind it is one loop again."""
    ast = rows_with_a_product()
    tiled = apply_steps(ast, [Upcast(0, 8)])
    lane = next(i for i, loop in enumerate(Analysis(tiled).ranges)
                if loop.arg[1] is RangeKind.UPCAST)
    rolled = apply_steps(tiled, [Roll(lane)])
    assert len(render(rolled, C()).body) < len(render(tiled, C()).body)
    generator = np.random.default_rng(0)
    a = generator.integers(-3, 4, (32, 24)).astype(np.float32)
    b = generator.integers(-3, 4, (24, 64)).astype(np.float32)
    for device in ("CPU", "REFERENCE"):
        for changed in (tiled, rolled, optimize(ast, WIDE)):
            out = np.zeros((32, 64), np.float32)
            with Context(NOOPT=1):
                kb.run(changed, out, a, b, device=device)
            assert (out == 2 * (a @ b)).all()
    with pytest.raises(StepError, match="ROLL"):
        apply_steps(apply_steps(kb.matmul(8, 16, 4), [Upcast(0, 8)]), [Roll(2)])
    with pytest.raises(StepError, match="ROLL"):
        apply_steps(ast, [Roll(0)])


@verifies("choosing.plain.lanes")
def test_a_stage_that_only_scales_is_rolled_up() -> None:
    """Beside a product whose tile it has shared; a softmax has vectors only."""
    assert any(name.startswith("ROLL(") for name in names(rows_with_a_product()))
    assert not any(name.startswith("ROLL(") for name in names(kb.softmax(64, 64)))


@verifies("choosing.plain.lanes")
def test_what_is_read_across_is_read_in_squares() -> None:
    i, j = new_range(100, RangeKind.GLOBAL), new_range(90, RangeKind.GLOBAL)
    value = load(param(1), flat((j, 100), (i, 1)))
    made = optimize(kb.kernel(store(param(0), flat((i, 90), (j, 1)), value), prefix=(i, j)), WIDE)
    lanes = [r.src[0].arg for r in made.toposort() if r.op is Ops.RANGE
             and r.arg[1] is RangeKind.UPCAST]
    assert lanes == [16, 16] and "turn_f32x16(" in render(made, C()).body


def turned(columns: int, rows: int) -> UOp:
    """A copy of (rows, columns) as (columns, rows)."""
    i, j = new_range(columns, RangeKind.GLOBAL), new_range(rows, RangeKind.GLOBAL)
    value = load(param(1), flat((j, columns), (i, 1)))
    return kb.kernel(store(param(0), flat((i, rows), (j, 1)), value), prefix=(i, j))


@verifies("choosing.plain.lanes")
def test_squares_along_the_rows_that_are_read_come_first() -> None:
    """What 16 x rows x 4 bytes of each square store fits a quarter of the cache n times."""
    assert WIDE.second_cache == 512 << 10
    def chosen(columns: int, rows: int) -> list[str]:
        return [each for each in names(turned(columns, rows)) if not each.startswith("FETCH")]
    assert chosen(1984, 96)[-2:] == ["CUT(0,4)", "SWAP(1,2)"]
    assert chosen(1984, 97)[-3:] == ["CUT(0,4)", "OWN(1)", "SWAP(4,2)"]
    assert chosen(64, 96)[-1] == "SWAP(0,1)"
    assert chosen(1984, 960)[-1].startswith("UPCAST")


@verifies("choosing.plain.fetch")
@pytest.mark.parametrize("columns", [1984, 1987])
def test_squares_ask_for_the_memory_of_their_results(columns: int) -> None:
    assert not any(name.startswith("FETCH") for name in names(turned(columns, 64)))
    made = optimize(turned(columns, 97), WIDE)
    assert columns * 64 * 4 <= WIDE.second_cache < columns * 97 * 4
    body = render(made, C()).body
    asked, read = (body.index(text) for text in ("__builtin_prefetch(p0 + ", "(p1 + "))
    assert asked < read and body.count("__builtin_prefetch(") >= 16
    array = np.arange(columns * 97, dtype=np.float32)
    for device in ("CPU", "REFERENCE"):
        out = np.zeros(columns * 97, np.float32)
        with Context(NOOPT=1):
            kb.run(made, out, array, device=device)
        assert (out == array.reshape(97, columns).T.reshape(-1)).all()


@verifies("steps.value.equal")
@pytest.mark.device("CPU")
@pytest.mark.parametrize("columns, rows", [(64, 96), (128, 97), (100, 90), (192, 17)])
def test_copies_that_read_on_are_as_without_steps(columns: int, rows: int) -> None:
    array = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    assert np.array_equal(Tensor(array).realize().permute(1, 0).contiguous().numpy(), array.T)


@verifies("choosing.rows.vector")
def test_short_rows_lie_abreast() -> None:
    def vectors(ast: UOp) -> str:
        return render(optimize(ast, WIDE), C()).body
    k, row = new_range(7, RangeKind.REDUCE), new_range(203, RangeKind.GLOBAL)
    greatest = reduce(Ops.MAXIMUM, load(param(1), flat((row, 7), (k, 1))), k)
    assert "max_f32x16(" in vectors(kb.kernel(store(param(0), row, greatest), prefix=(row,)))
    assert "exp_f32x16(" in vectors(kb.softmax(203, 10))
    assert "ABREAST" in str(names(kb.softmax(203, 10)))
    assert "ABREAST" not in str(names(kb.softmax(203, 17)) + names(kb.softmax(20, 10)))


@pytest.mark.slow
@verifies("steps.value.equal")
@pytest.mark.device("CPU")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_short_rows_are_as_without_steps(dtype: str) -> None:
    """Rows of 1 to 15 elements, in numbers that are multiples of a vector and that are not."""
    for rows, columns in ((64, 3), (203, 7), (65, 15)):
        given = (np.arange(rows * columns).reshape(rows, columns) * 7 % 23 - 9).astype(np.float32)
        found = []
        for noopt in (0, 1):
            with Context(NOOPT=noopt):
                x = Tensor(given).cast(dtype).realize()
                made = [x.max(-1), x.sum(-1), x - x.min(-1, keepdim=True)]
                made += [x.softmax(-1)] if dtype[0] == "f" else [x.prod(-1)]
                found.append([y.cast("float32").numpy() for y in made])
        for one, two in zip(*found, strict=True):
            np.testing.assert_allclose(one, two, rtol=2e-3 if dtype == "float16" else 1e-5,
                                       atol=1e-6)


@verifies("steps.legal.refused")
def test_only_rows_of_the_prefix_lie_abreast() -> None:
    i, j = new_range(64, RangeKind.GLOBAL), new_range(32, RangeKind.LOOP)
    ast = kb.kernel(store(param(0), flat((i, 32), (j, 1)), load(param(1), j), j), prefix=(i,))
    for step in (Abreast(1, 4), Abreast(0, 5)):
        with pytest.raises(StepError, match="ABREAST"):
            apply_steps(ast, [step])


@verifies("kernel.local.own")
def test_what_turns_carry_on_is_stored_at_once() -> None:
    """One element of running products: of the others nothing is asked, but what turns carry."""
    for shape in ((2, 2, 3), (4, 6), (2, 3, 3), (2, 17)):
        x = Tensor(np.arange(np.prod(shape), dtype=np.uint8).reshape(shape))
        running = x.cumprod(0)
        out = Tensor.full((1, *shape[1:]), 7, dtype=running.dtype).cat(running, dim=0)
        assert out[(0,) * len(shape)].item() == 7
    turn, lane = new_range(2, RangeKind.BLOCK), new_range(6, RangeKind.LOOP)
    place = local(0, 12)
    here = flat((turn, 6), (lane, 1))
    before = load(place, symbolic.add(here, -6), UOp(Ops.CMPLT, dtypes.bool, (
        UOp.const(dtypes.index, 0), turn)))
    stored = kb.apply(Ops.ADD, before, load(param(1), here))
    ast = kb.kernel(store(place, here, stored, turn, lane))
    number = list(Analysis(ast).position.values())[-1]
    with pytest.raises(StepError, match="turns carry on"):
        apply_steps(ast, [Upcast(number, 4)])
    apply_steps(ast, [Upcast(number, 3)])


def added(rows: int, columns: int) -> tuple[UOp, list[np.ndarray]]:
    """The kernel that adds twenty rows to those that an index names; and what it reads."""
    numbers = np.random.default_rng(0)
    arrays = [numbers.standard_normal((rows, columns)).astype(np.float32),
              numbers.standard_normal((20, columns)).astype(np.float32),
              numbers.integers(0, rows, 20).astype(np.int32)]
    with Context(DEVICE="REFERENCE"):
        tensors = [Tensor(each).realize() for each in arrays]
        item, = tensors[0].index_add(0, tensors[2], tensors[1]).schedule()
    order = [next(k for k, tensor in enumerate(tensors) if tensor.uop.arg[0] is buffer)
             for buffer in item.bufs[:3]]
    return item.ast, [arrays[k] for k in order]


@verifies("choosing.plain.row")
@pytest.mark.parametrize("columns", [16, 40])
def test_rows_that_are_added_are_vectors(columns: int) -> None:
    ast, arrays = added(7, columns)
    made, wanted = optimize(ast, WIDE), np.zeros(7 * columns, np.float32)
    ordered = made.src[-1]
    lanes = [loop for loop in ordered.toposort() if loop.op is Ops.RANGE
             and loop.arg[1] is RangeKind.UPCAST]
    assert lanes and "f32x16" in render(made, C()).body.rpartition("for (")[2]
    kb.run(ast, *[each.copy() for each in arrays], wanted)
    found = np.zeros_like(wanted)
    kb.run(made, *arrays, found)
    np.testing.assert_array_equal(found, wanted)


@verifies("choosing.plain.row")
def test_sums_of_rows_whose_numbers_are_loaded_are_vectors() -> None:
    """out[i, j] = the sum over k of x[number[i, k], j], as of windows that are gathered."""
    i, j, k = (new_range(size, kind) for size, kind in (
        (6, RangeKind.GLOBAL), (64, RangeKind.GLOBAL), (5, RangeKind.REDUCE)))
    number = load(param(2, dtypes.int32), flat((i, 5), (k, 1)))
    row = symbolic.mul(kb.apply(Ops.CAST, number, dtype=dtypes.index), 64)
    summed = reduce(Ops.ADD, load(param(1), symbolic.add(row, j)), k)
    ast = kb.kernel(store(param(0), flat((i, 64), (j, 1)), summed), prefix=(i, j))
    made = optimize(ast, WIDE)
    body = render(made, C()).body
    assert "*(const f32x16u *)(p1 + " in body and "gather" not in body
    x = np.random.default_rng(0).integers(-9, 10, (20, 64)).astype(np.float32)
    numbers = np.random.default_rng(1).integers(0, 20, (6, 5)).astype(np.int32)
    for device in ("CPU", "REFERENCE"):
        out = np.zeros(6 * 64, np.float32)
        with Context(NOOPT=1):
            kb.run(made, out, x.reshape(-1), numbers.reshape(-1), device=device)
        assert (out.reshape(6, 64) == x[numbers].sum(1)).all()


@verifies("choosing.plain.whole")
@pytest.mark.parametrize(("columns", "lanes"), [
    (1001, 16), (1004, 16), (28, 16), (12, 8), (20, 8), (7, 4), (48, 16), (5, 0)])
def test_rows_of_stages_that_hand_elements_on_are_whole_vectors(columns: int, lanes: int) -> None:
    """Of two results: one is made from the other."""
    i, j = new_range(3, RangeKind.GLOBAL), new_range(columns, RangeKind.GLOBAL)
    place = flat((i, columns + 3), (j, 1))  # no loop of both
    first, passed = kb.apply(Ops.ADD, load(param(2), place), load(param(3), i)), local(0, 1)
    second = kb.apply(Ops.MUL, load(passed, 0), load(param(4), place))
    kernel = kb.kernel(store(passed, 0, first), store(param(0), place, second),
                       store(param(1), place, load(passed, 0)), prefix=(i, j))
    steps = [step for step, _ in hand_steps(kernel, WIDE)]
    assert next((step.amount for step in steps if isinstance(step, Upcast)), 0) == lanes
    made = optimize(kernel, WIDE)
    generator, size = np.random.default_rng(0), 3 * (columns + 3)
    given = [generator.standard_normal(size).astype(np.float32) for _ in range(5)]
    found = []
    for ast in (kernel, made):
        arrays = [array.copy() for array in given]
        with Context(NOOPT=1):
            kb.run(ast, *arrays, device="CPU")
        found.append(np.concatenate(arrays))
    assert np.array_equal(found[0], found[1])


@verifies("choosing.plain.blocks")
@pytest.mark.parametrize(("size", "block", "steps"), [
    (1003, 32, "PADTO(0,32) CUT(0,32) UPCAST(1,16)"), (1024, 32, "CUT(0,32) UPCAST(1,16)"),
    (1000, 8, "CUT(0,8) UPCAST(1,8)"), (120, 32, ""), (1000, 7, "")])
def test_what_memory_sees_in_blocks_is_cut(size: int, block: int, steps: str) -> None:
    loop = new_range(size, RangeKind.GLOBAL)
    number = UOp(Ops.FLOORDIV, dtypes.index, (loop, UOp.const(dtypes.index, block)))
    value = kb.apply(Ops.ADD, load(param(1), loop), load(param(2), number))
    ast = kb.kernel(store(param(0), loop, value), prefix=(loop,))
    found = " ".join(names(ast))
    assert found.startswith(steps) if steps else "CUT" not in found
    made = optimize(ast, WIDE)
    assert ("spread_" in render(made, C()).body) is (size == 1003)  # and nothing is gathered
    x = np.arange(size, dtype=np.float32)
    sums = np.arange(-(-size // block), dtype=np.float32) * 1000  # and nothing behind them
    result = np.zeros(size, np.float32)
    with Context(NOOPT=1):
        kb.run(made, result, x, sums, device="CPU")
    assert np.array_equal(result, x + np.repeat(sums, block)[:size])


@verifies("dialects.vector.memory+2")
@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.uint8, dtypes.int16, dtypes.int64,
                                   dtypes.float16, dtypes.float64], ids=lambda each: each.name)
def test_one_element_for_some_lanes(dtype: DType) -> None:
    """The lanes of the last block, of any type."""
    loop = new_range(1003, RangeKind.GLOBAL)
    number = UOp(Ops.FLOORDIV, dtypes.index, (loop, UOp.const(dtypes.index, 32)))
    value = kb.apply(Ops.MAXIMUM, load(param(1, dtype), loop), load(param(2, dtype), number))
    made = optimize(kb.kernel(store(param(0, dtype), loop, value), prefix=(loop,)), WIDE)
    assert "spread_" in render(made, C()).body
    generator = np.random.default_rng(0)
    x, blocks = (generator.integers(0, 100, size).astype(dtype.numpy) for size in (1003, 32))
    result = np.zeros(1003, dtype.numpy)
    with Context(NOOPT=1):
        kb.run(made, result, x, blocks, device="CPU")
    assert np.array_equal(result, np.maximum(x, np.repeat(blocks, 32)[:1003]))


@verifies("choosing.plain.lanes")
def test_two_operands_may_be_gathered() -> None:
    """As where windows are compared with their maxima: what is stored lies side by side."""
    c = new_range(48, RangeKind.GLOBAL)
    window, within = symbolic.floordiv(c, 3), symbolic.mod(c, 3)
    one = load(param(1), symbolic.add(symbolic.mul(window, 2), within))
    value = kb.apply(Ops.CAST, kb.apply(Ops.CMPEQ, one, load(param(2), window)), dtype=FLOAT)
    ast = kb.kernel(store(param(0), c, value), prefix=(c,))
    assert "UPCAST(0,16)" in names(ast)
    x, most = (np.random.default_rng(place).integers(0, 3, 40).astype(np.float32)
               for place in range(2))
    out = np.zeros(48, np.float32)
    kb.run(ast, out, x, most)
    places = np.arange(48)
    assert (out == (x[places // 3 * 2 + places % 3] == most[places // 3])).all()


@verifies("choosing.window.apart")
def test_short_rows_that_lie_side_by_side_are_one() -> None:
    """The last stage of a normalised image of 7 x 7: 49 elements, and not seven times seven."""
    i, k = new_range(4, RangeKind.GLOBAL), new_range(49, RangeKind.REDUCE)
    row, column = new_range(7, RangeKind.LOOP), new_range(7, RangeKind.LOOP)
    total = local(0, 1)
    x = load(param(1), flat((i, 49), (row, 7), (column, 1)))
    stages = (store(total, 0, reduce(Ops.ADD, load(param(1), flat((i, 49), (k, 1))), k)),
              store(param(0), flat((i, 49), (row, 7), (column, 1)),
                    kb.apply(Ops.SUB, x, load(total, 0)), row, column))
    ast = kb.kernel(*stages, prefix=(i,))
    made = names(ast)
    assert [name.partition("(")[0] for name in made] == ["GROUP", "MERGE", "UPCAST"], made
    assert made[-1].endswith(",16)")
    given = np.random.default_rng(0).integers(-9, 9, 4 * 49).astype(np.float32)
    out = np.zeros_like(given)
    kb.run(ast, out, given)
    rows = given.reshape(4, 49)
    assert (out.reshape(4, 49) == rows - rows.sum(1, keepdims=True)).all()
