"""Rules become a Python function for each operation, compiled once. Chapter: spec/rewrite.md.

A pattern is a description. What runs is text that was made from it: nested `if`s, the cheapest
questions first, and a `return` at the bottom. What does not match falls through to the next way.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from impl.ir import Ops
from impl.rewrite.patterns import UPat
from impl.rewrite.rule import Rule

#: More sources than this in any order are tried in a loop; fewer are written out.
_MOST_WRITTEN_OUT = 3
# In which order questions about nodes are asked: what costs little, and most often says no.
_OPERATION, _IDENTITY, _TYPE, _ARGUMENT, _TEST = range(5)


class Compiler:
    """Writes the function that compares a node with some rules, all for one operation."""

    def __init__(self, op: Ops | None, accepts: Callable[[Any, Any], bool] | None = None) -> None:
        self.op, self.accepts = op, accepts  # the operation of the node, if it is known
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, Any] = {"permutations": itertools.permutations}
        self.captured: dict[str, str] = {}
        self.asked: list[tuple[int, str]] = []  # conditions that are not written yet
        self.operation: dict[str, str] = {}     # variable -> the one that has its operation
        self.given: tuple[str, ...] | None = None  # the node's sources, if they have names

    def function(self, rules: Sequence[Rule]) -> tuple[Callable[..., Any], str]:
        """The function of a node and a context, and its text."""
        self._name_sources(rules)
        for needy, group in itertools.groupby(rules, lambda rule: bool(rule.needs)):
            neighbours = list(group)
            with self.branch():
                if needy and self.operation:
                    self._guard(neighbours)
                for rule in neighbours:
                    self._rule(rule)
        name = f"match_{self.op.name if self.op is not None else 'node'}"
        text = "\n".join([f"def {name}(node, ctx=None):", *self.lines, "    return None"]) + "\n"
        exec(compile(text, f"<{name}>", "exec"), self.names)
        return self.names[name], text

    def _name_sources(self, rules: Sequence[Rule]) -> None:
        """Names for the sources and their operations, if all rules want as many."""
        arities = {arity for rule in rules for arity in rule.pattern.arities()}
        if len(arities) != 1 or None in arities:
            return
        count, = arities
        assert count is not None
        self.given = tuple(f"s{place}" for place in range(count))
        self.line(f"if len(node.src) != {count}:")
        self.line("    return None")
        if count:
            self.line(f"{_listed(self.given)} = node.src")
            self.operation = {name: f"op{name[1:]}" for name in self.given}
            self.line("; ".join(f"{op} = {name}.op" for name, op in self.operation.items()))

    def _guard(self, rules: Sequence[Rule]) -> None:
        """Rules that need an operation among the sources: one question for all of them."""
        needed = self.constant(frozenset().union(*(rule.needs for rule in rules)), "NEEDED")
        self.line("if " + " or ".join(f"{op} in {needed}" for op in self.operation.values()) + ":")
        self.indent += 1

    def _rule(self, rule: Rule) -> None:
        self.captured = {}
        self.line(f"# {rule.name}")
        with self.branch():
            self.pattern(rule.pattern, "node", lambda: self._call(rule))

    def _call(self, rule: Rule) -> None:
        """Call the rule's function with the captured nodes; None means: not this time."""
        self.write_asked()
        function = self.constant(rule.function, "rewrite")
        given = [("ctx" if name == "ctx" else self.captured[name]) for name in rule.parameters]
        self.line(f"found = {function}({', '.join(given)})")
        more = f" and {self.constant(self.accepts, 'accepts')}(node, found)" if self.accepts else ""
        self.line(f"if found is not None and found is not node{more}:")
        self.line(f"    return found, {self.constant(rule, 'rule')}")

    def pattern(self, pattern: UPat, place: str, then: Callable[[], None]) -> None:
        """Write the comparison of the variable `place` with a pattern; `then` writes what follows.

        `then` is asked once for each way in which the pattern can match.
        """
        if place == "node" and self.op is not None and pattern.ops is not None:
            if self.op not in pattern.ops:
                return
        if pattern.choices:
            for choice in pattern.choices:
                with self.branch():
                    self.pattern(choice, place, then)
            return
        self._ask_about(pattern, place)
        if pattern.name is not None:
            earlier = self.captured.setdefault(pattern.name, place)
            if earlier != place:  # r[impl rewrite.match.sources]
                self.ask(_IDENTITY, f"{earlier} is {place}")
        self._sources(pattern, place, then)

    def _ask_about(self, pattern: UPat, place: str) -> None:
        """The questions that concern the node itself."""
        if pattern.ops is not None and not (place == "node" and self.op is not None):
            self.ask(_OPERATION, _one_of(self.operation.get(place, f"{place}.op"), [
                self.constant(op, op.name) for op in sorted(pattern.ops)]
                if len(pattern.ops) <= 2 else self.constant(pattern.ops, "OPS")))
        if pattern.dtypes is not None:
            self.ask(_TYPE, _one_of(f"{place}.dtype", [
                self.constant(dtype, f"dtype_{dtype.name}") for dtype in pattern.dtypes]
                if len(pattern.dtypes) == 1 else self.constant(pattern.dtypes, "TYPES")))
        if pattern.arg is not None:
            self.ask(_ARGUMENT, f"{place}.arg == {self.constant(pattern.arg, 'ARG')}")
        if pattern.custom_early_reject:
            needed = self.constant(pattern.custom_early_reject, "NEEDED")
            self.ask(_TEST, f"{needed}.issubset([source.op for source in {place}.src])")
        if pattern.where is not None:
            self.ask(_TEST, f"{self.constant(pattern.where, 'test')}({place})")

    def _sources(self, pattern: UPat, place: str, then: Callable[[], None]) -> None:
        source = pattern.src
        if source is None:
            then()
        elif isinstance(source, UPat):
            self.ask(_TEST, f"all(map({self.constant(predicate(source), 'each')}, {place}.src))")
            then()
        else:
            names = self._unpacked(pattern, place, len(source))
            if isinstance(source, list):
                self._any_order(source, names, place, then)
            else:
                self._in_order(source, names, then)

    def _unpacked(self, pattern: UPat, place: str, count: int) -> tuple[str, ...]:
        """Variables that hold the sources of a node, as many as there are patterns."""
        if place == "node" and self.given is not None:
            return self.given
        names = tuple(f"{'s' if place == 'node' else place + '_'}{i}" for i in range(count))
        relation = ">=" if pattern.allow_any_len else "=="
        self.ask(_TEST, f"len({place}.src) {relation} {count}")
        self.write_asked()
        if count:
            self.line(f"{_listed(names)} = {place}.src" + f"[:{count}]" * pattern.allow_any_len)
        return names

    def _in_order(self, patterns: Sequence[UPat], names: Sequence[str],
                  then: Callable[[], None]) -> None:
        if not patterns:
            then()
            return
        self.pattern(patterns[0], names[0],
                     lambda: self._in_order(patterns[1:], names[1:], then))

    def _any_order(self, patterns: Sequence[UPat], names: Sequence[str], place: str,
                   then: Callable[[], None]) -> None:
        if len(patterns) > _MOST_WRITTEN_OUT:
            self.write_asked()
            chosen = [f"{name}_" for name in names]
            self.line(f"for {', '.join(chosen)} in permutations({place}.src):")
            self.indent += 1
            self._in_order(patterns, chosen, then)
            return
        for order in itertools.permutations(names):
            with self.branch():  # r[impl rewrite.match.sources]
                self._in_order(patterns, order, then)

    # What has been written

    def constant(self, value: Any, name: str) -> str:
        """The name that a value has in the text."""
        if getattr(value, "__name__", "<")[0] != "<" and callable(value):
            name = value.__name__
        for number in itertools.count(1):
            chosen = name if number == 1 else f"{name}_{number}"
            if self.names.setdefault(chosen, value) is value:
                return chosen
        raise AssertionError

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def ask(self, rank: int, condition: str) -> None:
        """Ask something before what is written next."""
        self.asked.append((rank, condition))

    def write_asked(self) -> None:
        """One `if` for all that was asked so far; what follows stands below it."""
        if self.asked:
            ordered = sorted(self.asked, key=lambda each: each[0])
            self.line("if " + " and ".join(condition for _, condition in ordered) + ":")
            self.indent += 1
            self.asked = []

    @contextmanager
    def branch(self) -> Iterator[None]:
        """One way to go on; behind it stands the next way."""
        before = self.indent, self.captured.copy(), self.asked.copy()
        yield
        self.indent, self.captured, self.asked = before


def _listed(names: Sequence[str]) -> str:
    """Names on the left side of an assignment."""
    return ", ".join(names) if len(names) > 1 else f"{names[0]},"


def _one_of(what: str, choices: list[str] | str) -> str:
    if isinstance(choices, str):
        return f"{what} in {choices}"
    asked = " or ".join(f"{what} is {choice}" for choice in choices)
    return f"({asked})" if len(choices) > 1 else asked


def predicate(pattern: UPat) -> Callable[[Any], bool]:
    """Whether a node matches a pattern that captures nothing."""
    compiler = Compiler(None)

    def found() -> None:
        compiler.write_asked()
        compiler.line("return True")

    compiler.pattern(pattern, "node", found)
    text = "\n".join(["def matches(node):", *compiler.lines, "    return False"])
    exec(compile(text, "<a pattern for all sources>", "exec"), compiler.names)
    matches: Callable[[Any], bool] = compiler.names["matches"]
    return matches
