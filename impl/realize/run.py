"""A plan with the buffers of one call: binding, compiling, committing. Chapter: spec/realize.md."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from impl import settings, symbolic
from impl.caching import Canonical
from impl.collectives import MeshDevice
from impl.custom import written_text
from impl.custom.texts import line_in_file, refused_line
from impl.device import Device, GlobalCounters, Memory, Program
from impl.device.lent import is_seen, lent
from impl.effects import Buffer, Effects, advance, living, lock, mark_realized
from impl.errors import CompileError, DeviceError, GraphError, TensorScheduleError
from impl.host import np
from impl.ir import UOp, in_memory
from impl.multi import Mesh, Sharding
from impl.places import Place
from impl.realize.environment import Mode, in_force
from impl.realize.nested import is_nested, refuse
from impl.realize.session import session
from impl.schedule import Plan, kernel_line, kernel_origin


def ensure_memory(buffer: Buffer, mode: Mode | None = None) -> Memory:
    """The memory of a buffer, allocated and filled from the host at the first use."""
    memory: Memory | None = buffer.memory
    if memory is None:
        device = Device[buffer.device]
        memory = buffer.memory = device.allocate(buffer.size * buffer.dtype.itemsize or 1)
        if buffer.host is not None:
            device.copy_in(memory, buffer.host)
            buffer.host = None
        elif (mode or in_force()).poison:
            poison(memory)
    return memory


def copied(buffer: Buffer) -> Buffer:
    """A buffer with the same content; refused while a run overwrites it."""
    if lock.running:
        refuse([buffer])
    copy = buffer.alike()
    source, target = ensure_memory(buffer), ensure_memory(copy)
    target.device.copy(target, source, buffer.nbytes)
    return copy


def part_from_others(buffers: Iterable[Buffer]) -> None:
    """Give what is about to be overwritten memory of its own, where another library sees it."""
    for buffer in buffers:
        memory: Memory | None = buffer.memory
        if memory is not None and is_seen(memory):  # r[impl device.lent.kept]
            device = Device[buffer.device]
            buffer.memory = device.allocate(memory.nbytes)
            device.copy(buffer.memory, memory)


def poison(*memories: Memory) -> None:
    """Fill memory with a pattern that is wrong in every type, so that stale reads show."""
    for memory in memories:
        memory.device.copy_in(memory, np.full(memory.nbytes, 0xA7, np.uint8))


class Run:
    """A plan bound to the buffers and values of one call."""

    __slots__ = ("plan", "canonical", "values", "effects", "asked", "lying", "begun", "buffers",
                 "outputs", "_arenas", "_origins")

    def __init__(self, plan: Plan, canonical: Canonical, effects: Effects, asked: Sequence[UOp],
                 lying: Mapping[UOp, Sharding]) -> None:
        self.plan, self.canonical, self.values = plan, canonical, canonical.values
        self.effects = effects
        self.asked = asked  # the values of the results, as they were asked for: whole ones
        self.lying = lying  # how they lie on their mesh
        self._arenas: dict[Place, Memory] = {}  # those of the session that it works in
        self._origins: list[Any] | None = None
        self.begun = 0  # how many kernels, in the plan's order, have been started
        given = canonical.buffers
        self.buffers = {number: given[slot] for number, slot in plan.inputs}
        self.outputs: list[Buffer] = []
        # By slot: another program with this plan may call its variables otherwise.
        bound = dict(zip(plan.unknowns, canonical.values, strict=True)) if plan.unknowns else None
        for number, device, dtype, size, kept in plan.made:
            # r[impl realize.size.actual+2]
            buffer = self.buffers[number] = Buffer(
                device, dtype, symbolic.actual(size, bound) if bound else size)
            if kept:
                self.outputs.append(buffer)
        if plan.written and is_nested():
            for number in plan.written:  # r[impl realize.nested.apart]
                self.buffers[number] = copied(self.buffers[number])
            lock.disturbed = True  # a capture would not know the copies
        elif lent and plan.written:
            part_from_others(self.buffers[number] for number in plan.written)

    def place_temporaries(self, own_arena: bool = False,
                          keep: Collection[Buffer] = ()) -> None:
        """Give the temporaries the places that the plan has for them: in the device's arena, or in
        one that is the run's own. What has memory, or is in `keep`, is let be.
        """
        for device, planned in self.plan.memories.items():
            lacking = [number for number in planned.offsets
                       if (buffer := self.buffers[number]).memory is None and buffer not in keep]
            if not lacking:
                continue
            arena = Device[device].allocate(planned.planned) if own_arena \
                else _arena(device, planned.planned)
            if not own_arena:
                self._arenas[device] = arena
            for number in lacking:
                # For all values of the variables: a replay may have greater ones.
                self.buffers[number].memory = arena.part(planned.offsets[number],
                                                         self.plan.storages[number].nbytes)

    def give_back(self) -> None:
        """Let the next run have the arenas: this one is over."""
        for device, arena in self._arenas.items():
            known = session.arenas.pop(device, None)  # a nested run's
            session.arenas[device] = arena if known is None or known.nbytes < arena.nbytes \
                else known

    def sizes(self) -> dict[Buffer, symbolic.Size]:
        """The buffers whose size depends on variables, with their size in this call."""
        binds = dict(zip(self.plan.unknowns, self.canonical.variables, strict=True))
        found = {}
        for number, buffer in self.buffers.items():
            size = self.plan.storages[number].size
            if isinstance(size, symbolic.Size):
                found[buffer] = symbolic.as_size(size.expression.substitute(binds))
        return found

    def commit(self) -> None:
        """Advance the versions of overwritten buffers; note which leaf holds each root."""
        plan, buffers = self.plan, self.buffers
        if plan.written:
            for number, gained in plan.written.items():
                advance(buffers[number], gained)  # r[impl realize.commit.version+2]
        for root, number in zip(self.asked, plan.places, strict=True):
            # r[impl realize.size.actual+2]: the root's own shape, with the values of this call
            buffer = buffers[number]
            sharding = self.lying.get(root)
            if sharding is not None:  # r[impl multi.result.sharding]
                buffer.lie(root.shape or (), sharding)
            mark_realized(root, buffer.leaf(root.shape or ()))

    def origins(self) -> list[Any]:
        """Of each kernel, by its number, where the user has written it."""
        if self._origins is None:
            nodes = self.effects.nodes
            self._origins = [kernel_origin(self.plan, number, nodes)
                             for number in range(len(self.plan.kernels))]
        return self._origins

    def drop_graph(self) -> None:
        """Let the nodes of the call die; its origins stay."""
        self.origins()
        self.effects, self.asked, self.lying = Effects([], []), (), {}

    def touched(self) -> list[Buffer]:
        """Memory from before the run that the kernels started so far may have overwritten."""
        numbers = {touch.storage for kernel in self.plan.order[:self.begun]
                   for touch in self.plan.kernels[kernel].writes
                   if touch.storage in self.plan.written}
        return [self.buffers[number] for number in sorted(numbers)]


#: How many meshes may have an arena when nothing runs.
_MESHES = 2


def _arena(device: Place, nbytes: int) -> Memory:
    """Memory for the temporaries of one run; the same block serves run after run.

    It is the run's alone until it gives it back: a nested run takes another one.
    """
    arenas = session.arenas  # r[impl realize.nested.apart]
    known = arenas.pop(device, None)
    if known is None or known.nbytes < nbytes:
        known = None  # it is let go before the other one is taken
        if isinstance(device, Mesh):  # r[impl realize.arena.meshes+3]
            for old in [place for place in arenas if isinstance(place, Mesh)][:1 - _MESHES]:
                del arenas[old]
        known = Device[device].allocate(nbytes)
    if settings.get("POISON"):
        poison(known)
    return known


def programs_of(plan: Plan, nodes: Sequence[UOp] = ()) -> list[Program | None]:
    """The compiled kernels of a plan; compiled together at the first call. Copies have none.

    So is what its loops and collectives run. `nodes` are those of this call, for an error's line.
    """
    if plan.programs is None:
        _compile_within(plan, nodes)
        before = _counts()
        programs: list[Program | None] = [None] * len(plan.kernels)
        devices = dict.fromkeys(k.device for k in plan.kernels)
        for device in devices:
            mine = [i for i, k in enumerate(plan.kernels) if k.device == device and not k.task]
            try:
                made = Device[device].compile([plan.kernels[i].ast for i in mine])
            except _OF_KERNELS as error:
                _name_refused(error, plan, mine, nodes)
                raise
            for i, program in zip(mine, made, strict=True):
                programs[i] = program
        plan.programs = programs
        if settings.get("DEBUG") >= 2:
            compiled, hits, on_disk = (now - then for now, then in
                                       zip(_counts(), before, strict=True))
            session.printer().print_programs(compiled, on_disk, hits - on_disk)
        if settings.get("CAPTURE_PROCESS_REPLAY"):
            for recorder in session.program_recorders:
                recorder(plan)
    return plan.programs


def _compile_within(plan: Plan, nodes: Sequence[UOp]) -> None:
    """Compile what loops and collectives run: bodies, and kernels that combine what arrives."""
    # r[impl realize.failure.left+2]
    for number, kernel in enumerate(plan.kernels):
        if kernel.loop is not None:
            session.prepare_loop(kernel.loop.info, kernel.device)
        elif kernel.transfer is not None and kernel.transfer.op is not None:
            device, ends = Device[kernel.device], [plan.storages[n] for n in kernel.arguments]
            assert isinstance(device, MeshDevice)
            sizes = [end.nbytes for end in ends]
            try:
                device.compile_combinations(
                    kernel.transfer, list(map(min, sizes[::2], sizes[1::2])), ends[-1].dtype)
            except _OF_KERNELS as error:
                if nodes:
                    error.say_line(kernel_line(plan, number, nodes))
                raise


#: What can be wrong with a kernel: for us, for its compiler, for its device.
_OF_KERNELS = (GraphError, CompileError, DeviceError)


def _name_refused(error: TensorScheduleError, plan: Plan, kernels: Sequence[int],
                  nodes: Sequence[UOp]) -> None:
    """Let an error about one of some kernels that were compiled name the line of that one."""
    for number in kernels:
        kernel = plan.kernels[number]
        try:
            Device[kernel.device].compile([kernel.ast])
        except _OF_KERNELS:
            # r[impl errors.message.later]
            error.say_line(kernel_line(plan, number, nodes) if nodes else "")
            return name_text(error, kernel.ast, Device[kernel.device].source(kernel.ast) or "")


def name_text(error: TensorScheduleError, ast: UOp, printed: str = "") -> None:
    """Let an error about a kernel that is a text name the line of the text, if it is about one."""
    text = written_text(ast)
    found = None if text is None else refused_line(text, ast.arg.name, error.detail, printed)
    if text is None or found is None:
        return
    # r[impl custom.text.line]
    number, lines = found, text.text.split("\n")
    quoted = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    error.detail = f"line {number} of the text for {text.device}, `{quoted}`: {error.detail}"
    error.remedy = "mend the text, or what is declared of it"
    error.rename(ast.arg.name)
    error.say_line(line_in_file(text.text, number, error.line))


def _counts() -> tuple[int, int, int]:
    """Programs compiled, found, and of these found on disk."""
    return GlobalCounters.compiled, GlobalCounters.cache_hits, GlobalCounters.disk_hits


def commit(run: Run) -> None:
    """Let nodes, tensors and a capture under way know where the values are."""
    run.commit()
    if run.effects.rescued:
        _let_go()
    for observer in session.capturing.observers:
        observer(run)


def _let_go() -> None:
    """Let tensors whose value was computed for them hold it, and not its expression."""
    for holder in living():
        node = holder.uop
        leaf = in_memory(node)
        if leaf is not None:
            holder.hold(node, leaf, True)  # r[impl realize.rescue.held+2]
