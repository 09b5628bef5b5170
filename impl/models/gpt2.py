"""GPT-2: the network, its public checkpoints, and how it writes on from a prompt.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`h.0.attn.c_attn.weight`, so that a file loads without a table of names, and what is saved is such a
file again.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impl import Tensor, TinyJit, Variable, dtypes, nn
from impl.errors import ArgumentError, ShapeError
from impl.torch import no_grad

#: All public checkpoints of GPT-2 have heads of this width.
_HEAD = 64
#: What stands before the names where the head for words is saved, too.
_PREFIX = "transformer."


@dataclass(frozen=True)
class Config:
    """Sizes of a network, with the names of `config.json`; those of the smallest public one."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.n_head < 1 or self.n_embd % self.n_head:
            raise ShapeError("gpt2.Config", f"a width of {self.n_embd} is not divided by "
                             f"{self.n_head} heads", "give an n_head that divides n_embd")


class Projection(nn.Module):
    """y = x @ weight + bias; weight: (inputs, outputs), the other way round than in `nn.Linear`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = (Tensor.randn(inputs, outputs) * 0.02).requires_grad_()
        self.bias = Tensor.zeros(outputs, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Each place looks at those up to itself."""

    def __init__(self, config: Config) -> None:
        self.heads = config.n_head
        self.c_attn = Projection(config.n_embd, 3 * config.n_embd)
        self.c_proj = Projection(config.n_embd, config.n_embd)

    def forward(self, x: Tensor, cache: Tensor | None = None, start: Any = 0) -> Tensor:
        """With a cache, (2, batch, heads, places, width), keys and values from `start` on are
        written to it, and those before are read: of all places at once, or of one more.
        """
        batch, length, width = x.shape
        query, key, value = (part.reshape(batch, length, self.heads, -1).transpose(1, 2)
                             for part in self.c_attn(x).chunk(3, -1))
        if cache is not None:
            cache[:, :, :, start:start + length] = Tensor.stack(key, value)
            key, value = (cache[place, :, :, :start + length] for place in (0, 1))
        # One more place sees all that there are.
        found = query.scaled_dot_product_attention(key, value, is_causal=length > 1)
        return self.c_proj(found.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    """Two layers on each place alone."""

    def __init__(self, config: Config) -> None:
        self.c_fc = Projection(config.n_embd, 4 * config.n_embd)
        self.c_proj = Projection(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.c_fc(x).gelu("tanh"))


class Block(nn.Module):
    """Attention and layers, each added to what comes in."""

    def __init__(self, config: Config) -> None:
        self.ln_1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: Tensor | None = None, start: Any = 0) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache, start)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Scores of the next token at each place; the embedding of tokens is also the head."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config = config or Config()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        for table in (self.wte, self.wpe):
            table.weight = (Tensor.randn(*table.weight.shape) * 0.02).requires_grad_()
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)

    def forward(self, tokens: Tensor, caches: Sequence[Tensor] | None = None,
                start: Any = 0) -> Tensor:
        """(batch, places) of tokens to (batch, places, vocab_size) of scores.

        Args:
            caches: one for each block, see `Attention`.
            start: the place of the first token, a number or a bound `Variable`.

        Raises:
            ShapeError: there are more places than the network knows.
        """
        length = tokens.shape[1]
        if not isinstance(start, int) or start + length <= self.config.n_positions:
            x = self.wte(tokens) + self.wpe.weight[start:start + length]
        else:
            raise ShapeError("GPT2", f"{start + length} tokens are more than its "
                             f"{self.config.n_positions} places", "give the last ones only")
        for place, block in enumerate(self.h):
            x = block(x, None if caches is None else caches[place], start)
        return self.ln_f(x).linear(self.wte.weight)

    def loss(self, tokens: Tensor) -> Tensor:
        """The mean cross entropy of each token after the first, given those before it."""
        scores = self(tokens[:, :-1])
        return scores.flatten(0, 1).cross_entropy(tokens[:, 1:].flatten())

    def generate(self, prompt: Sequence[int], count: int, temperature: float = 0.0,
                 top_k: int | None = None) -> list[int]:
        """The tokens that follow a prompt, see `Writer.write`."""
        return list(Writer(self).write(prompt, count, temperature, top_k))


class Writer:
    """Writes on from prompts: keys and values are kept, and a further token is one captured call.

    Args:
        places: how long a text may become; as long as the network allows if it is not given.
    """

    def __init__(self, model: GPT2, places: int | None = None) -> None:
        config = model.config
        self.model, self.places = model, min(places or config.n_positions, config.n_positions)
        sizes = (2, 1, config.n_head, self.places, config.n_embd // config.n_head)
        with no_grad():
            self.caches = [Tensor.zeros(*sizes, dtype=model.wte.weight.dtype,
                                        device=model.wte.weight.device).contiguous().realize()
                           for _ in model.h]
        self.at = Variable("at", 1, max(self.places - 1, 1))
        self.step = TinyJit(self._next)

    def write(self, prompt: Sequence[int], count: int, temperature: float = 0.0,
              top_k: int | None = None) -> Iterator[int]:
        """Up to `count` tokens that follow, each as soon as it is known, until no place is left.

        Args:
            temperature: 0 takes the most probable token; else the scores are divided by it, and
                one is drawn.
            top_k: draw from so many of the most probable tokens only.

        Raises:
            ArgumentError: the prompt is empty, or too long, or a token is none.
        """
        prompt = list(prompt)
        if not 0 < len(prompt) <= self.places:
            raise ArgumentError("write", f"a prompt of {len(prompt)} tokens for {self.places} "
                                "places", "give one token at least, and the last ones only")
        wrong = [one for one in prompt if not 0 <= one < self.model.config.vocab_size]
        if wrong:
            raise ArgumentError("write", f"{wrong[0]} is no token of "
                                f"{self.model.config.vocab_size}", "use the model's own tokenizer")
        given, start = prompt, 0
        while count > 0 and start < self.places:
            tokens = Tensor([given], dtype=dtypes.int32,
                            device=self.model.wte.weight.device).realize()
            now = self.step(tokens, self.at.bind(start), temperature, top_k) if start \
                else self._next(tokens, 0, temperature, top_k)
            start, count, given = start + len(given), count - 1, [int(now.item())]
            yield given[0]

    def _next(self, tokens: Tensor, start: Any, temperature: float, top_k: int | None) -> Tensor:
        with no_grad():
            return chosen(self.model(tokens, self.caches, start)[0, -1], temperature,
                          top_k).realize(*self.caches)


def chosen(scores: Tensor, temperature: float = 0.0, top_k: int | None = None) -> Tensor:
    """A place of the last axis: of the greatest score, or drawn, see `Writer.write`."""
    if temperature == 0:
        return scores.argmax(-1)
    if top_k is not None:
        least = scores.topk(min(top_k, scores.shape[-1]))[0][..., -1:]
        scores = (scores < least).where(float("-inf"), scores)
    return (scores / temperature).softmax(-1).multinomial()


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


def _sizes(state: Mapping[str, Tensor], file: Path) -> Config:
    if not {"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight"} <= state.keys():
        raise ArgumentError("gpt2.load", f"{file} has no tensors of GPT-2, as wte.weight",
                            "give a checkpoint with the names that Hugging Face uses")
    (words, width), places = state["wte.weight"].shape, state["wpe.weight"].shape[0]
    beside = file.with_name("config.json")
    said = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    return Config(words, places, width, sum(name.endswith(".ln_1.weight") for name in state),
                  said.get("n_head", max(width // _HEAD, 1)),
                  said.get("layer_norm_epsilon", Config.layer_norm_epsilon))
