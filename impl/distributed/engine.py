"""Collectives of several processes, with a limit of time. Chapter: spec/distributed.md.

Before each collective the processes of a group tell each other what they are about to do. So none
takes part in another one's, and who does not come is known by name.
"""
from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from impl.distributed.monitor import Waiting
from impl.distributed.ranks import monitor, ranks
from impl.dtypes import DType
from impl.errors import DistributedError, user_line
from impl.host import np
from impl.multi import NOTED, Transfer

#: Bytes at the head of a note: which collective it is, as a digest, and its number. Behind it is
#: what goes with it.
_DIGEST = 16
#: Bytes of what a process says of a collective, where they differ; of what `all_gather` is given.
_TOLD, _SHARED = 512, 1000


class Ranks:
    """Some processes, in an order; this one is among them."""

    def __init__(self, members: Sequence[int]) -> None:
        found = monitor()
        assert found is not None
        self.monitor, self.members, self.count, self.what = found, list(members), 0, ""
        self.name = ",".join(map(str, members))
        self.place = self.members.index(found.rank)
        self.note = np.zeros(_DIGEST + NOTED, np.uint8)
        self.notes = np.zeros((len(self.members), _DIGEST + NOTED), np.uint8)
        #: What this process gives with its note, and what all have given, in a row for each.
        self.given, self.found = self.note[_DIGEST:], self.notes[:, _DIGEST:]
        self._head, self._heads = self.note.data[:_DIGEST], self.notes[:, :_DIGEST]

    @functools.cached_property
    def comm(self) -> Any:
        """The group's communicator; the first time all of the group have to come."""
        self.monitor.open(self.waiting)
        world = self.monitor.comm
        if len(self.members) == self.monitor.size:
            return world
        group = world.Get_group().Incl(self.members)
        return self.monitor.call(lambda: world.Create_group(group), self.waiting)

    @functools.cached_property
    def noting(self) -> Any:
        """What sends the notes, begun anew for each collective; None where MPI is older than 4."""
        comm = self.comm
        if self.monitor.mpi.VERSION < 4:
            return None
        return self.monitor.call(lambda: comm.Allgather_init(self.note, self.notes), self.waiting)

    def waiting(self, verb: str = "come to") -> Waiting:
        """What this process waits for; made when somebody asks, as most waits are short."""
        return Waiting(self.name, self.members, self.count, self.what, user_line(), verb)

    def met(self, what: str, given: int = 0) -> None:
        """Wait until all are about to do the same, and give the same number of bytes with it: the
        first of `self.given`, at most `NOTED`. Those of all are in `self.found` then.

        Raises:
            DistributedError: one has not come in time, or is about to do something else.
        """
        if self.monitor.failed is not None:  # r[impl distributed.error.final]
            raise self.monitor.failed
        self.count, self.what = self.count + 1, what
        self._head[:] = digest = _digest(what, given) + self.count.to_bytes(8, "little")
        request = self.noting
        if request is None:
            request = self.comm.Iallgather(self.note, self.notes)
        else:
            request.Start()
        if not request.Test():
            self.monitor.wait([request], self.waiting)
        self.monitor.counts[self.name] = self.count
        if self._heads.tobytes() != digest * len(self.members):
            raise self._differ()

    def _differ(self) -> DistributedError:
        """The error for those whose notes are not those of most; all tell what they are up to."""
        told, texts = bytearray(_TOLD), np.zeros((len(self.members), _TOLD), np.uint8)
        text = f"{self.what[:300]} at collective {self.count} ({user_line()[-150:]})"
        mine = text.encode()[:_TOLD]
        told[:len(mine)] = mine
        self.monitor.wait([self.comm.Iallgather(told, texts)], self.waiting)
        does = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in texts]
        few = strangers([bytes(note[:_DIGEST]) for note in self.notes], self.place)
        rest = next(place for place in range(len(does)) if place not in few)
        # r[impl distributed.other.named]
        others = "; ".join(f"rank {self.members[place]} is about to do something else: "
                           f"{does[place]}" for place in few)
        return self.monitor.fail(self.waiting(), f"at collective {self.count} {others}. Rank "
                                 f"{self.members[rest]} is about to do {does[rest]}",
                                 "let all ranks run the same program")

    def done(self, *requests: Any) -> None:
        """Wait for collectives that all have come to."""
        self.monitor.wait(requests, self._under_way)

    def called(self, work: Callable[[], Any]) -> Any:
        """What a call answers that returns when all others have made it; all have come to it.

        Raises:
            Exception: what the call has raised.
        """
        return self.monitor.call(work, self._under_way)

    def _under_way(self) -> Waiting:
        return self.waiting("gone through")

    def shifted(self, given: np.ndarray, result: np.ndarray, shift: int) -> None:
        """The bytes of the one that stands so many places before this one."""
        count = len(self.members)
        coming = self.comm.Irecv(result, (self.place - shift) % count)
        self.done(self.comm.Isend(given, (self.place + shift) % count), coming)

    def all(self, given: np.ndarray, result: np.ndarray) -> None:
        """The bytes of all, one behind the other."""
        self.done(self.comm.Iallgather(given, result))

    def exchanged(self, given: np.ndarray, result: np.ndarray) -> None:
        """Piece i of the bytes of rank j becomes piece j of rank i."""
        self.done(self.comm.Ialltoall(given, result))


def all_gather(purpose: str, given: bytes) -> list[bytes]:
    """What all processes give, at most 1,000 bytes each, once all have come with this purpose.

    Raises:
        DistributedError: one has not come in time, or is about to do something else.
    """
    if ranks() == 1:
        return [given[:_SHARED]]
    everybody = group(tuple(range(ranks())))
    everybody.met(purpose)
    mine = np.frombuffer(given[:_SHARED].ljust(_SHARED, b"\0"), np.uint8)
    found = np.empty((ranks(), _SHARED), np.uint8)
    everybody.all(mine, found)
    return [bytes(row).rstrip(b"\0") for row in found]


@functools.cache
def group(members: tuple[int, ...]) -> Ranks:
    """The group of some processes: one, whichever mesh it belongs to."""
    return Ranks(members)


@functools.lru_cache(1024)
def _digest(what: str, given: int) -> bytes:
    """What is about to be done, and how many bytes of it go with the note."""
    return hashlib.blake2b(f"{what} {given}".encode(), digest_size=_DIGEST - 8).digest()


def strangers(notes: Sequence[bytes], place: int) -> list[int]:
    """The places of those whose notes are not those of most, as `place` names them."""
    most = max(notes, key=notes.count)  # of equally many the first one's
    few = [other for other, note in enumerate(notes) if note != most]
    if notes.count(most) == len(few):  # nobody can say who is wrong: it is the others
        few = [other for other, note in enumerate(notes) if note != notes[place]]
    return few


def said(transfer: Transfer, dtype: DType, *sizes: int) -> str:
    """What a process says of a transfer before it takes part: all that decides what comes of it."""
    # r[impl distributed.other.named]
    how = f" ({transfer.op.name.lower()})" if transfer.op is not None else \
        f" by {transfer.shift}" * bool(transfer.shift)
    return f"{transfer.kind}{how} over {transfer.axis} of {', '.join(map(str, sizes))} bytes of " \
        f"{dtype.name}"
