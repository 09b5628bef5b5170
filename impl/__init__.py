"""Tensor Schedule: a tensor runtime whose scheduler is specified, explained and checked.

`from impl import Tensor, TinyJit, nn` is all that a program needs. A module implements the chapter
of `spec/` that has its name; libraries, such as `nn` and `torch`, stand on top and have none.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from impl import (
    collectives,
    cpu,
    cuda,
    distributed,
    errors,
    metal,
    multi,
    opencl,
    realize,
    reference,
    settings,
    webgpu,
)
from impl.device import Device, GlobalCounters
from impl.dtypes import dtypes
from impl.host import np
from impl.ir import Ops, UOp
from impl.multi import Mesh
from impl.places import Place
from impl.realize import ExecItem, run_schedule
from impl.realize.session import Printer
from impl.settings import Context
from impl.symbolic import Variable
from impl.tensor import Tensor
from impl.tensor.base import TensorBase


class _Runtime:
    """What `Tensor` asks of the floors above it."""

    @property
    def default_device(self) -> Place:
        name = Device.DEFAULT
        # Without the setting, it is one that was found to be usable.
        return Device.usable(name) if settings.get("DEVICE") else name

    def usable_device(self, name: str) -> Place:
        return Device.usable(name)

    realize = staticmethod(realize.realize)

    def read(self, tensor: Any) -> np.ndarray:
        if isinstance(tensor.device, Mesh):
            realize.refuse_reading()
            realize.realize([tensor])
            whole = realize.peek(tensor) if tensor.sharding.is_copies else None
            if whole is not None:  # nothing has to be put together
                return whole
            tensor = tensor.to(tensor.device.members()[0])
        return realize.read(tensor)

    def seen(self, tensor: Any) -> np.ndarray | None:
        return realize.seen(tensor)

    def adopt(self, array: np.ndarray, device: Place) -> UOp | None:
        return realize.adopt(array, device)

    def pieces(self, tensor: Any) -> list[tuple[int, np.ndarray]]:
        return realize.pieces(tensor)

    def put_pieces(self, tensor: Any, given: list[np.ndarray]) -> None:
        realize.put_pieces(tensor, given)

    def present(self, mesh: Mesh) -> list[int]:
        device = Device[mesh]
        assert isinstance(device, collectives.MeshDevice)
        return device.numbers

    def told(self, mesh: Mesh, purpose: str, given: bytes) -> list[bytes]:
        several = any("@" in device for device in mesh.devices)
        return distributed.all_gather(purpose, given) if several else [given]

    def sharding(self, tensor: Any) -> Any:
        return multi.sharding_of_node(tensor.uop)

    def read_part(self, tensor: Any) -> np.ndarray | None:
        return realize.read_part(tensor)

    def peek(self, tensor: Any) -> np.ndarray | None:
        return realize.peek(tensor)

    def look(self, tensor: Any, operation: str, remedy: str) -> None:
        realize.session.refuse_capture(
            f"calls {operation}, and the size of the result depends on values", remedy)
        if settings.get("DEBUG"):
            print(f"{operation}: computes {tensor}, on which the size of the result depends")

    def differentiate(self, root: UOp, targets: list[UOp]) -> None:
        for observer in realize.session.capturing.observers:
            observer.gradient(root, targets)

    def schedule(self, tensors: list[Any]) -> list[ExecItem]:
        return realize.schedule(tensors)

    def document(self, tensors: list[Any], programs: bool = False,
                 rounds: bool = False) -> dict[str, Any]:
        return realize.schedule_document(tensors, programs, rounds=rounds)

    # Complex numbers stand on top of tensors, and are imported where they are met.

    def beside_complex(self, tensor: Any, other: Any, name: str, reflected: bool) -> Any:
        from impl import complex as complexes
        return complexes.beside(tensor, other, name, reflected)

    def instead_complex(self, name: str, method: Any, given: Any, named: Any) -> Any:
        from impl import complex as complexes
        return complexes.instead(name, method, given, named)

    def complex_of(self, tensors: type, data: Any, device: Any = None, dtype: Any = None,
                   requires_grad: bool = False) -> Any:
        from impl.complex import Complex
        made = Complex.of(data, device, dtype, tensors)
        return made.requires_grad_() if requires_grad else made

    def report(self, tensors: list[Any], path: str | os.PathLike[str]) -> Path:
        from impl import inspect
        document = realize.schedule_document(tensors, programs=True, named=True)
        with settings.Context(FUSE=0):
            unfused = realize.schedule_document(tensors)
        return inspect.html_report(document, path, beside=("without fusion", unfused))

    def explain(self, tensors: list[Any]) -> str:
        from impl import inspect
        return inspect.explain(realize.schedule_document(tensors, steps=True))


def _view(document: dict[str, Any], compiled: Callable[[], None],
          name: Callable[[], None]) -> None:
    """VIZ=1: show a schedule to who looks at the pages of this program."""
    from impl.inspect.serving import viewer
    viewer.see(document, compiled, name)


def _names() -> dict[Any, str]:
    """What the user calls the tensors of the program, for reports."""
    from impl.inspect.naming import names_of_tensors
    return names_of_tensors()


def _printer() -> Printer:
    """What prints for DEBUG."""
    from impl.inspect import debug
    return debug


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The functions of the Array API standard for tensors.

    Raises:
        ArgumentError: another version of the standard is asked for.
    """
    import impl.array_api
    known = ("2021.12", "2022.12", "2023.12", "2024.12")
    if api_version not in (None, *known):
        raise errors.ArgumentError("__array_namespace__", f"api_version is {api_version!r:.40}",
                                   f"ask for one of {', '.join(known)}")
    return impl.array_api


TensorBase.runtime = _Runtime()
setattr(Tensor, "__array_namespace__", _array_namespace)  # noqa: B010  (no attribute of its class)
realize.session.printer = _printer
realize.session.names = _names
realize.session.viewers.append(_view)

from impl import playback  # noqa: E402

playback.capture()

from impl import (  # noqa: E402
    export,
    nn,  # layers stand on top of all that is imported above
)
from impl import transforms as func  # noqa: E402
from impl.replay import TinyJit  # noqa: E402

sys.modules["impl.func"] = func  # so that `from impl.func import vmap` finds it


def __getattr__(name: str) -> Any:
    """A name of the module `torch`, for a program that imports this one as that."""
    below = os.path.join(os.path.dirname(__file__), name)
    if name.startswith("__") or os.path.exists(below) or os.path.exists(f"{below}.py"):
        raise AttributeError(name)  # of a module below this one: it is imported now
    import impl.torch
    return getattr(impl.torch, name)


__version__ = "0.1.0"
__all__ = ["Context", "Device", "ExecItem", "GlobalCounters", "Mesh", "Ops", "Tensor", "TinyJit",
           "UOp", "Variable", "collectives", "cpu", "cuda", "distributed", "dtypes", "export",
           "func", "metal", "nn", "opencl", "reference", "run_schedule", "webgpu"]
