"""What is sent between devices, as arguments of COPY nodes. Chapter: spec/multi.md.

A COPY has a device as its argument, or a `Transfer`: then its source and its value are pieces that
each device of a mesh holds.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from impl.ir import Ops, Shape
from impl.multi.mesh import Mesh
from impl.places import Place


@dataclass(frozen=True)
class Transfer:
    """One collective, or one way on or off a mesh.

    `kind` says what becomes of a piece of shape s, on a group of k devices along `axis`:

        all-reduce       s            -> s             combined by `op`
        all-gather       s            -> (k, *s)       the pieces of all
        reduce-scatter   (k, *s)      -> s             piece j of all, combined, on device j
        all-to-all       (k, *s)      -> (k, *s)       piece j of device i becomes piece i of j
        permute          s            -> s             that of device i on device i + `shift`
        broadcast        s            -> s             from a device to all of the mesh
        scatter          (n, *s)      -> s             piece i of a device to device i of n
        gather           s            -> (n, *s)       the pieces of all on one device
        select           s            -> s             of what all have, on one device
        own              s            -> s             what one device has, as a value of its own

    `target` is the device, or the mesh, where the value lies. `instead` says how the value, which
    is in memory, could lie so that nothing were sent.
    """

    kind: str
    target: Place
    mesh: Mesh
    axis: str = ""
    op: Ops | None = None
    shift: int = 0
    instead: str = ""

    @property
    def is_within(self) -> bool:
        """Whether it is between the devices of its mesh, each with a piece before and after."""
        return bool(self.axis)

    @property
    def count(self) -> int:
        """How many devices take part in a group."""
        return self.mesh.extent(self.axis) if self.axis else len(self.mesh.devices)

    def shape(self, given: Shape) -> Shape:
        """The shape of the value, from that of the source."""
        if self.kind in ("all-gather", "gather"):
            return (self.count, *given)
        if self.kind in ("reduce-scatter", "scatter"):
            return given[1:]
        return given

    def sent(self, nbytes: int) -> int:
        """The least number of bytes that each device has to send, for a source of `nbytes`; on the
        way to a mesh, that each is sent.
        """
        others = self.count - 1
        if self.kind == "all-reduce":  # r[impl multi.transfer.told]
            return 2 * nbytes * others // self.count
        if self.kind in ("reduce-scatter", "all-to-all"):
            return nbytes * others // self.count
        if self.kind == "all-gather":
            return nbytes * others
        if self.kind == "scatter":
            return nbytes // self.count
        return 0 if self.kind == "own" else nbytes

    def __str__(self) -> str:
        return f"{self.kind} over {self.axis}" if self.axis else f"{self.kind} to {self.target}"

    def told(self, nbytes: int) -> str:
        """What is sent, how much by each device, and why; `nbytes` are those of the source."""
        way = {"broadcast": "to", "scatter": "to"}.get(self.kind, "from")
        which = "one" if self.kind in ("select", "own") else "each"
        # r[impl multi.transfer.instead+2]
        instead = f"; nothing would be sent if it lay {self.instead}" if self.instead else ""
        return (f"{self}, {self.sent(nbytes)} bytes {way} {which} device: "
                f"{_WHY[self.kind]}{instead}")


_WHY = {
    "all-reduce": "each has a part of the result, and all need it",
    "reduce-scatter": "each has a part of the result, and keeps a piece",
    "all-gather": "an axis that is cut is needed as a whole",
    "all-to-all": "it is cut along one axis, and needed cut along another",
    "permute": "each needs the piece of another one",
    "broadcast": "it was placed on the mesh", "scatter": "it was placed on the mesh",
    "gather": "it is needed on one device", "select": "it is needed on one device",
    "own": "it has this part, and keeps a copy",
}


def held_of(axes: tuple[str | None, ...], nbytes: int, mesh: Mesh) -> int:
    """Bytes that each device has of a value of `nbytes`."""
    return nbytes // math.prod(mesh.extent(name) for name in axes if name is not None)


def moved(axes: tuple[str | None, ...], wanted: tuple[str | None, ...], nbytes: int,
          mesh: Mesh) -> int:
    """Bytes that each device sends to bring a value of `nbytes` from one sharding to another."""
    total, held = 0, held_of(axes, nbytes, mesh)
    for axis, name in enumerate(axes):
        if name is None or wanted[axis] == name:
            continue
        count = mesh.extent(name)
        if name in wanted:
            total += held * (count - 1) // count
        else:
            total += held * (count - 1)
            held *= count
    return total

