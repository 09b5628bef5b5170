"""A language model of LSTM layers: what it keeps of a text has one size, however long the text is.

Tensors have the names and shapes of `RNNModel("LSTM", ...)` in PyTorch's example of a language
model, such as `rnn.weight_ih_l0`.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from impl import Tensor, nn
from impl.errors import ArgumentError
from impl.models.writing import Kept, LanguageModel, Writer, positions
from impl.transforms import scan

__all__ = ["LSTMModel", "Writer", "load"]


class LSTMModel(LanguageModel):
    """Scores of the next token at each place.

    Args:
        tied: whether the embedding of tokens is also the head.
    """

    def __init__(self, ntoken: int, ninp: int = 200, nhid: int = 200, nlayers: int = 2,
                 tied: bool = False) -> None:
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        if tied:
            if nhid != ninp:
                raise ArgumentError("LSTMModel", f"a tied head, and {nhid} is not {ninp}",
                                    "give ninp and nhid the same size")
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor, caches: Sequence[Tensor] | None = None, start: Any = 0,
                padding: Tensor | None = None) -> Tensor:
        """(batch, places) of tokens to (batch, places, ntoken) of scores, see `LanguageModel`.

        The only cache, (2, batch, layers, width), has the states behind the last token.
        """
        x, layers = self.encoder(tokens).transpose(0, 1), self.rnn.num_layers
        if caches is None or isinstance(start, int):  # a text begins
            states = Tensor.zeros(*self.cache_sizes(tokens.shape[0], 0), dtype=x.dtype,
                                  device=x.device)
        else:
            states = caches[0]
        seen = None if padding is None else (
            positions(padding, start, tokens.shape[1]) >= 0).T.unsqueeze(-1).cast(x.dtype)
        last = []
        for layer in range(layers):
            x, state = self._along(x, states[:, :, layer], seen, layer)
            last.append(state)
        if caches is not None:
            caches[0].assign(Tensor.stack(*last, dim=2))
        return self.decoder(x.transpose(0, 1))

    def _along(self, x: Tensor, first: Tensor, seen: Tensor | None,
               layer: int) -> tuple[Tensor, Tensor]:
        """One layer: its outputs (places, batch, width), and its last states (2, batch, width).

        Where nothing is seen yet the states stay 0.
        """
        entering, again, *biases = (getattr(self.rnn, f"{name}_l{layer}") for name in (
            "weight_ih", "weight_hh", "bias_ih", "bias_hh"))

        def step(state: Tensor, given: Any) -> tuple[Tensor, Tensor]:
            entry, shown = given
            start, forget, new, out = (entry + state[0].linear(again, biases[1])).chunk(4, dim=-1)
            cell = forget.sigmoid() * state[1] + start.sigmoid() * new.tanh()
            after = Tensor.stack(out.sigmoid() * cell.tanh(), cell)
            after = after if shown is None else after * shown
            return after, after[0]

        state, outputs = scan(step, first, (x.linear(entering, biases[0]), seen))
        return outputs, state

    @property
    def kept(self) -> Kept:
        """What a `Writer` needs to know; a text may be as long as one likes."""
        return Kept(self.encoder.weight.shape[0], 1, self.rnn.num_layers, 2 ** 30,
                    self.rnn.hidden_size)

    def cache_sizes(self, rows: int, places: int) -> tuple[int, ...]:
        """Two states of each layer, and none of each place."""
        return 2, rows, self.rnn.num_layers, self.rnn.hidden_size


def load(path: str | os.PathLike[str]) -> LSTMModel:
    """The network of a checkpoint, a `.pt` or a safetensors file; sizes are those of the tensors.

    Raises:
        ArgumentError: it is a checkpoint of something else.
    """
    read = nn.state.safe_load if Path(path).suffix == ".safetensors" else nn.state.torch_load
    state = read(path)
    needed = {"encoder.weight", "rnn.weight_hh_l0", "decoder.weight"}
    if not isinstance(state, dict) or not needed <= state.keys():
        raise ArgumentError("lstm.load", f"{os.fspath(path)} has no tensors of such a model, as "
                            "rnn.weight_hh_l0", "give a checkpoint with the names of RNNModel")
    layers = sum(name.startswith("rnn.weight_hh_l") for name in state)
    tokens, width = state["encoder.weight"].shape
    model = LSTMModel(tokens, width, state["rnn.weight_hh_l0"].shape[1], layers)
    model.load_state_dict(state)
    return model
