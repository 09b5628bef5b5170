"""BERT: each place sees all others; MiniLM, which is a small BERT, makes vectors of sentences.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`encoder.layer.0.attention.self.query.weight`.
"""
from __future__ import annotations

import os
from dataclasses import dataclass

from impl import Tensor, nn
from impl.models.checkpoint import read_folder

__all__ = ["Bert", "BertConfig", "load"]


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a network, with the names of `config.json`; those of `bert-base-uncased`."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    #: A token that is not learned.
    pad_token_id: int | None = 0


class BertEmbeddings(nn.Module):
    """What a token is, where it stands, and which of two sentences it is in, added up."""

    def __init__(self, config: BertConfig) -> None:
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, config.layer_norm_eps)

    def forward(self, tokens: Tensor, kinds: Tensor | None) -> Tensor:
        x = self.word_embeddings(tokens) + self.position_embeddings.weight[:tokens.shape[1]]
        return self.LayerNorm(x + (self.token_type_embeddings.weight[0] if kinds is None
                                   else self.token_type_embeddings(kinds)))


class BertSelfAttention(nn.Module):
    """Each place looks at all places of the text."""

    def __init__(self, config: BertConfig) -> None:
        self.heads, size = config.num_attention_heads, config.hidden_size
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (part(x).reshape(batch, length, self.heads, -1).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        found = query.scaled_dot_product_attention(key, value, seen)
        return found.transpose(1, 2).reshape(batch, length, width)


class BertOutput(nn.Module):
    """A linear layer whose result is added to what was there before, and normalised."""

    def __init__(self, inputs: int, config: BertConfig) -> None:
        self.dense = nn.Linear(inputs, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + before)


class BertLayer(nn.Module):
    """Attention, and two layers on each place alone; the norms come last."""

    def __init__(self, config: BertConfig) -> None:
        self.attention = nn.ModuleDict({"self": BertSelfAttention(config),
                                        "output": BertOutput(config.hidden_size, config)})
        self.intermediate = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = BertOutput(config.intermediate_size, config)

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, seen), x)
        return self.output(self.intermediate["dense"](x).gelu("none"), x)


class Bert(nn.Module):
    """A vector for each place of a text, (batch, places, hidden_size)."""

    def __init__(self, config: BertConfig | None = None) -> None:
        self.config = config = config or BertConfig()
        self.embeddings = BertEmbeddings(config)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(
            [BertLayer(config) for _ in range(config.num_hidden_layers)])})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.hidden_size)})

    def forward(self, tokens: Tensor, seen: Tensor | None = None,
                kinds: Tensor | None = None) -> Tensor:
        """The vectors of tokens (batch, places).

        Args:
            seen: (batch, places) of bools: which places are part of the text; all, if not given.
            kinds: (batch, places): which sentence a token is in; 0, if not given.
        """
        x = self.embeddings(tokens, kinds)
        mask = None if seen is None else seen.bool().reshape(seen.shape[0], 1, 1, -1)
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        return x

    def pooled(self, x: Tensor) -> Tensor:
        """(batch, hidden_size) for a text, from the vector of its first place."""
        return self.pooler["dense"](x[:, 0]).tanh()

    def sentences(self, tokens: Tensor, seen: Tensor | None = None) -> Tensor:
        """(batch, hidden_size) of length 1: the mean of what is seen, as MiniLM has it.

        Products of two of them say how near the sentences are.
        """
        x = self(tokens, seen)
        if seen is None:
            return x.mean(1).normalize(dim=-1)
        share = seen.cast(x.dtype).unsqueeze(-1)
        return ((x * share).sum(1) / share.sum(1).maximum(1e-9)).normalize(dim=-1)


def load(path: str | os.PathLike[str]) -> Bert:
    """The network of a checkpoint: a folder of Hugging Face. Heads for words are left out.

    Raises:
        ArgumentError: it is a checkpoint of something else, or `config.json` is missing.
    """
    config, saved = read_folder(path, "bert", BertConfig)
    renamed = {name.removeprefix("bert.").replace(".gamma", ".weight").replace(".beta", ".bias"):
               tensor for name, tensor in saved.items()}
    model = Bert(BertConfig(**config))
    own = model.state_dict().keys()
    if "pooler.dense.weight" not in renamed:  # not saved by those who do not use it
        renamed |= {name: tensor for name, tensor in model.state_dict().items()
                    if name.startswith("pooler.")}
    model.load_state_dict({name: tensor for name, tensor in renamed.items()
                           if not name.startswith(("cls.", "classifier."))
                           and (name in own or not name.endswith("position_ids"))})
    return model
