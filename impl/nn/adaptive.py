"""Optimisers that adapt the length of each step, with PyTorch's names, options and states."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from impl.nn.optim import Adam, Optimizer, ParameterGroup, Parameters, State, laid_by, wide
from impl.tensor import Tensor

__all__ = ["Adadelta", "Adamax", "NAdam", "RAdam", "Rprop"]


class Adadelta(Optimizer):
    """Steps as long as the ones before, over the gradients before them (Zeiler, 2012)."""

    def __init__(self, params: Parameters, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0.0, *, maximize: bool = False) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
                                  "maximize": maximize})

    def memories(self, options: Mapping[str, Any]) -> Sequence[str]:
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

    def __init__(self, params: Parameters, lr: float = 0.002,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, *, maximize: bool = False) -> None:
        Optimizer.__init__(self, params, {"lr": lr, "betas": tuple(betas), "eps": eps,
                                          "weight_decay": weight_decay, "maximize": maximize})

    def memories(self, options: Mapping[str, Any]) -> Sequence[str]:
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

    def memories(self, options: Mapping[str, Any]) -> Sequence[str]:
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

    def memories(self, options: Mapping[str, Any]) -> Sequence[str]:
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
        product.assign(product * now)
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

    def memories(self, options: Mapping[str, Any]) -> Sequence[str]:
        return ("prev", "step_size")

    def first_values(self, group: ParameterGroup) -> None:
        for state in group.states:
            state["step_size"].assign(group["lr"])

    def before_step(self, group: ParameterGroup) -> list[Tensor]:
        step = group.shared["step"]
        return [step.assign(step + 1)]

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
