"""The pipeline: from values that are asked for to a plan that can run. Chapter: spec/schedule.md.

    values -> cuts -> stages -> writes -> kernels -> dependencies -> order -> memory -> plan

Reading `make_plan` is reading this diagram; each pass is a function of its own module.
"""
from __future__ import annotations

import gc
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from impl import memory
from impl.caching import Canonical, PlanCache, canonicalize, stable_name, unbound
from impl.dependencies import (
    Dependency,
    Placement,
    Temporary,
    Touch,
    find,
    place_writes,
    take_over,
    touches,
)
from impl.dtypes import DType
from impl.effects import Effects
from impl.fusion import (
    Assembler,
    Cuts,
    Group,
    Kernel,
    Limits,
    Member,
    Memory,
    choose_cuts,
    compute_late,
    group_stages,
    split_at_peak,
)
from impl.ir import MOVEMENT, Ops, Shape, UOp
from impl.ordering import Uses, alive_bytes, least_peak, linearize
from impl.ranges import StageGraph
from impl.symbolic import is_symbolic, plain, text


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
    device: str
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


@dataclass
class Plan:
    """Everything that a run needs, with buffers and variables as slots. Immutable once made."""

    kernels: list[Kernel]
    storages: dict[int, Storage]
    order: list[int]
    results: list[Result]
    dependencies: list[Dependency]
    accesses: list[tuple[list[Touch], list[Touch]]]
    memories: dict[str, memory.MemoryPlan]
    written: dict[int, int]                       # input storage -> how many versions it gains
    variables: list[tuple[int, ...]]              # per kernel: slots of the call's values
    origins: list[list[int]]                      # per kernel: places of its nodes in the graph
    boundaries: list[tuple[int, int, int, str]]   # kernel, kernel, storage, reason
    fusions: list[tuple[int, str]]
    notes: list[str]
    key: tuple[Any, ...]
    stages: list[int]
    unknowns: list[UOp]                           # per slot of a value: its variable in sizes
    programs: Any = field(default=None)           # filled by whoever runs the plan


@dataclass(frozen=True)
class Environment:
    """What the devices and the settings ask of a plan."""

    default_device: str
    limits: Limits
    fuse: bool = True
    reuse: bool = True
    order_seed: int | None = None
    device_key: tuple[Any, ...] = ()


schedule_cache: PlanCache[Plan] = PlanCache()


# --8<-- [start:pipeline]
def make_plan(effects: Effects, canonical: Canonical, environment: Environment) -> Plan:
    """Run all passes."""
    effects = unbound(effects)  # r[impl caching.key.sizes]: no pass can look at a value
    limits, fuse = environment.limits, environment.fuse
    cuts = choose_cuts(effects.roots, effects.nodes, limits, fuse)
    # r[impl schedule.passes.pure]
    graph = StageGraph(cuts.reasons, cuts.alias, environment.default_device).build()
    results = [graph.stored(root) for root in effects.roots]
    placement = place_writes(graph, _held(effects, graph))
    storages = _storages(graph, placement, results, canonical)
    groups, blocked = group_stages(placement.stages, placement.storage, limits, fuse,
                                   {n: s.device for n, s in storages.items()},
                                   {n: s.dtype.itemsize for n, s in storages.items()})
    memory_of = Memory(graph.values, placement.storage, placement.version,
                       _single(placement, storages))
    compute_late(groups, memory_of, limits)
    storages = _storages(graph, placement, results, canonical)
    groups, blocked = split_at_peak(groups, blocked, memory_of, limits,
                                    _Peaks(placement, storages))
    private = _private(groups, placement, storages)
    accesses = [touches(group, placement, graph.values, private) for group in groups]
    dependencies = find(accesses)
    nbytes = {n: s.nbytes for n, s in storages.items()
              if s.kind == "temporary" and n not in private}
    order = linearize(len(groups), dependencies, Uses(nbytes, _touched(accesses)),
                      environment.order_seed)
    if environment.reuse:
        accesses = _share(groups, order, placement, storages, accesses)
        dependencies = find(accesses, order)
    assembler = Assembler(placement.storage, private)
    kernels = [assembler.kernel(group) for group in groups]
    nbytes = {n: size for n, size in nbytes.items() if n in storages}
    touched = _touched(accesses)
    memories = _plan_memory(order, touched, nbytes, storages, environment.reuse)
    return Plan(kernels, storages, order, [_result(r, placement) for r in results], dependencies,
                accesses, memories, _written(placement, storages), _variables(kernels, canonical),
                _origins(groups, effects.nodes),
                _boundaries(groups, placement, cuts, dependencies, blocked),
                [(g.number, _fusion(g)) for g in groups if len(g.members) > 1],
                placement.copies, canonical.key, [len(g.members) for g in groups],
                [bind.src[0] for bind in canonical.variables])
# --8<-- [end:pipeline]


# --8<-- [start:cached]
def plan_for(effects: Effects, environment: Environment,
             use_cache: bool = True) -> tuple[Plan, Canonical, bool]:
    """The plan for some effects, from the cache if it is there; and whether it was."""
    canonical = canonicalize(effects, environment.device_key)
    found = schedule_cache.get(canonical.key) if use_cache else None
    if found is not None:
        return found, canonical, True
    with _collector_at_rest():
        plan = make_plan(effects, canonical, environment)
    if use_cache:
        schedule_cache.put(canonical.key, plan)
    return plan, canonical, False
# --8<-- [end:cached]


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No search for garbage: planning makes many objects, and nearly all live until its end."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _held(effects: Effects, graph: StageGraph) -> set[int]:
    """The values that stay observable: of living tensors, and of the roots themselves."""
    held: set[int] = set()
    for node in (*effects.held, *effects.roots):  # r[impl effects.realize.order-independent]
        place = graph.stored(node)
        if place is not None:
            held.add(place[0])
    return held


def _storages(graph: StageGraph, placement: Placement, results: Sequence[Any],
              canonical: Canonical) -> dict[int, Storage]:
    """What kind of memory each storage is."""
    kept = {placement.storage[number] for number, _ in results}
    slot_of = {buffer: slot for slot, buffer in enumerate(canonical.buffers)}
    storages: dict[int, Storage] = {}
    for value in graph.values:
        number = placement.storage[value.number]
        if number != value.number:
            continue  # a later version of another value's memory
        kind = "input" if value.leaf else "output" if number in kept else "temporary"
        slot = slot_of[value.node.arg[0]] if value.leaf else -1  # r[impl schedule.plan.slots]
        size = math.prod(value.shape)
        storages[number] = Storage(number, kind, value.node.dtype, size, value.device, slot)
    return storages


def _single(placement: Placement, storages: dict[int, Storage]) -> set[int]:
    """The temporaries that only one value ever fills."""
    filled = Counter(placement.storage)
    return {n for n, s in storages.items() if s.kind == "temporary" and filled[n] == 1}


def _private(groups: Sequence[Group], placement: Placement,
             storages: dict[int, Storage]) -> set[int]:
    """The temporaries that only one kernel touches: they become its local buffers."""
    users: dict[int, set[int]] = {}
    for group in groups:
        for member in group.members:
            for access in (*member.stage.reads, member.stage.write):
                users.setdefault(placement.storage[access.value], set()).add(group.number)
    return {n for n, kernels in users.items()
            if len(kernels) == 1 and storages[n].kind == "temporary"}


class _Peaks:
    """How much memory groups need at most. It is asked for groups of which few differ from the
    last ones, so it remembers what each touches; and it looks at whole storages, not at bytes.
    """

    def __init__(self, placement: Placement, storages: dict[int, Storage]) -> None:
        self.placement = placement
        self.nbytes = {n: s.nbytes for n, s in storages.items() if s.kind == "temporary"}
        self.known: dict[int, tuple[list[Member], dict[int, None], dict[int, None]]] = {}

    def __call__(self, groups: list[Group]) -> tuple[int, int]:
        """How many bytes of temporaries are alive at most, and while which group runs."""
        touched = [self._touched(group) for group in groups]
        users = Counter(s for reads, writes in touched for s in {**reads, **writes})
        uses = Uses({n: size for n, size in self.nbytes.items() if users[n] > 1},
                    [[*reads, *writes] for reads, writes in touched])
        order = least_peak(len(groups), _rough_dependencies(touched), uses)
        alive = alive_bytes(order, uses)
        most = max(alive, default=0)
        return most, order[alive.index(most)] if alive else 0

    def _touched(self, group: Group) -> tuple[dict[int, None], dict[int, None]]:
        """The storages that a group reads and writes."""
        key = id(group.members)
        if key not in self.known:
            storage, stages = self.placement.storage, [m.stage for m in group.members]
            reads = dict.fromkeys(storage[a.value] for s in stages for a in s.reads)
            self.known[key] = (group.members, reads,
                               dict.fromkeys(storage[s.write.value] for s in stages))
        return self.known[key][1:]


def _rough_dependencies(touched: Sequence[tuple[dict[int, None], dict[int, None]]],
                        ) -> set[tuple[int, int]]:
    """Which group must come before which, if all that touch a storage touch the same bytes."""
    pairs: set[tuple[int, int]] = set()
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for number, (reads, writes) in enumerate(touched):
        for storage in (*reads, *writes):
            if storage in writer:
                pairs.add((writer[storage], number))
        for storage in writes:
            pairs.update((reader, number) for reader in readers.pop(storage, ()))
            writer[storage] = number
        for storage in reads:
            readers.setdefault(storage, []).append(number)
    return {(before, after) for before, after in pairs if before != after}


Accesses = list[tuple[list[Touch], list[Touch]]]


def _touched(accesses: Accesses) -> list[list[int]]:
    return [[t.storage for t in (*reads, *writes)] for reads, writes in accesses]


def _share(groups: Sequence[Group], order: Sequence[int], placement: Placement,
           storages: dict[int, Storage], accesses: Accesses) -> Accesses:
    """Let temporaries take over the memory of others; the accesses as they are after that.

    It saves memory in the one step in which both are alive. So it is done where more is alive
    than the peak would be if it were done everywhere; elsewhere it only ties a compiler's hands.
    """
    temporaries = {n: Temporary(s.size * s.dtype.itemsize, s.dtype, s.device)
                   for n, s in storages.items() if s.kind == "temporary"}
    touched = _touched(accesses)
    trial = replace(placement, storage=list(placement.storage), version=list(placement.version))
    alive = alive_bytes(order, Uses({n: storages[n].nbytes for n in temporaries}, touched))
    born = {s: step for step, number in reversed(list(enumerate(order))) for s in touched[number]}
    least = list(alive)
    for new in take_over(groups, order, touched, temporaries, trial):
        least[born[new]] -= storages[new].nbytes
    # r[impl dependencies.take-over.peak]
    steps = {step for step, now in enumerate(alive) if now > max(least)}
    moved = take_over(groups, order, touched, temporaries, placement, steps) if steps else {}
    for storage in moved:
        del storages[storage]

    def after(touches: list[Touch]) -> list[Touch]:
        return [replace(t, storage=moved[t.storage][0], version=t.version + moved[t.storage][1])
                if t.storage in moved else t for t in touches]

    return [(after(reads), after(writes)) for reads, writes in accesses]


def _plan_memory(order: Sequence[int], touched: Sequence[Sequence[int]], nbytes: dict[int, int],
                 storages: dict[int, Storage], reuse: bool) -> dict[str, memory.MemoryPlan]:
    """One arena per device."""
    devices = dict.fromkeys(storages[n].device for n in nbytes)
    return {device: memory.plan(memory.lifetimes(order, touched, {
        n: size for n, size in nbytes.items() if storages[n].device == device}), reuse)
        for device in devices}


def _result(place: tuple[int, Shape] | None, placement: Placement) -> Result:
    assert place is not None
    return Result(placement.storage[place[0]], place[1])


def _written(placement: Placement, storages: dict[int, Storage]) -> dict[int, int]:
    gains: dict[int, int] = {}
    for value, storage in enumerate(placement.storage):
        if storages[storage].kind == "input" and placement.version[value] > 0:
            gains[storage] = max(gains.get(storage, 0), placement.version[value])
    return gains


def _variables(kernels: Sequence[Kernel], canonical: Canonical) -> list[tuple[int, ...]]:
    """Which value of the call each kernel's variables take."""
    slot_of = {bind.src[0]: slot for slot, bind in enumerate(canonical.variables)}
    return [tuple(slot_of[v] for v in kernel.variables) for kernel in kernels]


def _origins(groups: Sequence[Group], nodes: Sequence[UOp]) -> list[list[int]]:
    """Where the values of each kernel stand among the nodes of the schedule."""
    place = {node: i for i, node in enumerate(nodes)}
    return [[place[node] for node in (_value(m.stage.node, place) for m in group.members)
             if node is not None] for group in groups]


def _value(node: UOp, place: dict[UOp, int]) -> UOp | None:
    """A stage's node; for a copy that the scheduler added, the node that it copies."""
    while node not in place:
        if not node.src:
            return None
        node = node.src[0]
    return node


def label(plan: Plan, kernel: int, nodes: Sequence[UOp]) -> str:
    """The user's operations in a kernel, and the line of the last one.

    The plan may come from the cache: `nodes` are those of this call, so that the line is its line.
    """
    names: dict[str, None] = {}
    line = ""
    for place in plan.origins[kernel]:  # r[impl schedule.label.line]
        origin = _origin(nodes[place])
        if origin is not None:
            names[str(origin[0])] = None
            line = _near(str(origin[1]))
        else:
            names[nodes[place].op.name.lower()] = None
    shown = ", ".join(list(names)[:6])
    return f"{shown} ({line})" if line else shown


def _fusion(group: Group) -> str:
    """What the stages of a kernel have in common."""
    shared = " x ".join(text(size.expression) if is_symbolic(size) else str(size)
                        for size in group.sizes)
    if not shared:
        return f"fused: {len(group.members)} small stages, one after the other"
    return (f"fused: {len(group.members)} stages share the loops {shared}; what they hand on "
            "stays in local memory")


def _near(line: str) -> str:
    """A `file:line` as one reads it: from the working folder, if the file is below it."""
    return line.removeprefix(os.getcwd() + os.sep)


def _origin(node: UOp) -> Any:
    """Where the user made a node, or one that it was made from a few steps before.

    A value that is only looked at differently is named after the operation that computes it.
    """
    found = node.origin
    for _ in range(8):
        if not node.src or node.realized is not None:
            break
        if node.origin is not None and node.op not in MOVEMENT:
            return node.origin
        node = node.src[1].src[1] if node.op is Ops.AFTER else node.src[0]
        found = found or node.origin
    return found


def _boundaries(groups: Sequence[Group], placement: Placement, cuts: Cuts,
                dependencies: Sequence[Dependency],
                blocked: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, int, str]]:
    """Why each value that crosses memory does."""
    group_of = {m.stage.number: g.number for g in groups for m in g.members}
    refused: dict[tuple[int, int], str] = {}
    for kernel, stage, why in blocked:
        refused.setdefault((kernel, group_of[stage]), why)
    writer: dict[tuple[int, int], str] = {}
    for group in groups:
        for member in group.members:
            storage = placement.storage[member.stage.write.value]
            writer[group.number, storage] = member.stage.reason
    rows = []
    for d in dependencies:
        if d.kind == "RAW":
            reason = refused.get((d.before, d.after)) or writer.get((d.before, d.storage), "")
            rows.append((d.before, d.after, d.storage, reason))
    return rows


# --8<-- [start:document]
def document(plan: Plan, hit: bool, nodes: Sequence[UOp]) -> dict[str, Any]:
    """The schedule as plain data: see r[schedule.document.complete]."""
    names = shown_numbers(plan)
    # r[impl schedule.document.outputs]
    outputs = [names[r.storage] for r in plan.results if r.storage in names]
    return {
        "format": "tensor-schedule/1", "implementation": "impl",  # r[impl schedule.document.schema]
        "buffers": [_buffer_row(plan, n, i) for n, i in names.items()],
        # r[impl schedule.document.complete]
        "kernels": [{**_kernel_row(plan, k, names), "label": label(plan, k, nodes)}
                    for k in range(len(plan.kernels))],
        "dependencies": [{"before": d.before, "after": d.after, "kind": d.kind,
                          "buffer": names[d.storage], "version": d.version}
                         for d in plan.dependencies],
        "order": list(plan.order),
        "boundaries": [{"before": b, "after": a, "buffer": names[s], "reason": why}
                       for b, a, s, why in plan.boundaries],
        "fusions": [{"kernel": k, "reason": why} for k, why in plan.fusions],
        "notes": list(plan.notes),
        "memory": _memory_rows(plan, names),
        "outputs": outputs,
        "cache": {"hit": hit, "key": stable_name(plan.key)},
    }
# --8<-- [end:document]


def shown_numbers(plan: Plan) -> dict[int, int]:
    """The storages that are shown to people, numbered without gaps."""
    visible = _visible(plan)  # once: r[impl schedule.cost.linear]
    return {n: i for i, n in enumerate(n for n in plan.storages if n in visible)}


def _visible(plan: Plan) -> set[int]:
    """The storages that some kernel touches in global memory, and those of the results."""
    seen = {t.storage for reads, writes in plan.accesses for t in (*reads, *writes)}
    return seen | {r.storage for r in plan.results}


def _buffer_row(plan: Plan, number: int, name: int) -> dict[str, Any]:
    storage = plan.storages[number]
    kind = "state" if number in plan.written else storage.kind
    return {"id": name, "name": f"b{name}", "kind": kind, "dtype": storage.dtype.name,
            "shape": [plain(storage.size)], "bytes": storage.nbytes, "device": storage.device}


def _kernel_row(plan: Plan, number: int, names: dict[int, int]) -> dict[str, Any]:
    kernel, (reads, writes) = plan.kernels[number], plan.accesses[number]
    return {"id": number, "name": kernel.ast.arg.name, "kind": "copy" if kernel.copy else "kernel",
            "device": kernel.device, "reads": [_touch_row(t, names) for t in reads],
            "writes": [_touch_row(t, names) for t in writes],
            "bytes": sum(t.stop - t.start for t in (*reads, *writes)),
            "stages": plan.stages[number]}


def _touch_row(touch: Touch, names: dict[int, int]) -> dict[str, int]:
    return {"buffer": names[touch.storage], "version": touch.version, "start": touch.start,
            "stop": touch.stop}


def _memory_rows(plan: Plan, names: dict[int, int]) -> dict[str, Any]:
    arenas, placements = [], []
    for number, (device, one) in enumerate(plan.memories.items()):
        arenas.append({"id": number, "device": device, "bytes": one.planned})
        placements += [{"buffer": names[s.storage], "arena": number,
                        "offset": one.offsets[s.storage], "bytes": s.nbytes, "first": s.first,
                        "last": s.last, "in_place_of": None} for s in one.lifetimes]
    total = plan.memories.values()
    return {"alignment": memory.ALIGNMENT, "arenas": arenas, "placements": placements,
            "planned": sum(m.planned for m in total), "unplanned": sum(m.unplanned for m in total),
            "lower_bound": sum(m.lower_bound for m in total)}


__all__ = ["Environment", "Plan", "Result", "Storage", "document", "make_plan",
           "plan_for", "schedule_cache"]
