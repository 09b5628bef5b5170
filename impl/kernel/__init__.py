"""One kernel: what its graph means, what it costs, how it is optimised. Chapter: spec/kernel.md.

`analysis` answers questions about a kernel, `steps` are the changes that keep its meaning, and
`heuristic` picks steps for a device.
"""
from __future__ import annotations

from impl.ir import UOp
from impl.kernel.analysis import (
    LANES,
    REDUCERS,
    Analysis,
    Estimate,
    Growth,
    Limits,
    buffer_key,
    estimate,
    growth,
    verify,
)
from impl.kernel.heuristic import hand_steps
from impl.kernel.steps import (
    STEPS,
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


def optimize(ast: UOp, limits: Limits | None = None) -> UOp:
    """The kernel after the steps that suit the device. Its values stay what they are.

    `KernelInfo.steps` names the steps.
    """
    simple = fold_gates(ast)
    return apply_steps(simple, [step for step, _ in hand_steps(simple, limits or Limits())])


__all__ = ["LANES", "REDUCERS", "STEPS", "Analysis", "Estimate", "Growth", "Limits", "Own",
           "Split", "Step", "StepError", "Swap", "Upcast", "apply_steps", "buffer_key", "estimate",
           "fold_gates", "growth", "hand_steps", "optimize", "parameters", "verify"]
