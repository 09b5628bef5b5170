"""What tells that a call is like the one that was prepared: everything that can have changed,
as one function of Python.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from impl.effects import Buffer
from impl.ir import Ops
from impl.realize import Mode
from impl.replay.arguments import Arguments
from impl.replay.reads import Reads, Test
from impl.replay.states import States
from impl.symbolic import identical
from impl.tensor import Tensor

#: The buffers that the kernels read of the arguments; None if anything has changed.
Hold = Callable[[Sequence[Any], Mode], "list[Buffer] | None"]
#: Python values that are equal if their types are and `==` says so.
_EXACT = (bool, int, str, bytes, type(None))


def shortcut_of(arguments: Arguments, read: Sequence[str], states: States, reads: Reads,
                mode: Mode | None) -> Hold | None:
    """The guards of calls like this one, where all arguments are given without names, and are
    tensors or plain Python values; None for other calls. `read` are the paths of tensors that the
    kernels read.
    """
    # r[impl replay.shortcut.same+3]
    count = arguments.signature["[0]"][1]
    paths = [f"[0][{place}]" for place in range(count)]
    if len(arguments.signature) != len(paths) + 3 or mode is None:
        return None
    test = Test("arguments, mode")
    test.add("mode is not {} and mode.circumstances != {}", mode, mode.circumstances)
    names = [f"a{place}" for place in range(count)]
    test.line(f"{''.join(f'{name}, ' for name in names)} = arguments" if names else
              "if arguments: return None")
    buffers: list[str] = []
    for name, path in zip(names, paths, strict=True):
        tensor = arguments.tensors.get(path)
        if tensor is None:
            if not _add_value(test, name, arguments.signature[path]):
                return None
        elif type(tensor) is not Tensor or tensor._parameter is not None \
                or tensor.grad is not None:
            return None
        else:
            _add_tensor(test, name, tensor)
            buffers.append(name)
    for place, name in enumerate(buffers):  # r[impl replay.guard.alias+2]
        for other in buffers[:place]:
            test.add(f"b{name} is b{other}")
    for owner, held in states.owners():
        leaf = held.uop
        test.line(f"w = {test.name(owner)}()")
        test.add("w is None or w.uop is not {} or {}.version != {}", leaf, leaf.arg[0], leaf.arg[1])
    test.add_places(list(reads.places.values()))
    found = [f"b{name}" for name, path in zip(names, paths, strict=True) if path in read]
    made: Hold = test.made(f"[{', '.join(found)}]")
    return made


def _add_tensor(test: Test, name: str, tensor: Tensor) -> None:
    """A tensor of this form that is in memory."""
    leaf, device = tensor.uop, tensor.device
    test.add(f"{name}.__class__ is not {{}}", Tensor)
    test.line(f"n = {name}.uop")
    same = "{} is not {}" if isinstance(device, str) and False else f"{name}.device != {{}}"
    test.add(f"n.op is not {{}} or n.dtype is not {{}} or {same} or {name}._parameter is not None "
             f"or {name}.grad is not None", Ops.BUFFER, leaf.dtype, device)
    test.line(f"b{name}, v, s = n.arg")
    test.add(f"v != b{name}.version or b{name}.device != {{}} or b{name}.shardings "
             "or not (s is {} or {}(s, {}))", device, leaf.arg[2], identical, leaf.arg[2])


def _add_value(test: Test, name: str, described: Any) -> bool:
    """A Python value; whether it is one that can be compared so."""
    if not isinstance(described, tuple) or len(described) != 2 \
            or type(described[1]) not in _EXACT or described[0] != type(described[1]).__name__:
        return False
    test.add(f"type({name}) is not {{}} or {name} != {{}}", type(described[1]), described[1])
    return True
