"""What runs leave for later ones: blocks, what waits to be run, who is told of what is done."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from impl.effects import Buffer
from impl.places import ANYWHERE, Place

if TYPE_CHECKING:
    from impl.device import Memory, Program
    from impl.effects import Effects
    from impl.ir import UOp
    from impl.loops import LoopInfo
    from impl.ranges import LoopTask
    from impl.schedule import Plan

Document = dict[str, Any]


class Scheduled(Protocol):
    """A kernel that the caller was given to run."""

    done: bool
    bufs: list[Buffer]
    writes: list[Buffer]

    def run(self) -> float:
        """Run the kernel; the time in seconds."""


class Printer(Protocol):
    """What prints for DEBUG: `impl.inspect.debug`, which stands above this chapter."""

    def print_schedule(self, plan: Plan, nodes: Sequence[UOp], hit: bool, seconds: float,
                       debug: int) -> None:
        """A schedule that was made or found."""

    def print_programs(self, compiled: int, on_disk: int, in_memory: int) -> None:
        """Where the programs of a plan came from."""

    def print_kernel(self, plan: Plan, number: int, nodes: Sequence[UOp],
                     program: Program | None, seconds: float, operations: int, moved: int,
                     debug: int) -> None:
        """A kernel that ran."""


class _Capturing(threading.local):
    """The captures under way in this thread; each is told of every run.

    `inlined` counts these and the transforms that trace a function: within them a captured function
    is a part of the function around it.
    """

    def __init__(self) -> None:
        self.observers: list[Any] = []
        self.inlined = 0

    @contextmanager
    def inlining(self) -> Iterator[None]:
        """Within it a captured function runs as it is."""
        self.inlined += 1
        try:
            yield
        finally:
            self.inlined -= 1

    @contextmanager
    def observed(self, observer: Any) -> Iterator[None]:
        """Within it an observer is told of every run."""
        with self.inlining():
            self.observers.append(observer)
            try:
                yield
            finally:
                self.observers.remove(observer)


class Session:
    """What is kept from one run to the next, besides tensors, plans and what is known of graphs.

    `viewers` are given the document of every schedule with VIZ=1, what adds to it how its
    kernels are compiled, once they are, and what adds the user's names; `checkers` that of every
    plan that is made with SPEC=1, and raise if it is wrong. With CAPTURE_PROCESS_REPLAY=1
    `schedule_recorders` are given each schedule, and `program_recorders` each plan with programs.
    `printer` gives what prints for DEBUG.
    """

    def __init__(self) -> None:
        self.arenas: dict[Place, Memory] = {}  # by device: the block for temporaries
        self.scheduled: list[Scheduled] = []  # what the caller has not run yet
        self.first: set[UOp] = set()  # what is computed now, since others wait for it
        self.capturing = _Capturing()
        self.default = ANYWHERE  # the default device of the last time that values were asked for
        self.printer: Callable[[], Printer]  # set by the package
        self.names: Callable[[], dict[Any, str]] = dict  # the user's, of buffers and nodes
        self.run_loop: Callable[[LoopTask, Sequence[Memory]], None]  # set by `looping`, which plans
        self.prepare_loop: Callable[[LoopInfo, Place], None]  # by it, too
        self.spans: list[Any] | None = None  # of each kernel when it ran, if somebody measures
        self.viewers: list[Callable[[Document, Callable[[], None], Callable[[], None]], None]] = []
        self.checkers: list[Callable[[Document], None]] = []
        self.schedule_recorders: list[Callable[[Effects, Plan], None]] = []
        self.program_recorders: list[Callable[[Plan], None]] = []

    def run_scheduled(self) -> None:
        """Run what was scheduled and not run, before anything can observe that it was not."""
        while self.scheduled:
            item = self.scheduled[0]
            if not item.done:  # r[impl realize.schedule.once]
                item.run()
            if self.scheduled and self.scheduled[0] is item:  # no nested run was quicker
                self.scheduled.pop(0)

    def given_up(self, item: Scheduled) -> Iterator[Buffer]:
        """Nobody runs an item that failed, or one after it: what they write cannot be read."""
        # r[impl realize.failure.left+2]
        left = [item]
        if any(each is item for each in self.scheduled):
            left = [each for each in self.scheduled if not each.done]
            self.scheduled.clear()
        for each in left:
            each.done = True
            yield from each.writes

    def refuse_capture(self, does: str, remedy: str) -> None:
        """Note, if this thread captures a function, that a replay could not do what is done."""
        for observer in self.capturing.observers:
            observer.refuse(does, remedy)


session = Session()
