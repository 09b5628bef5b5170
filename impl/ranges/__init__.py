"""Movement operations become loop ranges and index expressions. Chapter: spec/ranges.md.

A stage is one loop nest: ranges, one value per iteration, and the place where it is stored. A
`Tracer` walks from the value down to what is in memory, carrying the index at which each node is
needed. A movement operation changes the index and vanishes; a reduction opens new ranges. A
`StageGraph` does so for all values that get storage.
"""
from __future__ import annotations

from impl.ranges.graph import StageGraph
from impl.ranges.indices import Index, flatten, output_ranges, reshape_index, source_index
from impl.ranges.stages import (
    Access,
    Form,
    InOrder,
    LoopTask,
    OwnKernel,
    Pattern,
    Stage,
    Task,
    Value,
    cast,
    load,
    write_pattern,
)
from impl.ranges.tracing import Tracer

__all__ = ["Access", "Form", "InOrder", "Index", "LoopTask", "OwnKernel", "Pattern", "Stage",
           "StageGraph", "Task", "Tracer", "Value", "cast", "flatten", "load", "output_ranges",
           "reshape_index", "source_index", "write_pattern"]
