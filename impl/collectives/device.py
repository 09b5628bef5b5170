"""A mesh as one device: what is launched on it runs on all. Chapter: spec/collectives.md."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from impl.collectives import nccl
from impl.collectives.running import Peers, Phase, at_once
from impl.collectives.steps import moves_told, side_by_side
from impl.device import Device, DeviceBackend, Launch, Memory, Program, Table
from impl.dtypes import DType, dtypes
from impl.errors import DeviceError
from impl.host import np
from impl.ir import Shape, UOp
from impl.kernel import DeviceLimits
from impl.multi import Coordinate, Mesh, Sharding, Transfer


class MeshMemory(Memory):
    """A block of memory of the same size on each device of a mesh that this process has."""

    __slots__ = ("_members",)

    def __init__(self, device: DeviceBackend, members: Sequence[Memory], nbytes: int) -> None:
        super().__init__(device, np.empty(0, np.uint8), 0, nbytes, None, 0)
        self._members = list(members)

    @property
    def members(self) -> list[Memory]:
        """The block of each device."""
        return self._members

    @property
    def array(self) -> np.ndarray:
        """Refused: the bytes of which device?"""
        raise DeviceError("memory", f"{self.device.name} has no one memory", "read its parts")

    def part(self, offset: int, nbytes: int) -> Memory:
        """The same bytes of each block."""
        return MeshMemory(self.device, [m.part(offset, nbytes) for m in self.members], nbytes)

    def whole(self, dtype: DType, sharding: Sharding, shape: Shape) -> np.ndarray | None:
        """The elements of a value that lies here; None where other processes have some of it."""
        self.device.synchronize()  # r[impl multi.print.elements+2]
        if sharding.is_copies:
            first = self.members[0]
            return first.device.copy_out(first, dtype, math.prod(shape))
        parts, local = sharding.parts(shape), sharding.local(shape)
        if len(parts) != len(self.members):
            return None
        found = np.empty(shape, dtype.numpy)
        for bounds, member in zip(parts, self.members, strict=True):
            block = member.device.copy_out(member, dtype, math.prod(local)).reshape(local)
            here = tuple(slice(stop - start) for start, stop in bounds)
            found[tuple(slice(*each) for each in bounds)] = block[here]
        return found.reshape(-1)




class MeshProgram(Program):
    """A kernel on all devices of a mesh, each with its own memory and its own coordinates."""

    def __init__(self, device: MeshDevice, ast: UOp, members: Sequence[Program]) -> None:
        super().__init__(device, ast, members[0].optimized, members[0].arguments)
        self.members, self.source, self.numbers = list(members), members[0].source, device.numbers

    def machine_code(self) -> str:
        """That of the first device."""
        return self.members[0].machine_code()

    def check(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """As each of the members asks."""
        for place, program in enumerate(self.members):
            mine: list[Any] = [None if memory is None else memory.members[place]
                               for memory in memories]  # a result's memory may be let go
            program.check(mine, self.values_of(values, place))

    def __call__(self, memories: Sequence[Memory], values: Sequence[int] = ()) -> None:
        """Run once on every device, and count each."""
        for place, program in enumerate(self.members):
            program([memory.members[place] for memory in memories], self.values_of(values, place))

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Run once on every device."""
        for place, program in enumerate(self.members):
            program.run([memory.members[place] for memory in memories],
                        self.values_of(values, place))

    def values_of(self, values: Sequence[int], place: int) -> list[int]:
        """What the variables are on one of the members."""
        number = self.numbers[place]
        return [value.of(number) if isinstance(value, Coordinate) else value for value in values]


class MeshTable(Table):
    """Launches on all devices of a mesh, in a table for each. `count` of them run at a time."""

    def __init__(self, device: MeshDevice, launches: Sequence[Launch], count: int = 1) -> None:
        self.launches = [(program, list(memories), list(values))
                         for program, memories, values in launches]
        self.numbers, self.tables = device.numbers, list[Table]()
        for place, member in enumerate(device.members):
            self.tables.append(member.table([
                (program.members[place].sharing(count),
                 [memory.members[place] for memory in memories], program.values_of(values, place))
                for program, memories, values in self._meshed()]))

    def _meshed(self) -> Iterator[tuple[MeshProgram, list[Memory], list[int]]]:
        for program, memories, values in self.launches:
            assert isinstance(program, MeshProgram)
            yield program, memories, values

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one launch another memory for one argument."""
        for table, member in zip(self.tables, memory.members, strict=True):
            table.set_memory(launch, argument, member)

    def forget(self, launch: int, argument: int) -> None:
        """Let go of the memory of an argument; it gets another one before the next run."""
        self.launches[launch][1][argument] = None  # type: ignore[call-overload]
        for table in self.tables:
            table.forget(launch, argument)

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one launch another value of one variable."""
        for number, table in zip(self.numbers, self.tables, strict=True):
            own = value.of(number) if isinstance(value, Coordinate) else value
            table.set_value(launch, variable, own)

    def replay(self) -> None:
        """Run all launches on one device after the other."""
        for table in self.tables:
            table.replay()

    def note(self, times: int = 1) -> None:
        """Count what each device did, so many times."""
        for table in self.tables:
            table.note(times)


#: A collective: its transfer, its source and target, the bytes of a device's piece, the dtype.
Exchange = tuple[Transfer, Sequence[Memory], int, DType]


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
        self.cliques: dict[tuple[int, ...], nccl.Clique] = {}
        self.maximum_arguments = min(member.maximum_arguments for member in self.members)
        self.local_bytes = min(member.local_bytes for member in self.members)
        # Lanes are threads of this process, on memory that all of them can see. Of a mesh of
        # several processes it is the transfers that can wait for each other.
        self.concurrent = len(mesh.devices) > 1 and all(
            member.host_memory and member.shared_memory for member in self.members)

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

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory on every device."""
        return MeshMemory(self, [member.allocate(nbytes) for member in self.members], nbytes)

    def copy_in(self, memory: Memory, values: np.ndarray) -> None:
        """The same bytes for all."""
        for member in memory.members:
            member.device.copy_in(member, values)

    def copy_out(self, memory: Memory, dtype: DType, count: int, offset: int = 0) -> np.ndarray:
        """Refused: the bytes of which device?"""
        raise DeviceError("copy_out", f"{self.name} has no one memory", "read its parts")

    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
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

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed together, in a table for each device."""
        return MeshTable(self, launches)

    def synchronize(self) -> None:
        """Wait for all."""
        for member in self.members:
            member.synchronize()

    def agree(self, key: Any) -> None:
        """Compare the key of a plan with those of other processes, where there are any."""


    def clique(self, found: nccl.Library, group: tuple[int, ...]) -> nccl.Clique:
        """NCCL's communicators of a group, made once."""
        known = self.cliques.get(group)
        if known is None:
            known = self.cliques[group] = nccl.new_clique(found, [self.members[i] for i in group])
        return known

    @property
    def names(self) -> list[str]:
        """What the devices that this process has are called in the mesh."""
        return [self.mesh.devices[number] for number in self.numbers]

    @property
    def is_whole(self) -> bool:
        """Whether this process has all devices of the mesh."""
        return len(self.numbers) == len(self.mesh.devices)

    def together(self, given: Sequence[Exchange]) -> Callable[[], None]:
        """What carries out collectives of one kind that do not touch each other's memory, as often
        as it is called; all at once, if that can be. Bytes are those of a device's piece.
        """
        transfer, _, _, dtype = given[0]
        found = nccl.usable(self.members)
        if found is not None and nccl.Clique.can(transfer, dtype):
            return partial(self._call, found, given)
        phases = [phase for _, mine in self.exchanges(given) for phase in mine]

        def run() -> None:
            for phase in phases:
                for actions in phase:
                    for action in actions:
                        action()
        return run

    def _call(self, found: nccl.Library, given: Sequence[Exchange]) -> None:
        """Have NCCL carry out collectives within each group."""
        for transfer, (source, target), nbytes, dtype in given:
            for group in self.mesh.groups(transfer.axis):
                self.clique(found, tuple(group)).exchange(
                    transfer, {rank: target.members[i] for rank, i in enumerate(group)},
                    {rank: source.members[i] for rank, i in enumerate(group)}, nbytes, dtype)

    def exchanges(self, given: Sequence[Exchange]) -> Iterator[tuple[list[int], list[Phase]]]:
        """For each group of devices, by number, what its members do in collectives of one kind,
        which go side by side.
        """
        transfer, _, _, dtype = given[0]
        for members in transfer.mesh.groups(transfer.axis):
            group = Peers([self.members[i] for i in members], dtype)
            yield members, at_once([group.phases(
                group.rounds(transfer.kind, nbytes, transfer.shift),
                [source.members[i] for i in members], [target.members[i] for i in members],
                transfer.op) for _, (source, target), nbytes, _ in given])

    def compile_combinations(self, transfer: Transfer, sizes: Sequence[int],
                             dtype: DType) -> None:
        """Compile the kernels that combine what arrives in collectives; bytes as in `together`.

        Between processes MPI combines most; what it cannot is compiled when its turn has come.
        """
        by_nccl = nccl.usable(self.members) and nccl.Clique.can(transfer, dtype)
        if transfer.op is None or by_nccl or not self.is_whole:
            return
        for members in transfer.mesh.groups(transfer.axis):
            group = Peers([self.members[i] for i in members], dtype)
            for nbytes in dict.fromkeys(sizes):
                group.compile(group.rounds(transfer.kind, nbytes, transfer.shift), transfer.op)

    def sends(self, transfer: Transfer, sizes: Sequence[int], dtype: DType) -> dict[str, Any]:
        """What each device does in collectives that go together, as plain data; bytes as in
        `together`. The bytes of one are behind those of the one before.
        """
        told = self.called(transfer, sum(sizes))
        if nccl.usable(self.members) and nccl.Clique.can(transfer, dtype):
            return told
        # r[impl collectives.rounds.matched+2, collectives.rounds.complete+2]
        peers, groups = Peers(self.members[:1] * transfer.count, dtype), told["groups"]
        found = side_by_side([
            (nbytes // dtype.itemsize, peers.rounds(transfer.kind, nbytes, transfer.shift))
            for nbytes in sizes])
        return {**told, "rounds": [moves_told(moves, groups, dtype.itemsize) for moves in found]}

    def called(self, transfer: Transfer, nbytes: int) -> dict[str, Any]:
        """Which devices take part in a collective, as plain data."""
        given = nbytes * transfer.count if transfer.kind == "reduce-scatter" else nbytes
        return {"kind": transfer.kind, "devices": list(self.mesh.devices), "bytes": given,
                "own": self.numbers, "groups": self.mesh.groups(transfer.axis),
                "shift": transfer.shift}

    def spread(self, target: Memory, source: Memory, nbytes: int) -> None:
        """Give all devices what one device has; that one hands it on first, if it is of them."""
        places = sorted(range(len(self.members)),
                        key=lambda i: self.members[i] is not source.device)
        group = Peers([self.members[i] for i in places], dtypes.uint8)
        group.run(group.rounds("broadcast", nbytes), [source] * len(places),
                  [target.members[i] for i in places])

    def gather(self, target: Memory, source: Memory, nbytes: int) -> None:
        """Put the pieces of all devices into the memory of one, in order."""
        for number, member in enumerate(source.members):
            target.device.copy(target.part(number * nbytes, nbytes), member, nbytes)


def exchanges_of(transfer: Transfer, memories: Sequence[Memory], nbytes: Sequence[int],
              dtype: DType) -> list[Exchange]:
    """The collectives of a transfer: of its memories each source has its target behind it. The
    piece that a device has is the lesser of the two.
    """
    return [(transfer, memories[at:at + 2], min(nbytes[at:at + 2]), dtype)
            for at in range(0, len(memories), 2)]


def transferred(transfer: Transfer | Mesh, memories: Sequence[Memory], sizes: Sequence[int],
                dtype: DType) -> None:
    """Carry out a transfer; of two memories the first is the source, and the lesser size that of
    the piece that a device has, or gets.
    """
    (source, target), nbytes = memories[:2], min(sizes[:2])
    device = target.device if isinstance(target.device, MeshDevice) else source.device
    assert isinstance(device, MeshDevice)
    if isinstance(transfer, Mesh) or transfer.kind == "broadcast":
        device.spread(target, source, nbytes)
    elif transfer.kind == "scatter":
        for number, member in zip(device.numbers, target.members, strict=True):
            member.device.copy(member, source.part(number * nbytes, nbytes), nbytes)
    elif transfer.kind == "gather":
        device.gather(target, source, nbytes)
    elif transfer.kind == "own":
        number = transfer.mesh.devices.index(transfer.target)
        target.device.copy(target, source.members[number], nbytes)
    elif transfer.kind == "select":  # all have the same: what is there already, if it can be
        own = next((m for m in source.members if m.device is target.device), source.members[0])
        target.device.copy(target, own, nbytes)
    else:
        device.together(exchanges_of(transfer, memories, sizes, dtype))()

