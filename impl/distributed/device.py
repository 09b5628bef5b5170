"""A mesh of which each process has one device. Chapter: spec/distributed.md."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from impl import settings
from impl.collectives import MeshDevice, Peers, nccl
from impl.collectives.device import Exchange
from impl.device import Device, DeviceBackend, Memory
from impl.distributed.cliques import RankClique, clique_of
from impl.distributed.engine import Ranks, all_gather, group, said
from impl.distributed.ranks import rank, ranks
from impl.distributed.sums import Sums, SumsTogether, can_go_with_sums, can_sum
from impl.dtypes import DType
from impl.errors import ArgumentError, DistributedError
from impl.host import np
from impl.multi import Mesh, Transfer
from impl.places import device_kind
from impl.tensor.random import generator


def mesh(**axes: int) -> Mesh:
    """A mesh with a device for each process; in one process alone, with as many of its devices.

    Of several processes all have to come to the first one that is made.

    Raises:
        ArgumentError: the axes do not make the number of processes.
        DistributedError: one does not come, or random numbers were drawn without a common seed.
    """
    kind = device_kind(Device.DEFAULT)
    count = math.prod(axes.values())
    if ranks() == 1:
        return Mesh([f"{kind}:{i}" if i else kind for i in range(count)], axes)
    if count != ranks():  # r[impl distributed.mesh.size+2]
        raise ArgumentError("distributed.mesh", f"axes {axes} make {count} places for {ranks()} "
                            "processes", f"start {count}, or let the product be {ranks()}")
    _one_seed()
    return Mesh([f"{kind}@{i}" for i in range(count)], axes)


@functools.cache
def _one_seed() -> None:
    """Go on with the random numbers of the first process, unless somebody has chosen others."""
    # r[impl distributed.random.same]
    mine = struct.pack("<Q?Q", generator.number, generator.chosen, generator.counter)
    found = [struct.unpack("<Q?Q", each.ljust(len(mine), b"\0"))
             for each in all_gather("distributed.mesh", mine)]
    if any(drawn and not chosen for _, chosen, drawn in found):
        raise DistributedError("distributed.mesh", "random numbers were drawn before, in each "
                               "process other ones", "make the mesh first, or call "
                               "Tensor.manual_seed(n) before the first random number")
    if not generator.chosen:
        generator.seed(found[0][0])


class RankDevice(MeshDevice):
    """A mesh of which this process has the device with the number of its rank."""

    buckets = False

    def _present(self) -> tuple[list[int], list[DeviceBackend]]:
        number = rank()
        return [number], [Device[self.mesh.devices[number].partition("@")[0]]]

    @functools.cached_property
    def groups(self) -> dict[str, Ranks]:
        """The groups of this process along axes that were asked for; "" is that of all."""
        return {"": group(tuple(range(len(self.mesh.devices))))}

    def ranks(self, axis: str) -> Ranks:
        """The group of this process along an axis."""
        known = self.groups.get(axis)
        if known is None:
            mine = next(members for members in self.mesh.groups(axis) if rank() in members)
            known = self.groups[axis] = group(tuple(mine))
        return known

    def agree(self, key: Any) -> None:
        """Compare the key of a plan with those of all processes."""
        # r[impl distributed.plan.same]
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
        self.ranks("").met(f"the plan {digest}")

    def exchange(self, transfer: Transfer, target: Any, source: Any, nbytes: int,
                 dtype: DType) -> None:
        """One call of MPI, or of NCCL."""
        # r[impl distributed.value.equal]
        clique = self.called_by(transfer, dtype)
        if clique is not None:
            return clique.run([(transfer, (source, target), nbytes, dtype)])
        ranks, to, given = self.ranks(transfer.axis), target.members[0], source.members[0]
        ranks.met(said(transfer, dtype, nbytes))
        size = transfer.count * nbytes
        if transfer.kind == "all-gather":
            with _written(to, size) as found:
                ranks.all(_bytes(given, nbytes), found)
        elif transfer.kind == "all-to-all":
            with _written(to, nbytes) as found:
                ranks.exchanged(_bytes(given, nbytes), found)
        elif transfer.kind == "permute":
            with _written(to, nbytes) as found:
                ranks.shifted(_bytes(given, nbytes), found, transfer.shift)
        elif transfer.kind == "all-reduce" and can_sum(transfer.op, dtype):
            with _written(to, nbytes) as found:
                Sums(ranks, [(_bytes(given, nbytes), found, transfer.op, dtype)])()
        elif transfer.kind == "all-reduce":
            ranks.all(_bytes(given, nbytes), pieces := np.empty(size, np.uint8))
            self._combine(to, pieces, transfer, nbytes, dtype)
        else:
            ranks.exchanged(_bytes(given, size), pieces := np.empty(size, np.uint8))
            self._combine(to, pieces, transfer, nbytes, dtype)

    def called_by(self, transfer: Transfer, dtype: DType) -> RankClique | None:
        """The clique that carries out a transfer; None where MPI does."""
        known = nccl.Clique.can(transfer, dtype)
        return clique_of(self.ranks(transfer.axis), self.members[0]) if known else None

    def sends(self, transfer: Transfer, sizes: Sequence[int], dtype: DType) -> dict[str, Any]:
        """Which devices take part in a collective: MPI chooses its rounds."""
        return self.called(transfer, sum(sizes))

    def together(self, given: Sequence[Exchange]) -> Callable[[], None]:
        """Sums along one axis after one note, and what NCCL does; the rest one after the other."""
        sums: dict[str, list[Exchange]] = {}
        cliques: dict[str, tuple[RankClique, list[Exchange]]] = {}
        work: list[Callable[[], None]] = []
        for one in given:
            transfer, (source, target), nbytes, dtype = one
            clique = self.called_by(transfer, dtype)
            if clique is not None:
                cliques.setdefault(transfer.axis, (clique, []))[1].append(one)
            elif self.members[0].host_memory and can_go_with_sums(transfer, dtype):
                sums.setdefault(transfer.axis, []).append(one)
            else:
                work.append(partial(self.exchange, transfer, target, source, nbytes, dtype))
        # r[impl distributed.together.once+4]
        work += [SumsTogether(self.ranks(axis), those) for axis, those in sums.items()]
        work += [partial(clique.run, those) for clique, those in cliques.values()]

        def run() -> None:
            self.synchronize()
            for each in work:
                each()
        return run

    def _combine(self, total: Memory, pieces: np.ndarray, transfer: Transfer, nbytes: int,
                 dtype: DType) -> None:
        """What the pieces of all make together; each rank combines them in the same order."""
        device = self.members[0]
        other = device.allocate(nbytes)
        assert transfer.op is not None
        for number in range(transfer.count):
            part = pieces[number * nbytes:(number + 1) * nbytes]
            device.copy_in(total if number == 0 else other, part)
            if number and nbytes:
                Peers([device], dtype).combine(0, transfer.op, total, other)

    def spread(self, target: Memory, source: Memory, nbytes: int) -> None:
        """What one device has, each process has already; with SPEC=1 they compare it."""
        if settings.get("SPEC"):  # r[impl distributed.copies.same]
            digest = hashlib.blake2b(_bytes(source, nbytes).tobytes(), digest_size=8).hexdigest()
            self.ranks("").met(f"copies of the {nbytes} bytes {digest}")
        super().spread(target, source, nbytes)

    def gather(self, target: Memory, source: Any, nbytes: int) -> None:
        """The pieces of all processes, in every one."""
        ranks = self.ranks("")
        ranks.met(f"gather of {nbytes} bytes")
        with _written(target, nbytes * len(self.mesh.devices)) as found:
            ranks.all(_bytes(source.members[0], nbytes), found)


def _bytes(memory: Memory, nbytes: int) -> np.ndarray:
    """The bytes of a block on the host, for reading: its own memory, if that is the host's."""
    if not memory.device.host_memory:
        return memory.device.get(memory, 0, nbytes)
    memory.device.synchronize()
    return memory.array[:nbytes]


@contextlib.contextmanager
def _written(memory: Memory, nbytes: int) -> Iterator[np.ndarray]:
    """Bytes on the host that are those of a block when all are written."""
    if memory.device.host_memory:
        yield memory.array[:nbytes]
    else:
        found = np.empty(nbytes, np.uint8)
        yield found
        memory.device.put(memory, found)


def opened(place: Mesh) -> DeviceBackend:
    """The device of a mesh: of this process, or of all processes of a job."""
    if not any("@" in device for device in place.devices):
        return MeshDevice(place)
    kind = place.devices[0].partition("@")[0]
    if place.devices != tuple(f"{kind}@{number}" for number in range(ranks())):
        # r[impl distributed.mesh.size+2]
        raise ArgumentError("Mesh", f"the devices {', '.join(place.devices)} are not those of "
                            f"{ranks()} processes, in order", "use distributed.mesh(data=...)")
    return RankDevice(place)


Device.of_mesh = opened
