"""A U-Net that takes noise out of pictures, and the steps from noise to a picture (DDPM).

Tensors have the names and shapes of the checkpoints of diffusers' `UNet2DModel`, such as
`down_blocks.0.resnets.0.conv1.weight`.
"""
from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from impl import Tensor, TinyJit, nn
from impl.errors import ArgumentError
from impl.host import np
from impl.torch import no_grad

__all__ = ["Diffusion", "UNet", "UNetConfig", "load"]


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of a network, with the names of `config.json`; those of `ddpm-cifar10-32`."""

    in_channels: int = 3
    out_channels: int = 3
    block_out_channels: Sequence[int] = (128, 256, 256, 256)
    down_block_types: Sequence[str] = ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D",
                                       "DownBlock2D")
    up_block_types: Sequence[str] = ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D")
    layers_per_block: int = 2
    norm_num_groups: int = 32
    norm_eps: float = 1e-6
    attention_head_dim: int | None = None
    downsample_padding: int = 0
    flip_sin_to_cos: bool = False
    freq_shift: int = 1

    def __post_init__(self) -> None:
        known = {"DownBlock2D", "AttnDownBlock2D", "UpBlock2D", "AttnUpBlock2D"}
        wrong = {*self.down_block_types, *self.up_block_types} - known
        if wrong:
            raise ArgumentError("UNetConfig", f"blocks of kind {min(wrong)}",
                                f"use {', '.join(sorted(known))}")


class Residual(nn.Module):
    """Two convolutions, told how much noise there is, and what came in."""

    def __init__(self, inputs: int, outputs: int, config: UNetConfig) -> None:
        groups, eps = config.norm_num_groups, config.norm_eps
        self.norm1, self.norm2 = (nn.GroupNorm(groups, size, eps) for size in (inputs, outputs))
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time_emb_proj = nn.Linear(4 * config.block_out_channels[0], outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.conv1(self.norm1(x).silu())
        inner = inner + self.time_emb_proj(time.silu()).unsqueeze(-1).unsqueeze(-1)
        inner = self.conv2(self.norm2(inner).silu())
        return inner + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class PixelAttention(nn.Module):
    """Each pixel looks at all."""

    def __init__(self, size: int, config: UNetConfig) -> None:
        self.heads = size // (config.attention_head_dim or size)
        self.group_norm = nn.GroupNorm(config.norm_num_groups, size, config.norm_eps)
        self.to_q, self.to_k, self.to_v = (nn.Linear(size, size) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(size, size)])

    def forward(self, x: Tensor) -> Tensor:
        inner = self.group_norm(x).flatten(2).transpose(1, 2)
        query, key, value = (part(inner).reshape(*inner.shape[:2], self.heads, -1).transpose(1, 2)
                             for part in (self.to_q, self.to_k, self.to_v))
        found = query.scaled_dot_product_attention(key, value).transpose(1, 2).flatten(2)
        return x + self.to_out[0](found).transpose(1, 2).reshape(*x.shape)


class Smaller(nn.Module):
    """Half the height and the width."""

    def __init__(self, size: int, padding: int) -> None:
        self.padding = padding
        self.conv = nn.Conv2d(size, size, 3, stride=2, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x if self.padding else x.pad((0, 1, 0, 1)))


class Larger(nn.Module):
    """Twice the height and the width."""

    def __init__(self, size: int) -> None:
        self.conv = nn.Conv2d(size, size, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.interpolate(scale_factor=2, mode="nearest"))


class UNetLevel(nn.Module):
    """Residuals of one size, perhaps with attention; and perhaps what leads to another size."""

    downsamplers: nn.ModuleList
    upsamplers: nn.ModuleList

    def __init__(self, inputs: Sequence[int], size: int, attends: bool,
                 config: UNetConfig) -> None:
        self.resnets = nn.ModuleList([Residual(one, size, config) for one in inputs])
        if attends:
            self.attentions = nn.ModuleList([PixelAttention(size, config) for _ in inputs])

    def each(self, x: Tensor, time: Tensor, skipped: list[Tensor] | None) -> Iterator[Tensor]:
        """The pictures behind each residual; on the way up each is given one of the way down."""
        for place, residual in enumerate(self.resnets):
            x = residual(x if skipped is None else x.cat(skipped.pop(), dim=1), time)
            x = self.attentions[place](x) if "attentions" in vars(self) else x
            yield x


class Middle(nn.Module):
    """The smallest pictures: a residual, attention, a residual."""

    def __init__(self, size: int, config: UNetConfig) -> None:
        self.attentions = nn.ModuleList([PixelAttention(size, config)])
        self.resnets = nn.ModuleList([Residual(size, size, config) for _ in range(2)])

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.resnets[1](self.attentions[0](self.resnets[0](x, time)), time)


class UNet(nn.Module):
    """The noise in a picture: down to small pictures and up again, with all of them kept beside."""

    def __init__(self, config: UNetConfig | None = None) -> None:
        self.config = config = config or UNetConfig()
        sizes, layers = list(config.block_out_channels), config.layers_per_block
        self.conv_in = nn.Conv2d(config.in_channels, sizes[0], 3, padding=1)
        self.time_embedding = nn.ModuleDict({"linear_1": nn.Linear(sizes[0], 4 * sizes[0]),
                                             "linear_2": nn.Linear(4 * sizes[0], 4 * sizes[0])})
        self.down_blocks, self.up_blocks = nn.ModuleList([]), nn.ModuleList([])
        kept = sizes[:1]
        for place, size in enumerate(sizes):
            attends = config.down_block_types[place].startswith("Attn")
            level = UNetLevel([kept[-1], *[size] * (layers - 1)], size, attends, config)
            kept += [size] * layers
            if place < len(sizes) - 1:
                level.downsamplers = nn.ModuleList([Smaller(size, config.downsample_padding)])
                kept.append(size)
            self.down_blocks.append(level)
        self.mid_block = Middle(sizes[-1], config)
        below = sizes[-1]
        for place, size in enumerate(reversed(sizes)):
            attends = config.up_block_types[place].startswith("Attn")
            inputs = [below if number == 0 else size for number in range(layers + 1)]
            level = UNetLevel([one + kept.pop() for one in inputs], size, attends, config)
            if place < len(sizes) - 1:
                level.upsamplers = nn.ModuleList([Larger(size)])
            self.up_blocks.append(level)
            below = size
        self.conv_norm_out = nn.GroupNorm(config.norm_num_groups, sizes[0], config.norm_eps)
        self.conv_out = nn.Conv2d(sizes[0], config.out_channels, 3, padding=1)

    def forward(self, pictures: Tensor, times: Tensor) -> Tensor:
        """(batch, channels, height, width) and steps of noise (batch,) to the noise in them."""
        time = self.time_embedding["linear_1"](self.waves(times)).silu()
        time, x = self.time_embedding["linear_2"](time), self.conv_in(pictures)
        kept = [x]
        for level in self.down_blocks:
            kept += level.each(x, time, None)
            x = kept[-1]
            if "downsamplers" in vars(level):
                x = level.downsamplers[0](x)
                kept.append(x)
        x = self.mid_block(x, time)
        for level in self.up_blocks:
            *_, x = level.each(x, time, kept)
            x = level.upsamplers[0](x) if "upsamplers" in vars(level) else x
        return self.conv_out(self.conv_norm_out(x).silu())

    def waves(self, times: Tensor) -> Tensor:
        """(batch, channels): a step of noise in waves of many lengths."""
        half = self.config.block_out_channels[0] // 2
        speeds = np.exp(-math.log(10000) * np.arange(half) / (half - self.config.freq_shift))
        angles = times.float().unsqueeze(1) * Tensor(speeds.astype(np.float32),
                                                     device=times.device)
        waves = [angles.sin(), angles.cos()]
        return waves[self.config.flip_sin_to_cos].cat(
            waves[not self.config.flip_sin_to_cos], dim=1)


class Diffusion:
    """Pictures to noise and back: how much of each is left after so many steps (Ho et al., 2020).

    Args:
        steps: from a picture to noise.
        first: the share of noise of the first step; `last` that of the last one.
    """

    def __init__(self, model: UNet, steps: int = 1000, first: float = 1e-4,
                 last: float = 0.02) -> None:
        self.model, self.steps = model, steps
        device = next(model.parameters()).device
        shares = np.linspace(first, last, steps)
        left = np.cumprod(1 - shares)
        before = np.concatenate([[1.0], left[:-1]])
        # For each step: what is left of a picture, and what one step back is made of.
        noisy = np.sqrt(before) * shares / (1 - left), \
            np.sqrt(1 - shares) * (1 - before) / (1 - left)
        spread = np.sqrt(np.maximum(shares * (1 - before) / (1 - left), 1e-20)) * (
            np.arange(steps) > 0)
        self.tables = Tensor(np.stack([np.sqrt(left), np.sqrt(1 - left), *noisy, spread]).astype(
            np.float32), device=device).realize()
        self.captured = TinyJit(self._back)

    def at(self, times: Tensor) -> list[Tensor]:
        """The numbers of steps (batch,), each (batch, 1, 1, 1)."""
        return [row[times].reshape(-1, 1, 1, 1) for row in self.tables]

    def loss(self, pictures: Tensor, times: Tensor, noise: Tensor) -> Tensor:
        """How far the noise that the network sees is from what was added at some steps."""
        picture, added, *_ = self.at(times)
        return (self.model(pictures * picture + noise * added, times) - noise).square().mean()

    def back(self, noisy: Tensor, times: Tensor, noise: Tensor) -> Tensor:
        """One step from noise to a picture: what the network sees is taken out, a little added."""
        picture, added, new, old, spread = self.at(times)
        clean = ((noisy - added * self.model(noisy, times)) / picture).clip(-1, 1)
        return new * clean + old * noisy + spread * noise

    def _back(self, noisy: Tensor, times: Tensor) -> Tensor:
        with no_grad():
            noise = Tensor.randn(*noisy.shape, device=noisy.device)
            return self.back(noisy, times, noise).realize()

    def pictures(self, shape: Sequence[int]) -> Iterator[Tensor]:
        """Pictures of a shape (batch, channels, height, width), made of noise: after each step."""
        x = Tensor.randn(*shape, device=self.tables.device).realize()
        for time in reversed(range(self.steps)):
            x = self.captured(x, Tensor([time] * shape[0], device=self.tables.device).realize())
            yield x


def load(path: str | os.PathLike[str]) -> UNet:
    """The network of a checkpoint: a folder of diffusers.

    Raises:
        ArgumentError: it is a checkpoint of something else, or `config.json` is missing.
    """
    folder, known = Path(path), {each.name for each in fields(UNetConfig)}
    if not (folder / "config.json").is_file():
        raise ArgumentError("unet.load", f"{folder} has no config.json", "give a folder with it")
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if said.get("_class_name", "UNet2DModel") != "UNet2DModel":
        raise ArgumentError("unet.load", f"it is a {said['_class_name']}",
                            "give a checkpoint of UNet2DModel")
    model = UNet(UNetConfig(**{name: value for name, value in said.items() if name in known}))
    state = nn.state.safe_load(folder / "diffusion_pytorch_model.safetensors")
    model.load_state_dict(state)
    return model
