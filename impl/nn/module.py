"""What all layers share: a plain object whose attributes are searched for tensors and layers.

A class of one's own needs no base: `nn.state` searches any object, its lists and its dicts. Whoever
writes `class Net(nn.Module)` has PyTorch's methods, too, and writes `forward`.
"""
from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self

from impl.dtypes import DType
from impl.errors import ArgumentError, NameMissingError, ShapeError, nearest
from impl.gradient.hooks import RemovableHook
from impl.host import np
from impl.nn.state import UnmatchedKeys, contents, get_state_dict, load_state_dict
from impl.tensor import Tensor
from impl.tensor.names import made
from impl.tensor.parameters import is_buffer, note_buffer

if TYPE_CHECKING:
    from impl.nn.backward import BackwardHooks

__all__ = ["Buffer", "Module", "Parameter"]

#: What else PyTorch's modules have, and what to write here.
_ELSEWHERE = {"share_memory": "nothing: processes are those of MPI",
              "register_backward_hook": "register_full_backward_hook",
              **dict.fromkeys(("ipu", "mtia", "xpu"), "to(device)"),
              **dict.fromkeys(("get_extra_state", "set_extra_state"), "register_buffer"),
              **dict.fromkeys(("register_state_dict_pre_hook", "register_state_dict_post_hook"),
                              "the dict that state_dict() returns"),
              **dict.fromkeys(("register_load_state_dict_pre_hook",
                               "register_load_state_dict_post_hook"),
                              "the dict that is given to load_state_dict"),
              **dict.fromkeys(("T_destination", "call_super_init", "dump_patches"),
                              "nothing in its place: it is about PyTorch itself")}


class _AskedForParameters(type(Tensor)):  # type: ignore[misc]
    """The class of a class whose instances are told by what they are for."""

    def __instancecheck__(cls, value: object) -> bool:
        return value.__class__ is cls or \
            cls is Parameter and isinstance(value, Tensor) and bool(value._parameter)


class Parameter(Tensor, metaclass=_AskedForParameters):
    """A tensor that requires a gradient, unless it is said not to. It is a `Tensor`. For
    `isinstance` each tensor that was told to require a gradient is one; a frozen one is none, other
    than in PyTorch.
    """

    def __new__(cls, data: Any, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
        """Of data, or of a tensor."""
        tensor = Tensor(data) if not isinstance(data, Tensor) else data.detach()
        return tensor.requires_grad_(requires_grad)


#: How many tensors were made as buffers: a captured function that lists tensors reads it.
_buffers_made = 0


def Buffer(data: Any) -> Tensor:  # noqa: N802
    """A tensor that is saved, but not learned; `register_buffer` has one that is not saved."""
    global _buffers_made
    tensor = Parameter(data, requires_grad=False)
    note_buffer(tensor)
    _buffers_made += 1
    return tensor


class Hook(RemovableHook):
    """A function that is called beside a layer, until `remove()`."""

    __slots__ = ("named", "always")

    def __init__(self, kept: list[Any], function: Callable[..., Any], named: bool,
                 always: bool) -> None:
        self.kept, self.function, self.named, self.always = kept, function, named, always

    def given(self, layer: Module, given: tuple[Any, ...],
              named: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments after the function was called with them."""
        found = self.function(layer, given, named) if self.named else self.function(layer, given)
        if found is not None and self.named:
            given, named = found
        elif found is not None:
            given = found if isinstance(found, tuple) else (found,)
        return given, named

    def output(self, layer: Module, given: tuple[Any, ...], named: dict[str, Any],
               output: Any) -> Any:
        """The output after the function was called with it."""
        found = self.function(layer, given, named, output) if self.named else \
            self.function(layer, given, output)
        return output if found is None else found


class Hooks:
    """The functions that are called before and after one layer."""

    __slots__ = ("before", "after")

    def __init__(self, before: list[Hook], after: list[Hook]) -> None:
        self.before, self.after = before, after

    def called(self, layer: Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the layer gives, with all functions called."""
        for hook in list(self.before):
            given, named = hook.given(layer, given, named)
        output = layer.forward(*given, **named)
        for hook in list(self.after):
            output = hook.output(layer, given, named, output)
        return output


class HooksOfFailures(Hooks):
    """Functions some of which are called after a call that fails, too.

    A class of its own, because a capture follows all that the text of `called` names, and not a
    warning.
    """

    __slots__ = ()

    def called(self, layer: Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the layer gives, with all functions called.

        Where an error is raised, those that are always called and were not are called before it
        goes on, with what is known by then: of the output `None`, or what an earlier one returned.
        """
        output, waiting = None, [hook for hook in self.after if hook.always]
        try:
            for hook in list(self.before):
                given, named = hook.given(layer, given, named)
            output = layer.forward(*given, **named)
            for hook in list(self.after):
                waiting = [one for one in waiting if one is not hook]
                output = hook.output(layer, given, named, output)
        except Exception:
            for hook in waiting:
                try:
                    output = hook.output(layer, given, named, output)
                except Exception as error:  # the first error is the one to be seen
                    warnings.warn(f"nn.{type(layer).__name__}: while an error was raised, a "
                                  f"forward hook raised {error!r}", stacklevel=3)
            raise
        return output


class Module:
    """The base of all layers of `nn`, with the methods that PyTorch's modules have.

    A layer that nobody told `train()` or `eval()` follows `Tensor.train()`: it is for use, and
    learns in a block `with Tensor.train():` only.
    """

    _made = ""
    #: Functions that are called before and after `forward`.
    _hooks: Hooks | None = None
    _backward: BackwardHooks | None = None
    #: What `train()` and `eval()` said.
    _mode: bool | None = None
    #: Names of the tensors that are not learned, and of those that are not even saved.
    _buffers: frozenset[str] = frozenset()
    _unsaved: frozenset[str] = frozenset()
    #: How tensors are computed that a layer does not hold, by their names.
    _formulas: Mapping[str, Callable[[Any], Tensor]] = {}
    forward: Callable[..., Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        made(cls, f"nn.{cls.__name__}")

    def __new__(cls, *given: Any, **named: Any) -> Self:
        layer = object.__new__(cls)
        named = {name: value for name, value in named.items() if name not in ("device", "dtype")}
        with suppress(TypeError):  # a copy is made of nothing
            made = inspect.signature(cls.__init__).bind(layer, *given, **named)
            made.apply_defaults()
            layer._made = ", ".join(f"{name}={_shown(value)}"
                                    for name, value in list(made.arguments.items())[1:])
        return layer

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What `forward` returns."""
        if self._hooks is None:
            return self.forward(*given, **named)
        return self._hooks.called(self, given, named)

    # What is called beside it

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                              with_kwargs: bool = False, always_call: bool = False) -> Hook:
        """Call hook(layer, arguments, output) after each call; what it returns is the output.

        `with_kwargs`: hook(layer, arguments, keywords, output). `always_call`: also where the call
        raises an error, with an output of `None`. The handle has `remove()`.
        """
        return self._hooked("after", hook, prepend, with_kwargs, always_call)

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> Hook:
        """Call hook(layer, arguments) before each call; what it returns are the arguments."""
        return self._hooked("before", hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Callable[..., Any],
                                    prepend: bool = False) -> RemovableHook:
        """Call hook(layer, gradients of the input, gradients of the output) where gradients pass;
        what it returns is used as those of the input. The handle has `remove()`.
        """
        known = self._gradient_hooks()
        return known.register(known.after, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any],
                                        prepend: bool = False) -> RemovableHook:
        """Call hook(layer, gradients of the output), which may return others."""
        known = self._gradient_hooks()
        return known.register(known.before, hook, prepend)

    def _gradient_hooks(self) -> BackwardHooks:
        """Those of this layer."""
        if self._backward is None:
            from impl.nn.backward import BackwardHooks
            self._backward = BackwardHooks(self)
        return self._backward

    def _hooked(self, when: str, hook: Callable[..., Any], prepend: bool, named: bool,
                always: bool = False) -> Hook:
        if self._hooks is None:
            self._hooks = Hooks([], [])
        if always:
            self._hooks = HooksOfFailures(self._hooks.before, self._hooks.after)
        kept = getattr(self._hooks, when)
        made = Hook(kept, hook, named, always)
        kept.insert(0 if prepend else len(kept), made)
        return made

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a layer in the place of the one at a path such as "body.0".

        `strict`: there has to be one.
        """
        path, _, name = target.rpartition(".")
        known = dict(self.named_modules())
        if strict and target not in known or path not in known:  # r[impl errors.argument.refused]
            raise ArgumentError(f"nn.{type(self).__name__}.set_submodule",
                                f"there is no {target if strict else path}",
                                f"use a path below one of {', '.join(map(repr, known))}")
        setattr(known[path], name, module)

    def to_empty(self, *, device: Any = None, recurse: bool = True) -> Module:
        """The layer on a device; its values stay, which PyTorch leaves open."""
        return self if device is None else self.to(device)

    def __repr__(self) -> str:
        """`Linear(in_features=3, out_features=4, bias=True)`; layers inside on lines below it."""
        inner = [f"({name}): {layer!r}".replace("\n", "\n  ")
                 for name, layer in self.named_children()]
        body = "\n  " + "\n  ".join(inner) + "\n" if inner else self.extra_repr()
        return f"{type(self).__name__}({body})"

    # What is inside

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This layer and all inside it, each once, by name."""
        return ((name, one) for name, one in contents(self, prefix) if isinstance(one, Module))

    def modules(self) -> Iterator[Module]:
        """This layer and all inside it, each once."""
        return (layer for _, layer in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The layers that are attributes of this one, by name."""
        return ((name, one) for name, one in vars(self).items() if isinstance(one, Module))

    def children(self) -> Iterator[Module]:
        """The layers that are attributes of this one."""
        return (layer for _, layer in self.named_children())

    def get_submodule(self, target: str) -> Module:
        """The layer of a name such as "layers.0"."""
        return dict(self.named_modules())[target]

    def named_parameters(self, prefix: str = "",
                         recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are learned, each once, by name: all floats but the buffers."""
        found: dict[int, tuple[str, Tensor]] = {}
        for name, one in self._tensors(prefix, recurse, False):
            found.setdefault(id(one), (name, one))  # what is tied has its first name, as there
        return iter(found.values())

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The tensors that are learned, each once."""
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "",
                      recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are not learned, by name."""
        return self._tensors(prefix, recurse, True)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The tensors that are not learned."""
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def _tensors(self, prefix: str, recurse: bool,
                 buffers: bool) -> Iterator[tuple[str, Tensor]]:
        """All tensors that are buffers, or all that are not."""
        kept = {id(vars(layer)[name]) for layer in self.modules()
                for name in layer._buffers if name in vars(layer)}  # one may be deleted
        for name, one in contents(self, prefix) if recurse else vars(self).items():
            if isinstance(one, Tensor) and buffers == (
                    id(one) in kept or bool(_buffers_made) and is_buffer(one)
                    or not one.is_floating_point()):
                yield name, one

    # Saving

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """All tensors that are saved, by name."""
        return get_state_dict(self, prefix)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> UnmatchedKeys:
        """Assign saved tensors by name, as `nn.state.load_state_dict` does: with its result and
        its errors.
        """
        return load_state_dict(self, state_dict, strict)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """An attribute that is not learned; not saved either unless it is `persistent`."""
        if tensor is not None:
            self._buffers |= {name}
            self._unsaved = self._unsaved - {name} if persistent else self._unsaved | {name}
        setattr(self, name, tensor)

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """An attribute that is learned."""
        setattr(self, name, param)

    def add_module(self, name: str, module: Any) -> None:
        """An attribute that is a layer."""
        setattr(self, name, module)

    register_module = add_module

    def get_parameter(self, target: str) -> Tensor:
        """The tensor of a name such as "layers.0.weight"."""
        return dict(self.named_parameters())[target]

    def get_buffer(self, target: str) -> Tensor:
        """The tensor that is not learned of a name such as "layers.0.running_mean"."""
        return dict(self.named_buffers())[target]

    def extra_repr(self) -> str:
        """What stands in the parentheses of a layer without others in it."""
        return self._made

    # Changing all that is inside

    @property
    def training(self) -> bool:
        """Whether this layer learns: what `train()` or `eval()` said, or `Tensor.training`."""
        return Tensor.training if self._mode is None else self._mode

    @training.setter
    def training(self, mode: bool) -> None:
        self._mode = mode

    def train(self, mode: bool = True) -> Self:
        """Let this layer and all inside learn: dropout drops, batch norm follows its batches."""
        for layer in self.modules():
            layer._mode = mode
        return self

    def eval(self) -> Self:
        """Let this layer and all inside be used only."""
        return self.train(False)

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with each layer inside, and then with this one."""
        for layer in reversed(list(self.modules())):
            fn(layer)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let all parameters be learned, or none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self, device_or_dtype: Any = None, dtype: DType | None = None, *,
           device: Any = None, non_blocking: bool = False) -> Self:
        """All tensors on another device; or all floats in another dtype, as tensors of their own.
        """
        device_or_dtype = device if device_or_dtype is None else device_or_dtype
        if dtype is not None:
            return (self if device_or_dtype is None else self.to(device_or_dtype)).to(dtype)
        dtype = device_or_dtype if isinstance(device_or_dtype, DType) else None
        if dtype is None:
            for tensor in self.state_dict().values():
                tensor.replace(tensor.to(device_or_dtype))
            return self
        converted: dict[int, Tensor] = {}
        for layer in list(self.modules()):
            for name, one in list(vars(layer).items()):
                if isinstance(one, Tensor) and one.is_floating_point():
                    other = converted.setdefault(
                        id(one), one.detach().cast(dtype).requires_grad_(one.requires_grad))
                    setattr(layer, name, other)
        return self

    def cuda(self, device: int | None = None) -> Self:
        """All tensors on a GPU of NVIDIA."""
        return self.to(f"CUDA:{device}" if device else "CUDA")

    def cpu(self) -> Self:
        """All tensors on the CPU."""
        return self.to("CPU")

    def float(self) -> Self:
        """All floats in float32."""
        return self._as("float32")

    def type(self, dst_type: Any) -> Self:
        """All floats in another dtype."""
        from impl.dtypes import as_dtype
        return self.to(as_dtype(dst_type))

    def compile(self, *given: Any, **named: Any) -> Self:
        """This layer, which runs as it is: `TinyJit(layer)` is one that is captured."""
        return self

    def double(self) -> Self:
        """All floats in float64."""
        return self._as("float64")

    def half(self) -> Self:
        """All floats in float16."""
        return self._as("float16")

    def bfloat16(self) -> Self:
        """All floats in bfloat16."""
        return self._as("bfloat16")

    def _as(self, name: str) -> Self:
        from impl.dtypes import dtypes
        return self.to(getattr(dtypes, name))

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> NoReturn:
            kind = f"nn.{type(self).__name__}"
            if name.startswith("_"):  # what Python itself looks for, often without need
                raise AttributeError(f"{kind} has no {name}")
            own = [each for each in vars(self) if not each.startswith("_")]
            near = nearest(name, own)
            remedy = f"use {_ELSEWHERE[name]}" if name in _ELSEWHERE else \
                f"did you mean {near}?" if near else "it has " + ", ".join(own)
            if name == "forward":
                remedy = f"write `def forward(self, x): ...` in {type(self).__name__}"
            # r[impl errors.name.missing]
            raise NameMissingError(kind, f"there is no {name}", remedy)


def _shown(value: Any) -> str:
    """A number, a text or several of them; of all else its kind."""
    several = value if isinstance(value, (tuple, list)) else (value,)
    plain = all(isinstance(one, (int, float, str, type(None))) for one in several)
    return repr(value) if plain else type(value).__name__


def refuse_values(layer: Module, given: Any) -> None:
    """Refuse numbers and arrays where a layer works on a tensor.

    Raises:
        ArgumentError: it is one of them.
    """
    if isinstance(given, (list, tuple, int, float, np.ndarray)):
        raise ArgumentError(  # r[impl errors.argument.refused]
            f"nn.{type(layer).__name__}", f"the input is a {type(given).__name__}, and no tensor",
            "make it one: Tensor(values)")


def sizes(layer: Module, groups: int = 1, **given: Any) -> None:
    """Refuse what cannot be the sizes of a layer.

    Raises:
        ShapeError: one is no whole number, is negative, or is no multiple of the groups.
    """
    # r[impl errors.type.builtin+2]
    kind = f"nn.{type(layer).__name__}"
    for name, value in {"groups": groups, **given}.items():
        least = 1 if name == "groups" else 0
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ShapeError(kind, f"{name}={value!r} is not possible",
                             f"use a whole number from {least} on")
        if value % groups and name != "groups":
            raise ShapeError(kind, f"{name}={value} is no multiple of {groups} groups",
                             "make it one")
