"""What the user calls the tensors of a program: `model.hidden.weight`. Chapter: spec/inspect.md.

A buffer has no name. But whoever asks for a report has variables, and these lead to tensors.
"""
from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from impl.errors import is_library
from impl.ir import UOp, in_memory
from impl.tensor import Tensor

#: So many objects are looked at: a program may have many more that lead to no tensor.
MOST_SEEN, DEEPEST = 20_000, 6
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType,
          types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType)


def names_of_tensors() -> dict[Any, str]:
    """The names of buffers in memory, and of nodes that are not computed yet, as the functions of
    the user that run now have them; the shortest way to each.
    """
    found: dict[Any, str] = {}
    taken: set[str] = set()
    seen: set[int] = set()
    waiting = deque((name, value, 0) for name, value in _variables())
    while waiting and len(seen) < MOST_SEEN:
        name, value, depth = waiting.popleft()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            key = _key(value.uop)
            if key not in found and name not in taken:  # r[impl inspect.names.user]
                found[key] = name
                taken.add(name)
        elif depth < DEEPEST:
            waiting.extend((f"{name}{step}", part, depth + 1) for step, part in _parts(value))
    return found


def _variables() -> Iterator[tuple[str, Any]]:
    """The variables of the user's functions that run now, the innermost function first."""
    frame = sys._getframe(1)
    outer: list[dict[str, Any]] = []
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            yield from list(frame.f_locals.items())
            outer.append(frame.f_globals)
        frame = frame.f_back  # type: ignore[assignment]
    for variables in outer:
        yield from list(variables.items())


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, each with what is written behind its name."""
    if isinstance(value, dict):
        yield from ((f".{key}" if isinstance(key, str) else f"[{key!r:.20}]", part)
                    for key, part in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((f".{place}", part) for place, part in enumerate(list(value)))
    elif isinstance(attributes := getattr(type(value), "__dict__", None) and getattr(
            value, "__dict__", None), dict):
        yield from ((f".{key}", part) for key, part in list(attributes.items()))


def _key(node: UOp) -> Any:
    """What a document knows a value by: the buffer in which it is, or its node."""
    leaf = in_memory(node)
    return node if leaf is None else leaf.arg[0]
