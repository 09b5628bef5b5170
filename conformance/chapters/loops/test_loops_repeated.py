"""What iterations do not do again. Chapter: spec/loops.md."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Ops, Tensor, func
from impl.cpu.programs import CPURepeated, CPUTable
from impl.device import Device
from impl.loops import param
from impl.realize import looping
from impl.realize.invariant import parted
from impl.transforms import control

NUMBERS = np.random.default_rng(0)
ROW, ROWS = NUMBERS.standard_normal(16).astype(np.float32), \
    NUMBERS.standard_normal((5, 16)).astype(np.float32)
NEVER_BEFORE = itertools.count()
#: Where a body gets its carry, its row, and what is the same for all.
CARRY, SEQUENCE, FIXED = range(3)


def split(body: Callable[[Tensor, Tensor], Tensor], *shapes: tuple[int, ...],
          dtype: Any = None) -> list[tuple[Ops, tuple[int, ...]]]:
    """What is computed before a loop whose carry and constant have these shapes."""
    like = [Tensor.empty(*shape, dtype=dtype or "float32") for shape in shapes]
    carry, fixed = (each._wrap(param(slot, each.uop))
                    for each, slot in zip(like, (CARRY, FIXED), strict=True))
    parts = parted([body(carry, fixed).uop], range(FIXED))
    assert len(parts.first) == len(parts.slots) and all(slot > FIXED for slot in parts.slots)
    return [(node.op, node.shape or ()) for node in parts.first]


@verifies("loops.invariant.once")
def test_what_is_the_same_is_computed_once() -> None:
    with Context(DEVICE="REFERENCE"):
        weights, counts = Tensor(ROWS).realize(), []
        for number in (1, 5):
            xs = Tensor(ROWS[:number]).realize()
            GlobalCounters.reset()
            found = func.scan(lambda c, x: (c + x * weights.exp().sum(), None), Tensor(ROW),
                              xs)[0].realize()
            counts.append(GlobalCounters.operations)
            np.testing.assert_allclose(
                found.numpy(), ROW + ROWS[:number].sum(0) * np.exp(ROWS).sum(), 1e-4)
        assert counts[1] - counts[0] < 4 * 40  # an addition and a product of 16 each


@verifies("loops.invariant.once")
def test_what_is_stored_takes_no_more_memory() -> None:
    sums, changed = (Ops.REDUCE, (1,)), (Ops.MUL, (6,))
    assert split(lambda c, w: c + w.sum(), (6,), (4, 5))[0][0] is sums[0]
    assert split(lambda c, w: c + w * 2, (6,), (6,)) == [changed]
    # Before it is repeated.
    assert split(lambda c, w: c + (w * 2).reshape(1, 6).expand(3, 6), (3, 6), (6,)) == [changed]
    # What is moved only, a pattern, a wider dtype, what is larger, and what changes.
    assert not split(lambda c, w: c + w.reshape(2, 3), (2, 3), (6,))
    assert not split(lambda c, w: c * (Tensor.arange(6) > 2), (6,), (6,))
    assert not split(lambda c, w: c + w.float(), (6,), (6,), dtype="float16")
    assert not split(lambda c, w: c + (w.reshape(6, 1) + w), (6, 6), (6,))
    assert not split(lambda c, w: (c + w).sum() + c, (6,), (6,))


@verifies("loops.invariant.once")
def test_a_matrix_lies_as_its_product_reads_it() -> None:
    def turned(*shapes: tuple[int, ...]) -> Any:
        return split(lambda h, w: h.linear(w), *shapes)

    assert turned((4, 5), (8, 5)) == [(Ops.PERMUTE, (1, 5, 8))]
    assert split(lambda h, w: h @ w.T, (2, 3, 5), (8, 5))[0][1][-2:] == (5, 8)
    # Few rows, few columns, and columns that lie side by side.
    assert not turned((3, 5), (8, 5))
    assert not turned((4, 5), (7, 5))
    assert not split(lambda h, w: h @ w, (4, 5), (5, 8))
    # The other product of the two has its columns side by side: it reads the matrix itself.
    assert split(lambda h, w: h.linear(w) @ w, (4, 8), (8, 8)) == [(Ops.PERMUTE, (1, 8, 8))]
    like = Tensor.empty(4, 8), Tensor.empty(8, 8)
    rows, matrix = (each._wrap(param(slot, each.uop))
                    for slot, each in zip((CARRY, FIXED), like, strict=True))
    rest = parted([(rows.linear(matrix) @ matrix).uop], range(FIXED)).rest
    read = [node.arg[0] for node in rest[0].toposort()
            if node.op is Ops.PARAM]
    assert sorted(read) == [0, FIXED, FIXED + 1]
    with Context(DEVICE="REFERENCE"):
        w, h = NUMBERS.standard_normal((8, 8)), NUMBERS.standard_normal((4, 8))
        weight, wanted = Tensor(w), h
        for _ in range(3):
            wanted = np.tanh(wanted @ w.T)
        found = func.scan(lambda c, _: (c.linear(weight).tanh(), None), Tensor(h), length=3)[0]
        np.testing.assert_allclose(found.numpy(), wanted, 1e-9)


#: What is stacked, and how often an iteration stores a row for it and the carry.
STACKED: list[tuple[Callable[[Any, Any], Any], int]] = [
    (lambda before, after: before, 1),
    (lambda before, after: after, 1),
    (lambda before, after: (before, after), 2),
    (lambda before, after: (after, before, before), 3),
]


@verifies("loops.carry.stacked")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stacked, stores", STACKED)
def test_a_carry_lies_where_it_is_stacked(stacked: Callable[[Any, Any], Any], stores: int,
                                          reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Carries are kept if a gradient may be asked for: that is told by bits, which others share.
    monkeypatch.setattr(control, "recorded", lambda sources: False)

    def step(carry: Tensor, row: Tensor) -> Any:
        after = carry * 0.5 + row
        return after, stacked(carry, after)

    with Context(DEVICE="REFERENCE"):
        first, rows = Tensor(ROW).realize(), Tensor(ROWS).realize()
        last, ys = func.scan(step, first, rows, reverse=reverse)
        found = ys if isinstance(ys, tuple) else (ys,)
        whole = Tensor.cat(last, *(each.reshape(-1) for each in found)).contiguous()
        GlobalCounters.reset()
        whole.realize()
        # Two rows are read, and what all iterations have stored is copied into one tensor.
        assert GlobalCounters.bytes <= 64 * (5 * (2 + stores) + 2 * (1 + 5 * len(found)))
        state, wanted = ROW, []
        for row in ROWS[::-1] if reverse else ROWS:
            before, state = state, state * np.float32(0.5) + row
            wanted.append(stacked(before, state))
        np.testing.assert_allclose(last.numpy(), state, 1e-6)
        for number, each in enumerate(found):
            rights = [y[number] if isinstance(y, tuple) else y for y in wanted]
            np.testing.assert_allclose(each.numpy(), np.stack(rights[::-1] if reverse else rights),
                                       1e-6)


@pytest.mark.slow
@verifies("loops.carry.stacked")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("carries", [2, 3])
def test_a_carry_moves_to_another_and_is_stacked(carries: int, computed: bool,
                                                 reverse: bool) -> None:
    orders = list(itertools.permutations(range(carries)))
    chosen = [each for number in range(1, carries + 2)
              for each in itertools.combinations(range(carries + 1), number)]

    def step(order: tuple[int, ...], stacked: tuple[int, ...], before: Any) -> Any:
        after = [before[number] for number in order]
        if computed:
            after[0] = after[0] * 0.5 + 1
        # Each carry that an iteration begins with, and the first one that it ends with.
        return tuple(after), tuple([*before, after[0]][number] for number in stacked)

    with Context(DEVICE="REFERENCE"):
        for case, (order, stacked, count) in enumerate(itertools.product(orders, chosen,
                                                                         range(1, 5))):
            if carries == 3 and count != 1 + case // 4 % 4:
                continue  # there are many: each with one number of iterations
            # Numbers that never were: what nobody stores is not right by chance.
            firsts = [ROW + next(NEVER_BEFORE) for _ in range(carries)]
            states = tuple(Tensor(first).realize() for first in firsts)
            last, ys = func.scan(lambda c, _: step(order, stacked, c), states,  # noqa: B023
                                 length=count, reverse=reverse)
            found = Tensor.cat(*last, *(y.reshape(-1) for y in ys)).numpy()
            state, rows = tuple(firsts), []
            for _ in range(count):
                state, row = step(order, stacked, state)
                rows.append(row)
            wanted = [*state, *np.stack(rows[::-1] if reverse else rows, 1).reshape(-1, 16)]
            np.testing.assert_allclose(found, np.concatenate(wanted), 1e-6,
                                       err_msg=f"{order} {stacked} {count}")


@verifies("loops.iterations.call")
@pytest.mark.parametrize("count, calls", [(1, 0), (2, 1), (129, 1), (300, 3)])
@pytest.mark.parametrize("reverse", [False, True])
def test_iterations_are_one_call(count: int, calls: int, reverse: bool,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []
    original, alone = CPURepeated.run, CPUTable.replay
    singles = 0

    def counted(self: CPURepeated, number: int) -> None:
        times.append(number)
        original(self, number)

    def one(self: CPUTable) -> None:
        nonlocal singles
        singles += 1
        alone(self)

    with Context(DEVICE="CPU"):
        rows = NUMBERS.standard_normal((count, 16)).astype(np.float32)
        first, xs, half = Tensor(ROW).realize(), Tensor(rows).realize(), Tensor([0.5]).realize()
        (last, other), (before, ys) = func.scan(
            lambda c, x: ((c[0] * half + x, c[1] + c[0]), (c[0], c[1] * 2)),
            (first, first), xs, reverse=reverse)
        wanted = Tensor.cat(last.reshape(1, 16), other.reshape(1, 16), before, ys)
        monkeypatch.setattr(CPURepeated, "run", counted)
        monkeypatch.setattr(CPUTable, "replay", one)
        found = wanted.numpy()
    assert len(times) == calls and sum(times) == count - 1 and singles <= 2
    assert all(number == 128 for number in times[:-1])
    one_, two, begun, doubled = ROW, ROW, [], []
    for row in rows[::-1] if reverse else rows:
        begun.append(one_)
        doubled.append(two * 2)
        one_, two = one_ * np.float32(0.5) + row, two + one_
    if reverse:
        begun, doubled = begun[::-1], doubled[::-1]
    np.testing.assert_allclose(found, np.stack([one_, two, *begun, *doubled]), 1e-4, 1e-4)


def products(before: int, width: int) -> int:
    """How many products of a matrix of so many rows and columns a step of a scan and its gradient
    have: two forward.
    """
    found = []
    with Context(DEVICE="REFERENCE"):
        w = Tensor(NUMBERS.standard_normal((before, width)).astype(np.float32), requires_grad=True)
        back = Tensor(NUMBERS.standard_normal((width, before)).astype(np.float32)).realize()
        h = Tensor(NUMBERS.standard_normal((4, before)).astype(np.float32)).realize()
        for count in (3, 5):
            last, _ = func.scan(lambda c, _: ((c @ w).tanh() @ back, None), h, length=count)
            GlobalCounters.reset()
            last.square().sum().gradient(w)[0].realize()
            found.append(GlobalCounters.operations)
    return round((found[1] - found[0]) / 2 / (2 * 4 * before * width))


@verifies("loops.gradient.kept")
def test_products_of_a_step_are_kept() -> None:
    # Backward there is one for each, and one for the gradient of the weights.
    assert products(16, 32) == 5
    assert products(16, 128) == 6  # eight times the numbers of the carry: it is computed again


@verifies("loops.gradient.kept")
@verifies("loops.gradient.reverse+2")
@pytest.mark.parametrize("width", [16, 128])
def test_gradients_of_gradients_through_what_was_kept(width: int) -> None:
    with Context(DEVICE="REFERENCE"):
        w = Tensor(NUMBERS.standard_normal((width, 16)) / 8, requires_grad=True)
        start, rows = Tensor(NUMBERS.standard_normal((4, 16))), \
            Tensor(NUMBERS.standard_normal((3, 4, 16)))

        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            z = (c.linear(w) + 0.5).tanh()
            return z[:, :16] * 0.5 + x + z[:, -16:], z.square()

        def loss(scan: Callable[..., Any]) -> Tensor:
            last, ys = scan(step, start, rows)
            return last.square().sum() + ys.sum()

        def written_out(step: Any, carry: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
            found = []
            for number in range(3):
                carry, y = step(carry, xs[number])
                found.append(y)
            return carry, Tensor.stack(*found)
        mine, wanted = (loss(scan).gradient(w)[0] for scan in (func.scan, written_out))
        np.testing.assert_allclose(mine.numpy(), wanted.numpy(), 1e-9)
        again, other = (loss(scan).gradient(w)[0].square().sum().gradient(w)[0]
                        for scan in (func.scan, written_out))
        np.testing.assert_allclose(again.numpy(), other.numpy(), 1e-9)


@verifies("loops.carry.stacked")
def test_rows_that_lie_elsewhere_with_another_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body is found again by its graph: not where its rows would not be aligned."""
    used, original = list[Any](), looping.body_of

    def noted(loop: Any, *others: Any) -> Any:
        used.append((loop, original(loop, *others)))
        return used[-1][1]
    monkeypatch.setattr(looping, "body_of", noted)
    with Context(DEVICE="REFERENCE"):
        alignment = Device["REFERENCE"].alignment
        begin, rows = Tensor(ROW).realize(), alignment // 4
        for count in (rows, rows + 1):  # of numbers, behind which the carries are stacked
            last, (firsts, carries) = func.scan(lambda c, _: (c * 0.5, (c[0], c)), begin,
                                                length=count)
            Tensor.realize(last, firsts, carries)
            np.testing.assert_allclose(carries.numpy(), [ROW * 0.5**n for n in range(count)], 1e-6)
            np.testing.assert_allclose(last.numpy(), ROW * 0.5**count, 1e-6)
    joined = [(loop.count, bool(body.begins)) for loop, body in used]
    assert {*joined} == {(rows, True), (rows + 1, False)}
    for loop, body in used:
        assert all(looping._region(loop, root)[0] % alignment == 0
                   for root in body.begins.values())
