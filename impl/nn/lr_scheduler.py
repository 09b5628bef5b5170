"""Schedules of learning rates: each gives an optimiser another rate after every step.

A rate is a number in memory, so that a step whose rate has changed is the same kernels. As in
PyTorch the next rate is made of the one in force: so several schedules work on one optimiser, one
after the other or at once, and a rate that was set by hand stays.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from impl.errors import ArgumentError
from impl.nn.names import publish
from impl.nn.optim import Optimizer

__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
           "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
           "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "Scheduler",
           "SequentialLR", "StepLR"]
publish("lr_scheduler", __all__)

Rates = list[float]


class Scheduler:
    """The base of all schedules. Subclasses give the next rates in `get_lr`.

    `step()` is called after that of the optimiser. Each group of parameters has a first rate of
    its own, which it keeps as `group["initial_lr"]`.
    """

    #: Attributes that are objects of the program, and are not saved.
    _unsaved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            self._refuse(f"{type(optimizer).__name__} is no optimizer", "give the optimizer first")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                self._refuse(f"a group has no initial_lr, and last_epoch is {last_epoch}",
                             "load the state of the optimizer first, or begin with last_epoch=-1")
        self.base_lrs: Rates = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self._begin()

    def _begin(self) -> None:
        """The step to the first rates."""
        self._step_count, self._is_initial = 0, True
        try:
            self.step()
        finally:
            self._is_initial = False

    @property
    def in_force(self) -> Rates:
        """The rates of the groups."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def get_lr(self) -> Rates:
        """The rates of the groups after `last_epoch` steps, where those in force are the last."""
        raise NotImplementedError

    def closed_form(self) -> Rates:
        """The rates after `last_epoch` steps, whatever is in force."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """One step further, or to a step by its number."""
        self._step_count += 1
        self._update(epoch)

    def _update(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr() if epoch is None else self.closed_form())

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates,
                               strict=False):  # of a group that came later nothing is known
            group["lr"] = rate
            group.rate.realize()
        self._last_lr = self.in_force

    def get_last_lr(self) -> Rates:
        """The rates that the last step set."""
        return self._last_lr

    def _refuse(self, detail: str, remedy: str) -> NoReturn:
        # r[impl errors.argument.refused]
        raise ArgumentError(f"lr_scheduler.{type(self).__name__}", detail, remedy)

    def _each(self, value: Any, name: str) -> list[Any]:
        """One value for each group, of one for all or a list."""
        count = len(self.optimizer.param_groups)
        if not isinstance(value, (list, tuple)):
            return [value] * count
        if len(value) != count:
            self._refuse(f"{len(value)} of {name} for {count} groups of parameters",
                         "give one, or one for each group")
        return list(value)

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
        self._set(self._last_lr)


LRScheduler = _LRScheduler = Scheduler


class _OfFunctions(Scheduler):
    """A schedule by functions of the number of steps, one for each group or for all."""

    _unsaved = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer: Optimizer,
                 lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
                 last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        self.lr_lambdas = self._each(lr_lambda, "lr_lambda")
        for function in self.lr_lambdas:
            if not callable(function):
                self._refuse(f"lr_lambda is {function!r:.60}", "give a function of the step")
        super().__init__(optimizer, last_epoch)


class LambdaLR(_OfFunctions):
    """The first rate times a function of the number of steps; one for each group, or for all."""

    def get_lr(self) -> Rates:
        return [base * function(self.last_epoch)
                for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_OfFunctions):
    """The rate times a function of the number of steps, at each step."""

    def get_lr(self) -> Rates:
        if self._is_initial:
            return self.in_force
        return [rate * function(self.last_epoch)
                for rate, function in zip(self.in_force, self.lr_lambdas, strict=False)]


class MultiStepLR(Scheduler):
    """The rate times gamma at each of some numbers of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        factor = self.gamma ** self.milestones.count(self.last_epoch)
        return [rate * factor for rate in self.in_force]

    def closed_form(self) -> Rates:
        factor = self.gamma ** sum(self.last_epoch >= each for each in self.milestones)
        return [base * factor for base in self.base_lrs]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As of every schedule; PyTorch counts its milestones."""
        super().load_state_dict(state_dict)
        if isinstance(self.milestones, Mapping):
            self.milestones = sorted(int(step) for step, count in self.milestones.items()
                                     for _ in range(count))


class StepLR(Scheduler):
    """The rate times gamma after every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        if step_size < 1:
            self._refuse(f"step_size is {step_size}", "give 1 or more steps")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self.in_force
        return [rate * self.gamma for rate in self.in_force]

    def closed_form(self) -> Rates:
        factor = self.gamma ** (self.last_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class ExponentialLR(Scheduler):
    """The rate times gamma after every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        return self.in_force if self._is_initial else [rate * self.gamma for rate in self.in_force]

    def closed_form(self) -> Rates:
        return [base * self.gamma ** self.last_epoch for base in self.base_lrs]


class ConstantLR(Scheduler):
    """The rate times a factor for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        if not 0 < factor <= 1:
            self._refuse(f"factor is {factor}", "give a number from 0 to 1, and not 0")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self.in_force]
        if self.last_epoch != self.total_iters:
            return self.in_force
        return [rate / self.factor for rate in self.in_force]

    def closed_form(self) -> Rates:
        factor = self.factor if self.last_epoch < self.total_iters else 1.0
        return [base * factor for base in self.base_lrs]


class LinearLR(Scheduler):
    """A warm-up: the rate times a factor that goes from one number to another."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3,
                 end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not (0 < start_factor <= 1 and 0 <= end_factor <= 1):
            self._refuse(f"start_factor is {start_factor}, end_factor {end_factor}",
                         "give numbers from 0 to 1, of which the first is not 0")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self.in_force]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self.in_force
        change = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * change
        return [rate * (1 + change / before) for rate in self.in_force]

    def closed_form(self) -> Rates:
        part = min(self.last_epoch, self.total_iters) / max(self.total_iters, 1)
        factor = self.start_factor + (self.end_factor - self.start_factor) * part
        return [base * factor for base in self.base_lrs]


class PolynomialLR(Scheduler):
    """From the first rate to 0 in `total_iters` steps, along a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
                 last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        if self._is_initial or self.last_epoch > self.total_iters:
            return self.in_force
        factor = (self._left(self.last_epoch) / self._left(self.last_epoch - 1)) ** self.power
        return [rate * factor for rate in self.in_force]

    def _left(self, step: int) -> float:
        return 1 - min(step, self.total_iters) / max(self.total_iters, 1)

    def closed_form(self) -> Rates:
        return [base * self._left(self.last_epoch) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(Scheduler):
    """From the first rate to `eta_min` along half a cosine wave of `T_max` steps."""

    def __init__(self, optimizer: Optimizer, T_max: int,  # noqa: N803
                 eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            self._refuse(f"T_max is {T_max}", "give 1 or more steps")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        step, length = self.last_epoch, self.T_max
        if self._is_initial:
            return self.in_force
        if self._step_count == 1 and step > 0:
            return self.closed_form()
        if (step - 1 - length) % (2 * length) == 0:
            rise = (1 - math.cos(math.pi / length)) / 2
            return [rate + (base - self.eta_min) * rise
                    for rate, base in zip(self.in_force, self.base_lrs, strict=False)]
        factor = (1 + math.cos(math.pi * step / length)) / (
            1 + math.cos(math.pi * (step - 1) / length))
        return [factor * (rate - self.eta_min) + self.eta_min for rate in self.in_force]

    def closed_form(self) -> Rates:
        part = self.last_epoch / self.T_max
        return [_wave(base, self.eta_min, part) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(Scheduler):
    """Half a cosine wave of `T_0` steps again and again, each `T_mult` times as long as the last.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1,  # noqa: N803
                 eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_0 < 1 or T_mult < 1:
            self._refuse(f"T_0 is {T_0}, T_mult {T_mult}", "give whole numbers from 1 on")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """By the number of steps alone, which may be a part of one."""
        step, length = self.last_epoch, self.T_0
        while step >= length:
            step, length = step - length, length * self.T_mult
            if self.T_mult == 1:
                step %= length
        return [_wave(base, self.eta_min, step / length) for base in self.base_lrs]


class _WithMomentum(Scheduler):
    """A schedule that moves the momentum, or Adam's first beta, against the rate."""

    def _begin_momentum(self, base: Any, most: Any, first: bool) -> None:
        """Take note of the ends between which the momentum goes."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            self._refuse(f"optim.{type(self.optimizer).__name__} has neither momentum nor betas",
                         "use cycle_momentum=False")
        low, high = self._each(base, "base_momentum"), self._each(most, "max_momentum")
        for group, least, greatest in zip(self.optimizer.param_groups, low, high, strict=True):
            if first:
                group["base_momentum"], group["max_momentum"] = least, greatest
                self._set_momentum(group, greatest)

    def _set_momentum(self, group: Any, value: float) -> None:
        if self.optimizer.moves_momentum:
            group.move_momentum(value)
        elif "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class OneCycleLR(_WithMomentum):
    """Up to `max_lr` and down to nearly nothing, along half a cosine wave or a line each, and the
    momentum against it (Smith, 2018).
    """

    def __init__(self, optimizer: Optimizer, max_lr: float | Sequence[float],
                 total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float | Sequence[float] = 0.85,
                 max_momentum: float | Sequence[float] = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                self._refuse("the number of steps is not known",
                             "give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            self._refuse(f"total_steps is {total_steps}, pct_start {pct_start}, anneal_strategy "
                         f"{anneal_strategy!r}", 'give 1 or more steps, a part from 0 to 1, and '
                         '"cos" or "linear"')
        self.total_steps, self.cycle_momentum = total_steps, cycle_momentum
        self._anneal_func_type, up = anneal_strategy, pct_start * total_steps - 1
        #: When each phase ends, and at which rate and momentum of a group.
        self.phases: list[tuple[float, str, str]] = [(up, "max_lr", "base_momentum")]
        if three_phase:
            self.phases.append((2 * up, "initial_lr", "max_momentum"))
        self.phases.append((total_steps - 1, "min_lr", "max_momentum"))
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, self._each(max_lr, "max_lr"),
                                   strict=True):
                first = most / div_factor
                group.update({"initial_lr": first, "max_lr": most,
                              "min_lr": first / final_div_factor})
        if cycle_momentum:
            self._begin_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        step = self.last_epoch
        if step > self.total_steps:
            self._refuse(f"step {step} of {self.total_steps}", "make the schedule longer: it is "
                         "stepped once for each batch")
        begun, rate, momentum = 0.0, "initial_lr", "max_momentum"
        for end, next_rate, next_momentum in self.phases:
            if step <= end or end == self.phases[-1][0]:
                break
            begun, rate, momentum = end, next_rate, next_momentum
        part = (step - begun) / (end - begun) if end != begun else 1.0
        between = _wave if self._anneal_func_type == "cos" else _line
        for group in self.optimizer.param_groups if self.cycle_momentum else ():
            self._set_momentum(group, between(group[momentum], group[next_momentum], part))
        return [between(group[rate], group[next_rate], part)
                for group in self.optimizer.param_groups]


class CyclicLR(_WithMomentum):
    """Up and down between two rates, again and again (Smith, 2015), and the momentum against it.

    The `mode` says how the height of each cycle shrinks: "triangular" not at all, "triangular2" by
    half, "exp_range" by `gamma` at each step. A `scale_fn` says it of the number of the cycle, or
    of the step with `scale_mode="iterations"`.
    """

    _unsaved = ("optimizer", "scale_fn")

    def __init__(self, optimizer: Optimizer, base_lr: float | Sequence[float],
                 max_lr: float | Sequence[float], step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: float | Sequence[float] = 0.8,
                 max_momentum: float | Sequence[float] = 0.9, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            self._refuse(f"mode is {mode!r}",
                         'use "triangular", "triangular2" or "exp_range", or give a scale_fn')
        first = self._each(base_lr, "base_lr")
        if last_epoch == -1:
            self._set(first)
        self.max_lrs = self._each(max_lr, "max_lr")
        self.total_size = step_size_up + (step_size_down or step_size_up)
        if step_size_up < 1:
            self._refuse(f"step_size_up is {step_size_up}", "give 1 or more steps")
        self.step_ratio, self.mode, self.gamma = step_size_up / self.total_size, mode, gamma
        self.scale_fn, self.cycle_momentum = scale_fn, cycle_momentum
        self.scale_mode = scale_mode if scale_fn is not None else \
            "iterations" if mode == "exp_range" else "cycle"
        if cycle_momentum:
            self._begin_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = first

    def _scale(self, number: float) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(number)
        if self.mode == "exp_range":
            grown: float = self.gamma ** number
            return grown
        return 1.0 if self.mode == "triangular" else 0.5 ** (number - 1)

    def get_lr(self) -> Rates:
        place = self.last_epoch / self.total_size
        cycle = math.floor(1 + place)
        part = 1 + place - cycle
        height = part / self.step_ratio if part <= self.step_ratio \
            else (part - 1) / (self.step_ratio - 1)
        height *= self._scale(cycle if self.scale_mode == "cycle" else self.last_epoch)
        for group in self.optimizer.param_groups if self.cycle_momentum else ():
            most = group["max_momentum"]
            self._set_momentum(group, most - (most - group["base_momentum"]) * height)
        return [base + (most - base) * height
                for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]


class _OfSchedulers(Scheduler):
    """A schedule made of others."""

    _unsaved = ("optimizer", "schedulers")

    def __init__(self, optimizer: Optimizer | None, schedulers: Sequence[Scheduler]) -> None:
        self.schedulers = list(schedulers)
        if not self.schedulers:
            self._refuse("there are no schedules", "give one or more")
        self.optimizer = optimizer or self.schedulers[0].optimizer
        for one in self.schedulers:
            if isinstance(one, ReduceLROnPlateau):
                self._refuse("a step of ReduceLROnPlateau needs a measure", "step it by itself")
            if one.optimizer is not self.optimizer:
                self._refuse("the schedules are of several optimizers", "make one for each")

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule is, and where each of those is that it is made of."""
        return {**super().state_dict(),
                "_schedulers": [one.state_dict() for one in self.schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where a schedule was whose `state_dict` this is, and set its rates."""
        for one, state in zip(self.schedulers, state_dict.get("_schedulers", ()), strict=False):
            one.load_state_dict(state)
        super().load_state_dict({"last_epoch": 0, **state_dict})


class SequentialLR(_OfSchedulers):
    """One schedule after another: the next one begins at each of some numbers of steps."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Scheduler],
                 milestones: Sequence[int], last_epoch: int = -1) -> None:
        super().__init__(optimizer, schedulers)
        self._milestones = list(milestones)
        if len(self.schedulers) != len(self._milestones) + 1:
            self._refuse(f"{len(self.schedulers)} schedules have {len(self._milestones)} "
                         "milestones", "give one milestone between each two of them")
        self.last_epoch = last_epoch + 1
        self._set([group["initial_lr"] for group in optimizer.param_groups])
        self._take_back(self)
        self._at(0)._begin()
        self._last_lr = self._at(0).get_last_lr()

    def _take_back(self, schedule: Scheduler) -> None:
        """Let schedules be where they were before their first step."""
        for one in schedule.schedulers if isinstance(schedule, _OfSchedulers) else ():
            self._take_back(one)
        if not isinstance(schedule, _OfSchedulers):
            schedule.last_epoch -= 1

    def _at(self, step: int) -> Scheduler:
        return self.schedulers[sum(step >= each for each in self._milestones)]

    def _begin(self) -> None:
        """The step to the first rates, within another sequence."""
        self._at(0)._begin()

    def step(self, epoch: int | None = None) -> None:
        """One step further."""
        self.last_epoch += 1
        one = self._at(self.last_epoch)
        if self.last_epoch in self._milestones:
            one._update(0)
        else:
            one.step()
        self._last_lr = one.get_last_lr()


class ChainedScheduler(_OfSchedulers):
    """Several schedules at once: each makes its change to the rate that the one before has set."""

    def __init__(self, schedulers: Sequence[Scheduler], optimizer: Optimizer | None = None) -> None:
        super().__init__(optimizer, schedulers)
        self._last_lr = self.in_force

    def step(self, epoch: int | None = None) -> None:
        """One step further, of each."""
        for one in self.schedulers:
            one.step()
        self._last_lr = self.in_force


class ReduceLROnPlateau(Scheduler):
    """The rates times a factor where a measure has not become better for `patience` steps."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1,
                 patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel",
                 cooldown: int = 0, min_lr: float | Sequence[float] = 0.0,
                 eps: float = 1e-8) -> None:
        if not isinstance(optimizer, Optimizer):
            self._refuse(f"{type(optimizer).__name__} is no optimizer", "give the optimizer first")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            self._refuse(f"mode is {mode!r}, threshold_mode {threshold_mode!r}",
                         'mode is "min" or "max", threshold_mode "rel" or "abs"')
        if factor >= 1:
            self._refuse(f"factor is {factor}", "give a number below 1")
        self.optimizer, self.last_epoch = optimizer, 0
        self.mode, self.factor, self.patience, self.threshold = mode, factor, patience, threshold
        self.threshold_mode, self.cooldown, self.eps = threshold_mode, cooldown, eps
        self.min_lrs = self._each(min_lr, "min_lr")
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0
        self._last_lr = self.in_force

    def step(self, metrics: Any = None,  # type: ignore[override]  # as in PyTorch
             epoch: int | None = None) -> None:
        """Take note of a measure, such as a loss, taken after an epoch.

        Raises:
            ArgumentError: there is none.
        """
        if metrics is None:  # r[impl errors.argument.refused]
            raise ArgumentError("lr_scheduler.ReduceLROnPlateau.step", "no measure is given",
                                "give the loss, step(loss)")
        measure = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._better(measure):
            self.best, self.num_bad_epochs = measure, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            lower = [max(rate * self.factor, least)
                     for rate, least in zip(self.in_force, self.min_lrs, strict=False)]
            self._set([new if old - new > self.eps else old
                       for old, new in zip(self.in_force, lower, strict=False)])
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.in_force

    def _better(self, measure: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            return sign * measure > sign * self.best * (1 + sign * self.threshold)
        return sign * measure > sign * self.best + self.threshold


def _wave(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2


def _line(first: float, last: float, part: float) -> float:
    return first + (last - first) * part
