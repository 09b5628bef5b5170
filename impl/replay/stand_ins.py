"""Copies of arguments, on which a function that is looked at is called. Chapter: spec/replay.md.

A stand-in has memory of its own. So a tensor that is an argument and that the function also uses by
another name is told apart from the argument. Where its call counts, it is a view of what the
argument is a view of: what the function writes to it is written there, and no other element.
"""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from impl import realize
from impl.effects import Buffer, leaf_of, living
from impl.following.reads import Reads
from impl.gradient import expression_of
from impl.ir import note_late
from impl.replay.arguments import Arguments, is_whole, take_apart
from impl.replay.results import containers_in, mapped
from impl.tensor import Tensor
from impl.tensor.parameters import (
    needs_gradient,
    note_dependent,
    realize_unasked,
    register_parameter,
)


class StandIns:
    """The arguments of a call, with stand-ins in the place of the tensors.

    `shared`: the function may reach an argument by another name, too; then `states` are all tensors
    that it uses besides.
    """

    def __init__(self, args: Any, kwargs: Any, given: Arguments, reads: Reads) -> None:
        self.tensors = list(given.tensors.values())
        roots = [tensor.uop for tensor in self.tensors]
        realize_unasked(self.tensors)
        self.originals = [(root, tensor.uop) for root, tensor in zip(roots, self.tensors,
                                                                     strict=True)]
        self.shared = any(_is_part_of(tensor, reads) for tensor in self.tensors) or any(
            not is_whole(form) for path, form in given.signature.items()
            if path != "[1]" and isinstance(form, tuple))
        self.states = list({id(each): each for each in [*reads.tensors.values(), *_roots(
            self.tensors)]}.values()) if self.shared else []
        realize_unasked(self.states)
        self.of = _copies(self.tensors)
        # While these live, nothing overwrites the memory of the arguments.
        self.kept = [Tensor(tensor.uop) for tensor in [*self.tensors, *self.states]]
        self.gradients = [tensor.grad for tensor in self.tensors]
        self.started = {id(tensor): tensor.uop for tensor in self.tensors}
        self.args, self.kwargs = mapped((args, kwargs), lambda v: self.of.get(id(v), v))
        #: The containers that were given, by the identity of those that stand for them.
        self.containers = {id(stand_in): given for stand_in, given in zip(
            containers_in((self.args, self.kwargs)), containers_in((args, kwargs)), strict=True)}
        self.arguments = take_apart((self.args, self.kwargs))
        self.arguments.leaves = {path: t.uop for path, t in self.arguments.tensors.items()}

    def see(self) -> None:
        """Be views of what the arguments are views of."""
        # r[impl replay.failure.done+2, effects.view-write.region]
        for tensor in self.tensors:
            self.of[id(tensor)]._ancestors = tuple(
                (weakref.ref(self.of.get(id(root), root)), path)
                for reference, path in tensor._ancestors if (root := reference()) is not None)

    def write_back(self) -> None:
        """Let the arguments have what their stand-ins were given."""
        # r[impl replay.failure.done+2]
        started = set(self.arguments.leaves.values())
        for tensor, gradient in zip(self.tensors, self.gradients, strict=True):
            stand_in = self.of[id(tensor)]
            if stand_in.uop not in started:  # the function assigned to it
                tensor.uop = stand_in.uop
            if stand_in.grad is not gradient:
                tensor.grad = stand_in.grad
            if stand_in._parameter and not tensor._parameter:  # its memory is that of a variable
                tensor._parameter = True
                register_parameter(tensor)
            elif stand_in._parameter is not tensor._parameter:
                tensor.requires_grad = stand_in._parameter
        originals = {id(self.of[id(tensor)]): tensor for tensor in self.tensors}
        for holder in living():
            if isinstance(holder, Tensor) and id(holder.grad) in originals:
                holder.grad = originals[id(holder.grad)]

    def leave(self, reads: Reads) -> None:
        """Let what the function wrote to places outside be the arguments, or views of them."""
        # r[impl replay.failure.done+2]
        originals = {id(self.of[id(tensor)]): tensor for tensor in self.tensors}
        for place in reads.kept():
            space = vars(place.owner) if place.kind == "attribute" else place.owner
            held = space.get(place.key)
            parts: list[Any] = []
            mapped(held, parts.append)
            found = [each for each in parts if isinstance(each, Tensor)]
            for view in found:
                view._ancestors = tuple((weakref.ref(originals[id(root())]), path)
                                        if id(root()) in originals else (root, path)
                                        for root, path in view._ancestors)
            if any(id(each) in originals for each in found):
                space[place.key] = self.originals_in(held)

    def take_back(self, gradients: Sequence[tuple[Tensor, Tensor | None, bool | None]]) -> None:
        """Give all tensors back what they had when the call began: values, gradients, and whether
        they require one.
        """
        for tensor, before in zip([*self.tensors, *self.states], self.kept, strict=True):
            tensor.uop = before.uop
        for tensor, gradient, wanted in gradients:
            tensor.grad = gradient
            if tensor._parameter is not wanted:
                tensor.requires_grad = bool(wanted)
                tensor._parameter = wanted

    def originals_in(self, result: Any) -> Any:
        """A result with the arguments themselves where the function returned their stand-ins."""
        originals = {id(self.of[id(tensor)]): tensor for tensor in self.tensors}
        parts: list[Any] = []
        mapped(result, parts.append)
        if not any(id(part) in originals for part in parts) and self.containers.keys().isdisjoint(
                map(id, containers_in(result))):
            return result  # the very containers that the function returned
        return mapped(result, lambda v: originals.get(id(v), v), self.containers)


def _is_part_of(tensor: Tensor, reads: Reads) -> bool:
    """Whether an argument is, or is a view of, a tensor that the function uses besides."""
    if id(tensor) in reads.tensors:
        return True
    return any(id(root()) in reads.tensors for root, *_ in tensor._ancestors)


def _roots(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The living tensors of which some are views, and which a write to one of these changes."""
    return [root for tensor in tensors for reference, _ in tensor._ancestors
            if (root := reference()) is not None]


def _copies(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """For each tensor one with a copy of its memory; tensors that share memory still do."""
    copies: dict[Buffer, Buffer] = {}
    found: dict[int, Tensor] = {}
    for tensor in tensors:
        leaf, depends = leaf_of(tensor.uop), needs_gradient(tensor.uop)
        assert leaf is not None
        buffer = leaf.arg[0]
        if buffer not in copies:
            copies[buffer] = realize.copied(buffer)
        stand_in = Tensor(copies[buffer].leaf(leaf.arg[2]))
        stand_in.grad = tensor.grad
        if tensor._parameter is not None:  # r[impl replay.arguments.form]: also if it is not wanted
            stand_in.requires_grad = tensor._parameter
        if not tensor._parameter and (leaf.late is not None or depends):
            # r[impl replay.arguments.depending]: it may be what a parameter is, under another name
            note_late(stand_in.uop, (expression_of, depends, leaf))
            if depends:
                note_dependent(stand_in.uop)
        found.setdefault(id(tensor), stand_in)
    return found
