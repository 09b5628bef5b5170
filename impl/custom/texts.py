"""Kernels that are source text in the language of a device. Chapter: spec/custom.md.

In the graph such a kernel is a SINK whose stores and loads are what was declared. The value of each
store is a TEXT node, whose argument has the text: nobody can take it for a computation.
"""
from __future__ import annotations

import keyword
import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from impl.custom.notation import KernelMemory
from impl.dtypes import dtypes
from impl.errors import ArgumentError, DeviceError, ShapeError
from impl.ir import TRUE, KernelInfo, Ops, RangeKind, UOp, new_range

#: What a text has besides its arguments.
_TAKEN = frozenset(("item", "items", "group", "lane", "thread", "threads", "phase", "args", "np"))
Interval = tuple[int, int]


class KernelText:
    """A kernel as source text, and what it does to memory: what a `fxn` of `custom_kernel` returns.

    Args:
        texts: the body of the kernel for each kind of device (`Device.kinds`), in its language: C
            for "CPU", Python with NumPy for "REFERENCE". It is run for each `item` from 0 to before
            `items`, in any order, some of them at the same time; in Python once, where `item` is an
            array of all. Arguments have the names that they have in `fxn`, and are pointers to
            their elements in row-major order.
        items: how often it is run, a whole number from 1 up.
        reads, writes: the arguments that it loads from, and those that it stores into.
        lanes: how many items are one group, whose lanes may share memory and wait for each other
            where the language has that; it divides `items`. Without it they are independent.
        bounds: of arguments of which a part is touched only, its first element and its last, the
            latter excluded.
        operations: what one item computes, for estimates of the time.
        values: whole numbers that the text knows by these names.
        headers: what stands before the kernel, outside of it: functions, and in WGSL memory that
            lanes share.

    Raises:
        ArgumentError: the numbers are no such numbers, or lanes do not divide items.
    """

    __slots__ = ("texts", "items", "reads", "writes", "lanes", "bounds", "operations", "values",
                 "headers")

    def __init__(self, texts: Mapping[str, str], items: int, *, reads: Sequence[KernelMemory] = (),
                 writes: Sequence[KernelMemory] = (), lanes: int | None = None,
                 bounds: Mapping[KernelMemory, Interval] | None = None, operations: int = 1,
                 values: Mapping[str, int] | None = None,
                 headers: Mapping[str, str] | None = None) -> None:
        # r[impl custom.text.refused]
        counts = {"items": items, "lanes": lanes or 1, "operations": operations}
        for name, count in counts.items():
            least = 0 if name == "operations" else 1
            if not isinstance(count, int) or isinstance(count, bool) or count < least:
                raise ArgumentError("KernelText", f"{name}={count!r} is no such number",
                                    f"give a whole number from {least} up")
        if items % (lanes or 1):
            raise ArgumentError("KernelText", f"{items} items are no groups of {lanes} lanes",
                                "give a number of items that lanes divide, and test in the text "
                                "which of them have something to do")
        self.texts, self.items, self.lanes, self.operations = dict(texts), items, lanes, operations
        self.reads, self.writes = tuple(reads), tuple(writes)
        self.bounds, self.values = dict(bounds or {}), dict(values or {})
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class WrittenText:
    """The argument of a TEXT: a text for one kind of device, and all that is printed around it.

    `names` and `sizes` are those of its arguments, by position; `bounds` are the elements of each
    that it may store, none where it stores nothing.
    """

    device: str
    text: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    bounds: tuple[Interval | None, ...]
    items: int
    lanes: int | None
    operations: int
    values: tuple[tuple[str, int], ...]
    header: str


def written_text(ast: UOp) -> WrittenText | None:
    """The text that a kernel is, if it is one."""
    value = ast.src[0].src[1]
    return value.arg if value.op is Ops.TEXT else None


def sink_of_text(made: KernelText, memories: Sequence[KernelMemory], names: Sequence[str],
                 kind: str, name: str) -> tuple[UOp, list[int], list[int]]:
    """The SINK of a text for a kind of device, which memories it stores, and which it loads from
    besides: its arguments in this order.
    """
    _refuse(made, memories, names, kind)
    stored = [n for n, memory in enumerate(memories) if memory in made.writes]
    loaded = [n for n, memory in enumerate(memories) if memory in made.reads]
    used = [*stored, *(n for n in loaded if n not in stored)]
    bounds = {n: made.bounds.get(memories[n], (0, memories[n].size)) for n in used}
    text = WrittenText(kind, made.texts[kind], tuple(names[n] for n in used),
                       tuple(memories[n].size for n in used),
                       tuple(bounds[n] if n in stored else None for n in used),
                       made.items, made.lanes, made.operations, tuple(made.values.items()),
                       made.headers.get(kind, ""))
    numbers = iter(range(2, 2 + len(loaded) + len(stored)))

    def touched(n: int, loop: RangeKind) -> tuple[UOp, UOp]:
        dtype, (start, stop) = memories[n].dtype, bounds[n]
        each = new_range(stop - start, loop, next(numbers))
        place = each if not start else UOp(Ops.ADD, dtypes.index,
                                           (each, UOp.const(dtypes.index, start)))
        pointer = UOp(Ops.PARAM, dtype, (), used.index(n))
        return UOp(Ops.INDEX, dtype, (pointer, place, TRUE)), each

    read = [touched(n, RangeKind.REDUCE) for n in loaded]
    given = (*(UOp(Ops.LOAD, place.dtype, (place,)) for place, _ in read),
             *(each for _, each in read))
    stores = []
    for n in stored:
        place, each = touched(n, RangeKind.LOOP)
        value = UOp(Ops.TEXT, place.dtype, given, text)
        stores.append(UOp(Ops.STORE, place.dtype, (place, value, each)))
    lanes = made.lanes or 1
    prefix = [new_range(made.items // lanes, RangeKind.GLOBAL, 0)]
    if made.lanes is not None:
        prefix.append(new_range(lanes, RangeKind.LANE, 1))
    info = KernelInfo(name, tuple(prefix), lanes=lanes)
    return UOp(Ops.SINK, stores[0].dtype, tuple(stores), info), stored, loaded


def _refuse(made: KernelText, memories: Sequence[KernelMemory], names: Sequence[str],
            kind: str) -> None:
    # r[impl custom.text.refused]
    if kind not in made.texts:
        raise DeviceError("custom_kernel", f"the kernel has a text for {', '.join(made.texts)}, "
                          f"and the tensors are on {kind}", f"give a text for {kind}, or move the "
                          "tensors with .to()")
    if not made.writes:
        raise ArgumentError("custom_kernel", "the text stores into no argument",
                            "say into which, as in writes=[out]")
    for each in (*made.reads, *made.writes, *made.bounds):
        if each not in memories:
            raise ArgumentError("custom_kernel", f"{each!r} is no argument of the function",
                                "name arguments of the function in reads, writes and bounds")
    for memory, name in zip(memories, names, strict=True):
        if memory not in made.reads and memory not in made.writes:
            raise ArgumentError("custom_kernel", f"of {name} is not said whether it is read or "
                                "written", "name it in reads or writes, or do not give it")
        start, stop = made.bounds.get(memory, (0, memory.size))
        if not 0 <= start < stop <= memory.size:
            raise ShapeError("custom_kernel", f"elements {start} to {stop} of {name} are asked "
                             f"for, which has {memory.size}", "give the first element, and the "
                             "one after the last")
    given = [*names, *made.values]
    wrong = [name for name in given if name in _TAKEN or keyword.iskeyword(name)
             or given.count(name) > 1]
    if wrong:
        raise ArgumentError("custom_kernel", f"an argument cannot be called {wrong[0]}, which "
                            "means something in a text already", "call it otherwise")


def refused_line(text: WrittenText, name: str, message: str, printed: str = "") -> int | None:
    """The line of a text, from 1, that a compiler complains of; None if it does not say.

    `printed` is what it was given, where the language has no way to call lines by other numbers.
    """
    found = re.search(rf'\b{name}"?[:(](\d+)', message)
    if found is not None:
        return int(found[1])
    missing = re.search(r"undefined symbol: (\w+)", message)
    if missing is not None:
        lines = text.text.split("\n")
        return next((n for n, line in enumerate(lines, 1) if missing[1] in line), None)
    found, lines = re.search(r":(\d+):\d+", message), printed.split("\n")
    mark = next((n for n, line in enumerate(lines, 1) if line == marked(name)), None)
    return int(found[1]) - mark if found is not None and mark is not None else None


def marked(name: str) -> str:
    """The line before a text, where a language has no way to call lines by other numbers."""
    return f"// {name}:"


def line_in_file(text: str, number: int, place: str) -> str:
    """The line of a text as `file:line`, if the text stands in the file of `place`, which is such a
    line too, or one with the name of an operation around it; else `place`.
    """
    before, opened, after = place.rpartition("(")
    file = after.rstrip(")").rpartition(":")[0]
    wanted = [line.strip() for line in text.split("\n")]
    lines = [line.strip() for line in linecache.getlines(file)]
    first = next((n for n, line in enumerate(wanted) if line), 0)
    last = max((n for n, line in enumerate(wanted) if line), default=-1)
    count = last - first + 1
    for start in range(len(lines) - count + 1 if count > 0 else 0):
        if all(line in there for line, there in
               zip(wanted[first:last + 1], lines[start:start + count], strict=True)):
            found = f"{file}:{start + number - first}"
            return f"{before}({found})" if opened else found
    return place
