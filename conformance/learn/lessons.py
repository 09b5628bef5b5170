"""The lessons: what each asks for stands in a module of its own, `lesson_NAME`.

A counterexample is searched from the smallest problem up, with definitions that are too slow to be
of any other use. It comes with its picture. Nothing there shares code with the implementation.
"""
from __future__ import annotations

from conformance.learn.lesson_barriers import BARRIERS
from conformance.learn.lesson_caching import CACHING
from conformance.learn.lesson_collectives import COLLECTIVES
from conformance.learn.lesson_finding import FINDING
from conformance.learn.lesson_fragments import FRAGMENTS
from conformance.learn.lesson_fusion import FUSION
from conformance.learn.lesson_gradient import GRADIENT
from conformance.learn.lesson_ir import IR
from conformance.learn.lesson_kernel import KERNEL
from conformance.learn.lesson_memory import MEMORY
from conformance.learn.lesson_online import ONLINE
from conformance.learn.lesson_order import ORDER
from conformance.learn.lesson_ordering import ORDERING
from conformance.learn.lesson_placement import PLACEMENT
from conformance.learn.lesson_ranges import RANGES
from conformance.learn.lesson_ranks import RANKS
from conformance.learn.lesson_reference import REFERENCE
from conformance.learn.lesson_render import RENDER
from conformance.learn.lesson_replay import REPLAY
from conformance.learn.lesson_rewrite import REWRITE
from conformance.learn.lesson_schedule import SCHEDULE
from conformance.learn.lesson_searching import SEARCHING
from conformance.learn.lesson_sizes import GROWTH
from conformance.learn.lesson_symbolic import SYMBOLIC
from conformance.learn.lesson_training import TRAINING

#: In the order of the course.
LESSONS = {
    "schedule": SCHEDULE, "ir": IR, "reference": REFERENCE, "rewrite": REWRITE,
    "gradient": GRADIENT, "ranges": RANGES, "symbolic": SYMBOLIC, "render": RENDER,
    "fusion": FUSION, "online": ONLINE, "placement": PLACEMENT, "ordering": ORDERING,
    "order": ORDER, "memory": MEMORY, "caching": CACHING, "kernel": KERNEL,
    "searching": SEARCHING, "barriers": BARRIERS, "fragments": FRAGMENTS, "replay": REPLAY,
    "sizes": GROWTH, "collectives": COLLECTIVES, "ranks": RANKS, "finding": FINDING,
    "training": TRAINING}
