"""Keys of plans, taken from graphs directly; and the table of plans. See spec/caching.md."""
from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import ROOT, verifies
from impl import Context, GlobalCounters, Tensor, TinyJit, Variable, caching, realize, settings
from impl.caching import PlanCache
from impl.effects import collect
from impl.errors import VariableError
from impl.schedule import schedule_cache

Key = tuple[Any, ...]


def numbers(*values: float, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.array(values, dtype)).realize()


def key(*tensors: Tensor, device: Key = ("REFERENCE",)) -> Key:
    """The key of the plan for some tensors that are not realized."""
    return caching.canonicalize(collect([t.uop for t in tensors]), device).key


def all_differ(*keys: Key) -> None:
    assert len(set(keys)) == len(keys)


@verifies("caching.key.alias", observe="cache")
def test_which_arguments_are_one_buffer() -> None:
    a, b, c = numbers(1, 2), numbers(3, 4), numbers(5, 6)
    all_differ(key(a + b + c), key(a + b + b), key(a + b + a), key(a + a + b), key(a + a + a))
    all_differ(key((a + 1) * (b + 1)), key((a + 1) * (a + 1)))


@verifies("caching.key.program", observe="cache")
@verifies("caching.key.short+2", observe="cache")
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("setting", [{}, {"FUSE": 0}, {"POISON": 1}])
def test_a_number_in_memory_is_not_any_memory(shape: tuple[int, ...],
                                              setting: dict[str, int]) -> None:
    """Its kernels compute it, whatever the memory holds that others have in its place."""
    operations: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.clone(), lambda t: -t, lambda t: t.cumsum(-1) if t.ndim else t + t]
    with Context(**setting):
        schedule_cache.clear()
        made, other = Tensor.full(shape, 3.0), Tensor(np.full(shape, 5, np.float32)).realize()
        for operation in operations:
            later = operation(made)
            keys = [key(later)]
            made.realize()  # the expression is held by `later`
            later.realize()
            np.testing.assert_array_equal(operation(other).numpy(), operation(
                Tensor(other.numpy())).numpy())
            made = Tensor.full(shape, 3.0)
            number = Tensor.full(shape, 7.0)
            wanted = operation(number)
            number.realize()
            all_differ(*keys, key(wanted), key(operation(other)))
            np.testing.assert_array_equal(wanted.numpy(), operation(
                Tensor(np.full(shape, 7, np.float32))).numpy())


@verifies("caching.key.alias", observe="cache")
@verifies("caching.key.program", observe="cache")
def test_a_graph_that_is_walked_once_has_the_same_key() -> None:
    """Nodes, buffers and rows, also where values in the middle are in memory already."""
    a, b = numbers(1, 2, 3, 4), numbers(5, 6, 7, 8)
    middle = (a * 2 + b).exp()
    waiting = middle + middle.reshape(2, 2).sum(0).expand(2).sum() * float("nan")
    middle.realize()
    graphs = [[a + b], [a + a, b * a], [waiting, a - 0.0], [(a + b).cumsum() * (a + b).max()],
              [Tensor.arange(4) + 1, Tensor.zeros(3).contiguous()], [a[b.cast("int32") % 4]]]
    written, bound = numbers(1, 2), Variable("walked", 0, 4).bind(3)
    reader, old = written * 2, Tensor(written.uop)
    written.assign(written + 1)
    there = a.to("CPU" if a.device == "REFERENCE" else "REFERENCE")
    graphs += [[written], [a * bound, a[:bound] + 1], [(a[:bound] * 3).realize() + 1], [there + 1]]
    for graph in graphs:
        roots = [t.uop for t in graph]
        walked, collected = caching.walk(roots), collect(roots)
        assert (walked.held, walked.rescued) == (collected.held, collected.rescued)
        assert (walked.roots, walked.nodes) == (collected.roots, collected.nodes)
        one, other = (caching.canonicalize(each, "CPU") for each in (walked, collected))
        assert (one.key, one.buffers, one.values) == (other.key, other.buffers, other.values)
    assert (reader.tolist(), old.tolist()) == ([2, 4], [1, 2])


@verifies("caching.key.short+2", observe="cache")
def test_short_keys_tell_apart_what_keys_tell_apart() -> None:
    """Of all pairs of single operations, on buffers that are some the same and some alike."""
    a, b, c = numbers(1, 2, 3, 4), numbers(5, 6, 7, 8), numbers(1, 2, 3, 4, dtype=np.int32)
    square, short = a.reshape(2, 2).contiguous().realize(), numbers(1, 2)
    one = [a + b, b + a, a + a, a * b, b * b, a + 1, b + 1, a + 2, a + 1.5, a * 0.0, a * -0.0,
           c + c, c + 1, c + True, a.exp(), b.exp(), square.exp(), square + square, short.exp(),
           a.sum(), square.sum(0), square.sum(1), square + 1, a.maximum(b),
           a.cast("int32"), c.cast("float32"), a.reshape(4, 1).contiguous(), square.flip(0)]
    found = []
    for tensor in one:
        said = caching.short_key(tensor.uop, "here")
        whole = caching.canonicalize(caching.walk([tensor.uop]), "here")
        assert said is None or said[1] == whole.buffers
        found.append((said and said[0], whole.key))
    assert sum(said is not None for said, _ in found) > 15
    for first, second in itertools.combinations(found, 2):
        if first[0] is not None and second[0] is not None:
            assert (first[0] == second[0]) is (first[1] == second[1])


@verifies("caching.key.short+2", observe="cache")
@verifies("caching.count.exact+2", observe="cache")
def test_what_a_short_key_finds_is_a_plan_of_the_cache() -> None:
    a, b = numbers(1, 2, 3), numbers(4, 5, 6)
    schedule_cache.clear()
    GlobalCounters.reset()
    for turn in range(4):
        assert (a + b).tolist() == [5, 7, 9], turn
    assert (schedule_cache.hits, schedule_cache.misses, len(schedule_cache)) == (3, 1, 1)
    assert (GlobalCounters.plan_hits, GlobalCounters.plan_misses) == (3, 1)
    assert ((a + a).tolist(), (b + a).tolist()) == ([2, 4, 6], [5, 7, 9])
    a.assign(a * 2).realize()
    assert (a + b).tolist() == [6, 9, 12]
    schedule_cache.clear()
    assert (a + b).tolist() == [6, 9, 12] and schedule_cache.misses == 1
    with Context(FUSE=0):
        assert (a + b).tolist() == [6, 9, 12] and schedule_cache.misses == 2


@verifies("caching.key.short+2", observe="cache")
def test_a_short_key_is_found_in_a_context_that_is_entered_again() -> None:
    """By the values of its settings, and never by those of others."""
    a, b = numbers(1, 2, 3), numbers(4, 5, 6)
    schedule_cache.clear()
    for noopt in (0, 1, 0, 1):
        with Context(NOOPT=noopt):
            assert (a + b).tolist() == [5, 7, 9]
    assert (len(schedule_cache), len(schedule_cache.short)) == (2, 2)
    assert (schedule_cache.hits, schedule_cache.misses) == (2, 2)


@verifies("caching.bound.kept")
def test_a_dropped_plan_is_not_found_by_its_short_key() -> None:
    cache: caching.PlanCache[str] = caching.PlanCache(2)
    for name in ("one", "two", "three"):
        cache.put((name,), f"plan {name}")
        cache.put_short((name, "short"), (name,))
        assert cache.get_short((name, "short")) == f"plan {name}"
    assert cache.get(("one",)) is None and cache.get_short(("one", "short")) is None
    assert cache.get(("three",)) == "plan three"


@verifies("caching.key.alias", observe="cache")
def test_one_buffer_in_two_shapes() -> None:
    x, other = numbers(1, 2, 3, 4), numbers(1, 2, 3, 4).reshape(2, 2).realize()
    view = Tensor(x.uop).reshape(2, 2).realize()
    all_differ(key(x.reshape(2, 2) + view), key(x.reshape(2, 2) + other))


@verifies("caching.key.circumstances")
def test_memory_that_holds_one_number_is_no_other_memory() -> None:
    other = Tensor([1.0, 2.0]).realize()
    for number in (5.0, 7.0):
        whole = Tensor.full((2,), number)
        less = -whole
        whole.realize()  # which the other one is made of
        assert less.tolist() == [-number] * 2
        assert (-other).tolist() == [-1.0, -2.0]


@verifies("caching.key.place+2", observe="cache")
def test_the_place_of_a_write_counts_though_its_view_was_computed() -> None:
    def written(view: Callable[[Tensor], Tensor]) -> Tensor:
        x = Tensor(np.arange(9, dtype=np.int32).reshape(3, 3)).realize()
        old = view(x)
        view(x).assign(Tensor([[10, 20, 30]]).reshape(old.shape).realize())
        old.realize()
        return x

    def first_row(x: Tensor) -> Tensor:
        return x[0:1]

    def last_row(x: Tensor) -> Tensor:
        return x.flip(0)[0:1]

    def last_column(x: Tensor) -> Tensor:
        return x.flip(1).permute(1, 0)[0:1]

    views = (first_row, last_row, last_column)
    all_differ(*(key(written(view)) for view in views))
    expected = [[[10, 20, 30], [3, 4, 5], [6, 7, 8]], [[0, 1, 2], [3, 4, 5], [10, 20, 30]],
                [[0, 1, 10], [3, 4, 20], [6, 7, 30]]]
    assert [written(view).tolist() for view in views] == expected


@verifies("caching.key.program", observe="cache")
def test_what_decides_a_plan() -> None:
    a, b = numbers(1, 2, 3, 4), numbers(5, 6, 7, 8)
    i, u = numbers(1, 2, 3, 4, dtype=np.int32), numbers(1, 2, 3, 4, dtype=np.uint32)
    all_differ(key(a + b), key(a - b), key(b * 2), key(b * 3), key(i + i), key(u + u), key(a + a),
               key(numbers(1, 2) + 1), key(numbers(1, 2, 3) + 1), key(a[0:2] + 1),
               key(a[1:3] + 1), key(a[::2] + 1), key(a.flip(0) + 1), key(a.reshape(2, 2) + 1),
               key(a.sum()), key(a.max()), key(i.cast("float32")),
               key(u.cast("float32")), key(a.reshape(2, 2).sum(0)),
               key(a.reshape(2, 2).sum(1)), key(a + b, a - b), key(a - b, a + b))


@verifies("caching.key.program", observe="cache")
def test_constants_that_compare_equal() -> None:
    """0.0 == -0.0 and 1 == 1.0 == True, but they are no equal programs."""
    a = numbers(1, 2)
    all_differ(key(a * 0.0), key(a * -0.0), key(a * float("inf")), key(a * float("nan")))
    assert key(a * float("nan")) == key(a * float("nan"))
    i, flags = numbers(1, 2, dtype=np.int32), numbers(1, 0, dtype=np.bool_)
    all_differ(key(i == 1), key(flags == True), key(a == 1.0))  # noqa: E712


@verifies("caching.key.held", observe="cache")
def test_what_stays_observable() -> None:
    """The same statement, planned with and without another tensor that holds the old version."""
    def assign(hold: Callable[[Tensor], Any]) -> tuple[Key, list[float], Any]:
        x = numbers(1, 2, 3, 4)
        other = hold(x)
        x.assign(x + 1)
        return key(x), x.tolist(), other.flatten().tolist() if other is not None else None

    def same(x: Tensor) -> Tensor:
        return Tensor(x.uop)

    def view(x: Tensor) -> Tensor:
        return Tensor(x.uop).reshape(2, 2).realize()

    for hold in (same, view):
        for order in ((lambda x: None, hold), (hold, lambda x: None)):
            schedule_cache.clear()
            found = [assign(each) for each in order]
            all_differ(*(each[0] for each in found))
            assert all(each[1] == [2, 3, 4, 5] for each in found)
            assert [1, 2, 3, 4] in [each[2] for each in found]


@verifies("caching.key.settings", observe="cache")
def test_every_setting_that_changes_plans() -> None:
    x = numbers(1, 2) + 1
    usual = key(x)
    for setting in settings.REGISTRY.values():
        allowed = setting.choices or range(setting.minimum, setting.minimum + 2)
        value: Any = "other" if isinstance(setting.default, str) else next(
            number for number in allowed if number != settings.get(setting.name))
        with Context(**{setting.name: value}):
            assert (key(x) != usual) == setting.plan, setting.name
    assert key(x) == usual


@verifies("caching.key.circumstances", observe="cache")
def test_what_the_device_says() -> None:
    x = numbers(1, 2) + 1
    all_differ(key(x), key(x, device=("CPU",)), key(x, device=("CPU", "avx")))


@verifies("caching.key.renaming", observe="cache")
def test_other_buffers_hit() -> None:
    keys = set()
    for start in range(3):
        a, b = numbers(start, 2), numbers(5, start)
        keys.add(key((a + b).flip(0) * a))
    assert len(keys) == 1


@verifies("caching.key.renaming", observe="cache")
def test_other_names_of_variables_hit() -> None:
    x = numbers(1, 2)
    assert key(x * Variable("n", 0, 9).bind(3)) == key(x * Variable("m", 0, 9).bind(3))


@verifies("caching.key.circumstances", observe="cache")
def test_another_value_of_a_variable_hits() -> None:
    x, n = numbers(1, 2), Variable("n", 0, 9)
    assert key(x * n.bind(3)) == key(x * n.bind(4))
    all_differ(key(x * n.bind(3)), key(x * Variable("n", 0, 99).bind(3)), key(x * 3))
    schedule_cache.clear()
    assert [(x * n.bind(value)).tolist() for value in range(4)] == [
        [0, 0], [1, 2], [2, 4], [3, 6]]
    assert (schedule_cache.hits, schedule_cache.misses) == (3, 1)


@verifies("caching.values.each")
def test_each_variable_has_its_value() -> None:
    x, n, m = numbers(1, 2), Variable("n", 0, 9), Variable("m", 0, 9)
    for first, second in ((2, 3), (3, 2), (4, 4)):
        expected = [first + 10 * second, 2 * first + 20 * second]
        assert (x * n.bind(first) + x * 10 * m.bind(second)).tolist() == expected
        assert (x * m.bind(first) + x * 10 * n.bind(second)).tolist() == expected


@verifies("caching.values.each")
def test_one_variable_with_two_values() -> None:
    """Right or refused, and not one of the two values for both."""
    x, n = numbers(1, 2), Variable("n", 0, 9)
    total = x * n.bind(2) + x * 10 * n.bind(3)
    try:
        assert total.tolist() == [32, 64]
    except VariableError as error:
        assert "n" in str(error) and error.remedy


@verifies("caching.key.stable", observe="cache")
def test_the_name_of_a_key() -> None:
    """A known value: whoever changes it makes every stored result of older versions useless."""
    assert caching.stable_name(((1, "a"), 2.5))[:16] == "17f72f07198c7e33"


def named_keys() -> str:
    x = numbers(1, 2, 3, 4)
    tensors = (x + 0.5, (x * -0.0).sum(), x.flip(0)[1:3].cast("float16"), x.reshape(2, 2).T @
               numbers(1, 2), x * Variable("n", 0, 9).bind(3))
    return json.dumps([caching.stable_name(key(tensor)) for tensor in tensors])


@verifies("caching.key.stable", observe="cache")
def test_names_in_two_processes() -> None:
    code = f"from {__name__} import named_keys; print(named_keys())"
    seen = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT,
                             capture_output=True, text=True, check=True)
        seen.append(json.loads(ran.stdout))
    assert seen[0] == seen[1] == json.loads(named_keys())
    assert len(set(seen[0])) == len(seen[0])


@verifies("caching.bound.kept", observe="cache")
def test_the_plan_used_longest_ago_goes() -> None:
    cache: PlanCache[int] = PlanCache(capacity=3)
    for number in range(3):
        cache.put((number,), number)
    assert cache.get((0,)) == 0
    cache.put((3,), 3)
    assert len(cache) == 3
    assert [cache.get((number,)) for number in range(4)] == [0, None, 2, 3]
    assert (cache.hits, cache.misses) == (4, 1)
    cache.clear()
    assert (len(cache), cache.hits, cache.misses) == (0, 0, 0)


@verifies("caching.bound.kept")
def test_a_full_table_drops_several_plans_at_once() -> None:
    """So the next ones have room, and short keys live on."""
    cache: PlanCache[int] = PlanCache(capacity=256)
    for number in range(257):
        cache.put((number,), number)
    left = len(cache)
    assert 250 <= left < 256
    cache.put_short(("short",), (256,))
    for number in range(257, 257 + 256 - left):
        cache.put((number,), number)
    assert len(cache) == 256 and cache.get_short(("short",)) == 256
    assert [number for number in range(257) if cache.get((number,)) is None] == [
        *range(257 - left)]


def test_threads_share_a_cache() -> None:
    cache: PlanCache[int] = PlanCache(capacity=8)
    wrong: list[int] = []

    def use(start: int) -> None:
        for number in range(2000):
            place = (start + number) % 24
            cache.put((place,), place)
            if cache.get((place,)) not in (place, None):
                wrong.append(place)

    threads = [threading.Thread(target=use, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(cache) == 8 and cache.hits + cache.misses == 12_000


def statements(start: int) -> list[list[float]]:
    x, y = numbers(start, 2, 3, 4), numbers(5, 6, start, 8)
    early = x * y
    x[1:3] = y[0:2]
    late = (x + early).cumsum(0)
    late.realize(early, x)
    return [each.tolist() for each in (x, early, late, y - late.max(), y + late.max())]


@verifies("caching.hit.equal", observe="cache")
def test_a_hit_has_the_values_of_a_miss() -> None:
    for fuse in (1, 0):
        with Context(FUSE=fuse, DEVICE="REFERENCE"):
            with Context(SCACHE=0):
                fresh = [statements(start) for start in range(3)]
            schedule_cache.clear()
            assert [statements(start) for start in range(3)] == fresh
            assert schedule_cache.hits >= 2 * schedule_cache.misses


@verifies("caching.hit.equal", observe="cache")
def test_a_plan_is_not_changed_by_running_it() -> None:
    x = numbers(1, 2, 3, 4)
    schedule_cache.clear()
    documents = []
    for _ in range(3):
        y = (x.cumsum(0) * 2).flip(0)
        documents.append({**y.schedule_document(), "cache": None})
        y.realize()
        del y  # it may keep its expression, which would be found again, in memory
    assert documents[0] == documents[1] == documents[2]


@verifies("caching.result.independent")
def test_results_of_later_runs_are_elsewhere() -> None:
    schedule_cache.clear()
    held = [(numbers(start, 2) * 3).realize() for start in range(4)]
    assert schedule_cache.hits == 3
    assert [tensor.tolist() for tensor in held] == [[start * 3, 6] for start in range(4)]


def test_no_caching() -> None:
    schedule_cache.clear()
    with Context(SCACHE=0):
        realize.realize([numbers(1, 2) + 1])
    assert len(schedule_cache) == 0


_PLACES = [(0, 5, 2), (3, 1, 6), (7, 2, 4), (6, 6, 0), (1, 7, 3), (4, 0, 5), (2, 3, 7)]
Statements = Callable[[Any, int, int, int], list[Any]]


def _moved(x: Any, i: int, j: int, k: int) -> list[Any]:
    x[i:i + 2] = x[j:j + 2] + 0
    x[k] = x[i] * 2
    return [x + 0]


def _kept(x: Any, i: int, j: int, k: int) -> list[Any]:
    old = x[k:k + 2] + 0
    x[i:i + 2] = old * 2
    x[j:j + 2, 1:] = x[i:i + 2, :2] + old[:, 1:]
    return [x + 0, old]


FAMILIES: dict[str, Statements] = {
    "rows": lambda x, i, j, k: [x[i] * x[j] + x[k]],
    "columns": lambda x, i, j, k: [x[:, j % 2:j % 2 + 2] + i],
    "numbers": lambda x, i, j, k: [x * (i / 4) - j / -8, x + 0 > k],
    "moved": _moved,
    "kept": _kept,
}


@verifies("caching.family.shared+2")
@pytest.mark.parametrize("name", FAMILIES)
def test_programs_of_a_family_have_one_plan_and_their_own_values(name: str) -> None:
    """They are as many plans as ways in which what they read and write is one place or two."""
    with Context(DEVICE="REFERENCE"):
        schedule_cache.clear()
        GlobalCounters.reset()
        for i, j, k in _PLACES * 2:
            array = np.arange(27, dtype=np.float32).reshape(9, 3)
            x = Tensor(array).realize()
            found = FAMILIES[name](x, i, j, k)
            Tensor.realize(*found)
            for one, two in zip(found, FAMILIES[name](array, i, j, k), strict=True):
                assert np.array_equal(one.numpy(), two), (i, j, k)
        assert GlobalCounters.plan_misses <= 6
        assert GlobalCounters.plan_hits + GlobalCounters.plan_misses == 2 * len(_PLACES)


@verifies("caching.family.shared+2")
def test_what_was_looked_at_on_the_way_is_a_leaf_of_the_family() -> None:
    """A reshape that is in memory, in a gradient that differs in a number."""
    with Context(DEVICE="REFERENCE"):
        schedule_cache.clear()
        weight = Tensor(np.ones((4, 4), np.float32), requires_grad=True)
        found = []
        for number in (1.5, 2.5, 3.5, 4.5):
            x = Tensor(np.arange(16, dtype=np.float32).reshape(4, 4) / 16).clone().requires_grad_()
            slope = (x @ weight).tanh().sum().gradient(x)[0]
            lengths = slope.square().sum(1).sqrt()
            lengths.mean().item()
            found.append((lengths - number).square().mean().gradient(weight)[0].numpy())
        # What the number adds is the same for each step of it.
        steps = np.diff(found, axis=0)
        assert np.abs(steps[0]).max() > 0.1 and np.allclose(steps, steps[0], atol=1e-5)


@verifies("caching.family.shared+2")
def test_a_family_whose_plan_has_more_kernels_is_left() -> None:
    """A number tells that what is read and written is apart; a variable does not."""
    with Context(DEVICE="REFERENCE"):
        schedule_cache.clear()
        array, size = np.arange(700_000, dtype=np.float32), 200_000
        x = Tensor(array.copy()).realize()
        for at in (0, 1, 2, 3, 4, 5):
            x[at:at + size] = x[at + 2 * size:at + 3 * size] * 3
            array[at:at + size] = array[at + 2 * size:at + 3 * size] * 3
            document = x.schedule_document() if at == 4 else None
            GlobalCounters.reset()
            x.realize()
            assert GlobalCounters.kernels == 1, at
            assert document is None or len(document["kernels"]) == 1
        assert np.array_equal(x.numpy(), array)


@verifies("caching.family.shared+2")
def test_bits_of_numbers_stay_in_a_family() -> None:
    with Context(DEVICE="REFERENCE"):
        schedule_cache.clear()
        x = Tensor(np.array([-1.0, 2.0], np.float32)).realize()
        for number in (1.0, 2.0, 3.1, 0.5, -0.0, 0.0, float("inf"), float("nan"), 1e-40):
            found = (x * number).numpy()
            with np.errstate(invalid="ignore"):
                expected = np.array([-1.0, 2.0], np.float32) * np.float32(number)
            assert np.array_equal(found, expected, equal_nan=True), number
            assert number != number or np.array_equal(np.signbit(found), np.signbit(expected))
        ints = Tensor(np.array([1, -5], np.int32)).realize()
        for whole in (3, 4, -2**31, 2**31 - 1, 0):
            differences = np.array([1, -5], np.int32) - np.int32(whole)
            assert (ints - whole).tolist() == differences.tolist()


@verifies("caching.family.shared+2")
def test_what_a_number_decides_keeps_it() -> None:
    """Exponents, what is captured, what is explained."""
    with Context(DEVICE="REFERENCE"):
        schedule_cache.clear()
        x = Tensor(np.array([1.5, 2.0], np.float32)).realize()
        for exponent in (2.0, 3.0, -1.0, 0.5, 2.5):
            assert np.allclose((x ** exponent).numpy(), np.array([1.5, 2.0]) ** exponent)
        names = {(x[row:row + 1] * 2).schedule_document()["cache"]["key"] for row in (0, 1, 0, 1)}
        assert len(names) == 2
        step = TinyJit(lambda t: (t[1:] * 3).realize())
        for start in range(4):
            given = Tensor(np.array([start, start + 1], np.float32)).realize()
            assert step(given).tolist() == [3.0 * start + 3]
