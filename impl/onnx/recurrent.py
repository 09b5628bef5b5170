"""RNN, GRU and LSTM: one step, and a loop over the places of a sequence."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from impl.onnx.operators import operator
from impl.tensor import Tensor
from impl.transforms import scan

_State = tuple[Tensor, ...]
_Activation = Callable[[Tensor], Tensor]


def _affine(x: Tensor, alpha: float, beta: float) -> Tensor:
    return x * alpha + beta


#: Activations by their lower names, with the defaults of their two numbers.
_ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "tanh": (Tensor.tanh, ()), "sigmoid": (Tensor.sigmoid, ()), "relu": (Tensor.relu, ()),
    "softsign": (Tensor.softsign, ()), "softplus": (Tensor.softplus, ()),
    "affine": (_affine, (1.0, 0.0)),
    "leakyrelu": (lambda x, alpha: x.leaky_relu(alpha), (0.01,)),
    "elu": (lambda x, alpha: x.elu(alpha), (1.0,)),
    "thresholdedrelu": (lambda x, alpha: (x > alpha).where(x, 0), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: (x * beta).tanh() * alpha, (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: (x * alpha + beta).clamp(0, 1), (0.2, 0.5))}


def _chosen(names: list[str], alphas: list[float], betas: list[float]) -> list[_Activation]:
    """The activations of a node; their numbers stand in lists, for those that have any."""
    alpha, beta = iter(alphas), iter(betas)
    found: list[_Activation] = []
    for name in names:
        function, defaults = _ACTIVATIONS[name.lower()]
        given = [next(source, default) for source, default
                 in zip((alpha, beta), defaults, strict=False)]
        found.append(functools.partial(_applied, function, given))
    return found


def _applied(function: Callable[..., Tensor], given: list[float], x: Tensor) -> Tensor:
    return function(x, *given)


class _Layer:
    """What RNN, GRU and LSTM have in common: directions, lengths, layouts."""

    def __init__(self, x: Tensor, weight: Tensor, again: Tensor, bias: Tensor | None,
                 lengths: Tensor | None, first: tuple[Tensor | None, ...], *, layout: int,
                 direction: str, clip: float | None, hidden_size: int | None) -> None:
        self.x = x.transpose(0, 1) if layout else x
        self.weight, self.again, self.lengths = weight, again, lengths
        self.layout, self.direction, self.clip = layout, direction, clip
        self.width = hidden_size or again.shape[-1]
        rows = weight.shape[1]
        zeros = Tensor.zeros(weight.shape[0], 2 * rows, dtype=x.dtype, device=x.device)
        self.bias = zeros if bias is None else bias
        self.rows = rows
        batch = self.x.shape[1]
        none = Tensor.zeros(weight.shape[0], batch, self.width, dtype=x.dtype, device=x.device)
        self.first = [none if each is None else each.transpose(0, 1) if layout else each
                      for each in first]

    def limited(self, x: Tensor) -> Tensor:
        """What enters an activation."""
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def run(self, step: Callable[[int, Tensor, _State], _State]) -> tuple[Tensor, list[Tensor]]:
        """The outputs of all places, (places, directions, batch, width), and the last states."""
        outputs, last = [], []
        for place in range(self.weight.shape[0]):
            back = place == 1 or self.direction == "reverse"
            entries = self.x @ self.weight[place].transpose(0, 1)
            state, output = self._along(functools.partial(step, place), entries,
                                        tuple(each[place] for each in self.first), back)
            outputs.append(output)
            last.append(state)
        whole = Tensor.stack(*outputs, dim=1)
        states = [Tensor.stack(*each) for each in zip(*last, strict=True)]
        if self.layout:
            return whole.permute(2, 0, 1, 3), [each.transpose(0, 1) for each in states]
        return whole, states

    def _along(self, step: Callable[[Tensor, _State], _State], entries: Tensor, first: _State,
               back: bool) -> tuple[_State, Tensor]:
        lengths = self.lengths
        if lengths is None:
            def turn(before: _State, entry: Tensor) -> tuple[_State, Tensor]:
                after = step(entry, before)
                return after, after[0]
            return scan(turn, first, entries, reverse=back)
        time = Tensor.arange(entries.shape[0], device=entries.device)
        ends = lengths.reshape(-1, 1)

        def turn_if_there(before: _State, given: Any) -> tuple[_State, Tensor]:
            entry, now = given
            is_there = now < ends
            after = step(entry, before)
            kept = tuple(is_there.where(new, old) for new, old in zip(after, before, strict=True))
            return kept, is_there.where(after[0], 0)
        return scan(turn_if_there, first, (entries, time), reverse=back)


def _names(given: list[str] | None, usual: list[str], directions: int) -> list[str]:
    return given or usual * directions


@operator("RNN")
def rnn(x: Tensor, weight: Tensor, again: Tensor, bias: Tensor | None = None,
        lengths: Tensor | None = None, first: Tensor | None = None, *,
        activation_alpha: list[float] | None = None, activation_beta: list[float] | None = None,
        activations: list[str] | None = None, clip: float | None = None,
        direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
        output_sequence: int = 0) -> Any:
    layer = _Layer(x, weight, again, bias, lengths, (first,), layout=layout, direction=direction,
                   clip=clip, hidden_size=hidden_size)
    chosen = _chosen(_names(activations, ["Tanh"], weight.shape[0]), activation_alpha or [],
                     activation_beta or [])

    def step(place: int, entry: Tensor, before: _State) -> _State:
        one, two = layer.bias[place].chunk(2)
        sum_of_both = entry + before[0] @ again[place].transpose(0, 1) + one + two
        return (chosen[place](layer.limited(sum_of_both)),)
    whole, (last,) = layer.run(step)
    return whole, last


@operator("GRU")
def gru(x: Tensor, weight: Tensor, again: Tensor, bias: Tensor | None = None,
        lengths: Tensor | None = None, first: Tensor | None = None, *,
        activation_alpha: list[float] | None = None, activation_beta: list[float] | None = None,
        activations: list[str] | None = None, clip: float | None = None,
        direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
        linear_before_reset: int = 0, output_sequence: int = 0) -> Any:
    layer = _Layer(x, weight, again, bias, lengths, (first,), layout=layout, direction=direction,
                   clip=clip, hidden_size=hidden_size)
    chosen = _chosen(_names(activations, ["Sigmoid", "Tanh"], weight.shape[0]),
                     activation_alpha or [], activation_beta or [])

    def step(place: int, entry: Tensor, before: _State) -> _State:
        gate, new = chosen[2 * place:2 * place + 2]
        h = before[0]
        one, two = layer.bias[place].chunk(2)
        from_x = (entry + one).chunk(3, dim=-1)
        matrices = again[place].chunk(3, dim=0)
        biases = two.chunk(3)
        keep, reset = (gate(layer.limited(part + h @ matrix.transpose(0, 1) + more))
                       for part, matrix, more in zip(from_x[:2], matrices, biases, strict=False))
        if linear_before_reset:
            more = reset * (h @ matrices[2].transpose(0, 1) + biases[2])
        else:
            more = (reset * h) @ matrices[2].transpose(0, 1) + biases[2]
        fresh = new(layer.limited(from_x[2] + more))
        return ((1 - keep) * fresh + keep * h,)
    whole, (last,) = layer.run(step)
    return whole, last


@operator("LSTM")
def long_short(x: Tensor, weight: Tensor, again: Tensor, bias: Tensor | None = None,
               lengths: Tensor | None = None, first: Tensor | None = None,
               first_cell: Tensor | None = None, peephole: Tensor | None = None, *,
               activation_alpha: list[float] | None = None,
               activation_beta: list[float] | None = None, activations: list[str] | None = None,
               clip: float | None = None, direction: str = "forward",
               hidden_size: int | None = None, input_forget: int = 0, layout: int = 0,
               output_sequence: int = 0) -> Any:
    layer = _Layer(x, weight, again, bias, lengths, (first, first_cell), layout=layout,
                   direction=direction, clip=clip, hidden_size=hidden_size)
    chosen = _chosen(_names(activations, ["Sigmoid", "Tanh", "Tanh"], weight.shape[0]),
                     activation_alpha or [], activation_beta or [])

    def step(place: int, entry: Tensor, before: _State) -> _State:
        gate, new, out = chosen[3 * place:3 * place + 3]
        h, cell = before
        one, two = layer.bias[place].chunk(2)
        parts = (entry + h @ again[place].transpose(0, 1) + one + two).chunk(4, dim=-1)
        start, output, forget, fresh = parts
        if peephole is not None:
            into, outward, kept = peephole[place].chunk(3)
            start, forget = start + into * cell, forget + kept * cell
        entering = gate(layer.limited(start))
        leaving = 1 - entering if input_forget else gate(layer.limited(forget))
        after = leaving * cell + entering * new(layer.limited(fresh))
        if peephole is not None:
            output = output + outward * after
        return gate(layer.limited(output)) * out(after), after
    whole, (last, last_cell) = layer.run(step)
    return whole, last, last_cell
