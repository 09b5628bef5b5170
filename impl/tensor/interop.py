"""Tensors among other libraries: NumPy's functions, DLPack, pickle. Chapter: spec/tensor.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from impl.dtypes import dtypes
from impl.errors import DeviceError
from impl.host import np
from impl.multi import Mesh, Sharding
from impl.tensor.inplace import InPlace

#: NumPy's names of functions of elements that have another name here.
_UFUNCS = {"true_divide": "div", "divide": "div", "power": "pow", "invert": "bitwise_not",
           "left_shift": "lshift", "right_shift": "rshift", "equal": "eq", "rint": "round",
           "floor_divide": "floor_divide", "conjugate": "positive", "fabs": "abs",
           "float_power": "float_power", "matmul": "matmul", "arctan2": "atan2",
           "degrees": "rad2deg", "radians": "deg2rad", "cbrt": "", "spacing": ""}


class Interop(InPlace):
    """What other libraries ask of an array."""

    __slots__ = ()

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **named: Any) -> Any:
        """NumPy's functions of elements are the methods of the same meaning; others compute."""
        # r[impl tensor.numpy.functions+2]
        name = _UFUNCS.get(function.__name__, function.__name__)
        known: Callable[..., Any] | None = getattr(InPlace, name, None) if name else None
        if any(getattr(getattr(one, "dtype", one), "kind", "") == "c" or isinstance(one, complex)
               for one in given):
            return getattr(function, method)(*(self.runtime.complex_of(type(one), one)
                                               if isinstance(one, Interop) else one
                                               for one in given), **named)
        if method != "__call__" or named or known is None:
            arrays = [np.asarray(one) if isinstance(one, Interop) else one for one in given]
            return getattr(function, method)(*arrays, **named)
        own = [one if isinstance(one, Interop) else self.__class__(one, self.device)
               if isinstance(one, (np.ndarray, list)) else one for one in given]
        if isinstance(own[0], Interop):
            return known(*own)
        reflected = getattr(self, f"__r{_OPERATORS.get(function.__name__, '')}__", None)
        return known(self.__class__(own[0], self.device), *own[1:]) if reflected is None \
            else reflected(own[0])

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        """NumPy's other functions compute with the values, and return arrays."""
        return function(*_as_arrays(given), **_as_arrays(named))

    # DLPack

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Any = None) -> Any:
        """The values for another library, where they lie in the memory of the host; to be read.

        A copy, if that is asked for, if they lie elsewhere, or if the library is so old that it
        cannot be told that nothing may be written there.

        Raises:
            BufferError: they would have to be copied, and `copy` is False.
        """
        told = max_version is not None and max_version[0] >= 1
        seen = self.runtime.seen(self) if told and not copy else None
        if seen is None and copy is False:
            raise BufferError(f"__dlpack__: {self._form()} has to be copied: leave out copy=False")
        array = self.numpy() if seen is None else seen.reshape(self.shape)
        asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device}
        return array.__dlpack__(**{name: value for name, value in asked.items()
                                   if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return 1, 0

    @classmethod
    def from_dlpack(cls, other: Any, device: str | None = None, copy: bool | None = None) -> Self:
        """The values of another library's tensor; without a copy, where nothing speaks against it.

        Whoever writes to that memory changes what the tensor is, at a moment of its own: with
        `copy=True` they are two. The tensor never writes there.

        Raises:
            DeviceError: they are not in the memory of the host.
            BufferError: they have to be copied, and `copy` is False.
        """
        if other.__dlpack_device__()[0] != 1:
            raise DeviceError("from_dlpack", "the tensor is not in the memory of the host",
                              "move it there: .cpu()")
        known = "bfloat16" not in str(getattr(other, "dtype", ""))
        given = np.from_dlpack(other.detach() if hasattr(other, "detach") else other) \
            if known else other
        leaf = cls.runtime.adopt(given, cls._device(device)) \
            if known and not copy and given.dtype.kind in "biuf" else None
        if leaf is not None:
            return cls(leaf)
        if copy is False:
            raise BufferError("from_dlpack: the elements have to be copied: leave out copy=False")
        return cls(given, device)

    # Pickle

    def __reduce__(self) -> tuple[Any, ...]:
        """The values, the dtype, the device or the sharding, and whether a gradient is required."""
        # r[impl tensor.pickle.value+3]
        bits = self.bitcast(dtypes.uint16) if self.dtype is dtypes.bfloat16 else self
        place = self.sharding if isinstance(self.device, Mesh) else self.device
        return _unpickled, (self.__class__, bits.numpy(), self.dtype, place, self._parameter)


#: What the operator method of a function is called behind its `__r`.
_OPERATORS = {"add": "add", "subtract": "sub", "multiply": "mul", "true_divide": "truediv",
              "divide": "truediv", "floor_divide": "floordiv", "remainder": "mod", "power": "pow",
              "matmul": "matmul", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


def _unpickled(kind: type[Interop], values: np.ndarray, dtype: Any, place: str | Sharding,
               parameter: bool | None) -> Interop:
    """A tensor again; on the default device where those that it came from are not."""
    result = kind(values)
    if dtype is dtypes.bfloat16:
        result = result.bitcast(dtype).contiguous()
    try:
        result = result.to(place) if isinstance(place, str) else \
            result.shard(place.mesh, **place.cut)
    except DeviceError:
        pass
    if parameter is not None:
        result.requires_grad = parameter
    return result


def _as_arrays(value: Any) -> Any:
    """Tensors as arrays, in lists and dicts, too."""
    if isinstance(value, Interop):
        return value.numpy()
    if isinstance(value, (list, tuple)):
        return type(value)(_as_arrays(one) for one in value)
    if isinstance(value, dict):
        return {key: _as_arrays(one) for key, one in value.items()}
    return value
