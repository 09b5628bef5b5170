"""What programs mean: an eager interpreter with NumPy that shares no code with `impl`.

Every statement is executed where it stands, on arrays of its own: an expression never sees a
later write.  Integers wrap around, and must be reproduced exactly.

Floats must be reproduced within what the float policy (the chapter `conventions`) leaves open,
and no more.  The oracle therefore keeps beside every array an *error*: how far a right answer
may lie from the shown one.  The freedoms:

- a reduction, a product of matrices, a cumulative sum may be taken in any order and grouping;
- a product that an addition reads may stay unrounded (its *slack*);
- `exp log sin tanh pow softmax` are within a few units in the last place;
- a subnormal result may become zero.

And the obligations:

- each elementwise operation rounds once, to its dtype, and is neither regrouped nor cancelled:
  `+ - * / sqrt` of known operands have one right answer;
- a reduction whose every partial result is exactly representable is exact, in any order;
- NaN in, NaN out: `maximum`, `minimum`, `relu` and the reductions `max` and `min` included;
- a sum, mean, matrix product or cumulative sum of float16 is accumulated in float32 or better
  and rounded once at the end; other dtypes are accumulated in themselves, or better.

An error of infinity means that the policy leaves the element open: a comparison of two values
that may lie on either side of each other, or a sum that overflows in one order and not in
another.  Such an element is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conformance import protocol
from conformance.protocol import Array, Info, Observation, Options, Program, Statement, Value

# Units in the last place allowed to the functions that no hardware rounds correctly.
FUNCTION_ULPS = 8.0
# Arguments of this type are on a grid so coarse that sums and products of them are exact.
GRID = 8.0


@dataclass(frozen=True)
class Approximate:
    """An array and, for each element, how far a right answer may lie from it.

    `slack` is what comes on top of the error if an addition reads the value: for a product, the
    rounding that the addition may leave out. `given` are values that a program writes down, moved
    and copied at most: their zeros have the sign that is written.
    """

    value: Array
    error: Array
    slack: Array | None = None
    given: bool = False

    def added(self) -> Array:
        """The error that counts in an addition."""
        return self.error if self.slack is None else self.error + self.slack


@dataclass(frozen=True)
class Expected:
    """One observed value as the oracle has it."""

    name: str
    value: Array
    error: Array


Variables = dict[str, Approximate]


def run(program: Program, flushed: Collection[str] = ()) -> list[Expected]:
    """The observed values of a program, in the order in which they are observed.

    `flushed` are dtypes whose subnormal numbers may become zero wherever they are read.
    """
    seen: list[Expected] = []
    with np.errstate(all="ignore"):
        _execute(program["statements"], {}, seen, flushed)
    return seen


def _execute(statements: Sequence[Statement], variables: Variables,
             seen: list[Expected], flushed: Collection[str] = ()) -> None:
    start = dict(variables)
    for index, statement in enumerate(statements):
        do = statement["do"]
        if do == "gradient":
            result, target = statement["from"]
            variables[statement["to"]] = _gradient(statements[:index], result, target,
                                                   variables[target].value, start)
        elif do in protocol.REPETITIONS:
            for body in protocol.calls(statement):
                _execute(body, variables, seen, flushed)
        elif do == "observe":
            for name in statement["names"]:
                known = variables[name]
                seen.append(Expected(name, known.value.copy(), known.error.copy()))
        elif do == "drop":
            for name in statement["names"]:
                del variables[name]
        elif do in ("assign", "store"):
            target = statement["target"]
            value = variables[statement["from"][0]]
            variables[target] = _stored(variables[target], statement.get("view", ()), value)
        elif do not in ("realize", "shards"):
            variables[statement["to"]] = _perhaps_zero(evaluate(statement, variables), flushed)


def _perhaps_zero(x: Approximate, flushed: Collection[str]) -> Approximate:
    """The value, with an error as large as itself where it is subnormal."""
    if x.value.dtype.name not in flushed:
        return x
    size = np.abs(_wide(x.value))
    small = (size > 0) & (size < float(np.finfo(x.value.dtype).tiny))
    return replace(x, error=np.where(small, np.maximum(x.error, size), x.error))


#: A step to both sides of a number, and how near the difference comes to a derivative: relative
#: to it, or to 1 where it is small. Those who compute in singles come no nearer.
STEP, NEAR = 1e-4, 3e-4


def _gradient(before: Sequence[Statement], result: str, target: str, value: Array,
              start: Variables) -> Approximate:
    """The derivative of a number with respect to an input, by central differences in doubles.

    In a body that is repeated, what the target was when the body began is such an input.
    """
    found = np.zeros(value.size)
    for place in range(value.size):
        sides = []
        for step in (STEP, -STEP):
            variables = {name: _doubled(x, place, step if name == target else 0.0)
                         for name, x in start.items()}
            statements = [_in_doubles(each, place, step if each.get("to") == target else 0.0)
                          for each in before]
            _execute(statements, variables, [])
            sides.append(float(variables[result].value))
        found[place] = (sides[0] - sides[1]) / (2 * STEP)
    error = NEAR * np.maximum(1.0, np.abs(found)).reshape(value.shape)
    return Approximate(found.reshape(value.shape).astype(value.dtype), error)


def _doubled(x: Approximate, place: int, step: float) -> Approximate:
    """A value whose floats are doubles, the element at a place moved by a step."""
    if x.value.dtype.name not in protocol.FLOATS:
        return x
    value = x.value.astype(np.float64)
    if step:
        value.reshape(-1)[place] += step
    return Approximate(value, np.zeros(value.shape))


def _in_doubles(statement: Statement, place: int, step: float) -> Statement:
    """A statement whose floats are doubles; of an input, the element at a place moved by a step."""
    if statement.get("dtype") not in protocol.FLOATS:
        return statement
    changed = {**statement, "dtype": "float64"}
    if statement["do"] == "input":
        elements = protocol.decode(statement["dtype"], statement["shape"], statement["data"])
        moved = elements.astype(np.float64)
        if step:
            moved.reshape(-1)[place] += step
        changed["data"] = protocol.encode(moved)
    return changed


def _stored(target: Approximate, view: Sequence[Statement], value: Approximate) -> Approximate:
    """The target with one region replaced.  The region is found by moving element numbers."""
    numbers = np.arange(target.value.size).reshape(target.value.shape)
    for step in view:
        numbers = _move(step, numbers)
    new, error, slack = target.value.copy(), target.error.copy(), _slack(target).copy()
    for whole, part in ((new, value.value), (error, value.error), (slack, _slack(value))):
        whole.reshape(-1)[numbers.reshape(-1)] = part.reshape(-1)
    return Approximate(new, error, slack)


def _slack(x: Approximate) -> Array:
    return np.zeros(x.error.shape) if x.slack is None else x.slack


def evaluate(statement: Statement, variables: Variables) -> Approximate:
    """The value of an expression statement, in arrays that nothing else refers to."""
    result = _evaluate(statement, variables)
    # NumPy makes scalars of zero-dimensional results.
    slack = None if result.slack is None else np.asarray(result.slack)
    return Approximate(np.asarray(result.value), np.asarray(result.error), slack, result.given)


def _evaluate(statement: Statement, variables: Variables) -> Approximate:
    do = statement["do"]
    if do in protocol.SOURCES:
        return Approximate(*_with_errors(_source(statement)), given=True)
    sources = [variables[name] for name in statement["from"]]
    first = sources[0]
    if do in protocol.MOVEMENT:
        slack = None if first.slack is None else _move(statement, first.slack)
        return Approximate(_move(statement, first.value), _move(statement, first.error), slack,
                           first.given)
    if do in protocol.REDUCTIONS:
        return _reduce(do, first, tuple(statement["axes"]), statement["keepdims"])
    if do == "cast":
        return _cast(first, np.dtype(statement["dtype"]))
    if do == "bitcast":
        return _bitcast(first, np.dtype(statement["dtype"]))
    if do == "softmax":
        return _softmax(first, statement["axis"])
    if do == "cumsum":
        return _cumsum(first, statement["axis"])
    return FUNCTIONS[do](*sources)


def _source(statement: Statement) -> Array:
    shape, dtype = tuple(statement["shape"]), statement["dtype"]
    if statement["do"] == "input":
        return protocol.decode(dtype, shape, statement["data"])
    return np.full(shape, protocol.number(statement["value"]), dtype=np.dtype(dtype))


def _with_errors(value: Array) -> tuple[Array, Array]:
    return value, np.zeros(value.shape)


def _exactly(value: Array) -> Approximate:
    return Approximate(*_with_errors(value))


def _move(step: Statement, array: Array) -> Array:
    """One movement of the elements of an array; the result is a copy of its own."""
    do = step["do"]
    if do == "reshape":
        moved = array.reshape(step["shape"])
    elif do == "expand":
        moved = np.broadcast_to(array, step["shape"])
    elif do == "permute":
        moved = array.transpose(step["order"])
    elif do == "pad":
        moved = np.pad(array, step["widths"]) if array.ndim else array
    elif do == "shrink":
        moved = array[tuple(slice(start, stop) for start, stop in step["bounds"])]
    elif do == "flip":
        moved = np.flip(array, tuple(step["axes"]))
    else:
        moved = array[tuple(slice(None, None, each) for each in step["steps"])]
    return np.array(moved)


# Errors ------------------------------------------------------------------------------------


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


def _wide(array: Array) -> Array:
    """The elements in float64, for the arithmetic of errors."""
    return array.astype(np.float64)


def _unit(dtype: np.dtype[np.generic]) -> float:
    """How much rounding once to a dtype may change a value, relative to it."""
    return float(np.finfo(dtype.name).eps)


def _last_place(value: Array) -> Array:
    """A unit in the last place of each element: near zero it is the smallest subnormal."""
    finfo = np.finfo(value.dtype)
    places: Array = float(finfo.eps) * np.maximum(np.abs(_wide(value)), float(finfo.tiny))
    return places


def _on_grid(array: Array, grid: float = GRID) -> bool:
    """Whether every element is a multiple of 1/grid, so that sums of them lose no bits."""
    scaled = _wide(array) * grid
    return bool(np.all(scaled == np.rint(scaled)))


def _bounded(value: Array, error: Array, certain: Array | bool = False) -> Approximate:
    """A float result with its error: unlimited where that may reach an overflow or a NaN.

    `certain` marks the elements that are what they are for a reason that no error can change.
    """
    finfo = np.finfo(value.dtype)
    wide = np.abs(_wide(value))
    error = np.where(np.isnan(error), np.inf, error)
    beyond = ~np.isfinite(value) | (wide + error > float(finfo.max))
    error = np.where((error > 0) & beyond, np.inf, error)
    subnormal = np.where((wide < float(finfo.tiny)) & (wide > 0), float(finfo.tiny), 0.0)
    return Approximate(value, np.where(certain, 0.0, error + subnormal))


def _rounded(value: Array, propagated: Array, certain: Array | bool = False) -> Approximate:
    """The result of an operation that rounds correctly: exact if its operands are."""
    rounded = propagated + _last_place(value)
    return _bounded(value, np.where(propagated == 0, 0.0, rounded), certain)


def _nearly(value: Array, propagated: Array, ulps: float,
            certain: Array | bool = False) -> Approximate:
    """The result of an operation that is off by some units in the last place."""
    return _bounded(value, propagated + ulps * _last_place(value), certain)


def _settled(*sources: Approximate) -> Array:
    """Where every operand is known exactly: there, what is not finite is so for certain."""
    settled: Array = np.asarray(True)
    for source in sources:
        settled = settled & (source.error == 0)
    return settled


def _given_nan(*sources: Approximate) -> Array:
    """Where some operand certainly is NaN, so that the result is, whatever the others are."""
    given: Array = np.asarray(False)
    for source in sources:
        given = given | (np.isnan(source.value) & (source.error == 0))
    return given


def _any_infinite(*sources: Approximate) -> Array:
    infinite: Array = np.asarray(False)
    for source in sources:
        infinite = infinite | np.isinf(source.value)
    return infinite


def _discrete(value: Array, *sources: Approximate) -> Approximate:
    """An integer or bool result: right if every operand is, and otherwise left open."""
    return Approximate(value, np.where(_settled(*sources), 0.0, np.inf) * np.ones(value.shape))


# Element by element ------------------------------------------------------------------------


def _neg(x: Approximate) -> Approximate:
    return Approximate(np.negative(x.value), x.error, x.slack)


def _abs(x: Approximate) -> Approximate:
    return Approximate(np.abs(x.value), x.error)


def _relu(x: Approximate) -> Approximate:
    # np.maximum keeps NaN.
    return Approximate(np.maximum(x.value, np.zeros((), x.value.dtype)), x.error)


def _not(x: Approximate) -> Approximate:
    return _discrete(np.invert(x.value), x)


def _identity(x: Approximate) -> Approximate:
    return Approximate(x.value.copy(), x.error.copy(), x.slack, x.given)


def _function(x: Approximate, value: Array, propagated: Array,
              certain: Array | bool = False) -> Approximate:
    """A function that is rounded to within a few units in the last place."""
    known = _given_nan(x) | (_settled(x) & (certain | ~np.isfinite(x.value)))
    return _nearly(value, propagated, FUNCTION_ULPS, known)


def _exp(x: Approximate) -> Approximate:
    value, wide = np.exp(x.value), _wide(x.value)
    # Beyond the overflow threshold by a margin, infinity is the only answer.
    overflows = wide - x.error > np.log(float(np.finfo(value.dtype).max)) + 1
    propagated = _wide(value) * np.expm1(x.error)
    result = _function(x, value, propagated)
    return Approximate(value, np.where(overflows, 0.0, result.error))


def _log(x: Approximate) -> Approximate:
    wide = _wide(x.value)
    value = np.log(x.value)
    relative = np.where(x.error == 0, 0.0, x.error / np.abs(wide))
    propagated = np.where(relative < 1, -np.log1p(-np.minimum(relative, 0.999999)), np.inf)
    return _function(x, value, propagated, certain=wide <= 0)


def _sqrt(x: Approximate) -> Approximate:
    wide = _wide(x.value)
    spread = np.where(wide > x.error, x.error / np.sqrt(wide), np.inf)
    return _rounded(np.sqrt(x.value), np.where(x.error == 0, 0.0, spread), _given_nan(x))


def _sin(x: Approximate) -> Approximate:
    # Near a zero of the sine far from 0 nothing but a longer number for pi keeps its digits: the
    # argument may be off by as much as a unit of 1 in the last place, and by no more.
    far = np.minimum(1.0, np.abs(_wide(x.value)))
    reduction = FUNCTION_ULPS * _unit(x.value.dtype) * far
    return _function(x, np.sin(x.value), np.minimum(x.error, 2.0) + reduction)


def _tanh(x: Approximate) -> Approximate:
    return _function(x, np.tanh(x.value), np.minimum(x.error, 2.0))


def _reciprocal(x: Approximate) -> Approximate:
    return _div(_exactly(np.ones_like(x.value)), x)


def _add(a: Approximate, b: Approximate, sign: int = 1) -> Approximate:
    value = a.value + b.value if sign == 1 else a.value - b.value
    if not _is_float(value):
        return _discrete(value, a, b)
    return _rounded(value, a.added() + b.added(), _given_nan(a, b))


def _fits(on_grid: bool, magnitude: Array, grid: float, dtype: np.dtype[np.generic]) -> Array:
    """Where numbers on a grid, no larger than this, are all representable."""
    return np.asarray(on_grid) & (magnitude * grid * _unit(dtype) <= 1.0)


def _sub(a: Approximate, b: Approximate) -> Approximate:
    return _add(a, b, sign=-1)


def _mul(a: Approximate, b: Approximate) -> Approximate:
    value = a.value * b.value
    if not _is_float(value):
        return _discrete(value, a, b)
    left, right = np.abs(_wide(a.value)), np.abs(_wide(b.value))
    propagated = left * b.error + right * a.error + a.error * b.error
    result = _rounded(value, np.where(_settled(a, b), 0.0, propagated), _given_nan(a, b))
    exact = _fits(_on_grid(a.value) and _on_grid(b.value), left * right, GRID * GRID, value.dtype)
    slack = np.where(exact | np.isnan(value), 0.0, _unit(value.dtype) * np.abs(_wide(value)))
    # A product of infinities is one whether it is rounded or not.
    slack = np.where(_any_infinite(a, b), 0.0, slack)
    return Approximate(result.value, result.error, slack)


def _div(a: Approximate, b: Approximate) -> Approximate:
    value = np.divide(a.value, b.value)
    room = np.abs(_wide(b.value)) - b.error
    propagated = np.where(room > 0, (a.error + np.abs(_wide(value)) * b.error) / room, np.inf)
    propagated = np.where(_settled(a, b), 0.0, propagated)
    # x / 0 is left open: the zero may come from a `maximum`, which may take either of two.
    # 0 / 0 is NaN all the same.
    open_sign = (b.value == 0) & (a.value != 0) & ~np.isnan(a.value)
    return _rounded(value, np.where(open_sign, np.inf, propagated), _given_nan(a, b))


def _floordiv(a: Approximate, b: Approximate) -> Approximate:
    """Rounded down, not toward zero.  Dividing by zero gives zero."""
    return _discrete(_floor_divide(a.value, b.value)[0], a, b)


def _mod(a: Approximate, b: Approximate) -> Approximate:
    """The remainder of `floordiv`: its sign is that of the divisor.  x mod 0 is 0."""
    return _discrete(_floor_divide(a.value, b.value)[1], a, b)


def _floor_divide(a: Array, b: Array) -> tuple[Array, Array]:
    safe = np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "i":
        # The one quotient that overflows wraps around: -128 // -1 is -128 in int8.
        overflow = (safe == -1) & (a == np.iinfo(a.dtype).min)
        safe = np.where(overflow, np.ones_like(safe), safe)
    quotient = np.floor_divide(a, safe)
    remainder = (a - quotient * safe).astype(a.dtype)
    zero = np.zeros_like(a)
    return np.where(b == 0, zero, quotient), np.where(b == 0, zero, remainder)


def _larger(a: Approximate, b: Approximate,
            choose: Callable[[Array, Array], Array]) -> Approximate:
    error = np.maximum(a.error, b.error) * np.ones(a.value.shape)
    return Approximate(choose(a.value, b.value), np.where(_given_nan(a, b), 0.0, error))


def _maximum(a: Approximate, b: Approximate) -> Approximate:
    return _larger(a, b, np.maximum)


def _minimum(a: Approximate, b: Approximate) -> Approximate:
    return _larger(a, b, np.minimum)


def _pow(a: Approximate, b: Approximate) -> Approximate:
    value = np.power(a.value, b.value)
    base, exponent = np.abs(_wide(a.value)), _wide(b.value)
    propagated = np.where(_settled(a, b), 0.0, np.inf)
    # 0 to a negative power is an infinity whose sign depends on that of the zero.
    known = np.isnan(value) | ((base == 0) & (exponent > 0)) | np.isinf(base)
    return _nearly(value, propagated, FUNCTION_ULPS, _settled(a, b) & known)


def _compared(a: Approximate, b: Approximate,
              compare: Callable[[Array, Array], Array]) -> Approximate:
    value = compare(a.value, b.value)
    distance = np.abs(_wide(a.value) - _wide(b.value))
    spread = a.error + b.error
    # A nan distance (something is not finite) is left open unless all is settled.
    clear = _settled(a, b) | (distance > spread)
    return Approximate(value, np.where(clear, 0.0, np.inf))


def _less(a: Approximate, b: Approximate) -> Approximate:
    return _compared(a, b, np.less)


def _less_equal(a: Approximate, b: Approximate) -> Approximate:
    return _compared(a, b, np.less_equal)


def _equal(a: Approximate, b: Approximate) -> Approximate:
    return _compared(a, b, np.equal)


def _and(a: Approximate, b: Approximate) -> Approximate:
    return _discrete(np.bitwise_and(a.value, b.value), a, b)


def _or(a: Approximate, b: Approximate) -> Approximate:
    return _discrete(np.bitwise_or(a.value, b.value), a, b)


def _xor(a: Approximate, b: Approximate) -> Approximate:
    return _discrete(np.bitwise_xor(a.value, b.value), a, b)


def _where(condition: Approximate, a: Approximate, b: Approximate) -> Approximate:
    value = np.where(condition.value, a.value, b.value)
    error = np.where(condition.value, a.error, b.error)
    return Approximate(value, np.where(condition.error > 0, np.inf, error))


def _cast(x: Approximate, dtype: np.dtype[np.generic]) -> Approximate:
    if dtype == x.value.dtype:
        return _identity(x)
    if dtype.kind == "b":
        value = x.value != 0
        clear = _settled(x) | (np.abs(_wide(x.value)) > x.error)
        return Approximate(value, np.where(clear, 0.0, np.inf))
    if dtype.kind == "f":
        value = x.value.astype(dtype)
        return _rounded(value, x.error, _given_nan(x) if _is_float(x.value) else False)
    return _to_integer(x, dtype)


def _bitcast(x: Approximate, dtype: np.dtype[np.generic]) -> Approximate:
    """The same bits as another dtype.  Those of inexact values and NaNs are left open, and those of
    zeros that were computed: of a maximum it may be the one or the other.
    """
    value = np.ascontiguousarray(x.value).view(dtype).reshape(x.value.shape)
    open_bits = (x.error != 0) | np.isnan(_wide(x.value))
    if _is_float(x.value) and not x.given:
        open_bits = open_bits | (x.value == 0)
    return Approximate(value, np.where(open_bits, np.inf, 0.0), given=x.given)


def _to_integer(x: Approximate, dtype: np.dtype[np.generic]) -> Approximate:
    """Integers wrap around; floats are cut off toward zero, and left open out of range."""
    if not _is_float(x.value):
        return _discrete(x.value.astype(dtype), x)
    wide, limits = np.trunc(_wide(x.value)), np.iinfo(dtype.name)
    inside = (wide >= float(limits.min)) & (wide < float(limits.max) + 1.0)
    same = np.trunc(_wide(x.value) - x.error) == np.trunc(_wide(x.value) + x.error)
    safe = np.where(inside, x.value, np.zeros_like(x.value))
    return Approximate(safe.astype(dtype), np.where(inside & same, 0.0, np.inf))


# Along axes --------------------------------------------------------------------------------


def _accumulator(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """float16 is accumulated in float32; everything else in its own dtype."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _reduce(do: str, x: Approximate, axes: tuple[int, ...], keepdims: bool) -> Approximate:
    if do in ("max", "min"):
        choose = np.max if do == "max" else np.min
        value = np.asarray(choose(x.value, axis=axes, keepdims=keepdims))
        error = np.asarray(np.max(x.error, axis=axes, keepdims=keepdims))
        nan = np.any(_given_nan(x) & np.ones(x.value.shape, bool), axis=axes, keepdims=keepdims)
        return Approximate(value, np.where(nan, 0.0, error))
    if do == "prod":
        return _product(x, axes, keepdims)
    return _sum(x, axes, keepdims, mean=do == "mean")


def _sum(x: Approximate, axes: tuple[int, ...], keepdims: bool, mean: bool) -> Approximate:
    dtype = x.value.dtype
    count = int(np.prod([x.value.shape[axis] for axis in axes], dtype=np.int64))
    total = np.asarray(x.value.sum(axis=axes, keepdims=keepdims, dtype=_accumulator(dtype)))
    if not _is_float(x.value):
        clean = np.all(x.error == 0, axis=axes, keepdims=keepdims)
        return Approximate(total, np.where(clean, 0.0, np.inf))
    if mean:
        total = np.asarray(total / np.asarray(count, total.dtype))
    finite = np.where(np.isfinite(x.value), np.abs(_wide(x.value)), 0.0)
    magnitude = finite.sum(axis=axes, keepdims=keepdims)
    errors = x.added().sum(axis=axes, keepdims=keepdims)
    summed = _accumulated(total, magnitude, errors, count, _on_grid(x.value), GRID, dtype,
                          divisor=count if mean else 1)
    return _with_specials(summed, x, axes, keepdims, nothing=mean and count == 0)


def _accumulated(total: Array, magnitude: Array, errors: Array, count: int, on_grid: bool,
                 grid: float, dtype: np.dtype[np.generic], divisor: int = 1) -> Approximate:
    """The result of adding up: rounded once for each term, in any order, then to `dtype`."""
    accumulator = total.dtype
    value = total.astype(dtype)
    exact = _fits(on_grid, magnitude, grid, accumulator)
    spread = np.where(exact, 0.0, (count + 1) * _unit(accumulator) * magnitude) + errors
    overflow = magnitude + errors > float(np.finfo(accumulator).max)
    error = np.where(overflow, np.inf, spread / max(divisor, 1))
    # A mean may also be a product with a rounded reciprocal.
    return _rounded(value, error) if divisor == 1 else \
        _nearly(value, error, 4.0, certain=(error == 0) & (total == 0))


def _with_specials(result: Approximate, x: Approximate, axes: tuple[int, ...], keepdims: bool,
                   nothing: bool = False) -> Approximate:
    """NaN and infinity among the terms decide a sum, whatever the others are."""
    if nothing:
        return _exactly(result.value)
    every = np.ones(x.value.shape, bool)
    nan = np.any(_given_nan(x) & every, axis=axes, keepdims=keepdims)
    infinite = np.any(np.isinf(x.value), axis=axes, keepdims=keepdims)
    settled = np.all(_settled(x) & every, axis=axes, keepdims=keepdims)
    return Approximate(result.value, np.where(nan | (infinite & settled), 0.0, result.error))


def _product(x: Approximate, axes: tuple[int, ...], keepdims: bool) -> Approximate:
    value = np.asarray(x.value.prod(axis=axes, keepdims=keepdims, dtype=x.value.dtype))
    if not _is_float(x.value):
        clean = np.all(x.error == 0, axis=axes, keepdims=keepdims)
        return Approximate(value, np.where(clean, 0.0, np.inf))
    count = int(np.prod([x.value.shape[axis] for axis in axes], dtype=np.int64))
    size = np.where(np.isfinite(x.value), np.abs(_wide(x.value)), 0.0)
    unit = _unit(value.dtype)
    upper = np.prod((size + x.error) * (1 + unit), axis=axes, keepdims=keepdims)
    exact_size = np.prod(size, axis=axes, keepdims=keepdims)
    largest = np.prod(np.maximum(size + x.error, 1.0), axis=axes, keepdims=keepdims)
    finfo = np.finfo(value.dtype)
    lost = count * float(finfo.tiny) * largest * (largest > 1)
    whole = _on_grid(x.value, 1.0)
    exact = _fits(whole, largest, 1.0, value.dtype) & np.all(x.error == 0, axis=axes,
                                                             keepdims=keepdims)
    error = np.where(exact, 0.0, upper - exact_size + lost)
    error = np.where(largest > float(finfo.max), np.inf, error)
    return _with_specials(_rounded(value, error), x, axes, keepdims)


def _cumsum(x: Approximate, axis: int) -> Approximate:
    dtype = x.value.dtype
    total = np.cumsum(x.value, axis=axis, dtype=_accumulator(dtype))
    if not _is_float(x.value):
        return Approximate(total, np.cumsum(x.error, axis=axis))
    finite = np.where(np.isfinite(x.value), np.abs(_wide(x.value)), 0.0)
    result = _accumulated(total, np.cumsum(finite, axis=axis), np.cumsum(x.added(), axis=axis),
                          x.value.shape[axis], _on_grid(x.value), GRID, dtype)
    nan = np.logical_or.accumulate(_given_nan(x) & np.ones(x.value.shape, bool), axis=axis)
    infinite = np.logical_or.accumulate(np.isinf(x.value), axis=axis)
    settled = np.logical_and.accumulate(x.error == 0, axis=axis)
    return Approximate(result.value, np.where(nan | (infinite & settled), 0.0, result.error))


def _matmul(a: Approximate, b: Approximate) -> Approximate:
    dtype = a.value.dtype
    accumulator = _accumulator(dtype)
    total = np.matmul(a.value.astype(accumulator), b.value.astype(accumulator))
    if not _is_float(a.value):
        unclear = np.matmul((a.error > 0).astype(float), np.ones(b.value.shape)) \
            + np.matmul(np.ones(a.value.shape), (b.error > 0).astype(float))
        return Approximate(total, np.where(unclear > 0, np.inf, 0.0))
    left = np.where(np.isfinite(a.value), np.abs(_wide(a.value)), 0.0)
    right = np.where(np.isfinite(b.value), np.abs(_wide(b.value)), 0.0)
    # The single products may be rounded to the dtype of the operands before they are added.
    errors = _matmul_errors(a, b, left, right)
    if dtype != accumulator:
        errors = errors + _unit(dtype) * np.matmul(left, right)
    result = _accumulated(total, np.matmul(left, right), errors, a.value.shape[-1],
                          _on_grid(a.value) and _on_grid(b.value), GRID * GRID, dtype)
    given = np.isnan(np.matmul(np.where(_given_nan(a), np.nan, 0.0), np.ones(b.value.shape))
                     + np.matmul(np.ones(a.value.shape), np.where(_given_nan(b), np.nan, 0.0)))
    special = ~np.isfinite(np.matmul(np.where(np.isfinite(a.value), 0.0, np.nan),
                                     np.ones(b.value.shape))
                           + np.matmul(np.ones(a.value.shape),
                                       np.where(np.isfinite(b.value), 0.0, np.nan)))
    settled = bool(np.all(a.error == 0) and np.all(b.error == 0))
    return Approximate(result.value, np.where(given | (special & settled), 0.0, result.error))


def _matmul_errors(a: Approximate, b: Approximate, left: Array, right: Array) -> Array:
    """|a| eb + ea |b| + ea eb, where an open element leaves its whole row or column open."""
    open_a, open_b = np.isinf(a.error), np.isinf(b.error)
    error_a, error_b = np.where(open_a, 0.0, a.error), np.where(open_b, 0.0, b.error)
    spread = np.matmul(left, error_b) + np.matmul(error_a, right) + np.matmul(error_a, error_b)
    touched = np.matmul(open_a.astype(float), np.ones(right.shape)) \
        + np.matmul(np.ones(left.shape), open_b.astype(float))
    return np.where(touched > 0, np.inf, spread)


def _softmax(x: Approximate, axis: int) -> Approximate:
    """exp(x - max) / sum(exp(x - max)) along an axis, the intermediate results in float32."""
    dtype = x.value.dtype
    size = x.value.shape[axis]
    if x.value.size == 0:
        return _identity(x)
    wide = x.value.astype(_accumulator(dtype))
    weights = np.exp(wide - wide.max(axis=axis, keepdims=True))
    value = (weights / weights.sum(axis=axis, keepdims=True)).astype(dtype)
    spread = np.max(x.error, axis=axis, keepdims=True)
    reach = np.abs(_wide(wide - wide.max(axis=axis, keepdims=True)))
    reach = np.where(np.isfinite(reach), reach, 0.0)
    unit = _unit(dtype)
    relative = np.expm1(2 * spread + (size + 4 * FUNCTION_ULPS + 2 * reach) * unit)
    nan = np.any(_given_nan(x) & np.ones(x.value.shape, bool), axis=axis, keepdims=True)
    settled = np.all(x.error == 0, axis=axis, keepdims=True)
    # An infinity makes each weight of its line NaN, or its own weight zero.
    certain = nan | (settled & (np.isnan(value) | np.isneginf(x.value)))
    error = np.maximum(np.abs(_wide(value)) * relative, FUNCTION_ULPS * _last_place(value))
    return _bounded(value, error, certain)


def _gather(x: Approximate, index: Approximate) -> Approximate:
    """Rows of x.  A program whose index is out of range asks for nothing in particular."""
    extent = x.value.shape[0]
    inside = (index.value >= 0) & (index.value < extent) & (index.error == 0)
    if extent == 0:
        shape = index.value.shape + x.value.shape[1:]
        return Approximate(np.zeros(shape, x.value.dtype), np.full(shape, np.inf))
    safe = np.where(inside, index.value, np.zeros_like(index.value)).astype(np.int64)
    closed = inside.reshape(inside.shape + (1,) * (x.value.ndim - 1))
    return Approximate(x.value[safe], np.where(closed, x.error[safe], np.inf))


FUNCTIONS: dict[str, Callable[..., Approximate]] = {
    "neg": _neg, "abs": _abs, "relu": _relu, "not": _not, "exp": _exp, "log": _log,
    "sqrt": _sqrt, "sin": _sin, "tanh": _tanh, "reciprocal": _reciprocal, "add": _add,
    "sub": _sub, "mul": _mul, "div": _div, "floordiv": _floordiv, "mod": _mod,
    "maximum": _maximum, "minimum": _minimum, "pow": _pow, "less": _less,
    "less_equal": _less_equal, "equal": _equal, "and": _and, "or": _or, "xor": _xor,
    "where": _where, "matmul": _matmul, "gather": _gather, "contiguous": _identity,
    "copy": _identity, "shard": _identity, "shard_like": lambda x, other: _identity(x),
}


# Comparing ---------------------------------------------------------------------------------


def difference(expected: Expected, value: Value) -> str:
    """What is wrong with an observed value, or "" if it is what the oracle expects."""
    want = expected.value
    if value.name != expected.name:
        return f"{value.name} was reported where {expected.name} is observed"
    if value.dtype != want.dtype.name or tuple(value.shape) != want.shape:
        return (f"{value.name} is {value.dtype} {tuple(value.shape)}, "
                f"not {want.dtype.name} {want.shape}")
    got = value.array()
    wrong = np.argwhere(~_agrees(want, expected.error, got))
    if not len(wrong):
        return ""
    place = tuple(int(each) for each in wrong[0])
    return (f"{value.name}{list(place)} is {got[place]}, not {want[place]} "
            f"(may differ by {expected.error[place]:.3g}); {len(wrong)} of {want.size} differ")


def _agrees(want: Array, error: Array, got: Array) -> Array:
    if want.dtype.kind != "f":
        return (want == got) | np.isinf(error)
    with np.errstate(all="ignore"):
        distance = np.abs(_wide(want) - _wide(got))
        same = (want == got) | (np.isnan(want) & np.isnan(got))
        return same | (distance <= error) | np.isinf(error)


def differences(program: Program, values: Sequence[Value],
                flushed: Collection[str] = ()) -> list[str]:
    """Everything that is wrong with the observed values of a program; `flushed` as in `run`."""
    expected = run(program, flushed)
    if len(values) != len(expected):
        return [f"{len(values)} values were reported where {len(expected)} are observed"]
    found = [difference(each, value) for each, value in zip(expected, values, strict=False)]
    return [each for each in found if each]


class OracleAdapter:
    """The oracle as an implementation: the naive one that plans nothing."""

    def info(self) -> Info:
        return Info("oracle", "1", observes=("values", "replay", "gradient"),
                    choices={"schedules": False})

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        return Observation([Value.of(each.name, each.value) for each in run(program)])

    def reset(self) -> None:
        """Nothing is kept from one run to the next."""
