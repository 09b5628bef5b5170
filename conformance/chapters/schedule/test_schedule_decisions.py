"""What documents and plans promise beyond their form.  See spec/schedule.md."""
from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.adapters.checked import WrongSchedule, watch
from conformance.kernels.footprint import events
from conformance.oracle import checker
from conformance.saboteurs.impl_memory import LivesEndEarly
from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, Variable, dependencies, realize
from impl.effects import collect, leaf_of
from impl.ir import Ops
from impl.schedule import Plan, document, plan_for, schedule_cache
from impl.schedule.reasons import _visible


def numbers(*shape: int) -> Tensor:
    count = int(np.prod(shape))
    return Tensor(np.arange(count, dtype=np.float32).reshape(shape)).realize()


def samples() -> list[tuple[Tensor, ...]]:
    """Values whose schedules have all sorts of kernels; made anew at each call."""
    x, y, state, grid = numbers(4, 6), numbers(6, 4), numbers(8), numbers(4, 4)
    reader = state * 2
    state[2:5] = state[:3] + 1
    grid.assign(grid @ grid)
    return [(x[1:3] + 1,), (x.softmax(1), x.sum(0)), (x @ y @ x,), (state, reader),
            (state[::2] * 3, state), (grid, grid.exp().sum(0)), (x.flip(1).pad((1, 1)).max(1),),
            ((x + 1).contiguous().permute(1, 0) + y,), (x.sum(), x / x.sum())]


@verifies("schedule.document.complete", observe="schedule")
def test_documents_list_every_byte_that_is_touched() -> None:
    """Each kernel is run by hand, element by element, and held against its row."""
    for fuse, tensors in itertools.product((0, 1), samples()):
        with Context(DEVICE="REFERENCE", FUSE=fuse):
            rows, plan = documented(tensors)
        sizes = {buffer["id"]: buffer["bytes"] // np.prod(buffer["shape"], dtype=int)
                 for buffer in rows["buffers"]}
        assert len(rows["kernels"]) == len(plan.kernels)
        for row, kernel in zip(rows["kernels"], plan.kernels, strict=True):
            names = [row_of(rows, plan, storage) for storage in kernel.arguments]
            for event in events(kernel.ast):
                if event.buffer[0] is Ops.PARAM:
                    buffer = names[event.buffer[1]]
                    byte = event.place * sizes[buffer]
                    touched = row["writes" if event.writes else "reads"]
                    assert any(t["buffer"] == buffer and t["start"] <= byte
                               and byte + sizes[buffer] <= t["stop"] for t in touched), event
        assert checker.check(rows) == []


def documented(tensors: tuple[Tensor, ...]) -> tuple[dict[str, Any], Plan]:
    effects = collect([tensor.uop for tensor in tensors])
    plan = plan_for(effects, realize.environment(effects), False)[0]
    return document(plan, False, effects.nodes), plan


def row_of(rows: dict[str, Any], plan: Plan, storage: int) -> int:
    """The id under which a document lists a storage: ids follow the order of the storages."""
    visible = {t.storage for reads, writes in plan.accesses for t in (*reads, *writes)}
    visible |= {result.storage for result in plan.results}
    return [n for n in plan.storages if n in visible].index(storage)


@verifies("schedule.label.line")
def test_a_label_has_the_line_of_its_own_call() -> None:
    """Also where the plan is found in the cache, and another line asked for it first."""
    schedule_cache.clear()
    one = numbers(31).exp()
    other = numbers(31).exp()
    here = sys._getframe().f_lineno
    for line, value in ((here - 2, one), (here - 1, other)):
        (row,) = value.schedule_document()["kernels"]
        (item,) = value.schedule()
        for label in (row["label"], item.metadata["label"]):
            assert label.endswith(f"test_schedule_decisions.py:{line})"), label
    assert schedule_cache.hits == 3 and len(schedule_cache) == 1


@verifies("schedule.label.line")
@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "argmax", "softmax", "matmul"])
def test_a_label_names_what_the_user_called(name: str) -> None:
    """A call makes several nodes; the one that a kernel computes need not be the outermost."""
    for fuse in (0, 1):
        x = Tensor([[float(fuse), 2.0], [3.0, 4.0]]).realize()
        value = getattr(x, name)(x) if name == "matmul" else getattr(x, name)(1)
        line = sys._getframe().f_lineno - 1
        with Context(FUSE=fuse):
            kernels = value.schedule_document()["kernels"]
        for label in [kernel["label"] for kernel in kernels]:
            assert label.startswith(f"{name} ("), label
            assert label.endswith(f"test_schedule_decisions.py:{line})"), label


@verifies("schedule.label.line")
def test_a_label_names_what_computes_and_not_what_looks() -> None:
    """A movement is named only where nothing else is done to what it moves."""
    x = numbers(4, 6)
    labels = [value.schedule_document()["kernels"][0]["label"].split(" ")[0]
              for value in (x.exp().flip(1), x.flip(1), x.log().realize().flip(1))]
    assert labels == ["exp", "flip", "flip"]
    state = numbers(4, 6)
    state.assign(state * 2 + 1)
    kernels = Tensor.schedule_document(state, state.sqrt())["kernels"]
    assert kernels[0]["label"].startswith("add, sqrt ("), kernels[0]["label"]


def calls(work: Callable[[], Any], *functions: Callable[..., Any]) -> int:
    """How often the functions are called while the work is done."""
    codes = {getattr(function, "__code__", None) for function in functions}
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code in codes

    schedule_cache.clear()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def rows(count: int) -> Tensor:
    """A tensor each of whose rows is written by a statement of its own."""
    x = Tensor(np.zeros((count, 2), np.float32)).realize()
    for i in range(count):
        x[i] = i
    return x


def crowd(count: int) -> Tensor:
    inputs = [Tensor(np.full(2, i, np.float32)).realize() for i in range(count)]
    return sum(inputs[1:], inputs[0])


def all_calls(work: Callable[[], Any]) -> int:
    """How many functions are called, and generators asked, while the work is done."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    schedule_cache.clear()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@verifies("schedule.cost.linear")
def test_a_chain_in_which_each_kernel_takes_over_the_memory_of_the_last() -> None:
    def chain(length: int) -> Tensor:
        value = Tensor(np.zeros(4, np.float32)).realize()
        for step in range(length):
            value = value + step
        return value

    counts = []
    with Context(FUSE=0, SPEC=0):
        for length in (100, 400):
            value = chain(length)
            counts.append(all_calls(lambda: value.schedule_document()))  # noqa: B023
    assert counts[1] < 5 * counts[0]  # four times the length


@pytest.mark.slow
@verifies("schedule.cost.linear")
def test_many_writes_and_many_inputs() -> None:
    """Four times as many are four times as much work; what is counted are the dear calls."""
    counted = (leaf_of, dependencies.Touch.overlaps)
    for make in (rows, crowd):
        small, large = ([make(count) for count in (250, 1000)])
        with Context(SPEC=0):
            few = calls(small.schedule_document, *counted)
            assert 0 < calls(large.schedule_document, *counted) < 5 * few
            assert calls(large.schedule_document, _visible) == 1  # it looks at everything
    assert len(rows(4000).schedule_document()["kernels"]) == 4000
    document = crowd(2000).schedule_document()
    assert sum(buffer["kind"] == "input" for buffer in document["buffers"]) == 2000


@verifies("schedule.document.complete", observe="schedule")
def test_documents_list_every_kernel_that_runs() -> None:
    for number in range(len(samples())):
        tensors = samples()[number]
        rows = Tensor.schedule_document(*tensors)
        GlobalCounters.reset()
        Tensor.realize(*tensors)
        assert GlobalCounters.kernels == len(rows["kernels"])
        assert sorted(rows["order"]) == [row["id"] for row in rows["kernels"]]


@verifies("schedule.document.outputs", observe="schedule")
def test_outputs_hold_what_was_asked_for() -> None:
    x, state = numbers(4), numbers(4)
    state.assign(state + x)
    rows = Tensor.schedule_document(x * 2, state, (x * 2).reshape(2, 2))
    kinds = {buffer["id"]: buffer["kind"] for buffer in rows["buffers"]}
    outputs = [kinds[number] for number in rows["outputs"]]
    assert sorted(outputs) == ["output", "state"]  # shapes of one value share a buffer
    written = {touch["buffer"] for row in rows["kernels"] for touch in row["writes"]}
    assert set(rows["outputs"]) <= written


@verifies("schedule.document.nothing-runs")
def test_a_document_changes_nothing() -> None:
    x = numbers(4)
    waiting = x * 5
    x.assign(x + 1)
    leaf = waiting.uop
    GlobalCounters.reset()
    first, second = x.schedule_document(), x.schedule_document()
    assert GlobalCounters.kernels == 0
    assert waiting.uop is leaf
    assert leaf.realized is None
    assert {**first, "cache": None} == {**second, "cache": None}
    assert waiting.tolist() == [0, 5, 10, 15]
    assert x.tolist() == [1, 2, 3, 4]


@verifies("schedule.passes.pure+3")
def test_scheduling_leaves_the_graph_as_it_was() -> None:
    """The same graph gives the same plan, as often as it is scheduled."""
    for tensors in samples():
        effects = collect([tensor.uop for tensor in tensors])
        before = [(node, node.realized, node.tag) for node in effects.nodes]
        plans = [plan_for(effects, realize.environment(effects), False)[0] for _ in range(3)]
        assert [(node, node.realized, node.tag) for node in effects.nodes] == before
        first = document(plans[0], False, effects.nodes)
        assert all(document(plan, False, effects.nodes) == first for plan in plans[1:])
        asts = [[kernel.ast for kernel in plan.kernels] for plan in plans]
        assert asts[0] == asts[1] == asts[2]


@verifies("schedule.plan.slots")
def test_a_plan_keeps_nothing_of_its_call_alive() -> None:
    schedule_cache.clear()
    gc.collect()
    size = Variable("size", 1, 8)
    x = Tensor(np.ones(1 << 16, np.float32)).realize()
    value = (x * size.bind(3)).sum() + x
    buffer, node = weakref.ref(x.uop.arg[0]), weakref.ref(value.uop)
    value.realize()
    result = weakref.ref(value.uop.arg[0])
    assert len(schedule_cache) == 1
    del x, value
    assert buffer() is None
    assert node() is None
    assert result() is None


@verifies("schedule.plan.slots")
def test_a_plan_serves_other_buffers_and_values() -> None:
    schedule_cache.clear()
    size = Variable("size", 1, 8)
    for number in (2, 5):
        x = Tensor(np.full(4, number, np.float32)).realize()
        assert (x * size.bind(number)).tolist() == [number ** 2] * 4
    assert (schedule_cache.hits, len(schedule_cache)) == (1, 1)


@verifies("schedule.verify.passes", observe="schedule")
def test_every_plan_that_is_made_is_checked_before_it_runs() -> None:
    seen: list[dict[str, Any]] = []

    def look(document: dict[str, Any]) -> None:
        assert GlobalCounters.kernels == before, "a kernel of it has run"
        seen.append(document)

    schedule_cache.clear()
    realize.session.checkers.append(look)
    try:
        for setting in (0, 1, 1):
            x, before = numbers(5), GlobalCounters.kernels
            with Context(SPEC=setting, SCACHE=0):
                ((x + 1) / (x * 2).sum()).realize()
    finally:
        realize.session.checkers.remove(look)
    assert [len(each["kernels"]) for each in seen] == [1, 1]
    assert seen[0]["format"] == "tensor-schedule/1"


@verifies("schedule.verify.passes", observe="schedule")
def test_a_wrong_schedule_is_refused_under_spec() -> None:
    watch()
    x = numbers(6, 6)
    with LivesEndEarly().installed(), Context(DEVICE="REFERENCE", FUSE=0, SPEC=0):
        (x @ x @ x @ x).tolist()
        schedule_cache.clear()
        x = numbers(6, 6)  # another one: nothing of it is in memory
        with Context(SPEC=1), pytest.raises(WrongSchedule, match="memory.lifetime.covers"):
            (x @ x @ x @ x).tolist()


@verifies("schedule.document.complete", observe="schedule")
def test_a_kernel_says_how_many_bytes_it_may_touch() -> None:
    for tensors in samples():
        for kernel in Tensor.schedule_document(*tensors)["kernels"]:
            assert kernel["bytes"] == sum(each["stop"] - each["start"] for each in
                                          (*kernel["reads"], *kernel["writes"])) > 0


@verifies("effects.version.overwritten", observe="schedule")
def test_a_plan_says_how_many_versions_a_buffer_gains() -> None:
    """As many as kernels write it; one fewer, and an old version would pass for the new one."""
    for writes in (1, 2, 3):
        state = numbers(8)
        for start in range(writes):
            state[start:start + 2] = state[start + 1:start + 3] * 2
        rows, plan = documented((state,))
        assert list(plan.written.values()) == [writes]
        made = [write["version"] for row in rows["kernels"] for write in row["writes"]]
        assert max(made) == writes


@verifies("schedule.document.devices+2")
def test_a_copy_is_called_a_copy_and_a_kernel_a_kernel() -> None:
    with Context(DEVICE="REFERENCE"):
        x = numbers(2, 3)
        rows, plan = documented(((x + 1).to("CPU") * 2,))
    assert [(row["kind"], row["device"]) for row in rows["kernels"]] == [
        ("kernel", "REFERENCE"), ("copy", "CPU"), ("kernel", "CPU")]
    assert [kernel.task is not None for kernel in plan.kernels] == [False, True, False]


@verifies("schedule.document.complete", observe="schedule")
def test_a_kernel_says_what_its_stages_share_and_reads_nothing_of_its_own() -> None:
    with Context(DEVICE="REFERENCE", FUSE=1):
        x = numbers(4, 6)
        rows, plan = documented((x.softmax(1),))
        assert plan.kernels[0].fusion.startswith("fused: ")
        assert "share the loops 4;" in plan.kernels[0].fusion
        rows, plan = documented((x + 1,))
        assert [kernel.fusion for kernel in plan.kernels] == [""]
        y = x.exp()
        rows, plan = documented((y, y.sum(1)))
    assert len(plan.kernels) == 1 and plan.kernels[0].stages == 2
    (kernel,), kinds = rows["kernels"], {each["id"]: each["kind"] for each in rows["buffers"]}
    assert len(kernel["writes"]) == 2 and len(kernel["reads"]) == 1
    assert kinds[kernel["reads"][0]["buffer"]] not in ("output", "temporary")
