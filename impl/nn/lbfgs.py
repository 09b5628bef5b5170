"""Steps by an estimate of the curvature, from the last gradients (Nocedal, 1980)."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

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
                closure, place, loss, slope, direction, rate)
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
               direction: Tensor, rate: float) -> tuple[float, float, Tensor, Tensor, int]:
        """How far was gone, the loss, place and slope there, and how often the closure ran."""
        seen = dict[float, tuple[float, Tensor, Tensor]]()
        seen[0.0] = loss, place, slope

        def at(length: float) -> tuple[float, Tensor, Tensor]:
            if length not in seen:
                vector_to_parameters(place + direction * length, self.params)
                seen[length] = float(closure()), self._place(), self._slope()
            return seen[length]

        if self.param_groups[0].options["line_search_fn"]:
            rate = _wolfe(lambda length: at(length)[0],
                          lambda length: float((at(length)[2] * direction).sum()), rate)
        found, there, turned = at(rate)
        vector_to_parameters(there, self.params)
        return rate, found, there, turned, len(seen) - 1


def _wolfe(value: Callable[[float], float], slope: Callable[[float], float],
           first: float) -> float:
    """A length for which the value fell enough and the slope, too, in at most 25 trials.

    It is looked for between the largest that is too short and the least that is too long.
    """
    start, fall = value(0.0), slope(0.0)
    low, high, length = 0.0, float("inf"), first
    for _ in range(25):
        if not value(length) <= start + 1e-4 * length * fall:
            high = length
        elif slope(length) < 0.9 * fall:
            low = length
        elif slope(length) > -0.9 * fall:
            high = length
        else:
            break
        length = 2 * length if high == float("inf") else (low + high) / 2
    return length
