"""ViT: a picture as a text whose words are its patches.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`vit.encoder.layer.0.attention.attention.query.weight`.
"""
from __future__ import annotations

import os
from dataclasses import dataclass

from impl import Tensor, nn
from impl.errors import ShapeError
from impl.models.checkpoint import read_folder

__all__ = ["ViT", "ViTConfig", "load"]


@dataclass(frozen=True)
class ViTConfig:
    """Sizes of a network, with the names of `config.json`; those of `vit-base-patch16-224`."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    layer_norm_eps: float = 1e-12
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    num_labels: int = 1000


class ViTEmbeddings(nn.Module):
    """Patches as vectors, a vector for the whole picture before them, and where each one is."""

    def __init__(self, config: ViTConfig) -> None:
        size, places = config.hidden_size, (config.image_size // config.patch_size) ** 2 + 1
        self.cls_token = (Tensor.randn(1, 1, size) * 0.02).requires_grad_()
        self.position_embeddings = (Tensor.randn(1, places, size) * 0.02).requires_grad_()
        self.patch_embeddings = nn.ModuleDict({"projection": nn.Conv2d(
            config.num_channels, size, config.patch_size, stride=config.patch_size)})

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patch_embeddings["projection"](pictures).flatten(2).transpose(1, 2)
        first = self.cls_token.expand(x.shape[0], 1, x.shape[2])
        return first.cat(x, dim=1) + self.position_embeddings


class ViTSelfAttention(nn.Module):
    """Each patch looks at all."""

    def __init__(self, config: ViTConfig) -> None:
        self.heads, size = config.num_attention_heads, config.hidden_size
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (part(x).reshape(batch, length, self.heads, -1).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        found = query.scaled_dot_product_attention(key, value)
        return found.transpose(1, 2).reshape(batch, length, width)


class ViTLayer(nn.Module):
    """Attention, and two layers on each patch alone; the norms come first."""

    def __init__(self, config: ViTConfig) -> None:
        size, wide = config.hidden_size, config.intermediate_size
        self.attention = nn.ModuleDict({
            "attention": ViTSelfAttention(config),
            "output": nn.ModuleDict({"dense": nn.Linear(size, size)})})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(size, wide)})
        self.output = nn.ModuleDict({"dense": nn.Linear(wide, size)})
        self.layernorm_before = nn.LayerNorm(size, config.layer_norm_eps)
        self.layernorm_after = nn.LayerNorm(size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        found = self.attention["attention"](self.layernorm_before(x))
        x = x + self.attention["output"]["dense"](found)
        inner = self.intermediate["dense"](self.layernorm_after(x)).gelu("none")
        return x + self.output["dense"](inner)


class ViTBody(nn.Module):
    """All but the head."""

    def __init__(self, config: ViTConfig) -> None:
        self.embeddings = ViTEmbeddings(config)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(
            [ViTLayer(config) for _ in range(config.num_hidden_layers)])})
        self.layernorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.embeddings(pictures)
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.layernorm(x)


class ViT(nn.Module):
    """Scores of what a picture shows, from the vector of the whole of it."""

    def __init__(self, config: ViTConfig | None = None) -> None:
        self.config = config = config or ViTConfig()
        self.vit = ViTBody(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, num_labels) of scores.

        Raises:
            ShapeError: pictures are of another size than those of the training.
        """
        size = self.config.image_size
        if tuple(pictures.shape[1:]) != (self.config.num_channels, size, size):
            raise ShapeError("ViT", f"pictures of shape {pictures.shape[1:]}, and it knows those "
                             f"of {(self.config.num_channels, size, size)}",
                             f"x.interpolate(({size}, {size}), mode=\"bilinear\")")
        return self.classifier(self.vit(pictures)[:, 0])


def load(path: str | os.PathLike[str]) -> ViT:
    """The network of a checkpoint: a folder of Hugging Face.

    Raises:
        ArgumentError: it is a checkpoint of something else, or `config.json` is missing.
    """
    config, state = read_folder(path, "vit", ViTConfig)
    model = ViT(ViTConfig(**config | {"num_labels": state["classifier.weight"].shape[0]}))
    model.load_state_dict(state)
    return model
