"""Complex numbers, compared with NumPy."""
from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import impl.torch as torch
from conformance.trace import verifies
from impl import Tensor, TinyJit, dtypes, func
from impl.complex import Complex, formulas
from impl.dtypes import as_dtype
from impl.errors import ComplexError, DTypeError, TensorScheduleError
from impl.ir import Ops
from impl.settings import Context

random = np.random.default_rng(8)
A, B = (random.standard_normal((2, 3)) + 1j * random.standard_normal((2, 3)) for _ in range(2))
REAL = random.standard_normal((2, 3))
make: Any = Tensor  # which makes complex numbers of complex data


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def close(found: Any, wanted: Any, digits: float = 1e-12) -> bool:
    value = found.numpy() if hasattr(found, "numpy") else np.asarray(found)
    return value.shape == np.shape(wanted) and value.dtype == np.asarray(wanted).dtype \
        and np.allclose(value, wanted, rtol=digits, atol=digits)


OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)


@verifies("dtypes.complex.pairs")
def test_operators_take_complex_and_real_numbers_on_either_side() -> None:
    z, w, x = make(A), make(B), make(REAL)
    for function in OPERATORS:
        for (one, first), (two, second) in (
                ((z, A), (w, B)), ((z, A), (x, REAL)), ((x, REAL), (z, A)), ((z, A), (2, 2)),
                ((z, A), (1.5 - 2j, 1.5 - 2j)), ((x, REAL), (1j, 1j)), ((1j, 1j), (x, REAL)),
                ((A, A), (z, A)), ((B, B), (x, REAL)), ((2.5, 2.5), (z, A))):
            assert close(function(one, two), function(first, second)), (function, first, second)
    assert close(z == w, A == B) and close(z != A, A != A) and close(x == z, REAL == A)
    assert close(x.add(z), REAL + A) and close(x.mul(w), REAL * B) and close(-z, -A)
    assert close(z ** -3, A ** -3) and close(z ** 0, A ** 0) and close(z ** 0.5, A ** 0.5)


@verifies("dtypes.complex.pairs")
def test_what_is_asked_for_in_a_complex_dtype_is_made() -> None:
    assert make([1 + 2j]).dtype is dtypes.complex64 and make(A).dtype is dtypes.complex128
    assert make(A.astype(np.complex64)).dtype is dtypes.complex64
    wide: Any = make([1.5]).cast("complex128")
    assert wide.dtype is dtypes.complex128 and wide.tolist() == [1.5]
    assert (make([1.0]) + 1j).dtype is dtypes.complex64
    assert (make([1.0], dtype="float64") * 1j).dtype is dtypes.complex128
    for made, wanted in ((Tensor.zeros(2, dtype=dtypes.complex64), np.zeros(2, "F")),
                         (Tensor.full((2,), 1j, dtype="complex128"), np.full(2, 1j)),
                         (make([1.0, 2.0]).full_like(2j), np.full(2, 2j, "F")),
                         (Tensor.eye(2, dtype="complex64"), np.eye(2, dtype="F")),
                         (make([1.0, 2.0, 3.0, 4.0]).view(dtypes.complex64),
                          np.array([1 + 2j, 3 + 4j], "F")),
                         (make([3, 1]).sum(dtype=dtypes.complex64), np.complex64(4))):
        assert close(made, wanted)
    assert all(node.dtype.kind != "c" for node in (make(A) * 1j).real.uop.toposort()
               if node.op is not Ops.BUFFER)
    for wrong in (lambda: Tensor.rand(2, dtype=dtypes.complex64), lambda: as_dtype("complex64"),
                  lambda: Tensor.einsum("i,i,i", make([1j]), make([1j]), make([1j]))):
        with pytest.raises(ComplexError):
            wrong()


def test_functions_of_each_element() -> None:
    z = make(A)
    names = [name for name in formulas.OF_ONE if hasattr(np, name)
             and name not in ("sgn", "sign", "arccos", "arcsin", "arctan")]
    assert len(names) > 14
    for name in names:
        assert close(getattr(z, name)(), getattr(np, name)(A)), name
    for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
        assert close(getattr(z, name)(), getattr(np, "arc" + name[1:])(A)), name
    assert close(abs(z), abs(A)) and close(z.angle(), np.angle(A)) and close(z.conj(), A.conj())
    assert close(z.sgn(), A / abs(A)) and close(z.reciprocal(), 1 / A)
    assert close(np.exp(z), np.exp(A)) and close(np.multiply(z, 2), A * 2)
    near = np.array([1 + 1e-9j, 1e-12 - 1e-9j, 1e200 + 1e200j, 1e-200j])
    assert close(make(near).log(), np.log(near)) and close(make(near).sqrt(), np.sqrt(near))
    assert close(make(near[:2]).expm1(), np.expm1(near[:2]))
    assert np.allclose(make(near[1:2]).log1p().numpy().real, 1e-12 + 5e-19, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh",
                                  "tanh", "acos", "acosh", "asin", "asinh", "atan", "atanh"])
def test_infinities_and_zeros_give_what_c_gives(name: str) -> None:
    import cmath
    ends = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf]
    numbers = [complex(x, y) for x in ends for y in ends]
    found = getattr(make(np.array(numbers)), name)().numpy()
    for number, value in zip(numbers, found, strict=True):
        try:
            wanted = getattr(cmath, name)(number)
        except ValueError:
            continue
        if not cmath.isnan(wanted):
            for one, two in ((value.real, wanted.real), (value.imag, wanted.imag)):
                assert math.isclose(one, two, abs_tol=1e-12), (number, value, wanted)


def test_sums_products_and_matrices() -> None:
    z, w, x = make(A), make(B), make(REAL)
    for found, wanted in ((z.sum(0), A.sum(0)), (z.mean(), A.mean()), (z.prod(), A.prod()),
                          (z.prod(1, keepdim=True), A.prod(1, keepdims=True)),
                          (z.sum(0, False, dtypes.complex128), A.sum(0)),
                          (z.diff(1, 1, w), np.diff(A, 1, 1, B)),
                          (z.cumsum(1), A.cumsum(1)),
                          (z.cumprod(1), A.cumprod(1)),
                          (make(A[:0]).prod(0), A[:0].prod(0)),
                          (z.var(1, correction=0), A.var(1)), (z.std(correction=0), A.std()),
                          (z @ w.T, A @ B.T), (z @ x.T, A @ REAL.T), (x @ w.T, REAL @ B.T),
                          (z.norm(), np.linalg.norm(A)), (z[0].vdot(w[0]), np.vdot(A[0], B[0])),
                          (Tensor.einsum("ij,kj->ik", z, w), A @ B.T),
                          (z.outer(w) if z.ndim == 1 else z[0].outer(w[0]), np.outer(A[0], B[0])),
                          (z.mH, A.conj().T), (z.any(0), A.any(0)), (z.isnan(), np.isnan(A))):
        assert close(found, wanted)
    square = A[:, :2] + np.eye(2)
    hermitian = square @ square.conj().T
    s, h = make(square), make(hermitian)
    for found, wanted in ((s.inverse(), np.linalg.inv(square)), (s.det(), np.linalg.det(square)),
                          (s.solve(w), np.linalg.solve(square, B)),
                          (h.cholesky(), np.linalg.cholesky(hermitian)),
                          (h.eigh().eigenvalues, np.linalg.eigvalsh(hermitian)),
                          (torch.linalg.svdvals(s), np.linalg.svd(square)[1]),
                          (torch.linalg.inv(s), np.linalg.inv(square))):
        assert close(found, wanted)


def test_movements_indices_and_several() -> None:
    z, w, x = make(A), make(B), make(REAL)
    places, mask = np.array([1, 0]), REAL > 0
    for found, wanted in ((z[1], A[1]), (z[:, ::2], A[:, ::2]), (z[Tensor(places)], A[places]),
                          (z[Tensor(mask)], A[mask]), (z.reshape(3, 2), A.reshape(3, 2)),
                          (z.transpose(0, 1), A.T), (z.flip(1), A[:, ::-1]),
                          (torch.cat([z, w], 1), np.concatenate([A, B], 1)),
                          (torch.stack([z, w]), np.stack([A, B])),
                          (Tensor.stack(x, z), np.stack([REAL, A])),
                          (x.cat(z), np.vstack([REAL, A])),
                          (torch.where(Tensor(mask), z, w), np.where(mask, A, B)),
                          (Tensor(mask).where(z, 0), np.where(mask, A, 0)),
                          (torch.view_as_real(z), np.stack([A.real, A.imag], -1)),
                          (torch.view_as_complex(make(A.view(float).reshape(2, 3, 2))), A),
                          (torch.polar(make(abs(A)), make(np.angle(A))), A)):
        assert close(found, wanted)
    assert [close(one, row) for one, row in zip(z, A, strict=True)] == [True, True]
    assert torch.is_complex(z) and torch.is_tensor(z) and not torch.is_complex(x)
    assert torch.promote_types(torch.complex64, torch.float64) is dtypes.complex128


def test_what_is_written_to_a_view_is_written_to_the_number() -> None:
    z, array = make(A), A.copy()
    row, before = z[1], z * 1
    z[0, 0], array[0, 0] = 5j, 5j
    z.real[0, 1], array[0, 1] = 7, 7 + A[0, 1].imag * 1j
    row *= 2
    array[1] *= 2
    assert close(z, array) and close(row, array[1]) and close(before, A)
    z[:, 2], array[:, 2] = 1, 1
    z.mul_(1j)
    z += 1
    assert close(z, array * 1j + 1)
    x = make([1.0, 2.0])
    made = torch.complex(x, x)
    made.real.zero_()
    assert x.tolist() == [1.0, 2.0] and made.tolist() == [1j, 2j]


def test_gradients_are_those_of_pytorch() -> None:
    z = make([1 + 2j, 3 - 1j]).requires_grad_()
    (z * z).abs().square().sum().backward()  # |z|^4, whose slope is 4 |z|^2 z
    known = np.array([1 + 2j, 3 - 1j])
    assert z.grad is not None and np.allclose(z.grad.numpy(), 4 * abs(known) ** 2 * known)
    (found,) = [func.grad(lambda w: (w * 1j).real.sum())(make([1 + 2j]))]
    assert found.tolist() == [-1j]
    w = make([1 + 1j]).requires_grad_()
    (w * w).backward(make([1.0 + 0j]))
    assert w.grad is not None and w.grad.tolist() == [2 - 2j]  # conj(2 w)
    with pytest.raises(TensorScheduleError, match="z.abs"):
        w.backward()


def test_a_captured_function_takes_and_returns_them() -> None:
    double = TinyJit(lambda z: z * 2j)
    found = [double(make([1 + 1j * i, 2])).tolist() for i in range(4)]
    assert found == [[2j * (1 + 1j * i), 4j] for i in range(4)]
    assert "2 replayed" in double.explain()


def test_values_leave_as_complex_arrays() -> None:
    z = make([1 + 2j, 3 - 1j])
    assert repr(z) == "<Complex complex64 (2,) on REFERENCE: [1.+2.j, 3.-1.j]>"
    assert np.asarray(z).dtype == np.complex64 and z[0].item() == 1 + 2j
    for same in (pickle.loads(pickle.dumps(z)), copy.deepcopy(z), np.from_dlpack(z), z.clone(),
                 Tensor.from_dlpack(z.numpy())):
        assert np.asarray(same).tolist() == [1 + 2j, 3 - 1j]
    theirs = pytest.importorskip("torch")
    assert make(theirs.tensor([1j])).tolist() == [1j]


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda z: z < z, "z.abs"), (lambda z: z.float(), "z.real.float"),
    (lambda z: z.softmax(), "z.real.softmax"), (lambda z: z.cast("int32"), "z.real"),
    (lambda z: make([1.0]).maximum(z), "z.real.maximum"), (lambda z: z.expp, "did you mean exp")]


@pytest.mark.parametrize("call, remedy", REFUSED, ids=[remedy for _, remedy in REFUSED])
def test_what_complex_numbers_have_not_is_refused(call: Callable[[Any], Any], remedy: str) -> None:
    with pytest.raises(TensorScheduleError, match=remedy):
        call(make([1j]))
    with pytest.raises(DTypeError, match="no number"):
        Complex.of("text")
