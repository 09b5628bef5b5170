"""Finished plans, programs and tuning results, found again. Chapter: spec/caching.md.

`plans` has the table of plans and its keys, in memory; `disk` what is kept on disk.
"""
from impl.caching.disk import Store, store
from impl.caching.plans import Canonical, PlanCache, canonicalize, exact, stable_name

__all__ = ["Canonical", "PlanCache", "Store", "canonicalize", "exact", "stable_name", "store"]
