"""Compiled kernels: loaded from disk or from the compiler, and kept. Chapter: spec/cpu.md."""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from impl.caching.disk import Store, store
from impl.cpu.compiler import compile_unit, dealt_out, required_compiler, symbol_of
from impl.device import GlobalCounters
from impl.errors import CompileError, DeviceError, user_line
from impl.ir import free_after_fork
from impl.render import Source

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


class Objects:
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
        command = required_compiler()
        pairs, line = list(missing.items()), user_line()
        length = sum(len(source.body) for _, source in pairs)
        workers = max(1, min(os.cpu_count() or 1, len(pairs), length // _WORTH_A_PROCESS))
        units = dealt_out(pairs, workers) or [[]]
        units[0] += besides
        with ThreadPoolExecutor(workers) as pool:
            made = list(pool.map(lambda unit: compile_unit(command, unit, line), units))
        GlobalCounters.compiled += len(pairs)
        for unit, content in zip(units, made, strict=True):
            self._keep(kept, unit, content)

    # --8<-- [start:keep]
    def _keep(self, kept: Store, unit: list[tuple[str, Source]], content: bytes) -> None:
        """Load an object, and keep it and then its entries on disk."""
        symbols = {key: symbol_of(key) for key, _ in unit}
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


#: What this process has.
loaded = Objects()
build_lock = free_after_fork(threading.RLock())
#: The runtime as C sees it: launches, and how many.
_RUN = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_long)


def run_launches(address: int, count: int) -> None:
    """Run launches in order, without the lock of the interpreter.

    Raises:
        DeviceError: there is no memory for what the threads of a kernel share.
    """
    if loaded.run(address, count):
        raise DeviceError("launch", "no memory for what the threads of a kernel share",
                          "free some, or set CPU_COUNT=1")
