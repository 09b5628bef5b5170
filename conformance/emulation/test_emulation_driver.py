"""The mock of the CUDA driver: unmodified cuda-bindings run on it, and mistakes of a runtime show.

Each check runs in one process of its own, in which the mock is libcuda.so.1.
"""
from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from conformance import emulation
from conformance.emulation import building, devices, driver


def installed(name: str) -> bool:
    """Whether a module of a package is there, without importing it."""
    return all(importlib.util.find_spec(each) for each in (name.split(".")[0], name))


MISSING = "" if installed("cuda.bindings") and (
    installed("nvidia.cu13") or installed("nvidia.cuda_nvrtc")) \
    else "needs cuda-bindings and nvidia-cuda-nvrtc"

pytestmark = [
    pytest.mark.usefixtures("emulation_folder"),
    pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable()),
]

SOURCE = """
extern "C" __global__ void scale(float* values, float factor, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] = values[at] * factor;
}
extern "C" __global__ void add(float* values, const float* other, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] += other[at];
}
extern "C" __global__ void apart(float* values) {
    if (threadIdx.x < 32) __syncthreads();
}
extern "C" __global__ void large(float* values) {
    extern __shared__ float kept[];
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
"""
SCALE = (None, ctypes.c_float, ctypes.c_int)
ADD = (None, None, ctypes.c_int)


@pytest.fixture(scope="module")
def apart(emulation_folder: Path) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function of this file in the other process; what it raises is raised here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", driver.environment()["LD_LIBRARY_PATH"])
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            yield lambda check: pool.submit(_fresh, check).result(120)


def _fresh(check: Callable[[], None]) -> None:
    """Run a check on devices on which nothing has happened."""
    mock = driver.load()
    mock.set_order("forward")
    mock.set_memory(0, 1 << 30)
    check()


class Cuda:
    """cuda.bindings.driver with errors as exceptions, one device and the kernels of SOURCE."""

    def __init__(self, device: int = 0) -> None:
        self.mock = driver.load()
        self.raw: Any = importlib.import_module("cuda.bindings.driver")
        self.cuInit(0)
        self.device = self.cuDeviceGet(device)
        self.cuDevicePrimaryCtxReset(self.device)
        self.context = self.cuDevicePrimaryCtxRetain(self.device)
        self.cuCtxSetCurrent(self.context)
        self.module = self.cuModuleLoadData(image())
        self.stream = self.cuStreamCreate(1)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.raw, name)

        def call(*arguments: Any) -> Any:
            error, *values = function(*arguments)
            assert int(error) == 0, f"{name}: {error.name}"
            return values[0] if len(values) == 1 else values
        return call

    def error(self, name: str, *arguments: Any) -> str:
        """The name of the error that a function returns."""
        return str(getattr(self.raw, name)(*arguments)[0].name).removeprefix("CUDA_ERROR_")

    def array(self, values: np.ndarray) -> Any:
        """Memory of the device with these values."""
        address = self.cuMemAlloc(values.nbytes)
        self.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes)
        return address

    def read(self, address: Any, count: int) -> list[float]:
        """Values from the device, after all work."""
        values = np.zeros(count, np.float32)
        self.cuCtxSynchronize()
        self.cuMemcpyDtoH(values.ctypes.data, address, values.nbytes)
        return values.tolist()

    def kernel(self, name: str) -> Any:
        return self.cuModuleGetFunction(self.module, name.encode())

    def launch(self, name: str, values: tuple, types: tuple, stream: Any = None) -> None:
        self.cuLaunchKernel(self.kernel(name), 1, 1, 1, 64, 1, 1, 0, stream or self.stream,
                            (values, types), 0)

    def node(self, name: str, values: tuple, types: tuple) -> Any:
        """What a node of a graph, or its update, is made from."""
        made = self.raw.CUDA_KERNEL_NODE_PARAMS()
        made.func = self.kernel(name)
        made.gridDimX = made.gridDimY = made.gridDimZ = made.blockDimY = made.blockDimZ = 1
        made.blockDimX = 64
        made.kernelParams = (values, types)
        return made


def image() -> bytes:
    """SOURCE as machine code of the real compiler, known to the mock."""
    with driver.installed():
        from conformance.emulation import nvrtc
        return nvrtc.check(SOURCE, (80,))[80]


def check_launch() -> None:
    cuda = Cuda()
    values = cuda.array(np.arange(64, dtype=np.float32))
    cuda.launch("scale", (values, 2.0, 60), SCALE)
    assert cuda.read(values, 64) == [*range(0, 120, 2), 60, 61, 62, 63]
    assert b"Emulated" in cuda.cuDeviceGetName(64, cuda.device)
    assert cuda.mock.calls("cuLaunchKernel") >= 1 and cuda.mock.used() == 256


def check_packed_arguments() -> None:
    """Parameters as addresses of values, and as one block of bytes."""
    cuda = Cuda()
    values = cuda.array(np.ones(4, np.float32))
    taken: list[Any] = [ctypes.c_uint64(int(values)), ctypes.c_float(3), ctypes.c_int(4)]
    pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, taken))
    words = (cuda.kernel("scale"), 1, 1, 1, 4, 1, 1, 0, cuda.stream)
    cuda.cuLaunchKernel(*words, ctypes.addressof(pointers), 0)
    block = ctypes.create_string_buffer(b"".join(bytes(each) for each in taken), 16)
    size = ctypes.c_size_t(16)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
    cuda.cuLaunchKernel(*words, 0, ctypes.addressof(extra))
    assert cuda.read(values, 4) == [9] * 4


def check_waiting() -> None:
    cuda = Cuda()
    values = cuda.array(np.ones(4, np.float32))
    memory = cuda.cuMemAllocHost(16)
    pinned = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(int(memory)))
    cuda.launch("scale", (values, 3.0, 4), SCALE)
    cuda.cuMemcpyDtoHAsync(memory, values, 16, cuda.stream)
    assert np.isnan(pinned).all(), "nobody has waited"
    cuda.cuStreamSynchronize(cuda.stream)
    assert pinned.tolist() == [3, 3, 3, 3]


def check_streams() -> None:
    cuda = Cuda()
    values, other = cuda.cuMemAlloc(16), cuda.cuStreamCreate(1)
    event = cuda.cuEventCreate(2)
    cuda.cuMemsetD32Async(values, 0x3F800000, 4, cuda.stream)
    cuda.cuEventRecord(event, cuda.stream)
    cuda.cuStreamWaitEvent(other, event, 0)
    cuda.launch("scale", (values, 5.0, 4), SCALE, other)
    cuda.cuStreamSynchronize(other)
    assert cuda.read(values, 4) == [5, 5, 5, 5]
    cuda.cuMemsetD32Async(values, 0x3F800000, 4, cuda.stream)
    cuda.launch("scale", (values, 5.0, 4), SCALE, other)  # waits for nothing
    cuda.cuStreamSynchronize(other)
    assert cuda.read(values, 4) == [1, 1, 1, 1], "the wait that was forgotten has to show"


def check_events() -> None:
    cuda = Cuda()
    values, first, last = cuda.cuMemAlloc(16), cuda.cuEventCreate(0), cuda.cuEventCreate(0)
    cuda.cuEventRecord(first, cuda.stream)
    cuda.launch("scale", (values, 5.0, 4), SCALE)
    cuda.cuEventRecord(last, cuda.stream)
    assert cuda.error("cuEventElapsedTime", first, last) == "NOT_READY"
    cuda.cuEventSynchronize(last)
    assert cuda.cuEventElapsedTime(first, last) > 0


def check_graph() -> None:
    cuda = Cuda()
    one, two = (cuda.array(np.full(4, value, np.float32)) for value in (1, 10))
    graph = cuda.cuGraphCreate(0)
    scale = cuda.cuGraphAddKernelNode(graph, [], 0, cuda.node("scale", (one, 2.0, 4), SCALE))
    add = cuda.cuGraphAddKernelNode(graph, [scale], 1, cuda.node("add", (one, two, 4), ADD))
    replay = cuda.cuGraphInstantiate(graph, 0)
    for _ in range(2):
        cuda.cuGraphLaunch(replay, cuda.stream)
    assert cuda.read(one, 4) == [34] * 4
    cuda.cuGraphLaunch(replay, cuda.stream)  # still with the old pointers, though it runs later
    cuda.cuGraphExecKernelNodeSetParams(replay, scale, cuda.node("scale", (two, 3.0, 4), SCALE))
    cuda.cuGraphExecKernelNodeSetParams(replay, add, cuda.node("add", (two, one, 4), ADD))
    cuda.cuGraphLaunch(replay, cuda.stream)
    assert cuda.read(one, 4) == [78] * 4 and cuda.read(two, 4) == [108] * 4


def check_graph_update() -> None:
    cuda = Cuda()
    one, two = (cuda.array(np.full(4, value, np.float32)) for value in (1, 10))

    def graph(factor: float, *, more: bool = False) -> Any:
        made = cuda.cuGraphCreate(0)
        first = cuda.cuGraphAddKernelNode(made, [], 0, cuda.node("scale", (one, factor, 4), SCALE))
        if more:
            cuda.cuGraphAddKernelNode(made, [first], 1, cuda.node("add", (one, two, 4), ADD))
        return made
    replay = cuda.cuGraphInstantiate(graph(2.0), 0)
    cuda.cuGraphExecUpdate(replay, graph(7.0))
    cuda.cuGraphLaunch(replay, cuda.stream)
    assert cuda.read(one, 4) == [7] * 4
    assert cuda.error("cuGraphExecUpdate", replay, graph(2.0, more=True)) \
        == "GRAPH_EXEC_UPDATE_FAILURE"


def check_missing_edge() -> None:
    cuda = Cuda()
    one, two = (cuda.array(np.full(4, value, np.float32)) for value in (1, 10))
    graph = cuda.cuGraphCreate(0)
    cuda.cuGraphAddKernelNode(graph, [], 0, cuda.node("scale", (one, 2.0, 4), SCALE))
    cuda.cuGraphAddKernelNode(graph, [], 0, cuda.node("add", (one, two, 4), ADD))
    replay = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(replay, cuda.stream)
    assert cuda.read(one, 4) == [12] * 4
    cuda.mock.set_order("reversed")
    cuda.cuGraphLaunch(replay, cuda.stream)
    assert cuda.read(one, 4) == [44] * 4  # (12 + 10) * 2 and not 12 * 2 + 10


def check_capture() -> None:
    cuda = Cuda()
    one, two = (cuda.array(np.full(4, value, np.float32)) for value in (1, 10))
    other, forked, joined = cuda.cuStreamCreate(1), cuda.cuEventCreate(2), cuda.cuEventCreate(2)
    cuda.cuStreamBeginCapture(cuda.stream, cuda.raw.CUstreamCaptureMode(0))
    cuda.cuEventRecord(forked, cuda.stream)
    cuda.cuStreamWaitEvent(other, forked, 0)
    cuda.launch("scale", (one, 2.0, 4), SCALE)
    cuda.launch("scale", (two, 3.0, 4), SCALE, other)
    cuda.cuEventRecord(joined, other)
    cuda.cuStreamWaitEvent(cuda.stream, joined, 0)
    cuda.launch("add", (one, two, 4), ADD)
    graph = cuda.cuStreamEndCapture(cuda.stream)
    assert cuda.read(one, 4) == [1] * 4, "recorded, not run"
    replay = cuda.cuGraphInstantiate(graph, 0)
    for order in ("forward", "reversed"):
        cuda.mock.set_order(order)
        cuda.cuGraphLaunch(replay, cuda.stream)
    assert cuda.read(one, 4) == [(2 + 30) * 2 + 90] * 4


def check_capture_mistakes() -> None:
    cuda = Cuda()
    values, event = cuda.cuMemAlloc(16), cuda.cuEventCreate(2)
    other = cuda.cuStreamCreate(1)
    cuda.cuStreamBeginCapture(cuda.stream, cuda.raw.CUstreamCaptureMode(0))
    assert cuda.error("cuMemAlloc", 4) == "STREAM_CAPTURE_UNSUPPORTED"
    assert cuda.error("cuStreamEndCapture", cuda.stream) == "STREAM_CAPTURE_INVALIDATED"
    cuda.cuStreamBeginCapture(cuda.stream, cuda.raw.CUstreamCaptureMode(0))
    cuda.cuEventRecord(event, cuda.stream)
    cuda.cuStreamWaitEvent(other, event, 0)
    cuda.launch("scale", (values, 2.0, 4), SCALE, other)
    assert cuda.error("cuStreamEndCapture", cuda.stream) == "STREAM_CAPTURE_UNJOINED"
    cuda.launch("scale", (values, 2.0, 4), SCALE)
    cuda.cuCtxSynchronize()


def check_out_of_memory() -> None:
    cuda = Cuda()
    cuda.mock.set_memory(0, 1000)
    kept = cuda.cuMemAlloc(600)
    assert cuda.error("cuMemAlloc", 600) == "OUT_OF_MEMORY"
    cuda.cuMemFree(kept)
    values = cuda.array(np.ones(4, np.float32))
    cuda.launch("scale", (values, 2.0, 4), SCALE)
    assert cuda.read(values, 4) == [2] * 4
    assert list(cuda.cuMemGetInfo()) == [984, 1000]


def check_pools() -> None:
    cuda = Cuda()
    cuda.mock.set_memory(0, 64)
    for value in range(1, 5):  # each takes the memory that the one before gave back
        memory = cuda.cuMemAllocAsync(48, cuda.stream)
        cuda.cuMemsetD32Async(memory, value, 12, cuda.stream)
        cuda.cuMemFreeAsync(memory, cuda.stream)
    assert cuda.error("cuMemFreeAsync", memory, cuda.stream) == "INVALID_VALUE"
    cuda.cuStreamSynchronize(cuda.stream)
    assert cuda.mock.used() == 0


def check_errors_on_demand() -> None:
    cuda = Cuda()
    values = cuda.array(np.ones(4, np.float32))
    cuda.mock.fail("cuLaunchKernel", 701, skip=1)
    cuda.launch("scale", (values, 2.0, 4), SCALE)
    with pytest.raises(AssertionError, match="LAUNCH_OUT_OF_RESOURCES"):
        cuda.launch("scale", (values, 2.0, 4), SCALE)
    cuda.launch("scale", (values, 2.0, 4), SCALE)
    assert cuda.read(values, 4) == [4] * 4


def check_faults() -> None:
    """A kernel that goes wrong breaks its context, and a reset heals it."""
    cuda = Cuda()
    values = cuda.array(np.ones(64, np.float32))
    cuda.launch("apart", (values,), (None,))
    assert cuda.error("cuStreamSynchronize", cuda.stream) == "LAUNCH_FAILED"
    assert cuda.error("cuMemAlloc", 4) == "LAUNCH_FAILED"
    assert "line 11; lanes 32-63 have finished" in cuda.mock.message()
    check_launch()


def check_memory_mistakes() -> None:
    cuda = Cuda()
    values = cuda.array(np.ones(4, np.float32))
    cuda.cuMemFree(values)
    cuda.launch("scale", (values, 2.0, 4), SCALE)
    assert cuda.error("cuStreamSynchronize", cuda.stream) == "ILLEGAL_ADDRESS"
    assert "scale: argument 0 points to no memory" in cuda.mock.message()
    cuda = Cuda()
    values = cuda.array(np.ones(4, np.float32))
    cuda.launch("scale", (values, 2.0, 5), SCALE)
    assert cuda.error("cuStreamSynchronize", cuda.stream) == "ILLEGAL_ADDRESS"
    assert "scale wrote beyond memory of 16 bytes" in cuda.mock.message()


def check_peers() -> None:
    second = Cuda(1)
    theirs = second.array(np.ones(4, np.float32))
    cuda = Cuda(0)
    mine = cuda.cuMemAlloc(16)
    cuda.cuMemcpyPeer(mine, cuda.context, theirs, second.context, 16)
    assert cuda.read(mine, 4) == [1] * 4
    cuda.launch("scale", (theirs, 2.0, 4), SCALE)
    assert cuda.error("cuCtxSynchronize") == "ILLEGAL_ADDRESS"
    cuda = Cuda(0)
    cuda.cuCtxEnablePeerAccess(second.context, 0)
    cuda.launch("scale", (theirs, 2.0, 4), SCALE)
    assert cuda.read(theirs, 4) == [2] * 4


def check_shared_memory() -> None:
    cuda = Cuda()
    values, kernel = cuda.array(np.arange(64, dtype=np.float32)), cuda.kernel("large")
    words = (kernel, 1, 1, 1, 64, 1, 1, 100 << 10, cuda.stream, ((values,), (None,)), 0)
    assert cuda.error("cuLaunchKernel", *words) == "INVALID_VALUE"
    assert "MAX_DYNAMIC_SHARED_SIZE_BYTES" in cuda.mock.message()
    cuda.cuFuncSetAttribute(kernel, cuda.raw.CUfunction_attribute(8), 100 << 10)
    cuda.cuLaunchKernel(*words)
    assert cuda.read(values, 64) == list(range(63, -1, -1))


def check_images() -> None:
    cuda = Cuda()
    assert cuda.error("cuModuleLoadData", b"no source\0") == "NO_BINARY_FOR_GPU"
    cuda.mock.know(b"text\0", SOURCE)
    cuda.module = cuda.cuModuleLoadData(b"text\0")
    assert cuda.error("cuModuleGetFunction", cuda.module, b"nothing") == "NOT_FOUND"
    stream = cuda.cuStreamCreate(0)
    cuda.cuStreamDestroy(stream)
    assert cuda.error("cuStreamSynchronize", stream) == "INVALID_HANDLE"


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_cuda_bindings_on_the_mock(check: Callable[[], None],
                                   apart: Callable[[Callable[[], None]], None]) -> None:
    apart(check)


def check_without_bindings() -> None:
    library = driver.load().library
    driver.load().know(b"plain\0", SOURCE)
    context, module, function, memory = (ctypes.c_void_p() for _ in range(4))
    values = np.arange(4, dtype=np.float32)
    taken: list[Any] = [memory, ctypes.c_float(2), ctypes.c_int(4)]
    packed = (ctypes.c_void_p * 3)(*map(ctypes.addressof, taken))
    answers = [
        library.cuInit(0), library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        library.cuCtxSetCurrent(context), library.cuModuleLoadData(ctypes.byref(module), b"plain"),
        library.cuModuleGetFunction(ctypes.byref(function), module, b"scale"),
        library.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16)),
        library.cuMemcpyHtoD_v2(memory, ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(16)),
        library.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, None, packed, None),
        library.cuMemcpyDtoH_v2(ctypes.c_void_p(values.ctypes.data), memory, ctypes.c_size_t(16)),
    ]
    assert answers == [0] * len(answers)
    assert values.tolist() == [0, 2, 4, 6]


def test_the_mock_without_cuda_bindings(apart: Callable[[Callable[[], None]], None]) -> None:
    apart(check_without_bindings)


SETTINGS = """
import ctypes
library = ctypes.CDLL("libcuda.so.1")
value = ctypes.c_int()
print(library.cuInit(0), library.cuDeviceGetCount(ctypes.byref(value)), value.value)
for attribute in (75, 97):
    library.cuDeviceGetAttribute(ctypes.byref(value), attribute, 2)
    print(value.value)
memory = ctypes.c_size_t()
print(library.cuDeviceTotalMem_v2(ctypes.byref(memory), 0), memory.value)
"""


def test_devices_are_as_the_environment_says() -> None:
    environment = driver.environment() | {
        "EMULATION_DEVICES": "3", "EMULATION_CAPABILITY": "90", "EMULATION_MEMORY": "5000"}
    done = subprocess.run([sys.executable, "-c", SETTINGS], env=environment, text=True,
                          capture_output=True)
    assert done.stdout.split() == ["0", "0", "3", "9", str(227 << 10), "0", "5000"], done.stderr


def test_the_adapter_keeps_kernels_where_the_mock_knows_them(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock refuses those of another run, which a folder of the user may have."""
    monkeypatch.setattr(driver, "installed", lambda: contextlib.nullcontext(mock.Mock()))
    monkeypatch.setattr(devices, "_installed", contextlib.ExitStack())
    monkeypatch.setenv("EMULATION_DEVICES", "6")
    seen = []
    found = devices.CUDA()
    monkeypatch.setattr(found.adapter, "run", lambda program, observe, options: seen.append(
        options["settings"]))
    found.run({}, (), {"settings": {"NOOPT": 1}})
    folder = str(building.folder() / "kernels")
    assert seen == [{"DEVICE": "CUDA", "CACHE_FOLDER": folder, "NOOPT": 1}]


OVERRUN = """
import ctypes, numpy as np
from conformance.emulation.test_emulation_driver import Cuda, SCALE
cuda = Cuda()
values = cuda.array(np.ones(4, np.float32))
cuda.launch("scale", (values, 2.0, COUNT), SCALE)
print(cuda.read(values, 4))
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_whole_program_under_the_sanitizer() -> None:
    """Memory of the mock is guarded too, and the report names the line of the kernel."""
    environment = driver.environment(sanitize=True) | {"PYTHONPATH": os.getcwd()}

    def run(count: int) -> subprocess.CompletedProcess[str]:
        text = OVERRUN.replace("COUNT", str(count))
        return subprocess.run([sys.executable, "-c", text], env=environment, text=True,
                              capture_output=True)
    assert run(4).stdout == "[2.0, 2.0, 2.0, 2.0]\n"
    assert "heap-buffer-overflow" in (said := run(5).stderr) and "kernel.cu:4" in said
