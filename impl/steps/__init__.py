"""Steps: named changes of a kernel's loops that keep its values. Chapter: spec/steps.md.

`step` says what a step is, `rewriting` makes kernels with other loops. The others are steps:
`upcast`, `split`, `loops`, `padding`, `memory` and `threads`.
"""
from __future__ import annotations

from impl.steps.loops import Cut, Merge, Own, Share, Swap
from impl.steps.memory import Fetch, Next, Stream
from impl.steps.padding import PadTo
from impl.steps.split import Split
from impl.steps.step import (
    DECLARED,
    OF_GROUPS,
    OF_LANES,
    STEPS,
    Step,
    StepError,
    apply_steps,
    starting_kernel,
    step_parameters,
)
from impl.steps.threads import GroupTop, Thread
from impl.steps.upcast import Abreast, Roll, Upcast

__all__ = ["DECLARED", "OF_GROUPS", "OF_LANES", "STEPS", "Abreast", "Cut", "Fetch", "GroupTop",
           "Merge", "Next", "Own", "PadTo", "Roll", "Share", "Split", "Step", "StepError", "Stream",
           "Swap", "Thread", "Upcast", "apply_steps", "starting_kernel", "step_parameters"]
