"""Lists of rules, of which the first that applies counts. Chapter: spec/rewrite.md."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from impl.ir import Ops, UOp
from impl.rewrite.compiler import Compiler
from impl.rewrite.patterns import UPat
from impl.rewrite.rule import Rule

#: What a rule answers, and the rule.
Found = tuple[Any, Rule]


@lru_cache(maxsize=4096)
def _alone(rule: Rule) -> Callable[..., Found | None]:
    """The function of one rule."""
    return Compiler(None).function([rule])[0]


def apply(rule: Rule, node: UOp, ctx: Any = None) -> Any:
    """What one rule makes of a node, or None."""
    found = _alone(rule)(node, ctx)
    return None if found is None else found[0]


class PatternMatcher:
    """A list of rules, of which the first that applies counts (r[rewrite.rule.first]).

    For each operation there is one function, made when it is first asked for: `functions[op]`
    takes a node of that operation and a context. Where no rule concerns an operation it is None.
    What a rule answers must pass `accepts`, which gets the node and the answer, if there is one.
    """

    def __init__(self, rules: Iterable[Rule | tuple[UPat, Callable[..., Any]]],
                 accepts: Callable[[UOp, Any], bool] | None = None) -> None:
        self.rules = tuple(r if isinstance(r, Rule) else Rule(*r) for r in rules)
        self.accepts = accepts
        self.functions = _Functions(self)

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules, self.accepts)

    def of(self, op: Ops) -> list[Rule]:
        """The rules that may match a node of an operation, in order."""
        return [r for r in self.rules if r.pattern.ops is None or op in r.pattern.ops]

    def text(self, op: Ops) -> str:
        """The function of an operation, as Python."""
        return Compiler(op, self.accepts).function(self.of(op))[1]

    def match(self, node: UOp, ctx: Any = None) -> Found | None:
        """The answer of the first rule that applies, and that rule."""
        function = self.functions[node.op]
        return None if function is None else function(node, ctx)

    def rewrite(self, node: UOp, ctx: Any = None) -> Any:
        """What the first rule that applies makes of the node; None if none does."""
        found = self.match(node, ctx)
        return None if found is None else found[0]


class _Functions(dict[Ops, Any]):
    """The function for each operation, made when it is first asked for."""

    def __init__(self, matcher: PatternMatcher) -> None:
        super().__init__()
        self.matcher = matcher
        self.shared: dict[tuple[Rule, ...], Any] = {}  # operations of the same rules have one

    def __missing__(self, op: Ops) -> Any:
        rules = tuple(self.matcher.of(op))
        made = self.shared.get(rules)
        if made is None and rules:
            made = Compiler(op, self.matcher.accepts).function(rules)[0]
            if not any(rule.pattern.choices for rule in rules):
                self.shared[rules] = made
        self[op] = made
        return made
