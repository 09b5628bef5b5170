"""Layers, with the names, arguments and states of `torch.nn`.

Each is an object with tensors as attributes, called with a tensor. Layers are user code: they use
the public methods of `Tensor` only. `nn.state` finds their tensors, `nn.optim` changes them,
`nn.init` sets them. A layer is imported when it is first asked for.
"""
# ruff: noqa: F401  (what a type checker sees is imported when it is asked for)
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from impl.nn import lr_scheduler, optim, state
from impl.nn.module import Buffer, Module, Parameter
from impl.nn.names import Part, missing

#: Where each layer is defined.
_LAYERS = {
    **dict.fromkeys(("CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish",
        "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU",
        "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
        "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold"), "activation"),
    **dict.fromkeys(("MultiheadAttention", "Transformer", "TransformerDecoder",
        "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"), "attention"),
    **dict.fromkeys(("Flatten", "Identity", "ModuleDict", "ModuleList", "ParameterDict",
        "ParameterList", "Sequential", "Unflatten"), "containers"),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
        "ConvTranspose3d"), "convolution"),
    **dict.fromkeys(("LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d",
        "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
        "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
        "LazyLinear"), "lazy"),
    **dict.fromkeys(("Bilinear", "Embedding", "EmbeddingBag", "Linear"), "linear"),
    **dict.fromkeys(("FractionalMaxPool2d", "FractionalMaxPool3d"), "fractional"),
    **dict.fromkeys(("AdaptiveLogSoftmaxWithLoss", "BCELoss", "BCEWithLogitsLoss", "CTCLoss",
        "CosineEmbeddingLoss",
        "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss",
        "L1Loss", "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
        "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss",
        "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss"), "loss"),
    **dict.fromkeys(("AlphaDropout", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
        "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "GroupNorm",
        "InstanceNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm",
        "LayerNorm2d", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm"), "normalization"),
    **dict.fromkeys(("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d",
        "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d",
        "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
        "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"), "pooling"),
    **dict.fromkeys(("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell",
        "RNNCellBase"), "recurrent"),
    **dict.fromkeys(("ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d",
        "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "CosineSimilarity", "Fold",
        "PairwiseDistance", "PixelShuffle", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d",
        "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Unfold",
        "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d",
        "ZeroPad3d"), "resizing"),
}
#: Modules that are imported when they are asked for.
_MODULES = ("amp", "data", "distributions", "functional", "grad", "init", "logs", "saving",
            "swa_utils")
__all__ = [*_LAYERS, *_MODULES, "Buffer", "Module", "Parameter", "lr_scheduler", "optim", "state"]

if TYPE_CHECKING:
    from impl.nn import amp, data, distributions, functional, grad, init, logs, saving, swa_utils
    from impl.nn.activation import (
        CELU,
        ELU,
        GELU,
        GLU,
        SELU,
        Hardshrink,
        Hardsigmoid,
        Hardswish,
        Hardtanh,
        LeakyReLU,
        LogSigmoid,
        LogSoftmax,
        Mish,
        PReLU,
        ReLU,
        ReLU6,
        RReLU,
        Sigmoid,
        SiLU,
        Softmax,
        Softmax2d,
        Softmin,
        Softplus,
        Softshrink,
        Softsign,
        Tanh,
        Tanhshrink,
        Threshold,
    )
    from impl.nn.attention import (
        MultiheadAttention,
        Transformer,
        TransformerDecoder,
        TransformerDecoderLayer,
        TransformerEncoder,
        TransformerEncoderLayer,
    )
    from impl.nn.containers import (
        Flatten,
        Identity,
        ModuleDict,
        ModuleList,
        ParameterDict,
        ParameterList,
        Sequential,
        Unflatten,
    )
    from impl.nn.convolution import (
        Conv1d,
        Conv2d,
        Conv3d,
        ConvTranspose1d,
        ConvTranspose2d,
        ConvTranspose3d,
    )
    from impl.nn.fractional import FractionalMaxPool2d, FractionalMaxPool3d
    from impl.nn.lazy import (
        LazyBatchNorm1d,
        LazyBatchNorm2d,
        LazyBatchNorm3d,
        LazyConv1d,
        LazyConv2d,
        LazyConv3d,
        LazyConvTranspose1d,
        LazyConvTranspose2d,
        LazyConvTranspose3d,
        LazyInstanceNorm1d,
        LazyInstanceNorm2d,
        LazyInstanceNorm3d,
        LazyLinear,
    )
    from impl.nn.linear import Bilinear, Embedding, EmbeddingBag, Linear
    from impl.nn.loss import (
        AdaptiveLogSoftmaxWithLoss,
        BCELoss,
        BCEWithLogitsLoss,
        CosineEmbeddingLoss,
        CrossEntropyLoss,
        CTCLoss,
        GaussianNLLLoss,
        HingeEmbeddingLoss,
        HuberLoss,
        KLDivLoss,
        L1Loss,
        LinearCrossEntropyLoss,
        MarginRankingLoss,
        MSELoss,
        MultiLabelMarginLoss,
        MultiLabelSoftMarginLoss,
        MultiMarginLoss,
        NLLLoss,
        PoissonNLLLoss,
        SmoothL1Loss,
        SoftMarginLoss,
        TripletMarginLoss,
        TripletMarginWithDistanceLoss,
    )
    from impl.nn.normalization import (
        AlphaDropout,
        BatchNorm,
        BatchNorm1d,
        BatchNorm2d,
        BatchNorm3d,
        Dropout,
        Dropout1d,
        Dropout2d,
        Dropout3d,
        FeatureAlphaDropout,
        GroupNorm,
        InstanceNorm,
        InstanceNorm1d,
        InstanceNorm2d,
        InstanceNorm3d,
        LayerNorm,
        LayerNorm2d,
        LocalResponseNorm,
        RMSNorm,
        SyncBatchNorm,
    )
    from impl.nn.pooling import (
        AdaptiveAvgPool1d,
        AdaptiveAvgPool2d,
        AdaptiveAvgPool3d,
        AdaptiveMaxPool1d,
        AdaptiveMaxPool2d,
        AdaptiveMaxPool3d,
        AvgPool1d,
        AvgPool2d,
        AvgPool3d,
        LPPool1d,
        LPPool2d,
        LPPool3d,
        MaxPool1d,
        MaxPool2d,
        MaxPool3d,
        MaxUnpool1d,
        MaxUnpool2d,
        MaxUnpool3d,
    )
    from impl.nn.recurrent import (
        GRU,
        LSTM,
        RNN,
        GRUCell,
        LSTMCell,
        RNNBase,
        RNNCell,
        RNNCellBase,
    )
    from impl.nn.resizing import (
        ChannelShuffle,
        CircularPad1d,
        CircularPad2d,
        CircularPad3d,
        ConstantPad1d,
        ConstantPad2d,
        ConstantPad3d,
        CosineSimilarity,
        Fold,
        PairwiseDistance,
        PixelShuffle,
        PixelUnshuffle,
        ReflectionPad1d,
        ReflectionPad2d,
        ReflectionPad3d,
        ReplicationPad1d,
        ReplicationPad2d,
        ReplicationPad3d,
        Unfold,
        Upsample,
        UpsamplingBilinear2d,
        UpsamplingNearest2d,
        ZeroPad1d,
        ZeroPad2d,
        ZeroPad3d,
    )


#: What is said of other names in `nn.utils`.
_OF_UTILS = {
    "prune": "weight.assign(weight * mask) after each step of the optimiser",
    "stateless": "nn.state.functional_call",
    **dict.fromkeys(("convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format",
                     "memory_format"), "the module as it is: there are no strides")}


def _made_at_once(module_cls: Any, *given: Any, **named: Any) -> Any:
    """A layer: its first values are lazy, and cost nothing where they are replaced."""
    return module_cls(*given, **named)


def __getattr__(name: str) -> Any:
    """A layer or a part of `nn`, imported now."""
    if name in _LAYERS:
        value = getattr(importlib.import_module(f"impl.nn.{_LAYERS[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"impl.nn.{name}")
    elif name == "utils":  # where PyTorch has the clipping of gradients
        from impl.nn import fusion, parametrize, rnn
        value = Part("nn.utils", _OF_UTILS, clip_grad_norm_=optim.clip_grad_norm_,
                     clip_grad_norm=optim.clip_grad_norm_,
                     clip_grad_value_=optim.clip_grad_value_, rnn=rnn,
                     get_total_norm=optim.get_total_norm,
                     clip_grads_with_norm_=optim.clip_grads_with_norm_,
                     weight_norm=parametrize.weight_norm,
                     remove_weight_norm=parametrize.remove_weight_norm,
                     spectral_norm=parametrize.spectral_norm,
                     remove_spectral_norm=parametrize.remove_spectral_norm,
                     skip_init=_made_at_once, parametrize=parametrize,
                     parametrizations=SimpleNamespace(
                         weight_norm=parametrize.weight_norm_parametrization,
                         spectral_norm=parametrize.spectral_norm_parametrization),
                     **{each: getattr(fusion, each) for each in fusion.__all__},
                     parameters_to_vector=state.parameters_to_vector,
                     vector_to_parameters=state.vector_to_parameters)
    elif name == "parameter":
        value = SimpleNamespace(Parameter=Parameter, Buffer=Buffer)
    else:
        raise missing(name, __all__)  # r[impl errors.name.missing]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
