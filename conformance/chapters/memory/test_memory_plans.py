"""Plans of memory, by definition, on random lifetimes. See spec/memory.md."""
from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from conformance.trace import verifies
from impl import Context, Tensor, memory
from impl.memory import ALIGNMENT, Lifetime, MemoryPlan, greedy, search


def random_lifetimes(seed: int, most: int = 24) -> list[Lifetime]:
    chooser = random.Random(seed)
    steps = chooser.randrange(1, 20)
    spans = []
    for storage in range(chooser.randrange(0, most)):
        first = chooser.randrange(steps)
        last = min(steps - 1, first + chooser.choice((0, 1, 1, 2, 5, 20)))
        spans.append(Lifetime(storage, ALIGNMENT * chooser.choice((0, 1, 1, 2, 3, 7)), first, last))
    return spans


def clashes(plan: MemoryPlan) -> list[tuple[int, int]]:
    """The pairs that are alive at one position and share a byte, by definition."""
    found = []
    for number, one in enumerate(plan.lifetimes):
        for other in plan.lifetimes[:number]:
            start = max(plan.offsets[one.storage], plan.offsets[other.storage])
            stop = min(plan.offsets[each.storage] + each.nbytes for each in (one, other))
            if start < stop and max(one.first, other.first) <= min(one.last, other.last):
                found.append((one.storage, other.storage))
    return found


@verifies("memory.reuse.disjoint+2", observe="memory")
def test_what_is_alive_together_lies_apart() -> None:
    for seed in range(600):
        assert not clashes(memory.plan(random_lifetimes(seed))), seed


@verifies("memory.reuse.disjoint+2", observe="memory")
def test_every_way_to_place_is_right() -> None:
    """Also those that `plan` tries and does not take."""
    for seed in range(300):
        spans = random_lifetimes(seed)
        for offsets in (greedy.walk_through_time(spans), greedy.first_fit(spans),
                        greedy.first_fit(sorted(spans, key=greedy.by_size)),
                        greedy.lowest_first(spans), *searched(spans)):
            assert not clashes(MemoryPlan(offsets, spans)), seed


def searched(spans: Sequence[Lifetime]) -> Iterable[dict[int, int]]:
    """What the search alone finds, beginning with a plan in which nothing is shared."""
    if any(span.nbytes for span in spans):
        offsets = memory.plan(spans, reuse=False).offsets
        yield search.improve(spans, offsets, memory.lower_bound(spans), 1_000_000)[0]


@verifies("memory.lifetime.covers+2", observe="memory")
def test_a_life_is_from_the_first_touch_to_the_last() -> None:
    for seed in range(200):
        chooser = random.Random(seed)
        touched = [[chooser.randrange(6) for _ in range(chooser.randrange(4))] for _ in range(9)]
        order = chooser.sample(range(9), 9)
        sizes = {storage: 1 + storage * 50 for storage in range(5)}  # 5 is no temporary
        found = {span.storage: span for span in memory.lifetimes(order, touched, sizes)}
        for storage in range(6):
            steps = [step for step, kernel in enumerate(order) if storage in touched[kernel]]
            if storage == 5 or not steps:
                assert storage not in found
            else:
                span = found[storage]
                assert (span.first, span.last) == (min(steps), max(steps))
                assert span.nbytes >= sizes[storage]


@verifies("memory.alignment.arena", observe="memory")
def test_places_are_aligned_and_inside() -> None:
    for seed in range(200):
        chooser = random.Random(seed)
        touched = [[chooser.randrange(8), chooser.randrange(8)] for _ in range(12)]
        sizes = {storage: chooser.randrange(0, 300) for storage in range(8)}
        spans = memory.lifetimes(range(12), touched, sizes)
        for reuse in (True, False):
            plan = memory.plan(spans, reuse)
            for span in spans:
                assert plan.offsets[span.storage] % ALIGNMENT == 0
                assert plan.offsets[span.storage] >= 0
                assert plan.offsets[span.storage] + sizes[span.storage] <= plan.planned


@verifies("memory.planned.bounds", observe="memory")
def test_the_bound_by_definition() -> None:
    for seed in range(300):
        spans = random_lifetimes(seed)
        live = [sum(s.nbytes for s in spans if s.first <= step <= s.last) for step in range(20)]
        plan = memory.plan(spans)
        assert plan.lower_bound == max(live)
        assert plan.lower_bound <= plan.planned <= plan.unplanned
        assert plan.unplanned == sum(span.nbytes for span in spans)
        assert memory.plan(spans, reuse=False).planned == plan.unplanned


@verifies("memory.plan.small+2", observe="memory")
def test_plans_are_near_the_bound() -> None:
    for seed in range(400):
        plan = memory.plan(random_lifetimes(seed))
        assert plan.planned <= plan.lower_bound * 1.5, seed


def test_thousands_of_temporaries() -> None:
    spans = [Lifetime(i, ALIGNMENT * (1 + i % 5), i, i + 1 + i % 3) for i in range(20_000)]
    plan = memory.plan(spans)
    assert plan.planned <= 2 * plan.lower_bound


# The search


#: Five temporaries for which every quick plan needs 448 bytes, and 384 are enough.
KNOT = [Lifetime(number, size, first, last) for number, (size, first, last) in enumerate(
    [(256, 4, 5), (128, 3, 4), (128, 1, 2), (64, 2, 3), (128, 0, 3)])]


#: Numbers of tangles for which every quick plan misses the bound.
TANGLES = (58, 91, 124, 188, 228, 253, 384, 575, 790, 927, 1546, 5931)


def tangle(seed: int) -> list[Lifetime]:
    """Temporaries of many sizes, with lives that cross."""
    chooser = random.Random(seed)
    count, steps, spans = chooser.randrange(8, 30), chooser.randrange(5, 16), []
    for storage in range(count):
        first = chooser.randrange(steps)
        size = ALIGNMENT * chooser.randrange(1, 17)
        spans.append(Lifetime(storage, size, first,
                              min(steps - 1, first + chooser.choice((0, 1, 2, 3, 5)))))
    return spans


def packed(seed: int, least: int = 4, most: int = 16) -> list[Lifetime]:
    """Temporaries cut out of one full block, so that a plan without any waste exists."""
    chooser = random.Random(seed)
    blocks = [(0, 16, 0, 15)]  # offset and size in units, first and last step
    for _ in range(chooser.randrange(least, most)):
        offset, size, first, last = blocks.pop(chooser.randrange(len(blocks)))
        if (chooser.random() < 0.5 and size > 1) or first == last:
            cut = chooser.randrange(1, size) if size > 1 else 0
            halves = [(offset, cut, first, last), (offset + cut, size - cut, first, last)]
        else:
            cut = chooser.randrange(first, last)
            halves = [(offset, size, first, cut), (offset, size, cut + 1, last)]
        blocks += [block for block in halves if block[1]]
    return [Lifetime(number, ALIGNMENT * size, first, last)
            for number, (_, size, first, last) in enumerate(chooser.sample(blocks, len(blocks)))]


def crowd(seed: int, count: int = 300) -> list[Lifetime]:
    """As many, cut out of a block of 1024 units and steps: one of three is cut, the largest."""
    chooser = random.Random(seed)
    blocks = [(1024, 0, 1023)]  # size in units, first and last step
    while len(blocks) < count:
        few = chooser.sample(range(len(blocks)), min(3, len(blocks)))
        size, first, last = blocks.pop(
            max(few, key=lambda one: blocks[one][0] * (blocks[one][2] - blocks[one][1] + 1)))
        if (chooser.random() < 0.5 and size > 1) or first == last:
            cut = chooser.randrange(1, size)
            blocks += [(cut, first, last), (size - cut, first, last)]
        else:
            cut = chooser.randrange(first, last)
            blocks += [(size, first, cut), (size, cut + 1, last)]
    return [Lifetime(number, ALIGNMENT * size, first, last)
            for number, (size, first, last) in enumerate(chooser.sample(blocks, count))]


def least_height(spans: Sequence[Lifetime]) -> int:
    """The least that any plan needs: in some order, each lies on what came before it."""
    found = sum(span.nbytes for span in spans)
    for order in permutations(spans):
        tops: list[tuple[Lifetime, int]] = []
        for span in order:
            low = max((top for other, top in tops
                       if span.first <= other.last and other.first <= span.last), default=0)
            tops.append((span, low + span.nbytes))
        found = min(found, max((top for _, top in tops), default=0))
    return found


@verifies("memory.plan.small+2", observe="memory")
def test_the_search_unties_a_knot() -> None:
    bound = memory.lower_bound(KNOT)
    assert memory.height(memory.assign(KNOT, bound, 0), KNOT) == 448
    assert memory.height(memory.assign(KNOT, bound), KNOT) == bound == 384


@verifies("memory.plan.small+2", observe="memory")
def test_tangles_are_placed_at_the_bound() -> None:
    """With a hundredth of the budget. One (5931) only if bytes may stay free below a temporary."""
    for seed in TANGLES:
        spans = tangle(seed)
        bound = memory.lower_bound(spans)
        assert memory.height(memory.assign(spans, bound, 0), spans) > bound, seed
        found = memory.assign(spans, bound, memory.SEARCH_BUDGET // 100)
        assert not clashes(MemoryPlan(found, spans))
        assert memory.height(found, spans) == bound, seed


@verifies("memory.plan.small+2", observe="memory")
def test_a_crowd_is_placed_at_the_bound() -> None:
    """Three hundred, for which no plain order of preference leads to a plan in this budget."""
    spans = crowd(272)
    bound = memory.lower_bound(spans)
    found = memory.assign(spans, bound, memory.SEARCH_BUDGET // 10)
    assert not clashes(MemoryPlan(found, spans))
    assert memory.height(found, spans) == bound


@verifies("memory.plan.claimed", observe="memory")
def test_few_temporaries_have_time_enough() -> None:
    """Thirty for which a tenth of the budget is too little."""
    chooser, spans = random.Random(2452), []
    for number in range(30):
        first = chooser.randint(0, 18)
        last = chooser.randint(first + 1, min(19, first + 4))
        spans.append(Lifetime(number, 1024 * chooser.randint(1, 12), 2 * first, 2 * last))
    made = memory.plan(spans)
    assert made.planned == made.lower_bound == 48 << 10


@verifies("memory.plan.small+2", observe="memory")
def test_few_temporaries_are_placed_as_well_as_can_be() -> None:
    """From a plan in which nothing is shared, so that nothing but the search can be right."""
    for seed in range(150):
        spans = random_lifetimes(seed, most=7)
        for offsets in searched(spans):
            assert memory.height(offsets, spans) == least_height(spans), seed
        assert memory.plan(spans).planned == least_height(spans), seed


spans_of_six = strategies.lists(strategies.tuples(
    strategies.integers(0, 6), strategies.integers(0, 7), strategies.integers(0, 4)), max_size=6)


@verifies("memory.plan.small+2", observe="memory")
@hypothesis.settings(max_examples=150)
@hypothesis.given(spans_of_six)
def test_hypothesis_finds_no_better_plan(rows: list[tuple[int, int, int]]) -> None:
    spans = [Lifetime(number, size * ALIGNMENT, first, first + length)
             for number, (size, first, length) in enumerate(rows)]
    plan = memory.plan(spans)
    assert not clashes(plan)
    assert plan.planned == least_height(spans) >= plan.lower_bound


@verifies("memory.plan.small+2", observe="memory")
def test_what_was_cut_from_one_block_fits_into_it_again() -> None:
    for seed in range(60):
        spans = packed(seed, most=40)
        for offsets in searched(spans):
            assert memory.height(offsets, spans) == 16 * ALIGNMENT, seed


@verifies("memory.search.not-worse", observe="memory")
@hypothesis.settings(max_examples=60)
@hypothesis.given(strategies.integers(0, 1 << 32), strategies.sampled_from((0, 10**4, 10**6)))
def test_a_search_never_needs_more_than_it_began_with(seed: int, budget: int) -> None:
    spans = [span for span in random_lifetimes(seed, most=40) if span.nbytes]
    bound = memory.lower_bound(spans)
    quick = memory.assign(spans, bound, 0)
    found = memory.assign(spans, bound, budget)
    assert not clashes(MemoryPlan(found, spans))
    assert bound <= memory.height(found, spans) <= memory.height(quick, spans)
    if spans:
        improved, spent = search.improve(spans, quick, bound, budget)
        assert spent <= budget
        assert memory.height(improved, spans) <= memory.height(quick, spans)


def test_parts_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts of time a schedule has, somebody waits for all of them."""
    one, spent = tangle(TANGLES[0]), list[int]()
    length = max(span.last for span in one) + 1
    spans = [replace(span, storage=span.storage + part * len(one), first=span.first + part * length,
                     last=span.last + part * length) for part in range(4) for span in one]
    improve = search.improve

    def counted(*given: Any) -> Any:
        found = improve(*given)
        spent.append(found[1])
        return found

    monkeypatch.setattr(search, "improve", counted)
    for budget in (3 * 10**5, 10**6):
        spent.clear()
        assert not clashes(MemoryPlan(memory.assign(spans, 0, budget), spans))
        assert len(spent) == 4 and sum(spent) <= budget


#: What a process plans, and what it prints: for a second process to be compared with this one.
HARD = """
import hashlib
from conformance.chapters.memory.test_memory_plans import hard_offsets
print(hashlib.sha256(repr(hard_offsets()).encode()).hexdigest())
"""


def hard_offsets() -> list[dict[int, int]]:
    """Plans for which a search is needed, and with a budget that is sometimes too small."""
    return [memory.assign(spans, memory.lower_bound(spans), budget)
            for seed in TANGLES for spans in [tangle(seed)] for budget in (10**6, 10**7)]


@verifies("memory.search.deterministic", observe="memory")
def test_the_same_problem_has_the_same_answer() -> None:
    first = hard_offsets()
    assert first == hard_offsets()
    digest = hashlib.sha256(repr(first).encode()).hexdigest()
    told = subprocess.run([sys.executable, "-c", HARD], text=True, capture_output=True,
                          check=True, env={**os.environ, "PYTHONHASHSEED": "77"})
    assert told.stdout.strip() == digest


@verifies("memory.plan.small+2", observe="memory")
def test_nothing_is_searched_where_a_quick_plan_reaches_the_bound(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(search, "improve", never)
    spans = [Lifetime(i, ALIGNMENT * (1 + i % 3), i, 10_000 - i) for i in range(4_000)]
    plan = memory.plan(spans)
    assert plan.planned == plan.lower_bound


def test_what_no_quick_plan_reaches_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cites no rule: a planner that never searches keeps all of them, if its plans are small."""
    def searched(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(search, "improve", searched)
    with pytest.raises(AssertionError, match="searched"):
        memory.plan(KNOT)


def test_parts_meet_nobody_outside() -> None:
    for seed in range(200):
        spans = random_lifetimes(seed)
        found = list(memory.parts(spans))
        assert sorted(s.storage for part in found for s in part) == [s.storage for s in spans]
        for number, part in enumerate(found):
            for other in found[:number]:
                assert max(s.last for s in other) < min(s.first for s in part)


# Programs


def chain() -> list[list[float]]:
    """Temporaries of several sizes, one of them read long after it was made.

    Most kernels read other elements than the one that they write.
    """
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    early = x * 2 + 1
    wide = (x.reshape(2, 3, 1) * x.reshape(2, 1, 3)).cumsum(2)
    narrow = wide.sum(2).cumsum(1)
    return [*(narrow * early + narrow.max()).tolist(), (early - narrow.flip(0)).sum(1).tolist()]


def values(**settings: int | str) -> list[list[float]]:
    with Context(**settings):
        return chain()


@verifies("memory.off.equal")
def test_values_without_a_planner() -> None:
    expected = {fuse: values(FUSE=fuse, NO_MEMORY_PLANNER=1) for fuse in (0, 1)}
    for fuse in (1, 0):
        assert values(FUSE=fuse) == expected[fuse]
        for seed in range(3):
            assert values(FUSE=fuse, ORDER_SEED=seed, DEVICE="REFERENCE") == expected[fuse]


@verifies("memory.poison.unseen")
def test_what_was_freed_is_not_read() -> None:
    for fuse in (1, 0):
        for seed in (-1, 0, 1, 2):
            expected = values(FUSE=fuse, NO_MEMORY_PLANNER=1)
            found = values(FUSE=fuse, ORDER_SEED=seed, POISON=1, DEVICE="REFERENCE")
            assert found == expected, (fuse, seed)


@verifies("memory.planned.bounds", observe="memory")
def test_the_plan_of_a_program_saves_memory() -> None:
    with Context(DEVICE="REFERENCE", FUSE=0):
        x = Tensor([1.0] * 1000).realize()
        for _ in range(8):
            x = x.cumsum(0) * 0.5
        found = x.schedule_document()["memory"]
    assert found["planned"] == sum(arena["bytes"] for arena in found["arenas"])
    assert found["lower_bound"] <= found["planned"] < found["unplanned"] / 3


@verifies("memory.alignment.arena", observe="memory")
def test_each_device_has_its_own_arena() -> None:
    """A temporary lies in an arena of its device, also where a schedule has two devices."""
    with Context(DEVICE="REFERENCE", FUSE=0):
        other = "CPU"
        x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
        y = (x.cumsum(0) * 3).cumsum(1).to(other)
        document = ((y.cumsum(0) + 1).cumsum(1) * 2).schedule_document()
    devices = {each["id"]: each["device"] for each in document["buffers"]}
    arenas = {each["id"]: each for each in document["memory"]["arenas"]}
    places = document["memory"]["placements"]
    assert {devices[each["buffer"]] for each in places} == {"REFERENCE", "CPU"}
    for each in places:
        arena = arenas[each["arena"]]
        assert arena["device"] == devices[each["buffer"]]
        assert each["offset"] + each["bytes"] <= arena["bytes"]


@verifies("memory.lifetime.covers+2", observe="memory")
def test_a_view_keeps_its_temporary_alive() -> None:
    """What is read as a part of a temporary, or in another shape, is read in the temporary."""
    with Context(DEVICE="REFERENCE", FUSE=0):
        x = Tensor([float(n) for n in range(64)]).realize()
        early = x.cumsum(0)
        late = early.cumsum(0).cumsum(0).cumsum(0)
        document = (late[:8] * early.reshape(8, 8)[7].flip(0)).schedule_document()
    steps = {kernel: step for step, kernel in enumerate(document["order"])}
    for place in document["memory"]["placements"]:
        used = [steps[kernel["id"]] for kernel in document["kernels"]
                if place["buffer"] in {each["buffer"] for each in
                                       (*kernel["reads"], *kernel["writes"])}]
        assert (place["first"], place["last"]) == (min(used), max(used))
    assert max(p["last"] - p["first"] for p in document["memory"]["placements"]) >= 3


def test_places_of_an_empty_tensor() -> None:
    spans: Sequence[Lifetime] = [Lifetime(0, 0, 0, 1), Lifetime(1, 0, 0, 1)]
    assert memory.plan(spans).planned == 0
    assert memory.plan([]).planned == 0
