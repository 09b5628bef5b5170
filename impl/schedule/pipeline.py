"""The pipeline: from values that are asked for to a plan that can run. Chapter: spec/schedule.md.

    values -> cuts -> stages -> places -> kernels -> hazards -> order -> memory -> plan

One value, the draft of a plan, goes through the list of passes; each writes what it finds out, and
none changes what was written before.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from impl import settings
from impl.caching import Canonical, Case, Described, PlanCache, canonicalize, for_all_sizes
from impl.effects import Effects, lock
from impl.schedule.checks import check
from impl.schedule.draft import Draft
from impl.schedule.passes import PASSES
from impl.schedule.plan import Environment, Plan, Result
from impl.schedule.reasons import boundaries

schedule_cache: PlanCache[Plan] = PlanCache()


def make_plan(effects: Effects, canonical: Canonical, environment: Environment) -> Plan:
    """Run all passes."""
    # r[impl caching.key.circumstances]: no pass can look at a value
    draft = Draft(for_all_sizes(effects), canonical, environment)
    level = settings.get("SPEC")
    for pass_ in PASSES:  # r[impl schedule.passes.pure+3]
        draft = pass_(draft)
        if level:
            check(pass_, draft, level)
    return finished(draft)


def finished(draft: Draft) -> Plan:
    """The plan that a draft has become."""
    storage, moved = draft.takeovers.storage, draft.takeovers.moved
    return Plan(
        kernels=draft.kernels,
        storages={n: s for n, s in draft.storages.items() if n not in moved},
        order=draft.order,
        results=[Result(storage[value], shape) for value, shape in draft.results],
        dependencies=draft.dependencies, memories=draft.memories, written=_written(draft),
        boundaries=boundaries(draft.groups, storage, draft.dependencies, draft.grouping.blocked),
        notes=draft.placement.copies, key=draft.canonical.key,
        unknowns=[bind.src[0] for bind in draft.canonical.variables], under_way=draft.under_way)


def _written(draft: Draft) -> dict[int, int]:
    """The inputs that are overwritten, and how many versions each gains."""
    placement, gains = draft.placement, dict[int, int]()
    for value, storage in enumerate(placement.storage):
        if draft.storages[storage].kind == "input" and placement.version[value] > 0:
            gains[storage] = max(gains.get(storage, 0), placement.version[value])
    return gains


def plan_for(effects: Effects, environment: Environment, use_cache: bool = True,
             since: int | None = None) -> tuple[Plan, Canonical, bool]:
    """The plan for some effects, from the cache if it is there; and whether it was.

    `since` is what `lock.changes` was before they were collected. If that has changed in between,
    the plan may be one of another graph, and is not kept.
    """
    canonical = canonicalize(effects, environment.device_key)
    found = schedule_cache.get(canonical.key) if use_cache else None
    if found is not None:
        return found, canonical, True
    with collector_at_rest():
        plan = make_plan(effects, canonical, environment)
    if use_cache and since in (None, lock.changes):  # r[impl realize.nested.apart]
        schedule_cache.put(canonical.key, plan)
    return plan, canonical, False  # r[impl caching.hit.said]


def shared_plan_for(effects: Described, environment: Environment,
                    since: int) -> tuple[Effects, Plan, Canonical, bool]:
    """`plan_for`, where the plan may be one for programs that differ in positions and numbers;
    then the effects have variables there.

    Where less is known of numbers, more may have to be stored: then each keeps its own plan.
    """
    canonical = canonicalize(effects, environment.device_key)
    known = schedule_cache.get(canonical.key, last=False)
    if known is not None:
        return effects, known, canonical, True
    # r[impl caching.hit.equal, caching.program.own]: who asks for it lets last digits differ
    case = schedule_cache.forms.case(effects, canonical.key) \
        if settings.get("SHARE_SIZES") else None
    if case is not None:
        found = _plan_of_form(case, canonical, environment, since)
        if found is not None:
            return found
    general = schedule_cache.families.general(effects, canonical.key)
    if general is None:
        return effects, *plan_for(effects, environment, since=since)
    plan, key, hit = plan_for(general, environment, since=since)
    if not hit:  # the first of the family that would run it
        with collector_at_rest():
            own = make_plan(effects, canonical, environment)
        # r[impl caching.family.shared+2]
        if len(own.kernels) < len(plan.kernels) and lock.changes == since:
            schedule_cache.families.leave(canonical.key)
            schedule_cache.put(canonical.key, own)
            return effects, own, canonical, False
    return general, plan, key, hit


def _plan_of_form(case: Case, own: Canonical, environment: Environment,
                  since: int) -> tuple[Effects, Plan, Canonical, bool] | None:
    """The plan for all sizes of a form; None if one for this program alone is better."""
    known = case.known(own.values)
    if known is not None:
        effects, key, binds, values = known
        plan = schedule_cache.get(key, last=False)
        if plan is not None:
            return effects, plan, Canonical(key, own.buffers, binds, values), True
    sized = case.program()
    if sized is None:
        return None
    found = canonicalize(sized, environment.device_key)
    plan = schedule_cache.get(found.key)
    if plan is None:  # the first of the form that would run it
        with collector_at_rest():
            alone = make_plan(case.effects, own, environment)
            # r[impl caching.sizes.often+2]
            plan = make_plan(sized, found, environment) \
                if case.may_share(len(alone.kernels)) else None
        # r[impl caching.sizes.shared+2]
        if plan is not None and (2 * len(alone.kernels) < len(plan.kernels)
                                 or _arena(plan) > max(_MOST_ARENA, 4 * _arena(alone))):
            case.leave()
            plan = None
        if plan is None:
            return case.effects, _put(alone, own, since), own, False
        case.keep(found.key, found.variables, len(alone.kernels))
        return sized, _put(plan, found, since), found, False
    if not case.may_share(len(plan.kernels)):
        return None
    case.keep(found.key, found.variables, len(plan.kernels))
    return sized, plan, found, True


def _put(plan: Plan, canonical: Canonical, since: int) -> Plan:
    """A plan that was made, kept unless a nested run has changed what it was made from."""
    if lock.changes == since:
        schedule_cache.put(canonical.key, plan)
    return plan


#: Memory for temporaries that any plan may ask for, whatever the sizes are today.
_MOST_ARENA = 1 << 28


def _arena(plan: Plan) -> int:
    return sum(memory.planned for memory in plan.memories.values())


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No search for garbage: planning makes many objects, and nearly all live until its end."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
