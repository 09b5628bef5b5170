"""Which devices there are, and what is said where there are none: no device is needed for it."""
from __future__ import annotations

import sys
from typing import Any

import pytest

from conformance.trace import verifies
from impl import opencl

cl: Any = pytest.importorskip("pyopencl")


@verifies("opencl.error.told+2")
def test_without_a_device_one_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = opencl._found.__wrapped__
    with monkeypatch.context() as patch:
        patch.setattr(cl, "get_platforms", list)
        assert found() == ((), "OpenCL finds no device")

        def refuse() -> None:
            raise cl.LogicError("clGetPlatformIDs", -1001, "no platform")
        patch.setattr(cl, "get_platforms", refuse)
        devices, problem = found()
        assert not devices and "no platform" in problem and "\n" not in problem
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyopencl", None)
        devices, problem = found()
        assert not devices and 'pyopencl is not installed (pip install -e ".[opencl]")' in problem


class _Listed:
    """A device as OpenCL lists it."""

    name, driver_version, extensions = "a processor", "3.0", ""

    def __init__(self) -> None:
        self.platform = self
        self.unknown = False

    def get_devices(self) -> list[_Listed]:
        return [self]


@verifies("opencl.error.told+2")
def test_a_device_whose_driver_compiles_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old PoCL lists a processor that its compiler does not know."""
    old, new = _Listed(), _Listed()
    old.unknown = True

    class Refused(cl.RuntimeError):
        def __str__(self) -> str:
            return "clBuildProgram failed\n\nerror: unknown target"

    class Program:
        def __init__(self, devices: list[_Listed], text: str) -> None:
            self.devices = devices

        def build(self, flags: list[str]) -> None:
            if self.devices[0].unknown:
                raise Refused("clBuildProgram", -11, "")

    monkeypatch.setattr(cl, "Context", lambda devices: devices)
    monkeypatch.setattr(cl, "Program", Program)
    monkeypatch.setattr(cl, "get_platforms", lambda: [old, new])
    assert opencl._found.__wrapped__() == ((new,), "")
    monkeypatch.setattr(cl, "get_platforms", lambda: [old])
    devices, problem = opencl._found.__wrapped__()
    assert not devices and "\n" not in problem
    assert "compiles nothing for a processor: error: unknown target" in problem
