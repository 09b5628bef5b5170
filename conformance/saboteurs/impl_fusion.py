"""Mistakes in what becomes one kernel, made inside `impl.fusion`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class JoinsTooEarly(ImplPatch):
    rule = "fusion.group.acyclic"
    description = "a stage may join a kernel that comes before one that the stage depends on"
    target = "impl.fusion.groups:_Grouper._candidates"

    def replacement(self, original: Function) -> Function:
        def candidates(grouper: Any, stage: Any, earliest: int) -> Any:
            """As without `earliest`: those it depends on, and all that read the same inputs."""
            pasts = [past[grouper._storage(stage.write)]
                     for past in (grouper.writers, grouper.readers)]
            pasts += [grouper.writers[grouper._storage(access)] for access in stage.reads]
            found = {group: grouper.groups[group] for past in pasts for group in past.by_group}
            for access in stage.reads:
                group = grouper.readers[grouper._storage(access)].newest
                if group is not None:
                    found.setdefault(group.number, group)
            device = grouper.device_of[grouper._storage(stage.write)]
            return [g for g in found.values() if g.device == device
                    and not g.members[0].stage.copy and len(g.members) < grouper.limits.stages]
        return candidates


class ComputesAgainFromLaterVersions(ImplPatch):
    rule = "fusion.late.versions"
    description = "what is computed again may read what has been overwritten meanwhile"
    target = "impl.fusion.late:_Keeper._there"

    def replacement(self, original: Function) -> Function:
        def there(keeper: Any, source: int, value: int, late: int) -> bool:
            kept, keeper.replaced = keeper.replaced, {}
            try:
                return bool(original(keeper, source, value, late))
            finally:
                keeper.replaced = kept
        return there


class ComputesReductionsAgain(ImplPatch):
    rule = "fusion.late.cheap"
    description = "any price is paid for computing a value again"
    target = "impl.fusion.late:_Keeper._cost"

    def replacement(self, original: Function) -> Function:
        return lambda keeper, value: 1
