"""What a captured function returned, as a template that each replay fills."""
from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import fields
from typing import Any

from impl.effects import Buffer, leaf_of
from impl.ir import Shape, UOp
from impl.places import ANYWHERE, Place
from impl.replay.arguments import Arguments, is_record
from impl.replay.history import Expression, Standing
from impl.tensor import Tensor


class Leaf:
    """A tensor in a result: the buffer that held it in the capture, and the device it names.

    `holder`: the function returned a tensor that exists besides, an argument (its path) or another;
    or, with `gradient`, what the call left as the gradient of one.
    `expression` is what gives the value, if somebody may ask for a gradient of it.
    """

    def __init__(self, buffer: Buffer, shape: Shape,
                 holder: weakref.ref[Tensor] | str | None = None, device: Place = ANYWHERE,
                 expression: Expression | None = None, gradient: bool = False) -> None:
        self.buffer, self.shape, self.holder, self.expression = buffer, shape, holder, expression
        self.gradient = gradient
        self.device = device or buffer.device  # another one where there are no elements


def mapped(value: Any, change: Callable[[Any], Any], known: Mapping[int, Any] = {}) -> Any:
    """A copy of nested containers with the parts changed; the depth is that of the user's data.
    Of containers that are `known`, by identity, it is what that says.
    """
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, (Tensor, Leaf)):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, change, known) for v in value))
    if isinstance(value, tuple):
        return type(value)(mapped(v, change, known) for v in value)
    if isinstance(value, list):
        made = [] if type(value) is list else copy.copy(value)
        made[:] = [mapped(v, change, known) for v in value]
        return made
    if is_record(value):
        made = copy.copy(value)
        for name in _attributes(value):  # as is, also where the class is frozen
            object.__setattr__(made, name, mapped(getattr(value, name), change, known))
        return made
    if isinstance(value, dict):
        words: dict[Any, Any] = {} if type(value) is dict else copy.copy(value)
        for key, part in value.items():
            dict.__setitem__(words, key, mapped(part, change, known))
        return words
    return change(value)


def _attributes(record: Any) -> list[str]:
    """The names of what a dataclass holds: its fields, and what was set besides."""
    return [*dict.fromkeys([*(each.name for each in fields(record)),
                            *getattr(record, "__dict__", ())])]


def containers_in(value: Any) -> Iterator[Any]:
    """The containers in a value that somebody can put something else into, outermost first."""
    if isinstance(value, (list, dict)) or is_record(value):
        yield value
    parts = value.values() if isinstance(value, dict) else value \
        if isinstance(value, (list, tuple)) else \
        [getattr(value, name) for name in _attributes(value)] if is_record(value) else ()
    for part in parts:
        yield from containers_in(part)


def template_of(result: Any, holders: Mapping[int, weakref.ref[Tensor] | str],
                gradients: Container[int], expressions: Mapping[int, Expression]) -> Any:
    """The result with every tensor replaced by a description; one tensor by one description."""
    made: dict[int, Leaf] = {}

    def describe(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return made.setdefault(id(value), Leaf(
            *buffer_and_shape(value), holders.get(id(value)), value.device,
            expressions.get(id(value)), id(value) in gradients))
    return mapped(result, describe)


def leaves_of(template: Any) -> list[Leaf]:
    found: list[Leaf] = []
    mapped(template, lambda v: found.append(v) if isinstance(v, Leaf) else None)
    return found


def filled(template: Any, now: dict[Buffer, Buffer], arguments: Arguments | None,
           paths: dict[UOp, str], standing: Standing) -> Any:
    """The result of a replay; a tensor that exists besides is returned itself.

    Without arguments there is none of those, and no shape depends on the call. `standing` is what
    stood in the places of expressions.
    """
    made: dict[Leaf, Tensor] = {}

    def fill(value: Any) -> Any:
        if not isinstance(value, Leaf):
            return value
        if value not in made:
            held = _held(value, arguments)
            shape = value.shape if arguments is None else arguments.again(value.shape, paths)
            made[value] = held if held is not None else new_tensor(
                value, now.get(value.buffer, value.buffer), shape, standing)
        return made[value]
    return mapped(template, fill)


def _held(leaf: Leaf, arguments: Arguments | None) -> Tensor | None:
    """The tensor that exists besides, if the function returned one, and it lives."""
    if leaf.holder is None:
        return None
    if isinstance(leaf.holder, str):
        assert arguments is not None
        held: Tensor | None = arguments.tensors[leaf.holder]
    else:
        held = leaf.holder()
    return held.grad if held is not None and leaf.gradient else held


def new_tensor(leaf: Leaf, buffer: Buffer, shape: Shape, standing: Standing) -> Tensor:
    """A new tensor for a part of the result."""
    if buffer.shardings and shape not in buffer.shardings:  # r[impl multi.value.equal]
        buffer.lie(shape, leaf.buffer.sharding(leaf.shape))
    node = buffer.leaf(shape)
    if leaf.expression is not None:
        leaf.expression.note(node, *standing)
    return Tensor._holding(node, leaf.device)


def buffer_and_shape(tensor: Tensor | None) -> tuple[Buffer, Shape]:
    """The buffer and the shape of a realized tensor."""
    assert tensor is not None
    leaf = leaf_of(tensor.uop)
    assert leaf is not None
    return leaf.arg[0], leaf.arg[2]
