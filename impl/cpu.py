"""The CPU device: kernels compiled by the machine's C compiler. Chapter: spec/cpu.md.

All kernels that are not known yet go to the compiler in one compilation unit (or a few, in
parallel). What it makes is kept on disk, in a folder that only its owner can write, and is checked
before it is loaded. Kernels are called through one table that C runs in one call.
"""
from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import importlib.util
import json
import mmap
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from impl import settings
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
    chosen = settings.get("CC")
    if chosen:
        words = str(chosen).split()
        return words if shutil.which(words[0]) else []
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
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


# --8<-- [start:folder]
class _Folder:
    """The folder with compiled kernels; a private temporary one if that cannot be used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[str, Path] = {}
        self.temporary: Path | None = None

    def path(self) -> Path:
        """The folder in force; made if it is not there."""
        # r[impl cpu.cache.unwritable]
        # r[impl cpu.cache.off]
        chosen = settings.get("CACHE_FOLDER") or _default_folder()
        if settings.get("CACHELEVEL") == 0:
            return self._private()
        with self.lock:
            if chosen not in self.known:
                problem = _usable(Path(chosen))
                if problem:
                    print(f"tensor-schedule: compiled kernels are not kept: {chosen} {problem}",
                          file=sys.stderr)
                self.known[chosen] = Path(chosen) if not problem else self._private()
            return self.known[chosen]

    def _private(self) -> Path:
        if self.temporary is None:
            self.temporary = Path(tempfile.mkdtemp(prefix="tensor-schedule-"))
            atexit.register(shutil.rmtree, self.temporary, ignore_errors=True)
        return self.temporary


def _default_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tensor-schedule")


def _usable(folder: Path) -> str:
    """Why the folder cannot be used; empty if it can."""
    # r[impl cpu.cache.private]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if hasattr(os, "getuid"):
            if status.st_uid != os.getuid():
                return "belongs to another user"
            if status.st_mode & 0o022:
                return "can be written by other users; take that right away (chmod go-w)"
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"cannot be used: {error.strerror or error}"


_folder = _Folder()
# --8<-- [end:folder]


# --8<-- [start:cache]
def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _keep(folder: Path, name: str, content: bytes) -> None:
    """Write a file so that others see all of it or nothing."""
    # r[impl cpu.cache.atomic, cpu.cache.crash]
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, folder / name)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _find(folder: Path, key: str) -> tuple[Path, str] | None:
    """The object that holds a kernel, if there is one and it is what was written.

    The entry names the object and its checksum.
    """
    # r[impl cpu.cache.checked]
    try:
        entry = json.loads((folder / f"{key}.json").read_bytes())
        unit, checksum = entry["unit"], entry["sha256"]
        if entry["format"] != _FORMAT or entry["kernel"] != key or os.path.basename(unit) != unit:
            return None
        path = folder / unit
        if _checksum(path) != checksum:
            return None
        return path, entry["symbol"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


_checked: dict[tuple[str, int, int], str] = {}


def _checksum(path: Path) -> str:
    """The SHA-256 of a file; remembered as long as the file does not change."""
    status = path.stat()
    key = (str(path), status.st_mtime_ns, status.st_size)
    if key not in _checked:
        _checked[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return _checked[key]
# --8<-- [end:cache]


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
    """All kernels of this process that are loaded, by key."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        self.libraries: dict[str, ctypes.CDLL] = {}
        self.run: Any = None

    # --8<-- [start:load]
    def get(self, sources: dict[str, Source]) -> None:
        """Have every kernel loaded: from this process, from disk, or from the compiler."""
        folder = _folder.path()
        missing = {}
        for key, source in sources.items():
            if key in self.functions:
                GlobalCounters.cache_hits += 1
                continue
            found = _find(folder, key)
            if found is not None and self._load(found[0], {key: found[1]}):
                GlobalCounters.cache_hits += 1
            else:
                missing[key] = source
        if missing:
            self._build(folder, missing)
    # --8<-- [end:load]

    def _build(self, folder: Path, missing: dict[str, Source]) -> None:
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
            self._store(folder, unit, content)

    def _store(self, folder: Path, unit: list[tuple[str, Source]], content: bytes) -> None:
        """Write an object and its entries, and load it."""
        checksum = hashlib.sha256(content).hexdigest()
        name = f"{checksum[:32]}.so"
        symbols = {key: _symbol(key) for key, _ in unit}
        try:
            _keep(folder, name, content)
            for key, symbol in symbols.items():
                entry = {"format": _FORMAT, "kernel": key, "unit": name, "sha256": checksum,
                         "symbol": symbol}
                _keep(folder, f"{key}.json", json.dumps(entry).encode())
        except OSError:  # a full disk must not stop the program
            with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as private:
                _keep(Path(private), name, content)
                self._load(Path(private, name), symbols, required=True)
            return
        self._load(folder / name, symbols, required=True)

    def _load(self, path: Path, symbols: dict[str, str], required: bool = False) -> bool:
        """Load an object and look up its kernels; False if it cannot be loaded."""
        try:
            library = self.libraries.get(str(path))
            if library is None:
                library = self.libraries[str(path)] = ctypes.CDLL(str(path))
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
                                   "set CACHE_FOLDER to a folder from which programs may be "
                                   "run") from error
            return False


_objects = _Objects()


# --8<-- [start:program]
class CPUProgram(Program):
    """A kernel as a C function `void kernel(void **arguments)`."""

    function: int = 0
    _call: Any = None

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Call the function with the memories' addresses and the addresses of the values."""
        if self._call is None:
            self._call = _PROTOTYPE(self.function)
        addresses = [memory.address for memory in memories[:self.arguments]]
        if values:
            numbers = (ctypes.c_int64 * len(values))(*values)
            start = ctypes.addressof(numbers)
            addresses += range(start, start + 8 * len(values), 8)
        self._call((ctypes.c_void_p * len(addresses))(*addresses))


_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


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
        self.blocks: dict[int, list[np.ndarray]] = {}
        self.lock = threading.RLock()

    def take(self, size: int) -> np.ndarray | None:
        """A freed block of that size, if there is one."""
        with self.lock:
            blocks = self.blocks.get(size)
            if not blocks:
                return None
            self.held -= size
            return blocks.pop()

    def give(self, block: np.ndarray) -> None:
        """Keep a block, unless too much is kept already."""
        with self.lock:
            if self.held + block.nbytes <= self.limit:
                self.held += block.nbytes
                self.blocks.setdefault(block.nbytes, []).append(block)


class _Pooled(Memory):
    """Memory that goes back to the pool when nothing refers to it."""

    __slots__ = ()

    def __del__(self) -> None:
        GlobalCounters.grown(-self.nbytes)
        self.device.pool.give(self.owner)  # type: ignore[attr-defined]
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
        block = self.pool.take(size)  # r[impl cpu.memory.reuse]
        if block is None:
            try:
                block = _fresh(size, self.alignment)
            except (MemoryError, OSError, OverflowError, ValueError):
                raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                                  "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return _Pooled(self, block, 0, nbytes, block)

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Optimise, render, and compile what is not compiled yet."""
        noopt = settings.get("NOOPT")
        programs: list[CPUProgram] = []
        sources: dict[str, Source] = {}
        keys: list[str] = []
        identity = self._identity()
        for ast in asts:
            # r[impl kernel.noopt.plain]
            # r[impl cpu.values.reference]
            program = CPUProgram(self, ast, ast if noopt else optimize(ast, self.limits))
            source = render(program.optimized, C())
            program.source = source.text
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
