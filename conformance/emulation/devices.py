"""The implementation of this project on emulated GPUs, as the suite drives it.

    python -m conformance --impl conformance.emulation.devices:CUDA
    python -m conformance fuzz --impl conformance.emulation.devices:METAL --count 100

The runtime is the real one, the driver under it the mock: each kernel is compiled by NVRTC too.
Lanes run in reverse, so that one that does not wait for another shows.
"""
from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from conformance.emulation import driver, metal_objects

_installed = contextlib.ExitStack()


# --8<-- [start:devices]
def CUDA() -> Any:  # noqa: N802  (named as the device is)
    """The adapter on a mock of the CUDA driver."""
    mock = _installed.enter_context(driver.installed())
    mock.set_order("reversed")
    return _adapter("CUDA")


def METAL() -> Any:  # noqa: N802
    """The adapter on a mock of PyObjC's Metal."""
    mock = _installed.enter_context(metal_objects.installed())
    mock.order = "reversed"
    adapter = _adapter("METAL")
    info = adapter.info()
    adapter.info = lambda: replace(info, dtypes=tuple(  # GPUs under Metal have no doubles
        dtype for dtype in info.dtypes if dtype != "float64"))
    return adapter
# --8<-- [end:devices]


def _adapter(device: str) -> Any:
    os.environ["DEVICE"] = device
    return import_module("impl.adapter").Adapter()
