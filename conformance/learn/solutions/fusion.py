"""A solution of the lesson fusion: python -m conformance.learn solution fusion"""
from __future__ import annotations

from math import prod
from typing import Any

from conformance.learn.lesson_fusion import Edge, Kernel, Stage


def joined(stages: list[Stage], kernel: Kernel, stage: Stage, inner: list[Edge],
           limits: Any) -> Kernel | None:
    """The kernel with one more stage, or None if that is not right or does not pay."""
    mine = [*(stages[number] for number in kernel.stages), stage]
    if any(each.alone for each in mine) or not all(edge.inside for edge in inner):
        return None
    loops = [name for name in kernel.loops
             if name in stage.loops and all(name in edge.loops for edge in inner)]
    if not inner and not len(loops) == len(kernel.loops) == len(stage.loops):
        return None
    left = prod(stage.loops[name] for name in loops)
    most = max(prod(each.loops.values()) for each in mine)
    work = sum(each.work for each in mine)
    if left < min(limits.parallel, most) and work > limits.small_kernel:
        return None
    return Kernel([*kernel.stages, stage.number], loops)


def partition(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """What the hints lead to."""
    kernels: list[Kernel] = []
    home: dict[int, int] = {}
    for stage in stages:
        needs = [edge for edge in edges if edge.after == stage.number]
        earliest = max((home[edge.before] for edge in needs), default=-1)
        places = [earliest] if earliest >= 0 else []
        places += [at for at in range(earliest + 1, len(kernels)) if not stage.reads or any(
            {*stages[number].reads} & {*stage.reads} for number in kernels[at].stages)]
        for at in places:
            inner = [edge for edge in needs if home[edge.before] == at]
            kernel = joined(stages, kernels[at], stage, inner, limits)
            if kernel is not None:
                kernels[at], home[stage.number] = kernel, at
                break
        else:
            home[stage.number] = len(kernels)
            kernels.append(Kernel([stage.number], list(stage.loops)))
    return kernels
