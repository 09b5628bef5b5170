"""From a plan to values: bind slots to buffers, compile, run, commit. Chapter: spec/realize.md."""
from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from impl import settings, symbolic
from impl.caching import Canonical, short_key, walk
from impl.device import Device, GlobalCounters, Memory, Program
from impl.dtypes import dtypes
from impl.effects import (
    Buffer,
    Effects,
    Holder,
    advance,
    collect,
    forget_realized,
    leaf_of,
    living,
    lock,
    mark_realized,
    spoil,
)
from impl.errors import ReplayError, VariableError, user_line
from impl.fusion import Kernel, Limits
from impl.ir import ELEMENTWISE, Ops, UOp, in_memory, toposort
from impl.rewrite import verify
from impl.schedule import (
    Environment,
    Plan,
    document,
    label,
    plan_for,
    schedule_cache,
    shown_numbers,
)

#: More inputs than this in one kernel gain nothing: their rows crowd each other out of the cache.
MOST_ARGUMENTS = 60


# --8<-- [start:item]
@dataclass
class ExecItem:
    """One kernel, ready to run: its graph, its buffers, and what a person wants to know of it.

    `run()` runs it once; items must be run in the order of their list.
    """

    ast: UOp
    bufs: list[Buffer]
    metadata: dict[str, Any]
    values: list[int] = field(default_factory=list)
    program: Program | None = None
    done: bool = False

    def run(self) -> float:
        """Run the kernel; the time in seconds."""
        start = time.perf_counter()
        memories = [ensure_memory(buffer) for buffer in self.bufs]
        if self.program is None:
            _copy(memories, self.bufs[1].nbytes)
        else:
            self.program(memories, self.values)
            self.program.device.synchronize()  # else it is the launch that is timed
        self.done = True
        return time.perf_counter() - start
# --8<-- [end:item]


def _copy(memories: Sequence[Memory], nbytes: int) -> None:
    """Run a copy between devices: of its arguments, what it reads comes first."""
    source, target = memories
    target.device.copy(target, source, nbytes)


def ensure_memory(buffer: Buffer, manner: Manner | None = None) -> Memory:
    """The memory of a buffer, allocated and filled from the host at the first use."""
    memory: Memory | None = buffer.memory
    if memory is None:
        device = Device[buffer.device]
        memory = buffer.memory = device.allocate(buffer.size * buffer.dtype.itemsize or 1)
        if buffer.host is not None:
            device.copy_in(memory, buffer.host)
            buffer.host = None
        elif (manner or in_force()).poison:
            _poison(memory)
    return memory


def _poison(memory: Memory) -> None:
    """Fill memory with a pattern that is wrong in every type, so that stale reads show."""
    memory.device.copy_in(memory, np.full(memory.nbytes, 0xA7, np.uint8))


# --8<-- [start:bind]
class Run:
    """A plan bound to the buffers and values of one call."""

    __slots__ = ("plan", "canonical", "values", "effects", "begun", "buffers", "outputs")

    def __init__(self, plan: Plan, canonical: Canonical, effects: Effects,
                 own_arena: bool = False, planned: bool = True) -> None:
        self.plan, self.canonical, self.values = plan, canonical, canonical.values
        self.effects = effects
        self.begun = 0  # how many kernels, in the plan's order, have been started
        given = canonical.buffers
        self.buffers = {number: given[slot] for number, slot in plan.inputs}
        self.outputs: list[Buffer] = []
        # By slot: another program with this plan may call its variables otherwise.
        bound = dict(zip(plan.unknowns, canonical.values, strict=True)) if plan.unknowns else None
        for number, device, dtype, size, kept in plan.made:
            # r[impl realize.size.actual]
            buffer = self.buffers[number] = Buffer(
                device, dtype, symbolic.actual(size, bound) if bound else size)
            if kept:
                self.outputs.append(buffer)
        if planned and plan.memories:
            self._place_temporaries(own_arena)

    def _place_temporaries(self, own_arena: bool) -> None:
        """Give the temporaries their places in the arenas."""
        for device, planned in self.plan.memories.items():
            arena = _arena(device, planned.planned, own_arena)
            for number, offset in planned.offsets.items():
                buffer = self.buffers[number]
                # For all values of the variables: a replay may have greater ones.
                buffer.memory = arena.part(offset, self.plan.storages[number].nbytes)

    def sizes(self) -> dict[Buffer, symbolic.Size]:
        """The buffers whose size depends on variables, with their size in this call."""
        binds = dict(zip(self.plan.unknowns, self.canonical.variables, strict=True))
        found = {}
        for number, buffer in self.buffers.items():
            size = self.plan.storages[number].size
            if isinstance(size, symbolic.Size):
                found[buffer] = symbolic.as_size(size.expression.substitute(binds))
        return found

    def items(self, ordered: bool = True) -> list[ExecItem]:
        """The kernels, each with its buffers, in the plan's order or in that of their numbers."""
        programs = programs_of(self.plan)  # r[impl realize.failure.unchanged]
        found = []
        for number in self.plan.order if ordered else range(len(self.plan.kernels)):
            kernel = self.plan.kernels[number]
            found.append(ExecItem(
                kernel.ast, [self.buffers[s] for s in kernel.arguments],
                {"kernel": number},
                [self.values[slot] for slot in kernel.slots], programs[number]))
        return found
    # --8<-- [end:bind]

    # --8<-- [start:commit]
    def commit(self) -> None:
        """Advance the versions of overwritten buffers; note which leaf holds each root."""
        plan, buffers = self.plan, self.buffers
        if plan.written:
            for number, gained in plan.written.items():
                advance(buffers[number], gained)  # r[impl realize.commit.version]
        for root, number in zip(self.effects.roots, plan.places, strict=True):
            # r[impl realize.size.symbolic]: the root's own shape, with the values of this call
            mark_realized(root, buffers[number].leaf(root.shape or ()))
    # --8<-- [end:commit]

    def touched(self) -> list[Buffer]:
        """Memory from before the run that the kernels started so far may have overwritten."""
        numbers = {touch.storage for kernel in self.plan.order[:self.begun]
                   for touch in self.plan.kernels[kernel].writes
                   if touch.storage in self.plan.written}
        return [self.buffers[number] for number in sorted(numbers)]


_arenas: dict[str, Memory] = {}


def _arena(device: str, nbytes: int, own: bool) -> Memory:
    """Memory for the temporaries of one run; the same block serves run after run."""
    if own:
        return Device[device].allocate(nbytes)
    known = _arenas.get(device)
    if known is None or known.nbytes < nbytes:
        known = _arenas[device] = Device[device].allocate(nbytes)
    if settings.get("POISON"):
        _poison(known)
    return known


def programs_of(plan: Plan) -> list[Program | None]:
    """The compiled kernels of a plan; compiled together at the first call. Copies have none."""
    if plan.programs is None:
        before = GlobalCounters.compiled, GlobalCounters.cache_hits, GlobalCounters.disk_hits
        programs: list[Program | None] = [None] * len(plan.kernels)
        devices = dict.fromkeys(k.device for k in plan.kernels)
        for device in devices:
            mine = [i for i, k in enumerate(plan.kernels) if k.device == device and not k.copy]
            for i, program in zip(mine, Device[device].compile([plan.kernels[i].ast for i in mine]),
                                  strict=True):
                programs[i] = program
        plan.programs = programs
        if settings.get("DEBUG") >= 2:
            _print_programs(*before)
        if settings.get("CAPTURE_PROCESS_REPLAY"):
            for recorder in program_recorders:
                recorder(plan)
    found: list[Program | None] = plan.programs
    return found


def _print_programs(compiled: int, hits: int, disk_hits: int) -> None:
    """Where the kernels of a plan came from, given the counts from before."""
    from_disk = GlobalCounters.disk_hits - disk_hits
    print(f"programs: {GlobalCounters.compiled - compiled} compiled, {from_disk} found on disk, "
          f"{GlobalCounters.cache_hits - hits - from_disk} found in memory")


# --8<-- [start:manner]
class Manner:
    """What the settings in force say about planning and running; asked for once, not each time."""

    def __init__(self) -> None:
        get = settings.get
        self.default = Device.DEFAULT
        self.debug, self.poison, self.viz = get("DEBUG"), get("POISON"), get("VIZ")
        self.checked, self.recorded = get("SPEC"), get("CAPTURE_PROCESS_REPLAY")
        self.use_cache = bool(get("SCACHE"))
        self.captures = bool(get("JIT"))
        self.shown = self.debug or self.viz
        # Nobody looks at what is found, and what was found before may be found again.
        self.quiet = self.use_cache and not (self.checked or self.recorded or self.shown)
        self.watched = self.debug >= 2 or self.poison
        self.direct = self.quiet and not self.watched
        self.environments: dict[tuple[str, ...], Environment] = {}

    @functools.cached_property
    def circumstances(self) -> str:
        """All that a plan on the default device depends on besides its graph: a value, not a name.

        Who enters a `Context` for each line finds the plans of the last time.
        """
        found = _environment((self.default,))
        return repr((settings.plan_text(), self.default, found.device_key))


def in_force() -> Manner:
    """What the settings in force in this thread say."""
    return settings.derived(Manner)
# --8<-- [end:manner]


def environment(effects: Effects, manner: Manner | None = None) -> Environment:
    """What the devices of the values and the present settings ask of a plan."""
    manner = manner or in_force()
    names = {manner.default: None}
    if effects.described is not None:
        names.update(dict.fromkeys([buffer.device for buffer in effects.described.slots]))
        names.update(effects.described.copies)
    else:
        for node in effects.nodes:
            leaf = in_memory(node)
            if leaf is not None:
                names[leaf.arg[0].device] = None
            elif node.op is _COPY:
                names[node.arg] = None
    key = tuple(names)
    return manner.environments.get(key) or manner.environments.setdefault(key, _environment(key))


_BUFFER, _COPY = Ops.BUFFER, Ops.COPY

def _environment(names: Sequence[str]) -> Environment:
    devices = [(name, Device[name]) for name in names]
    seed = settings.get("ORDER_SEED")
    # r[impl fusion.limit.arguments, caching.key.device]
    arguments = min(MOST_ARGUMENTS, *(device.maximum_arguments for _, device in devices))
    limits = Limits(arguments=arguments)
    # r[impl device.local.limit]
    limits = replace(limits, local_bytes=min(
        limits.local_bytes, *(device.local_bytes for _, device in devices)))
    if settings.get("SCARCE"):
        limits = replace(limits, memory_worth=0, small_kernel=0)  # r[impl fusion.scarce.equal]
    if not settings.get("REMATERIALIZE"):
        limits = replace(limits, late=0)  # r[impl fusion.late.off]
    return Environment(devices[0][0], limits, bool(settings.get("FUSE")),
                       not settings.get("NO_MEMORY_PLANNER"), None if seed < 0 else seed,
                       # Text: it is hashed once, and not for every key.
                       repr([(name, *device.plan_key()) for name, device in devices]))


def prepare(values: Sequence[UOp],
            manner: Manner | None = None) -> tuple[Effects, Plan, Canonical]:
    """Everything up to the plan for some values, each given once."""
    manner = manner or in_force()
    start = time.perf_counter() if manner.shown else 0.0
    try:
        effects = walk(values)
        plan, canonical, hit = _checked_plan(effects, manner)
    except VariableError:
        effects = _readers_first(collect(values), values)
        plan, canonical, hit = _checked_plan(effects, manner)
    # r[impl caching.count.exact]
    if hit:
        GlobalCounters.plan_hits += 1
    else:
        GlobalCounters.plan_misses += 1
    if manner.shown:
        _show(manner, effects, plan, hit, time.perf_counter() - start)
    return effects, plan, canonical


def _show(manner: Manner, effects: Effects, plan: Plan, hit: bool, seconds: float) -> None:
    """What DEBUG and VIZ ask for of a schedule."""
    if manner.debug >= 1:
        noun = "kernel " if len(plan.kernels) == 1 else "kernels"
        print(f"scheduled {len(plan.kernels):5d} {noun} in {seconds * 1e3:8.2f} ms | "
              f"{'cache hit ' if hit else 'CACHE MISS'} | {user_line()}")
    if manner.debug >= 3:
        for _, line in decisions(plan, effects.nodes):
            print("  " + line)
    if manner.viz:
        for viewer in viewers:
            viewer(document(plan, hit, effects.nodes))


#: With CAPTURE_PROCESS_REPLAY=1 they are given each schedule, and each plan with its programs.
schedule_recorders: list[Callable[[Effects, Plan], None]] = []
program_recorders: list[Callable[[Plan], None]] = []


def _readers_first(effects: Effects, roots: Sequence[UOp]) -> Effects:
    """What is left to do once those who wait for old values are done, each by itself.

    They may have other values of a variable than the roots: then one schedule cannot do both.
    """
    for waiting in effects.roots[len(roots):]:  # r[impl realize.rescue.variables]
        run = planned_run([waiting])
        if run is not None:
            _execute(run, in_force())
            commit(run)
    return collect(roots)


#: With VIZ=1 each is given the document of every schedule.
viewers: list[Callable[[dict[str, Any]], None]] = []
#: With SPEC=1 each is given the document of every plan that is made, and raises if it is wrong.
checkers: list[Callable[[dict[str, Any]], None]] = []


def _checked_plan(effects: Effects, manner: Manner) -> tuple[Plan, Canonical, bool]:
    """The plan; with SPEC=1 the graph before it, every kernel and the document are verified."""
    if manner.checked:
        verify(UOp(Ops.SINK, dtypes.index, tuple(effects.roots)), "tensor")
    plan, canonical, hit = plan_for(effects, environment(effects, manner), manner.use_cache)
    if manner.checked and not hit:
        for kernel in plan.kernels:
            verify(kernel.ast, "kernel")
        for checker in checkers:  # r[impl schedule.document.checked]
            checker(document(plan, hit, effects.nodes))
    if manner.recorded:
        for recorder in schedule_recorders:
            recorder(effects, plan)
    return plan, canonical, hit


# --8<-- [start:decisions]
def decisions(plan: Plan, nodes: Sequence[UOp]) -> list[tuple[frozenset[int], str]]:
    """What was decided, a line each, and the kernels that it concerns."""
    found: list[tuple[frozenset[int], str]] = []
    shown = shown_numbers(plan)
    for number, kernel in enumerate(plan.kernels):  # r[impl inspect.debug.lines]
        names = label(plan, number, nodes).partition(" (")[0]
        found.append((frozenset((number,)), f"kernel {number}: "
                      + (kernel.fusion or _one_stage(kernel)) + f" ({names})"))
    for before, after, storage, reason in plan.boundaries:
        found.append((frozenset((before, after)), f"kernel {before} -> kernel {after}: "
                      f"not fused: b{shown[storage]}: {reason}"))
    found += [(frozenset(), note) for note in plan.notes]
    for d in plan.dependencies:
        found.append((frozenset((d.before, d.after)), f"{d.kind}: kernel {d.before} before kernel "
                      f"{d.after} (b{shown[d.storage]} version {d.version})"))
    return found + _allocations(plan, shown)
# --8<-- [end:decisions]


def _one_stage(kernel: Kernel) -> str:
    """How many operations of the user share the loops of a kernel with one stage."""
    if kernel.copy:
        return "alone: a copy from another device"
    nodes = toposort((kernel.ast,), lambda u: u.op is not Ops.INDEX)  # not those of addresses
    count = sum(node.op in ELEMENTWISE or node.op is Ops.REDUCE for node in nodes)
    return f"fused: {count} operations in one loop nest" if count > 1 else \
        f"alone: {count} operation{'' if count == 1 else 's'}"


def _allocations(plan: Plan, shown: dict[int, int]) -> list[tuple[frozenset[int], str]]:
    """Where each value that is stored lies: in an arena, or in memory of its own."""
    lines: dict[int, tuple[frozenset[int], str]] = {}
    for device, planned in plan.memories.items():
        for span in planned.lifetimes:
            users = frozenset(plan.order[step] for step in (span.first, span.last))
            place = f"{device} arena + {planned.offsets[span.storage]}"
            lines[span.storage] = users, f"{place}, steps {span.first} to {span.last}"
    for number, kernel in enumerate(plan.kernels):
        for touch in kernel.writes:
            storage = plan.storages[touch.storage]
            where = "in place" if storage.kind == "input" else "memory of its own"
            lines.setdefault(touch.storage, (
                frozenset((number,)), f"{storage.device}, {where} ({storage.kind})"))
    return [(users, f"alloc b{shown[n]}: {plan.storages[n].nbytes} bytes on {where}")
            for n, (users, where) in lines.items()]


_default = [""]  # the default device of the last time that values were asked for


def waiting_values(values: Sequence[UOp], manner: Manner | None = None) -> list[UOp]:
    """Those that are not in memory yet, each once.

    When the default device has changed, what was computed on the old one without any buffer is
    forgotten: a value that reads none has no device of its own.
    """
    default = (manner or in_force()).default
    if _default[0] != default:  # r[impl realize.device.named]
        _default[0] = default
        forget_realized(lambda node: not node.reads)
    # r[impl realize.value.once]
    return list(dict.fromkeys([value for value in values if leaf_of(value) is None]))


# --8<-- [start:direct]
class Direct:
    """The only kernel of a plan, ready to be launched for other buffers.

    Who realizes each line of a program waits for Python more than for kernels. A plan that fills
    one new buffer, in one kernel, leaves nothing to bind, to place or to commit.
    """

    __slots__ = ("program", "backend", "device", "dtype", "size", "nbytes", "places")

    def __init__(self, plan: Plan) -> None:
        (number, self.device, self.dtype, self.size, _), = plan.made
        program = programs_of(plan)[0]
        assert program is not None  # it is no copy
        self.program = program
        self.nbytes = plan.storages[number].nbytes or 1
        self.backend = Device[self.device]
        # Where each argument stands among the buffers of a call, of which the new one is the last.
        slots = dict(plan.inputs)
        self.places = [slots.get(storage, -1) for storage in plan.kernels[0].arguments]

    @staticmethod
    def serves(plan: Plan) -> bool:
        """Whether a plan does nothing but to fill one new buffer, in one kernel."""
        if len(plan.kernels) != 1 or len(plan.made) != 1 or plan.written or plan.memories:
            return False
        kernel, (number, _, _, _, kept) = plan.kernels[0], plan.made[0]
        return kept and not kernel.copy and not kernel.slots and not plan.unknowns \
            and plan.places == [number]

    def run(self, root: UOp, buffers: Sequence[Buffer]) -> UOp:
        """Compute a root from these buffers; the leaf that holds its value."""
        made = Buffer(self.device, self.dtype, self.size)
        memory = [buffer.memory or ensure_memory(buffer) for buffer in buffers]
        made.memory = new = self.backend.allocate(self.nbytes)  # r[impl realize.memory.first]
        memory.append(new)
        self.program([*map(memory.__getitem__, self.places)])  # r[impl realize.direct.same]
        leaf = made.leaf(root.shape or ())
        mark_realized(root, leaf)
        return leaf
# --8<-- [end:direct]


# --8<-- [start:realize]
def realize(holders: Sequence[Holder]) -> None:
    """Compute the values of all holders, in one schedule, and let them hold the results."""
    with lock.mutex:  # r[impl realize.thread.serial]
        if not lock.owner:  # nobody has a turn
            return _realize(holders)
    with lock:
        return _realize(holders)


def _realize(holders: Sequence[Holder]) -> None:
    for holder in holders:
        node = holder.uop
        if node.op is not _BUFFER or leaf_of(node) is None:
            break
    else:
        if not _scheduled:
            return  # they hold their values already
    manner = in_force()
    short = _short(holders[0], manner) if manner.direct and len(holders) == 1 else None
    if short is not None:
        known = schedule_cache.get_short(short[0])
        if known is not None:  # r[impl caching.key.short]
            GlobalCounters.plan_hits += 1
            direct = known.direct
            if direct is None:
                direct = known.direct = Direct(known)
            holders[0].uop = direct.run(holders[0].uop, short[1])
            return
    nodes = values_of(holders, manner)
    run = planned_run(nodes, manner)
    if run is not None:
        try:
            _execute(run, manner)
            commit(run)
        except BaseException:
            spoil(run.touched())
            raise
        if short is not None and Direct.serves(run.plan):
            schedule_cache.put_short(short[0], run.plan.key)
    _hold(holders, nodes)


def _short(holder: Holder, manner: Manner) -> tuple[tuple[Any, ...], list[Buffer]] | None:
    """The short key of a value that waits, if nothing else has to be done or noted with it.

    All of its buffers are on the default device: that is what the circumstances speak of. So is
    its holder: what reads no memory may have been computed here, and be asked for elsewhere.
    """
    root, default = holder.uop, manner.default
    if _scheduled or capturing.observers or root.realized is not None \
            or holder.device != default or _default[0] != default:
        return None
    found = short_key(root, manner.circumstances)
    if found is not None:
        for buffer in found[1]:
            if buffer.device != default:
                return None
    return found


def values_of(holders: Sequence[Holder], manner: Manner | None = None) -> list[UOp]:
    """What the holders hold, on the devices that they name.

    A value that reads no buffer is computed on the default device. A holder that names another one
    gets a copy.
    """
    values = [holder.uop for holder in holders]
    for place, value in enumerate(values):
        if not value.reads and holders[place].device != (manner or in_force()).default:
            device = holders[place].device
            if value.op is not _COPY or value.arg != device:  # r[impl realize.device.named]
                copy = UOp(Ops.COPY, value.dtype, (value,), device)
                values[place] = holders[place].uop = copy
    return values


def planned_run(nodes: Sequence[UOp], manner: Manner | None = None, **how: bool) -> Run | None:
    """The plan for those of the values that are not in memory, bound to buffers; None for none.

    Whoever calls it holds the lock, has the kernels run, and commits.
    """
    if _scheduled:
        _run_scheduled()
    manner = manner or in_force()
    waiting = waiting_values(nodes, manner)
    if not waiting:
        return None
    effects, plan, canonical = prepare(waiting, manner)
    return Run(plan, canonical, effects, **how) if how else Run(plan, canonical, effects)


def commit(run: Run) -> None:
    """Let nodes, tensors and a capture under way know where the values are."""
    run.commit()
    if run.effects.rescued:
        _let_go()
    for observer in capturing.observers:
        observer(run)
# --8<-- [end:realize]


def _hold(holders: Sequence[Holder], nodes: Sequence[UOp]) -> None:
    """Let the holders hold the leaves of their values, unless they were given others meanwhile."""
    for holder, node in zip(holders, nodes, strict=True):
        if holder.uop is node:
            leaf = leaf_of(node)
            if leaf is not None:
                holder.uop = leaf


def _let_go() -> None:
    """Let tensors whose value was computed for them hold it, and not its expression."""
    for holder in living():
        leaf = in_memory(holder.uop)
        if leaf is not None:
            holder.uop = leaf  # r[impl realize.rescue.held]


def _execute(run: Run, manner: Manner) -> None:
    """Run the kernels in order; print and poison if that is asked for."""
    plan, buffers, values = run.plan, run.buffers, run.values
    programs = plan.programs or programs_of(plan)
    # r[impl realize.memory.first]: a run that does not fit changes nothing
    for number in plan.touched:
        if buffers[number].memory is None:
            ensure_memory(buffers[number], manner)
    watched = manner.watched
    for number, arguments, slots in plan.launches:
        run.begun += 1
        program = programs[number]
        given = [buffers[argument].memory for argument in arguments]
        if watched:
            before = GlobalCounters.operations, GlobalCounters.bytes, time.perf_counter()
        if program is None:
            _copy(given, buffers[arguments[1]].nbytes)
        else:
            program(given, [values[slot] for slot in slots] if slots else ())
        if watched:
            _report(run, number, *before)


def _report(run: Run, number: int, operations: int, moved: int, start: float) -> None:
    """Print and poison what is asked for after a kernel, given counts and time from before it."""
    manner, kernel = in_force(), run.plan.kernels[number]
    Device[kernel.device].synchronize()  # else it is the launch that is timed
    seconds = time.perf_counter() - start
    if manner.debug >= 2:
        operations = GlobalCounters.operations - operations
        moved = GlobalCounters.bytes - moved
        program = programs_of(run.plan)[number]
        print(f"*** {run.buffers[kernel.arguments[0]].device:10s} {number:4d} "
              f"{kernel.ast.arg.name:28s} {seconds * 1e6:10.1f} us {operations:12d} operations "
              f"{moved:12d} bytes | {label(run.plan, number, run.effects.nodes)}"
              f"{_steps_text(program)}")
        if manner.debug >= 3 and program is not None:
            for name, reason in zip(program.steps, program.reasons, strict=True):
                print(f"steps of kernel {number}: {name}: {reason}")
        if manner.debug >= 4 and program is not None:
            print(program.source)
    if manner.poison:
        _poison_dead(run, run.begun - 1)


def _steps_text(program: Program | None) -> str:
    """The steps of a kernel, to stand behind what it computes."""
    return f" | {' '.join(program.steps)}" if program is not None and program.steps else ""


def _poison_dead(run: Run, step: int) -> None:
    """Fill what died at this step, so that a later read of it shows."""
    for planned in run.plan.memories.values():
        for span in planned.lifetimes:
            if span.last == step and run.buffers[span.storage].nbytes:
                _poison(ensure_memory(run.buffers[span.storage]))


def read(holder: Holder) -> np.ndarray:
    """A tensor's value as a new one-dimensional NumPy array (bfloat16 as its bits)."""
    # r[impl replay.read.error]
    refuse_capture("read", "a value is read; a replay would not run the Python code that uses it",
                   "return the tensor, or read it outside the function")
    with lock:
        realize([holder])
        leaf = leaf_of(holder.uop)
        assert leaf is not None
        buffer: Buffer = leaf.arg[0]
        if buffer.nbytes == 0:
            return np.empty(0, buffer.dtype.numpy)
        memory = ensure_memory(buffer)
        # r[impl realize.read.fresh]
        return memory.device.copy_out(memory, buffer.dtype, buffer.size)


def peek(holder: Holder) -> np.ndarray | None:
    """What `read` gives, if it is in memory; None otherwise, and where nothing may be read."""
    if capturing.observers or _scheduled:
        return None
    with lock.mutex:  # in another thread's turn, too: who looks changes nothing that it would see
        leaf = in_memory(holder.uop)
        # r[impl tensor.print.nothing]: nor is what was overwritten an error here
        if leaf is None or leaf.arg[1] != leaf.arg[0].version:
            return None
        buffer: Buffer = leaf.arg[0]
        if buffer.nbytes == 0:
            return np.empty(0, buffer.dtype.numpy)
        if buffer.memory is not None:
            return buffer.memory.device.copy_out(buffer.memory, buffer.dtype, buffer.size)
        return None if buffer.host is None else buffer.host.reshape(-1)


class _Capturing(threading.local):
    """The captures under way in this thread; each is told of every run."""

    def __init__(self) -> None:
        self.observers: list[Any] = []


capturing = _Capturing()


def refuse_capture(operation: str, why: str, remedy: str) -> None:
    """Raise if this thread captures a function: a replay could not do what is asked for."""
    if capturing.observers:
        raise ReplayError(operation, f"inside a captured function {why}", remedy)


_scheduled: list[ExecItem] = []


def pending() -> bool:
    """Whether kernels were scheduled and not run, which comes before anything else."""
    return bool(_scheduled)


def _run_scheduled() -> None:
    """Run what was scheduled and not run, before anything can observe that it was not."""
    while _scheduled:
        item = _scheduled.pop(0)  # r[impl realize.schedule.observed]
        if not item.done:  # r[impl realize.item.once]
            item.run()


# --8<-- [start:schedule]
def schedule(holders: Sequence[Holder]) -> list[ExecItem]:
    """The kernels that compute the values, to be run by the caller in order (`run_schedule`).

    The tensors hold their buffers from now on. What the caller does not run is run before the next
    value is read or realized, so that nothing can see an empty buffer.
    """
    refuse_capture("schedule", "kernels are scheduled that a replay would not know of",
                   "use .realize(), or schedule outside the function")
    with lock:
        nodes = values_of(holders)
        run = planned_run(nodes, own_arena=True)
        items: list[ExecItem] = []
        if run is not None:
            items = run.items()
            decided = decisions(run.plan, run.effects.nodes)
            for item in items:
                number = item.metadata["kernel"]
                item.metadata["label"] = label(run.plan, number, run.effects.nodes)
                item.metadata["decisions"] = [line for concerned, line in decided
                                              if number in concerned]
            commit(run)
            _scheduled.extend(items)
        _hold(holders, nodes)
        return items


def run_schedule(items: Sequence[ExecItem]) -> None:
    """Run scheduled kernels in order, each once."""
    with lock:
        for item in items:
            if not item.done:
                item.run()
# --8<-- [end:schedule]


def schedule_document(holders: Sequence[Holder], programs: bool = False,
                      steps: bool = False) -> dict[str, Any]:
    """The schedule that `realize` would run, as plain data; nothing runs.

    With `programs`, the kernels are compiled and the document has their source, steps and cost.
    With `steps` it has the steps that they would get.
    """
    with lock:
        _run_scheduled()
        waiting = waiting_values(values_of(holders))
        effects = collect(waiting)
        plan, canonical, hit = _checked_plan(effects, in_force())
        rows = document(plan, hit, effects.nodes)  # r[impl schedule.document.nothing-runs]
        if programs:
            for row, program in zip(rows["kernels"], programs_of(plan), strict=True):
                if program is not None:
                    values = [canonical.values[v] for v in plan.kernels[row["id"]].slots]
                    cost = program.cost(values)
                    row.update(source=program.source or "", operations=cost.operations,
                               bytes=cost.bytes, **_step_rows(program.steps, program.reasons))
        elif steps:
            for row in rows["kernels"]:
                kernel = plan.kernels[row["id"]]
                if not kernel.copy:
                    info = Device[kernel.device].optimized(kernel.ast, False).arg
                    row.update(_step_rows(info.steps, info.reasons))
        return rows


def _step_rows(steps: Sequence[str], reasons: Sequence[str]) -> dict[str, list[str]]:
    """The steps that were applied to a kernel, and the reason for each."""
    return {"optimizations": list(steps), "because": list(reasons)}
