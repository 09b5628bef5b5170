"""All that a schedule has to compute, and who must not lose what they read.

Needs: values that are not in memory.
Guarantees: all nodes below them, sources first; and beside them every living tensor that reads
what is overwritten, unless its memory is kept. Chapter: spec/effects.md.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from impl.effects.buffers import Buffer
from impl.effects.holders import living
from impl.effects.versions import is_lost, is_pending, leaf_of
from impl.ir import Ops, UOp, in_memory, toposort


@dataclass(slots=True)
class Effects:
    """What a set of roots does to memory, and what must be kept for others.

    `roots`: the values to compute, those of the caller first, then those that others wait for.
    `nodes`: everything below, sources first. `held`: leaves that stay observable as they are.
    `rescued`: how many roots were added for waiting readers.
    """

    roots: list[UOp]
    nodes: list[UOp]
    held: set[UOp] | frozenset[UOp] = field(default_factory=set)
    rescued: int = 0


def unrealized(roots: Sequence[UOp]) -> list[UOp]:
    """All nodes that have to be computed for some values, sources first."""
    return toposort(roots, is_pending)


Finder = Callable[[Sequence[UOp]], list[UOp]]


def collect(roots: Sequence[UOp], find: Finder | None = None) -> Effects:
    """Find all nodes of a schedule, and protect what others still read (r[effects.war.rescue]).

    A write to a buffer may come before a living, unrealized tensor has read the old version. Such
    a tensor is computed first, in the same schedule. A tensor that is nothing but the old version
    keeps its memory, and the write goes elsewhere.

    `find` gives the nodes below some values, sources first, that it has not given yet.
    """
    if find is None:
        find = functools.partial(toposort, gate=is_pending, seen=set())
    effects = Effects(list(roots), find(roots))
    if _AFTER in [node.op for node in effects.nodes]:
        _rescue(effects, find)
    return effects


def _rescue(effects: Effects, find: Finder) -> None:
    """Add those who read what is about to be written, and whom they protect in turn."""
    fresh, memory = effects.nodes, dict[UOp, UOp | None]()
    written: set[Buffer] = set()
    while any(node.op is _AFTER for node in fresh):
        _note_overwritten(fresh, memory, written)
        found = _waiting(written, effects) if written else []
        effects.roots += found  # r[impl effects.war.rescue]
        effects.rescued += len(found)
        fresh = find(found)
        effects.nodes += fresh


def _note_overwritten(nodes: Iterable[UOp], memory: dict[UOp, UOp | None],
                      written: set[Buffer]) -> None:
    """Add the buffers that the AFTERs among the nodes would like to overwrite.

    `memory` gets the leaf under a chain of AFTERs; the nodes come sources first.
    """
    for node in nodes:
        leaf = leaf_of(node)
        if leaf is None and node.op in _SAME_MEMORY:
            leaf = memory.get(node.src[0])
            if leaf is not None and node.op is Ops.AFTER:
                written.add(leaf.arg[0])
        if leaf is not None:
            memory[node] = leaf


_AFTER = Ops.AFTER
_SAME_MEMORY = (Ops.AFTER, Ops.RESHAPE)


def _waiting(written: set[Buffer], effects: Effects) -> list[UOp]:
    """Values of living tensors outside the schedule that read a buffer about to be written."""
    mask = 0
    for buffer in written:
        mask |= buffer.bit
    # A node computed into the buffer may stand deep in a graph whose bits do not show it.
    hidden = any(r() is not None for b in written for r in b.nodes)
    roots = set(effects.roots)
    reads: dict[UOp, bool] = {}
    seen: set[UOp] = set()
    found: dict[UOp, None] = {}
    for holder in living():
        value = holder.uop
        if value in roots or value in found or not (hidden or value.reads & mask):
            continue
        leaf = in_memory(value)
        if leaf is not None:
            if leaf.arg[0] in written:
                effects.held |= {leaf}  # r[impl effects.version.held]
        elif _reaches(value, written, reads, seen) and not is_lost(value):
            found[value] = None
    return list(found)


def _reaches(root: UOp, written: set[Buffer], reads: dict[UOp, bool], seen: set[UOp]) -> bool:
    """Whether the graph below reads one of the buffers; remembers the answer for every node."""
    for node in toposort((root,), is_pending, seen):
        leaf = in_memory(node)
        reads[node] = leaf.arg[0] in written if leaf is not None else \
            node.op is not Ops.BIND and True in [reads[source] for source in node.src]
    return reads[root]
