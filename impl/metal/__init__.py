"""The Metal device: kernels compiled by macOS, run through PyObjC. Chapter: spec/metal.md.

It has never run on hardware: it is tested over a mock of PyObjC's Metal, by running its kernels on
an emulator and by a strict check of their address spaces.

The host sees all memory of the GPU. Launches are gathered in a command buffer, which is committed
when there are enough of them or when somebody waits.
"""
from __future__ import annotations

import importlib
import platform
import struct
from collections.abc import Callable, Sequence
from typing import Any

from impl.device import Device, GlobalCounters, Memory
from impl.device.workgroups import GroupDevice, GroupProgram
from impl.dialects import Metal as Dialect
from impl.dialects.metal import ARGUMENTS, LANES, SCRATCH, VALUES
from impl.errors import CompileError, DeviceError
from impl.host import np
from impl.kernel import DeviceLimits
from impl.kernel.fragments import units_of_metal
from impl.places import device_number
from impl.render import SourceText, names_of, symbol, unit_text

#: Launches in one command buffer, at most: more of them gain nothing.
_GATHERED = 64


def bindings() -> Any:
    """PyObjC's module for Metal."""
    return importlib.import_module("Metal")


def _options() -> Any:
    """What texts are compiled with."""
    made = bindings().MTLCompileOptions.alloc().init()
    made.setFastMathEnabled_(False)  # r[impl metal.compile.meaning]
    return made


def problem() -> str:
    """Why there is no Metal here, in one line; empty if there is."""
    # r[impl metal.error.told+3]
    try:
        metal = bindings()
    except ImportError:
        if platform.system() != "Darwin":
            return f"Metal is part of macOS, and this is {platform.system()}"
        return 'PyObjC is not installed (pip install -e ".[metal]")'
    return "" if metal.MTLCreateSystemDefaultDevice() is not None else "macOS knows no GPU"


class MetalMemory(Memory):
    """A buffer of Metal, or a part of one. It lives until no command buffer needs it."""

    __slots__ = ("buffer",)
    buffer: Any

    @classmethod
    def of(cls, device: MetalDevice, buffer: Any, nbytes: int) -> MetalMemory:
        """All of a buffer."""
        block = np.frombuffer(buffer.contents().as_buffer(buffer.length()), np.uint8)
        made = cls(device, block, 0, nbytes)
        made.buffer = buffer
        return made

    def _inside(self, start: int, nbytes: int) -> Memory:
        made = MetalMemory(self.device, self.block, start, nbytes, self,
                           self.address + start - self.start)
        made.buffer = self.buffer
        return made


class OwnedMetalMemory(MetalMemory):
    """A whole buffer, counted until nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Any = GlobalCounters.grown) -> None:
        grown(-self.nbytes)


class MetalProgram(GroupProgram):
    """A kernel as a compute pipeline. Where it has phases, each of them is a dispatch."""

    device: MetalDevice

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Add its dispatches to the command buffer that is being gathered."""
        scratch = self.scratch()
        for phase, (groups, lanes) in enumerate(self.shape.launches(values)):
            if groups:
                self._dispatch(memories, [*values, phase], groups, lanes, scratch)

    def _dispatch(self, memories: Sequence[Memory], values: Sequence[int], groups: int, lanes: int,
                  scratch: Memory | None = None) -> None:
        most = self.function.maxTotalThreadsPerThreadgroup()
        if lanes > most:  # r[impl metal.error.told+3]
            raise DeviceError(self.name, f"groups of {lanes} lanes, where the kernel can have "
                              f"{most}", "set NOOPT=1")
        given = [(place, memories[argument]) for place, argument in
                 enumerate(self.text.parameters)]
        given += [(SCRATCH, scratch)] if scratch is not None else []
        packed = struct.pack(f"{len(values)}q", *values)
        with self.device.lock:
            encoder = self.device.encoder()
            encoder.setComputePipelineState_(self.function)
            for place, memory in given:
                assert isinstance(memory, MetalMemory)
                encoder.setBuffer_offset_atIndex_(memory.buffer, memory.start, place)
            encoder.setBytes_length_atIndex_(packed, len(packed), VALUES)
            size = bindings().MTLSizeMake
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(size(groups, 1, 1),
                                                                size(lanes, 1, 1))
            self.device.gathered(self.name)


class MetalDevice(GroupDevice):
    """One GPU under macOS."""

    program = MetalProgram
    kind = "METAL"
    shared_memory = False  # a buffer belongs to one GPU
    maximum_arguments = ARGUMENTS

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.alignment = 256
        metal, number = bindings(), device_number(name)
        known = [metal.MTLCreateSystemDefaultDevice()]
        known += [each for each in metal.MTLCopyAllDevices() or () if each != known[0]]
        if number >= len(known):
            raise DeviceError("device", f"{name} cannot be used: macOS knows {len(known)} GPU"
                              f"{'s' if len(known) != 1 else ''}", "use METAL")
        self.gpu = known[number]
        self.queue = self.gpu.newCommandQueue()
        # Partial results of reductions need some of it, too.
        self.local_bytes = self.gpu.maxThreadgroupMemoryLength() // 2
        self.open: tuple[Any, Any] | None = None  # a command buffer and its encoder
        self.names: list[str] = []                # of the launches in it
        self.committed: list[tuple[Any, list[str]]] = []
        self.functions: dict[str, Any] = {}

    def encoder(self) -> Any:
        """What takes the next launch."""
        if self.open is None:
            command = self.queue.commandBuffer()
            self.open = command, command.computeCommandEncoder()
        return self.open[1]

    def gathered(self, name: str) -> None:
        """A launch was added; when there are enough, the GPU gets them."""
        self.names.append(name)
        if len(self.names) >= _GATHERED:
            self._commit()

    def _commit(self) -> None:
        if self.open is not None:
            command, encoder = self.open
            self.open = None
            encoder.endEncoding()
            command.commit()
            self.committed.append((command, self.names))
            self.names = []

    def synchronize(self) -> None:
        """Wait until everything launched is done.

        Raises:
            DeviceError: a kernel failed. The device stays usable.
        """
        with self.lock:
            self._commit()
            waiting, self.committed = self.committed, []
            for command, _ in waiting[-1:]:  # they end in order
                command.waitUntilCompleted()
            failed = bindings().MTLCommandBufferStatusError
            for command, names in waiting:
                if command.status() == failed:  # r[impl metal.error.told+3]
                    raise DeviceError(self.name, f"{command.error().localizedDescription()}; in "
                                      f"one of the launches of {', '.join(dict.fromkeys(names))}",
                                      "NOOPT=1 or DEVICE=CPU tells whether the kernel is wrong")

    def seconds(self, work: Callable[[], None]) -> float:
        """What the GPU needs for what `work` asks of it, by its own clock."""
        # r[impl metal.time.commands]
        self.synchronize()
        with self.lock:
            work()
            self._commit()
            commands = [command for command, _ in self.committed]
            self.synchronize()
        return float(commands[-1].GPUEndTime() - commands[0].GPUStartTime()) if commands else 0.0

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory that the host and the GPU share.

        Raises:
            DeviceError: there is not enough.
        """
        shared = bindings().MTLResourceStorageModeShared
        made = self.gpu.newBufferWithLength_options_(max(nbytes, 1), shared)
        if made is None:
            self.synchronize()  # what command buffers hold is free then
            made = self.gpu.newBufferWithLength_options_(max(nbytes, 1), shared)
        if made is None:  # r[impl metal.error.told+3]
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some")
        GlobalCounters.grown(nbytes)
        GlobalCounters.fresh += nbytes
        return OwnedMetalMemory.of(self, made, nbytes)

    def put(self, memory: Memory, flat: np.ndarray) -> None:
        """Write bytes to the start of a block, once what was launched before needs them no more."""
        self.synchronize()  # r[impl metal.copy.ordered]
        super().put(memory, flat)

    @property
    def limits(self) -> DeviceLimits:
        """What every GPU that runs Metal 3 has for a group of lanes."""
        return DeviceLimits(name="METAL", lanes=LANES, lockstep=32, exchange=True,
                            local_memory=self.gpu.maxThreadgroupMemoryLength(),
                            units=units_of_metal())

    def dialect(self) -> Dialect:
        """Metal Shading Language."""
        return Dialect()

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile a library and make its kernels ready."""
        self.functions.update(self._compiled(sources))
        GlobalCounters.compiled += len(sources)

    def attempt(self, program: GroupProgram) -> None:
        """Compile a program by itself, and keep nothing of it."""
        program.function = self._compiled({program.key: program.text})[program.key]

    def code_version(self) -> str:
        """The GPU and its system."""
        return f"METAL {self.gpu.name()} {platform.mac_ver()[0]}"

    def _compiled(self, sources: dict[str, SourceText]) -> dict[str, Any]:
        """The kernels of a library, ready to run.

        Raises:
            CompileError: Metal refused the text.
        """
        library, wrong = self.gpu.newLibraryWithSource_options_error_(
            unit_text(sources.items()), _options(), None)
        made: dict[str, Any] = {}
        for key in sources if library is not None else ():
            function = library.newFunctionWithName_(symbol(key))
            found, wrong = self.gpu.newComputePipelineStateWithFunction_error_(function, None)
            if found is None:
                break
            made[key] = found
        if len(made) < len(sources):
            raise CompileError("compile", f"{self.name} refused {names_of(sources.values())}: "
                               f"{wrong.localizedDescription() if wrong else 'no reason given'}",
                               "report this with the text that DEBUG=4 prints; DEVICE=CPU does "
                               "without")
        return made


Device.register(MetalDevice, problem)
