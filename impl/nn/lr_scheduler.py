"""Schedules of learning rates: each gives an optimiser another rate after every step.

A rate is a number in memory, so that a step whose rate has changed is the same kernels.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from impl.nn.names import publish
from impl.nn.optim import Optimizer

__all__ = ["CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR",
           "OneCycleLR", "Scheduler", "StepLR"]
publish("lr_scheduler", __all__)


class Scheduler:
    """What all schedules share. Subclasses say what the rate is after `step` steps.

    `step()` is called after that of the optimiser.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.last_epoch = optimizer, 0
        self.base = float(optimizer.lr.item())
        self._set()

    def rate(self, step: int) -> float:
        """The rate after so many steps."""
        raise NotImplementedError

    def step(self) -> None:
        """One step further."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The rate that is in force."""
        return [self.rate(self.last_epoch)]

    def _set(self) -> None:
        self.optimizer.lr.assign(self.rate(self.last_epoch)).realize()


class LambdaLR(Scheduler):
    """The first rate times a function of the number of steps."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.function = lr_lambda
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        return self.base * self.function(step)


class StepLR(Scheduler):
    """The rate times gamma after every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        power: float = self.gamma ** (step // self.step_size)
        return self.base * power


class MultiStepLR(Scheduler):
    """The rate times gamma at each of some numbers of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int],
                 gamma: float = 0.1) -> None:
        self.milestones, self.gamma = list(milestones), gamma
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        power: float = self.gamma ** sum(step >= each for each in self.milestones)
        return self.base * power


class ExponentialLR(StepLR):
    """The rate times gamma after every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, 1, gamma)


class LinearLR(Scheduler):
    """A warm-up: the rate times a factor that goes from one number to another."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3,
                 end_factor: float = 1.0, total_iters: int = 5) -> None:
        self.ends, self.total = (start_factor, end_factor), total_iters
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        start, end = self.ends
        return self.base * (start + (end - start) * min(step, self.total) / self.total)


class CosineAnnealingLR(Scheduler):
    """From the first rate to `eta_min` along half a cosine wave of `T_max` steps."""

    def __init__(self, optimizer: Optimizer, T_max: int,  # noqa: N803
                 eta_min: float = 0.0) -> None:
        self.period, self.least = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        wave = (1 + math.cos(math.pi * step / self.period)) / 2
        return self.least + (self.base - self.least) * wave


class OneCycleLR(Scheduler):
    """Up to `max_lr` and down to nearly nothing, both along half a cosine wave (Smith, 2018)."""

    def __init__(self, optimizer: Optimizer, max_lr: float, total_steps: int,
                 pct_start: float = 0.3, div_factor: float = 25.0,
                 final_div_factor: float = 1e4) -> None:
        self.most, self.total, self.start = max_lr, total_steps, max_lr / div_factor
        self.end, self.up = self.start / final_div_factor, pct_start * total_steps - 1
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        if step <= self.up:
            return _wave(self.start, self.most, step / self.up)
        down = self.total - 1 - self.up
        return _wave(self.most, self.end, min(1.0, (step - self.up) / down))


def _wave(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2
