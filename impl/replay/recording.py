"""The kernels of a captured call, and running them again on other buffers."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impl import realize, symbolic
from impl.collectives import Stretch
from impl.device import Table
from impl.effects import Buffer, advance, leaf_of, lock
from impl.errors import ReplayError
from impl.following.reads import Reads, compiled, in_short
from impl.ir import UOp
from impl.realize import Made, Prepared
from impl.replay.arguments import (
    Arguments,
    aliases_of,
    differing,
    expected,
    form_text,
    shown,
)
from impl.replay.guards import Found, Hold, shortcut_of
from impl.replay.history import Expressions, Standing
from impl.replay.results import Leaf, filled, leaves_of, new_tensor, template_of, tensor_lines
from impl.replay.settled import Settled, may_settle, settle
from impl.replay.states import Change, Source, States, catch_up, catch_up_written
from impl.tensor import Tensor
from impl.tensor.parameters import realize_unasked
from impl.tensor.random import generator

_RANDOM_KEY = "the key of the random numbers"
#: Up to how many bytes the results of two calls are kept.
_SMALL = 4096


@dataclass
class Captured:
    """What one call of a function did.

    `comparisons` is what was asked of symbolic sizes, with the answers; `holders` the tensors that
    live besides, by identity: the path of an argument, or another tensor; of those in `gradients`
    it is the tensor whose gradient they are; `random_start` the
    counter of the random numbers when the call began; `reads` what the function reads besides;
    `cleared` the tensors whose gradient it takes away; `history` which expressions gave the values.
    """

    name: str
    function: Any
    arguments: Arguments
    runs: list[realize.Run]
    result: Any
    changes: list[Change]
    sources: dict[Buffer, Source]
    holders: dict[int, weakref.ref[Tensor] | str]
    gradients: set[int]
    comparisons: dict[UOp, bool]
    random_start: int
    reads: Reads
    cleared: list[weakref.ref[Tensor] | str]
    history: Expressions


class Recording:
    """The kernels of a captured call, ready to run again on other buffers."""

    def __init__(self, captured: Captured) -> None:
        arguments, runs = captured.arguments, captured.runs
        self.name = captured.name
        self.signature = expected(arguments.signature, captured.function)
        self.aliases = aliases_of(arguments.leaves)
        self.states = States(captured.name, captured.sources, captured.changes)
        self.result = template_of(captured.result, captured.holders, captured.gradients,
                                  captured.history.expressions)
        kept = {c.buffer for c in captured.changes} | {x.buffer for x in leaves_of(self.result)}
        self.given = sorted(((b, s.path) for b, s in captured.sources.items()
                             if s.path is not None), key=lambda each: (len(each[1]), each[1]))
        self.sizes = {buffer: size for run in runs for buffer, size in run.sizes().items()}
        # r[impl replay.sizes.follow+3]: what has another size in each call has memory of that call
        self.fresh = [b for run in runs for b in run.outputs if b in kept or b in self.sizes]
        self.comparisons = captured.comparisons
        self.keys = [run.plan.key for run in runs]
        self.trusted = not arguments.variables  # for other values of its variables
        self.variables = arguments.variables
        self.paths = {bind: path for path, bind in arguments.variables.items()}
        self.random_start = captured.random_start
        self.random_used = generator.counter - captured.random_start
        self.reads, self.cleared = captured.reads, captured.cleared
        self.known = captured.reads.known()  # r[impl replay.guard.state]
        self.history = captured.history
        self.hold = compiled(list(captured.reads.places.values()))
        self.mode: realize.Mode | None = None  # the settings in force
        self.uses, self._taken = 0, [0]  # a list: a shortcut that knew its recording kept it alive
        self.shortcut: Hold | None = None  # the guards of calls that need only be launched
        self.is_tried = False  # whether one was looked for, of a function with states
        self.settled: Settled | None = None  # the states, if a call may find them where they are
        self.used: set[Buffer] = set()  # by these: no argument of such a call is one of them
        self.last = "tensors share memory in another way"  # why no replay is right, last time
        self._prepare(runs)
        self.plain = self._is_plain()
        self.settles = not self.plain and may_settle(self)
        # Of a result that is one new tensor, as it is most often: in which output it is.
        only = self.result if self.result.__class__ is Leaf else None
        self.only = self.fresh.index(only.buffer) \
            if only is not None and only.holder is None and only.buffer in self.fresh else -1
        #: Whether the shortcut is the call as a whole: one new tensor, of one device.
        self.whole = self.plain and self.only == 0 and len(self.fresh) == 1 \
            and not self.fresh[0].shardings

    @property
    def shortcuts(self) -> int:
        """How many calls took the shortcut."""
        return self._taken[0]

    def _prepare(self, runs: Sequence[realize.Run]) -> None:
        """Lay out all kernels of all runs; note the places of what changes between calls."""
        # First what a call brings and makes: the states stay where they are from call to call.
        self.changing = [*(b for b, _ in self.given), *self.fresh, *self.states.own]
        layout = realize.CallLayout(self.changing)
        for run in runs:
            layout.add_run(run)
        self.number = layout.number
        self.launch = layout.finished()
        # Copies and transfers whose size depends on the call.
        self.copies: list[tuple[realize.TaskSegment, list[Buffer]]] = []
        self.sent: list[tuple[Stretch, int, list[Buffer]]] = []
        self.values: list[tuple[Table | Stretch, int, int, str | int]] = []
        for segment, launch, item, binds in layout.laid:
            resized = item.program is None and not self.sizes.keys().isdisjoint(item.bufs)
            if isinstance(segment, realize.TaskSegment):
                if resized:
                    self.copies.append((segment, item.bufs))
                continue
            if resized and isinstance(segment, Stretch):
                self.sent.append((segment, launch, item.bufs))
            for position, bind in enumerate(binds):
                what = self._follows(bind, self.paths)
                if what is not None:
                    self.values.append((segment, launch, position, what))
        self.prepared = Prepared([Made.again(b, b.size) for b in self.fresh], self.launch)

    def _follows(self, bind: UOp, paths: dict[UOp, str]) -> str | int | None:
        """What a bound value follows at a replay: an argument, the random counter (the distance
        from its start) or the random key; None if it stays.
        """
        name = bind.src[0].arg[0]
        if name.startswith("random#"):
            return int(bind.src[1].arg) - self.random_start
        return _RANDOM_KEY if name.startswith("random-key#") else paths.get(bind)

    def replayed(self, arguments: Arguments, poisoned: bool = False) -> tuple[Any, ...]:
        """Replay a call in which the guards hold: the result, or nothing if that would not be
        right.

        Raises:
            Overtaken: again and again nested runs have changed what it looks for.
        """
        for _ in range(realize.NESTED_ATTEMPTS):
            since = lock.changes
            now = self.located(arguments)
            if now is None:
                return ()
            try:
                return self.run(since, arguments, now, poisoned),
            except realize.Overtaken:  # perhaps by what had to be computed to find it
                continue
        raise realize.Overtaken

    def run(self, since: int, arguments: Arguments, now: dict[Buffer, Buffer],
            poisoned: bool = False) -> Any:
        """Replay on new arguments, with what stands `now` where the capture read: prepare the call,
        and launch it. `since` is what `lock.changes` was before it was looked for.

        Raises:
            Overtaken: something was overwritten since then; nothing was done.
        """
        call = _Replay(self, arguments, now, poisoned)
        made = [Made.again(b, self._size(b, arguments)) for b in self.fresh] if self.sizes else None
        given = [now[b] for b, _ in self.given]
        if self.plain:
            self.prepared.run(given, None, call, made)
        else:
            self.prepared.run_alone(given, call, since, made)
        return call.result

    def _find_shortcut(self, arguments: Arguments, now: dict[Buffer, Buffer],
                       standing: Standing) -> None:
        """Make one function of the guards of calls like this one."""
        if self.reads.gradients and arguments.tensors:
            return  # r[impl replay.guard.state]: it may ask whether it is given one of them
        read = [path for _, path in self.given]
        if self.plain:
            self.outside = standing.parts[1]
            self.shortcut = shortcut_of(arguments, read, self.states, self.reads, self.mode,
                                        self.history, words=self._words if self.whole else None)
            return
        if self.settles:
            try:
                self.settled = settle(self, now, standing)
            except (AttributeError, TypeError):  # a handler has just assigned to one
                self.settled = None
        if not self.is_tried and not (self.variables or self.comparisons or self.sizes):
            self.is_tried = True  # nothing that it asks of changes from call to call
            self.shortcut = shortcut_of(arguments, read, None, self.reads, self.mode, self.history,
                                        self.used)

    def _standing(self, now: dict[Buffer, Buffer], given: Sequence[tuple[UOp, UOp]],
                  start: int) -> Standing:
        """What stood in the places of the expressions when this call began, at `start` of the
        random numbers.
        """
        sources, states = self.states.sources, []
        for leaf in self.history.states:
            buffer = now[leaf.arg[0]]
            states.append((leaf, buffer, buffer.version - sources[leaf.arg[0]].written))
        return self.history.standing(given, states, self.random_start, start)

    def run_with_states(self, since: int, found: Found, given: Sequence[Any]) -> tuple[Any, ...]:
        """Replay a call in which the guards hold, given its arguments, with states that are looked
        at now: the result, or nothing if they are not as they have to be.
        """
        if self.settled is not None and self.settled.holds():
            return self._run_settled(since, self.settled, found),
        tensors = {f"[0][{place}]": each for place, each in enumerate(given)
                   if isinstance(each, Tensor)}
        arguments = Arguments(tensors, roots={path: each.uop for path, each in tensors.items()})
        returned = self.replayed(arguments)
        self._taken[0] += len(returned)
        return returned

    def _run_settled(self, since: int, states: Settled, found: Found) -> Any:
        """Replay a call in which the states are where they were, too."""
        states.begin(found[1], found[2])
        try:
            self.prepared.run_alone(found[0], states, since)
            self._taken[0] += 1
            return states.result
        finally:
            states.end()

    def returned(self, states: Settled, outputs: Sequence[Buffer]) -> Any:
        """What such a call returns, when its states have their new values."""
        standing, only = states.standing, self.only
        if only >= 0:
            return new_tensor(self.result, outputs[only], self.result.shape, standing)
        now = {**states.now, **dict(zip(self.fresh, outputs, strict=True))}
        return filled(self.result, now, None, self.paths, standing)

    def run_again(self, found: Found) -> Any:
        """Replay a call in which the guards hold: nothing is left but to launch it."""
        given, dependent, standing = found
        outputs = self.prepared.run(given)
        self._taken[0] += 1
        return filled(self.result, dict(zip(self.fresh, outputs, strict=True)), None, self.paths,
                      Standing(bool(dependent), self.history.dependent, (standing, self.outside)))

    def _words(self, buffers: Sequence[str], name: Callable[[Any], str]) -> list[str]:
        """The words of `run_again` for calls that return one new tensor, as it is most often: with
        `dependent` and what `stood` in the places of expressions.
        """
        # What holds those before it would keep a whole chain of calls alive.
        kept = 0 if self.history.dependent else 2 if self.prepared.made[0].nbytes <= _SMALL else 1
        last = list[Any]([realize.NOTHING] * kept)  # r[impl replay.output.alone]
        return [*self.prepared.lines(buffers, last, name), f"{name(self._taken)}[0] += 1",
                *tensor_lines(self.result, f"stood, {name(self.outside)}", last, name)]

    def located(self, arguments: Arguments) -> dict[Buffer, Buffer] | None:
        """What stands now where the buffers stood that the capture read, if a replay is right."""
        try:
            return self._find_all(arguments)
        except ReplayError as error:
            self.last = error.detail
            return None

    def _find_all(self, arguments: Arguments) -> dict[Buffer, Buffer]:
        """What stands now where the buffers stood that the capture read.

        Raises:
            ReplayError: the function would do something else now.
        """
        states, tensors = self.states, arguments.tensors
        if realize.session.scheduled or any(
                leaf_of(each.uop) is not each.uop for each in tensors.values()):
            realize_unasked([*tensors.values(), *states.waiting([*tensors.values()])])
        now = {buffer: states.find(buffer, self._size(buffer, arguments)) for buffer in states.own}
        held = states.held()
        if states.changes:
            states.check_views(tensors)
            states.part(tensors, held.union(now.values()))
        for buffer, path in self.given:
            now[buffer] = tensors[path].uop.arg[0]
        states.check_aliases(arguments, self.aliases, now, held)
        if states.written:
            states.protect(now, arguments)
        return now

    def set_up(self, now: dict[Buffer, Buffer], arguments: Arguments) -> None:
        """Put the states in their places; give the kernels the values, the copies the sizes."""
        for buffer in self.states.own:
            self.launch.put(self.number[buffer], realize.ensure_memory(now[buffer]))
        for copy, ends in self.copies:
            copy.nbytes = [self._size(b, arguments) * b.dtype.itemsize for b in ends]
        for stretch, launch, ends in self.sent:
            stretch.set_size(launch, [self._size(b, arguments) * b.dtype.itemsize for b in ends])
        self.set_values(arguments.variables)

    def set_values(self, variables: Mapping[str, UOp]) -> None:
        """Give the kernels the values of variables, and the random numbers that come now."""
        start = generator.counter
        for table, launch, position, what in self.values:
            if isinstance(what, int):
                value = start + what
            else:
                bound = generator.key if what is _RANDOM_KEY else variables[what]
                assert bound is not None
                value = bound.src[1].arg
            table.set_value(launch, position, value)  # r[impl replay.sizes.follow+3]
        if self.random_used:
            generator.reserve(self.random_used)  # r[impl replay.random.advances]

    def finish(self, call: _Replay, outputs: Sequence[Buffer]) -> Any:
        """What follows when the kernels of a call have run: tensors have their new values, states
        other versions. The result.
        """
        arguments, now = call.arguments, call.now
        standing = self._standing(now, call.given, call.start)
        now.update(zip(self.fresh, outputs, strict=True))
        self._change(call, standing)
        call.seen, call.given, call.begun = {}, [], False  # they hold leaves of before
        catch_up_written(call.old)
        if self.trusted:
            self._find_shortcut(arguments, now, standing)
        return filled(self.result, now, arguments, self.paths, standing)

    def _change(self, call: _Replay, standing: Standing) -> None:
        """Give the tensors that the function changes their new values."""
        arguments, now = call.arguments, call.now
        for change in self.states.changes:
            holder = arguments.tensors[change.holder] if isinstance(change.holder, str) \
                else change.holder()
            leaf = now.get(change.buffer, change.buffer).leaf(
                arguments.again(change.shape, self.paths))
            if change.expression is not None:
                change.expression.note(leaf, *standing)
            if holder is not None and change.gradient:
                holder.grad = Tensor(leaf)
            elif holder is not None:  # r[impl replay.state.eager]
                before = call.seen[id(holder)]
                if holder.uop is not before:
                    catch_up([holder], {before: leaf})
                else:
                    holder.uop = leaf
        for cleared in self.cleared:
            holder = arguments.tensors[cleared] if isinstance(cleared, str) else cleared()
            if holder is not None:
                holder.grad = None

    def _is_plain(self) -> bool:
        """Whether it does nothing but to fill new outputs, in the same way for all arguments."""
        more = (self.states.changes, self.cleared, self.states.written, self.values,
                self.random_used, self.comparisons, self.variables, self.sizes, self.aliases)
        fresh = set(self.fresh)
        return not any(more) and all(leaf.holder is None and leaf.buffer in fresh
                                     for leaf in leaves_of(self.result))

    def unsure(self, arguments: Arguments) -> bool:
        """Whether nothing shows yet that the kernels are those for these values too.

        A number that Python code made of a size (`range(n)`, `1.0 / n`) is in the kernels, unseen.
        """
        if self.trusted:
            return False
        values = {path: bind.src[1] for path, bind in arguments.variables.items()}
        mine = {path: bind.src[1] for path, bind in self.variables.items()}
        return values != mine  # r[impl replay.sizes.same]

    def fits(self, arguments: Arguments, mode: realize.Mode) -> bool:
        """Whether the function would do the same with these arguments, and what is read besides."""
        # r[impl replay.guard.complete, replay.arguments.call, replay.arguments.form]
        return not self.misfit(arguments, mode)

    def _is_alike(self, mode: realize.Mode) -> bool:
        """Whether the settings in force are those of the capture."""
        return self.mode is mode or self.mode is not None \
            and self.mode.circumstances == mode.circumstances

    def _known(self) -> frozenset[int]:
        """What the function may use by a name of its own, by identity: no argument may be it."""
        return self.reads.known() if self.reads.gradients else self.known

    def _other_outcome(self, arguments: Arguments) -> str:
        """A comparison of symbolic sizes that comes out otherwise now."""
        for condition, outcome in self.comparisons.items():
            now = {bind: int(arguments.now(bind, self.paths).src[1].arg)
                   for bind in symbolic.binds_in(condition)}
            if bool(symbolic.evaluate(condition, now)) is not outcome:
                # r[impl replay.sizes.same]
                names = ", ".join(f"{b.src[0].arg[0]} = {value}" for b, value in now.items())
                return f"{symbolic.text(condition)} is {'false' if outcome else 'true'} for {names}"
        return ""

    def misfit(self, arguments: Arguments, mode: realize.Mode) -> str:
        """The first guard that does not hold in a call; nothing if all do."""
        found = differing(self.signature, arguments.signature)
        if found:
            return found
        if not self._is_alike(mode):
            return "other settings are in force"
        if not self._known().isdisjoint(arguments.objects()):
            return "an argument is what the function also uses by another name"
        if not self.hold():
            broken = self.reads.broken()
            return f"guard does not hold: {broken.text() if broken else 'it was another value'}"
        if self.unsure(arguments):
            return self._for_one()
        return self._other_outcome(arguments)

    def _for_one(self) -> str:
        """For which values of its variables it is right, if it is not for all; and why."""
        names = sorted({bind.src[0].arg[0] for bind in self.variables.values()})
        if self.reads.counted:
            return f"Python may make a number of {', '.join(names)}, as 1.0 / n does: the " \
                "kernels are those of one value"
        return "no other capture has shown that the kernels are the same for each value of " \
            + ", ".join(names)

    def is_like(self, other: Recording) -> bool:
        """Whether two captures differ in nothing but the values of variables, or not at all."""
        return self.signature == other.signature and not other.trusted and not self.trusted \
            and not self.reads.counted and not other.reads.counted \
            and self.aliases == other.aliases and self.hold() \
            and [*self.comparisons.values()] == [*other.comparisons.values()]

    def guard_texts(self, verbose: bool) -> list[str]:
        """The guards as one reads them: arguments, sizes, and the places, each or in short."""
        texts = [f"{shown(path)}: {form_text(form)}" for path, form
                 in reversed(self.signature.items()) if path not in ("", "[0]", "[1]")]
        texts += [f"{symbolic.text(c)} is {outcome}" for c, outcome in self.comparisons.items()]
        if not self.trusted:
            texts.append(self._for_one())
        places = self.reads.places.values()
        if not verbose:  # r[impl replay.explain.short]
            return texts + in_short(places)
        return texts + [place.text() for place in places
                        if place.kind not in ("code", "method", "absent")]

    def _size(self, buffer: Buffer, arguments: Arguments) -> int:
        """The size, in elements, of what stands in this call for a buffer of the capture."""
        size = self.sizes.get(buffer)
        if size is None:
            return buffer.size
        return symbolic.plain(arguments.again((size,), self.paths)[0])


class _Replay(realize.LaunchedCall):
    """A call that is replayed, and writes what the function writes."""

    def __init__(self, recording: Recording, arguments: Arguments, now: dict[Buffer, Buffer],
                 poisoned: bool) -> None:
        self.recording, self.arguments, self.now = recording, arguments, now
        self.poisoned, self.begun, self.result = poisoned, False, None
        self.written = [now[buffer] for buffer in recording.states.written]
        self.given = [(arguments.roots[path], arguments.tensors[path].uop)
                      for path in recording.history.paths]
        self.start = generator.counter
        self.seen: dict[int, UOp] = {}  # what the tensors held that it changes
        self.old: list[weakref.ref[UOp]] = []  # leaves of what it overwrites

    def touched(self) -> Iterable[Buffer]:
        """All that the capture read, as it stands now."""
        return self.now.values()

    def ready(self, filled: list[Buffer]) -> None:
        """Give the kernels what this call brings."""
        recording, states = self.recording, self.recording.states
        changed = [self.arguments.tensors[c.holder] if isinstance(c.holder, str) else c.holder()
                   for c in states.changes]
        self.seen = {id(holder): holder.uop for holder in changed if holder is not None}
        if not states.lie(self.now):  # a handler has given one another value
            raise realize.Overtaken
        self.old = [each for buffer in self.written for each in buffer.leaves
                    if (leaf := each()) is not None and leaf.arg[1] == buffer.version]
        if self.poisoned:
            realize.poison(*[output.memory for output in filled])
        recording.set_up(self.now, self.arguments)
        self.begun = True

    def commit(self, filled: list[Buffer]) -> None:
        """What was written has other versions now, and the tensors have other values."""
        states = self.recording.states
        for buffer in states.written:
            advance(self.now[buffer], states.sources[buffer].written)
        self.result = self.recording.finish(self, filled)
        states.copied.clear()

    def overwritten(self) -> Sequence[Buffer]:
        """The states that the function writes."""
        return self.written if self.begun else []
