"""Collectives between GPUs of several processes, as calls of NCCL. Chapter: spec/distributed.md.

NCCL is started over MPI, which hands round what makes communicators one clique, and it knows of no
limit of time. So before each call the processes tell each other what they are about to do, as they
do before calls of MPI; and who waits for the call looks up meanwhile.
"""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from impl import settings
from impl.collectives import nccl
from impl.collectives.device import Exchange
from impl.cuda import CUDADevice
from impl.device import DeviceBackend
from impl.distributed.engine import Ranks, said
from impl.distributed.monitor import ROLL
from impl.errors import DistributedError
from impl.host import np
from impl.multi import NOTED

#: Bytes that tell a GPU from all others.
_UUID = 16


class RankClique:
    """The GPU of this process, and those of the other processes of a group."""

    def __init__(self, ranks: Ranks, device: CUDADevice, unique: nccl.UniqueId) -> None:
        found, count = nccl.library(), len(ranks.members)
        assert found is not None
        self.ranks, self.device = ranks, device
        self.clique: nccl.Clique = ranks.called(
            lambda: nccl.Clique(found, {ranks.place: device}, count, unique))

    def run(self, given: Sequence[Exchange]) -> None:
        """Carry out collectives, after one note, and wait until the GPU has done them.

        Raises:
            DistributedError: not all have come to them, or through them; then they are given up.
            DeviceError: NCCL has refused one.
        """
        # r[impl distributed.nccl.calls]
        self.ranks.met("; ".join(f"{said(transfer, dtype, nbytes)} by NCCL"
                                 for transfer, _, nbytes, dtype in given))
        try:
            self.ranks.called(lambda: self._run(given))
        except DistributedError:  # r[impl distributed.nccl.ended]
            # Nobody knows how long that takes, and nothing is done on this GPU any more.
            given_up = threading.Thread(target=self.clique.abort, daemon=True)
            given_up.start()
            given_up.join(ROLL)
            raise

    def _run(self, given: Sequence[Exchange]) -> None:
        place = self.ranks.place
        with self.clique.library.together():
            for transfer, (source, target), nbytes, dtype in given:
                self.clique.exchange(transfer, {place: target.members[0]},
                                     {place: source.members[0]}, nbytes, dtype)
        self.device.synchronize()


def clique_of(ranks: Ranks, device: DeviceBackend) -> RankClique | None:
    """The clique of the GPUs of a group; None where NCCL is not used, or cannot be: where one
    process has no NCCL, or two have one GPU.
    """
    if not isinstance(device, CUDADevice) or not settings.get("NCCL"):
        return None
    if (ranks.name, device.name) not in _cliques:
        _cliques[ranks.name, device.name] = _made(ranks, device)
    return _cliques[ranks.name, device.name]


_cliques: dict[tuple[str, str], RankClique | None] = {}


def _made(ranks: Ranks, device: CUDADevice) -> RankClique | None:
    found, unique = nccl.library(), nccl.UniqueId()
    if found is not None and ranks.place == 0:
        found.call("ncclGetUniqueId", ctypes.byref(unique))
    # What is needed goes with one note: whether there is NCCL, which GPU it is, the clique's name.
    mine = ranks.given
    mine[0] = found is not None
    mine[1:1 + _UUID] = np.frombuffer(device.uuid, np.uint8)
    name = slice(1 + _UUID, 1 + _UUID + ctypes.sizeof(unique))
    mine[name] = np.frombuffer(bytes(unique), np.uint8)
    ranks.met("a clique of NCCL", NOTED)
    rows: Any = ranks.found.copy()
    if not rows[:, 0].all() or len({row[1:1 + _UUID].tobytes() for row in rows}) < len(rows):
        return None
    return RankClique(ranks, device, nccl.UniqueId.from_buffer_copy(rows[0][name].tobytes()))
