"""Mistakes in patterns, in the walk that applies rules, and in algebra."""
from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch


class SameOperationIsSameNode(Edit):
    rule = "rewrite.match.sources"
    description = "one name stands for two nodes of one operation"
    first = "test_one_name_is_one_node"
    file = "impl/rewrite/compiler.py"
    old, new = 'f"{earlier} is {place}"', 'f"{earlier}.op is {place}.op"'


class ForwardsAndBackwards(Edit):
    rule = "rewrite.match.sources"
    description = "of all orders of the sources the given one and its reverse are tried"
    first = "test_sources_in_any_order_fit_together"
    file = "impl/rewrite/compiler.py"
    old = "for order in itertools.permutations(names):"
    new = "for order in (names, names[::-1]):"


class TheLastRuleCounts(Edit):
    rule = "rewrite.rule.first"
    description = "of the rules that match the last is applied"
    file = "impl/rewrite/matcher.py"
    old, new = "return [r for r in self.rules if", "return [r for r in self.rules[::-1] if"


class WhatLeavesANodeIsCounted(Edit):
    rule = "rewrite.statistics.told"
    description = "a rule that leaves a node as it is counts as applied"
    first = "test_statistics_count"
    file = "impl/rewrite/tracking.py"
    old, new = "tally.tried += 1  #", "tally.tried += 1; tally.matched += answer is None  #"


class LastRewritesAreKept(Edit):
    rule = "rewrite.statistics.told"
    description = "of all rewrites the last one is kept"
    first = "test_rewrites_are_kept"
    file = "impl/rewrite/tracking.py"
    old = "rewrites.append(Rewrite(where, rule.name, node, answer, line))"
    new = "rewrites[:] = [Rewrite(where, rule.name, node, answer, line)]"


class ResultsAreFinal(Edit):
    rule = "rewrite.order.visits"
    description = "what a rule returns is not rewritten in turn"
    first = "test_bottom_up_goes_to_the_end"
    file = "impl/rewrite/walk.py"
    old = 'order == "top-down", order != "walk"'
    new = 'order == "top-down", order == "top-down"'


class OnceOnTheWayDown(Edit):
    rule = "rewrite.order.visits"
    description = "on the way down a node is rewritten once"
    first = "test_order_of_visits"
    file = "impl/rewrite/walk.py"
    old, new = "if current in self.done:\n                break", "break"


class WalksLookAgain(Edit):
    rule = "rewrite.order.visits"
    description = "a walk offers the rules what they have returned"
    first = "test_walk_looks_once"
    file = "impl/rewrite/walk.py"
    old, new = 'order == "top-down", order != "walk"', 'order == "top-down", True'


class GatesHoldWhatIsBelow(Edit):
    rule = "rewrite.order.visits"
    description = "a node that fails the gate is rewritten, only what is below it is not"
    first = "test_gate_stops"
    file = "impl/rewrite/walk.py"
    old = "self.done[node] = node\n            return"
    new = "self.done[node] = (self.look(node) or [node])[0]\n            return"


class RewritesByRecursion(ImplPatch):
    rule = "rewrite.depth.iterative"
    description = "the sources of a node are rewritten by a function that calls itself"
    target = "impl.rewrite.walk:_Rewrite.run"

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
    file = "impl/rewrite/walk.py"
    old, new = "self.loops(node, self.open[node])", "self.done[node] = node; return"


class ZeroesMatchEachOther(Edit):
    rule = "rewrite.simplify.exact"
    description = "-0.0 is left out of a difference like 0.0"
    file = "impl/rewrite/folding.py"
    old, new = "number == 0 and math.copysign(1.0, number) > 0", "number == 0"


class ReciprocalsOfAnything(Edit):
    rule = "rewrite.simplify.exact"
    description = "a division by any number becomes a product with its reciprocal"
    file = "impl/rewrite/simplify.py"
    old, new = "if mantissa != 0.5 or not -14", "if not mantissa or not -14"


class NumbersAreComparedAsTheyWere(Edit):
    rule = "rewrite.simplify.exact"
    description = "a number that is only about the float that was made of it is compared itself"
    file = "impl/rewrite/folding.py"
    old, new = "if not holds_all(y.dtype, x.dtype):\n        return None\n    first", \
        "if False:\n        return None\n    first"


class ProductsNeverWrapAround(Edit):
    rule = "rewrite.simplify.exact"
    description = "x*4 // 4 is taken for x where the product does not fit into its type"
    file = "impl/rewrite/simplify.py"
    old = "if c.arg == 0 or not fits(node.dtype, low, high):"
    new = "if c.arg == 0:"


class ReasonsAreLost(ImplPatch):
    rule = "rewrite.rule.named"
    description = "a list forgets why its rules are there"
    target = "impl.rewrite.matcher:PatternMatcher.__init__"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def forget(matcher: Any, rules: Any, accepts: Any = None) -> None:
            original(matcher, rules, accepts)
            matcher.rules = tuple(map(copy, matcher.rules))  # lists share them
            for rule in matcher.rules:
                rule.reason = ""
        return forget


class AnswersAreFinal(Edit):
    rule = "rewrite.maker.finished+2"
    description = "what a rule returns for a node that is made is not looked at again"
    file = "impl/rewrite/walk.py"
    old = "return node not in self.finished and node.op not in _DOORS"
    new = "return False"


class LeftBehindByAStep(ImplPatch):
    rule = "rewrite.simplify.kernels"
    description = "what steps or hands leave in a kernel is rendered"
    target = "impl.rewrite.simplify:simplify"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda graph, gate=None: graph


class ZeroesAreAdded(ImplPatch):
    rule = "ranges.stage.lean"
    description = "the nodes of an expression stay as they were written"
    first = "test_what_reaches_a_kernel"
    target = "impl.rewrite.walk:Maker.made"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda maker, node: node


class ReadsStay(ImplPatch):
    rule = "ranges.stage.lean"
    description = "what a simplification made idle is read"
    first = "test_what_is_not_needed_is_not_read"
    target = "impl.ranges.stages:without_dead_reads"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda form: form


class TypesMeetUnseen(Edit):
    rule = "symbolic.node.arithmetic"
    description = "a sum of two nodes has the type of the first, whatever the second has"
    file = "impl/symbolic/size.py"
    old, new = "if known.dtype is not node.dtype:", "if False:"


class TheEndIsNotShown(ImplPatch):
    rule = "inspect.journey.complete"
    description = "a kernel is shown as planned, and not after its steps"
    target = "impl.realize.journey:step_rows"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda kernel, steps, reasons: original(kernel, steps, reasons)[:1]


class AtMostIsEither(Edit):
    rule = "lowering.legal.exact+2"
    description = "of two bools the first is at most the other if one of them is true"
    file = "impl/lowering/legal.py"
    old, new = "_bools(Ops.OR, _not(b), c)", "_bools(Ops.OR, b, c)"


class LanguagesAreBelieved(ImplPatch):
    rule = "lowering.legal.exact+2"
    description = "what a language lacks is printed as it stands"
    target = "impl.render.printer:legalize"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda ast, rules: ast
