"""What is captured once and replayed does what running it afresh would do.  Chapter:
spec/replay.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, product
from typing import Any

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program, Statement
from conformance.runner.subject import Failure, Refused, Subject
from conformance.suite import after, verifies


@verifies("replay.state.eager", observe="replay")
@after("effects.value.eager")
def test_states_advance_at_every_replay(subject: Subject) -> None:
    subject.for_programs(lambda program: _check(subject, program), rule="replay.state.eager",
                         share=0.1)
    subject.for_programs(lambda program: _check(subject, programs.repeated(program)),
                         rule="effects.value.eager", share=0.5)


@verifies("replay.state.eager", observe="replay")
def test_a_state_that_nobody_returns_advances(subject: Subject) -> None:
    """The body assigns, and hands out nothing; with and without computing it at once."""
    draft = Draft()
    state = draft.add("input", dtype="float32", shape=[2], data="0000803f00000040")
    body: list[Statement] = [{"do": "add", "to": "next", "from": [state, state]},
                             {"do": "assign", "target": state, "from": ["next"]}]
    for last in ([], [{"do": "realize", "names": [state]}]):
        repeat = {"do": "repeat", "count": 5, "statements": [*body, *last]}
        subject.check_whole(protocol.program([*draft.statements, repeat,
                                              {"do": "observe", "names": [state]}]), "replay")


@verifies("replay.outputs.distinct", observe="replay")
@after("effects.value.eager")
def test_outputs_that_are_held_keep_their_values(subject: Subject) -> None:
    """In this tier the values observed in a `repeat` are read after its last iteration."""
    subject.for_programs(lambda program: _check(subject, program),
                         rule="replay.outputs.distinct", share=0.1)


def _check(subject: Subject, program: Program) -> None:
    subject.check_values(program, "replay")


def called(inputs: int, given: Sequence[dict[str, Any]], nested: int,
           body: Sequence[Statement], watched: bool = False) -> Program:
    """Inputs t0, t1, ... and calls of a body: its last result, or with `watched` all of them."""
    draft = Draft()
    for number in range(inputs):
        array = programs.pattern("float32", (2,), number)
        draft.add("input", dtype="float32", shape=[2], data=protocol.encode(array))
    observe = {"do": "observe", "names": [body[-1]["to"]]}
    calls = {"do": "calls", "given": list(given), "nested": nested,
             "statements": [*body, *([observe] if watched else [])]}
    return protocol.program([*draft.statements, calls, *([] if watched else [observe])])


def _right_or_refused(subject: Subject, program: Program) -> None:
    try:
        subject.check_whole(program, "replay")
    except Refused:
        pass


GIVEN: list[dict[str, Any]] = [{"x": name} for name in ("t0", "t0", "t1", "t2", "t1")]
NEGATE: list[Statement] = [{"do": "neg", "to": "out", "from": ["x"]}]


@verifies("replay.outputs.distinct", observe="replay")
def test_results_of_several_calls_are_several_values(subject: Subject) -> None:
    subject.check_whole(called(3, GIVEN, 0, NEGATE, watched=True), "replay")


@verifies("replay.arguments.call", observe="replay")
def test_numbers_among_the_arguments_are_those_of_the_call(subject: Subject) -> None:
    """The same number in each call, and then another one."""
    constant: Statement = {"do": "constant", "to": "c", "dtype": "float32",
                           "shape": [2], "value": {"given": "k"}}
    body: list[Statement] = [constant, {"do": "mul", "to": "out", "from": ["t0", "c"]}]
    for numbers in ([2, 2, 2, 2], [2, 3, 4, 5], [0.5, 0.5, 0.5, 1.5], [1, 1, 1, -1]):
        _right_or_refused(subject, called(1, [{"k": each} for each in numbers], 0, body))


@verifies("replay.guard.complete", observe="replay")
def test_numbers_that_a_body_reads_from_outside(subject: Subject) -> None:
    """They change between calls, and some come again: from a mapping, an object, a variable."""
    constant: Statement = {"do": "constant", "to": "c", "dtype": "float32",
                           "shape": [2], "value": {"given": "k"}}
    body: list[Statement] = [constant, {"do": "mul", "to": "out", "from": ["x", "c"]}]
    for kind, numbers in (("item", [2, 2, 2, 3, 3, 2]), ("attribute", [1, 2, 1, 2, -0.5]),
                          ("cell", [2, 2, 2, 3])):
        program = called(2, [{"k": each, "x": f"t{place % 2}"}
                             for place, each in enumerate(numbers)], 0, body, watched=True)
        next(each for each in program["statements"] if each["do"] == "calls")["outside"] = kind
        subject.check_whole(program, "replay")


@verifies("replay.gradient.eager", observe="replay")
def test_gradients_of_what_calls_returned(subject: Subject) -> None:
    """By an argument of the last call, and by a tensor from outside."""
    square: Statement = {"do": "mul", "to": "y", "from": ["x", "x"]}
    body: list[Statement] = [square, {"do": "mul", "to": "out", "from": ["y", "t0"]}]
    for target in ("t1", "t0"):
        *statements, observe = called(3, GIVEN, 0, body)["statements"]
        total: Statement = {"do": "sum", "to": "total", "from": ["out"], "axes": [0],
                            "keepdims": False}
        gradient: Statement = {"do": "gradient", "to": "slope", "from": ["total", target]}
        program = protocol.program([*statements, total, gradient, observe,
                                    {"do": "observe", "names": ["slope"]}])
        if subject.supports(program):
            _right_or_refused(subject, program)
        else:
            subject.skipped += 1


@verifies("replay.arguments.call", observe="replay")
def test_tensors_in_containers_are_those_of_the_call(subject: Subject) -> None:
    for nested in range(4):
        _right_or_refused(subject, called(3, GIVEN, nested, NEGATE))


# What a body does to what is outside of it ----------------------------------------------------


def _around(before: Sequence[Statement], body: Sequence[Statement], after_it: Sequence[Statement],
            count: int = 8) -> Program:
    """Realized inputs t0, t1, t2 of four elements; statements around a repeated body."""
    draft = Draft()
    for number in range(3):
        array = programs.pattern("float32", (4,), number)
        draft.add("input", dtype="float32", shape=[4], data=protocol.encode(array))
    draft.append({"do": "realize", "names": ["t0", "t1", "t2"]})
    return protocol.program([*draft.statements, *before,
                             {"do": "repeat", "count": count, "statements": list(body)}, *after_it])


ADVANCE: list[Statement] = [{"do": "add", "to": "next", "from": ["t0", "t1"]},
                            {"do": "assign", "target": "t0", "from": ["next"]}]


def _shown(*names: str) -> list[Statement]:
    return [{"do": "observe", "names": list(names)}]


@verifies("replay.effects.all", observe="replay")
@after("effects.value.eager")
def test_every_write_of_a_body_happens_at_each_call(subject: Subject) -> None:
    """An assign, a write to a part, and one to what another value is then computed from."""
    region = [{"do": "shrink", "bounds": [[1, 3]]}]
    body = [*ADVANCE, {"do": "shrink", "to": "part", "from": ["t0"], "bounds": [[0, 2]]},
            {"do": "store", "target": "t1", "view": region, "from": ["part"]},
            {"do": "maximum", "to": "top", "from": ["t1", "t2"]},
            {"do": "assign", "target": "t2", "from": ["top"]}]
    for count in (1, 2, 3, 6):
        subject.check_whole(_around([], body, _shown("t0", "t1", "t2"), count), "replay")


@verifies("replay.state.parted", observe="replay")
@after("effects.value.eager")
def test_states_that_began_as_one_value_part(subject: Subject) -> None:
    same: list[Statement] = [{"do": "assign", "target": "t2", "from": ["t0"]}]
    for realized in ([], [{"do": "realize", "names": ["t0", "t2"]}]):
        program = _around([*same, *realized], ADVANCE, _shown("t0", "t2"))
        _right_or_refused(subject, program)


@verifies("replay.state.parted", observe="replay")
@after("effects.value.eager")
def test_arguments_that_began_as_the_value_of_the_state(subject: Subject) -> None:
    """What is only another form of what the body reads, and changes or not, is an argument: before
    others are, or after them."""
    forms: list[Statement] = [{"do": "reshape", "to": "same", "from": ["t0"], "shape": [4]},
                              {"do": "reshape", "to": "other", "from": ["t0"], "shape": [4]},
                              {"do": "realize", "names": ["same", "other"]}]
    reads: list[Statement] = [{"do": "sub", "to": "out", "from": ["x", "t0"]}, *_shown("out")]
    changes: list[Statement] = [*reads, {"do": "assign", "target": "t0", "from": ["out"]}]
    first, later = ("same", "same", "same", "t1", "other"), ("t1", "t1", "t1", "same", "other")
    for body, order in ((reads, first), (changes, first), (changes, later)):
        *statements, _ = _around(forms, [], [], 0)["statements"]
        calls: Statement = {"do": "calls", "given": [{"x": name} for name in order], "nested": 0,
                            "statements": body}
        _right_or_refused(subject, protocol.program(
            [*statements, calls, *_shown("same", "other", "t0")]))


@verifies("replay.capture.whole", observe="replay")
@after("effects.value.eager")
def test_what_was_computed_before_is_computed_at_each_call(subject: Subject) -> None:
    """The body computes what is there already, and then changes what it is made of."""
    before: list[Statement] = [{"do": "add", "to": "known", "from": ["t0", "t1"]},
                               {"do": "realize", "names": ["known"]}]
    body = [*ADVANCE, {"do": "copy", "to": "seen", "from": ["next"]}, *_shown("seen")]
    subject.check_whole(_around(before, body, _shown("known", "t0")), "replay")


@verifies("replay.pending.before", observe="replay")
@after("effects.value.eager")
def test_what_was_pending_before_happens_once(subject: Subject) -> None:
    pending: list[Statement] = [{"do": "mul", "to": "twice", "from": ["t0", "t1"]},
                                {"do": "assign", "target": "t0", "from": ["twice"]}]
    subject.check_whole(_around(pending, ADVANCE, _shown("t0", "t1")), "replay")


@verifies("replay.readers.kept", observe="replay")
@after("effects.value.eager")
def test_who_read_a_state_before_its_calls_keeps_what_it_meant(subject: Subject) -> None:
    for do in ("neg", "copy"):
        reader: list[Statement] = [{"do": do, "to": "before", "from": ["t0"]}]
        for count in (2, 3, 5):
            subject.check_whole(_around(reader, ADVANCE, _shown("before", "t0"), count), "replay")
    several: list[Statement] = [{"do": "neg", "to": "a", "from": ["t0"]},
                                {"do": "flip", "to": "b", "from": ["t0"], "axes": [0]},
                                {"do": "mul", "to": "c", "from": ["t0", "t2"]},
                                {"do": "sub", "to": "d", "from": ["b", "t0"]}]
    for readers in (several, several[::-1][1:]):
        names = [each["to"] for each in readers]
        subject.check_whole(_around(readers, ADVANCE, _shown(*names, "t0"), 4), "replay")


@verifies("replay.readers.kept", observe="replay")
@verifies("replay.guard.complete", observe="replay")
@after("effects.value.eager")
def test_what_is_done_between_the_calls_of_one_body(subject: Subject) -> None:
    """One body stands in the program several times.  Between, somebody reads the state and is
    looked at in the end, writes to it or to what the body reads, or makes another value of that
    name."""
    def times(count: int) -> Statement:
        return {"do": "repeat", "count": count, "statements": ADVANCE}

    late: list[Statement] = [{"do": "neg", "to": "a", "from": ["t0"]}, times(1),
                             {"do": "reshape", "to": "b", "from": ["t0"], "shape": [4]}, times(2)]
    written: list[Statement] = [
        {"do": "flip", "to": "c", "from": ["t0"], "axes": [0]},
        {"do": "assign", "target": "t0", "from": ["t2"]}, times(2),
        {"do": "shrink", "to": "part", "from": ["t0"], "bounds": [[0, 2]]},
        {"do": "store", "target": "t1", "from": ["part"],
         "view": [{"do": "shrink", "bounds": [[1, 3]]}]}, times(2)]
    other: list[Statement] = [{"do": "copy", "to": "d", "from": ["t0"]},
                              {"do": "add", "to": "t1", "from": ["t1", "t2"]}, times(3)]
    for between, names in ((late, "ab"), ([*written, *other], "cd")):
        subject.check_whole(_around([], ADVANCE, [*between, *_shown(*names, "t0", "t1")], 3),
                            "replay")


@verifies("replay.output.own+2", observe="replay")
@after("effects.value.eager")
def test_a_write_to_a_result_reaches_nothing_else(subject: Subject) -> None:
    for do, fields in (("reshape", {"shape": [4]}), ("copy", {}), ("contiguous", {}),
                       ("flip", {"axes": [0]}), ("neg", {})):
        body: list[Statement] = [{"do": do, "to": "out", "from": ["t0"], **fields}]
        write: list[Statement] = [{"do": "assign", "target": "out", "from": ["t2"]}]
        subject.check_whole(_around([], body, [*write, *_shown("out", "t0", "t2")]), "replay")


@verifies("replay.output.fresh", observe="replay")
@after("effects.value.eager")
def test_each_call_has_memory_of_its_own_for_its_results(subject: Subject) -> None:
    """Forty results, all looked at after the last call; others of their size between them."""
    given = [{"x": f"t{number % 3}"} for number in range(40)]
    body: list[Statement] = [{"do": "add", "to": "twice", "from": ["x", "x"]},
                             {"do": "neg", "to": "out", "from": ["twice"]}]
    for nested, calls in ((0, 40), (1, 10)):
        _right_or_refused(subject, called(3, given[:calls], nested, body, watched=True))


@verifies("replay.guard.state", observe="replay")
@after("effects.value.eager")
def test_an_argument_that_is_also_the_state(subject: Subject) -> None:
    body: list[Statement] = [{"do": "add", "to": "out", "from": ["x", "t0"]},
                             {"do": "assign", "target": "t0", "from": ["out"]},
                             {"do": "neg", "to": "shown", "from": ["out"]}]
    for names in (("t1", "t1", "t2", "t1"), ("t1", "t1", "t0", "t1"),
                  ("t0", "t0", "t1", "t0"), ("t1", "t2", "t0", "t0")):
        _right_or_refused(subject, called(3, [{"x": name} for name in names], 0, body))


# Calls of every sort ---------------------------------------------------------------------------


COMBINED: list[Statement] = [{"do": "sub", "to": "part", "from": ["x", "y"]},
                             {"do": "mul", "to": "out", "from": ["part", "x"]}]


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_arguments_that_are_swapped_and_arguments_that_are_one(subject: Subject) -> None:
    """What was captured with two tensors is called with one, and the other way round."""
    for pairs in (("01", "01", "10", "00", "11", "02", "20", "12"),
                  ("00", "00", "01", "10", "11", "22", "02", "20")):
        given = [{"x": f"t{one}", "y": f"t{other}"} for one, other in pairs]
        for start in range(2, len(given)):
            _right_or_refused(subject, called(3, [*given[:2], given[start]], 0, COMBINED, True))


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_the_third_argument_is_that_of_the_call(subject: Subject) -> None:
    body = [*COMBINED[:1], {"do": "add", "to": "out", "from": ["part", "z"]}]
    given = [{"x": f"t{a}", "y": f"t{b}", "z": f"t{c}"}
             for a, b, c in ("012", "012", "013", "210", "301", "123")]
    _right_or_refused(subject, called(4, given, 0, body, watched=True))


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_a_state_advances_at_many_calls(subject: Subject) -> None:
    """Twenty calls; and then others of the same body, after the state got another value."""
    repeat: Statement = {"do": "repeat", "count": 20, "statements": ADVANCE}
    again: list[Statement] = [{"do": "assign", "target": "t0", "from": ["t2"]},
                              {**repeat, "count": 4}, *_shown("t0", "t1")]
    subject.check_whole(_around([], ADVANCE, [*_shown("t0"), *again], 20), "replay")


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_two_functions_with_the_same_names(subject: Subject) -> None:
    """Each is captured and replayed, one after the other and the first once more."""
    bodies = [[{"do": do, "to": "next", "from": ["t0", "t1"]}, ADVANCE[1]]
              for do in ("add", "sub", "maximum", "add")]
    rest: list[Statement] = [{"do": "repeat", "count": 4, "statements": body}
                             for body in bodies[1:]]
    subject.check_whole(_around([], bodies[0], [*rest, *_shown("t0", "t1")], 4), "replay")


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_two_functions_that_differ_in_one_thing(subject: Subject) -> None:
    """In a constant, in the order of operands, in an axis."""
    def body(value: float = 0.5, names: Sequence[str] = ("scaled", "t1"),
             axes: Sequence[int] = (0,)) -> list[Statement]:
        return [{"do": "constant", "to": "c", "dtype": "float32", "shape": [4], "value": value},
                {"do": "mul", "to": "scaled", "from": ["t0", "c"]},
                {"do": "sub", "to": "part", "from": list(names)},
                {"do": "reshape", "to": "square", "from": ["part"], "shape": [2, 2]},
                {"do": "flip", "to": "turned", "from": ["square"], "axes": list(axes)},
                {"do": "reshape", "to": "next", "from": ["turned"], "shape": [4]},
                {"do": "assign", "target": "t2", "from": ["next"]}]

    for changed in (body(value=0.75), body(names=("t1", "scaled")), body(axes=(1,))):
        again: Statement = {"do": "repeat", "count": 3, "statements": changed}
        subject.check_whole(_around([], body(), [again, *_shown("t1", "t2")], 3), "replay")


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_a_call_after_others_of_another_kind(subject: Subject) -> None:
    """Another dtype, and as many elements in rows of another length: in the calls of one body."""
    draft = Draft()
    kinds = [("float32", (2, 3)), ("int32", (2, 3)), ("float32", (3, 2)), ("float32", (6,))]
    names = [draft.add("input", dtype=dtype, shape=list(shape), data=protocol.encode(
        programs.pattern(dtype, shape, 1))) for dtype, shape in kinds]
    names.append(draft.add("flip", names[0], axes=[0]))
    names.append(draft.add("flip", names[0], axes=[1]))
    body: list[Statement] = [{"do": "add", "to": "twice", "from": ["x", "x"]},
                             {"do": "neg", "to": "out", "from": ["twice"]}, *_shown("out")]
    for order in ((0, 0, 1, 0), (0, 0, 2, 3), (4, 4, 4, 5, 4), (1, 1, 0, 2)):
        _right_or_refused(subject, protocol.program([*draft.statements, {
            "do": "calls", "nested": 0, "statements": body,
            "given": [{"x": names[number]} for number in order]}]))


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_arguments_that_are_moved(subject: Subject) -> None:
    """An input, the same turned round, every second of another one; and once more each."""
    draft = Draft()
    names = [draft.add("input", dtype="int32", shape=[size], data=protocol.encode(
        programs.pattern("int32", (size,), size))) for size in (3, 6, 6)]
    names += [draft.add("flip", names[0], axes=[0]), draft.add("stride", names[1], steps=[2]),
              draft.add("shrink", names[2], bounds=[[1, 4]]),
              draft.add("flip", draft.add("shrink", names[2], bounds=[[3, 6]]), axes=[0])]
    order = [0, 0, 3, 4, 5, 6, 3, 0, 4]
    body = [{"do": "add", "to": "twice", "from": ["x", "x"]},
            {"do": "sub", "to": "out", "from": ["twice", names[0]]}, *_shown("out")]
    for chosen in (order, [3, 3, 0, 4], [4, 4, 6, 5, 0]):
        _right_or_refused(subject, protocol.program([*draft.statements, {
            "do": "calls", "nested": 0, "statements": body,
            "given": [{"x": names[number]} for number in chosen]}]))


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_one_body_for_arguments_of_several_kinds(subject: Subject) -> None:
    """The same statements, captured for one shape and dtype and then for others."""
    draft, calls = Draft(), list[Statement]()
    kinds = [("float32", (4,)), ("float32", (2, 2)), ("int32", (4,)), ("float32", (5,))]
    for dtype, shape in [*kinds, *kinds[:2]]:
        name = draft.add("input", dtype=dtype, shape=list(shape), data=protocol.encode(
            programs.pattern(dtype, shape, 1)))
        calls.append({"do": "calls", "given": [{"x": name}] * 4, "nested": 0,
                      "statements": [*NEGATE, *_shown("out")]})
    _right_or_refused(subject, protocol.program([*draft.statements, *calls]))


@verifies("replay.outputs.distinct", observe="replay")
@after("effects.value.eager")
def test_numbers_that_a_body_brings_and_writes_to(subject: Subject) -> None:
    """They begin anew in each call, also where what was made of them, and written to, is kept."""
    array = programs.pattern("float32", (4,), 5)
    brought: Statement = {"do": "input", "to": "brought", "dtype": "float32", "shape": [4],
                          "data": protocol.encode(array)}
    region = [{"do": "shrink", "bounds": [[1, 3]]}]
    part: Statement = {"do": "shrink", "to": "part", "from": ["t1"], "bounds": [[0, 2]]}
    whole: list[Statement] = [{"do": "add", "to": "next", "from": ["brought", "t0"]},
                              {"do": "assign", "target": "brought", "from": ["next"]}]
    some: list[Statement] = [part, {"do": "add", "to": "more", "from": ["part", "part"]},
                             {"do": "store", "target": "brought", "view": region,
                              "from": ["more"]}]
    later: list[Statement] = [{"do": "assign", "target": "brought", "from": ["t2"]},
                              *_shown("brought", "t0")]
    for writes in ([], whole, some):
        body = [brought, *writes, *_shown("brought"), *ADVANCE]
        _right_or_refused(subject, _around([], body, later, 4))


@verifies("replay.output.own+2", observe="replay")
@after("effects.value.eager")
def test_results_that_are_moved_several_times(subject: Subject) -> None:
    """Of what was computed, and of a state that the next call overwrites."""
    steps: list[Statement] = [{"do": "reshape", "shape": [2, 2]},
                              {"do": "permute", "order": [1, 0]}, {"do": "flip", "axes": [0]},
                              {"do": "shrink", "bounds": [[0, 2], [1, 2]]}]
    for source in ("next", "t0"):
        body, name = list(ADVANCE), source
        for number, step in enumerate(steps):
            body.append({**step, "to": f"m{number}", "from": [name]})
            name = f"m{number}"
        subject.check_whole(_around([], body, _shown("m0", "m1", "m2", "m3", "t0")), "replay")


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_many_numbers_among_the_arguments(subject: Subject) -> None:
    body: list[Statement] = [{"do": "constant", "to": "c", "dtype": "float32", "shape": [2],
                              "value": {"given": "k"}},
                             {"do": "mul", "to": "out", "from": ["t0", "c"]}]
    given = [{"k": number} for number in (2, 2, 3, 5, 7, 0.5, -1, 2, 11, 3,
                                        1.2345678, 1.2345679, 256.0, 0.0, -0.25)]
    _right_or_refused(subject, called(1, given, 0, body, watched=True))
    signs: list[Statement] = [body[0], {"do": "bitcast", "to": "out", "from": ["c"],
                                        "dtype": "int32"}]  # zeros differ in their bits
    given = [{"k": number} for number in (0.0, 0.0, 0.0, -0.0, -0.0, 0.0, -0.0)]
    _right_or_refused(subject, called(1, given, 0, signs, watched=True))


@verifies("replay.arguments.call", observe="replay")
def test_numbers_of_a_double_among_the_arguments(subject: Subject) -> None:
    """They have more digits than a single; and whole numbers that no single holds."""
    for dtype, numbers in (("float64", [0.1, 1 / 3, 1 + 2.0**-40, 1e300, -0.7, 5e-324, 0.1]),
                           ("int64", [2**53 + 1, 3, -(2**62) - 1, 2**40 + 7, 2**53 + 1]),
                           ("int32", [2**24 + 1, -(2**31), 7, 2**30 + 3, 2**24 + 1])):
        draft = Draft()
        x = draft.add("input", dtype=dtype, shape=[3],
                      data=protocol.encode(programs.pattern(dtype, (3,), 1)))
        body: list[Statement] = [{"do": "constant", "to": "c", "dtype": dtype, "shape": [3],
                                  "value": {"given": "k"}},
                                 {"do": "add", "to": "out", "from": [x, "c"]},
                                 {"do": "observe", "names": ["out"]}]
        calls: Statement = {"do": "calls", "given": [{"k": each} for each in numbers], "nested": 0,
                            "statements": body}
        program = protocol.program([*draft.statements, calls])
        if subject.supports(program):
            _right_or_refused(subject, program)
        else:
            subject.skipped += 1


@verifies("replay.arguments.call", observe="replay")
def test_which_of_three_arguments_are_one(subject: Subject) -> None:
    """All three, two of them, neighbours or not, none: the second pattern after the first."""
    patterns = ((0, 1, 0), (0, 1, 2), (0, 0, 1), (1, 0, 0), (2, 2, 2))
    body: list[Statement] = [{"do": "sub", "to": "a", "from": ["x", "y"]},
                             {"do": "mul", "to": "b", "from": ["a", "z"]},
                             {"do": "add", "to": "out", "from": ["b", "x"]}]
    for place, first in enumerate(patterns):
        second = patterns[(place + 1) % len(patterns)]
        given = [{name: f"t{number}" for name, number in zip("xyz", each, strict=True)}
                 for each in (first, first, first, second, second, second, first)]
        _right_or_refused(subject, called(3, given, 0, body, watched=True))


@verifies("replay.arguments.call", observe="replay")
def test_one_body_for_arguments_of_several_lengths(subject: Subject) -> None:
    """Of one axis and of two, of one element and of none; each length comes several times."""
    for shapes in (((2,), (5,), (2,), (1,), (0,)), ((2, 3), (3, 2), (1, 6), (6, 1), (0, 3))):
        draft = Draft()
        names = [draft.add("input", dtype="float32", shape=list(shape), data=protocol.encode(
            programs.pattern("float32", shape, number))) for number, shape in enumerate(shapes)]
        body: list[Statement] = [{"do": "flip", "to": "y", "from": ["x"], "axes": [0]},
                                 {"do": "sub", "to": "out", "from": ["y", "x"]},
                                 {"do": "observe", "names": ["out"]}]
        statements = list(draft.statements)
        for name in names * 2:  # calls of one form have arguments of one kind
            statements.append({"do": "calls", "given": [{"x": name}] * 3, "nested": 0,
                               "statements": body})
        _right_or_refused(subject, protocol.program(statements))


@verifies("replay.readers.kept", observe="replay")
@after("effects.value.eager")
def test_each_of_several_states_has_somebody_who_read_it(subject: Subject) -> None:
    """They wait or are another name of it, and the body changes all three states."""
    body = [*ADVANCE, {"do": "sub", "to": "less", "from": ["t1", "t0"]},
            {"do": "assign", "target": "t1", "from": ["less"]},
            {"do": "maximum", "to": "top", "from": ["t2", "t1"]},
            {"do": "assign", "target": "t2", "from": ["top"]}]
    forms: list[dict[str, Any]] = [{"do": "reshape", "shape": [2, 2]}, {"do": "neg"},
                                   {"do": "flip", "axes": [0]}]
    for form in forms:
        readers = [{**form, "to": f"before{n}", "from": [f"t{n}"]} for n in range(3)]
        again = [{**form, "to": f"late{n}", "from": [f"t{n}"]} for n in range(3)]
        once: Statement = {"do": "repeat", "count": 3, "statements": body}
        names = [each["to"] for each in (*readers, *again)]
        subject.check_whole(_around(readers, body, [
            *again, once, *_shown(*names, "less", "next", "top", "t0", "t1", "t2")]), "replay")


# What a state was before the body gave it another value -----------------------------------------


def _step(do: str, source: str, to: str = "old", **fields: Any) -> Statement:
    return {"do": do, "to": to, "from": [source], **fields}


#: By these a body keeps what a state `x` of four elements is; many are only other names for it.
WAYS: dict[str, list[Statement]] = {
    "same shape": [_step("reshape", "x", shape=[4])],
    "other shape": [_step("reshape", "x", shape=[2, 2])],
    "contiguous": [_step("contiguous", "x")], "copy": [_step("copy", "x")],
    "turned twice": [_step("flip", "x", "turned", axes=[0]), _step("flip", "turned", axes=[0])],
    "turned": [_step("flip", "x", axes=[0])], "a part": [_step("shrink", "x", bounds=[[1, 3]])],
    "all of it": [_step("shrink", "x", bounds=[[0, 4]])],
    "there and back": [_step("reshape", "x", "square", shape=[2, 2]),
                       _step("permute", "square", "turned", order=[1, 0]),
                       _step("permute", "turned", "back", order=[1, 0]),
                       _step("reshape", "back", shape=[4])],
    "assigned": [_step("neg", "x"), {"do": "assign", "target": "old", "from": ["x"]}],
    "contiguous, and another shape": [_step("contiguous", "x", "same"),
                                      _step("reshape", "same", shape=[2, 2])],
    "its bits": [_step("bitcast", "x", dtype="int32")],
}
#: By these it gives the state another value: in its place, or where that cannot be.
MOVES: dict[str, list[Statement]] = {
    "where it is": [{"do": "add", "to": "next", "from": ["x", "t1"]},
                    {"do": "assign", "target": "x", "from": ["next"]}],
    "turned": [_step("flip", "x", "over", axes=[0]),
               {"do": "add", "to": "next", "from": ["over", "t1"]},
               {"do": "assign", "target": "x", "from": ["next"]}],
    "a part of it": [_step("shrink", "t1", "some", bounds=[[0, 2]]),
                     _step("shrink", "x", "part", bounds=[[0, 2]]),
                     {"do": "add", "to": "next", "from": ["part", "some"]},
                     {"do": "store", "target": "x", "from": ["next"],
                      "view": [{"do": "shrink", "bounds": [[2, 4]]}]}],
    "twice": [{"do": "add", "to": "first", "from": ["x", "t1"]},
              {"do": "assign", "target": "x", "from": ["first"]},
              {"do": "mul", "to": "next", "from": ["x", "t2"]},
              {"do": "assign", "target": "x", "from": ["next"]}],
    "with another state": [_step("contiguous", "t2", "next"),
                           {"do": "assign", "target": "t2", "from": ["x"]},
                           {"do": "assign", "target": "x", "from": ["next"]}],
}


def _named(body: Sequence[Statement], state: str) -> list[Statement]:
    """A body in which the state has another name than `x`."""
    names = {"x": state}
    return [{key: [names.get(name, name) for name in value] if key == "from" else
             names.get(value, value) if key == "target" else value
             for key, value in each.items()} for each in body]


def _kept(body: Sequence[Statement], count: int, given: dict[str, str] | None,
          between: Sequence[Statement] = ()) -> Program:
    """So many calls of a body; `old` of each call is kept under a name of its own, and looked at
    after the last one.

    Whatever the body makes is looked at then, too: so each call is of one function.
    """
    call: Statement = {"do": "repeat", "count": 1, "statements": list(body)} if given is None else \
        {"do": "calls", "given": [given], "nested": 0, "statements": list(body)}
    shape = next(([2, 2] for each in body if each.get("to") == "old"
                  and each.get("shape") == [2, 2]), [2 if any(
                      each.get("to") == "old" and "bounds" in each and each["bounds"] == [[1, 3]]
                      for each in body) else 4])
    statements: list[Statement] = []
    for number in range(count):
        statements += [call, _step("reshape", "old", f"kept{number}", shape=shape), *between]
    made = dict.fromkeys(each["to"] for each in body if "to" in each)
    names = [f"kept{number}" for number in range(count)]
    *inputs, _ = _around([], [], [], 0)["statements"]
    return protocol.program([*inputs, *statements, *_shown(*names, *made, "t0", "t1", "t2")])


@verifies("replay.outputs.distinct", observe="replay")
@verifies("replay.output.own+2", observe="replay")
@after("effects.value.eager")
def test_what_a_state_was_is_kept_of_each_call(subject: Subject) -> None:
    """By each way to keep it, before each way to give the state another value; eight calls, since
    an implementation may do less once it has seen some that are alike."""
    for way, keeps in WAYS.items():
        for moves in MOVES.values():
            if way == "its bits" and moves is MOVES["twice"]:
                continue
            subject.check_whole(_kept(_named([*keeps, *moves], "t0"), 8, None), "replay")


@verifies("replay.outputs.distinct", observe="replay")
@verifies("replay.state.eager", observe="replay")
@after("effects.value.eager")
def test_what_a_state_was_is_kept_whatever_happens_between_the_calls(subject: Subject) -> None:
    """Somebody looks at what was kept, or at the state; it gets another value, or another function
    gives it one; what was kept is written to. Or what is kept is an argument, once the state."""
    other: list[Statement] = [{"do": "sub", "to": "less", "from": ["t0", "t2"]},
                              {"do": "assign", "target": "t0", "from": ["less"]}]
    betweens: list[list[Statement]] = [
        _shown("old"), _shown("t0"), [{"do": "assign", "target": "t0", "from": ["t2"]}],
        [{"do": "assign", "target": "old", "from": ["t2"]}],
        [{"do": "repeat", "count": 1, "statements": other}],
        [_step("contiguous", "t0", "seen"), {"do": "realize", "names": ["seen"]}],
        [_step("neg", "t0", "late")]]  # which waits, and is never looked at
    for place, (way, moves) in enumerate(product(
            ("same shape", "contiguous", "copy", "assigned"), MOVES.values())):
        body = [*WAYS[way], *moves]
        subject.check_whole(_kept(_named(body, "t0"), 7, None,
                                  betweens[place % len(betweens)]), "replay")
        given = [*WAYS[way], *_named(moves, "t0")]
        _right_or_refused(subject, _kept(given, 7, {"x": ("t0", "t1")[place % 2]},
                                         betweens[-place % len(betweens)]))


@verifies("replay.outputs.distinct", observe="replay")
@after("effects.value.eager")
def test_what_a_state_was_is_left_of_the_last_of_many_calls(subject: Subject) -> None:
    """The body is called several times in a row; of integers, and where it hands out all it made.
    """
    for count, (way, moves) in zip(cycle((1, 2, 3, 4, 5, 8)), product(WAYS, MOVES), strict=False):
        body = _named([*WAYS[way], *MOVES[moves]], "t0")
        if (way, moves) != ("its bits", "twice"):
            subject.check_whole(_around([], body, _shown("old", "next", "t0", "t2"), count),
                                "replay")
    for way in ("same shape", "contiguous", "turned twice", "assigned"):
        draft = Draft()
        for number in range(2):
            draft.add("input", dtype="int32", shape=[4], data=protocol.encode(
                programs.pattern("int32", (4,), number)))
        body = _named([*WAYS[way], *MOVES["where it is"]], "t0")
        for shown in ([], _shown("old")):
            repeat: Statement = {"do": "repeat", "count": 9, "statements": [*body, *shown]}
            subject.check_whole(protocol.program([
                *draft.statements, repeat, *_shown("old", "t0")]), "replay")


@verifies("statements.refused.shapes", observe="errors")
@after("effects.value.eager")
def test_a_call_that_is_wrong_is_refused_after_right_ones(subject: Subject) -> None:
    """Its argument has another shape than the state, and nobody looks at what it returns."""
    subject.require("errors", "replay")
    short: list[Statement] = [{"do": "shrink", "to": "short", "from": ["t1"], "bounds": [[0, 3]]}]
    body: list[Statement] = [{"do": "sub", "to": "out", "from": ["x", "t0"]},
                             {"do": "assign", "target": "t0", "from": ["out"]}]
    for right in (1, 2, 4):
        *statements, _ = _around(short, [], [], 0)["statements"]
        given = [*[{"x": "t1"}] * right, {"x": "short"}]
        program = protocol.program([*statements, {
            "do": "calls", "given": given, "nested": 0, "statements": body}, *_shown("t0")])
        subject.examples += 1
        try:
            subject.adapter.run(program, {"values", "replay"}, {})
        except protocol.ProtocolError:
            raise
        except Exception:  # whatever it is: what it says is its own affair
            continue
        raise Failure(f"three elements were taken from four, in call {right + 1}", program)
    subject.check_whole(_around([], ADVANCE, _shown("t0"), 3), "replay")


# Gradients inside of a body ---------------------------------------------------------------------


def _loss(source: str) -> list[Statement]:
    """A number that depends on `source` and on t1: the sum of their product squared."""
    return [{"do": "mul", "to": "product", "from": [source, "t1"]},
            {"do": "mul", "to": "squared", "from": ["product", "product"]},
            {"do": "sum", "to": "loss", "from": ["squared"], "axes": [0], "keepdims": False}]


def _slope(target: str, name: str = "slope") -> Statement:
    return {"do": "gradient", "to": name, "from": ["loss", target]}


SMALLER: list[Statement] = [
    {"do": "constant", "to": "rate", "dtype": "float32", "shape": [4], "value": 0.0625},
    {"do": "mul", "to": "step", "from": ["slope", "rate"]},
    {"do": "sub", "to": "next", "from": ["t0", "step"]},
    {"do": "assign", "target": "t0", "from": ["next"]}]


def _right_if_supported(subject: Subject, program: Program) -> None:
    if subject.supports(program):
        _right_or_refused(subject, program)
    else:
        subject.skipped += 1


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_a_step_of_training_at_each_call(subject: Subject) -> None:
    """The gradient by a state, which is made smaller by it; looked at in each call, and after."""
    subject.require("gradient")
    body = [*_loss("t0"), _slope("t0"), *SMALLER]
    for shown, count in (([], 6), (_shown("loss", "slope"), 4), (_shown("slope"), 1)):
        _right_if_supported(subject, _around([], [*body, *shown], _shown("t0", "t1"), count))


@verifies("replay.call.any", observe="replay")
@after("effects.value.eager")
def test_gradients_by_two_values_at_each_call(subject: Subject) -> None:
    """By a state and by what stays; and with a state that gets the gradient.  What the first one
    becomes depends on neither, or else one would be differentiated through it."""
    subject.require("gradient")
    larger: list[Statement] = [{**SMALLER[0], "value": 0.5},
                               {"do": "add", "to": "next", "from": ["t0", "rate"]}, SMALLER[-1]]
    both = [*_loss("t0"), _slope("t0"), _slope("t1", "other"), *larger]
    turned: list[Statement] = [{"do": "assign", "target": "t2", "from": ["slope"]}]
    for body in ([*both, *_shown("slope", "other")], [*both, *turned, *_shown("other", "t2")]):
        _right_if_supported(subject, _around([], body, _shown("t0", "t1", "t2"), 4))


@verifies("replay.arguments.call", observe="replay")
@after("effects.value.eager")
def test_gradients_by_an_argument_of_the_call(subject: Subject) -> None:
    subject.require("gradient")
    body = [*_loss("x"), _slope("x"), *_shown("slope")]
    for order in ("00000", "00202", "02020"):
        program = called(3, [{"x": f"t{number}"} for number in order], 0, body[:-1], watched=True)
        _right_if_supported(subject, program)


@verifies("gradient.value.derivative", observe="gradient")
@after("effects.value.eager")
def test_a_number_that_does_not_depend_on_an_argument(subject: Subject) -> None:
    """Its derivative is zero: with respect to what was there before the rest, and after it."""
    body = [*_loss("t2"), _slope("x"), *_shown("slope")]
    for names in ("0000", "3333", "0303"):
        program = called(4, [{"x": f"t{name}"} for name in names], 0, body[:-1], watched=True)
        if subject.supports(program):
            subject.check_whole(program)
        else:
            subject.skipped += 1


@verifies("replay.gradient.eager", observe="replay")
@after("effects.value.eager")
def test_gradients_of_what_calls_with_a_state_returned(subject: Subject) -> None:
    """Each call changes a state, and returns what depends on a tensor that stays."""
    subject.require("gradient")
    body = [*ADVANCE, {"do": "mul", "to": "made", "from": ["t1", "t2"]},
            {"do": "mul", "to": "out", "from": ["made", "t2"]}]
    later: list[Statement] = [
        {"do": "sum", "to": "total", "from": ["out"], "axes": [0], "keepdims": False},
        {"do": "gradient", "to": "slope", "from": ["total", "t2"]}, *_shown("slope", "t0")]
    for count in (2, 5):
        _right_if_supported(subject, _around([], body, later, count))


@verifies("gradient.realized.keeps+2", observe="replay")
@after("effects.value.eager")
def test_gradients_of_what_was_computed_before_the_calls(subject: Subject) -> None:
    """The calls overwrite what it was computed of; what lies between is in memory still."""
    subject.require("gradient")
    before: list[Statement] = [{"do": "add", "to": "factor", "from": ["t0", "t1"]},
                               {"do": "realize", "names": ["factor"]},
                               {"do": "mul", "to": "made", "from": ["factor", "t2"]},
                               {"do": "mul", "to": "out", "from": ["made", "t2"]},
                               {"do": "realize", "names": ["made", "out"]}]
    later: list[Statement] = [
        {"do": "sum", "to": "total", "from": ["out"], "axes": [0], "keepdims": False},
        {"do": "gradient", "to": "slope", "from": ["total", "t2"]},
        *_shown("slope", "factor", "t0")]
    program = _around(before, ADVANCE, later, 3)
    if subject.supports(program):
        subject.check_whole(program, "replay")
    else:
        subject.skipped += 1
