"""The Array API standard: names, signatures and what libraries do with them.

The public test suite runs on `impl.array_api` too; see the page on it.
"""
from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import impl.array_api as xp
from impl import Tensor
from impl.errors import ArgumentError

A = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_each_name_is_there_and_of_the_namespace() -> None:
    for name in xp.__all__:
        assert hasattr(xp, name), name
    for name in xp.linalg.__all__:
        assert callable(getattr(xp.linalg, name))
    ours: Any = Tensor([1.0])
    assert ours.__array_namespace__() is xp
    own: Any = xp.asarray([1.0])
    assert own.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ArgumentError, match="2019.01"):
        ours.__array_namespace__(api_version="2019.01")


#: Functions of NumPy's namespace, which follows the standard, and arguments.
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("sum", (A,), {"axis": 1}), ("cumulative_sum", (A,), {"axis": 0, "include_initial": True}),
    ("std", (A,), {"correction": 1.0}), ("argsort", (A,), {"axis": 0}),
    ("take_along_axis", (A, np.array([[0], [-1], [2]])), {"axis": 1}), ("unique_all", (A > 0,), {}),
    ("searchsorted", (np.sort(A[0]), A[1]), {"side": "right"}), ("matmul", (A, A.T), {}),
    ("tensordot", (A, A), {"axes": ((0,), (0,))}), ("vecdot", (A, A), {}),
    ("clip", (A, -0.5, 0.5), {}),
    ("repeat", (A, 2), {"axis": 1}), ("roll", (A, (1, 2)), {"axis": (0, 1)}), ("diff", (A,), {}),
    ("nextafter", (A, -A), {}), ("moveaxis", (A, 0, 1), {}), ("where", (A > 0, A, 0.0), {}),
    ("count_nonzero", (A > 0,), {"axis": 0}), ("concat", ([A, A],), {"axis": None}),
    ("linspace", (0.0, 1.0), {"num": 5, "endpoint": False}), ("meshgrid", (A[0], A[1]), {}),
    ("bitwise_left_shift", (np.array([1, 2]), np.array([3, 0])), {}), ("eye", (3, 4), {"k": 1}),
    ("tril", (A,), {"k": -1}), ("logaddexp", (A, A[0]), {}),
    ("isdtype", (np.float32, "numeric"), {}),
]


@pytest.mark.parametrize("name, given, named", CALLS, ids=lambda each: str(each)[:24])
def test_functions_give_what_numpy_gives(name: str, given: tuple[Any, ...],
                                         named: dict[str, Any]) -> None:
    if not hasattr(np, name):
        pytest.skip("this NumPy is older than the standard")

    def ours(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return xp.asarray(value)
        if isinstance(value, list):
            return [ours(one) for one in value]
        return xp.float32 if value is np.float32 else value
    found, wanted = getattr(xp, name)(*map(ours, given), **named), \
        getattr(np, name)(*given, **named)
    several = isinstance(wanted, (tuple, list))
    for one, two in zip(found if several else [found], wanted if several else [wanted],
                        strict=True):
        array = one.numpy() if isinstance(one, Tensor) else one
        assert np.shape(array) == np.shape(two) and np.allclose(array, two, atol=1e-5)


def test_parameters_are_passed_as_the_standard_says() -> None:
    kinds = {name: [each.kind for each in inspect.signature(getattr(xp, name)).parameters.values()]
             for name in ("sum", "add", "concat", "asarray", "astype")}
    only, name = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
    assert kinds["sum"] == [only, name, name, name] and kinds["add"] == [only, only]
    assert kinds["asarray"] == [only, name, name, name]


def test_arrays_have_the_attributes_of_the_standard() -> None:
    x = xp.asarray(A)
    assert x.size == 12 and x.ndim == 2 and (x + 1).size == 12 and isinstance(x + 1, xp.Array)
    assert x.mT.shape == (4, 3) and x.to_device(x.device).dtype is xp.float32
    assert x[xp.asarray(True)].shape == (1, 3, 4) and x[xp.asarray(False)].shape == (0, 3, 4)
    single, three = xp.asarray(2.0), xp.full((2,), xp.asarray(3.0))
    single[single > 1] = 5.0
    assert single.item() == 5 and three.tolist() == [3, 3]
    ends = xp.asarray([np.inf, 1.0, -0.0])
    assert (ends // 2).tolist() == [np.inf, 0, 0] and np.signbit((ends % 2).numpy()[2]) == 0
    assert (xp.asarray(1.0) // -np.inf).item() == 0 and np.signbit((ends[2] % -2).numpy())
    assert np.from_dlpack(x).tolist() == A.tolist() and complex(xp.asarray(2.0)) == 2
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["integral"] is xp.int32 and "uint8" in info.dtypes(kind="integral")
    assert xp.finfo(xp.float32).bits == 32 and xp.iinfo(xp.int8).min == -128
    assert xp.result_type(xp.int8, xp.uint8, 1) is xp.int16 and xp.can_cast(xp.int8, xp.int16)


def test_a_library_that_is_written_for_the_standard_runs_on_tensors() -> None:
    def standardised(x: Any) -> Any:  # as such libraries write it
        namespace = x.__array_namespace__()
        centred = x - namespace.mean(x, axis=0, keepdims=True)
        scaled = centred / namespace.std(x, axis=0, keepdims=True)
        return namespace.linalg.matrix_norm(scaled), namespace.argmax(scaled, axis=0)
    wanted = (A - A.mean(0)) / A.std(0)
    for x in (xp.asarray(A), Tensor(A)):
        norm, places = standardised(x)
        assert abs(norm.item() - np.linalg.norm(wanted)) < 1e-4
        assert places.tolist() == wanted.argmax(0).tolist()
