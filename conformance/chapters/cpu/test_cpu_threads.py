"""Kernels that threads share: steps, phases, the runtime. Chapters: kernel, render, cpu."""
from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor, cpu, symbolic
from impl.choosing import hand_steps
from impl.choosing import threads as sharing
from impl.cpu import objects
from impl.device import Device
from impl.dialects import C
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits
from impl.render import render
from impl.schedule import schedule_cache
from impl.steps import GroupTop, Step, StepError, Thread
from impl.steps.threads import MOST_THREADS

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.device("CPU")


def apply(ast: UOp, *steps: Step) -> UOp:
    for step in steps:
        ast = step.apply(Analysis(ast))
    return ast


def counted(extent: int | UOp, threads: int) -> UOp:
    """out[i] += 1, shared by threads."""
    i = new_range(extent, RangeKind.GLOBAL)
    value = kb.apply(Ops.ADD, load(param(0, INT), i), kb.number(INT, 1))
    variables = () if isinstance(extent, int) else (extent,)
    ast = kb.kernel(store(param(0, INT), i, value), prefix=(i,), variables=variables)
    return apply(ast, Thread(0, threads))


def total(size: int, op: Ops = Ops.ADD) -> UOp:
    """out[0] = the sum of a vector."""
    k = new_range(size, RangeKind.REDUCE)
    return kb.kernel(store(param(0, INT), 0, reduce(op, load(param(1, INT), k), k)))


def plain(ast: UOp) -> None:
    """Compile as it is, since the steps are what is tested."""
    with Context(NOOPT=1):
        Device["CPU"].compile([ast])


@contextmanager
def everything_shared() -> Iterator[None]:
    """No kernel is too small for threads."""
    before, sharing.SHARE = sharing.SHARE, 1
    schedule_cache.clear()
    Device["CPU"].programs.clear()
    try:
        yield
    finally:
        sharing.SHARE = before
        schedule_cache.clear()
        Device["CPU"].programs.clear()


# Steps


@verifies("dialects.thread.parts+2")
def test_each_iteration_is_in_one_part() -> None:
    extents = (1, 2, 3, 5, 16, 17, 255, 512, 768, 769, 1285, 4096, 4099)
    asts = {(e, n): counted(e, n) for e in extents for n in (2, 3, 5, 40)}
    with Context(NOOPT=1):
        Device["CPU"].compile(list(asts.values()))
        for (extent, threads), ast in asts.items():
            out = np.zeros(extent, np.int32)
            kb.run(ast, out)
            assert (out == 1).all(), (extent, threads, out)


@verifies("dialects.thread.parts+2")
def test_each_iteration_is_in_one_part_when_the_extent_is_known_late() -> None:
    variable = symbolic.Variable("n", 1, 100).uop
    ast = counted(variable, 3)
    with Context(NOOPT=1):
        for extent in (1, 2, 3, 4, 50, 99, 100):
            out = np.zeros(100, np.int32)
            kb.run(ast, out, values=[extent])
            assert (out == (np.arange(100) < extent)).all(), extent


def random_shared(ast: UOp, seed: int) -> UOp:
    """The kernel after random steps, with loops shared and reductions cut before or after them."""
    draw, threads = random.Random(seed), random.Random(seed).choice((2, 3, 5))
    for turn in range(3):
        for _ in range(4):
            known = Analysis(ast)
            kind = draw.choice((Thread, GroupTop))
            try:
                ast = kind(draw.randrange(max(len(known.ranges), 1)), threads).apply(known)
            except StepError:
                continue
        ast = kb.random_steps(ast, seed + turn) if turn < 2 else ast
    return ast


@pytest.mark.slow
@verifies("steps.value.equal")
@verifies("steps.threads.refused+2")
def test_random_kernels_store_the_same_with_threads() -> None:
    made = [kb.random_kernel(9000 + seed) for seed in range(120)]
    asts = [random_shared(kernel.ast, seed) for seed, kernel in enumerate(made)]
    sources = [render(ast, C()) for ast in asts]
    assert sum(bool(source.phases) for source in sources) > 60
    assert sum(len(source.phases) > 1 for source in sources) > 10
    with Context(NOOPT=1):
        Device["CPU"].compile(asts)
        for seed, (kernel, ast) in enumerate(zip(made, asts, strict=True)):
            wanted = kernel.result(kernel.ast, "REFERENCE", seed)
            for device in ("CPU", "REFERENCE"):
                assert (kernel.result(ast, device, seed) == wanted).all(), (seed, ast.arg.steps)


@verifies("steps.threads.refused+2")
def test_a_loop_that_cannot_be_shared_is_refused() -> None:
    i, k = new_range(8, RangeKind.LOOP), new_range(8, RangeKind.REDUCE)
    first = load(param(0), 0)
    in_place = kb.kernel(store(param(0), i, kb.apply(Ops.ADD, load(param(1), i), first), i))
    both = kb.kernel(store(param(1), i, load(param(0), i), i),
                     store(param(0), i, reduce(Ops.ADD, load(param(1), k), k), i))
    rows, shared = kb.softmax(4, 8), apply(kb.matmul(6, 10, 7), Thread(0, 2))
    for ast, step in ((in_place, Thread(0, 2)), (both, GroupTop(1, 2)), (rows, Thread(2, 2)),
                      (rows, GroupTop(1, 2)), (shared, Thread(1, 2)), (shared, Thread(1, 3)),
                      (kb.matmul(6, 10, 7), Thread(2, 2)), (kb.matmul(6, 10, 7), Thread(0, 1)),
                      (kb.matmul(6, 10, 7), Thread(3, 2))):
        with pytest.raises(StepError, match=type(step).__name__.upper()):
            step.apply(Analysis(ast))


@verifies("steps.threads.refused+2")
def test_a_reduction_that_reads_what_is_stored_is_not_cut() -> None:
    i, k = new_range(8, RangeKind.LOOP), new_range(8, RangeKind.REDUCE)
    ast = kb.kernel(store(param(0), i, load(param(1), i), i),
                    store(param(2), 0, reduce(Ops.ADD, load(param(0), k), k)))
    place = Analysis(ast).position[k]
    with pytest.raises(StepError, match="stage stores"):
        GroupTop(place, 2).apply(Analysis(ast))
    with pytest.raises(StepError, match="depends on other loops"):
        rows = kb.kernel(store(param(0), i, reduce(Ops.ADD, load(param(1), flat((i, 8), (k, 1))),
                                                   k), i))
        GroupTop(Analysis(rows).position[k], 2).apply(Analysis(rows))


@verifies("steps.threads.refused+2")
def test_no_reduction_of_a_shared_loop_is_cut() -> None:
    """The stage with the parts would stand between two stages of the loop."""
    block, k = new_range(4, RangeKind.BLOCK), new_range(8, RangeKind.REDUCE)
    ast = kb.kernel(store(param(0), block, load(param(2), block), block),
                    store(param(1), block, reduce(Ops.ADD, load(param(3), k), k), block))
    with pytest.raises(StepError, match="shared loop needs it"):
        GroupTop(Analysis(ast).position[k], 2).apply(Analysis(ast))


@verifies("steps.parts.order")
def test_parts_are_combined_from_the_first_to_the_last() -> None:
    """2**24 + 1 is 2**24 in float32, so that the order shows."""
    big = 2.0**24
    for values, wanted in (([big, 0, -big, 0, 1, 0], 1), ([big, 0, 1, 0, -big, 0], 0)) * 2:
        k = new_range(6, RangeKind.REDUCE)
        ast = apply(kb.kernel(store(param(0), 0, reduce(Ops.ADD, load(param(1), k), k))),
                    GroupTop(0, 3))
        for _ in range(20):
            out = np.zeros(1, np.float32)
            with Context(NOOPT=1):
                kb.run(ast, out, np.array(values, np.float32))
            assert out[0] == wanted


@verifies("steps.parts.order")
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAXIMUM, Ops.MINIMUM, Ops.MUL])
def test_no_element_is_lost_by_cutting(op: Ops) -> None:
    numpy = {Ops.ADD: np.add, Ops.MAXIMUM: np.maximum, Ops.MINIMUM: np.minimum,
             Ops.MUL: np.multiply}[op]
    for size, threads in ((2, 2), (3, 2), (7, 3), (1000, 3), (5000, 2), (5003, 5)):
        values = np.random.default_rng(size).integers(1, 3, size).astype(np.int32)
        out = np.zeros(1, np.int32)
        with Context(NOOPT=1):
            kb.run(apply(total(size, op), GroupTop(0, threads)), out, values)
        assert out[0] == numpy.reduce(values, dtype=np.int32)


@verifies("choosing.threads.shares+2")
def test_small_kernels_are_left_to_one_thread() -> None:
    limits = DeviceLimits(threads=8)
    assert not any(isinstance(step, (Thread, GroupTop)) for ast in (total(1000), kb.softmax(8, 64))
                   for step, _ in hand_steps(ast, limits))
    some = [step for step, _ in hand_steps(kb.matmul(96, 96, 96), limits)][-1]
    assert isinstance(some, Thread) and 2 <= some.amount < 8
    last, reason = hand_steps(kb.softmax(4096, 4096), limits)[-1]
    assert last == Thread(0, 8) and "4096 iterations" in reason


@verifies("choosing.threads.sum")
def test_a_sum_is_the_same_for_every_number_of_threads() -> None:
    for threads in (1, 2, 8, 64):
        limits = DeviceLimits(threads=threads, parts=8)
        assert hand_steps(total(1 << 24), limits)[0][0] == GroupTop(0, 128)
        assert hand_steps(total(1 << 18), limits)[0][0] == GroupTop(0, 8)
    values = np.random.default_rng(0).standard_normal(500_000).astype(np.float32)
    found = []
    for threads in (1, 2, 3, 7):
        with Context(DEVICE="CPU", CPU_COUNT=threads):
            x = Tensor(values)
            found.append([x.sum().item(), x.reshape(500, 1000).mean().item(),
                          x.reshape(4, -1).var(1).tolist(), x.cumsum(0)[-1].item()])
    assert all(each == found[0] for each in found)


@verifies("choosing.threads.shares+2")
def test_long_kernels_have_several_parts_for_each_thread() -> None:
    limits = DeviceLimits(threads=2, parts=8)
    for ast, amount in ((kb.softmax(4096, 4096), 16), (kb.softmax(3100, 4096), 10),
                        (kb.softmax(9, 1 << 16), 9), (kb.softmax(4099, 512), 16),
                        (kb.softmax(128, 400), 2)):
        last, reason = hand_steps(ast, limits)[-1]
        assert last == Thread(0, amount) and f"in {amount} parts" in reason
    for heads, wanted in ((5, Thread(0, 4)), (8, Thread(1, 8)), (1 << 10, Thread(1, 16))):
        i, j, k = (new_range(n, r) for n, r in ((4, RangeKind.GLOBAL), (heads, RangeKind.GLOBAL),
                                                (1 << 16, RangeKind.REDUCE)))
        row = symbolic.add(symbolic.mul(i, heads), j)
        ast = kb.kernel(store(param(0), row, reduce(Ops.ADD, load(
            param(1), symbolic.add(symbolic.mul(row, 1 << 16), k)), k)), prefix=(i, j))
        assert hand_steps(ast, limits)[-1][0] == wanted  # the loop with parts enough
    many = hand_steps(kb.softmax(1 << 16, 1 << 12), DeviceLimits(threads=1024, parts=8))[-1][0]
    assert many == Thread(0, MOST_THREADS)


# Phases


def two_means(size: int) -> UOp:
    """The variance of a vector: two reductions, the second of which needs the first."""
    k, k2 = new_range(size, RangeKind.REDUCE), new_range(size, RangeKind.REDUCE)
    mean = kb.apply(Ops.MUL, reduce(Ops.ADD, load(param(1), k), k), kb.number(FLOAT, 1 / size))
    apart = kb.apply(Ops.SUB, load(param(1), k2), mean)
    return kb.kernel(store(param(0), 0, reduce(Ops.ADD, kb.apply(Ops.MUL, apart, apart), k2)))


@verifies("lowering.phase.order")
def test_what_waits_for_all_threads_is_another_phase() -> None:
    ast = two_means(90)
    for _ in range(2):
        known = Analysis(ast)
        place = next(i for i, loop in enumerate(known.ranges)
                     if loop.src[0].arg == 90 and loop.arg[1] is RangeKind.REDUCE)
        ast = GroupTop(place, 3).apply(known)
    assert render(ast, C()).phases == (True, True, False)
    i, i2 = new_range(40, RangeKind.LOOP), new_range(40, RangeKind.LOOP)
    first = store(param(0), i, load(param(1), i), i)
    after = store(param(2), i2, load(param(0), symbolic.add(symbolic.mul(i2, -1), 39)), i2)
    free = store(param(2), i2, load(param(1), i2), i2)
    before = store(param(1), i2, load(param(3), i2), i2)
    same = store(param(0), i2, load(param(1), i2), i2)
    for second, phases in ((after, 2), (free, 1), (before, 2), (same, 2)):
        both = apply(kb.kernel(first, second), Thread(0, 2))
        known = Analysis(both)
        rest = next(p for p, loop in enumerate(known.ranges) if loop.arg[1] is RangeKind.LOOP)
        both = Thread(rest, 2).apply(known)
        assert render(both, C()).phases == (True,) * phases


@verifies("render.phase.scratch+2")
def test_two_runs_have_scratch_memory_of_their_own() -> None:
    ast = apply(total(64), GroupTop(0, 4))
    assert render(ast, C()).scratch == 64
    with Context(NOOPT=1):
        program = Device["CPU"].compile([ast])[0]
    wrong: list[int] = []

    def use(number: int) -> None:
        memories = [Device["CPU"].allocate(4), Device["CPU"].allocate(256)]
        memories[1].view(kb.INT)[:] = number
        for _ in range(2000):
            program.run(memories, ())
            if memories[0].view(kb.INT)[0] != 64 * number:
                wrong.append(number)

    run_together([lambda number=number: use(number) for number in range(4)])  # type: ignore[misc]
    assert not wrong


@verifies("render.phase.scratch+2")
def test_what_passes_between_phases_lies_apart() -> None:
    """The parts of a sum, and those of a maximum."""
    k = new_range(64, RangeKind.REDUCE)
    both = kb.apply(Ops.ADD, *(reduce(op, load(param(1, INT), k), k)
                               for op in (Ops.ADD, Ops.MAXIMUM)))
    ast = apply(kb.kernel(store(param(0, INT), 0, both)), GroupTop(0, 4))
    out = np.zeros(1, np.int32)
    with Context(NOOPT=1):
        kb.run(ast, out, np.arange(64, dtype=np.int32))
    assert render(ast, C()).scratch == 128 and out[0] == 63 * 32 + 63


@verifies("dialects.local.large+2")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_stage_buffers_lie_in_the_memory_of_a_run(threads: int) -> None:
    count, rows = 20_001, 3
    row = new_range(rows, RangeKind.GLOBAL)
    i, j = new_range(count, RangeKind.LOOP), new_range(count, RangeKind.LOOP)
    doubled = kb.apply(Ops.MUL, load(param(1, INT), flat((row, count), (i, 1))),
                       kb.number(INT, 2))
    buffer = kb.local(0, count, INT)
    backwards = load(buffer, symbolic.add(symbolic.mul(j, -1), count - 1))
    ast = kb.kernel(store(buffer, i, doubled, i),
                    store(param(0, INT), flat((row, count), (j, 1)), backwards, j), prefix=(row,))
    if threads > 1:
        ast = apply(ast, Thread(0, threads))
    source = render(ast, C())
    assert "static" not in source.text and "_Thread_local" not in source.text
    assert source.scratch == 0 and source.own == -(-count * 4 // 64) * 64
    with Context(NOOPT=1, CPU_COUNT=threads):
        program = Device["CPU"].compile([ast])[0]
    given = np.arange(rows * count, dtype=np.int32).reshape(rows, count)
    wrong: list[int] = []

    def use(number: int) -> None:
        memories = [Device["CPU"].allocate(given.nbytes) for _ in range(2)]
        memories[1].view(kb.INT)[:] = (given + number).reshape(-1)
        table = Device["CPU"].table([(program, memories, ())] * 2)
        for turn in range(40):
            memories[0].view(kb.INT)[:] = 0
            if turn % 2:
                table.run()
            else:
                program.run(memories, ())
            found = memories[0].view(kb.INT).reshape(rows, count)
            if (found != 2 * (given + number)[:, ::-1]).any():
                wrong.append(number)

    run_together([lambda number=number: use(number) for number in range(4)])  # type: ignore[misc]
    assert not wrong


def run_together(tasks: list[Callable[[], None]]) -> None:
    """Run each in a thread of its own; errors are raised here."""
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # any
            errors.append(error)

    running = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


# The runtime


def programs(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"elementwise": ((x + 1) * 2).relu(), "sum": x.sum(), "std": x.std(),
            "softmax": x.softmax(-1), "product": x @ y, "columns": x.sum(0), "max": x.max(),
            "parts": x / x.sum(), "argmax": x.argmax(), "transposed": x.T + 1,
            "layernorm": x.layernorm(), "padded": x.pad(((1, 2), (0, 3))) * 2,
            "half": x.cast("float16").sum(), "loss": x.log_softmax(-1)[:, 0].mean()}


def expected(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    x, y = x.astype(np.float64), y.astype(np.float64)
    shifted = x - x.max(-1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return {"elementwise": np.maximum((x + 1) * 2, 0), "sum": x.sum(), "std": x.std(ddof=1),
            "softmax": np.exp(log), "product": x @ y, "columns": x.sum(0), "max": x.max(),
            "parts": x / x.sum(), "argmax": np.array(x.argmax()), "transposed": x.T + 1,
            "layernorm": normal, "padded": np.pad(x, ((1, 2), (0, 3))) * 2,
            "half": x.astype(np.float16).astype(np.float64).sum(), "loss": log[:, 0].mean()}


@pytest.mark.slow
@verifies("cpu.threads.equal")
@verifies("cpu.threads.process")
@verifies("cpu.threads.count")
@verifies("cpu.threads.placed")
@pytest.mark.parametrize("sanitizer", ["", "thread", "address,undefined"])
def test_the_runtime_under_stress(sanitizer: str, tmp_path: Path) -> None:
    """The C program tells whether all results were right, the sanitizer how they came about."""
    compiler = shutil.which("gcc") or shutil.which("cc") or ""
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else []
    base = [compiler, "-O1", "-g", "-pthread", *flags, "-o", str(tmp_path / "stress")]
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n")
    for words in ([*base, str(tmp_path / "empty.c")], [str(tmp_path / "stress")]):
        if subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip(f"-fsanitize={sanitizer} of {compiler or 'no compiler'} does not run here")
    source = ROOT / "conformance" / "witnesses" / "runtime_stress.c"
    (tmp_path / "runtime.c").write_text(objects.RUNTIME.text)
    subprocess.run([*base, "-I", str(tmp_path), str(source)], check=True)
    forks = [] if sanitizer else ["fork"]  # their allocators may be locked by a thread that is gone
    found = subprocess.run([str(tmp_path / "stress"), *forks], capture_output=True, text=True,
                           check=False, timeout=600)
    assert (found.stdout, found.returncode) == ("fine with workers\n", 0), found.stderr


@pytest.mark.slow
@verifies("cpu.threads.equal")
@pytest.mark.parametrize("shape", [(37, 53, 19), (64, 128, 32), (3, 1000, 7), (1, 5, 1)])
def test_results_do_not_depend_on_who_did_what(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(7)
    a = rng.random(shape[:2], np.float32)
    b = rng.random(shape[1:], np.float32)
    wanted = expected(a, b)
    with everything_shared():
        for count in (1, 2, 3, 5):
            with Context(CPU_COUNT=count, DEVICE="CPU"):
                x, y = Tensor(a).realize(), Tensor(b).realize()
                first = {name: value.numpy() for name, value in programs(x, y).items()}
                for name, value in first.items():
                    rough = 2e-3 if name == "half" else 2e-5
                    np.testing.assert_allclose(value, wanted[name], rtol=rough, atol=1e-5,
                                               err_msg=f"{name} with {count} threads")
                for _ in range(3):
                    for name, tensor in programs(x, y).items():
                        assert tensor.numpy().tobytes() == first[name].tobytes(), (name, count)


@verifies("cpu.threads.count")
def test_the_number_of_threads_is_part_of_the_keys() -> None:
    ast = kb.softmax(2048, 1024)
    keys, shapes, texts = set(), [], []
    for count in (1, 2, 3):
        with Context(CPU_COUNT=count):
            program = Device["CPU"].compile([ast])[0]
            assert isinstance(program, cpu.CPUProgram)
            keys.add(Device["CPU"].plan_key())
            shapes.append(program.shape[1])
            texts.append(program.source or "")
    assert len(keys) == 3 and shapes == [1, 2, 3]
    assert "long thread" not in texts[0] and "long thread" in texts[1]
    assert "void softmax(void **args) {" in texts[0]
    assert Device["CPU"].limits.threads == cpu.processors()


def child(code: str, **settings: object) -> str:
    """What a new process prints, which has to end by itself, and well."""
    start = """
from conformance.saboteurs.impl_patches import inherit
inherit()
import os, sys, threading, time, signal
import numpy as np
from impl import Context, Tensor
from impl.choosing import threads as sharing
a = np.random.default_rng(1).random(1 << 18, np.float32)
def tasks():  # of workers: they take no signals; a compiler's thread may still be on its way out
    found = set()
    for task in os.listdir("/proc/self/task"):
        try: lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        except OSError: continue
        blocked = int([line.split()[1] for line in lines if line.startswith("SigBlk")][0], 16)
        if blocked >> (signal.SIGINT - 1) & 1: found.add(int(task))
    return found
def workers(): return len(tasks())
def check():
    x = Tensor(a)
    assert np.allclose((x * 2 + 1).numpy(), a * 2 + 1)
    assert abs(x.sum().item() - a.sum(dtype=np.float64)) < 1
    return "fine"
"""
    environment = {**os.environ, "CPU_COUNT": "4", "OPENBLAS_NUM_THREADS": "1", "DEVICE": "CPU",
                   **{name: str(value) for name, value in settings.items()}}
    found = subprocess.run([sys.executable, "-c", start + code], cwd=ROOT, text=True, timeout=600,
                           capture_output=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


on_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux")


@on_linux
@verifies("cpu.threads.woken")
def test_workers_are_started_late_and_sleep() -> None:
    assert child("""
used = lambda: time.process_time()
print(workers())
with Context(CPU_COUNT=1):
    check()
print(workers())
big = Tensor(np.ones(1 << 22, np.float32)).realize()
(big * 2).realize()
print(workers())
for turn in range(40):  # on a busy machine it takes a while until they have looked long enough
    before = used()
    time.sleep(0.05)
    if used() - before < 0.005: break
print(turn < 39)
""").split() == ["0", "0", "3", "True"]


@on_linux
@verifies("cpu.threads.woken")
def test_a_kernel_that_takes_longer_than_was_thought_gets_workers() -> None:
    assert child("""
from conformance.chapters.cpu import test_cpu_threads as t
from impl.device import Device
ast = t.apply(t.total(1 << 22), t.GroupTop(0, 2))
with Context(NOOPT=1): program = Device["CPU"].compile([ast])[0]
program.shape = (*program.shape[:-1], 1)  # a nanosecond
out, given = Device["CPU"].allocate(4), Device["CPU"].allocate(4 << 22)
given.array.view(np.int32)[:] = 1
table = Device["CPU"].table([(program, [out, given], ())])
for _ in range(3):
    table.run()
    print(workers(), out.array.view(np.int32)[0])
""").split() == ["0", str(1 << 22), "1", str(1 << 22), "1", str(1 << 22)]


@on_linux
@pytest.mark.skipif(cpu.processors() < 2, reason="there is no other processor")
@verifies("cpu.threads.placed")
def test_workers_are_not_where_their_caller_is() -> None:
    """Wherever the caller is put. Where there are too few processors, workers may be anywhere."""
    assert child("""
allowed = os.sched_getaffinity(0)
here = lambda: int(open("/proc/thread-self/stat").read().rsplit(")", 1)[1].split()[36])
big = Tensor(np.ones(1 << 22, np.float32)).realize()
before, seen, apart = tasks(), set(), 0
stayed = 0
for turn in range(200):
    os.sched_setaffinity(0, {sorted(allowed)[turn % 2]})  # go there, and stay for a while
    os.sched_setaffinity(0, allowed)
    there = here()
    with Context(CPU_COUNT=2): (big * 2).realize()
    if here() != there: continue  # the system has moved the caller meanwhile
    stayed += 1
    (worker,) = tasks() - before
    (avoided,) = allowed - os.sched_getaffinity(worker)
    apart += avoided == there  # but for turns in which it was moved there and back
    seen.add(avoided)
    assert os.sched_getaffinity(0) == allowed
    if stayed >= 60 and len(seen) >= 2: break
with Context(CPU_COUNT=len(allowed) + 1): (big * 3).realize()
found = tasks() - before
print(len(seen) >= 2 and apart > stayed / 2, len(found) == len(allowed),
      all(os.sched_getaffinity(worker) == allowed for worker in found))
""", OPENBLAS_NUM_THREADS=1).split() == ["True", "True", "True"]


@verifies("cpu.threads.process")
def test_a_process_ends_with_its_workers() -> None:
    assert child("print(check())") == "fine"
    assert child("""
print(check(), flush=True)
def forever():
    while True: check()
for _ in range(3): threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
os._exit(0)
""") == "fine"


@on_linux
@verifies("cpu.threads.process")
def test_workers_leave_signals_to_others() -> None:
    assert child("""
(Tensor(np.ones(1 << 22, np.float32)).realize() * 2).realize()
print(workers())
""") == "3"


@on_linux
@verifies("cpu.threads.process")
def test_a_child_starts_workers_of_its_own() -> None:
    assert child("""
def used():
    (Tensor(np.ones(1 << 22, np.float32)).realize() * 2).realize()
    return workers()
before, pid = used(), os.fork()
if not pid: os._exit(used())
print(before, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""") == "3 3"


@verifies("cpu.threads.process")
def test_a_child_of_a_busy_process_has_workers() -> None:
    """Also when it is forked while other threads are in the middle of kernels."""
    assert child("""
check()
busy = True
def others():
    while busy: check()
running = [threading.Thread(target=others) for _ in range(2)]
for thread in running: thread.start()
done = []
for _ in range(8):
    time.sleep(0.01)
    pid = os.fork()
    if not pid:  # no locks of Python that the other threads may have held are touched here
        for _ in range(50): table.run()
        os._exit(0 if out.array.view(np.int32)[0] == 1 << 20 else 1)
    done.append(os.waitpid(pid, 0)[1])
busy = False
for thread in running: thread.join()
print(done == [0] * 8, check())
""".replace("check()\nbusy", """check()
from conformance.chapters.cpu import test_cpu_threads as t
from impl.device import Device
ast = t.apply(t.total(1 << 20), t.GroupTop(0, 4))
with Context(NOOPT=1): program = Device["CPU"].compile([ast])[0]
out, given = Device["CPU"].allocate(4), Device["CPU"].allocate(4 << 20)
given.array.view(np.int32)[:] = 1
table = Device["CPU"].table([(program, [out, given], ())])
busy""", 1)) == "True fine"


@verifies("cpu.threads.process")
def test_threads_of_python_run_shared_kernels_together() -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.random((64 + 8 * n, 500), np.float32) for n in range(8)]

    def use(a: np.ndarray) -> None:
        with Context(CPU_COUNT=3, DEVICE="CPU"):
            x = Tensor(a).realize()
            for _ in range(12):
                np.testing.assert_allclose((x * 2 + 1).numpy(), a * 2 + 1, rtol=1e-6)
                np.testing.assert_allclose(x.sum().item(), a.sum(dtype=np.float64), rtol=1e-5)
                np.testing.assert_allclose(x.softmax(-1).numpy().sum(-1), 1, rtol=1e-5)

    with everything_shared():
        run_together([lambda a=a: use(a) for a in arrays])  # type: ignore[misc]


@verifies("cpu.threads.process")
def test_a_fork_while_another_thread_computes() -> None:
    """A child runs kernels, whatever the other threads of its parent were at."""
    program = """
import os, signal, threading
import numpy as np
from impl import Tensor

given, stopped = np.ones(300_007, np.float32), threading.Event()

def compute():
    while not stopped.is_set():
        (Tensor(given).realize() * 3).sum().item()

def answer():
    return (Tensor(given).realize() + 1).sum().item()

answer()
(Tensor(given).realize() * 3).sum().item()
other = threading.Thread(target=compute)
other.start()
for _ in range(8):
    child = os.fork()
    if not child:
        signal.alarm(300)
        os._exit(int(answer() != 600_014))
    assert os.waitpid(child, 0)[1] == 0
stopped.set()
other.join()
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                         check=False, timeout=900)
    assert run.returncode == 0, run.stderr
