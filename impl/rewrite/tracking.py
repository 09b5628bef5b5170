"""How often each rule was tried, how often it matched, and what it did. Chapter: spec/rewrite.md.

Nothing of this runs unless TRACK_MATCH_STATS is set.
"""
from __future__ import annotations

import atexit
import time
from dataclasses import dataclass
from typing import Any

from impl.ir import UOp, line_of
from impl.rewrite.matcher import Found, PatternMatcher, apply
from impl.settings import get


@dataclass
class Tally:
    """How often the pattern of a rule was compared with a node, how often the rule was applied,
    and the seconds that both took."""

    tried: int = 0
    matched: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Rewrite:
    """One thing that a rule did, in the list of rules `where`."""

    where: str
    rule: str
    before: UOp
    after: UOp
    origin: str = ""  # the user's line, if it is known


#: Rule name -> its tally, while TRACK_MATCH_STATS is on.
match_statistics: dict[str, Tally] = {}
#: Every rewrite, while TRACK_MATCH_STATS is 2.
rewrites: list[Rewrite] = []


def tracked(matcher: PatternMatcher, node: UOp, ctx: Any, where: str,
            origin: Any = None) -> Found | None:
    """The same as `matcher.match`, rule by rule, with everything noted."""
    present = {source.op for source in node.src}
    for rule in matcher.of(node.op):
        if not rule.needs <= present:
            continue
        tally = match_statistics.setdefault(rule.name, Tally())
        start = time.perf_counter()
        answer = apply(rule, node, ctx)
        tally.seconds += time.perf_counter() - start
        tally.tried += 1  # r[impl rewrite.statistics.told]
        if answer is not None and (matcher.accepts is None or matcher.accepts(node, answer)):
            tally.matched += 1
            # r[impl rewrite.statistics.told]
            if get("TRACK_MATCH_STATS") >= 2 and isinstance(answer, UOp):
                line = line_of(origin or node.origin)
                rewrites.append(Rewrite(where, rule.name, node, answer, line))
            return answer, rule  # r[impl rewrite.rule.first]
    return None


def look(matcher: PatternMatcher, node: UOp, ctx: Any, where: str) -> Found | None:
    """The first rule for one node, noted if that is asked for."""
    if get("TRACK_MATCH_STATS"):
        return tracked(matcher, node, ctx, where)
    return matcher.match(node, ctx)


def print_match_statistics() -> None:
    """Print the tallies, the rule that took longest first."""
    print(f"{'tried':>10} {'matched':>10} {'ms':>10}  rule")
    for name, tally in sorted(match_statistics.items(), key=lambda each: -each[1].seconds):
        print(f"{tally.tried:>10} {tally.matched:>10} {tally.seconds * 1e3:>10.3f}  {name}")


@atexit.register
def _at_exit() -> None:
    if match_statistics and get("TRACK_MATCH_STATS"):
        print_match_statistics()
