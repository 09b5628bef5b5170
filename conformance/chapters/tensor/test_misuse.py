"""What looks like a program, and means something else than who wrote it thought."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, dtypes, nn, torch
from impl.errors import AxisError, DTypeError, ShapeError, ValueOutsideError
from impl.tensor.host import Listed

F = nn.functional
COLUMN, LINE = Tensor([[0.25], [0.5], [0.75], [0.5]]), Tensor([1.0, 0.0, 1.0, 0.0])

PAIRED: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "BCELoss": nn.BCELoss(), "BCEWithLogitsLoss": nn.BCEWithLogitsLoss()}


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("name", PAIRED)
def test_chances_and_truths_of_other_shapes_are_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=r"\(4, 1\) and the target \(4,\)"):
        PAIRED[name](COLUMN, LINE)
    assert PAIRED[name](COLUMN, LINE.reshape(4, 1)).shape == ()
    assert COLUMN.binary_crossentropy(LINE, "none").shape == (4, 4)  # tinygrad's


DIFFERENCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


@verifies("tensor.loss.shapes")
@pytest.mark.parametrize("name", DIFFERENCES)
def test_who_lets_differences_broadcast_is_warned_once(name: str) -> None:
    loss: Any = getattr(F, name)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(2):
            assert loss(COLUMN, LINE, reduction="none").shape == (4, 4)
    assert len(seen) == 1 and seen[0].category is UserWarning and seen[0].filename == __file__
    assert f"{name}: the input is (4, 1) and the target (4,)" in str(seen[0].message)


@verifies("tensor.loss.shapes")
@pytest.mark.parametrize("name", DIFFERENCES)
def test_nobody_is_warned_of_equal_shapes(name: str) -> None:
    loss: Any = getattr(F, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = loss(LINE, Tensor(np.array([0.5, 0.5, 3, 3], np.float32)), reduction="none")
    assert found.shape == (4,)


@verifies("tensor.movement.elements")
def test_flip_without_axes_reverses_all() -> None:
    x = np.arange(6).reshape(2, 3)
    unnamed: Any = {"axis": None}
    for found in (Tensor(x).flip(), Tensor(x).flip(**unnamed)):
        assert found.tolist() == np.flip(x).tolist()
    assert Tensor(x).flip(()).tolist() == x.tolist() and Tensor(3).flip().item() == 3


@verifies("tensor.arguments.refused+2")
def test_one_axis_of_several_is_exchanged_with_none() -> None:
    x = Tensor([[1, 2], [3, 4]])
    with pytest.raises(AxisError, match=r"one axis, 0, of shape \(2, 2\)"):
        x.transpose(0)
    assert x.transpose().tolist() == x.transpose(0, 1).tolist() == [[1, 3], [2, 4]]
    assert Tensor([1, 2]).transpose(0).tolist() == [1, 2]


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("method", ["quantile", "nanquantile"])
@pytest.mark.parametrize("q", [2.0, -1, [0.5, 1.5], np.array([[-0.1]]), float("nan")], ids=repr)
def test_a_part_of_more_than_the_whole_is_refused(method: str, q: Any) -> None:
    x = Tensor([1.0, 2.0, 3.0])
    with pytest.raises(ValueOutsideError, match=f"{method}: q is"):
        getattr(x, method)(q)
    assert getattr(x, method)([0, 1]).tolist() == [1, 3]


WRITTEN: dict[str, Callable[[Tensor, Any], Any]] = {
    "index_add": lambda x, i: x.index_add(0, i, Tensor([5.0])),
    "index_copy": lambda x, i: x.index_copy(0, i, Tensor([5.0])),
    "index_fill": lambda x, i: x.index_fill(0, i, 5.0),
    "index_fill_": lambda x, i: x.clone().index_fill_(0, i, 5.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, Tensor([5.0]), "amax"),
    "put": lambda x, i: x.put(i, Tensor([5.0])),
    "index_put": lambda x, i: x.index_put((i,), 5.0, accumulate=True)}


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("name", WRITTEN)
def test_known_places_out_of_range_are_refused(name: str) -> None:
    """In a list, an array, or a number; those in a tensor are not looked at, and write nothing."""
    x = Tensor([0.0, 0.0, 0.0])
    for place in ([7], np.array([-4]), 3, Tensor(3)):
        with pytest.raises(IndexError, match="out of range for axis 0"):
            WRITTEN[name](x, place)
    for place in ([-1], np.array([2]), -1, Tensor(2), Tensor([2])):
        assert WRITTEN[name](x, place).tolist() == [0, 0, 5]
    for place in (Tensor([7]), Tensor([-4])):
        assert WRITTEN[name](x, place).tolist() == [0, 0, 0]


@verifies("tensor.arguments.refused+2")
def test_known_rows_out_of_range_are_refused() -> None:
    with pytest.raises(AxisError, match="indices from 0 to 2"):
        Tensor([[1, 2], [3, 4]]).embedding(np.array([0, 2]))


NUMBERS: dict[str, Callable[[Any, str], Tensor]] = {
    "list": lambda number, dtype: Tensor([0, number], dtype=dtype)[1],
    "number": lambda number, dtype: Tensor(number, dtype=dtype),
    "full": lambda number, dtype: Tensor.full((), number, dtype=dtype),
    "full_like": lambda number, dtype: Tensor(0, dtype=dtype).full_like(number),
    "torch": lambda number, dtype: torch.tensor([number], dtype=getattr(torch, dtype))[0]}


@verifies("dtypes.number.fits")
@pytest.mark.parametrize("way", NUMBERS)
def test_a_number_that_its_dtype_cannot_hold_is_refused(way: str) -> None:
    for number, dtype in ((300, "uint8"), (-256, "uint8"), (128, "int8"), (-129, "int8"),
                          (2**31, "int32"), (2**63, "int64"), (8, "int4")):
        with pytest.raises(DTypeError, match=f"{number} does not fit {dtype}"):
            NUMBERS[way](number, dtype)
    for given, dtype, held in ((255, "uint8", 255), (-255, "uint8", 1), (-128, "int8", -128),
                               (300.0, "uint8", 255), (True, "int8", 1), (300, "bool", True),
                               (np.int64(300), "uint8", 44)):
        if not (way in ("list", "torch") and isinstance(given, np.integer)):
            assert NUMBERS[way](given, dtype).item() == held
    assert Tensor(np.array([300]), dtype="uint8").tolist() == [44]


@verifies("dtypes.number.fits")
def test_a_list_is_refused_without_numpy_as_well() -> None:
    with pytest.raises(DTypeError, match="300 does not fit uint8"):
        Listed([1, 300], dtypes.uint8)
    assert Listed([1, -2], dtypes.uint8).numbers == [1, 254]
