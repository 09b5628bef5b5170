"""The dependences themselves, and the writes that may be in place. See spec/dependencies.md."""
from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from conformance.kernels.footprint import events
from conformance.learn.lesson_ordering import implied
from conformance.trace import verifies
from impl import Context, Tensor, dependencies
from impl.caching import canonicalize
from impl.dependencies import Dependency, Touch
from impl.effects import collect
from impl.fusion import Limits
from impl.ir import Ops
from impl.schedule import Environment, Plan, make_plan

Accesses = list[tuple[list[Touch], list[Touch]]]
Edges = set[tuple[int, int]]


def edges(found: list[Dependency], kind: str) -> Edges:
    return {(each.before, each.after) for each in found if each.kind == kind}


# Between kernels ---------------------------------------------------------------------------


@verifies("dependencies.raw.order", observe="schedule")
@verifies("dependencies.war.order", observe="schedule")
@verifies("dependencies.waw.order", observe="schedule")
def test_write_read_write() -> None:
    found = dependencies.find([([], [Touch(0, 1, 0, 16)]), ([Touch(0, 1, 0, 16)], []),
                  ([], [Touch(0, 2, 0, 16)])])
    assert edges(found, "RAW") == {(0, 1)}
    assert edges(found, "WAR") == {(1, 2)}
    assert edges(found, "WAW") == {(0, 2)}


@verifies("dependencies.raw.order", observe="schedule")
def test_a_reader_waits_for_every_write_that_it_sees() -> None:
    """The two halves were written by two kernels, the whole of them before by a third one."""
    found = dependencies.find([([], [Touch(0, 1, 0, 16)]), ([], [Touch(0, 2, 0, 8)]),
                  ([], [Touch(0, 3, 8, 16)]), ([Touch(0, 3, 0, 16)], [])])
    assert {(1, 3), (2, 3)} <= edges(found, "RAW")


@verifies("dependencies.war.order", observe="schedule")
def test_a_write_waits_for_readers_of_parts() -> None:
    found = dependencies.find([([Touch(0, 0, 0, 4)], []), ([Touch(0, 0, 12, 16)], []),
                  ([], [Touch(0, 1, 0, 16)])])
    assert edges(found, "WAR") == {(0, 2), (1, 2)}


@verifies("dependencies.war.order", observe="schedule")
def test_a_kernel_does_not_wait_for_itself() -> None:
    found = dependencies.find([([Touch(0, 0, 0, 16)], [Touch(0, 1, 0, 16)]),
                  ([Touch(0, 1, 0, 16)], [Touch(0, 2, 0, 16)])])
    assert all(each.before < each.after for each in found)
    assert {"RAW", "WAW"} <= {each.kind for each in found}


@verifies("dependencies.ranges.disjoint", observe="schedule")
def test_other_bytes_and_other_storages_do_not_wait() -> None:
    assert not dependencies.find([([], [Touch(0, 1, 0, 8)]), ([], [Touch(0, 2, 8, 16)]),
                     ([Touch(1, 0, 0, 16)], [])])


@verifies("dependencies.ranges.disjoint", observe="schedule")
def test_readers_do_not_wait_for_each_other() -> None:
    assert not dependencies.find([([Touch(0, 0, 0, 16)], []), ([Touch(0, 0, 0, 16)], [])])


def random_accesses(seed: int) -> Accesses:
    """Kernels that read and write parts of three storages, in the order of the versions."""
    chooser = random.Random(seed)
    version = [0, 0, 0]

    def touch(storage: int, version: int) -> Touch:
        start = chooser.randrange(0, 15)
        return Touch(storage, version, start, chooser.randrange(start + 1, 17))

    accesses: Accesses = []
    for _ in range(chooser.randrange(2, 14)):
        reads = [touch(s, version[s]) for s in range(3) if chooser.random() < 0.5]
        writes = []
        for storage in range(3):
            if chooser.random() < 0.35:
                version[storage] += 1
                writes.append(touch(storage, version[storage]))
        accesses.append((reads, writes))
    return accesses


def hazards(accesses: Accesses, kind: str) -> Edges:
    """By definition: every pair that touches a common byte, of which one writes."""
    first, second = {"RAW": (1, 0), "WAR": (0, 1), "WAW": (1, 1)}[kind]
    return {(i, j) for j in range(len(accesses)) for i in range(j)
            if any(a.storage == b.storage and max(a.start, b.start) < min(a.stop, b.stop)
                   for a in accesses[i][first] for b in accesses[j][second])}


@verifies("dependencies.raw.order", observe="schedule")
@verifies("dependencies.war.order", observe="schedule")
@verifies("dependencies.waw.order", observe="schedule")
@verifies("dependencies.ranges.disjoint", observe="schedule")
def test_what_is_found_implies_every_hazard_and_nothing_else() -> None:
    for seed in range(300):
        accesses = random_accesses(seed)
        found = dependencies.find(accesses)
        follows = implied({(d.before, d.after) for d in found}, len(accesses))
        for kind in ("RAW", "WAR", "WAW"):
            assert hazards(accesses, kind) <= follows, (seed, kind)
            assert edges(found, kind) <= hazards(accesses, kind), (seed, kind)


def realized(values: list[int]) -> Tensor:
    return Tensor(np.array(values, np.int32)).realize()


@verifies("dependencies.raw.order", observe="schedule")
@verifies("dependencies.ranges.disjoint", observe="schedule")
def test_a_range_of_bytes_is_never_negative() -> None:
    """The part that a shifted padding reads outside of its source is empty."""
    x = realized([1, 2, 3, 4, 5, 6])
    turned = Tensor.cat(x[1:], x[:1])
    document = Tensor.cat((turned + x)[1:], (turned + x)[:1]).schedule_document()
    for kernel in document["kernels"]:
        for access in (*kernel["reads"], *kernel["writes"]):
            assert 0 <= access["start"] <= access["stop"] <= 24, access


# Between stages: values --------------------------------------------------------------------


def in_every_order(program: Callable[[], list[list[int]]], expected: list[list[int]]) -> None:
    """The program's values, fused and not, in the usual and in random orders.

    The default device is tried too: it stores element by element, where the reference reads all
    that a kernel reads before it stores.
    """
    for fuse in (1, 0):
        with Context(FUSE=fuse):
            assert program() == expected, f"FUSE={fuse}"
        for seed in (-1, *range(6)):
            with Context(DEVICE="REFERENCE", FUSE=fuse, ORDER_SEED=seed, POISON=1):
                assert program() == expected, f"FUSE={fuse} ORDER_SEED={seed}"


@verifies("dependencies.war.order", observe="order")
def test_a_reader_that_was_written_first_sees_the_old_value() -> None:
    def program() -> list[list[int]]:
        x, other = realized([1, 2, 3, 4]), realized([5, 6, 7, 8])
        total = (x.flip(0) * other).sum() + other
        x[1:3] = other[0:2]
        x.realize(total)
        return [total.tolist(), x.tolist()]

    in_every_order(program, [[65, 66, 67, 68], [1, 5, 6, 4]])


@verifies("dependencies.waw.order", observe="order")
def test_of_two_writes_the_later_one_stays() -> None:
    def program() -> list[list[int]]:
        x = realized([0, 0, 0, 0])
        x[0:3] = realized([1, 2, 3]).cumsum(0)
        x[1:4] = realized([4, 5, 6]).cumsum(0)
        return [x.tolist()]

    in_every_order(program, [[1, 4, 9, 15]])


@verifies("dependencies.in-place.safe")
def test_moves_within_one_tensor() -> None:
    def program() -> list[list[int]]:
        flipped, down, up = (realized([1, 2, 3, 4, 5, 6]) for _ in range(3))
        flipped.assign(flipped.flip(0))
        down[1:6] = down[0:5]
        up[0:5] = up[1:6]
        turned = realized([1, 2, 3, 4]).reshape(2, 2).realize()
        turned.assign(turned.T)
        Tensor.realize(flipped, down, up, turned)
        return [each.flatten().tolist() for each in (flipped, down, up, turned)]

    in_every_order(program, [[6, 5, 4, 3, 2, 1], [1, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 6],
                             [1, 3, 2, 4]])


@verifies("dependencies.in-place.safe")
def test_an_assign_of_its_own_reduction() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        x.assign(x + x.sum())
        return [x.tolist()]

    in_every_order(program, [[11, 12, 13, 14]])


@verifies("dependencies.in-place.safe", observe="memory")
def test_an_addition_needs_no_memory() -> None:
    """Reading the element that is written is safe, and costs nothing."""
    x = realized([1, 2, 3, 4])
    document = x.assign(x + 1).schedule_document()
    assert [buffer["kind"] for buffer in document["buffers"]] == ["state"]
    assert document["notes"] == []


@verifies("dependencies.held.kept")
def test_a_version_that_a_tensor_holds_is_not_overwritten() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        old = Tensor(x.uop)
        x[0:2] = 9
        x.realize()
        return [old.tolist(), x.tolist()]

    in_every_order(program, [[1, 2, 3, 4], [9, 9, 3, 4]])


@verifies("dependencies.held.kept")
def test_a_value_that_is_asked_for_is_not_overwritten() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        doubled = (x * 2).contiguous()
        old = Tensor(doubled.uop)
        doubled[0:2] = 9
        old.realize(doubled)
        return [old.tolist(), doubled.tolist()]

    in_every_order(program, [[2, 4, 6, 8], [9, 9, 6, 8]])


@verifies("dependencies.version.one-successor")
def test_two_writes_to_one_version() -> None:
    """Equal expressions are one value; each of the two tensors goes its own way from there."""
    def program() -> list[list[int]]:
        x = realized([0, 1, 2, 3])
        left, right = x * 2, x * 2
        left[0:2] = 7
        right[2:4] = 9
        left.realize(right)
        return [left.tolist(), right.tolist()]

    in_every_order(program, [[7, 7, 4, 6], [0, 2, 9, 9]])


@verifies("dependencies.version.one-successor")
def test_two_writes_to_one_leaf() -> None:
    def program() -> list[list[int]]:
        x = realized([0, 1, 2, 3])
        other = Tensor(x.uop)
        other[0:2] = 7
        x[2:4] = 9
        other.realize(x)
        return [other.tolist(), x.tolist()]

    in_every_order(program, [[7, 7, 2, 3], [0, 1, 9, 9]])


@verifies("dependencies.cycle.copied")
def test_two_tensors_are_swapped() -> None:
    """Each write has to come after the other one, since each reads what the other overwrites."""
    def program() -> list[list[int]]:
        x, y = realized([1, 2, 3]), realized([4, 5, 6])
        first, second = y.flip(0) + 0, x.flip(0) + 0
        x.assign(first)
        y.assign(second)
        del first, second  # nobody else waits for them, so they need not be stored
        x.realize(y)
        return [x.tolist(), y.tolist()]

    in_every_order(program, [[6, 5, 4], [3, 2, 1]])


@verifies("dependencies.cycle.copied")
def test_two_halves_are_swapped() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        first = x[0:2] + 0
        x[0:2] = x[2:4]
        x[2:4] = first
        del first
        return [x.tolist()]

    in_every_order(program, [[3, 4, 1, 2]])


@verifies("dependencies.cycle.copied")
def test_three_tensors_are_rotated() -> None:
    def program() -> list[list[int]]:
        x, y, z = realized([1, 2]), realized([3, 4]), realized([5, 6])
        kept = x.flip(0) + 0
        x.assign(y.flip(0))
        y.assign(z.flip(0))
        z.assign(kept)
        del kept
        z.realize(x, y)
        return [x.tolist(), y.tolist(), z.tolist()]

    in_every_order(program, [[4, 3], [6, 5], [2, 1]])


@verifies("dependencies.copies.noted", observe="schedule")
def test_a_copy_is_noted() -> None:
    x = realized([1, 2, 3, 4])
    assert "overwritten" in "".join(x.assign(x.flip(0)).schedule_document()["notes"])


# Memory that is taken over ----------------------------------------------------------------


def planned(*tensors: Tensor, fuse: bool, limits: Limits | None = None, seed: int | None = None,
            reuse: bool = True) -> Plan:
    effects = collect([tensor.uop for tensor in tensors])
    environment = Environment("REFERENCE", limits or Limits(), fuse, reuse, seed)
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


@verifies("dependencies.take-over.safe", observe="memory")
def test_what_is_taken_over_is_not_read_afterwards() -> None:
    """Every loop of every such kernel is run; in the orders of four seeds, fused and not."""
    count = 0
    for number in range(120):
        for fuse, seed in ((False, None), (True, None), (True, number), (False, number)):
            plan = planned(*random_values(number), fuse=fuse, seed=seed, limits=Limits(
                small_kernel=0, memory_worth=0))
            count += len(taken(plan))
            assert unsafe(plan) == [], (number, fuse, seed)
    assert count > 50


@verifies("dependencies.take-over.safe", observe="memory")
def test_a_chain_of_sums_needs_one_temporary_and_a_flip_two() -> None:
    x = realized([1, 2, 3, 4])
    plan = planned(((x + 1) * 2 - 3) * 5, fuse=False)
    assert [storage.kind for storage in plan.storages.values()].count("temporary") == 1
    assert len(taken(plan)) == 2
    assert not taken(planned(((x + 1).flip(0) * 2).flip(0) - 3, fuse=False))


@verifies("dependencies.take-over.safe")
def test_values_where_memory_is_taken_over() -> None:
    for number in range(20):
        with Context(NO_MEMORY_PLANNER=1, FUSE=0):
            expected = [each.tolist() for each in random_values(number)]

        def program(number: int = number) -> list[list[int]]:
            found = random_values(number)
            Tensor.realize(*found)
            return [each.tolist() for each in found]

        in_every_order(program, expected)


@verifies("dependencies.take-over.dead", observe="memory")
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


@verifies("dependencies.take-over.peak", observe="memory")
def test_taking_over_lowers_the_peak() -> None:
    lower = 0
    for number in range(40):
        bound, plain = (sum(each.lower_bound for each in planned(
            *random_values(number), fuse=False, reuse=reuse).memories.values())
            for reuse in (True, False))
        assert bound <= plain
        lower += bound < plain
    assert lower > 10


@verifies("dependencies.take-over.peak", observe="memory")
def test_a_softmax_lies_where_its_scores_lay() -> None:
    """Stages before the last one read the scores, each those of its own row."""
    x, y = (Tensor(np.full((8, 8), value, np.float32)).realize() for value in (0.5, 2))
    weights = (x @ y).contiguous().softmax(1).contiguous()
    plan = planned(weights.T @ y, fuse=True, limits=Limits(small_kernel=0))
    assert [kernel for kernel, _ in taken(plan)] == [1]
    assert [memory.planned for memory in plan.memories.values()] == [64 * 4]


@verifies("dependencies.take-over.one", observe="memory")
def test_two_results_of_a_kernel_do_not_share_memory() -> None:
    """Both read the element of the third that they make, and either could lie there; one does."""
    plan = planned(*two_results(), fuse=True, limits=Limits(small_kernel=0))
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


# The tests themselves ----------------------------------------------------------------------
