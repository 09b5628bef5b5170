"""Runs CUDA and Metal sources, unchanged, on a machine without a GPU. They are compiled as C++.

    import numpy as np
    from conformance import emulation

    module = emulation.compile(source, "cuda")
    module.launch("sum", grid=4, block=256, arguments=[values, sums, 1000])

Each lane of a work-group is a fiber: barriers, shuffles and shared memory behave as on a GPU. Lanes
run forward, reversed or shuffled, so that a missing barrier shows. Lanes at different barriers are
reported with their lines. With `sanitize`, AddressSanitizer watches each access.

`driver` holds a mock of the CUDA driver under which unmodified cuda-bindings run such sources,
`address_spaces` a check of what C++ does not know about Metal.
"""
from __future__ import annotations

from conformance.emulation import building
from conformance.emulation.errors import (
    CompileError,
    EmulationError,
    MemoryOverrun,
    OrderDependence,
    Unavailable,
)
from conformance.emulation.running import Argument, Module, Order, Parameter, Size

__all__ = ["Argument", "CompileError", "EmulationError", "MemoryOverrun", "Module", "Order",
           "OrderDependence", "Parameter", "Size", "Unavailable", "compile", "unavailable"]


def compile(source: str, language: str, sanitize: bool = False) -> Module:
    """Compile a source of `language`, "cuda" or "metal".

    Raises `CompileError` with the compiler's words and the source's lines, `Unavailable` where
    there is no g++.
    """
    plain = building.library(source, language)
    return Module(plain, building.library(source, language, True) if sanitize else None)


def unavailable() -> str:
    """Why nothing can be emulated here, or nothing."""
    try:
        building.compiler()
    except Unavailable as reason:
        return str(reason)
    return ""
