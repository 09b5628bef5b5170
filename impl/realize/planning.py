"""From values that are asked for to a plan, and to a run of it. Chapter: spec/realize.md."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from impl.caching import Canonical, Described, walk
from impl.caching.rows import Rows
from impl.collectives import MeshDevice
from impl.device import Device, GlobalCounters
from impl.dtypes import dtypes
from impl.effects import Effects, Holder, collect, forget_realized, leaf_of, unrealized
from impl.errors import VariableError
from impl.ir import Ops, UOp
from impl.multi import divided, is_spread, meshes
from impl.places import is_free, named
from impl.realize.environment import Mode, environment, in_force
from impl.realize.launching import execute
from impl.realize.run import Run
from impl.realize.session import session
from impl.rewrite import verify
from impl.schedule import Plan, collector_at_rest, document, plan_for, shared_plan_for


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
            values[number] = holder.uop = given
    return values


def waiting_values(values: Sequence[UOp], mode: Mode | None = None) -> list[UOp]:
    """Those that are not in memory yet, each once.

    When the default device has changed, what was computed on the old one without any buffer is
    forgotten: a value that reads none has no device of its own.
    """
    default = (mode or in_force()).default
    if session.default != default:  # r[impl realize.device.named]
        session.default = default
        forget_realized(is_free)
    # r[impl realize.value.once]
    return list(dict.fromkeys([value for value in values if leaf_of(value) is None]))


def planned_run(nodes: Sequence[UOp], mode: Mode | None = None,
                shared: bool = False) -> Run | None:
    """The plan for those of the values that are not in memory, bound to buffers; None for none.

    Whoever calls it holds the lock, has the kernels run, and commits. A plan that is only run, and
    not shown, may be `shared` by programs that differ in positions and numbers.
    """
    if session.scheduled:
        session.run_scheduled()
    mode = mode or in_force()
    waiting = waiting_values(nodes, mode)
    if not waiting:
        return None
    effects, plan, canonical = prepare(waiting, mode, shared)
    return Run(plan, canonical, effects)


def prepare(values: Sequence[UOp], mode: Mode | None = None,
            shared: bool = False) -> tuple[Effects, Plan, Canonical]:
    """Everything up to the plan for some values, each given once."""
    if meshes:  # what is divided is planned next: no search for garbage in between
        with collector_at_rest():
            return _prepared(values, mode or in_force(), shared)
    return _prepared(values, mode or in_force(), shared)


def _prepared(values: Sequence[UOp], mode: Mode,
              shared: bool) -> tuple[Effects, Plan, Canonical]:
    start = time.perf_counter() if mode.shown else 0.0
    effects, plan, canonical, hit = planned(values, mode, shared)
    # r[impl caching.count.exact+2]
    if hit:
        GlobalCounters.plan_hits += 1
    else:
        GlobalCounters.plan_misses += 1
    if mode.shown:
        _show(mode, effects, plan, hit, time.perf_counter() - start)
    return effects, plan, canonical


Settle = Callable[[Effects, Sequence[UOp], VariableError], Effects]


def planned(values: Sequence[UOp], mode: Mode, shared: bool = False,
            settle: Settle | None = None) -> tuple[Effects, Plan, Canonical, bool]:
    """The plan for some values, and whether it was known.

    `settle` gives what is left to do where one schedule cannot do all, and an error says why.
    """
    try:
        effects = in_pieces(walk(values))
        return _shared_plan(effects, mode) if shared else (effects, *checked_plan(effects, mode))
    except VariableError as error:
        effects = in_pieces((settle or _readers_first)(collect(values), values, error))
        return effects, *checked_plan(effects, mode)


def in_pieces(effects: Effects) -> Effects:
    """The effects as every device of a mesh has them; without a mesh they are as they were."""
    if not meshes or not is_spread(effects.nodes):
        return effects
    roots, held, shardings, notes = divided(effects.roots, effects.nodes, effects.held)
    description = Rows()
    lying = {root: sharding for root, sharding in zip(effects.roots, shardings, strict=True)
             if sharding is not None}
    return Described(roots, description.add(roots), held, effects.rescued, effects.roots,
                     lying, [*effects.notes, *notes], description=description)


def _show(mode: Mode, effects: Effects, plan: Plan, hit: bool, seconds: float) -> None:
    """What DEBUG and VIZ ask for of a schedule."""
    if mode.debug >= 1:
        session.printer().print_schedule(plan, effects.nodes, hit, seconds, mode.debug)
    if mode.viz:
        for viewer in session.viewers:
            viewer(described(effects, plan, hit))


def described(effects: Effects, plan: Plan, hit: bool) -> dict[str, Any]:
    """A schedule as plain data, with what is told of where its values lie."""
    rows = document(plan, hit, effects.nodes)
    rows["notes"] += effects.notes
    return rows


def _readers_first(effects: Effects, roots: Sequence[UOp], error: VariableError) -> Effects:
    """What is left to do once those who wait for old values are done, each by itself.

    They may have other values of a variable than the roots: then one schedule cannot do both. Who
    would have to be done before itself gets the error.
    """
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


def readers_apart(effects: Effects, roots: Sequence[UOp], error: VariableError) -> Effects:
    """What `_readers_first` leaves, though nobody is computed: a document is about the rest."""
    waiting = len(effects.roots) - len(roots)
    if not waiting:
        raise error
    return Effects(list(roots), unrealized(roots), effects.held, notes=[
        f"{waiting} values that read what is overwritten are computed before this, each in a "
        "schedule of its own: they have other values of a variable"])


def _shared_plan(effects: Effects, mode: Mode) -> tuple[Effects, Plan, Canonical, bool]:
    """The plan, one for many positions and numbers if that may be."""
    # What is recorded, and what many processes agree on, stays as it is written.
    if not mode.use_cache or mode.checked or mode.recorded or session.capturing.observers \
            or effects.whole is not None or not isinstance(effects, Described):
        return effects, *checked_plan(effects, mode)
    return shared_plan_for(effects, environment(effects, mode))


def checked_plan(effects: Effects, mode: Mode) -> tuple[Plan, Canonical, bool]:
    """The plan; with SPEC=1 the graph before it, each pass and the document are verified."""
    for observer in session.capturing.observers:
        observer.planning(effects)
    if mode.checked:
        verify(UOp(Ops.SINK, dtypes.index, tuple(effects.roots)), "tensor")
    plan, canonical, hit = plan_for(effects, environment(effects, mode), mode.use_cache)
    if mode.checked:
        for place in dict.fromkeys([kernel.device for kernel in plan.kernels]):
            device = Device[place]
            if isinstance(device, MeshDevice):  # r[impl distributed.plan.same]
                device.agree(canonical.key)
    if mode.checked and not hit:
        for checker in session.checkers:  # r[impl schedule.verify.passes]
            checker(add_rounds(plan, described(effects, plan, hit)))
    if mode.recorded:
        for recorder in session.schedule_recorders:
            recorder(effects, plan)
    return plan, canonical, hit


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


def hold(holders: Sequence[Holder], nodes: Sequence[UOp]) -> None:
    """Let the holders hold the leaves of their values, unless they were given others meanwhile."""
    for holder, node in zip(holders, nodes, strict=True):
        if holder.uop is node:
            leaf = leaf_of(node)
            if leaf is not None:
                holder.hold(leaf)
