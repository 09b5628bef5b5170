"""The CPU device: kernels compiled by the machine's C compiler. Chapter: spec/cpu.md.

All kernels that are not known yet go to the compiler in one compilation unit (or a few, in
parallel). What it makes is kept on disk, in a folder that only its owner can write, and is checked
before it is loaded. Kernels are called through one table that C runs in one call.
"""
from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import mmap
import os
import platform
import shutil
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
from impl.device import Device, DeviceBackend, GlobalCounters, Launch, Memory, Program, Table
from impl.errors import CompileError, DeviceError, user_line
from impl.ir import UOp
from impl.kernel import Limits, optimize
from impl.render import C, Source, render

# --8<-- [start:flags]
#: No flag changes what an operation means (r[impl cpu.flags.meaning]). Products are contracted only
#: where the renderer says, and `C._cast` knows what GCC makes of casts without trapping math.
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-fwrapv",
         "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fno-strict-aliasing",
         "-w")
#: GCC 12 gives all vectors of a group of neighbouring conditional loads the mask of the first one.
#: The renderer keeps such loads apart (`C.guarded`). These keep GCC from making others
#: conditional, and from copying a loop's body into the body of another iteration.
#: conformance/test_cpu.py has the witness.
GCC_FLAGS = ("-fno-tree-sink", "-fno-loop-unroll-and-jam")
#: For units of kernels with conditions: there GCC may not turn branches into masks by itself, since
#: it also takes a load whose value is only used under a condition for a conditional one.
GCC_CONDITIONAL = ("-fno-tree-loop-if-convert",)
#: For units of kernels that load what they overwrite, at other places: GCC 12 makes block copies of
#: such loops, in an order in which one of them copies what another one has written. Elsewhere block
#: copies are welcome: they are half as fast again as loops.
GCC_IN_PLACE = ("-fno-tree-loop-distribute-patterns",)
# --8<-- [end:flags]
_FORMAT = "tensor-schedule-object/1"
#: Kernels in one compilation unit, at most, when there are several.
_UNIT = 24

#: Added to every unit: runs a table of launches, two words each, in one call.
_RUNTIME = """
typedef struct { void (*function)(void **); void **arguments; } ts_launch;
void ts_run(ts_launch *launches, long count) {
  for (long i = 0; i < count; i++) launches[i].function(launches[i].arguments);
}
"""


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


def flags_for(command: list[str], conditional: bool = False,
              in_place: bool = False) -> tuple[str, ...]:
    """The flags for this compiler: some are gcc's alone, and some for certain kernels."""
    if "clang" in _compiler_identity(tuple(command)):
        return FLAGS
    return (FLAGS + GCC_FLAGS + (GCC_CONDITIONAL if conditional else ())
            + (GCC_IN_PLACE if in_place else ()))


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


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# --8<-- [start:compile]
def _compile_unit(command: list[str], sources: list[tuple[str, Source]], line: str) -> bytes:
    """The shared object for some kernels; their functions are named by their keys.

    `line` is the user's line, as compilers are run in threads of their own.

    Raises:
        CompileError: the compiler is missing, or refused the text; the text is kept.
    """
    text = _unit_text(sources)
    with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as folder:
        source, target = Path(folder, "unit.c"), Path(folder, "unit.so")
        source.write_text(text, encoding="utf-8")
        try:
            conditional = any(source.conditional for _, source in sources)
            in_place = any(source.moves_in_place for _, source in sources)
            arguments = [*flags_for(command, conditional, in_place),
                         "-o", str(target), str(source), "-lm"]
            run = subprocess.run([*command, *arguments],
                                 capture_output=True, text=True, check=False)
            if run.returncode == 0:
                return target.read_bytes()
            message = run.stderr.strip()
        except OSError as error:
            message = str(error)
    kept = _keep_failed(text)
    names = ", ".join(source.name for _, source in sources[:4])
    raise CompileError(  # r[impl cpu.compile.refused]
        "compile", f"{' '.join(command)} refused {names}: {message}; the source is in {kept}",
        "set CC to a working compiler, NOOPT=1 to avoid an optimisation, or DEVICE=REFERENCE",
        line)


def _keep_failed(text: str) -> str:
    handle, path = tempfile.mkstemp(prefix="tensor-schedule-failed-", suffix=".c")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _unit_text(sources: list[tuple[str, Source]]) -> str:
    """One C file: every definition once, then the kernels."""
    # r[impl cpu.compile.together]
    seen: dict[str, None] = {}
    for _, source in sources:
        for definition in source.definitions:
            seen.setdefault(definition)
    parts = [*seen, _RUNTIME]
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
    def get(self, sources: dict[str, Source]) -> None:
        """Have every kernel loaded: from this process, from disk, or from the compiler."""
        kept = store()
        missing = {}
        for key, source in sources.items():
            if key in self.functions:
                GlobalCounters.cache_hits += 1
            elif self._found(kept, key):
                GlobalCounters.cache_hits += 1
                GlobalCounters.disk_hits += 1
            else:
                missing[key] = source
        if missing:
            self._build(kept, missing)

    def _found(self, kept: Store, key: str) -> bool:
        """Load a kernel from disk: its entry names an object, and its symbol there."""
        try:
            entry = json.loads(kept.get("kernel", key) or b"")
            name, symbols = entry["object"], {key: entry["symbol"]}
        except (ValueError, KeyError, TypeError):
            return False
        # What is loaded is not read again: nothing changes the content that a name stands for.
        path = kept.folder / name if name in self.libraries else kept.find_object(name)
        return path is not None and self._load(path, symbols)
    # --8<-- [end:load]

    def _build(self, kept: Store, missing: dict[str, Source]) -> None:
        command = find_compiler()
        if not command:  # r[impl cpu.compile.missing]
            raise CompileError("compile", compiler_problem(), "install gcc or clang, set CC to a "
                               "compiler, pip install ziglang, or set DEVICE=REFERENCE")
        pairs, line = list(missing.items()), user_line()
        workers = max(1, min(os.cpu_count() or 1, len(pairs) // 4))
        size = min(_UNIT, -(-len(pairs) // workers))
        kinds: dict[tuple[bool, bool], list[tuple[str, Source]]] = {}
        for pair in pairs:
            kinds.setdefault((pair[1].conditional, pair[1].moves_in_place), []).append(pair)
        units = [alike[i:i + size] for alike in kinds.values()
                 for i in range(0, len(alike), size)]
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
        for key, symbol in symbols.items():
            kept.put("kernel", key, json.dumps({"object": name, "symbol": symbol}).encode())
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
            if self.run is None:
                self.run = library.ts_run
                self.run.argtypes, self.run.restype = (ctypes.c_void_p, ctypes.c_long), None
            return True
        except (OSError, AttributeError) as error:
            if required:
                raise CompileError("compile", f"{path} cannot be loaded: {error}",
                                   "set TMPDIR or CACHE_FOLDER to a folder from which programs "
                                   "may be run") from error
            return False


_objects = _Objects()


# --8<-- [start:program]
class CPUProgram(Program):
    """A kernel as a C function `void kernel(void **arguments)`."""

    function: int = 0
    _call: Any = None
    _packed: Any = None

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Call the function with the memories' addresses and the addresses of the values."""
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
        self.words = np.zeros(2 * len(launches) + pointers, np.uint64)
        self.values = np.array([v for _, _, values in launches for v in values], np.int64)
        self.address = self.words.ctypes.data
        self.first: list[int] = []       # where the arguments of each launch begin
        self.first_value: list[int] = []
        place, value, base = 2 * len(launches), 0, self.values.ctypes.data
        words: list[int] = []
        rest: list[int] = []
        for program, memories, values in launches:
            assert isinstance(program, CPUProgram)
            words += (program.function, self.address + 8 * place)
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
            _objects.run(self.arranged.address, len(self.launches))
# --8<-- [end:table]


# --8<-- [start:pool]
class _Pool:
    """Freed blocks by size, to be used again: fresh pages cost more than a small kernel."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0
        self.blocks: dict[int, list[tuple[np.ndarray, int]]] = {}  # each with its address
        self.lock = threading.RLock()

    def take(self, size: int) -> tuple[np.ndarray | None, int | None]:
        """A freed block of that size and its address, if there is one."""
        with self.lock:
            blocks = self.blocks.get(size)
            if not blocks:
                return None, None
            self.held -= size
            return blocks.pop()

    def give(self, block: np.ndarray, address: int) -> None:
        """Keep a block, unless too much is kept already."""
        size = len(block)
        with self.lock:
            if self.held + size <= self.limit:
                self.held += size
                self.blocks.setdefault(size, []).append((block, address))


class _Pooled(Memory):
    """Memory that goes back to the pool when nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
        self.device.pool.give(self.block, self.address)  # type: ignore[attr-defined]
# --8<-- [end:pool]


_LARGE = 1 << 20


# --8<-- [start:device]
class CPU(DeviceBackend):
    """The processor this runs on."""

    kind = "CPU"
    maximum_arguments = 4096

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pool = _Pool(1 << 30)

    @property
    def limits(self) -> Limits:
        """Widths and sizes of this processor."""
        wide = vector_bytes()
        return Limits(name="CPU", vector_bytes=wide, vector_registers=32 if wide == 64 else 16)

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, the compiler and the processor."""
        command = find_compiler()
        return (*super().plan_key(), _compiler_identity(tuple(command)) if command else "")

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory, aligned to 64 bytes; large blocks may use huge pages.

        Raises:
            DeviceError: there is not enough memory.
        """
        size = -(-max(nbytes, 1) // self.alignment) * self.alignment
        block, address = self.pool.take(size)  # r[impl cpu.memory.reuse]
        if block is None:
            try:
                block = _fresh(size, self.alignment)
            except (MemoryError, OSError, OverflowError, ValueError):
                raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                                  "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return _Pooled(self, block, 0, nbytes, None, address)

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Optimise, render, and compile what is not compiled yet."""
        programs: list[CPUProgram] = []
        sources: dict[str, Source] = {}
        keys: list[str] = []
        identity = self._identity()
        for ast in asts:
            program, source = self._rendered(ast)
            # The name is not part of the key: r[impl cpu.compile.once]
            key = _digest(identity, source.prelude, source.body)  # r[impl cpu.cache.key]
            sources.setdefault(key, source)
            keys.append(key)
            programs.append(program)
        with _build_lock:  # r[impl cpu.thread.safe]
            _objects.get(sources)
        for program, key in zip(programs, keys, strict=True):
            program.function = _objects.functions[key]
        return list(programs)

    def _rendered(self, ast: UOp) -> tuple[CPUProgram, Source]:
        """A program that is optimised and has its text, and is not compiled."""
        # r[impl kernel.noopt.plain]
        # r[impl cpu.values.reference]
        noopt = settings.get("NOOPT")
        program = CPUProgram(self, ast, ast if noopt else optimize(ast, self.limits))
        source = render(program.optimized, C())
        program.source = source.text
        return program, source

    def source(self, ast: UOp) -> str | None:
        """The C text of a kernel."""
        return self._rendered(ast)[1].text

    def _identity(self) -> str:
        command = find_compiler()
        if not command:
            raise CompileError("compile", compiler_problem(), "install gcc or clang, set CC to a "
                               "compiler, pip install ziglang, or set DEVICE=REFERENCE")
        return _digest(_FORMAT, _RUNTIME, *flags_for(command, True, True),
                       _compiler_identity(tuple(command)))

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed in one call of C."""
        return CPUTable(launches)
# --8<-- [end:device]


_build_lock = threading.RLock()


def _fresh(size: int, alignment: int) -> np.ndarray:
    """New memory: pages of the system for large blocks, else the heap."""
    if size >= _LARGE:
        pages = mmap.mmap(-1, size)  # aligned to a page
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(pages, np.uint8)
    block = np.empty(size + alignment, np.uint8)
    start = -block.ctypes.data % alignment
    return block[start:start + size]


Device.register(CPU, compiler_problem)
