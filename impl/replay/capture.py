"""The record of one call of a function: its runs, in order, and the tensors that it changes."""
from __future__ import annotations

import enum
import gc
import types
import weakref
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import Any

from impl import realize, symbolic
from impl.dtypes import DType
from impl.effects import (
    Buffer,
    Effects,
    forget_realized,
    is_lost,
    living,
    living_here,
    recall_realized,
)
from impl.errors import GraphError, VariableError, user_line
from impl.following.pure import held_by_name, is_plain
from impl.following.reads import Reads, Reason
from impl.gradient import below, expression_of, leading_to, reached
from impl.host import np
from impl.ir import Ops, UOp, toposort
from impl.replay.arguments import Arguments, form, shown, take_apart
from impl.replay.history import SIZES, Expressions
from impl.replay.recording import Captured, Recording
from impl.replay.results import buffer_and_shape, containers_in, mapped
from impl.replay.states import (
    Change,
    GradientOf,
    Owner,
    Sharing,
    Source,
    Still,
    own_memory,
)
from impl.tensor import Tensor
from impl.tensor.parameters import (
    is_held,
    memory_of,
    needs_gradient,
    parameters,
    parameters_of,
    realize_unasked,
)
from impl.tensor.random import generator


class Capture:
    """The record of one call: its runs, in order, and the tensors that it changed."""

    keeps_graphs = False  # whether somebody looks at the graphs of the runs afterwards
    undone = False  # whether nobody gets what the call returns
    is_strange = False  # whether what it returned tells of stand-ins, and nobody can mend that
    changed = False  # whether tensors from outside have other values now

    def __init__(self, name: str, function: Any, arguments: Arguments,
                 originals: Sequence[tuple[UOp, UOp]], aside: Sequence[Tensor], reads: Reads,
                 trust: bool = False) -> None:
        self.name, self.arguments, self.function = name, arguments, function
        self.aside = {id(tensor) for tensor in aside}  # tensors that the function cannot know
        self.originals = originals  # what the arguments were, and the leaves that they are now
        self.runs: list[realize.Run] = []
        self.reads, self.reasons, self.trust = reads, list[Reason](), trust
        if reads.gradients:  # r[impl replay.guard.complete]
            reads.note("answer", Sharing(reads.tensors), "", "which tensors have one gradient")
        gc.collect()
        # r[impl replay.pending.before]
        # What is pending is no part of this call; and state must be in memory to advance.
        _realize_all([h for h in living() if isinstance(h, Tensor) and not is_lost(h.uop)])
        # r[impl replay.arguments.depending]: by these, arguments name parameters that were pending.
        # What was overwritten then is gone, so the function cannot write them down.
        written = {node for each in parameters()
                   if (node := expression_of(each.uop)).op is Ops.AFTER}
        # r[impl replay.capture.whole]
        self.forgotten = forget_realized(lambda node: node not in written)
        stand_ins = {id(tensor) for tensor in arguments.tensors.values()}
        part([h for h in living() if isinstance(h, Tensor) and id(h) not in stand_ins | self.aside])
        self.before = [(h, h.uop) for h in living() if isinstance(h, Tensor)]
        self.random_start = generator.counter
        self.gradients: dict[int, list[weakref.ref[Tensor]]] = {}  # by identity: whose they are
        for holder, _ in self.before:
            if holder.grad is not None:
                self.gradients.setdefault(id(holder.grad), []).append(weakref.ref(holder))
        self.parameters = [(h, h._parameter, h.grad is None) for h, _ in self.before]
        self.given = set[int]()  # the containers among the arguments, by identity
        self.comparisons: dict[UOp, bool] = {}  # what was asked of symbolic sizes, and the answers

    def __call__(self, run: realize.Run) -> None:
        """Note a run that happened during the capture."""
        self.runs.append(run)

    def refuse(self, does: str, remedy: str) -> None:
        """Note that a replay could not do again what is done here: this call is not recorded."""
        self.reasons.append(Reason(user_line(), does, remedy))

    def planning(self, effects: Effects) -> None:
        """Be told of what is about to be planned and run."""

    def printed(self) -> None:
        """The text of a tensor was asked for, in which its elements may stand outside of here."""
        if not self.trust:
            self.refuse("makes a text of a tensor", "do it outside of the function")

    def check_containers(self, given: Any) -> None:
        """Refuse a function that puts something else into a list, dict or dataclass it is given."""
        now, before = take_apart(given), self.arguments
        self.given.update(map(id, containers_in(given)))
        for path in {**before.signature, **now.signature}:
            if now.tensors.get(path) is not before.tensors.get(path) \
                    or form(now.signature.get(path)) != form(before.signature.get(path)):
                self.refuse(f"gives argument {shown(path)} something else, which a replay would "
                            "not do again", "return the new value, or .assign to the tensor")
                return

    def gradient(self, root: UOp, targets: Sequence[UOp]) -> None:
        """Refuse a gradient whose way leads through what an argument or a tensor from outside was
        computed from: in the next call that is another graph.
        """
        # r[impl replay.arguments.depending]
        ends = {*self.arguments.leaves.values(), *(n for _, n in self.before)} - {*targets}
        for leaf in reached(root, ends):
            if leaf.late is not None and not {*targets}.isdisjoint(below([expression_of(leaf)])):
                self.refuse("takes a gradient through what a tensor was computed from outside of "
                            "the function", "take the gradient outside, or .detach() the tensor")
                return

    def end(self) -> None:
        """The call is over: what was computed before it is known again."""
        recall_realized(self.forgotten)

    def finish(self, result: Any) -> Recording | None:
        """Realize what the call returned or left pending, and make the recording."""
        captured = self.captured(result)
        self.before, self.parameters = [], []
        if captured is None:
            return None
        recording = Recording(captured)
        return recording if recording.states.has_owners() else None

    def captured(self, result: Any) -> Captured | None:
        """Realize what the call returned or left pending: what it did, if it can be done again."""
        returned = take_apart(result).tensors
        gc.collect()  # tensors that only a cycle keeps alive are no effect of the call
        known = {id(h): node for h, node in self.before}
        ours = living_here()  # what another thread makes meanwhile is no effect of the call
        # What a transform has traced on is no value: closures of the graph may keep it alive.
        touched = [h for h in living() if isinstance(h, Tensor) and known.get(id(h)) is not h.uop
                   and (id(h) in known or id(h) in ours and not is_lost(h.uop))]
        given = set(self.arguments.leaves.values())  # which a stand-in tells of what it stands for
        expressions = [(t, t.uop if t.uop in given else expression_of(t.uop))
                       for t in (*returned.values(), *touched)]
        fresh = {id(t): t for t in returned.values() if id(t) not in known}
        new = self._new_parameters(expressions, known.keys(), fresh.keys())
        realize.realize([*returned.values(), *touched])  # r[impl replay.effects.all]
        gradients = [h for h in living() if isinstance(h, Tensor) and h.grad is not None
                     and id(h.grad) not in known and id(h.grad) in ours]
        accounted = {id(t) for t in returned.values()} | {id(h.grad) for h in gradients}
        self.sources = self._sources({buffer_and_shape(t)[0] for t, _ in expressions
                                      if id(t) in accounted | known.keys()})
        self._refuse_data([t for t, _ in expressions])
        if any(t._parameter is not None or t.grad is not None for t in fresh.values()):
            self.refuse("sets requires_grad, or the gradient, of what it returns",
                        "do it after the call")
            new |= {node for t, node in expressions if t._parameter and id(t) in fresh}
        history = self._history(expressions, set(fresh), new if self.reasons else set())
        for tensor in fresh.values():  # r[impl replay.output.own+2]
            tensor._ancestors = ()  # no more than what a replay returns
        paths = {id(t): path for path, t in self.arguments.tensors.items()}
        changes = [Change(paths.get(id(h)) or weakref.ref(h), *buffer_and_shape(of),
                          of is not h, history.expressions.get(id(of)))
                   for h, of in [*((h, h) for h in touched if id(h) in known),
                                 *((h, h.grad) for h in gradients)]]
        self.changed = bool(changes)
        strays = [weakref.ref(h) for h in touched
                  if id(h) not in known and id(h) not in accounted]
        del expressions, touched
        self._refuse_strays(strays)
        self._check_result(result)
        kept = {id(t) for t in returned.values()} | {
            id(held) for change in changes if not isinstance(change.holder, str)
            and (held := change.holder()) is not None}
        self._guard_gradients({id(t) for t in self.arguments.tensors.values()}, kept)
        if any(h._parameter is not was for h, was, _ in self.parameters):
            self.refuse("changes requires_grad of a tensor from outside", "do it before the call")
        if self.reasons:
            return None
        holders = {id(held): paths.get(id(h)) or weakref.ref(h) for held, h in
                   [*((h.grad, h) for h in reversed(gradients)), *((h, h) for h, _ in self.before)]}
        return Captured(
            self.name, self.function, self.arguments, self.runs, result, changes,
            self.sources, holders, {id(h.grad) for h in gradients}, self.comparisons,
            self.random_start, self.reads,
            [paths.get(id(h)) or weakref.ref(h) for h, _, without in self.parameters
             if not without and h.grad is None], history)

    def _new_parameters(self, expressions: Sequence[tuple[Tensor, UOp]],
                        known: Container[int], fresh: Container[int]) -> set[UOp]:
        """What parameters have become in the call, and those that it has made; refuse what has a
        gradient with respect to them, of which a replay would tell nothing.
        """
        # r[impl replay.gradient.eager]
        old = {leaf.arg[0] for leaf in (*self.arguments.leaves.values(), *(
            memory_of(node) for _, node in self.before)) if leaf is not None}
        made = {leaf for t, node in expressions if id(t) in fresh
                for leaf in parameters_of(node) if leaf.arg[0] not in old}
        if made and not self.undone:
            self.refuse("returns what depends on a tensor that it makes and that requires a "
                        "gradient", "make that tensor outside of the function")
            self.is_strange = True
        new = {node for tensor, node in expressions if tensor._parameter and id(tensor) in known}
        others = [node for tensor, node in expressions if not tensor._parameter]
        if new and not leading_to(below(others), new).isdisjoint(others) and not self.undone:
            self.refuse("returns, or keeps, what depends on a parameter to which it has assigned "
                        "before", ".detach() it, or compute it outside of the function")
        return new | made

    def _history(self, expressions: Sequence[tuple[Tensor, UOp]], new: set[int],
                 current: set[UOp]) -> Expressions:
        """Note the expressions of what is in memory now, `new` tensors that are returned among it,
        beside it and for later calls. Gradients for the `current` nodes are for what stays.
        """
        leaves = self.arguments.leaves
        before = [(h, node) for h, node in self.before
                  if node.op is Ops.BUFFER and id(h) not in self.aside]
        history = Expressions(self.name, leaves, [node for _, node in before],
                          {node for h, node in before if h._parameter is not None
                           and needs_gradient(node)}, current)  # frozen ones may thaw
        made = {buffer for run in self.runs for buffer in run.outputs}
        # What is not replayed keeps all that it computes by, as outside of a capture.
        told = new | ({id(t) for t, _ in expressions} if self.reasons else set())
        written = {buffer: source.written for buffer, source in self.sources.items()}
        history.add({id(t): node for t, node in expressions if not t._parameter}, told,
                    written, made, SIZES if self.arguments.variables else "")
        given = dict(zip(leaves, self.originals, strict=False))
        standing = history.standing([given[path] for path in history.paths],
                                    [(leaf, *leaf.arg[:2]) for leaf in history.states],
                                    self.random_start, self.random_start)
        for tensor, _ in expressions:
            expression = history.expressions.get(id(tensor))
            if expression is not None:
                buffer, shape = buffer_and_shape(tensor)
                tensor.uop = buffer.leaf(shape)  # without another name
                expression.note(tensor.uop, *standing, id(tensor) in new)
            tensor._history = None  # it was one of stand-ins
        history.done()
        return history

    def _refuse_strays(self, strays: Sequence[weakref.ref[Tensor]]) -> None:
        """Refuse a function that keeps new tensors outside; those that only the graph of the call
        held are gone by now.
        """
        if any(reference() is not None for reference in strays) and not self.keeps_graphs:
            for run in self.runs:  # functions that say what a gradient is may know tensors
                run.drop_graph()
            gc.collect()
        for reference in strays:
            stray = reference()
            if stray is not None:
                self.refuse(f"keeps a tensor of shape {stray.shape} outside, where no replay could "
                            "put the next one",
                            "return it, or .assign it to a tensor that exists before the call")
                return

    def _refuse_data(self, tensors: Iterable[Tensor]) -> None:
        """Refuse memory that the body filled from data: whoever gets it writes to what all replays
        read.
        """
        data = {buffer for buffer, source in self.sources.items()
                if source.path is None and not source.owners and not source.gradients}
        if any(buffer_and_shape(tensor)[0] in data for tensor in tensors):
            self.refuse("returns, or keeps, data that it makes a tensor of",
                        "make that tensor outside of the function, or return a copy: .clone()")

    def _guard_gradients(self, stand_ins: Container[int], kept: Container[int]) -> None:
        """A gradient that the function only reads, and knows by no other name, is looked for where
        it found it. Tensors have to keep those that it changes or returns (they are `kept`), or
        may know; those of arguments are others in each call.
        """
        # r[impl replay.guard.complete]
        for source in self.sources.values():
            held = [owner() for owner in source.owners] if source.gradients else []
            for reference in source.gradients:
                holder = reference()
                gradient = None if holder is None else holder.grad
                if id(holder) in stand_ins:
                    self.refuse("uses the gradient of an argument, which is another one in each "
                                "call", "give the function the gradient, too, as an argument")
                elif gradient is None or not any(gradient is each for each in held):
                    continue  # the function gives it another one
                elif self.trust or id(gradient) in kept or id(gradient) in self.reads.tensors:
                    self.reads.note("answer", Still(reference, gradient), "",
                                    "which gradient a tensor has")
                else:
                    source.owners = [GradientOf(reference, gradient), *(
                        owner for owner in source.owners
                        if isinstance(owner, GradientOf) or owner() is not gradient)]
        known = {id(holder) for holder, _ in self.before}
        for holder, _ in self.before:
            if id(holder.grad) in known and not any(
                    had() is holder for had in self.gradients.get(id(holder.grad), ())):
                self.refuse("lets a tensor from outside be a gradient",
                            "give it a gradient of its own (.clone())")
                return

    def _check_result(self, result: Any) -> None:
        """Refuse a result of which each call has to make a new one, other than a tensor."""
        known = {id(place.held) for place in self.reads.places.values()}
        known |= {id(place.owner) for place in self.reads.places.values()}
        known |= {id(part.value) for part in self.arguments.signature.values()
                  if hasattr(part, "value")}
        seen = known | self.given
        for container in containers_in(result):
            if id(container) in seen:
                self.refuse(f"returns a {type(container).__name__} that has another name, too",
                            "return a new one")
            seen.add(id(container))

        def check(part: Any) -> Any:
            if not _comes_again(part) and id(part) not in known:
                remedy = ("give arrays as tensors, Tensor(array), and return tensors"
                          if isinstance(part, np.ndarray) else
                          "return tensors, numbers, lists, tuples, dicts or dataclasses")
                self.refuse(f"returns a {type(part).__name__}, of which each call has to make a "
                            "new one", remedy)
                self.is_strange = True
            return part
        mapped(result, check)

    def _sources(self, kept: set[Buffer]) -> dict[Buffer, Source]:
        """Every buffer that was read, or is among the `kept`, but was not made during the call."""
        owners: dict[Buffer, list[Owner]] = {}
        depending: set[Buffer] = set()
        gradients: dict[Buffer, list[weakref.ref[Tensor]]] = {}
        for holder, node in self.before:
            if node.op is Ops.BUFFER and id(holder) not in self.aside:
                owners.setdefault(node.arg[0], []).append(weakref.ref(holder))
                gradients.setdefault(node.arg[0], []).extend(self.gradients.get(id(holder), []))
                if is_held(node) and not holder._parameter:
                    depending.add(node.arg[0])
        paths = {node.arg[0]: path for path, node in self.arguments.leaves.items()}
        made: set[Buffer] = set()
        found: dict[Buffer, Source] = {}
        for run in self.runs:
            for number, buffer in run.buffers.items():
                if run.plan.storages[number].kind == "input" and buffer not in made:
                    source = found.setdefault(buffer, Source(paths.get(buffer),
                                                              owners.get(buffer, [])))
                    source.written += run.plan.written.get(number, 0)
            made.update(run.outputs)
        for buffer in sorted(kept - made, key=lambda b: b.number):
            found.setdefault(buffer, Source(paths.get(buffer), owners.get(buffer, [])))
        for buffer, source in found.items():
            source.gradients, source.depends = gradients.get(buffer, []), buffer in depending
        return found


def _comes_again(part: Any) -> bool:
    """Whether a part of a result is the same in each call, or a replay makes it anew."""
    # r[impl replay.guard.complete]
    if isinstance(part, (type, types.FunctionType)):  # unless the body has made it
        return held_by_name(part.__module__ or "", part.__qualname__) is part
    return type(part) is Tensor or is_plain(part) or symbolic.is_symbolic(part) or isinstance(
        part, (DType, enum.Enum, types.ModuleType)) or isinstance(part, UOp) and part.op is Ops.BIND


def part(tensors: Sequence[Tensor]) -> None:
    """Give tensors that share memory memory of their own, all but the first.

    So the memory that a capture reads tells which tensor the function used. A result of an earlier
    call may share memory with the state; they are two tensors, and may part at any call. Where
    gradients flow, equal leaves are one variable, and stay one.
    """
    sharing: dict[Buffer, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.uop.op is Ops.BUFFER and not is_lost(tensor.uop):
            sharing.setdefault(tensor.uop.arg[0], []).append(tensor)
    variables = {expression_of(parameter.uop) for parameter in parameters()}
    for holders in sharing.values():
        expressions = [expression_of(h.uop) for h in holders if len(holders) > 1]
        if expressions and variables.isdisjoint(toposort(expressions)):
            for holder in holders[1:]:
                own_memory(holder, {})  # r[impl replay.state.parted]


def _realize_all(tensors: Sequence[Tensor]) -> None:
    """Realize tensors together; one by one if they have other values for one variable, or one is
    computed from what is lost: whoever asks for that is told.
    """
    try:
        realize_unasked(tensors)
    except (GraphError, VariableError):
        for tensor in tensors:
            with suppress(GraphError):
                realize_unasked([tensor])
