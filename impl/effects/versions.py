"""Which version of its memory a leaf names, and what is in memory now. Chapter: spec/effects.md."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

from impl.effects.buffers import Buffer, Placeholder, unreadable
from impl.effects.turns import lock
from impl.errors import GraphError
from impl.ir import Ops, UOp, in_memory, living_nodes, note_realized, toposort

_BUFFER, _BIND = Ops.BUFFER, Ops.BIND

def leaf_of(node: UOp) -> UOp | None:
    """The leaf that holds the node's value, if it has been computed; checks its version.

    Raises:
        GraphError: its version has been overwritten (r[effects.version.overwritten]).
    """
    leaf = node if node.op is _BUFFER else node.realized  # as in_memory: this is hot
    if leaf is not None and leaf.arg[1] != leaf.arg[0].version:
        if leaf.arg[0].spoiled:  # r[impl realize.failure.left+2]
            raise GraphError("read", f"a run was interrupted, or failed, while it overwrote "
                             f"{leaf.arg[0]}: what is there is neither the old value nor the new",
                             "make the tensor anew, or give it another value with .replace()")
        if lock.running:
            raise in_the_middle(leaf.arg[0])
        # r[impl effects.version.overwritten]
        raise GraphError("read", f"version {leaf.arg[1]} of {leaf.arg[0]} was overwritten by "
                         f"version {leaf.arg[0].version}", "report this: a hazard was missed")
    return leaf


def in_the_middle(buffer: Buffer) -> GraphError:
    """What a run gets that is nested in another one, and in its way."""
    return GraphError(
        "realize", f"{buffer} is asked for in the middle of a run that overwrites or reads it, by "
        "the handler of a signal or by a finalizer (`__del__`); nothing was done, and that run "
        "goes on if this error is caught there",
        "note there that it is wanted, and ask for it when the run is over")


def constant_of(node: UOp) -> UOp | None:
    """The number that every element of a node is, if it is known now. Also where it is in memory,
    a kernel has the number, and reads nothing.
    """
    while node.op in _REPEATS and node.src:  # in a plan of many programs memory stands on nothing
        node = node.src[0]
    return node if node.op is Ops.CONST else None


_REPEATS = (Ops.EXPAND, Ops.RESHAPE)


def mark_realized(node: UOp, leaf: UOp) -> None:
    """Remember that the value of `node` is in `leaf` now."""
    note_realized(node, leaf)
    lock.changes += 1
    buffer: Buffer = leaf.arg[0]
    others = [r for r in buffer.nodes if r() is not None] if buffer.nodes else ()
    buffer.nodes = (*others, weakref.ref(node))


def was_computed(leaf: UOp) -> bool:
    """Whether a schedule wrote what a leaf holds, and not who made it from data."""
    return bool(leaf.arg[0].nodes) or leaf.arg[1] > 0


#: Expressions, and the leaves that hold their values.
Forgotten = Sequence[tuple[weakref.ref[UOp], weakref.ref[UOp]]]


def forget_realized(which: Callable[[UOp], bool] = lambda node: True) -> Forgotten:
    """Forget which expressions have been computed: all, or those that are chosen.

    A capture begins with it: what its function writes down has to be computed by it, even where an
    equal expression happens to be in memory (r[replay.capture.whole]).
    """
    forgotten = []
    for node in living_nodes():
        if node.realized is not None and which(node):
            forgotten.append((weakref.ref(node), weakref.ref(node.realized)))
            note_realized(node, None)
    return forgotten


def recall_realized(forgotten: Forgotten) -> None:
    """Know again what was forgotten, where it is still in memory: gradients go from the one to the
    other.
    """
    for expression, holder in forgotten:
        node, leaf = expression(), holder()
        if node is not None and leaf is not None and node.realized is None \
                and leaf.arg[1] == leaf.arg[0].version:
            note_realized(node, leaf)  # r[impl replay.gradient.eager]


def advance(buffer: Buffer, versions: int) -> None:
    """The content was overwritten, so many times; nodes that it held are not in memory any more.

    r[effects.version.overwritten]: such a node may live on, and interning finds it again.
    """
    if versions:
        buffer.version += versions
        lock.changes += 1
        for reference in buffer.nodes:
            node = reference()
            if node is not None and node.realized is not None and node.realized.arg[0] is buffer:
                note_realized(node, None)  # r[impl effects.version.overwritten]
        buffer.nodes = ()


def spoil(buffers: Iterable[Buffer]) -> None:
    """A run that did not end may have overwritten these: from now on, reading them is an error."""
    for buffer in buffers:
        buffer.spoiled = True
        unreadable.add(buffer)
        advance(buffer, 1)


def is_pending(node: UOp) -> bool:
    """Whether a walk goes on below this node: its value has to be computed."""
    op = node.op  # as in_memory: this is hot
    return op is not _BIND and op is not _BUFFER and node.realized is None


def is_lost(value: UOp) -> bool:
    """Whether computing a value would read what such a run left behind, or a placeholder."""
    if not unreadable:
        return False
    leaves = map(in_memory, toposort((value,), is_pending))
    return any(leaf is not None and (leaf.arg[0].spoiled and leaf.arg[1] != leaf.arg[0].version
                                     or isinstance(leaf.arg[0], Placeholder))
               for leaf in leaves)
