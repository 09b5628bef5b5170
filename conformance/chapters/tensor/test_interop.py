"""Tensors among those of other libraries."""
from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, dtypes, func
from impl.errors import ArgumentError
from impl.torch import no_grad

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


@verifies("tensor.numpy.gradient")
@pytest.mark.parametrize("function", [
    np.sum, lambda w: np.concatenate([w, w]), lambda w: np.linalg.norm(w), np.add.reduce,
    lambda w: np.where(A > 0, w, 0), lambda w: np.stack([A, w]), lambda w: np.sum(w * w)])
def test_no_gradient_is_lost_in_an_array(function: Any) -> None:
    w = Tensor(A, requires_grad=True)
    with pytest.raises(ArgumentError, match="no gradient flows"):
        function(w)
    with pytest.raises(ArgumentError, match="no gradient flows"):  # nor through an argument
        func.grad(lambda x: x.sum() + function(x).sum())(Tensor(A))
    with no_grad():
        assert np.allclose(function(w), function(A))
    assert np.allclose(function(w.detach()), function(A))


@verifies("tensor.numpy.gradient")
def test_arrays_of_what_has_no_gradient() -> None:
    w, x = Tensor(A, requires_grad=True), Tensor(A).realize()
    assert np.allclose(w, A) and np.argmax(w) == A.argmax() and np.sum(w > 0) == 3
    assert func.grad(lambda y: (y * np.sum(x)).sum())(x).tolist() == [[2.5] * 2] * 2


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


@verifies("device.lent.kept")
def test_what_another_library_has_stays_what_it_was() -> None:
    with Context(DEVICE="REFERENCE"):
        x = Tensor(A).realize()
        there = np.from_dlpack(x)
        address = there.ctypes.data
        row = np.from_dlpack(x[1])  # of what is in memory a part is shared, too
        assert row.ctypes.data == address + 8 and not there.flags.writeable
        x += 1
        x[0, 0] = 100.0
        assert x.tolist() == [[100.0, -1.0], [4.0, 1.5]]
        assert there.tolist() == A.tolist() and row.tolist() == A[1].tolist()
        assert np.from_dlpack(x).ctypes.data != address
        gone = weakref.ref(x.uop.arg[0].memory)
        last, second = np.from_dlpack(x), np.from_dlpack(x)
        del second  # one of two
        x += 1
        x.realize()
        assert last[0, 0] == 100.0
        del x
        gc.collect()
        assert gone() is not None and last[0, 0] == 100.0
        del last
        gc.collect()
        assert gone() is None
        later = Tensor(A).realize()
        np.from_dlpack(later)  # nobody has it any more: it may be written again
        address = np.from_dlpack(later).ctypes.data
        later += 1
        assert np.from_dlpack(later).ctypes.data == address


@verifies("device.lent.kept")
def test_a_replay_leaves_alone_what_another_library_has() -> None:
    with Context(DEVICE="REFERENCE"):
        x = Tensor(A).realize()
        step = TinyJit(lambda: x.assign(x * 2).realize())
        for _ in range(4):
            there = np.from_dlpack(x)
            before = there.copy()
            step()
            assert np.array_equal(there, before) and np.array_equal(x.numpy(), before * 2)
        double = TinyJit(lambda y: y * 2)
        results = [np.from_dlpack(double(Tensor([float(i), 1.0]))) for i in range(4)]
        assert [one.tolist() for one in results] == [[2.0 * i, 2.0] for i in range(4)]


@verifies("device.lent.kept")
def test_arrays_of_another_library_are_shared_and_not_written_to() -> None:
    class Owner(np.ndarray):
        pass
    with Context(DEVICE="REFERENCE"):
        array = A.copy().view(Owner)
        there, owner = Tensor.from_dlpack(array), weakref.ref(array)
        assert np.from_dlpack(there).ctypes.data == array.ctypes.data
        there *= 2  # also where others have seen it
        assert there.tolist() == (A * 2).tolist() and array.tolist() == A.tolist()
        waiting = Tensor.from_dlpack(array) + 1
        del array
        gc.collect()
        assert owner() is not None and waiting.tolist() == (A + 1).tolist()
        waiting.realize()
        del waiting
        gc.collect()
        assert owner() is None
        frozen = A.copy()
        frozen.flags.writeable = False
        assert (Tensor.from_dlpack(frozen) * 2).tolist() == (A * 2).tolist()


def test_a_copy_is_made_where_it_is_asked_for_or_has_to_be() -> None:
    with Context(DEVICE="REFERENCE"):
        array = A.copy()
        two, columns = Tensor.from_dlpack(array, copy=True), Tensor.from_dlpack(array.T)
        array[:] = 0
        assert two.tolist() == A.tolist() and columns.tolist() == A.T.tolist()
        with pytest.raises(BufferError, match="leave out copy=False"):
            Tensor.from_dlpack(array.T, copy=False)
        x = Tensor(A).realize()
        versioned: Any = x.__dlpack__
        with pytest.raises(BufferError, match="float32 .* has to be copied"):
            versioned(copy=False)  # of a library that cannot be told that it may only read
        theirs = pytest.importorskip("torch")
        assert theirs.from_dlpack(x).tolist() == A.tolist()
        mine = Tensor.from_dlpack(theirs.from_dlpack(x))
        assert np.from_dlpack(mine).ctypes.data == np.from_dlpack(x).ctypes.data


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


@verifies("device.lent.kept")
def test_a_kernel_that_is_run_by_hand_leaves_others_what_they_see() -> None:
    x = Tensor(np.array([1.0, 2.0], np.float32)).realize()
    x.assign(x + 1)
    items = x.schedule()
    for item in items:
        item.run()
    shown = np.from_dlpack(x)
    for item in items:
        item.run()
    assert shown.tolist() == [2, 3]
