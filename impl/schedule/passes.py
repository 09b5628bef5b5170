"""The passes: what each takes from the draft of a plan, and what it writes there. Chapter:
spec/schedule.md.

What a pass needs and what it guarantees stands at the head of the modules that have its work:

    cut           impl/fusion/cuts.py            which values get a loop nest
    make_stages   impl/ranges/graph.py           what each loop nest computes
    place         impl/placement.py              which write is in place
    fuse          impl/fusion/groups.py          which loop nests are one kernel
    make_late     impl/fusion/late.py            what is computed again, and not kept
    split         impl/fusion/split.py           which kernel is run as two
    find_hazards  impl/fusion/touches.py         what each kernel touches,
                  impl/dependencies/__init__.py  and who waits for whom
    put_in_order  impl/ordering.py               in which order they run
    take_over     impl/memory/takeovers.py       which temporary lies where another one was
    lay_out       impl/memory/__init__.py        where temporaries lie
    assemble      impl/fusion/assemble.py        what each kernel is
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from impl import memory
from impl.caching import Canonical
from impl.dependencies import Touch, find, touched_storages, under_way
from impl.fusion import (
    Assembler,
    Kernel,
    choose_cuts,
    compute_late,
    group_stages,
    split_at_peak,
    split_products,
    touches,
)
from impl.memory.takeovers import Takeovers, Temporary, find_takeovers
from impl.multi import LATENCY, PER_BYTE, Mesh
from impl.ordering import Peaks, Uses, linearize, overlapped
from impl.placement import place_writes
from impl.places import Place
from impl.ranges import StageGraph
from impl.schedule.draft import Draft
from impl.schedule.plan import PlannedKernel
from impl.schedule.reasons import fusion, origins

Pass = Callable[[Draft], Draft]


def cut(draft: Draft) -> Draft:
    """Which values get a loop nest of their own."""
    effects, environment = draft.effects, draft.environment
    draft.cuts = choose_cuts(effects.roots, effects.nodes, environment.limits, environment.fuse)
    return draft


def make_stages(draft: Draft) -> Draft:
    """Make the stages, and find the values that hold the results."""
    cuts = draft.cuts
    draft.graph = StageGraph(cuts.reasons, cuts.alias, draft.environment.default_device).build()
    draft.results = [draft.graph.result(root) for root in draft.effects.roots]
    return draft


def place(draft: Draft) -> Draft:
    """Where every version of a value lives, and an order of the stages."""
    graph, asked = draft.graph, [value for value, _ in draft.results]
    # What is held and has no number is neither read nor written here.
    # r[impl effects.realize.order-independent+2]
    held = [graph.number_of.get(leaf.arg[0]) for leaf in draft.effects.held]
    observable = {*asked, *(number for number in held if number is not None)}
    environment = draft.environment
    draft.placed = place_writes(graph.values, graph.stages, observable, asked,
                                environment.limits.bucket if environment.fuse else 0)
    return draft


def fuse(draft: Draft) -> Draft:
    """Which loop nests are one kernel."""
    environment = draft.environment
    draft.fused = group_stages(draft.placed, environment.limits, environment.fuse)
    return draft


def make_late(draft: Draft) -> Draft:
    """Choose the values that are computed again where they are read, and not kept."""
    draft.late, draft.placement = compute_late(draft.fused.groups, draft.placed,
                                               draft.environment.limits)
    return draft


def split(draft: Draft) -> Draft:
    """Which kernel is run as two."""
    limits = draft.environment.limits
    products = split_products(draft.late, draft.fused.blocked, limits)
    draft.grouping = split_at_peak(products.groups, products.blocked, draft.placement, limits,
                                   Peaks(draft.placement.storage, draft.temporary_bytes))
    return draft


def find_hazards(draft: Draft) -> Draft:
    """What each kernel touches, and which kernel waits for which."""
    draft.accesses = [touches(group, draft.placement, draft.private) for group in draft.groups]
    draft.waits = find(draft.accesses)
    return draft


def put_in_order(draft: Draft) -> Draft:
    """In which order the kernels run."""
    uses, seed = Uses(draft.crossing_bytes, draft.touched), draft.environment.order_seed
    order = linearize(len(draft.groups), draft.waits, uses, seed)
    if "copy" in draft.lanes and seed is None:
        transfers = {number for number, lane in enumerate(draft.lanes) if lane == "copy"}
        pairs = {(d.before, d.after) for d in draft.waits}
        seconds = [_seconds(reads, writes) for reads, writes in draft.accesses]
        # r[impl ordering.waiting.late+3]
        awaited = {number for number in transfers if _is_between_processes(draft, number)}
        if awaited:
            uses = Uses(draft.crossing_bytes, _touched_later(draft, pairs, awaited))
        order = overlapped(order, pairs, seconds, transfers, uses, awaited)
    draft.order = order
    return draft


def _is_between_processes(draft: Draft, number: int) -> bool:
    mesh = draft.groups[number].device
    return isinstance(mesh, Mesh) and mesh.is_of_processes


def _touched_later(draft: Draft, pairs: Iterable[tuple[int, int]], awaited: Collection[int]
                   ) -> list[list[int]]:
    """What each kernel touches, but for what was sent: it has its memory until then anyhow."""
    touched = list(draft.touched)
    for before, after in pairs:
        if before in awaited:
            sent = {touch.storage for touch in draft.accesses[before][0]}
            touched[after] = [storage for storage in touched[after] if storage not in sent]
    return touched


def _seconds(reads: Sequence[Touch], writes: Sequence[Touch]) -> float:
    """What a kernel or a transfer takes, about: to start it, and for each byte."""
    return LATENCY + PER_BYTE * sum([touch.stop - touch.start for touch in (*reads, *writes)])


def take_over(draft: Draft) -> Draft:
    """Which temporary lies where another one was, and who waits for whom then."""
    if not draft.environment.reuse:
        draft.takeovers = Takeovers(draft.placement.storage, draft.accesses)
        draft.dependencies = draft.waits
        return draft
    draft.takeovers = find_takeovers(draft.groups, draft.order, draft.placement,
                                     _temporaries(draft), draft.accesses)
    # Who waits for whom is the same in every legal order, as long as nothing has moved.
    draft.dependencies = find(draft.takeovers.accesses, draft.order) if draft.takeovers.moved \
        else draft.waits
    return draft


def lay_out(draft: Draft) -> Draft:
    """Where temporaries lie: in one arena for each device."""
    own = touched_storages(draft.takeovers.accesses)
    touched = [list(storages) for storages in own]
    draft.under_way = under_way(draft.order, [(d.before, d.after) for d in draft.dependencies],
                                draft.lanes) if "copy" in draft.lanes else {}
    # r[impl memory.transfer.covers+2]: until a transfer is waited for, nobody else has its memory
    for transfer, last in draft.under_way.items():
        touched[draft.order[last]] += own[transfer]
    nbytes = {n: size for n, size in draft.crossing_bytes.items() if n not in draft.takeovers.moved}
    device_of = {n: draft.storages[n].device for n in nbytes}
    draft.memories = plan_memory(draft.order, touched, nbytes, device_of, draft.environment.reuse)
    return draft


def assemble(draft: Draft) -> Draft:
    """Assemble the graph of each kernel, with its accesses, its reason and its lines."""
    assembler = Assembler(draft.takeovers.storage, draft.private)
    kernels = [assembler.kernel(group) for group in draft.groups]
    draft.kernels = [
        PlannedKernel(kernel.ast, kernel.arguments, kernel.variables, kernel.device, kernel.task,
                      reads=reads, writes=writes, slots=slots, origins=mine,
                      stages=len(group.members), fusion=fusion(group))
        for kernel, group, (reads, writes), mine, slots in zip(
            kernels, draft.groups, draft.takeovers.accesses,
            origins(draft.groups, draft.effects.nodes), variable_slots(kernels, draft.canonical),
            strict=True)]
    return draft


def plan_memory(order: Sequence[int], touched: Sequence[Sequence[int]], nbytes: dict[int, int],
                device_of: dict[int, Place], reuse: bool) -> dict[Place, memory.MemoryPlan]:
    """One arena per device."""
    of_device: dict[Place, dict[int, int]] = {}
    for number, size in nbytes.items():
        of_device.setdefault(device_of[number], {})[number] = size
    return {device: memory.plan(memory.lifetimes(order, touched, own), reuse)
            for device, own in of_device.items()}


def variable_slots(kernels: Sequence[Kernel], canonical: Canonical) -> list[tuple[int, ...]]:
    """Which value of the call each kernel's variables take."""
    slot_of = {bind.src[0]: slot for slot, bind in enumerate(canonical.variables)}
    return [tuple(slot_of[v] for v in kernel.variables) for kernel in kernels]


def _temporaries(draft: Draft) -> dict[int, Temporary]:
    """What has to agree where one temporary takes over the memory of another.

    What a transfer reads beside kernels is not taken over: who overwrote it would wait for it.
    """
    read = {touch.storage for (reads, _), lane in zip(draft.accesses, draft.lanes, strict=True)
            for touch in reads if lane == "copy"}
    return {n: Temporary(s.size * s.dtype.itemsize, s.dtype, s.device)
            for n, s in draft.storages.items() if s.kind == "temporary" and n not in read}


#: All passes, in the order in which they run.
PASSES: tuple[Pass, ...] = (
    cut, make_stages, place, fuse, make_late, split, find_hazards, put_in_order, take_over,
    lay_out, assemble)
