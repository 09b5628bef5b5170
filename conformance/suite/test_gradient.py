"""Derivatives, by statements `gradient` of the tier of that name.  Chapter: spec/gradient.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import Program
from conformance.protocol.shapes import view_shape
from conformance.runner.subject import Failure, Subject
from conformance.suite import after, verifies

#: Positive numbers, none twice, none where a function bends.
NUMBERS = np.array([[0.7, 1.3, 0.4], [1.9, 0.9, 1.6]], np.float32)
WEIGHTS = np.array([1.5, -0.5, 2.0, 0.25, -1.0, 0.75], np.float32)

Write = Callable[[Draft, str], str]


def _input(draft: Draft, array: protocol.Array) -> str:
    return draft.add("input", dtype=array.dtype.name, shape=list(array.shape),
                     data=protocol.encode(array))


def derivative(write: Write, numbers: protocol.Array = NUMBERS) -> Program:
    """The derivative of the weighted sum of what `write` makes of an input, t0."""
    draft = Draft()
    target = _input(draft, numbers.astype(np.float32))
    made = write(draft, target)
    shape = draft.kinds[made].shape
    weights = np.resize(WEIGHTS, shape).astype(np.float32)
    weighted = draft.add("mul", made, _input(draft, weights)) if weights.size else made
    total = draft.add("sum", weighted, axes=list(range(len(shape))), keepdims=False)
    draft.append({"do": "observe", "names": [draft.add("gradient", total, target)]})
    return protocol.program(draft.statements)


def _check(subject: Subject, write: Write, numbers: protocol.Array = NUMBERS) -> None:
    program = derivative(write, numbers)
    if subject.supports(program):
        subject.check_values(program)
    else:
        subject.skipped += 1


def _apply(do: str, **fields: Any) -> Write:
    return lambda draft, x: draft.add(do, x, **fields)


def _with_numbers(do: str, first: bool) -> Write:
    def write(draft: Draft, x: str) -> str:
        other = _input(draft, NUMBERS[::-1].copy())
        return draft.add(do, *((x, other) if first else (other, x)))
    return write


def _product(draft: Draft, x: str) -> str:
    other = _input(draft, NUMBERS.T.copy())
    return draft.add("matmul", draft.add("matmul", x, other), x)


def _chosen(draft: Draft, x: str) -> str:
    index = _input(draft, np.array([1, 0, 1, 1], np.int32))
    return draft.add("gather", x, index)


def _where(draft: Draft, x: str) -> str:
    return draft.add("where", draft.add("less", x, _input(draft, NUMBERS[::-1].copy())),
                     draft.add("exp", x), draft.add("neg", x))


FUNCTIONS: tuple[Write, ...] = (
    *map(_apply, ("neg", "abs", "relu", "exp", "log", "sqrt", "sin", "tanh", "reciprocal")),
    *(_with_numbers(do, first) for do in ("add", "sub", "mul", "div", "pow", "maximum", "minimum")
      for first in (True, False)),
    _apply("reshape", shape=[3, 2]), _apply("permute", order=[1, 0]), _apply("flip", axes=[1]),
    _apply("pad", widths=[[1, 0], [0, 2]]), _apply("shrink", bounds=[[0, 2], [1, 3]]),
    _apply("stride", steps=[1, 2]), _apply("sum", axes=[0], keepdims=False),
    _apply("mean", axes=[1], keepdims=True), _apply("prod", axes=[1], keepdims=False),
    _apply("max", axes=[1], keepdims=False), _apply("min", axes=[0], keepdims=False),
    _apply("softmax", axis=1), _apply("cumsum", axis=0), _apply("cumsum", axis=1),
    _product, _chosen, _where, _apply("contiguous"), _apply("copy"))


@verifies("gradient.value.derivative", observe="gradient")
def test_every_operation_has_its_derivative(subject: Subject) -> None:
    for write in FUNCTIONS:
        _check(subject, write)


@verifies("gradient.value.derivative", observe="gradient")
def test_chains_of_operations_have_theirs(subject: Subject) -> None:
    for then in FUNCTIONS[9:]:
        def write(draft: Draft, x: str, then: Write = then) -> str:
            return draft.add("tanh", then(draft, draft.add("sqrt", x)))
        _check(subject, write)


@verifies("gradient.walk.sum", observe="gradient")
def test_every_use_of_a_value_counts(subject: Subject) -> None:
    def square(draft: Draft, x: str) -> str:
        return draft.add("mul", x, x)

    def several(draft: Draft, x: str) -> str:
        both = draft.add("add", x, draft.add("sin", x))
        return draft.add("mul", draft.add("div", both, x), draft.add("sub", both, x))

    for write in (square, several):
        _check(subject, write)


@verifies("gradient.broadcast.sum", observe="gradient")
def test_the_derivatives_of_what_is_repeated_are_added(subject: Subject) -> None:
    for shape, wider in (((1, 3), [4, 3]), ((2, 1), [2, 5]), ((1, 1), [3, 2])):
        _check(subject, _apply("expand", shape=wider), np.resize(NUMBERS, shape))


@verifies("gradient.product.zero", observe="gradient")
def test_products_with_zeros(subject: Subject) -> None:
    for numbers in ([[2, 0, 3]], [[0, 0, 4]], [[0, 0, 0]], [[1, 2, 0], [3, 0, 5]]):
        _check(subject, _apply("prod", axes=[1], keepdims=False), np.array(numbers, np.float32))


@verifies("gradient.value.derivative", observe="gradient")
def test_powers_of_zero(subject: Subject) -> None:
    """By the exponent, which is above zero: near it the power stays zero."""
    bases = np.array([[0, 2, 0], [1, 0.5, 0]], np.float32)

    def power(draft: Draft, x: str) -> str:
        return draft.add("pow", _input(draft, bases), x)

    _check(subject, power)


@verifies("gradient.value.derivative", observe="gradient")
def test_derivatives_of_what_is_stored_through_movements(subject: Subject) -> None:
    """Of the value that is stored, and of what it is stored to: turned, in part, every second."""
    views: list[list[dict[str, Any]]] = [
        [{"do": "flip", "axes": [0]}], [{"do": "flip", "axes": [0, 1]}],
        [{"do": "shrink", "bounds": [[0, 2], [1, 3]]}, {"do": "flip", "axes": [1]}],
        [{"do": "permute", "order": [1, 0]}, {"do": "flip", "axes": [0]}],
        [{"do": "stride", "steps": [1, 2]}], [{"do": "flip", "axes": [1]},
                                              {"do": "stride", "steps": [2, 2]}],
        [{"do": "reshape", "shape": [9]}, {"do": "flip", "axes": [0]},
         {"do": "shrink", "bounds": [[1, 8]]}]]
    numbers = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    for view in views:
        region = view_shape((3, 3), view)

        def stored(draft: Draft, x: str, view: list[dict[str, Any]] = view) -> str:
            base = draft.add("neg", _input(draft, numbers))
            draft.append({"do": "store", "target": base, "from": [draft.add("mul", x, x)],
                          "view": view})
            return base

        def under(draft: Draft, x: str, view: list[dict[str, Any]] = view,
                  region: tuple[int, ...] = region) -> str:
            base = draft.add("mul", x, x)
            draft.append({"do": "store", "target": base, "view": view, "from": [
                _input(draft, np.full(region, 2, np.float32))]})
            return base

        _check(subject, stored, np.resize(numbers, region))
        _check(subject, under, numbers)


@verifies("gradient.realized.keeps+2", observe="gradient")
def test_derivatives_go_through_what_was_realized(subject: Subject) -> None:
    for do in ("sin", "exp"):
        def write(draft: Draft, x: str, do: str = do) -> str:
            known = draft.add(do, x)
            draft.append({"do": "realize", "names": [x, known]})
            further = draft.add("mul", known, known)
            draft.append({"do": "realize", "names": [further]})
            return draft.add("add", further, x)
        _check(subject, write)


@verifies("gradient.empty.reached", observe="gradient")
def test_derivatives_through_sums_of_nothing(subject: Subject) -> None:
    def nothing(draft: Draft, x: str) -> str:
        return draft.add("sum", draft.add("shrink", x, bounds=[[0, 2], [1, 1]]), axes=[1],
                         keepdims=False)

    _check(subject, nothing)
    _check(subject, _apply("sum", axes=[1], keepdims=False), np.zeros((2, 0), np.float32))


@verifies("gradient.seed.scalar", observe="gradient")
@after("gradient.value.derivative")
def test_a_value_of_several_numbers_has_no_derivative(subject: Subject) -> None:
    """In the tier `errors` too, since this program has no meaning."""
    program = derivative(_apply("sin"))
    *statements, gradient, observe = program["statements"]
    wrong = {**gradient, "from": [statements[1]["to"], gradient["from"][1]]}
    program = protocol.program([*statements, wrong, observe])
    subject.examples += 1
    try:
        subject.adapter.run(program, {"values"}, {})
    except protocol.ProtocolError:
        raise
    except Exception:  # whatever it is: that is its affair
        return
    raise Failure("six numbers have no one derivative, and were given one", program)
