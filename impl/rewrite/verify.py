"""What each level may contain, stated with patterns, and the check. Chapter: spec/ir.md.

A requirement is a pattern, a test that every node found by it must pass, and the rule that says so.
`verify` answers nothing for a legal graph. For another one it raises, and names the node, the rule
and the user's line.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from impl.dtypes import Scalar, dtypes, wrap
from impl.errors import GraphError
from impl.ir import (
    BINARY,
    COMPARISONS,
    ELEMENTWISE,
    FLOAT_ONLY,
    MOVEMENT,
    UNARY,
    KernelInfo,
    Ops,
    RangeKind,
    Shape,
    UOp,
    line_of,
    toposort,
)
from impl.rewrite.patterns import UPat

_SHARED = ELEMENTWISE | {Ops.CONST, Ops.DEFINE_VAR}
TENSOR_OPS = _SHARED | MOVEMENT | {
    Ops.BUFFER, Ops.IOTA, Ops.BIND, Ops.FOLD, Ops.REDUCE, Ops.GATHER, Ops.SCAN, Ops.SCATTER,
    Ops.CONTIGUOUS, Ops.COPY, Ops.SHARD, Ops.LOOP, Ops.CUSTOM, Ops.STORE, Ops.AFTER, Ops.SINK}
KERNEL_OPS = (_SHARED - {Ops.DETACH}) | {
    Ops.PARAM, Ops.LOCAL, Ops.RANGE, Ops.INDEX, Ops.LOAD, Ops.REDUCE, Ops.TEXT, Ops.STORE, Ops.SINK}
REDUCERS = (Ops.ADD, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM)
_POINTERS = (Ops.PARAM, Ops.LOCAL)


@dataclass(frozen=True)
class Requirement:
    """Every node that the pattern finds passes the test, as the specification says under `rule`."""

    rule: str
    pattern: UPat
    test: Callable[[UOp], bool]
    says: str


def _same_dtypes(node: UOp) -> bool:
    return all(source.dtype is node.dtype for source in node.src)


def _comparison(node: UOp) -> bool:
    return node.dtype is dtypes.bool and node.src[0].dtype is node.src[1].dtype


def _where(node: UOp) -> bool:
    condition, left, right = node.src
    return condition.dtype is dtypes.bool and left.dtype is right.dtype is node.dtype


def _number_fits(node: UOp) -> bool:
    value: Scalar = wrap(node.arg, node.dtype)
    return type(value) is type(node.arg) and (value == node.arg or value != value)


def _kind(kinds: str) -> Callable[[UOp], bool]:
    return lambda node: node.dtype.kind in kinds


def _source_shape(node: UOp) -> Shape:
    return node.src[0].shape or ()


def _expand(node: UOp) -> bool:
    old, new = _source_shape(node), node.arg
    return len(old) == len(new) and all(o in (1, n) for o, n in zip(old, new, strict=True))


def _permute(node: UOp) -> bool:
    return sorted(node.arg) == list(range(len(_source_shape(node))))


def _pad(node: UOp) -> bool:
    return (len(node.arg) == len(_source_shape(node))
            and all(before >= 0 and after >= 0 for before, after in node.arg))


def _shrink(node: UOp) -> bool:
    shape = _source_shape(node)
    return len(node.arg) == len(shape) and all(
        0 <= start <= stop <= size for (start, stop), size in zip(node.arg, shape, strict=True))


def _flip(node: UOp) -> bool:
    return _axes(node.arg, len(_source_shape(node)))


def _axes(axes: tuple[int, ...], rank: int) -> bool:
    return sorted(set(axes)) == sorted(axes) and all(0 <= axis < rank for axis in axes)


def _unfold(node: UOp) -> bool:
    axis, count, size, step, dilation = node.arg
    shape = _source_shape(node)
    if not 0 <= axis < len(shape) or min(count, size) < 0 or min(step, dilation) < 1:
        return False
    return not count * size or (count - 1) * step + (size - 1) * dilation < shape[axis]


def _fold(node: UOp) -> bool:
    axis, extent, step, dilation = node.arg
    shape = _source_shape(node)
    if not 0 <= axis < len(shape) - 1 or min(step, dilation) < 1:
        return False
    count, size = shape[axis:axis + 2]
    return not count * size or (count - 1) * step + (size - 1) * dilation < extent


def _tensor_reduce(node: UOp) -> bool:
    op, axes = node.arg
    return op in REDUCERS and _axes(axes, len(_source_shape(node))) and len(node.src) == 1


def _scan(node: UOp) -> bool:
    op, axis, *keys = node.arg
    if op not in REDUCERS or not 0 <= axis < len(_source_shape(node)):
        return False
    if node.src[0].dtype is not node.dtype or len(node.src) != 1 + len(keys):
        return False
    return all(key.dtype.kind in "iu" and key.shape == node.shape for key in node.src[1:])


def _scatter(node: UOp) -> bool:
    base, index, values = node.src
    if index.dtype.kind not in "iu" or len(index.shape or ()) != 1 or not base.shape:
        return False
    return (node.arg in (None, *REDUCERS) and base.dtype is values.dtype is node.dtype
            and values.shape == (*(index.shape or ()), *base.shape[1:]))


def _store(node: UOp) -> bool:
    view, value = node.src
    return view.dtype is value.dtype and value.shape in (view.shape, ())


def _names_each_once(view: UOp) -> bool:
    """Whether a movement operation names each element of its source at most once."""
    if view.op is not Ops.UNFOLD:
        return view.op in MOVEMENT and view.op not in (Ops.EXPAND, Ops.PAD)
    # Two windows meet where one is a multiple of `dilation` steps before the other.
    _, count, size, step, dilation = view.arg
    common = math.gcd(step, dilation)
    return bool(dilation // common >= count or step // common >= size)


def _after(node: UOp) -> bool:
    base, store = node.src
    view = store.src[0] if store.op is Ops.STORE else store
    while view is not base and _names_each_once(view):
        view = view.src[0]
    return store.op is Ops.STORE and view is base and base.dtype is node.dtype


def _loops(node: UOp, first: int) -> bool:
    loops = node.src[first:]
    return all(loop.op is Ops.RANGE for loop in loops) and len(set(loops)) == len(loops)


def _index_node(node: UOp) -> bool:
    pointer, place, valid = node.src
    return (pointer.op in _POINTERS and place.dtype is dtypes.index
            and valid.dtype is dtypes.bool and pointer.dtype is node.dtype)


def _through_index(node: UOp) -> bool:
    return node.src[0].op is Ops.INDEX and node.src[0].dtype is node.dtype


def _kernel_sink(node: UOp) -> bool:
    return (isinstance(node.arg, KernelInfo) and bool(node.src)
            and all(source.op is Ops.STORE for source in node.src)
            and all(loop.op is Ops.RANGE and loop.arg[1] in (RangeKind.GLOBAL, RangeKind.THREAD,
                                                              RangeKind.LANE)
                    for loop in node.arg.prefix))


_BITWISE = (Ops.AND, Ops.OR, Ops.XOR)
_ONE_SOURCE = UNARY | MOVEMENT | {Ops.FOLD, Ops.CONTIGUOUS, Ops.COPY, Ops.SHARD, Ops.LOAD,
                                  Ops.RANGE}
_SOURCES = {**{Ops(op): 1 for op in _ONE_SOURCE}, **{Ops(op): 2 for op in BINARY},
            Ops.WHERE: 3, Ops.GATHER: 2, Ops.SCATTER: 3, Ops.AFTER: 2, Ops.BIND: 2, Ops.INDEX: 3,
            Ops.CONST: 0, Ops.BUFFER: 0, Ops.IOTA: 0, Ops.DEFINE_VAR: 0, Ops.PARAM: 0, Ops.LOCAL: 0}


def _source_count(node: UOp) -> bool:
    return len(node.src) == _SOURCES[node.op]


def _ops(ops: frozenset[int] | set[int] | tuple[Ops, ...]) -> UPat:
    return UPat([Ops(op) for op in sorted(ops)])


# r[impl ir.source.legal, ir.dtype.operands]
# r[impl ir.dtype.operands]
_SHARED_REQUIREMENTS = (
    Requirement("ir.source.legal", UPat(list(_SOURCES)), _source_count,
                "an operation has its number of sources"),
    Requirement("ir.source.legal", UPat(Ops.CONST), _number_fits,
                "a number is a value of its type"),
    Requirement("ir.dtype.operands",
                _ops((BINARY - COMPARISONS) | (UNARY - {Ops.CAST, Ops.BITCAST})), _same_dtypes,
                "sources and result have one type"),
    Requirement("ir.dtype.operands", _ops(COMPARISONS), _comparison,
                "a comparison gives bool for two values of one type"),
    Requirement("ir.dtype.operands", UPat(Ops.WHERE), _where,
                "a choice has a bool condition and two values of its type"),
    Requirement("ir.dtype.operands", _ops(FLOAT_ONLY), _kind("f"),
                "the operation is for floating types"),
    Requirement("ir.dtype.operands", UPat((Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR)),
                _kind("iu"), "the operation is for integers"),
    Requirement("ir.dtype.operands", UPat(_BITWISE), _kind("biu"),
                "the operation is for integers and bool"),
    Requirement("ir.dtype.operands", UPat(Ops.BITCAST),
                lambda node: node.dtype.itemsize == node.src[0].dtype.itemsize,
                "both types have the same size"),
)


# r[impl ir.stage.operations+2, ir.shape.tensor, ir.movement.argument]
# r[impl ir.movement.argument]
# r[impl ir.movement.argument, ir.reduce.operands]
# r[impl ir.write.legal]
_TENSOR_REQUIREMENTS = (
    Requirement("ir.stage.operations", UPat(), lambda node: node.op in TENSOR_OPS,
                "the operation belongs to tensor graphs"),
    *_SHARED_REQUIREMENTS,
    Requirement("ir.shape.tensor", UPat(), lambda node: node.shape is not None or node.op in (
        Ops.STORE, Ops.SINK), "a tensor node has a shape"),
    Requirement("ir.movement.argument", UPat(Ops.EXPAND), _expand, "only axes of size 1 grow"),
    Requirement("ir.movement.argument", UPat(Ops.PERMUTE), _permute, "each axis stands once"),
    Requirement("ir.movement.argument", UPat(Ops.PAD), _pad, "an axis has two amounts from 0 up"),
    Requirement("ir.movement.argument", UPat(Ops.SHRINK), _shrink, "each interval is in its axis"),
    Requirement("ir.movement.argument", UPat(Ops.FLIP), _flip, "axes exist and stand once"),
    Requirement("ir.movement.argument", UPat(Ops.UNFOLD), _unfold, "each window is in the axis"),
    Requirement("ir.movement.argument", UPat(Ops.FOLD), _fold, "each window is in the extent"),
    Requirement("ir.reduce.operands", UPat(Ops.REDUCE), _tensor_reduce,
                "a reduction combines existing axes, each once, with ADD, MUL, MAXIMUM or MINIMUM"),
    Requirement("ir.reduce.operands", UPat(Ops.GATHER),
                lambda node: node.src[1].dtype.kind in "iu" and bool(_source_shape(node)),
                "the index is an integer, the values have an axis"),
    Requirement("ir.reduce.operands", UPat(Ops.SCAN), _scan,
                "a scan goes along an axis, with ADD, MUL, MAXIMUM or MINIMUM, and integer keys"),
    Requirement("ir.reduce.operands", UPat(Ops.SCATTER), _scatter,
                "one integer for each row of values, and rows as those of the base"),
    Requirement("ir.write.legal", UPat(Ops.STORE), lambda node: len(node.src) == 2 and _store(node),
                "the stored value has the type of the view, and its shape or none"),
    Requirement("ir.write.legal", UPat(Ops.AFTER), _after,
                "a write goes to the base itself, through views that name each element once"),
)


# r[impl ir.stage.operations+2, ir.kernel.sink+2, ir.kernel.operands+2]
# r[impl ir.kernel.operands+2]
_KERNEL_REQUIREMENTS = (
    Requirement("ir.stage.operations", UPat(), lambda node: node.op in KERNEL_OPS,
                "the operation belongs to kernels"),
    *_SHARED_REQUIREMENTS,
    Requirement("ir.kernel.sink", UPat(Ops.SINK), _kernel_sink,
                "a kernel is a SINK of stores, with a KernelInfo whose prefix are GLOBAL, THREAD "
                "or LANE loops"),
    Requirement("ir.kernel.operands", UPat(Ops.RANGE),
                lambda node: node.dtype is dtypes.index is node.src[0].dtype,
                "a loop variable and its size are of type index"),
    Requirement("ir.kernel.operands", UPat(Ops.INDEX), _index_node,
                "INDEX has a pointer of its own type, a place of type index and a bool"),
    Requirement("ir.kernel.operands", UPat(Ops.LOAD), _through_index,
                "a load reads the place that an INDEX of its own type names"),
    Requirement("ir.kernel.operands", UPat(Ops.STORE),
                lambda node: len(node.src) >= 2 and node.src[0].op is Ops.INDEX
                and node.src[0].dtype is node.src[1].dtype and _loops(node, 2),
                "a store has an INDEX, a value of its type, and loops, each once"),
    Requirement("ir.kernel.operands", UPat(Ops.REDUCE),
                lambda node: node.arg in REDUCERS and node.dtype is node.src[0].dtype
                and len(node.src) > 1 and _loops(node, 1),
                "a reduction has a value of its type, and loops, each once"),
)
LEVELS: dict[str, tuple[Requirement, ...]] = {
    "tensor": _TENSOR_REQUIREMENTS, "kernel": _KERNEL_REQUIREMENTS}


def _by_op(level: tuple[Requirement, ...]) -> dict[Ops, list[Requirement]]:
    return {op: [r for r in level if r.pattern.ops is None or op in r.pattern.ops] for op in Ops}


_CHECKS = {name: _by_op(level) for name, level in LEVELS.items()}


def verify(graph: UOp, level: str) -> None:
    """Check that a graph is legal at a level, "tensor" or "kernel".

    Raises:
        GraphError: a node breaks a rule (r[ir.verify.names]).
    """
    checks = _CHECKS[level]
    for node in toposort((graph,)):
        for requirement in checks[node.op]:
            if not _passes(requirement, node):  # r[impl ir.verify.names]
                raise GraphError(
                    f"verify {level}", f"{node!r} breaks r[{requirement.rule}]: {requirement.says}",
                    "this is a mistake of the pass that made the node",
                    line_of(node.origin) or None)


def _passes(requirement: Requirement, node: UOp) -> bool:
    try:
        return requirement.test(node)
    except (AttributeError, IndexError, TypeError, ValueError):
        return False  # too malformed even for the test
