"""The CPU device: kernels compiled by the machine's C compiler. Chapter: spec/cpu.md.

All kernels that are not known yet go to the compiler in one compilation unit (or a few, in
parallel). What it makes is kept on disk, in a folder that only its owner can write, and is checked
before it is loaded. Kernels are called through one table that C runs in one call.
"""
from __future__ import annotations

import _ctypes
import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from impl import settings
from impl.caching.disk import Store, store
from impl.caching.texts import keep_text, kept_text, kernel_name
from impl.cpu.memory import Pool, Pooled
from impl.device import Device, DeviceBackend, GlobalCounters, Launch, Memory, Program, Table
from impl.errors import CompileError, DeviceError, user_line
from impl.ir import UOp, free_after_fork
from impl.kernel import (
    Estimate,
    Limits,
    Step,
    duration,
    fold_gates,
    optimize,
    taken,
    with_steps,
)
from impl.render import C, Source, render

# --8<-- [start:flags]
#: No flag changes what an operation means (r[impl cpu.flags.meaning]). Products are contracted only
#: where the renderer says, and `C._cast` knows what GCC makes of casts without trapping math.
#: Texts are vector code already: what a compiler adds beyond -O1 costs time and no longer pays, and
#: its vectoriser was the source of most faults that conformance/test_cpu.py has the witnesses of.
FLAGS = ("-O1", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-fwrapv",
         "-fno-tree-vectorize", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
         "-fno-strict-aliasing", "-w")
# --8<-- [end:flags]
_FORMAT = "tensor-schedule-object/1"
#: Kernels in one compilation unit, at most, when there are several.
_UNIT = 24
#: Words of a launch as C sees it.
_WORDS = 6
#: Characters that take about as long to compile as a compiler takes to start.
_WORTH_A_PROCESS = 4_000


# --8<-- [start:runtime]
def _runtime() -> Source:
    """What runs tables of launches; compiled and kept like a kernel."""
    # r[impl cpu.threads.equal, cpu.threads.idle, cpu.threads.concurrent]
    # r[impl cpu.threads.fork+2, cpu.threads.exit, cpu.threads.signals]
    text = Path(__file__).with_name("runtime.c").read_text(encoding="utf-8")
    before, name, after = text.partition("long ts_run")
    assert name, "the runtime has its function"
    signature, body = after.split("\n", 1)[0], after.split("{", 1)[1]
    return Source("ts_run", "{" + body, (before,), "long {name}" + signature.rstrip("{ "))


RUNTIME = _runtime()
# --8<-- [end:runtime]


# --8<-- [start:compiler]
def find_compiler() -> list[str]:
    """The command of the C compiler: setting CC, else cc, gcc, clang, else `ziglang`; or []."""
    return list(_find_compiler(str(settings.get("CC") or ""), os.environ.get("PATH", "")))


@functools.lru_cache(maxsize=8)
def _find_compiler(chosen: str, path: str) -> list[str]:
    """The same, looked for once: every schedule asks, and files are slow to look for."""
    if chosen:
        words = chosen.split()
        return words if shutil.which(words[0], path=path) else []
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name, path=path):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return []


def compiler_problem() -> str:
    """Why kernels cannot be compiled here; empty if they can."""
    if find_compiler():
        return ""
    chosen = settings.get("CC")
    if chosen:
        return f"CC={chosen} is not found"
    return "no C compiler found (looked for cc, gcc, clang and the package ziglang)"


@functools.lru_cache(maxsize=8)
def _compiler_identity(command: tuple[str, ...]) -> str:
    """The compiler's version and the processor: objects for others are not for us."""
    try:
        run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        version = run.stdout
    except OSError:
        version = ""
    return "\n".join([*command, shutil.which(command[0]) or "", version, processor()])
# --8<-- [end:compiler]


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """What identifies the processor for -march=native: its model and its flags."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU")
        kept = [line for line in lines.splitlines() if line.startswith(wanted)]
        return platform.machine() + "\n" + "\n".join(kept)
    except OSError:
        return " ".join((platform.machine(), platform.processor(), platform.platform()))


@functools.lru_cache(maxsize=1)
def vector_bytes() -> int:
    """The width of a vector register."""
    found = processor().split()
    if "avx512f" in found:
        return 64
    return 32 if "avx2" in found else 16


@functools.lru_cache(maxsize=4)
def cache_bytes(place: int) -> int:
    """The size of a cache of the first processor: 0 the first for data, 2, 3; or 0."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{place}/size").read_text("ascii")
        return int(text.strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


@functools.lru_cache(maxsize=1)
def processors() -> int:
    """How many processors this process may use, looked up once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# --8<-- [start:compile]
def _compile_unit(command: list[str], sources: list[tuple[str, Source]], line: str,
                  seconds: float | None = None) -> bytes:
    """The shared object for some kernels; their functions are named by their keys.

    `line` is the user's line, as compilers are run in threads of their own.

    Raises:
        CompileError: the compiler is missing, or refused the text; the text is kept.
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    text = _unit_text(sources)
    with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as folder:
        source, target = Path(folder, "unit.c"), Path(folder, "unit.so")
        source.write_text(text, encoding="utf-8")
        try:
            arguments = [*FLAGS, "-o", str(target), str(source), "-lm"]
            status, said = _run_compiler([*command, *arguments], seconds)
            if status == 0:
                return target.read_bytes()
            message = said.strip()
        except OSError as error:
            message = str(error)
    kept = _keep_failed(text)
    names = ", ".join(source.name for _, source in sources[:4])
    raise CompileError(  # r[impl cpu.compile.refused]
        "compile", f"{' '.join(command)} refused {names}: {message}; the source is in {kept}",
        "set CC to a working compiler, NOOPT=1 to avoid an optimisation, or DEVICE=REFERENCE",
        line)


def _run_compiler(words: list[str], seconds: float | None) -> tuple[int, str]:
    """The status of a compiler and what it said on stderr; it and its children end in time.

    Raises:
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          start_new_session=seconds is not None) as process:
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # gcc leaves the work to a process of its own
            raise
    return process.returncode, said


def _keep_failed(text: str) -> str:
    handle, path = tempfile.mkstemp(prefix="tensor-schedule-failed-", suffix=".c")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _units(pairs: list[tuple[str, Source]], workers: int) -> list[list[tuple[str, Source]]]:
    """Kernels dealt out to compiler runs, the longest first, each to the run with the least."""
    # r[impl cpu.compile.together]
    count = max(workers, -(-len(pairs) // _UNIT))
    units: list[list[tuple[str, Source]]] = [[] for _ in range(count)]
    lengths = [0] * count
    for pair in sorted(pairs, key=lambda pair: -len(pair[1].body)):
        least = lengths.index(min(lengths))
        units[least].append(pair)
        lengths[least] += len(pair[1].body) + 1
    return [unit for unit in units if unit]


def _unit_text(sources: list[tuple[str, Source]]) -> str:
    """One C file: every definition once, then the kernels."""
    # r[impl cpu.compile.together]
    seen: dict[str, None] = {}
    for _, source in sources:
        for definition in source.definitions:
            seen.setdefault(definition)
    parts = [*seen]
    parts += [f"{source.signature.format(name=_symbol(key))} {source.body}"
              for key, source in sources]
    return "\n".join(parts)


def _symbol(key: str) -> str:
    return f"kernel_{key[:24]}"
# --8<-- [end:compile]


class _Objects:
    """All kernels of this process that are loaded, by key; and the objects that hold them."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        self.libraries: dict[str, ctypes.CDLL] = {}
        self.run: Any = None

    # --8<-- [start:load]
    def get(self, sources: dict[str, Callable[[], Source]], runtime: str) -> None:
        """Have every kernel loaded: from this process, from disk, or from the compiler.

        And the runtime, under its key: it is compiled along with the first kernels.
        """
        kept = store()
        missing = {}
        for key, source in sources.items():
            if key in self.functions:
                GlobalCounters.cache_hits += 1
            elif self._found(kept, key):
                GlobalCounters.cache_hits += 1
                GlobalCounters.disk_hits += 1
            else:
                missing[key] = source()
        wanted = self.run is None and not self._found(kept, runtime, "runtime")
        if missing or wanted:
            self._build(kept, missing, [(runtime, RUNTIME)] if wanted else [])
        if self.run is None:  # the first one that is loaded serves the process: it has the workers
            self.run = _RUN(self.functions[runtime])

    def _found(self, kept: Store, key: str, kind: str = "kernel") -> bool:
        """Load a kernel from disk: its entry names an object, and its symbol there."""
        try:
            entry = json.loads(kept.get(kind, key) or b"")
            name, symbols = entry["object"], {key: entry["symbol"]}
        except (ValueError, KeyError, TypeError):
            return False
        # What is loaded is not read again: nothing changes the content that a name stands for.
        path = kept.folder / name if name in self.libraries else kept.find_object(name)
        return path is not None and self._load(path, symbols)
    # --8<-- [end:load]

    def _build(self, kept: Store, missing: dict[str, Source],
               besides: list[tuple[str, Source]]) -> None:
        command = find_compiler()
        if not command:  # r[impl cpu.compile.missing]
            raise CompileError("compile", compiler_problem(), "install gcc or clang, set CC to a "
                               "compiler, pip install ziglang, or set DEVICE=REFERENCE")
        pairs, line = list(missing.items()), user_line()
        length = sum(len(source.body) for _, source in pairs)
        workers = max(1, min(os.cpu_count() or 1, len(pairs), length // _WORTH_A_PROCESS))
        units = _units(pairs, workers) or [[]]
        units[0] += besides
        with ThreadPoolExecutor(workers) as pool:
            made = list(pool.map(lambda unit: _compile_unit(command, unit, line), units))
        GlobalCounters.compiled += len(pairs)
        for unit, content in zip(units, made, strict=True):
            self._keep(kept, unit, content)

    # --8<-- [start:keep]
    def _keep(self, kept: Store, unit: list[tuple[str, Source]], content: bytes) -> None:
        """Load an object, and keep it and then its entries on disk."""
        symbols = {key: _symbol(key) for key, _ in unit}
        name = kept.put_object(content, "so")
        path = kept.find_object(name)
        if path is None or not self._load(path, symbols):
            self._load_aside(content, name, symbols)  # a full disk must not stop the program
            return
        for key, source in unit:
            kind, symbol = "runtime" if source is RUNTIME else "kernel", symbols[key]
            kept.put(kind, key, json.dumps({"object": name, "symbol": symbol}).encode())
    # --8<-- [end:keep]

    def _load_aside(self, content: bytes, name: str, symbols: dict[str, str]) -> None:
        """Load an object from a file that is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as folder:
            path = Path(folder, name)
            path.write_bytes(content)
            self._load(path, symbols, required=True)

    def _load(self, path: Path, symbols: dict[str, str], required: bool = False) -> bool:
        """Load an object and look up its kernels; False if it cannot be loaded."""
        try:
            library = self.libraries.get(path.name)
            if library is None:
                library = self.libraries[path.name] = ctypes.CDLL(str(path))
            for key, symbol in symbols.items():
                pointer = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
                assert pointer is not None
                self.functions[key] = pointer
            return True
        except (OSError, AttributeError) as error:
            if required:
                raise CompileError("compile", f"{path} cannot be loaded: {error}",
                                   "set TMPDIR or CACHE_FOLDER to a folder from which programs "
                                   "may be run") from error
            return False


_objects = _Objects()
#: The runtime as C sees it: launches, and how many.
_RUN = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_long)


def _launch(address: int, count: int) -> None:
    """Run launches in order, without the lock of the interpreter.

    Raises:
        DeviceError: there is no memory for what the threads of a kernel share.
    """
    if _objects.run(address, count):
        raise DeviceError("launch", "no memory for what the threads of a kernel share",
                          "free some, or set CPU_COUNT=1")


# --8<-- [start:program]
class CPUProgram(Program):
    """A kernel as a C function `void kernel(void **arguments)`, or one that has chunks.

    `key` names the text of the function. `shape` are the words of its launches after function and
    arguments: chunks, phases, bytes of scratch memory, and the nanoseconds that one thread would
    need.
    """

    function: int = 0
    key: str = ""
    shape: tuple[int, int, int, int] = (1, 0, 0, 0)
    library: ctypes.CDLL | None = None  # of a program that was tried
    _call: Any = None
    _packed: Any = None
    _steps: tuple[str, ...] | None = None
    _reasons: tuple[str, ...] = ()

    def set_shape(self, source: Source) -> None:
        """Take over what the text says of chunks and phases."""
        if source.phases:
            kinds = sum(shared << place for place, shared in enumerate(source.phases))
            self.shape = (source.threads, kinds | 1 << len(source.phases), source.scratch,
                          duration(self.ast))

    # --8<-- [start:facts]
    @property
    def optimized(self) -> UOp:
        """The kernel after the optimisation steps; those of a kept text are taken again."""
        if self._optimized is None and self._steps:
            again = zip(map(Step.parse, self._steps), self._reasons, strict=True)
            self._optimized = taken(fold_gates(self.ast), again)
        return self._optimized or self.ast

    @property
    def steps(self) -> tuple[str, ...]:
        """The optimisation steps that were applied, in order."""
        return super().steps if self._steps is None else self._steps

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the steps was applied."""
        return super().reasons if self._steps is None else self._reasons

    def facts(self) -> dict[str, Any]:
        """What is kept of a program besides its object."""
        cost = None if self.variables else self.cost()
        return {"key": self.key, "source": self.source, "steps": self.steps,
                "reasons": self.reasons, "arguments": self.arguments, "shape": self.shape,
                "cost": cost and (cost.operations, cost.bytes)}

    @classmethod
    def of_facts(cls, device: CPU, ast: UOp, facts: dict[str, Any]) -> CPUProgram:
        """The program of which these facts were kept; its function is not loaded.

        Raises:
            KeyError, TypeError, ValueError: they are no such facts.
        """
        found = cls(device, ast, None, int(facts["arguments"]))
        found.key, found.source = str(facts["key"]), str(facts["source"])
        chunks, phases, scratch, nanoseconds = facts["shape"]
        found.shape = int(chunks), int(phases), int(scratch), int(nanoseconds)
        found._steps, found._reasons = tuple(facts["steps"]), tuple(facts["reasons"])
        found._cost = Estimate(*facts["cost"]) if facts["cost"] else None
        return found
    # --8<-- [end:facts]

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Call the function with the memories' addresses and the addresses of the values."""
        if self.shape[0] > 1:
            arranged = _Arranged([(self, memories, values)])  # alive until the run is over
            _launch(arranged.address, 1)
            return
        if self._call is None:
            self._packed = struct.Struct(f"{self.arguments + len(self.variables)}P").pack
            self._call = _PROTOTYPE(self.function)
        addresses = [memory.address for memory in memories[:self.arguments]]
        if values:
            numbers = (ctypes.c_int64 * len(values))(*values)
            start = ctypes.addressof(numbers)
            addresses += range(start, start + 8 * len(values), 8)
        self._call(self._packed(*addresses))


#: A kernel reads its table of arguments only, and `bytes` are the quickest way to make one.
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class _Arranged:
    """Launches as C sees them: function and arguments in turn, and the values in one array."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        pointers = sum(p.arguments + len(p.variables) for p, _, _ in launches)
        self.words = np.zeros(_WORDS * len(launches) + pointers, np.uint64)
        self.values = np.array([v for _, _, values in launches for v in values], np.int64)
        self.address = self.words.ctypes.data
        self.first: list[int] = []       # where the arguments of each launch begin
        self.first_value: list[int] = []
        place, value, base = _WORDS * len(launches), 0, self.values.ctypes.data
        words: list[int] = []
        rest: list[int] = []
        for program, memories, values in launches:
            assert isinstance(program, CPUProgram)
            words += (program.function, self.address + 8 * place, *program.shape)
            self.first.append(place)
            self.first_value.append(value)
            rest += [memory.address for memory in memories[:program.arguments]]
            rest += [base + 8 * (value + i) for i in range(len(values))]
            place += program.arguments + len(values)
            value += len(values)
        self.words[:] = words + rest
# --8<-- [end:program]


# --8<-- [start:table]
class CPUTable(Table):
    """Launches that C runs in one call: a few nanoseconds for each."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        super().__init__(launches)
        self.arranged = _Arranged(self.launches)

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one launch another memory for one argument."""
        super().set_memory(launch, argument, memory)
        if argument < self.launches[launch][0].arguments:
            self.arranged.words[self.arranged.first[launch] + argument] = memory.address

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one launch another value of one variable."""
        super().set_value(launch, variable, value)
        self.arranged.values[self.arranged.first_value[launch] + variable] = value

    def replay(self) -> None:
        """Run all launches in order."""
        # r[impl cpu.table.call]
        if self.launches:
            _launch(self.arranged.address, len(self.launches))
# --8<-- [end:table]


# --8<-- [start:device]
class CPU(DeviceBackend):
    """The processor this runs on."""

    kind = "CPU"
    maximum_arguments = 4096

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pool = Pool(self.alignment)

    @property
    def limits(self) -> Limits:
        """Widths and sizes of this processor."""
        wide = vector_bytes()  # r[impl cpu.threads.count]
        known = Limits()
        return Limits(name="CPU", vector_bytes=wide, vector_registers=32 if wide == 64 else 16,
                      second_cache=cache_bytes(2) or known.second_cache,
                      third_cache=cache_bytes(3) or known.third_cache,
                      dots="avx512_vnni" in processor().split(),
                      threads=settings.get("CPU_COUNT") or processors())

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, the compiler and the processor."""
        command = find_compiler()
        return (*super().plan_key(), _compiler_identity(tuple(command)) if command else "")

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory, aligned to 64 bytes; large blocks have huge pages.

        Raises:
            DeviceError: there is not enough memory.
        """
        try:
            block, address = self.pool.take(nbytes)
        except (MemoryError, OSError, OverflowError, ValueError):
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return Pooled(self, block, 0, nbytes, None, address)

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Optimise, render, and compile what is not compiled yet."""
        programs: list[CPUProgram] = []
        sources: dict[str, Callable[[], Source]] = {}
        identity = self._identity()
        for ast in asts:
            program, source = self._known(ast, identity)
            sources.setdefault(program.key, source)
            programs.append(program)
        runtime = _digest(identity, RUNTIME.prelude, RUNTIME.body)
        with _build_lock:  # r[impl cpu.thread.safe]
            _objects.get(sources, runtime)
        for program in programs:
            program.function = _objects.functions[program.key]
        return list(programs)

    # --8<-- [start:known]
    def _known(self, ast: UOp, identity: str) -> tuple[CPUProgram, Callable[[], Source]]:
        """A program that is not compiled, and its text, which is made if nobody kept it."""
        name = kernel_name(ast, repr((identity, self.limits, settings.plan_key())))
        try:
            # What a search found is kept by the search, which may be told to begin anew.
            kept = {} if settings.get("BEAM") else kept_text(name)
            program = CPUProgram.of_facts(self, ast, kept)
            return program, lambda: self._printed_again(program, identity)
        except (KeyError, TypeError, ValueError):
            program, source = self._rendered(ast)
        # The name is not part of the key: r[impl cpu.compile.once]
        program.key = _digest(identity, source.prelude, source.body)  # r[impl cpu.cache.key]
        if not settings.get("BEAM"):
            keep_text(name, program.facts())
        return program, lambda: source

    def _printed_again(self, program: CPUProgram, identity: str) -> Source:
        """The text of a program whose facts were kept, and whose object is gone."""
        source = self._rendered(program.ast)[1]
        if _digest(identity, source.prelude, source.body) != program.key:
            raise CompileError("compile", f"what is kept of {source.name} is not what is printed "
                               "now", "empty CACHE_FOLDER, and report this")
        return source
    # --8<-- [end:known]

    def _rendered(self, ast: UOp) -> tuple[CPUProgram, Source]:
        """A program that is optimised and has its text, and is not compiled."""
        # r[impl cpu.values.reference]
        program = CPUProgram(self, ast, self.optimized(ast))
        source = render(program.optimized, C())
        program.source = source.text
        program.set_shape(source)
        return program, source

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """The kernel after its steps; with BEAM, and unless `search` is false, they are tried."""
        if settings.get("NOOPT"):  # r[impl kernel.noopt.plain]
            return ast
        return optimize(ast, self.limits, self, search)

    def source(self, ast: UOp) -> str | None:
        """The C text of a kernel."""
        return self._rendered(ast)[1].text

    # --8<-- [start:trial]
    def code_version(self) -> str:
        """The compiler, its flags and the processor."""
        return self._identity()

    def trial(self, asts: Sequence[UOp], seconds: float) -> list[CPUProgram | None]:
        """Programs for kernels as they stand, to be tried: nothing is kept of them.

        Each is compiled by itself, in as many processes as PARALLEL says. None for one that cannot
        be printed, that the compiler refuses, or for which it takes longer than `seconds`.
        """
        # r[impl kernel.beam.timeout]
        command, line = find_compiler(), user_line()
        if asts and _objects.run is None:  # what replays tables has to be loaded
            self.load([with_steps(asts[0], ())])

        def compiled(ast: UOp) -> CPUProgram | None:
            try:
                program, source = self._rendered(with_steps(ast, ()))
            except Exception:  # a fault of ours; the program can do without this list
                return None
            key = _digest(source.prelude, source.body)
            try:
                content = _compile_unit(command, [(key, source)], line, seconds)
            except (CompileError, subprocess.TimeoutExpired):
                return None
            with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as folder:
                path = Path(folder, "trial.so")
                path.write_bytes(content)
                program.library = ctypes.CDLL(str(path))
            found = ctypes.cast(getattr(program.library, _symbol(key)), ctypes.c_void_p).value
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
    # --8<-- [end:trial]

    def _identity(self) -> str:
        command = find_compiler()
        if not command:
            raise CompileError("compile", compiler_problem(), "install gcc or clang, set CC to a "
                               "compiler, pip install ziglang, or set DEVICE=REFERENCE")
        return _digest(_FORMAT, *FLAGS,
                       _compiler_identity(tuple(command)))

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed in one call of C."""
        return CPUTable(launches)
# --8<-- [end:device]


_build_lock = free_after_fork(threading.RLock())

Device.register(CPU, compiler_problem)
