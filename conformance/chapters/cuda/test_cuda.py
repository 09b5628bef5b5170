"""The CUDA device, over the mock driver and the real NVRTC. Chapter: spec/cuda.md.

Nothing here has run on hardware. Each check runs in a process of its own kind, in which the mock
is libcuda.so.1.
"""
from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.chapters.custom.test_custom import values_on_cuda
from conformance.emulation import driver, nvrtc
from conformance.emulation.devices import OnDevice
from conformance.generators import multi_programs
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import INT, load, param, store
from conformance.runner.subject import Subject
from conformance.saboteurs.impl_patches import inherited
from conformance.trace import verifies
from impl import Context, Device, GlobalCounters, Tensor, TinyJit
from impl.dtypes import dtypes
from impl.errors import CompileError, DeviceError
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.symbolic import Variable as Number

ROOT = Path(__file__).parents[3]


def installed(name: str) -> bool:
    """Whether a module of a package is there, without importing it."""
    return all(importlib.util.find_spec(each) for each in (name.split(".")[0], name))


MISSING = "" if installed("cuda.bindings") and (
    installed("nvidia.cu13") or installed("nvidia.cuda_nvrtc")) \
    else "needs cuda-bindings and nvidia-cuda-nvrtc"
needs_mock = pytest.mark.skipif(bool(MISSING or emulation.unavailable()),
                                reason=MISSING or emulation.unavailable())
Check = Callable[[], None]


@pytest.fixture(scope="module")
def on_gpu(emulation_folder: Path, tmp_path_factory: pytest.TempPathFactory
           ) -> Iterator[Callable[[Check], None]]:
    """Runs a function of this file where the mock is the driver; what it raises is raised here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", driver.environment()["LD_LIBRARY_PATH"])
        patch.setenv("CACHE_FOLDER", str(tmp_path_factory.mktemp("kept")))
        patch.setenv("DEVICE", "CUDA")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            yield lambda check: pool.submit(_with_mock, check).result(300)


def _with_mock(check: Check) -> None:
    with inherited(), driver.installed() as mock:
        mock.set_order("reversed")
        mock.set_memory(0, 1 << 30)
        check()


def gpu(name: str = "CUDA") -> Any:
    return Device[name]


def added(count: int | UOp, variables: tuple[UOp, ...] = ()) -> UOp:
    """out[i] = a[i] + 1 for so many elements."""
    i = new_range(count, RangeKind.GLOBAL)
    value = kb.apply(Ops.ADD, load(param(1, INT), i), kb.number(INT, 1))
    return kb.kernel(store(param(0, INT), i, value), prefix=(i,), variables=variables, name="added")


def block(values: list[int], name: str = "CUDA") -> Any:
    memory = gpu(name).allocate(4 * len(values))
    gpu(name).copy_in(memory, np.array(values, np.int32))
    return memory


def read(memory: Any) -> list[int]:
    found: list[int] = memory.device.copy_out(memory, INT, memory.nbytes // 4).tolist()
    return found


# ---------------------------------------------------------------- what is there

@verifies("cuda.driver.refused")
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_without_a_driver_one_line_says_so() -> None:
    text = "import impl\nimpl.Device['CUDA']"
    if importlib.util.find_spec("torch") and __import__("torch").cuda.is_available():
        pytest.skip("there is a driver")
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, text=True, capture_output=True)
    said = done.stderr.strip().splitlines()[-1]
    assert "CUDA cannot be used: no CUDA driver is found" in said
    assert "use CPU or REFERENCE" in said


@verifies("cuda.driver.refused")
def test_without_the_bindings_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import impl.cuda.driver as ours

    def missing(name: str = "driver") -> Any:
        raise ImportError(name)
    monkeypatch.setattr(ours, "bindings", missing)
    said = ours.problem.__wrapped__()
    assert 'pip install -e ".[cuda]"' in said and "\n" not in said


def check_names() -> None:
    assert Device["cuda:0"] is gpu() and Device["CUDA:1"] is not gpu()
    with pytest.raises(DeviceError, match="CUDA:7 cannot be used: the driver knows 2 GPUs"):
        Device["CUDA:7"]


@needs_mock
@verifies("cuda.driver.refused")
def test_every_gpu_has_its_name(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_names)


FORKED = """
import os, sys
from conformance.emulation import driver
from conformance.saboteurs.impl_patches import inherited
with inherited(), driver.installed():
    from impl import Tensor
    x = Tensor([1.0, 2.0]).realize()
    assert (x + 1).tolist() == [2, 3]
    child = os.fork()
    if not child:
        try:
            (x + 2).realize()
        except RuntimeError as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    assert (x + 3).tolist() == [4, 5]
    print("parent goes on")
"""


@needs_mock
@verifies("cuda.driver.refused")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told(emulation_folder: Path, tmp_path: Path) -> None:
    environment = driver.environment() | {"DEVICE": "CUDA", "CACHE_FOLDER": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, env=environment, text=True,
                          capture_output=True, timeout=600)
    assert "this process was forked from one that uses the GPU" in done.stdout, done.stderr
    assert "parent goes on" in done.stdout


# ---------------------------------------------------------------- values

def check_random_kernels() -> None:
    kernels = [kb.random_kernel(2000 + seed) for seed in range(30)]
    for noopt in (0, 1):
        with Context(NOOPT=noopt):
            gpu().compile([made.ast for made in kernels])
            for seed, made in enumerate(kernels):
                found = made.result(made.ast, "CUDA", seed)
                assert (found == made.result(made.ast, "REFERENCE", seed)).all(), (noopt, seed)


@needs_mock
@verifies("cuda.values.reference")
def test_random_kernels_store_what_the_reference_stores(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_random_kernels)


#: Every function and every type, one kernel each.
def functions(dtype: Any) -> list[UOp]:
    i = new_range(64, RangeKind.GLOBAL)
    a, b = load(param(1, dtype), i), load(param(2, dtype), i)
    values = [kb.apply(op, a, b) for op in (
        Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ,
        Ops.CMPNE)]
    if dtype.kind == "f":
        values += [kb.apply(op, a) for op in kb.FLOAT_FUNCTIONS]
        values += [kb.apply(op, a, b) for op in (Ops.DIV, Ops.POW)]
    else:
        values += [kb.apply(op, a, b) for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR,
                                                 Ops.XOR, Ops.POW, Ops.SHL, Ops.SHR)]
    values += [kb.apply(Ops.CAST, a, dtype=other) for other in TYPES if other is not dtype]
    return [kb.kernel(store(param(0, value.dtype), i, value), prefix=(i,), name="one")
            for value in values]


TYPES = (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
         dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.bfloat16,
         dtypes.float32, dtypes.float64)
EXACT = {Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.SQRT, Ops.FLOOR, Ops.TRUNC, Ops.NEG, Ops.CAST,
         Ops.MAXIMUM, Ops.MINIMUM, Ops.RECIPROCAL}


def check_functions() -> None:
    for dtype in TYPES:
        kernels = functions(dtype)
        gpu().compile(kernels)
        one, two = kb.special(dtype, seed=1), kb.special(dtype, seed=2)
        for ast in kernels:
            value = ast.src[0].src[1]
            found, wanted = (kb.to_host(_result(ast, device, value.dtype, one, two), value.dtype)
                             for device in ("CUDA", "REFERENCE"))
            if value.op is Ops.CAST:  # whatever the target cannot hold may become any number
                held = _held(kb.to_host(one, dtype), value.dtype)
                found, wanted = np.where(held, found, 0), np.where(held, wanted, 0)
            if value.op in EXACT or value.dtype.kind != "f":
                np.testing.assert_array_equal(found, wanted, f"{value.op.name} {dtype.name}")
            else:
                close = 2e-2 if value.dtype in (dtypes.float16, dtypes.bfloat16) else 2e-6
                np.testing.assert_allclose(found, wanted, close, 1e-37,
                                           err_msg=f"{value.op.name} {dtype.name}")


def _held(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Where an integer type has room for a number."""
    if values.dtype.kind != "f" or dtype.kind not in "iu":
        return np.ones(values.shape, bool)
    whole = np.trunc(values.astype(np.float64))
    found: np.ndarray = (whole >= float(dtype.min)) & (whole <= float(dtype.max)) \
        & (whole < 2.0 ** (8 * dtype.itemsize - (dtype.kind == "i")))
    return found


def _result(ast: UOp, name: str, dtype: Any, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    device = Device[name]
    memories = [device.allocate(64 * dtype.itemsize)]
    for given in (one, two):
        memories.append(device.allocate(given.nbytes))
        device.copy_in(memories[-1], given)
    program = device.compile([ast])[0]
    program(memories[:program.arguments])
    return device.copy_out(memories[0], dtype, 64)


@pytest.mark.slow
@needs_mock
@verifies("cuda.values.reference")
@verifies("cuda.compile.meaning")
def test_every_function_of_every_type(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_functions)


def check_missing_barrier() -> None:
    from impl.dialects import CUDA
    x = Tensor(np.random.default_rng(1).standard_normal((3, 999)).astype(np.float32)).realize()
    wanted = x.to("REFERENCE").softmax().numpy()
    np.testing.assert_allclose(x.softmax().numpy(), wanted, 1e-5)
    with pytest.MonkeyPatch.context() as patch, Context(SCACHE=0, CACHELEVEL=0):
        patch.setattr(CUDA, "wait", lambda self: "")
        gpu().programs.clear()
        found = x.softmax().numpy()
    gpu().programs.clear()
    assert not np.allclose(found, wanted, 1e-3), "a kernel without barriers has to be wrong here"


@needs_mock
@verifies("cuda.values.reference")
def test_a_missing_barrier_would_show(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_missing_barrier)


def check_units() -> None:
    """A layer in three types with units and without steps; TF32 is used only if it may be."""
    x, w, b = (np.random.default_rng(i).normal(size=shape).astype(np.float32)
               for i, shape in enumerate(((2, 45, 40), (40, 70), (70,))))
    for dtype, lost, words in ((dtypes.float16, 2e-3, {}), (dtypes.bfloat16, 2e-2, {}),
                               (dtypes.float32, 2e-3, {"ALLOW_TF32": 1})):
        found = []
        for more in ({}, {"NOOPT": 1}, {"TENSOR_CORES": 0}):
            with Context(**words, **more):
                one, two, three = (Tensor(each).cast(dtype).realize() for each in (x, w, b))
                layer = (one @ two + three).relu()
                steps = gpu().rendered(layer.schedule()[-1].ast).optimized.arg.steps
                assert any(name.startswith("TC") for name in steps) is not bool(more), steps
                found.append(layer.numpy().astype(np.float32))
        for other in found[1:]:
            np.testing.assert_allclose(found[0], other, lost, lost * 10)
    with Context(ALLOW_TF32=0):
        one, two = Tensor(x).realize(), Tensor(w).realize()
        steps = gpu().rendered((one @ two).schedule()[-1].ast).optimized.arg.steps
    assert not any(name.startswith("TC") for name in steps)


@pytest.mark.slow
@needs_mock
@verifies("cuda.values.reference")
@verifies("groups.matrices.exact")
@verifies("steps.value.equal")
def test_products_use_tensor_cores(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_units)


# ---------------------------------------------------------------- compiling

def check_kept() -> None:
    ast, device = added(77), gpu()
    GlobalCounters.reset()
    device.compile([ast])
    assert (GlobalCounters.compiled, GlobalCounters.disk_hits) == (1, 0)
    device.programs.clear()
    device.modules.functions.clear()
    GlobalCounters.reset()
    device.compile([ast])
    assert (GlobalCounters.compiled, GlobalCounters.disk_hits) == (0, 1)
    from impl.cuda import compiler
    from impl.dialects import CUDA
    from impl.render import key_of, render
    text = render(ast, CUDA())
    keys = {key_of(text, *compiler.compiler_environment(each)) for each in (80, 90)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "-DX"))
        keys.add(key_of(text, *compiler.compiler_environment(80)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "version", lambda: "NVRTC 1.0")
        keys.add(key_of(text, *compiler.compiler_environment(80)))
    assert len(keys) == 4


@needs_mock
@verifies("cuda.compile.kept")
def test_machine_code_is_kept_for_its_compiler_and_gpu(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_kept)


def check_ptx() -> None:
    device, ast, given = gpu(), added(5), []
    with pytest.MonkeyPatch.context() as patch:
        call = device.context.call

        def seen(function: str, *arguments: Any) -> Any:
            if function == "cuModuleLoadData":
                given.append(bytes(arguments[0]))
            return call(function, *arguments)
        patch.setattr(device.context, "call", seen)
        keys = set()
        for ptx in (0, 1):
            with Context(CUDA_PTX=ptx, CACHELEVEL=0):
                program, memory = device.load([ast])[0], block([1, 2, 3, 4, 5])
                program([memory, memory])
                assert read(memory) == [2, 3, 4, 5, 6]
                keys.add(program.key)
    assert len(keys) == 2 and given[0].startswith(b"\x7fELF")
    assert b".target sm_80" in given[1] and b".entry kernel_" in given[1]


@needs_mock
@verifies("cuda.compile.ptx")
def test_the_driver_compiles_if_it_is_asked_to(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_ptx)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@verifies("cuda.error.told")
def test_a_text_that_is_refused_is_an_error_with_its_line() -> None:
    from impl.cuda.compiler import compile_text
    with pytest.raises(CompileError, match=r"sm_80.*kernel.cu\(2\).*x.*undefined"):
        compile_text('extern "C" __global__ void f(float *a) {\n  a[0] = x;\n}', "sm_80")
    with pytest.raises(CompileError, match="nvidia-cuda-nvrtc"):
        compile_text('extern "C" __global__ void f() {}', "sm_12")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@verifies("cuda.compile.meaning")
def test_no_option_changes_an_operation() -> None:
    """As PTX shows: no product is contracted; divisions and roots are rounded right."""
    from impl.cuda.compiler import compile_text
    made = compile_text('extern "C" __global__ void f(float *a) {\n  a[0] = a[1] * a[2] + '
                        'a[3] / a[4] + __fsqrt_rn(a[5]); }', "compute_80").decode()
    assert "fma.rn" not in made and ".ftz" not in made and ".approx" not in made
    assert all(word in made for word in ("mul.rn.f32", "div.rn.f32", "sqrt.rn.f32"))


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@verifies("cuda.text.legal")
def test_texts_compile_for_every_kind_of_gpu() -> None:
    """Kernels of every function and type, and random ones, as one text each."""
    from impl.cuda.compiler import OPTIONS
    from impl.dialects import CUDA
    from impl.kernel import DeviceLimits
    from impl.render import key_of, render, unit_text
    from impl.searching import optimize
    limits = DeviceLimits(name="CUDA", lanes=256, lockstep=32, local_memory=48 << 10)
    asts = [ast for dtype in TYPES for ast in functions(dtype)]
    asts += [kb.random_kernel(seed).ast for seed in range(40)]
    sources = [render(optimize(ast, limits), CUDA()) for ast in asts]
    unit = {key_of(source): source for source in sources}
    nvrtc.check(unit_text(unit.items()), options=OPTIONS)


# ---------------------------------------------------------------- memory and copies

def check_reuse() -> None:
    device, mock = gpu(), driver.load()
    device.pool.clear()
    first = device.allocate(5000)
    address, taken = first.address, mock.calls("cuMemAlloc_v2")
    part = first.part(256, 16)
    del first
    assert device.allocate(5000).address != address, "the part needs it"
    del part
    assert device.allocate(4990).address == address
    assert mock.calls("cuMemAlloc_v2") == taken + 1


@needs_mock
@verifies("cuda.memory.kept+2")
def test_a_block_is_used_again(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_reuse)


def check_kept_blocks() -> None:
    device, mock = gpu(), driver.load()
    assert 0 < device.pool.limit < 1 << 50
    device.pool.clear()
    before, device.pool.limit = mock.used(), 5 << 20
    held = [device.allocate(2 << 20) for _ in range(4)]
    held.clear()
    kept = device.allocate(2 << 20)
    assert mock.used() - before == 4 << 20, "two blocks are kept, and one of them is given away"
    device.pool.clear()
    held.append(device.allocate(512))
    device.allocate(4096)  # is given back by what comes
    wait, device.pool.wait = device.pool.wait, held.clear
    device.pool.clear()  # what comes back while it waits may be needed by what was launched
    device.pool.wait = wait
    assert len(device.pool.returned) == 1 and kept.nbytes == 2 << 20


@needs_mock
@verifies("device.memory.kept+3")
@verifies("cuda.memory.kept+2")
def test_what_is_kept_has_a_limit(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_kept_blocks)


def check_exhausted() -> None:
    device, mock = gpu(), driver.load()
    gc.collect()
    device.pool.clear()
    device.pool.limit = 1 << 30
    mock.set_memory(0, mock.used() + (10 << 20))
    block_of = device.allocate(6 << 20)
    del block_of
    kept = device.allocate(8 << 20)  # the kept block is in its way
    before = GlobalCounters.allocated
    with pytest.raises(DeviceError, match=f"CUDA has no {8 << 20} bytes left"):
        device.allocate(8 << 20)
    assert GlobalCounters.allocated == before
    del kept
    assert (Tensor([1, 2], device="CUDA") + 1).tolist() == [2, 3]


@needs_mock
@verifies("cuda.memory.kept+2")
def test_memory_that_is_exhausted_is_an_error_and_no_end(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_exhausted)


def check_staged() -> None:
    device = gpu()
    for size in (1, 1000, (4 << 20) + 3, (9 << 20) + 1):
        values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        memory, kept = device.allocate(size), values.copy()
        device.copy_in(memory, values)
        values[:] = 0  # what is sent is what stood there
        found = device.copy_out(memory, dtypes.uint8, size)
        np.testing.assert_array_equal(found, kept)
        if size > 2:
            assert device.copy_out(memory, dtypes.uint8, 1, size - 2)[0] == kept[-2]


@needs_mock
@verifies("cuda.copy.order")
def test_values_may_change_once_they_are_sent(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_staged)


def check_peer() -> None:
    program = gpu().compile([added(4)])[0]
    for turn in range(3):
        source, middle = block([turn, 1, 2, 3]), block([0] * 4)
        target = gpu("CUDA:1").allocate(16)
        program([middle, source])
        gpu("CUDA:1").copy(target, middle)
        program([middle, middle])  # after the copy, though nobody waits here
        assert read(target) == [turn + 1, 2, 3, 4]
        assert read(middle) == [turn + 2, 3, 4, 5]
    x = Tensor([1.0, 2.0], device="CUDA").realize()
    assert (x.to("CUDA:1") * 3).to("REFERENCE").tolist() == [3, 6]


@needs_mock
@verifies("cuda.copy.order")
def test_gpus_wait_for_each_others_copies(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_peer)


def check_several() -> None:
    subject = Subject(OnDevice("CUDA"), "", [])
    assert subject.info.devices == ("CUDA", "CUDA:1", "CPU")
    for program in list(multi_programs.advancing(3))[1:4:2]:
        subject.check_values(program, "replay")


@needs_mock
@verifies("device.several.equal")
def test_a_state_goes_round_two_gpus_and_the_processor(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_several)


def check_scratch() -> None:
    """Nobody else gets what the phases of a launch share before the last one is launched."""
    device, k, seen = gpu(), new_range(1 << 20, RangeKind.REDUCE), []
    total = kb.reduce(Ops.ADD, load(param(1, INT), k), k)
    ast = kb.kernel(store(param(0, INT), kb.number(dtypes.index, 0), total))
    program = device.load([ast])[0]
    assert len(program.text.phases) > 1
    given, out = device.allocate(4 << 20), device.allocate(4)
    device.copy_in(given, np.ones(1 << 20, np.int32))
    launches = program.shape.launches

    def looked(values: Any) -> Any:
        seen.append((len(device.pool.returned), device.lock._is_owned()))
        return launches(values)
    program.shape.launches = looked
    device.pool.clear()
    program([out, given])
    assert seen == [(0, True)]
    assert read(out) == [1 << 20]


@needs_mock
@verifies("cuda.memory.kept+2")
def test_what_phases_share_lives_as_long_as_they_run(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_scratch)


# ---------------------------------------------------------------- failures

def check_refused_launch() -> None:
    program, memory = gpu().compile([added(4)])[0], block([1, 2, 3, 4])
    driver.load().fail("cuLaunchKernel", 701)
    with pytest.raises(DeviceError, match="launch of added, 1 groups of .*LAUNCH_OUT_OF_RES"):
        program([memory, memory])
    program([memory, memory])
    assert read(memory) == [2, 3, 4, 5]


@needs_mock
@verifies("cuda.error.told")
def test_a_launch_that_is_refused_is_an_error(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_refused_launch)


LOST = """
import numpy as np
from conformance.emulation import driver
from conformance.saboteurs.impl_patches import inherited
from conformance.chapters.cuda.test_cuda import added, block, gpu, read
with inherited(), driver.installed():
    program, memory, wide = gpu().compile([added(129)])[0], block([1] * 128), block([1] * 200)
    program([memory, wide])
    for attempt in (lambda: read(memory), lambda: gpu().allocate(4), lambda: gpu().synchronize()):
        try:
            attempt()
        except RuntimeError as error:
            print(error)
"""


@needs_mock
@verifies("cuda.error.told")
def test_a_context_that_is_lost_says_so_and_names_the_kernel(emulation_folder: Path,
                                                             tmp_path: Path) -> None:
    environment = driver.environment() | {"DEVICE": "CUDA", "CACHE_FOLDER": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LOST], cwd=ROOT, env=environment, text=True,
                          capture_output=True, timeout=600)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    for line in said:
        assert "everything on the GPU is lost" in line and "ILLEGAL_ADDRESS" in line
        assert "launched since the last wait: added" in line and "start a new process" in line


# ---------------------------------------------------------------- replay and times

def check_table() -> None:
    device, mock = gpu(), driver.load()
    program = device.compile([added(4)])[0]
    one, two, other = (block([value] * 4) for value in (0, 10, 20))
    table = device.table([(program, [two, one], ()), (program, [one, two], ())] * 3)
    launches, graphs = mock.calls("cuLaunchKernel"), mock.calls("cuGraphLaunch")
    made = mock.calls("cuGraphInstantiateWithFlags")
    for _ in range(3):
        table.run()
    assert mock.calls("cuLaunchKernel") == launches
    assert mock.calls("cuGraphLaunch") == graphs + 3
    assert read(one) == [18] * 4
    table.set_memory(5, 0, other)
    table.run()
    table.set_memory(5, 0, one)
    table.run()  # the run before keeps what it was asked with
    assert read(other) == [24] * 4 and read(one) == [28] * 4
    assert mock.calls("cuGraphInstantiateWithFlags") == made + 1


@needs_mock
@verifies("cuda.table.replayed")
def test_a_table_is_one_launch_of_a_graph(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_table)


def check_empty_launches() -> None:
    n = Number("n", 0, 600).uop
    program = gpu().compile([added(n, (n,))])[0]
    memory = block([0] * 600)
    program([memory, memory], [0])
    program([memory, memory], [3])
    assert read(memory)[:4] == [1, 1, 1, 0]
    table = gpu().table([(program, [memory, memory], [0])])
    for value in (0, 600, 0, 2):
        table.set_value(0, 0, value)
        table.run()
    found = read(memory)
    assert found[:5] == [3, 3, 2, 1, 1] and found[-1] == 1


@needs_mock
@verifies("cuda.table.replayed")
def test_a_launch_of_nothing_does_nothing(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_empty_launches)


def check_jit() -> None:
    state = Tensor([0.0] * 5).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x.sum()).realize()
        return (x * state).realize()
    kept = []
    for turn in range(5):
        kept.append(step(Tensor(np.full(5, turn, np.float32)).realize()))
    assert [each.tolist()[0] for each in kept] == [0, 5, 30, 90, 200]
    assert state.tolist() == [50] * 5


@needs_mock
@verifies("cuda.table.replayed")
def test_a_captured_function_replays_with_new_inputs(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_jit)


def check_times() -> None:
    program, memory = gpu().compile([added(4)])[0], block([1, 2, 3, 4])
    mock = driver.load()
    before = mock.calls("cuEventRecord")
    assert 0 < gpu().seconds(lambda: program([memory, memory])) < 60
    assert mock.calls("cuEventRecord") == before + 2
    assert read(memory) == [2, 3, 4, 5]


@needs_mock
@verifies("cuda.time.events")
def test_times_come_from_events(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(check_times)


@pytest.mark.slow
@verifies("custom.value.equal")
def test_kernels_of_the_user(on_gpu: Callable[[Check], None]) -> None:
    on_gpu(values_on_cuda)
