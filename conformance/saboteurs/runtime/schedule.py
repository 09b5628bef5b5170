"""From statements that wait to a plan: kernels, their order, the places of temporaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np

from conformance.saboteurs.runtime import operations
from conformance.saboteurs.runtime.operations import Array, Statement

ALIGNMENT = 64


@dataclass(eq=False)
class Buffer:
    """Memory for the elements of a value. `version` counts writes, those that wait too."""

    dtype: str
    shape: tuple[int, ...]
    array: Array | None = None  # flat, once it is computed
    version: int = 0

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class View:
    """A value as a variable has it: a buffer, and what moves its elements."""

    buffer: Buffer
    steps: tuple[Statement, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return operations.moved(self.steps, np.empty(self.buffer.shape, bool)).shape


@dataclass(eq=False)
class Task:
    """A statement that waits, with what it reads and what it writes."""

    statement: Statement
    reads: tuple[View, ...]
    target: Buffer
    version: int
    seen: tuple[int, ...]  # the versions of what it reads


@dataclass
class Slot:
    """A buffer of a plan, by number."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    before: bool  # it has elements before the plan runs
    held: bool    # somebody may look at it afterwards
    private: bool = False


@dataclass
class Step:
    """A task of a plan: slots in place of buffers, versions counted from the plan's beginning."""

    statement: Statement
    reads: list[tuple[int, int, list[Statement]]]
    target: int
    version: int
    shape: tuple[int, ...]


@dataclass
class Plan:
    """What can be run again with other buffers."""

    slots: list[Slot]
    steps: list[Step]
    kernels: list[list[int]]
    dependencies: list[dict[str, Any]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)
    arena: int = 0
    key: str = ""


def needed(tasks: Sequence[Task], held: set[Buffer]) -> list[Task]:
    """The tasks whose results somebody may look at, or that such a task reads."""
    wanted, kept = set(held), list[Task]()
    for task in reversed(tasks):
        if task.target in wanted:
            kept.append(task)
            wanted.update(view.buffer for view in task.reads)
    return kept[::-1]


def canonical(tasks: Sequence[Task], held: set[Buffer],
              ) -> tuple[list[Buffer], list[Slot], list[Step]]:
    """The tasks without names and addresses."""
    numbers: dict[Buffer, int] = {}
    for task in tasks:
        for buffer in (*(view.buffer for view in task.reads), task.target):
            numbers.setdefault(buffer, len(numbers))
    base: dict[Buffer, int] = {}  # the version from before the first of these tasks
    for task in tasks:
        for view, seen in zip(task.reads, task.seen, strict=True):
            base.setdefault(view.buffer, seen)
        base.setdefault(task.target, task.version - 1)
    slots = [Slot(each.dtype, each.shape, each.bytes, each.array is not None, each in held)
             for each in numbers]
    steps = [Step({key: value for key, value in task.statement.items()
                   if key not in ("to", "from", "target")},
                  [(numbers[view.buffer], seen - base[view.buffer], list(view.steps))
                   for view, seen in zip(task.reads, task.seen, strict=True)],
                  numbers[task.target], task.version - base[task.target],
                  task.target.shape) for task in tasks]
    return list(numbers), slots, steps


def key_of(slots: Sequence[Slot], steps: Sequence[Step], settings: dict[str, Any]) -> str:
    told = [[vars(each) for each in slots], [vars(each) for each in steps], settings]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def planned(slots: list[Slot], steps: list[Step], settings: dict[str, Any], key: str,
            fuse: Callable[[Sequence[Step]], list[list[int]]]) -> Plan:
    """All decisions; `fuse` says which steps are a kernel."""
    kernels = alone(steps) if settings.get("NO_FUSION") else fuse(steps)
    plan = Plan(slots, steps, kernels, key=key)
    for number, slot in enumerate(slots):
        users = [index for index, kernel in enumerate(kernels)
                 if any(number in uses(steps[each]) for each in kernel)]
        slot.private = not slot.held and not slot.before and len(users) == 1
    plan.dependencies = hazards(plan)
    return in_order(plan, ordered(plan), settings)


def in_order(plan: Plan, order: list[int], settings: dict[str, Any]) -> Plan:
    """The plan with this order, and memory for it."""
    plan = replace(plan, order=order)
    plan.places = placed(plan, not settings.get("NO_MEMORY_PLANNER"))
    plan.arena = max((each["offset"] + each["bytes"] for each in plan.places), default=0)
    return plan


def uses(step: Step) -> set[int]:
    return {step.target, *(slot for slot, _, _ in step.reads)}


def alone(steps: Sequence[Step]) -> list[list[int]]:
    """Each step is a kernel."""
    return [[index] for index in range(len(steps))]


def together(steps: Sequence[Step]) -> list[list[int]]:
    """All steps are one kernel."""
    return [list(range(len(steps)))]


def fused(steps: Sequence[Step]) -> list[list[int]]:
    """Kernels: an elementwise step joins the one before it if their loops are the same."""
    kernels: list[list[int]] = []
    for index, step in enumerate(steps):
        last = kernels[-1] if kernels else []
        if last and loops_alike(steps, last, step):
            last.append(index)
        else:
            kernels.append([index])
    return kernels


def loops_alike(steps: Sequence[Step], kernel: Sequence[int], step: Step) -> bool:
    made = {steps[each].target for each in kernel}
    return (all(operations.elementwise(steps[each].statement["do"]) for each in kernel)
            and operations.elementwise(step.statement["do"])
            and steps[kernel[0]].shape == step.shape
            and not any(moves for slot, _, moves in step.reads if slot in made))


def hazards(plan: Plan) -> list[dict[str, Any]]:
    """Read after write, write after read, write after write."""
    found: dict[tuple[Any, ...], None] = {}
    where = {step: kernel for kernel, steps in enumerate(plan.kernels) for step in steps}
    made = {(where[index], step.target, step.version): index
            for index, step in enumerate(plan.steps)}
    reads = [[(slot, version, span(plan.slots[slot], moves)) for slot, version, moves in step.reads
              if made.get((where[index], slot, version), index) == index]
             for index, step in enumerate(plan.steps)]
    writes = [span(plan.slots[step.target], step.statement.get("view", ()))
              for step in plan.steps]
    for late, after in enumerate(plan.steps):
        for early, before in enumerate(plan.steps[:late]):
            pair = (where[early], where[late])
            if pair[0] == pair[1]:
                continue
            for slot, version, read in reads[late]:
                if before.target == slot and before.version <= version \
                        and meet(read, writes[early]):
                    found[(*pair, "RAW", slot, before.version)] = None
            for slot, _, read in reads[early]:
                if slot == after.target and meet(read, writes[late]):
                    found[(*pair, "WAR", slot, after.version)] = None
            if before.target == after.target and meet(writes[early], writes[late]):
                found[(*pair, "WAW", after.target, after.version)] = None
    return [{"before": before, "after": after, "kind": kind, "buffer": slot, "version": version}
            for before, after, kind, slot, version in found if plan.slots[slot].bytes]


def meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two ranges of bytes have one in common."""
    return max(one[0], other[0]) < min(one[1], other[1])


def ordered(plan: Plan, seed: int | None = None) -> list[int]:
    """A legal order: the ready kernel that needs the least memory next, or a random one."""
    waits = {kernel: {each["before"] for each in plan.dependencies if each["after"] == kernel}
             for kernel in range(len(plan.kernels))}
    touched = [{slot for step in steps for slot in uses(plan.steps[step])}
               for steps in plan.kernels]
    random, order = Random(seed), list[int]()
    left = Counter(slot for slots in touched for slot in slots)
    while len(order) < len(plan.kernels):
        ready = [each for each in waits if each not in order and waits[each] <= set(order)]
        order.append(random.choice(ready) if seed is not None else
                     min(ready, key=lambda each: (growth(plan, each, touched[each], left), each)))
        left.subtract(touched[order[-1]])
    return order


def growth(plan: Plan, kernel: int, touched: Collection[int], left: Mapping[int, int]) -> int:
    """The bytes that a kernel takes, less those that it is the last to use."""
    total = 0
    for slot in touched:
        written = any(plan.steps[step].target == slot for step in plan.kernels[kernel])
        new = written and not plan.slots[slot].before and plan.slots[slot].bytes
        total += new
        if left[slot] == 1 and not plan.slots[slot].held:
            total -= plan.slots[slot].bytes
    return total


def placed(plan: Plan, reuse: bool) -> list[dict[str, Any]]:
    """First fit: each temporary at the lowest offset that is free during its life."""
    life: dict[int, list[int]] = {}
    for position, kernel in enumerate(plan.order):
        for step in plan.kernels[kernel]:
            for used in uses(plan.steps[step]):
                life.setdefault(used, []).append(position)
    places: list[dict[str, Any]] = []
    for number, slot in enumerate(plan.slots):
        if slot.held or slot.before or slot.private or not slot.bytes:
            continue
        size = -(-slot.bytes // ALIGNMENT) * ALIGNMENT
        first, last = min(life[number]), max(life[number])
        offset = 0
        for start, length in sorted((p["offset"], p["bytes"]) for p in places
                                    if not reuse or p["first"] <= last and first <= p["last"]):
            if offset + size <= start:
                break
            offset = max(offset, start + length)
        places.append({"buffer": number, "arena": 0, "offset": offset, "bytes": size,
                       "first": first, "last": last, "in_place_of": None})
    return places


# Documents -----------------------------------------------------------------------------------


def described(plan: Plan, hit: bool) -> dict[str, Any]:
    """The schedule document of a plan."""
    written = {step.target for step in plan.steps}
    kinds = {number: ("state" if number in written else "input") if slot.before
             else "output" if slot.held else "temporary"
             for number, slot in enumerate(plan.slots) if not slot.private}
    positions = range(len(plan.order))
    return {
        "format": "tensor-schedule/1", "implementation": "runtime",
        "buffers": [{"id": number, "name": f"b{number}", "kind": kind, "device": "CPU",
                     "dtype": plan.slots[number].dtype, "shape": list(plan.slots[number].shape),
                     "bytes": plan.slots[number].bytes} for number, kind in kinds.items()],
        "kernels": [kernel_of(plan, number) for number in range(len(plan.kernels))],
        "dependencies": [each for each in plan.dependencies if each["buffer"] in kinds],
        "order": plan.order,
        "boundaries": [{"before": each["before"], "after": each["after"],
                        "buffer": each["buffer"], "reason": "their loops differ"}
                       for each in plan.dependencies if each["kind"] == "RAW"],
        "fusions": [{"kernel": number, "reason": "their loops are the same"}
                    for number, steps in enumerate(plan.kernels) if len(steps) > 1],
        "outputs": [number for number, kind in kinds.items() if kind == "output"],
        "memory": {"alignment": ALIGNMENT, "arenas": [{"id": 0, "device": "CPU",
                                                       "bytes": plan.arena}],
                   "placements": plan.places, "planned": plan.arena,
                   "unplanned": sum(each["bytes"] for each in plan.places),
                   "lower_bound": max((sum(p["bytes"] for p in plan.places
                                           if p["first"] <= each <= p["last"])
                                       for each in positions), default=0)},
        "cache": {"hit": hit, "key": plan.key}}


def kernel_of(plan: Plan, number: int) -> dict[str, Any]:
    """What a kernel reads and writes of memory outside of it, in bytes."""
    reads: dict[tuple[int, int], list[int]] = {}
    writes: dict[tuple[int, int], list[int]] = {}
    made: set[tuple[int, int]] = set()
    steps = [plan.steps[each] for each in plan.kernels[number]]
    for step in steps:
        for slot, version, moves in step.reads:
            if not plan.slots[slot].private and (slot, version) not in made:
                widen(reads, (slot, version), span(plan.slots[slot], moves))
        if not plan.slots[step.target].private:
            made.add((step.target, step.version))
            widen(writes, (step.target, step.version),
                  span(plan.slots[step.target], step.statement.get("view", ())))
    do = steps[0].statement["do"]
    return {"id": number, "name": "_".join(step.statement["do"] for step in steps)[:60],
            "kind": "copy" if len(steps) == 1 and do == "copy" else "kernel", "device": "CPU",
            "stages": len(steps), "reads": accesses(reads), "writes": accesses(writes)}


def widen(ranges: dict[tuple[int, int], list[int]], what: tuple[int, int],
          span: tuple[int, int]) -> None:
    start, stop = ranges.setdefault(what, list(span))
    ranges[what] = [min(start, span[0]), max(stop, span[1])]


def accesses(ranges: dict[tuple[int, int], list[int]]) -> list[dict[str, int]]:
    return [{"buffer": slot, "version": version, "start": start, "stop": stop}
            for (slot, version), (start, stop) in ranges.items()]


def span(slot: Slot, moves: Sequence[Statement]) -> tuple[int, int]:
    """The first byte of a slot that a view touches, and the one after the last."""
    size = np.dtype(slot.dtype).itemsize
    count = int(np.prod(slot.shape, dtype=np.int64))
    touched = operations.moved(moves, np.arange(count).reshape(slot.shape), -1)
    touched = touched[touched >= 0]
    if not touched.size:
        return 0, 0
    return int(touched.min()) * size, (int(touched.max()) + 1) * size
