"""The C compiler: found, told what to do, and run. Chapter: spec/cpu.md."""
from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from impl import settings
from impl.cpu.machine import EXTENSIONS, own_features, processor
from impl.errors import CompileError
from impl.render import SourceText, digest, names_of, unit_text

#: No flag changes what an operation means (r[impl cpu.flags.safe]). Products are contracted only
#: where the renderer says. Texts are vector code already: what a compiler adds beyond -O1 costs
#: time and no longer pays, and its vectoriser was the source of most faults that the tests of the
#: chapter have the witnesses of.
FLAGS = ("-O1", "-std=gnu11", "-fPIC", "-pthread", "-fwrapv",
         "-fno-tree-vectorize", "-fno-math-errno", "-ffp-contract=off", "-fno-strict-aliasing",
         "-w")
#: What GCC is told besides: parts of -O1 that take a third of its time and change no speed.
_GCC_FLAGS = ("-fno-tree-ccp", "-fira-region=one", "-fno-aggressive-loop-optimizations",
              "-fno-tree-pta", "-fno-tree-dse", "-fno-dse", "-fno-ipa-modref",
              "-fno-ipa-pure-const", "-fno-ipa-reference")
#: What GCC is told besides where a text calls the library. At -O1 alone it leaves the upper halves
#: of vector registers as they are, and each call then takes some hundred nanoseconds longer.
_CALLING = ("-fexpensive-optimizations",)
#: How objects are linked: the first way that works. Most kernels call nothing, and a linker takes
#: twice as long if it has to read libraries; `defs` lets it refuse one that calls something.
_LIBRARIES = (("-nostdlib", "-Wl,-z,defs"), ("-lm",))[sys.platform != "linux":]
_FORMAT = "tensor-schedule-object/2"
#: Kernels in one compilation unit, at most, when there are several.
_UNIT = 24


def find_compiler() -> list[str]:
    """The command of the C compiler, and for which processor it compiles; or [].

    The compiler is that of setting CC, else cc, gcc, clang, else `ziglang`.
    """
    found = _find_compiler(str(settings.get("CC") or ""), os.environ.get("PATH", ""))
    # r[impl cpu.target.settings]
    return [*found, f"-march={settings.get('CPU_TARGET') or 'native'}"] if found else []


@functools.lru_cache(maxsize=8)
def _find_compiler(chosen: str, path: str) -> tuple[str, ...]:
    """The compiler, looked for once: every schedule asks, and files are slow to look for."""
    if chosen:
        words = chosen.split()
        return tuple(words) if shutil.which(words[0], path=path) else ()
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name, path=path):
            return (name,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return ()


def compiler_problem() -> str:
    """Why kernels cannot be compiled here; empty if they can."""
    if find_compiler():
        return ""
    chosen = settings.get("CC")
    if chosen:
        return f"CC={chosen} is not found"
    return "no C compiler found (looked for cc, gcc, clang and the package ziglang)"


def compiler_identity(command: tuple[str, ...]) -> str:
    """The compiler's version and the processor: objects for others are not for us."""
    return _identity(command, os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _identity(command: tuple[str, ...], path: str) -> str:
    """The same, asked once: by another path, a command may be another compiler."""
    # r[impl cpu.cache.key]
    words = [word for word in command if not word.startswith("-march=")]
    try:
        version = subprocess.run([*words, "--version"], capture_output=True, text=True,
                                 check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        version = ""
    return "\n".join([*command, shutil.which(command[0], path=path) or "", version, processor()])


def required_compiler() -> list[str]:
    """The command of the C compiler.

    Raises:
        CompileError: there is none.
    """
    command = find_compiler()
    if not command:  # r[impl cpu.compile.failure]
        raise CompileError("compile", compiler_problem(), "install gcc or clang, set CC to a "
                           "compiler, pip install ziglang, or set DEVICE=REFERENCE")
    return command


def features() -> frozenset[str]:
    """What the target of kernels can do: the processor's features, or those of CPU_TARGET.

    Raises:
        CompileError: the compiler does not know the target, or this processor lacks some of it.
    """
    target = str(settings.get("CPU_TARGET"))
    return _features(tuple(required_compiler()), target) if target else own_features()


@functools.lru_cache(maxsize=8)
def _features(command: tuple[str, ...], target: str) -> frozenset[str]:
    """The features of a target by the macros that the compiler defines for it."""
    words = [*command, "-dM", "-E", "-x", "c", os.devnull]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    found = frozenset(word.replace("_", "").lower() for word in run.stdout.split())
    beyond = sorted(EXTENSIONS & found - own_features())
    if run.returncode or beyond:  # r[impl cpu.target.settings]
        problem = f"this processor has no {', '.join(beyond)}" if beyond else run.stderr.strip()
        raise CompileError("compile", f"CPU_TARGET={target}: {problem}", "name what this "
                           "processor has, such as x86-64, or leave CPU_TARGET empty")
    return found


def compiled_by() -> str:
    """A name for the compiler, its flags and the processor.

    Raises:
        CompileError: there is no compiler.
    """
    command = required_compiler()
    return digest(_FORMAT, *_flags(command), *_CALLING, compiler_identity(tuple(command)))


def _flags(command: list[str]) -> tuple[str, ...]:
    """All flags for a compiler. Only GCC calls its author this; others refuse its own flags."""
    return (*FLAGS, *_GCC_FLAGS) if _is_gcc(command) else FLAGS


def _is_gcc(command: list[str]) -> bool:
    return "Free Software Foundation" in compiler_identity(tuple(command))


@functools.lru_cache(maxsize=8)
def _unknown_to(command: tuple[str, ...], seconds: float | None) -> tuple[str, ...]:
    """Those of GCC's flags that this GCC refuses: some came with version 11."""
    def knows(*flags: str) -> bool:
        return run_compiler([*command, *flags, "-E", "-x", "c", os.devnull], seconds)[0] == 0
    asked = tuple(flag for flag in _GCC_FLAGS if flag in _flags([*command]))
    return () if knows(*asked) else tuple(flag for flag in asked if not knows(flag))


def compile_unit(command: list[str], sources: list[tuple[str, SourceText]], line: str,
                  seconds: float | None = None) -> bytes:
    """The shared object for some kernels; their functions are named by their keys.

    `line` is the user's line, as compilers are run in threads of their own.

    Raises:
        CompileError: the compiler is missing, or refused the text; the text is kept.
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    text = unit_text(sources)
    with tempfile.TemporaryDirectory(prefix="tensor-schedule-") as folder:
        source, target = Path(folder, "unit.c"), Path(folder, "unit.so")
        source.write_text(text, encoding="utf-8")
        try:
            status, said = _run(command, source, target, (), seconds)
            # r[impl cpu.flags.safe]: asked for only where something was refused
            if status and (unknown := _unknown_to(tuple(command), seconds)):
                status, said = _run(command, source, target, unknown, seconds)
            if status == 0 and target.exists():
                return target.read_bytes()
            message = said.strip() or f"it ended with status {status} and " + (
                "wrote no file" if status == 0 else "said nothing")
        except OSError as error:
            message = str(error)
    kept, names = _keep_failed(text), names_of(source for _, source in sources)
    raise CompileError(  # r[impl cpu.compile.failure]
        "compile", f"{' '.join(command)} refused {names}: {message}; the source is in {kept}",
        "set CC to a working compiler, NOOPT=1 to avoid an optimisation, or DEVICE=REFERENCE",
        line)


def _run(command: list[str], source: Path, target: Path, without: Sequence[str],
         seconds: float | None) -> tuple[int, str]:
    """Have a source compiled, with all flags but some, and linked; the status, and what was said.

    All of it together takes no longer than `seconds`.
    """
    end, made = time.monotonic() + (seconds or 0), source.with_suffix(".o")

    def run(*words: str) -> tuple[int, str]:
        return run_compiler([*command, *words], seconds and max(end - time.monotonic(), 1e-3))

    words = (*(flag for flag in _flags(command) if flag not in without),
             "-c", "-o", str(made), str(source))
    status, said = run(*words)
    for libraries in _LIBRARIES if made.exists() and not status else ():
        if status and _is_gcc(command):  # it calls something
            run(*_CALLING, *words)  # r[impl cpu.call.clean]
        # r[impl cpu.compile.linked]
        # What language CC names is not that of an object.
        status, said = run("-shared", "-pthread", "-o", str(target), "-x", "none", str(made),
                           *libraries)
        if not status:
            break
    return status, said


def run_compiler(words: list[str], seconds: float | None) -> tuple[int, str]:
    """The status of a compiler and what it said on stderr; it and its children end in time.

    Raises:
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace", start_new_session=seconds is not None) as process:
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


def dealt_out(pairs: list[tuple[str, SourceText]],
              workers: int) -> list[list[tuple[str, SourceText]]]:
    """Kernels dealt out to compiler runs, the longest first, each to the run with the least."""
    # r[impl cpu.compile.shared+2]
    count = max(workers, -(-len(pairs) // _UNIT))
    units: list[list[tuple[str, SourceText]]] = [[] for _ in range(count)]
    lengths = [0] * count
    for pair in sorted(pairs, key=lambda pair: -len(pair[1].body)):
        least = lengths.index(min(lengths))
        units[least].append(pair)
        lengths[least] += len(pair[1].body) + 1
    return [unit for unit in units if unit]
