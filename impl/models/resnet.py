"""ResNet: convolutions whose results are added to what came in.

Tensors have the names and shapes of torchvision's checkpoints, such as `layer1.0.conv1.weight`.
"""
from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from impl import Tensor, nn
from impl.errors import ArgumentError

__all__ = ["ResNet", "load", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two or three convolutions, each with a norm, and what came in: brought to the same shape if
    it has another.
    """

    #: How many times as many channels come out as are inside.
    wider = 1

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        outputs = inner * self.wider
        for number, convolution in enumerate(self._convolutions(inputs, inner, stride), 1):
            setattr(self, f"conv{number}", convolution)
            setattr(self, f"bn{number}", nn.BatchNorm2d(convolution.weight.shape[0]))
            self.count = number
        self.downsample = None if stride == 1 and inputs == outputs else nn.Sequential(
            _convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def _convolutions(self, inputs: int, inner: int, stride: int) -> Sequence[nn.Conv2d]:
        return _convolution(inputs, inner, 3, stride), _convolution(inner, inner, 3)

    def forward(self, x: Tensor) -> Tensor:
        before = x if self.downsample is None else self.downsample(x)
        for number in range(1, self.count + 1):
            x = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x))
            x = x.relu() if number < self.count else (x + before).relu()
        return x


class Bottleneck(BasicBlock):
    """A block whose middle has a quarter of the channels."""

    wider = 4

    def _convolutions(self, inputs: int, inner: int, stride: int) -> Sequence[nn.Conv2d]:
        return (_convolution(inputs, inner, 1), _convolution(inner, inner, 3, stride),
                _convolution(inner, inner * self.wider, 1))


class ResNet(nn.Module):
    """Scores of what a picture shows, (batch, 3, height, width) to (batch, classes).

    Args:
        block: `BasicBlock` or `Bottleneck`.
        counts: how many of them there are of each of the widths.
        width: channels in the first blocks; 64 in all public ones.
    """

    def __init__(self, block: type[BasicBlock], counts: Sequence[int], classes: int = 1000,
                 width: int = 64) -> None:
        self.conv1, self.bn1 = _convolution(3, width, 7, 2), nn.BatchNorm2d(width)
        inputs = width
        for number, count in enumerate(counts):
            inner, blocks = width * 2 ** number, []
            for place in range(count):
                blocks.append(block(inputs, inner, 2 if number and place == 0 else 1))
                inputs = inner * block.wider
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.layers = len(counts)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.bn1(self.conv1(pictures)).relu().max_pool2d(3, 2, padding=1)
        for number in range(self.layers):
            x = getattr(self, f"layer{number + 1}")(x)
        return self.fc(x.mean((2, 3)))


def resnet18(classes: int = 1000) -> ResNet:
    """ResNet with 18 layers that have weights."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet34(classes: int = 1000) -> ResNet:
    """ResNet with 34 layers that have weights."""
    return ResNet(BasicBlock, (3, 4, 6, 3), classes)


def resnet50(classes: int = 1000) -> ResNet:
    """ResNet with 50 layers that have weights."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)


def resnet101(classes: int = 1000) -> ResNet:
    """ResNet with 101 layers that have weights."""
    return ResNet(Bottleneck, (3, 4, 23, 3), classes)


def resnet152(classes: int = 1000) -> ResNet:
    """ResNet with 152 layers that have weights."""
    return ResNet(Bottleneck, (3, 8, 36, 3), classes)


def load(path: str | os.PathLike[str]) -> ResNet:
    """The network of a checkpoint of torchvision: a `.pth` or a safetensors file.

    What it is made of is seen in the names and shapes of the tensors.

    Raises:
        ArgumentError: it is a checkpoint of something else.
    """
    read = nn.state.safe_load if Path(path).suffix == ".safetensors" else nn.state.torch_load
    state = read(path)
    if not isinstance(state, dict) or not {"conv1.weight", "fc.weight"} <= state.keys():
        raise ArgumentError("resnet.load", f"{os.fspath(path)} has no tensors of a ResNet, as "
                            "conv1.weight", "give a checkpoint with the names of torchvision")
    found = [re.fullmatch(r"layer(\d+)\.(\d+)\.conv1\.weight", name) for name in state]
    places = [(int(one[1]), int(one[2])) for one in found if one]
    counts = [sum(layer == number for layer, _ in places)
              for number in range(1, max(places, default=(0, 0))[0] + 1)]
    kind = Bottleneck if "layer1.0.conv3.weight" in state else BasicBlock
    model = ResNet(kind, counts, state["fc.weight"].shape[0], state["conv1.weight"].shape[0])
    model.load_state_dict(state)
    return model
