"""Computing values, and reading them. Chapter: spec/realize.md."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from impl.caching import short_key
from impl.collectives import MeshDevice
from impl.device import Device, GlobalCounters, Memory
from impl.device.lent import adopted, lent_elements
from impl.dtypes import as_dtype
from impl.effects import Buffer, Holder, Placeholder, leaf_of, lock, mark_realized
from impl.errors import DeviceError
from impl.host import np
from impl.ir import Ops, UOp, in_memory
from impl.multi import Mesh
from impl.places import Place
from impl.realize.environment import Mode, in_force
from impl.realize.launching import execute
from impl.realize.nested import refuse
from impl.realize.planning import hold, planned_run, values_of
from impl.realize.prepared import prepare_kernel
from impl.realize.run import ensure_memory
from impl.realize.session import session
from impl.schedule import schedule_cache
from impl.symbolic import is_symbolic

_BUFFER, _SHRINK, _RESHAPE = Ops.BUFFER, Ops.SHRINK, Ops.RESHAPE


def realize(holders: Sequence[Holder]) -> None:
    """Compute the values of all holders, in one schedule, and let them hold the results."""
    with lock.mutex:  # r[impl realize.thread.serial+2]
        if not lock.owner:  # nobody has a turn
            return _realize(holders)
    with lock:
        return _realize(holders)


def _realize(holders: Sequence[Holder]) -> None:
    for holder in holders:
        node = holder.uop
        if node.op is not _BUFFER or leaf_of(node) is None:
            break
    else:
        if not session.scheduled:
            return  # they hold their values already
    mode = in_force()
    short = _short(holders[0], mode) if mode.direct and len(holders) == 1 else None
    if short is not None:
        known = schedule_cache.get_short(short[0])
        if known is not None and known.prepared is not None:  # r[impl caching.key.short+2]
            GlobalCounters.plan_hits += 1
            root = holders[0].uop
            (buffer,) = known.prepared.run(short[1], root.origin)
            leaf = buffer.leaf(root.shape or ())
            if holders[0].uop is root:
                holders[0].uop = leaf
            mark_realized(root, leaf)
            return
    nodes = values_of(holders, mode)
    run = planned_run(nodes, mode, shared=True)
    if run is not None:
        execute(run, mode)
        if short is not None:
            run.plan.prepared = run.plan.prepared or prepare_kernel(run.plan)
            if run.plan.prepared is not None:
                schedule_cache.put_short(short[0], run.plan.key)
    hold(holders, nodes)


def _short(holder: Holder, mode: Mode) -> tuple[tuple[Any, ...], list[Buffer]] | None:
    """The short key of a value that waits, if nothing else has to be done or noted with it.

    All of its buffers are on the default device: that is what the circumstances speak of. So is
    its holder: what reads no memory may have been computed here, and be asked for elsewhere.
    """
    root, default = holder.uop, mode.default
    if session.scheduled or session.capturing.observers or session.spans is not None \
            or root.realized is not None or holder.device != default or session.default != default:
        return None
    found = short_key(root, mode.circumstances)
    if found is not None:
        for buffer in found[1]:
            if buffer.device != default:
                return None
    return found


def refuse_reading() -> None:
    """Note it if this thread captures a function."""
    # r[impl replay.read.traced]
    session.refuse_capture("reads a value of a tensor; a replay would not run the Python code that "
                           "uses it", "return the tensor, and read it outside the function")


def read(holder: Holder) -> np.ndarray:
    """A tensor's value as a new one-dimensional NumPy array (bfloat16 and others as bits)."""
    refuse_reading()
    with lock:
        realize([holder])
        leaf = leaf_of(holder.uop)
        assert leaf is not None
        buffer: Buffer = leaf.arg[0]
        if buffer.nbytes == 0:
            return np.empty(0, buffer.dtype.numpy)
        memory = _memory_of(buffer)
        # r[impl realize.read.fresh]
        return memory.device.copy_out(memory, buffer.dtype, buffer.size)


def _memory_of(buffer: Buffer) -> Memory:
    """The memory of a buffer, to be read by the host; refused while a run overwrites it."""
    if lock.running:
        refuse([buffer])
    return ensure_memory(buffer)


def read_part(holder: Holder) -> np.ndarray | None:
    """The result of `read` for a contiguous part of a value in memory.

    None otherwise: then it has to be computed.
    """
    node = holder.uop
    if node.op is not _SHRINK and node.op is not _RESHAPE or session.capturing.observers:
        return None
    with lock:
        if session.scheduled:
            return None
        found = _part(node)
        if found is None or found[0].device != holder.device or found[0].shardings:
            return None
        buffer, start = found
        count = math.prod(node.shape or ())
        if count == 0:
            return np.empty(0, buffer.dtype.numpy)
        memory = _memory_of(buffer)
        # r[impl realize.part.direct]
        return memory.device.copy_out(memory, buffer.dtype, count, start * buffer.dtype.itemsize)


def seen(holder: Holder) -> np.ndarray | None:
    """A tensor's value where it lies, as a one-dimensional array that cannot be written to.

    None if it is not in memory of the host, or NumPy has no such elements.
    """
    refuse_reading()
    with lock:
        found = None if session.scheduled else _part(holder.uop)
        if found is None or holder.device != found[0].device:
            realize([holder])
            leaf = leaf_of(holder.uop)
            assert leaf is not None
            found = leaf.arg[0], 0
        buffer, start = found
        count = math.prod(holder.uop.shape or ())
        if not count or buffer.shardings or isinstance(buffer.device, Mesh) \
                or buffer.dtype.name != buffer.dtype.numpy.name \
                or not Device[buffer.device].host_memory:
            return None
        memory = _memory_of(buffer)
        memory.device.synchronize()
        return lent_elements(memory, buffer.dtype, count, start * buffer.dtype.itemsize)


def adopt(array: np.ndarray, place: Place) -> UOp | None:
    """A leaf whose memory is an array's; None if it cannot be shared with this device."""
    if isinstance(place, Mesh) or not Device[place].host_memory or not array.size:
        return None
    try:
        memory = adopted(Device[place], array)
    except DeviceError:
        return None
    buffer = Buffer(place, as_dtype(array.dtype), array.size)
    buffer.memory = memory
    return buffer.leaf(array.shape)


def _part(node: UOp) -> tuple[Buffer, int] | None:
    """The buffer that has the elements of a view, in order and without gaps, and where they start.
    """
    start, leaf = 0, leaf_of(node)
    while leaf is None:
        if node.op is _SHRINK:
            below = node.src[0].shape or ()
            inner, within = 1, True  # whether all axes from here on are taken whole
            for (low, high), size in zip(reversed(node.arg), reversed(below), strict=True):
                if any(map(is_symbolic, (low, high, size))) or not within and high - low != 1:
                    return None
                start += low * inner
                within = within and high - low == size
                inner *= size
        elif node.op is not _RESHAPE:
            return None
        node = node.src[0]
        leaf = leaf_of(node)
    return (leaf.arg[0], start) if not any(map(is_symbolic, node.shape or ())) else None


def pieces(holder: Holder) -> list[tuple[int, np.ndarray]]:
    """What each device of this process has of a value, as `read` gives it, by its number in the
    mesh; elements past the end of the value included.
    """
    refuse_reading()
    with lock:
        realize([holder])
        leaf = leaf_of(holder.uop)
        assert leaf is not None
        buffer: Buffer = leaf.arg[0]
        memory, device = _memory_of(buffer), Device[buffer.device]
        assert isinstance(device, MeshDevice)
        return [(number, member.device.copy_out(member, buffer.dtype, buffer.size))
                for number, member in zip(device.numbers, memory.members, strict=True)]


def put_pieces(holder: Holder, given: Sequence[np.ndarray]) -> None:
    """Fill what each device of this process has of a value in memory, in the order of the mesh."""
    leaf = leaf_of(holder.uop)
    assert leaf is not None
    for member, elements in zip(ensure_memory(leaf.arg[0]).members, given, strict=True):
        member.device.copy_in(member, elements)


def peek(holder: Holder) -> np.ndarray | None:
    """The result of `read` for a value in memory; None otherwise, and where nothing may be read."""
    if session.capturing.observers:  # what is printed shows no elements, and is not printed again
        for observer in session.capturing.observers:
            observer.printed()
        return None
    if session.scheduled:
        return None
    with lock.mutex:  # in another thread's turn, too: who looks changes nothing that it would see
        leaf = in_memory(holder.uop)
        # r[impl tensor.print.nothing+3]: nor is what was overwritten an error here
        if leaf is None or leaf.arg[1] != leaf.arg[0].version \
                or any(leaf.arg[0] in call.written for call, _ in lock.running):
            return None
        buffer: Buffer = leaf.arg[0]
        if buffer.nbytes == 0 or isinstance(buffer, Placeholder):
            return np.empty(0, buffer.dtype.numpy) if buffer.nbytes == 0 else None
        if buffer.memory is not None and buffer.shardings:
            shape = holder.uop.shape or ()
            whole: np.ndarray | None = buffer.memory.whole(buffer.dtype, buffer.sharding(shape),
                                                           shape)
            return whole
        if buffer.memory is not None:
            return buffer.memory.device.copy_out(buffer.memory, buffer.dtype, buffer.size)
        return None if buffer.host is None else np.asarray(buffer.host).reshape(-1)
