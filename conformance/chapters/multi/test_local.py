"""Tests of the chapter multi: values that are made of what each device has."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Mesh, Tensor
from impl.errors import ArgumentError, AxisError, DTypeError, ShapeError

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(4))
GRID = Mesh(DEVICES, {"data": 2, "model": 2})
VALUE = np.arange(15, dtype=np.float32).reshape(5, 3)


@pytest.fixture(autouse=True)
def reference() -> Any:
    """Interpreted devices: any number of them, and nothing to compile."""
    with Context(DEVICE="REFERENCE"):
        yield


@verifies("multi.local.whole")
@pytest.mark.parametrize("cut", [{"data": 0}, {"data": 1}, {"data": 0, "model": 1}, {"model": 0},
                                 {"data": 0, "model": 0}, {}])
def test_a_value_is_made_of_its_pieces(cut: dict[str, Any]) -> None:
    """Also where axes do not divide, and a device has nothing."""
    x = Tensor(VALUE).shard(GRID, **cut)
    for pieces in ([each.data for each in x.addressable_shards], x.shards):
        with Context(SPEC=1):
            found = Tensor.from_local(pieces, GRID, **cut)
        assert found.sharding == x.sharding and found.dtype == x.dtype
        np.testing.assert_array_equal(found.numpy(), VALUE)
        np.testing.assert_array_equal((found.T @ found).sum(0).numpy(), (VALUE.T @ VALUE).sum(0))
    whole = Tensor.from_local(VALUE, GRID, **cut)  # all devices are those of this process
    np.testing.assert_array_equal(whole.numpy(), VALUE)
    assert whole.sharding == x.sharding


@verifies("multi.local.whole")
def test_pieces_may_be_of_any_dtype_and_have_their_own_gradient() -> None:
    halves = [Tensor(VALUE[:3]).bfloat16(), Tensor(VALUE[3:]).bfloat16()]
    found = Tensor.from_local(halves, DEVICES[:2], 0)
    np.testing.assert_array_equal(found.float().numpy(), VALUE)
    found = Tensor.from_local([VALUE, VALUE + 1], DEVICES[:2], 0)
    found.requires_grad = True
    (found * found).sum().backward()
    assert found.grad is not None and found.grad.sharding == found.sharding
    np.testing.assert_array_equal(found.grad.numpy(), 2 * np.concatenate([VALUE, VALUE + 1]))


A, B = VALUE[:3], VALUE[3:]
WRONG: list[tuple[type[Exception], list[str], Any]] = [
    (ArgumentError, ["1 pieces for the 2 devices REFERENCE, REFERENCE:1"], lambda d: ([A], d, 0)),
    (ShapeError, ["piece of REFERENCE has shape (2, 3)", "of shape (5, 3)", "cut as shard=0",
                  "it has (3, 3)"], lambda d: ([B, A], d, 0)),
    (ShapeError, ["(3, 3) on REFERENCE, (3,) on REFERENCE:1"], lambda d: ([A, A[0]], d, 0)),
    (ShapeError, ["piece of REFERENCE:1 has shape (3, 2)", "it has (3, 3)"],
     lambda d: ([A, A[:, :2]], d, 0)),
    (ShapeError, ["piece of REFERENCE:1 has shape (2, 3)", "as copies it has (3, 3)"],
     lambda d: ([A, B], d)),
    (DTypeError, ["float32 on REFERENCE, int32 on REFERENCE:1"],
     lambda d: ([A, A.astype(np.int32)], d, 0)),
    (AxisError, ["axis 2 is out of range for shape (3, 3)"], lambda d: ([A, A], d, 2)),
    (ArgumentError, ["requires a gradient", "detach"],
     lambda d: ([Tensor(A, requires_grad=True), A], d, 0)),
    (ArgumentError, ["REFERENCE and REFERENCE:1 have the same piece"], lambda d: ([A, A + 1], d)),
]


@verifies("multi.local.whole")
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_pieces_of_no_value_are_refused(number: int) -> None:
    error, words, given = WRONG[number]
    with Context(SPEC=1), pytest.raises(error) as raised:
        Tensor.from_local(*given(DEVICES[:2]))
    for word in words:
        assert word in str(raised.value)


@verifies("multi.local.whole")
def test_a_shape_that_is_given_is_compared() -> None:
    for given in ([A, A], VALUE):
        with pytest.raises(ShapeError, match=r"\(7, 3\)"):
            Tensor.from_local(given, DEVICES[:2], 0, shape=(7, 3))
