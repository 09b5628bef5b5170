"""Generated programs about effects: few shapes and little arithmetic, many orders and writes.

The programs of `generators.programs` are about everything, and nearly each of their kernels is
new, so that most of the time goes into compiling.  Here the diversity is in what is written,
read, kept, dropped, realized and captured, and when; kernels repeat.  As there, a choice
(kind, i, j, k) becomes a few statements, and every list of choices is a well-formed program.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import LARGEST_REFERENCE, Choice, Draft, Maker
from conformance.protocol import Program, Statement, shapes
from conformance.protocol.shapes import Kind

SHAPES: tuple[tuple[int, ...], ...] = ((6,), (2, 3), (6,), (4, 4), (3, 2), (6,))
DTYPES = ("int32", "int32", "float32", "int32", "int8")
#: What has elements of the same size, for bit casts.
BITS = {"int32": "float32", "float32": "int32", "int8": "uint8", "uint8": "int8"}
CALLS = (3, 4, 2, 5)


def _state(draft: Draft, i: int, j: int, k: int) -> None:
    """Some memory: an input, most often realized at once."""
    array = programs.pattern(DTYPES[j % len(DTYPES)], SHAPES[i % len(SHAPES)], k % 4)
    name = draft.add("input", dtype=array.dtype.name, shape=list(array.shape),
                     data=protocol.encode(array))
    if k % 4:
        draft.append({"do": "realize", "names": [name]})


def _derive(draft: Draft, i: int, j: int, k: int) -> None:
    """A value computed from others and not realized: a reader that waits."""
    source = draft.pick(j)
    kind = draft.kinds[source]
    option = i % 8
    if option in (0, 1):
        draft.add("add", source, draft.like(source, k))
    elif option == 2:
        draft.add("mul", source, draft.constant(kind, 2))
    elif option == 3:
        draft.add("sub", source, draft.constant(kind, 1))
    elif option == 4 and kind.shape:
        total = draft.add("sum", source, axes=[k % len(kind.shape)], keepdims=True)
        draft.add("expand", total, shape=list(kind.shape))
    elif option == 5 and kind.dtype in BITS:
        draft.add("bitcast", source, dtype=BITS[kind.dtype])
    else:
        _moved(draft, source, ("flip", "permute", "shrink", "reshape", "flip", "stride")[k % 6], k)


def _moved(draft: Draft, source: str, do: str, k: int) -> str:
    """A movement of a variable: a region of it, or its elements in another order."""
    step = programs.movement(do, draft.kinds[source].shape, k // 6)
    if not step:
        return draft.add("neg", source)
    return draft.add(do, source, **{key: value for key, value in step.items() if key != "do"})


def _write(draft: Draft, i: int, j: int, k: int) -> None:
    """A store to a region: of a constant, of another variable, or of the target itself."""
    target = draft.pick(i)
    kind = draft.kinds[target]
    view = list(programs.region_view(kind.shape, k))
    region = Kind(kind.dtype, shapes.view_shape(kind.shape, view))
    fitting = [name for name, other in draft.kinds.items() if other == region]
    if j % 3 == 0 or not fitting:
        value = draft.constant(region, 3)
    else:
        value = fitting[-1 - j // 3 % len(fitting)]
    _store(draft, target, view, value)


def _store(draft: Draft, target: str, view: Sequence[Statement], value: str) -> None:
    draft.append({"do": "store", "target": target, "view": list(view), "from": [value]})


def _shift(draft: Draft, i: int, j: int, k: int) -> None:
    """A part of a variable is written over another part of it: up, down, reversed, transposed."""
    target = draft.pick(i)
    shape = draft.kinds[target].shape
    if not shape or not shape[0]:
        return
    rest: list[list[int]] = [[0, size] for size in shape[1:]]
    distance = min(1 + j % 2, shape[0])
    low: list[list[int]] = [[0, shape[0] - distance], *rest]
    high: list[list[int]] = [[distance, shape[0]], *rest]
    source, place = ((low, high), (high, low))[k % 2]
    if k % 4 < 2:
        value = draft.add("shrink", target, bounds=source)
        _store(draft, target, [{"do": "shrink", "bounds": place}], value)
    elif len(shape) == 2 and shape[0] == shape[1]:
        _store(draft, target, [], draft.add("permute", target, order=[1, 0]))
    else:
        mirrored = draft.add("flip", target, axes=[0])
        # Sometimes added to what is there: a reader and a writer of every element.
        _store(draft, target, [], draft.add("add", target, mirrored) if j % 2 else mirrored)


def _swap(draft: Draft, i: int, j: int, k: int) -> None:
    """Two variables, or two halves of one, change places through a temporary."""
    first = draft.pick(i)
    second = draft.like(first, j)
    shape = draft.kinds[first].shape
    if first == second and shape and shape[0] % 2 == 0:
        half, rest = shape[0] // 2, [[0, size] for size in shape[1:]]
        low, high = ([[0, half], *rest], [[half, shape[0]], *rest])
        kept = draft.add("shrink", first, bounds=low)
        other = draft.add("shrink", first, bounds=high)
        _store(draft, first, [{"do": "shrink", "bounds": low}], other)
        _store(draft, first, [{"do": "shrink", "bounds": high}], kept)
        return
    kept = draft.add(("contiguous", "copy", "neg")[k % 3], first)
    draft.append({"do": "assign", "target": first, "from": [second]})
    draft.append({"do": "assign", "target": second, "from": [kept]})


def _assign(draft: Draft, i: int, j: int, k: int) -> None:
    target = draft.pick(i)
    draft.append({"do": "assign", "target": target, "from": [draft.like(target, j)]})


def _advance(draft: Draft, i: int, j: int, k: int) -> None:
    """An update: the new value is computed from the old one."""
    target = draft.pick(i)
    value = draft.add(("add", "sub")[k % 2], target, draft.like(target, j))
    draft.append({"do": "assign", "target": target, "from": [value]})


def _boundary(draft: Draft, i: int, j: int, k: int) -> None:
    draft.add(("contiguous", "copy")[i % 2], draft.pick(j))


def _realize(draft: Draft, i: int, j: int, k: int) -> None:
    names = {draft.pick(reference): None for reference in (i, j, k)}
    draft.append({"do": "realize", "names": list(names)[:1 + k % 3]})


def _observe(draft: Draft, i: int, j: int, k: int) -> None:
    draft.append({"do": "observe", "names": [draft.pick(i)]})


def _drop(draft: Draft, i: int, j: int, k: int) -> None:
    if len(draft.kinds) > 2:
        draft.append({"do": "drop", "names": [draft.pick(i)]})


def _calls(draft: Draft, i: int, j: int, k: int) -> None:
    """A captured function of one variable: it is called with several, in some containers."""
    kind = draft.kinds[draft.pick(i)]
    same = [name for name, other in draft.kinds.items() if other == kind]
    made = f"t{draft._count}"
    draft._count += 1
    body: list[Statement] = [{"do": "add", "to": made, "from": ["x", "x"]}]
    if j % 3:
        body.append({"do": "observe", "names": [made]})
    given = [{"x": same[(j + call * k) % len(same)]} for call in range(CALLS[k % len(CALLS)])]
    draft.append({"do": "calls", "given": given, "nested": j % 4, "statements": body})


def _repeat(draft: Draft, i: int, j: int, k: int) -> None:
    """A captured function: its states and its values are used later, or its states alone."""
    if i // 4 % 4 == 3:
        _calls(draft, i, j, k)
        return
    random = Random((i * 64 + j) * 64 + k)
    body = Draft()
    body.kinds, body._count = dict(draft.kinds), draft._count
    for _ in range(1 + i % 4):
        BODY[random.randrange(len(BODY))](
            body, *(random.randrange(LARGEST_REFERENCE + 1) for _ in range(3)))
    if j % 3:
        _observe(body, j, 0, 0)
    draft._count = body._count
    draft.append({"do": "repeat", "count": CALLS[k % len(CALLS)], "statements": body.statements})
    made = [name for name in draft.kinds if name not in body.kinds or body.kinds[name] is None]
    values = [each["to"] for each in body.statements if "to" in each] + made
    if values and k % 3 == 0:
        draft.append({"do": "drop", "names": values})


BODY: tuple[Maker, ...] = (_advance, _write, _derive, _shift, _swap, _realize, _derive, _advance)
# The simplest come first: shrinking goes that way.
KINDS: tuple[Maker, ...] = (
    _state, _derive, _write, _realize, _shift, _derive, _assign, _advance, _swap, _drop, _state,
    _derive, _write, _realize, _boundary, _observe, _shift, _repeat, _derive, _realize, _write)


def build(choices: Sequence[Choice]) -> Program:
    """The program that a list of choices stands for; its end as in `programs.build`."""
    return programs.build(choices, KINDS, _state)


def random_program(seed: int, size: int = 12) -> Program:
    """The program number `seed`: the same one in every process."""
    return build(programs.random_choices(seed, size, len(KINDS), least=3))
