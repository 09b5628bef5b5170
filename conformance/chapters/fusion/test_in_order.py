"""Running results, scatters and sorting.  Chapters: spec/fusion.md, ranges.md, tensor.md."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.trace import verifies
from impl import Context, Tensor, Variable, symbolic
from impl.blocking.chain import Chain
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp
from impl.kernel import Analysis, estimate
from impl.steps import StepError, apply_steps

SHAPES = [(1,), (2,), (5, 1), (1, 7), (33, 3), (3, 67), (2, 40, 3), (130,)]
RUNNING: dict[Ops, np.ufunc] = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAXIMUM: np.maximum,
                                Ops.MINIMUM: np.minimum}
DEVICES = [("REFERENCE", {}), ("CPU", {}), ("CPU", {"NOOPT": 1}), ("CPU", {"CPU_COUNT": 2})]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(np.int32)


@pytest.mark.slow
@verifies("ranges.order.combined+2")
@verifies("tensor.running.value")
@pytest.mark.parametrize("device, settings", DEVICES)
def test_running_results(device: str, settings: dict[str, int]) -> None:
    with Context(DEVICE=device, **settings):
        for shape in SHAPES:
            x, made = numbers(*shape), []
            for axis, (op, ufunc) in itertools.product(range(-len(shape), len(shape)),
                                                       RUNNING.items()):
                name = {Ops.ADD: "cumsum", Ops.MUL: "cumprod", Ops.MAXIMUM: "cummax",
                        Ops.MINIMUM: "cummin"}[op]
                got = getattr(Tensor(x) + 1, name)(axis)
                wanted = ufunc.accumulate(x + 1, axis, dtype=np.int32)
                made.append((got, wanted, f"{name} {shape} {axis}"))
                turned = getattr(Tensor(x).flip(axis), name)(axis).flip(axis) * 2
                wanted = np.flip(ufunc.accumulate(np.flip(x, axis), axis, dtype=np.int32), axis)
                made.append((turned, wanted * 2, f"{name} {shape} {axis}, turned"))
            made[0][0].realize(*(got for got, _, _ in made))  # in one run of the compiler
            for got, wanted, which in made:
                np.testing.assert_array_equal(got.numpy(), wanted, which)


@verifies("tensor.running.value")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_running_results_of_floats(dtype: str) -> None:
    x = np.random.default_rng(1).standard_normal((3, 200)).astype(np.float32)
    x[1, 60], x[2, 70], x[2, 90] = np.nan, -np.inf, np.inf
    given = Tensor(x).cast(dtype)
    exact = given.cast("float64").numpy()
    close = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
    with np.errstate(invalid="ignore"):
        for name, ufunc in (("cumsum", np.add), ("cummax", np.maximum), ("cummin", np.minimum)):
            got = getattr(given, name)(1)
            assert got.dtype.name == dtype
            np.testing.assert_allclose(got.cast("float64").numpy(), ufunc.accumulate(exact, 1),
                                       rtol=close, atol=close * 10, err_msg=name)


@verifies("tensor.running.value")
def test_a_running_sum_of_minus_zeros_is_minus_zero() -> None:
    for count in (3, 50):
        found = Tensor(np.full(count, -0.0, np.float32)).cumsum().numpy()
        assert np.signbit(found).all()


@verifies("tensor.running.value")
def test_running_results_of_symbolic_length() -> None:
    x = numbers(3, 90)
    for length in (1, 2, 40, 90):
        bound = Variable("n", 1, 90).bind(length)
        got = Tensor(x)[:, :bound].cumsum(1)[:, length - 1]
        np.testing.assert_array_equal(got.numpy(), x[:, :length].sum(1))


@verifies("ranges.order.combined+2")
def test_a_running_sum_by_hand() -> None:
    values, keys = Tensor([1, 2, 3, 4, 5]), Tensor([0, 1, 0, 7, 1])
    assert values.cumsum().tolist() == [1, 3, 6, 10, 15]
    by_key = UOp(Ops.SCAN, dtypes.int32, (values.uop, keys.uop), (Ops.ADD, 0, 2))
    assert Tensor(by_key).tolist() == [1, 2, 4, 0, 7]


@verifies("ranges.order.combined+2")
def test_a_scatter_by_hand() -> None:
    table = Tensor([10, 20, 30])
    assert table.scatter(0, Tensor([2, 0, 2, 3, -9]), Tensor([1, 2, 3, 4, 5])).tolist() == [
        2, 20, 3]
    assert table.scatter_add(0, Tensor([2, 0, 2, 3]), Tensor([1, 2, 3, 4])).tolist() == [
        12, 20, 34]


@verifies("tensor.sort.order")
def test_an_order_by_hand() -> None:
    mixed = Tensor([2.0, float("nan"), -1.0, 2.0, -0.0, 0.0])
    assert mixed.argsort().tolist() == [2, 4, 5, 0, 3, 1]
    assert mixed.argsort(descending=True).tolist() == [1, 0, 3, 4, 5, 2]
    assert mixed.topk(3)[1].tolist() == [1, 0, 3]


@verifies("ranges.order.combined+2")
@pytest.mark.parametrize("device, settings", DEVICES)
def test_running_results_by_key(device: str, settings: dict[str, int]) -> None:
    values, keys = numbers(3, 50), numbers(3, 50, seed=1)  # some keys are out of range
    with Context(DEVICE=device, **settings):
        for op, ufunc in RUNNING.items():
            node = UOp(Ops.SCAN, dtypes.int32, (Tensor(values).uop, Tensor(keys).uop), (op, 1, 5))
            wanted = np.zeros_like(values)
            for row in range(3):
                last: dict[int, Any] = {}
                for place, (key, value) in enumerate(zip(keys[row], values[row], strict=True)):
                    if 0 <= key < 5:
                        last[key] = ufunc(last[key], value) if key in last else value
                        wanted[row, place] = last[key]
            np.testing.assert_array_equal(Tensor(node).numpy(), wanted)


@pytest.mark.slow
@verifies("ranges.order.combined+2")
@pytest.mark.parametrize("device, settings", DEVICES)
def test_scatter(device: str, settings: dict[str, int]) -> None:
    with Context(DEVICE=device, **settings):
        for rest, count in itertools.product([(), (1,), (3,), (37,), (2, 5)], [1, 2, 20]):
            base, values = numbers(6, *rest), numbers(count, *rest, seed=1)
            index = np.random.default_rng(2).integers(-2, 8, count).astype(np.int64)
            for op in (None, *RUNNING):
                wanted = base.copy()
                for place, row in zip(index, values, strict=True):
                    if 0 <= place < 6:
                        wanted[place] = row if op is None else RUNNING[op](wanted[place], row)
                sources = Tensor(base).uop, Tensor(index).uop, Tensor(values).uop
                got = Tensor(UOp(Ops.SCATTER, dtypes.int32, sources, op)) + 0
                np.testing.assert_array_equal(got.numpy(), wanted, f"{rest} {count} {op}")


@verifies("ranges.order.combined+2")
def test_what_is_scattered_may_be_computed_and_assigned() -> None:
    """The base, the index and the values may all be the tensor that is written."""
    start = np.array([3, 1, 0, 2, 1], np.int32)
    t = Tensor(start).realize()
    t.assign(t.scatter_add(0, t, t * 10))
    wanted = start.copy()
    np.add.at(wanted, start, start * 10)
    np.testing.assert_array_equal(t.numpy(), wanted)
    t = Tensor(start).realize()
    t[t] = t + 100
    wanted = start.copy()
    for place in start:
        wanted[place] = -1
    for place, value in zip(start, start + 100, strict=True):
        wanted[place] = value
    np.testing.assert_array_equal(t.numpy(), wanted)


@verifies("fusion.cut.own")
def test_what_runs_in_order_is_alone() -> None:
    x = Tensor(np.ones((4, 6), np.float32)).realize()
    index = Tensor([1, 1]).realize()
    for made in ((x + 1).cumsum(1) * 2, (x.sum(1, keepdim=True) + x).cumsum(0).exp(),
                 x.scatter_add(0, index.reshape(2, 1).expand(2, 6), x[:2] * 3) + 1):
        document = Tensor.schedule_document(made)
        assert [kernel["stages"] for kernel in document["kernels"]].count(1) >= 2
        assert len(document["kernels"]) >= 2


def operations(make: Callable[[int], Tensor], count: int) -> int:
    return sum(estimate(kernel.ast).operations for kernel in make(count).schedule())


def embedding_gradient(count: int) -> Tensor:
    table = Tensor.ones(count, 2, requires_grad=True)
    index = (Tensor.arange(count) * 7 % count).contiguous()
    return (table.embedding(index) * 3).sum().gradient(table)[0]


def running_gradient(count: int) -> Tensor:
    x = Tensor.ones(count).contiguous().realize()
    return (x.cumprod() * 2).sum().gradient(x)[0]


@verifies("tensor.linear.work+2")
@pytest.mark.parametrize("make", [
    lambda n: Tensor.ones(n).contiguous().realize().cumsum(),
    lambda n: Tensor.ones(n, 2).contiguous().realize().cummax(0),
    lambda n: Tensor.ones(n).contiguous().realize().gather(0, Tensor.arange(n).contiguous()),
    lambda n: Tensor.zeros(n).scatter_add(0, Tensor.arange(n).contiguous(), Tensor.ones(n)),
    lambda n: Tensor.ones(n).contiguous().realize().sort()[0],
    embedding_gradient, running_gradient])
def test_work_grows_with_the_number_of_elements(make: Callable[[int], Tensor]) -> None:
    once, twice = operations(make, 2048), operations(make, 4096)  # both are cut into blocks
    assert 0 < once and twice < 2.1 * once


def sorted_places(row: np.ndarray, descending: bool) -> list[int]:
    """By Python's own sort, which is stable."""
    def key(place: int) -> tuple[bool, float]:
        value = row[place].item()
        if value != value:
            return not descending, 0.0
        return descending, -value if descending else value
    return sorted(range(len(row)), key=key)


@pytest.mark.slow
@verifies("tensor.sort.order")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64",
                                   "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 60, 300])
def test_sorting(dtype: str, count: int) -> None:
    x = np.random.default_rng(count).integers(-9, 9, (2, count)).astype(dtype)
    if dtype.startswith("float") and count > 50:
        x[0, 3], x[0, 9], x[1, 5:8], x[1, 40] = np.nan, -np.nan, -0.0, np.inf
        x[1, 41], x[0, 20] = -np.inf, np.nan
    for descending in (False, True):
        wanted = np.array([sorted_places(row, descending) for row in x])
        values, places = Tensor(x).sort(1, descending)
        assert places.dtype is dtypes.int32
        np.testing.assert_array_equal(places.numpy(), wanted)
        exact = np.take_along_axis(x, wanted, 1)
        assert values.numpy().tobytes() == exact.tobytes() or np.isnan(exact.astype(float)).any()
        np.testing.assert_array_equal(values.numpy(), exact)
        np.testing.assert_array_equal(Tensor(x.T).argsort(0, descending).numpy(), wanted.T)
        for some in (4, 30):
            if some <= count:
                values, places = Tensor(x).topk(some, 1, largest=descending)
                np.testing.assert_array_equal(places.numpy(), wanted[:, :some])
                np.testing.assert_array_equal(values.numpy(), exact[:, :some])


@verifies("tensor.sort.order")
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_the_first_few_of_many(dtype: str) -> None:
    x = np.random.default_rng(5).integers(0, 120, (3, 997)).astype(dtype)
    if dtype == "float32":
        x[0, 700], x[1] = np.nan, -np.inf
    for largest in (False, True):
        values, places = Tensor(x).topk(20, 1, largest)
        wanted = np.array([sorted_places(row, largest)[:20] for row in x])
        np.testing.assert_array_equal(places.numpy(), wanted)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, wanted, 1))


@verifies("tensor.sort.order")
def test_sorting_extremes_and_nothing() -> None:
    for kind in (np.int8, np.int32, np.int64, np.uint64):
        limits = np.iinfo(kind)
        row = np.array([0, limits.max, limits.min, 1, limits.max - 1] * 40, kind)
        np.testing.assert_array_equal(Tensor(row).sort()[0].numpy(), np.sort(row))
    for shape in ((0,), (3, 0), (0, 4)):
        values, places = Tensor.zeros(*shape).sort(-1)
        assert values.shape == places.shape == shape


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_gradients_of_long_running_results(name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 50)) * 0.3 + 1
    if name == "cumprod":
        x[0, 20] = x[1, 7] = x[1, 30] = 0
    weights = rng.standard_normal((2, 50))
    t = Tensor(x)
    got = (getattr(t, name)(1) * Tensor(weights)).sum().gradient(t)[0].numpy()
    ufunc = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum,
             "cummin": np.minimum}[name]
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        slope = [(ufunc.accumulate(x + sign * step, 1) * weights).sum() for sign in (1, -1)]
        np.testing.assert_allclose(got[place], (slope[0] - slope[1]) / 2e-6, rtol=1e-5, atol=1e-6)


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("op", [None, *RUNNING])
def test_gradients_of_scatters(op: Ops | None) -> None:
    rng = np.random.default_rng(4)
    base, values = rng.standard_normal((4, 3)), rng.standard_normal((6, 3))
    values[1], values[3, 0], values[4, 0] = 0, 0, 0
    index, weights = np.array([2, 0, 2, 3, 3, -1]), rng.standard_normal((4, 3))

    def scattered(base: np.ndarray, values: np.ndarray) -> float:
        found = base.copy()
        for place, row in zip(index, values, strict=True):
            if place >= 0:
                found[place] = row if op is None else RUNNING[op](found[place], row)
        return float((found * weights).sum())

    given = Tensor(base), Tensor(values)
    node = UOp(Ops.SCATTER, dtypes.float64, (given[0].uop, Tensor(index).uop, given[1].uop), op)
    found = (Tensor(node) * Tensor(weights)).sum().gradient(*given)
    for number, array in enumerate((base, values)):
        for place in np.ndindex(*array.shape):
            step = np.zeros_like(array)
            step[place] = 1e-6
            ends = [scattered(*(each + sign * step if each is array else each
                                for each in (base, values))) for sign in (1, -1)]
            np.testing.assert_allclose(found[number].numpy()[place], (ends[0] - ends[1]) / 2e-6,
                                       rtol=1e-5, atol=1e-6)


def running_kernel(count: int) -> UOp:
    x = Tensor(np.arange(count, dtype=np.float32)).realize()
    return x.cumsum().schedule()[0].ast


@verifies("steps.legal.refused")
def test_a_chain_is_for_running_results() -> None:
    ast = running_kernel(40)
    place = next(i for i, loop in enumerate(_loops(ast)) if loop.arg[1].name == "BLOCK")
    chained = apply_steps(ast, [Chain(place, 16)])
    assert chained.arg.steps == (f"CHAIN({place},16)",)
    for step in (Chain(place, 41), Chain(place, 1), Chain(place + 1, 4)):
        with pytest.raises(StepError):
            apply_steps(ast, [step])
    rows = Tensor(np.zeros((64, 3), np.float32)).realize().cumsum(0).schedule()[0].ast
    place = next(i for i, loop in enumerate(_loops(rows)) if loop.arg[1].name == "BLOCK")
    with pytest.raises(StepError, match="no running result"):  # three results before, not one
        apply_steps(rows, [Chain(place, 4)])
    table = Tensor(np.zeros(9, np.float32)).realize()
    index = Tensor(np.arange(9)).realize()
    scatter = table.scatter_add(0, index, table + 1).schedule()[-1].ast
    place = next(i for i, loop in enumerate(_loops(scatter)) if loop.arg[1].name == "BLOCK")
    with pytest.raises(StepError, match="no running result"):
        apply_steps(scatter, [Chain(place, 3)])


@verifies("kernel.local.own")
@pytest.mark.parametrize("count", [5, 64])
def test_a_running_result_that_nobody_reads(count: int) -> None:
    """It is stored in a LOCAL, which no chain may read and store again."""
    total = Tensor.full((count,), 3).cumsum(0)
    assert (total < total).tolist() == [False] * count
    assert (total.cast("int8") == total.cast("int8")).tolist() == [True] * count


@verifies("steps.legal.refused")
def test_a_chain_does_not_begin_anew_on_its_way() -> None:
    """A running sum of each three elements; one of which some elements are never stored."""
    i, nothing = kb.new_range(9, RangeKind.BLOCK), kb.number(dtypes.float32, 0)
    third = kb.apply(Ops.CMPNE, symbolic.mod(i, 3), kb.number(dtypes.index, 0))
    place = kb.flat((i, 1), (-1, 1))
    for inside, valid in ((third, TRUE), (symbolic.less_than(0, i), third)):
        before = kb.apply(Ops.WHERE, inside, kb.load(kb.param(0), place, inside), nothing)
        value = kb.apply(Ops.ADD, before, kb.load(kb.param(1), i))
        ast = kb.kernel(kb.store(kb.param(0), i, value, i, valid=valid))
        with pytest.raises(StepError, match="no running result"):
            apply_steps(ast, [Chain(0, 4)])


def _loops(ast: UOp) -> list[UOp]:
    return Analysis(ast).ranges
