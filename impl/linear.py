"""A schedule as one node, and its entry points step by step. Chapter: spec/linear.md.

`realize` does everything at once. The functions here give the same values in steps that one can
look at. The first of them has a plan made, as `realize` does, and takes its kernels. Their order
and the places of temporaries are found again from the nodes, so that these may be changed:

    SINK of values -> get_kernel_graph -> SINK of CALLs -> create_schedule -> LINEAR
    LINEAR -> linear_to_schedule -> ExecItems -> memory_planner -> run_schedule

A CALL has the kernel and its buffers as sources, and as argument a `CallInfo`: the names of its
variables, and which versions of its buffers it reads and writes. What it calls may be a LINEAR.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from impl import memory, symbolic
from impl.dependencies import of_versions
from impl.device import Device
from impl.dtypes import dtypes
from impl.effects import Buffer, is_lost, leaf_of, living
from impl.errors import GraphError
from impl.ir import TRUE, KernelInfo, Ops, UOp, note_origin, toposort
from impl.multi import Coordinate
from impl.ordering import Uses, least_peak
from impl.places import Destination
from impl.realize import ExecItem, Run, commit, items_of, lock, planned_run, session


@dataclass(frozen=True)
class CallInfo:
    """What a CALL says besides its kernel and buffers.

    `reads` and `writes` are pairs of a buffer's place among the CALL's buffers and a version.
    `first` has the item that waits for the first time that the CALL is run, until it is asked for.
    """

    variables: tuple[str | Coordinate, ...] = ()
    reads: tuple[tuple[int, int], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()
    copy: Destination | None = None  # of a copy: where it goes
    first: list[ExecItem] = field(default_factory=list, compare=False, repr=False)


def get_kernel_graph(sink: UOp) -> UOp:
    """The kernels that compute the sources of a SINK: a SINK of CALLs, in no particular order.

    The values hold their buffers from now on. Kernels that the caller has not run are run before
    the next value is read or realized, as those of `schedule` are.
    """
    return _kernel_graph(sink)[0]


def _kernel_graph(sink: UOp) -> tuple[UOp, dict[str, int]]:
    """The SINK of CALLs, and the value of every variable that was bound."""
    session.refuse_capture("makes kernels that a replay would not know of",
                           "do it outside the function")
    with lock:
        run = planned_run(sink.src, planned=False)
        if run is None:
            return UOp(Ops.SINK, dtypes.index), {}
        items, bound = items_of(run, ordered=False), run.canonical
        calls = _calls(run, items)
        commit(run)
        session.scheduled.extend(items[n] for n in run.plan.order)  # r[impl linear.read.waits]
        named = zip(map(_name, bound.variables), bound.values, strict=True)
        values = {name: value for name, value in named if isinstance(name, str)}
        return UOp(Ops.SINK, dtypes.index, tuple(calls)), values


def _calls(run: Run, items: Sequence[ExecItem]) -> list[UOp]:
    """A CALL for every kernel, in the order of their numbers, as the items are."""
    plan, binds = run.plan, run.canonical.variables
    calls = []
    for kernel, item in zip(plan.kernels, items, strict=True):
        leaves = tuple(buffer.leaf((buffer.size,)) for buffer in item.bufs)
        reads, writes = (tuple((kernel.arguments.index(t.storage), t.version) for t in side)
                         for side in (kernel.reads, kernel.writes))
        names = tuple(_name(binds[slot]) for slot in kernel.slots)
        info = CallInfo(names, reads, writes, kernel.copy, [item])
        calls.append(UOp(Ops.CALL, dtypes.index, (item.ast, *leaves), info))
        note_origin(calls[-1], item.origin)
    return calls


def _name(bind: UOp) -> str | Coordinate:
    """What a kernel's variable is called; the coordinate of a device on a mesh is its own name."""
    return str(bind.src[0].arg[0]) if bind.arg is None else bind.arg


def create_schedule(kernel_graph: UOp) -> UOp:
    """The CALLs of a kernel graph in a legal order: a LINEAR (r[linear.order.legal])."""
    calls = kernel_graph.src
    inner = [list(_in_order([call])) for call in calls]
    number = {b: i for i, b in enumerate(dict.fromkeys(_buffers(inner)))}
    reads, writes, before = zip(*(_versions(each, number) for each in inner), strict=True) \
        if inner else ((), (), ())
    pairs = of_versions(reads, writes, before)
    touched = [[number[b] for b in dict.fromkeys(_buffers([each]))] for each in inner]
    nbytes = {n: b.nbytes for b, n in number.items() if b.memory is None and b.host is None}
    # r[impl linear.order.legal]
    order = least_peak(len(calls), pairs, Uses(nbytes, touched))
    return UOp(Ops.LINEAR, dtypes.index, tuple(calls[i] for i in order))


Versions = set[tuple[int, int]]


def _versions(inner: Sequence[tuple[UOp, list[Buffer]]],
              number: dict[Buffer, int]) -> tuple[Versions, Versions, Versions]:
    """What the kernels of one CALL read, write, and overwrite together: numbers and versions."""
    reads, writes, before = Versions(), Versions(), Versions()
    for call, buffers in inner:
        info = call.arg or CallInfo()
        for place, version in info.reads:
            reads.add((number[buffers[place]], version))
        for place, version in info.writes:
            writes.add((number[buffers[place]], version))
            before.add((number[buffers[place]], version - 1))
    return reads - writes, writes, before - writes


def _buffers(inner: Iterable[Sequence[tuple[UOp, list[Buffer]]]]) -> list[Buffer]:
    return [buffer for each in inner for _, buffers in each for buffer in buffers]


def lower_sink_to_linear(function: UOp) -> UOp | None:
    """The LINEAR for a SINK of values; None for a SINK that is a kernel already."""
    if isinstance(function.arg, KernelInfo):  # r[impl linear.entry.nested+2]
        return None
    return create_schedule(get_kernel_graph(function))


def create_linear_with_vars(big_sink: UOp) -> tuple[UOp, dict[str, int]]:
    """The LINEAR for a SINK of values, and the value of every variable that a kernel uses.

    Raises:
        VariableError: one name is bound to two values (r[linear.variables.one-value]).
    """
    if isinstance(big_sink.arg, KernelInfo):
        raise GraphError("create_linear_with_vars", "the SINK is a kernel already",
                         "give a SINK of tensor values")
    graph, values = _kernel_graph(big_sink)
    linear = create_schedule(graph)
    used = {name for call in linear.src for name in call.arg.variables}
    return linear, {name: value for name, value in values.items() if name in used}


def linear_of_params(linear: UOp, buffers: Sequence[Buffer]) -> UOp:
    """A LINEAR that can be called with other buffers: PARAM n in the place of the n-th of these."""
    place = {buffer: n for n, buffer in enumerate(buffers)}
    params = {leaf: UOp(Ops.PARAM, leaf.dtype, (), (place[leaf.arg[0]], leaf.arg[2]))
              for leaf in linear.toposort() if leaf.op is Ops.BUFFER and leaf.arg[0] in place}
    return linear.substitute(params)


def _in_order(roots: Sequence[UOp]) -> Iterator[tuple[UOp, list[Buffer]]]:
    """The kernels that CALLs and LINEARs run, in order, with the buffers of each."""
    stack: list[tuple[UOp, list[Buffer]]] = [(root, []) for root in reversed(roots)]
    while stack:
        node, given = stack.pop()
        if node.op is Ops.LINEAR:  # r[impl linear.entry.nested+2]
            stack += [(call, given) for call in node.src[::-1]]
            continue
        buffers = [_buffer(leaf, given) for leaf in node.src[1:]]
        if node.src[0].op is Ops.LINEAR:  # r[impl linear.entry.nested+2]
            stack.append((node.src[0], buffers))
        else:
            yield node, buffers


def _buffer(leaf: UOp, given: Sequence[Buffer]) -> Buffer:
    """The buffer of a CALL: what a BUFFER holds, or what a PARAM is given by the CALL around it."""
    if leaf.op is not Ops.PARAM:
        buffer: Buffer = leaf.arg[0]
        return buffer
    number, shape = leaf.arg
    if number >= len(given):
        raise GraphError("linear_to_schedule", f"a LINEAR asks for buffer {number} of its CALL, "
                         f"which has {len(given)}", "give the CALL a buffer for each PARAM")
    found, size = given[number], math.prod(shape)
    if found.dtype is not leaf.dtype or found.size != size:
        raise GraphError("linear_to_schedule", f"a LINEAR asks for {size} elements of "
                         f"{leaf.dtype.name} as buffer {number} of its CALL, which has "
                         f"{found.size} of {found.dtype.name}", "give it one of that size and type")
    return found


def linear_to_schedule(linear: UOp, var_vals: dict[str, int] | None = None) -> list[ExecItem]:
    """The kernels of a LINEAR as items that can run.

    A LINEAR inside it runs as if its CALLs stood there, and so does CALL(LINEAR, buffers...), where
    PARAM n, with argument (n, shape), is buffer n.

    The first items that are asked for of a LINEAR are those that wait since it was made: they run
    once, and have run already if a value was read since then. Later ones run again.

    Raises:
        GraphError: a CALL lacks a buffer for a PARAM, or it has another size or type.
    """
    items: list[ExecItem] = []
    for call, buffers in _in_order([linear]):
        info = call.arg or CallInfo()
        values = [(var_vals or {})[name] if isinstance(name, str) else name
                  for name in info.variables]
        item = _waiting(info, buffers, values) or _item(call, info, buffers, values)
        item.metadata = {"label": item.ast.arg.name, "kernel": len(items)}
        items.append(item)
    return items


def _waiting(info: CallInfo, buffers: list[Buffer], values: list[int]) -> ExecItem | None:
    """The item that waits for a CALL to be run, if it is run on its own buffers."""
    if not info.first or info.first[0].bufs != buffers:
        return None
    item = info.first.pop()  # r[impl linear.read.waits]
    if item.done and item.values != values:
        return None
    item.values = values
    return item


def _item(call: UOp, info: CallInfo, buffers: list[Buffer], values: list[int]) -> ExecItem:
    """A CALL's kernel as an item that nobody waits for."""
    ast = call.src[0]
    program = Device[buffers[0].device].compile([ast])[0] if info.copy is None else None
    return ExecItem(ast, buffers, {}, values, program, copy=info.copy, origin=call.origin,
                    writes=[buffers[place] for place, _ in info.writes])


def memory_planner(schedule: Sequence[ExecItem], keep: Sequence[Buffer] = ()) -> list[ExecItem]:
    """Give buffers that nothing outside the schedule can observe places in one arena per device.

    These are the buffers without memory that no living tensor needs, no kernel uses that waits and
    is not in the schedule, that are not in `keep`, and that a kernel of the schedule fills before
    any reads them.
    """
    needed = toposort([h.uop for h in living() if not is_lost(h.uop)], lambda u: leaf_of(u) is None)
    held = {leaf.arg[0] for leaf in (leaf_of(u) for u in needed) if leaf is not None}
    mine = {id(item) for item in schedule}
    others = {b for item in session.scheduled if id(item) not in mine for b in item.bufs}
    kept = {*keep, *held, *others, *_read_first(schedule)}
    numbers: dict[Buffer, int] = {}
    touched: list[list[int]] = []
    for item in schedule:
        # r[impl linear.memory.kept+2]
        free = [b for b in item.bufs if b.memory is None and b.host is None and b not in kept]
        touched.append([numbers.setdefault(b, len(numbers)) for b in free])
    for device in dict.fromkeys(b.device for b in numbers):
        nbytes = {n: b.nbytes for b, n in numbers.items() if b.device == device}
        planned = memory.plan(memory.lifetimes(range(len(schedule)), touched, nbytes))
        arena = Device[device].allocate(max(1, planned.planned))
        for buffer, number in numbers.items():
            if number in planned.offsets:
                buffer.memory = arena.part(planned.offsets[number], buffer.nbytes)
    return list(schedule)


def _read_first(schedule: Sequence[ExecItem]) -> list[Buffer]:
    """The buffers whose content comes from before the schedule."""
    written: set[Buffer] = set()
    found: list[Buffer] = []
    for item in schedule:
        loads = [u.src[0].src[0] for u in item.ast.toposort() if u.op is Ops.LOAD]
        read = {item.bufs[pointer.arg] for pointer in loads if pointer.op is Ops.PARAM}
        values = dict(zip(item.ast.arg.variables, item.values, strict=True))
        filled = {item.bufs[store.src[0].src[0].arg] for store in item.ast.src
                  if _fills(store, item.bufs, values)} - read
        found += [b for b in item.bufs if b not in written and b not in filled]
        written |= filled
    return found


def _fills(store: UOp, buffers: Sequence[Buffer], values: dict[UOp, int]) -> bool:
    """Whether a kernel's store writes every element of a buffer; no, where that is not plain."""
    pointer, index, valid = store.src[0].src
    loops = [symbolic.evaluate(u.src[0], values) for u in index.toposort() if u.op is Ops.RANGE]
    return (pointer.op is Ops.PARAM and valid is TRUE
            and math.prod(loops) == buffers[pointer.arg].size)
