"""Rules, lists of them, and how often each was tried. Chapter: spec/rewrite.md.

A rule is a pattern and a function. The function gets the captured nodes by the names of its
parameters and returns a node that means the same, or None for "this does not apply".
"""
from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

from impl.errors import GraphError
from impl.ir import Ops, UOp
from impl.rewrite.compiler import Compiler
from impl.rewrite.patterns import UPat

#: What a rule answers, and the rule.
Found = tuple[Any, "Rule"]


class Rule:
    """A pattern with the function that rewrites what it finds, a name, and the reason for it.

    `function` takes the captures by name and, if it has a parameter `ctx`, the context. It returns
    None if the rule does not apply after all: other ways to match are tried then.
    """

    __slots__ = ("pattern", "function", "name", "reason", "parameters", "needs", "_alone")

    def __init__(self, pattern: UPat, function: Callable[..., Any], name: str = "",
                 reason: str = "") -> None:
        self.pattern, self.function, self.reason = pattern, function, reason
        self.name = name or _function_name(function)
        self.parameters = tuple(inspect.signature(function).parameters)
        self.needs = pattern.needs()
        self._alone: Callable[..., Found | None] | None = None
        captured = pattern.captures()
        for name in self.parameters:
            if name != "ctx" and name not in captured:
                raise GraphError("Rule", f"{self.name} wants {name!r}, which the pattern does not "
                                 "capture", "name that part of the pattern")

    def apply(self, node: UOp, ctx: Any = None) -> Any:
        """What the rule makes of the node, or None."""
        if self._alone is None:
            self._alone = Compiler(None).function([self])[0]
        found = self._alone(node, ctx)
        return None if found is None else found[0]


def _function_name(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if code is None:
        return name
    return f"{name.strip('<>')} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


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
