"""Where real tensors meet complex numbers."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from impl.complex.value import Complex, bilinear, picked
from impl.dtypes import DType, complex_dtype, dtypes, real_dtype
from impl.errors import ComplexError
from impl.host import np
from impl.tensor import Tensor

#: What a method of an operator is in Python, where the names differ.
_OPERATORS = {"div": "truediv", "floordiv": "floordiv", "pow": "pow"}
_HAVE_NONE = frozenset("bernoulli exponential_ multinomial normal rand rand_like randint randn "
                       "randn_like randperm uniform kaiming_normal".split())


def beside(tensor: Tensor, other: Any, name: str, reflected: bool) -> Any:
    """What an operator gives for a real tensor and complex numbers of Python or NumPy;
    NotImplemented if it is nothing of these.
    """
    kind = other.dtype.kind if isinstance(other, (np.ndarray, np.generic)) else \
        "c" if isinstance(other, complex) else ""
    if kind != "c":
        return NotImplemented
    function = getattr(operator, _OPERATORS.get(name, name), None)
    if function is None:
        return NotImplemented
    z = Complex.of(tensor)
    return function(other, z) if reflected else function(z, other)


def instead(name: str, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) \
        -> Any:
    """What a method gives that was asked for a complex dtype, or was given complex numbers;
    NotImplemented if it has not to do with them.

    Raises:
        ComplexError: there is no such method of complex numbers.
    """
    own = [one for one in _flat((*given, *named.values())) if isinstance(one, Complex)]
    if own:
        return _of_complex(name, given, named)
    wanted = [kind for one in (*given, *named.values()) if (kind := _as_complex(one)) is not None]
    numbers = [one for one in _flat((*given, *named.values())) if _is_complex(one)]
    if not wanted and not numbers:
        return NotImplemented
    if name in _HAVE_NONE:
        raise ComplexError(name, "random numbers are real", "make both parts: x + y * 1j")
    if numbers:
        return _of_numbers(name, method, given, named)
    return _made(name, method, given, named, wanted[0])


def _flat(values: Any) -> list[Any]:
    """Values, and those in lists of them."""
    return [one for each in values
            for one in (each if isinstance(each, (list, tuple)) else (each,))]


def _is_complex(value: Any) -> bool:
    return isinstance(value, (complex, np.complexfloating)) or isinstance(value, np.ndarray) \
        and value.dtype.kind == "c"


def _as_complex(value: Any) -> DType | None:
    """The complex dtype that an argument names."""
    return complex_dtype(value) if isinstance(value, (DType, str, np.dtype, type)) else None


def _of_complex(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The method of complex numbers of this name."""
    if isinstance(given[0], type):  # of a method of the class
        given = given[1:]
    first, rest = given[0], given[1:]
    if name == "where" and isinstance(first, Tensor) and first.dtype is dtypes.bool:
        return picked(first, *rest, **named)
    if name == "einsum":
        return _einsum(first, *rest)
    if name in ("meshgrid", "broadcast_tensors"):
        many = [Complex.of(one) for one in _flat(given)]
        parts = [getattr(type(many[0].real), name)(*[getattr(one, part) for one in many], **named)
                 for part in ("real", "imag")]
        return tuple(Complex(*both) for both in zip(*parts, strict=True))
    if isinstance(first, (list, tuple)):
        first, rest = first[0], (*first[1:], *rest)
    return getattr(Complex.of(first), name)(*rest, **named)


def _einsum(formula: str, *operands: Any) -> Any:
    """Sums of products of one or two operands.

    Raises:
        ComplexError: there are more of them.
    """
    many = _flat(operands)
    if len(many) > 2:
        raise ComplexError("einsum", f"{len(many)} operands, of which one is complex",
                           "give two at a time")
    first = Complex.of(many[0])
    if len(many) == 1:
        return Complex(*(Tensor.einsum(formula, part) for part in (first.real, first.imag)))
    return bilinear(lambda x, y: Tensor.einsum(formula, x, y), first,
                     Complex.of(many[1]) if _is_complex(many[1]) else many[1])


def _of_numbers(name: str, method: Callable[..., Any], given: tuple[Any, ...],
                named: dict[str, Any]) -> Any:
    """A method that was given Python's or NumPy's complex numbers."""
    if name in ("full", "full_like", "linspace", "fill_"):
        return Complex(*(method(*(_part(one, part) for one in given),
                                **{key: _part(value, part) for key, value in named.items()})
                         for part in ("real", "imag")))
    if isinstance(given[0], Tensor):
        return _of_complex(name, given, named)
    raise ComplexError(name, "complex numbers are not taken here", "give the real numbers")


def _part(value: Any, part: str) -> Any:
    """An argument for one of the parts: its number, or its dtype."""
    if isinstance(value, (complex, float)):
        return getattr(complex(value), part)
    wanted = _as_complex(value)
    return value if wanted is None else real_dtype(wanted)


def _made(name: str, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any],
          wanted: DType) -> Any:
    """What a method makes in a real dtype, as complex numbers."""
    real = real_dtype(wanted)
    if name in ("view", "bitcast"):
        parts = given[0].cast(real) if given[0].dtype is real else given[0].bitcast(real)
        parts = parts.unflatten(-1, (-1, 2))
        return Complex(parts[..., 0], parts[..., 1])
    found = method(*(real if _as_complex(one) is not None else one for one in given),
                   **{key: real if _as_complex(one) is not None else one
                      for key, one in named.items()})
    return Complex.of(found)
