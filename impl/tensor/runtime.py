"""What a tensor asks of higher chapters. Chapter: spec/tensor.md."""
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from impl.host import np
from impl.ir import UOp
from impl.multi import Mesh
from impl.places import Place


class Runtime(Protocol):
    """The functions of higher chapters that a tensor calls; `impl/assembly.py` sets it."""

    @property
    def default_device(self) -> Place:
        """The device of tensors for which none was named."""

    def usable_device(self, name: str) -> Place:
        """The full name of a device; raises DeviceError if there is none, or not here."""

    def realize(self, tensors: list[Any]) -> None:
        """Compute the tensors' values into memory."""

    def read(self, tensor: Any) -> np.ndarray:
        """The elements of a realized tensor; bfloat16 as its bits."""

    def read_part(self, tensor: Any) -> np.ndarray | None:
        """The result of `read` for a part of a value in memory; None if it has to be computed."""

    def seen(self, tensor: Any) -> np.ndarray | None:
        """The elements where they lie, to be read only; None if the host does not see them."""

    def adopt(self, array: np.ndarray, device: Place) -> UOp | None:
        """A leaf whose memory is an array's; None if it cannot be shared."""

    def pieces(self, tensor: Any) -> list[tuple[int, np.ndarray]]:
        """What each device of this process has of a tensor on a mesh, by its number there."""

    def put_pieces(self, tensor: Any, given: list[np.ndarray]) -> None:
        """Fill what each device of this process has of a tensor on a mesh, in their order."""

    def present(self, mesh: Mesh) -> list[int]:
        """The numbers of the devices of a mesh that this process has."""

    def told(self, mesh: Mesh, purpose: str, given: bytes) -> list[bytes]:
        """What each process of a mesh tells the others, once all have come with this purpose."""

    def sharding(self, tensor: Any) -> Any:
        """How a tensor lies on its mesh; None if it is on one device."""

    def peek(self, tensor: Any) -> np.ndarray | None:
        """The result of `read` for a value in memory; None if it has to be computed."""

    def look(self, tensor: Any, operation: str, remedy: str, why: str) -> None:
        """Say under DEBUG that an operation computes values, and why; refuse it while one captures.
        """

    def keep_forms(self, operation: str, remedy: str) -> None:
        """Refuse what gives a tensor another shape, in a function that is captured."""

    def differentiate(self, root: UOp, targets: list[UOp]) -> None:
        """Tell a capture under way that gradients are taken: of what, with respect to what."""

    def schedule(self, tensors: list[Any]) -> list[Any]:
        """The kernels that would run, in order."""

    def document(self, tensors: list[Any], programs: bool = False,
                 rounds: bool = False) -> dict[str, Any]:
        """The schedule as a document."""

    def report(self, tensors: list[Any], path: str | os.PathLike[str],
               machine: bool = False) -> Path:
        """Write a page that shows the schedule."""

    def explain(self, tensors: list[Any]) -> str:
        """Why the schedule is as it is, for a person."""

    def beside_complex(self, tensor: Any, other: Any, name: str, reflected: bool) -> Any:
        """What an operator gives beside complex numbers; NotImplemented if they are none."""

    def instead_complex(self, name: str, method: Callable[..., Any], given: tuple[Any, ...],
                        named: dict[str, Any]) -> Any:
        """What a method gives that has failed at complex numbers; NotImplemented if at others."""

    def complex_of(self, tensors: type, data: Any, device: Any = None, dtype: Any = None,
                   requires_grad: bool = False) -> Any:
        """Data as complex numbers, whose parts are of a class."""

    def fourier(self, name: str, *given: Any, **named: Any) -> Any:
        """What a function of `impl.fft` gives."""
