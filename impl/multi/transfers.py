"""What is sent between devices, as arguments of COPY nodes. Chapter: spec/multi.md.

A COPY has a device as its argument, or a `Transfer`: then its source and its value are pieces that
each device of a mesh holds.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from impl.ir import Ops, Shape
from impl.multi.mesh import Mesh, Sharding, piece
from impl.places import Place

#: Seconds to start a move or a kernel, for a byte, and for an operation on one core: about what a
#: link and a core in one machine take. What is planned or drawn unmeasured is counted with these.
LATENCY, PER_BYTE, PER_OPERATION = 5e-6, 1e-10, 2e-10

#: The most bytes that processes send along with a note of what they are about to do.
NOTED = 240

#: Which axis of a mesh cuts each axis of a value.
Axes = tuple[str | None, ...]
#: Along which axes of a mesh parts have to be combined, and how.
Due = tuple[tuple[str, Ops], ...]


@dataclass(frozen=True)
class Transfer:
    """One collective, or one way on or off a mesh.

    `kind` says what becomes of a piece of shape s, on a group of k devices along `axis`:

        all-reduce       s            -> s             combined by `op`
        all-gather       s            -> (k, *s)       the pieces of all
        reduce-scatter   (k, *s)      -> s             piece j of all, combined, on device j
        all-to-all       (k, *s)      -> (k, *s)       piece j of device i becomes piece i of j
        permute          s            -> s             that of device i on device i + `shift`,
                                                       for kernels that combine it by `op`, if any
        broadcast        s            -> s             from a device to all of the mesh
        scatter          (n, *s)      -> s             piece i of a device to device i of n
        gather           s            -> (n, *s)       the pieces of all on one device
        select           s            -> s             of what all have, on one device
        own              s            -> s             what one device has, as a value of its own

    `target` is the device, or the mesh, where the value lies. `instead` says how the value, or
    the memory from which it is computed, could lie so that nothing were sent. `cut` is the bytes
    that each device would send, at least, if a value that all need were needed cut; 0 where that
    cannot be, or is not known.
    """

    kind: str
    target: Place
    mesh: Mesh
    axis: str = ""
    op: Ops | None = None
    shift: int = 0
    instead: str = ""
    cut: int = 0

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

    def told(self, *nbytes: int) -> str:
        """What is sent, how much by each device, and why; `nbytes` are those of each source."""
        way = {"broadcast": "to", "scatter": "to"}.get(self.kind, "from")
        which = "one" if self.kind in ("select", "own") else "each"
        instead = f"; nothing would be sent if {self.instead}" if self.instead else ""
        total = sum(map(self.sent, nbytes))
        cut = f"; {self.cut} would be sent if it were needed cut" if self.cut else ""
        several = f"; {len(nbytes)} values go together" if len(nbytes) > 1 else ""
        why = _WHY["all-reduce" if self.op is not None and self.kind == "permute" else self.kind]
        return f"{self}, {total} bytes {way} {which} device: {why}{instead}{cut}{several}"


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


class Passage(NamedTuple):
    """One transfer on the way of a value to another sharding. Before it each device cuts the axis
    `cut` of what it has into pieces, and after it joins the pieces that it has along `joined`.
    """

    transfer: Transfer
    cut: int | None = None
    joined: int | None = None


@lru_cache(4096)
def passages(mesh: Mesh, axes: Axes, wanted: Axes, due: Due,
             instead: str = "") -> tuple[Passage, ...]:
    """What is sent to bring a value from one sharding of a mesh to another, with nothing `due`.

    What is due is combined first; then axes change places as long as the new place is free, and
    those that are put together come last, when a piece is largest. What is still to be cut then
    all devices have.
    """
    found, now = list[Passage](), list(axes)

    def free(name: str | None) -> int | None:
        """The axis that is to be cut along one of the mesh, if it is not cut yet."""
        to = wanted.index(name) if name in wanted else None
        return to if to is not None and now[to] is None else None

    for name, op in due:  # r[impl collectives.due.scattered+2]
        to = free(name)
        kind = "all-reduce" if to is None else "reduce-scatter"
        found.append(Passage(Transfer(kind, mesh, mesh, name, op), to))
        if to is not None:
            now[to] = name
    while left := [axis for axis, name in enumerate(now) if name not in (None, wanted[axis])]:
        # Of those that only change places in a circle, the first is put together.
        last = next((axis for axis in left if now[axis] not in wanted), left[0])
        # r[impl multi.transfer.places]
        axis = next((axis for axis in left if free(now[axis]) is not None), last)
        name, to = now[axis] or "", free(now[axis])
        kind = "all-gather" if to is None else "all-to-all"
        found.append(Passage(Transfer(kind, mesh, mesh, name, instead=instead), to, axis))
        now[axis] = None
        if to is not None:
            now[to] = name
    return tuple(found)


@lru_cache(4096)
def as_if_cut(transfer: Transfer, shape: Shape, axes: Axes, itemsize: int) -> Transfer:
    """A combination that says how many bytes each device would send, at least, if what all need of
    it were needed cut along one axis more; 0 where none can be cut, or what there is is of a few
    bytes.
    """
    nbytes, count = math.prod(shape) * itemsize, transfer.count
    if nbytes < 8 * count:
        return transfer
    scattered = replace(transfer, kind="reduce-scatter")
    # r[impl multi.transfer.cut+2]: as many pieces as devices, the last one filled up
    return replace(transfer, cut=min(
        (scattered.sent(nbytes // size * piece(size, count) * count)
         for size, name in zip(shape, axes, strict=True) if name is None), default=0))


@lru_cache(4096)
def bytes_sent(mesh: Mesh, axes: Axes, wanted: Axes, due: Due, shape: Shape,
               itemsize: int) -> int:
    """Bytes that each device sends in all `passages` of a value."""
    total, local = 0, list(Sharding(mesh, axes).local(shape))
    for transfer, cut, joined in passages(mesh, axes, wanted, due):
        pieces = 1
        if cut is not None:
            pieces, local[cut] = transfer.count, piece(shape[cut], transfer.count)
        # r[impl multi.operands.priced]
        total += transfer.sent(math.prod(local) * pieces * itemsize)
        if joined is not None:
            local[joined] = shape[joined]
    return total
