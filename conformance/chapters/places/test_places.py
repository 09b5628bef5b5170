"""Where values lie, and who decides it. Chapter: spec/places.md."""
from __future__ import annotations

import json

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Device, Mesh, Tensor
from impl.gradient.nodes import device_of
from impl.ir import Ops, UOp
from impl.places import Place, copied_to, home, named, place_of


@verifies("device.name.resolved+2")
def test_a_place_is_its_name() -> None:
    place = Device.canonical("cpu:0")
    assert isinstance(place, Place) and place == "CPU" and place.members() == ("CPU",)
    assert json.dumps({place: place}) == '{"CPU": "CPU"}' and repr(place) == "'CPU'"
    both = Mesh(("REFERENCE:1", "REFERENCE:2"))
    assert isinstance(both, Place) and both.members() == ("REFERENCE:1", "REFERENCE:2")
    assert all(isinstance(each, Place) for each in both.members())


@verifies("device.name.resolved+2")
def test_everything_that_lies_somewhere_has_a_place() -> None:
    there = Tensor(np.arange(4, dtype=np.float32), device="reference:1")
    value = (there * 2).to("REFERENCE:2") + 1
    assert isinstance(there.device, Place) and isinstance(value.device, Place)
    for item in value.schedule():
        assert all(isinstance(buffer.device, Place) for buffer in item.bufs)
    assert value.tolist() == [1, 3, 5, 7] and value.uop.arg[0].device == "REFERENCE:2"


@verifies("places.home.made-of+2")
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_what_reads_nothing_is_computed_where_it_is_made_of(steps: int) -> None:
    empty = Tensor.ones(3, 0, device="REFERENCE:1").contiguous().realize()
    total = empty
    for _ in range(steps):
        total = total * 2
    total = total.sum(1) + 1
    assert device_of(total.uop) == "REFERENCE:1"
    total.realize()
    assert total.uop.arg[0].device == "REFERENCE:1" and total.tolist() == [1, 1, 1]


@verifies("places.home.made-of+2")
def test_a_copy_is_where_it_goes_to() -> None:
    x = Tensor([1.0, 2.0], device="REFERENCE:1")
    moved = x.to("REFERENCE:2")
    assert moved.uop.op is Ops.COPY and place_of(moved.uop) == "REFERENCE:2"
    assert device_of((moved * 2).sum().uop) == "REFERENCE:2"
    assert device_of(UOp.const(x.dtype, 1.0)) is None
    assert home([x.uop], lambda node: Place("")) is None  # it is anywhere, and nobody looks below


@verifies("realize.device.named")
def test_a_holder_is_given_a_copy_of_what_has_no_place() -> None:
    here, there = Place("REFERENCE"), Place("REFERENCE:1")
    number = UOp.const(Tensor(1.0).dtype, 1.0)
    assert named(number, here, here) is number
    copy = named(number, there, here)
    assert copy is copied_to(number, there) and named(copy, there, here) is copy
    memory = Tensor([1.0], device="REFERENCE").uop
    assert named(memory, there, here) is memory  # it was brought there when it was written down
