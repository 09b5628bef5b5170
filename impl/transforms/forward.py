"""Derivatives from the arguments to the results, and matrices of them. Chapter: spec/transforms.md.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from impl.gradient import expression_of, nodes
from impl.gradient.forward import push_forward
from impl.gradient.substitution import substituted
from impl.ir import UOp
from impl.tensor import Tensor
from impl.transforms.batching import vmap
from impl.transforms.reverse import Argnums, Call, grad
from impl.transforms.trees import refuse_no_function


def _pushed(call: Call, tangents: Sequence[UOp]) -> list[Tensor]:
    """How each result changes, given how the chosen arguments do."""
    changes = dict(zip(call.variables, tangents, strict=True))
    results = call.results.leaves
    found = push_forward([expression_of(each.uop) for each in results], changes)
    # An integer has no change but 0.
    full = [nodes.full_like(result.uop, 0) if change is None else change
            for result, change in zip(results, found, strict=True)]
    made = substituted(full, call.back)
    return [result._wrap(node) for result, node in zip(results, made, strict=True)]


def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any],
        has_aux: bool = False) -> Any:
    """The results of a function, and how they change when its arguments change by the tangents.

    Args:
        primals: the arguments, as a tuple.
        tangents: one for each, of its containers and shapes.

    Returns:
        (results, changes of the results), with `has_aux` also what the function returned besides.
    """
    call = Call("jvp", function, primals, {}, range(len(primals)), has_aux)
    given = call.tree.matching(list(tangents), "jvp", "tangents")
    changes = call.results.filled(_pushed(call, [each.uop for each in given]))
    results = call.results.filled(call.out(call.results.leaves))
    return (results, changes, call.outside(call.aux)) if has_aux else (results, changes)


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The results of a function, and the linear function of changes at this point.

    The function is called once; the linear one takes a tangent for each of the primals.
    """
    call = Call("linearize", function, primals, {}, range(len(primals)))

    def linear(*tangents: Any) -> Any:
        """How the results change with the arguments."""
        given = call.tree.matching(list(tangents), "linearize", "tangents")
        return call.results.filled(_pushed(call, [each.uop for each in given]))
    return call.results.filled(call.out(call.results.leaves)), linear


def _basis(tensors: Sequence[Tensor], number: int) -> Tensor:
    """For one of some tensors, all tensors of its shape that are 1 in one place and 0 elsewhere."""
    tensor = tensors[number]
    count = math.prod(tensor.shape)
    return Tensor.eye(count, dtype=tensor.dtype, device=tensor.device).reshape(
        count, *tensor.shape)


def _zeros(tensor: Tensor) -> Tensor:
    return tensor._wrap(nodes.full_like(tensor.uop, 0))


def jacrev(function: Callable[..., Any], argnums: Argnums = 0,
           has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns all derivatives of all results, from the results back.

    Of a result of shape r and an argument of shape a they have the shape (*r, *a). The results'
    containers are outside, those of the arguments inside. Cheap where the results are few.
    """
    refuse_no_function("jacrev", function)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        call = Call("jacrev", function, args, kwargs, argnums, has_aux)
        results, rows = call.results.leaves, []
        for number, result in enumerate(results):
            def pull(one: Tensor, number: int = number) -> tuple[Tensor, ...]:
                seeds = [one.uop if i == number else nodes.full_like(each.uop, 0)
                         for i, each in enumerate(results)]
                return tuple(call.pulled(seeds))
            shape = result.shape
            found = vmap(pull)(_basis(results, number))
            parts = [part.reshape(*shape, *given.shape)
                     for part, given in zip(found, call.given, strict=True)]
            filled = call.tree.filled(parts)
            rows.append(filled[0] if isinstance(argnums, int) else tuple(filled))
        matrix = call.results.filled(rows)
        return (matrix, call.outside(call.aux)) if has_aux else matrix
    return differentiated


def jacfwd(function: Callable[..., Any], argnums: Argnums = 0,
           has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns all derivatives of all results, from the arguments on.

    The same as `jacrev`, by other means: cheap where the arguments are few.
    """
    refuse_no_function("jacfwd", function)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        call = Call("jacfwd", function, args, kwargs, argnums, has_aux)
        results, columns = call.results.leaves, []
        for number, given in enumerate(call.given):
            def push(one: Tensor, number: int = number) -> tuple[Tensor, ...]:
                return tuple(_pushed(call, [one.uop if i == number else nodes.full_like(each.uop, 0)
                                            for i, each in enumerate(call.given)]))
            found = vmap(push, out_axes=-1)(_basis(call.given, number))
            columns.append([part.reshape(*result.shape, *given.shape)
                            for part, result in zip(found, results, strict=True)])
        rows = []
        for number in range(len(results)):
            filled = call.tree.filled([column[number] for column in columns])
            rows.append(filled[0] if isinstance(argnums, int) else tuple(filled))
        matrix = call.results.filled(rows)
        return (matrix, call.outside(call.aux)) if has_aux else matrix
    return differentiated


def hessian(function: Callable[..., Any], argnums: Argnums = 0,
            has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns all second derivatives: `jacfwd` of `jacrev`."""
    return jacfwd(jacrev(function, argnums, has_aux), argnums, has_aux)


def hvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The second derivatives of a function of one number, times the tangents: jvp of grad.

    Returns:
        A tuple with one for each of the primals. No matrix of second derivatives is made.
    """
    everything = tuple(range(len(primals)))
    return jvp(grad(function, everything), primals, tangents)[1]
