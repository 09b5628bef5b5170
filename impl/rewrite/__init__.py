"""Patterns, rules and the rewriting of graphs. Chapter: spec/rewrite.md.

`patterns` says what to look for, `compiler` makes Python of it, `matcher` has lists of rules,
`walk` applies them to graphs and where nodes are made, `tracking` counts. `simplify` is a list of
rules for arithmetic, and `verify` states with patterns what each stage may contain.
"""
from impl.rewrite.matcher import PatternMatcher, apply
from impl.rewrite.patterns import UPat
from impl.rewrite.rule import Rule
from impl.rewrite.simplify import ALGEBRA, is_simple, simplifier, simplify
from impl.rewrite.tracking import (
    Rewrite,
    Tally,
    look,
    match_statistics,
    print_match_statistics,
    rewrites,
)
from impl.rewrite.verify import LEVELS, Requirement, verify
from impl.rewrite.walk import Maker, applies, graph_rewrite

__all__ = ["ALGEBRA", "LEVELS", "Maker", "PatternMatcher", "Requirement", "Rewrite", "Rule",
           "Tally", "UPat", "applies", "apply", "graph_rewrite", "is_simple", "look",
           "match_statistics",
           "print_match_statistics", "rewrites", "simplifier", "simplify", "verify"]
