"""WebGPU devices: kernels in WGSL, through the package wgpu. Chapter: spec/webgpu.md.

wgpu runs on Vulkan, Metal and Direct3D, so one device serves the GPUs of all vendors; with Mesa's
llvmpipe the processor is one. `WEBGPU:1` is the second adapter of the machine; where there is only
one, it is a second device on it, with memory and programs of its own.
"""
from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import Any

from impl.device import Device, GlobalCounters, Memory, kept_bytes
from impl.device.remote import DeviceMemory, Pooled
from impl.device.workgroups import GroupDevice, GroupProgram
from impl.dialects import WGSL
from impl.errors import CompileError, DeviceError
from impl.host import np
from impl.ir import Ops, UOp
from impl.kernel import DeviceLimits
from impl.places import device_number
from impl.render import SourceText, symbol
from impl.searching import optimize
from impl.webgpu.queue import Launches, WebGPUBuffers
from impl.webgpu.turns import turns

#: What a device is asked for, as much of it as the adapter has.
_LIMITS = ("max-storage-buffers-per-shader-stage", "max-storage-buffer-binding-size",
           "max-buffer-size", "max-compute-workgroup-storage-size",
           "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x")
_WIDE = "shader-int64"
#: Drivers that end the loops of a lane, without a word, after so many turns.
_MOST_TURNS = {"llvmpipe": 65535}


@contextmanager
def _without_a_display() -> Any:
    """Drivers look for a display, and complain where there is no folder for its socket."""
    missing = "XDG_RUNTIME_DIR" not in os.environ
    if missing:
        os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        if missing:
            del os.environ["XDG_RUNTIME_DIR"]


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    """wgpu's entry, set up once: to do that again would take devices their ground away."""
    import wgpu
    from wgpu.backends.wgpu_native.extras import set_instance_extras
    with suppress(RuntimeError):  # somebody else has begun with it
        set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
    return wgpu.gpu


@functools.lru_cache(maxsize=1)
def _found() -> tuple[tuple[Any, ...], str]:
    """The adapters of this machine, and why there is none."""
    # r[impl webgpu.error.told]
    try:
        gpu = _library()
    except (ImportError, OSError, RuntimeError) as error:
        return (), f'the package wgpu cannot be used: {error} (pip install -e ".[webgpu]")'
    with _without_a_display():
        adapters = gpu.enumerate_adapters_sync()
    usable = tuple(each for each in adapters if each.info["backend_type"] != "OpenGL")
    return usable, "" if usable else "wgpu finds no adapter: neither a GPU nor a driver for the " \
        "processor, such as Mesa's llvmpipe (Debian: mesa-vulkan-drivers)"


def webgpu_problem() -> str:
    """Why there is no WebGPU device; empty if there is one."""
    return _found()[1]


class WebGPUProgram(GroupProgram):
    """A kernel as a compute pipeline, or as two: phases differ in the lanes of a group."""

    device: WebGPUDevice
    pipelines: dict[int, Any]  # by the number of lanes

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Add its dispatches to those that wait."""
        with self.device.lock:
            scratch = self.scratch()
            given = [memories[position] for position in self.text.parameters]
            self._check_begins(given)
            for phase, (groups, lanes) in enumerate(self.shape.launches(values)):
                if groups:
                    self.device.launches.add(self.name, self.pipeline(lanes), given, scratch,
                                             (phase, groups), values)

    @functools.cached_property
    def _sizes(self) -> list[int]:
        """At multiples of how many bytes each argument begins."""
        longest: dict[int, int] = {}
        for node in self.ast.toposort():
            if node.op is Ops.PARAM:
                longest[node.arg] = max(longest.get(node.arg, 1), min(node.dtype.itemsize, 4))
        return [longest[position] for position in self.text.parameters]

    def _check_begins(self, given: Sequence[Memory]) -> None:
        """Raise DeviceError where an argument begins inside of an element: there are no bytes."""
        # r[impl webgpu.argument.offset+2]
        for memory, size in zip(given, self._sizes, strict=True):
            if memory.start % size:
                raise DeviceError(self.name, f"an argument begins at byte {memory.start}, inside "
                                  "of an element", "copy it with .contiguous() first")

    def pipeline(self, lanes: int) -> Any:
        """The pipeline for groups of so many lanes."""
        if lanes not in self.pipelines:
            self.pipelines[lanes] = self.device.pipeline(self, lanes)
        return self.pipelines[lanes]


class WebGPUDevice(GroupDevice):
    """One WebGPU device: an adapter, a queue whose commands run in order, and memory."""

    program = WebGPUProgram
    kind = "WEBGPU"
    host_memory = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        import wgpu
        adapters, number = _found()[0], device_number(name)
        self.gpu, self.adapter = wgpu, adapters[number % len(adapters)]
        self.wide = _WIDE in self.adapter.features
        with _without_a_display():
            self.driver = self.adapter.request_device_sync(
                required_features=[_WIDE] if self.wide else [],
                required_limits={each: self.adapter.limits[each] for each in _LIMITS})
        self.most = self.driver.limits
        # One of them is the memory that phases share, and one has a zero in it.
        self.maximum_arguments = self.most["max-storage-buffers-per-shader-stage"] - 2
        self.alignment = max(256, self.most["min-storage-buffer-offset-alignment"])
        self.local = self.most["max-compute-workgroup-storage-size"]
        self.local_bytes = min(self.local_bytes, self.local // 2)
        self.lanes = min(256, self.most["max-compute-invocations-per-workgroup"],
                         self.most["max-compute-workgroup-size-x"])
        self.pool = WebGPUBuffers(self, kept_bytes(self.most["max-buffer-size"]))
        self.launches = Launches(self)
        self.functions: dict[str, Any] = {}
        self.turns = _MOST_TURNS.get(self.adapter.info["vendor"])

    @property
    def limits(self) -> DeviceLimits:
        """What the adapter says of itself."""
        slow = self.adapter.info["adapter_type"] == "CPU"
        return DeviceLimits(name="WEBGPU", lanes=self.lanes, lockstep=4 if slow else 32,
                            local_memory=self.local)

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, which adapter it is."""
        return (*super().plan_key(), self._identity())

    @functools.cache  # noqa: B019  (devices live as long as the process)
    def _identity(self) -> str:
        said = self.adapter.info
        return "\n".join([self.gpu.__version__, *(str(said[each]) for each in (
            "vendor", "device", "description", "backend_type")), f"wide={self.wide}"])

    # Memory

    def allocate(self, nbytes: int) -> Memory:
        """Zeros, or what was freed before.

        Raises:
            DeviceError: there is not enough memory.
        """
        try:
            buffer = self.pool.take(nbytes)
        except Exception as error:  # r[impl webgpu.error.told]
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left: {error}",
                              "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return Pooled(self, buffer, 0, nbytes)

    def put(self, memory: Memory, flat: np.ndarray) -> None:
        """Write bytes of the host to the start of a block: words, those at its ends completed."""
        # r[impl webgpu.word.rest]
        assert isinstance(memory, DeviceMemory)
        if not flat.nbytes:
            return
        first, end = memory.start // 4 * 4, memory.start + flat.nbytes
        words = np.ascontiguousarray(flat)
        if first != memory.start or end % 4:
            words = self._read(memory.buffer, first, -(-end // 4) * 4)
            words[memory.start - first:end - first] = flat
        with self.lock:
            self.launches.submit()
            self.driver.queue.write_buffer(memory.buffer, first, words)

    def get(self, memory: Memory, offset: int, nbytes: int) -> np.ndarray:
        """A new array with bytes of a block, once all that was launched is done."""
        assert isinstance(memory, DeviceMemory)
        if not nbytes:
            return np.empty(0, np.uint8)
        start = memory.start + offset
        first = start // 4 * 4
        return self._read(memory.buffer, first, -(-(start + nbytes) // 4) * 4)[
            start - first:start - first + nbytes].copy()

    def _read(self, buffer: Any, first: int, end: int) -> np.ndarray:
        with self.lock:
            self.launches.submit()
            found = self.driver.queue.read_buffer(buffer, first, end - first)
        return np.frombuffer(found, np.uint8).copy()

    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
        """Copy bytes between two blocks; words of one device never leave it."""
        size = min(target.nbytes, source.nbytes) if nbytes is None else nbytes
        inside = source.device is self and isinstance(target, DeviceMemory) \
            and isinstance(source, DeviceMemory) and target.buffer is not source.buffer
        if not inside or (target.start | source.start | size) % 4:
            super().copy(target, source, nbytes)
            return
        assert isinstance(target, DeviceMemory) and isinstance(source, DeviceMemory)
        if size:
            with self.lock:
                self.launches.submit()
                encoder = self.driver.create_command_encoder()
                encoder.copy_buffer_to_buffer(source.buffer, source.start, target.buffer,
                                              target.start, size)
                self.driver.queue.submit([encoder.finish()])
        GlobalCounters.copied(size)

    def synchronize(self) -> None:
        """Wait until everything launched is done."""
        with self.lock:
            self.launches.submit()
            self.driver.queue.read_buffer(self.launches.buffer, 0, 4)

    # Programs

    def dialect(self) -> WGSL:
        """WGSL."""
        return WGSL(self.wide)

    def environment(self) -> Sequence[str]:
        """Which adapter and driver it is."""
        return (self._identity(),)

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """The kernel after its steps. One that turns too often for the driver has lanes, also with
        NOOPT: as it stands it would store something else.

        Raises:
            DeviceError: a lane turns too often all the same.
        """
        # r[impl webgpu.loop.turns+2]
        made = super().optimized(ast, search)
        if self.turns is None or turns(made) <= self.turns:
            return made
        made = optimize(ast, self.limits, self, False)
        if (count := turns(made)) > self.turns:
            raise DeviceError(ast.arg.name, f"the loops of a lane turn {count} times, and the "
                              f"driver {self.adapter.info['vendor']} ends them after {self.turns}",
                              "use smaller tensors, or another DEVICE")
        return made

    def link(self, program: GroupProgram) -> None:
        """Give a program its module; a pipeline is made where it runs first."""
        assert isinstance(program, WebGPUProgram)
        program.function, program.pipelines = self.functions[program.key]

    def attempt(self, program: GroupProgram) -> None:
        """Compile a program by itself, and keep nothing of it."""
        assert isinstance(program, WebGPUProgram)
        program.function, program.pipelines = self._module(program.key, program.text), {}
        for _, lanes in program.shape.launches([v.arg[2] for v in program.variables]):
            program.pipeline(lanes)

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile each kernel by itself: arrays of one would be arrays of all."""
        for key, source in sources.items():
            self.functions[key] = self._module(key, source), {}
        GlobalCounters.compiled += len(sources)

    def _module(self, key: str, source: SourceText) -> Any:
        """A text, checked and translated for the driver.

        Raises:
            CompileError: it was refused.
        """
        text = f"{source.prelude}\n{source.signature.format(name=symbol(key))} {source.body}"
        with self._refusing(source.name):
            return self.driver.create_shader_module(code=text), len(source.parameters) + \
                bool(source.phases), symbol(key)

    def pipeline(self, program: GroupProgram, lanes: int) -> Any:
        """A pipeline for groups of so many lanes, and the layout of its arguments.

        Raises:
            CompileError: the driver refused it.
        """
        module, arrays, name = program.function
        layout, pipelines = self._layouts(arrays)
        with self._refusing(program.name):
            return self.driver.create_compute_pipeline(layout=pipelines, compute={
                "module": module, "entry_point": name, "constants": {"lanes": lanes}}), layout

    @functools.cache  # noqa: B019
    def _layouts(self, arrays: int) -> tuple[Any, Any]:
        """What a launch is told, a zero, and so many arrays of words."""
        kind = self.gpu.BufferBindingType
        kinds = [kind.uniform, kind.read_only_storage, *[kind.storage] * arrays]
        layout = self.driver.create_bind_group_layout(entries=[
            {"binding": place, "visibility": self.gpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for place, kind in enumerate(kinds)])
        return layout, self.driver.create_pipeline_layout(bind_group_layouts=[layout])

    @contextmanager
    def _refusing(self, name: str) -> Any:
        """Make an error of wgpu one of ours."""
        try:
            yield
        except self.gpu.GPUError as error:  # r[impl webgpu.error.told]
            raise CompileError("compile", f"{self.name} refused {name}: {error}",
                               "set NOOPT=1 to avoid an optimisation, or another DEVICE") from None


Device.register(WebGPUDevice, webgpu_problem)
