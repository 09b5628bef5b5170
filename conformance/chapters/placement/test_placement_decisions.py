"""Which writes are in place, and what becomes of the others. See spec/placement.md."""
from __future__ import annotations

from conformance.chapters.dependencies.orders import in_every_order, realized
from conformance.trace import verifies
from impl import Tensor


@verifies("placement.in-place.safe")
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


@verifies("placement.in-place.safe")
def test_an_assign_of_its_own_reduction() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        x.assign(x + x.sum())
        return [x.tolist()]

    in_every_order(program, [[11, 12, 13, 14]])


@verifies("placement.in-place.safe", observe="memory")
def test_an_addition_needs_no_memory() -> None:
    """Reading the element that is written is safe, and costs nothing."""
    x = realized([1, 2, 3, 4])
    document = x.assign(x + 1).schedule_document()
    assert [buffer["kind"] for buffer in document["buffers"]] == ["state"]
    assert document["notes"] == []


@verifies("placement.held.kept")
def test_a_version_that_a_tensor_holds_is_not_overwritten() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        old = Tensor(x.uop)
        x[0:2] = 9
        x.realize()
        return [old.tolist(), x.tolist()]

    in_every_order(program, [[1, 2, 3, 4], [9, 9, 3, 4]])


@verifies("placement.held.kept")
def test_a_value_that_is_asked_for_is_not_overwritten() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        doubled = (x * 2).contiguous()
        old = Tensor(doubled.uop)
        doubled[0:2] = 9
        old.realize(doubled)
        return [old.tolist(), doubled.tolist()]

    in_every_order(program, [[2, 4, 6, 8], [9, 9, 6, 8]])


@verifies("placement.version.one-successor")
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


@verifies("placement.version.one-successor")
def test_two_writes_to_one_leaf() -> None:
    def program() -> list[list[int]]:
        x = realized([0, 1, 2, 3])
        other = Tensor(x.uop)
        other[0:2] = 7
        x[2:4] = 9
        other.realize(x)
        return [other.tolist(), x.tolist()]

    in_every_order(program, [[7, 7, 2, 3], [0, 1, 9, 9]])


@verifies("placement.cycle.copied")
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


@verifies("placement.cycle.copied")
def test_two_halves_are_swapped() -> None:
    def program() -> list[list[int]]:
        x = realized([1, 2, 3, 4])
        first = x[0:2] + 0
        x[0:2] = x[2:4]
        x[2:4] = first
        del first
        return [x.tolist()]

    in_every_order(program, [[3, 4, 1, 2]])


@verifies("placement.cycle.copied")
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


@verifies("placement.copies.noted", observe="schedule")
def test_a_copy_is_noted() -> None:
    x = realized([1, 2, 3, 4])
    assert "overwritten" in "".join(x.assign(x.flip(0)).schedule_document()["notes"])
