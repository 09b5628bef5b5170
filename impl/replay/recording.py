"""The kernels of a captured call, and running them again on other buffers."""
from __future__ import annotations

import functools
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from impl import realize, symbolic
from impl.caching import has_sizes
from impl.device import Device, Memory, Table
from impl.effects import Buffer, advance, is_lost, leaf_of, living, spoil
from impl.errors import ReplayError
from impl.ir import Shape, UOp, toposort
from impl.replay.arguments import Arguments, aliases_of, compare, expected
from impl.replay.names import Name, Names, lengths_of
from impl.replay.results import filled, leaves_of, template_of
from impl.replay.shortcut import Shortcut
from impl.tensor import Tensor
from impl.tensor.random import generator

if TYPE_CHECKING:
    from impl.replay.capture import Capture

_RANDOM_KEY = "the key of the random numbers"
#: Results of fewer bytes leave room for others in the caches, and are not looked after.
_LARGE = 1 << 16


#: Whoever has a buffer: a tensor, while it lives.
Owner = Callable[[], "Tensor | None"]


class GradientOf:
    """The gradient that a tensor has now, as an owner: `backward` makes a new one each time."""

    def __init__(self, holder: weakref.ref[Tensor]) -> None:
        self.holder = holder

    def __call__(self) -> Tensor | None:
        found = self.holder()
        return None if found is None else found.grad


@dataclass
class Source:
    """Where a replay finds a buffer that the capture read but did not make.

    `path` is an argument; otherwise `owners` are the living tensors that held the buffer, and
    `gradients` those of which it was the gradient.
    """

    path: str | None
    owners: list[Owner]
    written: int = 0  # versions that it gains at each call
    gradients: list[weakref.ref[Tensor]] = field(default_factory=list)


@dataclass
class Change:
    """A tensor that a call gives a new value: an argument (by path), or any other.

    With `gradient`, not the tensor itself but its `.grad` is given a value.
    """

    holder: weakref.ref[Tensor] | str
    buffer: Buffer
    shape: Shape
    gradient: bool = False


class Recording:
    """The kernels of a captured call, ready to run again on other buffers."""

    def __init__(self, capture: Capture, result: Any, changes: list[Change],
                 holders: dict[int, weakref.ref[Tensor] | str]) -> None:
        self.name = capture.name
        self.signature = expected(capture.arguments.signature, capture.function)
        self.aliases = aliases_of(capture.arguments.leaves)
        self.result, self.changes = template_of(result, holders), changes
        kept = {c.buffer for c in changes} | {leaf.buffer for leaf in leaves_of(self.result)}
        self.sources = capture.sources(kept)
        self.given = [(b, s.path) for b, s in self.sources.items() if s.path is not None]
        self.written = [b for b, source in self.sources.items() if source.written]
        made = [b for run in capture.runs for b in run.outputs]
        self.sizes = {buffer: size for run in capture.runs for buffer, size in run.sizes().items()}
        # r[impl replay.sizes.memory]: what has another size in each call has memory of that call
        self.fresh = [b for b in made if b in kept or b in self.sizes]
        self.guards = capture.guards
        self.keys = [run.plan.key for run in capture.runs]
        sized = self.guards or any(has_sizes(run.effects.nodes) for run in capture.runs)
        self.trusted = not sized  # for other values of its variables
        self.variables = capture.arguments.variables
        self.paths = {bind: path for path, bind in capture.arguments.variables.items()}
        self.random_start = capture.random_start
        self.random_used = generator.counter - capture.random_start
        self.names: list[tuple[Name, Callable[[], Any]]] = []
        self.inputs = {path: b for b, path in self.given}
        self.shortcut: Shortcut | None = None
        self._build(capture)

    # --8<-- [start:build]
    def _build(self, capture: Capture) -> None:
        """Lay all kernels of all runs into tables; note which arguments change from call to call.

        A table is of one device. Between two stand the copies from device to device.
        """
        paths = self.paths
        self.large = [b for b in self.fresh if b.nbytes >= _LARGE]
        changing = set(self.sources) | set(self.fresh)
        self.segments: list[Table | realize.ExecItem] = []
        # Where each changing buffer stands, and the memory that was put there last.
        self.slots: dict[Buffer, list[tuple[Table, int, int]]] = {}
        self.placed: dict[Buffer, Memory] = {}
        self.values: list[tuple[Table, int, int, str | int]] = []
        launches: list[tuple[realize.ExecItem, list[UOp]]] = []
        for run in capture.runs:
            binds = run.canonical.variables
            for item in realize.items_of(run):
                if item.program is None:
                    self._close(launches, changing, paths)
                    self.segments.append(item)
                else:
                    if launches and item.bufs[0].device != launches[0][0].bufs[0].device:
                        self._close(launches, changing, paths)  # r[impl replay.devices.each]
                    slots = run.plan.kernels[item.metadata["kernel"]].slots
                    launches.append((item, [binds[slot] for slot in slots]))
        self._close(launches, changing, paths)
    # --8<-- [end:build]

    def _close(self, launches: list[tuple[realize.ExecItem, list[UOp]]], changing: set[Buffer],
               paths: dict[UOp, str]) -> None:
        """Make a table of the launches so far."""
        if not launches:
            return
        device = Device[launches[0][0].bufs[0].device]
        table = device.table([(item.program, [realize.ensure_memory(b) for b in item.bufs],
                               item.values) for item, _ in launches if item.program is not None])
        for launch, (item, binds) in enumerate(launches):
            for argument, buffer in enumerate(item.bufs):
                if buffer in changing:
                    self.slots.setdefault(buffer, []).append((table, launch, argument))
            for position, bind in enumerate(binds):
                what = self._follows(bind, paths)
                if what is not None:
                    self.values.append((table, launch, position, what))
        self.segments.append(table)
        launches.clear()

    def _follows(self, bind: UOp, paths: dict[UOp, str]) -> str | int | None:
        """What a bound value follows at a replay: an argument, the random counter (the distance
        from its start) or the random key; None if it stays.
        """
        name = bind.src[0].arg[0]
        if name.startswith("random#"):
            return int(bind.src[1].arg) - self.random_start
        return _RANDOM_KEY if name.startswith("random-key#") else paths.get(bind)

    # --8<-- [start:run]
    def run(self, arguments: Arguments) -> Any:
        """Replay on new arguments."""
        self.check(arguments)
        self._check_names()
        realize.realize(list(arguments.tensors.values()))
        now = {buffer: self._find(buffer, source, arguments)
               for buffer, source in self.sources.items() if source.path is None}
        held = self._held()
        if self.changes:
            self._part(arguments.tensors, held.union(now.values()))
        for buffer, path in self.given:
            now[buffer] = arguments.tensors[path].uop.arg[0]
        self._check_aliases(arguments, now, held)
        if self.changes:
            self._check_views(arguments.tensors)
        if self.written:
            self._protect(now, arguments)
        # r[impl replay.output.fresh, replay.outputs.distinct]
        self.let_go(self.large)
        for buffer in self.fresh:
            now[buffer] = buffer.alike(self._size(buffer, arguments))
        self._launch(now, arguments)
        for change in self.changes:
            holder = arguments.tensors[change.holder] if isinstance(change.holder, str) \
                else change.holder()
            leaf = now.get(change.buffer, change.buffer).leaf(
                arguments.again(change.shape, self.paths))
            if holder is not None and change.gradient:
                holder.grad = Tensor(leaf)
            elif holder is not None:  # r[impl replay.state.eager]
                holder.uop = leaf
        self.shortcut = Shortcut.of(self, arguments)
        return filled(self.result, now, arguments, self.paths)
    # --8<-- [end:run]

    # --8<-- [start:sizes]
    def unsure(self, arguments: Arguments) -> bool:
        """Whether nothing shows yet that the kernels are those for these values too.

        A number that Python code made of a size (`range(n)`, `1.0 / n`) is in the kernels, unseen.
        """
        if self.trusted:
            return False
        values = {path: bind.src[1] for path, bind in arguments.variables.items()}
        mine = {path: bind.src[1] for path, bind in self.variables.items()}
        return values != mine  # r[impl replay.sizes.twice]

    def check(self, arguments: Arguments) -> None:
        """Refuse arguments for which the function would have done something else."""
        compare(self.name, self.signature, arguments.signature)
        for condition, outcome in self.guards.items():
            now = {bind: int(arguments.now(bind, self.paths).src[1].arg)
                   for bind in symbolic.binds_in(condition)}
            if bool(symbolic.evaluate(condition, now)) is not outcome:
                # r[impl replay.sizes.guard]
                names = ", ".join(f"{b.src[0].arg[0]} = {value}" for b, value in now.items())
                said = symbolic.text(condition)
                raise ReplayError(self.name, f"with {names} it would do something else: in the "
                                  f"capture {said} was {'true' if outcome else 'false'}",
                                  "make another TinyJit for such values, or call .reset()")

    def _size(self, buffer: Buffer, arguments: Arguments) -> int:
        """The size, in elements, of what stands in this call for a buffer of the capture."""
        size = self.sizes.get(buffer)
        if size is None:
            return buffer.size
        return symbolic.plain(arguments.again((size,), self.paths)[0])
    # --8<-- [end:sizes]

    def let_go(self, buffers: Sequence[Buffer]) -> None:
        """Forget the memory that results of the call before had: if nobody else holds it, it is
        free, and what is in the caches of it is written again.
        """
        # r[impl replay.output.again]
        for buffer in buffers:
            self.placed.pop(buffer, None)
            for table, launch, argument in self.slots.get(buffer, ()):
                table.forget(launch, argument)

    def _launch(self, now: dict[Buffer, Buffer], arguments: Arguments) -> None:
        for buffer, places in self.slots.items():
            memory = realize.ensure_memory(now[buffer])
            if self.placed.get(buffer) is not memory:
                self.placed[buffer] = memory
                for table, launch, argument in places:
                    table.set_memory(launch, argument, memory)
        start = generator.counter
        for table, launch, position, what in self.values:
            if isinstance(what, int):
                value = start + what
            else:
                bound = generator.key if what is _RANDOM_KEY else arguments.variables[what]
                assert bound is not None
                value = bound.src[1].arg
            table.set_value(launch, position, value)  # r[impl replay.values.bound]
        if self.random_used:
            generator.reserve(self.random_used)  # r[impl replay.random.advances]
        try:
            for segment in self.segments:
                if isinstance(segment, realize.ExecItem):
                    self._copy_across(segment, now, arguments)
                else:
                    segment.run()
            for buffer in self.written:
                advance(now[buffer], self.sources[buffer].written)
        except BaseException:  # r[impl realize.interrupted.error]
            spoil(now[buffer] for buffer in self.written)
            raise

    def _copy_across(self, item: realize.ExecItem, now: dict[Buffer, Buffer],
                     arguments: Arguments) -> None:
        """Run a copy between devices, or between those of a mesh."""
        memories = [realize.ensure_memory(now.get(buffer, buffer)) for buffer in item.bufs]
        dtype = item.bufs[1].dtype
        nbytes = [self._size(buffer, arguments) * dtype.itemsize for buffer in item.bufs]
        realize.copy_across(item.copy, memories, nbytes, dtype)

    def _find(self, buffer: Buffer, source: Source, arguments: Arguments) -> Buffer:
        """The buffer of a captured tensor that stands now where `buffer` stood in the capture."""
        owners = [owner for reference in source.owners if (owner := reference()) is not None]
        if not all([leaf_of(owner.uop) is owner.uop for owner in owners]):
            realize.realize(owners)
        buffers = {owner.uop.arg[0] for owner in owners}
        if len(buffers) > 1:
            raise ReplayError(self.name, "tensors that were one when the function was captured are "
                              "several now, and it may use any of them", "call .reset()")
        for found in buffers:
            size = self._size(buffer, arguments)
            if found.size != size or found.dtype is not buffer.dtype:
                raise ReplayError(self.name, f"a tensor that the function uses had "
                                  f"{size} elements of {buffer.dtype.name}, and has "
                                  f"{found.size} of {found.dtype.name} now", "call .reset()")
            return found
        if source.owners:  # r[impl replay.rebound.error]
            raise ReplayError(self.name, "a tensor that the function used does not exist any more, "
                              "so the function would use another one now", "call .reset()")
        return buffer

    def _held(self) -> set[Buffer]:
        """The buffers that hold, before the call, what it changes besides its arguments."""
        holders = [c.holder() for c in self.changes if not isinstance(c.holder, str)]
        leaves = [leaf_of(h.uop) for h in holders if h is not None]
        return {leaf.arg[0] for leaf in leaves if leaf is not None}

    def _part(self, tensors: dict[str, Tensor], used: set[Buffer]) -> None:
        """Give an argument that shares memory with a state, but is another tensor, its own.

        A result of an earlier call may be such an argument: the state was returned as a value.
        `used` are the buffers of the states.
        """
        sharing = [tensor for tensor in tensors.values() if tensor.uop.arg[0] in used]
        if not sharing:
            return
        holders = [c.holder() for c in self.changes if not isinstance(c.holder, str)]
        holders += [o() for source in self.sources.values() if source.path is None
                    for o in source.owners]
        known = {id(h): h for h in holders if h is not None}
        roots = {id(root()) for h in known.values() for root, *_ in h._ancestors}
        copies: dict[Buffer, Buffer] = {}
        for tensor in sharing:
            if id(tensor) not in known and id(tensor) not in roots and not tensor.requires_grad:
                own_memory(tensor, copies)  # r[impl replay.state.parted]

    def watch(self, names: Names) -> None:
        """From now on, see to it that names of tensors that are read or changed keep them."""
        mine = {id(o()) for source in self.sources.values() if source.path is None
                for o in source.owners}
        mine |= {id(c.holder()) for c in self.changes if not isinstance(c.holder, str)}
        found = [(name, tensor) for name, tensor in names.tensors.values() if id(tensor) in mine]
        leading = names.leading(name for name, _ in found)
        self.names = [(name, weakref.ref(tensor)) for name, tensor in found]
        self.names += [(name, functools.partial(_itself, part)) for name, part in leading]
        # r[impl replay.grown.error]
        self.names += [(name, functools.partial(_itself, None))
                       for name in lengths_of([name for name, _ in (*found, *leading)])]

    def _check_names(self) -> None:
        for name, known in self.names:
            now = name.value()
            if now is not known():  # r[impl replay.rebound.error]
                kind = "tensor" if isinstance(now, Tensor) else \
                    "number" if isinstance(now, int) else "object"
                raise ReplayError(self.name, f"{name.path} is another {kind} than when the "
                                  "function was captured, and a replay would use the old one",
                                  "change it with .assign, or call .reset()")

    def check_owners(self) -> None:
        """Refuse a capture whose function replaced a tensor that it reads by another one."""
        gc.collect()
        for source in self.sources.values():
            if source.gradients and source.path is None:
                self._follow_gradients(source)
            if source.owners and source.path is None and all(o() is None for o in source.owners):
                raise ReplayError(  # r[impl replay.rebound.error]
                    self.name, "a tensor that the function reads was replaced by another one "
                    "during the call; a replay would read the old one for ever",
                    "change it with .assign instead of rebinding the name")

    def _follow_gradients(self, source: Source) -> None:
        """A gradient that was read and replaced by a new one is read from its tensor each time."""
        kept = [o() for o in source.owners if o() is not None]
        replaced = [g for g in source.gradients
                    if (holder := g()) is not None and not any(holder.grad is k for k in kept)]
        if replaced and kept:  # r[impl replay.rebound.error]
            raise ReplayError(self.name, "a gradient that is also kept elsewhere was replaced by "
                              "another one, and the function may use either",
                              "keep a copy (.clone()), or the tensor itself")
        if replaced:  # r[impl replay.state.eager]
            source.owners = [GradientOf(g) for g in replaced]

    def _check_aliases(self, arguments: Arguments, found: dict[Buffer, Buffer],
                       held: set[Buffer]) -> None:
        """What shared memory must still do so, and nothing else, among arguments and captured
        tensors alike.
        """
        now = aliases_of({p: t.uop for p, t in arguments.tensors.items()})
        if now != self.aliases:  # r[impl replay.guard.alias]
            raise ReplayError(self.name, "which arguments are the same tensor has changed: was "
                              f"{self.aliases or 'none'}, is {now or 'none'}",
                              "make another TinyJit for it, or pass a copy (.contiguous())")
        if not self.changes and not self.written:
            return
        own = [found[b] for b, source in self.sources.items() if source.path is None]
        given = {path: t.uop.arg[0] for path, t in arguments.tensors.items()}
        changed = held.union(found[b] for b in self.written)
        changed |= {given[c.holder] for c in self.changes if isinstance(c.holder, str)}
        both = {*own, *held} & {*given.values()}
        if len({*own}) < len(own):
            both |= {buffer for buffer, count in Counter(own).items() if count > 1}
        if both & changed:  # r[impl replay.guard.state]
            raise ReplayError(self.name, "two tensors of the function, which changes one of them, "
                              "are the same tensor now", "pass a copy (.clone())")

    def _check_views(self, tensors: dict[str, Tensor]) -> None:
        """A view that is assigned to changes another tensor too, of which a recording is unaware.
        """
        for change in self.changes:
            if isinstance(change.holder, str) and not change.gradient \
                    and any(root() is not None for root, *_ in tensors[change.holder]._ancestors):
                raise ReplayError(self.name, "an argument that the function assigns to is a view "
                                  "of another tensor", "pass the tensor, or a copy (.clone())")

    def check_capture(self, tensors: dict[str, Tensor], before: dict[int, UOp]) -> None:
        """Refuse a capture whose function reached an argument by another name and changed it by
        one of the two: it was run on a stand-in of the argument, which then is another tensor.
        """
        self._check_views(tensors)
        reached = {id(c.holder()) for c in self.changes if not isinstance(c.holder, str)}
        read = {b for b, source in self.sources.items() if source.path is None}
        changed = {c.holder for c in self.changes if isinstance(c.holder, str)}
        changed |= {source.path or "" for source in self.sources.values() if source.written}
        for path, tensor in tensors.items():  # r[impl replay.guard.state]
            if id(tensor) in reached or before[id(tensor)].arg[0] in read and path in changed:
                raise ReplayError(self.name, "an argument is a tensor that the function uses "
                                  "besides, and changes", "pass a copy (.clone())")

    # --8<-- [start:protect]
    def _protect(self, now: dict[Buffer, Buffer], arguments: Arguments) -> None:
        """Before memory is overwritten: whoever still means the old value gets it."""
        written = {now[b] for b in self.written}
        mine = {id(arguments.tensors[c.holder] if isinstance(c.holder, str) else c.holder())
                for c in self.changes}
        pending: list[Tensor] = []
        kept: set[Buffer] = set()
        for holder in living():
            if id(holder) in mine or not isinstance(holder, Tensor) or is_lost(holder.uop):
                continue
            leaf = leaf_of(holder.uop)
            if leaf is not None:
                kept |= {leaf.arg[0]} & written
            elif any(leaf_of(u) is not None and leaf_of(u).arg[0] in written  # type: ignore
                     for u in toposort((holder.uop,), lambda u: leaf_of(u) is None)):
                pending.append(holder)
        realize.realize(pending)  # r[impl replay.readers.kept]
        for buffer in sorted(kept, key=lambda b: b.number):
            for captured, current in now.items():
                if current is buffer:
                    now[captured] = copied(current)
    # --8<-- [end:protect]


def _itself(part: Any) -> Any:
    return part


def copied(buffer: Buffer) -> Buffer:
    copy = buffer.alike()
    source, target = realize.ensure_memory(buffer), realize.ensure_memory(copy)
    target.device.copy(target, source, buffer.nbytes)
    return copy


def own_memory(tensor: Tensor, copies: dict[Buffer, Buffer]) -> None:
    """Put the value of a realized tensor into a copy of its memory, the known one if there is."""
    with realize.lock:
        leaf = leaf_of(tensor.uop)
        assert leaf is not None
        buffer = leaf.arg[0]
        if buffer not in copies:
            copies[buffer] = copied(buffer)
        tensor.uop = copies[buffer].leaf(leaf.arg[2])
