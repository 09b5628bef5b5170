"""The tensors of a model by name."""
from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.nn.files import refuse_others, safe_load, safe_metadata, safe_save
from impl.nn.names import missing, publish
from impl.progress import Progress
from impl.tensor import Tensor

__all__ = ["functional_call", "get_parameters", "get_state_dict", "load_state_dict",
           "parameters_to_vector", "safe_load", "safe_metadata", "safe_save",
           "stack_module_state", "torch_load", "vector_to_parameters"]
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
    if not hasattr(value, "__dict__") or callable(getattr(value, "__code__", None)) \
            or isinstance(value, type):
        return ()
    if not hasattr(value, "named_parameters"):
        return vars(value).items()
    # A layer's own tensors come before the layers in it, as in PyTorch: optimisers number them.
    parts, buffers = list(vars(value).items()), getattr(value, "_buffers", ())
    own = [part for part in parts if isinstance(part[1], Tensor)]
    return [*(part for part in own if part[0] not in buffers),
            *(part for part in own if part[0] in buffers),
            *(part for part in parts if not isinstance(part[1], Tensor))]


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


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one behind the other, as one vector.

    Raises:
        ArgumentError: there is no parameter.
    """
    flat = [each.reshape(-1) for each in parameters]
    if not flat:
        raise ArgumentError("parameters_to_vector", "there is no parameter",
                            "give model.parameters()")
    return flat[0].cat(*flat[1:])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Assign the parts of a vector to parameters, in the order of `parameters_to_vector`.

    Raises:
        ShapeError: the vector has not as many elements as the parameters.
    """
    given = list(parameters)
    total = sum(each.numel() for each in given)
    if vec.shape != (total,):
        raise ShapeError("vector_to_parameters", f"a vector of shape {vec.shape} is given for "
                         f"{total} elements", "give what parameters_to_vector returned")
    start, changed = 0, []
    for each in given:
        part = vec[start:start + each.numel()].detach().reshape(each.shape)
        changed.append(each.assign(part.cast(each.dtype)))
        start += each.numel()
    if changed:
        Tensor.realize(*changed)


def functional_call(module: Any, parameter_and_buffer_dicts: Mapping[str, Any] |
                    Sequence[Mapping[str, Any]], args: Any = (),
                    kwargs: Mapping[str, Any] | None = None) -> Any:
    """Call a model with other tensors in the places of its own, which it has again afterwards.

    The names are those of `state_dict`; what is not named stays. For transforms of models, as
    `torch.func.functional_call`: `func.vmap(call)(stacked, x)`.

    Raises:
        ShapeError: the model has no tensor of a name.
    """
    dicts = parameter_and_buffer_dicts
    given = dict(dicts) if isinstance(dicts, Mapping) else {
        name: value for each in dicts for name, value in each.items()}
    places = _places(module)
    if unknown := sorted(given.keys() - places.keys()):
        raise ShapeError("functional_call", f"the model has no {', '.join(unknown)}",
                         "use the names of model.state_dict()")
    saved = [(holder, key, holder[key]) for name in given for holder, key in places[name]]
    try:
        for name, value in given.items():
            for holder, key in places[name]:
                holder[key] = value
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for holder, key, own in saved:
            holder[key] = own


def _places(module: Any) -> dict[str, list[tuple[Any, Any]]]:
    """Where each tensor of a model stands: its name -> objects' dicts, dicts and lists, and keys.

    A tensor of two names stands in all places of both, so that they stay one.
    """
    found, holders = dict[int, list[tuple[Any, Any]]](), [("", module), *contents(module)]
    for value in {id(one): one for _, one in holders if not isinstance(one, Tensor)}.values():
        holder = value if isinstance(value, (dict, list)) else getattr(value, "__dict__", {})
        for key, one in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if isinstance(one, Tensor):
                found.setdefault(id(one), []).append((holder, key))
    return {name: found[id(one)] for name, one in holders
            if isinstance(one, Tensor) and id(one) in found}


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of equal models, stacked along a new first axis: parameters, and buffers.

    For an ensemble: `func.vmap` of a `functional_call` runs all models at once.

    Raises:
        ArgumentError: there is no model, or they differ in the names of their tensors.
    """
    states = [get_state_dict(each) for each in models]
    if not states or any(each.keys() != states[0].keys() for each in states):
        raise ArgumentError("stack_module_state", "the models have not the same tensors"
                            if states else "there is no model", "give models of one class")
    learned = {id(each) for each in models[0].parameters()}
    parameters, buffers = dict[str, Tensor](), dict[str, Tensor]()
    for name, first in states[0].items():
        stacked = first.stack(*(each[name] for each in states[1:])).detach()
        kept = parameters if id(first) in learned else buffers
        kept[name] = stacked.requires_grad_(id(first) in learned)
    return parameters, buffers


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


def load_state_dict(model: Any, state: Mapping[str, Any], strict: bool = True,
                    verbose: bool = False) -> UnmatchedKeys:
    """Assign saved tensors to a model's, by name, converted to their dtypes and laid
    as they lie, on one device or on a mesh.

    Tensors and arrays of other libraries will do. A tensor that a model has under two names may
    be saved under one of them; the counters of PyTorch's batch norms are passed over. `verbose`
    is tinygrad's, and changes nothing: nothing is printed.

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
        with Progress(f"loading {len(changed)} tensors"):
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
