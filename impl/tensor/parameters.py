"""Which tensors require a gradient, and what is kept of values for it. Chapter: spec/tensor.md."""
from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from impl.effects import Buffer, living, mark_realized
from impl.gradient import nodes, sources_of
from impl.ir import Ops, UOp, in_memory, toposort


class _Mode(threading.local):
    """What a thread's operations and realizations leave for gradients, and their names.

    `gradients`: whether operations pass them on. `keeping`: one list for each function that runs
    now and of which a derivative is taken, since every value may depend on its arguments; each
    keeps the expressions of what is realized meanwhile. `called`: what nodes are named after in
    place of methods, which is the node of a model while that runs.
    """

    gradients = True
    keeping: tuple[list[UOp], ...] = ()
    called = ""


mode = _Mode()
_parameters: dict[int, weakref.ref[Any]] = {}
#: The memory in which a tensor that requires a gradient lies, or lay.
_wanted: weakref.WeakSet[Buffer] = weakref.WeakSet()
#: Those of which the tensor requires none any more.
_frozen: weakref.WeakSet[Buffer] = weakref.WeakSet()
#: Which buffers hold parameters, or values that depend on them, as the bit set of `UOp.reads`.
dependent_bits = [0]


#: Tensors that were made to be saved, but not learned, wherever they stand.
_buffers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def note_buffer(tensor: Any) -> None:
    """Note that a tensor was made to be saved, but not learned."""
    _buffers[id(tensor)] = tensor


def is_buffer(tensor: Any) -> bool:
    """Whether a tensor was made to be saved, but not learned."""
    return _buffers.get(id(tensor)) is tensor


def note_parameter(value: UOp) -> None:
    """Note where a tensor that requires a gradient lies."""
    leaf = memory_of(value)
    assert leaf is not None, "a parameter has memory of its own"
    dependent_bits[0] |= leaf.reads
    _wanted.add(leaf.arg[0])


def memory_of(value: UOp) -> UOp | None:
    """The leaf of the memory in which a tensor lies, also while it is still to be written."""
    while value.op is Ops.AFTER:
        value = value.src[0]
    return in_memory(value)


def freeze_parameter(value: UOp) -> None:
    """Note of the memory in which a tensor lies that the tensor requires no gradient any more."""
    leaf = memory_of(value)
    assert leaf is not None, "a parameter has memory of its own"
    _frozen.add(leaf.arg[0])


def register_parameter(tensor: Any) -> None:
    """Note a living tensor that requires a gradient from now on."""
    note_parameter(tensor.uop)
    _frozen.discard(memory_of(tensor.uop).arg[0])  # type: ignore[union-attr]
    _parameters[id(tensor)] = weakref.ref(tensor, functools.partial(_forget, id(tensor)))


def _forget(key: int, reference: weakref.ref[Any]) -> None:
    if _parameters.get(key) is reference:
        del _parameters[key]


def recorded(sources: Iterable[UOp]) -> bool:
    """Whether somebody may ask for a gradient with respect to what these are made of."""
    return bool(mode.keeping) or any(source.reads & dependent_bits[0] for source in sources)


@contextmanager
def expressions_kept() -> Iterator[list[UOp]]:
    """Within it every tensor that this thread realizes keeps its expression, while it lives; so
    does the list.
    """
    kept: list[UOp] = []
    mode.keeping += kept,
    try:
        yield kept
    finally:  # equal ones may be others
        mode.keeping = tuple(each for each in mode.keeping if each is not kept)


def realize_unasked(tensors: Sequence[Any]) -> None:
    """Compute what nobody has asked for; gradients flow through it as if it had not been done.

    Each tensor holds a leaf then, by which a captured function knows it: integers of 4 bits are
    unpacked.
    """
    if tensors:
        with expressions_kept():
            _compute(tensors)
            named = [tensor for tensor in tensors if tensor.uop.op is not Ops.BUFFER]
            for tensor in named:  # r[impl replay.call.any]: it stayed a name of another's memory
                tensor.uop = UOp(Ops.CONTIGUOUS, tensor.uop.dtype, (tensor.uop,))
            if named:
                _compute(named)


def _compute(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        tensor._remember()
    tensors[0].runtime.realize(list(tensors))
    tell(tensors)


def tell(tensors: Sequence[Any]) -> None:
    """Let what was computed tell from what: that is what gradients flow through."""
    for tensor in tensors:
        if tensor._history is not None:
            tensor._tell()


def note_dependent(leaf: UOp) -> None:
    """Note that what is in memory there depends on a parameter."""
    dependent_bits[0] |= leaf.reads


def is_dependent(node: UOp) -> bool:
    """Whether a value may depend on a parameter."""
    return bool(node.reads & dependent_bits[0])


def as_written(memory: weakref.ref[UOp], *parts: Any) -> UOp:
    """The node with these parts, whose value is there: what a gradient needs of it is read.

    A leaf that held the node itself, which holds its leaf, would never be let go.
    """
    node, leaf = UOp(*parts), memory()
    if leaf is not None and node.realized is None and leaf.arg[1] == leaf.arg[0].version:
        mark_realized(node, leaf)
    return node


def is_held(leaf: UOp) -> bool:
    """Whether a leaf holds all that its gradient needs, since it depends on a parameter."""
    return leaf.late is not None and bool(leaf.late[1])


def slope_sources(node: UOp) -> tuple[UOp, ...]:
    """The sources through which a value may depend on a parameter, as one says of a result that it
    requires a gradient: also where the gradient is 0, but not through what is detached, or counts,
    nor through what a tensor held before all of it was assigned to, if that is no parameter.
    """
    if node.dtype.kind != "f" or node.op is Ops.DETACH and node.tag is None:
        return ()
    if node.op is Ops.AFTER:
        base, store = node.src
        leaf = memory_of(base)
        if store.src[0] is base and (leaf is None or leaf.arg[0] not in _wanted):
            return store.src[1:]
    return sources_of(node)


def needs_gradient(node: UOp) -> bool:
    """Whether somebody may ask for a gradient through a value: it depends on a parameter, or on
    what was one and may be one again.

    `is_dependent` answers at once, and yes too often: it knows buffers by 192 bits.
    """
    return any(is_held(leaf) or leaf.arg[0] in _wanted for leaf in _reached(node))


def wants_gradient(node: UOp) -> bool:
    """Whether a value depends on a tensor that requires a gradient now."""
    # r[impl tensor.parameter.frozen]
    return any(leaf.arg[0] in _wanted and leaf.arg[0] not in _frozen for leaf in _reached(node))


def parameters_of(node: UOp) -> list[UOp]:
    """The leaves of tensors that require a gradient, or did, and that a value depends on."""
    return [leaf for leaf in _reached(node) if leaf.arg[0] in _wanted]


def _reached(node: UOp) -> Iterator[UOp]:
    """The leaves that gradients may reach from here, nearest last."""
    seen, stack = set[UOp](), [node] if node.dtype.kind == "f" else []
    while stack:
        each = stack.pop()
        if each in seen or not is_dependent(each):
            continue
        seen.add(each)
        if each.op is not Ops.BUFFER:
            stack += slope_sources(each)
            continue
        yield each
        if is_held(each):
            stack.append(nodes.expression_of(each))
        elif each.late is None:
            stack.append(nodes.kept_expression(each))


def dependence(tensor: Any) -> str:
    """What a program can find out of the gradients of a tensor that requires none itself."""
    if tensor._parameter or not is_dependent(tensor.uop) \
            or not needs_gradient(tensor.uop):
        return ""
    return DEPENDS if wants_gradient(tensor.uop) else FROZEN


#: Of a tensor that is no parameter, but was computed from one; or is, or was computed from, what
#: was one.
DEPENDS, FROZEN = "depends on a parameter", "depends on a frozen parameter"


def parameters() -> list[Any]:
    """All living tensors that want a gradient, oldest first."""
    living = [reference() for reference in list(_parameters.values())]
    return [tensor for tensor in living if tensor is not None and tensor._parameter]


def is_shared(tensor: Any) -> bool:
    """Whether a tensor needs memory of its own to be a variable: its value is still to be computed,
    or others read the memory. They were made before, and a gradient of theirs is none of it.
    """
    leaf = memory_of(tensor.uop)
    if leaf is None:
        return True
    others = [other.uop for other in living() if other is not tensor
              and isinstance(other, type(tensor)) and other.uop.reads & leaf.reads]
    if tensor._parameter is False and leaf.arg[0] in _frozen:  # made while it was a variable
        return any(other is tensor.uop for other in others)
    return leaf is not tensor.uop or any(
        node.op is Ops.BUFFER and node.arg[0] is leaf.arg[0] for node in toposort(others))
