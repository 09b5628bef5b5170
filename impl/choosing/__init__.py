"""Which steps suit a kernel on a processor, by rule. Chapter: spec/choosing.md.

`heuristic` looks at a kernel and asks the others in turn: `products`, `rows`, `short`, `windows`,
`plain`, `roll`, `ahead`, `chain` and `threads`. `planner` is what all of them work on.
"""
from __future__ import annotations

from impl.choosing.heuristic import hand_plan, hand_steps
from impl.choosing.planner import Planner, Reasoned
from impl.choosing.threads import duration

__all__ = ["Planner", "Reasoned", "duration", "hand_plan", "hand_steps"]
