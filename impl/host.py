"""NumPy, imported when numbers are exchanged, and not before. Chapter: spec/host.md.

`from impl.host import np` stands where others write `import numpy as np`. What asks for a function
or a number of NumPy imports it then. What asks whether a value is an array does not: as long as
nobody has imported NumPy, nothing is one. Plans of memory ask whether it can be imported, and that
imports it: they are the same whatever was imported before.
"""
from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any

from impl.errors import LibraryMissingError

__all__ = ["has_numpy", "np", "print_options"]

#: The classes that values are compared with.
_CLASSES = frozenset((
    "ndarray", "generic", "dtype", "integer", "complexfloating", "bool_", "void", "ufunc"))


class _Unmet(type):
    """The class of a class of NumPy that nobody has imported: nothing is of it. A call imports."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        return getattr(_loaded(cls.__name__), cls.__name__)(*given, **named)


_unmet = {name: _Unmet(name, (), {}) for name in _CLASSES}


def _loaded(asked: str) -> ModuleType:
    """NumPy; from now on `np` has all that it has, and is as fast.

    Raises:
        LibraryMissingError: it is not installed.
    """
    try:
        import numpy
    except ImportError as error:
        # r[impl host.numpy.missing]
        raise LibraryMissingError(
            asked, f"numbers are exchanged by NumPy, which cannot be imported ({error})",
            "pip install numpy; schedules and the text of kernels need none") from error
    if "ndarray" not in vars(np):  # else a name was asked for that NumPy has not, or makes late
        vars(np).update((name, value) for name, value in vars(numpy).items()
                        if not name.startswith("__"))
    return numpy


def _attribute(name: str) -> Any:
    """What `np` has not yet."""
    if name in _unmet and sys.modules.get("numpy") is None:  # r[impl host.numpy.late+2]
        return _unmet[name]
    return getattr(_loaded(f"numpy.{name}"), name)


@functools.lru_cache(maxsize=1)
def print_options() -> Callable[[], Any]:
    """What tells how NumPy prints. Newer versions put all of that anew in one place, which is read
    sooner than it is copied.
    """
    try:
        kept = importlib.import_module("numpy._core.printoptions").format_options
    except (ImportError, AttributeError):
        return np.get_printoptions
    return kept.get if isinstance(kept, ContextVar) else np.get_printoptions


def has_numpy() -> bool:
    """Whether NumPy can be imported; it is, if so."""
    try:
        _loaded("numpy")
    except LibraryMissingError:
        return False
    return True


if TYPE_CHECKING:
    import numpy as np
else:
    np = ModuleType("numpy, when it is needed")
    np.__getattr__ = _attribute
