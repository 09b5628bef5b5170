"""Mistakes in what a write does to those who read, made inside `impl.effects`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class WritesThroughWindows(Edit):
    rule = "effects.view-write.expanded"
    description = "windows that overlap can be written"
    file = "impl/effects/writes.py"
    old, new = "if walk.op in (Ops.EXPAND, Ops.PAD) or windows:", \
        "if walk.op in (Ops.EXPAND, Ops.PAD):"


class WritesNothing(Edit):
    rule = "effects.view-write.empty"
    description = "a write to no elements makes a version"
    file = "impl/effects/writes.py"
    old, new = "return base  # r[impl effects.view-write.empty]", "pass"


class PadsAreViews(Edit):
    rule = "effects.view-write.copies+3"
    description = "the result of `pad` remembers the tensor that it was taken from"
    file = "impl/tensor/movement.py"
    old, new = "return self._wrap(pad_with(nodes.shrink(self.uop, kept), grown, value))", \
        "return self._viewed(pad_with(nodes.shrink(self.uop, kept), grown, value), " \
        "((Ops.SHRINK, kept),))"


class GivesTheTensorItself(Edit):
    rule = "effects.view-write.copies+3"
    description = "a method that finds nothing to do gives the tensor itself"
    file = "impl/tensor/base.py"
    old, new = "result = self._wrap(self.uop)  # r[impl effects.view-write.copies+3]", \
        "result = self"


class ReadsTheVersionAfter(Edit):
    rule = "effects.version.overwritten"
    description = "a leaf of the version before the present one is read without complaint"
    first = "test_an_overwritten_version_is_an_error"
    file = "impl/effects/versions.py"
    old, new = "if leaf is not None and leaf.arg[1] != leaf.arg[0].version:", \
        "if leaf is not None and leaf.arg[1] < leaf.arg[0].version - 1:"


class ForgetsTheLastNode(Edit):
    rule = "effects.version.overwritten"
    description = "of the nodes that a buffer held, only the last is forgotten"
    first = "test_every_node_of_an_overwritten_buffer_is_forgotten"
    file = "impl/effects/versions.py"
    old, new = "for reference in buffer.nodes:", "for reference in buffer.nodes[-1:]:"


class RescuesOnce(Edit):
    rule = "effects.war.rescue"
    description = "who reads what the rescued overwrite is not rescued"
    file = "impl/effects/collecting.py"
    old, new = "fresh = find(found)\n        effects.nodes += fresh", \
        "effects.nodes += find(found)\n        fresh = []"


class KeepsTheDead(ImplPatch):
    rule = "effects.rescue.dead"
    description = "the list of living tensors keeps them alive"
    target = "impl.effects.holders:register"

    def replacement(self, original: Function) -> Function:
        kept: list[Any] = []

        def register(holder: Any) -> None:
            kept.append(holder)
            original(holder)
        return register


class ExpressionsHoldNothing(Edit):
    rule = "effects.version.held"
    description = "an expression that was computed does not hold the memory of its value"
    file = "impl/effects/collecting.py"
    old, new = "if leaf.arg[0] in written:\n", "if leaf is value and leaf.arg[0] in written:\n"


class HoldsOneVersion(Edit):
    rule = "effects.version.held"
    description = "of the versions that are held, only the last that was found is kept"
    file = "impl/effects/collecting.py"
    old, new = "effects.held |= {leaf}", "effects.held = {leaf}"
