"""The machine code of a kernel that is loaded, as text. Chapter: spec/cpu.md."""
from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess

#: What prints machine code; the second one comes with clang.
_TOOLS = ("objdump", "llvm-objdump")
_HEAD = re.compile(r"^[0-9a-f]+ <_?([^>]+)>:$", re.MULTILINE)


class _Place(ctypes.Structure):
    """What `dladdr` tells of an address: its object, and the function there."""

    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def machine_code(function: int) -> str:
    """The instructions of a function that is loaded; or why they cannot be shown."""
    tool = next((tool for tool in _TOOLS if shutil.which(tool)), "")
    if not tool:
        return "It cannot be shown: objdump is not installed; the package binutils has it."
    place = _Place()
    known = ctypes.CDLL(None).dladdr(ctypes.c_void_p(function), ctypes.byref(place))
    path, name = (os.fsdecode(place.path), os.fsdecode(place.name or b"")) if known else ("", "")
    if not name or not os.path.exists(path):
        return "It cannot be shown: the compiled object is not on disk any more."
    return _functions(tool, path).get(name) or f"It cannot be shown: {tool} does not find {name}."


@functools.lru_cache(maxsize=4)
def _functions(tool: str, path: str) -> dict[str, str]:
    """The text of each function of an object, with the parts that its compiler has set apart."""
    said = subprocess.run([tool, "-d", "--no-show-raw-insn", path], capture_output=True, text=True,
                          check=False, timeout=60).stdout
    heads, found = [*_HEAD.finditer(said)], dict[str, str]()
    ends = [*(head.start() for head in heads[1:]), len(said)]
    for head, end in zip(heads, ends, strict=True):
        name = head[1].partition(".")[0]  # of a part, such as name.cold
        text = said[head.start():end].partition("\n\n")[0].rstrip()
        found[name] = f"{found[name]}\n\n{text}" if name in found else text
    return found
