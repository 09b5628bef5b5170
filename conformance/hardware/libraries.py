"""Who computes the workloads on the GPU: this library, PyTorch, torch.compile, JAX."""
from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import impl
from conformance.bench.peers import Ready
from conformance.bench.peers.impl_peer import ImplPeer
from conformance.bench.peers.jax_peer import JaxPeer, JaxWords
from conformance.bench.peers.torch_peer import TorchPeer
from conformance.bench.workloads import Array, Workload

TITLES = {"impl": "ours", "torch": "torch", "compiled": "torch.compile", "jax": "JAX"}


class Ours(ImplPeer):
    """This library on the device that DEVICE names. What is timed does not wait for the GPU."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.held = dtype, dict[str, Any]()

    def tensors(self, workload: Workload) -> dict[str, Any]:
        made = {name: self.Tensor(array) for name, array in workload.inputs.items()}
        made = {name: one.cast(self.dtype).contiguous() if array.dtype.kind == "f" else one
                for (name, one), array in zip(made.items(), workload.inputs.values(), strict=True)}
        self.Tensor.realize(*made.values())
        self.held = made
        return made

    def ready(self, workload: Workload) -> Ready:
        found, held = super().ready(workload), self.held

        def reset() -> None:
            for name in workload.parameters:
                held[name].assign(self.Tensor(workload.inputs[name]).cast(self.dtype)).realize()
        return Ready(found.run, lambda answer: widened(found.values(answer)), reset)

    def finish(self, answer: Any) -> None:
        """Wait for the GPU."""
        impl.Device[impl.Device.DEFAULT].synchronize()


class Torch(TorchPeer):
    """PyTorch on the GPU, as it is called or compiled."""

    def __init__(self, dtype: str, compiled: bool) -> None:
        super().__init__(import_module("torch"))
        self.dtype, self.compiled = getattr(self.torch, dtype), compiled
        if not self.torch.cuda.is_available():
            raise ImportError("this PyTorch has no CUDA")

    def fresh(self, function: Callable[[Any], Any]) -> Any:
        return super().fresh(function) if self.compiled else function

    def inputs(self, workload: Workload) -> dict[str, Any]:
        made = super().inputs(workload)
        return {name: one.to("cuda", self.dtype if one.is_floating_point() else None)
                for name, one in made.items()}

    def ready(self, workload: Workload) -> Ready:
        found = super().ready(workload)
        return Ready(found.run, lambda answer: [one.detach().float().cpu().numpy()
                                                for one in answer])

    def finish(self, answer: Any) -> None:
        """Wait for the GPU."""
        self.torch.cuda.synchronize()

    def exact(self, workload: Workload) -> Array:
        """The value in float32, of a workload that is too large for NumPy."""
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self.torch.backends.cudnn.allow_tf32 = False
        inputs = {name: one.float() if one.is_floating_point() else one
                  for name, one in self.inputs(workload).items()}
        found: Array = self.function(workload)(inputs)[0].cpu().numpy()
        return found


class Jax(JaxPeer):
    """JAX on the GPU."""

    def __init__(self, dtype: str) -> None:
        self.jax = import_module("jax")
        if self.jax.default_backend() != "gpu":
            raise ImportError("this JAX has no CUDA")
        self.np, self.replays, self.words = self.jax.numpy, {}, JaxWords(self.jax)
        self.dtype = dtype

    def inputs(self, workload: Workload) -> Any:
        return {name: self.np.asarray(array, self.dtype if array.dtype.kind == "f" else None)
                for name, array in workload.inputs.items()}

    def ready(self, workload: Workload) -> Ready:
        inputs, function = self.inputs(workload), self.fresh(workload)
        return Ready(lambda: function(inputs),
                     lambda answer: widened([one.astype("float32") for one in answer]))

    def finish(self, answer: Any) -> None:
        """Wait for the GPU."""
        self.jax.block_until_ready(answer)


def widened(arrays: Any) -> list[Array]:
    """What a library answered, as float32."""
    return [np.asarray(array).astype(np.float32) for array in arrays]


LIBRARIES = ("impl", "torch", "compiled", "jax")


def make(name: str, dtype: str) -> Any:
    """A library for one dtype.

    Raises:
        ImportError: it is not installed, or has no CUDA.
    """
    if name == "impl":
        return Ours(dtype)
    return Jax(dtype) if name == "jax" else Torch(dtype, name == "compiled")
