"""A CUDA graph of tiny kernels written by hand: what a replay of as many is measured against."""
from __future__ import annotations

from importlib import import_module
from typing import Any

SOURCE = """extern "C" __global__ void next(float *to, const float *from) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  to[at] = from[at] * 1.0001f + 1.0f;
}"""
LANES = 64


class ByHand:
    """So many kernels in a chain, instantiated; `run` launches them, `finish` waits."""

    def __init__(self, count: int) -> None:
        self.driver: Any = import_module("cuda.bindings.driver")
        device = self._ask("cuDeviceGet", 0)
        self._ask("cuCtxSetCurrent", self._ask("cuDevicePrimaryCtxRetain", device))
        kind = self.driver.CUdevice_attribute
        capability = [self._ask("cuDeviceGetAttribute", getattr(
            kind, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), device)
            for part in ("MAJOR", "MINOR")]
        module = self._ask("cuModuleLoadData", _compiled(10 * capability[0] + capability[1]))
        self.kernel = self._ask("cuModuleGetFunction", module, b"next")
        self.stream = self._ask("cuStreamCreate", 1)
        memories = [self._ask("cuMemAlloc", 4 * LANES) for _ in range(2)]
        for memory in memories:
            self._ask("cuMemsetD32Async", memory, 0, LANES, self.stream)
        graph, before = self._ask("cuGraphCreate", 0), list[Any]()
        for number in range(count):
            node = self._node(memories[number % 2], memories[(number + 1) % 2])
            before = [self._ask("cuGraphAddKernelNode", graph, before, len(before), node)]
        self.made = self._ask("cuGraphInstantiate", graph, 0)

    def _node(self, to: Any, source: Any) -> Any:
        node = self.driver.CUDA_KERNEL_NODE_PARAMS()
        node.func, node.blockDimX = self.kernel, LANES
        node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1
        node.kernelParams = ((to, source), (None, None))
        return node

    def _ask(self, function: str, *given: Any) -> Any:
        error, *found = getattr(self.driver, function)(*given)
        if error:
            raise RuntimeError(f"{function}: {error.name}")
        return found[0] if found else None

    def run(self) -> None:
        """Launch the graph."""
        self._ask("cuGraphLaunch", self.made, self.stream)

    def finish(self, _: Any = None) -> None:
        """Wait for it."""
        self._ask("cuStreamSynchronize", self.stream)


def _compiled(architecture: int) -> bytes:
    nvrtc: Any = import_module("cuda.bindings.nvrtc")
    program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"next.cu", 0, [], [])[1]
    options = [f"--gpu-architecture=sm_{architecture}".encode()]
    error = nvrtc.nvrtcCompileProgram(program, 1, options)[0]
    if error:
        raise RuntimeError(f"NVRTC: {error.name}")
    image = b" " * int(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, image)
    return image
