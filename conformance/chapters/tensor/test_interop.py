"""Tensors among those of other libraries."""
from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, dtypes

A = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)


@verifies("tensor.numpy.functions+2")
def test_numpy_functions_of_elements_stay_tensors() -> None:
    x = Tensor(A)
    for function in (np.exp, np.abs, np.sqrt, np.tanh, np.isnan, np.sign, np.log1p, np.arctan):
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = function(A)
        found: Any = function(x)
        assert isinstance(found, Tensor)
        assert np.allclose(found.numpy(), expected, rtol=1e-6, equal_nan=True)
    for binary in (np.add, np.subtract, np.true_divide, np.maximum, np.power, np.less, np.hypot,
                   np.arctan2, np.floor_divide, np.equal, np.copysign):
        for one, other in ((A, x), (x, A), (2.0, x), (x, 2.0)):
            arrays: Any = [A if isinstance(each, Tensor) else each for each in (one, other)]
            with np.errstate(all="ignore"):
                expected = binary(arrays[0], arrays[1])
            found = binary(one, other)
            assert isinstance(found, Tensor), binary
            assert np.allclose(found.numpy(), expected, rtol=1e-5, equal_nan=True), binary
    assert isinstance(A + x, Tensor) and (A @ x).tolist() == (A @ A).tolist()


@verifies("tensor.numpy.functions+2")
def test_other_numpy_functions_give_arrays() -> None:
    x = Tensor(A)
    assert np.sum(x) == A.sum() and np.mean(x, axis=0).tolist() == A.mean(0).tolist()
    assert np.std(x) == A.std()  # which divides by the count
    assert np.concatenate([x, A]).shape == (4, 2) and np.stack([x, x]).shape == (2, 2, 2)
    assert np.where(x > 0, x, 0).tolist() == np.where(A > 0, A, 0).tolist()
    assert np.add.reduce(x).tolist() == A.sum(0).tolist()
    assert np.allclose(x, A) and np.cbrt(x).shape == (2, 2)


@verifies("tensor.pickle.value+3")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int8, dtypes.bool])
def test_a_tensor_is_pickled_with_its_value(dtype: Any) -> None:
    x = Tensor(A).cast(dtype)
    for tensor in (x, x.realize(), x[:, 0]):
        again = pickle.loads(pickle.dumps(tensor))
        assert again.dtype is dtype and again.tolist() == tensor.tolist()


@verifies("tensor.pickle.value+3")
def test_a_parameter_stays_one() -> None:
    again = pickle.loads(pickle.dumps(Tensor(A, requires_grad=True)))
    again.square().sum().backward()
    assert again.requires_grad and np.array_equal(again.grad.numpy(), 2 * A)
    assert not pickle.loads(pickle.dumps(Tensor(A))).requires_grad


@verifies("tensor.create.copy")
def test_dlpack_both_ways() -> None:
    array = A.copy()
    there, back = np.from_dlpack(Tensor(array)), Tensor.from_dlpack(array)
    array[:] = 0
    assert there.tolist() == A.tolist() and back.tolist() == A.tolist()


@verifies("tensor.create.copy")
def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "int64", "float16"):
        theirs = torch.tensor(A).to(getattr(torch, dtype))
        mine = Tensor(theirs)
        assert mine.dtype.name == dtype and mine.tolist() == theirs.tolist()
        assert Tensor.from_dlpack(theirs).tolist() == theirs.tolist()
    assert Tensor(torch.tensor(A, requires_grad=True)).tolist() == A.tolist()
    assert torch.tensor(Tensor(A)).tolist() == torch.from_dlpack(Tensor(A)).tolist() == A.tolist()
