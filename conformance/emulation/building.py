"""Builds the emulator, its precompiled headers, and sources on top of them. Every product is kept.

A product is a file named by a checksum of all that went into it: the text, the headers, the flags,
the compiler. It lies in the folder that EMULATION_FOLDER names, else in one that lives as long as
the process.
"""
from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.emulation.errors import CompileError, Unavailable
from conformance.emulation.sources import translate

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-pthread", "-fno-exceptions", "-fno-rtti",
         "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off")
KERNEL_FLAGS = (*FLAGS, "-w", "-fmax-errors=5", "-fvisibility=hidden",
                "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
LINK_FLAGS = ("-shared", "-Wl,-z,start-stop-visibility=hidden", "-Wl,--no-as-needed")
SANITIZE = ("-g", "-fsanitize=address", "-fno-omit-frame-pointer",
            "-fsanitize-sections=emulation_shared")
HEADERS = {"cuda": "ptx.h", "metal": "metal.h"}
#: Headers that a source may include; what they declare is always there.
INCLUDED = ("cuda_fp16.h", "cuda_bf16.h", "metal_stdlib", "metal_simdgroup", "metal_atomic",
            "metal_simdgroup_matrix", "metal_math", "metal_compute")


@functools.cache
def compiler() -> str:
    """The path of g++. `Unavailable` says why there is none."""
    if platform.system() != "Linux":
        raise Unavailable(f"emulation needs Linux (this is {platform.system()})")
    found = shutil.which("g++")
    if found is None:
        raise Unavailable("emulation needs g++, and none is on PATH; install gcc's C++ compiler")
    return found


@functools.cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="emulation-")
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not one that forked
        shutil.rmtree(folder, ignore_errors=True)


def folder() -> Path:
    """Where products are kept. One folder may serve many processes at once."""
    named = os.environ.get("EMULATION_FOLDER")
    path = Path(named) if named else _temporary_folder()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


@functools.cache
def _ground() -> bytes:
    """Checksum of what goes into every product: the headers and the compiler."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, check=True).stdout
    files = sorted([*HERE.glob("*.h"), *HERE.glob("*.cpp")])
    return hashlib.sha256(b"\0".join([version, *(path.read_bytes() for path in files)])).digest()


def build(stem: str, ending: str, arguments: Sequence[str | Path], text: str = "",
          name: str = "source.cpp") -> Path:
    """Run the compiler on `text` (if any) unless this was done before; the product's path.

    Raises `CompileError` with what the compiler said.
    """
    words = [str(word) for word in arguments]
    about = "\0".join([*words, text, ending, str(folder())]).encode()
    key = hashlib.sha256(_ground() + about).hexdigest()[:32]
    product = folder() / f"{stem}-{key}{ending}"
    if product.exists():
        return product
    with _alone(product), tempfile.TemporaryDirectory(dir=folder()) as scratch:
        if product.exists():
            return product
        made = Path(scratch) / product.name
        if text:
            (Path(scratch) / name).write_text(text, encoding="utf-8")
            words.insert(0, str(Path(scratch) / name))
        _run_compiler([compiler(), *words, "-o", str(made)])
        os.replace(made, product)
    return product


@contextlib.contextmanager
def _alone(product: Path) -> Iterator[None]:
    """Let one process make a product, and others wait for it."""
    import fcntl  # where there is none, nothing is built
    with open(product.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_compiler(command: Sequence[str]) -> None:
    # AddressSanitizer may be preloaded for this process; the compiler does not want it.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise CompileError(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")


def core(sanitize: bool = False) -> Path:
    """The emulator as a shared library."""
    return build("emulator", ".so", [*FLAGS, *_extra(sanitize), "-O2", "-shared",
                                     HERE / "emulator.cpp"])


def driver(sanitize: bool = False) -> Path:
    """The mock of the CUDA driver, a file named libcuda.so.1 in a folder of its own."""
    parts = ("driver.cpp", "driver_memory.cpp", "driver_stream.cpp", "driver_graph.cpp")
    text = "".join(f'#include "{HERE / part}"\n' for part in parts)  # parsed once, not four times
    compiled = build("driver", ".o", [*FLAGS, "-O0", "-frtti", "-fvisibility=hidden", "-c"], text)
    made = build("driver", ".so", [*FLAGS, *_extra(sanitize), "-shared", compiled, core(sanitize),
                                   "-Wl,-soname,libcuda.so.1", "-ldl"])
    path = folder() / f"libraries-{made.stem}" / "libcuda.so.1"
    path.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.symlink_to(made)
    return path


def runner() -> Path:
    """The program that runs one launch under AddressSanitizer."""
    return build("runner", "", [*FLAGS, *SANITIZE, HERE / "runner.cpp", core(True), "-ldl"])


def library(source: str, language: str, sanitize: bool = False) -> Path:
    """A CUDA or Metal source as a shared library that `Module` and the mock driver load."""
    text = translate(source, language)
    header = _precompiled(language, sanitize)
    emulator = core(sanitize)
    return build(language, ".so",
                 [*KERNEL_FLAGS, *LINK_FLAGS, *_extra(sanitize), "-include",
                  header.with_suffix(""), "-I", _includes(), emulator],
                 text)


def _extra(sanitize: bool) -> tuple[str, ...]:
    return SANITIZE if sanitize else ()


def _precompiled(language: str, sanitize: bool) -> Path:
    """The language's header, parsed ahead: it makes compiling three times as fast."""
    header = build(language, ".h.gch", [*KERNEL_FLAGS, *_extra(sanitize), "-x", "c++-header",
                                        HERE / HEADERS[language]])
    plain = header.with_suffix("")
    if not plain.exists():  # what is included if the compiler does not like the other
        plain.write_text(f'#include "{HERE / HEADERS[language]}"\n', encoding="utf-8")
    return header


def _includes() -> Path:
    path = folder() / "include"
    path.mkdir(exist_ok=True)
    for name in INCLUDED:
        (path / name).touch()
    return path
