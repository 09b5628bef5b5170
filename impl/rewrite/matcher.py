"""Patterns compiled to closures, and the walk that applies rules to a graph.

A rule is a pattern and a function. The function gets the captured nodes by the names of its
parameters and returns a node that means the same, or None for "this does not apply".
"""
from __future__ import annotations

import inspect
import itertools
import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

from impl.dtypes import DType
from impl.errors import GraphError
from impl.ir import Ops, UOp, note_origin
from impl.settings import get

COMMUTATIVE = frozenset((Ops.ADD, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM, Ops.AND, Ops.OR, Ops.XOR,
                         Ops.CMPEQ, Ops.CMPNE))
#: How often one node may be rewritten, with what it became, before that counts as endless.
REWRITE_LIMIT = 100_000

#: The nodes of one attempt to match: 0 is the root's context, 1 the root, then the sources.
Registers = list[Any]
Step = Callable[[Registers], Any]


# --8<-- [start:pattern]
class UPat:
    """What a node must look like, to be found in a graph.

    Args:
        op: the operation, or several of which it must be one; None for any.
        dtype: the same for the element type.
        src: a tuple of patterns, one for each source in order; a list of patterns that match the
            sources in any order; one pattern that all sources match, however many there are; or
            None for any sources.
        arg: what `arg` must equal; None for any.
        name: the parameter of the rule's function that receives the node. One name used twice
            matches only if both are the same node.
        any_length: further sources may follow those of the tuple `src`.
        where: a test that the node must pass.
    """

    __slots__ = ("ops", "dtypes", "src", "arg", "name", "any_length", "where", "choices")

    def __init__(self, op: Ops | Collection[Ops] | None = None,
                 dtype: DType | Collection[DType] | None = None,
                 src: Sequence[UPat] | UPat | None = None, arg: Any = None, name: str | None = None,
                 any_length: bool = False, where: Callable[[UOp], bool] | None = None) -> None:
        self.ops = None if op is None else frozenset((op,) if isinstance(op, Ops) else op)
        self.dtypes = (None if dtype is None
                       else frozenset((dtype,) if isinstance(dtype, DType) else dtype))
        self.src, self.arg, self.name = src, arg, name
        self.any_length, self.where = any_length, where
        self.choices: tuple[UPat, ...] = ()

    @staticmethod
    def var(name: str, dtype: DType | Collection[DType] | None = None) -> UPat:
        """Any node, captured."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def const(value: Any = None, name: str | None = None) -> UPat:
        """A number; with `value`, this number. 0.0 and -0.0 are two, NaN is one."""
        return UPat(Ops.CONST, name=name, where=None if value is None else _is_number(value))

    @staticmethod
    def either(*patterns: UPat) -> UPat:
        """A node that one of the patterns matches; the first that leads to a match counts."""
        pattern = UPat()
        pattern.choices = patterns
        if all(p.ops is not None for p in patterns):
            pattern.ops = frozenset().union(*(p.ops for p in patterns if p.ops is not None))
        return pattern

    @staticmethod
    def alu(op: Ops, *sources: UPat, name: str | None = None) -> UPat:
        """An operation on these sources: in any order if the operation is commutative."""
        return UPat(op, src=list(sources) if op in COMMUTATIVE else sources, name=name)

    def captures(self) -> list[str]:
        """The names of all captures, in the order in which they are met."""
        parts = self.choices or ((self.src,) if isinstance(self.src, UPat) else self.src or ())
        inner = [name for part in parts for name in part.captures()]
        return list(dict.fromkeys(([self.name] if self.name else []) + inner))
# --8<-- [end:pattern]


def _is_number(value: Any) -> Callable[[UOp], bool]:
    def matches(node: UOp) -> bool:
        number = node.arg
        if node.dtype.kind == "f":
            same_sign = math.copysign(1.0, number) == math.copysign(1.0, value)
            return bool(number == value and same_sign or (number != number and value != value))
        return bool(number == value)
    return matches


# --8<-- [start:compile]
class _Compiler:
    """Turns one pattern into a chain of closures, each of which calls the next.

    Every part of the pattern has a register for the node it is compared with. A step that can go
    on in several ways tries one after the other until the end of the chain answers something.
    """

    def __init__(self) -> None:
        self.size = 2
        self.captured: dict[str, int] = {}

    def compile(self, pattern: UPat, register: int, then: Callable[[], Step]) -> Step:
        """The step that matches `register`; `then` gives the step after it, once all captures
        before it are known."""
        if pattern.choices:
            return self.compile_choices(pattern, register, then)
        earlier = None
        if pattern.name is not None:
            earlier = self.captured.get(pattern.name)
            self.captured.setdefault(pattern.name, register)
        after = self.compile_sources(pattern, register, then)
        if earlier is not None:
            after = _same_node(earlier, register, after)
        return _check_node(pattern, register, after)

    def compile_choices(self, pattern: UPat, register: int, then: Callable[[], Step]) -> Step:
        steps, before, found = [], dict(self.captured), dict(self.captured)
        for choice in pattern.choices:
            self.captured = dict(before)
            steps.append(self.compile(choice, register, then))
            found.update(self.captured)
        self.captured = found

        def choose(registers: Registers) -> Any:
            for step in steps:
                answer = step(registers)
                if answer is not None:
                    return answer
            return None
        return choose

    def compile_sources(self, pattern: UPat, register: int, then: Callable[[], Step]) -> Step:
        source = pattern.src
        if source is None:
            return then()
        if isinstance(source, UPat):
            return self.compile_repeated(source, register, then)
        first = self.size
        self.size += len(source)

        def compile_from(place: int) -> Step:
            if place == len(source):
                return then()
            return self.compile(source[place], first + place, lambda: compile_from(place + 1))

        after = compile_from(0)
        if isinstance(source, list):
            return _any_order(register, first, len(source), after)
        return _in_order(register, first, len(source), pattern.any_length, after)

    def compile_repeated(self, source: UPat, register: int, then: Callable[[], Step]) -> Step:
        if source.captures():
            raise GraphError("UPat", "a pattern for all sources cannot capture",
                             "capture the node itself and read its src")
        own = _Compiler()
        each = own.compile(source, 1, lambda: lambda registers: True)
        size, after = own.size, then()

        def repeat(registers: Registers) -> Any:
            for node in registers[register].src:
                if each([None, node] + [None] * (size - 2)) is None:
                    return None
            return after(registers)
        return repeat


def _check_node(pattern: UPat, register: int, after: Step) -> Step:
    ops, dtypes, arg, where = pattern.ops, pattern.dtypes, pattern.arg, pattern.where
    if dtypes is None and arg is None and where is None:
        if ops is None:
            return after

        def check_op(registers: Registers) -> Any:
            return after(registers) if registers[register].op in ops else None
        return check_op

    def check(registers: Registers) -> Any:
        node = registers[register]
        if ((ops is not None and node.op not in ops)
                or (dtypes is not None and node.dtype not in dtypes)
                or (arg is not None and node.arg != arg)
                or (where is not None and not where(node))):
            return None
        return after(registers)
    return check


def _same_node(earlier: int, register: int, after: Step) -> Step:
    def same(registers: Registers) -> Any:  # r[impl rewrite.match.name]
        return after(registers) if registers[earlier] is registers[register] else None
    return same


def _in_order(register: int, first: int, count: int, any_length: bool, after: Step) -> Step:
    stop = first + count

    def sources(registers: Registers) -> Any:
        given = registers[register].src
        if len(given) != count and not (any_length and len(given) > count):
            return None
        registers[first:stop] = given[:count]
        return after(registers)
    return sources


def _any_order(register: int, first: int, count: int, after: Step) -> Step:
    stop = first + count

    def permute(registers: Registers) -> Any:
        given = registers[register].src
        if len(given) != count:
            return None
        for order in itertools.permutations(given):
            registers[first:stop] = order
            answer = after(registers)
            if answer is not None:  # r[impl rewrite.match.permuted]
                return answer
        return None
    return permute
# --8<-- [end:compile]


# --8<-- [start:rule]
class Rule:
    """A pattern with the function that rewrites what it finds.

    `function` takes the captures by name and, if it has a parameter `context`, the context. It
    returns None if the rule does not apply after all: other ways to match are tried then.
    """

    __slots__ = ("pattern", "function", "name", "step", "size", "needs")

    def __init__(self, pattern: UPat, function: Callable[..., Any], name: str = "") -> None:
        self.pattern, self.function = pattern, function
        self.name = name or _function_name(function)
        compiler = _Compiler()
        self.step = compiler.compile(pattern, 1, lambda: self.end(compiler.captured))
        self.size = compiler.size
        self.needs = _needed_sources(pattern)

    def end(self, captured: dict[str, int]) -> Step:
        """The last step: call the function with the captured nodes."""
        function = self.function
        names = list(inspect.signature(function).parameters)
        unknown = [n for n in names if n != "context" and n not in captured]
        if unknown:
            raise GraphError("Rule", f"{self.name} wants {unknown[0]!r}, which the pattern does "
                             "not capture", "name that part of the pattern")
        places = [0 if name == "context" else captured[name] for name in names]
        return lambda registers: function(*[registers[place] for place in places])

    def apply(self, node: UOp, context: Any = None) -> Any:
        """What the rule makes of the node, or None."""
        registers = [context, node] + [None] * (self.size - 2)
        return self.step(registers)


def _function_name(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if code is None:
        return name
    return f"{name.strip('<>')} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _needed_sources(pattern: UPat) -> frozenset[Ops]:
    """Operations that must stand among the sources of a node for the pattern to match it."""
    if pattern.src is None or isinstance(pattern.src, UPat):
        return frozenset()
    exact = [p.ops for p in pattern.src if p.ops is not None and len(p.ops) == 1]
    return frozenset(op for ops in exact for op in ops)
# --8<-- [end:rule]


#: Rule name -> [how often it was tried, how often it matched], while TRACK_MATCH_STATS is on.
match_statistics: dict[str, list[int]] = {}


def print_match_statistics() -> None:
    """Print the counts, the most tried rule first."""
    print(f"{'tried':>10} {'matched':>10}  rule")
    for name, (tried, matched) in sorted(match_statistics.items(), key=lambda i: -i[1][0]):
        print(f"{tried:>10} {matched:>10}  {name}")


# --8<-- [start:matcher]
class PatternMatcher:
    """A list of rules, of which the first that applies counts (r[rewrite.rule.first])."""

    def __init__(self, rules: Iterable[Rule | tuple[UPat, Callable[..., Any]]]) -> None:
        self.rules = tuple(r if isinstance(r, Rule) else Rule(*r) for r in rules)
        self.by_op: dict[Ops, list[Rule]] = {}
        for op in Ops:
            found = [r for r in self.rules if r.pattern.ops is None or op in r.pattern.ops]
            if found:
                self.by_op[op] = found

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules)

    def rewrite(self, node: UOp, context: Any = None) -> Any:
        """What the first rule that applies makes of the node; None if none does."""
        found = self.match(node, context)
        return None if found is None else found[0]

    def match(self, node: UOp, context: Any = None,
              statistics: dict[str, list[int]] | None = None) -> tuple[Any, Rule] | None:
        """The answer of the first rule that applies, and that rule."""
        rules = self.by_op.get(node.op)
        if rules is None:
            return None
        present: set[Ops] | None = None
        for rule in rules:
            if rule.needs:
                if present is None:
                    present = {source.op for source in node.src}
                if not rule.needs <= present:
                    continue
            registers = [context, node] + [None] * (rule.size - 2)
            answer = rule.step(registers)
            applies = answer is not None and answer is not node
            if statistics is not None:
                # r[impl rewrite.statistics.exact]
                counts = statistics.setdefault(rule.name, [0, 0])
                counts[0] += 1
                counts[1] += applies
            if applies:
                return answer, rule  # r[impl rewrite.rule.first]
        return None
# --8<-- [end:matcher]


# --8<-- [start:rewrite]
Order = Literal["bottom-up", "top-down", "walk"]


def graph_rewrite(root: UOp, matcher: PatternMatcher, context: Any = None,
                  order: Order = "bottom-up", gate: Callable[[UOp], bool] | None = None,
                  limit: int = REWRITE_LIMIT) -> UOp:
    """The graph below `root`, rewritten.

    Args:
        order: "bottom-up": the sources of a node are finished before the node is looked at, and
            what a rule returns is rewritten again, until no rule applies. "top-down": a node is
            rewritten until no rule applies, then its sources are. "walk": bottom-up, but every
            node of the given graph is looked at once, and what a rule returns is left as it is.
        gate: where it is false, the node and all below it stay as they are.
        limit: how many rewrites in a row one node may see.

    Raises:
        GraphError: rules lead back to a node that is being rewritten, or never end
            (r[rewrite.loop.error]).
    """
    statistics = match_statistics if get("TRACK_MATCH_STATS") else None
    return _Rewrite(matcher, context, order, gate, limit, statistics).run(root)


class _Rewrite:
    """One run. The stack holds what is still to do, so that deep graphs need no recursion."""

    def __init__(self, matcher: PatternMatcher, context: Any, order: Order,
                 gate: Callable[[UOp], bool] | None, limit: int,
                 statistics: dict[str, list[int]] | None) -> None:
        self.matcher, self.context, self.gate, self.limit = matcher, context, gate, limit
        self.top_down, self.again = order == "top-down", order != "walk"
        self.statistics = statistics
        self.done: dict[UOp, UOp] = {}
        #: Nodes whose result is being looked for, with the rule that acted on them last.
        self.open: dict[UOp, Rule | None] = {}
        # (node, what it became, how many rewrites led to it, its sources are done)
        self.stack: list[tuple[UOp, UOp, int, bool]] = []

    def run(self, root: UOp) -> UOp:
        done, stack = self.done, self.stack
        stack.append((root, root, 0, False))
        while stack:  # r[impl rewrite.depth.iterative]
            node, current, count, visited = stack.pop()
            if visited:
                self.finish(node, current, count)
            elif node not in done:
                self.start(node, count)
        return done[root]

    def start(self, node: UOp, count: int) -> None:
        """Open a node: rewrite it (top-down), then visit its sources."""
        if self.gate is not None and not self.gate(node):  # r[impl rewrite.gate.stop]
            self.done[node] = node
            return
        if node in self.open:  # r[impl rewrite.loop.error]
            self.loops(node, self.open[node])
        self.open[node] = None
        current = node
        if self.top_down:  # r[impl rewrite.order.top-down]
            current, count = self.exhaust(node, count)
        self.stack.append((node, current, count, True))
        done = self.done
        for source in reversed(current.src):
            if source not in done:
                self.stack.append((source, source, count, False))

    def exhaust(self, node: UOp, count: int) -> tuple[UOp, int]:
        """Rewrite one node until no rule applies."""
        seen = {node}
        current = node
        while (found := self.matcher.match(current, self.context, self.statistics)) is not None:
            answer, rule = found
            count += 1
            if answer in seen or count > self.limit or answer in self.open:
                self.loops(current, rule)
            seen.add(answer)
            current = _inherit(answer, current)
            self.open[node] = rule
            if current in self.done:
                break
        return current, count

    def finish(self, node: UOp, current: UOp, count: int) -> None:
        """Close a node: all its sources, or the node that took its place, are done."""
        done = self.done
        if current is not node and current in done:
            self.close(node, done[current])
            return
        sources = tuple([done[s] for s in current.src])
        built = current
        if sources != current.src:
            built = _inherit(current.replace(src=sources), current)
        if self.top_down:
            self.close(node, built)
            return
        found = self.matcher.match(built, self.context, self.statistics)
        if found is None or not self.again:  # r[impl rewrite.order.bottom-up, rewrite.order.walk]
            self.close(node, built if found is None else _inherit(found[0], built))
            return
        answer, rule = found
        if count >= self.limit or answer is node:
            self.loops(built, rule)
        self.open[node] = rule
        self.stack.append((node, _inherit(answer, built), count, True))
        if answer not in done:
            self.stack.append((answer, answer, count + 1, False))

    def close(self, node: UOp, result: UOp) -> None:
        del self.open[node]
        self.done[node] = result
        if self.again and not self.top_down:
            self.done.setdefault(result, result)  # no rule applies to it

    def loops(self, node: UOp, rule: Rule | None) -> None:
        name = rule.name if rule else next((r.name for r in self.open.values() if r), "?")
        raise GraphError("graph_rewrite", f"rule {name} goes round in circles at {node!r}",
                         "let the rule return None for what it has already rewritten",
                         node.origin and str(node.origin))


def _inherit(new: UOp, old: UOp) -> UOp:
    """Give a new node the user's line of the one that it replaces."""
    if new.origin is None and new is not old:  # r[impl rewrite.origin.kept]
        note_origin(new, old.origin)
    return new
# --8<-- [end:rewrite]
