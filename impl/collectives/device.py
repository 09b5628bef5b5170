"""A mesh as one device: what is launched on it runs on all. Chapter: spec/collectives.md."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from impl.collectives.running import WITHIN, Peers
from impl.device import Device, DeviceBackend, Memory, Program
from impl.dtypes import DType
from impl.errors import DeviceError
from impl.ir import UOp
from impl.kernel import DeviceLimits
from impl.multi import Coordinate, Mesh, Transfer


class MeshMemory:
    """A block of memory of the same size on each device of a mesh that this process has."""

    __slots__ = ("device", "nbytes", "members", "__weakref__")

    def __init__(self, device: MeshDevice, members: Sequence[Memory], nbytes: int) -> None:
        self.device, self.members, self.nbytes = device, list(members), nbytes

    def part(self, offset: int, nbytes: int) -> MeshMemory:
        """The same bytes of each block."""
        return MeshMemory(self.device, [m.part(offset, nbytes) for m in self.members], nbytes)


class MeshProgram(Program):
    """A kernel on all devices of a mesh, each with its own memory and its own coordinates."""

    def __init__(self, device: MeshDevice, ast: UOp, members: Sequence[Program]) -> None:
        super().__init__(device, ast, members[0].optimized, members[0].arguments)
        self.members, self.source, self.numbers = list(members), members[0].source, device.numbers

    def check(self, memories: Sequence[Any], values: Sequence[int]) -> None:
        """As each of the members asks."""
        for place, program in enumerate(self.members):
            mine: list[Any] = [None if memory is None else memory.members[place]
                               for memory in memories]  # a result's memory may be let go
            program.check(mine, self._values(values, place))

    def __call__(self, memories: Sequence[Any], values: Sequence[int] = ()) -> None:
        """Run once on every device, and count each."""
        for place, program in enumerate(self.members):
            program([memory.members[place] for memory in memories], self._values(values, place))

    def run(self, memories: Sequence[Any], values: Sequence[int]) -> None:
        """Run once on every device."""
        for place, program in enumerate(self.members):
            program.run([memory.members[place] for memory in memories],
                        self._values(values, place))

    def _values(self, values: Sequence[int], place: int) -> list[int]:
        """What the variables are on one of the members."""
        number = self.numbers[place]
        return [value.of(number) if isinstance(value, Coordinate) else value for value in values]


class MeshDevice(DeviceBackend):
    """All devices of a mesh as one. Kernels are compiled once for each member's kind.

    `members` are the devices that this process has, and `numbers` their places in the mesh: all,
    unless other processes have the others.
    """

    kind = "MESH"
    host_memory = False

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh)
        self.mesh = mesh
        self.numbers, self.members = self._present()
        self.maximum_arguments = min(member.maximum_arguments for member in self.members)
        self.local_bytes = min(member.local_bytes for member in self.members)

    def _present(self) -> tuple[list[int], list[DeviceBackend]]:
        """The devices that this process has, by number."""
        return list(range(len(self.mesh.devices))), [Device[name] for name in self.mesh.devices]

    @property
    def limits(self) -> DeviceLimits:
        """Those of the first member: all are of one kind, or the first speaks for all."""
        return self.members[0].limits

    def plan_key(self) -> tuple[Any, ...]:
        """The mesh, and what its members say."""
        return (str(self.mesh), *dict.fromkeys(member.plan_key() for member in self.members))

    def allocate(self, nbytes: int) -> Any:
        """Uninitialised memory on every device."""
        return MeshMemory(self, [member.allocate(nbytes) for member in self.members], nbytes)

    def copy_in(self, memory: Any, values: np.ndarray) -> None:
        """The same bytes for all."""
        for member in memory.members:
            member.device.copy_in(member, values)

    def copy_out(self, memory: Any, dtype: DType, count: int, offset: int = 0) -> np.ndarray:
        """Refused: the bytes of which device?"""
        raise DeviceError("copy_out", f"{self.name} has no one memory", "read its parts")

    def copy(self, target: Any, source: Any, nbytes: int | None = None) -> None:
        """Copy each device's bytes to the same device."""
        for to, given in zip(target.members, source.members, strict=True):
            to.device.copy(to, given, nbytes)

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """The programs of all members."""
        found = [member.compile(asts) for member in self.members]
        return [MeshProgram(self, ast, [programs[i] for programs in found])
                for i, ast in enumerate(asts)]

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """What the first member would compile."""
        return self.members[0].optimized(ast, search)

    def synchronize(self) -> None:
        """Wait for all."""
        for member in self.members:
            member.synchronize()

    def exchange(self, transfer: Transfer, target: Any, source: Any, nbytes: int,
                 dtype: DType) -> None:
        """Carry out a collective within each group; `nbytes` are those of a device's piece."""
        pieces = transfer.count if transfer.kind == "all-to-all" else 1
        for members in transfer.mesh.groups(transfer.axis):
            group = Peers([self.members[i] for i in members], dtype)
            WITHIN[transfer.kind](group, [source.members[i] for i in members],
                                  [target.members[i] for i in members],
                                  nbytes // dtype.itemsize // pieces, transfer.op)

    def gather(self, target: Memory, source: Any, nbytes: int) -> None:
        """Put the pieces of all devices into the memory of one, in order."""
        for number, member in enumerate(source.members):
            target.device.copy(target.part(number * nbytes, nbytes), member, nbytes)


def transferred(transfer: Transfer | Mesh, target: Any, source: Any, nbytes: int,
                dtype: DType) -> None:
    """Carry out a transfer; `nbytes` are those of the piece that a device has, or gets."""
    if isinstance(transfer, Mesh) or transfer.kind == "broadcast":
        for member in target.members:
            member.device.copy(member, source, nbytes)
    elif transfer.kind == "scatter":
        for number, member in zip(target.device.numbers, target.members, strict=True):
            member.device.copy(member, source.part(number * nbytes, nbytes), nbytes)
    elif transfer.kind == "gather":
        source.device.gather(target, source, nbytes)
    elif transfer.kind == "select":  # all have the same
        target.device.copy(target, source.members[0], nbytes)
    else:
        target.device.exchange(transfer, target, source, nbytes, dtype)

