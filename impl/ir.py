"""The one intermediate representation: interned, immutable UOps. Chapter: spec/ir.md.

A tensor expression, a kernel and an index calculation are all graphs of `UOp`s. Building the same
node twice gives the same object, so equality is identity, and a pass can use a node as a key.
"""
from __future__ import annotations

import itertools
import math
import os
import threading
import weakref

# As `weakref.WeakValueDictionary` has it.
from _weakref import _remove_dead_weakref as _remove_dead  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cached_property
from typing import Any, ClassVar

from impl.dtypes import DType, Scalar, dtypes, wrap
from impl.errors import GraphError, ImmutableError

Shape = tuple[int, ...]


class _Kind(IntEnum):
    """Some Pythons pickle a member as a call of `getattr`; a class and a number say as much. The
    names of keys are made of their texts, which are written once.
    """

    @cached_property
    def _text(self) -> str:
        return super().__repr__()

    def __repr__(self) -> str:
        return self._text

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (int(self),)


class Ops(_Kind):
    """What a node does. The groups below say which level each belongs to.

    An elementwise operation stands in the group of its kind; what it means is in `reference`, its
    text in `functions` (named after it), its slope in `gradient.rules`, the method in `tensor`.
    Where it stands here says how many sources it has, whether it is for floats only (FLOAT_ONLY),
    and whether it is dear (DEAR): no other list of operations wants to hear of it.
    """

    # leaves
    BUFFER = auto()      # tensor: a buffer at a version; arg = (Buffer, version, shape)
    CONST = auto()       # both: one number; arg = the number, in the node's dtype
    IOTA = auto()        # tensor: 0, 1, ..., n-1; arg = n
    BIND = auto()        # tensor: a variable with its value; src = (DEFINE_VAR, CONST), arg = None,
                         # or the Coordinate that each device of a mesh has for itself
    DEFINE_VAR = auto()  # both: an integer known only at run time; arg = (name, least, greatest)
    # elementwise, one source
    NEG = auto()
    RECIPROCAL = auto()  # floats, as all up to TRUNC
    SQRT = auto()
    EXP = auto()         # transcendental, as all up to TRUNC
    EXP2 = auto()
    LOG = auto()
    LOG2 = auto()
    SIN = auto()
    COS = auto()
    TANH = auto()
    ERF = auto()
    TRUNC = auto()
    FLOOR = auto()
    CAST = auto()
    BITCAST = auto()
    DETACH = auto()      # tensor: the same value, through which no gradient flows
    # elementwise, two sources
    ADD = auto()
    SUB = auto()
    MUL = auto()
    DIV = auto()         # floating division
    FLOORDIV = auto()    # integers; rounds down; x // 0 is 0
    FLOORMOD = auto()    # integers; sign of the divisor; x % 0 is 0
    MAXIMUM = auto()     # NaN wins
    MINIMUM = auto()     # NaN wins
    POW = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()         # a shift by the width or more gives 0
    SHR = auto()         # arithmetic for signed types: by the width or more it gives 0 or -1
    CMPLT = auto()
    CMPLE = auto()
    CMPEQ = auto()
    CMPNE = auto()
    # elementwise, three sources
    WHERE = auto()       # (condition, value if true, value if false)
    # movement
    RESHAPE = auto()     # arg = new shape
    EXPAND = auto()      # arg = new shape; axes of size 1 grow
    PERMUTE = auto()     # arg = order of the old axes
    PAD = auto()         # arg = ((before, after), ...), filled with zero
    SHRINK = auto()      # arg = ((start, stop), ...)
    FLIP = auto()        # arg = axes
    UNFOLD = auto()      # arg = (axis, count, size, step, dilation): sliding windows
    # not elementwise
    FOLD = auto()        # arg = (axis, extent, step, dilation): sums windows back, UNFOLD's adjoint
    REDUCE = auto()      # tensor: arg = (op, axes), axes stay with size 1; kernel: arg = op
    GATHER = auto()      # src = (values, index): values[index] along the first axis
    SCAN = auto()        # arg = (op, axis): each element combined with all before it; with a key,
                         # src = (values, key), arg = (op, axis, keys): with those of the same key
    SCATTER = auto()     # src = (base, index, values), arg = op or None: row index[j] of base is
                         # combined with values[j], or replaced by it, for every j in order
    # boundaries and effects
    CONTIGUOUS = auto()  # the value has a buffer of its own
    COPY = auto()        # arg = device, or a Transfer between the devices of a mesh
    SHARD = auto()       # tensor: the value laid on a mesh; arg = Sharding
    LOOP = auto()        # tensor: what comes out of bodies that are run; arg = LoopInfo
    CUSTOM = auto()      # tensor: what a kernel of the user stores; arg = CustomKernel
    STORE = auto()       # tensor: (view, value); kernel: (INDEX, value, ranges...)
    AFTER = auto()       # (base, STORE): base with the stored region replaced
    SINK = auto()        # tensor: roots; kernel: stores, arg = KernelInfo
    CALL = auto()        # (kernel, buffers...); arg = names of the variables
    LINEAR = auto()      # CALLs in the order in which they run
    # kernel
    PARAM = auto()       # pointer to the kernel's argument; arg = its position; in the body of a
                         # LOOP one of its sources; arg = (position, shape)
    LOCAL = auto()       # memory private to one iteration of the prefix; arg = (number, size)
    RANGE = auto()       # a loop variable from 0; src = (size,), arg = (number, RangeKind)
    INDEX = auto()       # (PARAM or LOCAL, flat index, validity)
    LOAD = auto()        # (INDEX,): zero where not valid, without touching memory
    DOT = auto()         # int32: products of four bytes, unsigned and signed ones, added up
    MMA = auto()         # (first, second, sum, loops...): a product of matrices that the lanes of a
                         # warp hold, added to a third; arg = name of the unit
    TEXT = auto()        # (LOADs..., loops...): what a text of the user makes of all that it loads;
                         # arg = WrittenText


_BUFFER, _AFTER, _BIND, _CONST = Ops.BUFFER, Ops.AFTER, Ops.BIND, Ops.CONST
UNARY = frozenset(range(Ops.NEG, Ops.ADD))
BINARY = frozenset(range(Ops.ADD, Ops.WHERE))
COMPARISONS = frozenset((Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE))
#: Functions of floats that are sums of many terms.
TRANSCENDENTAL = frozenset(Ops(op) for op in range(Ops.EXP, Ops.TRUNC))
#: Operations that are defined for floats and for no other type.
FLOAT_ONLY = TRANSCENDENTAL | {Ops.RECIPROCAL, Ops.SQRT, Ops.DIV}
ELEMENTWISE = UNARY | BINARY | {Ops.WHERE}
MOVEMENT = frozenset(range(Ops.RESHAPE, Ops.FOLD))
#: Operations whose elements are computed one after the other: each needs what was stored before.
IN_ORDER = frozenset((Ops.SCAN, Ops.SCATTER))
#: Operations that are dear to compute again, in units of an addition.
DEAR = {**dict.fromkeys(TRANSCENDENTAL, 20), Ops.POW: 30, Ops.SQRT: 8, Ops.DIV: 6,
        Ops.RECIPROCAL: 6, Ops.FLOORDIV: 8, Ops.FLOORMOD: 8}


class RangeKind(_Kind):
    """What a loop becomes on the device."""

    GLOBAL = 0   # a loop of the kernel's prefix: its iterations are independent
    LOOP = 1     # a loop of one stage over its outputs
    REDUCE = 2   # a loop of a reduction
    UPCAST = 3   # a short loop that sinks below every reduction: register tile or vector lane
    UNROLL = 4   # a short loop of a reduction, written out
    BLOCK = 5    # a loop that neighbouring stages share: each iteration runs them in order
    THREAD = 6   # an output loop that is cut into chunks, which run at the same time
    LANE = 7     # an output loop whose iterations are shared by the lanes of a work-group


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel's SINK knows besides its stores.

    `prefix` are the loops around all stages, outermost first; `variables` the run-time integers,
    in the order in which their values follow the pointers; `steps` the optimisations applied, and
    `reasons` why, one for each. `asked` are steps to take instead of those a device would choose;
    `threads` into how many chunks the THREAD loops are cut; `lanes` how many lanes of a work-group
    share the LANE loops.
    """

    name: str
    prefix: tuple[UOp, ...] = ()
    variables: tuple[UOp, ...] = ()
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    asked: tuple[str, ...] | None = None
    threads: int = 1
    lanes: int = 1


_new, _weak = object.__new__, weakref.ref
_interned: dict[tuple[Any, ...], _Reference] = {}


class _Reference(weakref.ref["UOp"]):
    """A weak reference that takes its node out of the table when the node dies."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


def _forget(reference: _Reference) -> None:
    """Take a dead node out of the table, unless a living one stands there by now.

    In one step and without a lock: garbage is collected anywhere, in any thread.
    """
    _remove_dead(_interned, reference.key)


class _Draft:
    """A node that is being made. It becomes a `UOp` when all parts are there."""

    __slots__ = ("op", "dtype", "src", "arg", "tag", "shape", "origin", "realized", "reads",
                 "bounds", "late", "__weakref__")
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    shape: Shape | None
    origin: Any
    realized: UOp | None
    reads: int
    bounds: tuple[int, int] | None
    late: tuple[Any, ...] | None


class UOp(_Draft):
    """One node: an operation, its element type, its sources, an argument, and an optional tag.

    Nodes are interned: `UOp(...)` with equal parts returns the same object
    (r[ir.identity.one]); and immutable: setting a part is an error (r[ir.node.immutable]).
    `shape` is the shape of a tensor-level node, `None` in kernels. `reads` is a bit set of the
    buffers below; `note_reads` adds those that a gradient of its own stands for. Four slots are no
    part of the identity, and are noted by functions of this module: `origin` (the user's line),
    `realized` (the leaf that holds the value once it was computed), `bounds`, and `late`: of a leaf
    that a replay filled, a function that tells which expression that was, whether it depends on a
    parameter, and what the function is given.

    Raises:
        ImmutableError: a part of a node is set or deleted.
    """

    __slots__ = ()

    def __new__(cls, op: Ops, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None,
                tag: Any = None) -> UOp:
        """Find or make the node."""
        key = op, dtype, src, arg, tag
        reference = _interned.get(key)
        found = reference() if reference is not None else None
        return found if found is not None else intern(key, arg)  # r[impl ir.identity.one]

    @staticmethod
    def const(dtype: DType, value: Scalar) -> UOp:
        """A number of the given type. NaN is one node, 0.0 and -0.0 are two."""
        number = wrap(value, dtype)
        if dtype.kind != "f":
            return UOp(Ops.CONST, dtype, (), number)
        return _floating(dtype, number, None)

    def __setattr__(self, name: str, value: Any) -> None:  # r[impl ir.node.immutable]
        raise ImmutableError("UOp", f"{name!r} of {self!r} cannot be set: whoever makes this node "
                             "gets the same object", f"use node.replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise ImmutableError("UOp", f"{name!r} of {self!r} cannot be deleted: whoever makes this "
                             "node gets the same object", "use node.replace(...)")

    # Arithmetic on a bound variable gives a size, on other nodes a node: see the chapter symbolic.
    arithmetic: ClassVar[Callable[[str, UOp, Any, bool], Any]]

    def __add__(self, other: Any) -> Any:
        return UOp.arithmetic("+", self, other, False)

    def __radd__(self, other: Any) -> Any:
        return UOp.arithmetic("+", self, other, True)

    def __sub__(self, other: Any) -> Any:
        return UOp.arithmetic("-", self, other, False)

    def __rsub__(self, other: Any) -> Any:
        return UOp.arithmetic("-", self, other, True)

    def __mul__(self, other: Any) -> Any:
        return UOp.arithmetic("*", self, other, False)

    def __rmul__(self, other: Any) -> Any:
        return UOp.arithmetic("*", self, other, True)

    def __neg__(self) -> Any:
        return UOp.arithmetic("*", self, -1, False)

    def __floordiv__(self, other: Any) -> Any:
        return UOp.arithmetic("//", self, other, False)

    def __mod__(self, other: Any) -> Any:
        return UOp.arithmetic("%", self, other, False)

    def replace(self, **parts: Any) -> UOp:
        """The node with some of op, dtype, src, arg, tag replaced."""
        return UOp(parts.get("op", self.op), parts.get("dtype", self.dtype),
                   parts.get("src", self.src), parts.get("arg", self.arg),
                   parts.get("tag", self.tag))

    def sink(self, *more: UOp, arg: Any = None) -> UOp:
        """One root for this node and others."""
        return UOp(Ops.SINK, self.dtype, (self, *more), arg)

    def rtag(self, tag: Any = True) -> UOp:
        """The node with another tag."""
        return self.replace(tag=tag)

    def toposort(self, gate: Callable[[UOp], bool] | None = None) -> list[UOp]:
        """All nodes below and this one, sources first; below a node that fails `gate`, none."""
        return toposort((self,), gate)

    def variables(self) -> list[UOp]:
        """The DEFINE_VARs below, sorted by name."""
        found = [u for u in self.toposort() if u.op is Ops.DEFINE_VAR]
        return sorted(found, key=lambda u: u.arg)

    def unbind(self) -> tuple[UOp, int]:
        """The variable and the value of a BIND."""
        if self.op is not Ops.BIND:
            raise GraphError("unbind", f"{self.op.name} is not a BIND", "bind a Variable first")
        return bound_parts(self)

    def substitute(self, replacements: dict[UOp, UOp]) -> UOp:
        """The graph with nodes replaced, each by what the mapping says."""
        done = dict(replacements)
        for node in self.toposort(lambda u: u not in replacements):
            if node not in done:
                sources = tuple(done[s] for s in node.src)
                done[node] = node if sources == node.src else node.replace(src=sources)
        return done[self]

    def __reduce__(self) -> tuple[Any, ...]:  # r[impl ir.identity.one]
        nodes = self.toposort()
        place = {node: i for i, node in enumerate(nodes)}
        rows = [(int(u.op), u.dtype, tuple(place[s] for s in u.src), u.arg, u.tag) for u in nodes]
        return _from_rows, (rows,)

    def __repr__(self) -> str:
        detail = "" if self.arg is None else f", arg={self.arg!r}"
        shape = "" if self.shape is None else f", shape={self.shape}"
        sources = ", ".join(s.op.name for s in self.src)
        return f"UOp({self.op.name}, {self.dtype.name}, src=({sources}){detail}{shape})"


def bound_parts(bind: UOp) -> tuple[UOp, int]:
    """The variable and the value of a BIND, for passes: nobody is told that it was asked for."""
    return bind.src[0], bind.src[1].arg


class BoundVariable(UOp):
    """A BIND: a number like a size, which can be compared and converted.

    All other nodes equal themselves alone, so that nobody calls a function to compare two of them.
    """

    __slots__ = ()
    number: ClassVar[Callable[[UOp], Any]]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is int:
            return bool(BoundVariable.number(self) == other)  # r[impl symbolic.bound.number]
        return self is other or NotImplemented

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> bool:
        return bool(BoundVariable.number(self) < other)

    def __le__(self, other: Any) -> bool:
        return bool(BoundVariable.number(self) <= other)

    def __gt__(self, other: Any) -> bool:
        return bool(BoundVariable.number(self) > other)

    def __ge__(self, other: Any) -> bool:
        return bool(BoundVariable.number(self) >= other)

    def unbind(self) -> tuple[UOp, int]:
        """The variable and the value, which is taken as `int` takes it."""
        return self.src[0], int(self)  # r[impl symbolic.bound.number]

    def __int__(self) -> int:
        return int(BoundVariable.number(self))

    __index__ = __int__

    def __float__(self) -> float:
        return float(BoundVariable.number(self))

    def __truediv__(self, other: Any) -> Any:
        return BoundVariable.number(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / float(BoundVariable.number(self))

    def __pow__(self, other: Any) -> Any:
        return int(BoundVariable.number(self)) ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** int(BoundVariable.number(self))


def in_memory(node: UOp) -> UOp | None:
    """The leaf that stands for a node's value, whatever its buffer holds by now; None if the value
    has to be computed. `effects.leaf_of` asks whether it is still there.
    """
    return node if node.op is _BUFFER else node.realized


#: Note what was found out of a node, in the slots that are no part of its identity.
note_origin: Callable[[UOp, Any], None] = vars(_Draft)["origin"].__set__
note_realized: Callable[[UOp, UOp | None], None] = vars(_Draft)["realized"].__set__
note_bounds: Callable[[UOp, tuple[int, int]], None] = vars(_Draft)["bounds"].__set__
note_reads: Callable[[UOp, int], None] = vars(_Draft)["reads"].__set__
note_late: Callable[[UOp, tuple[Any, ...]], None] = vars(_Draft)["late"].__set__


def unnamed(like: UOp, src: tuple[UOp, ...], arg: Any, shape: Shape | None,
            realized: UOp | None = None) -> UOp:
    """A node that is not interned, and whose shape is given: what a plan has instead of a node."""
    draft: Any = _new(_Draft)
    draft.op, draft.dtype, draft.src, draft.arg, draft.tag = like.op, like.dtype, src, arg, like.tag
    draft.origin, draft.realized, draft.bounds, draft.shape = like.origin, realized, None, shape
    draft.reads, draft.late = like.reads, None
    draft.__class__ = like.__class__
    node: UOp = draft
    return node


def stand_on(node: UOp, source: UOp) -> None:
    """Give a node that is not interned its one source, if that was made after it."""
    vars(_Draft)["src"].__set__(node, (source,))


def _from_rows(rows: list[tuple[Any, ...]]) -> UOp:
    """Rebuild a pickled graph without recursion."""
    nodes: list[UOp] = []
    for op, dtype, sources, arg, tag in rows:
        nodes.append(UOp(Ops(op), dtype, tuple(nodes[i] for i in sources), arg, tag))
    return nodes[-1]


def _floating(dtype: DType, number: float, tag: Any) -> UOp:
    """The node of a floating number, whose key says more than the number: its sign, and NaN."""
    # r[impl ir.identity.one]: equal floats are not always the same number.
    sign = "nan" if math.isnan(number) else math.copysign(1.0, number)
    key = Ops.CONST, dtype, (), 0.0 if sign == "nan" else number, tag, sign
    reference = _interned.get(key)
    found = reference() if reference is not None else None
    return found if found is not None else intern(key, number)


def intern(key: tuple[Any, ...], arg: Any) -> UOp:
    """The node with this key, which is not in the table as it seems: most often a new one.

    The only way to make a node that is interned. Whoever knows that it is new comes here at once.
    """
    op, dtype, src, _, tag = key if len(key) == 5 else key[:5]
    if op is _BUFFER and tag is None:
        return leaf_node(dtype, arg)  # made otherwise than by `Buffer.leaf`
    if op is _CONST and dtype.kind == "f" and len(key) == 5:
        return _floating(dtype, arg, tag)  # made otherwise than by `UOp.const`
    draft: Any = _new(_Draft)  # and no function for its parts: every node is made here
    draft.op, draft.dtype, draft.src, draft.arg, draft.tag = op, dtype, src, arg, tag
    draft.origin = draft.realized = draft.bounds = draft.late = None
    if op is _BUFFER:  # with a tag
        draft.shape, draft.reads = arg[2], arg[0].bit
    else:
        rule = _shape_rules.get(op)
        draft.shape = None if rule is None else rule(src, arg)
        reads = 0
        for source in src:
            reads |= source.reads
        draft.reads = reads
    draft.__class__ = BoundVariable if op is _BIND else UOp  # from now on nobody sets a part of it
    node: UOp = draft
    reference = _Reference(node, _forget)
    reference.key = key
    known = _interned.setdefault(key, reference)  # in one step: no lock is needed
    return node if known is reference else _first(key, node, reference)


def leaf_node(dtype: DType, arg: tuple[Any, int, Shape], late: tuple[Any, ...] | None = None
              ) -> UOp:
    """The node of a buffer's content: of which one, in which version, seen with which shape;
    `late` where something is to be noted of it.

    Its buffer knows it, not the table: every result has a leaf, which is found only from there.
    """
    buffer, _, shape = arg
    if buffer.leaves:
        found = _another_leaf(dtype, arg)
        if late is not None:
            note_late(found, late)
        return found
    draft: Any = _new(_Draft)
    # Each result of a call comes this way: a statement each is quicker than one for all.
    draft.op = _BUFFER
    draft.dtype = dtype
    draft.src = ()
    draft.arg = arg
    draft.tag = draft.origin = draft.realized = draft.bounds = None
    draft.late = late
    draft.shape = shape
    draft.reads = buffer.bit
    draft.__class__ = UOp
    node: UOp = draft
    buffer.leaves = (_weak(node),)  # whoever makes a buffer makes its first leaf: no lock is needed
    return node


def _another_leaf(dtype: DType, arg: tuple[Any, int, Shape]) -> UOp:
    """The leaf of a buffer that had one before: if that is alive, perhaps the same."""
    with _naming:
        alive = [node for node in [each() for each in arg[0].leaves] if node is not None]
        for node in alive:
            # r[impl ir.identity.one]: a bound variable equals a number, and is no number.
            if node.arg == arg and hash(node.arg) == hash(arg) and node.dtype is dtype:
                return node
        arg[0].leaves = ()
        found = leaf_node(dtype, arg)
        arg[0].leaves = (*arg[0].leaves, *map(_weak, alive))
        return found


def _first(key: tuple[Any, ...], node: UOp, reference: _Reference) -> UOp:
    """The living node with a key, where one stands in the table already, dead or alive."""
    while True:
        known = _interned.setdefault(key, reference)
        found = known()
        if found is not None:
            return found  # r[impl ir.identity.one]
        _remove_dead(_interned, key)


def free_after_fork(lock: Any) -> Any:
    """The lock, which is free in a forked child: the thread that held it is not there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)
    return lock


_naming = free_after_fork(threading.RLock())


def interned_count() -> int:
    """How many nodes are alive, without leaves."""
    return len(_interned)


def living_nodes() -> list[UOp]:
    """All nodes that are alive, without leaves."""
    return [node for node in [each() for each in list(_interned.values())] if node is not None]


def line_of(origin: Any) -> str:
    """How a message names the line that a node came from; empty if it is not known."""
    return f"{origin[0]} ({origin[1]})" if isinstance(origin, tuple) else str(origin or "")


def give_origin(node: UOp, origin: Any) -> None:
    """To a node and to all below it that have none: `x.sum()` is a reshape of a reduction.

    A write that is below belongs to another statement, and is named after what it writes.
    """
    note_origin(node, origin)  # r[impl schedule.label.line]
    waiting = [node]
    for part in waiting:
        for below in part.src:
            if below.origin is None and below.src and below.op is not _AFTER:
                note_origin(below, origin)
                waiting.append(below)


def toposort(roots: Iterable[UOp], gate: Callable[[UOp], bool] | None = None,
             seen: set[UOp] | None = None) -> list[UOp]:
    """All nodes reachable from the roots, sources before users, each once, without recursion.

    The order depends on the graph alone. Below a node for which `gate` is false nothing is visited.
    Nodes in `seen` are left out; those that are found are added to it.
    """
    order: list[UOp] = []  # r[impl ir.walk.whole]
    seen = set() if seen is None else seen
    # A node stands on the stack twice: first to open it, then, below None, to close it.
    stack: list[Any] = list(roots)[::-1]
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())
        elif node not in seen:
            seen.add(node)
            if node.src and (gate is None or gate(node)):
                stack += (node, None, *node.src[::-1])
            else:
                order.append(node)
    return order


def _elementwise_shape(src: tuple[UOp, ...], arg: Any) -> Shape | None:
    shape = src[0].shape
    if len(src) < 3 and shape == src[-1].shape:  # nearly always
        return shape
    shape = None
    for source in src:
        other = source.shape
        if other is None:
            return None  # kernel level
        if other:
            if shape is None:
                shape = other
            elif shape is not other and shape != other:  # r[impl ir.shape.tensor]
                raise GraphError("elementwise", f"sources have shapes {shape} and {other}",
                                 "expand them to one shape first")
    return () if shape is None else shape


def _reduce_shape(src: tuple[UOp, ...], arg: Any) -> Shape | None:
    if src[0].shape is None or not isinstance(arg, tuple):
        return None  # kernel level
    axes = arg[1]
    return tuple(1 if axis in axes else size for axis, size in enumerate(src[0].shape))


def _unfold_shape(src: tuple[UOp, ...], arg: Any) -> Shape:
    axis, count, size, _, _ = arg
    shape = _shape(src[0])
    return shape[:axis] + (count, size) + shape[axis + 1:]


def _fold_shape(src: tuple[UOp, ...], arg: Any) -> Shape:
    axis, extent, _, _ = arg
    shape = _shape(src[0])
    return shape[:axis] + (extent,) + shape[axis + 2:]


def _pad_shape(src: tuple[UOp, ...], arg: Any) -> Shape:
    return tuple(size + before + after
                 for size, (before, after) in zip(_shape(src[0]), arg, strict=True))


def _reshape_shape(src: tuple[UOp, ...], arg: Any) -> Shape:
    if math.prod(arg) != math.prod(_shape(src[0])):
        raise GraphError("reshape", f"{_shape(src[0])} does not have as many elements as {arg}",
                         "give a shape with the same number of elements")
    return tuple(arg)


def _shape(node: UOp) -> Shape:
    if node.shape is None:
        raise GraphError(node.op.name, "a kernel-level node has no shape",
                         "use it inside kernels only")
    return node.shape


def _first_shape(src: tuple[UOp, ...], arg: Any) -> Shape | None:
    return src[0].shape


def _copy_shape(src: tuple[UOp, ...], arg: Any) -> Shape | None:
    return src[0].shape if isinstance(arg, str) else arg.shape(_shape(src[0]))


def _const_shape(src: tuple[UOp, ...], arg: Any) -> Shape:
    return ()


_shape_rules: dict[Ops, Callable[[tuple[UOp, ...], Any], Shape | None]] = {
    **{Ops(op): _elementwise_shape for op in ELEMENTWISE},
    Ops.CONST: _const_shape,
    Ops.BIND: _const_shape,
    Ops.DEFINE_VAR: _const_shape,
    Ops.BUFFER: lambda src, arg: arg[2],
    Ops.IOTA: lambda src, arg: (arg,),
    Ops.RESHAPE: _reshape_shape,
    Ops.EXPAND: lambda src, arg: arg,
    Ops.PERMUTE: lambda src, arg: tuple(_shape(src[0])[axis] for axis in arg),
    Ops.PAD: _pad_shape,
    Ops.SHRINK: lambda src, arg: tuple(stop - start for start, stop in arg),
    Ops.FLIP: _first_shape,
    Ops.UNFOLD: _unfold_shape,
    Ops.FOLD: _fold_shape,
    Ops.REDUCE: _reduce_shape,
    Ops.GATHER: lambda src, arg: _shape(src[1]) + _shape(src[0])[1:],
    Ops.SCAN: _first_shape,
    Ops.SCATTER: _first_shape,
    Ops.CONTIGUOUS: _first_shape,
    Ops.COPY: _copy_shape,
    Ops.LOOP: lambda src, arg: arg.shape(()),
    Ops.CUSTOM: lambda src, arg: arg.shape,
    Ops.PARAM: lambda src, arg: arg[1] if isinstance(arg, tuple) else None,
    Ops.SHARD: _first_shape,
    Ops.AFTER: _first_shape,
}


#: An assembled kernel numbers its loops from 0, so that equal kernels are equal. What else makes
#: loops, its optimisation included, must not meet these numbers.
_range_numbers = itertools.count(1 << 20)  # r[impl steps.loop.numbers]


def new_range(size: int | UOp, kind: RangeKind, number: int | None = None) -> UOp:
    """A loop variable counting from 0; numbered, so that two loops of one size differ."""
    if isinstance(size, int):  # a symbolic size has an expression
        size = getattr(size, "expression", None) or UOp.const(dtypes.index, size)
    which = next(_range_numbers) if number is None else number
    return UOp(Ops.RANGE, dtypes.index, (size,), (which, kind))


TRUE = UOp.const(dtypes.bool, True)
FALSE = UOp.const(dtypes.bool, False)


def identity(op: Ops, dtype: DType) -> Scalar:
    """What a reduction of nothing gives: for a maximum the least value of the type."""
    # r[impl kernel.reduce.empty]
    if op in (Ops.ADD, Ops.MUL):
        return wrap(int(op is Ops.MUL), dtype)
    return dtype.min if op is Ops.MAXIMUM else dtype.max
