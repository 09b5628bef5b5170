"""Buffers, their versions, and what it takes to overwrite one. Chapter: spec/effects.md.

A UOp denotes a value and a value never changes. Memory does: an assign or a view write gives a
buffer a new version. The eager law says that every value that anybody can still observe is the one
that was meant where its expression was written. This module owns what the law needs to know:
which version a leaf names, and who still waits to read it.
"""
from __future__ import annotations

import functools
import itertools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from impl.dtypes import DType
from impl.errors import GraphError, ShapeError, TraceError
from impl.ir import Ops, Shape, UOp, in_memory, leaf_node, living_nodes, note_realized, toposort
from impl.places import ANYWHERE, Place
from impl.symbolic import is_number, plain

_BUFFER, _BIND = Ops.BUFFER, Ops.BIND
_numbers = itertools.count()
#: The bits of the set that tells quickly which buffers a graph may read.
_BITS = tuple(1 << place for place in range(192))


_NO_SHARDINGS: dict[Shape, Any] = {}


class Buffer:
    """Memory of `size` elements on one device, and the version of its content.

    `host` holds data that has not been copied to the device yet; `memory` what the device
    allocated. `nodes` are the expressions whose value was computed into this buffer.
    """

    __slots__ = ("number", "bit", "device", "dtype", "size", "host", "memory", "version", "nodes",
                 "spoiled", "told", "wanted", "shardings", "leaves", "__weakref__")

    def __init__(self, device: Place, dtype: DType, size: int,
                 host: np.ndarray | None = None) -> None:
        self.number = next(_numbers)
        self.bit = _BITS[self.number % 192]
        self.device, self.dtype, self.size, self.host = device, dtype, size, host
        self.memory: Any = None
        self.version = 0
        self.spoiled = False  # whether a run that did not end may have left anything in it
        self.wanted = False  # whether a tensor that requires a gradient lies here, or did
        self.told = -1  # the version that a replay wrote, and whose leaf tells its expression
        self.nodes: Sequence[weakref.ref[UOp]] = ()
        self.leaves: Sequence[weakref.ref[UOp]] = ()  # those that name this buffer
        #: On a mesh: how a value of each shape that is seen here lies there.
        self.shardings: dict[Shape, Any] = _NO_SHARDINGS

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def leaf(self, shape: Shape) -> UOp:
        """The node that denotes the present content, seen with this shape."""
        return leaf_node(self.dtype, (self, self.version, shape))

    def alike(self, size: int | None = None) -> Buffer:
        """A new buffer of the same form, of another size perhaps."""
        found = Buffer(self.device, self.dtype, self.size if size is None else size)
        found.shardings = dict(self.shardings)
        return found

    def lie(self, shape: Shape, sharding: Any) -> None:
        """Note how a value of this shape lies on the mesh."""
        if not self.shardings:
            self.shardings = {}
        self.shardings[shape] = sharding

    def sharding(self, shape: Shape) -> Any:
        """How a value of this shape lies on the mesh; None in memory of one device.

        Sizes that depend on variables are others in each call; the axes that are cut are not.
        """
        found = self.shardings.get(shape)
        if found is None and self.shardings:
            alike = {one for known, one in self.shardings.items() if len(known) == len(shape)}
            if len(alike) != 1:
                raise GraphError("read", f"{self} lies on a mesh, and nothing says how a value of "
                                 f"shape {shape} lies there", "report this: a result was lost")
            found, = alike
        return found

    def __repr__(self) -> str:
        return f"<Buffer {self.number} {self.dtype.name}[{self.size}] on {self.device}>"


class Placeholder(Buffer):
    """What a function is traced on: it stands for values that are not there yet.

    Whoever asks for them gets an error that says which `operation` traces.
    """

    __slots__ = ("operation",)

    def __init__(self, device: Place | None, dtype: DType, shape: Shape,
                 operation: str = "gradient") -> None:
        super().__init__(device or ANYWHERE, dtype, plain(math.prod(shape)))
        self.operation = operation
        _spoiled.add(self)

    @property
    def memory(self) -> Any:
        """None: there is none, whatever was put here."""

    @memory.setter
    def memory(self, value: Any) -> None:
        """Nothing: whoever puts memory here is about to ask for the data."""

    @property
    def host(self) -> Any:
        """Raises: there is nothing to be copied to a device."""
        # r[impl transforms.trace.values]
        raise TraceError(self.operation, "a value is asked for inside a function that is traced: "
                         "it is not known, there are many of it or none yet",
                         "compute with the tensor (.where for a choice), or ask outside; a tensor "
                         "that was made inside must not be used after the function has returned")

    @host.setter
    def host(self, value: Any) -> None:
        """Nothing: there is no data."""


def new_buffer_node(device: Place, dtype: DType, shape: Shape,
                    host: np.ndarray | None = None, sharding: Any = None) -> UOp:
    """A leaf for fresh memory; `host` data (C order, dtype.numpy) is copied on first use.

    On a mesh each device holds the part that the `sharding` says.
    """
    local = shape if sharding is None else sharding.local(shape)
    buffer = Buffer(device, dtype, plain(math.prod(local)), host)
    if sharding is not None:
        buffer.lie(shape, sharding)
    return buffer.leaf(shape)


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
        # r[impl effects.version.overwritten]
        raise GraphError("read", f"version {leaf.arg[1]} of {leaf.arg[0]} was overwritten by "
                         f"version {leaf.arg[0].version}", "report this: a hazard was missed")
    return leaf


def constant_of(node: UOp) -> UOp | None:
    """The number that every element of a node is, if it is known now. Also where it is in memory,
    a kernel has the number, and reads nothing.
    """
    while node.op in _REPEATS:
        node = node.src[0]
    return node if node.op is Ops.CONST else None


_REPEATS = (Ops.EXPAND, Ops.RESHAPE)


def mark_realized(node: UOp, leaf: UOp) -> None:
    """Remember that the value of `node` is in `leaf` now."""
    note_realized(node, leaf)
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
        for reference in buffer.nodes:
            node = reference()
            if node is not None and node.realized is not None and node.realized.arg[0] is buffer:
                note_realized(node, None)  # r[impl effects.version.overwritten]
        buffer.nodes = ()


def spoil(buffers: Iterable[Buffer]) -> None:
    """A run that did not end may have overwritten these: from now on, reading them is an error."""
    for buffer in buffers:
        buffer.spoiled = True
        _spoiled.add(buffer)
        advance(buffer, 1)


def is_lost(value: UOp) -> bool:
    """Whether computing a value would read what such a run left behind, or a placeholder."""
    if not _spoiled:
        return False
    leaves = map(in_memory, toposort((value,), _open))
    return any(leaf is not None and (leaf.arg[0].spoiled and leaf.arg[1] != leaf.arg[0].version
                                     or isinstance(leaf.arg[0], Placeholder))
               for leaf in leaves)


#: What holds no value that can be read: spoiled buffers, and placeholders.
_spoiled: weakref.WeakSet[Buffer] = weakref.WeakSet()


class Turns:
    """The lock of all that plans, runs and writes; and the turn of a function that is captured.

    `with lock:` is short. A turn lasts as long as the function's Python: meanwhile no other thread
    gives a tensor a new value, which would be taken for an effect of the function. But if its
    thread waits for another one, that may be one of those that wait here. So they go on then, and
    the turn is marked as `disturbed`: nothing that it saw may be recorded.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        if hasattr(os, "register_at_fork"):  # a child is made between two steps, never in one
            os.register_at_fork(before=self.mutex.acquire, after_in_parent=self.mutex.release,
                                after_in_child=self.mutex.release)
        self.owner = 0  # the thread whose turn it is
        self.disturbed = False
        self.guest = 0  # how often a thread has entered in another one's turn; the mutex is its own

    def __enter__(self) -> None:
        self.mutex.acquire()
        if self.guest:
            self.guest += 1
        elif self.owner and self.owner != threading.get_ident():
            self._enter_as_guest(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        if self.guest:
            self.guest -= 1
        self.mutex.release()

    def _enter_as_guest(self, me: int) -> None:
        """Give way to the turn, or disturb it if it waits."""
        # r[impl replay.thread.isolated+2]
        while self.owner not in (0, me):
            self.mutex.release()
            waited_for = self._wait(me)
            self.mutex.acquire()
            if waited_for and self.owner:
                self.disturbed, self.guest = True, 1
                return

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """A turn for this thread; False if it is another thread's, and that one waits for this."""
        with self:
            free = self.owner == 0
            if free:
                self.owner, self.disturbed = threading.get_ident(), False
        try:
            yield free
        finally:
            if free:
                self.owner = 0

    def _wait(self, me: int) -> bool:
        """Wait until no turn is another thread's, or (the answer) until its thread waits too."""
        place, since = None, time.monotonic()
        while (owner := self.owner) not in (0, me):
            frame = sys._current_frames().get(owner)
            here = (id(frame), frame.f_lasti) if frame is not None else None
            if here != place:
                place, since = here, time.monotonic()
            waits = frame is not None and frame.f_code.co_filename == threading.__file__
            if time.monotonic() - since > (_WAITS if waits else _BLOCKED):
                return True
            del frame
            time.sleep(0.002)
        return False


#: Seconds for which a thread has not moved, in `threading` or anywhere else, before it is taken to
#: wait for another one.
_WAITS, _BLOCKED = 0.05, 1.0
lock = Turns()


class Holder(Protocol):
    """Whatever holds a value for the user: a Tensor."""

    uop: UOp
    device: Place

    def hold(self, leaf: UOp, unasked: bool = False) -> None:
        """Hold the value from now on where it is in memory; `unasked`: for others it had to be
        computed, so its expression is kept for gradients.
        """


class _Live(weakref.ref[Any]):
    """A weak reference that is equal to no other one: tensors are compared by their elements."""

    __slots__ = ()
    __eq__, __hash__ = object.__eq__, object.__hash__


#: The living tensors, each with the thread that made it.
_live: dict[_Live, int] = {}
_died, _this_thread = _live.pop, threading.get_ident


def register(holder: Holder) -> None:
    """Note a living tensor: its value is observable until it dies."""
    _live[_Live(holder, _died)] = _this_thread()  # r[impl effects.rescue.dead]


def living() -> list[Holder]:
    """All living tensors, oldest first."""
    # r[impl effects.rescue.dead]
    return [h for h in [r() for r in list(_live)] if h is not None]


def living_here() -> set[int]:
    """The identities of the living tensors that this thread made."""
    here = threading.get_ident()
    return {id(h) for h in [r() for r, made_in in list(_live.items()) if made_in == here]
            if h is not None}


def write(base: UOp, view: UOp, value: UOp) -> UOp:
    """The next version of `base`: the same value, with the region `view` replaced by `value`.

    `view` is a chain of movement operations over `base`; `value` has the shape of `view`.

    Raises:
        ShapeError: the view repeats elements (EXPAND), so that one element would be written
            several times (r[effects.view-write.expanded]), or shapes differ.
    """
    walk = view
    while walk is not base:
        windows = walk.op is Ops.UNFOLD and walk.arg[2] != 1  # size 1 is a stride
        if walk.op in (Ops.EXPAND, Ops.PAD) or windows:  # r[impl effects.view-write.expanded]
            raise ShapeError("assign", f"the view of shape {view.shape} repeats or adds elements "
                             "of the tensor it looks at, so one element would be written twice",
                             "write to the unexpanded tensor, or to a copy (`.contiguous()`)")
        walk = walk.src[0]
    if value.shape != view.shape:
        raise ShapeError("assign", f"a value of shape {value.shape} does not fit the region of "
                         f"shape {view.shape}", "expand or reshape the value first")
    if any(is_number(size, 0) for size in value.shape or ()):
        return base  # r[impl effects.view-write.empty]
    # r[impl effects.value.eager, effects.variable.isolated]
    with lock:
        return UOp(Ops.AFTER, base.dtype, (base, UOp(Ops.STORE, base.dtype, (view, value))))


def way(write: UOp) -> Iterator[UOp]:
    """The movement operations of an AFTER from its view down to its base.

    Some may have been computed: as values. As the place of a write they are still operations.
    """
    base, step = write.src[0], write.src[1].src[0]
    while step is not base:
        yield step
        step = step.src[0]


@dataclass(slots=True)
class Effects:
    """What a set of roots does to memory, and what must be kept for others.

    `roots`: the values to compute, those of the caller first, then those that others wait for.
    `nodes`: everything below, sources first. `held`: leaves that stay observable as they are.
    `rescued`: how many roots were added for waiting readers. `notes`: what a person is told of
    where values lie.
    """

    roots: list[UOp]
    nodes: list[UOp]
    held: set[UOp] | frozenset[UOp] = field(default_factory=set)
    rescued: int = 0
    whole: list[UOp] | None = None
    shardings: dict[UOp, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[UOp]:
        """The roots as they were asked for: on a mesh the whole values, not the pieces."""
        return self.roots if self.whole is None else self.whole


def _open(node: UOp) -> bool:
    """Whether a walk goes on below this node: its value has to be computed."""
    return node.op is not _BIND and in_memory(node) is None


def unrealized(roots: Sequence[UOp]) -> list[UOp]:
    """All nodes that have to be computed for some values, sources first."""
    return toposort(roots, _open)


Finder = Callable[[Sequence[UOp]], list[UOp]]


def collect(roots: Sequence[UOp], find: Finder | None = None) -> Effects:
    """Find all nodes of a schedule, and protect what others still read (r[effects.war.rescue]).

    A write to a buffer may come before a living, unrealized tensor has read the old version. Such
    a tensor is computed first, in the same schedule. A tensor that is nothing but the old version
    keeps its memory, and the write goes elsewhere.

    `find` gives the nodes below some values, sources first, that it has not given yet.
    """
    if find is None:
        find = functools.partial(toposort, gate=_open, seen=set())
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
    found: dict[UOp, None] = {}
    for holder in living():
        value = holder.uop
        if value in roots or value in found or not (hidden or value.reads & mask):
            continue
        leaf = in_memory(value)
        if leaf is not None:
            if leaf.arg[0] in written:
                effects.held |= {leaf}  # r[impl effects.version.held]
        elif _reaches(value, written, reads) and not is_lost(value):
            found[value] = None
    return list(found)


def _reaches(root: UOp, written: set[Buffer], reads: dict[UOp, bool]) -> bool:
    """Whether the graph below reads one of the buffers; remembers the answer for every node."""
    for node in toposort((root,), lambda u: u not in reads and _open(u)):
        if node not in reads:
            leaf = in_memory(node)
            reads[node] = leaf.arg[0] in written if leaf is not None else \
                node.op is not _BIND and True in [reads[source] for source in node.src]
    return reads[root]
