"""What tells that a call is like the one that was prepared: everything that can have changed,
as one function of Python.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from impl.effects import Buffer
from impl.following.reads import Reads, Test
from impl.ir import Ops
from impl.realize import Mode
from impl.replay.arguments import Arguments, form
from impl.replay.history import Expressions, Stood
from impl.replay.states import States
from impl.symbolic import identical
from impl.tensor import Tensor
from impl.tensor.parameters import dependence, dependent_bits

#: The buffers that the kernels read of the arguments, whether an argument may depend on a
#: parameter, and what stands in the places of expressions.
Found = tuple[list[Buffer], int, Stood]
#: What is found of a call like the one before, or what it returns; None if anything has changed.
Hold = Callable[[Sequence[Any], Mode], Any]
#: The words of a call, given what its buffers are called, and what tells the name of an object.
Words = Callable[[Sequence[str], Callable[[Any], str]], Sequence[str]]
#: Python values that are equal if their types are and `==` says so.
_EXACT = (bool, int, str, bytes, type(None))


def shortcut_of(arguments: Arguments, read: Sequence[str], states: States | None, reads: Reads,
                mode: Mode | None, history: Expressions, used: Container[Buffer] = (),
                words: Words | None = None) -> Hold | None:
    """The guards of calls like this one, where all arguments are given without names, and are
    tensors or plain Python values; None for other calls. `read` are the paths of tensors that the
    kernels read; `history` has those that expressions name. Without `states` nothing is asked of
    them, but that no argument is one of what is `used`. With `words` of a call, it is made, too.
    """
    # r[impl replay.shortcut.same+3]
    count = arguments.signature["[0]"][1]
    paths = [f"[0][{place}]" for place in range(count)]
    if len(arguments.signature) != len(paths) + 3 or mode is None:
        return None
    test = Test("arguments, mode")
    test.add("mode is not {} and mode.circumstances != {}", mode, mode.circumstances)
    test.line(f"d = {test.name(dependent_bits)}[0]")
    names = [f"a{place}" for place in range(count)]
    test.line(f"{''.join(f'{name}, ' for name in names)} = arguments" if names else
              "if arguments: return None")
    buffers, depending = list[str](), set[str]()
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
            # r[impl replay.arguments.depending]
            described = arguments.signature[path]
            depends = "" if form(described) is described else described[-1]
            depending.update([name] if depends else [])
            may = "" if depends else f"d and n{name}.reads & d and "
            test.add(f"{may}{{}}({name}) != {{}}", dependence, depends)
            buffers.append(name)
    for place, name in enumerate(buffers):  # r[impl replay.arguments.form]
        for other in buffers[:place]:
            test.add(f"b{name} is b{other}")
        if reads.tensors:  # r[impl replay.guard.state]: it may ask which tensor it is given
            test.add(f"id({name}) in {{}}", frozenset(reads.tensors))
        if states is None:  # r[impl replay.guard.state]
            test.add(f"b{name} in {{}}", used)
    for owner, held in states.owners() if states is not None else ():
        leaf = held.uop
        test.line(f"w = {test.name(owner)}()")
        test.add("w is None or w.uop is not {} or {}.version != {}", leaf, leaf.arg[0], leaf.arg[1])
    test.add_places(list(reads.places.values()))
    found = [f"b{name}" for name, path in zip(names, paths, strict=True) if path in read]
    stood = _standing(test, history, paths, names, depending)
    made: Hold = test.made(f"[{', '.join(found)}], {stood}") if words is None else \
        test.made(f"dependent, stood = {stood}", words(found, test.name))
    return made


def _standing(test: Test, history: Expressions, paths: Sequence[str], names: Sequence[str],
              depending: Container[str]) -> str:
    """The words for what stands in the places of expressions: see `Expressions.standing`. Of the
    arguments, which have `names`, some are `depending` on a parameter.
    """
    told = [names[paths.index(path)] for path in history.paths]
    weak = [f"b{name}.weak or b{name}.reference(), v{name}, s{name}, " for name in told]
    if history.dependent:  # what lasts is held as it is
        kept = [f"n{name}, 0, (), " if lasts else seen if name not in depending
                else f"*{test.name(history.kept)}(n{name}, n{name}, True, False), "
                for name, seen, lasts in zip(told, weak, history.lasting[0], strict=True)]
        return f"1, ({''.join(kept)})"
    bits = " | ".join(f"n{name}.reads" for name in told) or "0"
    return f"d and ({bits}) & d, ({''.join(weak)})"


def _add_tensor(test: Test, name: str, tensor: Tensor) -> None:
    """A tensor of this form that is in memory."""
    leaf, device = tensor.uop, tensor.device
    test.add(f"type({name}) is not {{}}", Tensor)
    node = f"n{name}"
    test.line(f"{node} = {name}.uop")
    test.add(f"{node}.op is not {{}} or {node}.dtype is not {{}} or {name}._parameter is not None "
             f"or {name}.grad is not None", Ops.BUFFER, leaf.dtype)
    test.line(f"b{name}, v{name}, s{name} = {node}.arg")
    sharding = leaf.arg[0].shardings.get(leaf.arg[2])
    lying = f"b{name}.shardings.get(s{name}) != {{}}"
    if sharding is None:  # on no mesh, most often
        lying = f"b{name}.shardings and {lying}"
    # A tensor in memory is where its buffer is. A place is one object most often, and texts are
    # compared slowly.
    test.add(f"v{name} != b{name}.version "
             f"or b{name}.device is not {{}} and b{name}.device != {{}} "
             f"or not (s{name} is {{}} or {{}}(s{name}, {{}})) "
             f"or {lying}", device, device, leaf.arg[2], identical, leaf.arg[2], sharding)


def _add_value(test: Test, name: str, described: Any) -> bool:
    """A Python value; whether it is one that can be compared so."""
    if not isinstance(described, tuple) or len(described) != 2 \
            or type(described[1]) not in _EXACT or described[0] != type(described[1]).__name__:
        return False
    test.add(f"type({name}) is not {{}} or {name} != {{}}", type(described[1]), described[1])
    return True
