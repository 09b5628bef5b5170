"""Mistakes in patterns, in the walk that applies rules, and in algebra."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch


class SameOperationIsSameNode(Edit):
    rule = "rewrite.match.name"
    description = "one name stands for two nodes of one operation"
    file = "impl/rewrite/matcher.py"
    old = "return after(registers) if registers[earlier] is registers[register] else None"
    new = "return after(registers) if registers[earlier].op is registers[register].op else None"


class ForwardsAndBackwards(Edit):
    rule = "rewrite.match.permuted"
    description = "of all orders of the sources the given one and its reverse are tried"
    file = "impl/rewrite/matcher.py"
    old, new = "for order in itertools.permutations(given):", "for order in (given, given[::-1]):"


class TheLastRuleCounts(Edit):
    rule = "rewrite.rule.first"
    description = "of the rules that match the last is applied"
    file = "impl/rewrite/matcher.py"
    old = "for rule in rules:\n            if rule.needs"
    new = "for rule in rules[::-1]:\n            if rule.needs"


class WhatLeavesANodeIsCounted(Edit):
    rule = "rewrite.statistics.exact"
    description = "a rule that gives the node back counts as applied"
    file = "impl/rewrite/matcher.py"
    old, new = "counts[1] += applies", "counts[1] += answer is not None"


class ResultsAreFinal(Edit):
    rule = "rewrite.order.bottom-up"
    description = "what a rule returns is not rewritten in turn"
    file = "impl/rewrite/matcher.py"
    old = 'order == "top-down", order != "walk"'
    new = 'order == "top-down", order == "top-down"'


class OnceOnTheWayDown(Edit):
    rule = "rewrite.order.top-down"
    description = "on the way down a node is rewritten once"
    file = "impl/rewrite/matcher.py"
    old, new = "if current in self.done:\n                break", "break"


class WalksLookAgain(Edit):
    rule = "rewrite.order.walk"
    description = "a walk offers the rules what they have returned"
    file = "impl/rewrite/matcher.py"
    old, new = 'order == "top-down", order != "walk"', 'order == "top-down", True'


class GatesHoldWhatIsBelow(Edit):
    rule = "rewrite.gate.stop"
    description = "a node that fails the gate is rewritten, only what is below it is not"
    file = "impl/rewrite/matcher.py"
    old = "self.done[node] = node\n            return"
    new = "self.done[node] = self.matcher.rewrite(node, self.context) or node\n            return"


class RewritesByRecursion(ImplPatch):
    rule = "rewrite.depth.iterative"
    description = "the sources of a node are rewritten by a function that calls itself"
    target = "impl.rewrite.matcher:_Rewrite.run"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(rewrite: Any, root: Any) -> Any:
            for source in root.src:
                if source not in rewrite.done:
                    run(rewrite, source)
            return original(rewrite, root)
        return run


class CirclesEndQuietly(Edit):
    rule = "rewrite.loop.error"
    description = "where rules lead back to a node, it stays as it is"
    file = "impl/rewrite/matcher.py"
    old, new = "self.loops(node, self.open[node])", "self.done[node] = node; return"


class ZeroesMatchEachOther(Edit):
    rule = "rewrite.simplify.exact"
    description = "0.0 is left out of a sum like -0.0"
    file = "impl/rewrite/matcher.py"
    old, new = "bool(number == value and same_sign or (", "bool(number == value or ("


class ReciprocalsOfAnything(Edit):
    rule = "rewrite.simplify.exact"
    description = "a division by any number becomes a product with its reciprocal"
    file = "impl/rewrite/simplify.py"
    old, new = "if mantissa != 0.5 or not -14", "if not mantissa or not -14"
