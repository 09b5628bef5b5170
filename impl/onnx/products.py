"""Products of matrices, and sums of products of other forms."""
from __future__ import annotations

from impl.dtypes import dtypes
from impl.onnx.operators import operator
from impl.tensor import Tensor


@operator("MatMul")
def matmul(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@operator("Gemm")
def gemm(a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
         transA: int = 0, transB: int = 0, broadcast: int = 0) -> Tensor:  # noqa: N803
    found = (a.transpose(0, 1) if transA else a) @ (b.transpose(0, 1) if transB else b)
    if alpha != 1:
        found = (found * alpha).cast(a.dtype)
    if c is None or beta == 0:
        return found
    return found + (c if beta == 1 else (c * beta).cast(c.dtype))


@operator("Einsum")
def einsum(*given: Tensor, equation: str) -> Tensor:
    return Tensor.einsum(equation, *given)


@operator("Det")
def determinant(x: Tensor) -> Tensor:
    return x.det()


def shifted(x: Tensor, zero: Tensor | None, rows: bool = False) -> Tensor:
    """Quantised numbers, counted from their zero; one zero may be given for each row."""
    whole = x.cast(dtypes.int32)
    if zero is None:
        return whole
    zero = zero.cast(dtypes.int32)
    return whole - (zero.unsqueeze(-1) if rows and zero.ndim == 1 else zero)


@operator("MatMulInteger")
def matmul_of_integers(a: Tensor, b: Tensor, a_zero: Tensor | None = None,
                       b_zero: Tensor | None = None) -> Tensor:
    return shifted(a, a_zero, rows=True) @ shifted(b, b_zero)
