"""The device itself: from kernels to programs, and memory. Chapter: spec/cpu.md."""
from __future__ import annotations

import _ctypes
import ctypes
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from impl import settings
from impl.cpu import objects
from impl.cpu.calibration import cached_bytes
from impl.cpu.compiler import (
    compile_unit,
    compiled_by,
    compiler_identity,
    features,
    find_compiler,
)
from impl.cpu.machine import cache_bytes, processors, unit_types, vectors_of
from impl.cpu.memory import HostMemory, HostPool
from impl.cpu.objects import RUNTIME, build_lock
from impl.cpu.programs import CPUProgram, CPUTable
from impl.device import DeviceBackend, GlobalCounters, Launch, Memory, Program, Table
from impl.device.kept import known
from impl.dialects import C
from impl.errors import CompileError, DeviceError, user_line
from impl.ir import UOp
from impl.kernel import DeviceLimits
from impl.kernel.poison import poisoned
from impl.render import SourceText, key_of, render, symbol
from impl.searching import optimize, with_steps

#: Parts of a long kernel for each thread: the last one to be done holds up the others that much.
_PARTS = 8


class CPU(DeviceBackend):
    """The processor this runs on."""

    kind = "CPU"
    maximum_arguments = 4096

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pool = HostPool(self.alignment)

    @property
    def limits(self) -> DeviceLimits:
        """Widths and sizes of this processor, or of a target that is named."""
        # r[impl cpu.target.settings]
        vectors = vectors_of(features())
        wide = int(settings.get("VECTOR_BYTES")) or vectors.width
        known = DeviceLimits()
        # r[impl cpu.threads.count]
        return DeviceLimits(name="CPU", vector_bytes=wide, vector_registers=vectors.registers,
                            second_cache=cache_bytes(2) or known.second_cache,
                            third_cache=cached_bytes(),
                            dots=vectors.dots and wide == vectors.width,
                            tiles=unit_types(features()) if wide == vectors.width else (),
                            threads=settings.get("CPU_COUNT") or processors(), parts=_PARTS)

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, the compiler and the processor."""
        command = find_compiler()
        return (*super().plan_key(), compiler_identity(tuple(command)) if command else "")

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory, aligned to 64 bytes; large blocks have huge pages.

        Raises:
            DeviceError: there is not enough memory.
        """
        try:
            block = self.pool.take(nbytes)
        except (MemoryError, OSError, OverflowError, ValueError):
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some") from None
        counters = GlobalCounters
        counters.allocated += nbytes
        if counters.allocated > counters.peak:
            counters.peak = counters.allocated
        return HostMemory(self, block, nbytes)

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Optimise, render, and compile what is not compiled yet."""
        programs: dict[UOp, CPUProgram] = {}
        identity = compiled_by()
        runtime = key_of(RUNTIME, identity)
        # r[impl cpu.threads.process]
        with build_lock, objects.Build(objects.loaded, runtime) as build:
            # Those with most stages first: they take longest, and compilers run meanwhile.
            for ast in sorted(asts, key=lambda ast: -len(ast.src)):
                programs[ast], source = known(self, ast, identity, CPUProgram, self._rendered)
                build.want(programs[ast].key, source)
        for program in programs.values():
            program.function = objects.loaded.functions[program.key]
        return [programs[ast] for ast in asts]

    def _rendered(self, ast: UOp) -> tuple[CPUProgram, SourceText]:
        """A program that is optimised and has its text, and is not compiled."""
        # r[impl cpu.values.reference]
        program = CPUProgram(self, ast, self.optimized(ast))
        made = program.optimized
        source = render(poisoned(made) if settings.get("POISON") else made, C())
        program.source = source.text
        program.set_shape(source, self.limits.threads)
        program.key = key_of(source, compiled_by())
        return program, source

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """The kernel after its steps; with BEAM, and unless `search` is false, they are tried."""
        if settings.get("NOOPT"):  # r[impl searching.noopt.plain]
            return ast
        return optimize(ast, self.limits, self, search)

    def source(self, ast: UOp) -> str | None:
        """The C text of a kernel."""
        return self._rendered(ast)[1].text

    def code_version(self) -> str:
        """The compiler, its flags and the processor."""
        return compiled_by()

    def trial(self, asts: Sequence[UOp], seconds: float) -> list[CPUProgram | None]:
        """Programs for kernels as they stand, to be tried: nothing is kept of them.

        Each is compiled by itself, in as many processes as PARALLEL says. None for one that cannot
        be printed, that the compiler refuses, or for which it takes longer than `seconds`.
        """
        # r[impl searching.trial.limits]
        command, line = find_compiler(), user_line()
        if asts and objects.loaded.run is None:  # what replays tables has to be loaded
            self.load([with_steps(asts[0], ())])

        def compiled(ast: UOp) -> CPUProgram | None:
            try:
                program, source = self._rendered(with_steps(ast, ()))
            except Exception:  # a fault of ours; the program can do without this list
                return None
            key = key_of(source)
            try:
                content = compile_unit(command, [(key, source)], line, seconds)
            except (CompileError, subprocess.TimeoutExpired):
                return None
            program.library = objects.load_trial(content)
            found = ctypes.cast(getattr(program.library, symbol(key)), ctypes.c_void_p).value
            assert found is not None
            program.function = found
            return program

        with ThreadPoolExecutor(settings.workers()) as pool:
            return list(pool.map(compiled, asts))

    def release(self, programs: Sequence[CPUProgram]) -> None:
        """Unload programs that were tried; they cannot run any more."""
        for program in programs:
            library, program.library, program.function = program.library, None, 0
            if library is not None and hasattr(_ctypes, "dlclose"):
                _ctypes.dlclose(library._handle)

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed in one call of C."""
        return CPUTable(launches)
