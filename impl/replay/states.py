"""The tensors that a captured function uses besides its arguments, and those that it changes."""
from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from impl import realize
from impl.device.lent import lent
from impl.effects import Buffer, Holder, is_lost, leaf_of, living
from impl.errors import ReplayError
from impl.ir import Ops, Shape, UOp, toposort
from impl.replay.arguments import Arguments, aliases_of
from impl.replay.history import Expression
from impl.tensor import Tensor
from impl.tensor.parameters import dependent_bits, is_held, realize_unasked

#: Whoever has a buffer: a tensor, while it lives.
Owner = Callable[[], "Tensor | None"]


class GradientOf:
    """The gradient that a tensor has now, as an owner: `backward` makes a new one each time. One of
    another form or class than that of the capture, or with a gradient of its own, is none.
    """

    def __init__(self, holder: weakref.ref[Tensor], gradient: Tensor) -> None:
        self.holder, self.form = holder, self._form(gradient)

    def __call__(self) -> Tensor | None:
        holder = self.holder()
        found = None if holder is None else holder.grad
        return found if found is not None and self._form(found) == self.form else None

    @staticmethod
    def _form(gradient: Tensor) -> tuple[Any, ...]:
        return type(gradient), gradient.shape, gradient.device, gradient._parameter, \
            gradient.grad is None


class Sharing:
    """Which of some tensors, by identity, have one gradient, or one of them as their gradient."""

    def __init__(self, tensors: Mapping[int, Tensor]) -> None:
        self.tensors = tensors

    def __call__(self) -> list[int]:
        places = {identity: -1 - place for place, identity in enumerate(self.tensors)}
        return [places.setdefault(id(tensor.grad), place)
                for place, tensor in enumerate(self.tensors.values())]


class Still:
    """Whether a tensor has the gradient that it had."""

    def __init__(self, holder: weakref.ref[Tensor], gradient: Tensor) -> None:
        self.holder, self.gradient = holder, weakref.ref(gradient)

    def __call__(self) -> bool:
        holder, gradient = self.holder(), self.gradient()
        return holder is not None and gradient is not None and holder.grad is gradient


@dataclass
class Source:
    """Where a replay finds a buffer that the capture read but did not make.

    `path` is an argument; otherwise `owners` are the living tensors that held the buffer, and
    `gradients` those of which it was the gradient.
    """

    path: str | None
    owners: list[Owner]
    written: int = 0  # versions that it gains at each call
    depends: bool = False  # whether it depended on a parameter
    gradients: list[weakref.ref[Tensor]] = field(default_factory=list)


@dataclass
class Change:
    """A tensor that a call gives a new value: an argument (by path), or any other.

    With `gradient`, not the tensor itself but its `.grad` is given a value. `expression` is what
    gives the value, if somebody may ask for a gradient of it.
    """

    holder: weakref.ref[Tensor] | str
    buffer: Buffer
    shape: Shape
    gradient: bool = False
    expression: Expression | None = None


class States:
    """What a recording reads and changes of tensors that live on from call to call."""

    def __init__(self, name: str, sources: dict[Buffer, Source], changes: list[Change]) -> None:
        self.name, self.sources, self.changes = name, sources, changes
        self.own = {b: source for b, source in sources.items() if source.path is None}
        self.written = [b for b, source in sources.items() if source.written]
        self.copied: dict[Buffer, Buffer] = {}  # what a call works on in place of whose memory

    def owners(self) -> list[tuple[Owner, Tensor]]:
        """Whoever holds what is read, besides arguments, and lives."""
        return [(owner, held) for source in self.own.values() for owner in source.owners
                if (held := owner()) is not None]

    def owned(self) -> list[tuple[Buffer, Tensor]]:
        """The buffers of the capture besides arguments, each with a living tensor that has it."""
        return [(buffer, held) for buffer, source in self.own.items() for owner in source.owners
                if (held := owner()) is not None]

    def changing(self) -> list[tuple[Change, Tensor | None]]:
        """The changes of tensors besides arguments, each with the tensor while it lives."""
        return [(c, c.holder()) for c in self.changes if not isinstance(c.holder, str)]

    def changed(self) -> list[Tensor]:
        """The living tensors that are given another value, besides arguments."""
        return [holder for _, holder in self.changing() if holder is not None]

    def held(self) -> set[Buffer]:
        """The buffers that hold, before the call, what it changes besides its arguments."""
        leaves = [leaf_of(holder.uop) for holder in self.changed()]
        return {leaf.arg[0] for leaf in leaves if leaf is not None}

    def find(self, buffer: Buffer, size: int) -> Buffer:
        """The buffer of a captured tensor that stands now where `buffer` stood in the capture, and
        has this size in this call.
        """
        source = self.own[buffer]
        owners = [owner for reference in source.owners if (owner := reference()) is not None]
        leaves = [owner.uop for owner in owners]
        while not all([leaf_of(leaf) is leaf for leaf in leaves]):
            realize_unasked(owners)
            leaves = [owner.uop for owner in owners]  # the handler of a signal may assign to one
        buffers = {leaf.arg[0] for leaf in leaves}
        if len(buffers) > 1:
            raise ReplayError(self.name, "tensors that were one when the function was captured are "
                              "several now, and it may use any of them", "call .reset()")
        for found in buffers:
            if found.size != size or found.dtype is not buffer.dtype:
                raise ReplayError(self.name, f"a tensor that the function uses had "
                                  f"{size} elements of {buffer.dtype.name}, and has "
                                  f"{found.size} of {found.dtype.name} now", "call .reset()")
            # r[impl replay.arguments.depending]
            if dependent_bits[0] and any(is_held(owner.uop) is not source.depends
                                         for owner in owners if not owner._parameter):
                raise ReplayError(self.name, "a tensor that the function uses depends on a "
                                  "parameter now, or did so when it was captured, and gradients "
                                  "go other ways", "call .reset(), or detach it")
            return found
        if source.owners:
            raise ReplayError(self.name, "a tensor that the function used does not exist any more, "
                              "so the function would use another one now", "call .reset()")
        return buffer

    def lie(self, now: Mapping[Buffer, Buffer]) -> bool:
        """Whether the states still lie where they were found, or what lies there is a copy."""
        for buffer, owner in self.owned():
            leaf = owner.uop
            if leaf.op is not Ops.BUFFER or leaf.arg[1] != leaf.arg[0].version \
                    or leaf.arg[0] is not now[buffer] \
                    and leaf.arg[0] is not self.copied.get(now[buffer]):
                return False
        return True

    def part(self, tensors: dict[str, Tensor], used: set[Buffer]) -> None:
        """Give an argument that shares memory with a state, but is another tensor, its own.

        A result of an earlier call may be such an argument: the state was returned as a value.
        `used` are the buffers of the states.
        """
        sharing = [tensor for tensor in tensors.values() if tensor.uop.arg[0] in used]
        if not sharing:
            return
        known = {id(h): h for h in (*self.changed(), *(held for _, held in self.owners()))}
        roots = {id(root()) for h in known.values() for root, *_ in h._ancestors}
        copies: dict[Buffer, Buffer] = {}
        for tensor in sharing:
            if id(tensor) not in known and id(tensor) not in roots and not tensor._parameter:
                own_memory(tensor, copies)  # r[impl replay.state.parted]

    def waiting(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Who waits, and reads the memory of a state that a replay overwrites, besides arguments:
        what these have in common is computed once if all are computed together.
        """
        leaves = [leaf_of(held.uop) for buffer in self.written if buffer in self.own
                  for owner in self.own[buffer].owners if (held := owner()) is not None]
        written = {leaf.arg[0] for leaf in leaves if leaf is not None}
        # r[impl replay.readers.together]
        return self._readers(written, [*self.changed(), *arguments])[0] if written else []

    def _readers(self, written: set[Buffer], apart: Iterable[Tensor | None],
                 ) -> tuple[list[Tensor], set[Buffer]]:
        """Of the living tensors besides some: those that wait and read these buffers, and which of
        the buffers the others hold.
        """
        pending, kept, known = list[Tensor](), set[Buffer](), {id(tensor) for tensor in apart}
        for holder in living():
            if id(holder) in known or not isinstance(holder, Tensor) or is_lost(holder.uop):
                continue
            leaf = leaf_of(holder.uop)
            if leaf is not None:
                kept |= {leaf.arg[0]} & written
            elif any(leaf_of(u) is not None and leaf_of(u).arg[0] in written  # type: ignore
                     for u in toposort((holder.uop,), lambda u: leaf_of(u) is None)):
                pending.append(holder)
        return pending, kept

    def protect(self, now: dict[Buffer, Buffer], arguments: Arguments) -> None:
        """Before memory is overwritten: whoever still means the old value gets it."""
        self.copied.clear()
        written = {now[b] for b in self.written}
        pending, kept = self._readers(written, [
            arguments.tensors[c.holder] if isinstance(c.holder, str) else c.holder()
            for c in self.changes])
        realize_unasked(pending)  # r[impl replay.readers.kept]
        if realize.is_nested():  # r[impl realize.nested.apart]
            kept = written
        elif lent:
            realize.part_from_others(written)
        for buffer in sorted(kept, key=lambda b: b.number):
            for captured, current in now.items():
                if current is buffer:
                    now[captured] = copy = realize.copied(current)
                    self.copied[copy] = current

    def has_owners(self) -> bool:
        """Whether the tensors that the function reads are still there, or their gradients are."""
        gc.collect()
        for source in self.own.values():
            if source.gradients and not self._follow_gradients(source):
                return False
            if source.owners and all(o() is None for o in source.owners):
                return False  # it was replaced by another one during the call
        return True

    def _follow_gradients(self, source: Source) -> bool:
        """A gradient that was read and replaced by a new one is read from its tensor each time.

        False for one that is also kept elsewhere: the function may use either.
        """
        kept = [o() for o in source.owners if o() is not None]
        replaced = [g for g in source.gradients
                    if (holder := g()) is not None and not any(holder.grad is k for k in kept)]
        if replaced and kept:
            return False
        if replaced:  # r[impl replay.state.eager]
            source.owners = [GradientOf(g, held) for g in replaced
                             if (holder := g()) is not None and (held := holder.grad) is not None]
        return True

    def check_aliases(self, arguments: Arguments, before: list[tuple[str, ...]],
                      found: dict[Buffer, Buffer], held: set[Buffer]) -> None:
        """What shared memory must still do so, and nothing else, among arguments and captured
        tensors alike. `before` are the arguments that were one in the capture.
        """
        now = aliases_of({p: t.uop for p, t in arguments.tensors.items()})
        if now != before:  # r[impl replay.arguments.form]
            raise ReplayError(self.name, "which arguments are the same tensor has changed: was "
                              f"{before or 'none'}, is {now or 'none'}",
                              "make another TinyJit for it, or pass a copy (.contiguous())")
        if not self.changes and not self.written:
            return
        own = [found[b] for b in self.own]
        given = {path: t.uop.arg[0] for path, t in arguments.tensors.items()}
        changed = held.union(found[b] for b in self.written)
        changed |= {given[c.holder] for c in self.changes if isinstance(c.holder, str)}
        both = {*own, *held} & {*given.values()}
        if len({*own}) < len(own):
            both |= {buffer for buffer, count in Counter(own).items() if count > 1}
        if both & changed:  # r[impl replay.guard.state]
            raise ReplayError(self.name, "two tensors of the function, which changes one of them, "
                              "are the same tensor now", "pass a copy (.clone())")

    def check_views(self, tensors: dict[str, Tensor]) -> None:
        """A view that is assigned to changes another tensor too, of which a recording is unaware.
        """
        for change in self.changes:
            if isinstance(change.holder, str) and not change.gradient \
                    and any(root() is not None for root, *_ in tensors[change.holder]._ancestors):
                raise ReplayError(self.name, "an argument that the function assigns to is a view "
                                  "of another tensor", "pass the tensor, or a copy (.clone())")

    def may_be(self, tensors: dict[str, Tensor], before: dict[int, UOp]) -> bool:
        """Whether the function did to stand-ins of its arguments what it does to the arguments:
        it assigned to no view, and reached none by another name to change it by one of the two.
        """
        try:
            self.check_views(tensors)
        except ReplayError:
            return False
        reached = {id(c.holder()) for c in self.changes if not isinstance(c.holder, str)}
        changed = {c.holder for c in self.changes if isinstance(c.holder, str)}
        changed |= {source.path or "" for source in self.sources.values() if source.written}
        for path, tensor in tensors.items():  # r[impl replay.guard.state]
            if id(tensor) in reached or before[id(tensor)].arg[0] in self.own and path in changed:
                return False
        return True


def catch_up(holders: Iterable[Holder], leaves: Mapping[UOp, UOp]) -> None:
    """Let holders that have an expression of some leaves, and no value, have it of others.

    What the handler of a signal, or another thread, wrote down in the middle of a call is of the
    values before it. That is as if it came after the call.
    """
    # r[impl realize.nested.later]
    for holder in holders:
        value, behind = None, True
        while behind and value is not holder.uop:
            value = holder.uop
            nodes = () if value.op is Ops.BUFFER else toposort((value,), _is_open)
            behind = any(node in leaves for node in nodes)
            if behind:
                computed = {node: node for node in nodes if not _is_open(node)}
                other = value.substitute({**computed, **leaves})
                if holder.uop is value:  # no other handler has assigned to it
                    holder.uop = value = other


def catch_up_written(old: Iterable[weakref.ref[UOp]]) -> None:
    """The same of all tensors and the leaves of what was overwritten, where anybody has one."""
    leaves = [leaf for each in old if (leaf := each()) is not None]
    if leaves:
        catch_up(living(), {leaf: leaf.arg[0].leaf(leaf.arg[2]) for leaf in leaves})


def _is_open(node: UOp) -> bool:
    return node.op is not Ops.BUFFER and node.realized is None


def own_memory(tensor: Tensor, copies: dict[Buffer, Buffer]) -> None:
    """Put the value of a realized tensor into a copy of its memory, the known one if there is."""
    with realize.lock:
        leaf = leaf_of(tensor.uop)
        assert leaf is not None
        buffer = leaf.arg[0]
        if buffer not in copies:
            copies[buffer] = realize.copied(buffer)
        tensor.uop = copies[buffer].leaf(leaf.arg[2])
