"""Running a schedule: from a tensor to its bytes. Chapter: spec/realize.md.

What `realize` does, in this order:

    values       a single operation that is known is launched at once, else:
    planning     the passes from values to a plan; one of them is `make_plan`, with its own passes
    run          the plan with the buffers of one call; its programs are compiled
    launching    the kernels of a run one by one: at once, or as the caller likes
    prepared     launching, in one place for all, and calls that are ready for it
    nested       what a handler or a finalizer asks for in the middle of a run
    run          commit: nodes and tensors know where their values are

The others:

    session      what runs leave for later ones
    environment  what settings and devices ask of a plan
    beside       the part of a run in which devices of a mesh compute beside what they send
    layout       the kernels of a call in tables, to be launched again and again
    looping      what is repeated or chosen while a schedule runs
    schedule     kernels for the caller to run, and documents
    journey      how a graph became a kernel's text, for the report
"""
from impl.effects import lock
from impl.realize.beside import measured
from impl.realize.environment import Mode, environment, in_force
from impl.realize.launching import ExecItem, items_of
from impl.realize.layout import CallLayout
from impl.realize.looping import run_loop
from impl.realize.nested import NESTED_ATTEMPTS, Overtaken, handlers_noted, is_nested
from impl.realize.planning import Request, planned, planned_run, values_of
from impl.realize.prepared import (
    NOTHING,
    LaunchedCall,
    Made,
    Prepared,
    Segments,
    TaskSegment,
)
from impl.realize.run import (
    Run,
    commit,
    copied,
    ensure_memory,
    part_from_others,
    poison,
    programs_of,
)
from impl.realize.schedule import (
    run_schedule,
    schedule,
    schedule_document,
    schedule_with_kernels,
)
from impl.realize.session import session
from impl.realize.values import (
    adopt,
    peek,
    pieces,
    put_pieces,
    read,
    read_part,
    realize,
    refuse_reading,
    seen,
)

__all__ = ["CallLayout", "ExecItem", "LaunchedCall", "Made", "Mode", "NESTED_ATTEMPTS", "NOTHING",
           "Overtaken", "Prepared", "Request", "Run", "Segments", "TaskSegment", "adopt", "commit",
           "copied", "ensure_memory", "environment", "handlers_noted", "in_force", "is_nested",
           "items_of", "lock", "measured", "part_from_others", "peek", "pieces", "planned",
           "planned_run", "poison", "programs_of", "put_pieces", "read", "read_part", "realize",
           "refuse_reading", "run_loop", "run_schedule", "schedule", "schedule_document",
           "schedule_with_kernels", "seen", "session", "values_of"]
