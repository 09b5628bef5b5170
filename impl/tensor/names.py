"""Other names than ours: of arguments, and of methods that a tensor does not have.

Chapter: spec/errors.md.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from impl.errors import NameMissingError, nearest


def either(axis: Any, dim: Any) -> Any:
    """`dim` is PyTorch's name for `axis`."""
    return axis if dim is None else dim  # r[impl tensor.axis.name]


#: What has no method of its own here, or one of quite another name.
_MEANT = {"cuda": 'x.to("CUDA")', "copy_": "x.assign(y)", "fill_": "x.assign(x.full_like(number))",
          "zero_": "x.assign(x.zeros_like())",
          "nonzero": "where(condition, x, y): the shape of a result depends on no value",
          "unique": "NumPy on x.numpy(): the shape of a result depends on no value",
          "tile": "x.repeat(*times)", "copy": "x.clone()", "astype": "x.cast(dtype)",
          "ravel": "x.flatten()", "swapaxes": "x.transpose(first, second)",
          "expand_dims": "x.unsqueeze(axis)", "concatenate": "Tensor.cat(x, y)",
          "t": "x.T", "gpu": 'x.to("CUDA"), or another device', "diag": "x.diagonal()",
          "select": "x.index_select(axis, indices), or x[..., number]",
          "vstack": "Tensor.cat(x, y)", "hstack": "Tensor.cat(x, y, dim=1)",
          "from_numpy": "Tensor(array)", "tensor": "Tensor(values)", "array": "Tensor(values)",
          "as_tensor": "Tensor(values)", "equal": "(x == y).all()",
          "allclose": "NumPy on x.numpy()", "xavier_uniform": "Tensor.glorot_uniform(*shape)",
          "no_grad": "x.detach(), or nothing: only .backward() computes gradients",
          "zero_grad": "x.grad = None, or the zero_grad() of an optimiser",
          "jit": "TinyJit(function)", "save": "nn.state.safe_save({name: x}, path)",
          "load": "nn.state.safe_load(path)"}


# --8<-- [start:missing]
def missing(tensors: type, name: str) -> NoReturn:
    """Raise the error for a name that tensors do not have, with the one that was meant."""
    if name.startswith("_"):  # what Python itself looks for, often without need
        raise AttributeError(f"{tensors.__name__} has no {name}")
    raise NameMissingError("Tensor", f"there is no {name}", _remedy(tensors, name))


def _remedy(tensors: type, name: str) -> str:
    """What is written in its place: another expression, or the name that looks most like it."""
    known = [each for each in dir(tensors) if not each.startswith("_")]
    if name in _MEANT:
        return f"use {_MEANT[name]}"
    if name.endswith("_") and name[:-1] in known:
        return f"no method writes in place; use x.assign(x.{name[:-1]}(...))"
    near = nearest(name, known)
    return f"did you mean {near}?" if near else \
        "look for it among the methods in the API reference, or in dir(Tensor)"
# --8<-- [end:missing]


class Named(type):
    """The type of tensor classes, which says what was meant: `Tensor.zeross(2)`."""

    if not TYPE_CHECKING:
        def __getattr__(cls, name: str) -> NoReturn:
            missing(cls, name)
