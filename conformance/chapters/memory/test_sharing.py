"""Temporaries that lie where others lay. See spec/memory.md."""
from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from conformance.chapters.dependencies.orders import in_every_order, realized
from conformance.kernels.footprint import events
from conformance.trace import verifies
from impl import Context, Tensor
from impl.caching import canonicalize
from impl.effects import collect
from impl.fusion import FusionLimits
from impl.ir import Ops
from impl.places import Place
from impl.schedule import Environment, Plan, make_plan


def planned(*tensors: Tensor, fuse: bool, limits: FusionLimits | None = None,
            seed: int | None = None, reuse: bool = True) -> Plan:
    effects = collect([tensor.uop for tensor in tensors])
    environment = Environment(Place("REFERENCE"), limits or FusionLimits(), fuse, reuse,
                              order_seed=seed)
    return make_plan(effects, canonicalize(effects, ()), environment)


def taken(plan: Plan) -> list[tuple[int, int]]:
    """The kernels that write a version after the first of a temporary, and which temporary."""
    return [(kernel, write.storage) for kernel, (_, writes) in enumerate(plan.accesses)
            for write in writes
            if plan.storages[write.storage].kind == "temporary" and write.version > 1]


def unsafe(plan: Plan) -> list[str]:
    """By running every loop: reads of elements that the kernel has, or may have, overwritten."""
    found = []
    for kernel in {number for number, _ in taken(plan)}:
        seen = list(events(plan.kernels[kernel].ast))
        written = {(event.buffer, event.place): (event.iteration, at)
                   for at, event in enumerate(seen) if event.writes}
        for at, event in enumerate(seen):
            where = written.get((event.buffer, event.place))
            if not event.writes and event.buffer[0] is Ops.PARAM and where is not None:
                iteration, when = where
                if iteration != event.iteration or when < at:
                    found.append(f"kernel {kernel} reads {event} in {iteration}, {when}")
    return found


WAYS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, y: x + y, lambda x, y: x * 3 - y, lambda x, y: x.flip(0) + y, lambda x, y: x.T + 1,
    lambda x, y: (x + 1).contiguous(), lambda x, y: x.cumsum(0) % 9, lambda x, y: x.cumsum(1) % 9,
    lambda x, y: x - y.max(1, keepdim=True), lambda x, y: x.pad(((1, 0), (0, 0)))[:4] + y,
    lambda x, y: x.sum(0) + y, lambda x, y: (x @ y) % 7,
    lambda x, y: (x * 2).contiguous().flip(1))


def random_values(seed: int) -> list[Tensor]:
    """Tensors of one size that are made of each other in ways that do and do not fit in place."""
    chooser = random.Random(seed)
    pool = [Tensor(np.arange(16, dtype=np.int32).reshape(4, 4) + i).realize() for i in range(2)]
    for _ in range(chooser.randrange(3, 9)):
        x, y = chooser.choice(pool[-4:]), chooser.choice(pool[-4:])
        pool.append(chooser.choice(WAYS)(x, y))
    return [pool[-1], chooser.choice(pool[2:])]


@verifies("memory.take-over.legal", observe="memory")
def test_what_is_taken_over_is_not_read_afterwards() -> None:
    """Every loop of every such kernel is run; in the orders of four seeds, fused and not."""
    count = 0
    for number in range(120):
        for fuse, seed in ((False, None), (True, None), (True, number), (False, number)):
            plan = planned(*random_values(number), fuse=fuse, seed=seed, limits=FusionLimits(
                small_kernel=0, memory_worth=0))
            count += len(taken(plan))
            assert unsafe(plan) == [], (number, fuse, seed)
    assert count > 50


@verifies("memory.take-over.legal", observe="memory")
def test_a_chain_of_sums_needs_one_temporary_and_a_flip_two() -> None:
    x = realized([1, 2, 3, 4])
    plan = planned(((x + 1) * 2 - 3) * 5, fuse=False)
    assert [storage.kind for storage in plan.storages.values()].count("temporary") == 1
    assert len(taken(plan)) == 2
    assert not taken(planned(((x + 1).flip(0) * 2).flip(0) - 3, fuse=False))


@pytest.mark.slow
@verifies("memory.take-over.legal")
def test_values_where_memory_is_taken_over() -> None:
    for number in range(20):
        with Context(NO_MEMORY_PLANNER=1, FUSE=0):
            expected = [each.tolist() for each in random_values(number)]

        def program(number: int = number) -> list[list[int]]:
            found = random_values(number)
            Tensor.realize(*found)
            return [each.tolist() for each in found]

        in_every_order(program, expected)


@verifies("memory.take-over.legal", observe="memory")
def test_what_is_read_later_is_not_taken_over() -> None:
    x = realized([1, 2, 3, 4])
    first, second = x.cumsum(0), x.flip(0).cumsum(0)
    last = (first + second) * first
    del first, second  # the sum may lie where `second` is, and not where `first` is
    for number in range(61):
        for seed in (None, 0, 1):
            tensors = random_values(number) if number else [last]
            plan = planned(*tensors, fuse=False, seed=seed)
            assert number or taken(plan)
            step = {kernel: at for at, kernel in enumerate(plan.order)}
            for kernel, storage in taken(plan):
                version = next(w.version for w in plan.accesses[kernel][1] if w.storage == storage)
                assert all(step[other] <= step[kernel] for other, (reads, _) in
                           enumerate(plan.accesses) for read in reads
                           if read.storage == storage and read.version < version), number
    shown = x + 1
    assert not taken(planned(shown, shown * 2, fuse=False))  # somebody asked for it
    assert not taken(planned(x * 2, fuse=False))
    assert not taken(planned(((x + 1) * 2 - 3) * 5, fuse=False, reuse=False))


def two_results() -> list[Tensor]:
    """Two values that one kernel makes of a third, element by element."""
    base = (realized(list(range(64))) + 1).contiguous()
    base[3:5] = realized([7, 8])  # who reads after a write of a part is a kernel of his own
    left, right = (base + 1).contiguous(), (base * 3).contiguous()
    triangle = Tensor(np.tril(np.ones((64, 64), np.int32)))
    added = (right.flip(0).reshape(1, 64).expand(64, 64) * triangle).sum(1)
    return [left.flip(0) + added, right.flip(0) - left]


@verifies("memory.take-over.peak", observe="memory")
def test_taking_over_lowers_the_peak() -> None:
    lower = 0
    for number in range(40):
        bound, plain = (sum(each.lower_bound for each in planned(
            *random_values(number), fuse=False, reuse=reuse).memories.values())
            for reuse in (True, False))
        assert bound <= plain
        lower += bound < plain
    assert lower > 10


@verifies("memory.take-over.peak", observe="memory")
def test_a_softmax_lies_where_its_scores_lay() -> None:
    """Stages before the last one read the scores, each those of its own row."""
    x, y = (Tensor(np.full((8, 8), value, np.float32)).realize() for value in (0.5, 2))
    weights = (x @ y).contiguous().softmax(1).contiguous()
    plan = planned(weights.T @ y, fuse=True, limits=FusionLimits(small_kernel=0))
    assert [kernel for kernel, _ in taken(plan)] == [1]
    assert [memory.planned for memory in plan.memories.values()] == [64 * 4]


@verifies("memory.take-over.legal", observe="memory")
def test_two_results_of_a_kernel_do_not_share_memory() -> None:
    """Both read the element of the third that they make, and either could lie there; one does."""
    plan = planned(*two_results(), fuse=True, limits=FusionLimits(small_kernel=0))
    both = [{write.storage for write in writes} for _, writes in plan.accesses if len(writes) == 2]
    assert both and all(len(storages) == 2 for storages in both)
    assert [plan.accesses[kernel][1] for kernel, _ in taken(plan) if kernel]
    base = np.arange(1, 65)
    base[3:5] = 7, 8
    left, right = base[::-1] + 1, base[::-1] * 3

    def program() -> list[list[int]]:
        found = two_results()
        Tensor.realize(*found)
        return [each.tolist() for each in found]

    in_every_order(program, [(left + right.cumsum()).tolist(), (right - left[::-1]).tolist()])
