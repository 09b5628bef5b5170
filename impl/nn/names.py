"""What somebody meant who asks `nn` for a name that it does not have. Chapter: spec/errors.md."""
from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self

from impl.errors import NameMissingError, ShapeError, nearest
from impl.tensor import Tensor
from impl.tensor.names import made

#: What has another name here than its own.
_MEANT = {"module": "any class: its attributes are searched for parameters",
          "parameter": "Tensor(..., requires_grad=True)",
          "functional": "the methods of Tensor: x.relu()",
          "sequential": "x.sequential([layer, layer])",
          "flatten": "x.flatten(1)", "identity": "lambda x: x",
          "bceloss": "x.binary_crossentropy(target)",
          "bcewithlogitsloss": "x.binary_crossentropy_logits(target)",
          "nllloss": "x.nll_loss(target)", "mseloss": "x.mse_loss(target)",
          "l1loss": "x.l1_loss(target)", "init": "Tensor.uniform, Tensor.kaiming_uniform"}


#: What the modules below `nn` offer: each says it when it is imported.
_PARTS: dict[str, Sequence[str]] = {}


def publish(part: str, names: Sequence[str]) -> None:
    """Let errors know what a module below `nn` offers: `publish("optim", __all__)`."""
    _PARTS[part] = names


def missing(name: str, own: Iterable[str], module: str = "nn") -> NameMissingError:
    """The error for a name that is not there: with the nearest of all names that are."""
    return NameMissingError(module, f"there is no {name}", _remedy(name.lower(), own, module))


def _remedy(given: str, own: Iterable[str], module: str) -> str:
    """A class of another spelling, a method of tensors, or the name that looks most like it."""
    known = {each.lower(): f"nn.{each}" for each in own}
    known |= {each.lower(): f"nn.{part}.{each}" for part, names in _PARTS.items()
              for each in names}
    if given in known:
        return f"did you mean {known[given]}?"
    if given in _MEANT and _is_there(_MEANT[given]):
        return f"use {_MEANT[given]}"
    methods = {each.replace("_", ""): each for each in dir(Tensor)
               if not each.startswith("_") and not each.endswith("_")}
    for spelled in (given, given.removesuffix("loss")):
        if spelled in methods:
            return f"use the method of tensors, x.{methods[spelled]}()"
    near = nearest(given, known)
    return f"did you mean {known[near]}?" if near else \
        "use one of " + ", ".join(sorted(each for each in known.values()
                                         if each.startswith(f"{module}.")))


#: What modules of other libraries have and layers here have not: a layer is a plain object.
_OF_A_MODULE = {"parameters": "nn.state.get_parameters(layer)",
                "named_parameters": "nn.state.get_state_dict(layer)",
                "state_dict": "nn.state.get_state_dict(layer)",
                "load_state_dict": "nn.state.load_state_dict(layer, state)",
                "forward": "layer(x)", "train": "with Tensor.train(): ...",
                "eval": "nothing: layers train in `with Tensor.train(): ...` only",
                "zero_grad": "the zero_grad() of an optimiser",
                "to": "each.replace(each.to(device)) for each of nn.state.get_parameters(layer)"}


class Layer:
    """What all layers of `nn` have in common: they say how they were made, and errors help."""

    _made = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        made(cls)

    def __new__(cls, *given: Any, **named: Any) -> Self:
        layer = super().__new__(cls)
        with suppress(TypeError):  # a copy is made of nothing
            made = inspect.signature(cls.__init__).bind(layer, *given, **named)
            made.apply_defaults()
            layer._made = ", ".join(f"{name}={_shown(value)}"
                                    for name, value in list(made.arguments.items())[1:])
        return layer

    def __repr__(self) -> str:
        """`Linear(in_features=3, out_features=4, bias=True)`."""
        return f"{type(self).__name__}({self._made})"

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> NoReturn:
            kind = f"nn.{type(self).__name__}"
            if name.startswith("_"):  # what Python itself looks for, often without need
                raise AttributeError(f"{kind} has no {name}")
            own = [each for each in vars(self) if not each.startswith("_")]
            near = nearest(name, own)
            remedy = f"use {_OF_A_MODULE[name]}" if name in _OF_A_MODULE else \
                f"did you mean {near}?" if near else "it has " + ", ".join(own)
            # r[impl errors.name.missing]
            raise NameMissingError(kind, f"there is no {name}", remedy)


def _shown(value: Any) -> str:
    """A number, a text or several of them; of all else its kind."""
    several = value if isinstance(value, (tuple, list)) else (value,)
    plain = all(isinstance(one, (int, float, str, type(None))) for one in several)
    return repr(value) if plain else type(value).__name__


def sizes(layer: Layer, groups: int = 1, **given: Any) -> None:
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


def _is_there(remedy: str) -> bool:
    """Whether the methods that a remedy names exist."""
    return all(hasattr(Tensor, each) for each in re.findall(r"(?:x|Tensor)\.(\w+)", remedy))
