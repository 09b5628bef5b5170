"""Orders of kernels: legal, the same each time, and light on memory. See spec/ordering.md."""
from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import subprocess
import sys
from unittest.mock import patch

import pytest

from conformance.chapters.fusion.test_fusion_decisions import plan_of, tight_limits
from conformance.chapters.memory.test_sharing import random_values
from conformance.learn.lesson_order import drawn, sparing
from conformance.trace import ROOT, verifies
from impl import Context, Tensor, ordering
from impl.dependencies import Dependency, waits
from impl.errors import GraphError
from impl.memory import lifetimes, lower_bound
from impl.ordering import Uses, peak_bytes
from impl.schedule import schedule_cache

Graph = tuple[int, list[Dependency], Uses]


def depends(before: int, after: int) -> Dependency:
    return Dependency(before, after, "RAW", 0, 1)


def random_graph(seed: int) -> Graph:
    """Up to 12 kernels with dependences from lower to higher numbers, and temporaries."""
    chooser = random.Random(seed)
    count = chooser.randrange(1, 13)
    density = chooser.choice((0.05, 0.2, 0.5))
    pairs = [depends(i, j) for j in range(count) for i in range(j) if chooser.random() < density]
    touched: list[list[int]] = [[] for _ in range(count)]
    nbytes = {storage: chooser.randrange(1, 100) for storage in range(chooser.randrange(8))}
    for storage in nbytes:
        for kernel in chooser.sample(range(count), min(count, chooser.randrange(1, 4))):
            touched[kernel].append(storage)
    return count, pairs, Uses(nbytes, touched)


@verifies("ordering.legal.permutation", observe="schedule")
def test_every_kernel_runs_once_and_after_what_it_needs() -> None:
    for number in range(300):
        count, pairs, uses = random_graph(number)
        for seed in (None, 0, 1):
            order = ordering.linearize(count, pairs, uses, seed)
            assert sorted(order) == list(range(count)), (number, seed)
            place = {kernel: step for step, kernel in enumerate(order)}
            assert all(place[d.before] < place[d.after] for d in pairs), (number, seed)


@verifies("ordering.legal.permutation", observe="schedule")
def test_numbers_need_not_follow_the_dependences() -> None:
    backwards = [depends(2, 1), depends(1, 0)]
    assert ordering.linearize(3, backwards, Uses({}, [[], [], []])) == [2, 1, 0]
    assert ordering.linearize(0, [], Uses({}, [])) == []


def shuffled_graph(seed: int) -> tuple[int, set[tuple[int, int]], Uses]:
    """Up to six kernels whose own order is mostly not legal."""
    chooser = random.Random(seed)
    count = chooser.randrange(3, 7)
    names = list(range(count))
    chooser.shuffle(names)
    pairs = {(names[i], names[j]) for j in range(count) for i in range(j)
             if chooser.random() < .3}
    touched: list[list[int]] = [[] for _ in range(count)]
    nbytes = {storage: chooser.randrange(1, 100) for storage in range(chooser.randrange(2, 6))}
    for storage in nbytes:
        for kernel in chooser.sample(range(count), min(count, chooser.randrange(1, 4))):
            touched[kernel].append(storage)
    return count, pairs, Uses(nbytes, touched)


@verifies("ordering.peak.not-worse")
@pytest.mark.parametrize("seed", [48, 75, 81, 84, 93, 118, 169, 219, 250])
def test_the_best_order_of_a_few_kernels_is_found(seed: int) -> None:
    """Graphs in which the kernel that adds least at each step is the right one to take."""
    count, pairs, uses = shuffled_graph(seed)
    legal = [order for order in itertools.permutations(range(count))
             if all(order.index(before) < order.index(after) for before, after in pairs)]
    found = ordering.least_peak(count, pairs, uses)
    assert tuple(found) in legal
    assert peak_bytes(found, uses) == min(peak_bytes(list(order), uses) for order in legal)


@verifies("ordering.legal.permutation")
def test_groups_that_touch_a_storage_keep_their_order() -> None:
    """A reader after the writer, the next writer after both; readers among themselves are free."""
    touched: list[tuple[dict[int, None], dict[int, None]]] = [
        ({}, {0: None}), ({0: None}, {1: None}), ({0: None}, {2: None}), ({}, {0: None})]
    assert waits(touched) == {(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)}


def state_program() -> list[list[float]]:
    """Several states, of which each is read, written and read again."""
    first = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    second = Tensor([5.0, 6.0, 7.0, 8.0]).realize()
    early = (first * second).sum() + second
    first[0:2] = second[2:4]
    middle = first.cumsum(0) - second
    second.assign(second.flip(0) + first)
    late = (first + second).max() - first
    early.realize(middle, late, first, second)
    return [each.tolist() for each in (early, middle, late, first, second)]


@verifies("ordering.any-legal.equal", observe="order")
def test_values_do_not_depend_on_the_order() -> None:
    for fuse in (1, 0):
        with Context(DEVICE="REFERENCE", FUSE=fuse):
            expected = state_program()
            for seed in range(12):
                with Context(ORDER_SEED=seed, POISON=1):
                    assert state_program() == expected, (fuse, seed)


@pytest.mark.slow
@verifies("ordering.any-legal.equal", observe="order")
def test_random_programs_in_random_orders() -> None:
    """On both devices, with memory so scarce that it is taken over and values made again."""
    for number in range(12):
        with Context(NO_MEMORY_PLANNER=1):
            expected = [each.tolist() for each in random_values(number)]
        with tight_limits():
            for device, seed in itertools.product(("REFERENCE", "CPU"), (-1, 0, 1)):
                with Context(DEVICE=device, ORDER_SEED=seed, POISON=1, FUSE=number % 2):
                    found = random_values(number)
                    Tensor.realize(*found)
                    assert [each.tolist() for each in found] == expected, (number, seed)


def least_peak(count: int, pairs: list[Dependency], uses: Uses) -> int:
    """The least peak of all legal orders: the best way to each set of kernels that may be done."""
    before = [sum({1 << d.before for d in pairs if d.after == kernel}) for kernel in range(count)]
    users = {s: sum({1 << kernel for kernel in kernels}) for s, kernels in uses.users.items()}
    peaks = {0: 0}
    for _ in range(count):
        reached: dict[int, int] = {}
        for done, peak in peaks.items():
            for kernel in range(count):
                if done >> kernel & 1 or before[kernel] & ~done:
                    continue
                now = done | 1 << kernel
                live = sum(uses.nbytes[s] for s, some in users.items()
                           if some & now and some & ~done)
                reached[now] = min(reached.get(now, 1 << 60), max(peak, live))
        peaks = reached
    return peaks[(1 << count) - 1]


@verifies("ordering.peak.not-worse", observe="memory")
def test_the_peak_is_near_the_least_one() -> None:
    """At most 2 % above the least peak on average; the figure is recorded, not demanded."""
    ratios = []
    for number in range(150):
        count, pairs, uses = random_graph(number)
        least = least_peak(count, pairs, uses)
        peak = peak_bytes(ordering.linearize(count, pairs, uses), uses)
        assert peak >= least
        ratios.append(peak / max(least, 1))
    assert sum(ratios) / len(ratios) < 1.02


@verifies("ordering.any-legal.equal", observe="order")
def test_the_seeds_try_different_orders() -> None:
    free = Uses({}, [[] for _ in range(6)])
    assert len({tuple(ordering.linearize(6, [], free, seed)) for seed in range(40)}) > 30
    assert ordering.linearize(6, [], free, 7) == ordering.linearize(6, [], free, 7)


@verifies("ordering.deterministic.same", observe="schedule")
def test_the_order_does_not_depend_on_how_dependences_are_listed() -> None:
    for number in range(200):
        count, pairs, uses = random_graph(number)
        expected = ordering.linearize(count, pairs, uses)
        random.Random(number).shuffle(pairs)
        assert ordering.linearize(count, pairs + pairs, uses) == expected, number


def schedules() -> str:
    """Documents of a program that is scheduled anew, as text."""
    first = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    branches = [(first * number).cumsum(0).max() + first for number in range(4)]
    first[1:3] = branches[0][0:2]
    found = []
    for fuse in (1, 0):
        with Context(DEVICE="REFERENCE", FUSE=fuse):
            schedule_cache.clear()
            document = first.schedule_document(*branches)
            labels = [kernel.pop("label") for kernel in document["kernels"]]
            assert all(labels)  # they name the line that called this function
            found.append(document)
    return json.dumps(found, sort_keys=True)


@verifies("ordering.deterministic.same", observe="schedule")
def test_the_same_program_gets_the_same_schedule() -> None:
    assert schedules() == schedules() == schedules()


@verifies("ordering.deterministic.same", observe="schedule")
def test_hashes_of_strings_do_not_matter() -> None:
    """Two processes whose hashes differ make the same schedules, and the same keys of plans."""
    code = f"from {__name__} import schedules; print(schedules())"
    seen = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT,
                             capture_output=True, text=True, check=True)
        seen.append(ran.stdout)
    assert seen[0] == seen[1] and "cumsum" not in seen[0][:2]


@verifies("ordering.cycle.error", observe="schedule")
def test_a_cycle_is_named() -> None:
    pairs = [depends(0, 1), depends(1, 2), depends(2, 3), depends(3, 1), depends(3, 4)]
    for seed in (None, 0):
        with pytest.raises(GraphError) as caught:
            ordering.linearize(5, pairs, Uses({}, [[] for _ in range(5)]), seed)
        path = [int(word) for word in str(caught.value).split("[")[1].split("]")[0].split(",")]
        assert path[0] == path[-1] and sorted(path[1:]) == [1, 2, 3]
        steps = set(zip(path, path[1:], strict=False))
        assert steps <= {(d.before, d.after) for d in pairs}


@verifies("ordering.peak.not-worse", observe="memory")
def test_the_peak_is_never_above_that_of_the_plain_order() -> None:
    for number in range(600):
        count, pairs, uses = random_graph(number)
        chosen = peak_bytes(ordering.linearize(count, pairs, uses), uses)
        assert chosen <= peak_bytes(range(count), uses), number


def small_values(seed: int) -> Tensor:
    """A sum of values of a few elements each, which depend on each other at random."""
    chooser = random.Random(seed)
    values = [Tensor([1.0] * chooser.choice((1, 3, 17, 40))) for _ in range(3)]
    for _ in range(chooser.randrange(4, 14)):
        first, second = chooser.choice(values), chooser.choice(values)
        size = chooser.choice((1, 2, 5, 16, 17, 20, 33, 40))
        values.append((first.sum() + second[:1].sum()).expand(size).contiguous())
    return sum((each.sum() for each in values[3:]), Tensor(0.0))


@verifies("ordering.peak.not-worse", observe="memory")
def test_the_peak_is_that_of_memory_in_which_places_are_aligned() -> None:
    for seed in (5, 11, 13, 15):
        with Context(DEVICE="REFERENCE"):
            plan = plan_of(small_values(seed), fuse=False)
        made = lifetimes(range(len(plan.kernels)), [kernel.arguments for kernel in plan.kernels],
                         {n: s.nbytes for n, s in plan.storages.items() if s.kind == "temporary"})
        memory, = plan.memories.values()
        assert memory.lower_bound <= lower_bound(made), seed


def test_a_better_order_is_found() -> None:
    """Two branches: the plain order makes both temporaries before it reads either."""
    uses = Uses({0: 64, 1: 64}, [[0], [1], [0], [1]])
    order = ordering.linearize(4, [depends(0, 2), depends(1, 3)], uses)
    assert peak_bytes([0, 1, 2, 3], uses) == 128
    assert peak_bytes(order, uses) == 64


def test_the_peak_by_definition() -> None:
    for number in range(200):
        count, _, uses = random_graph(number)
        order = random.Random(number).sample(range(count), count)
        place = {kernel: step for step, kernel in enumerate(order)}
        spans = {s: [place[k] for k in users] for s, users in uses.users.items()}
        live = [sum(uses.nbytes[s] for s, steps in spans.items() if min(steps) <= t <= max(steps))
                for t in range(count)]
        assert peak_bytes(order, uses) == max(live, default=0), number


@verifies("ordering.cost.linear", observe="schedule")
def test_many_kernels() -> None:
    """How often a price is reckoned grows with the number of kernels. Long lives, short lives."""
    def priced(count: int) -> int:
        pairs = [depends(i, i + 1) for i in range(count - 1)]
        pairs += [depends(i, i + 100) for i in range(0, count - 100, 7)]
        arrows = sorted({(each.before, each.after) for each in pairs})
        uses = Uses(dict.fromkeys(range(count), 64),
                    [[i, max(0, i - 1), i // 50 * 50] for i in range(count)])
        with patch("impl.ordering.heapq.heappush", wraps=heapq.heappush) as pushed:
            assert sorted(ordering._greedy_order(ordering._Graph(count, arrows), uses)) == list(
                range(count))
            assert len(ordering.linearize(count, pairs, uses)) == count
        return pushed.call_count

    few, many = priced(1_000), priced(20_000)
    assert few <= many <= 25 * few


@verifies("ordering.peak.not-worse")
def test_prices_are_those_of_the_moment() -> None:
    """The queue of kernels gives what looking at all of them at each step gives; also from the
    back, where the first reader of a storage makes it cheaper for the others."""
    chooser = random.Random(0)
    for count in (5, 9, 14, 30) * 6:
        problem = drawn(chooser, count)
        turned = problem._replace(pairs=frozenset((two, one) for one, two in problem.pairs))
        for each in (problem, turned):
            graph = ordering._Graph(count, each.pairs)
            assert ordering._greedy_order(graph, Uses(each.nbytes, each.touched)) == sparing(each)
