"""What inputs, outputs and states are called: as in the user's program. Chapter: spec/export.md."""
from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any

from impl.replay import TinyJit
from impl.tensor import Tensor

#: How many objects are looked at for tensors, at most.
_MOST = 100_000
#: Words that C, C++ or JavaScript keeps for itself, or that a program uses.
_KEPT = frozenset("""
EOF NULL
alignas alignof and arena args arguments asm async auto await bool break case catch char class const
constexpr continue debugger default delete do double else enum eval explicit export extends extern
false final finally float for friend function goto if implements import in inline instanceof int
interface let loaded long main mutable namespace names new noexcept not null nullptr operator or
package private protected public register restrict return scratch short signed size sizeof
state states static struct super switch template this thread throw true try typedef typeid typename
typeof undefined union unsigned using values var virtual void volatile while with words xor yield
""".split())


def unique_name(text: str, taken: Collection[str] = ()) -> str:
    """A name that C and JavaScript allow, made of a text, and that nothing else has."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name or name[0].isdigit():
        name = f"x{name}"
    name += "_" * (name in _KEPT)  # r[impl export.name.legal]
    number, found = 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def of_arguments(function: Any, paths: Collection[str]) -> dict[str, str]:
    """A name for each argument: that of its parameter, and where it stands in that."""
    plain = function.function if isinstance(function, TinyJit) else function
    try:
        given = [*inspect.signature(plain).parameters.values()]
    except (TypeError, ValueError):  # a function that is not Python's
        given = []
    places = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    found: dict[str, str] = {}
    for path in paths:
        parts = re.findall(r"\[([^\]]*)\]|\.(\w+)", path)
        words = [one or other for one, other in parts]
        if words[:1] == ["0"] and len(words) > 1:
            place = int(words[1])
            words[1] = places[place] if place < len(places) else f"x{place}"
        name = unique_name("_".join(words[1:]), found.values())
        found[path] = f"{name}_" if re.fullmatch(r"output\w*", name) else name  # a result's
    return found


def of_results(paths: Collection[str]) -> dict[str, str]:
    """A name for each part of a result: the key in a dict, or the place in a list."""
    found: dict[str, str] = {}
    for path in paths:
        text = path.replace("[", "_").replace("]", "")
        found[path] = unique_name(f"output{text}" if not text or text[1:2].isdigit() else text,
                                 found.values())
    return found


def of_states(function: Any, given: Any) -> dict[int, str]:
    """Tensors that can be reached from a function, by identity, and how they are called there."""
    found: dict[int, str] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [*_roots(function), *(("", each) for each in given)][::-1]
    while waiting and len(seen) < _MOST:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            found.setdefault(id(value), name)
            continue
        if id(value) in seen or inspect.ismodule(value) or inspect.isclass(value):
            continue
        seen.add(id(value))
        waiting += [(f"{name}.{key}" if name else key, part) for key, part in _parts(value)][::-1]
    return found


def _roots(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function can reach by a name."""
    plain = function.function if isinstance(function, TinyJit) else function
    owner = getattr(plain, "__self__", None)
    if owner is not None:
        yield "", owner
    code = getattr(getattr(plain, "__func__", plain), "__code__", None)
    if code is None:
        yield "", plain
        return
    inside = inspect.getclosurevars(getattr(plain, "__func__", plain))
    yield from (*inside.nonlocals.items(), *inside.globals.items())


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(place), part) for place, part in enumerate(value))
    elif isinstance(value, TinyJit) or inspect.isroutine(value):
        yield from _roots(value)
    elif type(value).__module__.partition(".")[0] not in ("builtins", "numpy"):
        yield from getattr(value, "__dict__", {}).items()
