"""The tensors of a model by name."""
from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from impl.errors import DTypeError, ShapeError
from impl.nn.files import refuse_others, safe_load, safe_metadata, safe_save
from impl.nn.names import missing, publish
from impl.tensor import Tensor

__all__ = ["get_parameters", "get_state_dict", "load_state_dict", "safe_load",
           "safe_metadata", "safe_save", "torch_load"]
publish("state", __all__)


def __getattr__(name: str) -> NoReturn:
    raise missing(name, (), "nn.state")  # r[impl errors.name.missing]


def contents(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Whatever is in a model with its path: attributes, and elements of lists and dicts.

    A tensor comes under each of its names, anything else under its first.
    """
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [(prefix, model)]
    while stack:
        name, value = stack.pop()
        if not isinstance(value, Tensor):
            if isinstance(value, (str, bytes, int, float, type(None))) or id(value) in seen:
                continue
            seen.add(id(value))
            inner = [(f"{name}.{key}" if name else str(key), one) for key, one in _parts(value)]
            stack.extend(reversed(inner))
        yield name, value


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping) and (
            isinstance(value, (dict, UserDict)) or not hasattr(value, "__dict__")):
        return value.items()  # not of a group of an optimizer: it has more than it shows
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    return vars(value).items() if hasattr(value, "__dict__") and not callable(
        getattr(value, "__code__", None)) and not isinstance(value, type) else ()


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """All tensors of a model, found through attributes, lists and dicts: name -> tensor.

    Names are paths, as in PyTorch: "layers.0.weight".
    """
    found = list(contents(model, prefix.strip(".")))
    unsaved = {id(vars(one)[name]) for _, one in found for name in getattr(one, "_unsaved", ())}
    return {name: one for name, one in found
            if isinstance(one, Tensor) and id(one) not in unsaved}


def torch_load(path: str | os.PathLike[str]) -> Any:
    """Read a `.pt` or `.pth` file of `torch.save`, without running anything in it.

    Raises:
        DTypeError: it is no such file, is damaged, or has other objects than tensors in it.
    """
    from impl.nn import checkpoints
    return checkpoints.torch_load(path)


def get_parameters(model: Any) -> list[Tensor]:
    """All tensors of a model, each once."""
    return list({id(tensor): tensor for tensor in get_state_dict(model).values()}.values())


class UnmatchedKeys(NamedTuple):
    """The names of a model that were not in a saved state, and the names in that which the model
    does not have, as PyTorch's `load_state_dict` returns them.
    """

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not any(self) else (
            f"{type(self).__name__}(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})")


def load_state_dict(model: Any, state: Mapping[str, Any], strict: bool = True) -> UnmatchedKeys:
    """Assign saved tensors to a model's, by name, converted to their dtypes and laid
    as they lie, on one device or on a mesh.

    Tensors and arrays of other libraries will do. A tensor that a model has under two names may
    be saved under one of them; the counters of PyTorch's batch norms are passed over.

    Returns:
        `missing_keys` and `unexpected_keys`, both empty unless `strict` is false.

    Raises:
        ShapeError: a name is missing or left over (if `strict`), or a shape differs.
        DTypeError: `state` is no dict of tensors.
    """
    if isinstance(state, Mapping):
        state = {name: own_tensor(value) for name, value in state.items()}
    refuse_others("load_state_dict", state, "give the model first, then what safe_load returns")
    own = get_state_dict(model)
    saved = {id(own[name]) for name in own.keys() & state.keys()}
    missing = sorted(name for name in own.keys() - state.keys() if id(own[name]) not in saved)
    extra = sorted(name for name in state.keys() - own.keys()
                   if name.rpartition(".")[2] != "num_batches_tracked")
    if strict and (missing or extra):
        raise ShapeError("load_state_dict", f"names differ: missing {missing}, left over {extra}",
                         "load a file saved from the same model, or use strict=False")
    changed = []
    for name, tensor in own.items():
        if name in state:
            given = state[name]
            if given.shape != tensor.shape:
                raise ShapeError("load_state_dict", f"{name} has shape {tensor.shape}, the saved "
                                 f"one {given.shape}", "load a file saved from the same model")
            changed.append(tensor.assign(laid_as(given, tensor)))
    if changed:
        Tensor.realize(*changed)
    return UnmatchedKeys(missing, extra)


def own_tensor(value: Any) -> Any:
    """A tensor of another library, or an array, as a `Tensor`; anything else as it is."""
    return Tensor(value) if not isinstance(value, Tensor) and hasattr(value, "__array__") \
        else value


def laid_as(value: Any, tensor: Tensor) -> Tensor:
    """A saved value in the dtype of a tensor, and where that is: on its device, or its mesh."""
    given = own_tensor(value)
    if not isinstance(given, Tensor):
        raise DTypeError("load_state_dict", f"a {type(value).__name__} stands where a tensor was",
                         "give what state_dict() returned")
    return given.shard_like(tensor).cast(tensor.dtype)
