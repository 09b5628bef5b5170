"""What a captured function returned, as a template that each replay fills."""
from __future__ import annotations

import copy
import operator
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from impl.effects import Buffer, leaf_of
from impl.following.records import EXACT, attributes_of, is_record
from impl.ir import Shape, UOp, leaf_node, note_late
from impl.places import ANYWHERE, Place
from impl.replay.arguments import Arguments
from impl.replay.history import Expression, Standing
from impl.symbolic import Size
from impl.tensor import Tensor
from impl.tensor.parameters import note_dependent


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
    if not isinstance(value, EXACT) and not is_record(value):
        return change(value)
    kind, made = type(value), value
    if isinstance(value, tuple):
        made = tuple.__new__(kind, (mapped(part, change, known) for part in value))
        if kind is tuple and all(map(operator.is_, made, value)):
            return value
    elif kind is list or kind is dict:
        made = kind()
    else:
        made = copy.copy(value)
    if isinstance(value, list):
        made[:] = [mapped(part, change, known) for part in value]
    elif isinstance(value, dict):
        for key, part in value.items():
            dict.__setitem__(made, key, mapped(part, change, known))
    for name, part in attributes_of(value).items():  # as is, also where the class is frozen
        object.__setattr__(made, name, mapped(part, change, known))
    return made


def containers_in(value: Any) -> Iterator[Any]:
    """The containers in a value that somebody can put something else into, outermost first."""
    attributes = attributes_of(value) if isinstance(value, EXACT) or is_record(value) else {}
    if isinstance(value, (list, dict)) or attributes or is_record(value):
        yield value
    items = value.values() if isinstance(value, dict) else \
        value if isinstance(value, (list, tuple)) else ()
    for part in (*items, *attributes.values()):
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
            if arguments is None or not isinstance(value, (UOp, Size)):
                return value
            return arguments.now(value, paths) if isinstance(value, UOp) \
                else arguments.again((value,), paths)[0]
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


def tensor_lines(result: Leaf, parts: str, last: list[Any],
                 name: Callable[[Any], str]) -> list[str]:
    """The words of `new_tensor` in the buffer of one device that was `made`, and has just been
    filled, with what is `dependent` and the parts of a `Standing`; with `again`, it has a `leaf`.
    Both are the `last` ones from now on, if any are kept. `name` tells what an object is called.
    """
    expression = result.expression
    words = ["if not again:",
             f"    leaf = {name(leaf_node)}({name(result.buffer.dtype)}, (made, 0, "
             f"{name(result.shape)}))",
             *([f"    {name(last)}[0] = made, leaf"] if last else [])]
    if expression is not None:  # as Expression.note does
        words += ["made.told = 0",
                  f"{name(note_late)}(leaf, ({name(expression)}, {expression.depends}, {parts}))",
                  f"if dependent: {name(note_dependent)}(leaf)"]
    return [*words, *Tensor._holding_lines("leaf", result.device, name), "return tensor"]


def buffer_and_shape(tensor: Tensor | None) -> tuple[Buffer, Shape]:
    """The buffer and the shape of a realized tensor."""
    assert tensor is not None
    leaf = leaf_of(tensor.uop)
    assert leaf is not None
    return leaf.arg[0], leaf.arg[2]
