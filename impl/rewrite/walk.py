"""The walk that applies rules to a graph; rules where nodes are made. Chapter: spec/rewrite.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from impl.errors import GraphError
from impl.ir import Ops, UOp, line_of, note_origin
from impl.rewrite.matcher import Found, PatternMatcher
from impl.rewrite.rule import Rule
from impl.rewrite.tracking import tracked
from impl.settings import get

#: How often one node may be rewritten, with what it became, before that counts as endless.
REWRITE_LIMIT = 100_000


Order = Literal["bottom-up", "top-down", "walk"]


def graph_rewrite(root: UOp, matcher: PatternMatcher, ctx: Any = None,
                  order: Order = "bottom-up", gate: Callable[[UOp], bool] | None = None,
                  limit: int = REWRITE_LIMIT, name: str = "graph_rewrite") -> UOp:
    """The graph below `root`, rewritten.

    Args:
        order: "bottom-up": the sources of a node are finished before the node is looked at, and
            what a rule returns is rewritten again, until no rule applies. "top-down": a node is
            rewritten until no rule applies, then its sources are. "walk": bottom-up, but every
            node of the given graph is looked at once, and what a rule returns is left as it is.
        gate: where it is false, the node and all below it stay as they are.
        limit: how many rewrites in a row one node may see.
        name: what a report calls this rewrite.

    Raises:
        GraphError: rules lead back to a node that is being rewritten, or never end
            (r[rewrite.loop.error]).
    """
    return _Rewrite(matcher, ctx, order, gate, limit, name).run(root)


def applies(graph: UOp, matcher: PatternMatcher,
            gate: Callable[[UOp], bool] | None = None) -> bool:
    """Whether a rule applies to a node: a glance at each, and no graph is made."""
    functions = matcher.functions
    for node in graph.toposort(gate):
        function = functions[node.op]
        if function is not None and function(node, None) is not None:
            return True
    return False


def looker(matcher: PatternMatcher, ctx: Any, name: str,
           maker: Maker | None = None) -> Callable[[UOp], Found | None]:
    """What finds the first rule for a node: quickly, or noting everything, with the user's line."""
    if get("TRACK_MATCH_STATS"):
        return lambda node: tracked(matcher, node, ctx, name, maker.line if maker else None)
    functions = matcher.functions

    def look(node: UOp) -> Found | None:
        function = functions[node.op]
        found: Found | None = None if function is None else function(node, ctx)
        return found  # r[impl rewrite.rule.first]
    return look


class _Rewrite:
    """One run. The stack holds what is still to do, so that deep graphs need no recursion."""

    def __init__(self, matcher: PatternMatcher, ctx: Any, order: Order,
                 gate: Callable[[UOp], bool] | None, limit: int, name: str) -> None:
        self.look, self.gate, self.limit = looker(matcher, ctx, name), gate, limit
        self.top_down, self.again = order == "top-down", order != "walk"
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
        if self.gate is not None and not self.gate(node):  # r[impl rewrite.order.visits]
            self.done[node] = node
            return
        if node in self.open:  # r[impl rewrite.loop.error]
            self.loops(node, self.open[node])
        self.open[node] = None
        current = node
        if self.top_down:  # r[impl rewrite.order.visits]
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
        while (found := self.look(current)) is not None:
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
        found = self.look(built)
        if found is None or not self.again:  # r[impl rewrite.order.visits]
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
                         line_of(node.origin) or None)


def _inherit(new: UOp, old: UOp) -> UOp:
    """Give a new node the user's line of the one that it replaces."""
    if new.origin is None and new is not old:  # r[impl rewrite.origin.kept]
        note_origin(new, old.origin)
    return new


class Maker:
    """Applies rules to nodes while they are made, sources first: no graph is walked for it.

    `made` answers the node to go on with. Only what a rule returns is walked, as far as it is new.
    `line` is the user's line that nodes are made for, if somebody knows it.
    """

    def __init__(self, matcher: PatternMatcher, name: str) -> None:
        self.matcher, self.name = matcher, name
        self.line: Any = None
        self.look = looker(matcher, None, name, self)
        self.finished: set[UOp] = set()
        self.rewrites = 0

    def made(self, node: UOp) -> UOp:
        """A node whose sources are finished, rewritten until no rule applies."""
        # r[impl rewrite.maker.finished+2]
        found = self.look(node)
        if found is not None:
            self.rewrites += 1
            node = graph_rewrite(_inherit(found[0], node), self.matcher, gate=self._is_new,
                                 name=self.name)
        self.finished.add(node)
        return node

    def _is_new(self, node: UOp) -> bool:
        return node not in self.finished and node.op not in _DOORS


#: What stands below these was not made with the node: a place in memory, a loop.
_DOORS = frozenset((Ops.LOAD, Ops.INDEX, Ops.RANGE))
