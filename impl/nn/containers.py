"""Layers that hold layers, and those that only change shapes."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from impl.errors import ArgumentError
from impl.nn.module import Module, Parameter
from impl.tensor import Tensor

__all__ = ["Flatten", "Identity", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList",
           "Sequential", "Unflatten"]


class _Named(Module):
    """Attributes that are looked up like the items of a list or dict."""

    def _items(self) -> dict[str, Any]:
        """What was put in, by name, in order."""
        return {name: one for name, one in vars(self).items() if not name.startswith("_")}

    def __len__(self) -> int:
        return len(self._items())

    def __delitem__(self, key: Any) -> None:
        delattr(self, self._name(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        setattr(self, self._name(key), value)

    def _name(self, key: Any) -> str:
        return str(key)


class _Listed(_Named):
    """Attributes "0", "1", ... which are the elements of a list."""

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(*list(self)[index]) if isinstance(self, Sequential) \
                else type(self)(list(self)[index])
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items().values())

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        kept = list(self._items().items())
        for name, _ in kept:
            delattr(self, name)
        for place, (name, one) in enumerate(kept):
            setattr(self, str(place) if name.isdigit() else name, one)

    def _name(self, key: Any) -> str:
        return list(self._items())[key] if isinstance(key, int) else str(key)

    def append(self, one: Any) -> Self:
        """One more at the end."""
        self.add_module(str(len(self)), one)
        return self

    def extend(self, several: Iterable[Any]) -> Self:
        """Several more at the end."""
        for one in several:
            self.append(one)
        return self

    def insert(self, index: int, one: Any) -> None:
        """One more before the one with an index."""
        before = list(self)
        before.insert(index, one)
        for place, each in enumerate(before):
            setattr(self, str(place), each)


class Sequential(_Listed):
    """Each layer applied to what the one before returned; a dict gives the layers names."""

    def __init__(self, *args: Any) -> None:
        given = args[0].items() if len(args) == 1 and isinstance(args[0], Mapping) \
            else enumerate(args)
        for name, layer in given:
            if not callable(layer):  # r[impl errors.argument.refused]
                listed = isinstance(layer, (list, tuple))
                raise ArgumentError("nn.Sequential", f"{name} is a {type(layer).__name__}, and no "
                                    "layer", "use Sequential(*layers)" if listed else
                                    "give layers, or functions of a tensor")
            self.add_module(str(name), layer)

    def forward(self, input: Any) -> Any:
        for layer in self:
            input = layer(input)
        return input


class ModuleList(_Listed):
    """A list of layers. A plain list will do, too."""

    def __init__(self, modules: Iterable[Any] = ()) -> None:
        self.extend(modules or ())


class ParameterList(_Listed):
    """A list of tensors that are learned."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self.extend(values)

    def append(self, one: Any) -> Self:
        """One more at the end."""
        return super().append(one if isinstance(one, Tensor) and one._parameter
                              else Parameter(one))


class ModuleDict(_Named):
    """A dict of layers. A plain dict will do, too."""

    def __init__(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self.update(modules)

    def update(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Put in all of another dict."""
        for name, one in dict(modules or ()).items():
            self[name] = one

    def __getitem__(self, key: str) -> Any:
        return self._items()[key]

    def __contains__(self, key: str) -> bool:
        return key in self._items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._items().keys()

    def values(self) -> Iterable[Any]:
        """What has the names."""
        return self._items().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names, and what has them."""
        return self._items().items()

    def pop(self, key: str) -> Any:
        """Take one out."""
        one = self[key]
        del self[key]
        return one


class ParameterDict(ModuleDict):
    """A dict of tensors that are learned."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self.update(parameters)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value if isinstance(value, Tensor) and value._parameter
                            else Parameter(value))


class Identity(Module):
    """A layer that returns its argument; it takes any arguments when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is kept."""

    def forward(self, input: Any) -> Any:
        return input


class Flatten(Module):
    """Axes from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """One axis as several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)
