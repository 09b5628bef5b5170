"""Layers that learn the number of their inputs from the first of them, with PyTorch's names."""
from __future__ import annotations

from typing import Any, ClassVar

from impl.nn import convolution, normalization
from impl.nn.linear import Linear
from impl.nn.module import Module

__all__ = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
           "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
           "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear"]


class _Lazy(Module):
    """A layer that becomes another one when it is first called; before it has no tensors."""

    kind: ClassVar[Any]
    #: Which axis of the first input has as many elements as the layer has inputs.
    axis: ClassVar[int]

    def __init__(self, *given: Any, **named: Any) -> None:
        """All arguments of the other layer but the first one."""
        self._later = given, named

    def forward(self, *given: Any, **named: Any) -> Any:
        """What the other layer gives."""
        (positional, keywords), mode, x = self.__dict__.pop("_later"), self._mode, given[0]
        whole = self.kind(x.shape[self.axis], *positional, **keywords)
        self.__class__ = self.kind
        vars(self).update(vars(whole))
        if mode is not None:
            self.train(mode)
        if any(one.device != x.device for one in self.state_dict().values()):
            self.to(x.device)
        return self.forward(*given, **named)


def _lazy(kind: Any, axis: int) -> Any:
    name = f"Lazy{kind.__name__}"
    return type(name, (_Lazy,), {
        "kind": kind, "axis": axis, "__module__": __name__,
        "__doc__": f"`{kind.__name__}`, whose first argument is found when it is first called."})


LazyLinear = _lazy(Linear, -1)
LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(kind, -1 - kind.axes) for kind in (
    convolution.Conv1d, convolution.Conv2d, convolution.Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(kind, -1 - kind.axes) for kind in (
        convolution.ConvTranspose1d, convolution.ConvTranspose2d, convolution.ConvTranspose3d))
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (_lazy(kind, 1) for kind in (
    normalization.BatchNorm1d, normalization.BatchNorm2d, normalization.BatchNorm3d))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(kind, -1 - kind.axes) for kind in (
        normalization.InstanceNorm1d, normalization.InstanceNorm2d, normalization.InstanceNorm3d))
