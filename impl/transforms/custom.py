"""Gradients of one's own, and values that are computed again. Chapter: spec/transforms.md."""
from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from impl import settings
from impl.errors import ArgumentError
from impl.gradient import Custom, below, compute_gradients, nodes, parts_of, sources_of
from impl.gradient.custom import with_gradient
from impl.gradient.substitution import overwritten, renamed_custom, substituted
from impl.ir import Ops, UOp
from impl.tensor.random import generator
from impl.transforms.tracing import looked_at, traced, variable
from impl.transforms.trees import Tree, of_function


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that says itself what its gradient is.

    Args:
        function: returns (results, pull). `pull` takes the gradients of the results, and returns
            those of the positional arguments: a tuple, or of one argument its gradient alone.
            None stands for no gradient. It is linear in what it takes: it is called for each
            result alone, with zeros for the others, and what it returns is added.

    Returns:
        The function that returns the results. No gradient flows to tensors that the function knows
        otherwise than as arguments.

    Raises:
        ArgumentError: it returned something else.
    """
    @functools.wraps(function)
    def with_its_gradient(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        if not isinstance(returned, tuple) or len(returned) != 2 or not callable(returned[1]):
            # r[impl transforms.arguments.refused+2]
            raise ArgumentError("custom_gradient", f"{of_function(function)} returned no pair of a "
                                "result and a function", "return (result, pull)")
        results, arguments = Tree(returned[0], numbers=True), Tree(list(args))
        # r[impl transforms.custom.said+2]
        inputs = tuple(tensor.uop for tensor in arguments.leaves)
        made = []
        for number, result in enumerate(results.leaves):
            pull = functools.partial(_pulled, returned[1], results, arguments, args, number)
            made.append(result._wrap(with_gradient(result.uop, Custom(inputs, pull)))
                        if result.dtype.kind == "f" else result)
        return results.filled(made)
    return with_its_gradient


def _pulled(pull: Callable[..., Any], results: Tree, arguments: Tree, args: Sequence[Any],
            number: int, gradient: UOp) -> list[UOp | None]:
    """What the user's function makes of the gradient of one result, for each argument's tensor."""
    seeds = [result._wrap(gradient if place == number else nodes.full_like(result.uop, 0))
             for place, result in enumerate(results.leaves)]
    given = results.filled(seeds)
    with traced():
        found = pull(*given) if isinstance(given, tuple) else pull(given)
    parts = list(found) if isinstance(found, (tuple, list)) and (
        len(args) != 1 or len(found) == 1) else [found]
    if len(parts) != len(args):
        raise ArgumentError("custom_gradient", f"{of_function(pull)} returned {len(parts)} "
                            f"gradients for {len(args)} arguments", "return one for each, or None")
    answer: list[UOp | None] = []
    for part, argument in zip(parts, args, strict=True):
        mine = Tree(argument)
        if part is None:
            answer += [None] * len(mine.leaves)
        else:
            answer += [each.uop if each.dtype.kind == "f" else None for each in mine.matching(
                part, "custom_gradient", "the gradients of an argument")]
    return answer


class Policies:
    """Which values a checkpointed function keeps; the others are computed again."""

    @staticmethod
    def nothing(node: UOp) -> bool:
        """Keep nothing but the arguments."""
        return False

    @staticmethod
    def everything(node: UOp) -> bool:
        """Keep all values: as without a checkpoint."""
        return True

    @staticmethod
    def dots(node: UOp) -> bool:
        """Keep the results of matrix products and convolutions: sums of products."""
        while node.op is Ops.CAST:
            node = node.src[0]
        if node.op is not Ops.REDUCE or node.arg[0] is not Ops.ADD:
            return False
        factors = node.src[0]
        while factors.op is Ops.CAST:
            factors = factors.src[0]
        return factors.op is Ops.MUL and factors.src[0].shape == factors.src[1].shape

    @staticmethod
    def names(*names: str) -> Callable[[UOp], bool]:
        """Keep what was given one of these names by `checkpoint_name`."""
        return lambda node: node.tag.__class__ is _Name and str(node.tag) in names


class _Name(str):
    """What a value was called."""

    __slots__ = ()


def checkpoint_name(value: Any, name: str) -> Any:
    """The same tensors, with a name that a policy can ask for."""
    tree = Tree(value)
    return tree.filled([tensor._wrap(UOp(Ops.RESHAPE, tensor.dtype, (tensor.uop,), tensor.shape,
                                         _Name(name))) for tensor in tree.leaves])


def checkpoint(function: Callable[..., Any],
               policy: Callable[[UOp], bool] = Policies.nothing) -> Callable[..., Any]:
    """The same function, of whose values none but the arguments are kept for the gradient.

    What its gradient needs is computed again, from the arguments, where the gradient is computed.

    Args:
        function: of tensors, in containers as they are.
        policy: is asked about each node that depends on the arguments, and says whether its value
            is kept all the same. `Policies` has some.
    """
    @functools.wraps(function)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if _limits.chosen and not _limits.chosen[-1].again():
            return function(*args, **kwargs)
        tree = Tree([list(args), kwargs])
        inner = [variable(tensor) for tensor in tree.leaves]
        variables = [tensor.uop for tensor in inner]  # the function may write to its arguments
        mine, named = tree.filled(inner)
        with looked_at() as kept:
            results = Tree(function(*mine, **named), numbers=True)
        region = _Region(variables, [t.uop for t in tree.leaves],
                         [result.uop for result in results.leaves], policy, kept)
        made = [result._wrap(node) for result, node in zip(results.leaves, region.results(),
                                                           strict=True)]
        return results.filled(made)
    return checkpointed


class _Region:
    """What a function computes from its arguments: a part of a graph, with an inside.

    `inside` are the nodes that depend on the arguments, `inputs` what they read: the arguments, and
    floats from outside.
    """

    def __init__(self, variables: Sequence[UOp], given: Sequence[UOp], roots: Sequence[UOp],
                 policy: Callable[[UOp], bool], kept: list[UOp]) -> None:
        self.kept = kept  # expressions of what was looked at: the gradient goes through them
        self.variables, self.given, self.roots, self.policy = variables, given, roots, policy
        self.back = dict(zip(variables, given, strict=True))
        self.inside: dict[UOp, None] = {}
        inputs = dict.fromkeys(variables)
        for node in below(roots):
            sources = sources_of(node)
            if node not in inputs and any(s in self.inside or s in self.back for s in sources):
                self.inside[node] = None
                inputs.update(dict.fromkeys(s for s in sources if s not in self.inside
                                            and s.dtype.kind == "f" and s.op is not Ops.CONST))
        self.inputs = list(inputs)
        self.copies: dict[UOp, UOp] | None = None

    def results(self) -> list[UOp]:
        """The results, each with the gradient of the copy."""
        outside = tuple(self.back.get(each, each) for each in self.inputs)
        made = substituted(self.roots, self.back)
        return [with_gradient(node, Custom(outside, functools.partial(self._pull, root)))
                if root in self.inside and root.dtype.kind == "f" else node
                for root, node in zip(self.roots, made, strict=True)]

    def _pull(self, root: UOp, gradient: UOp) -> list[UOp | None]:
        """The gradients of the inputs, in which the inside is computed again."""
        if self.copies is None:
            self.copies = self._copied()
        ends = [self.copies[each] for each in self.inputs]
        found = compute_gradients({self.copies[root]: gradient}, ends)
        return [found.get(end) for end in ends]

    def _copied(self) -> dict[UOp, UOp]:
        """Each node of the inside once more, on other nodes of the same values."""
        # r[impl transforms.checkpoint.again]
        tag = "again", next(_copies)
        copies = {each: UOp(Ops.RESHAPE, each.dtype, (self.back.get(each, each),), each.shape, tag)
                  for each in self.inputs}
        for each in self.variables:
            copies.setdefault(each, self.back[each])
        inside = list(self.inside)
        values = dict(zip(inside, substituted(inside, self.back), strict=True))
        for node in inside:
            if node.op is Ops.STORE:
                continue
            made = self._copy(node, copies)
            if self.policy(node):
                made = _kept(values[node], made)
            copies[node] = made
        return copies

    def _copy(self, node: UOp, copies: dict[UOp, UOp]) -> UOp:
        if node.op is Ops.AFTER:
            base, (view, value) = node.src[0], node.src[1].src
            return overwritten(base, view, copies.get(base, base), copies.get(value, value))
        if node.op is Ops.BUFFER:
            expression = sources_of(node)[0]
            return copies[expression]
        if node.op is Ops.DETACH and node.tag is not None:  # r[impl transforms.custom.said+2]
            return with_gradient(copies.get(node.src[0], node.src[0]),
                                 renamed_custom(node.tag, copies, copies))
        return UOp(node.op, node.dtype, tuple(copies.get(each, each) for each in node.src),
                   node.arg, node.tag)


def _kept(value: UOp, again: UOp) -> UOp:
    """A value that is kept, with the gradient of a copy that is not computed for it."""
    sources = tuple(dict.fromkeys(s for s in sources_of(again) if s.dtype.kind == "f"))

    def pull(gradient: UOp) -> list[UOp | None]:
        found: dict[UOp, UOp] = {}
        for source, part in parts_of(again, gradient, set(sources)):
            found[source] = part if source not in found else nodes.add(found[source], part)
        made = substituted(list(found.values()), {again: value})
        parts = dict(zip(found, made, strict=True))
        return [parts.get(each) for each in sources]
    return with_gradient(value, Custom(sources, pull)) if value.dtype.kind == "f" else value


_copies = itertools.count()


class _Choice:
    """How many calls of checkpointed functions are computed again: the first ones."""

    def __init__(self, count: int) -> None:
        self.count, self.met = count, 0

    def again(self) -> bool:
        """Whether the next call is among them."""
        self.met += 1
        return self.met <= self.count


class _Limits(threading.local):
    """The choices that are being tried in this thread."""

    def __init__(self) -> None:
        self.chosen: list[_Choice] = []


_limits = _Limits()


def checkpoint_within(function: Callable[..., Any], nbytes: int) -> Callable[..., Any]:
    """The same function, in which as few calls of checkpointed functions as possible are computed
    again: so few that the plan of its results keeps within so many bytes of temporaries.

    The first calls are computed again, since what they keep lives longest; how many, the planner
    tells. For arguments of new shapes, other arguments that are no tensors, or other settings it is
    asked some times, and the function is called as often: it has to write nothing.

    Args:
        function: returns tensors, in containers, that nothing has computed yet: a loss and its
            gradients.
        nbytes: the most bytes of temporaries that may live at a time.

    Raises:
        ArgumentError: when it is called, and there is no such plan.
    """
    known: dict[Any, int] = {}

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        key = _key_of(args, kwargs)
        if key in known:
            return _called(function, args, kwargs, known[key])[0]
        start = generator.counter

        def tried(count: int) -> tuple[Any, int, int]:
            generator.counter = start  # the call that counts draws what it would draw alone
            result, calls = _called(function, args, kwargs, count)
            return result, calls, _peak(result)
        _, calls, peak = tried(0)
        least, most = (0, 0) if peak <= nbytes else (1, calls)
        result, _, peak = tried(most)
        if peak > nbytes:  # r[impl transforms.checkpoint.within]
            raise ArgumentError("checkpoint_within", f"of {most} calls all are computed again, and "
                                f"{peak} bytes are needed for {nbytes}", "give a greater limit, or "
                                "checkpoint smaller parts")
        while least < most:
            middle = (least + most) // 2
            if tried(middle)[2] <= nbytes:
                most = middle
            else:
                least = middle + 1
        if key is not None:
            known[key] = most
        return tried(most)[0]
    return limited


def _key_of(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the count of a call depends on; None if that cannot be compared."""
    tree = Tree([list(args), kwargs])
    key = (tuple([(leaf.shape, leaf.dtype, leaf.device) for leaf in tree.leaves]), tree.key(),
           settings.plan_text())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _called(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
            count: int) -> tuple[Any, int]:
    """What a function gives if the first calls are computed again; and how many calls it has."""
    choice = _Choice(count)
    _limits.chosen.append(choice)
    try:
        with traced():
            return function(*args, **kwargs), choice.met
    finally:
        _limits.chosen.remove(choice)


def _peak(result: Any) -> int:
    """The bytes of temporaries in the plan of some results."""
    leaves = Tree(result).leaves
    if not leaves:
        return 0
    planned: int = leaves[0].schedule_document(*leaves[1:])["memory"]["planned"]
    return planned
