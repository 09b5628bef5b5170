"""Steps by an estimate of the curvature, from the last gradients (Nocedal, 1980)."""
from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from impl.errors import ArgumentError
from impl.nn.optim import Optimizer, Parameters
from impl.nn.state import parameters_to_vector, vector_to_parameters
from impl.tensor import Tensor

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """PyTorch's LBFGS: `step(closure)` calls the closure as often as it needs to.

    The history is not in `state_dict`: after loading it begins anew.

    Raises:
        ArgumentError: there are several groups, `line_search_fn` is unknown, or `step` is called
            without a closure.
    """

    def __init__(self, params: Parameters, lr: float = 1.0, max_iter: int = 20,
                 max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None) -> None:
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval or max_iter * 5 // 4,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ArgumentError("optim.LBFGS", "there are several groups", "give one list")
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError("optim.LBFGS", f"line_search_fn is {line_search_fn!r}",
                                'use None or "strong_wolfe"')
        #: Changes of place and of gradient, the latest last; and place and gradient before.
        self._history: deque[tuple[Tensor, Tensor]] = deque(maxlen=history_size)
        self._before: tuple[Tensor, Tensor] | None = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters; returns the loss that the closure gave first."""
        if closure is None:
            raise ArgumentError("optim.LBFGS.step", "there is no closure",
                                "give a function that computes the loss, its gradients, and "
                                "returns it")
        options, calls = self.param_groups[0].options, 1
        first = closure()
        loss, place, slope = float(first), self._place(), self._slope()
        for turn in range(options["max_iter"]):
            if float(slope.abs().max()) <= options["tolerance_grad"]:
                break
            direction = self._direction(place, slope)
            along = float((slope * direction).sum())
            if along > -options["tolerance_change"]:
                break
            before, rate = loss, self._rate(slope)
            self._before = place, slope
            if turn == options["max_iter"] - 1 and not options["line_search_fn"]:
                vector_to_parameters(place + direction * rate, self.params)
                break  # the next call asks the closure about this place
            rate, loss, place, slope, more = self._moved(
                closure, place, loss, slope, direction, rate, options["max_eval"] - calls)
            calls += more
            largest = float((direction * rate).abs().max())
            if calls >= options["max_eval"] or largest <= options["tolerance_change"] or \
                    abs(loss - before) < options["tolerance_change"]:
                break
        return first

    def _place(self) -> Tensor:
        return parameters_to_vector(self.params).detach().clone().realize()

    def _slope(self) -> Tensor:
        return parameters_to_vector(
            each.zeros_like() if each.grad is None else each.grad.detach()
            for each in self.params).realize()

    def _rate(self, slope: Tensor) -> float:
        """The first step of all is no longer than the rate."""
        rate = float(self.param_groups[0]["lr"])
        return rate if self._before else min(1.0, 1.0 / float(slope.abs().sum())) * rate

    def _direction(self, place: Tensor, slope: Tensor) -> Tensor:
        """Minus the slope times the inverse of the curvature, as the history has it."""
        if self._before is not None:
            moved, turned = place - self._before[0], slope - self._before[1]
            if float((moved * turned).sum()) > 1e-10:
                self._history.append((moved.realize(), turned.realize()))
        result, shares = -slope, list[Tensor]()
        for moved, turned in reversed(self._history):
            shares.append((moved * result).sum() / (turned * moved).sum())
            result = result - turned * shares[-1]
        if self._history:
            moved, turned = self._history[-1]
            result = result * ((turned * moved).sum() / turned.square().sum())
        for (moved, turned), share in zip(self._history, reversed(shares), strict=True):
            result = result + moved * (share - (turned * result).sum() / (turned * moved).sum())
        return result.realize()

    def _moved(self, closure: Callable[[], Any], place: Tensor, loss: float, slope: Tensor,
               direction: Tensor, rate: float,
               most: int) -> tuple[float, float, Tensor, Tensor, int]:
        """How far was gone, the loss, place and slope there, and how often the closure ran."""
        seen = dict[float, tuple[float, Tensor, Tensor]]()
        seen[0.0] = loss, place, slope

        def at(length: float) -> tuple[float, Tensor, Tensor]:
            if length not in seen:
                vector_to_parameters(place + direction * length, self.params)
                seen[length] = float(closure()), self._place(), self._slope()
            return seen[length]

        if self.param_groups[0].options["line_search_fn"]:
            def along(length: float) -> _Trial:
                value, _, turned = at(length)
                return _Trial(length, value, float((turned * direction).sum()))
            rate = _wolfe(along, rate, float(direction.abs().max()), most)
        found, there, turned = at(rate)
        vector_to_parameters(there, self.params)
        return rate, found, there, turned, len(seen) - 1


class _Trial(NamedTuple):
    """A length, and the value and its slope along the direction there."""

    length: float
    value: float
    slope: float


def _wolfe(at: Callable[[float], _Trial], first: float, scale: float, most: int) -> float:
    """A length for which the value fell enough and the slope, too, in so many trials; PyTorch's
    search (Nocedal and Wright, 2006, algorithms 3.5 and 3.6).

    Args:
        scale: the largest part of the direction, which says when two lengths are as good as one.
    """
    start = at(0.0)
    ends, trials = _bracketed(at, start, first, most)
    if len(ends) == 1:
        return ends[0].length
    low, stuck = int(ends[0].value > ends[1].value), False
    while trials < most and abs(ends[1].length - ends[0].length) * scale >= 1e-9:
        least, greatest = sorted(each.length for each in ends)
        length, margin = _lowest(ends[0], ends[1], (least, greatest)), 0.1 * (greatest - least)
        near = min(greatest - length, length - least) < margin
        if near and (stuck or not least < length < greatest):
            beyond = abs(length - greatest) < abs(length - least)
            length, near = greatest - margin if beyond else least + margin, False
        stuck, trial, trials = near, at(length), trials + 1
        if not _fell(trial, start) or trial.value >= ends[low].value:
            ends[1 - low] = trial
            low = int(ends[0].value > ends[1].value)
            continue
        if abs(trial.slope) <= -0.9 * start.slope:
            return length
        if trial.slope * (ends[1 - low].length - ends[low].length) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = trial
    return ends[low].length


def _fell(trial: _Trial, start: _Trial) -> bool:
    return trial.value <= start.value + 1e-4 * trial.length * start.slope


def _bracketed(at: Callable[[float], _Trial], start: _Trial, first: float,
               most: int) -> tuple[list[_Trial], int]:
    """Two lengths with a good one between them, or a good one; and how many more were tried."""
    before, trial = start, at(first)
    for trials in range(most):
        if not _fell(trial, start) or (trials > 1 and trial.value >= before.value):
            return [before, trial], trials
        if abs(trial.slope) <= -0.9 * start.slope:
            return [trial], trials
        if trial.slope >= 0:
            return [before, trial], trials
        length = _lowest(before, trial, (1.01 * trial.length - 0.01 * before.length,
                                         10 * trial.length))
        before, trial = trial, at(length)
    return [start, trial], most


def _lowest(one: _Trial, two: _Trial, bounds: tuple[float, float]) -> float:
    """Where the cubic through two trials is lowest, within bounds; or the middle of them."""
    left, right = sorted((one, two))
    if left.length == right.length:
        return sum(bounds) / 2
    mean = left.slope + right.slope - 3 * (left.value - right.value) / (left.length - right.length)
    square = mean ** 2 - left.slope * right.slope
    root = math.sqrt(square) if square >= 0 else math.nan
    bend = right.slope - left.slope + 2 * root
    if not bend or math.isnan(bend):
        return sum(bounds) / 2
    found = right.length - (right.length - left.length) * (right.slope + root - mean) / bend
    return min(max(found, bounds[0]), bounds[1])
