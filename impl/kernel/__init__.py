"""One kernel: what its graph means, what it costs, how it is optimised. Chapter: spec/kernel.md.

`analysis` answers questions about a kernel, `steps` are the changes that keep its meaning, and
`heuristic` picks steps for a device.
"""
from __future__ import annotations

from impl.kernel.ahead import Next, next_loads
from impl.kernel.analysis import (
    LANES,
    REDUCERS,
    Analysis,
    Early,
    Estimate,
    Growth,
    Limits,
    Way,
    accessed,
    buffer_key,
    estimate,
    exchanged,
    growth,
    shared_loops,
    verify,
)
from impl.kernel.blocking import Aside, Chunk, Cut, Fetch, Pack, Share
from impl.kernel.chain import Chain
from impl.kernel.dots import Dot
from impl.kernel.hidden import Hide
from impl.kernel.online import Online
from impl.kernel.padding import PadTo
from impl.kernel.plain import Merge, Stream
from impl.kernel.roll import Roll
from impl.kernel.steps import (
    OF_GROUPS,
    OF_LANES,
    STEPS,
    Abreast,
    Own,
    Split,
    Step,
    StepError,
    Swap,
    Upcast,
    apply_steps,
    fold_gates,
    parameters,
)
from impl.kernel.threads import GroupTop, Thread
from impl.kernel.windows import Window

__all__ = ["LANES", "OF_GROUPS", "OF_LANES", "REDUCERS", "STEPS", "Abreast", "Analysis", "Aside",
           "Chain", "Chunk", "Cut", "Dot", "Early", "Estimate", "Fetch", "GroupTop", "Growth",
           "Hide", "Limits", "Merge", "Next", "Online", "Own", "Pack", "PadTo", "Roll", "Share",
           "Split", "Step", "StepError", "Stream", "Swap", "Thread", "Upcast", "Way", "Window",
           "accessed", "apply_steps", "buffer_key", "estimate", "exchanged", "fold_gates", "growth",
           "next_loads", "parameters", "shared_loops", "verify"]
