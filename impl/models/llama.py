"""Llama 3: places that are turned, queries that share keys, a gate in each block.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`model.layers.0.self_attn.q_proj.weight`; `load` reads also files of GGUF, whose names are others.
"""
from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from impl import Tensor, nn
from impl.errors import ArgumentError, ShapeError
from impl.host import np
from impl.models.checkpoint import read_folder
from impl.models.writing import Kept, LanguageModel, Writer, visible, with_kept
from impl.nn.quantized import HALVES, Quantized, QuantizedEmbedding, QuantizedLinear

__all__ = ["Llama", "LlamaConfig", "Writer", "load"]


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a network, with the names of `config.json`; those of Llama 3 with 8 billion."""

    vocab_size: int = 128256
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    tie_word_embeddings: bool = False
    #: Of Llama 3.1: slow turns are made slower, so that texts may be longer.
    rope_scaling: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads or \
                self.num_attention_heads % self.num_key_value_heads:
            raise ShapeError("LlamaConfig", f"{self.num_key_value_heads} heads of keys do not "
                             f"divide {self.num_attention_heads} heads, or these do not divide a "
                             f"width of {self.hidden_size}", "give numbers that divide each other")

    @property
    def width(self) -> int:
        """Of one head."""
        return self.hidden_size // self.num_attention_heads


def rotary_tables(config: LlamaConfig) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, (places, width): pair i is turned by place / theta^(2 i / width)."""
    each = config.rope_theta ** (-np.arange(0, config.width, 2) / config.width)
    scaling = config.rope_scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "factors":  # as files of GGUF have it
        each = each / np.asarray(scaling["factors"])
    elif kind == "llama3":
        whole = scaling["original_max_position_embeddings"] * each / (2 * math.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        share = ((whole - low) / (high - low)).clip(0, 1)
        each = each * (share + (1 - share) / scaling["factor"])
    elif kind != "default":
        raise ArgumentError("llama", f"turns are scaled by {kind!r}", "use \"llama3\"")
    angles = np.arange(config.max_position_embeddings)[:, None] * np.tile(each, 2)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each pair of (first half, second half) of the last axis as a vector that is turned."""
    first, second = x.chunk(2, -1)
    return x * cosine + (-second).cat(first, dim=-1) * sine


class LlamaAttention(nn.Module):
    """Each place looks at those up to itself; several queries share a key."""

    def __init__(self, config: LlamaConfig) -> None:
        self.config = config
        size, keys = config.hidden_size, config.num_key_value_heads * config.width
        self.q_proj = nn.Linear(size, size, bias=False)
        self.k_proj = nn.Linear(size, keys, bias=False)
        self.v_proj = nn.Linear(size, keys, bias=False)
        self.o_proj = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor | None = None,
                cache: Tensor | None = None, start: Any = 0) -> Tensor:
        """For places from `start` on, with a cache see `with_kept`, with a mask see `visible`."""
        batch, length, _ = x.shape
        query, key, value = (
            part(x).reshape(batch, length, -1, self.config.width).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj))
        query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        key, value = with_kept(cache, key, value, start)
        found = query.scaled_dot_product_attention(
            key, value, mask, is_causal=mask is None and length > 1, enable_gqa=True)
        return self.o_proj(found.transpose(1, 2).reshape(batch, length, -1))


class LlamaMLP(nn.Module):
    """Two layers on each place alone, of which the first one has a gate."""

    def __init__(self, config: LlamaConfig) -> None:
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x).silu() * self.up_proj(x))


class LlamaBlock(nn.Module):
    """Attention and layers, each added to what comes in."""

    def __init__(self, config: Any) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.make_fed(config)

    def make_fed(self, config: Any) -> None:
        """The layers of `fed`."""
        self.mlp = LlamaMLP(config)

    def fed(self, x: Tensor) -> Tensor:
        """What each place alone goes through."""
        return self.mlp(x)

    def forward(self, x: Tensor, *places: Any) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), *places)
        return x + self.fed(self.post_attention_layernorm(x))


class LlamaBody(nn.Module):
    """All but the head."""

    def __init__(self, config: LlamaConfig, block: type[LlamaBlock]) -> None:
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_tokens.weight = (
            Tensor.randn(config.vocab_size, config.hidden_size) * 0.02).requires_grad_()
        self.layers = nn.ModuleList([block(config) for _ in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class Llama(LanguageModel):
    """Scores of the next token at each place."""

    block: ClassVar[type[LlamaBlock]] = LlamaBlock

    def __init__(self, config: LlamaConfig | None = None) -> None:
        self.config = config = config or LlamaConfig()
        self.model = LlamaBody(config, self.block)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        for name, table in zip(("cosine", "sine"), rotary_tables(config), strict=True):
            self.register_buffer(name, Tensor(table), persistent=False)

    def forward(self, tokens: Tensor, caches: Sequence[Tensor] | None = None,
                start: Any = 0, padding: Tensor | None = None) -> Tensor:
        """(batch, places) of tokens to (batch, places, vocab_size) of scores, see `LanguageModel`.

        Padding moves all places of a text, and scores depend on distances alone.

        Raises:
            ShapeError: there are more places than the network knows.
        """
        self.check_places(tokens, start)
        x = self.model.embed_tokens(tokens)
        cosine, sine = (getattr(self, name)[start:start + tokens.shape[1]]
                        for name in ("cosine", "sine"))
        mask = visible(padding, start, tokens.shape[1])
        for place, block in enumerate(self.model.layers):
            x = block(x, cosine, sine, mask, None if caches is None else caches[place], start)
        return self.lm_head(self.model.norm(x))

    @property
    def kept(self) -> Kept:
        """What a `Writer` keeps for each block."""
        config = self.config
        return Kept(config.vocab_size, config.num_hidden_layers, config.num_key_value_heads,
                    config.max_position_embeddings, config.width)


# Checkpoints


def load(path: str | os.PathLike[str], places: int | None = None) -> Llama:
    """The network of a checkpoint: a folder of Hugging Face, or a file of GGUF.

    Args:
        places: how long texts may become, if that is less than what the checkpoint says: the
            tables of turns are as long.

    Raises:
        ArgumentError: it is a checkpoint of something else, or `config.json` is missing.
    """
    packed: dict[str, Quantized] = {}
    if Path(path).is_file():
        config, state, packed = _of_gguf(Path(path))
    else:
        config, state = read_folder(path, "llama", LlamaConfig)
    if places is not None:
        most = config.get("max_position_embeddings", LlamaConfig.max_position_embeddings)
        config["max_position_embeddings"] = min(places, most)
    config["tie_word_embeddings"] = "lm_head.weight" not in state | packed
    model = Llama(LlamaConfig(**config))
    model.load_state_dict(state | _put_packed(model, packed))
    return model


def _put_packed(model: Llama, packed: Mapping[str, Quantized]) -> dict[str, Tensor]:
    """Give a network layers whose weights stay packed; what they have, by name.

    Raises:
        ShapeError: a weight has another shape.
    """
    table = "model.embed_tokens.weight"
    if model.config.tie_word_embeddings and table in packed:
        packed = {**packed, "lm_head.weight": packed[table]}
    own = model.state_dict()
    for name, weight in packed.items():
        if weight.shape != own[name].shape:
            raise ShapeError("llama.load", f"{name} has shape {own[name].shape}, the saved one "
                             f"{weight.shape}", "give a whole file")
        path = name.removesuffix(".weight")
        layer = QuantizedEmbedding(weight) if name == table else QuantizedLinear(weight)
        parent, _, place = path.rpartition(".")
        setattr(model.get_submodule(parent), place, layer)
    own = model.state_dict()
    return {name: tensor for name, tensor in own.items() if name.endswith(".packed")}


#: Names of tensors of GGUF, and what they are called here.
_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
          "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
          "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
          "ffn_down": "mlp.down_proj"}
#: Sizes in GGUF, behind `llama.`.
_SIZES = {"embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
          "block_count": "num_hidden_layers", "attention.head_count": "num_attention_heads",
          "attention.head_count_kv": "num_key_value_heads",
          "context_length": "max_position_embeddings", "rope.freq_base": "rope_theta",
          "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
#: No size is greater: a file that says so is damaged.
_MOST = 2 ** 26


def _of_gguf(file: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Quantized]]:
    """Sizes, plain tensors, and matrices that stay packed.

    Queries and keys have their pairs side by side there, and as halves here.
    """
    from impl.nn.gguf import gguf_metadata, gguf_packed

    said = gguf_metadata(file)
    if said.get("general.architecture") != "llama":
        raise ArgumentError("llama.load", f"{file} is a {said.get('general.architecture')!r}",
                            "give a checkpoint of Llama")
    config = _sizes(said, file)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    state: dict[str, Tensor] = {}
    packed: dict[str, Quantized] = {}
    tensors = gguf_packed(file)
    factors = tensors.pop("rope_freqs.weight", None)
    if factors is not None:
        config["rope_scaling"] = {"rope_type": "factors", "factors": _plain(factors).tolist()}
    for name, tensor in tensors.items():
        found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
        kind = found[2] if found else ""
        if found is None or kind not in _NAMES:
            raise ArgumentError("llama.load", f"{file} has the tensor {name!r}, which is not known",
                                "give a checkpoint of Llama")
        where = f"model.layers.{found[1]}." if found[1] else ""
        own = f"{where}{_NAMES[kind]}.weight"
        if isinstance(tensor, Tensor) and tensor.dtype in HALVES and tensor.ndim == 2:
            tensor = Quantized(tensor.unsqueeze(-1), HALVES[tensor.dtype])
        if isinstance(tensor, Quantized) and len(tensor.shape) == 2:
            packed[own] = Quantized(_halved(tensor.packed, heads.get(kind)), tensor.kind)
        else:
            state[own] = _halved(_plain(tensor), heads.get(kind))
    blocks = sum(name.endswith(".input_layernorm.weight") for name in state)
    tables: dict[str, Tensor | Quantized] = {**state, **packed}
    if "model.embed_tokens.weight" not in tables or blocks != config["num_hidden_layers"]:
        raise ArgumentError("llama.load", f"{file} has {blocks} of its "
                            f"{config['num_hidden_layers']} blocks, or no embedding of tokens",
                            "give a whole file")
    config["vocab_size"] = tables["model.embed_tokens.weight"].shape[0]
    return config, state, packed


def _plain(tensor: Tensor | Quantized) -> Tensor:
    return tensor.numbers() if isinstance(tensor, Quantized) else tensor


def _halved(rows: Tensor, heads: int | None) -> Tensor:
    """Rows of each head that are pairs, as two halves; others as they are."""
    if heads is None or rows.ndim < 2 or rows.shape[0] % (2 * heads):
        return rows
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(*rows.shape)


def _sizes(said: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The sizes that a file of GGUF names, none of which is trusted."""
    config: dict[str, Any] = {}
    for name, own in _SIZES.items():
        value = said.get(f"llama.{name}", getattr(LlamaConfig, own))
        if own == "num_key_value_heads" and f"llama.{name}" not in said:
            value = config["num_attention_heads"]
        if isinstance(value, (str, list)) or not 0 < value <= _MOST:
            raise ArgumentError("llama.load", f"{file} says that llama.{name} is {value!r:.40}",
                                "give a whole file")
        config[own] = value
    return config


if __name__ == "__main__":
    from impl.models.command import write_on
    write_on("impl.models.llama", load, gguf=True)
