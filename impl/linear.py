"""A schedule as one node, and its entry points step by step. Chapter: spec/linear.md.

`realize` does everything at once. The functions here give the same values in steps that one can
look at. The first of them has a plan made, as `realize` does. The others decide nothing anew: the
order of the kernels and the places of temporaries are those of that plan.

    SINK of values -> get_kernel_graph -> SINK of CALLs -> create_schedule -> LINEAR
    LINEAR -> linear_to_schedule -> ExecItems -> memory_planner -> run_schedule

A CALL has the kernel and its buffers as sources, and as argument a `CallInfo`: the names of its
variables, which of its buffers it writes, and where it stands in its plan. What it calls may be a
LINEAR.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from impl.device import Device
from impl.dtypes import dtypes
from impl.effects import Buffer
from impl.errors import GraphError
from impl.ir import KernelInfo, Ops, UOp, note_origin
from impl.multi import Coordinate
from impl.ranges import Task
from impl.realize import ExecItem, Run, commit, items_of, lock, planned_run, session

#: Where a kernel stands: the number of its plan, in the order in which LINEARs were made, and its
#: place in the order of that.
Position = tuple[int, int]

@dataclass(frozen=True)
class CallInfo:
    """What a CALL says besides its kernel and buffers.

    `writes` are places among the CALL's buffers. `bound` is the plan that it is from, with its
    buffers, and `number` its kernel there. `first` has the item that waits for the first time that
    the CALL is run, until it is asked for.
    """

    variables: tuple[str | Coordinate, ...] = ()
    writes: tuple[int, ...] = ()
    task: Task | None = None         # what is done in place of a program
    position: Position = (-1, 0)     # of a kernel that is from no plan: before all others
    number: int = 0
    bound: Run | None = field(default=None, compare=False, repr=False)
    first: list[ExecItem] = field(default_factory=list, compare=False, repr=False)


_plans = itertools.count()


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
        run = planned_run(sink.src)
        if run is None:
            return UOp(Ops.SINK, dtypes.index), {}
        items, bound = items_of(run, ordered=False), run.canonical
        calls = _calls(run, items)
        commit(run)
        run.drop_graph()
        session.scheduled.extend(items[n] for n in run.plan.order)  # r[impl linear.read.waits]
        named = zip(map(_name, bound.variables), bound.values, strict=True)
        values = {name: value for name, value in named if isinstance(name, str)}
        return UOp(Ops.SINK, dtypes.index, tuple(calls)), values


def _calls(run: Run, items: Sequence[ExecItem]) -> list[UOp]:
    """A CALL for every kernel, in the order of their numbers, as the items are."""
    plan, binds, made = run.plan, run.canonical.variables, next(_plans)
    place = {number: place for place, number in enumerate(plan.order)}
    calls = []
    for kernel, item in zip(plan.kernels, items, strict=True):
        leaves = tuple(buffer.leaf((buffer.size,)) for buffer in item.bufs)
        names = tuple(_name(binds[slot]) for slot in kernel.slots)
        writes = tuple(kernel.arguments.index(touch.storage) for touch in kernel.writes)
        info = CallInfo(names, writes, kernel.task, (made, place[item.number]), item.number, run,
                        [item])
        calls.append(UOp(Ops.CALL, dtypes.index, (item.ast, *leaves), info))
        note_origin(calls[-1], item.origin)
    return calls


def _name(bind: UOp) -> str | Coordinate:
    """What a kernel's variable is called; the coordinate of a device on a mesh is its own name."""
    return str(bind.src[0].arg[0]) if bind.arg is None else bind.arg


def create_schedule(kernel_graph: UOp) -> UOp:
    """The CALLs of a kernel graph in the order of their plan: a LINEAR (r[linear.order.legal+2]).

    Of several plans the one that was made first comes first. CALLs of the same kernels, with other
    buffers, stay as they stand.

    Raises:
        GraphError: between the kernels of a LINEAR that is called, those of another CALL would run.
    """
    # r[impl linear.order.legal+2]
    spans = [(_span(call), call) for call in kernel_graph.src]
    spans.sort(key=lambda each: each[0])
    for (one, _), (other, _) in itertools.pairwise(spans):
        if one[1] >= other[0] and one != other:
            raise GraphError("create_schedule", "kernels of one plan stand in two CALLs, and those "
                             "of the one have to run between those of the other",
                             "put them in one LINEAR, in the order of the plan")
    return UOp(Ops.LINEAR, dtypes.index, tuple(call for _, call in spans))


def _span(call: UOp) -> tuple[Position, Position]:
    """Where the first and the last kernel of a CALL stand."""
    found = [info.position for info in (each.arg or CallInfo() for each, _ in _in_order([call]))]
    return min(found, default=(-1, 0)), max(found, default=(-1, 0))


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
    program = Device[buffers[0].device].compile([ast])[0] if info.task is None else None
    return ExecItem(ast, buffers, {}, values, program, task=info.task, origin=call.origin,
                    writes=[buffers[place] for place in info.writes], bound=info.bound,
                    number=info.number)


def memory_planner(schedule: Sequence[ExecItem], keep: Sequence[Buffer] = ()) -> list[ExecItem]:
    """Give temporaries the places that their plan has for them, in one arena per device.

    They are right for the plan's order. Where the kernels of a plan stand in another one, each
    buffer gets memory of its own when a kernel first needs it; so does what is in `keep`.
    """
    numbers: dict[Run, list[int]] = {}
    for item in schedule:
        if item.bound is not None:
            numbers.setdefault(item.bound, []).append(item.number)
    for run, mine in numbers.items():
        own = set(mine)
        once = [number for number in run.plan.order if number in own]
        if mine == once * (len(mine) // len(once)):  # r[impl linear.memory.kept+3]
            run.place_temporaries(own_arena=True, keep=keep)
    return list(schedule)
