"""Patterns, rules and the rewriting of graphs. Chapter: spec/rewrite.md.

`matcher` finds patterns and applies rules, `simplify` is a set of rules for scalar arithmetic, and
`verify` states with patterns what each stage of the compiler may contain.
"""
from impl.rewrite.matcher import (
    PatternMatcher,
    Rule,
    UPat,
    graph_rewrite,
    match_statistics,
    print_match_statistics,
)
from impl.rewrite.simplify import ALGEBRA, simplify
from impl.rewrite.verify import STAGES, Requirement, verify

__all__ = ["ALGEBRA", "STAGES", "PatternMatcher", "Requirement", "Rule", "UPat", "graph_rewrite",
           "match_statistics", "print_match_statistics", "simplify", "verify"]
