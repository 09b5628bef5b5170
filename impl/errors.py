"""Errors that say what happened, where in the user's code, and what to do. Chapter: spec/errors.md.

Every error of the runtime is a `TensorScheduleError`. It names the operation, the shapes or the
setting concerned, the line of the caller, and a remedy. Each one is also the Python built-in that
a user would expect (`ShapeError` is a `ValueError`), so that old `except` clauses keep working.
"""
from __future__ import annotations

import difflib
import functools
import os
import sys
import warnings
from collections.abc import Iterable, Mapping

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Files of this package that use the public API as a user does.
_PROGRAMS = (_PACKAGE + "__main__.py",)


@functools.cache
def is_library(filename: str) -> bool:
    """Whether a line of this file is ours, or frozen into Python, and not the user's whom an error
    or a label names.
    """
    return filename.startswith((_PACKAGE, "<frozen ")) and filename not in _PROGRAMS


def user_line() -> str:
    """The innermost line outside this package, as `file:line`; `<unknown>` if there is none."""
    frame = sys._getframe(1)
    while frame is not None:  # r[impl errors.message.whole]
        if not is_library(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "<unknown>"


def warn(operation: str, detail: str, remedy: str) -> None:
    """Warn of what is computed all the same, at the user's line, where Python says it once."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and is_library(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"{operation}: {detail}. Remedy: {remedy}", UserWarning, stacklevel=level)


#: How alike two names have to be. Below it `inverse` would be taken for `linear`.
_ALIKE = 0.75


def nearest(given: str, known: Iterable[str]) -> str:
    """The known name that looks most like the one that was given; empty if none does."""
    names = {name.lower(): name for name in sorted(known, reverse=True)}
    found = difflib.get_close_matches(given.lower(), list(names), 1, _ALIKE)
    return names[found[0]] if found else ""


class TensorScheduleError(Exception):
    """The base of all errors.

    Args:
        operation: the name of what was called, as the user wrote it ("matmul", "DEVICE").
        detail: what is wrong, with the shapes, dtypes or values.
        remedy: what the user can do about it.
    """

    #: The method of tensors that has failed, once that is known.
    method = ""

    def __init__(self, operation: str, detail: str, remedy: str, line: str | None = None) -> None:
        self.detail, self.remedy, self.line = detail, remedy, line or user_line()
        super().__init__()
        self.rename(operation)

    def rename(self, operation: str) -> None:
        """Say what was called."""
        self.operation = operation
        # r[impl errors.message.whole]
        self.args = (f"{operation}: {self.detail}; at {self.line}. Remedy: {self.remedy}",)

    def say_line(self, line: str) -> None:
        """Say where it comes from, if that is known; empty if not."""
        self.line = line or self.line
        self.rename(self.operation)

    # r[impl errors.pickle.parts]
    def __reduce__(self) -> tuple[object, ...]:
        """Keep the parts when the error crosses a process boundary."""
        return type(self), (self.operation, self.detail, self.remedy, self.line)


# r[impl errors.type.builtin+2]
# r[impl errors.type.builtin+2]
class ShapeError(TensorScheduleError, ValueError):
    """Shapes do not fit the operation."""


class DTypeError(TensorScheduleError, TypeError):
    """A dtype does not fit the operation, or a value does not fit the dtype."""


class ComplexError(DTypeError):
    """Complex numbers are where only real ones can be."""


class AxisError(TensorScheduleError, IndexError):
    """An axis or an index is out of range."""


class NameMissingError(TensorScheduleError, AttributeError):
    """A module does not have what it is asked for."""


def name_missing(module: str, name: str, known: Iterable[str],
                 meant: Mapping[str, str] | None = None) -> AttributeError:
    """The error for a name that a module does not have: with what is written in its place.

    `meant` says it of names that other libraries have.
    """
    if name.startswith("__"):  # what Python itself looks for, often without need
        return AttributeError(f"module {module} has no {name}")
    names = sorted(known)
    near = nearest(name, names)
    # r[impl errors.name.missing]
    return NameMissingError(module, f"there is no {name}", f"use {meant[name]}"
                            if meant and name in meant else f"did you mean {module}.{near}?"
                            if near else f"it has {', '.join(names)}")


class ArgumentError(TensorScheduleError, TypeError):
    """An operation does not take an argument of this name, or gets it twice."""


class FileMissingError(TensorScheduleError, FileNotFoundError):
    """There is no such file, or no folder for it."""


class FileRefusedError(TensorScheduleError, OSError):
    """The system does not let a file be read or written."""


class LibraryMissingError(TensorScheduleError, ImportError):
    """A library that is needed for this cannot be imported."""


class ValueOutsideError(TensorScheduleError, ValueError):
    """A distribution has no such parameter, or nothing like that can be drawn from it."""


class VariableError(TensorScheduleError, ValueError):
    """A symbolic variable is out of its bounds, or bound to two values."""


class SettingError(TensorScheduleError, ValueError):
    """A setting is unknown or has a value that it cannot have."""


class DeviceError(TensorScheduleError, RuntimeError):
    """A device is unknown, unavailable, or failed."""


class NaNError(TensorScheduleError, FloatingPointError):
    """A kernel makes what is no number, and CHECK_NAN asks for that."""


class CompileError(TensorScheduleError, RuntimeError):
    """A compiler is missing or refused a kernel; its message and the source are kept."""


class DistributedError(TensorScheduleError, RuntimeError):
    """Processes of one job do not meet: one is late, or about to do something else."""


class ReplayError(TensorScheduleError, RuntimeError):
    """A captured function was called with arguments that do not match."""


class ExportError(TensorScheduleError, RuntimeError):
    """What a function does needs Python, or is something that the target does not have."""


class TraceError(TensorScheduleError, RuntimeError):
    """A function that is traced did what a trace cannot have: it asked for a value."""


class ImmutableError(TensorScheduleError, AttributeError):
    """What cannot change was to be changed."""


class GraphError(TensorScheduleError, RuntimeError):
    """A graph breaks a rule of its level. Users should never see one: it is our mistake."""
