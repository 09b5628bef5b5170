"""Launching, in one place for all: eager values, scheduled kernels, captured functions.

A call that comes again is prepared once and launched often. Whoever launches it has a *guard*: it
tells that the call is like the one that was prepared, and which buffers it brings. For a single
operation the guard is its short key (r[caching.key.short]), for a captured function what is known
of its arguments and tensors (r[replay.shortcut.same]). From there on there is one way, which a call
that comes once takes too: memory is taken for what is made, everything is put in its place, and the
kernels run. If that ends early, the error names the line, and what may be half written cannot be
read. Chapter: spec/realize.md.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any, NamedTuple, Protocol
from weakref import getweakrefcount

from impl.collectives import transferred
from impl.custom import written_text
from impl.device import Device, DeviceBackend, Memory, Program
from impl.dtypes import DType, dtypes
from impl.effects import Buffer, born_again, lock, spoil
from impl.errors import DeviceError
from impl.ir import UOp, line_of
from impl.multi import Mesh, Transfer
from impl.places import Place
from impl.ranges import LoopTask, Task
from impl.realize.nested import begin, refuse
from impl.realize.run import ensure_memory, name_text, programs_of
from impl.realize.session import session
from impl.realize.watched import run_watched
from impl.schedule import Plan


class Made(NamedTuple):
    """A buffer that each call has anew."""

    device: Place
    dtype: DType
    size: int
    nbytes: int
    backend: DeviceBackend
    like: Buffer | None = None  # one that lies on a mesh in the same way

    @staticmethod
    def again(buffer: Buffer, size: int) -> Made:
        """A buffer like one that was made before, with so many elements."""
        nbytes = size * buffer.dtype.itemsize or 1
        return Made(buffer.device, buffer.dtype, size, nbytes, Device[buffer.device],
                    buffer if buffer.shardings else None)


#: The user's line of a kernel, as nodes have it, and its graph; None where they are not known.
Known = tuple[Any, UOp | None]


def in_common(kernels: Sequence[Known]) -> Known:
    """What is known of one of some kernels, if nobody knows which one."""
    origins = dict.fromkeys(origin for origin, _ in kernels)
    return next(iter(origins)) if len(origins) == 1 else None, \
        kernels[0][1] if len(kernels) == 1 else None


class Launch(Protocol):
    """Kernels on the memories of a call: first its arguments, then its new buffers."""

    @property
    def unused(self) -> Callable[[int, int], Memory | None] | None:
        """Gives the memory of the last call for a new buffer, by its place and bytes, if nobody
        has that any more; None where no memory is kept.
        """

    def run(self, memories: Sequence[Memory]) -> None:
        """Run all kernels."""

    def failed(self) -> Known:
        """What is known of the kernel that was started last, and has failed."""


def _counted_of_a_name() -> int:
    held = object()
    return getrefcount(held)


#: No buffer and no leaf. Such a pair is held by a list alone; a call has both by name besides: so
#: `only_here` counts.
NOTHING = None, None
#: What `getrefcount` says of an object that one name has.
NAMED = _counted_of_a_name()


def only_here(buffer: str, leaf: str, name: Callable[[Any], str]) -> str:
    """The words that ask whether nobody else knows a buffer and its only leaf, and has left nothing
    in them: who has both has them in one list, and here by name.
    """
    # r[impl replay.output.alone]
    counted, weak = name(getrefcount), name(getweakrefcount)
    return (f"{buffer}.weak is None and {counted}({buffer}) == {NAMED + 2} "
            f"and {counted}({leaf}) == {NAMED + 1} "
            f"and {counted}(kept := {leaf}.arg) == {NAMED + 1} "
            f"and not {weak}({buffer}) and {weak}({leaf}) == 1 "
            f"and {counted}(kept := {buffer}.leaves[0]) == {NAMED + 1} and kept() is {leaf} "
            f"and not {buffer}.version and not {buffer}.nodes and {leaf}.origin is None")


class OneKernel:
    """A kernel that gets the memories of a call in the order of its arguments, and keeps none."""

    __slots__ = ("call", "places")
    unused = None

    def __init__(self, program: Program, places: Sequence[int]) -> None:
        self.call, self.places = program.__call__, places

    def run(self, memories: Sequence[Memory]) -> None:
        """Run the kernel."""
        self.call([*map(memories.__getitem__, self.places)])  # r[impl realize.direct.same]

    def failed(self) -> Known:
        """Whose line it is the call knows."""
        program: Program = self.call.__self__  # type: ignore[attr-defined]
        return None, program.ast


def start(program: Program | None, task: Task | None, memories: Sequence[Memory],
          values: Sequence[int], checked: object = False, nbytes: Sequence[int] = (),
          dtype: DType = dtypes.uint8) -> None:
    """Start one kernel with the values of its variables, or what is done in place of a program.

    Of a transfer between the devices of a mesh each memory that it reads has the one that it fills
    behind it; `nbytes` are those of each memory of a copy.
    """
    if program is not None:
        if checked and (text := written_text(program.ast)) is not None:
            return run_watched(program, text, memories)
        return program(memories, values)
    if isinstance(task, LoopTask):
        return session.run_loop(task, memories)
    if isinstance(task, (Transfer, Mesh)):
        transferred(task, memories, nbytes, dtype)
    else:
        source, target = memories
        target.device.copy(target, source, nbytes[1])


class Segment(Protocol):
    """A part of a call that runs at one go: a table of launches, or a task.

    It refers to a memory as often from one run to the next, until it gets another one. `begun` is
    the launch that was started last; negative where that is not known.
    """

    begun: int

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Put memory in a place."""

    def forget(self, launch: int, argument: int) -> None:
        """Let go of the memory in a place."""

    def run(self) -> None:
        """Run it."""


class TaskSegment:
    """What is done in place of a program; of copies each source has its target behind it.

    `nbytes` are those of each memory.
    """

    def __init__(self, task: Task, memories: Sequence[Memory], nbytes: Sequence[int],
                 dtype: DType) -> None:
        self.task, self.dtype, self.nbytes, self.begun = task, dtype, nbytes, 0
        self.memories: list[Memory | None] = list(memories)

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Let it work on another memory."""
        self.memories[argument] = memory

    def forget(self, launch: int, argument: int) -> None:
        """Let go of a memory; another one is put here before the next run."""
        self.memories[argument] = None

    def run(self) -> None:
        """Do it."""
        memories = [memory for memory in self.memories if memory is not None]
        start(None, self.task, memories, (), False, self.nbytes, self.dtype)


#: Where an argument stands: the segment, the launch in it, and the argument of that.
Position = tuple[Segment, int, int]


class Segments:
    """Segments that hold their memories: what is the same in the next call stays where it is.

    `places[number]` are those of the memory with that number, `holds[number]` the references to it
    that are the segments' own (0: not known). `known` is what is known of each segment's launches.
    """

    __slots__ = ("segments", "places", "placed", "holds", "known", "last")

    def __init__(self, segments: Sequence[Segment], places: Sequence[Sequence[Position]],
                 known: Mapping[Segment, Sequence[Known]]) -> None:
        self.segments, self.places, self.known = segments, places, known
        self.last: Segment | None = None  # the one that has failed
        self.placed: list[Memory | None] = [None] * len(places)
        self.holds = [0] * len(places)

    def unused(self, number: int, nbytes: int) -> Memory | None:
        """The memory of the last call with this number, if nobody but the segments holds it.

        It is written again: it is still in the caches. Otherwise it is let go of first.
        """
        # r[impl replay.output.again+3]
        memory, holds = self.placed[number], self.holds[number]
        if memory is None:
            return None
        alone = getrefcount(memory) == holds + NAMED
        if alone and memory.nbytes == nbytes:
            return memory
        if alone or not holds:
            self.forget(number)
        return None

    def alone(self, memory: str, number: int, name: Callable[[Any], str]) -> str:
        """The words that ask whether a memory is in the places of this number, and nobody but these
        and one buffer has it.
        """
        return f"{memory} is {name(self.placed)}[{number}] and " \
            f"{name(getrefcount)}({memory}) == {name(self.holds)}[{number}] + {NAMED + 1}"

    def forget(self, number: int) -> None:
        """Let go of the memory with a number; another one is put there before the next run."""
        self.placed[number] = None
        for segment, launch, argument in self.places[number]:
            segment.forget(launch, argument)

    def put(self, number: int, memory: Memory) -> None:
        """Put a memory in its places, if another one is there."""
        if self.placed[number] is not memory:
            before = getrefcount(memory)
            # Until it is in all its places it is in none: an interrupt may come in between.
            self.placed[number] = None  # r[impl realize.failure.next+2]
            for segment, launch, argument in self.places[number]:
                segment.set_memory(launch, argument, memory)
            # That of a mesh has parts, which others may hold.
            whole = memory.members[0] is memory
            self.holds[number] = getrefcount(memory) - before + 1 if whole else 0
            self.placed[number] = memory

    def _place(self, memories: Sequence[Memory]) -> None:
        """Put the first memories in their places."""
        for number, memory in enumerate(memories):
            if self.placed[number] is not memory:  # as `put` asks, too: most are there
                self.put(number, memory)

    def run(self, memories: Sequence[Memory]) -> None:
        """Put the first memories in their places, and run all segments."""
        if memories != self.placed:  # a memory equals itself only: this asks for all at once
            self._place(memories)
        try:
            for segment in self.segments:
                segment.run()
        except BaseException:
            self.last = segment
            raise

    def lines(self, memories: str, name: Callable[[Any], str]) -> Sequence[str]:
        """The words of `run`, if there is one segment, as there is most often."""
        segment, = self.segments
        return [f"if {memories} != {name(self.placed)}: {name(self._place)}({memories})",
                f"try: {name(segment.run)}()",
                "except BaseException:", f"    {name(self)}.last = {name(segment)}", "    raise"]

    def failed(self) -> Known:
        """What is known of the launch that has failed, or is the same of all that may have."""
        last, self.last = self.last, None
        if last is None:
            return None, None
        known, begun = self.known[last], last.begun
        return known[begun] if begun >= 0 else in_common(known)


class LaunchedCall:
    """What a call does besides launching, and what it answers for. Here it is nothing.

    `written` is what it overwrites of what was there before.
    """

    written: Sequence[Buffer] = ()

    def touched(self) -> Iterable[Buffer]:
        """What it works on besides the buffers that it is given."""
        return ()

    def ready(self, filled: list[Buffer]) -> None:
        """All memory is there, that of the buffers which it fills too, and no kernel runs yet."""

    def commit(self, filled: list[Buffer]) -> None:
        """All kernels are launched."""

    def overwritten(self) -> Iterable[Buffer]:
        """What was there before, and may be half written if it ends now."""
        return ()


class Prepared:
    """A call that is ready to be launched: what it makes, and the launch of its kernels."""

    __slots__ = ("made", "launch")

    def __init__(self, made: Sequence[Made], launch: Launch) -> None:
        self.made, self.launch = made, launch

    def run(self, buffers: Sequence[Buffer], origin: Any = None, call: LaunchedCall | None = None,
            made: Sequence[Made] | None = None) -> list[Buffer]:
        """Launch on the buffers of a call, and return the buffers that it filled.

        `origin` is where the user has written it, if the launch does not know that; `made` says
        what it fills, where that depends on the call.
        """
        memories, filled, unused = [], [], self.launch.unused
        if lock.running and (call is None or lock.running[-1][0] is not call):
            refuse(buffers)
        try:
            for buffer in buffers:
                memories.append(buffer.memory or ensure_memory(buffer))
            for device, dtype, size, nbytes, backend, like in self.made if made is None else made:
                # r[impl replay.output.fresh, replay.outputs.distinct]
                buffer = Buffer(device, dtype, size) if like is None else like.alike(size)
                buffer.memory = memory = unused and unused(len(memories), nbytes) \
                    or backend.allocate(nbytes)  # r[impl realize.failure.left+2]
                memories.append(memory)
                filled.append(buffer)
            if call is not None:
                call.ready(filled)
            self.launch.run(memories)
            if call is not None:
                call.commit(filled)
        except BaseException as error:
            self._end_early(error, origin, call)
            raise
        return filled

    def lines(self, buffers: Sequence[str], last: list[Any], name: Callable[[Any], str],
              ) -> list[str]:
        """The words of `run` for calls that bring these buffers, fill one, and do nothing besides;
        `name` tells what an object is called.

        What is filled is `made`. With `again` it is what an earlier call has filled, and `leaf` its
        leaf. `last` has a pair of these two, or `NOTHING`, for each call that is remembered.
        """
        (device, dtype, size, nbytes, backend, _), = self.made
        launch, number = self.launch, len(buffers)
        assert isinstance(launch, Segments), "who writes words has laid the call out"
        words = [f"m{place} = {buffer}.memory or {name(ensure_memory)}({buffer})"
                 for place, buffer in enumerate(buffers)]
        words += ["again = False", *_lines_of_last(launch, number, last, name), "if not again:"]
        if last:  # nobody has it any more if nobody else does
            words += [f"    {name(last)}[0] = {name(NOTHING)}",
                      f"    made = leaf = kept = m{number} = None"]
        words += [f"    made = {name(Buffer)}({name(device)}, {name(dtype)}, {size})",
                  # r[impl replay.output.fresh, replay.outputs.distinct]
                  f"    made.memory = m{number} = {name(launch.unused)}({number}, {nbytes}) "
                  f"or {name(backend.allocate)}({nbytes})"]
        listed = f"[{', '.join(f'm{place}' for place in range(number + 1))}]"
        words += launch.lines(listed, name) if len(launch.segments) == 1 \
            else [f"{name(launch.run)}({listed})"]
        return [f"if {name(lock.running)}: {name(refuse)}([{', '.join(buffers)}])", "try:",
                *[f"    {line}" for line in words], "except BaseException as error:",
                f"    {name(self._end_early)}(error, None, None)", "    raise"]

    def run_alone(self, buffers: Sequence[Buffer], call: LaunchedCall, since: int | None = None,
                  made: Sequence[Made] | None = None) -> list[Buffer]:
        """The same of a call that overwrites what was there before. `since` is what `lock.changes`
        was before it was prepared, if it has to be the same.

        Raises:
            Overtaken: a nested run has changed something since then. It has not begun.
        """
        running, capturing = lock.running, session.capturing
        outer, inlined = len(running), capturing.inlined
        try:
            begin(call, buffers, since)
            return self.run(buffers, None, call, made)
        finally:
            del running[outer:]
            capturing.inlined = inlined

    def _end_early(self, error: BaseException, origin: Any, call: LaunchedCall | None) -> None:
        """Let an error name the line that a kernel is from, and nobody read what it left."""
        if isinstance(error, DeviceError):
            known, kernel = self.launch.failed()
            error.say_line(line_of(known or origin))  # r[impl errors.message.later]
            if kernel is not None:
                name_text(error, kernel)
        if call is not None:
            spoil(call.overwritten())  # r[impl realize.failure.left+2]


def _lines_of_last(launch: Segments, number: int, last: list[Any], name: Callable[[Any], str],
                   ) -> list[str]:
    """The words that look for what was filled before, and nobody else knows: by the last call,
    which has its memory in place, then by the one before it.
    """
    if not last:
        return []
    memory, known = f"m{number}", name(last)
    look = [f"made, leaf = {known}[0]",
            f"if leaf is not None and {only_here('made', 'leaf', name)}:",
            f"    {memory} = made.memory"]
    words = [*look, f"    again = {launch.alone(memory, number, name)}"]
    if len(last) > 1:
        look = [f"{known}.reverse()", *look,
                f"    again = {name(getrefcount)}({memory}) == {NAMED + 1}"]
        words += ["if not again:", *[f"    {line}" for line in look]]
    return [*words, f"if again: {born_again('made', name)}"]  # r[impl replay.shortcut.same+3]


def prepare_kernel(plan: Plan) -> Prepared | None:
    """A plan that does nothing but to fill one new buffer, in one kernel, as a prepared call.

    There is nothing in it to bind, to place in an arena, or to commit. None for all other plans.
    """
    if len(plan.kernels) != 1 or len(plan.made) != 1 or plan.written or plan.memories:
        return None
    kernel, (number, device, dtype, size, kept) = plan.kernels[0], plan.made[0]
    program = programs_of(plan)[0]
    if not kept or program is None or kernel.slots or plan.unknowns or plan.places != [number]:
        return None
    # Where each argument stands among the buffers of a call, of which the new one is the last.
    slots = dict(plan.inputs)
    places = [slots.get(storage, -1) for storage in kernel.arguments]
    made = Made(device, dtype, size, plan.storages[number].nbytes or 1, Device[device])
    return Prepared([made], OneKernel(program, places))
