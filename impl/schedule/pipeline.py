"""The pipeline: from values that are asked for to a plan that can run. Chapter: spec/schedule.md.

    values -> cuts -> stages -> writes -> kernels -> dependencies -> order -> memory -> plan

Reading `make_plan` is reading this diagram; each pass is a function of its own module. Two of them
change what passes before them have made: `compute_late` the groups, and like `share` the placement.
Nobody else sees either of these.
"""
from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from impl import memory
from impl.caching import Canonical, PlanCache, canonicalize, unbound
from impl.dependencies import (
    Accesses,
    Placement,
    Temporary,
    find,
    place_writes,
    touched_storages,
    touches,
)
from impl.effects import Effects
from impl.fusion import (
    Assembler,
    Group,
    Homes,
    Kernel,
    choose_cuts,
    compute_late,
    group_stages,
    split_at_peak,
)
from impl.ir import Shape
from impl.memory.sharing import share
from impl.ordering import Peaks, Uses, linearize
from impl.ranges import StageGraph
from impl.schedule.plan import Environment, Plan, PlannedKernel, Result, Storage
from impl.schedule.reasons import boundaries, fusion, origins

schedule_cache: PlanCache[Plan] = PlanCache()


# --8<-- [start:pipeline]
def make_plan(effects: Effects, canonical: Canonical, environment: Environment) -> Plan:
    """Run all passes."""
    effects = unbound(effects)  # r[impl caching.key.sizes]: no pass can look at a value
    limits, fuse = environment.limits, environment.fuse
    cuts = choose_cuts(effects.roots, effects.nodes, limits, fuse)
    # r[impl schedule.passes.pure]
    graph = StageGraph(cuts.reasons, cuts.alias, environment.default_device).build()
    results = [_place(graph.stored(root)) for root in effects.roots]
    placement = place_writes(graph, _held(effects, graph, results))
    storages = _storages(graph, placement, results, canonical)
    groups, blocked = group_stages(placement.stages, placement.storage, limits, fuse,
                                   {n: s.device for n, s in storages.items()},
                                   {n: s.dtype.itemsize for n, s in storages.items()})
    homes = Homes(graph.values, placement.storage, placement.version,
                  _single(placement, storages))
    before = len(graph.values)
    compute_late(groups, homes, limits)
    if len(graph.values) > before:  # late twins have storages too
        storages = _storages(graph, placement, results, canonical)
    groups, blocked = split_at_peak(groups, blocked, homes, limits,
                                    Peaks(placement.storage, _temporary_bytes(storages)))
    private = _private(groups, placement, storages)
    accesses = [touches(group, placement, graph.values, private) for group in groups]
    dependencies = find(accesses)
    uses = Uses(_temporary_bytes(storages, private), touched_storages(accesses))
    order = linearize(len(groups), dependencies, uses, environment.order_seed)
    if environment.reuse:
        accesses, gone = share(groups, order, placement, _temporaries(storages), accesses)
        storages = {n: s for n, s in storages.items() if n not in gone}
        dependencies = find(accesses, order)
    memories = _plan_memory(order, touched_storages(accesses),
                            _temporary_bytes(storages, private), storages, environment.reuse)
    assembler = Assembler(placement.storage, private)
    kernels = _planned([assembler.kernel(group) for group in groups], groups, accesses,
                       origins(groups, effects.nodes), canonical)
    return Plan(kernels, storages, order,
                [Result(placement.storage[value], shape) for value, shape in results],
                dependencies, memories, _written(placement, storages),
                boundaries(groups, placement, dependencies, blocked), placement.copies,
                canonical.key, [bind.src[0] for bind in canonical.variables])
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


def _place(place: tuple[int, Shape] | None) -> tuple[int, Shape]:
    assert place is not None  # a root has storage: choose_cuts sees to that
    return place


def _held(effects: Effects, graph: StageGraph, results: Sequence[tuple[int, Shape]]) -> set[int]:
    """The values that stay observable: of living tensors, and of the roots themselves.

    What is held and has no number is neither read nor written here.
    """
    # r[impl effects.realize.order-independent]
    held = [graph.number_of.get(leaf.arg[0]) for leaf in effects.held]
    return {value for value, _ in results} | {number for number in held if number is not None}


def _storages(graph: StageGraph, placement: Placement, results: Sequence[tuple[int, Shape]],
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
    """The temporaries that only one kernel touches: they become its local buffers.

    A copy has none: it goes from memory to memory, also where nothing is read of what it makes.
    """
    users: dict[int, set[int]] = {}
    copied = {placement.storage[member.stage.write.value]
              for group in groups for member in group.members if member.stage.copy}
    for group in groups:
        for member in group.members:
            for access in (*member.stage.reads, member.stage.write):
                users.setdefault(placement.storage[access.value], set()).add(group.number)
    return {n for n, kernels in users.items()
            if len(kernels) == 1 and storages[n].kind == "temporary" and n not in copied}


def _temporary_bytes(storages: dict[int, Storage], but: Collection[int] = ()) -> dict[int, int]:
    """The bytes of the temporaries, but for some."""
    return {n: s.nbytes for n, s in storages.items() if s.kind == "temporary" and n not in but}


def _temporaries(storages: dict[int, Storage]) -> dict[int, Temporary]:
    """What has to agree where one temporary takes over the memory of another."""
    return {n: Temporary(s.size * s.dtype.itemsize, s.dtype, s.device)
            for n, s in storages.items() if s.kind == "temporary"}


def _plan_memory(order: Sequence[int], touched: Sequence[Sequence[int]], nbytes: dict[int, int],
                 storages: dict[int, Storage], reuse: bool) -> dict[str, memory.MemoryPlan]:
    """One arena per device."""
    devices = dict.fromkeys(storages[n].device for n in nbytes)
    return {device: memory.plan(memory.lifetimes(order, touched, {
        n: size for n, size in nbytes.items() if storages[n].device == device}), reuse)
        for device in devices}


def _written(placement: Placement, storages: dict[int, Storage]) -> dict[int, int]:
    """The inputs that are overwritten, and how many versions each gains."""
    gains: dict[int, int] = {}
    for value, storage in enumerate(placement.storage):
        if storages[storage].kind == "input" and placement.version[value] > 0:
            gains[storage] = max(gains.get(storage, 0), placement.version[value])
    return gains


def _planned(kernels: Sequence[Kernel], groups: Sequence[Group], accesses: Accesses,
             places: Sequence[list[int]], canonical: Canonical) -> list[PlannedKernel]:
    """The kernels with all that is known of each."""
    return [PlannedKernel(kernel.ast, kernel.arguments, kernel.variables, kernel.device,
                          kernel.copy, reads=reads, writes=writes, slots=slots, origins=mine,
                          stages=len(group.members), fusion=fusion(group))
            for kernel, group, (reads, writes), mine, slots in zip(
                kernels, groups, accesses, places, _variables(kernels, canonical), strict=True)]


def _variables(kernels: Sequence[Kernel], canonical: Canonical) -> list[tuple[int, ...]]:
    """Which value of the call each kernel's variables take."""
    slot_of = {bind.src[0]: slot for slot, bind in enumerate(canonical.variables)}
    return [tuple(slot_of[v] for v in kernel.variables) for kernel in kernels]
