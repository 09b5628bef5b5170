"""A plan in the making: what the passes have found out so far. Chapter: spec/schedule.md."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from impl.caching import Canonical
from impl.dependencies import Accesses, Dependency, touched_storages
from impl.effects import Effects
from impl.fusion import Cuts, Group, Grouping, private_storages
from impl.ir import Shape
from impl.memory import MemoryPlan, aligned
from impl.memory.takeovers import Takeovers
from impl.placement import Placement
from impl.places import Place
from impl.ranges import StageGraph
from impl.schedule.plan import Environment, PlannedKernel, Storage, lane


@dataclass(eq=False)
class Draft:
    """A plan under construction. Each field is written once, by the pass that is named beside it.

    A field that no pass has written yet cannot be read. The properties are tables that follow from
    the fields; each is made when somebody asks for it first.
    """

    effects: Effects          # what is asked for, with every size for all values
    canonical: Canonical
    environment: Environment

    cuts: Cuts = field(init=False)                       # cut
    graph: StageGraph = field(init=False)                # make_stages
    results: list[tuple[int, Shape]] = field(init=False)
    placed: Placement = field(init=False)                # place: each value once
    fused: Grouping = field(init=False)                  # fuse
    late: list[Group] = field(init=False)                # make_late
    placement: Placement = field(init=False)             # with what is computed again
    grouping: Grouping = field(init=False)               # split
    accesses: Accesses = field(init=False)               # find_hazards
    waits: list[Dependency] = field(init=False)
    order: list[int] = field(init=False)                 # put_in_order
    takeovers: Takeovers = field(init=False)             # take_over
    dependencies: list[Dependency] = field(init=False)
    under_way: dict[int, int] = field(init=False)        # lay_out
    memories: dict[Place, MemoryPlan] = field(init=False)
    kernels: list[PlannedKernel] = field(init=False)     # assemble

    def __setattr__(self, name: str, value: Any) -> None:
        # r[impl schedule.passes.pure+3]
        if name in self.__dict__:
            raise AttributeError(f"{name} was written by an earlier pass, and is not written again")
        super().__setattr__(name, value)

    @property
    def groups(self) -> Sequence[Group]:
        """The kernels as they stay."""
        return self.grouping.groups

    @cached_property
    def storages(self) -> dict[int, Storage]:
        """What kind of memory each storage is, before any is taken over."""
        placement, slots = self.placement, self.canonical.buffers
        slot_of = {buffer: slot for slot, buffer in enumerate(slots)}
        storages: dict[int, Storage] = {}
        for value in placement.values:
            number = placement.storage[value.number]
            if number != value.number:
                continue  # a later version of another value's memory
            kind = "input" if value.leaf else "output" if number in placement.kept else "temporary"
            slot = slot_of[value.node.arg[0]] if value.leaf else -1  # r[impl schedule.plan.slots]
            storages[number] = Storage(number, kind, value.node.dtype, math.prod(value.shape),
                                       value.device, slot)
        return storages

    @cached_property
    def temporary_bytes(self) -> dict[int, int]:
        """The bytes that each temporary takes in memory: whatever reckons with them has these."""
        return {n: aligned(s.nbytes) for n, s in self.storages.items() if s.kind == "temporary"}

    @cached_property
    def private(self) -> set[int]:
        """The temporaries that are local buffers of one kernel."""
        return private_storages(self.groups, self.placement)

    @cached_property
    def crossing_bytes(self) -> dict[int, int]:
        """The bytes of the temporaries that pass from kernel to kernel."""
        return {n: size for n, size in self.temporary_bytes.items() if n not in self.private}

    @cached_property
    def lanes(self) -> list[str]:
        """Where each kernel runs: "compute" or "copy" of the devices of a mesh, or "" in none."""
        return [lane(group.members[0].stage.task, group.device) if self.environment.overlap else ""
                for group in self.groups]

    @cached_property
    def touched(self) -> list[list[int]]:
        """The storages that each kernel touches, before any is taken over."""
        return touched_storages(self.accesses)
