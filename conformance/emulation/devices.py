"""The implementation of this project on each of its devices, as the suite drives it.

    python -m conformance --impl conformance.emulation.devices:CUDA
    python -m conformance fuzz --devices CPU,REFERENCE,CUDA --count 100

CUDA and METAL are emulated: the runtime is the real one, the driver under it a mock, and each
kernel of CUDA is compiled by NVRTC too. Lanes run in reverse, so that one that does not wait for
another shows. All devices may be used in one process. In the tier `multi` each has a second one of
its kind, and the processor besides: two GPUs, or two contexts of the one device of OpenCL. In the
tier `sharded` each has as many as meshes need.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from conformance.emulation import building, driver, metal_objects
from conformance.protocol import Info, Observation

#: GPUs of a kind that is emulated: enough for every mesh that is drawn.
MESH = 6

_installed = contextlib.ExitStack()
Options = Mapping[str, Any]


class OnDevice:
    """The adapter on one device, whatever the default is. `lacks` are dtypes it does not have;
    `settings` are in force for all programs.
    """

    def __init__(self, device: str, lacks: Collection[str] = (), **settings: Any) -> None:
        self.device, self.lacks = device, lacks
        self.settings = {"DEVICE": device, **settings}
        self.adapter: Any = import_module("conformance.adapters.impl_adapter").Adapter()

    def info(self) -> Info:
        with import_module("impl").Context(DEVICE=self.device):
            known: Info = self.adapter.info()
        return replace(known, dtypes=tuple(each for each in known.dtypes
                                           if each not in self.lacks))

    def _there(self, options: Options | None) -> Options:
        given = dict(options or {})
        return {**given, "settings": {**self.settings, **given.get("settings", {})}}

    def run(self, program: Any, observe: Collection[str],
            options: Options | None = None) -> Observation:
        found: Observation = self.adapter.run(program, observe, self._there(options))
        return found

    def prepare(self, runs: Iterable[tuple[Any, Options]]) -> None:
        self.adapter.prepare([(program, self._there(options)) for program, options in runs])

    def reset(self) -> None:
        self.adapter.reset()


def __getattr__(name: str) -> Callable[[], OnDevice]:
    """The adapter on any other device that is registered: there is nothing to prepare."""
    kinds = import_module("impl").Device.kinds
    if name not in kinds:
        raise AttributeError(f"there is no device {name}: there are {', '.join(sorted(kinds))}")
    return partial(OnDevice, name)


def OPENCL() -> OnDevice:  # noqa: N802  (named as the device is)
    """The adapter on OpenCL; PoCL does not optimise, as most kernels here run once."""
    os.environ.setdefault("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
    return OnDevice("OPENCL")


def WEBGPU() -> OnDevice:  # noqa: N802
    """The adapter on WebGPU, through whatever driver is there. WGSL has no doubles, and integers
    of 64 bits with a feature only.
    """
    wide = import_module("impl").Device["WEBGPU"].wide
    return OnDevice("WEBGPU", lacks=("float64", *(() if wide else ("int64", "uint64"))))


def CUDA() -> OnDevice:  # noqa: N802
    """The adapter on a mock of the CUDA driver. It knows the kernels that were compiled for it:
    others, which lie on disk from an earlier run, would be refused.
    """
    os.environ.setdefault("EMULATION_DEVICES", str(MESH))
    mock = _installed.enter_context(driver.installed())
    mock.set_order("reversed")
    return OnDevice("CUDA", CACHE_FOLDER=str(building.folder() / "kernels"))


def METAL() -> OnDevice:  # noqa: N802
    """The adapter on a mock of PyObjC's Metal. GPUs under Metal have no doubles."""
    others = [metal_objects.Device() for _ in range(MESH - 1)]
    first = _installed.enter_context(metal_objects.installed(*others))
    for each in (first, *others):
        each.order = "reversed"
    return OnDevice("METAL", lacks=("float64",))
