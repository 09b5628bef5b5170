"""Whisper: what is heard becomes text. One half looks at sound, the other writes.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`model.decoder.layers.0.encoder_attn.q_proj.weight`.
"""
from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from impl import Tensor, nn
from impl.errors import ShapeError
from impl.host import np
from impl.models.checkpoint import read_folder
from impl.models.writing import Kept, LanguageModel, positions, visible, with_kept
from impl.torch import no_grad

__all__ = ["Listener", "Whisper", "WhisperConfig", "load", "spectrogram"]

#: Samples in a second, in a window, from one window to the next, and in the longest sound.
_RATE, _WINDOW, _STEP, _LONGEST = 16000, 400, 160, 480000


@dataclass(frozen=True)
class WhisperConfig:
    """Sizes of a network, with the names of `config.json`; those of `whisper-tiny`."""

    vocab_size: int = 51865
    num_mel_bins: int = 80
    d_model: int = 384
    encoder_layers: int = 4
    encoder_attention_heads: int = 6
    encoder_ffn_dim: int = 1536
    decoder_layers: int = 4
    decoder_attention_heads: int = 6
    decoder_ffn_dim: int = 1536
    max_source_positions: int = 1500
    max_target_positions: int = 448
    #: A token that is not learned as an input.
    pad_token_id: int | None = 50257


class WhisperAttention(nn.Module):
    """Queries of one half, and keys and values of either."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj, self.q_proj, self.out_proj = (nn.Linear(width, width) for _ in range(3))

    def split(self, x: Tensor) -> Tensor:
        """(batch, heads, places, width of a head)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def memory(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of what is looked at."""
        return self.split(self.k_proj(x)), self.split(self.v_proj(x))

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        query = self.split(self.q_proj(x))
        found = query.scaled_dot_product_attention(key, value, mask, is_causal=is_causal)
        return self.out_proj(found.transpose(1, 2).flatten(2))


class WhisperEncoderLayer(nn.Module):
    """Attention, and two layers on each place alone; the norms come first."""

    def __init__(self, width: int, heads: int, wide: int) -> None:
        self.self_attn = WhisperAttention(width, heads)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, wide), nn.Linear(wide, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def fed(self, x: Tensor) -> Tensor:
        """With the two layers on each place."""
        return x + self.fc2(self.fc1(self.final_layer_norm(x)).gelu("none"))

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        inside = self.self_attn_layer_norm(x)
        return self.fed(x + self.self_attn(inside, *self.self_attn.memory(inside)))


class WhisperDecoderLayer(WhisperEncoderLayer):
    """The same with attention to the sound in between."""

    def __init__(self, width: int, heads: int, wide: int) -> None:
        super().__init__(width, heads, wide)
        self.encoder_attn = WhisperAttention(width, heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """With keys and values of the sound, a mask, a cache, and the place of the first token."""
        sound, mask, cache, start = others
        inside = self.self_attn_layer_norm(x)
        key, value = with_kept(cache, *self.self_attn.memory(inside), start)
        x = x + self.self_attn(inside, key, value, mask, mask is None and x.shape[1] > 1)
        return self.fed(x + self.encoder_attn(self.encoder_attn_layer_norm(x), *sound))


class WhisperEncoder(nn.Module):
    """Sound to vectors: two convolutions, of which the second takes every other place."""

    def __init__(self, config: WhisperConfig) -> None:
        width = config.d_model
        self.conv1 = nn.Conv1d(config.num_mel_bins, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(config.max_source_positions, width)
        self.layers = nn.ModuleList([WhisperEncoderLayer(
            width, config.encoder_attention_heads, config.encoder_ffn_dim)
            for _ in range(config.encoder_layers)])
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.conv2(self.conv1(sound).gelu("none")).gelu("none").transpose(1, 2)
        places = self.embed_positions.weight
        if x.shape[1] != places.shape[0]:
            raise ShapeError("Whisper", f"{sound.shape[2]} windows of sound, and it hears "
                             f"{2 * places.shape[0]} at once", "use whisper.spectrogram(samples)")
        x = x + places
        for layer in self.layers:
            x = layer(x)
        return self.layer_norm(x)


class WhisperDecoder(nn.Module):
    """Tokens to vectors, with a look at the sound; without the head."""

    def __init__(self, config: WhisperConfig) -> None:
        width = config.d_model
        self.embed_tokens = nn.Embedding(config.vocab_size, width, config.pad_token_id)
        self.embed_positions = nn.Embedding(config.max_target_positions, width)
        self.layers = nn.ModuleList([WhisperDecoderLayer(
            width, config.decoder_attention_heads, config.decoder_ffn_dim)
            for _ in range(config.decoder_layers)])
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, sound: Sequence[tuple[Tensor, Tensor]],
                caches: Sequence[Tensor] | None = None, start: Any = 0,
                padding: Tensor | None = None) -> Tensor:
        length = tokens.shape[1]
        where = self.embed_positions.weight[start:start + length] if padding is None \
            else self.embed_positions(positions(padding, start, length).maximum(0))
        x, mask = self.embed_tokens(tokens) + where, visible(padding, start, length)
        for place, layer in enumerate(self.layers):
            x = layer(x, sound[place], mask, None if caches is None else caches[place], start)
        return self.layer_norm(x)


class Whisper(nn.Module):
    """Scores of the next token of what is said; the embedding of tokens is also the head."""

    def __init__(self, config: WhisperConfig | None = None) -> None:
        self.config = config = config or WhisperConfig()
        self.model = nn.ModuleDict({"encoder": WhisperEncoder(config),
                                    "decoder": WhisperDecoder(config)})

    def memory(self, sound: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of a sound (batch, num_mel_bins, windows) for each layer that writes."""
        heard = self.model["encoder"](sound)
        return [layer.encoder_attn.memory(heard) for layer in self.model["decoder"].layers]

    def scores(self, tokens: Tensor, memory: Sequence[tuple[Tensor, Tensor]],
               *places: Any) -> Tensor:
        """(batch, places, vocab_size) for tokens, see `LanguageModel`."""
        decoder = self.model["decoder"]
        return decoder(tokens, memory, *places).linear(decoder.embed_tokens.weight)

    def forward(self, sound: Tensor, tokens: Tensor) -> Tensor:
        """Scores for tokens (batch, places) of what is said in sounds, see `memory`."""
        return self.scores(tokens, self.memory(sound))

    def listen(self, sound: Tensor) -> Listener:
        """A language model of what is said in a sound, (num_mel_bins, windows)."""
        return Listener(self, sound)


class Listener(LanguageModel):
    """What is said in one sound: prompts are tokens of the language and the task."""

    def __init__(self, whisper: Whisper, sound: Tensor) -> None:
        self.whisper = whisper
        with no_grad():
            found = whisper.memory(sound.unsqueeze(0))
            first, *others = (one for pair in found for one in pair)
            first.realize(*others)
        self.memory = found

    def forward(self, tokens: Tensor, caches: Sequence[Tensor] | None = None, start: Any = 0,
                padding: Tensor | None = None) -> Tensor:
        """Scores of the next token at each place, see `LanguageModel`."""
        self.check_places(tokens, start)
        batch = tokens.shape[0]
        rows = [(key.expand(batch, *key.shape[1:]), value.expand(batch, *value.shape[1:]))
                for key, value in self.memory]
        return self.whisper.scores(tokens, rows, caches, start, padding)

    @property
    def kept(self) -> Kept:
        """What a `Writer` keeps for each layer."""
        config = self.whisper.config
        heads = config.decoder_attention_heads
        return Kept(config.vocab_size, config.decoder_layers, heads, config.max_target_positions,
                    config.d_model // heads)


# Sound


def _mel(frequency: Any) -> Any:
    """Slaney's scale of pitch: even up to 1000 Hz, then by ratios."""
    frequency = np.asarray(frequency, float)
    return np.where(frequency < 1000, frequency * 3 / 200,
                    15 + 27 * np.log(np.maximum(frequency, 1000) / 1000) / math.log(6.4))


def mel_filters(bins: int) -> np.ndarray:
    """(bins, frequencies of a window): triangles that overlap, of the same area."""
    frequencies = np.arange(_WINDOW // 2 + 1) * _RATE / _WINDOW
    marks = np.linspace(0, _mel(_RATE / 2), bins + 2)
    corners = np.where(marks < 15, marks * 200 / 3,
                       1000 * np.exp((marks - 15) * math.log(6.4) / 27))
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    area = 2 / (corners[2:] - corners[:-2])
    return (np.minimum(rising, falling).clip(0) * area[:, None]).astype(np.float32)


def spectrogram(samples: Tensor, bins: int = 80, longest: int = _LONGEST) -> Tensor:
    """What the encoder looks at, (bins, longest / 160), of samples (count,) at 16000 a second.

    Logarithms of the energy of each pitch in each window, of which the faintest are cut off. A
    shorter sound is followed by silence, and a longer one is cut: 30 seconds are heard at once.
    """
    samples = samples[:longest]
    samples = samples.pad((0, longest - samples.shape[0]))
    # What is at the ends is mirrored, so that each window has its middle in the sound.
    wide = samples.reshape(1, 1, -1).pad((_WINDOW // 2, _WINDOW // 2), mode="reflect").flatten()
    windows = wide.unfold(0, _WINDOW, _STEP)[:longest // _STEP]
    turns = 2 * math.pi / _WINDOW * np.outer(np.arange(_WINDOW), np.arange(_WINDOW // 2 + 1))
    hann = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(_WINDOW) / _WINDOW)
    waves = np.concatenate([np.cos(turns), np.sin(turns)], 1) * hann[:, None]
    parts = windows @ Tensor(waves.astype(np.float32), device=samples.device)
    energy = parts.square().reshape(-1, 2, _WINDOW // 2 + 1).sum(1)
    energy = Tensor(mel_filters(bins), device=samples.device) @ energy.T
    loudness = energy.maximum(1e-10).log10()
    return (loudness.maximum(loudness.max() - 8) + 4) / 4


def load(path: str | os.PathLike[str]) -> Whisper:
    """The network of a checkpoint: a folder of Hugging Face.

    Raises:
        ArgumentError: it is a checkpoint of something else, or `config.json` is missing.
    """
    config, state = read_folder(path, "whisper", WhisperConfig)
    model = Whisper(WhisperConfig(**config))
    model.load_state_dict({name: tensor for name, tensor in state.items()
                           if name != "proj_out.weight"})
    return model
