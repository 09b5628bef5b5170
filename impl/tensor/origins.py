"""The user's call and line that made a node. Chapter: spec/tensor.md."""
from __future__ import annotations

import sys
from typing import Any

from impl.errors import is_library
from impl.ir import UOp, give_origin
from impl.tensor.parameters import mode

_FOLDER = __file__.removesuffix("origins.py")


def note_origin(node: UOp) -> None:
    """Remember the user's call and line that made a node, and those that it is made of."""
    frame: Any = sys._getframe(2)
    name = ""
    while frame is not None:
        code = frame.f_code
        whose = _whose.get(code.co_filename) or _owner(code.co_filename)
        if whose is _USER:
            key = code.co_filename, frame.f_lineno, mode.called or name
            give_origin(node, _origins.get(key) or _origin(*key))
            return
        if whose is _TENSOR:
            name = code.co_name
        frame = frame.f_back


#: Whose code is in a file: methods of Tensor, those of layers, or the user's.
_TENSOR, _LIBRARY, _USER = "tensor", "library", "user"
_whose: dict[str, str] = {}
#: The call and line of a file, a line and the name of a method, in words.
_origins: dict[tuple[str, int, str], tuple[str, str]] = {}


def _origin(file: str, line: int, name: str) -> tuple[str, str]:
    """A call and its line in words, remembered: a loop comes to its lines again and again."""
    if len(_origins) >= 1 << 14:  # lines of code that a program makes as it runs
        _origins.clear()
    origin = _origins[file, line, name] = name.strip("_"), f"{file}:{line}"
    return origin


def _owner(file: str) -> str:
    """Whose code is in a file, remembered."""
    whose = _whose[file] = _TENSOR if file.startswith(_FOLDER) \
        else _LIBRARY if is_library(file) else _USER
    return whose
