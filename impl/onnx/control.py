"""Control flow, sequences of tensors, and values that may be missing."""
from __future__ import annotations

import math
from typing import Any

from impl.host import np
from impl.onnx.movement import positive
from impl.onnx.operators import Host, ModelError, Value, host_array, ints, operator, tensor_of
from impl.tensor import Tensor

#: A loop that has not ended after so many turns is an error.
_MOST_TURNS = 1 << 20


@operator("If")
def choice(condition: Host, *, then_branch: Any, else_branch: Any) -> Any:
    return tuple((then_branch if condition.item() else else_branch)())


@operator("Loop")
def turns_of_body(most: Host | None, condition: Host | None, *carried: Value, body: Any,
                  results: int = 1) -> Any:
    """As many turns as the number and the condition allow: a condition that is a tensor is
    computed after each turn.
    """
    count: float = math.inf if most is None else int(most.item())
    goes_on = condition is None or bool(condition.item())
    states: list[Value] = list(carried)
    scanned: list[list[Tensor]] = [[] for _ in range(results - len(carried))]
    turn = 0
    while goes_on and turn < count:
        if turn >= _MOST_TURNS:
            raise ModelError("Loop", f"it has not ended after {turn} turns",
                             "let its condition, or the number of turns, end it before")
        after, *found = body(np.array(turn, np.int64), np.array(True), *states)
        goes_on = bool(host_array(after).item())
        states, rows = found[:len(states)], found[len(states):]
        for rows_so_far, row in zip(scanned, rows, strict=False):
            rows_so_far.append(tensor_of(row))
        turn += 1
    empty = [Tensor.zeros(0)] * len(scanned)
    return (*states, *(Tensor.stack(*rows) if rows else none
                       for rows, none in zip(scanned, empty, strict=True)))


@operator("Scan", 9)
def scan(*given: Tensor, body: Any, num_scan_inputs: int, results: int = 1,
         scan_input_axes: list[int] | None = None, scan_input_directions: list[int] | None = None,
         scan_output_axes: list[int] | None = None,
         scan_output_directions: list[int] | None = None) -> Any:
    """One turn for each place along the scanned axes."""
    count = len(given) - num_scan_inputs
    states: list[Value] = list(given[:count])
    axes = scan_input_axes or [0] * num_scan_inputs
    back = scan_input_directions or [0] * num_scan_inputs
    rows = [each.movedim(axis, 0) for each, axis in zip(given[count:], axes, strict=True)]
    rows = [each.flip(0) if turned else each for each, turned in zip(rows, back, strict=True)]
    made: list[list[Tensor]] = [[] for _ in range(results - count)]
    for turn in range(rows[0].shape[0]):
        found = body(*states, *(each[turn] for each in rows))
        states = found[:count]
        for so_far, row in zip(made, found[count:], strict=True):
            so_far.append(tensor_of(row))
    out_axes = scan_output_axes or [0] * len(made)
    out_back = scan_output_directions or [0] * len(made)
    stacked = [Tensor.stack(*each[::-1] if turned else each).movedim(
        0, axis % (each[0].ndim + 1)) for each, axis, turned
        in zip(made, out_axes, out_back, strict=True)]
    return (*states, *stacked)


@operator("Scan", 8)
def scan_8(lengths: Value, *given: Tensor, body: Any, num_scan_inputs: int, results: int = 1,
           directions: list[int] | None = None) -> Any:
    """Each example of a batch alone."""
    batches = []
    for place in range(given[0].shape[0]):
        batches.append(scan(*(each[place] for each in given), body=body, results=results,
                            num_scan_inputs=num_scan_inputs, scan_input_directions=directions))
    return tuple(Tensor.stack(*map(tensor_of, each)) for each in zip(*batches, strict=True))


# Sequences


@operator("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> Value:
    return ([],)


@operator("SequenceConstruct")
def sequence_construct(*given: Tensor) -> Value:
    return (list(given),)


@operator("SequenceAt")
def sequence_at(given: Value, place: Host) -> Value:
    return given[positive(int(place.item()), len(given))]


@operator("SequenceInsert")
def sequence_insert(given: Value, one: Tensor, place: Host | None = None) -> Value:
    found = list(given)
    at = len(found) if place is None else int(place.item())
    found.insert(at + len(found) if at < 0 else at, one)
    return (found,)


@operator("SequenceErase")
def sequence_erase(given: Value, place: Host | None = None) -> Value:
    at = positive(-1 if place is None else int(place.item()), len(given))
    return ([*given[:at], *given[at + 1:]],)


@operator("SequenceLength")
def sequence_length(given: Value) -> np.ndarray:
    return np.array(len(given), np.int64)


@operator("ConcatFromSequence")
def concat_from_sequence(given: Value, *, axis: int, new_axis: int = 0) -> Tensor:
    if new_axis:
        return Tensor.stack(*given, dim=axis % (given[0].ndim + 1))
    return given[0].cat(*given[1:], dim=axis) if len(given) > 1 else given[0]


@operator("SplitToSequence")
def split_to_sequence(x: Tensor, sizes: Host | None = None, *, axis: int = 0,
                      keepdims: int = 1) -> Value:
    axis = positive(axis, x.ndim)
    whole = x.shape[axis]
    if sizes is None:
        parts = x.split(1, axis)
        return ([each if keepdims else each.squeeze(axis) for each in parts],)
    return (list(x.split(ints(sizes) if sizes.ndim else min(int(sizes.item()), whole), axis)),)


@operator("SequenceMap")
def sequence_map(given: Value, *more: Value, body: Any, results: int = 1) -> Value:
    rows = [body(one, *(each[place] if isinstance(each, list) else each for each in more))
            for place, one in enumerate(given)]
    return tuple([tensor_of(row[place]) for row in rows] for place in range(results))


# What may be missing


@operator("Optional")
def optional(given: Value = None, *, type: Any = None) -> Value:
    return (given,)


@operator("OptionalHasElement")
def optional_has_element(given: Value = None) -> np.ndarray:
    return np.array(given is not None)


@operator("OptionalGetElement")
def optional_get_element(given: Value) -> Value:
    return (given,)


