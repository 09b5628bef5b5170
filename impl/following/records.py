"""Containers whose parts have names. Chapter: spec/replay.md."""
from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

#: Containers that hold nothing but their items.
EXACT = (list, tuple, dict)


def is_record(value: Any) -> bool:
    """Whether it is an object of a dataclass, and so a container of named parts."""
    return is_dataclass(value) and not isinstance(value, type)


def is_named_tuple(value: Any) -> bool:
    """Whether it is a tuple whose items have names."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def attributes_of(value: Any) -> dict[str, Any]:
    """What a container holds by name, beside its items: the fields of a dataclass, and what its
    class has slots for or somebody has set.
    """
    kind = type(value)
    if kind in EXACT:
        return {}
    names = [*(each.name for each in fields(value))] if is_record(value) else []
    names = [*names, *_slots(kind), *getattr(value, "__dict__", ())]
    return {name: getattr(value, name) for name in dict.fromkeys(names) if hasattr(value, name)}


def _slots(kind: type) -> list[str]:
    """The names for which objects of a class have slots."""
    found: list[str] = []
    for each in kind.__mro__:
        given = vars(each).get("__slots__", ())
        for name in [given] if isinstance(given, str) else given:
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{each.__name__.lstrip('_')}{name}" if private else name)
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def is_ordinary(value: Any) -> bool:
    """Whether a container is a list, tuple or dict as such, a named tuple, or a dataclass that is
    none of them: what its class does with its parts is Python code, or the language's own.
    """
    return type(value) in EXACT or is_named_tuple(value) and not is_record(value) \
        or is_record(value) and not isinstance(value, EXACT)
