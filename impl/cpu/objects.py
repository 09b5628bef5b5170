"""Compiled kernels: loaded from disk or from the compiler, and kept. Chapter: spec/cpu.md."""
from __future__ import annotations

import ctypes
import functools
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from impl.caching.disk import Store, store
from impl.cpu.compiler import compile_unit, dealt_out, required_compiler
from impl.cpu.machine import processors
from impl.device import GlobalCounters
from impl.device.kept import entry, missing_entries
from impl.errors import CompileError, DeviceError, user_line
from impl.ir import free_after_fork
from impl.progress import Progress
from impl.render import SourceText, symbol

#: A kernel's key, and its text.
Pair = tuple[str, SourceText]
#: Characters that take about as long to compile as a compiler takes to start.
_WORTH_A_PROCESS = 4_000
#: As many of them as a compiler is started for while more texts are still being printed.
_WORTH_STARTING = 16_000
#: Times that, where every processor has a compiler: the next one would only wait for them.
_WORTH_A_LATER = 3


def _runtime() -> SourceText:
    """What runs tables of launches; compiled and kept like a kernel."""
    # r[impl cpu.threads.equal, cpu.threads.woken, cpu.threads.process]
    # r[impl cpu.threads.process, cpu.threads.placed]
    text = Path(__file__).with_name("runtime.c").read_text(encoding="utf-8")
    before, name, after = text.partition("long ts_run")
    assert name, "the runtime has its function"
    signature, body = after.split("\n", 1)[0], after.split("{", 1)[1]
    return SourceText("ts_run", "{" + body, (before,), "long {name}" + signature.rstrip("{ "))


RUNTIME = _runtime()


class Objects:
    """All kernels of this process that are loaded, by key; and the objects that hold them."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        self.libraries: dict[str, ctypes.CDLL] = {}
        self.run: Any = None

    def found(self, kept: Store, key: str, kind: str = "kernel") -> bool:
        """Load a kernel from disk: its entry names an object, and its symbol there."""
        said = entry(kept, kind, key)
        name, symbols = said.get("object", ""), {key: said.get("symbol", "")}
        if not name:
            return False
        # What is loaded is not read again: nothing changes the content that a name stands for.
        path = kept.folder / name if name in self.libraries else kept.find_object(name)
        return path is not None and self._load(path, symbols)

    def keep(self, kept: Store, unit: list[Pair], content: bytes) -> None:
        """Load an object, and keep it and then its entries on disk."""
        symbols = {key: symbol(key) for key, _ in unit}
        name = kept.put_object(content, "so")
        path = kept.find_object(name)
        if path is None or not self._load(path, symbols):
            self._load_aside(content, name, symbols)  # a full disk must not stop the program
            return
        for key, source in unit:
            kind = "runtime" if source is RUNTIME else "kernel"
            kept.put(kind, key, json.dumps({"object": name, "symbol": symbols[key]}).encode())

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
            for key, called in symbols.items():
                pointer = ctypes.cast(getattr(library, called), ctypes.c_void_p).value
                assert pointer is not None
                self.functions[key] = pointer
            return True
        except (OSError, AttributeError) as error:
            if required:
                raise CompileError("compile", f"{path} cannot be loaded: {error}",
                                   "set TMPDIR or CACHE_FOLDER to a folder from which programs "
                                   "may be run") from error
            return False


class Build:
    """The kernels of one call: compilers run while later texts are still being printed.

    Use it as a context: when it is left, all that was wanted is loaded, and the runtime too. It is
    compiled while the first kernel is printed, or along with the kernels where only one processor
    is there to do either.
    """

    def __init__(self, objects: Objects, runtime: str) -> None:
        """`runtime` is the key of the runtime."""
        self.objects, self.runtime = objects, runtime
        self.kept, self.line = store(), user_line()
        self.asked: set[str] = set()
        self.waiting: list[Pair] = []
        self.started: list[tuple[list[Pair], Future[bytes]]] = []
        self.processors = processors()
        self.pool = ThreadPoolExecutor(self.processors)
        self.alone = False  # whether the runtime has a compiler of its own

    def want(self, key: str, source: Callable[[], SourceText]) -> None:
        """Have a kernel loaded: from this process, from disk, or from the compiler."""
        if key in self.asked:
            return
        self.asked.add(key)
        if missing_entries((key,), self.objects.functions,
                           lambda each: self.objects.found(self.kept, each)):
            self.waiting.append((key, source()))
            # r[impl cpu.compile.shared+2]
            later = _WORTH_A_LATER if len(self.started) >= self.processors else 1
            if _length(self.waiting) >= _WORTH_STARTING * later:
                self._start(self.waiting)
                self.waiting = []

    def _lacks_runtime(self) -> bool:
        return self.objects.run is None and not self.objects.found(
            self.kept, self.runtime, "runtime")

    def _start(self, unit: list[Pair]) -> None:
        # r[impl cpu.compile.shared+2]
        given, me = (required_compiler(), unit, self.line), threading.get_ident()
        if me in _starting:  # r[impl realize.nested.apart]
            self.started.append((unit, _done(*given)))
            return
        _starting.add(me)
        try:
            self.started.append((unit, self.pool.submit(compile_unit, *given)))
        finally:
            _starting.discard(me)

    def __enter__(self) -> Build:
        """Begin; a processor that has nothing to do yet compiles the runtime, if it is needed."""
        self.alone = self.processors > 1 and self._lacks_runtime()
        if self.alone:
            self._start([(self.runtime, RUNTIME)])
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.pool:  # waits for all that were started
            if kind is None:
                self._finish()

    def _finish(self) -> None:
        """Compile what is left, load everything, and keep it."""
        objects, workers = self.objects, _length(self.waiting) // _WORTH_A_PROCESS
        units = dealt_out(self.waiting, max(1, min(self.processors, len(self.waiting), workers)))
        if not self.alone and self._lacks_runtime():
            units = units or [[]]
            units[0].append((self.runtime, RUNTIME))
        for unit in units:
            self._start(unit)
        if self.alone:  # what a compiler refuses is better told of a kernel
            self.started.append(self.started.pop(0))
        refused = self._collect()
        if refused is not None:
            raise refused  # r[impl cpu.compile.failure]
        if objects.run is None:  # the first one that is loaded serves the process: it has workers
            objects.run = _RUN(objects.functions[self.runtime])


    def _collect(self) -> CompileError | None:
        """Load and keep what the compilers make; what they refused first."""
        refused: CompileError | None = None
        count = sum(len(unit) for unit, _ in self.started)
        with Progress("compiling kernels", count) as progress:
            for unit, made in self.started:
                try:
                    content = made.result()
                except CompileError as error:  # the others are compiled, and need not be again
                    refused = refused or error
                else:
                    GlobalCounters.compiled += sum(source is not RUNTIME for _, source in unit)
                    self.objects.keep(self.kept, unit, content)
                progress.step(len(unit))
        return refused


#: The threads that start a compiler right now. All pools have one lock in common; the handler of a
#: signal that comes in between has to do without, or waits for ever.
_starting: set[int] = set()


def _done(command: list[str], unit: list[Pair], line: str) -> Future[bytes]:
    """What a compiler makes, or raises, when it has done so."""
    made = Future[bytes]()
    try:
        made.set_result(compile_unit(command, unit, line))
    except CompileError as error:
        made.set_exception(error)
    return made


def _length(pairs: Sequence[Pair]) -> int:
    return sum(len(source.body) for _, source in pairs)


def load_trial(content: bytes) -> ctypes.CDLL:
    """An object that is tried: loaded from a file that is gone afterwards, and known to nobody."""
    with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as folder:
        path = Path(folder, "trial.so")
        path.write_bytes(content)
        return ctypes.CDLL(str(path))


#: What this process has.
loaded = Objects()
build_lock = free_after_fork(threading.RLock())
#: The runtime, which is given launches and how many, both as C has them: see `launcher`.
_RUN = ctypes.CFUNCTYPE(ctypes.c_long)


def launcher(address: int, count: int) -> Callable[[], int]:
    """What runs launches in order, without the lock of the interpreter.

    What it returns is given to `check_launched`. The arguments are converted once: that takes
    longer than a small kernel.
    """
    return functools.partial(loaded.run, ctypes.c_void_p.from_param(address),
                             ctypes.c_long.from_param(count))


def check_launched(failed: int) -> None:
    """Raise what a runtime found.

    Raises:
        DeviceError: there is no memory for what a kernel keeps between its stages.
    """
    if failed:
        raise DeviceError("launch", "no memory for what a kernel keeps between its stages",
                          "free some, or set CPU_COUNT=1")
