"""Finished plans, programs and tuning results, found again. Chapter: spec/caching.md.

`plans` has the table of plans and its keys, in memory; `disk` what is kept on disk.
"""
from impl.caching.disk import Store, store
from impl.caching.plans import (
    Canonical,
    PlanCache,
    canonicalize,
    exact,
    has_sizes,
    short_key,
    stable_name,
    unbound,
    walk,
)

__all__ = ["Canonical", "PlanCache", "Store", "canonicalize", "exact", "has_sizes",
           "short_key", "stable_name", "store", "unbound", "walk"]
