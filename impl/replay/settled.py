"""States that lie where the last call left them. Chapter: spec/replay.md.

Most calls of a function that changes states are like the one before: nobody has given a state
other memory, and nobody waits for a value that will be overwritten. `Settled` asks just that. All
else that a call in full would look for it knows from the call before.
"""
from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any, NamedTuple, Protocol

from impl import realize
from impl.device.lent import is_seen, lent
from impl.effects import Buffer, lock
from impl.ir import Ops, Shape, UOp, leaf_node, note_late
from impl.replay.history import Expression, Expressions, Standing, Stood
from impl.replay.results import leaves_of
from impl.replay.states import GradientOf, Owner, States, catch_up, catch_up_written
from impl.symbolic import Size
from impl.tensor import Tensor
from impl.tensor.parameters import dependent_bits, is_held
from impl.tensor.random import generator


class Recorded(Protocol):
    """What is asked of a recording: see there."""

    states: States
    history: Expressions
    fresh: list[Buffer]
    number: dict[Buffer, int]
    launch: realize.Segments
    cleared: list[weakref.ref[Tensor] | str]
    values: list[Any]
    random_start: int
    random_used: int
    used: set[Buffer]
    aliases: list[tuple[str, ...]]
    variables: dict[str, UOp]
    comparisons: dict[UOp, bool]
    sizes: dict[Buffer, Size]
    result: Any

    def set_values(self, variables: Mapping[str, UOp]) -> None:
        """Give the kernels the values of variables, and the random numbers that come now."""

    def returned(self, states: Settled, outputs: Sequence[Buffer]) -> Any:
        """What a call returns."""


class _Slot:
    """What holds one thing, as a tensor holds its leaf."""

    __slots__ = ("held",)


def _count_of_one() -> int:
    """How many references are counted of what a slot holds, and a list."""
    slot: Any = _Slot()
    slot.held = object()
    return [*map(getrefcount, [slot.held])][0]


_NOTHING = Standing(False, False, ())
#: Of a leaf that one tensor holds, and nobody else.
_ALONE = _count_of_one()


class _Next(NamedTuple):
    """The next value of a tensor, by its place among the holders: in a new output, or (-1) in the
    buffer where it is.
    """

    place: int
    output: int
    shape: Shape
    gradient: bool
    expression: Expression | None


class Settled(realize.LaunchedCall):
    """The states of a recording where a call has left them, and what the next call does to them.

    `holders` are the tensors that have them, first those whose memory is overwritten; `buffers`
    where each of them lies, and `now` where those of the capture do. Of what lies elsewhere after
    each call, `moves` tells the place of its holder and in which output it is, `moved` the buffer
    of the capture and that place.
    """

    def __init__(self, recording: Recorded, holders: Sequence[Owner], now: Mapping[Buffer, Buffer],
                 standing: Standing) -> None:
        states, tensors = recording.states, [holder() for holder in holders]
        self.recording, self.holders, self.begun = recording, holders, False
        self.tensors, self.standing = list[Any](), _NOTHING  # of the call that is under way
        self.found, self.result = list[Any](), None  # what the tensors hold, and what it returns
        leaves = [tensor.uop for tensor in tensors if tensor is not None]
        self.buffers = [leaf.arg[0] for leaf in leaves]
        self.depending = [*map(is_held, leaves)]  # r[impl replay.arguments.depending]
        self.gains = [states.sources[buffer].written for buffer in states.written]
        self.written = self.buffers[:len(self.gains)]
        self.alone, self.one = [_ALONE] * len(self.gains), [1] * len(self.gains)
        for buffer in self.written:  # nobody reads what has another version
            buffer.leaves = tuple(each for each in buffer.leaves if (leaf := each()) is not None
                                  and leaf.arg[1] == buffer.version)
        places = {id(tensor): place for place, tensor in enumerate(tensors)}
        outputs = {buffer: number for number, buffer in enumerate(recording.fresh)}
        self.changes = [_Next(places[id(holder)], outputs.get(change.buffer, -1), change.shape,
                              change.gradient, change.expression)
                        for change, holder in states.changing() if holder is not None]
        moves = {places.get(id(tensors[change.place].grad if change.gradient  # type: ignore
                               else tensors[change.place]), -1): change.output
                 for change in self.changes if change.output >= 0}
        self.moves = [(place, output) for place, output in moves.items() if place >= 0]
        self.now = {buffer: now[buffer] for buffer in states.own}
        self.moved = [(buffer, places[id(owner)]) for buffer, owner in states.owned()
                      if places[id(owner)] in moves]
        self._note_moved()
        # What stands in the places of expressions: the same in each call, but for the versions.
        self.seen = [leaf.arg[0] for leaf in recording.history.states]
        self.stood = list(standing.parts[1])
        new = {buffer for buffer, _ in self.moved}
        self.elsewhere = [number for number, buffer in enumerate(self.seen) if buffer in new
                          or isinstance(self.stood[3 * number], UOp)]  # it tells of that call

    def _note_moved(self) -> None:
        """Note where the states are that lie elsewhere now, and what no argument may be."""
        for buffer, place in self.moved:
            self.now[buffer] = self.buffers[place]
        self.recording.used.clear()
        self.recording.used.update(self.buffers)

    def holds(self) -> bool:
        """Whether the states lie where they lay, and nobody waits for what is overwritten."""
        try:
            self.tensors = [holder() for holder in self.holders]
            leaves, buffers = [tensor.uop for tensor in self.tensors], self.buffers
            found = self.found = [leaf.arg for leaf in leaves]
            if dependent_bits[0] and [*map(is_held, leaves)] != self.depending:
                return False
            if lent and any(is_seen(buffer.memory) for buffer in self.written):
                return False  # r[impl device.lent.kept]
            del leaves[len(self.gains):]
            # r[impl replay.readers.kept, replay.shortcut.same+3]
            return [arg[0] for arg in found] == buffers \
                and [arg[1] for arg in found] == [buffer.version for buffer in buffers] \
                and [*map(getrefcount, leaves)] == self.alone \
                and [len(buffer.leaves) for buffer in self.written] == self.one
        except (AttributeError, TypeError):  # a tensor is gone, or has to be computed
            return False

    def begin(self, dependent: int, given: Stood) -> None:
        """Note what stands in the places of expressions, before anything is overwritten."""
        history, stood, now = self.recording.history, self.stood, self.now
        if stood:
            stood = stood.copy()
            stood[1::3] = [now[buffer].version for buffer in self.seen]
            for number in self.elsewhere:
                buffer = now[self.seen[number]]
                stood[3 * number:3 * number + 3] = history.of_state(
                    number, buffer, buffer.version, history.dependent)
        drawn = history.drawn(self.recording.random_start, generator.counter) \
            if history.draws else ()
        self.begun = False
        self.standing = Standing(bool(dependent), history.dependent, (given, stood, drawn))

    def ready(self, filled: list[Buffer]) -> None:
        """Put in its place what lies elsewhere since the last call."""
        recording = self.recording
        for buffer, place in self.moved:
            recording.launch.put(recording.number[buffer], self.buffers[place].memory)
        if recording.values or recording.random_used:
            recording.set_values({})
        self.begun = True

    def commit(self, filled: list[Buffer]) -> None:
        """Give the tensors their new values."""
        buffers, tensors, standing = self.buffers, self.tensors, self.standing
        old = [buffer.leaves for buffer in self.written]
        for buffer, gain in zip(self.written, self.gains, strict=True):
            buffer.version += gain
            buffer.leaves = buffer.nodes = ()  # nobody has the one that there was
        lock.changes += 1
        bits, told = 0, standing.parts
        for place, output, shape, gradient, expression in self.changes:
            buffer = buffers[place] if output < 0 else filled[output]
            leaf = leaf_node(buffer.dtype, (buffer, buffer.version, shape))
            if expression is not None:  # as Expression.note does
                note_late(leaf, (expression, expression.depends, *told))
                buffer.told = buffer.version
                bits |= buffer.bit
            if gradient:
                tensors[place].grad = Tensor._holding(leaf, buffer.device)
            elif tensors[place].uop.arg is self.found[place]:  # r[impl replay.state.eager]
                tensors[place].uop = leaf
            else:
                before = leaf_node(buffer.dtype, self.found[place])
                catch_up([tensors[place]], {before: leaf})
        if any([each() is not None for leaves in old for each in leaves]):
            catch_up_written([each for leaves in old for each in leaves])
        if standing.dependent:
            dependent_bits[0] |= bits
        for cleared in self.recording.cleared:
            holder = cleared()  # type: ignore[operator]
            if holder is not None:
                holder.grad = None
        # r[impl replay.shortcut.same+3]: what a state was before is returned from where it lay
        self.result = self.recording.returned(self, filled)
        if self.moves:
            for place, output in self.moves:
                buffers[place] = filled[output]
            self._note_moved()
        self.begun = False

    def touched(self) -> Iterable[Buffer]:
        """Where the states lie."""
        return self.now.values()

    def end(self) -> None:
        """Let go of what the call has brought."""
        self.tensors, self.found, self.standing, self.result = [], [], _NOTHING, None

    def overwritten(self) -> Sequence[Buffer]:
        """The states whose memory the function writes."""
        return self.written if self.begun else []


def may_settle(recording: Recorded) -> bool:
    """Whether calls can be alike but for what `Settled` knows: nothing that the function changes
    or returns is an argument, and nothing has another size or value in each call.
    """
    states = recording.states
    kept = {*recording.fresh, *states.own}
    named = [*(change.holder for change in states.changes), *recording.cleared,
             *(leaf.holder for leaf in leaves_of(recording.result))]
    return not (recording.aliases or recording.variables or recording.comparisons
                or recording.sizes) \
        and not any(isinstance(holder, str) for holder in named) \
        and all(leaf.holder is not None or leaf.buffer in kept
                for leaf in leaves_of(recording.result))


def settle(recording: Recorded, now: Mapping[Buffer, Buffer],
            standing: Standing) -> Settled | None:
    """The states as a call has left them, with what stood `now` where the capture read; None if the
    next one cannot know that from them.
    """
    states, launch, outputs = recording.states, recording.launch, set(recording.fresh)
    if standing.held is not recording.history.dependent:
        return None
    owners = [[owner for owner in states.sources[buffer].owners if owner() is not None]
              for buffer in states.written]
    if any(len(each) != 1 or isinstance(each[0], GradientOf) for each in owners):
        return None
    holders = {id(each[0]()): each[0] for each in owners}
    if len(holders) < len(owners):
        return None
    for source in states.own.values():
        for owner in source.owners:
            holders.setdefault(id(owner()), owner)
    for change, holder in states.changing():
        assert not isinstance(change.holder, str)
        holders.setdefault(id(holder), change.holder)
    holders.pop(id(None), None)
    places = {key: place for place, key in enumerate(holders)}
    for change, holder in states.changing():
        if holder is not None and change.buffer not in outputs and (
                change.gradient or change.buffer not in states.written
                or states.written.index(change.buffer) != places[id(holder)]):
            return None
    for owner in holders.values():
        tensor = owner()
        if tensor is None or tensor.uop.op is not Ops.BUFFER:
            return None
    kept = [change for change, _ in states.changing() if change.buffer not in outputs]
    if {c.buffer for c in kept} != {*states.written} or any(
            leaf.arg[0] not in states.own for leaf in recording.history.states):
        return None
    found = Settled(recording, [*holders.values()], now, standing)
    moved = {buffer for buffer, _ in found.moved}
    for buffer, place in recording.number.items():
        if buffer in states.own and buffer not in moved \
                and launch.placed[place] is not found.now[buffer].memory:
            return None
    return found
