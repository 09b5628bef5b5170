"""Where a value lies, and what brings it elsewhere. Chapter: spec/places.md.

Everything that lies somewhere carries a `Place`: buffers, values, storages, kernels, items of a
schedule. What the scheduler has to know of places is decided here: where a value is computed, who
has none of his own, and what a copy looks like.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from impl.ir import Ops, Shape, UOp


class Place(str):
    """A device, by the one spelling of its name; or several that hold a value together (a `Mesh`).

    It is text, so that documents, keys and users see a name.
    """

    __slots__ = ()

    @property
    def type(self) -> str:
        """The kind of device, as PyTorch spells it: "cpu", "cuda", "mps"."""
        kind = self.members()[0].partition(":")[0].lower()
        return {"metal": "mps"}.get(kind, kind)

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Which one of its kind; None for the host and for several, as in PyTorch."""
        kind, _, number = self.partition(":")
        several = len(self.members()) > 1
        return None if several or not number and kind in ("CPU", "REFERENCE") else int(number or 0)

    def members(self) -> tuple[Place, ...]:
        """The devices, each by itself, in their order."""
        return (self,)


#: What makes the devices known that there are: called when a device is first asked for.
introduce: list[Callable[[], Any]] = []


def spelled(name: str) -> str:
    """The one spelling of a device's name: "cpu:0" is "CPU"."""
    kind, colon, number = name.upper().partition(":")
    if not number.isdecimal():
        return kind + colon + number
    return kind if int(number) == 0 else f"{kind}:{int(number)}"


def device_kind(name: str) -> str:
    """The kind of a device: that of "CUDA:1" is "CUDA"."""
    return name.partition(":")[0]


def device_number(name: str) -> int:
    """Which device of its kind it is: "CUDA:1" is number 1, and "CUDA" number 0."""
    return int(name.partition(":")[2] or 0)


class Carrier(Protocol):
    """How the pieces of a value get from the devices that have them to those of `target`."""

    @property
    def target(self) -> Place:
        """Where the value lies afterwards."""

    def shape(self, given: Shape) -> Shape:
        """The shape of a piece, from that of the source."""

    def told(self, nbytes: int) -> str:
        """What is sent, and why, for a person; `nbytes` are those of the source."""


#: What a COPY has as its argument: the place that it goes to, or how pieces get there.
Destination = Place | Carrier

_COPY, _SHARD, _BIND = Ops.COPY, Ops.SHARD, Ops.BIND
_LAID = (_COPY, _SHARD)


def place_of(node: UOp) -> Place:
    """Where a COPY or a SHARD lays its value."""
    arg: Any = node.arg
    found: Place = arg.target if hasattr(arg, "target") else arg
    return found


def copied_to(value: UOp, destination: Destination) -> UOp:
    """A value, copied to another place."""
    return UOp(_COPY, value.dtype, (value,), destination)


def is_free(value: UOp) -> bool:
    """Whether a value reads no memory: it is computed on the default device of the moment."""
    return not value.reads


def named(value: UOp, place: Place, default: Place) -> UOp:
    """A value for a holder that names a place: itself, or a copy.

    What reads memory was brought to the place when it was written down. A value that reads none is
    computed on the default device, unless something that it is made of was laid elsewhere.
    """
    # r[impl realize.device.named]
    if place == default or not is_free(value) or home((value,), lambda node: None) == place:
        return value
    return copied_to(value, place)


def home(nodes: Iterable[UOp], lies: Callable[[UOp], Place | None]) -> Place | None:
    """Where a value is computed that is made of these nodes: where they lie, or what they are made
    of, though nothing of it may be read. None for what is made of no memory: any place will do.

    `lies` says where a node is stored: a place, or one without a name where any will do, or None
    if it is not stored.
    """
    # r[impl places.home.made-of+2]
    stack = list(nodes)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.op in _LAID:
            return place_of(node)
        if node.op is _BIND and node.arg is not None:  # each device of a mesh has its own
            mesh: Place = node.arg.mesh
            return mesh
        place = lies(node)
        if place:
            return place
        if place is None:
            more = [source for source in node.src if source not in seen]
            seen.update(more)
            stack += more
    return None


#: Where nothing has to be: what is made of no memory.
ANYWHERE = Place("")
