"""What the processes of a job know of each other, and how they wait. Chapter: spec/distributed.md.

MPI says nothing of a process that hangs. So nobody waits for MPI without looking up: whether a
process of this machine has ended or was stopped says its system; whether one has ended its program
it says itself; and when time is up, those who wait call the roll, and who does not answer is it.
"""
from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from impl import settings
from impl.errors import DistributedError, user_line

#: Seconds in which those who wait as well answer when the roll is called.
ROLL = 2.0
#: How often a request is asked whether it is done, before anybody looks up.
_TURNS = 200
#: Seconds between two looks around, and after which a process that waits leaves its processor.
_LOOK, _PATIENCE = 0.05, 0.02
#: The tag of what is said beside the program's own messages, on a communicator of its own.
_TAG = 11
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


@dataclass(frozen=True)
class Waiting:
    """What a process waits for: all `members` of a group to come to, or through, a collective."""

    group: str
    members: Sequence[int]
    number: int
    what: str
    line: str
    verb: str = "come to"

    def __str__(self) -> str:
        return f"{self.what} at collective {self.number} ({self.line})"


@dataclass(frozen=True)
class Said:
    """What a process tells all others: that it waits, or that its program has ended."""

    waiting: Waiting | None = None
    ended: bool = False
    error: str = ""
    counts: dict[str, int] = field(default_factory=dict)  # of the collectives of each group


class Monitor:
    """One process of a job, and what it knows of the others."""

    def __init__(self, mpi: Any) -> None:
        self.mpi, self.process = mpi, os.getpid()
        world = mpi.COMM_WORLD
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self.others = [rank for rank in range(self.size) if rank != self.rank]
        self.comm, self._opening = world.Idup()
        # Who has not opened it is known by the card that did not come.
        self._sent = [world.isend(_card(), rank, _TAG) for rank in self.others]
        self._coming = {rank: world.irecv(source=rank, tag=_TAG) for rank in self.others}
        self.cards: dict[int, tuple[str, int]] = {}
        self.said: dict[int, Said] = {}
        self.counts: dict[str, int] = {}
        self.failed: DistributedError | None = None
        self.error, self._answered = "", False

    # ------------------------------------------------------------ waiting

    def wait(self, requests: Sequence[Any], waiting: Callable[[], Waiting]) -> None:
        """Wait until all requests are done; `waiting` says what for, when it takes long.

        Raises:
            DistributedError: somebody has ended, or the time is up.
        """
        # MPICH refuses a collective that is begun anew among several, though not by itself.
        done = requests[0].Test if len(requests) == 1 else \
            partial(self.mpi.Request.Testall, requests)
        for _ in range(_TURNS):
            if done():
                return
        self._until(done, waiting())

    def open(self, waiting: Callable[[], Waiting]) -> None:
        """Wait until all processes are there."""
        if self._opening is not None:
            self._until(self._opened, waiting())

    def call(self, work: Callable[[], Any], waiting: Callable[[], Waiting]) -> Any:
        """What a call answers that only returns when others make it too.

        Raises:
            DistributedError: somebody has ended, the time is up, or MPI refuses.
            Exception: what else the call has raised.
        """
        found, errors = list[Any](), list[Exception]()

        def run() -> None:
            try:
                found.append(work())
            except Exception as error:  # raised where the call was asked for
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._until(lambda: not thread.is_alive(), waiting())
        if not errors:
            return found[0]
        if isinstance(errors[0], self.mpi.Exception):
            raise self.fail(waiting(), f"MPI says: {errors[0]}", "see what the other ranks say")
        raise errors[0]

    def _until(self, done: Callable[[], Any], waiting: Waiting) -> None:
        begun = looked = time.monotonic()
        limit = settings.get("DISTRIBUTED_SECONDS")
        try:
            while not done():
                _yield()
                now = time.monotonic()
                if now - looked > _LOOK:
                    self._look(waiting, now - begun > limit)
                    looked = now
                if now - begun > _PATIENCE:  # the processor may be needed elsewhere
                    time.sleep(0.0002 if now - begun < 1 else 0.002)
        except self.mpi.Exception as error:  # one has ended: who it is shows in a moment
            self._find(waiting, f"MPI says: {error}")

    def _opened(self) -> bool:
        """Whether the communicator is there, and the cards of all."""
        for rank, coming in list(self._coming.items()):
            here, card = coming.test()
            if here:
                self.cards[rank] = card
                del self._coming[rank]
        if self._coming or not self._opening.Test():
            return False
        self._opening = None
        self.comm.Set_errhandler(self.mpi.ERRORS_RETURN)
        return True

    # ------------------------------------------------------------ looking

    def _look(self, waiting: Waiting, late: bool) -> None:
        """Raise if what is waited for will not come."""
        self._hear()
        for rank, said in self.said.items():  # r[impl distributed.end.named+2]
            if said.error:
                raise self.fail(waiting, f"rank {rank} has ended its program, so collective "
                                f"{waiting.number} ({waiting.line}) cannot be done; it said: "
                                f"{said.error}", "see what it says itself")
            if said.ended and rank in waiting.members \
                    and said.counts.get(waiting.group, 0) < waiting.number:
                raise self.fail(waiting, f"rank {rank} has ended its program without "
                                f"collective {waiting.number} ({waiting.line})", _SAME)
        dead = [rank for rank in self.others if self._lost(rank)]
        if dead:  # r[impl distributed.end.named+2]
            raise self.fail(waiting, f"{_ranks(dead)} was killed or has crashed (process "
                            f"{', '.join(str(self.cards[rank][1]) for rank in dead)}) before "
                            f"collective {waiting.number} ({waiting.line}) was done",
                            "see what it said last, and whether its machine ran out of memory")
        if late or any(said.waiting for said in self.said.values()):
            self._call_the_roll(waiting)

    def _find(self, waiting: Waiting, why: str) -> None:
        """Raise: who is it that MPI complains of?"""
        deadline = time.monotonic() + ROLL
        while time.monotonic() < deadline:
            self._look(waiting, False)
            time.sleep(_LOOK)
        raise self.fail(waiting, why, "see what the other ranks say")

    def _call_the_roll(self, waiting: Waiting) -> None:
        """Raise, with the names of those that neither wait nor have come."""
        self._tell(Said(waiting))
        deadline = time.monotonic() + ROLL
        while time.monotonic() < deadline and len(self.said) < len(self.others):
            self._hear()
            time.sleep(0.01)
        silent = [rank for rank in self.others if rank not in self.said]
        if self._opening is not None:  # nobody can be heard before
            silent = list(self._coming) or silent
        # r[impl distributed.late.named+3]
        who = [rank for rank in silent if rank in waiting.members] or silent
        if who:
            stopped = [rank for rank in who if self.state(rank) == "T"]
            raise self.fail(
                waiting, f"{_ranks(who)} has not {waiting.verb} collective "
                f"{waiting.number} ({waiting.line}) within {settings.get('DISTRIBUTED_SECONDS')} s"
                + f"; {_ranks(stopped)} is stopped by a signal" * bool(stopped),
                f"look at what it said last; {_SAME}")
        others = "; ".join(f"rank {rank} waits for {said.waiting}"
                           for rank, said in sorted(self.said.items()) if said.waiting)
        raise self.fail(waiting, f"collective {waiting.number} ({waiting.line}) was not done "
                        f"within {settings.get('DISTRIBUTED_SECONDS')} s: "
                        + (others or "all wait"), _SAME)

    def state(self, rank: int) -> str:
        """The state of a process of this machine, as Linux writes it; empty if it is not known."""
        place, process = self.cards.get(rank, ("", 0))
        if place != _place():
            return ""
        try:
            with open(f"/proc/{process}/stat", encoding="latin-1") as file:
                return file.read().rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    def _lost(self, rank: int) -> bool:
        """Whether a process has gone, and its program did not end."""
        return not (rank in self.said and self.said[rank].ended) and self.state(rank) in ("X", "Z")

    def fail(self, waiting: Waiting, detail: str, remedy: str) -> DistributedError:
        """The error; after it this process takes part in nothing any more."""
        self.failed = DistributedError(waiting.what, detail, remedy)
        return self.failed

    # ------------------------------------------------------------ saying

    def _tell(self, said: Said) -> None:
        """Tell all others, once."""
        if not (said.waiting and self._answered) and self._opening is None:
            self._answered = self._answered or said.waiting is not None
            self._sent += [self.comm.isend(said, rank, _TAG) for rank in self.others]

    def _hear(self) -> None:
        """Take what others have said."""
        status = self.mpi.Status()
        while self._opening is None:
            message = self.comm.improbe(self.mpi.ANY_SOURCE, _TAG, status)
            if message is None:
                return
            self.said[status.source] = message.recv()

    def end(self) -> None:
        """The program is over: say so, and wait until it is over everywhere.

        Who ends after an error waits for a limited time. Processes that hang are ended then.
        """
        if os.getpid() != self.process or self.mpi.Is_finalized():
            return
        self.error = self.error or str(self.failed or "")
        waiting = Waiting("", self.others, 0, "exit", user_line())
        limit, broken = settings.get("DISTRIBUTED_SECONDS"), bool(self.error)
        deadline = time.monotonic() + limit
        while self._opening is not None and not self._opened():
            if time.monotonic() > deadline or any(self._lost(rank) for rank in self.cards):
                return self._abort()
            time.sleep(0.001)
        self._tell(Said(None, True, self.error, self.counts))
        deadline = time.monotonic() + limit + ROLL
        while True:
            self._hear()
            broken = broken or any(said.error for said in self.said.values())
            left = [rank for rank in self.others
                    if not (rank in self.said and self.said[rank].ended)]
            hanging = [rank for rank in left if self.state(rank) in ("X", "Z", "T")]
            if not left or broken and left == hanging:
                break
            if time.monotonic() > deadline:
                if hanging and not broken:  # r[impl distributed.late.named+3]
                    print(self.fail(waiting, f"{_ranks(hanging)} does not come to its end",
                                    "see what it said last"), file=sys.stderr)
                    broken = True
                if broken:
                    break
            time.sleep(0.001)
        if broken:
            self._abort()

    def _abort(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_LOOK)  # what others have said goes through the launcher
        self.mpi.COMM_WORLD.Abort(1)


#: What most of these errors come from.
_SAME = "all ranks have to run the same program and ask for the same values"


def _ranks(numbers: Iterable[int]) -> str:
    return "rank " + ", ".join(map(str, numbers))


def _place() -> str:
    """Where numbers of processes mean the same."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"  # nothing can be said of others


def _card() -> tuple[str, int]:
    return _place(), os.getpid()


def begin_monitor(mpi: Any) -> Monitor:
    """The watch of this process, which is told how its program ends."""
    monitor, before = Monitor(mpi), sys.excepthook

    def said(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        sys.stderr.flush()
        monitor.error = f"{kind.__name__}: {error}"[:1000]

    sys.excepthook = said
    atexit.register(monitor.end)
    return monitor
