"""Layers that go through a sequence: RNN, LSTM, GRU, and one step of each."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from impl.errors import ShapeError
from impl.nn.linear import uniform_weights
from impl.nn.module import Module, sizes
from impl.nn.rnn import PackedSequence
from impl.tensor import Tensor
from impl.transforms import scan

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

#: From the parts of a step that the input and the state before give to the state after.
_State = tuple[Tensor, ...]
_Step = Callable[[Tensor, Tensor, _State], _State]


def _tanh(entry: Tensor, again: Tensor, before: _State) -> _State:
    return ((entry + again).tanh(),)


def _relu(entry: Tensor, again: Tensor, before: _State) -> _State:
    return ((entry + again).relu(),)


def _lstm(entry: Tensor, again: Tensor, before: _State) -> _State:
    start, forget, new, output = (entry + again).chunk(4, dim=-1)
    cell = forget.sigmoid() * before[1] + start.sigmoid() * new.tanh()
    return output.sigmoid() * cell.tanh(), cell


def _gru(entry: Tensor, again: Tensor, before: _State) -> _State:
    (reset, keep, new), (more_reset, more_keep, more_new) = (
        one.chunk(3, dim=-1) for one in (entry, again))
    kept = (keep + more_keep).sigmoid()
    fresh = (new + (reset + more_reset).sigmoid() * more_new).tanh()
    return ((1 - kept) * fresh + kept * before[0],)


#: How many times the hidden size a step computes, and the step.
_KINDS: dict[str, tuple[int, _Step]] = {
    "tanh": (1, _tanh), "relu": (1, _relu), "lstm": (4, _lstm), "gru": (3, _gru)}


def _kind(layer: Module, name: str) -> tuple[int, _Step]:
    if name not in _KINDS:
        raise ShapeError(f"nn.{type(layer).__name__}", f"nonlinearity={name!r} is not known",
                         'use "tanh" or "relu"')
    return _KINDS[name]


class RNNCellBase(Module):
    """What one step of all kinds has in common."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh") -> None:
        sizes(self, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        rows = _kind(self, nonlinearity)[0] * hidden_size
        self.weight_ih = uniform_weights((rows, input_size), hidden_size)
        self.weight_hh = uniform_weights((rows, hidden_size), hidden_size)
        self.bias_ih = uniform_weights((rows,), hidden_size) if bias else None
        self.bias_hh = uniform_weights((rows,), hidden_size) if bias else None

    def _step(self, x: Tensor, before: _State) -> _State:
        entry = x.linear(self.weight_ih, self.bias_ih)
        again = before[0].linear(self.weight_hh, self.bias_hh)
        return _kind(self, self.nonlinearity)[1](entry, again, before)

    def _first(self, x: Tensor) -> Tensor:
        return _zeros(x, *x.shape[:-1], self.hidden_size)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step(input, (self._first(input) if hx is None else hx,))[0]


class RNNCell(RNNCellBase):
    """One step: tanh(W_ih @ x + b_ih + W_hh @ h + b_hh)."""


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias, "gru")


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (x, (h, c)) -> (h, c)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias, "lstm")

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step(input, hx or (self._first(input),) * 2)


def _zeros(x: Tensor, *sizes: int) -> Tensor:
    """A first state of a shape, for an input."""
    return Tensor.zeros(*sizes, dtype=x.dtype, device=x.device)


class RNNBase(Module):
    """Layers of cells over (length, batch, features), or over (batch, length, features) with
    `batch_first`; the batch may be left out.

    Returns the outputs of the last layer at all places, and the last states (layers, batch,
    hidden_size), those of both directions one after the other.
    """

    #: What the states are called: h, and for an LSTM c.
    _states: int = 1

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1,
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, proj_size: int = 0) -> None:
        """`mode` is "RNN_TANH", "RNN_RELU", "LSTM" or "GRU"."""
        sizes(self, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.nonlinearity, self.bias = mode.removeprefix("RNN_").lower(), bias
        self.batch_first = batch_first
        self.dropout, self.bidirectional, self.proj_size = dropout, bidirectional, proj_size
        self._states = 1 + (mode == "LSTM")
        for layer in range(num_layers):
            for end in self._ends():
                self._make(f"l{layer}{end}", layer)

    def _ends(self) -> tuple[str, ...]:
        """How names of weights end, for each direction."""
        return ("", "_reverse") if self.bidirectional else ("",)

    def _make(self, name: str, layer: int) -> None:
        """The weights of one layer and direction, with PyTorch's names."""
        rows, width = _kind(self, self.nonlinearity)[0] * self.hidden_size, self.hidden_size
        out = self.proj_size or width
        columns = self.input_size if layer == 0 else out * len(self._ends())
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, columns), "weight_hh": (rows, out)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes |= {"weight_hr": (out, width)}
        for part, shape in shapes.items():
            setattr(self, f"{part}_{name}", uniform_weights(shape, width))

    def _weight(self, part: str, name: str) -> Tensor | None:
        held: Tensor | None = vars(self).get(f"{part}_{name}")
        formula = self._formulas.get(f"{part}_{name}")
        return held if formula is None else formula(self)

    def _along(self, x: Tensor, first: _State, name: str,
               there: Tensor | None) -> tuple[_State, Tensor]:
        """One layer in one direction: its last states, and its outputs.

        `there` says at which places (length, batch, 1) a sequence goes on: elsewhere its states
        stay what they are.
        """
        weight, bias = self._weight("weight_hh", name), self._weight("bias_hh", name)
        smaller = self._weight("weight_hr", name)
        step = _kind(self, self.nonlinearity)[1]
        assert weight is not None

        def again(before: _State, entry: Tensor) -> tuple[_State, Tensor]:
            after = step(entry, before[0].linear(weight, bias), before)
            if smaller is not None:
                after = (after[0].linear(smaller), *after[1:])
            return after, after[0]

        entering = self._weight("weight_ih", name)
        assert entering is not None
        entries = x.linear(entering, self._weight("bias_ih", name))
        backward = name.endswith("_reverse")
        if there is None:
            return scan(again, first, entries, reverse=backward)

        def where_there(before: _State, entry: Any) -> tuple[_State, Tensor]:
            after, _ = again(before, entry[0])
            kept = tuple(entry[1].where(one, two) for one, two in zip(after, before, strict=True))
            return kept, kept[0]
        return scan(where_there, first, (entries, there), reverse=backward)

    def _first(self, x: Tensor, given: Any) -> _State:
        """The first states: (layers * directions, batch, width) each."""
        if given is not None:
            return (given,) if self._states == 1 else tuple(given)
        count = self.num_layers * len(self._ends())
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[:self._states]
        return tuple(_zeros(x, count, x.shape[1], width) for width in widths)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return input.through(self, hx)
        single = input.ndim == 2
        if single:
            x, hx = input.unsqueeze(1), _batched(hx)
        else:
            x = input.transpose(0, 1) if self.batch_first else input
        x, last = self._all(x, self._first(x, hx))
        if single:
            x, last = x.squeeze(1), tuple(one.squeeze(1) for one in last)
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, last[0] if self._states == 1 else last

    def _all(self, x: Tensor, first: _State,
             there: Tensor | None = None) -> tuple[Tensor, _State]:
        """All layers: the outputs and the last states."""
        last: list[_State] = []
        for layer in range(self.num_layers):
            if layer:
                x = x.dropout(self.dropout, self.training)
            outputs = []
            for end in self._ends():
                state, output = self._along(x, tuple(one[len(last)] for one in first),
                                            f"l{layer}{end}", there)
                last.append(state)
                outputs.append(output)
            x = outputs[0] if len(outputs) == 1 else outputs[0].cat(outputs[1], dim=-1)
        return x, tuple(Tensor.stack(*several) for several in zip(*last, strict=True))


def _batched(given: Any) -> Any:
    """States of one sequence as those of a batch of one."""
    return given if given is None else given.unsqueeze(1) if isinstance(given, Tensor) \
        else tuple(one.unsqueeze(1) for one in given)


class RNN(RNNBase):
    """Layers of RNN cells, with a "tanh" or a "relu"; results are those of `RNNBase`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1,
                 nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0) -> None:
        super().__init__(f"RNN_{nonlinearity}".upper(), input_size, hidden_size, num_layers, bias,
                         batch_first, dropout, bidirectional, proj_size)


class GRU(RNNBase):
    """Layers of GRU cells; arguments and results are those of `RNNBase`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False) -> None:
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional)


class LSTM(RNNBase):
    """Layers of LSTM cells; the states are (h, c), all else is as in `RNNBase`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 proj_size: int = 0) -> None:
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, proj_size)
