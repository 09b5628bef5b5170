"""The list of passes, and the document that a schedule is.

Chapter: spec/schedule.md.

    plan         what a plan is
    draft        what passes find out, each field written once
    passes       the list of passes
    checks       what holds after each of them (SPEC=1, SPEC=2)
    pipeline     a draft through all passes, and the table of finished plans
    reasons      what a person reads of a plan: labels, and why values cross memory
    document     a plan as plain data
"""
from impl.schedule.document import document
from impl.schedule.pipeline import (
    collector_at_rest,
    make_plan,
    plan_for,
    schedule_cache,
    shared_plan_for,
)
from impl.schedule.plan import Environment, Plan, PlannedKernel, Result, Storage
from impl.schedule.reasons import decisions, kernel_line, kernel_origin, label, shown_numbers

__all__ = ["Environment", "Plan", "PlannedKernel", "Result", "Storage", "collector_at_rest",
           "decisions", "document", "kernel_line", "kernel_origin", "label", "make_plan",
           "plan_for", "schedule_cache", "shared_plan_for", "shown_numbers"]
