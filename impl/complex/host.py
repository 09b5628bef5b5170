"""Decompositions of complex matrices, which NumPy computes on the host, at once."""
from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from impl.host import np

QR = namedtuple("QR", "Q R")
SVD = namedtuple("SVD", "U S Vh")
Eigen = namedtuple("Eigen", "eigenvalues eigenvectors")
Slogdet = namedtuple("Slogdet", "sign logabsdet")


def _cholesky(a: np.ndarray, upper: bool = False) -> Any:
    found = np.linalg.cholesky(a)
    return found.conj().swapaxes(-1, -2) if upper else found


def _solve(a: np.ndarray, b: Any) -> Any:
    return np.linalg.solve(a, np.asarray(b))


def _rank(a: np.ndarray, tol: Any = None, rtol: Any = None) -> Any:
    values = np.linalg.svd(a, compute_uv=False)
    most = values.max(-1, keepdims=True, initial=0)
    if tol is None:
        tol = most * (max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None
                      else np.asarray(rtol)[..., None])
    return (values > tol).sum(-1).astype(np.int32)


def _pinv(a: np.ndarray, rtol: Any = None) -> Any:
    if rtol is None:
        rtol = max(a.shape[-2:]) * np.finfo(a.dtype).eps
    return np.linalg.pinv(a, np.asarray(rtol))


def _matrix_norm(a: np.ndarray, ord: Any = "fro", axis: Any = (-2, -1),  # noqa: A002
                 keepdim: bool = False) -> Any:
    return np.linalg.norm(a, ord, tuple(axis), keepdim)


def _svd(a: np.ndarray, full_matrices: bool = True) -> Any:
    return SVD(*np.linalg.svd(a, full_matrices))


#: What NumPy is asked, by the names of tensors' methods: a function of `numpy.linalg`, or ours.
FUNCTIONS: dict[str, str | Callable[..., Any]] = {
    "cholesky": _cholesky, "det": "det", "inverse": "inv", "solve": _solve,
    "eig": lambda a: Eigen(*np.linalg.eig(a)), "eigvals": "eigvals",
    "eigh": lambda a: Eigen(*np.linalg.eigh(a)), "eigvalsh": "eigvalsh",
    "svd_full": _svd, "svd": lambda a, full_matrices=False: _svd(a, full_matrices),
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "qr": lambda a, mode="reduced": QR(*np.linalg.qr(a, mode)),
    "slogdet": lambda a: Slogdet(*np.linalg.slogdet(a)), "pinverse": _pinv,
    "matrix_rank": _rank, "matrix_norm": _matrix_norm, "matrix_power": "matrix_power",
    "cross": lambda a, b, axis=-1: np.cross(a, np.asarray(b), axis=axis)}


def computed(kind: Any, name: str, z: Any, given: Sequence[Any], named: dict[str, Any]) -> Any:
    """What NumPy says of these numbers, as tensors where they are and complex numbers."""
    rule = FUNCTIONS[name]
    function = getattr(np.linalg, rule) if isinstance(rule, str) else rule
    found = function(z.numpy(), *given, **named)
    device, real = z.device, type(z.real)

    def tensor(one: Any) -> Any:
        array = np.asarray(one)
        if array.dtype.kind != "c":
            return real(array, device)
        return kind(*(real(np.array(part), device)
                      for part in (array.real, array.imag)))
    if isinstance(found, tuple):
        return type(found)(*map(tensor, found))
    return tensor(found)


