"""Tensors among other libraries: NumPy's functions, DLPack, pickle. Chapter: spec/tensor.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from impl.dtypes import INT4, as_dtype
from impl.errors import ArgumentError, DeviceError
from impl.host import np
from impl.ir import Ops
from impl.multi import Mesh, Sharding
from impl.tensor.host import is_short
from impl.tensor.inplace import InPlace
from impl.tensor.parameters import mode

#: NumPy's names of functions of elements that have another name here.
_UFUNCS = {"true_divide": "div", "divide": "div", "power": "pow", "invert": "bitwise_not",
           "left_shift": "lshift", "right_shift": "rshift", "equal": "eq", "rint": "round",
           "floor_divide": "floor_divide", "conjugate": "positive", "fabs": "abs",
           "float_power": "float_power", "matmul": "matmul", "arctan2": "atan2",
           "degrees": "rad2deg", "radians": "deg2rad", "cbrt": "", "spacing": ""}


#: Functions of NumPy whose results have the form of what they are given, and nothing of its values.
_FORMS = ("zeros_like", "ones_like", "full_like", "empty_like")


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
            return _computed(getattr(function, method), function.__name__, given, named)
        own = [one if isinstance(one, Interop) else self.__class__(one, self.device)
               if isinstance(one, (np.ndarray, list)) else one for one in given]
        if isinstance(own[0], Interop):
            return known(*own)
        reflected = getattr(self, f"__r{_OPERATORS.get(function.__name__, '')}__", None)
        return known(self.__class__(own[0], self.device), *own[1:]) if reflected is None \
            else reflected(own[0])

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        """NumPy's other functions compute with the values, and return arrays.

        Raises:
            ArgumentError: a gradient would have to flow through the result.
        """
        return _computed(function, function.__name__, given, named)

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
        if seen is None and copy is False and self.numel():  # of nothing, nothing is copied
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
        known = not is_short(getattr(other, "dtype", None))
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
        bits = self.cast(as_dtype(self.dtype.host)) if self.dtype in INT4 else self \
            if self.dtype.plain else self.bitcast(as_dtype(self.dtype.numpy))
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
    if dtype in INT4:
        result = result.cast(dtype)
    elif not dtype.plain:
        result = result.bitcast(dtype).contiguous()
    try:
        result = result.to(place) if isinstance(place, str) else \
            result.shard(place.mesh, **place.cut)
    except DeviceError:
        pass
    if parameter is not None:
        result.requires_grad = parameter
    return result


def _computed(function: Callable[..., Any], name: str, given: Any, named: Any) -> Any:
    """What a function of arrays returns for the values of tensors.

    Raises:
        ArgumentError: these are floats, and a gradient would have to flow through them.
    """
    passing: list[bool] = []
    result = function(*_as_arrays(given, passing), **_as_arrays(named, passing))
    parts = result if isinstance(result, (list, tuple)) else [result]
    if any(passing) and name not in _FORMS and any(
            np.asarray(part).dtype.kind == "f" for part in parts):
        # r[impl tensor.numpy.gradient]
        raise ArgumentError(f"np.{name}", "its result is an array, through which no gradient "
                            "flows, and a tensor that it is given requires one",
                            "use the methods of tensors (x.sum()), or give it x.detach()")
    return result


def _passes_gradients(tensor: Interop) -> bool:
    """Whether somebody may ask for a gradient with respect to what a tensor is computed from."""
    node = tensor.uop
    if node.dtype.kind != "f" or not mode.gradients or node.op in (Ops.DETACH, Ops.CONST):
        return False
    return bool(tensor.requires_grad) or bool(mode.keeping) and node.op is not Ops.BUFFER


def _as_arrays(value: Any, passing: list[bool]) -> Any:
    """Tensors as arrays, in lists and dicts, too; whether each is `passing` gradients is noted."""
    if isinstance(value, Interop):
        passing.append(_passes_gradients(value))  # before it is computed
        return value.numpy()
    if isinstance(value, (list, tuple)):
        return type(value)(_as_arrays(one, passing) for one in value)
    if isinstance(value, dict):
        return {key: _as_arrays(one, passing) for key, one in value.items()}
    return value
