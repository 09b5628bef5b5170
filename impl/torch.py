"""The names of the module `torch`, for a program that says `import impl.torch as torch`.

`torch.name(x, ...)` is the method `x.name(...)`, found when it is first asked for. Those stand here
whose arguments PyTorch has in another order, or which are no methods. What has no counterpart says
what to write in its place. `docs/differences.md` has what differs.
"""
from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from impl import fft, nn, settings
from impl import transforms as func
from impl.complex import Complex
from impl.device import Device, GlobalCounters
from impl.dtypes import DType, as_dtype, complex_dtype, dtypes, promoted
from impl.dtypes import finfo as finfo
from impl.dtypes import iinfo as iinfo
from impl.errors import ArgumentError, DeviceError, GraphError, NameMissingError, nearest
from impl.gradient import depends, expression_of
from impl.gradient.hooks import unwatched
from impl.host import np
from impl.nn.names import Part
from impl.places import Place
from impl.replay import TinyJit
from impl.settings import Context
from impl.tensor import Tensor
from impl.tensor.autograd import GradientMode
from impl.tensor.names import remedy_of
from impl.tensor.reduce import Ordered

# These names will be those of tensors' functions here.
_any, _float, _int, _bool = any, float, int, bool
_range, _longest = range, max
dtype = DType
__path__: list[str] = []
Size = tuple
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None
strided = contiguous_format = preserve_format = channels_last = None
vmap, optim = func.vmap, nn.optim
manual_seed, get_rng_state = Tensor.manual_seed, Tensor.get_rng_state
set_rng_state = Tensor.set_rng_state

#: What no method is called, and what to write for it.
_MEANT = {
    "autocast": "model.bfloat16(), or nothing: no dtype is changed unasked",
    "multiprocessing": "impl.distributed: one program in several processes",
    "jit": "TinyJit(function)",
    "set_default_tensor_type": "torch.set_default_dtype",
    "profiler": "DEBUG=2, or x.explain()",
    "__version__": "impl.__version__: this is not PyTorch, and has none of its versions",
    "version": "impl.__version__: this is not PyTorch, and has none of its versions",
    "distributed": "impl.distributed: one program in several processes",
    "onnx": "the file of weights: impl.torch.save", "hub": "impl.torch.load of a file",
    "sparse": "x: all tensors are dense",
    "histogramdd": "NumPy on x.numpy()", "lobpcg": "torch.linalg.eigh",
    **dict.fromkeys(("fork", "wait"), "concurrent.futures of Python"),
    "native_norm": "x.norm", "while_loop": "impl.func.while_loop",
    "empty_permuted": "torch.empty(shape)",
    "from_file": "torch.from_numpy(numpy.memmap(...))", "masked": "x.masked_fill and the method",
    "nested": "x.masked_fill, or nn.utils.rnn.pad_sequence: all rows are equally long",
    "compiler": "torch.compile", "quasirandom": "scipy.stats.qmc", "bit": "torch.uint8",
    "windows": "torch.signal.windows", "slice_copy": "x[start:stop]",
    **dict.fromkeys(("hsmm", "hspmm", "saddmm"), "x @ y: all tensors are dense"),
    **dict.fromkeys(("indices_copy", "values_copy", "ccol_indices_copy", "col_indices_copy",
                     "crow_indices_copy", "row_indices_copy"), "x: all tensors are dense"),
    "jagged": "x.masked_fill, or nn.utils.rnn.pad_sequence: all rows are equally long",
    "segment_reduce": "x.scatter_reduce"}
#: The same for all names that begin so, the first that fits.
_BEGINNINGS = {
    "sparse_": _MEANT["sparse"], "dsmm": "x @ y: all tensors are dense",
    **dict.fromkeys(("quantize", "fake_quantize", "qint", "quint", "per_channel", "per_tensor",
                     "fbgemm", "choose_qparams", "fused_moving"),
                    "float8_e4m3fn, float8_e5m2, int4 or int8 and a scale of your own"),
    **dict.fromkeys(("set_autocast", "get_autocast", "autocast", "clear_autocast",
                     "is_autocast"), _MEANT["autocast"]),
    **dict.fromkeys(("cudnn_", "miopen_", "mkldnn_", "batch_norm_"),
                    "the function without this beginning: devices are chosen by DEVICE"),
    **dict.fromkeys(("complex32", "bcomplex32", "chalf"), "torch.complex64"),
    **dict.fromkeys(("float8_", "float4_"), "torch.float8_e4m3fn or torch.float8_e5m2"),
    **dict.fromkeys([f"{kind}{digit}" for kind in ("int", "uint", "bits") for digit in "12345678"],
                    "torch.int4, torch.uint4, torch.int8 or wider ones"),
    "Stream": "torch.cuda.synchronize(): kernels run in the order of their statements",
    **dict.fromkeys(("empty_strided", "as_strided"), "x.contiguous(): there are no strides"),
    **dict.fromkeys(("Script", "parse_", "import_ir", "merge_type", "unify_type"),
                    _MEANT["jit"])}
#: Modules with a home elsewhere.
_MODULES = {"amp": "impl.nn.amp"}
#: Of `torch.special`: methods that have another name, and those that have the same.
_SPECIAL = {"expit": "sigmoid", "gammaln": "lgamma", "psi": "digamma"}
_SPECIAL |= {name: name for name in
             ("digamma entr erf erfc erfcx erfinv exp2 expm1 i0 i0e i1 i1e log1p log_ndtr "
              "log_softmax logit logsumexp ndtr ndtri round sinc "
              "softmax xlog1py xlogy zeta gammainc gammaincc airy_ai bessel_j0 bessel_j1 "
              "bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 "
              "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 "
              "chebyshev_polynomial_t chebyshev_polynomial_u shifted_chebyshev_polynomial_t "
              "shifted_chebyshev_polynomial_u hermite_polynomial_h hermite_polynomial_he "
              "laguerre_polynomial_l legendre_polynomial_p").split()}
_SPECIAL |= {"modified_bessel_i0": "i0", "modified_bessel_i1": "i1", "multigammaln": "mvlgamma"}
#: PyTorch's names of classes whose instances have one dtype.
_KINDS = {"FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64,
          "HalfTensor": dtypes.float16, "LongTensor": dtypes.int64, "IntTensor": dtypes.int32,
          "BoolTensor": dtypes.bool, "ByteTensor": dtypes.uint8, "CharTensor": dtypes.int8,
          "ShortTensor": dtypes.int16, "BFloat16Tensor": dtypes.bfloat16}
#: Functions of `impl.nn.operators`: PyTorch's below its layers.
_OPERATORS = frozenset(
    ("affine_grid_generator alpha_dropout_ convolution dropout_ embedding_renorm_ "
     "feature_alpha_dropout_ feature_dropout_ grid_sampler grid_sampler_2d grid_sampler_3d gru "
     "gru_cell lstm lstm_cell native_batch_norm native_dropout "
     "native_group_norm native_layer_norm norm_except_dim rnn_relu rnn_relu_cell "
     "rnn_tanh rnn_tanh_cell").split())
#: Numbers of Python that PyTorch's compiler would follow: plain functions of them.
_OF_NUMBERS = {"sym_int": math.trunc, "sym_float": float, "sym_max": max, "sym_min": min,
               "sym_sqrt": math.sqrt, "sym_sum": sum, "sym_not": lambda a: not a,
               "sym_ite": lambda b, t, f: t if b else f}
#: What has no meaning outside of PyTorch: its compilers, its build, its records, its modules.
_INSIDE = frozenset(
    ("AVG SUM AliasDb Argument ArgumentSpec AggregationType BenchmarkConfig "
     "BenchmarkExecutionStats Block BufferDict CallStack Capsule Code CompilationUnit "
     "CompleteArgumentSpec DeepCopyMemoTable DeserializationStorageContext DisableTorchFunction "
     "DisableTorchFunctionSubclass DispatchKey DispatchKeySet ErrorReport ExcludeDispatchKeyGuard "
     "ExecutionPlan FatalError FileCheck FunctionSchema Future Gradient Graph GraphExecutorState "
     "IODescriptor JITException LiteScriptModule LockingLogger LoggerBase Node NoopLogger "
     "OperatorInfo PRIVATE_OPS PyTorchFileReader PyTorchFileWriter SerializationStorageContext "
     "StaticModule SymBool SymFloat SymInt TYPE_CHECKING Tag ThroughputBenchmark TracingState "
     "USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH Use Value accelerator ao builtins classes "
     "classproperty compiled_with_cxx11_abi cpp ctypes empty_quantized export functional futures "
     "fx get_deterministic_debug_mode get_device_module get_file_path get_num_interop_threads "
     "glob has_lapack has_mkl has_openmp has_spectral init_num_threads "
     "is_anomaly_check_nan_enabled is_deterministic_algorithms_warn_only_enabled "
     "is_vulkan_available is_warn_always_enabled library monitor ops overrides package platform "
     "prepare_multiprocessing_environment profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 "
     "quantization return_types serialization set_deterministic_debug_mode "
     "set_num_interop_threads sym_constrain_range sym_constrain_range_for_size sym_fresh_size "
     "textwrap thread_safe_generator threading torch torch_version types typing "
     "typing_extensions warnings legacy_contiguous_format").split())
#: Of `torch.nn`, which is there under `torch`, too; and functions of `torch.nn.functional`.
_OF_NN = ("ModuleDict", "ParameterDict")
_OF_FUNCTIONAL = ("ctc_loss", "alpha_dropout", "feature_alpha_dropout", "bilinear",
                  "embedding_bag", "conv_tbc", "max_pool1d_with_indices", "native_channel_shuffle")


class device(str):  # noqa: N801  (PyTorch's name)
    """The name of a device, as the runtime has it: `device("cuda", 1)` is "CUDA:1"."""

    def __new__(cls, name: str, index: int | None = None) -> device:
        kind, _, number = str(name).partition(":")
        kind = {"MPS": "METAL"}.get(kind.upper(), kind.upper())
        number = number if index is None else str(index)
        return super().__new__(cls, kind if number in ("", "0") else f"{kind}:{number}")

    @property
    def type(self) -> str:
        """The kind of device, as PyTorch spells it."""
        return Place(self).type

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Which one of its kind; None for the host."""
        return Place(self).index


def __getattr__(name: str) -> Any:
    """A dtype, a method of tensors as a function, or a part of `torch`, made now."""
    if name.startswith("__") and name not in _MEANT:
        raise AttributeError(name)
    value = _found(name)
    globals()[name] = value
    return value


def _found(name: str) -> Any:
    if isinstance(getattr(dtypes, name, None), DType):
        return getattr(dtypes, name)
    if name in _KINDS:
        return lambda *data: Tensor(data[0], dtype=_KINDS[name]) if len(data) == 1 \
            and not isinstance(data[0], _int) else Tensor.empty(*data, dtype=_KINDS[name])
    if _MODULES.get(name):
        return importlib.import_module(_MODULES[name])
    if name in _OF_NN:
        return getattr(nn, name)
    if name in _OF_FUNCTIONAL:
        return getattr(nn.functional, name)
    if name in _OPERATORS:
        from impl.nn import operators
        return getattr(operators, name)
    if name in _OF_NUMBERS:
        return _OF_NUMBERS[name]
    if name == "GradScaler":
        return nn.amp.GradScaler
    if name in ("save", "load"):
        from impl.nn import saving
        return getattr(saving, name)
    plain = name.removesuffix("_copy")
    if plain != name and plain in dir(Tensor):  # a value of its own: all are
        return _function(plain)
    if plain in ("view_as_real", "view_as_complex", "alias"):
        return globals().get(plain, Tensor.clone)
    if name not in _MEANT and not name.startswith("_") and name in dir(Tensor) \
            and callable(getattr(Tensor, name)):
        return _function(name)
    remedy = f"use {_MEANT[name]}" if name in _MEANT else _by_beginning(name) or _near(name)
    raise NameMissingError("torch", f"there is no {name}", remedy)  # r[impl errors.name.missing]


def _by_beginning(name: str) -> str:
    """What to write in place of each name of a family; nothing for others."""
    if name.endswith(("Storage", "StorageBase")):
        return "use x.data(), the bytes"
    if name in _INSIDE or name.endswith(("Type", "TypeBuilder")):
        return "leave it out: it is about PyTorch itself, and means nothing here"
    meant = next((each for begin, each in _BEGINNINGS.items() if name.startswith(begin)), "")
    return f"use {meant}" if meant else ""


def _near(name: str) -> str:
    if name in vars(func):
        return f"use func.{name}: from impl import func"
    meant = remedy_of(Tensor, name)
    near = nearest(name, __dir__())
    return f"did you mean {near}?" if near and not meant.startswith("use ") else meant


def __dir__() -> list[str]:
    """What is here, and all methods."""
    found = {*globals(), *_OPERATORS, *_OF_NUMBERS, *_KINDS, *_MODULES, *_OF_NN, *_OF_FUNCTIONAL,
             "GradScaler", "save", "load",
             *(each for each in dir(dtypes) if isinstance(getattr(dtypes, each), DType)),
             *(each for each in dir(Tensor)
               if each not in _MEANT and callable(getattr(Tensor, each)))}
    return sorted(each for each in found if not each.startswith("_"))


def _function(name: str) -> Callable[..., Any]:
    """A method as a function of its tensor, which PyTorch calls `input`.

    What is given as `out` is assigned the result, and returned.
    """
    method = getattr(Tensor, name)
    bound = inspect.ismethod(method) or isinstance(
        inspect.getattr_static(Tensor, name), staticmethod)

    def call(*given: Any, **named: Any) -> Any:
        generator, out = named.pop("generator", None), named.pop("out", None)
        if out is not None:
            return _assigned(out, call(*given, **named, generator=generator))
        if "input" in named:
            given = (named.pop("input"), *given)
        if not bound and given and isinstance(given[0], (_int, _float)):
            given = (Tensor(given[0]), *given[1:])
        first = given[0][0] if given and isinstance(given[0], (list, tuple)) and given[0] \
            else given[0] if given else None
        if isinstance(first, Complex):  # which has its own
            return getattr(first, name)(*([given[0][1:]] if first is not given[0] else []),
                                        *given[1:], **named)
        with generator or nullcontext():
            return method(*given, **named)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = method.__doc__
    return call


def _assigned(out: Any, result: Any) -> Any:
    """`out`, a tensor or a tuple of them, with the result in its place."""
    if isinstance(out, (tuple, list)):
        return result.__class__(*map(_assigned, out, result))
    return out.assign(result.cast(out.dtype))


# Tensors

def tensor(data: Any, *, dtype: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor with memory of its own, of numbers, lists, an array, or a list of tensors."""
    if isinstance(data, Complex):
        made = data.detach().clone()
        return made if dtype is None else made.cast(dtype)
    if isinstance(data, (list, tuple)) and _any(isinstance(one, Tensor) for one in data):
        data = Tensor.stack([as_tensor(one, dtype) for one in data])
    if isinstance(data, Tensor):
        made = data.detach().clone()
    else:  # Python's numbers have all digits of a wide dtype, if it is asked for at once
        real = dtype is not None and as_dtype(dtype).kind in "fiu"
        made = Tensor(data, device, dtype if real else None)
    made = made if dtype is None else made.cast(dtype)
    if device is not None:
        made = made.to(device)
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """The tensor itself, or one of other data."""
    if isinstance(data, Complex):
        return data.to(device, dtype)
    if not isinstance(data, Tensor):
        return tensor(data, dtype=dtype, device=device)
    return data.to(device or data.device).cast(dtype or data.dtype)


asarray = as_tensor


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A copy: the array and the tensor share no memory."""
    return Tensor(ndarray)


def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor, or complex numbers."""
    return isinstance(obj, (Tensor, Complex))


def is_complex(input: Any) -> bool:
    """Whether the numbers are complex."""
    return isinstance(input, Complex)


def real(input: Any) -> Any:
    """The real part; of a real tensor itself."""
    return input.real if isinstance(input, Complex) else input


def imag(input: Any) -> Any:
    """The imaginary part; of a real tensor zeros."""
    return input.imag if isinstance(input, Complex) else input.zeros_like()


def conj(input: Any) -> Any:
    """The conjugates; of a real tensor itself."""
    return input.conj() if isinstance(input, Complex) else input


def angle(input: Any) -> Any:
    """The angles; of a real tensor 0, or pi where it is negative."""
    return (input if isinstance(input, Complex) else Complex.of(input)).angle()


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **named: Any) -> Tensor:
    """Normal numbers with this mean and deviation, in a shape, or in that of the two."""
    generator = named.pop("generator", None)
    if size is None:
        size = (as_tensor(mean) + as_tensor(std)).shape
    with generator or nullcontext():
        return Tensor.randn(*size, **named) * std + mean


def randint(low: int, high: Any = None, size: Any = None, **named: Any) -> Tensor:
    """Whole numbers: `randint(high, size)` from 0 on, or `randint(low, high, size)`."""
    generator = named.pop("generator", None)
    if size is None:
        low, high, size = 0, low, high
    with generator or nullcontext():
        return Tensor.randint(*size, low=low, high=high, **named)


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """Elements of one or the other; with the condition alone, where it holds, axis by axis."""
    if input is None and other is None:
        return condition.nonzero().unbind(1)
    return condition.where(input, other)


def pow(input: Any, exponent: Any) -> Tensor:
    """A power."""
    raised: Tensor = input ** exponent
    return raised


def sign(input: Any) -> Any:
    """-1, 0 or 1, and 0 of NaN, as in PyTorch; `x.sign()` gives NaN, as in NumPy."""
    if isinstance(input, Complex):
        return input.sign()
    found = input.sign()
    return found.isnan().where(0, found) if input.is_floating_point() else found


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None,
             edge_order: int = 1) -> tuple[Tensor, ...]:
    """The slopes between neighbouring elements along each axis: `numpy.gradient`.

    `spacing` is how far elements are apart: a number, one for each axis, or their places.
    `x.gradient(...)` is another thing: the gradient of a loss.
    """
    axes = tuple(_range(len(input.shape))) if dim is None else \
        (dim,) if isinstance(dim, _int) else tuple(dim)
    steps = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(axes)
    return tuple(_slope(input.movedim(axis, 0), step, edge_order).movedim(0, axis)
                 for axis, step in zip(axes, steps, strict=True))


def _slope(x: Tensor, step: Any, edge_order: int) -> Tensor:
    """The slopes along the first axis, whose elements are `step` apart, or at these places."""
    count = x.shape[0]
    if count < edge_order + 1 or edge_order not in (1, 2):  # r[impl errors.argument.refused]
        raise ArgumentError("torch.gradient", f"edge_order {edge_order} on {count} elements",
                            "use edge_order=1, on an axis of 2 elements or more")
    place = step if isinstance(step, Tensor) and step.shape else Tensor.arange(count) * step
    gaps = place[1:] - place[:-1]
    wide = (-1, *(1,) * (len(x.shape) - 1))
    first = (x[1:] - x[:-1]) / gaps.reshape(wide)
    if count == 2:
        return first.cat(first, dim=0)
    before, after = gaps[:-1].reshape(wide), gaps[1:].reshape(wide)
    inner = (first[:-1] * after + first[1:] * before) / (before + after)
    if edge_order == 1:
        return first[:1].cat(inner, first[-1:], dim=0)
    bend = (first[1:] - first[:-1]) / (before + after)
    return (first[:1] - bend[:1] * before[:1]).cat(
        inner, first[-1:] + bend[-1:] * after[-1:], dim=0)


# The extremes with their places

def _with_places(name: str, place: str) -> Callable[..., Any]:
    def extreme(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None,
                axis: Any = None) -> Any:
        dim = axis if dim is None else dim
        if isinstance(dim, Tensor) or other is not None:
            return getattr(input, f"{name}imum")(dim if other is None else other)
        if dim is None:
            return getattr(input, name)()
        return Ordered(getattr(input, name)(dim, keepdim), getattr(input, place)(dim, keepdim))

    extreme.__name__ = name
    extreme.__doc__ = f"x.{name}(); along an axis the pair of values and indices, as in PyTorch."
    return extreme


max, min = _with_places("max", "argmax"), _with_places("min", "argmin")


def _running(name: str) -> Callable[[Tensor, int], Any]:
    def running(input: Tensor, dim: int) -> Any:
        return input._places_so_far(getattr(input, name)(dim), dim)

    running.__name__ = name
    running.__doc__ = f"The pair of x.{name}(dim) and the places of those, as in PyTorch."
    return running


cummax, cummin = _running("cummax"), _running("cummin")


class Solved(NamedTuple):
    """What solves a system, and its matrix, as PyTorch returns them."""

    solution: Any
    cloned_coefficient: Any


def triangular_solve(b: Tensor, A: Tensor, upper: bool = True,  # noqa: N803
                     transpose: bool = False, unitriangular: bool = False) -> Solved:
    """x.triangular_solve, and the matrix, as in PyTorch."""
    turned = A.mT if transpose else A
    found = b.triangular_solve(turned, upper != transpose, unitriangular=unitriangular)
    return Solved(found, A)


# Windows

def _window(build: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
    """A window of `torch.signal.windows`: symmetric, unless it is said not to be."""
    def window(M: int, *given: Any, sym: bool = True, dtype: Any = None,  # noqa: N803
               device: Any = None, requires_grad: bool = False, **named: Any) -> Tensor:
        count = M if sym or M < 2 else M + 1
        line = build(np.arange(count, dtype=np.float64), *given, **named)[:M]
        made = Tensor(line, device, dtypes.default_float if dtype is None else dtype)
        return made.requires_grad_(requires_grad)
    window.__name__, window.__doc__ = build.__name__, build.__doc__
    return window


def _cosines(places: np.ndarray, a: Any) -> np.ndarray:
    """A sum of cosines."""
    angle = places * (2 * np.pi / _longest(len(places) - 1, 1))
    turned = [(-1) ** k * one * np.cos(k * angle) for k, one in enumerate(a)]
    return np.sum(turned, 0) if len(places) > 1 else np.ones(len(places))


def _bell(places: np.ndarray, std: float = 1.0) -> np.ndarray:
    """A bell of this deviation."""
    return np.exp(-((places - (len(places) - 1) / 2) / std) ** 2 / 2)


def _decay(places: np.ndarray, center: float | None = None, tau: float = 1.0) -> np.ndarray:
    """An exponential on both sides."""
    middle = (len(places) - 1) / 2 if center is None else center
    return np.exp(-np.abs(places - middle) / tau)


def _half_turn(places: np.ndarray) -> np.ndarray:
    """Half a turn of a sine."""
    return np.sin(np.pi * (places + 0.5) / _longest(len(places), 1))


def _windows() -> dict[str, Any]:
    """The windows by name."""
    def cosines(*terms: float) -> Any:
        return _window(lambda places: _cosines(places, terms))
    return {"general_cosine": _window(_cosines), "gaussian": _window(_bell),
            "exponential": _window(_decay), "cosine": _window(_half_turn),
            "general_hamming": _window(lambda places, alpha=0.54: _cosines(
                places, (alpha, 1 - alpha))),
            "bartlett": _window(lambda places: np.bartlett(len(places))),
            "kaiser": _window(lambda places, beta=12.0: np.kaiser(len(places), beta)),
            "hann": cosines(0.5, 0.5), "hamming": cosines(0.54, 0.46),
            "blackman": cosines(0.42, 0.5, 0.08),
            "nuttall": cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411)}


# Gradients

no_grad = inference_mode = GradientMode.off
enable_grad, set_grad_enabled = GradientMode.on, GradientMode.set
is_grad_enabled = GradientMode.is_on


def _grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
          create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
          is_grads_batched: bool = False, materialize_grads: bool = False) \
        -> tuple[Tensor | None, ...]:
    """The gradients of outputs, added up, with respect to inputs.

    That of an input of which nothing was computed is None with `allow_unused`, zeros with
    `materialize_grads`, and otherwise an error.
    """
    if is_grads_batched:  # r[impl errors.argument.refused]
        raise ArgumentError("autograd.grad", "is_grads_batched is True",
                            "use func.vmap of a function that calls autograd.grad")
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    weights = grad_outputs if isinstance(grad_outputs, (list, tuple)) \
        else (grad_outputs,) * len(outputs)
    total = functools.reduce(Tensor.add, [  # each where it lies: on a device, or on a mesh
        out if weight is None else (out * weight.detach()).sum()
        for out, weight in zip(outputs, weights, strict=True)])
    found: list[Any] = total.gradient(*given)
    if not materialize_grads:
        root = expression_of(total.uop)
        found = [one if depends(root, expression_of(unwatched(target.uop))) else None
                 for one, target in zip(found, given, strict=True)]
    unused = next((place for place, one in enumerate(found) if one is None), None)
    if unused is not None and not allow_unused:
        raise GraphError("autograd.grad", f"nothing was computed from input {unused}, counted "
                         "from 0", "allow_unused=True gives None for it, and "
                         "materialize_grads=True zeros")
    return tuple(found if create_graph else [
        None if one is None else one.detach() for one in found])


def _backward(tensors: Any, grad_tensors: Any = None, **_: Any) -> None:
    """Add the gradients of all tensors to what they were computed from."""
    given = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    along = grad_tensors if isinstance(grad_tensors, (list, tuple)) else (grad_tensors,)
    for each, weight in zip(given, along if len(along) == len(given) else along * len(given),
                            strict=True):
        each.backward(weight)


def _grad_and_value(function: Callable[..., Any], argnums: Any = 0,
                    has_aux: Any = False) -> Callable[..., Any]:
    """`impl.func.value_and_grad` with the gradient first."""
    both = func.value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        value, gradient = both(*given, **named)
        return gradient, value
    return call


@contextmanager
def _fork_rng(*_: Any, **__: Any) -> Iterator[None]:
    """A block after which random numbers go on as before it."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def _of_inputs(derivative: Callable[..., Any]) -> Callable[..., Any]:
    """A derivative as `torch.autograd.functional` has it: of one tensor, or of a tuple of them."""
    def derived(func: Callable[..., Any], inputs: Any, create_graph: bool = False,
                **_: Any) -> Any:
        alone = isinstance(inputs, Tensor)
        given = (inputs,) if alone else tuple(inputs)
        found = derivative(func, argnums=0 if alone else tuple(_range(len(given))))(*given)
        return found if create_graph else _detached(found)
    derived.__name__, derived.__doc__ = derivative.__name__, derivative.__doc__
    return derived


def _along(derivative: Callable[..., Any]) -> Callable[..., Any]:
    """The value of a function, and its derivative along `v`: of one tensor, or of a tuple."""
    def derived(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
                **_: Any) -> tuple[Any, Any]:
        alone = isinstance(inputs, Tensor)
        given = (inputs,) if alone else tuple(inputs)
        along = None if v is None else (v,) if isinstance(v, Tensor) else tuple(v)
        value, found = derivative(func, given, along)
        found = found[0] if alone and isinstance(found, tuple) else found
        return (value, found) if create_graph else (_detached(value), _detached(found))
    return derived


def _detached(found: Any) -> Any:
    return found.detach() if isinstance(found, Tensor) else tuple(map(_detached, found))


def _ones(tensors: Any) -> Any:
    return tensors.ones_like() if isinstance(tensors, Tensor) else tuple(map(_ones, tensors))


def _vjp(function: Callable[..., Any], given: tuple[Any, ...], along: Any) -> tuple[Any, Any]:
    value, pulled = func.vjp(function, *given)
    one = isinstance(value, Tensor)
    return value, pulled(_ones(value) if along is None else along[0] if one else along)


def _jvp(function: Callable[..., Any], given: tuple[Any, ...], along: Any) -> tuple[Any, Any]:
    return func.jvp(function, given, _ones(given) if along is None else along)


def _hvp(function: Callable[..., Any], given: tuple[Any, ...], along: Any) -> tuple[Any, Any]:
    slope = func.grad(function, argnums=tuple(_range(len(given))))
    return function(*given), func.jvp(slope, given, _ones(given) if along is None else along)[1]


class FunctionContext:
    """What `forward` of a `Function` leaves for its `backward`."""

    def __init__(self, count: int) -> None:
        self.saved_tensors: tuple[Any, ...] = ()
        self.needs_input_grad = (True,) * count

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep them as `saved_tensors`."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing: `backward` says which gradient there is."""

    mark_dirty = mark_non_differentiable


class Function:
    """An operation with a gradient of its own: static methods `forward(ctx, ...)`, or
    `forward(...)` and `setup_context(ctx, inputs, output)`, and `backward(ctx, *gradients)`, which
    is linear in the gradients.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None = None

    @classmethod
    def apply(cls, *given: Any) -> Any:
        """What `forward` returns, with the gradient of `backward`."""
        context = FunctionContext(len(given))

        def computed(*inputs: Any) -> tuple[Any, Callable[..., Any]]:
            if cls.setup_context is None:
                return cls.forward(context, *inputs), pulled
            result = cls.forward(*inputs)
            cls.setup_context(context, inputs, result)
            return result, pulled

        def pulled(*gradients: Any) -> Any:
            return cls.backward(context, *gradients)

        return func.custom_gradient(computed)(*given)


# Random numbers

class RandomSequence:
    """A sequence of random numbers of its own, for functions that are given `generator=`."""

    def __init__(self, device: Any = None) -> None:
        self.state, self.outer = get_rng_state(), list[Any]()

    def manual_seed(self, seed: int) -> RandomSequence:
        """Begin again."""
        with self:
            Tensor.manual_seed(seed)
        return self

    def get_state(self) -> Tensor:
        """What the next numbers depend on."""
        return self.state

    def set_state(self, new_state: Tensor) -> None:
        """Go on as from there."""
        self.state = new_state

    def initial_seed(self) -> int:
        """The seed."""
        with self:
            return initial_seed()

    def seed(self) -> int:
        """Begin anew, by chance; the seed."""
        with self:
            return seed()

    def __enter__(self) -> RandomSequence:
        self.outer.append(get_rng_state())
        set_rng_state(self.state)
        return self

    def __exit__(self, *_: Any) -> None:
        self.state = get_rng_state()
        set_rng_state(self.outer.pop())


Generator = RandomSequence


def view_as_real(input: Any) -> Tensor:
    """Complex numbers with a last axis of both parts."""
    return Tensor.stack(input.real, input.imag, dim=-1)


def complex(real: Tensor, imag: Tensor) -> Any:
    """Complex numbers of both parts, which stay as they are: see `impl.complex`."""
    return Complex(+real, +imag)


def view_as_complex(input: Tensor) -> Any:
    """Complex numbers of a last axis of both parts."""
    return Complex(input[..., 0], input[..., 1])


def polar(abs: Tensor, angle: Tensor) -> Any:
    """Complex numbers of absolute values and angles."""
    return complex(abs * angle.cos(), abs * angle.sin())


def stft(*given: Any, **named: Any) -> Any:
    """`impl.fft.stft`."""
    return fft.stft(*given, **named)


def istft(*given: Any, **named: Any) -> Any:
    """`impl.fft.istft`."""
    return fft.istft(*given, **named)


def set_default_dtype(d: Any) -> None:
    """Take this dtype for floats where none is said: sets `dtypes.default_float`."""
    dtypes.default_float = d


def get_default_dtype() -> DType:
    """The dtype of floats where none is said."""
    return dtypes.default_float


def promote_types(type1: Any, type2: Any) -> DType:
    """The dtype of a result of tensors of both: see r[dtypes.promote.least]."""
    both = [complex_dtype(one) or as_dtype(one) for one in (type1, type2)]
    if "c" in [one.kind for one in both]:
        wanted: DType = importlib.import_module("impl.array_api").result_type(*both)
        return wanted
    return promoted(*both)


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of a result of two tensors or numbers."""
    first = tensor1 if isinstance(tensor2, Tensor) else as_tensor(tensor1)
    wanted: DType = (first + tensor2).dtype
    return wanted


def can_cast(from_: Any, to: Any) -> Any:
    """Whether a cast keeps to kinds of numbers: no float to an integer, no number to a truth."""
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    first, second = (complex_dtype(one) or as_dtype(one) for one in (from_, to))
    return ranks[first.kind] <= ranks[second.kind]


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0) -> Tensor:
    """A copy of the elements that lie in a buffer of bytes."""
    return Tensor(np.frombuffer(buffer, as_dtype(dtype).numpy, count, offset))


def chain_matmul(*matrices: Tensor) -> Tensor:
    """A product of matrices: see `torch.linalg.multi_dot`."""
    product: Tensor = Tensor.linalg.multi_dot(list(matrices))
    return product


def compile(model: Any = None, **options: Any) -> Any:
    """`TinyJit` of a function, or of a model, whose attributes it has; options change nothing."""
    return compile if model is None else TinyJit(model)


def set_float32_matmul_precision(precision: str) -> None:
    """"highest": products of float32 as they are; "high" and "medium" let GPUs use TF32."""
    Context(ALLOW_TF32=_int(precision != "highest")).__enter__()


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` has set."""
    return "high" if settings.get("ALLOW_TF32") else "highest"


def set_printoptions(precision: int | None = None, threshold: int | None = None,
                     edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """How elements are printed: NumPy's options."""
    named = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems,
             "linewidth": linewidth, "suppress": None if sci_mode is None else not sci_mode}
    np.set_printoptions(**{name: value for name, value in named.items()  # type: ignore[arg-type]
                           if value is not None})


def initial_seed() -> int:
    """The seed of the random numbers."""
    return _int.from_bytes(get_rng_state().numpy().tobytes()[:8], "little")


def seed() -> int:
    """Seed the random numbers anew, by chance; the seed."""
    made = _int.from_bytes(os.urandom(4), "little")
    manual_seed(made)
    return made


def set_default_device(device: Any) -> None:
    """Tensors of which nothing else is said are on this device from now on."""
    wanted = globals()["device"]("CPU" if device is None else device)
    Context(DEVICE=Device.usable(wanted)).__enter__()


def get_default_device() -> device:
    """The device of a tensor of which nothing else is said."""
    return device(Device.DEFAULT)


def range(start: float = 0, end: float = 0, step: float = 1, **named: Any) -> Tensor:
    """Numbers from `start` to `end`, which is one of them."""
    count = math.floor((end - start) / step) + 1
    return Tensor.arange(count, **{"dtype": dtypes.default_float, **named}) * step + start


def typename(obj: Any) -> str:
    """The name of its class."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def is_storage(obj: Any) -> bool:
    """False: memory is no object here."""
    return False


def are_deterministic_algorithms_enabled() -> bool:
    """True: all are."""
    return True


def set_num_threads(count: int) -> None:
    """So many threads share the work of a kernel that this thread runs from now on."""
    Context(CPU_COUNT=count).__enter__()


def get_num_threads() -> int:
    """How many threads share the work of a kernel."""
    return Device["CPU"].limits.threads


def to_dlpack(tensor: Tensor) -> Any:
    """The capsule of a tensor, for the `from_dlpack` of another library."""
    return tensor.__dlpack__()


def is_inference_mode_enabled() -> Any:
    """Whether operations pass no gradients on."""
    return not is_grad_enabled()


def set_anomaly_enabled(mode: Any, check_nan: Any = True) -> None:
    """The first kernel that makes a NaN is named from now on, or not."""
    Context(CHECK_NAN=_int(mode)).__enter__()


def is_anomaly_enabled() -> Any:
    """Whether it is."""
    return _bool(settings.get("CHECK_NAN"))


def _detect_anomaly(check_nan: Any = True) -> Context:
    """A block in which the first kernel that makes a NaN is named."""
    return Context(CHECK_NAN=1)


def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """A product: all tensors are dense."""
    product: Tensor = input @ mat2
    return product


def _variable(data: Any, requires_grad: bool = False) -> Tensor:
    return as_tensor(data).detach().requires_grad_(requires_grad)


# Devices

def _usable(kind: str) -> Callable[[], bool]:
    def is_available() -> bool:
        """Whether such a device can be used here."""
        try:
            return _bool(Device.usable(kind))
        except DeviceError:
            return False
    return is_available


def _nothing(*_: Any, **__: Any) -> None:
    """What others have to do by hand."""


class _OfDevice(Part):
    """What `torch` offers for one kind of device."""

    def __getattr__(self, name: str) -> Any:
        if name == "amp" and self.__name__ == "torch.cuda":
            return importlib.import_module(_MODULES["amp"])
        return super().__getattr__(name)


def _allocated(device: Any = None) -> int:
    """Bytes of all devices that are in use."""
    return GlobalCounters.allocated


def _greatest(device: Any = None) -> int:
    """The most bytes that were in use at once since the counters were reset."""
    return GlobalCounters.peak


def _forget_peak(device: Any = None) -> None:
    """Let the peak be what is in use now."""
    GlobalCounters.peak = GlobalCounters.allocated


class Event:
    """A moment of the host's clock: every `record` waits for the kernels before it."""

    def __init__(self, enable_timing: Any = False, **_: Any) -> None:
        self.moment = 0.0

    def record(self, stream: Any = None) -> None:
        """Take down the time."""
        self.synchronize()
        self.moment = time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the kernels that were started."""
        Device[Device.DEFAULT].synchronize()

    def query(self) -> Any:
        """True: `record` has waited."""
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this moment to another one."""
        return (end_event.moment - self.moment) * 1e3


def _synchronize(device: Any = None) -> None:
    """Wait for the kernels that were started."""
    Device[Device.DEFAULT].synchronize()


_OF_DEVICES = {"autocast": _MEANT["autocast"], "get_device_properties": "Device[x.device].limits",
               "get_device_capability": "Device[x.device].limits",
               "set_device": "torch.set_default_device, or x.to(device)",
               "Stream": "nothing: kernels run in the order of their statements",
               "stream": "nothing: kernels run in the order of their statements",
               "current_stream": "torch.cuda.synchronize()", "CUDAGraph": "TinyJit(function)",
               "graph": "TinyJit(function)", "make_graphed_callables": "TinyJit(function)",
               "memory_stats": "impl.GlobalCounters", "memory_summary": "impl.GlobalCounters",
               "mem_get_info": "torch.cuda.memory_allocated()", "nvtx": "DEBUG=2"}
_COMMON = {
    "manual_seed": manual_seed, "seed": seed, "initial_seed": initial_seed, "Event": Event,
    "empty_cache": _nothing, "synchronize": _synchronize, "get_rng_state": get_rng_state,
    "set_rng_state": set_rng_state, "memory_allocated": _allocated, "memory_reserved": _allocated,
    "max_memory_allocated": _greatest, "max_memory_reserved": _greatest,
    "reset_peak_memory_stats": _forget_peak, "current_device": lambda: 0}
cuda = _OfDevice(
    "torch.cuda", _OF_DEVICES, is_available=_usable("CUDA"), **_COMMON,
    device_count=lambda: _int(_usable("CUDA")()), manual_seed_all=manual_seed, seed_all=seed,
    init=_nothing, is_initialized=_usable("CUDA"), is_bf16_supported=lambda: True,
    get_device_name=lambda device=None: str(Device.usable("CUDA")),
    OutOfMemoryError=DeviceError)
mps = _OfDevice(
    "torch.mps", _OF_DEVICES, is_available=_usable("METAL"), **_COMMON,
    current_allocated_memory=_allocated, driver_allocated_memory=_allocated)
OutOfMemoryError = AcceleratorError = DeviceError
memory_format = layout = type(None)
backends = SimpleNamespace(
    mps=SimpleNamespace(is_available=_usable("METAL"), is_built=_usable("METAL")),
    cudnn=SimpleNamespace(benchmark=False, deterministic=True, enabled=False,
                          is_available=lambda: False),
    cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)))
use_deterministic_algorithms = set_flush_denormal = set_warn_always = _nothing
default_generator = SimpleNamespace(manual_seed=manual_seed, get_state=get_rng_state,
                                    set_state=set_rng_state, initial_seed=initial_seed)
from_dlpack = Tensor.from_dlpack
channels_last_3d = None


#: What is said of names in the parts below.
_OF_PARTS = {
    "tensorboard": "the writer of torch.utils.tensorboard with loss.item()",
    "profiler": "DEBUG=2, or x.explain()",
    "cpp_extension": "Tensor.custom_kernel", "data_parallel": "shard(...) on the batch",
    **dict.fromkeys(("DataParallel", "DistributedDataParallel"),
                    "shard(...) on the parameters and the batch: one program for a mesh")}


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    return input.polygamma(n)


def _checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
                context_fn: Any = None, determinism_check: str = "default", debug: bool = False,
                early_stop: bool = True, preserve_rng_state: bool = True, **named: Any) -> Any:
    """function(*args, **named), which the gradient computes again. What PyTorch asks about how it
    does so says nothing here.
    """
    return func.checkpoint(function)(*args, **named)


def _checkpoint_sequential(functions: Any, segments: int, input: Any,
                           use_reentrant: bool | None = None,
                           preserve_rng_state: bool = True) -> Any:
    """Parts in a row, in so many segments, of which the gradient computes all but the last again.
    """
    parts = list(functions.children()) if isinstance(functions, nn.Sequential) else list(functions)
    size = _longest(len(parts) // segments, 1)
    last = size * (segments - 1)
    for start in _range(0, last, size):
        input = func.checkpoint(nn.Sequential(*parts[start:start + size]))(input)
    return nn.Sequential(*parts[last:])(input)


# Parts that are imported by a path: `from impl.torch.utils.data import DataLoader`.

def _part(name: str, **members: Any) -> ModuleType:
    """A module that has these members, under a path below this one."""
    made = ModuleType(f"{__name__}.{name}")
    vars(made).update(members, __path__=[],  # a package, so that Python looks for its modules
                      __getattr__=Part(f"torch.{name}", _OF_PARTS, **members).__getattr__)
    sys.modules[made.__name__] = made
    return made


def _publish_parts() -> dict[str, Any]:
    from impl.nn import data, distributions, functional, init, lr_scheduler, swa_utils, testing
    autograd = _part("autograd", grad=_grad, no_grad=no_grad, Variable=_variable,
                     enable_grad=enable_grad, set_grad_enabled=set_grad_enabled,
                     inference_mode=inference_mode, backward=_backward,
                     detect_anomaly=_detect_anomaly, set_detect_anomaly=set_anomaly_enabled,
                     Function=Function, gradcheck=testing.gradcheck, functional=_part(
                         "autograd.functional", jacobian=_of_inputs(func.jacrev),
                         hessian=_of_inputs(func.hessian), vjp=_along(_vjp), jvp=_along(_jvp),
                         hvp=_along(_hvp), vhp=_along(_hvp)))
    modules: Any = (("nn", nn), ("optim", nn.optim), ("nn.functional", functional),
                         ("nn.init", init), ("nn.utils", nn.utils), ("nn.grad", nn.grad),
                         ("nn.parallel", _part("nn.parallel")),
                         ("nn.utils.rnn", nn.utils.rnn), ("testing", testing),
                         ("nn.utils.parametrize", nn.utils.parametrize),
                         ("nn.utils.parametrizations", nn.utils.parametrizations),
                         ("linalg", Tensor.linalg), ("fft", fft), ("amp", nn.amp),
                         ("cuda.amp", nn.amp), ("cuda", cuda),
                         ("nn.parameter", nn.parameter), ("optim.lr_scheduler", lr_scheduler),
                         ("optim.swa_utils", swa_utils), ("utils.data", data),
                         ("distributions", distributions),
                         ("distributions.constraints", distributions.constraints))
    for name, module in modules:
        sys.modules[f"{__name__}.{name}"] = module
    functions = _part("func", **{name: getattr(func, name) for name in func.__all__},
                      grad_and_value=_grad_and_value,
                      functional_call=nn.state.functional_call,
                      stack_module_state=nn.state.stack_module_state)
    special = _part("special", polygamma=polygamma,
                    **{each: _function(method) for each, method in _SPECIAL.items()})
    windows = _windows()
    signal = _part("signal", windows=_part("signal.windows", **windows))
    checked = _part("utils.checkpoint", checkpoint=_checkpoint,
                    checkpoint_sequential=_checkpoint_sequential)
    random = _part("random", manual_seed=manual_seed, seed=seed, initial_seed=initial_seed,
                   get_rng_state=get_rng_state, set_rng_state=set_rng_state,
                   fork_rng=_fork_rng, default_generator=default_generator)
    return {"random": random, "utils": _part("utils", data=data, checkpoint=checked),
            "func": functions, "special": special, "signal": signal, "autograd": autograd,
            "linalg": Tensor.linalg, "distributions": distributions, "testing": testing}


globals().update(_publish_parts())
