"""Optimisers that adapt the length of each step, with PyTorch's names, options and states."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from impl.dtypes import finfo
from impl.nn.optim import Adam, Optimizer, ParameterGroup, Parameters, State, laid_by, wide
from impl.tensor import Tensor

__all__ = ["ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "Rprop"]


class Adadelta(Optimizer):
    """Steps as long as the ones before, over the gradients before them (Zeiler, 2012)."""

    def __init__(self, params: Parameters, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0.0, *, maximize: bool = False) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
                                  "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("square_avg", "acc_delta")

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        rho, eps = group.options["rho"], group.options["eps"]
        gradient = gradient + parameter.detach() * group.options["weight_decay"]
        square, steps = state["square_avg"], state["acc_delta"]
        square.assign(square * rho + gradient.square() * (1 - rho))
        update = (steps + eps).sqrt() / (square + eps).sqrt() * gradient
        steps.assign(steps * rho + update.square() * (1 - rho))
        self.move(group, parameter, update)


class Adamax(Adam):
    """Adam with the largest gradient in place of a mean of squares (Kingma and Ba, 2014)."""

    moves_momentum = False

    def __init__(self, params: Parameters, lr: float = 0.002,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, *, maximize: bool = False) -> None:
        Optimizer.__init__(self, params, {"lr": lr, "betas": tuple(betas), "eps": eps,
                                          "weight_decay": weight_decay, "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("exp_avg", "exp_inf")

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        b1, b2 = group.options["betas"]
        gradient = gradient + parameter.detach() * group.options["weight_decay"]
        first, most = state["exp_avg"], state["exp_inf"]
        first.assign(first * b1 + gradient * (1 - b1))
        most.assign((most * b2).maximum(gradient.abs() + group.options["eps"]))
        self.move(group, parameter, first / laid_by(group.shared["first_weight"], parameter) / most)


class _Corrected(Adam):
    """What NAdam and RAdam have in common: means of gradients and squares, and two decays."""

    moves_momentum = False

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("exp_avg", "exp_avg_sq")

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        (b1, b2), decay = group.options["betas"], group.options["weight_decay"]
        value, late = parameter.detach(), group.options["decoupled_weight_decay"]
        if decay and not late:
            gradient = gradient + value * decay
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.assign(first * b1 + gradient * (1 - b1))
        second.assign(second * b2 + gradient.square() * (1 - b2))
        update = self.update(group, parameter, gradient, state)
        self.move(group, parameter, update + value * decay if decay and late else update)

    def update(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> Tensor:
        """What is subtracted, before it is multiplied by the rate."""
        raise NotImplementedError


class NAdam(_Corrected):
    """Adam that looks ahead, as Nesterov's momentum does (Dozat, 2016)."""

    def __init__(self, params: Parameters, lr: float = 0.002,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum_decay: float = 0.004,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False) -> None:
        Optimizer.__init__(self, params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("exp_avg", "exp_avg_sq", "mu_product")

    def memory(self, name: str, parameter: Tensor) -> Tensor:
        """One of these memories before the first step: the product is a number for each."""
        if name != "mu_product":
            return super().memory(name, parameter)
        return laid_by(Tensor(1.0), parameter).clone()

    def loaded(self, name: str, saved: Mapping[str, Any]) -> Any:
        """A memory's value by the `saved` ones; the product of no step is 1."""
        return saved.get(name, Tensor(1.0) if name == "mu_product" else None)

    def update(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> Tensor:
        options, step = group.options, laid_by(group.shared["step"], parameter)
        b1, decay = options["betas"][0], options["momentum_decay"]
        now, ahead = ((0.96 ** ((step + late) * decay) * -0.5 + 1) * b1 for late in (0, 1))
        product = state["mu_product"]
        product.assign((product * now).cast(product.dtype))
        size = (state["exp_avg_sq"] / laid_by(group.shared["second_weight"], parameter)).sqrt()
        return (gradient * ((1 - now) / (1 - product))
                + state["exp_avg"] * (ahead / (1 - product * ahead))) / (size + options["eps"])


class RAdam(_Corrected):
    """Adam that does not divide before enough gradients were seen (Liu and others, 2019)."""

    def __init__(self, params: Parameters, lr: float = 0.001,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *,
                 maximize: bool = False) -> None:
        Optimizer.__init__(self, params, {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay})

    def update(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> Tensor:
        step, first, second = (laid_by(one, parameter) for one in group.shared.values())
        longest = 2 / (1 - group.options["betas"][1]) - 1
        length = longest - step * 2 * (1 - second) / second
        ratio = (length - 4) * (length - 2) / length * (
            longest / ((longest - 4) * (longest - 2)))
        size = state["exp_avg_sq"].sqrt() + group.options["eps"]
        share = (length > 5).where(ratio.maximum(0).sqrt() * second.sqrt() / size, 1.0)
        return state["exp_avg"] / first * share


class Rprop(Optimizer):
    """Steps by the sign of the gradient alone, longer while it stays (Riedmiller, 1993)."""

    counters = ("step",)

    def __init__(self, params: Parameters, lr: float = 0.01,
                 etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50.0), *,
                 maximize: bool = False) -> None:
        super().__init__(params, {"lr": lr, "etas": tuple(etas), "step_sizes": tuple(step_sizes),
                                  "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("prev", "step_size")

    def first_values(self, group: ParameterGroup) -> None:
        for state in group.states:
            state["step_size"].assign(group["lr"])

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        (less, more), (least, most) = group.options["etas"], group.options["step_sizes"]
        before, size = state["prev"], state["step_size"]
        turn = gradient * before
        size.assign((size * (turn > 0).where(more, (turn < 0).where(less, 1.0))).clamp(least, most))
        gradient = (turn < 0).where(0.0, gradient)
        before.assign(gradient)
        value = parameter.detach()
        parameter.assign((value - gradient.sign() * size).cast(wide(parameter.dtype))
                         .cast(parameter.dtype))


class ASGD(Optimizer):
    """Gradient descent, and beside it the mean of all parameters so far, `ax` (Polyak, 1992)."""

    counters = ("step",)

    def __init__(self, params: Parameters, lr: float = 0.01, lambd: float = 1e-4,
                 alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0.0, *,
                 maximize: bool = False) -> None:
        super().__init__(params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0,
                                  "weight_decay": weight_decay, "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("eta", "mu", "ax")

    def memory(self, name: str, parameter: Tensor) -> Tensor:
        """One of these memories before the first step: two are numbers."""
        return super().memory(name, parameter) if name == "ax" \
            else laid_by(Tensor(1.0, dtype=wide(parameter.dtype)), parameter).clone()

    def first_values(self, group: ParameterGroup) -> None:
        for state in group.states:
            state["eta"].assign(group["lr"])

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        options, (eta, mu, ax) = group.options, (state[name] for name in ("eta", "mu", "ax"))
        step, rate = (laid_by(one, parameter) for one in (group.shared["step"], group.rate))
        value = parameter.detach().cast(ax.dtype)
        gradient = gradient + value * options["weight_decay"]
        value = value * (1 - eta * options["lambd"]) - gradient * eta
        ax.assign((mu == 1).where(value, ax + (value - ax) * mu))
        parameter.assign(value.cast(parameter.dtype))
        length = (rate * step * options["lambd"] + 1) ** options["alpha"]
        eta.assign((rate / length).cast(eta.dtype))
        mu.assign((1 / (step - options["t0"]).maximum(1)).cast(mu.dtype))


class Adafactor(Optimizer):
    """Steps by squares of which matrices keep the means of rows and columns only, as long as the
    parameters are large (Shazeer and Stern, 2018).
    """

    counters = ("step",)

    def __init__(self, params: Parameters, lr: float = 0.01, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, maximize: bool = False) -> None:
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": tuple(eps), "d": d,
                                  "weight_decay": weight_decay, "maximize": maximize})

    def memories(self, options: Mapping[str, Any], parameter: Tensor) -> Sequence[str]:
        return ("row_var", "col_var") if parameter.ndim > 1 else ("variance",)

    def memory(self, name: str, parameter: Tensor) -> Tensor:
        """One of these memories before the first step: of a matrix a column, or a row."""
        whole = super().memory(name, parameter)
        axis = {"row_var": -1, "col_var": -2}.get(name)
        return whole if axis is None else whole.narrow(axis, 0, 1).clone()

    def change(self, group: ParameterGroup, parameter: Tensor, gradient: Tensor,
               state: State) -> None:
        options, value = group.options, parameter.detach().cast(wide(parameter.dtype))
        step, rate = (laid_by(one, parameter) for one in (group.shared["step"], group.rate))
        small, least = options["eps"]
        small = finfo(parameter.dtype).eps if small is None else small
        share, square = step ** options["beta2_decay"], gradient.square()
        for name, axis in (("row_var", -1), ("col_var", -2), ("variance", None)):
            if name in state:
                mean = square if axis is None else square.mean(axis, keepdim=True)
                state[name].assign((state[name] + (mean - state[name]) * share).cast(square.dtype))
        if "variance" in state:
            size = state["variance"]
        else:
            rows = state["row_var"]
            size = rows * state["col_var"] / rows.mean(-2, keepdim=True).maximum(small)
        update = gradient / size.maximum(small * small).sqrt()
        length = value.square().mean().sqrt().maximum(least) * rate.minimum(1 / step.sqrt())
        length = length / (update.square().mean().sqrt() / options["d"]).maximum(1)
        value = value * (1 - rate * options["weight_decay"])
        parameter.assign((value - update * length).cast(parameter.dtype))
