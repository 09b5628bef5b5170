"""Schedules of learning rates: each gives an optimiser another rate after every step.

A rate is a number in memory, so that a step whose rate has changed is the same kernels.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from impl.errors import ArgumentError
from impl.nn.names import publish
from impl.nn.optim import Optimizer

__all__ = ["ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR",
           "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR",
           "ReduceLROnPlateau", "Scheduler", "SequentialLR", "StepLR"]
publish("lr_scheduler", __all__)


class Scheduler:
    """What all schedules share. Subclasses say what a rate is after `step` steps.

    `step()` is called after that of the optimiser. Each group of parameters has a first rate of
    its own, which it keeps as `group["initial_lr"]`.
    """

    #: Attributes that are objects of the program, and are not saved.
    _unsaved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        self.base_lrs = [float(group.setdefault("initial_lr", group["lr"]))
                         for group in optimizer.param_groups]
        self._set()

    def rate(self, step: int, base: float) -> float:
        """The rate after so many steps, of a group whose first rate was `base`."""
        raise NotImplementedError

    def rates(self, step: int) -> list[float]:
        """The rate of each group after so many steps."""
        return [self.rate(step, base) for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """One step further, or to a step by its number."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set()

    def get_last_lr(self) -> list[float]:
        """The rates that are in force."""
        return self.rates(self.last_epoch)

    def _set(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates(self.last_epoch),
                               strict=False):  # of a group that came later nothing is known
            group["lr"] = rate
            group.rate.realize()

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule is, and its numbers. Functions are not saved."""
        return {name: value for name, value in vars(self).items() if name not in self._unsaved}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where a schedule was whose `state_dict` this is, and set its rates.

        Raises:
            ArgumentError: it is of another kind of schedule.
        """
        if "last_epoch" not in state_dict:  # r[impl errors.argument.refused]
            raise ArgumentError(f"lr_scheduler.{type(self).__name__}.load_state_dict",
                                "it has no last_epoch", "give what state_dict() of one returned")
        vars(self).update({name: value for name, value in state_dict.items()
                           if name in vars(self) and name not in self._unsaved})
        self._set()


LRScheduler = Scheduler


class LambdaLR(Scheduler):
    """The first rate times a function of the number of steps; one for each group, or for all."""

    _unsaved = ("optimizer", "functions")

    def __init__(self, optimizer: Optimizer,
                 lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
                 last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        self.functions = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rates(self, step: int) -> list[float]:
        return [base * function(step)
                for base, function in zip(self.base_lrs, self.functions, strict=True)]


class StepLR(Scheduler):
    """The rate times gamma after every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        power: float = self.gamma ** (step // self.step_size)
        return base * power


class MultiStepLR(Scheduler):
    """The rate times gamma at each of some numbers of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        self.milestones, self.gamma = list(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        power: float = self.gamma ** sum(step >= each for each in self.milestones)
        return base * power


class ExponentialLR(StepLR):
    """The rate times gamma after every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        super().__init__(optimizer, 1, gamma, last_epoch)


class ConstantLR(Scheduler):
    """The rate times a factor for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        return base * self.factor if step < self.total_iters else base


class LinearLR(Scheduler):
    """A warm-up: the rate times a factor that goes from one number to another."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3,
                 end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        start, end = self.start_factor, self.end_factor
        return base * (start + (end - start) * min(step, self.total_iters) / self.total_iters)


class PolynomialLR(Scheduler):
    """From the first rate to 0 in `total_iters` steps, along a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
                 last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        left: float = (1 - min(step, self.total_iters) / self.total_iters) ** self.power
        return base * left


class CosineAnnealingLR(Scheduler):
    """From the first rate to `eta_min` along half a cosine wave of `T_max` steps."""

    def __init__(self, optimizer: Optimizer, T_max: int,  # noqa: N803
                 eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        return _wave(base, self.eta_min, step / self.T_max)


class CosineAnnealingWarmRestarts(Scheduler):
    """Half a cosine wave of `T_0` steps again and again, each `T_mult` times as long as the last.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1,  # noqa: N803
                 eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float) -> float:
        length = self.T_0
        while step >= length:
            step, length = step - length, length * self.T_mult
            if self.T_mult == 1:
                step %= length
        return _wave(base, self.eta_min, step / length)


class OneCycleLR(Scheduler):
    """Up to `max_lr` and down to nearly nothing, both along half a cosine wave (Smith, 2018)."""

    def __init__(self, optimizer: Optimizer, max_lr: float | Sequence[float],
                 total_steps: int | None = None, pct_start: float = 0.3, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, last_epoch: int = -1, *,
                 epochs: int | None = None, steps_per_epoch: int | None = None) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:  # r[impl errors.argument.refused]
                raise ArgumentError("lr_scheduler.OneCycleLR", "the number of steps is not known",
                                    "give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        count = len(optimizer.param_groups)
        self.max_lrs = [max_lr] * count if isinstance(max_lr, (int, float)) else list(max_lr)
        self.total_steps, self.div_factor = total_steps, div_factor
        self.final_div_factor, self.up = final_div_factor, pct_start * total_steps - 1
        super().__init__(optimizer, last_epoch)

    def rates(self, step: int) -> list[float]:
        return [self.rate(step, most) for most in self.max_lrs]

    def rate(self, step: int, base: float) -> float:
        start = base / self.div_factor
        if step <= self.up:
            return _wave(start, base, step / self.up)
        down = self.total_steps - 1 - self.up
        return _wave(base, start / self.final_div_factor, min(1.0, (step - self.up) / down))


class SequentialLR(Scheduler):
    """One schedule after another: the next one begins at each of some numbers of steps."""

    _unsaved = ("optimizer", "schedulers")

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Scheduler],
                 milestones: Sequence[int], last_epoch: int = -1) -> None:
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        if len(self.schedulers) != len(self.milestones) + 1:  # r[impl errors.argument.refused]
            raise ArgumentError("lr_scheduler.SequentialLR", f"{len(self.schedulers)} schedules "
                                f"have {len(self.milestones)} milestones",
                                "give one milestone between each two of them")
        super().__init__(optimizer, last_epoch)

    def rates(self, step: int) -> list[float]:
        number = sum(step >= each for each in self.milestones)
        begun = self.milestones[number - 1] if number else 0
        return self.schedulers[number].rates(step - begun)


class ReduceLROnPlateau(Scheduler):
    """The rates times a factor where a measure has not become better for `patience` steps."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1,
                 patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel",
                 cooldown: int = 0, min_lr: float = 0.0, eps: float = 1e-8) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            # r[impl errors.argument.refused]
            raise ArgumentError("lr_scheduler.ReduceLROnPlateau", f"mode is {mode!r}, "
                                f"threshold_mode {threshold_mode!r}",
                                'mode is "min" or "max", threshold_mode "rel" or "abs"')
        self.mode, self.factor, self.patience, self.threshold = mode, factor, patience, threshold
        self.threshold_mode, self.cooldown, self.min_lr, self.eps = \
            threshold_mode, cooldown, min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0
        self.current = [float(group["lr"]) for group in optimizer.param_groups]
        super().__init__(optimizer)

    def rates(self, step: int) -> list[float]:
        return self.current

    def step(self, metrics: Any = None) -> None:
        """Take note of a measure, such as a loss, taken after an epoch.

        Raises:
            ArgumentError: there is none.
        """
        if metrics is None:  # r[impl errors.argument.refused]
            raise ArgumentError("lr_scheduler.ReduceLROnPlateau.step", "no measure is given",
                                "give the loss, step(loss)")
        measure = float(metrics)
        if self._better(measure):
            self.best, self.num_bad_epochs = measure, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            lower = [max(rate * self.factor, self.min_lr) for rate in self.current]
            self.current = [new if old - new > self.eps else old
                            for old, new in zip(self.current, lower, strict=True)]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        super().step()

    def _better(self, measure: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            return sign * measure > sign * self.best * (1 + sign * self.threshold)
        return sign * measure > sign * self.best + self.threshold


def _wave(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2
