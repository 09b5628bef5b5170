"""The law that every observed value obeys, and the float policy.  Chapter: spec/conventions.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance import oracle, protocol
from conformance.generators import declared_programs
from conformance.generators.programs import Draft
from conformance.protocol import Program
from conformance.runner.subject import Failure, NotClaimed, Subject
from conformance.suite import verifies


def _input(draft: Draft, array: protocol.Array) -> str:
    return draft.add("input", dtype=array.dtype.name, shape=list(array.shape),
                     data=protocol.encode(array))


def _observed(draft: Draft, *names: str) -> Program:
    return protocol.program([*draft.statements,
                             {"do": "observe", "names": list(names or draft.kinds)}])


@verifies("conventions.value.eager")
def test_every_witness_gives_the_eager_values(subject: Subject) -> None:
    subject.for_programs(lambda program: _check(subject, program))


@verifies("conventions.support.declared")
def test_declared_statements_run_for_each_declared_dtype(subject: Subject) -> None:
    for program in declared_programs.programs_for(subject.info.dtypes):
        subject.check_declared(program)


@verifies("conventions.integers.exact")
def test_integers_have_exactly_these_bits(subject: Subject) -> None:
    subject.for_programs(lambda program: _check(subject, program),
                         rule="conventions.integers.exact", share=0.5)


def _check(subject: Subject, program: Program) -> None:
    subject.check_values(program)


@verifies("conventions.rounding.point")
def test_each_operation_is_rounded_to_its_dtype(subject: Subject) -> None:
    for dtype, big in (("float16", 2048.0), ("float32", 2.0**24), ("float64", 2.0**53)):
        if dtype not in subject.info.dtypes:
            continue
        draft = Draft()
        huge = _input(draft, np.full(3, big, dtype))
        one = _input(draft, np.ones(3, dtype))
        total = draft.add("add", huge, one)
        result = draft.add("sub", total, huge)
        subject.check_declared(_observed(draft, result))


@verifies("conventions.reassociation.elementwise+2")
def test_nothing_is_cancelled_or_regrouped(subject: Subject) -> None:
    draft = Draft()
    x = _input(draft, np.array([1, 3, 1e-3, np.inf], np.float32))
    y = _input(draft, np.array([1e8, -1e8, 1e30, 1], np.float32))
    results = [draft.add("sub", draft.add("add", x, y), y),
               draft.add("div", draft.add("mul", x, y), y),
               draft.add("sub", x, x), draft.add("div", x, x),
               draft.add("mul", x, draft.constant(draft.kinds[x], 0))]
    subject.check_declared(_observed(draft, *results))


@verifies("conventions.nan.propagate")
def test_nan_is_never_lost(subject: Subject) -> None:
    for place in range(5):
        draft = Draft()
        x = np.array([3, -1, 0, 2, 7], np.float32)
        x[place] = np.nan
        x_name = _input(draft, x)
        y_name = _input(draft, np.array([1, -2, 5, 2, 9], np.float32))
        for do in ("add", "sub", "mul", "div", "maximum", "minimum"):
            draft.add(do, x_name, y_name)
            draft.add(do, y_name, x_name)
        for do in ("sum", "prod", "max", "min", "mean"):
            draft.add(do, x_name, axes=[0], keepdims=False)
        for do in ("neg", "abs", "relu", "exp", "sqrt", "sin", "tanh", "reciprocal"):
            draft.add(do, x_name)
        program = _observed(draft)
        subject.check_declared(program)


@verifies("conventions.zero.sign")
def test_zeros_have_the_sign_of_ieee(subject: Subject) -> None:
    minus, plus = np.full(2, -0.0, np.float32), np.zeros(2, np.float32)
    draft = Draft()
    m, p = _input(draft, minus), _input(draft, plus)
    one = draft.constant(draft.kinds[m], 1)
    expected = {draft.add("add", m, p): plus, draft.add("sub", m, p): minus,
                draft.add("mul", m, one): minus, draft.add("neg", p): minus,
                draft.add("abs", m): plus, draft.add("sub", p, p): plus}

    def signs(program: Program) -> None:
        for value in subject.check_values(program).values:
            wanted = expected.get(value.name, value.array())
            if not np.array_equal(np.signbit(value.array()), np.signbit(wanted)):
                raise Failure(f"{value.name} is a zero of the wrong sign", program)

    subject.check_smallest(_observed(draft, *expected), signs)


@verifies("conventions.zero.sign")
def test_every_statement_gives_its_zeros_their_sign(subject: Subject) -> None:
    """Moved, padded, chosen, cast, multiplied and divided ones, and those of functions."""
    numbers = [0.0, -0.0, 1.0, -1.0, -0.0, 2.0, -3.0, 0.0, -0.0]
    for dtype in protocol.FLOATS:
        draft = Draft()
        x, y = (_input(draft, np.array(each, dtype).reshape(3, 3))
                for each in (numbers, numbers[2:] + numbers[:2]))
        far = _input(draft, np.array([[np.inf, -np.inf, 1]] * 3, dtype))
        nonzero = draft.add("where", draft.add("equal", y, draft.constant(draft.kinds[y], 0)),
                            far, y)
        for do, operands in (("add", (x, y)), ("sub", (x, y)), ("mul", (x, y)),
                             ("div", (x, nonzero)), ("div", (x, far)), ("where", ("", x, y)),
                             *((each, (x,)) for each in ("neg", "abs", "sqrt", "sin", "tanh",
                                                         "copy", "contiguous")),
                             ("reciprocal", (far,))):
            draft.add(do, *(each or draft.add("less", y, x) for each in operands))
        for do, fields in declared_programs.MOVES.items():
            if do not in ("expand", "reshape"):
                draft.add(do, x, **fields)
        draft.add("expand", draft.add("shrink", x, bounds=[[0, 1], [0, 3]]), shape=[2, 3])
        draft.add("gather", draft.add("reshape", x, shape=[9]), _input(draft, np.arange(9)[::-1]))
        for other in protocol.FLOATS:
            draft.add("cast", x, dtype=other)
        subject.check_declared_by(_observed(draft), _signed)


@verifies("conventions.zero.sign")
def test_zeros_and_constants_give_their_sign(subject: Subject) -> None:
    """A number that is known before, on either side: what looks like nothing may change a zero."""
    numbers = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 2.5]
    for dtype in protocol.FLOATS:
        draft = Draft()
        x = _input(draft, np.array(numbers, dtype))
        known = {str(value): draft.constant(draft.kinds[x], value)
                 for value in (0.0, -0.0, 1.0, -1.0, 2.0, "inf")}
        for constant in known.values():
            for do in ("add", "sub", "mul", "div"):
                draft.add(do, x, constant)
                draft.add(do, constant, x)
                draft.add(do, constant, known["-0.0"])
                draft.add(do, known["0.0"], constant)
            negative = draft.add("neg", constant)
            draft.add("add", x, negative)
            draft.add("mul", negative, x)
            draft.add("where", draft.add("less", x, known["0.0"]), x, negative)
        same = draft.add("sub", x, x)
        draft.add("mul", same, known["-1.0"])
        draft.add("sub", known["0.0"], draft.add("neg", x))
        subject.check_declared_by(_observed(draft), _signed)


@verifies("conventions.zero.sign")
def test_powers_and_products_of_zeros_have_their_sign(subject: Subject) -> None:
    """A whole odd exponent keeps a sign, and so does each factor of a product along an axis."""
    bases, rows = [-0.0, 0.0, -2.0], [[-0.0, 2, 3], [2, -0.0, -3], [-1, 2, 0.0], [-1, -2, -0.0]]
    for dtype in protocol.FLOATS:
        draft = Draft()
        x = _input(draft, np.array(bases, dtype))
        for exponent in (1.0, 2.0, 3.0, 5.0, 0.5, 1.5, 4.0):
            draft.add("pow", x, draft.constant(draft.kinds[x], exponent))
            draft.add("pow", x, _input(draft, np.array([exponent] * 3, dtype)))
        block = _input(draft, np.array(rows, dtype))
        for axes in ([0], [1], [0, 1]):
            draft.add("prod", block, axes=axes, keepdims=False)
        draft.add("prod", draft.add("permute", block, order=[1, 0]), axes=[0], keepdims=True)
        subject.check_declared_by(_observed(draft), _signed)


def _signed(program: Program, values: Sequence[protocol.Value]) -> str:
    """Which zero has another sign than that of the oracle."""
    for want, value in zip(oracle.run(program), values, strict=True):
        got = value.array()
        wrong = (want.value == 0) & (got == 0) & (np.signbit(want.value) != np.signbit(got)) \
            if got.dtype.kind == "f" else np.zeros(1, bool)
        if wrong.any():
            place = [int(each) for each in np.argwhere(wrong)[0]]
            return f"{want.name}{place} is a zero of the wrong sign"
    return ""


@verifies("conventions.rounding.function")
def test_functions_are_close_to_the_real_result(subject: Subject) -> None:
    points = np.concatenate([np.linspace(0.01, 20, 331), np.linspace(-20, -0.01, 331)])
    points = points.astype(np.float32)
    functions = {"exp": np.exp, "log": np.log, "sin": np.sin, "tanh": np.tanh}
    subject.skipped += not functions.keys() & {*subject.info.statements}
    for do in sorted(functions.keys() & {*subject.info.statements}):
        chosen = points[points > 0] if do == "log" else points
        draft = Draft()
        program = _observed(draft, draft.add(do, _input(draft, chosen)))
        got = subject.check_values(program).values[0].array()
        real = functions[do](chosen.astype(np.float64))
        unit = np.maximum(np.abs(real), 2.0**-126) * 2.0**-23
        # Near a zero of the sine the result is small, and so is its unit: measure against 1/2.
        unit = np.maximum(unit, 2.0**-24) if do == "sin" else unit
        worst = float(np.max(np.abs(got - real) / unit))
        if worst > 8:
            raise Failure(f"{do} is wrong by {worst:.1f} units in the last place", program)


@verifies("conventions.subnormal.kept+2")
def test_subnormals_are_computed_with(subject: Subject) -> None:
    if subject.flushes("float32"):
        raise NotClaimed("it says that subnormal numbers of float32 become zero")
    tiny = np.array([2.0**-149, 2.0**-130, -(2.0**-140)], np.float32)
    draft = Draft()
    x = _input(draft, tiny)
    program = _observed(draft, draft.add("add", x, x))
    got = subject.check_values(program).values[0].array()
    if not np.array_equal(got, tiny + tiny):
        raise Failure(f"{(tiny + tiny).tolist()} became {got.tolist()}", program)
    draft = Draft()
    constant = draft.add("constant", dtype="float32", shape=[2], value=float(tiny[1]))
    program = _observed(draft, draft.add("copy", constant))
    if subject.supports(program):
        got = subject.check_values(program).values[0].array()
        if not np.array_equal(got, tiny[[1, 1]]):
            raise Failure(f"a constant of {tiny[1]} became {got.tolist()}", program)
    for do, function in (("sqrt", np.sqrt), ("log", np.log)):  # of what is far from the least
        draft = Draft()
        program = _observed(draft, draft.add(do, _input(draft, np.abs(tiny))))
        if not subject.supports(program):
            continue
        got = subject.check_values(program).values[0].array()
        wanted = function(np.abs(tiny).astype(np.float64))
        if not np.allclose(got, wanted, rtol=8 * 2.0**-23, atol=0):
            raise Failure(f"{do} of {tiny.tolist()} is {wanted.tolist()}, not {got.tolist()}",
                          program)


@verifies("conventions.units.bytes", observe="schedule")
def test_memory_is_counted_in_bytes(subject: Subject) -> None:
    draft = Draft()
    x = _input(draft, np.ones((3, 5), np.float32))
    program = _observed(draft, draft.add("sum", x, axes=[1], keepdims=False))
    stops = []
    for document in subject.documents(program):
        sizes = {each["id"]: each["bytes"] for each in document["buffers"]}
        for each in document["buffers"]:
            wanted = int(np.prod(each["shape"])) * np.dtype(each["dtype"]).itemsize
            assert each["bytes"] == wanted, each
        for kernel in document["kernels"]:
            for access in (*kernel["reads"], *kernel["writes"]):
                assert 0 <= access["start"] <= access["stop"] <= sizes[access["buffer"]], kernel
                stops.append(access["stop"])
    assert 60 in stops, "all 60 bytes of the input are read"
