"""Work-groups: steps that give parts of a kernel to lanes, and the rules that choose them.

Chapter: spec/groups.md. `lanes`, `spread`, `tensor_cores` and `pipeline` are steps, `grouping` and
`units` choose them, `shape` says how many groups and lanes a kernel is launched with.
"""
from __future__ import annotations

from impl.groups.grouping import lane_steps
from impl.groups.lanes import Grid, Inner, Local, Warp
from impl.groups.pipeline import Pipeline
from impl.groups.shape import Shape
from impl.groups.spread import Spread
from impl.groups.tensor_cores import TC, refuse_units

__all__ = ["TC", "Grid", "Inner", "Local", "Pipeline", "Shape", "Spread", "Warp", "lane_steps",
           "refuse_units"]
