"""The way from values that are asked for to a plan, as a list of passes. Chapter: spec/realize.md.

One value, the *request*, goes through them. Each pass reads the fields of earlier passes, and
writes its own:

    choose       which of the values are not in memory
    gather       what they need, and who still has to read what they overwrite   impl/effects
    divide       what each device of a mesh computes of that                     impl/multi
    check_graph  whether that is legal, if SPEC asks                             impl/rewrite
    find_plan    the plan that is known, or `make_plan`                          impl/schedule
    agree        whether all processes, and the checkers, agree with it, if SPEC asks
    report       counts, and what DEBUG and VIZ ask for

`make_plan` has a list of its own (impl/schedule/passes.py), which begins with `cut`. Nothing runs
on the way but what has to be read first: see `gather`.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from impl.caching import Canonical, Described, walk
from impl.caching.rows import Rows
from impl.collectives import MeshDevice
from impl.device import Device, GlobalCounters
from impl.dtypes import dtypes
from impl.effects import Effects, Holder, collect, forget_realized, leaf_of, lock, unrealized
from impl.errors import GraphError, VariableError
from impl.gradient.nodes import device_of
from impl.ir import Ops, UOp
from impl.multi import Mesh, Sharding, divided, is_spread, meshes
from impl.places import is_free, named
from impl.realize.environment import Mode, environment, in_force
from impl.realize.launching import execute
from impl.realize.nested import NESTED_ATTEMPTS
from impl.realize.run import Run
from impl.realize.session import session
from impl.rewrite import verify
from impl.schedule import (
    Plan,
    collector_at_rest,
    document,
    plan_for,
    shared_plan_for,
    shown_numbers,
)


@dataclass(eq=False, slots=True)
class Request:
    """Values that are asked for, on their way to a plan; beside a field the pass that writes it.

    A plan that is only run, and not shown, may be `shared` by programs that differ in positions
    and numbers. For a `document` nothing is run or counted.
    """

    values: Sequence[UOp]
    mode: Mode = field(default_factory=in_force)
    shared: bool = False
    document: bool = False
    since: int = field(default_factory=lambda: lock.changes)  # before anything was looked at

    started: float = field(init=False)         # choose: when, if that is shown
    waiting: list[UOp] = field(init=False)
    effects: Effects = field(init=False)       # gather: of whole values
    notes: list[str] = field(init=False)       # what a person is told of that
    pieces: Effects = field(init=False)        # divide: of what each device has
    lying: dict[UOp, Sharding] = field(init=False)  # how results lie on their mesh
    mesh_notes: list[str] = field(init=False)  # what a person is told of that
    program: Effects = field(init=False)       # find_plan: what the plan is for
    plan: Plan = field(init=False)
    canonical: Canonical = field(init=False)
    hit: bool = field(init=False)              # whether the plan was known


def choose(request: Request) -> Request:
    """Which values are not in memory.

    Needs: the values, each on the device that its holder names (`values_of`).
    Guarantees: those that have to be computed, each once. When the default device has changed, what
    was computed on the old one without any buffer is forgotten: a value that reads none has no
    device of its own.
    """
    if request.mode.shown:
        request.started = time.perf_counter()
    if session.default != request.mode.default:  # r[impl realize.device.named]
        session.default = request.mode.default
        forget_realized(is_free)
    # r[impl realize.value.once]
    request.waiting = list(dict.fromkeys([v for v in request.values if leaf_of(v) is None]))
    return request


def gather(request: Request) -> Request:
    """What the values need, and who still has to read what they overwrite.

    Needs: which values have to be computed.
    Guarantees: all nodes below them, sources first; no living tensor reads what is overwritten but
    those that are computed too, or keep their memory. A variable has one value. Readers that need
    another value of a variable than the request have been run, each with a plan of its own.
    """
    request.notes = []
    try:
        request.effects = _collected(request.waiting)
    except VariableError as error:
        apart = _readers_apart if request.document else _readers_first
        request.effects = apart(request, collect(request.waiting), error)
    return request


def _collected(waiting: Sequence[UOp]) -> Effects:
    """All nodes, and what a key says of them; but for those of a mesh, as it says nothing of them.

    Raises:
        VariableError: a variable is bound to two values.
    """
    if meshes and waiting and isinstance(device_of(waiting[0]), Mesh):
        found = collect(waiting)
        if Ops.BIND not in [node.op for node in found.nodes]:
            return found
    return walk(waiting)


def divide(request: Request) -> Request:
    """What each device of a mesh computes.

    Needs: the nodes of whole values.
    Guarantees: nodes of the pieces that one device has, the same for all of them; what is sent
    between devices is a COPY. Without a mesh they are as they were.
    """
    effects = request.pieces = request.effects
    request.lying, request.mesh_notes = {}, []
    if meshes and is_spread(effects.nodes):
        roots, held, shardings, notes = divided(effects.roots, effects.nodes, effects.held)
        description = Rows()
        request.pieces = Described(roots, description.add(roots), held, effects.rescued,
                                   description=description)
        request.lying = {root: sharding for root, sharding
                         in zip(effects.roots, shardings, strict=True) if sharding is not None}
        request.mesh_notes = notes
    return request


def check_graph(request: Request) -> Request:
    """Whether the graph is one of tensors.

    Needs: the nodes of one device. Guarantees: a capture under way has seen them; with SPEC=1 each
    is legal.
    """
    for observer in session.capturing.observers:
        observer.planning(request.pieces)
    if request.mode.checked:
        verify(UOp(Ops.SINK, dtypes.index, tuple(request.pieces.roots)), "tensor")
    return request


def find_plan(request: Request) -> Request:
    """The plan that is known for such a graph, or a new one.

    Needs: a legal graph of one device.
    Guarantees: a plan that is right for all graphs with its key, and the buffers and values that
    stand for its slots in this call.
    """
    mode, effects = request.mode, request.pieces
    # What is recorded, and what many processes agree on, stays as it is written.
    shared = request.shared and mode.use_cache and not (
        mode.checked or mode.recorded or session.capturing.observers) and effects is request.effects
    found = environment(effects, mode)
    if shared and isinstance(effects, Described):
        effects, request.plan, request.canonical, request.hit = shared_plan_for(
            effects, found, request.since)
    else:
        request.plan, request.canonical, request.hit = plan_for(
            effects, found, mode.use_cache, request.since)
    request.program = effects
    return request


def agree(request: Request) -> Request:
    """Whether others agree with the plan.

    Needs: a plan. Guarantees: with SPEC=1 all processes of a mesh have the same one, and the
    registered checkers find nothing wrong with its document; whoever records it has it.
    """
    mode, plan = request.mode, request.plan
    if mode.checked:
        for place in dict.fromkeys([kernel.device for kernel in plan.kernels]):
            device = Device[place]
            if isinstance(device, MeshDevice):  # r[impl distributed.plan.same]
                device.agree(request.canonical.key)
        if not request.hit:
            for checker in session.checkers:  # r[impl schedule.verify.passes]
                checker(add_rounds(plan, described(request)))
    if mode.recorded:
        for recorder in session.schedule_recorders:
            recorder(request.program, plan)
    return request


def report(request: Request) -> Request:
    """Count the plan, and show what DEBUG and VIZ ask for. A document is neither.

    Needs: a plan. Guarantees: nothing that another pass needs.
    """
    if request.document:
        return request
    # r[impl caching.count.exact+2]
    if request.hit:
        GlobalCounters.plan_hits += 1
    else:
        GlobalCounters.plan_misses += 1
    mode = request.mode
    if mode.debug >= 1:
        session.printer().print_schedule(request.plan, request.program.nodes, request.hit,
                                         time.perf_counter() - request.started, mode.debug)
    if mode.viz:
        for viewer in session.viewers:
            rows = described(request)
            viewer(rows, partial(add_compiled, request.plan, request.canonical.values,
                                 rows["kernels"]), partial(add_names, request, rows))
    return request


#: All passes, in the order in which they run.
PASSES: tuple[Callable[[Request], Request], ...] = (
    choose, gather, divide, check_graph, find_plan, agree, report)


def planned(request: Request) -> Request:
    """A request after all passes; where nothing has to be computed, or shown, after the first."""
    # What is divided is planned next: no search for garbage in between.
    with collector_at_rest() if meshes else _NO_REST:
        for pass_ in PASSES:
            request = pass_(request) if not request.mode.checked else _once(pass_, request)
            if not request.waiting and not request.document:
                break
    return request


_NO_REST = nullcontext()


def _once(pass_: Callable[[Request], Request], request: Request) -> Request:
    """The request after a pass, which must have left alone what earlier ones wrote. Only with SPEC:
    most requests find a plan that is known, and are done before each field could be guarded.
    """
    before = {name: getattr(request, name) for name in Request.__slots__ if hasattr(request, name)}
    request = pass_(request)
    for name, value in before.items():
        if getattr(request, name) is not value:  # r[impl schedule.passes.pure+3]
            raise AttributeError(f"{name} was written by an earlier pass, and {pass_.__name__} "
                                 "writes it again")
    return request


def planned_run(values: Sequence[UOp], mode: Mode | None = None,
                shared: bool = False) -> Run | None:
    """The plan for those of the values that are not in memory, bound to buffers; None for none.

    Whoever calls it holds the lock, has the kernels run, and commits.
    """
    if session.scheduled:
        session.run_scheduled()
    for _ in range(NESTED_ATTEMPTS):
        request = Request(values, mode or in_force(), shared)
        try:
            request = planned(request)
        except Exception:  # it may be of a graph that a nested run has changed under the passes
            if request.since == lock.changes:
                raise
            continue
        # A plan that was known is right for all graphs with its key: that of the graph as it was.
        if not request.waiting or request.hit or request.since == lock.changes:
            return bound(request) if request.waiting else None
    raise GraphError("realize", "handlers of signals, or finalizers, compute tensors again and "
                     "again while it is planned", "let them note what is to be done, and do it "
                     "when this is over")


def bound(request: Request) -> Run:
    """The plan of a request with the buffers of this call."""
    return Run(request.plan, request.canonical, request.program, request.effects.roots,
               request.lying)


def values_of(holders: Sequence[Holder], mode: Mode | None = None) -> list[UOp]:
    """The values of the holders, on the devices that they name.

    A value that reads no buffer is computed on the default device. A holder that names another one
    gets a copy.
    """
    values, default = [holder.uop for holder in holders], (mode or in_force()).default
    for number, value in enumerate(values):
        holder = holders[number]
        given = named(value, holder.device, default)
        if given is not value:
            values[number] = given
            if holder.uop is value:
                holder.uop = given
    return values


def hold(holders: Sequence[Holder], nodes: Sequence[UOp]) -> None:
    """Let the holders hold the leaves of their values, unless they were given others meanwhile."""
    for holder, node in zip(holders, nodes, strict=True):
        if holder.uop is node:
            leaf = leaf_of(node)
            if leaf is not None:
                holder.hold(node, leaf)


def _readers_first(request: Request, effects: Effects, error: VariableError) -> Effects:
    """What is left to do once those who wait for old values are done, each by itself.

    They may have other values of a variable than the roots: then one schedule cannot do both. Who
    would have to be done before itself gets the error.
    """
    roots = request.waiting
    for waiting in effects.roots[len(roots):]:  # r[impl realize.rescue.held+2]
        if waiting in session.first:
            raise error
        session.first.add(waiting)
        try:
            run = planned_run([waiting])
            if run is not None:
                execute(run, in_force())
        finally:
            session.first.discard(waiting)
    return collect(roots)


def _readers_apart(request: Request, effects: Effects, error: VariableError) -> Effects:
    """What `_readers_first` leaves, though nobody is computed: a document is about the rest."""
    roots = request.waiting
    waiting = len(effects.roots) - len(roots)
    if not waiting:
        raise error
    request.notes.append(
        f"{waiting} values that read what is overwritten are computed before this, each in a "
        "schedule of its own: they have other values of a variable")
    return Effects(list(roots), unrealized(roots), effects.held)


def described(request: Request) -> dict[str, Any]:
    """A schedule as plain data, with what is told of where its values lie."""
    rows = document(request.plan, request.hit, request.program.nodes)
    rows["notes"] += [*request.notes, *request.mesh_notes]
    return rows


def add_names(request: Request, rows: dict[str, Any]) -> None:
    """Call buffers as the user calls the tensors in them, where that is known."""
    plan, called, shown = request.plan, session.names(), shown_numbers(request.plan)
    # r[impl inspect.names.user]
    found = {number: called.get(request.canonical.buffers[slot]) for number, slot in plan.inputs}
    found |= {number: called.get(root) for root, number
              in zip(request.effects.roots, plan.places, strict=False) if root in called}
    for number, name in found.items():
        if name and number in shown:
            rows["buffers"][shown[number]]["name"] = name


def add_compiled(plan: Plan, values: Sequence[int], rows: Sequence[dict[str, Any]]) -> None:
    """Say of each kernel that is compiled how that was done, and what it costs with the values of
    a call.
    """
    for row, program in zip(rows, plan.programs or (), strict=False):
        if program is not None:
            cost = program.cost([values[slot] for slot in plan.kernels[row["id"]].slots])
            row.update(source=program.source or "", operations=cost.operations, bytes=cost.bytes,
                       **step_reasons(program.steps, program.reasons))


def step_reasons(steps: Sequence[str], reasons: Sequence[str]) -> dict[str, list[str]]:
    """The steps that were applied to a kernel, and the reason for each."""
    return {"optimizations": list(steps), "because": list(reasons)}


def add_rounds(plan: Plan, rows: dict[str, Any]) -> dict[str, Any]:
    """The document of a plan, in which each collective says what every device does in it."""
    for row in rows["kernels"]:
        kernel = plan.kernels[row["id"]]
        if kernel.transfer is not None and kernel.transfer.is_within:
            device, written = Device[kernel.device], plan.storages[kernel.writes[0].storage]
            assert isinstance(device, MeshDevice)
            sizes = [plan.storages[each].nbytes for each in kernel.arguments]
            row["collective"] = device.sends(
                kernel.transfer, list(map(min, sizes[::2], sizes[1::2])), written.dtype)
    return rows
