"""Tensors of a layer that are computed from others, with the names of `torch.nn.utils`.

`weight_norm` and `spectral_norm` give a layer a class of its own, in which the tensor is a
property: it is computed whenever it is read, so gradients flow to what it is computed from.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from impl.errors import ArgumentError
from impl.nn.module import Module
from impl.nn.names import publish
from impl.tensor import Tensor

__all__ = ["is_parametrized", "register_parametrization", "remove_parametrizations",
           "remove_spectral_norm", "remove_weight_norm", "spectral_norm",
           "spectral_norm_parametrization", "weight_norm", "weight_norm_parametrization"]
publish("utils", __all__)


def _computed(module: Any, name: str, formula: Callable[[Any], Tensor]) -> None:
    """Let an attribute be what a formula of the layer says."""
    vars(module).pop(name, None)
    _of_formulas(module, {**_formulas(module), name: formula})


def _formulas(module: Any) -> Mapping[str, Callable[[Any], Tensor]]:
    """What the computed tensors of a layer, or of any object, are computed by, by their names."""
    found: Mapping[str, Callable[[Any], Tensor]] = getattr(type(module), "_formulas", {})
    return found


def _of_formulas(module: Any, formulas: Mapping[str, Callable[[Any], Tensor]]) -> None:
    """Let the class of a layer be its plain one with these formulas, or that itself."""
    plain: type = getattr(type(module), "_plain", type(module))
    module.__class__ = plain if not formulas else type(plain.__name__, (plain,), {
        "__module__": plain.__module__, "__doc__": plain.__doc__, "_plain": plain,
        "_formulas": formulas,
        **{name: property(formula, partial(_refuse, name=name))
           for name, formula in formulas.items()}})


def _refuse(module: Any, value: Any, name: str) -> None:
    raise ArgumentError(f"nn.{type(module).__name__}", f"{name} is computed from other tensors",
                        "set those, or remove what computes it")  # r[impl errors.argument.refused]


def _held(module: Any, name: str) -> Tensor:
    """The tensor of a name.

    Raises:
        ArgumentError: there is none, or it is computed already.
    """
    found = vars(module).get(name)
    if not isinstance(found, Tensor):  # r[impl errors.argument.refused]
        raise ArgumentError(f"nn.{type(module).__name__}", f"{name!r:.40} is no tensor of it",
                            "name one, such as weight")
    return found


def _given_again(module: Any, name: str, value: Tensor, parts: tuple[str, ...] = ()) -> Any:
    """Let a computed tensor be one of its own, without the tensors that it was computed from."""
    left = {each: one for each, one in _formulas(module).items() if each != name}
    _of_formulas(module, left)
    setattr(module, name, value.detach().requires_grad_())
    for part in parts:
        delattr(module, part)
    return module


def _parts(module: Any, name: str, ends: tuple[str, ...]) -> tuple[str, ...]:
    """The names of what a tensor is computed from.

    Raises:
        ArgumentError: it is not computed from tensors of these names.
    """
    parts = tuple(f"{name}{end}" for end in ends)
    if name not in _formulas(module) or any(part not in vars(module) for part in parts):
        raise ArgumentError(  # r[impl errors.argument.refused]
            f"nn.{type(module).__name__}", f"{name!r:.40} is not computed from "
            + " and ".join(parts), "name a tensor that is")
    return parts


def _size_beside(x: Tensor, dim: int | None) -> Tensor:
    """The norm of all axes but one."""
    axes = None if dim is None else tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim)
    return x.norm(2, axes, keepdim=True)


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Let a tensor be a length `weight_g` times a direction `weight_v`, both of them learned."""
    x = _held(module, name)
    g, v = f"{name}_g", f"{name}_v"
    setattr(module, g, _size_beside(x.detach(), dim).requires_grad_())
    setattr(module, v, x.detach().requires_grad_())
    _computed(module, name, lambda own: getattr(own, v) * (
        getattr(own, g) / _size_beside(getattr(own, v), dim)))
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """A tensor again, with the value that was computed.

    Raises:
        ArgumentError: `weight_norm` does not compute it.
    """
    parts = _parts(module, name, ("_g", "_v"))
    return _given_again(module, name, getattr(module, name), parts)


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> Any:
    """Let a tensor be divided by the greatest singular value of the matrix that it is.

    That is estimated from two vectors, which follow it at each use while training.
    """
    x = _held(module, name)
    first = _first_axis(module, dim)
    original, u, v = f"{name}_orig", f"{name}_u", f"{name}_v"
    setattr(module, original, x.detach().requires_grad_())
    for kept, size in zip((u, v), _as_matrix(x, first).shape, strict=True):
        module.register_buffer(kept, _unit(Tensor.randn(size), eps).contiguous().realize())
    _computed(module, name, lambda own: _by_spectrum(
        getattr(own, original), getattr(own, u), getattr(own, v), first,
        n_power_iterations if own.training else 0, eps))
    return module


def _first_axis(module: Any, dim: int | None) -> int:
    """The axis of the rows of the matrix that a weight is."""
    return (1 if type(module).__name__.startswith("ConvTranspose") else 0) if dim is None else dim


def _as_matrix(x: Tensor, first: int) -> Tensor:
    return x.movedim(first, 0).reshape(x.shape[first], -1)


def _unit(vector: Tensor, eps: float) -> Tensor:
    return vector / vector.norm().maximum(eps)


def _by_spectrum(x: Tensor, u: Tensor, v: Tensor, first: int, steps: int, eps: float) -> Tensor:
    """Divided by the greatest singular value, after so many steps of the vectors to its own."""
    matrix = _as_matrix(x, first)
    fixed = matrix.detach()
    for _ in range(steps):
        v.assign(_unit(fixed.T @ u, eps))
        u.assign(_unit(fixed @ v, eps))
    return x / (u.detach() * (matrix @ v.detach())).sum()


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """A tensor again, with the value that was computed.

    Raises:
        ArgumentError: `spectral_norm` does not compute it.
    """
    parts = _parts(module, name, ("_orig", "_u", "_v"))
    return _given_again(module, name, getattr(module, name), parts)


class _Chain(Module):
    """What a tensor is computed from: `original`, through layers "0", "1", ..."""

    original: Tensor

    def __init__(self, original: Tensor) -> None:
        self.original, self.count = original, 0

    def forward(self) -> Any:
        value: Any = self.original
        for number in range(self.count):
            value = getattr(self, str(number))(value)
        return value


class _Polar(_Chain):
    """A tensor by its lengths, `original0`, and its directions, `original1`."""

    def __init__(self, original: Tensor, dim: int | None) -> None:
        self.original0 = _size_beside(original.detach(), dim).requires_grad_()
        self.original1 = original.detach().requires_grad_()
        self.dim, self.count = dim, 0

    def forward(self) -> Any:
        return self.original1 * (self.original0 / _size_beside(self.original1, self.dim))


class _Spectral(Module):
    """Division by the greatest singular value: `spectral_norm` as a layer of a chain."""

    _u: Tensor
    _v: Tensor

    def __init__(self, original: Tensor, first: int, steps: int, eps: float) -> None:
        self.first, self.steps, self.eps = first, steps, eps
        for kept, size in zip(("_u", "_v"), _as_matrix(original, first).shape, strict=True):
            self.register_buffer(kept, _unit(Tensor.randn(size), eps).contiguous().realize())

    def forward(self, x: Tensor) -> Tensor:
        return _by_spectrum(x, self._u, self._v, self.first,
                            self.steps if self.training else 0, self.eps)


class _Chains(Module):
    """The chains of a layer, by the name of the tensor."""

    def __init__(self) -> None:
        pass


def register_parametrization(module: Any, tensor_name: str, parametrization: Any, *,
                             unsafe: bool = False) -> Any:
    """Let a tensor be what a layer gives of the tensor it is now.

    The layer's `right_inverse`, if it has one, says what is learned in its place.
    """
    chain = _chain(module, tensor_name, _Chain)
    if hasattr(parametrization, "right_inverse") and chain.count == 0:
        made = parametrization.right_inverse(chain.original.detach())
        chain.original = made.detach().requires_grad_()
    setattr(chain, str(chain.count), parametrization)
    chain.count += 1
    return module


def _chain(module: Any, name: str, build: Callable[[Tensor], _Chain]) -> Any:
    """What computes a tensor of this name: made now, if nothing does yet."""
    if "parametrizations" not in vars(module):
        module.parametrizations = _Chains()
    chains = vars(module.parametrizations)
    if name not in chains:
        chains[name] = build(_held(module, name))
        _computed(module, name, lambda own: vars(own.parametrizations)[name]())
    return chains[name]


def weight_norm_parametrization(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """`torch.nn.utils.parametrizations.weight_norm`: with the names of that in a checkpoint.

    A length `parametrizations.weight.original0` times a direction, `original1`.
    """
    _chain(module, name, lambda x: _Polar(x, dim))
    return module


def spectral_norm_parametrization(module: Any, name: str = "weight", n_power_iterations: int = 1,
                                  eps: float = 1e-12, dim: int | None = None) -> Any:
    """`torch.nn.utils.parametrizations.spectral_norm`: with the names of that in a checkpoint.

    The tensor is `parametrizations.weight.original`; `0._u` and `0._v` follow it in training.
    """
    first = _first_axis(module, dim)
    return register_parametrization(
        module, name, _Spectral(_held(module, name), first, n_power_iterations, eps))


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the layer, or any, is computed by `register_parametrization`."""
    chains = vars(module).get("parametrizations")
    return chains is not None and (tensor_name is None or tensor_name in vars(chains))


def remove_parametrizations(module: Any, tensor_name: str,
                            leave_parametrized: bool = True) -> Any:
    """A tensor again: the value that was computed, or what that was computed from.

    Raises:
        ArgumentError: `register_parametrization` does not compute it.
    """
    if not is_parametrized(module, tensor_name):  # r[impl errors.argument.refused]
        raise ArgumentError("remove_parametrizations", f"{tensor_name!r:.40} of "
                            f"nn.{type(module).__name__} is not parametrized",
                            "name a tensor that is")
    chain = vars(module.parametrizations)[tensor_name]
    value = chain() if leave_parametrized or isinstance(chain, _Polar) else chain.original
    delattr(module.parametrizations, tensor_name)
    if not any(isinstance(one, _Chain) for one in vars(module.parametrizations).values()):
        del module.parametrizations
    return _given_again(module, tensor_name, value)
