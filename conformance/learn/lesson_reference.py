"""The lesson on the interpreter: what each operation means, and what the eager reader sees.

The reader's `calculate` gives the value of one operation in NumPy. It is compared with the
definition, number by number, on the numbers that hurt. The reader's `run` executes statements where
they stand; what it shows is what every schedule has to show.

    reference.operation.value: -7 floordiv 2 is -4, and you say -3

        floordiv of int32
        [-7] and [2]
"""
from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from conformance.learn.lesson import Counterexample, Lesson, raised

VALUE, EAGER, ISOLATED = ("reference.operation.value", "effects.value.eager",
                          "effects.variable.isolated")
Array = np.ndarray[Any, Any]
Number = Any

# What operations mean, by definition -------------------------------------------------------


def _quotient(a: int, b: int) -> int:
    return a // b if b else 0


def _remainder(a: int, b: int) -> int:
    return a % b if b else 0


def _largest(a: Number, b: Number) -> Number:
    return math.nan if a != a or b != b else max(a, b)


def _smallest(a: Number, b: Number) -> Number:
    return math.nan if a != a or b != b else min(a, b)


def _rounded(x: Number, to: Callable[[float], int]) -> Number:
    return math.copysign(float(to(x)), x) if isinstance(x, float) and math.isfinite(x) else x


def _divided(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _real(function: Callable[[Any], Any]) -> Callable[[float], float]:
    def value(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(np.float64(x)))
    return value


SAME: Callable[[Number], Number] = lambda x: x  # noqa: E731
#: Of floats only.
REAL: dict[str, Callable[..., Number]] = {
    "exp": _real(np.exp), "log": _real(np.log), "sin": _real(np.sin), "cos": _real(np.cos),
    "tanh": _real(np.tanh), "sqrt": _real(np.sqrt), "reciprocal": lambda x: _divided(1.0, x),
    "div": _divided}
#: Of whole numbers, and of truth values as the whole numbers 0 and 1.
WHOLE: dict[str, Callable[..., Number]] = {
    "floordiv": _quotient, "floormod": _remainder, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
#: Of all.
ANY: dict[str, Callable[..., Number]] = {
    "neg": lambda x: -x, "floor": lambda x: _rounded(x, math.floor),
    "trunc": lambda x: _rounded(x, math.trunc), "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "maximum": _largest,
    "minimum": _smallest}
COMPARED: dict[str, Callable[..., Number]] = {
    "cmplt": lambda a, b: a < b, "cmple": lambda a, b: a <= b, "cmpeq": lambda a, b: a == b,
    "cmpne": lambda a, b: a != b}
OPERATIONS: dict[str, Callable[..., Number]] = {
    **ANY, **REAL, **WHOLE, **COMPARED, "where": lambda c, a, b: a if c else b,
              "cast": SAME}
ONE = ("neg", "floor", "trunc", *(name for name in REAL if name != "div"), "cast")
TYPES = ("float32", "int32", "uint8", "bool")
NUMBERS: dict[str, Sequence[Number]] = {
    "float32": (1.5, -2.25, 0.0, -0.0, math.nan, math.inf, -math.inf, 3e38, 0.1, -7.0),
    "int32": (2, -7, 0, 3, -1, 2**31 - 1, -2**31, 46341), "uint8": (2, 7, 0, 255, 200),
    "bool": (False, True)}


def held(number: Number, dtype: str) -> Number:
    """A number as the type has it: rounded, or wrapped around."""
    if dtype == "float32":
        with np.errstate(all="ignore"):
            return float(np.float32(number))
    if dtype == "bool":
        return bool(number != 0)
    bits = 8 * np.dtype(dtype).itemsize
    wrapped = int(number) % 2**bits
    return wrapped - 2**bits if dtype[0] == "i" and wrapped >= 2**(bits - 1) else wrapped


class Problem(NamedTuple):
    """An operation, the type of its result, and numbers of each source with their type."""

    op: str
    dtype: str
    sources: tuple[tuple[str, tuple[Number, ...]], ...]

    def arrays(self) -> list[Array]:
        return [np.array(numbers, dtype) for dtype, numbers in self.sources]

    def wanted(self) -> list[Number]:
        rule = OPERATIONS[self.op]
        rows = zip(*(map(_plain, numbers) for _, numbers in self.sources), strict=True)
        return [held(rule(*row), self.dtype) for row in rows]

    @property
    def picture(self) -> str:
        types = " and ".join(dict.fromkeys(dtype for dtype, _ in self.sources))
        to = f" to {self.dtype}" if self.op == "cast" else ""
        return f"{self.op} of {types}{to}\n" + " and ".join(
            str(list(numbers)) for _, numbers in self.sources)


def _plain(number: Number) -> Number:
    """A truth value is 0 or 1, and a float is what 32 bits hold of it."""
    return int(number) if isinstance(number, bool) else \
        float(np.float32(number)) if isinstance(number, float) else number


def problems() -> Iterator[Problem]:
    """Each operation on one number, or two, and then on several."""
    for dtype in TYPES:
        numbers, kind = NUMBERS[dtype], dtype[0]
        names = [*ANY, *(REAL if kind == "f" else WHOLE), *COMPARED]
        for name in names:
            result = "bool" if name in COMPARED else dtype
            rows = itertools.product(numbers, repeat=1 if name in ONE else 2)
            yield from (Problem(name, result, tuple((dtype, (x,)) for x in row)) for row in rows)
        yield from (Problem("where", dtype, (("bool", (which,)), (dtype, (x,)), (dtype, (y,))))
                    for which in (True, False) for x, y in itertools.product(numbers, repeat=2))
        for target in TYPES:
            fitting = [x for x in numbers if kind != "f" or target in ("float32", "bool")
                       or abs(x) < 8 and (x >= 0 or target != "uint8")]
            yield from (Problem("cast", target, ((dtype, (x,)),)) for x in fitting)


# What is said of an operation --------------------------------------------------------------


def interpreter(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on the interpreter."""
    met: set[str] = set()
    for problem in problems():
        found = _computed(module, problem)
        if found is not None:
            met.add(found.rule)
            yield found
            break
    if "raised" in met:
        return
    for program in programs():
        found = _executed(module, program)
        if found is not None and found.rule not in met:
            met.add(found.rule)
            yield found
            if found.rule == "raised":
                return


def _computed(module: ModuleType, problem: Problem) -> Counterexample | None:
    given = problem.arrays()
    kept = [array.copy() for array in given]
    try:
        with np.errstate(all="ignore"):
            answer = module.calculate(problem.op, np.dtype(problem.dtype), given)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, problem.picture)
    if not isinstance(answer, np.ndarray):
        return Counterexample("raised", f"calculate answers {answer!r:.60}, and not an array",
                              problem.picture)
    if answer.dtype != problem.dtype or answer.shape != given[-1].shape:
        return Counterexample(VALUE, f"your answer has the type {answer.dtype} and the shape "
                              f"{answer.shape}; right are {problem.dtype} and {given[-1].shape}",
                              problem.picture)
    if any(one.tobytes() != other.tobytes() for one, other in zip(given, kept, strict=True)):
        return Counterexample(VALUE, "you have changed an array that you were given: others read "
                              "it, too", problem.picture)
    for place, (mine, right) in enumerate(zip(answer.tolist(), problem.wanted(), strict=True)):
        if not _agree(mine, right, problem.op):
            row = [numbers[place] for _, numbers in problem.sources]
            said = f"{problem.op} of {row[0]}" if len(row) == 1 else \
                f"{row[0]} {problem.op} {row[1]}" if len(row) == 2 else f"where of {row}"
            return Counterexample(VALUE, f"{said} is {right}, and you say {mine}", problem.picture)
    return None


def _agree(mine: Number, right: Number, op: str) -> bool:
    if not isinstance(right, float) or mine != mine or right != right or mine in (
            math.inf, -math.inf):
        return bool(mine == right or mine != mine and right != right)
    if mine == 0 == right and op not in ("maximum", "minimum"):  # which zero is open there
        return math.copysign(1, mine) == math.copysign(1, right)
    near = float(np.spacing(np.float32(abs(right)))) if op in REAL else 0.0
    return abs(mine - right) <= near


# Programs ----------------------------------------------------------------------------------

Statement = tuple[Any, ...]
Program = Sequence[Statement]


def shown(statements: Program) -> list[list[int]]:
    """What is shown, by definition: everything is copied, always."""
    variables: dict[str, Array] = {}
    found = []
    for kind, name, *rest in statements:
        if kind == "make":
            variables[name] = np.array(rest[0])
        elif kind == "let":
            made = [variables[each] for each in rest[1]]
            variables[name] = made[0] + made[1] if rest[0] == "add" else made[0] * made[1]
        elif kind == "view":
            variables[name] = variables[rest[0]][slice(*rest[1])].copy()
        elif kind == "turned":
            variables[name] = variables[rest[0]][::-1].copy()
        elif kind == "same":
            variables[name] = variables[rest[0]].copy()
        elif kind == "write":
            variables[name][slice(*rest[0])] = variables[rest[1]].copy()
        else:
            found.append(variables[name].tolist())
    return found


def programs() -> Iterator[Program]:
    """Small ones that hurt, then some at random."""
    x, y = ("make", "x", [1, 2, 3, 4]), ("make", "y", [10, 20])
    show = [("show", "x"), ("show", "y")]
    yield [x, ("show", "x")]
    yield [x, ("let", "z", "add", ("x", "x")), ("show", "z")]
    yield [x, ("same", "y", "x"), ("let", "x", "mul", ("x", "x")), *show]
    yield [x, y, ("write", "x", (0, 2), "y"), ("show", "x")]
    yield [x, y, ("show", "x"), ("write", "x", (0, 2), "y"), ("show", "x")]
    yield [x, y, ("let", "z", "add", ("x", "x")), ("write", "x", (0, 2), "y"), ("show", "z")]
    yield [x, y, ("same", "z", "x"), ("write", "x", (1, 3), "y"), ("show", "z")]
    yield [x, y, ("view", "z", "x", (0, 2)), ("write", "x", (0, 2), "y"), ("show", "z")]
    yield [x, y, ("turned", "z", "x"), ("write", "x", (0, 2), "y"), ("show", "z")]
    yield [x, ("turned", "y", "x"), ("write", "x", (0, 4), "y"), *show]
    yield [x, ("view", "y", "x", (0, 3)), ("write", "x", (1, 4), "y"), *show]
    chooser = random.Random(0)
    for _ in range(40):
        yield drawn(chooser)


def drawn(chooser: random.Random) -> Program:
    """Nine statements about four variables of four numbers."""
    made: list[Statement] = [("make", name, [chooser.randrange(9) for _ in range(4)])
                             for name in "abcd"]
    views: set[str] = set()
    for _ in range(9):
        name, one, other = (chooser.choice("abcd") for _ in range(3))
        kind = chooser.choice(("let", "turned", "same", "write", "write"))
        if kind == "let":
            made.append((kind, name, chooser.choice(("add", "mul")), (one, other)))
        elif kind != "write":
            made.append((kind, name, one))
        elif name not in views:
            made.append((kind, name, (0, 4), one))
        if kind in ("turned", "same"):  # what is written through is another lesson
            views.add(name)
        elif kind == "let":
            views.discard(name)
    return [*made, *(("show", name) for name in "abcd")]


def _executed(module: ModuleType, program: Program) -> Counterexample | None:
    picture = "\n".join(map(said, program))
    try:
        answer = module.run(copy.deepcopy(list(program)))
        if not isinstance(answer, list):
            return Counterexample("raised", f"run answers {answer!r:.60}, and not a list", picture)
        mine = [np.asarray(each).tolist() for each in answer]
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    right = shown(program)
    if mine == right:
        return None
    if len(mine) != len(right):
        return Counterexample(EAGER, f"you show {len(mine)} values, and {len(right)} are asked for",
                              picture)
    place = next(at for at, (one, two) in enumerate(zip(mine, right, strict=True)) if one != two)
    name = [each[1] for each in program if each[0] == "show"][place]
    written = [each for each in program if each[0] == "write" and each[1] == name]
    return Counterexample(EAGER if written else ISOLATED,
                          f"{name} is {right[place]}, and you show {mine[place]}", picture)


def said(statement: Statement) -> str:
    """A statement as Python has it."""
    kind, name, *rest = statement
    if kind == "make":
        return f"{name} = {rest[0]}"
    if kind == "let":
        return f"{name} = {rest[1][0]} {'+' if rest[0] == 'add' else '*'} {rest[1][1]}"
    if kind == "view":
        return f"{name} = {rest[0]}[{rest[1][0]}:{rest[1][1]}]"
    if kind == "write":
        return f"{name}[{rest[0][0]}:{rest[0][1]}] = {rest[1]}"
    if kind == "show":
        return f"show {name}"
    return f"{name} = {rest[0]}[::-1]" if kind == "turned" else f"{name} = a copy of {rest[0]}"


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the reference device compute as the reader does, in the types of the lesson."""
    known: Any = module
    ours, mine = known.compute, known.calculate

    def compute(node: Any, given: Sequence[Array]) -> Array:
        name = node.op.name.lower()
        types = (node.dtype.name, *(each.dtype.name for each in node.src))
        numbers = types == ("int32", "float32") or types == ("uint8", "float32")
        if name not in OPERATIONS or not {*types} <= {*TYPES} or name == "cast" and numbers:
            found: Array = ours(node, given)  # a float that does not fit is another lesson
            return found
        answer: Array = mine(name, np.dtype(node.dtype.numpy), list(given))
        return answer

    known.compute = compute


def played(program: Program) -> list[list[int]]:
    """What the runtime shows of a program, on whatever device."""
    from impl import Tensor

    variables: dict[str, Any] = {}
    values = []
    for kind, name, *rest in program:
        if kind == "make":
            variables[name] = Tensor(rest[0])
        elif kind == "let":
            one, other = (variables[each] for each in rest[1])
            variables[name] = one + other if rest[0] == "add" else one * other
        elif kind == "view":
            variables[name] = variables[rest[0]][slice(*rest[1])]
        elif kind == "turned":
            variables[name] = variables[rest[0]].flip(0)
        elif kind == "same":
            variables[name] = Tensor(variables[rest[0]])
        elif kind == "write":
            variables[name][slice(*rest[0])] = variables[rest[1]]
        else:
            values.append(variables[name].tolist())
    return values


def score(module: ModuleType) -> Iterator[str]:
    """The reader's interpreter, and the runtime with all that a scheduler does, on the same."""
    from impl import Context

    known: Any = module
    every = list(programs())
    with Context(DEVICE="REFERENCE"):
        same = sum([np.asarray(each).tolist() for each in known.run(list(program))]
                   == played(program) for program in every)
    yield (f"your interpreter and the scheduled runtime show the same in {same} of {len(every)} "
           "programs")


REFERENCE = Lesson(
    number=2, functions=("calculate", "run"),
    names="""\
`op` is one of
    neg floor trunc add sub mul maximum minimum          of all types
    exp log sin cos tanh sqrt reciprocal div             of floats
    floordiv floormod and or xor                         of whole numbers and of bool
    cmplt cmple cmpeq cmpne                              of all types; the result is bool
    where                                                of a bool and two of one type
    cast                                                 from any type to any; a float that does not
                                                         fit a whole number may become any
`dtype` is the NumPy dtype of the result: float32, int32, uint8 or bool. `given` are arrays of one
shape, or of shapes that NumPy broadcasts. Nobody may change them. A program is a list of
statements:
    ("make", "x", [1, 2, 3])             x = [1, 2, 3]
    ("let", "z", "add", ("x", "y"))      z = x + y; or "mul"
    ("view", "z", "x", (0, 2))           z = x[0:2]
    ("turned", "z", "x")                 z = x[::-1]
    ("same", "z", "x")                   z = a copy of x
    ("write", "x", (0, 2), "y")          x[0:2] = y
    ("show", "x")                        the value of x is asked for
Each variable has a value of its own: a write changes the variable that it names, and no other.""",
    heads='''\
import numpy as np


def calculate(op, dtype, given):
    """The value of one operation: an array of the type `dtype`."""
    raise NotImplementedError


def run(statements):
    """The values that are shown, in order, as a list of lists or arrays."""
    raise NotImplementedError
''',
    rules=(VALUE, EAGER, ISOLATED),
    hints=(
        "Begin with a dict from names to functions of NumPy: np.add, np.maximum, np.floor_divide, "
        "np.less. Most of them are right. The counterexamples name those that are not.",
        "The result has to have the type that was asked for: np.asarray(found).astype(dtype).",
        "A maximum with NaN is NaN: np.maximum does that, and np.fmax does not.",
        "// rounds down, and the remainder has the sign of the divisor, as in Python: "
        "np.floor_divide and np.remainder. np.fmod rounds to zero. Divided by 0 NumPy gives 0.",
        "Functions of floats: compute in float64, and round the result once. bool: NumPy has no "
        "minus and no // for it. Compute with int32, and ask whether the result is other than 0.",
        "cast to bool asks whether a number is other than 0: 0.5 is True. where: np.where. Who "
        "multiplies with the condition gets NaN from 0 * infinity.",
        "run: a slice of NumPy is a window on the same memory. Who keeps a window keeps what is "
        "written there later. Copy."),
    counterexamples=interpreter, chapters=("reference", "effects"), install=install,
    score=score)
