"""What a plan is: everything that a run needs. Chapter: spec/schedule.md."""
from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from impl.dependencies import Accesses, Dependency, Touch
from impl.dtypes import DType
from impl.fusion import FusionLimits, Kernel
from impl.ir import Shape, UOp
from impl.memory import MemoryPlan
from impl.multi import Mesh, Transfer
from impl.places import Place
from impl.ranges import Task
from impl.symbolic import plain

if TYPE_CHECKING:
    from impl.device import Program
    from impl.realize import Prepared


@dataclass(frozen=True)
class Storage:
    """Memory that a plan uses. Its `size` in elements may be an Extent: other in each call.

    `kind` is 'input' (slot `slot` of the call's buffers), 'output' (a new buffer), or 'temporary'
    (a place in the arena of `device`).
    """

    number: int
    kind: str
    dtype: DType
    size: int
    device: Place
    slot: int = -1

    @property
    def nbytes(self) -> int:
        """Size in bytes; of a symbolic size the greatest that it can be."""
        return plain(self.size) * self.dtype.itemsize  # r[impl memory.size.greatest]


@dataclass(frozen=True)
class Result:
    """Where a root's value is after the run, and its shape."""

    storage: int
    shape: Shape


@dataclass(kw_only=True)
class PlannedKernel(Kernel):
    """A kernel with its accesses to memory of the schedule, and the user's line."""

    reads: list[Touch]
    writes: list[Touch]
    slots: tuple[int, ...]  # which values of the call its variables take
    origins: list[int]      # places of its nodes in the graph
    stages: int
    fusion: str             # what its stages have in common; empty for one stage

    @property
    def name(self) -> str:
        """The name in a profile: the loop, the transfer, or the loops of a kernel."""
        return str(self.loop or self.transfer or self.ast.arg.name)


@dataclass(kw_only=True)
class Plan:
    """Everything that a run needs, with buffers and variables as slots.

    What it says does not change once it is made. Whoever runs it first keeps two things in it for
    the next run: `programs`, and `prepared` of a plan that is one kernel.
    """

    kernels: list[PlannedKernel]
    storages: dict[int, Storage]
    order: list[int]
    results: list[Result]
    dependencies: list[Dependency]
    memories: dict[Place, MemoryPlan]
    written: dict[int, int]                       # input storage -> how many versions it gains
    boundaries: list[tuple[int, int, int, str]]   # kernel, kernel, storage, reason
    notes: list[str]                              # which writes cost a copy, and why
    key: tuple[Any, ...]
    unknowns: list[UOp]                           # per slot of a value: its variable in sizes
    under_way: dict[int, int]                     # of a transfer beside kernels: its last position
    programs: list[Program | None] | None = None  # filled by whoever runs the plan,
    prepared: Prepared | None = None              # and this by whoever may run it again at once

    @property
    def accesses(self) -> Accesses:
        """What each kernel reads and writes."""
        return [(kernel.reads, kernel.writes) for kernel in self.kernels]

    @cached_property
    def touched(self) -> list[int]:
        """The storages that the kernels take as arguments, in the order in which they run."""
        return list(dict.fromkeys(s for n in self.order for s in self.kernels[n].arguments))

    @cached_property
    def inputs(self) -> list[tuple[int, int]]:
        """The storages that are buffers of the call, each with its slot."""
        return [(s.number, s.slot) for s in self.storages.values() if s.kind == "input"]

    @cached_property
    def made(self) -> list[tuple[int, Place, DType, int, bool]]:
        """The storages for which each run has a new buffer: results, and what kernels hand on.

        Number, device, dtype and size, and whether it is a result.
        """
        touched = set(self.touched)
        return [(s.number, s.device, s.dtype, s.size, s.kind == "output")
                for s in self.storages.values()
                if s.kind == "output" or s.kind == "temporary" and s.number in touched]

    @cached_property
    def launches(self) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """The kernels in order: their numbers, arguments, and the slots of their values."""
        return [(n, self.kernels[n].arguments, self.kernels[n].slots) for n in self.order]

    @cached_property
    def stretches(self) -> list[tuple[Place | None, list[int]]]:
        """The kernels in order, in runs that are in the lanes of one mesh, or in none.

        Empty where nothing is sent beside kernels.
        """
        found: list[tuple[Place | None, list[int]]] = []
        if not self.under_way:
            return found
        for number in self.order:
            kernel = self.kernels[number]
            mesh = kernel.device if lane(kernel.task, kernel.device) else None
            if not found or found[-1][0] != mesh:
                found.append((mesh, []))
            found[-1][1].append(number)
        return found

    @cached_property
    def awaited(self) -> dict[int, list[int]]:
        """Of each kernel, or transfer, that waits for transfers beside it, which ones."""
        found: dict[int, list[int]] = {}
        for d in self.dependencies:
            if d.before in self.under_way:
                found.setdefault(d.after, []).append(d.before)
        return found

    @cached_property
    def places(self) -> list[int]:
        """The storages of the results."""
        return [result.storage for result in self.results]


def lane(task: Task | None, device: Place) -> str:
    """The lane of a kernel on a mesh: "compute", or "copy" of a transfer; "" of what has none."""
    if isinstance(task, Transfer):
        return "copy" if task.is_within else ""
    return "compute" if task is None and isinstance(device, Mesh) else ""


@dataclass(frozen=True)
class Environment:
    """What the devices and the settings ask of a plan."""

    default_device: Place
    limits: FusionLimits
    fuse: bool = True
    reuse: bool = True
    overlap: bool = False
    order_seed: int | None = None
    device_key: Hashable = ""
