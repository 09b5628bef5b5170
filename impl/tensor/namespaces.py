"""Names with a dot: `Tensor.linalg.solve(a, b)`, as PyTorch and NumPy have them.

Chapter: spec/tensor.md.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from impl.errors import NameMissingError, nearest

#: Functions of `torch.linalg` and `numpy.linalg`, and the methods that they are.
LINALG = {
    **{name: name for name in (
        "cholesky", "cholesky_ex", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh",
        "householder_product", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "solve_ex",
        "tensorinv", "tensorsolve",
        "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_sqrth",
        "multi_dot",
        "outer", "qr", "slogdet", "solve", "solve_triangular", "svdvals", "tensordot", "trace",
        "vecdot", "vector_norm")},
    **{name: f"linalg_{name}" for name in ("cross", "diagonal", "lu_solve", "norm", "polar",
                                          "vander")},
    "inv": "inverse", "pinv": "pinverse", "svd": "svd_full"}


#: What has no counterpart of its name.
_MEANT = {**dict.fromkeys(("ldl_factor", "ldl_factor_ex"), "Tensor.linalg.cholesky or .lu_factor"),
          "ldl_solve": "Tensor.linalg.solve",
          "LinAlgError": "ArgumentError, which is raised where there is no result"}


class Namespace:
    """Methods of tensors as functions under other names."""

    def __init__(self, name: str, names: dict[str, str]) -> None:
        self._name, self._names = name, names

    def __dir__(self) -> list[str]:
        return sorted(self._names)

    def __get__(self, tensor: Any, tensors: type) -> Functions:
        return Functions(self._name, self._names, tensors)


class Functions:
    """What stands behind the dot."""

    def __init__(self, name: str, names: dict[str, str], tensors: type) -> None:
        self._name, self._names, self._tensors = name, names, tensors

    def __dir__(self) -> list[str]:
        return sorted(self._names)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The method.

        Raises:
            NameMissingError: there is none of this name.
        """
        if name.startswith("_") or name not in self._names:
            self._missing(name)
        method: Callable[..., Any] = getattr(self._tensors, self._names[name])
        return method

    def _missing(self, name: str) -> NoReturn:
        near = nearest(name, self._names)
        if name in _MEANT:
            # r[impl errors.name.missing]
            raise NameMissingError(f"Tensor.{self._name}", f"there is no {name}",
                                   f"use {_MEANT[name]}")
        # r[impl errors.name.missing]
        raise NameMissingError(f"Tensor.{self._name}", f"there is no {name}",
                               f"did you mean {near}?" if near else
                               f"it has {', '.join(sorted(self._names))}")
