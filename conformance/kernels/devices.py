"""The devices that tests run on, from the registry: a device that is registered is in all of them.

A test of what each device promises takes `on_each_device`, a test of kernels that are called with
arrays of the host `on_each_processor`. Devices that are emulated are not among them: their chapters
ask the same of them while the driver's mock is installed.
"""
from __future__ import annotations

import pytest

from impl.device import Device
from impl.device.workgroups import GroupDevice

#: Kinds whose driver is a mock, in the tests of their chapters.
EMULATED = ("CUDA", "METAL")
#: All kinds of this project; a test may register more.
KINDS = tuple(kind for kind, (backend, _) in Device.kinds.items()
              if backend.__module__.startswith("impl."))
#: Those that need no emulation.
DEVICES = tuple(kind for kind in KINDS if kind not in EMULATED)
#: Those without work-groups: memory is the host's, and a kernel that has no LANE runs as it stands.
PROCESSORS = tuple(kind for kind in DEVICES if not issubclass(Device.kinds[kind][0], GroupDevice))


def on_each(kinds: tuple[str, ...]) -> pytest.MarkDecorator:
    """Run a test on each device of some kinds; a device that cannot be used is skipped."""
    return pytest.mark.parametrize("device", [
        kind if kind in ("CPU", "REFERENCE") else pytest.param(kind, marks=pytest.mark.device(kind))
        for kind in kinds])


on_each_device, on_each_processor = on_each(DEVICES), on_each(PROCESSORS)
