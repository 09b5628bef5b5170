"""What a kernel means, and what it costs. Chapter: spec/kernel.md."""
from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.devices import on_each_processor
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, symbolic
from impl.dtypes import ALL, DType, dtypes
from impl.errors import GraphError
from impl.ir import FALSE, Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, estimate, verify_kernel
from impl.searching import optimize

INTEGERS = [d for d in ALL if d.kind in "iu"]
HALVES = [dtypes.float16, dtypes.bfloat16]


def elementwise(op: Ops, dtype: DType, count: int, operands: int = 2,
                result: DType | None = None) -> UOp:
    """out[i] = op(a[i], b[i])."""
    i = new_range(count, RangeKind.GLOBAL)
    given = [load(param(1 + n, dtype), i) for n in range(operands)]
    value = kb.apply(op, *given, dtype=result)
    return kb.kernel(store(param(0, value.dtype), i, value), prefix=(i,), name=op.name)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special values."""
    one, two = kb.special(dtype), kb.special(dtype, seed=1)
    return np.repeat(one, len(two)), np.tile(two, len(one))


def computed(op: Ops, dtype: DType, device: str, *given: np.ndarray,
             result: DType | None = None) -> np.ndarray:
    """What an operation gives for all elements: as vectors, and number by number."""
    ast = elementwise(op, dtype, given[0].size, len(given), result)
    outs = []
    for noopt in (0, 1):
        outs.append(np.zeros(given[0].size, ast.src[0].dtype.numpy))
        with Context(NOOPT=noopt):
            kb.run(ast, outs[-1], *given, device=device)
    assert outs[0].tobytes() == outs[1].tobytes(), op.name
    return outs[0]


# Meaning


@verifies("kernel.scope.loops")
def test_a_value_outside_of_its_loops_is_refused() -> None:
    i, j = new_range(4, RangeKind.GLOBAL), new_range(4, RangeKind.LOOP)
    for ast in (kb.kernel(store(param(0), i, load(param(1), j)), prefix=(i,)),
                kb.kernel(store(param(0), i, load(param(1), i))),
                kb.kernel(store(param(0), i, reduce(Ops.ADD, load(param(1), i), j)))):
        with pytest.raises(GraphError, match="outside"):
            verify_kernel(ast)


@verifies("kernel.node.known")
def test_other_nodes_are_refused() -> None:
    i = new_range(4, RangeKind.GLOBAL)
    for value in (UOp(Ops.REDUCE, FLOAT, (load(param(1), i), i), Ops.SUB),
                  UOp(Ops.DETACH, FLOAT, (load(param(1), i),))):
        with pytest.raises(GraphError):
            verify_kernel(kb.kernel(store(param(0), i, value), prefix=(i,)))


@verifies("kernel.scope.loops")
def test_a_reduction_does_not_depend_on_what_it_reduces() -> None:
    i, k = new_range(3, RangeKind.GLOBAL), new_range(5, RangeKind.REDUCE)
    total = reduce(Ops.ADD, load(param(1), flat((i, 5), (k, 1))), k)
    known = Analysis(kb.kernel(store(param(0), i, total), prefix=(i,)))
    assert known.loops(known.free[total]) == (i,)
    assert known.loops(known.free[total.src[0]]) == (i, k)


@on_each_processor
@verifies("kernel.order.stores")
def test_stores_take_effect_in_order(device: str) -> None:
    """A stage reads what the stages before it stored, also through an argument."""
    i, j, k = new_range(3, RangeKind.GLOBAL), new_range(4, RangeKind.LOOP), new_range(
        4, RangeKind.REDUCE)
    j2 = new_range(4, RangeKind.LOOP)
    out = param(0, INT)
    first = store(out, flat((i, 4), (j, 1)), load(param(1, INT), flat((i, 4), (j, 1))), j)
    total = reduce(Ops.ADD, load(out, flat((i, 4), (k, 1))), k)
    second = store(out, flat((i, 4), (j2, 1)), total, j2)
    given, result = np.arange(12, dtype=np.int32), np.zeros(12, np.int32)
    kb.run(kb.kernel(first, second, prefix=(i,)), result, given, device=device)
    assert result.tolist() == np.repeat(given.reshape(3, 4).sum(1), 4).tolist()


@on_each_processor
@verifies("kernel.order.stores")
def test_what_was_read_before_a_store_is_read_again(device: str) -> None:
    """The same expression in front of a store to its memory and behind it."""
    total, j = param(0, INT), new_range(3, RangeKind.LOOP)
    value = kb.apply(Ops.ADD, load(total, 0), kb.number(INT, 5))
    ast = kb.kernel(store(param(1, INT), j, value, j), store(total, 0, value),
                    store(param(2, INT), j, value, j))
    outs = [np.full(count, 7, np.int32) for count in (1, 3, 3)]
    kb.run(ast, *outs, device=device)
    assert [out.tolist() for out in outs] == [[12], [12] * 3, [17] * 3]


@on_each_processor
@verifies("kernel.order.stores")
def test_a_value_is_read_before_its_memory_is_overwritten(device: str) -> None:
    i = new_range(37, RangeKind.GLOBAL)
    old = load(param(0, INT), i)
    ast = kb.kernel(store(param(0, INT), i, kb.apply(Ops.ADD, old, kb.number(INT, 1))),
                    prefix=(i,))
    state = np.arange(37, dtype=np.int32)
    kb.run(ast, state, device=device)
    assert state.tolist() == list(range(1, 38))


@on_each_processor
@verifies("kernel.local.own")
def test_a_local_belongs_to_one_iteration(device: str) -> None:
    given = np.random.default_rng(0).standard_normal((19, 33)).astype(np.float32)
    out = np.zeros_like(given)
    kb.run(kb.softmax(19, 33), out, given, device=device)
    wanted = np.exp(given - given.max(1, keepdims=True))
    np.testing.assert_allclose(out, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


@on_each_processor
@verifies("kernel.local.own")
def test_a_local_may_be_large(device: str) -> None:
    """More than stands on a stack."""
    size = 50_000
    i, j, k = new_range(2, RangeKind.GLOBAL), new_range(size, RangeKind.LOOP), new_range(
        size, RangeKind.REDUCE)
    buffer = kb.local(0, size, INT)
    ast = kb.kernel(store(buffer, j, load(param(1, INT), flat((i, size), (j, 1))), j),
                    store(param(0, INT), i, reduce(Ops.ADD, load(buffer, k), k)), prefix=(i,))
    given, out = np.arange(2 * size, dtype=np.int32), np.zeros(2, np.int32)
    kb.run(ast, out, given, device=device)
    assert out.tolist() == given.reshape(2, size).sum(1, dtype=np.int32).tolist()


@verifies("kernel.local.own")
def test_a_local_stored_after_it_was_read_is_refused() -> None:
    j, j2, k = (new_range(4, RangeKind.LOOP) for _ in range(3))
    buffer = kb.local(0, 4)
    with pytest.raises(GraphError, match="LOCAL"):
        verify_kernel(kb.kernel(store(buffer, j, load(param(1), j), j),
                                store(param(0), j2, load(buffer, j2), j2),
                                store(buffer, k, load(param(1), k), k)))


@on_each_processor
@verifies("kernel.access.gated")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_a_load_that_is_not_valid_is_zero(device: str, dtype: DType) -> None:
    """Addresses far outside: reading them would crash."""
    i = new_range(64, RangeKind.GLOBAL)
    far = symbolic.mul(symbolic.sub(i, 32), 1 << 40)
    near = symbolic.less_than(symbolic.sub(i, 32), 1)
    valid = symbolic.logical_and(near, symbolic.less_than(31, i))
    given = kb.from_host(np.array([1.0]), dtype)
    out = kb.from_host(np.full(64, 3.0), dtype)
    kb.run(kb.kernel(store(param(0, dtype), i, load(param(1, dtype), far, valid)), prefix=(i,)),
           out, given, device=device)
    assert (kb.to_host(out, dtype) == (np.arange(64) == 32)).all()


@on_each_processor
@verifies("kernel.access.gated")
def test_an_empty_argument_may_stand_behind_a_gate(device: str) -> None:
    i = new_range(5, RangeKind.GLOBAL)
    out = np.ones(5, np.float32)
    kb.run(kb.kernel(store(param(0), i, load(param(1), i, FALSE)), prefix=(i,)),
           out, np.zeros(0, np.float32), device=device)
    assert (out == 0).all()


@on_each_processor
@verifies("kernel.access.gated")
def test_a_store_that_is_not_valid_changes_nothing(device: str) -> None:
    i = new_range(20, RangeKind.GLOBAL)
    ast = kb.kernel(store(param(0, INT), i, kb.number(INT, 7), valid=symbolic.less_than(i, 5)),
                    prefix=(i,))
    out = np.zeros(20, np.int32)
    kb.run(ast, out, device=device)
    assert out.tolist() == [7] * 5 + [0] * 15


@pytest.mark.slow
@on_each_processor
@verifies("kernel.reduce.empty")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_a_reduction_of_nothing(device: str, dtype: DType) -> None:
    for op, wanted in ((Ops.ADD, 0), (Ops.MUL, 1), (Ops.MAXIMUM, dtype.min),
                       (Ops.MINIMUM, dtype.max)):
        k = new_range(0, RangeKind.REDUCE)
        out = kb.from_host(np.full(1, 3.0), dtype)
        kb.run(kb.kernel(store(param(0, dtype), 0, reduce(op, load(param(1, dtype), k), k))),
               out, out.copy(), device=device)
        assert kb.to_host(out, dtype)[0] == wanted


@on_each_processor
@verifies("kernel.half.wide")
@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
def test_half_types_accumulate_in_float32(device: str, dtype: DType) -> None:
    """Ones after a number to which the type cannot add one: its accumulator would not move."""
    big, wanted = {dtypes.float16: (2048, 6144), dtypes.bfloat16: (256, 4352)}[dtype]
    values = np.where(np.arange(4096) == 0, big, 1)
    for noopt in (0, 1):
        k = new_range(4096, RangeKind.REDUCE)
        given, out = kb.from_host(values.astype(float), dtype), kb.from_host(np.zeros(1), dtype)
        ast = kb.kernel(store(param(0, dtype), 0, reduce(Ops.ADD, load(param(1, dtype), k), k)))
        with Context(NOOPT=noopt):
            kb.run(ast, out, given, device=device)
        assert kb.to_host(out, dtype)[0] == wanted


@on_each_processor
@verifies("kernel.half.wide")
@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
def test_half_types_round_after_every_operation(device: str, dtype: DType) -> None:
    """(big + 1) - big is 0 if the sum was rounded."""
    big = {dtypes.float16: 2048.0, dtypes.bfloat16: 256.0}[dtype]
    i = new_range(8, RangeKind.GLOBAL)
    x = load(param(1, dtype), i)
    value = kb.apply(Ops.SUB, kb.apply(Ops.ADD, x, kb.number(dtype, 1.0)), x)
    for noopt in (0, 1):
        out = kb.from_host(np.ones(8), dtype)
        with Context(NOOPT=noopt):
            kb.run(kb.kernel(store(param(0, dtype), i, value), prefix=(i,)), out,
                   kb.from_host(np.full(8, big), dtype), device=device)
        assert (kb.to_host(out, dtype) == 0).all()


def floor_divide(one: np.ndarray, two: np.ndarray, dtype: DType) -> list[tuple[int, int]]:
    """Quotient and remainder with Python's numbers, wrapped to the type."""
    bits = 8 * dtype.itemsize
    found = []
    for a, b in zip(one.tolist(), two.tolist(), strict=True):
        quotient, remainder = divmod(a, b) if b else (0, 0)
        quotient &= (1 << bits) - 1
        if dtype.kind == "i" and quotient >> (bits - 1):
            quotient -= 1 << bits
        found.append((quotient, remainder))
    return found


@on_each_processor
@verifies("kernel.integer.value")
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integer_quotients_and_remainders(device: str, dtype: DType) -> None:
    one, two = pairs(dtype)
    wanted = floor_divide(one, two, dtype)
    assert computed(Ops.FLOORDIV, dtype, device, one, two).tolist() == [q for q, _ in wanted]
    assert computed(Ops.FLOORMOD, dtype, device, one, two).tolist() == [r for _, r in wanted]


@on_each_processor
@verifies("kernel.integer.value")
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_shifts_by_the_width_and_more(device: str, dtype: DType) -> None:
    one, two = pairs(dtype)
    bits = 8 * dtype.itemsize
    inside = (two >= 0) & (two.astype(np.float64) < bits)
    safe = np.where(inside, two, 0).astype(dtype.numpy)
    left = np.where(inside, np.left_shift(one, safe), 0)
    beyond = np.where(one < 0, -1, 0).astype(dtype.numpy)
    right = np.where(inside, np.right_shift(one, safe), beyond)
    assert (computed(Ops.SHL, dtype, device, one, two) == left).all()
    assert (computed(Ops.SHR, dtype, device, one, two) == right).all()


@on_each_processor
@verifies("kernel.integer.value")
def test_arithmetic_of_bools(device: str) -> None:
    one, two = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    rules: dict[Ops, Callable[[int, int], int]] = {
        Ops.ADD: lambda a, b: a + b, Ops.SUB: lambda a, b: a - b, Ops.MUL: lambda a, b: a * b,
        Ops.MAXIMUM: max, Ops.MINIMUM: min, Ops.FLOORDIV: lambda a, b: a // b if b else 0,
        Ops.FLOORMOD: lambda a, b: a % b if b else 0}
    for op, rule in rules.items():
        wanted = [rule(int(a), int(b)) != 0 for a, b in zip(one, two, strict=True)]
        assert computed(op, dtypes.bool, device, one, two).tolist() == wanted, op.name


@on_each_processor
@verifies("kernel.integer.value")
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integer_powers(device: str, dtype: DType) -> None:
    values = [v for v in (-3, -2, -1, 0, 1, 2, 5) if v >= int(dtype.min)]
    one, two = (np.array(side, dtype.numpy) for side in zip(*itertools.product(values, values),
                                                           strict=True))
    bits = 8 * dtype.itemsize
    wanted = []
    for a, b in zip(one.tolist(), two.tolist(), strict=True):
        exact = a ** b if b >= 0 else {1: 1, -1: a if b % 2 else 1}.get(a, 0)
        wanted.append(np.array(exact % (1 << bits), np.uint64).astype(dtype.numpy))
    assert computed(Ops.POW, dtype, device, one, two).tolist() == [int(w) for w in wanted]


@pytest.mark.slow
@on_each_processor
@verifies("conventions.integers.exact")
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integers_wrap_around(device: str, dtype: DType) -> None:
    one, two = pairs(dtype)
    with np.errstate(all="ignore"):
        for op, rule in ((Ops.ADD, np.add), (Ops.SUB, np.subtract), (Ops.MUL, np.multiply),
                         (Ops.AND, np.bitwise_and), (Ops.OR, np.bitwise_or),
                         (Ops.XOR, np.bitwise_xor), (Ops.MAXIMUM, np.maximum)):
            assert (computed(op, dtype, device, one, two) == rule(one, two)).all(), op.name
        assert (computed(Ops.NEG, dtype, device, one) == -one).all()


@on_each_processor
@verifies("conventions.nan.propagate")
@pytest.mark.parametrize("dtype", [d for d in ALL if d.kind == "f"], ids=lambda d: d.name)
def test_nan_wins(device: str, dtype: DType) -> None:
    one, two = pairs(dtype)
    a, b = kb.to_host(one, dtype), kb.to_host(two, dtype)
    for op, rule in ((Ops.MAXIMUM, np.maximum), (Ops.MINIMUM, np.minimum)):
        found = kb.to_host(computed(op, dtype, device, one, two), dtype)
        assert np.array_equal(found, rule(a, b), equal_nan=True)
        k = new_range(one.size, RangeKind.REDUCE)
        out = one[:1].copy()
        kb.run(kb.kernel(store(param(0, dtype), 0, reduce(op, load(param(1, dtype), k), k))),
               out, one, device=device)
        assert np.isnan(kb.to_host(out, dtype)[0])


# Cost


@verifies("kernel.estimate.operations")
def test_operations_and_bytes_are_counted() -> None:
    assert estimate(kb.matmul(8, 16, 32)).operations == 2 * 8 * 16 * 32
    assert estimate(kb.matmul(8, 16, 32)).bytes == 4 * (8 * 16 + 8 * 32 + 32 * 16)
    rows = 10
    # a difference and an exponential, a maximum, a sum and a quotient for every element
    assert estimate(kb.softmax(rows, 100)).operations == 5 * rows * 100
    i, k = new_range(6, RangeKind.GLOBAL), new_range(3, RangeKind.REDUCE)
    window = reduce(Ops.ADD, load(param(1), symbolic.add(i, k)), k)
    assert estimate(kb.kernel(store(param(0), i, window), prefix=(i,))).bytes == 4 * (6 + 8)


@verifies("kernel.estimate.operations")
def test_the_cost_follows_the_variables() -> None:
    variable = symbolic.Variable("n", 1, 100).uop
    i = new_range(variable, RangeKind.GLOBAL)
    value = kb.apply(Ops.MUL, load(param(1), i), load(param(1), i))
    ast = kb.kernel(store(param(0), i, value), prefix=(i,), variables=(variable,))
    assert estimate(ast, {variable: 7}).operations == 7
    assert estimate(ast).operations == 100
    assert estimate(optimize(ast), {variable: 7}).operations == 7


# Steps
