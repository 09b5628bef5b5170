"""Other names than ours: of arguments, and of methods that a tensor does not have.

Chapter: spec/errors.md.
"""
from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from numbers import Integral, Number, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from impl.dtypes import as_dtype
from impl.errors import (
    ArgumentError,
    ComplexError,
    DeviceError,
    NameMissingError,
    TensorScheduleError,
    nearest,
    user_line,
)
from impl.host import np


def either(axis: Any, dim: Any) -> Any:
    """`dim` is PyTorch's name for `axis`."""
    return axis if dim is None else dim  # r[impl tensor.axis.name]


def written_for_torch(frame: Any) -> bool:
    """Whether the name `torch` stands for this project in the file of a caller, as after
    `import impl.torch as torch` or `import impl as torch`: it means PyTorch's results.

    A wrapper in another file gets what its own file says, whatever the file that calls it says.
    """
    named = frame.f_globals.get("torch")
    return named is not None and getattr(named, "__name__", "") in ("impl", "impl.torch")


#: What has no method of its own here, or one of quite another name.
_MEANT = {
    "gpu": 'x.to("CUDA"), or another device', "flat": "x.flatten()",
    "ptp": "x.aminmax(), the least and the greatest", "inv": "x.inverse",
    **dict.fromkeys(("from_numpy", "from_dlpack"), "Tensor(array)"),
    **dict.fromkeys(("tensor", "array", "as_tensor", "asarray"), "Tensor(values)"),
    "no_grad": "impl.torch.no_grad(), or x.detach()",
    "zero_grad": "x.grad = None, or the zero_grad() of an optimiser",
    "values": "x, which has no indices beside it: they are x.argmax(axis)",
    "indices": "x.argmax(axis), x.sort() or x.topk(k)",
    **dict.fromkeys(("as_strided_", "layout", "as_strided_scatter", "new_empty_strided",
                     "slice_inverse"), "x.contiguous(): a tensor has a shape, and no strides"),
    **dict.fromkeys(("storage", "untyped_storage", "data_ptr", "const_data_ptr", "is_set_to",
                     "storage_type", "hash_tensor", "hash", "keccak"), "x.data(), the bytes"),
    **dict.fromkeys(("as_subclass", "module_load"), "Tensor(values)"),
    **dict.fromkeys(("index", "name", "reinforce", "volatile", "grad_dtype", "is_distributed",
                     "to_padded_tensor"),
                    "x.shape, x.dtype or x.grad: a tensor has no more"),
    **dict.fromkeys(("const", "const_like"), "x.full_like"),
    "redistribute": "x.shard", "placements": "x.sharding", "device_mesh": "x.sharding.mesh",
    **dict.fromkeys(("make_array_from_process_local_data", "make_array_from_single_device_arrays",
                     "from_shards"), "Tensor.from_local(piece, mesh, data=0)"),
    "full_tensor": "x.numpy, which gathers", "to_local": "x.addressable_shards",
    **dict.fromkeys(("ufix", "usum", "uprod", "alu", "call", "callify", "linear_with_vars",
                     "schedule_linear", "invalids", "max_numel", "max_shape"),
                    "x.uop, the node of the graph"),
    **dict.fromkeys(("as_param", "is_param", "is_param_"), "x.requires_grad_"),
    **dict.fromkeys(("image_conv2d", "image_dot"), "x.conv2d or x.matmul: there are no images"),
    **dict.fromkeys(("decode_hevc_frame", "from_blob", "from_url"), "Tensor(array)"),
    **dict.fromkeys(("random_bits", "threefry"), "Tensor.randint"),
    "contiguous_backward": "x.contiguous", "rearrange": "x.reshape and x.permute",
    "newton_schulz": "x.svd",
    **dict.fromkeys(("retains_grad", "output_nr"), "loss.gradient(x): the gradient of any tensor"),
    **dict.fromkeys(("histogramdd", "map2_"), "NumPy on x.numpy()"),
    **dict.fromkeys(("fft", "rfft", "ifft"), "impl.fft"), "symeig": "x.eigh",
    **dict.fromkeys(("imag", "chalf", "complex", "polar",
                     "view_as_real", "view_as_complex"),
                    "x.cast(dtypes.complex64), which has them: the numbers of a Tensor are real"),
    "set_": "x.assign", "rint": "x.round()",
    **{name: f"x.{method}()" for name, method in (
        ("float16", "half"), ("float32", "float"), ("float64", "double"), ("int8", "char"),
        ("int16", "short"), ("int32", "int"), ("int64", "long"), ("uint8", "byte"))},
    **dict.fromkeys(("resize_as_sparse_", "sparse_resize_",
                     "sparse_resize_and_clear_", "to_sparse_csr", "to_sparse_coo", "smm",
                     "sspaddmm",
                     "sparse_mask", "sparse_dim", "dense_dim", "crow_indices",
                     "col_indices", "row_indices", "ccol_indices", "is_coalesced", "to_sparse_bsc",
                     "to_sparse_bsr", "to_sparse_csc"), "x: all tensors are dense"),
    **dict.fromkeys(("dequantize", "int_repr", "q_per_channel_axis", "q_per_channel_scales",
                     "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme"),
                    "x: there are no quantised dtypes"),
    **dict.fromkeys(("ipu", "mtia", "xpu", "to_mkldnn"), "x.to(device)"),
    "record_stream": "x: memory is the runtime's business",
    **dict.fromkeys(("to_sparse", "coalesce"), "x: all tensors are dense"),
    **dict.fromkeys(("resize", "resize_as"), "x.reshape(*shape), or x.pad_to(*shape)"),
    "jit": "TinyJit(function)", "save": "nn.state.safe_save({name: x}, path)",
    "load": "nn.state.safe_load(path)"}


def missing(tensors: type, name: str) -> NoReturn:
    """Raise the error for a name that tensors do not have, with the one that was meant."""
    if name.startswith("_"):  # what Python itself looks for, often without need
        raise AttributeError(f"{tensors.__name__} has no {name}")
    raise NameMissingError("Tensor", f"there is no {name}", remedy_of(tensors, name))


def remedy_of(tensors: type, name: str) -> str:
    """The expression to write in the place of a missing name, or the name most like it."""
    known = [each for each in dir(tensors) if not each.startswith("_")]
    if name in _MEANT:
        return f"use {_MEANT[name]}"
    if name.endswith("_") and name[:-1] in known:
        return f"use x.assign(x.{name[:-1]}(...))"
    near = nearest(name, known)
    return f"did you mean {near}?" if near else \
        "look for it among the methods in the API reference, or in dir(Tensor)"


#: Names that NumPy, PyTorch and we give to the same argument.
_SAME = (("axis", "dim", "axes", "dims"), ("keepdim", "keepdims"),
         ("correction", "ddof", "unbiased"), ("min", "a_min"), ("max", "a_max"),
         ("padding", "pad", "pad_width"), ("shape", "size"), ("order", "dims", "axes"),
         ("other", "exponent", "mat2", "vec2", "tensor2"), ("formula", "equation", "subscripts"),
         ("index", "indices"), ("dim", "dimension"), ("steps", "num"), ("rows", "n", "N"),
         ("columns", "m", "M"), ("count", "n"), ("value", "constant_values"),
         ("split_size", "split_size_or_sections", "indices_or_sections"), ("shifts", "shift"),
         ("mean", "loc"), ("std", "scale"), ("low", "a"), ("high", "b"), ("repeats", "size"),
         ("wanted", "requires_grad"), ("p", "ord"), ("k", "n"), ("diagonal", "k"), ("stop", "end"),
         ("device_or_dtype", "device", "dtype"))


#: Arguments of others about how memory lies, how something is computed, or what of it is kept.
_NEEDLESS = ("retain_graph", "create_graph", "memory_format", "layout", "non_blocking",
             "pin_memory", "stable", "out_int32",
             "sparse_grad", "driver", "compute_mode", "check_errors", "sparse", "subok", "like")
#: Methods that call what the user has given them.
_OF_OTHERS = ("sequential",)
#: What an error names that comes from an operator, or a part which several methods have in common.
_SHARED = ("add", "sub", "mul", "div", "idiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge",
           "and", "or", "xor", "lshift", "rshift", "invert", "operand", "index", "setitem",
           "conv", "pool", "triangle")


class _Keywords:
    """The names of a method's parameters, and those that others give to them.

    They are looked up when they are first asked for: there are hundreds of methods.
    """

    def __init__(self, method: Callable[..., Any], name: str, bound: bool) -> None:
        self.method, self.name, self.bound = name, f"Tensor.{name}", bound
        self.called = method

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """What the method takes."""
        return inspect.signature(self.called)

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """The place of each parameter."""
        return {name: place for place, name in enumerate(self.signature.parameters)}

    @functools.cached_property
    def many(self) -> str:
        """The parameter that takes any number of arguments, or nothing."""
        return next((each.name for each in self.signature.parameters.values()
                     if each.kind is each.VAR_POSITIONAL), "")

    @functools.cached_property
    def own(self) -> list[str]:
        """The parameters that have a name."""
        kinds = list(self.signature.parameters.values())[self.bound:]
        return [each.name for each in kinds
                if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]

    @functools.cached_property
    def any(self) -> bool:
        """Whether it takes names of the user's."""
        return any(each.kind is each.VAR_KEYWORD for each in self.signature.parameters.values())

    @functools.cached_property
    def plain(self) -> frozenset[str]:
        """The names that need no second look."""
        return frozenset(self.own) - {"dim"}

    def understood(self, positional: tuple[Any, ...], given: dict[str, Any]) \
            -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments under our names.

        Raises:
            ArgumentError: a name is not known, or two that mean the same have different values.
        """
        known: dict[str, Any] = {}
        for name, value in given.items():
            if name not in self.own and self._needless(name, value):
                continue
            own = name if self.any or name in self.own else self._meant(name)
            if own == self.many:
                positional = (*positional, value)
                continue
            value = self._correction(value) if name == "unbiased" else value
            self._refuse_second(name, own, value, {**known, **self._by_place(positional)})
            known[own] = value
        return positional, known

    def _needless(self, name: str, value: Any) -> bool:
        """Whether it is an argument of others that says nothing here, or is said to be none.

        Raises:
            ArgumentError: it is where others put the result.
        """
        if name in ("out", "where", "inplace") and name not in self.places and not self.any:
            if value is None or value is False or name == "where" and value is True:
                return True
            raise ArgumentError(  # r[impl errors.name.keyword+2]
                self.name, f"{name} is {value!r:.60}: a method returns its result",
                "use y.assign(...) for what is given as out, x.assign(...) for inplace, and "
                ".where(...)")
        return name in _NEEDLESS and name not in self.places and not self.any

    def _meant(self, name: str) -> str:
        """Our name for what others call so."""
        # r[impl errors.name.keyword+2]
        same = [own for group in _SAME if name in group for own in group if own in self.places]
        if same:
            return same[0]
        near = nearest(name, self.own)
        raise ArgumentError(self.name, f"there is no argument {name}", f"did you mean {near}?"
                            if near else f"it takes {', '.join(self.own) or 'no keywords'}")

    def _correction(self, unbiased: Any) -> int:
        if not isinstance(unbiased, Integral):  # r[impl errors.argument.refused]
            raise ArgumentError(self.name, f"unbiased is {unbiased!r:.60}", "give True or False")
        return int(unbiased)

    def _by_place(self, positional: tuple[Any, ...]) -> dict[str, Any]:
        return {} if self.many else dict(zip(self.places, positional, strict=False))

    def _refuse_second(self, name: str, own: str, value: Any, before: dict[str, Any]) -> None:
        """`dim` is PyTorch's name for `axis`, which a method may have as a name of its own."""
        # r[impl errors.argument.refused]
        for other in ({own, "axis", "dim"} if own in ("axis", "dim") else {own}) - {name}:
            if before.get(other) is not None and value is not None \
                    and not _same(before[other], value):
                raise ArgumentError(self.name, f"{other} is {before[other]!r}, and {name}, which "
                                    f"means the same, is {value!r}", "give one of them")

    def claim(self, error: TensorScheduleError) -> None:
        """Let the error of a method or an operator that this one has used name this one."""
        failed = error.operation.removeprefix("Tensor.")
        if failed not in (self.method, error.method, *_SHARED) or self.method in _OF_OTHERS \
                or error.line != user_line():
            return
        if failed != self.method:  # r[impl errors.message.whole]
            error.rename(error.operation.removesuffix(failed) + self.method)
        error.method = self.method

    def refuse(self, tensors: type, positional: tuple[Any, ...], given: dict[str, Any]) -> None:
        """Raise if an argument is nothing of what its annotation says; asked once a call failed.

        Raises:
            ArgumentError: one is not, or there are too many of them, or too few.
        """
        try:
            values = self.signature.bind(*positional, **given).arguments
        except TypeError as wrong:  # r[impl errors.argument.refused]
            raise ArgumentError(self.name, str(wrong),
                                f"it takes {', '.join(self.own) or 'no arguments'}") from None
        first = positional[0] if positional else None
        if next(iter(self.places), "") == "self" and not isinstance(first, tensors):
            # r[impl errors.argument.refused]
            raise ArgumentError(self.name, f"{first!r:.60} is no tensor", "use Tensor(...)")
        kinds = {**_KINDS, "Self": tensors}
        each_alone = [(name, one) for name, value in values.items()
                      for one in (value if name == self.many else (value,))]
        for name, value in each_alone:
            words = str(self.signature.parameters[name].annotation).split(" | ")
            if all(word in kinds for word in words) \
                    and not any(isinstance(value, kinds[word]) for word in words):
                meant = " or ".join(_CALLED[word] for word in words)
                # r[impl errors.argument.refused]
                raise ArgumentError(self.name, f"{name} is {value!r:.60}", f"give {meant}")


    def explain(self, error: Exception, positional: tuple[Any, ...], given: dict[str, Any]) -> None:
        """Raise an error of our own for one of Python or NumPy about what this method was given.

        One of a function of the user's, or of what computes values, is left as it is.

        Raises:
            ArgumentError: the error comes from the floors of this class.
        """
        step = error.__traceback__
        while step is not None:
            if not _is_of_floors(step.tb_frame.f_code.co_filename):
                return
            step = step.tb_next
        first = next(iter(self.places), "") in ("self", "cls")
        named = [f"{one!r:.40}" for one in positional[first:]]
        shown = ", ".join([*named, *(f"{name}={one!r:.40}" for name, one in given.items())])
        # r[impl errors.argument.raw]
        raise ArgumentError(self.name, f"({shown}) cannot be worked with: {error}",
                            f"give what is meant by ({', '.join(self._words()[first:])})") \
            from error

    def _words(self) -> list[str]:
        """The parameters, as a user writes them."""
        return [str(each).replace("'", "").replace("Self", "Tensor").replace(": Any", "")
                for each in self.signature.parameters.values()]


_HERE = str(Path(__file__).parent.parent)
#: Where an error has to come from that is about arguments.
_FLOORS = tuple(f"{_HERE}{os.sep}{name}" for name in (
    "tensor", "gradient", "symbolic", "multi", "ir.py", "dtypes.py", "places.py"))


def _is_of_floors(filename: str) -> bool:
    """Whether a file belongs to what stands below a tensor's methods, or to NumPy."""
    return filename.startswith(_FLOORS) or "numpy" in sys.modules and filename.startswith(
        os.path.dirname(np.__file__))


def _same(one: Any, two: Any) -> bool:
    """Whether two arguments are one value; of a tensor or an array, whether they are one object.

    To compare elements would compute them, and tell no truth.
    """
    return one is two or isinstance(one, _COMPARED) and isinstance(two, _COMPARED) and one == two


_COMPARED = (Number, str, tuple, list)
#: What an argument has to be whose annotation is such a word, and how that is called.
_KINDS: dict[str, Any] = {"int": Integral, "float": Real, "Scalar": Real, "str": str,
                          "bool": object, "None": type(None)}
_CALLED = {"int": "a whole number", "float": "a number", "Scalar": "a number", "str": "a text",
           "bool": "True or False", "None": "None", "Self": "a tensor"}


def with_keywords(method: Callable[..., Any], name: str, tensors: list[type],
                  bound: bool = True) -> Callable[..., Any]:
    """The method, which takes the names of others for its arguments, too.

    `tensors` gets the class of all tensors. `bound`: the first parameter is a tensor or the class.
    """
    known = getattr(method, "understands", None)  # this is a second name of a method
    method = method if known is None else known.called
    keywords = _Keywords(method, name, bound)
    if known is None:
        method.__qualname__ = keywords.name  # which Python's own errors show

    def call(*positional: Any, **given: Any) -> Any:
        try:
            if not given:
                result = method(*positional)
            else:
                if not given.keys() <= keywords.plain:
                    positional, given = keywords.understood(positional, given)
                result = method(*positional, **given)
        except (TypeError, AttributeError, ValueError, IndexError, ArithmeticError,
                DeviceError) as error:
            # r[impl dtypes.complex.pairs]
            result = cast(Any, tensors[0]).runtime.instead_complex(name, method, positional, given)
            if result is not NotImplemented:
                return result
            if isinstance(error, TensorScheduleError):
                keywords.claim(error)
            else:
                keywords.refuse(tensors[0], positional, given)
                keywords.explain(error, positional, given)
            raise
        if result is NotImplemented:
            result = cast(Any, tensors[0]).runtime.instead_complex(name, method, positional, given)
        if result is NotImplemented:  # which only an operator may answer
            raise ArgumentError(keywords.name, f"{positional[-1]!r:.60} is no operand",
                                "give a tensor, an array or a number")
        return result

    call.__code__ = call.__code__.replace(co_name=name)  # what a node's origin shows
    made: Any = functools.wraps(method)(call)
    made.understands = keywords
    return made


def made(kind: type, public: str = "") -> None:
    """Let a class that was written in `impl.nn` say which arguments it takes to be made.

    `public` is the name that users know it by, if it is not that of its module.
    """
    initialize = vars(kind).get("__init__")
    if initialize is None or not kind.__module__.startswith("impl."):
        return
    signature = inspect.signature(initialize)
    own = ", ".join(list(signature.parameters)[1:])
    name = public or f"{kind.__module__.removeprefix('impl.')}.{kind.__name__}"

    @functools.wraps(initialize)
    def checked(self: Any, *positional: Any, **given: Any) -> None:
        placed: dict[str, Any] = {}
        try:
            signature.bind(self, *positional, **given)
        except TypeError:
            placed, given = _placed(signature, given)
            try:
                signature.bind(self, *positional, **given)
            except TypeError as wrong:
                raise _not_taken(name, wrong, own) from None
        initialize(self, *positional, **given)
        if any(value is not None for value in placed.values()):
            dtype = placed.get("dtype")
            # r[impl errors.name.keyword+2]
            self.to(placed.get("device"), None if dtype is None else as_dtype(dtype))

    plain: Any = checked
    plain.__code__ = plain.__code__.replace(co_name=kind.__name__)  # what origins show
    kind.__init__ = plain  # type: ignore[misc]


def _not_taken(name: str, wrong: TypeError, own: str) -> ArgumentError:
    """The error of a layer that is given what it does not take."""
    # r[impl errors.argument.refused]
    return ArgumentError(name, str(wrong), f"it takes {own}")


def _placed(signature: inspect.Signature,
            given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What PyTorch's layers also take: where their tensors are, and how old ones say `reduction`.

    The first dict has the device and the dtype, the second one what the layer knows.
    """
    known = signature.parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return {}, given
    rest = {name: value for name, value in given.items()
            if name in known or name not in ("device", "dtype", *_OLD_REDUCTION)}
    if "reduction" in known:
        mean, apart = (given.get(name) for name in _OLD_REDUCTION)
        if mean is not None or apart is not None:
            rest["reduction"] = "none" if apart is False else "sum" if mean is False else "mean"
    elif any(name in given for name in _OLD_REDUCTION):
        return {}, given
    return {name: given[name] for name in ("device", "dtype")
            if name in given and name not in known}, rest


#: How PyTorch's losses said `reduction` in the past: whether to average, and whether to reduce.
_OLD_REDUCTION = ("size_average", "reduce")


def _named(member: Any, name: str, tensors: list[type]) -> Any:
    """A member of a class; a method of any kind with the keywords of others."""
    if isinstance(member, (classmethod, staticmethod)):
        bound = isinstance(member, classmethod)
        return type(member)(with_keywords(member.__func__, name, tensors, bound))
    return with_keywords(member, name, tensors) if inspect.isfunction(member) else member


class Named(type):
    """The type of tensor classes, which says what was meant: `Tensor.zeross(2)`."""

    tensors: ClassVar[list[type]] = []  # the class of which all tensors are, once it is made
    changes = 0  # how often a method of these classes was replaced, or a new one put in

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Named:
        """The class, whose public methods know what others call their arguments."""
        if members["__module__"].startswith("impl."):
            for key, value in members.items():
                if not key.startswith("_"):
                    members[key] = _named(value, key, cls.tensors)
        made = super().__new__(cls, name, bases, members)
        if not cls.tensors:
            cls.tensors.append(made)
        return made

    if not TYPE_CHECKING:
        def __call__(cls, *given: Any, **named: Any) -> Any:
            """A tensor; complex numbers, if the data or the dtype are."""
            if len(given) > 1 and type(given[1]) is int and written_for_torch(sys._getframe(1)):
                return cls.empty(*given, **named)  # torch.Tensor(2, 3)
            try:
                return super().__call__(*given, **named)
            except ComplexError:  # r[impl dtypes.complex.pairs]
                return cls.runtime.complex_of(cls, *given, **named)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name != "training":
            Named.changes += 1
        super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        Named.changes += 1
        super().__delattr__(name)

    if not TYPE_CHECKING:
        def __getattr__(cls, name: str) -> NoReturn:
            missing(cls, name)
