"""Who has to wait for whom. See spec/dependencies.md."""
from __future__ import annotations

import random

from conformance.chapters.dependencies.orders import in_every_order, realized
from conformance.learn.lesson_ordering import implied
from conformance.trace import verifies
from impl import Tensor, dependencies
from impl.dependencies import Dependency, Touch

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

