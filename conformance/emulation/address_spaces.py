"""A strict look at Metal sources: what C++ does not know, and therefore the emulator does not see.

Every address space is a type of its own for clang (`metal_spaces.h`), so that a `device` pointer
where a `threadgroup` one is due is an error, as it is for Metal. It takes clang, or its library
from PyPI (`pip install libclang`). Nothing is run.
"""
from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from conformance.emulation.errors import CompileError, Unavailable
from conformance.emulation.sources import (
    ATTRIBUTE,
    GROUP_MEMORY,
    metal_kernels,
    without_comments,
)

HEADER = Path(__file__).parent / "metal_spaces.h"
FLAGS = ("-x", "c++", "-std=c++17", "-fsyntax-only", "-target", "arm64-apple-macos13", "-nostdinc",
         "-ffreestanding", "-w", "-Wno-reserved-user-defined-literal", "-fno-caret-diagnostics",
         "-include", str(HEADER))
INCLUDE = re.compile(r"#\s*include\s*<metal_\w+>")
SPACES = {"buffer": r"\b(device|constant)\b", "threadgroup": r"\bthreadgroup\b(?!\s*\()"}
NAME = "kernel.metal"


def check(source: str) -> None:
    """Raise `CompileError` with the lines where a Metal source is not what Metal allows.

    Raises `Unavailable` where there is no clang.
    """
    plain = without_comments(source)
    _check_parameters(plain)
    text = GROUP_MEMORY.sub("static threadgroup", ATTRIBUTE.sub("", INCLUDE.sub("", plain)))
    said = _messages(text)
    if said:
        raise CompileError("\n".join(said))


def unavailable() -> str:
    """Why nothing can be checked here, or nothing."""
    if _clang() or _library():
        return ""
    return "address spaces need clang, or pip install libclang"


def _check_parameters(source: str) -> None:
    for kernel, parameters in metal_kernels(source).items():
        for each in parameters:
            wanted = SPACES.get(each.attribute)
            before = each.text.split("[[")[0]
            if wanted and not re.search(wanted, before):
                raise CompileError(f"kernel {kernel}: parameter {each.text.strip()!r} names no "
                                   "address space that its attribute can have")


def _clang() -> str | None:
    return os.environ.get("EMULATION_CLANG") or shutil.which("clang") or shutil.which("clang++")


def _library() -> Any:
    try:
        return importlib.import_module("clang.cindex")
    except ImportError:
        return None


def _messages(text: str) -> list[str]:
    """What clang finds wrong, each as `kernel.metal:line:column: error: ...`."""
    program = _clang()
    if program:
        return _messages_of_program(program, text)
    if library := _library():
        return _messages_of_library(library, text)
    raise Unavailable(unavailable())


def _messages_of_program(program: str, text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / NAME
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([program, *FLAGS, str(path)], capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    return lines or ([done.stderr.strip()] if done.returncode else [])


def _messages_of_library(library: Any, text: str) -> list[str]:
    unit = library.Index.create().parse(NAME, args=list(FLAGS), unsaved_files=[(NAME, text)])
    return [str(each.format()) for each in unit.diagnostics
            if each.severity >= library.Diagnostic.Error]
