"""Derivatives from the results back to the arguments. Chapter: spec/transforms.md."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from impl.errors import ArgumentError, DTypeError, ShapeError, TraceError
from impl.gradient import compute_gradients, expression_of, nodes, reached
from impl.gradient.substitution import substituted
from impl.host import np
from impl.ir import UOp
from impl.replay.results import mapped
from impl.tensor import Tensor
from impl.tensor.autograd import GradientMode
from impl.transforms.tracing import looked_at, variable
from impl.transforms.trees import Tree, of_function, refuse_no_function

Argnums = int | Sequence[int]


class Call:
    """A call of a function on variables in the place of some of its arguments.

    `given` are the tensors that are differentiated for, `results` what came out; a result that is
    handed out has the given tensors in the place of the variables again.
    """

    def __init__(self, operation: str, function: Callable[..., Any], args: Sequence[Any],
                 kwargs: dict[str, Any], argnums: Argnums | None, has_aux: bool = False) -> None:
        self.operation, args = operation, list(args)
        self.chosen = [] if argnums is None else _positions(operation, argnums, len(args))
        self.tree = Tree([args[number] for number in self.chosen], numbers=True)
        self.given = self.tree.leaves
        for tensor in self.given:
            if tensor.dtype.kind != "f":  # r[impl transforms.arguments.refused+2]
                raise DTypeError(operation, f"a tensor of {tensor.dtype.name} has no derivative",
                                 "use a floating dtype: .float(), or leave it out of argnums")
        # r[impl transforms.derivative.argument+2]
        inner = [variable(tensor) for tensor in self.given]
        # The nodes: the function may write to its arguments, which are its own.
        self.variables = [tensor.uop for tensor in inner]
        for number, value in zip(self.chosen, self.tree.filled(inner), strict=True):
            args[number] = value
        # r[impl transforms.derivative.mode]: a block with `no_grad` is the function's own
        with looked_at() as self.kept, GradientMode.on():
            returned = function(*args, **kwargs)
        self.aux: Any = None
        if has_aux:
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise ArgumentError(operation, f"has_aux=True, and {of_function(function)} "
                                    f"returned no pair but {type(returned).__name__}",
                                    "return (result, something else)")
            returned, self.aux = returned
        self.results = Tree(returned, numbers=True)
        self._refuse_read(returned)
        self.back = {node: g.uop for node, g in zip(self.variables, self.given, strict=True)}

    def _refuse_read(self, returned: Any) -> None:
        """A number in the place of a result has no derivative if it was made of values that the
        function has read.

        Raises:
            TraceError: there is one.
        """
        # r[impl transforms.values.returned]
        found: list[Any] = []
        mapped(returned, lambda part: found.append(part) if isinstance(
            part, (float, np.floating)) or isinstance(part, np.ndarray) and part.dtype.kind == "f"
            else None)
        ends = {*self.variables}
        if found and any(reached(node, ends) for node in self.kept):
            raise TraceError(self.operation, f"the function returned a {type(found[0]).__name__}, "
                             "after it had read values: no derivative goes through those",
                             "return a tensor: leave out .item(), .numpy() and NumPy's functions")

    def out(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors as expressions of the arguments, and of no variable."""
        made = substituted([tensor.uop for tensor in tensors], self.back)
        return [tensor if node is tensor.uop else tensor._wrap(node)
                for tensor, node in zip(tensors, made, strict=True)]

    def outside(self, value: Any) -> Any:
        """The same of all tensors of a tree."""
        tree = Tree(value)
        return tree.filled(self.out(tree.leaves))

    def scalar(self) -> Tensor:
        """The one result, of one element.

        Raises:
            ShapeError: there is another number of results, or of elements.
            DTypeError: it is no float.
        """
        results = self.results.leaves
        if len(results) != 1 or results[0].numel() != 1:
            forms = ", ".join(str(result.shape) for result in results) or "none"
            raise ShapeError(self.operation, "the function has to return one number, and returned "
                             f"tensors of shapes {forms}", "reduce it (.sum()), return a pair with "
                             "has_aux=True, or use vjp")
        if results[0].dtype.kind != "f":
            raise DTypeError(self.operation, f"a {results[0].dtype.name} has no derivative",
                             "return a floating tensor")
        return results[0]

    # r[impl transforms.derivative.value]
    def pulled(self, cotangents: Sequence[UOp]) -> list[Tensor]:
        """The gradient of the results with respect to each given tensor; zeros without one."""
        seeds: dict[UOp, UOp] = {}
        for result, cotangent in zip(self.results.leaves, cotangents, strict=True):
            if result.dtype.kind == "f":
                root = expression_of(result.uop)
                known = seeds.get(root)
                seeds[root] = cotangent if known is None else nodes.add(known, cotangent)
        targets = self.variables
        found = compute_gradients(seeds, targets)
        # r[impl gradient.target.unused+2]
        parts = [found.get(target) for target in targets]
        full = [nodes.full_like(target, 0) if part is None else part
                for target, part in zip(targets, parts, strict=True)]
        made = substituted(full, self.back)
        return [given._wrap(node) for given, node in zip(self.given, made, strict=True)]


def _positions(operation: str, argnums: Argnums, count: int) -> list[int]:
    given = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in given:
        if not isinstance(number, int) or not -count <= number < count:
            # r[impl transforms.arguments.refused+2]
            raise ArgumentError(operation, f"argnums is {argnums!r}, and the call has {count} "
                                "positional arguments", "name positions of arguments, from 0 on")
    return [number % count for number in given]


def value_and_grad(function: Callable[..., Any], argnums: Argnums = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns the value and the gradient of a function of one number.

    Args:
        function: returns one number, or with `has_aux` a pair of one and something else.
        argnums: which positional arguments the gradient is for; a tuple of them gives a tuple.

    Returns:
        A function that returns (value, gradient), with `has_aux` ((value, aux), gradient). The
        gradient has the containers of the arguments.

    Raises:
        ShapeError, DTypeError, ArgumentError: when it is called, and cannot be differentiated.
    """
    refuse_no_function("value_and_grad", function)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        call = Call("grad", function, args, kwargs, argnums, has_aux)
        value = call.scalar()
        found = call.tree.filled(call.pulled([nodes.full_like(value.uop, 1)]))
        value, = call.out([value])
        value = call.results.filled([value])
        gradient = found[0] if isinstance(argnums, int) else tuple(found)
        return ((value, call.outside(call.aux)) if has_aux else value), gradient
    return differentiated


def grad(function: Callable[..., Any], argnums: Argnums = 0,
         has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns the gradient of a function of one number.

    As `value_and_grad`, without the value; with `has_aux` it returns (gradient, aux).
    """
    refuse_no_function("grad", function)
    both = value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient
    return differentiated


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The results of a function, and the function from their gradients to those of the arguments.

    Returns:
        (results, pull), with `has_aux` (results, pull, aux). `pull` takes gradients in the form of
        the results, and returns a tuple with one for each of the primals. It may be called often.
    """
    call = Call("vjp", function, primals, {}, range(len(primals)), has_aux)

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        """The gradients of the primals, given those of the results."""
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        matched = call.results.matching(given, "vjp", "gradients of the results")
        found: list[Any] = call.tree.filled(call.pulled([each.uop for each in matched]))
        return tuple(found)
    results = call.results.filled(call.out(call.results.leaves))
    return (results, pull, call.outside(call.aux)) if has_aux else (results, pull)


def stop_gradient(value: Any) -> Any:
    """The same tensors, through which no gradient flows; other parts as they are."""
    tree = Tree(value)
    return tree.filled([tensor.detach() for tensor in tree.leaves])
