"""Capture once, replay many times: `TinyJit`. Chapter: spec/replay.md.

The first call of a captured function runs as it is, the second is recorded, and from the third on
the recorded kernels run again, on the buffers of the new arguments. What the function did to other
tensors (parameters, statistics, attributes) it does again at each replay, whether it returned them
or not. A replay is guarded: arguments that do not match raise, and say what changed.
"""
from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from impl import realize, settings
from impl.device import Device, Table
from impl.effects import Buffer, advance, forget_realized, leaf_of, living, living_here
from impl.errors import ReplayError, VariableError
from impl.ir import Ops, Shape, UOp, toposort
from impl.tensor import Tensor
from impl.tensor.random import generator

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
_RANDOM_KEY = "the key of the random numbers"


# ---------------------------------------------------------------- arguments

@dataclass
class Arguments:
    """The arguments of a call, taken apart: tensors, bound variables, and all the rest."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    variables: dict[str, UOp] = field(default_factory=dict)
    signature: dict[str, Any] = field(default_factory=dict)
    leaves: dict[str, UOp] = field(default_factory=dict)  # of the tensors, when the call began

    def bind(self, path: str, value: UOp) -> None:
        """Note a bound variable; one variable has one value in a call."""
        for other in self.variables.values():
            if other.src[0] is value.src[0] and other is not value:
                raise VariableError(value.src[0].arg[0], f"is bound to {other.src[1].arg} and to "
                                    f"{value.src[1].arg} in one call", "use two variables")
        self.variables[path] = value


# --8<-- [start:arguments]
def take_apart(given: Any) -> Arguments:
    """Find every tensor in nested lists, tuples and dicts; describe everything else.

    The signature maps the path of each part (such as `args[0]`) to what must stay the same.
    """
    found = Arguments()
    stack: list[tuple[str, Any]] = [("", given)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, Tensor):
            found.tensors[path] = value
            found.signature[path] = ("Tensor", value.shape, value.dtype.name, value.device)
        elif isinstance(value, UOp) and value.op is Ops.BIND:
            found.bind(path, value)
            found.signature[path] = ("Variable", value.src[0].arg)
        elif isinstance(value, np.ndarray):  # r[impl replay.guard.mismatch]
            raise ReplayError("TinyJit", f"argument {path} is a NumPy array of shape "
                              f"{value.shape}, whose content no guard can see",
                              "pass Tensor(array)")
        elif isinstance(value, (list, tuple)):
            found.signature[path] = (type(value).__name__, len(value))
            stack += [(f"{path}[{i}]", part) for i, part in enumerate(value)]
        elif isinstance(value, dict):
            found.signature[path] = ("dict", tuple(value))
            stack += [(f"{path}[{key!r}]", part) for key, part in value.items()]
        else:
            found.signature[path] = _described(value)
    return found
# --8<-- [end:arguments]


def _described(value: Any) -> Any:
    """A Python value that is frozen into the capture; objects are compared by identity."""
    if isinstance(value, float):  # 0.0 and -0.0 are two numbers, and NaN is one
        return (type(value).__name__, repr(value))
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return (type(value).__name__, value)
    return _Same(value)


class _Same:
    """An object that equals itself only. It is kept alive, so that no other takes its identity."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"the {type(self.value).__name__} object at {id(self.value):#x}"


def _compare(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise if a call does not fit the capture (r[replay.guard.mismatch])."""
    for path in [*old, *[p for p in new if p not in old]]:
        was, now = old.get(path, "absent"), new.get(path, "absent")
        if was != now:  # r[impl replay.guard.mismatch]
            where = path.replace("[0]", "args", 1) if path.startswith("[0]") \
                else path.replace("[1]", "kwargs", 1)
            raise ReplayError(name, f"argument {where or 'list'} was {was} when the function was "
                              f"captured, and is {now} now",
                              "make another TinyJit for it, pass the number as a Tensor or a bound "
                              "Variable, or call .reset()")


# ---------------------------------------------------------------- capture

@dataclass
class _Source:
    """Where a replay finds a buffer that the capture read but did not make.

    `path` is an argument; otherwise `owners` are the living tensors that held the buffer.
    """

    path: str | None
    owners: list[weakref.ref[Tensor]]
    written: int = 0  # versions that it gains at each call


@dataclass
class _Change:
    """A tensor that a call gives a new value: an argument (by path), or any other.

    With `gradient`, not the tensor itself but its `.grad` is given a value.
    """

    holder: weakref.ref[Tensor] | str
    buffer: Buffer
    shape: Shape
    gradient: bool = False


# --8<-- [start:capture]
class _Capture:
    """What one call did: its runs, in order, and which tensors it changed."""

    def __init__(self, name: str, arguments: Arguments, aside: Sequence[Tensor]) -> None:
        self.name, self.arguments = name, arguments
        self.aside = {id(tensor) for tensor in aside}  # tensors that the function cannot know
        self.runs: list[realize.Run] = []
        gc.collect()
        # r[impl replay.pending.before]
        # What is pending is no part of this call; and state must be in memory to advance.
        realize.realize([h for h in living() if isinstance(h, Tensor)])
        forget_realized()  # r[impl replay.capture.whole]
        self.before = [(h, h.uop) for h in living() if isinstance(h, Tensor)]
        self.random_start = generator.counter

    def __call__(self, run: realize.Run) -> None:
        """Note a run that happened during the capture."""
        self.runs.append(run)

    def finish(self, result: Any) -> _Recording:
        """Realize what the call returned or left pending, and make the recording."""
        returned = take_apart(result).tensors
        gc.collect()  # tensors that only a cycle keeps alive are no effect of the call
        known = {id(h): node for h, node in self.before}
        ours = living_here()  # what another thread makes meanwhile is no effect of the call
        touched = [h for h in living() if isinstance(h, Tensor) and known.get(id(h)) is not h.uop
                   and (id(h) in known or id(h) in ours)]
        realize.realize([*returned.values(), *touched])  # r[impl replay.effects.all]
        paths = {id(t): path for path, t in self.arguments.tensors.items()}
        changes = [_Change(paths.get(id(h)) or weakref.ref(h), *_place(h))
                   for h in touched if id(h) in known]
        gradients = [h for h in living() if isinstance(h, Tensor) and h.grad is not None
                     and id(h.grad) not in known and id(h.grad) in ours]
        changes += [_Change(paths.get(id(h)) or weakref.ref(h), *_place(h.grad), True)
                    for h in gradients]
        accounted = {id(t) for t in returned.values()} | {id(h.grad) for h in gradients}
        strays = [h for h in touched if id(h) not in known and id(h) not in accounted]
        if strays:  # r[impl replay.rebound.error]
            raise ReplayError(self.name, f"a tensor of shape {strays[0].shape} that was made "
                              "inside is kept outside, where no replay could put the next one",
                              "return it, or .assign it to a tensor that exists before the call")
        holders = {id(h): paths.get(id(h)) or weakref.ref(h) for h, _ in self.before}
        recording = _Recording(self, result, changes, holders)
        del known, touched, gradients
        self.before = []
        recording.check_owners()
        return recording
# --8<-- [end:capture]

    def sources(self, kept: set[Buffer]) -> dict[Buffer, _Source]:
        """Every buffer that was read, or is among the `kept`, but was not made during the call."""
        owners: dict[Buffer, list[weakref.ref[Tensor]]] = {}
        for holder, node in self.before:
            if node.op is Ops.BUFFER and id(holder) not in self.aside:
                owners.setdefault(node.arg[0], []).append(weakref.ref(holder))
        paths = {node.arg[0]: path for path, node in self.arguments.leaves.items()}
        made: set[Buffer] = set()
        found: dict[Buffer, _Source] = {}
        for run in self.runs:
            for number, buffer in run.buffers.items():
                if run.plan.storages[number].kind == "input" and buffer not in made:
                    source = found.setdefault(buffer, _Source(paths.get(buffer),
                                                              owners.get(buffer, [])))
                    source.written += run.plan.written.get(number, 0)
            made.update(run.outputs)
        for buffer in sorted(kept - made, key=lambda b: b.number):
            found.setdefault(buffer, _Source(paths.get(buffer), owners.get(buffer, [])))
        return found


class _Recording:
    """The kernels of a captured call, ready to run again on other buffers."""

    def __init__(self, capture: _Capture, result: Any, changes: list[_Change],
                 holders: dict[int, weakref.ref[Tensor] | str]) -> None:
        self.name, self.signature = capture.name, capture.arguments.signature
        self.aliases = _aliases(capture.arguments.leaves)
        self.result, self.changes = _template(result, holders), changes
        kept = {c.buffer for c in changes} | {leaf.buffer for leaf in _leaves(self.result)}
        self.sources = capture.sources(kept)
        made = [b for run in capture.runs for b in run.outputs]
        self.fresh = [b for b in made if b in kept]
        self.random_start = capture.random_start
        self.random_used = generator.counter - capture.random_start
        self._build(capture)

    # --8<-- [start:build]
    def _build(self, capture: _Capture) -> None:
        """Lay all kernels of all runs into tables; note which arguments change from call to call.

        Between two tables stand the copies from device to device.
        """
        paths = {bind: path for path, bind in capture.arguments.variables.items()}
        changing = set(self.sources) | set(self.fresh)
        self.segments: list[Table | realize.ExecItem] = []
        self.slots: list[tuple[Table, int, int, Buffer]] = []
        self.values: list[tuple[Table, int, int, str | int]] = []
        launches: list[tuple[realize.ExecItem, list[UOp]]] = []
        for run in capture.runs:
            binds = run.canonical.variables
            for item in run.items():
                if item.program is None:
                    self._close(launches, changing, paths)
                    self.segments.append(item)
                else:
                    slots = run.plan.variables[item.metadata["kernel"]]
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
                    self.slots.append((table, launch, argument, buffer))
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
        _compare(self.name, self.signature, arguments.signature)
        realize.realize(list(arguments.tensors.values()))
        now = {buffer: self._find(buffer, source, arguments)
               for buffer, source in self.sources.items()}
        self._check_aliases(arguments, now)
        self._check_views(arguments.tensors)
        self._protect(now, arguments)
        # r[impl replay.output.fresh, replay.outputs.distinct]
        for buffer in self.fresh:
            now[buffer] = Buffer(buffer.device, buffer.dtype, buffer.size)
        self._launch(now, arguments)
        for buffer, source in self.sources.items():
            advance(now[buffer], source.written)
        for change in self.changes:
            holder = arguments.tensors[change.holder] if isinstance(change.holder, str) \
                else change.holder()
            leaf = now.get(change.buffer, change.buffer).leaf(change.shape)
            if holder is not None and change.gradient:
                holder.grad = Tensor(leaf)
            elif holder is not None:  # r[impl replay.state.eager]
                holder.uop = leaf
        return _filled(self.result, now, arguments)
    # --8<-- [end:run]

    def _launch(self, now: dict[Buffer, Buffer], arguments: Arguments) -> None:
        for table, launch, argument, buffer in self.slots:
            table.set_memory(launch, argument, realize.ensure_memory(now[buffer]))
        start = generator.counter
        for table, launch, position, what in self.values:
            if isinstance(what, int):
                value = start + what
            else:
                bound = generator.key if what is _RANDOM_KEY else arguments.variables[what]
                assert bound is not None
                value = bound.src[1].arg
            table.set_value(launch, position, value)  # r[impl replay.values.bound]
        generator.reserve(self.random_used)  # r[impl replay.random.advances]
        for segment in self.segments:
            if isinstance(segment, realize.ExecItem):
                source, target = (realize.ensure_memory(now.get(b, b)) for b in segment.bufs)
                target.device.copy(target, source, segment.bufs[1].nbytes)
            else:
                segment.run()

    def _find(self, buffer: Buffer, source: _Source, arguments: Arguments) -> Buffer:
        """The buffer that stands now where `buffer` stood in the capture."""
        if source.path is not None:
            given: Buffer = arguments.tensors[source.path].uop.arg[0]
            return given
        owners = [owner for owner in (o() for o in source.owners) if owner is not None]
        realize.realize(owners)
        buffers = {owner.uop.arg[0] for owner in owners}
        if len(buffers) > 1:
            raise ReplayError(self.name, "tensors that were one when the function was captured are "
                              "several now, and it may use any of them", "call .reset()")
        for found in buffers:
            if found.size != buffer.size or found.dtype is not buffer.dtype:
                raise ReplayError(self.name, f"a tensor that the function uses had "
                                  f"{buffer.size} elements of {buffer.dtype.name}, and has "
                                  f"{found.size} of {found.dtype.name} now", "call .reset()")
            return found
        if source.owners:  # r[impl replay.rebound.error]
            raise ReplayError(self.name, "a tensor that the function used does not exist any more, "
                              "so the function would use another one now", "call .reset()")
        return buffer

    def check_owners(self) -> None:
        """Refuse a capture whose function replaced a tensor that it reads by another one."""
        gc.collect()
        for source in self.sources.values():
            if source.owners and source.path is None and all(o() is None for o in source.owners):
                raise ReplayError(  # r[impl replay.rebound.error]
                    self.name, "a tensor that the function reads was replaced by another one "
                    "during the call; a replay would read the old one for ever",
                    "change it with .assign instead of rebinding the name")

    def _check_aliases(self, arguments: Arguments, found: dict[Buffer, Buffer]) -> None:
        """What shared memory must still do so, and nothing else, among arguments and captured
        tensors alike.
        """
        now = _aliases({p: t.uop for p, t in arguments.tensors.items()})
        if now != self.aliases:  # r[impl replay.guard.alias]
            raise ReplayError(self.name, "which arguments are the same tensor has changed: was "
                              f"{self.aliases or 'none'}, is {now or 'none'}",
                              "make another TinyJit for it, or pass a copy (.contiguous())")
        holders = [h for h in (c.holder() for c in self.changes if not isinstance(c.holder, str))
                   if h is not None]
        held = {leaf.arg[0] for leaf in (leaf_of(h.uop) for h in holders) if leaf is not None}
        own = [found[b] for b, source in self.sources.items() if source.path is None]
        given = {path: t.uop.arg[0] for path, t in arguments.tensors.items()}
        changed = held | {found[b] for b, source in self.sources.items() if source.written}
        changed |= {given[c.holder] for c in self.changes if isinstance(c.holder, str)}
        both = {*own, *held} & {*given.values()} | {b for b in own if own.count(b) > 1}
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
        written = {now[b] for b, source in self.sources.items() if source.written}
        if not written:
            return
        mine = {id(arguments.tensors[c.holder] if isinstance(c.holder, str) else c.holder())
                for c in self.changes}
        pending: list[Tensor] = []
        kept: set[Buffer] = set()
        for holder in living():
            if id(holder) in mine or not isinstance(holder, Tensor):
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
                    now[captured] = _copied(current)
    # --8<-- [end:protect]


def _stand_ins(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """For each tensor one with a copy of its memory; tensors that share memory still do."""
    copies: dict[Buffer, Buffer] = {}
    found: dict[int, Tensor] = {}
    for tensor in tensors:
        leaf = leaf_of(tensor.uop)
        assert leaf is not None
        buffer = leaf.arg[0]
        if buffer not in copies:
            copies[buffer] = _copied(buffer)
        stand_in = Tensor(copies[buffer].leaf(leaf.arg[2]))
        stand_in.grad = tensor.grad
        if tensor.requires_grad:
            stand_in.requires_grad = True
        found.setdefault(id(tensor), stand_in)
    return found


def _write_back(given: Sequence[Tensor], stand_ins: dict[int, Tensor],
                leaves: dict[str, UOp], gradients: Sequence[Tensor | None]) -> None:
    """Let the arguments have what their stand-ins were given."""
    started = set(leaves.values())
    for tensor, gradient in zip(given, gradients, strict=True):
        stand_in = stand_ins[id(tensor)]
        if stand_in.uop not in started:  # the function assigned to it
            tensor.uop = stand_in.uop
        if stand_in.grad is not gradient:
            tensor.grad = stand_in.grad


def _place(tensor: Tensor | None) -> tuple[Buffer, Shape]:
    """The buffer and the shape of a realized tensor."""
    assert tensor is not None
    leaf = leaf_of(tensor.uop)
    assert leaf is not None
    return leaf.arg[0], leaf.arg[2]


def _copied(buffer: Buffer) -> Buffer:
    copy = Buffer(buffer.device, buffer.dtype, buffer.size)
    source, target = realize.ensure_memory(buffer), realize.ensure_memory(copy)
    target.device.copy(target, source, buffer.nbytes)
    return copy


def _aliases(leaves: dict[str, UOp]) -> list[tuple[str, ...]]:
    """Groups of argument paths that are one buffer."""
    groups: dict[Buffer, list[str]] = {}
    for path, leaf in leaves.items():
        groups.setdefault(leaf.arg[0], []).append(path)
    return sorted(tuple(sorted(paths)) for paths in groups.values() if len(paths) > 1)


# ---------------------------------------------------------------- results

@dataclass(eq=False)
class _Leaf:
    """A tensor in a result: the buffer that held it in the capture.

    `holder`: the function returned a tensor that exists besides, an argument (its path) or another.
    """

    buffer: Buffer
    shape: Shape
    holder: weakref.ref[Tensor] | str | None = None


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of nested containers with the parts changed; the depth is that of the user's data."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(v, change) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, change) for v in value)
    if isinstance(value, dict):
        return {key: _mapped(v, change) for key, v in value.items()}
    return change(value)


def _template(result: Any, holders: dict[int, weakref.ref[Tensor] | str]) -> Any:
    """The result with every tensor replaced by a description; one tensor by one description."""
    made: dict[int, _Leaf] = {}

    def describe(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return made.setdefault(id(value), _Leaf(*_place(value), holders.get(id(value))))
    return _mapped(result, describe)


def _leaves(template: Any) -> list[_Leaf]:
    found: list[_Leaf] = []
    _mapped(template, lambda v: found.append(v) if isinstance(v, _Leaf) else None)
    return found


def _filled(template: Any, now: dict[Buffer, Buffer], arguments: Arguments) -> Any:
    """The result of a replay; a tensor that exists besides is returned itself."""
    made: dict[_Leaf, Tensor] = {}

    def fill(value: Any) -> Any:
        if not isinstance(value, _Leaf):
            return value
        if value not in made:
            held = arguments.tensors[value.holder] if isinstance(value.holder, str) \
                else value.holder() if value.holder is not None else None
            made[value] = held if held is not None else \
                Tensor(now.get(value.buffer, value.buffer).leaf(value.shape))
        return made[value]
    return _mapped(template, fill)


# ---------------------------------------------------------------- the wrapper

# --8<-- [start:jit]
class TinyJit(Generic[Parameters, Returned]):
    """Capture a function of tensors on its second call and replay it from the third on.

    Works on functions and methods; tensors may stand in nested lists, tuples and dicts. Python
    numbers and other objects are frozen: a call with others raises.

    Raises:
        ReplayError: arguments that do not match the capture (r[replay.guard.mismatch]); a value
            that is read inside the function while it is captured (r[replay.read.error]).
    """

    def __init__(self, function: Callable[Parameters, Returned]) -> None:
        self.function = function
        self.calls = self.replays = 0
        self.recording: _Recording | None = None
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bound to an object, there is one capture for each object."""
        if instance is None:
            return self
        name = f"_captured_{id(self):x}"  # of this function, not of another with its name
        known = instance.__dict__.get(name)
        if known is None or known.function.__self__ is not instance:  # the object is a copy
            known = instance.__dict__[name] = TinyJit(self.function.__get__(instance, owner))
        return known

    def reset(self) -> None:
        """Forget the capture; the next call runs as it is, the one after is captured."""
        self.calls, self.replays, self.recording = 0, 0, None

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run, capture or replay."""
        observers = realize.capturing.observers
        if observers or not settings.get("JIT"):  # r[impl replay.nested.inlined]
            return self.function(*args, **kwargs)
        with realize.lock:  # runs of other threads are no part of this one
            self.calls += 1
            if self.calls == 1:
                return self.function(*args, **kwargs)
            arguments = take_apart((args, kwargs))
            if self.recording is None:
                return self._capture(arguments, args, kwargs)
            returned: Returned = self.recording.run(arguments)
            self.replays += 1
            return returned

    def _capture(self, arguments: Arguments, args: Sequence[Any], kwargs: Any) -> Returned:
        """Run the function on stand-ins of the arguments, and record what it does.

        A stand-in has memory of its own. So a tensor that is an argument and that the function
        also uses by another name is told apart from the argument.
        """
        tensors = arguments.tensors
        given = list(tensors.values())
        realize.realize(given)
        stand_ins = _stand_ins(given)
        # While these live, nothing overwrites the memory of the arguments.
        kept = [Tensor(tensor.uop) for tensor in given]
        gradients = [tensor.grad for tensor in given]
        args, kwargs = _mapped((args, kwargs), lambda v: stand_ins.get(id(v), v))
        arguments = take_apart((args, kwargs))
        arguments.leaves = {p: t.uop for p, t in arguments.tensors.items()}
        capture = _Capture(getattr(self.function, "__name__", "function"), arguments, kept)
        realize.capturing.observers.append(capture)
        try:
            result = self.function(*args, **kwargs)
            recording = capture.finish(result)
        finally:
            realize.capturing.observers.remove(capture)
            _write_back(given, stand_ins, arguments.leaves, gradients)
        try:
            recording.check_capture(
                tensors, {id(t): k.uop for t, k in zip(given, kept, strict=True)})
        except ReplayError:
            for tensor, before, gradient in zip(given, kept, gradients, strict=True):
                tensor.uop, tensor.grad = before.uop, gradient
            raise
        self.recording = recording  # r[impl replay.failure.none]
        originals = {id(stand_ins[id(tensor)]): tensor for tensor in given}
        returned: Returned = _mapped(result, lambda v: originals.get(id(v), v))
        return returned
# --8<-- [end:jit]
