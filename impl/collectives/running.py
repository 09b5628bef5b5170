"""Transfers carried out on the memories of devices. Chapter: spec/collectives.md."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from impl import settings
from impl.collectives.steps import Rounds, rounds
from impl.device import DeviceBackend, Memory
from impl.dtypes import DType
from impl.ir import TRUE, KernelInfo, Ops, RangeKind, UOp, new_range


def combining_kernel(op: Ops, dtype: DType, size: int) -> UOp:
    """The kernel that combines the elements of its second argument with those of its first."""
    loop = new_range(size, RangeKind.GLOBAL, 0)
    first, second = (UOp(Ops.INDEX, dtype, (UOp(Ops.PARAM, dtype, (), number), loop, TRUE))
                     for number in range(2))
    value = UOp(op, dtype, (UOp(Ops.LOAD, dtype, (first,)), UOp(Ops.LOAD, dtype, (second,))))
    store = UOp(Ops.STORE, dtype, (first, value))
    return UOp(Ops.SINK, dtype, (store,), KernelInfo(f"combine_{size}", (loop,)))


class Peers:
    """Some devices of a mesh that send each other elements of a dtype."""

    def __init__(self, devices: Sequence[DeviceBackend], dtype: DType) -> None:
        self.devices, self.dtype = devices, dtype

    def run(self, found: Rounds, memories: Sequence[Memory], op: Ops | None = None) -> None:
        """Carry out rounds of moves on the value's memory of each device."""
        item = self.dtype.itemsize
        for moves in found:
            # r[impl collectives.round.before]: what is sent is not what arrives meanwhile
            staged = [(move, self._staged(move.receiver, memories[move.sender], move.start * item,
                                          (move.stop - move.start) * item))
                      for move in moves if move.stop > move.start]
            for move, memory in staged:
                target = memories[move.receiver].part(move.start * item, memory.nbytes)
                if move.combined:
                    assert op is not None
                    self.combine(move.receiver, op, target, memory)
                else:
                    target.device.copy(target, memory, memory.nbytes)

    def _staged(self, receiver: int, source: Memory, offset: int, nbytes: int) -> Memory:
        """A copy of some bytes, on the device that receives them."""
        staging = self.devices[receiver].allocate(nbytes)
        self.devices[receiver].copy(staging, source.part(offset, nbytes), nbytes)
        return staging

    def combine(self, device: int, op: Ops, target: Memory, other: Memory) -> None:
        """Combine the elements of two blocks of a device, in the first of them."""
        kernel = combining_kernel(op, self.dtype, target.nbytes // self.dtype.itemsize)
        self.devices[device].compile([kernel])[0]([target, other])


def all_reduce(group: Peers, sources: Sequence[Memory], targets: Sequence[Memory], size: int,
               op: Ops) -> None:
    """Every device gets the combination of what all have."""
    # r[impl collectives.reduce.equal]: each part is combined once, and copied
    item = group.dtype.itemsize
    for source, target in zip(sources, targets, strict=True):
        target.device.copy(target, source, size * item)
    name = str(settings.get("ALLREDUCE"))  # r[impl collectives.algorithm.named]
    group.run(rounds(size, len(targets), item, name), targets, op)


def all_gather(group: Peers, sources: Sequence[Memory], targets: Sequence[Memory], size: int,
               op: Ops | None) -> None:
    """Every device gets the pieces of all, in order."""
    nbytes = size * group.dtype.itemsize
    for target in targets:
        for number, source in enumerate(sources):
            target.device.copy(target.part(number * nbytes, nbytes), source, nbytes)


def reduce_scatter(group: Peers, sources: Sequence[Memory], targets: Sequence[Memory], size: int,
                   op: Ops) -> None:
    """Device j gets the combination of the pieces j of all; `size` is that of one piece."""
    nbytes = size * group.dtype.itemsize
    for number, target in enumerate(targets):
        target.device.copy(target, sources[number].part(number * nbytes, nbytes), nbytes)
        for turn in range(1, len(sources)):
            source = sources[(number + turn) % len(sources)].part(number * nbytes, nbytes)
            staging = target.device.allocate(nbytes)
            target.device.copy(staging, source, nbytes)
            if size:
                group.combine(number, op, target.part(0, nbytes), staging)


def all_to_all(group: Peers, sources: Sequence[Memory], targets: Sequence[Memory], size: int,
               op: Ops | None) -> None:
    """Piece j of device i becomes piece i of device j; `size` is that of one piece."""
    nbytes = size * group.dtype.itemsize
    for number, target in enumerate(targets):
        for other, source in enumerate(sources):
            target.device.copy(target.part(other * nbytes, nbytes),
                               source.part(number * nbytes, nbytes), nbytes)


#: Within groups, by the kind of a transfer.
WITHIN: dict[str, Callable[..., Any]] = {
    "all-reduce": all_reduce, "all-gather": all_gather, "reduce-scatter": reduce_scatter,
    "all-to-all": all_to_all,
}
