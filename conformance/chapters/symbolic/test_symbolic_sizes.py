"""Sizes that depend on bound variables: numbers, keys, plans, and random programs."""
from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from conformance.chapters.symbolic.symbolic_programs import GREATEST, Side, draw_program, inputs_of
from conformance.oracle.checker import check
from conformance.trace import verifies
from impl import Context, Tensor, Variable, symbolic
from impl.errors import AxisError, ShapeError, VariableError
from impl.schedule import schedule_cache
from impl.symbolic import Size

N, M = Variable("n", 0, 20), Variable("m", 0, 20)


def sizes(n: int, m: int) -> tuple[Any, Any]:
    """n and m as sizes."""
    return symbolic.as_size(N.bind(n)), symbolic.as_size(M.bind(m))


def values(size: Any, n: int, m: int) -> int:
    """What a size would be for other values."""
    if not isinstance(size, Size):
        return int(size)
    expression = symbolic.unbound(size.expression)
    return symbolic.evaluate(expression, {N.uop: n, M.uop: m})


OTHERS = [(0, 0), (1, 1), (1, 5), (7, 2), (20, 20), (3, 19)]


# Numbers -----------------------------------------------------------------------------------


@verifies("symbolic.size.arithmetic")
def test_arithmetic_holds_for_all_values() -> None:
    formulas: list[Any] = [
        lambda n, m: n + 1, lambda n, m: 3 - n, lambda n, m: 2 * n + m, lambda n, m: n * m,
        lambda n, m: (n + 1) * (m + 2), lambda n, m: (n + m) * (n - m), lambda n, m: -n + m * 3,
        lambda n, m: (n * 6 + 4) // 2, lambda n, m: (n + 7) // 4, lambda n, m: (n + 7) % 4,
        lambda n, m: -(-n // 3), lambda n, m: 100 // (n + 1), lambda n, m: (n + m) % (m + 1),
        lambda n, m: n * m * 6 // (2 * (m + 1)), lambda n, m: n + 1 - n,
        lambda n, m: (n * 4 + m) % 4, lambda n, m: 17 % (n + 3), lambda n, m: sum([n, m, n], 2)]
    for formula in formulas:
        now = formula(*sizes(4, 9))
        assert now == formula(4, 9) and isinstance(now, int)
        for n, m in OTHERS:
            assert values(now, n, m) == formula(n, m)


@verifies("symbolic.size.arithmetic")
def test_what_does_not_depend_on_a_variable_is_an_int() -> None:
    n, m = sizes(3, 2)
    plain: list[Any] = [n + 1 - n, 8 * n // (2 * n), (n + 1) * (n - 1) - n * n, n * m - m * n,
                        (6 * n * m) // (3 * m * n), 4 * n % 2, n * 0]
    assert plain == [1, 4, -1, 0, 2, 0, 0]
    assert all(type(each) is int for each in plain)


@verifies("symbolic.size.arithmetic")
def test_equal_polynomials_are_one_expression() -> None:
    n, m = sizes(3, 2)
    pairs = [((n + 1) * (m + 1), n * m + m + n + 1), (n * m * 2, m * (n + n)),
             ((n + m) * (n + m), n * n + 2 * n * m + m * m)]
    for one, other in pairs:
        assert one == other
        for values_now in OTHERS:
            assert values(one, *values_now) == values(other, *values_now)
    assert (n * m).expression is (m * n).expression
    assert ((n + 1) * 4).expression is (4 * n + 4).expression


@verifies("symbolic.size.compared")
def test_equal_today_is_not_equal() -> None:
    t = Tensor(np.zeros((9, 2), np.float32)).realize()
    four = {t[:4].uop, t[: N.bind(4)].uop, t[: M.bind(4)].uop, t[: N.bind(4)].uop}
    assert len(four) == 3
    assert t[: N.bind(4)].uop is not t[: N.bind(5)].uop
    assert t[N.bind(8) // 2].uop is not t[N.bind(9) // 2].uop  # 4 for both values


@verifies("symbolic.size.compared")
def test_a_size_is_an_int() -> None:
    n, _ = sizes(4, 0)
    assert n == 4 and n in (3, 4) and [0] * n == [0] * 4 and f"{n}" == "4" and n != 5 and n < 5
    assert pickle.loads(pickle.dumps(n)).expression is n.expression
    node = Tensor(np.zeros((9, 2), np.float32))[: N.bind(4)].uop
    assert node.shape == (4, 2) and isinstance(node.shape, tuple)


@verifies("symbolic.size.compared")
def test_a_bound_variable_computes() -> None:
    n = N.bind(7)
    assert [n + 1, 1 + n, n - 2, 9 - n, n * 3, 3 * n, n // 2, n % 4, -n] == [
        8, 8, 5, 2, 21, 21, 3, 3, -7]
    assert (Tensor([2.0]) * n).tolist() == (n * Tensor([2.0])).tolist() == [14.0]
    with pytest.raises(VariableError, match="n"):
        Tensor.ones(N.uop, 2)


# In a plan ---------------------------------------------------------------------------------


@verifies("symbolic.size.compared")
def test_sizes_in_a_plan() -> None:
    n, m = (symbolic.extent_of(v.uop) for v in (N, M))
    assert n != m and n == symbolic.extent_of(N.uop) and n != 20 and n != 1 and n != 0 and bool(n)
    assert (n * 4, 3) == (n + n * 3, 3) and (n * 4, 3) != (m * 4, 3) and hash(n * 2) == hash(n + n)
    one_or_none = symbolic.extent_of(Variable("k", 0, 1).uop)
    assert one_or_none != 1 and one_or_none != 0


@verifies("symbolic.size.greatest")
def test_the_number_of_a_size_in_a_plan() -> None:
    n, m = (symbolic.extent_of(v.uop) for v in (N, M))
    for size in (n, n + m, n * m, 30 - n, n // 3, (n + 1) * (m + 2), n * 2 - m):
        most = max(values(size, *each) for each in OTHERS)
        assert symbolic.plain(size) >= most


# Programs ----------------------------------------------------------------------------------

CASES = [(3, 5), (1, 1), (GREATEST, 2), (1, GREATEST), (5, 5)]


def compare(seed: int, least: int = 1, cases: Any = CASES) -> None:
    """One random program for several values, with NumPy, with one plan."""
    program, arrays = draw_program(seed, least), inputs_of(seed)
    bound = {name: Variable(name, *limits) for name, limits in program.variables.items()}
    inputs = {name: Tensor(array).realize() for name, array in arrays.items()}
    schedule_cache.clear()
    for n, m in cases:
        numbers = {"n": n, "m": m}
        copies = {name: array.copy() for name, array in arrays.items()}
        wanted = np.asarray(program.run(Side(np, copies), numbers), np.float32)
        nodes = {name: bound[name].bind(value) for name, value in numbers.items()}
        found = program.run(Side(Tensor, dict(inputs)), nodes)
        assert tuple(found.shape) == wanted.shape, f"{program} with {numbers}"
        np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-3, err_msg=f"{program}")
    assert (len(schedule_cache), schedule_cache.hits) == (1, len(cases) - 1), str(program)
    kernels = [kernel for plan in schedule_cache.plans.values() for kernel in plan.kernels]
    programs = [program for plan in schedule_cache.plans.values()
                for program in plan.programs or ()]
    assert len(kernels) == len(programs)


@verifies("symbolic.size.general", observe="cache")
@verifies("ranges.index.exact+2")
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_on_the_reference(seed: int) -> None:
    with Context(DEVICE="REFERENCE", SPEC=1, POISON=1):
        compare(seed)


@pytest.mark.device("CPU")
@verifies("lowering.loop.extent")
@pytest.mark.parametrize("seed", range(30, 40))
def test_random_programs_compiled(seed: int) -> None:
    with Context(DEVICE="CPU", POISON=1):
        compare(seed)


@verifies("symbolic.size.general", observe="cache")
@pytest.mark.parametrize("setting", ["NOOPT", "NO_MEMORY_PLANNER"])
def test_random_programs_with_settings(setting: str) -> None:
    for seed in range(40, 46):
        with Context(**{"DEVICE": "REFERENCE", setting: 1}):
            compare(seed)


@verifies("symbolic.size.general", observe="cache")
def test_unfused_programs() -> None:
    for seed in range(46, 52):
        with Context(DEVICE="REFERENCE", FUSE=0):
            compare(seed)


@verifies("symbolic.size.general", observe="cache")
def test_variables_from_0() -> None:
    t = Tensor(np.arange(12, dtype=np.float32).reshape(6, 2)).realize()
    zero = Variable("zero", 0, 6)
    schedule_cache.clear()
    for value in (2, 0, 6, 1):
        top = t[: zero.bind(value)]
        found = (top + 1).cat(t[:1]).sum(0)
        wanted = np.concatenate([t.numpy()[:value] + 1, t.numpy()[:1]]).sum(0)
        np.testing.assert_array_equal(found.numpy(), wanted)
        assert Tensor.ones(zero.bind(value), 3).numpy().shape == (value, 3)
    assert len(schedule_cache) == 2


@verifies("symbolic.size.general", observe="cache")
def test_one_plan_from_1_to_the_greatest() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 4)).astype(np.float32)
    t, n = Tensor(a).realize(), Variable("n", 1, 8)
    programs: list[tuple[Any, Any]] = [
        (lambda x: x.softmax(0), lambda x: np.exp(x) / np.exp(x).sum(0)),
        (lambda x: x.mean(0), lambda x: x.mean(0)),
        (lambda x: x - x.mean(0, keepdim=True), lambda x: x - x.mean(0, keepdims=True)),
        (lambda x: x @ x.T, lambda x: x @ x.T),
        (lambda x: x.argmax(0), lambda x: x.argmax(0)),
        (lambda x: x.var(0, correction=0), lambda x: x.var(0)),
        (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
        (lambda x: x.sort(0)[0], lambda x: np.sort(x, 0)),
        (lambda x: x * x.shape[0], lambda x: x * x.shape[0]),
        (lambda x: x.unsqueeze(1) + x.unsqueeze(0), lambda x: x[:, None] + x[None]),
        (lambda x: Tensor.arange(x.shape[0]), lambda x: np.arange(x.shape[0])),
        (lambda x: x.tril(), np.tril)]
    for program, reference in programs:
        schedule_cache.clear()
        for value in (3, 1, 8, 2):
            found, wanted = program(t[: n.bind(value)]), reference(a[:value])
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-5)
        assert len(schedule_cache) == 1


@verifies("symbolic.size.general")
def test_gradients_through_sizes() -> None:
    a, n = np.arange(12, dtype=np.float32).reshape(6, 2), Variable("n", 1, 6)
    schedule_cache.clear()
    for value in (2, 6, 1):
        t = Tensor(a, requires_grad=True)
        x = t[: n.bind(value)]
        ((x * x).mean(0) + x.reshape(n.bind(value), 1, 2).expand(n.bind(value), 3, 2).sum(
            (0, 1))).sum().backward()
        wanted = np.zeros_like(a)
        wanted[:value] = 2 * a[:value] / value + 3
        assert t.grad is not None
        np.testing.assert_allclose(t.grad.numpy(), wanted, 1e-5)
    assert len(schedule_cache) == 1


# Bounds ------------------------------------------------------------------------------------


@verifies("tensor.index.elements")
def test_slices_are_those_of_python() -> None:
    a = np.arange(20, dtype=np.float32).reshape(10, 2)
    t, wide = Tensor(a).realize(), Variable("wide", -15, 15)
    for value in range(-15, 16):
        v = wide.bind(value)
        pairs = [(t[:v], a[:value]), (t[v:], a[value:]), (t[v:v + 3], a[value:value + 3]),
                 (t[v::-1], a[value::-1]), (t[:v:2], a[:value:2]), (t[:v:-1], a[:value:-1]),
                 (t[-v:], a[-value:]), (t[2:v], a[2:value])]
        for found, wanted in pairs:
            assert found.shape == wanted.shape
            np.testing.assert_array_equal(found.numpy(), wanted)


@verifies("tensor.index.elements")
def test_bounds_are_checked_by_value() -> None:
    t, v = Tensor(np.zeros((10, 2), np.float32)).realize(), Variable("v", 0, 30)
    assert t.shrink(((0, v.bind(10)), None)).shape == (10, 2)
    assert t[v.bind(9)].shape == (2,)
    wrongs: list[Any] = [
                  lambda: t.shrink(((0, v.bind(11)), None)), lambda: t.reshape(v.bind(3), 4),
                  lambda: t.shrink(((v.bind(5), 4), None)), lambda: t.expand(v.bind(3), 2),
                  lambda: t[: v.bind(3)] + t[: v.bind(4)], lambda: t.narrow(0, v.bind(9) + 0, 2)]
    for wrong in wrongs:
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(AxisError):
        t[v.bind(10)]
    with pytest.raises(VariableError):
        v.bind(31)


@verifies("tensor.index.elements")
def test_view_writes_with_three_variables() -> None:
    a = np.zeros((12, 3), np.float32)
    t = Tensor(a).realize()
    i, j, k = (Variable(name, 0, 11) for name in "ijk")
    row = Tensor([[1.0, 2.0, 3.0]]).realize()
    schedule_cache.clear()
    for x, y, z in [(0, 5, 9), (9, 5, 0), (3, 3, 4), (11, 0, 0), (2, 10, 11)]:
        first, second, third = i.bind(x), j.bind(y), k.bind(z)
        t[first:first + 1] = row
        t[second] = t[third] * 2 + 1
        a[x:x + 1] = [[1, 2, 3]]
        a[y] = a[z] * 2 + 1
        np.testing.assert_array_equal(t.numpy(), a)
    assert len(schedule_cache) == 1


@verifies("tensor.index.elements")
def test_a_cache_of_keys_and_values() -> None:
    rng = np.random.default_rng(3)
    heads, most, width = 2, 9, 4
    at = Variable("at", 0, most - 1)
    keys = Tensor.zeros(heads, most, width).contiguous().realize()
    held = np.zeros((heads, most, width), np.float32)
    new = rng.standard_normal((most, heads, 1, width)).astype(np.float32)
    given = [Tensor(each).realize() for each in new]
    schedule_cache.clear()
    for step in range(most):
        n = at.bind(step)
        keys[:, n:n + 1] = given[step]
        seen = keys[:, :n + 1]
        found = (given[step] @ seen.transpose(1, 2)).softmax(-1) @ seen
        held[:, step:step + 1] = new[step]
        weights = np.exp(new[step] @ held[:, :step + 1].transpose(0, 2, 1))
        wanted = weights / weights.sum(-1, keepdims=True) @ held[:, :step + 1]
        np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-5)
    assert (len(schedule_cache), schedule_cache.hits) == (1, most - 1)


# Keys, memory and results ------------------------------------------------------------------


@verifies("caching.key.circumstances", observe="cache")
def test_values_of_sizes_are_not_in_the_key() -> None:
    t, n = Tensor(np.arange(20, dtype=np.float32)).realize(), Variable("n", 1, 9)
    schedule_cache.clear()
    for value in (3, 1, 9):
        part = (t[n.bind(value):n.bind(value) * 2] + 1).realize()  # its buffer has `value` elements
        assert (part * 2).sum().item() == 2 * sum(range(value + 1, 2 * value + 1))
    assert (len(schedule_cache), schedule_cache.hits) == (2, 4)


@verifies("caching.key.circumstances", observe="cache")
def test_what_is_in_the_key_of_a_size() -> None:
    t = Tensor(np.arange(20, dtype=np.float32)).realize()
    n, m, wide = Variable("n", 1, 9), Variable("m", 1, 9), Variable("n", 1, 19)
    programs: list[Any] = [
        lambda: t[: n.bind(4)] + 1, lambda: t[:4] + 1, lambda: t[: n.bind(4) + 1] + 1,
        lambda: t[: n.bind(4) * 2] + 1, lambda: t[: wide.bind(4)] + 1, lambda: t[n.bind(4):] + 1,
        lambda: t[: n.bind(4)] + t[: m.bind(4)], lambda: t[: n.bind(4)] + t[: n.bind(4)] * 2]
    schedule_cache.clear()
    for number, program in enumerate(programs):
        program().realize()
        assert len(schedule_cache) == number + 1
    (t[: m.bind(7)] + 1).realize()  # another name for the first program
    assert len(schedule_cache) == len(programs)


@verifies("caching.values.each")
def test_values_follow_their_slots() -> None:
    t = Tensor(np.arange(40, dtype=np.float32)).realize()
    i, j, k = (Variable(name, 0, 30) for name in "ijk")
    for x, y, z in [(0, 10, 20), (20, 10, 0), (5, 30, 7), (30, 5, 7)]:
        for a, b, c in [(i, j, k), (k, i, j), (j, k, i)]:
            v = a.bind(x), b.bind(y), c.bind(z)
            found = t[v[0]:v[0] + 2] + t[v[1]:v[1] + 2] * 100 + t[v[2]:v[2] + 2] * 10000
            assert found.tolist() == [x + y * 100 + z * 10000 + d * 10101 for d in (0, 1)]


@verifies("caching.values.each")
def test_two_values_for_one_name_are_refused() -> None:
    t = Tensor(np.zeros(20, np.float32)).realize()
    narrow, wide = Variable("n", 1, 9), Variable("n", 1, 19)
    kept = t[: narrow.bind(4)].contiguous().realize()
    for total in (t[: narrow.bind(2)].sum() + t[: narrow.bind(3)].sum(),
                  t[: narrow.bind(2)].sum() + narrow.bind(3),
                  kept.sum() + t[: narrow.bind(5)].sum(),
                  t[: narrow.bind(2)].sum() + t[: wide.bind(3)].sum()):
        with pytest.raises(VariableError, match="n: is bound to"):
            total.realize()


def unfused(t: Tensor, count: Any) -> Tensor:
    """Several temporaries, alive together, whose sizes depend on a variable."""
    x = t[:count]
    first = (x * 2).contiguous()
    second = (first + x).contiguous()
    return (first * second).contiguous() + second


@verifies("memory.size.greatest", observe="memory")
def test_temporaries_fit_the_greatest_value() -> None:
    a, n = np.arange(3000, dtype=np.float32), Variable("n", 1, 3000)
    with Context(FUSE=0, DEVICE="REFERENCE"):
        t = Tensor(a).realize()
        schedule_cache.clear()
        for value in (2, 3000, 700, 1):
            x = a[:value]
            np.testing.assert_array_equal(unfused(t, n.bind(value)).numpy(),
                                          x * 2 * (x * 3) + x * 3)
        assert len(schedule_cache) == 1
        found = unfused(t, n.bind(2)).schedule_document()
    assert all(place["bytes"] >= 4 * 3000 for place in found["memory"]["placements"])


@verifies("realize.size.actual+2")
@verifies("realize.size.actual+2", observe="cache")
def test_results_have_the_size_of_their_call() -> None:
    t, n = Tensor(np.arange(10, dtype=np.float32)).realize(), Variable("n", 0, 10)
    schedule_cache.clear()
    for value in (4, 0, 10, 1):
        part = (t[: n.bind(value)] + 1).realize()
        assert part.shape == (value,) and part.uop.arg[0].size == value
        assert part.numpy().tolist() == list(range(1, value + 1))
        more = (part.reshape(1, -1).cat(part.reshape(1, -1)) * 2).realize()
        assert more.shape == (2, value) and more.numpy().shape == (2, value)
    assert len(schedule_cache) == 2


@verifies("realize.rescue.held+2")
def test_readers_with_other_values() -> None:
    at, t = Variable("at", 0, 9), Tensor(np.zeros(10, np.float32)).realize()
    a, sums, wanted = np.zeros(10, np.float32), [], []
    for step in range(6):
        n = at.bind(step)
        t[n:n + 1] = float(step + 1)
        a[step] = step + 1
        sums.append(t[:n + 1].sum())
        wanted.append(a[:step + 1].sum())
        if step % 2:
            t.realize()
        else:
            sums[-1].realize()
    assert [each.item() for each in sums] == wanted
    np.testing.assert_array_equal(t.numpy(), a)


@verifies("realize.rescue.held+2")
def test_readers_whose_values_are_not_the_writers() -> None:
    at, t = Variable("at", 1, 9), Tensor(np.arange(10, dtype=np.float32)).realize()
    sums = [(t[:at.bind(value)] * 2).sum() for value in (3, 5, 8, 2, 4, 6)]
    n = at.bind(7)
    t[n:n + 1] = 100.0
    assert t.tolist() == [0, 1, 2, 3, 4, 5, 6, 100, 8, 9]
    assert [each.item() for each in sums] == [6, 20, 56, 2, 12, 30]


@verifies("linear.variables.one-value")
def test_writes_at_two_values_of_a_variable_ask_for_a_realize() -> None:
    at, values = Variable("at", 0, 9), np.zeros(10, np.float32)
    for realized in (True, False):
        t = Tensor(values).realize()
        for step in (3, 5):
            n = at.bind(step)
            t[n:n + 1] = float(step)
            if realized:
                t.realize()
        if realized:
            assert t.tolist() == [0, 0, 0, 3, 0, 5, 0, 0, 0, 0]
        else:
            with pytest.raises(VariableError, match="bound to 3 and to 5 .* realize what has"):
                t.tolist()


@verifies("schedule.document.complete", observe="schedule")
def test_documents_of_symbolic_programs_are_sound() -> None:
    n = Variable("n", 1, 10)
    for fuse in (0, 1):
        with Context(FUSE=fuse, DEVICE="REFERENCE"):
            t = Tensor(np.zeros((20, 4), np.float32)).realize()
            x = t[n.bind(3):n.bind(3) * 2]
            t[: n.bind(3)] = x + 1
            program = (x.softmax(0) @ t[: n.bind(3)].T).contiguous().sum(0) + n.bind(3)
            document = program.schedule_document(t)
            assert not check(document)
            assert program.explain(t)
            json.dumps(document)


# What is asked -----------------------------------------------------------------------------


@verifies("symbolic.size.watched")
def test_comparisons_are_noted() -> None:
    n, m = sizes(4, 9)
    asks: list[Any] = [lambda: n < 5, lambda: n <= 5, lambda: n > 5, lambda: n >= 5,
                       lambda: n == 5, lambda: n != 5, lambda: 5 > n, lambda: bool(n),
                       lambda: n < m, lambda: n == m, lambda: int(n), lambda: float(n),
                       lambda: n / 2, lambda: min(n, 7), lambda: n + 1 == m - 4]
    for ask in asks:
        with symbolic.watching() as noted:
            ask()
        assert len(noted) == 1, ask
        for condition, outcome in noted.items():
            now = {N.bind(4): 4, M.bind(9): 9}
            assert bool(symbolic.evaluate(condition, now)) is outcome


@verifies("symbolic.size.watched")
def test_what_always_holds_is_not_noted() -> None:
    n, _ = sizes(4, 9)
    with symbolic.watching() as noted:
        _ = n < 21, n >= 0, n == n, n * 2 == n + n, n + 1 == n, n + 1 > n
    assert not noted


@verifies("lowering.loop.extent")
def test_extents_are_computed() -> None:
    t, n = Tensor(np.arange(60, dtype=np.float32).reshape(20, 3)).realize(), Variable("n", 1, 9)
    for value in (1, 4, 9):
        v = n.bind(value)
        found = t[v:2 * v + 1].sum(0) + t[: (v + 1) // 2].sum(0)
        a = t.numpy()
        wanted = a[value:2 * value + 1].sum(0) + a[:(value + 1) // 2].sum(0)
        np.testing.assert_allclose(found.numpy(), wanted)


@verifies("symbolic.size.general")
def test_a_deep_chain_of_views() -> None:
    n = Variable("n", 1, 9).bind(4)
    t = Tensor(np.ones((10, 3), np.float32)).realize()[:n]
    for _ in range(200):
        t = (t + 1).reshape(n * 3).reshape(n, 3)
    assert t.numpy().tolist() == [[201.0] * 3] * 4


@verifies("effects.view-write.region")
def test_a_write_through_a_computed_view_beside_a_symbolic_size() -> None:
    """A plan of symbolic sizes is made from other nodes: the way of the write is among them."""
    for count in (2, 0, 3):
        x, other = Tensor([0, 1, 2, 3]).realize(), Tensor([5, 6, 7]).realize()
        back = x.flip(0)
        x.flip(0)[0:2] = Tensor([8, 9])
        back.realize()
        part = other[:Variable("n", 0, 3).bind(count)] + 1
        x.realize(part)
        assert x.tolist() == [0, 1, 9, 8] and back.tolist() == [3, 2, 1, 0]
        assert part.tolist() == [6, 7, 8][:count]


@verifies("symbolic.variable.refused")
@pytest.mark.parametrize("use", [
    lambda x, n: n + 1, lambda x, n: 2 * n, lambda x, n: n < 3, lambda x, n: int(n),
    lambda x, n: x + n, lambda x, n: x * n, lambda x, n: n - x, lambda x, n: x[n],
    lambda x, n: x[:n], lambda x, n: x[n:], lambda x, n: x.reshape(n, 2), lambda x, n: x.expand(n),
    lambda x, n: x.pad(((0, n),)), lambda x, n: Tensor.ones(n, 3), lambda x, n: Tensor.arange(n),
    lambda x, n: n == 3, lambda x, n: 3 != n, lambda x, n: bool(n), lambda x, n: n ** 2,
    lambda x, n: 2 ** n, lambda x, n: abs(n), lambda x, n: divmod(7, n), lambda x, n: 1 << n,
    lambda x, n: n & 1, lambda x, n: round(n), lambda x, n: x == n, lambda x, n: x != n,
    lambda x, n: x ** n, lambda x, n: n ** x, lambda x, n: x.maximum(n), lambda x, n: x.clip(n),
    lambda x, n: x.int() & n, lambda x, n: (x > 1).where(n, x), lambda x, n: Tensor([1, n]),
    lambda x, n: x.masked_fill(x > 1, n), lambda x, n: x.assign(n),
    lambda x, n: x.__setitem__(0, n), lambda x, n: x.__setitem__(n, 0)])
def test_a_variable_without_a_value_is_refused(use: Any) -> None:
    """Also where the tensor stands first: it leaves what it does not know to the variable."""
    with pytest.raises(VariableError, match="steps has no value") as caught:
        use(Tensor([1.0, 2.0, 3.0, 4.0]), Variable("steps", 1, 4))
    assert "steps.bind" in caught.value.remedy


@verifies("symbolic.variable.refused")
def test_a_variable_can_be_told_from_others() -> None:
    steps = Variable("steps", 1, 4)
    assert steps in (None, "steps", steps) and steps not in {Variable("steps", 1, 4), None}


@verifies("choosing.step.legal+2")
@pytest.mark.parametrize("transposed", [False, True])
def test_a_run_says_how_many_rows_a_product_has(transposed: bool) -> None:
    """The softmax behind it makes the product one stage of several."""
    rows = Variable("rows", 1, 33)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(33, 65)).astype(np.float32)
    w = rng.normal(size=(65, 64)).astype(np.float32)
    one, two = Tensor(x), Tensor(w.T.copy()).T if transposed else Tensor(w)
    for count in (1, 8, 33):
        found = (one[:rows.bind(count)] @ two).softmax(-1).numpy()
        right = np.exp(x[:count].astype(np.float64) @ w)
        np.testing.assert_allclose(found, right / right.sum(-1, keepdims=True), 1e-3, 1e-6)
