"""Finished plans, programs and tuning results, found again. Chapter: spec/caching.md.

`rows` describes graphs; `plans` has the table of plans and its keys, in memory; `positions` finds
programs that differ in numbers only, `sizes` those that differ in sizes; `disk` has what is kept on
disk.
"""
from impl.caching.disk import Store, store
from impl.caching.plans import (
    Canonical,
    PlanCache,
    canonicalize,
    for_all_sizes,
    stable_name,
)
from impl.caching.rows import Described, exact, has_sizes, short_key, walk
from impl.caching.sizes import Case

__all__ = ["Canonical", "Case", "Described", "PlanCache", "Store", "canonicalize", "exact",
           "has_sizes", "short_key", "stable_name", "store", "for_all_sizes", "walk"]
