"""Tensor Schedule: a tensor runtime whose scheduler is specified, explained and checked.

`from impl import Tensor, TinyJit, nn` is all that a program needs. A module implements the chapter
of `spec/` that has its name; libraries, such as `nn` and `torch`, stand on top and have none. What
no program needs before its first tensor is imported then (`assembly`), or when it is named.
"""
from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from impl import errors
from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.multi import Mesh
from impl.places import introduce
from impl.settings import Context
from impl.symbolic import Variable
from impl.tensor import Tensor
from impl.tensor.base import TensorBase

if TYPE_CHECKING:
    from impl import (
        collectives,
        cpu,
        cuda,
        distributed,
        export,
        metal,
        nn,
        opencl,
        reference,
        webgpu,
    )
    from impl import transforms as func
    from impl.device import Device, GlobalCounters
    from impl.realize import ExecItem, run_schedule
    from impl.replay import TinyJit

#: What is imported when it is named, by where it is.
_LATE = {"Device": "device", "GlobalCounters": "device", "ExecItem": "realize",
         "run_schedule": "realize", "TinyJit": "replay"}


def _assemble() -> Any:
    """Put all together, and give what stands above tensors."""
    importlib.import_module("impl.assembly")
    return TensorBase.runtime


class _Floors:
    """What stands above tensors, before one has asked for it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_assemble(), name)


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


TensorBase.runtime = _Floors()
introduce.append(_assemble)
setattr(Tensor, "__array_namespace__", _array_namespace)  # noqa: B010  (no attribute of its class)


def __getattr__(name: str) -> Any:
    """What is not imported before it is named; else a name of the module `torch`, for a program
    that imports this one as that.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _LATE:
        found = globals()[name] = getattr(importlib.import_module(f"impl.{_LATE[name]}"), name)
        return found
    below = os.path.join(os.path.dirname(__file__), name)
    if os.path.exists(below) or os.path.exists(f"{below}.py"):
        return importlib.import_module(f"impl.{name}")
    import impl.torch
    try:
        return getattr(impl.torch, name)
    except errors.NameMissingError as error:
        raise errors.NameMissingError("impl", error.detail, error.remedy) from None


__version__ = "0.1.0"
__all__ = ["Context", "Device", "ExecItem", "GlobalCounters", "Mesh", "Ops", "Tensor", "TinyJit",
           "UOp", "Variable", "collectives", "cpu", "cuda", "distributed", "dtypes", "export",
           "func", "metal", "nn", "opencl", "reference", "run_schedule", "webgpu"]
