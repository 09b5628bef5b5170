"""Tests of the chapter distributed: real processes, started by the real mpiexec."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance.faults import jobs
from conformance.trace import verifies
from conformance.ways.__main__ import FURTHEST
from conformance.ways.programs import SIZES, ways
from impl import Tensor, distributed
from impl.cpu import machine
from impl.errors import ArgumentError

needs_mpi = pytest.mark.skipif(
    jobs.mpiexec() is None or importlib.util.find_spec("mpi4py") is None,
    reason="needs mpi4py and mpiexec: pip install mpi4py mpich")

#: An error is written at once: what several processes write by the line gets mixed.
HEAD = """import sys, time, os, signal, traceback
sys.excepthook = lambda *error: os.write(2, "".join(traceback.format_exception(*error)).encode())
import numpy as np
from impl import Context, Tensor, TinyJit, distributed, nn
from impl.errors import DistributedError, ShapeError
mesh, me = distributed.mesh(data={count}), distributed.rank()
"""


def started(count: int, program: str, folder: Path, fails: bool = False, head: str = HEAD,
            **environment: str) -> list[str]:
    """What the processes of a program print, sorted; or what the errors say that end them."""
    script = folder / "program.py"
    script.write_text(head.format(count=count) + program)
    launcher = jobs.mpiexec()
    assert launcher is not None
    done = subprocess.run(
        [launcher, "-n", str(count), sys.executable, str(script)], cwd=folder, timeout=300,
        capture_output=True, text=True,
        env=jobs.environment(**{"DISTRIBUTED_SECONDS": "60", **environment}))
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    if fails:
        assert not done.stdout.strip().startswith("value"), done.stdout
        return sorted(line for line in done.stderr.splitlines() if "DistributedError:" in line)
    return sorted(done.stdout.splitlines())


VALUES = """
def trained(place_w, place_x):
    random = np.random.default_rng(0)
    w = Tensor(random.standard_normal((4, 3)).astype(np.float32))
    place_w(w)
    w.requires_grad = True
    optimizer = nn.optim.Adam([w], lr=0.25)
    def step(x):
        optimizer.zero_grad()
        loss = ((x @ w).tanh() ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.realize()
    run, losses = TinyJit(step), []
    for _ in range(4):
        x = place_x(Tensor(random.standard_normal((6, 4)).astype(np.float32))).realize()
        losses.append(run(x).item())
    return np.array(losses)

one = trained(lambda w: None, lambda x: x)
for axis in (None, 0, 1):
    found = trained(lambda w: w.shard_(mesh, data=axis), lambda x: x.shard(mesh, data=0))
    assert np.allclose(found, one, rtol=1e-5), (axis, found, one)
a = np.random.default_rng(1).integers(-9, 9, (5, 4)).astype(np.float32)
a[2, 1] = np.nan
for axis in (None, 0, 1):
    x = Tensor(a).shard(mesh, data=axis)
    for f, g in ((lambda x: x.max(0), lambda a: a.max(0)), (lambda x: x[1:4], lambda a: a[1:4]),
                 (lambda x: x.T, lambda a: a.T), (lambda x: x.sum(), lambda a: a.sum()),
                 (lambda x: x.half().sum(0), lambda a: a.astype(np.float16).sum(0)),
                 (lambda x: x.flip(0) + 1, lambda a: a[::-1] + 1)):
        np.testing.assert_array_equal(f(x).numpy(), g(a))
sys.stdout.write(f"{me} right\\n")
"""


@pytest.mark.slow
@needs_mpi
@verifies("distributed.value.equal")
@pytest.mark.parametrize("count", [2, 3])
def test_values_are_those_of_one_process(count: int, tmp_path: Path) -> None:
    assert started(count, VALUES, tmp_path) == [f"{rank} right" for rank in range(count)]


@pytest.mark.slow
@needs_mpi
@verifies("distributed.late.named+3")
def test_who_hangs_is_named_by_all_others() -> None:
    fault, job, problems = jobs.one(7, ("stopped",))
    assert not problems, (fault, job)


@needs_mpi
@verifies("distributed.end.named+2")
@pytest.mark.parametrize("kind", ["killed", "ends"])
def test_who_has_gone_is_named_by_all_others_at_once(kind: str) -> None:
    fault, job, problems = jobs.one(7, (kind,))
    assert not problems, (fault, job)
    errors = [line for lines in job.lines.values() for line in lines if "Distributed" in line]
    assert not any("within" in line for line in errors), errors


OTHER = """
x = Tensor(np.ones(4, np.float32)).shard(mesh, data=0).realize()
y = Tensor(np.ones((4, 4), np.float32)).shard(mesh, data=0).realize()
try:
    (x.sum() if me != 1 else y.sum(0)).realize()
except DistributedError as error:
    first = error
try:
    print("value", x.sum().item())
except DistributedError as error:
    assert error is first
    raise
"""


@needs_mpi
@verifies("distributed.other.named")
@verifies("distributed.error.final")
def test_a_process_that_does_something_else_is_named(tmp_path: Path) -> None:
    found = started(3, OTHER, tmp_path, fails=True, DISTRIBUTED_SECONDS="20")
    assert len(found) == 3, found
    for line in found:
        assert "rank 1 is about to do something else" in line, line
        assert "program.py:11" in line, line


ALIKE = """
x = Tensor(np.arange(9, dtype=np.float32)).shard(mesh, data=0).realize()
print("value", ({} if me != 1 else {}).tolist())
"""


@needs_mpi
@verifies("distributed.other.named")
@pytest.mark.parametrize("does", [("(x * 2).sum()", "(x + 1).prod()"),
                                  ("x.roll(3, 0)", "x.roll(-3, 0)")])
def test_transfers_of_as_many_bytes_are_not_the_same(does: tuple[str, str],
                                                     tmp_path: Path) -> None:
    found = started(3, ALIKE.format(*does), tmp_path, fails=True, DISTRIBUTED_SECONDS="20")
    assert len(found) == 3 and all("rank 1 is about to do something else" in line
                                   for line in found), found


SEEDLESS = """
sys.stdout.write(f"{Tensor.randn(2).tolist()} {nn.Linear(2, 1).weight.tolist()}\\n")
"""
EARLY = """
from impl import Tensor, distributed
Tensor.randn(2)
distributed.mesh(data={count})
"""


@needs_mpi
@verifies("distributed.random.same")
def test_random_numbers_without_a_seed_are_those_of_one_process(tmp_path: Path) -> None:
    first, second = started(2, SEEDLESS, tmp_path)
    assert first == second and first.startswith("[")
    found = started(2, "", tmp_path, fails=True, head=EARLY)
    assert len(found) == 2, found
    for line in found:
        assert "random numbers were drawn before" in line and "program.py:4" in line, line


COPIES = """
x = Tensor(np.full(4, float(me > 0), np.float32)).shard(mesh)
print("value", (x * 2).sum().item())
"""


@needs_mpi
@verifies("distributed.copies.same")
def test_copies_are_compared_when_asked_for(tmp_path: Path) -> None:
    found = started(3, COPIES, tmp_path, fails=True, SPEC="1", DISTRIBUTED_SECONDS="20")
    assert len(found) == 3, found
    for line in found:
        assert "rank 0 is about to do something else: copies of the 16 bytes" in line, line
        assert "program.py:9" in line, line


PLANS = """
x = Tensor(np.ones(4, np.float32)).shard(mesh, data=0).realize()
print("sum", x.sum().item())
y = (x * (2 if me else 3)).realize()
print("value")
"""


@needs_mpi
@verifies("distributed.plan.same")
def test_plans_are_compared_when_asked_for(tmp_path: Path) -> None:
    found = started(2, PLANS, tmp_path, fails=True, SPEC="1")
    assert len(found) == 2, found
    for line, other in zip(sorted(found), "01", strict=True):
        assert "the plan " in line and f"rank {1 - int(other)} is about" in line or \
            f"rank {other} is about" in line, line
        assert "program.py:10" in line, line


TOGETHER = """
from impl.distributed.engine import Ranks
from impl.distributed.sums import Sums
calls, summed, notes, met = [], Sums.__call__, [], Ranks.met
Sums.__call__ = lambda self: (calls.extend(self.messages), summed(self))[1]
Ranks.met = lambda self, what, *given: (notes.append(what), met(self, what, *given))[1]
random = np.random.default_rng(0)
arrays = [random.standard_normal((3, n)).astype(np.float32) for n in (1, 4, 2, 6000, 3, 5)]
def gradients(place_w, place_x):
    x = place_x(Tensor(np.arange(24, dtype=np.float32).reshape(8, 3) / 24)).realize()
    ws = [place_w(Tensor(array)).realize() for array in arrays]
    loss = sum((x @ w).tanh().sum() for w in ws)
    found = loss.gradient(*ws)
    calls.clear()
    notes.clear()
    Tensor.realize(*found)
    made.append((len(calls), len(notes)))
    values = [one.numpy() for one in found]
    calls.clear()
    notes.clear()
    loss = sum((x @ w).tanh().sum() for w in ws)
    Tensor.realize(*(w.assign(w.detach() - g) for w, g in zip(ws, loss.gradient(*ws))))
    made.append((len(calls), len(notes)))
    return values + [w.numpy() for w in ws]
made = []
one = gradients(lambda w: w, lambda x: x)
several = gradients(lambda w: w.shard(mesh), lambda x: x.shard(mesh, data=0))
for a, b in zip(one, several, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
# All that is small, and one that is large; and nothing waits before it has to.
assert made == [(0, 0)] * 2 + [(2, 1)] * 2, made
# What is large each combines where it is needed.
x = Tensor(np.ones((8, 3), np.float32)).shard(mesh, data=0).realize()
w = Tensor(arrays[3]).shard(mesh).realize()
step = w.assign(w.detach() - (x @ w).tanh().sum().gradient(w)[0])
rows = Tensor.schedule_document(step)["kernels"]
assert [row.get("transfer") for row in rows] == [
    None, "permute over data, 72000 bytes from each device: each has a part of the result, and "
    "all need it; 36000 would be sent if it were needed cut", None], rows
assert len(rows[2]["reads"]) == 3, rows
# Nor does what needs none of it run later than it may: a sum that another one waits for goes first.
x = Tensor(np.arange(48, dtype=np.float32).reshape(8, 6)).shard(mesh, data=0).realize()
w = Tensor(np.ones((6, 6), np.float32)).shard(mesh).realize()
notes.clear()
a = x.sum(0)
Tensor.realize((a * a).sum(), (x @ w).max(0), x.cast("int32").sum(0))
assert len(notes) == 2, notes
# Few bytes go with the note.
x = Tensor(np.arange(6, dtype=np.float64).reshape(2, 3)).shard(mesh, data=0).realize()
few = [(x + 1).sum(), x.prod(0), x.sum(0).cast("int32"), x.cast("int32").sum(0) * 2]
calls.clear(), notes.clear()
Tensor.realize(*few)
assert (len(calls), len(notes)) == (0, 1), (calls, notes)
assert [one.tolist() for one in few] == [21.0, [0.0, 4.0, 10.0], [3, 5, 7], [6, 10, 14]]
# MPI before its version 4 begins no collective anew.
from impl.distributed import engine
engine.group((0, 1)).noting = None
assert x.sum().item() == 15
"""


@needs_mpi
@verifies("distributed.together.once+4")
@verifies("distributed.pair.combined+2")
@verifies("ordering.waiting.late+3")
def test_gradients_are_sent_in_one_call(tmp_path: Path) -> None:
    started(2, TOGETHER, tmp_path)


REPLAYED = """
random = np.random.default_rng(0)
arrays = [random.integers(-9, 9, (6, n)).astype(kind) for n, kind in (
    (7, np.float32), (9000, np.float32), (3, np.int32), (2, np.float32), (70, np.int32),
    (4, np.float64))]
def sums(*xs):
    found = [x.sum(0) for x in xs] + [x.prod(0) for x in xs]
    Tensor.realize(*found)
    return found
run, kept = TinyJit(sums), []
for turn in range(6):
    given = [array + turn for array in arrays]
    found = run(*(Tensor(array).shard(mesh, data=0).realize() for array in given))
    if turn % 2:  # who keeps a result has the next one in other memory
        kept.append((found, given))
for found, given in [*kept, (found, given)]:
    for one, two in zip(found, [f(0) for name in ("sum", "prod") for f in (
            getattr(array, name) for array in given)], strict=True):
        np.testing.assert_allclose(one.numpy(), two, rtol=1e-6)
# Each process has its part only.
whole, rows = np.arange(14, dtype=np.float32).reshape(7, 2), -(-7 // len(mesh.devices))
part = whole[me * rows:(me + 1) * rows]
x = Tensor.from_local(part, mesh, data=0)
assert x.shape == (7, 2) and (x * 2).sum().item() == 182
np.testing.assert_array_equal(x.numpy(), whole)
try:
    Tensor.from_local(part if me else part[1:], mesh, data=0, shape=(7, 2))
    raise SystemExit("wrong")
except ShapeError as error:  # in each
    assert f"the piece of {mesh.devices[0]} has shape ({rows - 1}, 2)" in str(error), error
# Each sum is a transfer of its own, unless nothing is put off.
xs = [Tensor(array[:, :2]).shard(mesh, data=0).realize() for array in arrays[:2]]
for overlap, size, count in ((1, 1 << 20, 2), (0, 1 << 20, 1), (0, 0, 2)):
    with Context(OVERLAP=overlap, BUCKET_BYTES=size):
        rows = Tensor.schedule_document(*(x.sum(0) for x in xs))["kernels"]
    told = [row["transfer"] for row in rows if "transfer" in row]
    assert len(told) == count, told
    assert [one.endswith("2 values go together") for one in told] == [count == 1] * count, told
from impl import realize
for overlap in (0, 1):
    with Context(OVERLAP=overlap), realize.measured() as spans:
        Tensor.realize(*(Tensor(array + 0.5).shard(mesh, data=0).sum(0) for array in arrays))
    assert {(span.device, span.lane) for span in spans} == {
        (mesh.devices[me], lane) for lane in ("compute", "copy")}, spans
sys.stdout.write("right\\n")
"""


@pytest.mark.slow
@needs_mpi
@verifies("collectives.span.named")
@verifies("multi.local.whole")
@verifies("distributed.value.equal")
@verifies("distributed.buckets.none+2")
@pytest.mark.parametrize("count", [2, 3])
def test_sums_that_are_sent_again_are_those_of_the_new_values(count: int, tmp_path: Path) -> None:
    assert started(count, REPLAYED, tmp_path) == ["right"] * count


PROGRAMS = """
from conformance.ways import job
job.main("tiny", "data and tensor,ring attention,pipeline", "4", "eager")
job.main("tiny", "data and tensor", "4", "replay")
# One transfer that needs another one, beside kernels that need neither.
for captured in (lambda f: f, TinyJit):
    def sums(x, y):
        found = [x.sum(), (y * 2).sum(), x + 1, (x * x).sum(0)]
        Tensor.realize(*found)
        return found
    run = captured(sums)
    for _ in range(4):
        a = np.random.default_rng(3).integers(-9, 9, (4, 6)).astype(np.float32)
        found = run(*(Tensor(a).shard(distributed.mesh(data=2, model=2), data=axis, model=1 - axis)
                      .realize() for axis in (0, 1)))
        for one, two in zip(found, [a.sum(), 2 * a.sum(), a + 1, (a * a).sum(0)], strict=True):
            np.testing.assert_array_equal(one.numpy(), two)
"""


@pytest.mark.slow
@needs_mpi
@verifies("distributed.value.equal")
def test_each_way_is_as_on_one_device_and_sends_what_it_needs(tmp_path: Path) -> None:
    """A sample of `python -m conformance.ways`."""
    found = [json.loads(line) for line in started(4, PROGRAMS, tmp_path)]
    assert sorted((each["way"], each["mode"]) for each in found) == [
        ("data and tensor", "eager"), ("data and tensor", "replay"), ("pipeline", "eager"),
        ("ring attention", "eager")]
    for each in found:
        theory = ways(4)[each["way"]].sends(SIZES["tiny"])
        assert each["error"] <= FURTHEST and theory <= each["sent"] <= 1.01 * theory, each


@verifies("distributed.processors.shared")
@pytest.mark.parametrize(("bound", "shares"), [(8, {"1": 8, "4": 2, "5": 1, "20": 1}),
                                               (2, {"1": 2, "4": 2})])
def test_processes_share_the_processors_of_a_machine(
        bound: int, shares: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight, to all or two of which a process is bound."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(bound)), raising=False)
    for together, share in shares.items():
        monkeypatch.setenv("MPI_LOCALNRANKS", together)
        assert machine.processors.__wrapped__() == share


WRONG_SIZE = """
try:
    distributed.mesh(data={count})
except Exception as error:
    sys.stdout.write(f"{{me}} {{type(error).__name__}}\\n")
"""


@needs_mpi
@verifies("distributed.mesh.size+2")
def test_a_mesh_has_a_place_for_each_process(tmp_path: Path) -> None:
    assert started(2, WRONG_SIZE.format(count=3), tmp_path) == ["0 ArgumentError",
                                                                "1 ArgumentError"]


@verifies("errors.name.missing")
@pytest.mark.parametrize(("name", "meant"), [
    ("get_rank", "use distributed.rank()"), ("all_reduce", "x.sum(0)"), ("barrier", "nothing"),
    ("DistributedDataParallel", "p.shard_(mesh)"), ("rnak", "distributed.rank?")])
def test_what_others_call_it(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(distributed, name)
    assert meant in str(caught.value) and not hasattr(distributed, name)


@verifies("distributed.mesh.size+2")
def test_one_process_alone_has_devices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = distributed.mesh(data=2, model=2)
    assert distributed.ranks() == 1 and len(found.devices) == 4
    assert Tensor(np.ones(4, np.float32)).shard(found, data=0).sum().item() == 4
    with pytest.raises(ArgumentError):
        distributed.mesh(data=0)
