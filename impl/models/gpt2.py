"""GPT-2: the network, its public checkpoints, and how it writes on from a prompt.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`h.0.attn.c_attn.weight`, so that a file loads without a table of names, and what is saved is such a
file again.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impl import Tensor, nn
from impl.errors import ArgumentError, ShapeError
from impl.models.writing import Kept, LanguageModel, Writer, positions, visible, with_kept

__all__ = ["GPT2", "GPT2Config", "Writer", "load"]

#: All public checkpoints of GPT-2 have heads of this width.
_HEAD = 64
#: What stands before the names where the head for words is saved, too.
_PREFIX = "transformer."


@dataclass(frozen=True)
class GPT2Config:
    """Sizes of a network, with the names of `config.json`; those of the smallest public one."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.n_head < 1 or self.n_embd % self.n_head:
            raise ShapeError("GPT2Config", f"a width of {self.n_embd} is not divided by "
                             f"{self.n_head} heads", "give an n_head that divides n_embd")


class Projection(nn.Module):
    """y = x @ weight + bias; weight: (inputs, outputs), the other way round than in `nn.Linear`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = (Tensor.randn(inputs, outputs) * 0.02).requires_grad_()
        self.bias = Tensor.zeros(outputs, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    """Each place looks at those up to itself."""

    def __init__(self, config: GPT2Config) -> None:
        self.heads = config.n_head
        self.c_attn = Projection(config.n_embd, 3 * config.n_embd)
        self.c_proj = Projection(config.n_embd, config.n_embd)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Tensor | None = None,
                start: Any = 0) -> Tensor:
        """For places from `start` on, with a cache see `with_kept`, with a mask see `visible`."""
        batch, length, width = x.shape
        query, key, value = (part.reshape(batch, length, self.heads, -1).transpose(1, 2)
                             for part in self.c_attn(x).chunk(3, -1))
        key, value = with_kept(cache, key, value, start)
        # One more place sees all that there are.
        found = query.scaled_dot_product_attention(
            key, value, mask, is_causal=mask is None and length > 1)
        return self.c_proj(found.transpose(1, 2).reshape(batch, length, width))


class GPT2MLP(nn.Module):
    """Two layers on each place alone."""

    def __init__(self, config: GPT2Config) -> None:
        self.c_fc = Projection(config.n_embd, 4 * config.n_embd)
        self.c_proj = Projection(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.c_fc(x).gelu("tanh"))


class GPT2Block(nn.Module):
    """Attention and layers, each added to what comes in."""

    def __init__(self, config: GPT2Config) -> None:
        self.ln_1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.attn = GPT2Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.mlp = GPT2MLP(config)

    def forward(self, x: Tensor, *places: Any) -> Tensor:
        x = x + self.attn(self.ln_1(x), *places)
        return x + self.mlp(self.ln_2(x))


class GPT2(LanguageModel):
    """Scores of the next token at each place; the embedding of tokens is also the head."""

    def __init__(self, config: GPT2Config | None = None) -> None:
        self.config = config = config or GPT2Config()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        for table in (self.wte, self.wpe):
            table.weight = (Tensor.randn(*table.weight.shape) * 0.02).requires_grad_()
        self.h = nn.ModuleList([GPT2Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)

    def forward(self, tokens: Tensor, caches: Sequence[Tensor] | None = None,
                start: Any = 0, padding: Tensor | None = None) -> Tensor:
        """(batch, places) of tokens to (batch, places, vocab_size) of scores, see `LanguageModel`.

        Raises:
            ShapeError: there are more places than the network knows.
        """
        self.check_places(tokens, start)
        length = tokens.shape[1]
        where = self.wpe.weight[start:start + length] if padding is None \
            else self.wpe(positions(padding, start, length).maximum(0))
        x, mask = self.wte(tokens) + where, visible(padding, start, length)
        for place, block in enumerate(self.h):
            x = block(x, mask, None if caches is None else caches[place], start)
        return self.ln_f(x).linear(self.wte.weight)

    @property
    def kept(self) -> Kept:
        """What a `Writer` keeps for each block."""
        config = self.config
        return Kept(config.vocab_size, config.n_layer, config.n_head, config.n_positions,
                    config.n_embd // config.n_head)


def load(path: str | os.PathLike[str]) -> GPT2:
    """The network of a checkpoint: a safetensors file, or the folder of `model.safetensors`.

    The sizes are those of the tensors; the number of heads is in the `config.json` beside it, or
    heads have the width that those of all public ones have, 64.

    Raises:
        ArgumentError: it is a checkpoint of something else.
    """
    file = Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)
    state = {name.removeprefix(_PREFIX): tensor
             for name, tensor in nn.state.safe_load(file).items()}
    # Masks were saved once; the head is the embedding of tokens.
    state = {name: tensor for name, tensor in state.items()
             if not name.endswith((".attn.bias", ".attn.masked_bias")) and name != "lm_head.weight"}
    model = GPT2(_sizes(state, file))
    model.load_state_dict(state)
    return model


def _sizes(state: Mapping[str, Tensor], file: Path) -> GPT2Config:
    if not {"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight"} <= state.keys():
        raise ArgumentError("gpt2.load", f"{file} has no tensors of GPT-2, as wte.weight",
                            "give a checkpoint with the names that Hugging Face uses")
    (words, width), places = state["wte.weight"].shape, state["wpe.weight"].shape[0]
    beside = file.with_name("config.json")
    said = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    return GPT2Config(words, places, width, sum(name.endswith(".ln_1.weight") for name in state),
                  said.get("n_head", max(width // _HEAD, 1)),
                  said.get("layer_norm_epsilon", GPT2Config.layer_norm_epsilon))


if __name__ == "__main__":
    from impl.models.command import write_on
    write_on("impl.models.gpt2", lambda path, places: load(path), gguf=False)
