"""The class of complex numbers."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from impl.complex import formulas, host
from impl.dtypes import DType, complex_dtype, dtypes, real_dtype
from impl.errors import ArgumentError, DTypeError, NameMissingError, nearest
from impl.host import np
from impl.tensor import Tensor

Truth = bool  # a method has its name

#: Methods of tensors that do the same to both parts.
_OF_BOTH = frozenset(
    "_another broadcast_to chunk clone contiguous cpu cumsum cumulative_sum detach diag diagonal "
    "diff expand expand_as flatten flip fliplr flipud gather hsplit index_select masked_select "
    "mean moveaxis movedim narrow permute ravel repeat repeat_interleave reshape roll rot90 round "
    "select shard split squeeze sum swapaxes swapdims t take take_along_dim tensor_split tile "
    "trace transpose tril triu unbind unflatten unfold unsqueeze view vsplit zeros_like".split())
#: What is so of both parts.
_OF_ONE = frozenset("_axis device dim ndim ndimension numel size "
                    "__array_namespace__".split())
#: Methods of two operands that are linear in each.
_BILINEAR = frozenset("bmm dot inner kron matmul mm mv outer tensordot".split())
#: What has a formula, and takes nothing else than the number.
_FORMULAS = formulas.OF_ONE
#: Second names of methods of this class.
_ALIASES = {"absolute": "abs", "mT": "_mT", "multiply": "mul", "divide": "div", "subtract": "sub",
            "true_divide": "div", "negative": "neg", "cat": "concat", "concatenate": "concat",
            "astype": "cast", "type": "cast", "conj_physical": "conj", "power": "pow", "inv":
            "inverse"}


@dataclass(eq=False, repr=False)
class Complex:
    """Complex numbers as two real tensors of one shape and dtype: `z.real` and `z.imag`.

    What is written to a part, or to a part of a part, is written to the number. Functions that are
    captured or transformed take and return it as any record of tensors.

    Raises:
        ShapeError: the shapes do not broadcast.
    """

    real: Any
    imag: Any

    __array_priority__ = 2000
    __hash__ = object.__hash__

    def __init__(self, real: Any, imag: Any) -> None:
        if real.dtype is not imag.dtype or real.dtype not in (dtypes.float32, dtypes.float64):
            wide = dtypes.float64 in (real.dtype, imag.dtype)
            common = dtypes.float64 if wide else dtypes.float32
            real, imag = real.cast(common), imag.cast(common)
        if real.shape != imag.shape:
            real, imag = Tensor.broadcast_tensors(real, imag)
        self.real, self.imag = real, imag

    @classmethod
    def of(cls, value: Any, device: Any = None, dtype: Any = None,
           tensors: Any = Tensor) -> Complex:
        """A number, an array, nested lists or a tensor as complex numbers."""
        value = _of_torch(value)
        if isinstance(value, Complex):
            found = value
        elif isinstance(value, Tensor):
            real = value if value.dtype.kind == "f" else value.cast(dtypes.default_float)
            found = cls(real, real.zeros_like())
        else:
            array = np.asarray(value)
            if array.dtype.kind not in "cfiub":
                raise DTypeError("Complex", f"{value!r:.60} is no number",
                                 "give numbers, nested lists or an array")
            known = array.dtype if isinstance(value, (np.ndarray, np.generic)) else \
                complex_dtype(complex if dtype is None else dtype)
            double = getattr(known, "name", "") in ("complex128", "float64")
            kind = np.float64 if double else np.float32
            found = cls(*(tensors(np.asarray(part.astype(kind)), device)
                          for part in (array.real, array.imag)))
        wanted = found.dtype if dtype is None else complex_dtype(dtype) or found.dtype
        moved = found if device is None else found.to(device)
        return moved.cast(wanted)

    # Form

    @property
    def shape(self) -> Any:
        """The sizes of the axes."""
        return self.real.shape

    @property
    def dtype(self) -> DType:
        """complex64 or complex128."""
        return dtypes.complex128 if self.real.dtype is dtypes.float64 else dtypes.complex64

    def element_size(self) -> int:
        """Bytes of both parts."""
        return self.dtype.itemsize

    def is_complex(self) -> Truth:
        """True: `torch.is_complex(z)`."""
        return True

    def is_floating_point(self) -> Truth:
        """False: the parts are."""
        return False

    def __len__(self) -> int:
        return len(self.real)

    def __repr__(self) -> str:
        """The form, and the elements if they are known and few."""
        form = self.real._form().replace(self.real.dtype.name, self.dtype.name, 1)
        parts = self.real._known_elements(), self.imag._known_elements()
        if any(part is None for part in parts):
            return f"<Complex {form}>"
        shown = np.array2string(_joined(*parts), separator=", ")
        return f"<Complex {form}:" + ("\n" if "\n" in shown else " ") + f"{shown}>"

    def __getattr__(self, name: str) -> Any:
        if name in ("real", "imag"):  # of a copy that has no parts yet
            raise AttributeError(name)
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        if name in _OF_ONE:
            return getattr(self.real, name)
        if name.startswith("__"):
            raise AttributeError(f"Complex has no {name}")
        method = _method(self, name)
        if method is None and name.endswith("_") and not name.startswith("_"):
            plain = getattr(self, name[:-1])
            return lambda *given, **named: self.assign(plain(*given, **named))
        return method or _missing(name)

    def __getitem__(self, index: Any) -> Complex:
        return Complex(self.real[index], self.imag[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        real, imag = _both(value)
        kind = self.real.dtype
        self.real[index] = real.cast(kind) if isinstance(real, Tensor) else real
        self.imag[index] = imag.cast(kind) if isinstance(imag, Tensor) else imag

    def __iter__(self) -> Any:
        return (self[row] for row in range(len(self)))

    # Arithmetic

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def __pos__(self) -> Complex:
        return self.clone()

    def __add__(self, other: Any) -> Complex:
        real, imag = _parts(other)
        return Complex(self.real + real, self.imag if imag is None else self.imag + imag)

    def __sub__(self, other: Any) -> Complex:
        real, imag = _parts(other)
        return Complex(self.real - real, self.imag if imag is None else self.imag - imag)

    def __rsub__(self, other: Any) -> Complex:
        real, imag = _parts(other)
        return Complex(real - self.real, -self.imag if imag is None else imag - self.imag)

    def __mul__(self, other: Any) -> Complex:
        real, imag = _parts(other)
        if imag is None:
            return Complex(self.real * real, self.imag * real)
        return Complex(*formulas.product(self.real, self.imag, real, imag))

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Complex:
        real, imag = _parts(other)
        if imag is None:
            return Complex(self.real / real, self.imag / real)
        two = self._like(other)
        return Complex(*formulas.quotient(self.real, self.imag, two.real, two.imag))

    def __rtruediv__(self, other: Any) -> Complex:
        return self._like(other) / self

    def __pow__(self, other: Any) -> Complex:
        if isinstance(other, (int, np.integer)) and abs(int(other)) <= 32:
            return _repeated(self, int(other))
        return Complex(*formulas.complex_power(self.real, self.imag, *_both(other)))

    def __rpow__(self, other: Any) -> Complex:
        base = self._like(other)
        return Complex(*formulas.complex_power(base.real, base.imag, self.real, self.imag))

    def __matmul__(self, other: Any) -> Complex:
        return bilinear(operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Complex:
        return bilinear(lambda x, y: y @ x, self, other)

    def __abs__(self) -> Tensor:
        return self.abs()

    def __eq__(self, other: Any) -> Any:
        real, imag = _both(other)
        return (self.real == real) & (self.imag == imag)

    def __ne__(self, other: Any) -> Any:
        real, imag = _both(other)
        return (self.real != real) | (self.imag != imag)

    def _unordered(self, other: Any) -> NoReturn:
        raise DTypeError("compare", "complex numbers have no order",
                         "compare z.real, z.imag or z.abs()")

    __lt__ = __le__ = __gt__ = __ge__ = _unordered

    def __iadd__(self, other: Any) -> Complex:
        return self.assign(self + other)

    def __isub__(self, other: Any) -> Complex:
        return self.assign(self - other)

    def __imul__(self, other: Any) -> Complex:
        return self.assign(self * other)

    def __itruediv__(self, other: Any) -> Complex:
        return self.assign(self / other)

    def __ipow__(self, other: Any) -> Complex:
        return self.assign(self ** other)

    def __imatmul__(self, other: Any) -> Complex:
        return self.assign(self @ other)

    def _like(self, other: Any) -> Complex:
        """The other operand as complex numbers; a Python number in this dtype."""
        if isinstance(other, (Complex, Tensor, np.ndarray)):
            return Complex.of(other)
        real, imag = _both(other)
        like = self.real.reshape(-1)[:1].sum().zeros_like()
        return Complex(like + real, like + imag)

    def abs(self) -> Any:
        """The absolute values, a real tensor: `formulas.magnitude`."""
        return formulas.magnitude(self.real, self.imag)

    def angle(self) -> Any:
        """The angles, from -pi to pi, a real tensor."""
        return formulas.angle(self.real, self.imag)

    def conj(self) -> Complex:
        """The same with the other sign of the imaginary part."""
        return Complex(self.real, -self.imag)

    def neg(self) -> Complex:
        """-z"""
        return -self

    def positive(self) -> Complex:
        """z"""
        return +self

    def reciprocal(self) -> Complex:
        """1 / z"""
        return 1 / self

    def add(self, other: Any, alpha: Any = 1) -> Complex:
        """z + alpha * other"""
        return self + (other if alpha == 1 else other * alpha)

    def sub(self, other: Any, alpha: Any = 1) -> Complex:
        """z - alpha * other"""
        return self - (other if alpha == 1 else other * alpha)

    def mul(self, other: Any) -> Complex:
        """z * other"""
        return self * other

    def div(self, other: Any) -> Complex:
        """z / other"""
        return self / other

    def pow(self, other: Any) -> Complex:
        """z ** other"""
        return self ** other

    def eq(self, other: Any) -> Any:
        """Where both parts are equal."""
        return self == other

    def ne(self, other: Any) -> Any:
        """Where a part differs."""
        return self != other

    def isnan(self) -> Any:
        """Where a part is NaN."""
        return self.real.isnan() | self.imag.isnan()

    def isinf(self) -> Any:
        """Where a part is infinite."""
        return self.real.isinf() | self.imag.isinf()

    def isfinite(self) -> Any:
        """Where both parts are finite."""
        return self.real.isfinite() & self.imag.isfinite()

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Truth:
        """Whether no element is further from another one's than these say."""
        two = self._like(other)
        return bool(((self - two).abs() <= atol + rtol * two.abs()).all().item())

    # Sums and products

    def prod(self, axis: Any = None, keepdim: Truth = False, dtype: Any = None, *,
             dim: Any = None, keepdims: Truth = False) -> Complex:
        """Products along axes, in about log2(n) steps."""
        z = self if dtype is None else self.cast(dtype)
        given = axis if dim is None else dim
        axes = z.real._axes(given, "prod")
        for place in axes:
            z = _halved(z, place)
        whole: Complex = z
        return whole if keepdim or keepdims else Complex(
            *(part.reshape(tuple(size for place, size in enumerate(part.shape)
                                 if place not in axes)) for part in (z.real, z.imag)))

    def cumprod(self, axis: int = 0, dtype: Any = None, *, dim: int | None = None) -> Complex:
        """Running products along an axis, in about log2(n) steps."""
        z = self if dtype is None else self.cast(dtype)
        place = z.real._axis(axis if dim is None else dim, "cumprod")
        count, step = z.shape[place], 1
        before: tuple[slice, ...] = (slice(None),) * place
        while step < count:
            grown = z[(*before, slice(step, None))] * z[(*before, slice(None, count - step))]
            z = z[(*before, slice(None, step))].concat(grown, dim=place)
            step *= 2
        return z

    def var(self, axis: Any = None, keepdim: Truth = False, correction: float = 1, *,
            dim: Any = None, keepdims: Truth = False) -> Any:
        """The variances, real numbers: those of both parts added up."""
        given, keep = axis if dim is None else dim, keepdim or keepdims
        return self.real.var(given, keep, correction) + self.imag.var(given, keep, correction)

    def std(self, *given: Any, **named: Any) -> Any:
        """The roots of the variances, real numbers."""
        return self.var(*given, **named).sqrt()

    def norm(self, p: Any = 2, axis: Any = None, keepdim: Truth = False, *, dim: Any = None,
             ord: Any = None) -> Any:  # noqa: A002
        """The norms of the absolute values, real numbers."""
        return self.abs().norm(p if ord is None else ord, axis if dim is None else dim, keepdim)

    def any(self, *given: Any, **named: Any) -> Any:
        """Whether an element is not 0."""
        return self.bool().any(*given, **named)

    def all(self, *given: Any, **named: Any) -> Any:
        """Whether no element is 0."""
        return self.bool().all(*given, **named)

    def vdot(self, other: Any) -> Complex:
        """The sum of conj(z) * other, of vectors."""
        return (self.conj() * other).sum()

    def vecdot(self, other: Any, axis: int = -1, *, dim: int | None = None) -> Complex:
        """The sums of conj(z) * other along an axis."""
        return (self.conj() * other).sum(axis if dim is None else dim)

    @property
    def _mT(self) -> Complex:  # noqa: N802
        return Complex(self.real.mT, self.imag.mT)

    @property
    def T(self) -> Complex:  # noqa: N802
        """The axes in the opposite order."""
        return Complex(self.real.T, self.imag.T)

    @property
    def mH(self) -> Complex:  # noqa: N802
        """The conjugates of the transposed matrices."""
        return Complex(self.real.mT, -self.imag.mT)

    def adjoint(self) -> Complex:
        """`mH`"""
        return self.mH

    # Several

    def concat(self, *others: Any, dim: int = 0, axis: int | None = None) -> Complex:
        """These and others, one after the other along an axis."""
        return _several("cat", (self, *others), dim if axis is None else axis)

    def stack(self, *others: Any, dim: int = 0, axis: int | None = None) -> Complex:
        """These and others along a new axis."""
        return _several("stack", (self, *others), dim if axis is None else axis)

    def where(self, condition: Any, other: Any) -> Complex:
        """These where a condition holds, others elsewhere."""
        return picked(condition, self, other)

    def masked_fill(self, mask: Any, value: Any) -> Complex:
        """A value where a mask holds."""
        return picked(mask, value, self)

    # Dtypes and devices

    def cast(self, dtype: Any) -> Any:
        """Complex numbers of another size; the truth of being other than 0.

        Raises:
            DTypeError: the dtype is real.
        """
        wanted = complex_dtype(dtype)
        if wanted is self.dtype:
            return self
        if wanted is not None:
            part = real_dtype(wanted)
            return Complex(self.real.cast(part), self.imag.cast(part))
        if dtype in (dtypes.bool, bool, "bool"):
            return (self.real != 0) | (self.imag != 0)
        raise DTypeError("cast", f"{self.dtype.name} to {dtype!r} would lose the imaginary parts",
                         "cast z.real, or z.abs()")

    def bool(self) -> Any:
        """Where the numbers are not 0."""
        return self.cast(dtypes.bool)

    def cfloat(self) -> Any:
        """As complex64."""
        return self.cast(dtypes.complex64)

    def cdouble(self) -> Any:
        """As complex128."""
        return self.cast(dtypes.complex128)

    def to(self, device_or_dtype: Any = None, dtype: Any = None, **_: Any) -> Any:
        """Both parts on another device, or in another dtype, or both."""
        if isinstance(device_or_dtype, (Complex, Tensor)):
            return self.to(device_or_dtype.device)
        if complex_dtype(device_or_dtype) is not None:
            device_or_dtype, dtype = None, device_or_dtype
        if isinstance(device_or_dtype, DType):
            device_or_dtype, dtype = None, device_or_dtype
        moved = self if device_or_dtype is None else Complex(
            self.real.to(device_or_dtype), self.imag.to(device_or_dtype))
        return moved if dtype is None else moved.cast(dtype)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Complex:
        """The numbers on another device."""
        return Complex(*(part.to_device(device, stream=stream) for part in (self.real, self.imag)))

    # Values

    def assign(self, value: Any) -> Complex:
        """Give these numbers a new value, which is spread to their shape."""
        real, imag = _both(value)
        for part, new in ((self.real, real), (self.imag, imag)):
            part.assign(new.cast(part.dtype) if isinstance(new, Tensor) else part.full_like(new))
        return self

    def zero_(self) -> Complex:
        """0 everywhere."""
        return self.assign(0)

    fill_ = copy_ = assign

    def realize(self, *others: Any) -> Complex:
        """Compute both parts, in one schedule."""
        Tensor.realize(self.real, self.imag, *(
            part for one in others for part in (
                (one.real, one.imag) if isinstance(one, Complex) else (one,))))
        return self

    def known(self, operation: str, remedy: str, *why: str) -> np.ndarray:
        """The elements, for an operation the size of whose result depends on them; or `why` else.
        """
        self.real.known(operation, remedy, *why)
        return self.numpy()

    def numpy(self) -> np.ndarray:
        """The elements as an array of complex numbers."""
        self.realize()
        return _joined(self.real.numpy(), self.imag.numpy())

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **named: Any) -> Any:
        """NumPy's functions of elements are the methods of the same meaning; others compute."""
        name = {"conjugate": "conj", "true_divide": "div", "divide": "div", "subtract": "sub",
                "multiply": "mul", "negative": "neg", "power": "pow", "not_equal": "ne",
                "equal": "eq"}.get(function.__name__, function.__name__)
        own = [one if isinstance(one, (Complex, Tensor, int, float, complex)) else Complex.of(one)
               for one in given]
        if method == "__call__" and not named and hasattr(self, name):
            return getattr(self._like(own[0]), name)(*own[1:])
        arrays = [np.asarray(one) if isinstance(one, (Complex, Tensor)) else one for one in given]
        return getattr(function, method)(*arrays, **named)

    def __dlpack__(self, **asked: Any) -> Any:
        """A copy of the values for another library."""
        return self.numpy().__dlpack__(**{name: value for name, value in asked.items()
                                          if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def tolist(self) -> Any:
        """The elements as nested lists of Python's complex numbers."""
        return self.numpy().tolist()

    def item(self) -> complex:
        """The only element."""
        return complex(self.real.item(), self.imag.item())

    __complex__ = item

    def __bool__(self) -> Truth:
        return bool(self.bool())

    # Gradients

    @property
    def requires_grad(self) -> Truth:
        """Whether `backward` computes gradients for both parts."""
        return bool(self.real.requires_grad or self.imag.requires_grad)

    def requires_grad_(self, wanted: Truth = True) -> Complex:
        """Ask for gradients of both parts."""
        self.real.requires_grad_(wanted)
        self.imag.requires_grad_(wanted)
        return self

    @property
    def grad(self) -> Complex | None:
        """The slope along the real part, and along the imaginary part times i, as in PyTorch: what
        is subtracted from z to make the loss less.
        """
        real, imag = self.real.grad, self.imag.grad
        if real is None and imag is None:
            return None
        return Complex(self.real.zeros_like() if real is None else real,
                       self.imag.zeros_like() if imag is None else imag)

    @grad.setter
    def grad(self, value: Complex | None) -> None:
        self.real.grad, self.imag.grad = (None, None) if value is None else (
            value.real, value.imag)

    def backward(self, gradient: Any = None) -> None:
        """The gradients of parameters, for this gradient of the numbers.

        Raises:
            ArgumentError: none is given; a loss is a real number.
        """
        if gradient is None:  # r[impl errors.argument.refused]
            raise ArgumentError("backward", "complex numbers have no slope of their own",
                                "make a real loss, z.abs().sum(), or give a gradient")
        real, imag = _both(gradient)
        (self.real * real + self.imag * imag).sum().backward()


def _method(z: Complex, name: str) -> Callable[..., Any] | None:
    """The method that a table names; None if none does."""
    if name in _OF_BOTH:
        return lambda *given, **named: _of_both(name, z, given, named)
    if name in _FORMULAS:
        return lambda: Complex(*_FORMULAS[name](z.real, z.imag))
    if name in _BILINEAR:
        return lambda other, *given, **named: bilinear(
            lambda x, y: getattr(x, name)(y, *given, **named), z, other)
    if name in host.FUNCTIONS:
        return lambda *given, **named: host.computed(Complex, name, z, given, named)
    return None


def _missing(name: str) -> NoReturn:
    known = [*_OF_BOTH, *_FORMULAS, *_BILINEAR, *host.FUNCTIONS, *_ALIASES,
             *(each for each in vars(Complex) if not each.startswith("_"))]
    near = nearest(name, known)
    # r[impl errors.name.missing]
    raise NameMissingError("Complex", f"there is no {name}",
                           f"use z.real.{name} and z.imag.{name}, or z.abs()"
                           if callable(getattr(Tensor, name, None)) or not near
                           else f"did you mean {near}?")


def _joined(real: Any, imag: Any) -> np.ndarray:
    found = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    found.real, found.imag = real, imag  # 1j times infinity has a NaN
    return found


def _of_torch(value: Any) -> Any:
    """Another library's tensor without its gradient, in the memory of the host."""
    if isinstance(value, (Complex, Tensor)):
        return value
    for step in ("detach", "cpu", "resolve_conj"):
        value = getattr(value, step)() if hasattr(value, step) else value
    return value


def _parts(value: Any) -> tuple[Any, Any]:
    """Both parts of an operand; the second is None of what is real."""
    if isinstance(value, Complex):
        return value.real, value.imag
    if isinstance(value, np.generic) and value.ndim == 0:
        value = value.item()
    if isinstance(value, complex):
        return value.real, value.imag
    if isinstance(value, np.ndarray) and value.dtype.kind == "c" or isinstance(value, list):
        two = Complex.of(value)
        return two.real, two.imag
    return (Tensor(value) if isinstance(value, np.ndarray) else value), None


def _both(value: Any) -> tuple[Any, Any]:
    """Both parts of an operand, numbers or tensors."""
    real, imag = _parts(value)
    return real, 0.0 if imag is None else imag


def _of_both(name: str, z: Complex, given: Sequence[Any], named: dict[str, Any]) -> Any:
    for dtype in (*given, named.get("dtype")):
        if isinstance(dtype, DType) or dtype is not None and dtype is named.get("dtype"):
            z = z.cast(dtype)
    named = {**named, "dtype": None} if "dtype" in named else named
    given = [None if isinstance(one, DType) else one for one in given]
    real, imag = (getattr(getattr(z, part), name)(
        *[_part_of(one, part) for one in given],
        **{key: _part_of(one, part) for key, one in named.items()}) for part in ("real", "imag"))
    if isinstance(real, Tensor):
        return Complex(real, imag)
    return tuple(Complex(one, two) for one, two in zip(real, imag, strict=True))


def _part_of(value: Any, part: str) -> Any:
    """An argument, or one part of complex numbers."""
    return getattr(value, part) if isinstance(value, Complex) else value


def bilinear(function: Callable[[Any, Any], Any], z: Complex, other: Any) -> Complex:
    real, imag = _parts(other)
    if imag is None:
        return Complex(function(z.real, real), function(z.imag, real))
    return Complex(function(z.real, real) - function(z.imag, imag),
                   function(z.real, imag) + function(z.imag, real))


def _several(name: str, given: Sequence[Any], dim: int) -> Complex:
    """Parts joined to parts."""
    if given and isinstance(given[-1], int):
        given, dim = given[:-1], given[-1]
    flat = [one for each in given for one in (each if isinstance(each, (list, tuple)) else (each,))]
    many = [Complex.of(one) for one in flat]
    common = dtypes.complex128 if any(one.dtype is dtypes.complex128 for one in many) \
        else dtypes.complex64
    many = [one.cast(common) for one in many]
    first = type(many[0].real)
    return Complex(*(getattr(first, name)(*[getattr(one, part) for one in many], dim=dim)
                     for part in ("real", "imag")))


def picked(condition: Any, first: Any, second: Any) -> Complex:
    """Numbers of one or the other."""
    (a, b), (c, d) = _both(first), _both(second)
    if not isinstance(b, Tensor) and not isinstance(d, Tensor):  # two numbers, or real tensors
        like = (condition.where(a, c) * 0).cast(dtypes.float32) if isinstance(a, Tensor) or \
            isinstance(c, Tensor) else condition.cast(dtypes.default_float) * 0
        b = like + b
    return Complex(condition.where(a, c), condition.where(b, d))


def _repeated(z: Complex, times: int) -> Complex:
    """A power by squaring."""
    if times < 0:
        return 1 / _repeated(z, -times)
    result: Any = None
    while times:
        if times & 1:
            result = z if result is None else result * z
        times >>= 1
        z = Complex(*formulas.square(z.real, z.imag)) if times else z
    return Complex(z.real * 0 + 1, z.imag * 0) if result is None else +result


def _halved(z: Complex, place: int) -> Complex:
    """The product along an axis, whose size becomes 1."""
    before: tuple[slice, ...] = (slice(None),) * place
    while z.shape[place] > 1:
        half = z.shape[place] // 2
        paired = z[(*before, slice(None, half))] * z[(*before, slice(half, 2 * half))]
        rest = z[(*before, slice(2 * half, None))]
        z = paired.concat(rest, dim=place) if z.shape[place] % 2 else paired
    if z.shape[place] == 0:
        sizes = tuple(1 if axis == place else size for axis, size in enumerate(z.shape))
        real = z.real.full(sizes, 1.0, dtype=z.real.dtype, device=z.device)
        return Complex(real, real.zeros_like())
    return z
