"""What tells that a call is like the one that was prepared: everything that can have changed."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from impl.dtypes import DType
from impl.effects import Buffer
from impl.ir import Ops, Shape
from impl.places import ANYWHERE, Place
from impl.replay.arguments import Arguments
from impl.replay.names import Name
from impl.replay.states import Owner, States
from impl.symbolic import identical
from impl.tensor import Tensor

_BUFFER = Ops.BUFFER
#: Python values that are equal if their types are and `==` says so.
_EXACT = (bool, int, str, bytes, type(None))


class Given(NamedTuple):
    """What an argument has to be: a tensor of this form, or this Python value."""

    kind: type[Any]
    value: Any
    shape: Shape = ()
    dtype: DType | None = None
    device: Place = ANYWHERE


class Guards:
    """Whether arguments have the forms that they had, and whether the tensors that a function uses
    besides are where they were.

    They are noted by a replay in which everything was looked at. A call in which they hold needs
    nothing but to be launched.
    """

    def __init__(self, given: Sequence[Given], read: Sequence[bool], states: States,
                 names: Sequence[tuple[Name, Callable[[], Any]]]) -> None:
        self.given, self.names = given, names
        # Which of the tensors are read by the kernels, if not all are.
        self.read = None if all(read) else [place for place, each in enumerate(read) if each]
        self.states: list[tuple[Owner, Buffer]] = [
            (owner, held.uop.arg[0]) for owner, held in states.owners()]

    def hold(self, arguments: Sequence[Any]) -> list[Buffer] | None:
        """The buffers of the arguments that are read; None if anything has changed."""
        # r[impl replay.shortcut.same+2]
        if len(arguments) != len(self.given):
            return None
        found: list[Buffer] = []
        for value, (kind, exactly, shape, dtype, device) in zip(
                arguments, self.given, strict=True):
            if type(value) is not kind:
                return None
            if dtype is None:
                if value != exactly:
                    return None
                continue
            node = value.uop
            if node.op is not _BUFFER or node.dtype is not dtype or value.device != device:
                return None
            buffer, version, at = node.arg
            if version != buffer.version or buffer.device != device or buffer.shardings \
                    or not (at is shape or identical(at, shape)):
                return None
            found.append(buffer)
        if len(found) > 1 and len(set(found)) < len(found):  # r[impl replay.guard.alias]
            return None
        for owner, buffer in self.states:
            held = owner()
            if held is None or held.uop.op is not _BUFFER:
                return None
            now, version, _ = held.uop.arg
            if now is not buffer or version != buffer.version:
                return None
        if self.names and not all([name.value() is known() for name, known in self.names]):
            return None
        return found if self.read is None else [found[place] for place in self.read]


def guards_of(arguments: Arguments, read: Sequence[str], states: States,
              names: Sequence[tuple[Name, Callable[[], Any]]]) -> Guards | None:
    """The guards of calls like this one, where all arguments are given without names, and are
    tensors or plain Python values; None for other calls. `read` are the paths of tensors that the
    kernels read.
    """
    paths = [f"[0][{place}]" for place in range(arguments.signature["[0]"][1])]
    if len(arguments.signature) != len(paths) + 3:
        return None
    forms = [form for path in paths if (form := _form(arguments, path)) is not None]
    tensors = [path for path in paths if path in arguments.tensors]
    return Guards(forms, [path in read for path in tensors], states, names) \
        if len(forms) == len(paths) else None


def _form(arguments: Arguments, path: str) -> Given | None:
    tensor = arguments.tensors.get(path)
    if tensor is not None:
        leaf = tensor.uop
        return Given(Tensor, None, leaf.arg[2], leaf.dtype, tensor.device) \
            if type(tensor) is Tensor else None
    described = arguments.signature[path]
    exact = isinstance(described, tuple) and len(described) == 2 \
        and type(described[1]) in _EXACT and described[0] == type(described[1]).__name__
    return Given(type(described[1]), described[1]) if exact else None
