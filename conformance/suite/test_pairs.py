"""Programs that differ in one thing, one after the other in one process.  Chapter:
spec/caching.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from conformance import protocol
from conformance.generators import neighbours
from conformance.generators.programs import Draft
from conformance.protocol import Program
from conformance.runner.explaining import described
from conformance.runner.subject import Failure, NotClaimed, Subject
from conformance.suite import after, verifies
from conformance.suite.test_statements import given


def _square(draft: Draft, dtype: str = "float32", seed: int = 0) -> str:
    numbers = (np.arange(9) * (2 * seed + 5) + seed) % 11 - 4
    return given(draft, numbers.reshape(3, 3), dtype)


def _finished(draft: Draft, *names: str) -> Program:
    draft.append({"do": "observe", "names": list(names or [list(draft.kinds)[-1]])})
    return protocol.program(draft.statements)


def _arithmetic() -> Iterator[Program]:
    draft = Draft()
    x, y = _square(draft), _square(draft, seed=1)
    scaled = draft.add("mul", draft.add("sub", x, y), draft.constant(draft.kinds[x], 1.2345678))
    draft.add("where", draft.add("less", x, y), scaled, draft.add("exp", x))
    yield _finished(draft)
    draft = Draft()
    x, y = _square(draft, "int32"), _square(draft, "int32", 2)
    total = draft.add("floordiv", draft.add("or", x, y), draft.constant(draft.kinds[x], 3))
    draft.add("cast", draft.add("neg", total), dtype="int8")
    yield _finished(draft)
    draft = Draft()
    x, zero = _square(draft), draft.constant(draft.kinds["t0"], 0.0)
    draft.add("div", draft.add("matmul", x, _square(draft, seed=3)), draft.add("add", x, zero))
    yield _finished(draft)
    draft = Draft()  # digits that only a double has, and the sign of a zero
    x = given(draft, [[1.5, -0.0], [0.0, -2.0]], "float64")
    scaled = draft.add("mul", x, draft.constant(draft.kinds[x], 1.2345678901234))
    yield _finished(draft, scaled, draft.add("add", x, draft.constant(draft.kinds[x], 0.0)))
    draft = Draft()
    x = _square(draft)
    draft.add("div", draft.constant(draft.kinds[x], 1.0),
              draft.add("bitcast", draft.add("bitcast", draft.constant(draft.kinds[x], 0.5),
                                             dtype="int32"), dtype="float32"))
    yield _finished(draft)
    draft = Draft()
    x = _square(draft)
    chosen = draft.add("where", draft.add("less", x, _square(draft, seed=1)), x,
                       draft.constant(draft.kinds[x], "-inf"))
    yield _finished(draft, draft.add("maximum", chosen, x), chosen)


def _movements() -> Iterator[Program]:
    for do, fields in (("permute", {"order": [1, 0, 2]}),
                       ("shrink", {"bounds": [[0, 2], [1, 2], [0, 3]]}),
                       ("pad", {"widths": [[1, 0], [0, 2], [0, 0]]}), ("flip", {"axes": [1]}),
                       ("stride", {"steps": [2, 1, 3]}), ("reshape", {"shape": [9, 3]})):
        draft = Draft()
        x = given(draft, np.arange(27).reshape(3, 3, 3) - 5, "int32")
        draft.add("add", *[draft.add(do, x, **fields)] * 2)
        yield _finished(draft)
    shrink = ("shrink", {"bounds": [[0, 3], [0, 3], [0, 2]]})
    for first, second in ((("permute", {"order": [1, 0, 2]}), ("flip", {"axes": [0]})),
                          (("flip", {"axes": [2]}), shrink),
                          (("pad", {"widths": [[1, 0], [0, 0], [0, 1]]}), ("flip", {"axes": [0]}))):
        draft = Draft()
        x = given(draft, np.arange(27).reshape(3, 3, 3) - 5, "int32")
        moved = draft.add(second[0], draft.add(first[0], x, **first[1]), **second[1])
        draft.add("add", moved, moved)
        yield _finished(draft)
    draft = Draft()  # as many elements, in rows of another length
    x = given(draft, np.arange(12).reshape(2, 6) * 3, "int32")
    flat = draft.add("reshape", draft.add("flip", x, axes=[0]), shape=[12])
    draft.add("add", flat, flat)
    yield _finished(draft)
    for do in ("softmax", "cumsum"):
        draft = Draft()
        draft.add(do, _square(draft), axis=0)
        yield _finished(draft)
    for do, axes in (("sum", [0]), ("max", [1]), ("mean", [0, 1])):
        draft = Draft()
        draft.add(do, _square(draft), axes=axes, keepdims=True)
        yield _finished(draft)
    draft = Draft()  # whichever axis of a square is left, the shape is the same
    draft.add("min", _square(draft), axes=[0], keepdims=False)
    yield _finished(draft)
    draft = Draft()
    draft.add("gather", _square(draft), given(draft, [2, 0, 1], "int32"))
    yield _finished(draft)


def _writes() -> Iterator[Program]:
    for view in ([{"do": "shrink", "bounds": [[0, 2], [0, 3]]}],
                 [{"do": "stride", "steps": [2, 1]}, {"do": "flip", "axes": [1]}],
                 [{"do": "permute", "order": [1, 0]},
                  {"do": "shrink", "bounds": [[1, 3], [0, 3]]}],
                 [{"do": "shrink", "bounds": [[0, 2], [0, 3]]}, {"do": "flip", "axes": [0]}]):
        draft = Draft()
        x = _square(draft, "int32")
        part = given(draft, np.arange(6).reshape(2, 3) + 50, "int32")
        draft.append({"do": "realize", "names": [x, part]})
        reader = draft.add("sub", x, draft.add("flip", x, axes=[0]))
        draft.append({"do": "store", "target": x, "view": view, "from": [part]})
        yield _finished(draft, x, reader)


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_a_program_after_its_neighbours_has_its_own_values(subject: Subject) -> None:
    """In one order and in the other, and nothing is forgotten between them."""
    tried = set[str]()
    for base in (*_arithmetic(), *_movements(), *_writes()):
        near = [base]
        for what, each in neighbours.neighbours(base):
            if what not in tried and subject.supports(each):
                tried.add(what)  # one difference of each sort is enough
                near.append(each)
        _in_both_orders(subject, near if subject.supports(base) else near[1:])


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_one_statement_of_many_is_another(subject: Subject) -> None:
    """Wherever it stands: the first, the last, and each between."""
    draft = Draft()
    x, y = _square(draft, "int32"), _square(draft, "int32", 1)
    for number, do in enumerate(("add", "maximum", "sub", "mul", "minimum", "add", "xor", "sub")):
        z = draft.add(do, x, y)
        x, y = (draft.add("permute", y, order=[1, 0]), z) if number % 3 == 2 else (y, z)
    base = _finished(draft)
    near = {-1: base}
    for _, other in neighbours.neighbours(base):
        pairs = zip(base["statements"], other["statements"], strict=True)
        place = next(place for place, (one, each) in enumerate(pairs) if one != each)
        if subject.supports(other):
            near.setdefault(place, other)
    _in_both_orders(subject, list(near.values()))


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_one_operand_is_moved_and_the_others_are_not(subject: Subject) -> None:
    """Whichever it is: the first, the second, the third."""
    moves: list[dict[str, object]] = [{"do": "flip", "axes": [0]}, {"do": "flip", "axes": [1]},
                                      {"do": "permute", "order": [1, 0]}]
    for do, count in (("where", 3), ("sub", 2), ("matmul", 2)):
        near = []
        for place in range(count):
            for move in moves:
                draft = Draft()
                x, y = _square(draft, "int32"), _square(draft, "int32", 1)
                first = given(draft, (np.arange(9) % 2 == 0).reshape(3, 3), "bool")
                sources = [first, x, y] if do == "where" else [x, y]
                fields = {key: value for key, value in move.items() if key != "do"}
                sources[place] = draft.add(str(move["do"]), sources[place], **fields)
                near.append(_finished(draft, draft.add(do, *sources)))
        _in_both_orders(subject, [each for each in near if subject.supports(each)])


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_what_is_between_has_another_dtype(subject: Subject) -> None:
    """What comes in and what comes out has the same one."""
    for first, others, last in (("int32", ("int8", "uint8", "int16", "bool", "uint16"), "int32"),
                                ("float64", ("float32", "float16", "int8"), "float64")):
        near = []
        for between in others:
            draft = Draft()
            numbers = [1, 2, 400, -1, 3, 7, -128] if first == "int32" else [0.1, 2, -1.3, 100.7]
            x = given(draft, numbers, first)
            made = draft.add("cast", x, dtype=between)
            near.append(_finished(draft, draft.add("neg", draft.add("cast", made, dtype=last))))
        _in_both_orders(subject, [each for each in near if subject.supports(each)])


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_one_operand_is_another_that_is_read_as_well(subject: Subject) -> None:
    """Whichever it is; all of them are read, in the same order, before."""
    for do, choices in (("where", ("cxy", "dxy", "czy", "cxz", "cyx", "cxx")),
                        ("sub", ("xy", "zy", "xz", "yx", "xx")), ("matmul", ("xy", "zy", "xz"))):
        near = []
        for chosen in choices:
            draft = Draft()
            known = {name: _square(draft, "int32", seed) for seed, name in enumerate("xyz")}
            for size, name in enumerate("cd", 2):
                known[name] = given(draft, (np.arange(9) % size == 0).reshape(3, 3), "bool")
            total = draft.add("add", draft.add("add", known["x"], known["y"]), known["z"])
            both = draft.add("xor", known["c"], known["d"])
            near.append(_finished(draft, total, both,
                                  draft.add(do, *(known[name] for name in chosen))))
        _in_both_orders(subject, [each for each in near if subject.supports(each)])


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_one_statement_far_down_is_another(subject: Subject) -> None:
    """Of some thirty, among them such as no loop has together."""
    draft = Draft()
    x, y = _square(draft, "int32"), _square(draft, "int32", 1)
    for number in range(10):
        y = draft.add("mul", y, draft.constant(draft.kinds[y], number - 3))
        y = draft.add("cumsum", draft.add("xor", y, x), axis=number % 2)
    base = _finished(draft)
    near = {-1: base}
    for _, other in neighbours.neighbours(base):
        pairs = zip(base["statements"], other["statements"], strict=True)
        place = next(place for place, (one, each) in enumerate(pairs) if one != each)
        if subject.supports(other):
            near.setdefault(place, other)
    _in_both_orders(subject, list(subject.part(list(near.values()), at_least=6)))


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_many_programs_and_the_first_ones_again(subject: Subject) -> None:
    """Some hundred, each with a plan of its own: a table that is full drops some of them."""
    many = []
    for number in range(300):
        draft = Draft()
        x = given(draft, np.arange(number % 17 + 2) - 3, "int32")
        do = ("add", "sub", "mul", "maximum")[number % 4]
        y = draft.add(do, x, draft.add("flip", x, axes=[0]))
        for turn in range(number // 60 + 1):
            y = draft.add(("neg", "abs", "relu")[(number + turn) % 3], y)
        many.append(_finished(draft))
    some = [each for each in many if subject.supports(each)]
    chosen = list(subject.part(some, at_least=10))
    _in_both_orders(subject, [*chosen, *chosen[:10]])


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_values_are_held_in_one_program_and_not_in_the_next(subject: Subject) -> None:
    """All that lies between is dropped, or one value of it is looked at, at once or later."""
    for base in (*_between(), *_writes()):
        _in_both_orders(subject, [each for each in neighbours.held(base)
                                  if subject.supports(each)])


def _between() -> Iterator[Program]:
    """Values that no single loop computes: some of what lies between is in memory for a while."""
    draft = Draft()
    x = _square(draft)
    table = draft.add("matmul", x, _square(draft, seed=2))
    summed = draft.add("cumsum", table, axis=0)
    turned = draft.add("add", draft.add("permute", summed, order=[1, 0]), table)
    total = draft.add("sum", draft.add("mul", turned, summed), axes=[1], keepdims=True)
    draft.add("sub", turned, draft.add("expand", total, shape=[3, 3]))
    yield _finished(draft)


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_names_of_any_length_are_told_apart(subject: Subject) -> None:
    for base in (*islice(_arithmetic(), 1), *islice(_writes(), 2)):
        _in_both_orders(subject, [each for each in (base, *neighbours.lengthened(base))
                                  if subject.supports(each)])


def _in_both_orders(subject: Subject, chosen: list[Program]) -> None:
    """Run programs one after the other, then backwards; a failure is one that is right alone."""
    if not chosen:
        subject.skipped += 1
        return
    for order in (chosen, chosen[::-1]):
        subject.adapter.reset()
        for number, program in enumerate(order):
            try:
                subject.check_values(program)
            except NotClaimed:
                continue
            except Exception as failure:  # the implementation's own too: it is the finding
                raise _explained(subject, order[:number], program, failure) from None


def _explained(subject: Subject, before: list[Program], program: Program,
               failure: Exception) -> Failure:
    """Which of the programs before it has to run first, as far as one alone is enough."""
    text = failure.message if isinstance(failure, Failure) else described(failure)

    def wrong(*programs: Program) -> bool:
        subject.adapter.reset()
        try:
            for each in programs:
                subject.check_values(each)
        except Exception:  # whatever it is: it is asked for whether there is one
            return True
        return False

    if wrong(program):
        return Failure(text, program)
    first = next((each for each in reversed(before) if wrong(each, program)), None)
    if first is None:
        return Failure(f"{text}, after {len(before)} others that differ in one thing", program)
    return Failure(f"{text}, after this program in the same process:\n{protocol.paste(first)}",
                   program)


# Programs that differ in sizes ------------------------------------------------------------------


#: Rows and columns: one that grows, one that depends on the other for a while and then does not,
#: sizes that come again, one element, and more than a plan for the first ones may have place for.
SIZES = ((5, 4), (7, 4), (6, 4), (5, 4), (4, 8), (6, 12), (5, 9), (3, 3), (5, 1), (40, 4), (7, 4),
         (9, 5), (11, 2), (8, 7), (6, 13), (5, 4))
#: So often a program comes once more: an implementation may now make a plan for it alone.
OFTEN = 18


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_one_program_at_many_sizes(subject: Subject) -> None:
    """Other sizes, positions and numbers, one after the other, and under each setting that decides
    what a program has from those before it."""
    across = subject.info.choices.get("across", subject.info.settings)
    settings: list[dict[str, int]] = [{}, *({each: 1} for each in across)]
    for place, options in enumerate(settings):
        subject.adapter.reset()
        for number, form in enumerate(subject.part(FORMS, at_least=2)):
            sizes = SIZES if (place + number) % 3 else (*SIZES, *SIZES[-1:] * OFTEN)
            for turn, (rows, columns) in enumerate(sizes):
                draft = Draft()
                form(draft, rows, columns, turn // 3 + 0.3)
                program = _finished(draft)
                if subject.supports(program):
                    subject.check_values(program, settings=options)
                else:
                    subject.skipped += 1


#: Rows and columns that begin with the fewest, and do not all grow together.
FEW_FIRST = ((2, 3), (3, 4), (2, 5), (4, 2), (6, 7), (3, 2))
#: Rows so that what is cut out of them begins further down, then at the first row, and down again.
UP_AND_DOWN = ((5, 4), (4, 4), (3, 4), (6, 4), (8, 4), (3, 4))


@verifies("caching.program.own")
@after("effects.value.eager", "conventions.value.eager")
def test_plain_programs_at_sizes_that_begin_small(subject: Subject) -> None:
    """No number is in them, and a part of one size is cut out wherever the size puts it."""
    across = subject.info.choices.get("across", subject.info.settings)
    for form, sizes in ((_subtracted, FEW_FIRST), (_windowed, UP_AND_DOWN)):
        for options in ({}, *({each: 1} for each in across)):
            subject.adapter.reset()
            for rows, columns in sizes:
                draft = Draft()
                form(draft, rows, columns)
                program = _finished(draft)
                if subject.supports(program):
                    subject.check_values(program, settings=options)
                else:
                    subject.skipped += 1


def _subtracted(draft: Draft, rows: int, columns: int) -> None:
    x, y = _table(draft, rows, columns), _table(draft, rows, columns, 1)
    draft.add("abs", draft.add("sub", x, y))


def _windowed(draft: Draft, rows: int, columns: int) -> None:
    x = _table(draft, rows, columns)
    part = draft.add("shrink", x, bounds=[[rows - 3, rows - 1], [0, columns]])
    draft.add("abs", draft.add("mul", part, part))


def _table(draft: Draft, rows: int, columns: int, seed: int = 0) -> str:
    numbers = (np.arange(rows * columns) * (2 * seed + 5) + seed) % 13 - 5
    return given(draft, numbers.reshape(rows, columns), "float32")


def _scaled(draft: Draft, x: str, number: float) -> str:
    return draft.add("mul", x, draft.constant(draft.kinds[x], number))


def _centred(draft: Draft, rows: int, columns: int, number: float) -> None:
    x = _table(draft, rows, columns)
    mean = draft.add("mean", x, axes=[0], keepdims=True)
    rest = draft.add("sub", x, draft.add("expand", mean, shape=[rows, columns]))
    draft.add("softmax", _scaled(draft, rest, number), axis=1)


def _multiplied(draft: Draft, rows: int, columns: int, number: float) -> None:
    x, y = _table(draft, rows, columns), _table(draft, rows, columns, 1)
    product = draft.add("matmul", x, draft.add("permute", y, order=[1, 0]))
    draft.add("sum", _scaled(draft, product, number), axes=[1], keepdims=False)


def _shifted(draft: Draft, rows: int, columns: int, number: float) -> None:
    x = _table(draft, rows, columns)
    late = draft.add("shrink", x, bounds=[[1, rows], [0, columns]])
    early = draft.add("shrink", x, bounds=[[0, rows - 1], [0, columns]])
    change = draft.add("sub", late, _scaled(draft, early, number))
    draft.add("flip", draft.add("pad", change, widths=[[1, 2], [0, 1]]), axes=[0])


def _merged(draft: Draft, rows: int, columns: int, number: float) -> None:
    x = _table(draft, rows, columns)
    flat = _scaled(draft, draft.add("reshape", x, shape=[rows * columns]), number)
    turned = draft.add("permute", draft.add("reshape", flat, shape=[columns, rows]), order=[1, 0])
    draft.add("sub", turned, x)


def _joined(draft: Draft, rows: int, columns: int, number: float) -> None:
    x, y = _table(draft, rows, columns), _table(draft, rows, columns, 2)
    some = draft.add("shrink", y, bounds=[[rows - 3, rows - 1], [0, columns]])
    above = draft.add("pad", x, widths=[[0, 2], [0, 0]])
    below = draft.add("pad", _scaled(draft, some, number), widths=[[rows, 0], [0, 0]])
    draft.add("add", above, below)


def _gathered(draft: Draft, rows: int, columns: int, number: float) -> None:
    x = _table(draft, rows, columns)
    index = given(draft, np.arange(2 * rows) * 3 % rows, "int32")
    draft.add("add", draft.add("gather", _scaled(draft, x, number), index),
              draft.add("pad", x, widths=[[rows, 0], [0, 0]]))


def _running(draft: Draft, rows: int, columns: int, number: float) -> None:
    x = _table(draft, rows, columns)
    summed = draft.add("cumsum", draft.add("cumsum", x, axis=1), axis=0)
    top = draft.add("max", _scaled(draft, summed, number), axes=[0, 1], keepdims=True)
    draft.add("sub", summed, draft.add("expand", top, shape=[rows, columns]))


def _overwritten(draft: Draft, rows: int, columns: int, number: float) -> None:
    x, y = _table(draft, rows, columns), _table(draft, rows, columns, 1)
    before = draft.add("neg", x)
    part = draft.add("shrink", y, bounds=[[0, rows - 2], [0, columns]])
    draft.append({"do": "store", "target": x, "from": [_scaled(draft, part, number)],
                  "view": [{"do": "shrink", "bounds": [[1, rows - 1], [0, columns]]}]})
    draft.add("where", draft.add("less", before, y), x, before)


def _spread(draft: Draft, rows: int, columns: int, number: float) -> None:
    x = _table(draft, rows, columns)
    shape = [rows, rows, columns]
    one = draft.add("expand", draft.add("reshape", x, shape=[1, rows, columns]), shape=shape)
    other = draft.add("expand", draft.add("reshape", x, shape=[rows, 1, columns]), shape=shape)
    draft.add("sum", draft.add("maximum", one, _scaled(draft, other, number)), axes=[1],
              keepdims=False)


FORMS = (_centred, _multiplied, _shifted, _merged, _joined, _gathered, _running, _overwritten,
         _spread)
