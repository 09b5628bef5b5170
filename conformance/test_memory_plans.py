"""Plans of memory, by definition, on random lifetimes. See spec/memory.md."""
from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from conformance.saboteurs.impl_patches import ImplPatch, all_patches, killer
from conformance.trace import verifies
from impl import Context, Tensor, memory
from impl.memory import ALIGNMENT, Lifetime, MemoryPlan


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
    """The pairs that are alive at one step and share a byte, by definition."""
    found = []
    for number, one in enumerate(plan.lifetimes):
        for other in plan.lifetimes[:number]:
            start = max(plan.offsets[one.storage], plan.offsets[other.storage])
            stop = min(plan.offsets[each.storage] + each.nbytes for each in (one, other))
            if start < stop and max(one.first, other.first) <= min(one.last, other.last):
                found.append((one.storage, other.storage))
    return found


@verifies("memory.reuse.disjoint", observe="memory")
def test_what_is_alive_together_lies_apart() -> None:
    for seed in range(600):
        assert not clashes(memory.plan(random_lifetimes(seed))), seed


@verifies("memory.reuse.disjoint", observe="memory")
def test_every_way_to_place_is_right() -> None:
    """Also those that `plan` tries and does not take."""
    for seed in range(300):
        spans = random_lifetimes(seed)
        for offsets in (memory._by_time(spans), memory._first_fit(spans),
                        memory._first_fit(sorted(spans, key=memory._by_size))):
            assert not clashes(MemoryPlan(offsets, spans)), seed


@verifies("memory.lifetime.covers", observe="memory")
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


@verifies("memory.bound.near", observe="memory")
def test_plans_are_near_the_bound() -> None:
    for seed in range(400):
        plan = memory.plan(random_lifetimes(seed))
        assert plan.planned <= plan.lower_bound * 1.5, seed


def test_thousands_of_temporaries() -> None:
    spans = [Lifetime(i, ALIGNMENT * (1 + i % 5), i, i + 1 + i % 3) for i in range(20_000)]
    plan = memory.plan(spans)
    assert plan.planned <= 2 * plan.lower_bound


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


def test_places_of_an_empty_tensor() -> None:
    spans: Sequence[Lifetime] = [Lifetime(0, 0, 0, 1), Lifetime(1, 0, 0, 1)]
    assert memory.plan(spans).planned == 0
    assert memory.plan([]).planned == 0


@pytest.mark.device("CPU")  # REFERENCE reads all before it stores, and hides some mistakes
@pytest.mark.parametrize("saboteur", all_patches("memory"), ids=lambda s: type(s).__name__)
def test_a_mistake_is_found(saboteur: ImplPatch) -> None:
    assert killer(saboteur), saboteur.description
