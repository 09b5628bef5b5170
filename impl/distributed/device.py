"""A mesh of which each process has one device. Chapter: spec/distributed.md."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from impl.collectives import MeshDevice, Peers
from impl.collectives.device import Exchange
from impl.device import Device, DeviceBackend, Memory
from impl.distributed.engine import Ranks, group
from impl.distributed.ranks import rank, ranks
from impl.dtypes import DType
from impl.errors import ArgumentError
from impl.multi import Mesh, Transfer

#: Sums of fewer bytes go together: to put them in one place costs less than a call.
LARGE = 1 << 16


def mesh(**axes: int) -> Mesh:
    """A mesh with a device for each process; in one process alone, with as many of its devices.

    Raises:
        ArgumentError: the axes do not make the number of processes.
    """
    kind = Device.DEFAULT.partition(":")[0]
    count = math.prod(axes.values())
    if ranks() == 1:
        return Mesh([f"{kind}:{i}" if i else kind for i in range(count)], axes)
    if count != ranks():  # r[impl distributed.mesh.size]
        raise ArgumentError("distributed.mesh", f"axes {axes} make {count} places for {ranks()} "
                            "processes", f"start {count}, or let the product be {ranks()}")
    return Mesh([f"{kind}@{i}" for i in range(count)], axes)


class RankDevice(MeshDevice):
    """A mesh of which this process has the device with the number of its rank."""

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
        """One call of MPI."""
        # r[impl distributed.value.equal]
        ranks, to, given = self.ranks(transfer.axis), target.members[0], source.members[0]
        ranks.met(f"{transfer} of {nbytes} bytes of {dtype.name}")
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
        elif transfer.kind == "all-reduce" and ranks.can_sum(transfer.op, dtype):
            with _written(to, nbytes) as found:
                ranks.sum(_bytes(given, nbytes), found, transfer.op, dtype)
        elif transfer.kind == "all-reduce":
            ranks.all(_bytes(given, nbytes), pieces := np.empty(size, np.uint8))
            self._combine(to, pieces, transfer, nbytes, dtype)
        else:
            ranks.exchanged(_bytes(given, size), pieces := np.empty(size, np.uint8))
            self._combine(to, pieces, transfer, nbytes, dtype)

    def sends(self, transfer: Transfer, nbytes: int, dtype: DType) -> dict[str, Any]:
        """Which devices take part in a collective: MPI chooses its rounds."""
        return self.called(transfer, nbytes)

    def exchange_all(self, given: Sequence[Exchange]) -> None:
        """Sums along one axis in one call of MPI; the rest one after the other."""
        sums: dict[tuple[Any, ...], list[Exchange]] = {}
        for one in given:
            transfer, (source, target), nbytes, dtype = one
            if transfer.kind == "all-reduce" and self.ranks(transfer.axis).can_sum(transfer.op,
                                                                                   dtype):
                sums.setdefault((transfer, dtype), []).append(one)
            else:
                self.exchange(transfer, target, source, nbytes, dtype)
        for (transfer, dtype), those in sums.items():  # r[impl distributed.together.once+2]
            if len(those) == 1:
                (_, (source, target), nbytes, _), = those
                self.exchange(transfer, target, source, nbytes, dtype)
            else:
                self._sum_together(transfer, those, dtype)

    def _sum_together(self, transfer: Transfer, given: Sequence[Exchange], dtype: DType) -> None:
        """Several sums after one note: small ones as one, one behind the other; all under way."""
        ranks, device = self.ranks(transfer.axis), self.members[0]
        sizes = [nbytes for _, _, nbytes, _ in given]
        ranks.met(f"{transfer} of {', '.join(map(str, sizes))} bytes of {dtype.name}")
        small = [one for one in given if one[2] < LARGE or not device.host_memory]
        started = [ranks.begin_sum(_bytes(source.members[0], nbytes),
                                   target.members[0].array[:nbytes], transfer.op, dtype)
                   for _, (source, target), nbytes, _ in given
                   if nbytes >= LARGE and device.host_memory]
        whole = np.empty(sum(nbytes for _, _, nbytes, _ in small), np.uint8)
        places = np.cumsum([0, *(nbytes for _, _, nbytes, _ in small)]).tolist()
        for (_, (source, _), nbytes, _), start in zip(small, places, strict=False):
            whole[start:start + nbytes] = _bytes(source.members[0], nbytes)
        if small:
            started.append(ranks.begin_sum(whole, whole, transfer.op, dtype))
        for request in started:
            ranks.done(request)
        for (_, (_, target), nbytes, _), start in zip(small, places, strict=False):
            device.put(target.members[0], whole[start:start + nbytes])

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
        # r[impl distributed.mesh.size]
        raise ArgumentError("Mesh", f"the devices {', '.join(place.devices)} are not those of "
                            f"{ranks()} processes, in order", "use distributed.mesh(data=...)")
    return RankDevice(place)


Device.of_mesh = opened
