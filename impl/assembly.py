"""All chapters put together, when the first tensor asks for it: what tensors ask of the floors
above them, the devices, and what looks on.
"""
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from impl import (
    collectives,
    cpu,
    cuda,
    distributed,
    metal,
    multi,
    opencl,
    playback,
    realize,
    reference,
    settings,
    webgpu,
)
from impl.device import Device
from impl.errors import ReplayError
from impl.host import np
from impl.ir import UOp
from impl.multi import Mesh
from impl.places import Place
from impl.realize import ExecItem
from impl.realize.session import Printer
from impl.tensor.base import TensorBase

#: The modules that make devices known need only be imported.
__all__ = ["Floors", "cpu", "cuda", "metal", "opencl", "reference", "webgpu"]


class Floors:
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

    def look(self, tensor: Any, operation: str, remedy: str, why: str) -> None:
        realize.session.refuse_capture(f"calls {operation}, and {why}", remedy)
        if settings.get("DEBUG"):
            print(f"{operation}: computes {tensor}, since {why}")

    def keep_forms(self, operation: str, remedy: str) -> None:
        if realize.session.capturing.observers:
            raise ReplayError("TinyJit", f"the function calls {operation}, and a replay "
                                     "gives tensors values, not shapes", f"write {remedy}")

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

    def fourier(self, name: str, *given: Any, **named: Any) -> Any:
        from impl import fft
        return getattr(fft, name)(*given, **named)

    def report(self, tensors: list[Any], path: str | os.PathLike[str],
               machine: bool = False) -> Path:
        from impl import inspect
        document = realize.schedule_document(tensors, programs=True, named=True, machine=machine)
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


TensorBase.runtime = Floors()
realize.session.printer = _printer
realize.session.names = _names
realize.session.viewers.append(_view)
playback.capture()
