"""White-box tests of the lanes of a mesh: who waits for whom, what is equal, what goes wrong."""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from conformance.oracle.checker import check
from conformance.trace import verifies
from impl import Context, GlobalCounters, Mesh, Tensor, TinyJit, realize
from impl.collectives import Span, pays
from impl.collectives.running import Peers
from impl.cpu.programs import CPUProgram
from impl.device import DeviceBackend
from impl.kernel import Estimate
from impl.ordering import Uses, overlapped
from impl.reference import ReferenceProgram

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(4))
GRID = Mesh(DEVICES, {"data": 2, "model": 2})


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE", BUCKET_BYTES=0):  # several transfers, that wait for kernels
        yield


def step(layers: int = 3, mesh: Any = DEVICES) -> list[Tensor]:
    """The new weights of a data-parallel step: an all-reduce for each layer."""
    random = np.random.default_rng(0)
    x = Tensor(random.standard_normal((8, 4)).astype(np.float32)).shard(mesh, 0).realize()
    weights = [Tensor(random.standard_normal((4, 4)).astype(np.float32)).shard(mesh).realize()
               for _ in range(layers)]
    for w in weights:
        w.requires_grad = True
    hidden = x
    for w in weights:
        hidden = (hidden @ w).tanh()
    hidden.square().mean().backward()
    return [w - w.grad * 0.1 for w in weights if w.grad is not None]


def values(tensors: list[Tensor]) -> list[bytes]:
    tensors[0].realize(*tensors[1:])
    return [tensor.numpy().tobytes() for tensor in tensors]


@verifies("collectives.lanes.equal")
@pytest.mark.parametrize("algorithm", ["", "naive", "ring", "tree", "all-to-all"])
def test_values_are_the_same_with_lanes_and_without(algorithm: str) -> None:
    found, counts = [], []
    for overlap in (0, 1, 2):
        with Context(OVERLAP=overlap, ALLREDUCE=algorithm):
            tensors = step()
            GlobalCounters.reset()
            found.append(values(tensors))
            counts.append((GlobalCounters.kernels, GlobalCounters.operations,
                           GlobalCounters.copies, GlobalCounters.copied_bytes))
    assert found[0] == found[1] == found[2]
    assert counts[0] == counts[2]


@verifies("collectives.lanes.equal")
def test_any_order_is_right_in_lanes() -> None:
    """Random orders of a program on a grid, each also without memory that is shared."""
    with Context(OVERLAP=0):
        expected = _crossing()
    for seed in range(8):
        for alone in (0, 1):
            with Context(OVERLAP=2, ORDER_SEED=seed, FUSE=seed % 2, NO_MEMORY_PLANNER=alone,
                         SPEC=2, SCACHE=0):
                for mine, theirs in zip(_crossing(), expected, strict=True):
                    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def _crossing() -> list[np.ndarray]:
    """A program with transfers along both axes of a grid, and between its devices and others."""
    random = np.random.default_rng(3)
    a = Tensor(random.standard_normal((4, 6)).astype(np.float32)).shard(GRID, data=0, model=1)
    b = Tensor(random.standard_normal((6, 4)).astype(np.float32)).shard(GRID, data=0)
    c = a @ b
    d = (a.sum(0) * b.sum(1)).cumsum(0)
    e = (c.T.shard(GRID, model=0) + d.sum()).flip(0)
    f = e.to("REFERENCE") + 1
    results = [c * 2, d, e @ c, f]
    results[0].realize(*results[1:])
    return [one.numpy() for one in results]


@verifies("collectives.lanes.equal")
def test_a_replay_runs_in_lanes() -> None:
    found = []
    for overlap in (0, 2):
        with Context(OVERLAP=overlap):
            x = Tensor(np.arange(16, dtype=np.float32).reshape(8, 2)).shard(DEVICES, 0).realize()
            scale = TinyJit(lambda t, s: ((t * s).sum(0) + (t * t).sum(0)).realize())
            random = np.random.default_rng(1)
            found.append([scale(x + i, Tensor(random.standard_normal((8, 2)).astype(np.float32))
                                .shard(DEVICES, 0)).numpy().tobytes() for i in range(5)])
    assert found[0] == found[1]


@verifies("collectives.lanes.wait")
def test_what_a_kernel_waits_for_is_done_on_its_device() -> None:
    """One of four devices copies slowly, and the others wait for it."""
    slow: list[float] = []
    copy = DeviceBackend.copy

    def copied(device: DeviceBackend, *given: Any) -> None:
        copy(device, *given)
        if device.name == DEVICES[3]:
            time.sleep(0.002)
            slow.append(time.perf_counter())

    with Context(OVERLAP=2, ALLREDUCE="all-to-all"):
        tensors = step(3)
        document = Tensor.schedule_document(*tensors)
        with patch.object(DeviceBackend, "copy", copied), realize.measured() as spans:
            tensors[0].realize(*tensors[1:])
    assert len(spans) == 4 * len(document["kernels"])
    when = {(span.kernel, span.device): span for span in spans}
    for row in document["dependencies"]:
        for device in DEVICES:
            assert when[row["before"], device].stop <= when[row["after"], device].start
    for kernel in document["kernels"]:
        if kernel["kind"] == "copy":  # all have begun, and copied, before any of them is done
            mine = [when[kernel["id"], device] for device in DEVICES]
            ended = max(at for at in slow if mine[3].start <= at <= mine[3].stop)
            assert max(span.start for span in mine) <= min(span.stop for span in mine)
            assert min(span.stop for span in mine) >= ended


@verifies("collectives.lanes.wait")
def test_a_kernel_runs_while_a_transfer_is_under_way() -> None:
    """The transfer waits for a kernel that needs nothing of it."""
    computed, run = threading.Event(), ReferenceProgram.run

    def noted(program: ReferenceProgram, *given: Any) -> None:
        run(program, *given)
        if program.name.startswith("map_5"):
            computed.set()

    def waiting(*given: Any) -> None:
        assert computed.wait(20)

    x = Tensor(np.ones((8, 3), np.float32)).shard(DEVICES, 0).realize()
    y = Tensor(np.ones((20, 5), np.float32)).shard(DEVICES, 0).realize()
    with Context(OVERLAP=2, SPEC=0), patch.object(ReferenceProgram, "run", noted), \
            patch("impl.collectives.running._combined", waiting):
        total, other = x.sum(0), y * 2
        total.realize(other)
    assert computed.is_set()


@verifies("collectives.lanes.error+2")
def test_an_error_in_a_lane_is_raised_where_the_run_was_asked_for() -> None:
    def failing(group: Peers, device: int, *rest: Any) -> Any:
        def fail() -> None:
            raise RuntimeError(f"device {device} has failed")
        return fail if device == 2 else (lambda: None)

    with Context(OVERLAP=2, SCACHE=0):
        expected = values(step())
        with patch.object(Peers, "_combination", failing), \
                pytest.raises(RuntimeError, match="device 2 has failed"):
            values(step())
        assert values(step()) == expected


@verifies("collectives.lanes.cores")
def test_devices_in_lanes_share_the_threads() -> None:
    program = CPUProgram.__new__(CPUProgram)
    program.shape = (16, 8, 3, 0, 0, 99)
    assert program.sharing(2).shape == (16, 4, 3, 0, 0, 99)
    assert program.sharing(16).shape == (16, 1, 3, 0, 0, 99)
    assert program.shape[1] == 8


@verifies("collectives.lanes.pay")
def test_short_kernels_have_no_lanes() -> None:
    short, long = Estimate(100, 100), Estimate(10 ** 9, 10 ** 6)
    with patch("os.cpu_count", lambda: 4):
        assert pays([long], 2)
        assert not pays([short] * 10, 2)
    with patch("os.cpu_count", lambda: 1):
        assert not pays([long], 2)
    started: list[Any] = []
    with patch("impl.collectives.lanes.Stretch.run", lambda *given: started.append(given)):
        with Context(OVERLAP=1):
            values(step())
        assert not started


@verifies("memory.transfer.covers+2")
def test_memory_of_a_transfer_is_its_own_until_it_is_waited_for() -> None:
    """Each transfer is under way until a kernel waits for it, or for a later one."""
    with Context(OVERLAP=2):
        for layers in (2, 4, 6):
            document = Tensor.schedule_document(*step(layers))
            assert check(document) == []
            place = {kernel: i for i, kernel in enumerate(document["order"])}
            copies = {k["id"] for k in document["kernels"] if k["kind"] == "copy"}
            lives = {row["buffer"]: row for row in document["memory"]["placements"]}
            kernels = {kernel["id"]: kernel for kernel in document["kernels"]}
            waiting = [(place[row["after"]], place[row["before"]])
                       for row in document["dependencies"]
                       if row["before"] in copies and row["after"] not in copies]
            for copy in copies:
                until = min((after for after, before in waiting if before >= place[copy]),
                            default=len(place)) - 1
                assert kernels[copy]["until"] == until
                for touch in (*kernels[copy]["reads"], *kernels[copy]["writes"]):
                    life = lives.get(touch["buffer"])
                    assert life is None or life["last"] >= until
    assert any(kernels[copy]["until"] > place[copy] for copy in copies)


@verifies("ordering.transfers.early+2")
def test_a_transfer_starts_as_soon_as_its_source_is_there() -> None:
    chooser = random.Random(5)
    moved = 0
    for _ in range(200):
        count = chooser.randrange(2, 14)
        pairs = {(i, j) for j in range(count) for i in range(j) if chooser.random() < 0.25}
        transfers = {k for k in range(count) if chooser.random() < 0.4}
        order = overlapped(list(range(count)), pairs, [chooser.random() for _ in range(count)],
                           transfers, Uses({}, [[] for _ in range(count)]))
        place = {kernel: step for step, kernel in enumerate(order)}
        assert sorted(order) == list(range(count))
        assert all(place[a] < place[b] for a, b in pairs)
        for transfer in transfers:
            needs = max((place[a] for a, b in pairs if b == transfer), default=-1)
            assert set(order[needs + 1:place[transfer]]) <= transfers
        moved += order != list(range(count))
    assert moved > 50
    # What needs nothing of a transfer runs meanwhile.
    uses = Uses({}, [[], [], [], []])
    assert overlapped([0, 1, 2, 3], {(0, 1), (1, 2)}, [1, 1, 1, 1], {1}, uses) == [0, 1, 3, 2]
    # The order stays where memory would not do.
    dear = Uses({0: 100, 1: 100}, [[0], [0], [1], [1]])
    assert overlapped([0, 1, 2, 3], {(0, 1), (2, 3)}, [1, 9, 1, 1], {1}, dear) == [0, 1, 2, 3]


@verifies("ordering.waiting.late+3")
def test_an_awaited_transfer_starts_when_no_kernel_can_run() -> None:
    # However long others take: 1 is a transfer of 0, for which 2 waits, and nobody else.
    uses, pairs = Uses({}, [[] for _ in range(5)]), {(0, 1), (1, 2), (0, 3), (3, 4)}
    for long in (1.0, 1e3):
        seconds = [1.0, long, 1.0, long, long]
        assert overlapped([0, 1, 2, 3, 4], pairs, seconds, {1}, uses, {1}) == [0, 3, 4, 1, 2]
        assert overlapped([0, 1, 2, 3, 4], pairs, seconds, {1}, uses)[:2] == [0, 1]


def test_spans_are_noted_without_lanes_too() -> None:
    with Context(OVERLAP=0), realize.measured() as spans:
        values(step())
    assert {span.lane for span in spans} == {"compute", "copy"}
    assert all(isinstance(span, Span) and span.start <= span.stop for span in spans)
