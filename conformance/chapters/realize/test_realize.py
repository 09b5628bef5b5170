"""Running a schedule, and who may notice that it ran.  Chapter: spec/realize.md."""
from __future__ import annotations

import gc
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest

from conformance.oracle import checker
from conformance.trace import verifies
from impl import (
    Context,
    Device,
    GlobalCounters,
    Tensor,
    TinyJit,
    Variable,
    func,
    realize,
    run_schedule,
)
from impl.dtypes import dtypes
from impl.effects import collect
from impl.errors import CompileError, DeviceError, GraphError
from impl.ir import Ops, UOp
from impl.linear import linear_to_schedule, lower_sink_to_linear
from impl.realize import session, values
from impl.realize.prepared import OneKernel
from impl.reference import ReferenceProgram
from impl.schedule import schedule_cache


@pytest.fixture(autouse=True)
def on_the_reference_device() -> Iterator[None]:
    gc.collect()
    with Context(DEVICE="REFERENCE"):
        yield


def vector(*values: float) -> Tensor:
    return Tensor(list(values), dtype="float32").realize()


@verifies("realize.value.once")
def test_what_is_in_memory_is_not_computed_again() -> None:
    x = vector(1, 2, 3)
    y = x.exp() * 2
    y.realize()
    GlobalCounters.reset()
    y.realize()
    assert y.numpy() is not None
    assert GlobalCounters.kernels == 0
    again = x.exp() * 2 + 1
    (kernel,) = again.schedule_document()["kernels"]
    assert kernel["label"].startswith("add")
    assert len(kernel["reads"]) == 1
    both = Tensor.schedule_document(x.exp(), x.exp(), x.exp())
    assert len(both["kernels"]) == 1
    assert len(set(both["outputs"])) == 1


def counted(make: Callable[[], Tensor]) -> tuple[Any, ...]:
    """The value of a tensor, all that was counted for it, and what it leaves in memory."""
    GlobalCounters.reset()
    gc.collect()
    before = GlobalCounters.allocated
    made = make().realize()
    counts = [getattr(GlobalCounters, name) for name in (
        "kernels", "operations", "bytes", "compiled", "plan_hits", "plan_misses")]
    leaf = made.uop
    said = made.tolist(), made.shape, made.dtype, leaf.arg[0].size, leaf.arg[1], counts
    del made, leaf
    gc.collect()
    return *said, GlobalCounters.allocated - before


@verifies("realize.direct.same")
def test_what_is_launched_at_once_is_a_run_of_its_plan() -> None:
    a, b, whole = vector(1, 2, 3, 4), vector(5, 6, 7, 9), Tensor([3, 0, 2]).realize()
    square = a.reshape(2, 2).contiguous().realize()
    makers: list[Callable[[], Tensor]] = [
        lambda: a - b, lambda: b - a, lambda: a + 1, lambda: a.exp(), lambda: square.sum(1),
        lambda: square + square, lambda: whole.cast("float32"), lambda: (a < b).where(a, b),
        lambda: square.flip(0), lambda: a.sum(), lambda: Tensor([0.5]) + 1]
    for make in makers:
        make().realize()
        with Context(POISON=1):
            make().realize()
            planned = counted(make)
        assert counted(make) == planned
        assert counted(make) == planned


@verifies("realize.direct.same")
@verifies("caching.key.short+2", observe="cache")
def test_what_has_variables_is_not_launched_at_once() -> None:
    """All else is, also in a process that has variables."""
    size, launched = Variable("launched", 1, 4), []
    whole, other = vector(1, 2, 3, 4), vector(5, 6, 7, 8)
    schedule_cache.clear()
    original = realize.Prepared.run

    def run(prepared: realize.Prepared, given: Any, *more: Any) -> Any:
        if isinstance(prepared.launch, OneKernel):
            launched.append(len(given))
        return original(prepared, given, *more)

    with mock.patch.object(realize.Prepared, "run", run):
        for count in (3, 2, 4, 2):
            part = whole[:size.bind(count)].contiguous().realize()
            assert (part + part).tolist() == [2, 4, 6, 8][:count]
            assert part.sum().item() == count * (count + 1) / 2
            assert (whole * size.bind(count)).tolist() == [each * count for each in (1, 2, 3, 4)]
        assert not launched
        for _ in range(3):
            assert (whole - other).tolist() == [-4, -4, -4, -4]
        assert launched == [2, 2]


@verifies("realize.direct.same")
def test_nothing_is_launched_at_once_in_a_capture() -> None:
    a, b = vector(1, 2, 3), vector(4, 5, 6)
    for _ in range(3):
        (a - b).realize()
    captured = TinyJit(lambda x, y: (x - y).realize())
    for number in range(4):
        given = vector(number, 2, 3)
        assert captured(given, b).tolist() == [number - 4, -3, -3]
    assert captured.replays == 2


@verifies("realize.direct.same")
def test_nothing_is_launched_at_once_where_somebody_measures() -> None:
    a, b = vector(1, 2, 3), vector(4, 5, 6)
    for _ in range(3):
        (a - b).realize()
    with realize.measured() as spans:
        for number in range(1, 3):
            assert (a - b).tolist() == [-3, -3, -3]
            assert [(span.device, span.lane) for span in spans] == [(a.device, "compute")] * number
    (a - b).realize()
    assert len(spans) == 2


@verifies("collectives.span.named")
def test_a_loop_computes_and_a_copy_copies() -> None:
    rows = Tensor(np.arange(4, dtype=np.float32).reshape(4, 1))
    with realize.measured() as spans:
        total, _ = func.scan(lambda carried, row: (carried + row, carried), rows[0], rows)
        total.realize()
        assert {span.lane for span in spans} == {"compute"}
        total.to("REFERENCE:1" if total.device == "REFERENCE" else "REFERENCE").realize()
    assert spans[-1].lane == "copy"


@verifies("realize.direct.same")
def test_a_launch_at_once_without_memory_changes_nothing(
        monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = vector(1, 2, 3), vector(4, 5, 6)
    for _ in range(2):
        (a * b).realize()
    device, waiting = Device["REFERENCE"], a * b

    def full(nbytes: int) -> Any:
        raise DeviceError("allocate", "no bytes left", "free some")

    with monkeypatch.context() as patched:
        patched.setattr(type(device), "allocate", lambda device, nbytes: full(nbytes))
        with pytest.raises(DeviceError, match="no bytes left"):
            waiting.realize()
    assert waiting.uop.op is Ops.MUL
    assert waiting.tolist() == [4, 10, 18]


@verifies("realize.commit.version+2")
def test_versions_grow_with_the_run() -> None:
    x = vector(1, 2, 3, 4)
    buffer = x.uop.arg[0]
    for start in range(3):
        x[start:start + 1] = Tensor([9.0])
    assert buffer.version == 0
    x.realize()
    assert buffer.version == 3
    assert x.uop.arg[:2] == (buffer, 3)
    (x * 2).realize()
    assert buffer.version == 3
    items = x.assign(x + 1).schedule()
    assert x.uop.arg[:2] == (buffer, 4)
    run_schedule(items)
    assert x.tolist() == [10, 10, 10, 5]


@verifies("realize.commit.version+2")
def test_a_cached_plan_commits_too() -> None:
    for _ in range(3):
        x = vector(1, 2)
        x.assign(x + 1)
        x.realize()
        assert x.uop.arg[0].version == 1
        assert x.tolist() == [2, 3]


@verifies("realize.rescue.held+2")
@pytest.mark.parametrize("by_hand", [False, True])
def test_rescued_values_are_held(by_hand: bool) -> None:
    x = vector(1, 2, 3)
    reader = x + 100
    x.assign(x * 0)
    if by_hand:
        run_schedule(x.schedule())
    else:
        x.realize()
    assert reader.uop.op is Ops.BUFFER
    x.assign(x + 5).realize()
    GlobalCounters.reset()
    assert reader.tolist() == [101, 102, 103]
    assert (reader * 2).tolist() == [202, 204, 206]
    assert GlobalCounters.kernels == 1
    x.assign(x + 1)
    assert collect([x.uop]).rescued == 0


def refuse(*_: Any, **__: Any) -> Any:
    raise CompileError("test", "no", "none")


@verifies("realize.failure.left+2")
@pytest.mark.parametrize("start", [
    lambda *tensors: Tensor.realize(*tensors), lambda *tensors: Tensor.schedule(*tensors)])
def test_a_compiler_that_fails_changes_nothing(start: Any,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_cache.clear()
    x = vector(1, 2, 3)
    reader = x * 3
    x.assign(x + 1)
    with monkeypatch.context() as patched:
        patched.setattr(type(Device["REFERENCE"]), "compile", refuse)
        with pytest.raises(CompileError):
            start(x)
        with pytest.raises(CompileError):
            start(reader, x)
    assert x.tolist() == [2, 3, 4]
    assert reader.tolist() == [3, 6, 9]
    assert x.uop.arg[0].version == 1


@verifies("realize.failure.left+2")
@pytest.mark.parametrize("kernel", range(5))
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), CompileError("run", "no", "none")])
def test_a_run_that_is_interrupted(kernel: int, failure: Any,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever kernel it is: a value is right or an error, and what was only read is right."""
    x, y = vector(1, 2, 3, 4), vector(5, 6, 7, 8)
    reader = x * 2
    x[2:] = x[:2]
    later = x + reader
    x.assign(x + later + y)
    run, begun = ReferenceProgram.run, [0]

    def counted(self: Any, *arguments: Any) -> None:
        begun[0] += 1
        if begun[0] == kernel + 1:
            raise failure
        run(self, *arguments)

    with monkeypatch.context() as patched, Context(FUSE=0):
        patched.setattr(ReferenceProgram, "run", counted)
        with pytest.raises(type(failure)):
            Tensor.realize(later, x)
    wanted: list[tuple[Tensor, list[float]]] = [
        (reader, [2, 4, 6, 8]), (later, [3, 6, 7, 10]), (x, [9, 14, 15, 20])]
    lost = [tensor for tensor, value in wanted if not right_or_lost(tensor, value)]
    assert y.tolist() == [5, 6, 7, 8]  # it is only read
    assert len(lost) == (0 if kernel == 0 else 3)  # the second one is the first to write in place
    x.replace(y)
    assert (x + 1).tolist() == [6, 7, 8, 9]


def right_or_lost(tensor: Tensor, value: list[float]) -> bool:
    """Whether a tensor has its value; False if reading it says that it was lost."""
    try:
        assert tensor.tolist() == value
        return True
    except GraphError as error:
        assert "interrupted" in str(error) and ".replace()" in str(error)
        return False


@verifies("realize.failure.left+2")
def test_a_replay_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    state, other = vector(1, 2), vector(3, 4)

    def body(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * other

    step = TinyJit(body)
    for _ in range(3):
        step(vector(1, 1))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ReferenceProgram, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            step(vector(1, 1))
    assert not right_or_lost(state, [5, 6])
    lost = state + 1  # what cannot be computed any more is in nobody's way
    assert other.tolist() == [3, 4]
    state.replace(vector(0, 0))
    step.reset()
    assert [step(vector(1, 1)).tolist() for _ in range(3)] == [[3, 4], [6, 8], [9, 12]]
    assert not right_or_lost(lost, [])


@verifies("realize.failure.left+2")
@pytest.mark.parametrize("read", [
    Tensor.tolist, lambda y: [item.run() for item in session.scheduled]])
def test_a_scheduled_kernel_that_fails(read: Callable[[Tensor], object],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """What it and the kernels after it would have written is not read as if they had run."""
    state, x = vector(1, 2), vector(3, 4)
    state.assign(state + 1)
    y = (x * 2).contiguous()
    z = (y.sum() + state).contiguous()
    state.schedule(y, z)

    def fail(*_: Any) -> None:
        raise DeviceError("launch", "the device is gone", "none")

    with monkeypatch.context() as patched:
        patched.setattr(ReferenceProgram, "run", fail)
        with pytest.raises(DeviceError, match="gone"):
            read(z)
    assert not session.scheduled
    for lost in (state, y, z):
        for _ in range(2):
            assert not right_or_lost(lost, [])
    assert x.tolist() == [3, 4]
    state.replace(vector(0, 0))
    assert (state + 1).tolist() == [1, 1]


def at_once(state: Tensor, more: Tensor) -> Callable[[], object]:
    return state.assign(state * more).realize


def as_items(state: Tensor, more: Tensor) -> Callable[[], object]:
    items = state.assign(state * more).schedule()
    return lambda: run_schedule(items)


def as_a_linear(state: Tensor, more: Tensor) -> Callable[[], object]:
    state.assign(state * more)
    linear = lower_sink_to_linear(UOp(Ops.SINK, dtypes.index, (state.uop,)))
    assert linear is not None
    items = linear_to_schedule(linear)
    return lambda: run_schedule(items)


def as_a_linear_again(state: Tensor, more: Tensor) -> Callable[[], object]:
    """What nobody waits for: its first items have run."""
    state.assign(state * more)
    linear = lower_sink_to_linear(UOp(Ops.SINK, dtypes.index, (state.uop,)))
    assert linear is not None
    run_schedule(linear_to_schedule(linear))
    items = linear_to_schedule(linear)
    return lambda: run_schedule(items)


def as_a_replay(state: Tensor, more: Tensor) -> Callable[[], object]:
    step = TinyJit(lambda x: state.assign(state * x).realize())
    for _ in range(3):
        step(more * 0)
    return lambda: step(more)


def beside(state: Tensor, more: Tensor) -> Callable[[], object]:
    """In the lanes of a mesh, where others send and compute too."""
    mesh = ("REFERENCE:0", "REFERENCE:1")
    state.shard_(mesh, axis=0)
    rows = Tensor(np.arange(8, dtype=np.float32).reshape(4, 2)).shard(mesh, axis=0).realize()
    with Context(OVERLAP=2):
        state.assign(state * more.shard(mesh, axis=0)).realize()
    total = rows.sum(0)

    def run() -> None:
        with Context(OVERLAP=2):
            Tensor.realize(total, state.assign(state * more.shard(mesh, axis=0)))
    return run


WAYS = [at_once, as_items, as_a_linear, as_a_linear_again, as_a_replay, beside]


@verifies("realize.failure.left+2")
@verifies("errors.message.later")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run_kernels_says_the_same_of_one_that_fails(
        way: Callable[[Tensor, Tensor], Callable[[], object]],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that it is from, and that what it may have half written is lost."""
    state, more = vector(1, 2, 3, 4), vector(5, 6, 7, 8)
    run = way(state, more)
    with monkeypatch.context() as patched:
        patched.setattr(ReferenceProgram, "run", fails_to_multiply)
        with pytest.raises(DeviceError, match="gone") as caught:
            run()
    assert not right_or_lost(state, [])
    assert more.tolist() == [5, 6, 7, 8]
    code, first = inspect.getsourcelines(way)
    lines = [first + n for n, line in enumerate(code) if "state * " in line]
    assert caught.value.line in [f"mul ({__file__}:{line})" for line in lines]


def fails_to_multiply(program: Any, *given: Any) -> None:
    if any(node.op is Ops.MUL and node.dtype is dtypes.float32 for node in program.ast.toposort()):
        raise DeviceError("launch", "the device is gone", "none")
    ORIGINAL(program, *given)


ORIGINAL = ReferenceProgram.run


@verifies("realize.failure.left+2")
def test_kernels_after_one_that_failed_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody but the caller knows that they would have come."""
    x = vector(1, 2, 3, 4)
    first = (x * 3).contiguous()
    later = (first.sum(0, keepdim=True) + 2).contiguous()
    with Context(FUSE=0):
        linear = lower_sink_to_linear(UOp(Ops.SINK, dtypes.index, (first.uop, later.uop)))
    assert linear is not None
    items = linear_to_schedule(linear)
    assert len(items) > 1
    with monkeypatch.context() as patched:
        patched.setattr(ReferenceProgram, "run", fails_to_multiply)
        with pytest.raises(DeviceError, match="gone"):
            run_schedule(items)
    run_schedule(items)  # what is given up is not run any more
    right_or_lost(first, [3, 6, 9, 12])
    right_or_lost(later, [32])
    assert x.tolist() == [1, 2, 3, 4]


@verifies("realize.failure.left+2")
def test_a_reader_that_fails_before_a_write_leaves_all_as_it_was(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed by itself, since it has another value of the variable than the write."""
    at, state = Variable("at", 1, 3), vector(1, 2, 3, 4)
    total = (state[:at.bind(2)] * 2).sum()
    n = at.bind(1)
    state[n:n + 1] = 9.0
    with monkeypatch.context() as patched:
        patched.setattr(ReferenceProgram, "run", fail_launch)
        with pytest.raises(DeviceError, match="gone"):
            state.realize()
    assert state.tolist() == [1, 9, 3, 4]
    assert total.item() == 6


@verifies("schedule.document.nothing-runs")
def test_a_document_of_a_write_that_readers_wait_for() -> None:
    """They are computed before it, by themselves, but not for a document."""
    at, state = Variable("at", 1, 3), vector(1, 2, 3, 4)
    total = (state[:at.bind(2)] * 2).sum()
    n = at.bind(1)
    state[n:n + 1] = 9.0
    GlobalCounters.reset()
    document = state.schedule_document()
    assert GlobalCounters.kernels == 0
    assert [kernel["kind"] for kernel in document["kernels"]] == ["kernel"]
    assert "1 values that read what is overwritten" in document["notes"][-1]
    assert not [str(each) for each in checker.check(document)]
    assert state.tolist() == [1, 9, 3, 4]
    assert total.item() == 6


def fail_launch(*_: Any) -> None:
    raise DeviceError("launch", "the device is gone", "none")


@verifies("realize.failure.left+2")
@pytest.mark.parametrize("seed", range(6))
def test_too_little_memory_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever kernel comes first: what it has done cannot be taken back."""
    x, y = vector(1, 2, 3), vector(1, 2, 3)
    reader = x * 3
    x.assign(x + 1)
    y.assign(y + 1)
    large = Tensor.arange(1 << 12).contiguous() + 1
    device = type(Device["REFERENCE"])
    allocate = device.allocate

    def little(self: Any, nbytes: int) -> Any:
        if nbytes > 1 << 12:
            raise DeviceError("allocate", "no", "none")
        return allocate(self, nbytes)

    with monkeypatch.context() as patched, Context(ORDER_SEED=seed):
        patched.setattr(device, "allocate", little)
        for _ in range(2):
            with pytest.raises(DeviceError):
                Tensor.realize(y, large, x)
    del large
    assert x.tolist() == [2, 3, 4]
    assert y.tolist() == [2, 3, 4]
    assert reader.tolist() == [3, 6, 9]


@verifies("realize.read.fresh")
def test_a_reading_is_the_callers_own() -> None:
    x = vector(1, 2, 3)
    first = x.numpy()
    first[:] = 99
    assert x.tolist() == [1, 2, 3]
    second = x.numpy()
    x.assign(x + 1).realize()
    assert second.tolist() == [1, 2, 3]
    given = np.array([1.0, 2.0], np.float32)
    y = Tensor(given)
    given[:] = 7
    assert y.tolist() == [1, 2]


@verifies("realize.part.direct")
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_part_that_lies_in_one_piece_is_read_where_it_is(dtype: Any) -> None:
    array = np.arange(60).reshape(3, 4, 5).astype(dtype)
    with Context(DEVICE="REFERENCE"):
        x = Tensor(array).realize()
        parts: list[Callable[[Any], Any]] = [
            lambda t: t[1], lambda t: t[1, 2], lambda t: t[2, 3, 4], lambda t: t[1:],
            lambda t: t[1, 1:3], lambda t: t[0, 2, 1:4], lambda t: t.reshape(12, 5)[3:7],
            lambda t: t[1:].reshape(8, 5)[2:4, :], lambda t: t[2:2],
            lambda t: t[-1, -1:].reshape(5)]
        GlobalCounters.reset()
        for part in parts:
            assert np.array_equal(part(x).numpy(), part(array)), part
        assert GlobalCounters.kernels == 0
        others: list[Callable[[Any], Any]] = [
            lambda t: t[:, 1], lambda t: t[1, :, 2], lambda t: t[:2, 1:3], lambda t: t[::2],
            lambda t: t[1][::-1], lambda t: t[1:, 3:], lambda t: t[:, :, 4:]]
        for part in others:
            assert np.array_equal(part(x).numpy(), part(array)), part


@verifies("realize.part.direct")
def test_a_part_is_that_of_its_version() -> None:
    with Context(DEVICE="REFERENCE"):
        x = Tensor(np.arange(6, dtype=np.int32).reshape(3, 2)).realize()
        row = x[1]
        x.assign(x * 10).realize()
        assert row.tolist() == [2, 3] and x[1].tolist() == [20, 30]
        late = x.assign(x + 1)
        assert x[2].tolist() == [41, 51] and late[0].tolist() == [1, 11]


# Running by hand


def observers() -> list[Any]:
    """All ways to look at a tensor or at something computed from it."""
    return [lambda t: t.tolist(), lambda t: (t + 0).tolist(), lambda t: t.numpy().tolist(),
            lambda t: [t[i].item() for i in range(3)], lambda t: Tensor(t).tolist(),
            lambda t: [(t + 0).contiguous().schedule(), t.tolist()][1],
            lambda t: t.clone().realize().tolist(), lambda t: np.asarray(t).tolist()]


@verifies("realize.schedule.once")
@pytest.mark.parametrize("observe", observers())
def test_scheduled_kernels_ran_before_anybody_looks(observe: Any) -> None:
    x = vector(1, 2, 3)
    y = (x * 2).contiguous().exp().log()
    y.schedule()
    np.testing.assert_allclose(observe(y), [2, 4, 6], rtol=1e-6)
    state = vector(1, 2, 3)
    state.assign(state + 1).schedule()
    assert observe(state) == [2, 3, 4]


@verifies("realize.schedule.once")
def test_schedules_that_nobody_runs_run_in_order() -> None:
    x = vector(1, 2, 3)
    reader = x * 10
    for _ in range(3):
        x.assign(x + 1).schedule()
    other = x * 1
    other.schedule()
    assert other.tolist() == [4, 5, 6]
    assert reader.tolist() == [10, 20, 30]
    x.schedule_document()
    assert x.tolist() == [4, 5, 6]


@verifies("realize.schedule.once")
def test_temporaries_of_two_schedules_do_not_mix() -> None:
    with Context(FUSE=0):
        x, y = vector(1, 2, 3), vector(4, 5, 6)
        first = (x + 1) * 2 - 3
        second = (y + 1) * 2 - 3
        one = first.schedule()
        run_schedule(one[:1])
        two = second.schedule()
        run_schedule(two)
        run_schedule(one)
        assert first.tolist() == [1, 3, 5]
        assert second.tolist() == [7, 9, 11]


@verifies("realize.schedule.once")
def test_an_item_runs_once() -> None:
    x = vector(1, 2, 3)
    items = x.assign(x + 1).schedule()
    assert [item.done for item in items] == [False]
    run_schedule(items)
    assert [item.done for item in items] == [True]
    run_schedule(items)
    assert x.tolist() == [2, 3, 4]
    assert (x + 0).tolist() == [2, 3, 4]
    items = x.assign(x + 1).schedule()
    items[0].run()
    assert x.tolist() == [3, 4, 5]
    run_schedule(items)
    assert x.tolist() == [3, 4, 5]


@verifies("realize.schedule.once")
def test_what_the_caller_left_runs_once() -> None:
    with Context(FUSE=0):
        x = vector(1, 2, 3)
        total = ((x + 1) * 2).sum()
        items = total.schedule()
        assert len(items) == 3
        run_schedule(items[:2])
        GlobalCounters.reset()
        assert total.item() == 18
        assert GlobalCounters.kernels == 1
        run_schedule(items)
        assert GlobalCounters.kernels == 1


@verifies("fusion.limit.device")
def test_the_device_of_a_tensor_limits_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the device that is the default, which takes more."""
    monkeypatch.setattr(type(Device["REFERENCE"]), "maximum_arguments", 5)
    inputs = [vector(i, 2 * i) for i in range(12)]
    with Context(DEVICE="CPU"):
        value = sum(inputs[1:], inputs[0])
        items = value.schedule()
        assert {item.bufs[0].device for item in items} == {"REFERENCE"}
        assert max(len(item.bufs) for item in items) <= 5
        run_schedule(items)
        assert value.tolist() == [66, 132]
        both = (sum(inputs[1:], inputs[0]) + 1).to("CPU") * 2
        assert both.tolist() == [134, 266]


# Threads


@verifies("realize.thread.serial+2")
def test_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, execute = 0, 0, values.execute

    def slowly(*given: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        execute(*given)
        inside -= 1

    monkeypatch.setattr(values, "execute", slowly)
    run_in_threads(lambda number: (vector(number) + 1).tolist())
    assert most == 1


@verifies("realize.thread.serial+2")
def test_threads_do_not_meet() -> None:
    """Each thread has its own values; blocks for temporaries, plans and versions are shared."""
    shared = vector(*range(64))
    wrong: list[str] = []

    def work(number: int) -> None:
        with Context(DEVICE="REFERENCE", FUSE=0):
            state = Tensor(np.full(64, number, np.float32))
            for step in range(12):
                state.assign(state + 1)
                value = ((shared * 2 + state).flip(0) - shared.flip(0)).sum()
                expected = sum(range(64)) + 64 * (number + step + 1)
                if value.item() != expected:
                    wrong.append(f"thread {number}, step {step}: {value.item()}, not {expected}")

    run_in_threads(work)
    assert not wrong


@verifies("realize.thread.serial+2")
def test_threads_that_write_one_state() -> None:
    counter = vector(0)

    lock = threading.Lock()

    def work(_: int) -> None:
        with Context(DEVICE="REFERENCE"):
            for _ in range(10):
                with lock:  # "read, add, give back" is three steps of Python, and the user's
                    counter.assign(counter + 1)
                counter.realize()

    run_in_threads(work)
    assert counter.tolist() == [40]


def run_in_threads(work: Callable[[int], None], count: int = 4) -> None:
    """Run `work` in several threads at once; what one of them raises is raised here."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(count) as pool:
            for future in [pool.submit(work, number) for number in range(count)]:
                future.result()
    finally:
        sys.setswitchinterval(before)


@verifies("realize.value.once")
def test_a_node_is_found_wherever_it_was_computed() -> None:
    """The mark is on the expression, not on the tensor that was asked."""
    x = vector(1, 2, 3)
    node = UOp(Ops.EXP, x.dtype, (x.uop,))
    one, other = Tensor(node), Tensor(node)
    one.realize()
    GlobalCounters.reset()
    assert other.tolist() == one.tolist()
    assert GlobalCounters.kernels == 0


@verifies("realize.value.once")
def test_another_default_device_does_not_make_forget_what_was_computed() -> None:
    x = vector(1, 2, 3)
    node = (x.exp() * 2).uop  # the expression is held, and its value
    computed = Tensor(node).realize()
    for device in ("CPU", "REFERENCE"):
        with Context(DEVICE=device):
            (Tensor.ones(2).contiguous() + 1).realize()
            GlobalCounters.reset()
            assert Tensor(node).tolist() == computed.tolist()
            assert GlobalCounters.kernels == 0


def place_of(tensor: Tensor) -> str:
    """The device in whose memory a realized tensor's value is."""
    return str(tensor.uop.arg[0].device)


@verifies("realize.device.named")
def test_a_value_is_on_the_device_that_its_tensor_names() -> None:
    others = [name for name in ("REFERENCE", "CPU") if name != Device.DEFAULT]
    other = others[0]
    makers: list[Callable[[str | None], Tensor]] = [
        lambda device: Tensor.ones(3, device=device).contiguous(),
        lambda device: Tensor.arange(3, device=device) + 1,
        lambda device: Tensor.full((2, 2), 7, device=device).contiguous() * 2]
    for make in makers:
        assert place_of(make(other).realize()) == other
        late = make(None)  # made for the default device of now
        with Context(DEVICE=other):
            late.realize()
            here = make(None).realize()
            assert place_of(here) == here.device == other
        assert place_of(late) == late.device == Device.DEFAULT
        again = make(None).realize()
        assert place_of(again) == again.device == Device.DEFAULT
        np.testing.assert_array_equal(again.numpy(), here.numpy())


@verifies("realize.device.named")
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (3, 2)])
@pytest.mark.parametrize("default", ["", "REFERENCE:1"])
def test_a_number_is_copied_in_any_shape(shape: tuple[int, ...], default: str) -> None:
    """Also where it is computed on the device that it is copied to, by the default of the moment.
    """
    with Context(SCACHE=0):
        there = Tensor.full(shape, 2.0).to("REFERENCE:1")
        here = Tensor.full(shape, 3.0)
        with Context(DEVICE=default or Device.DEFAULT):
            doubled, same = (there * 2).realize(), (there + 0.5).permute(*range(len(shape)))
            named = Tensor.full(shape, 5.0, device="REFERENCE:1").realize()
            Tensor.realize(here, same)
        assert [place_of(each) for each in (doubled, same, named)] == ["REFERENCE:1"] * 3
        assert place_of(here) == here.device == Device.DEFAULT
        for tensor, number in ((doubled, 4.0), (same, 2.5), (here, 3.0), (named, 5.0)):
            np.testing.assert_array_equal(tensor.numpy(), np.full(shape, number, np.float32))


@verifies("realize.device.named")
def test_what_was_computed_on_another_default_device_is_not_read_from_there() -> None:
    other = next(name for name in ("REFERENCE", "CPU") if name != Device.DEFAULT)
    x = Tensor(np.arange(4, dtype=np.float32)).realize()
    with Context(DEVICE=other):
        kept = Tensor.ones(4).contiguous() * 3
        node = kept.uop  # the expression is held, and its value
        kept.realize()
    again = Tensor.ones(4).contiguous() * 3
    assert again.uop is node
    document = (x + again).schedule_document()
    used = {each["device"] for each in document["buffers"]}
    assert used == {Device.DEFAULT}


@verifies("realize.direct.same")
@verifies("realize.device.named")
def test_what_is_asked_for_elsewhere_is_not_launched_here() -> None:
    other = next(name for name in ("REFERENCE", "CPU") if name != Device.DEFAULT)
    given = Tensor(np.arange(3, dtype=np.int32)).realize()
    for _ in range(2):
        (-given).realize()
    here = Tensor.arange(3)
    node = here.uop  # the expression is held, and its value
    here.realize()
    there = -Tensor.arange(3, device=other)
    assert there.uop.src == (node,)
    assert place_of(there.realize()) == there.device == other


def nothing_read(kind: str) -> list[Tensor]:
    """Values of the second device whose kernels read nothing that lies there, and users of them."""
    there, empty = (Tensor(np.ones((2, width), np.float32), device="REFERENCE:1").realize()
                    for width in (1, 0))
    summed = empty.sum(1, keepdim=True)
    made = Tensor.arange(2, device="REFERENCE:1").reshape(2, 1).contiguous()
    if kind == "written":
        made.assign(there.cast("int32"))
        part = Tensor.zeros(2, 1, device="REFERENCE:1").contiguous()
        part[1:].assign(there[1:])
        return [made, part]
    return {"alone": [summed], "computed with": [summed + 1],
            "needed too": [summed, summed + there],
            "of no device": [made + there], "asked for too": [made, made + there, made * 2],
            "empty": [there[:0], there[:0] + summed[:0]],
            "copied too": [made + there, made.to("REFERENCE:1"), made.to("CPU")]}[kind]


@verifies("realize.device.named")
@verifies("schedule.document.devices+2")
@pytest.mark.parametrize("kind", ["alone", "computed with", "needed too", "of no device",
                                  "asked for too", "empty", "copied too", "written"])
def test_what_reads_nothing_lies_where_it_is_said_to(kind: str) -> None:
    values = nothing_read(kind)
    document = Tensor.schedule_document(*values)
    assert not [str(each) for each in checker.check(document)]
    Tensor.realize(*values)
    assert [place_of(each) for each in values] == [each.device for each in values]
    again = [each.numpy() for each in values]
    with Context(NOOPT=1, FUSE=0):
        plain = nothing_read(kind)
        for each, found in zip(plain, again, strict=True):
            np.testing.assert_array_equal(each.numpy(), found)
