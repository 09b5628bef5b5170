"""A replay like the one before it: what can have changed is compared, and nothing else is done."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from impl import realize
from impl.device import Device, DeviceBackend, Memory, Table
from impl.dtypes import DType
from impl.effects import Buffer
from impl.ir import Ops, Shape
from impl.replay.arguments import Arguments
from impl.replay.results import Leaf, leaves_of, mapped
from impl.symbolic import identical
from impl.tensor import Tensor

if TYPE_CHECKING:
    from impl.replay.recording import Owner, Recording

#: What `Shortcut.run` answers if a call has to be looked at in full.
MISSED = object()
_BUFFER = Ops.BUFFER
#: Python values that are equal if their types are and `==` says so.
_EXACT = (bool, int, str, bytes, type(None))


class _Given(NamedTuple):
    """What an argument has to be: a tensor of this form, or this Python value."""

    kind: type[Any]
    value: Any
    shape: Shape = ()
    dtype: DType | None = None
    device: str = ""


class _Made(NamedTuple):
    """A buffer of the capture for which each call has a new one."""

    captured: Buffer
    device: DeviceBackend
    nbytes: int


# --8<-- [start:shortcut]
class Shortcut:
    """Replays a recording that reads memory, and writes to nothing but its outputs.

    It is made by a replay in which everything was looked at. It stands for as long as arguments
    are of the same form, and the tensors that the function uses besides are in the same memory.
    """

    def __init__(self, recording: Recording, arguments: Arguments) -> None:
        self.names = recording.names
        self.given = [_given(arguments, path) for path in _paths(arguments)]
        tensors = [path for path in _paths(arguments) if path in arguments.tensors]
        self.inputs = [(place, recording.inputs[path]) for place, path in enumerate(tensors)
                       if path in recording.inputs]
        self.states: list[tuple[Owner, Buffer]] = [
            (owner, held.uop.arg[0]) for source in recording.sources.values()
            if source.path is None for owner in source.owners if (held := owner()) is not None]
        self.made = [_Made(b, Device[b.device], b.nbytes or 1) for b in recording.fresh]
        self.large, self.let_go = recording.large, recording.let_go
        self.slots, self.placed = recording.slots, recording.placed
        self.result = recording.result
        self.table: Table = recording.segments[0]  # type: ignore[assignment]

    @staticmethod
    def of(recording: Recording, arguments: Arguments) -> Shortcut | None:
        """The shortcut for calls like this one; None if there is more to do than it does."""
        return Shortcut(recording, arguments) if _is_plain(recording) \
            and _is_flat(arguments) else None

    def run(self, given: Sequence[Any]) -> Any:
        """Replay; `MISSED`, and nothing done, if anything has changed."""
        # r[impl replay.shortcut.same]
        if len(given) != len(self.given) or realize.session.scheduled:
            return MISSED
        found: list[Buffer] = []
        for value, wanted in zip(given, self.given, strict=True):
            kind, exactly, shape, dtype, device = wanted
            if type(value) is not kind:
                return MISSED
            if dtype is None:
                if value != exactly:
                    return MISSED
                continue
            node = value.uop
            if node.op is not _BUFFER or node.dtype is not dtype or value.device != device:
                return MISSED
            buffer, version, at = node.arg
            if version != buffer.version or buffer.device != device \
                    or not (at is shape or identical(at, shape)):
                return MISSED
            found.append(buffer)
        if len(found) > 1 and len(set(found)) < len(found):  # r[impl replay.guard.alias]
            return MISSED
        for owner, buffer in self.states:
            held = owner()
            if held is None or held.uop.op is not _BUFFER:
                return MISSED
            now, version, _ = held.uop.arg
            if now is not buffer or version != buffer.version:
                return MISSED
        if self.names and not all([name.value() is tensor() for name, tensor in self.names]):
            return MISSED
        return self._launch(found)

    def _launch(self, found: Sequence[Buffer]) -> Any:
        """Put arguments and new outputs in their places, and run all kernels."""
        placed = self.placed
        for place, captured in self.inputs:
            memory = found[place].memory
            if memory is None or placed.get(captured) is not memory:
                self._place(captured, realize.ensure_memory(found[place]))
        outputs: dict[Buffer, Buffer] = {}
        if self.large:
            self.let_go(self.large)
        for captured, device, nbytes in self.made:  # r[impl replay.output.fresh]
            new = outputs[captured] = captured.alike()
            new.memory = memory = device.allocate(nbytes)
            self._place(captured, memory)
        self.table.run()
        result = self.result
        if result.__class__ is Leaf:
            return _filled(result, outputs)
        made = {leaf: _filled(leaf, outputs) for leaf in leaves_of(result)}
        return mapped(result, lambda v: made[v] if isinstance(v, Leaf) else v)

    def _place(self, captured: Buffer, memory: Memory) -> None:
        """Put memory where a buffer of the capture was."""
        self.placed[captured] = memory
        for table, launch, argument in self.slots.get(captured, ()):
            table.set_memory(launch, argument, memory)
# --8<-- [end:shortcut]


def _filled(leaf: Leaf, outputs: dict[Buffer, Buffer]) -> Tensor:
    """The tensor that stands in this call for a part of the result."""
    buffer = outputs[leaf.buffer]
    return Tensor._holding(buffer.leaf(leaf.shape), leaf.device)


def _is_plain(recording: Recording) -> bool:
    """Whether a recording does nothing but run one table that fills new outputs."""
    more = (recording.changes, recording.written, recording.values, recording.random_used,
            recording.guards, recording.variables, recording.sizes, recording.aliases,
            not recording.trusted)
    fresh = set(recording.fresh)
    return not any(more) and len(recording.segments) == 1 \
        and isinstance(recording.segments[0], Table) \
        and all(leaf.holder is None and leaf.buffer in fresh
                for leaf in leaves_of(recording.result))


def _paths(arguments: Arguments) -> list[str]:
    """The paths of the arguments that were given without names."""
    return [f"[0][{place}]" for place in range(arguments.signature["[0]"][1])]


def _is_flat(arguments: Arguments) -> bool:
    """Whether all arguments are given without names, and are tensors or plain Python values."""
    paths = _paths(arguments)
    return len(arguments.signature) == len(paths) + 3 and all(
        path in arguments.tensors and type(arguments.tensors[path]) is Tensor
        or _exact(arguments.signature[path]) for path in paths)


def _exact(described: Any) -> bool:
    return isinstance(described, tuple) and len(described) == 2 and type(described[1]) in _EXACT \
        and described[0] == type(described[1]).__name__


def _given(arguments: Arguments, path: str) -> _Given:
    tensor = arguments.tensors.get(path)
    if tensor is None:
        value = arguments.signature[path][1]
        return _Given(type(value), value)
    leaf = tensor.uop
    return _Given(Tensor, None, leaf.arg[2], leaf.dtype, tensor.device)
