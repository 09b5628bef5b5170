"""Other ways to be right: runtimes of which the suite has to say nothing.

A suite that fails what is right is no better than one that passes what is wrong. Each class is
`conformance.saboteurs.runtime` with one decision taken otherwise, inside what the specification
leaves open. What it does not do cannot be verified: then a check is inconclusive.

    python -m conformance --impl conformance.saboteurs.right:Recomputes
    python -m conformance.saboteurs.right --report right.json               all of them
"""
from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.protocol import Info
from conformance.runner.checks import collect, run_suite
from conformance.runner.fuzz import commit
from conformance.runner.report import BAD, Report
from conformance.runner.subject import PROFILES, Subject
from conformance.saboteurs.runtime import Adapter, Session, operations
from conformance.saboteurs.runtime.operations import Array, Statement
from conformance.saboteurs.runtime.schedule import (
    Buffer,
    Plan,
    Step,
    Task,
    View,
    alone,
    needed,
    together,
)

FORMAT = "tensor-right/1"
#: The statements that a value may cost and still be computed again for each of its readers.
CHEAP = 32
#: In more statements than these nothing is computed again: planning is slow for many.
MANY = 300
#: Partial sums that are kept side by side.
LANES = 8


# When something runs -------------------------------------------------------------------------


class Eager(Adapter):
    """Runs each statement where it stands."""

    eager = True


class FusesAll(Adapter):
    """Makes one kernel of everything."""

    fuse = staticmethod(together)


class FusesNothing(Adapter):
    """Makes a kernel of each statement."""

    fuse = staticmethod(alone)


# What runs -----------------------------------------------------------------------------------


def unwritten(tasks: Sequence[Task]) -> dict[Buffer, int]:
    """Where each buffer is written for the last time."""
    return {task.target: index for index, task in enumerate(tasks)}


def passing(tasks: Sequence[Task], held: Collection[Buffer]) -> dict[Buffer, Task]:
    """The tasks that make what nobody sees, of operands that nobody writes afterwards."""
    last, made = unwritten(tasks), dict[Buffer, Task]()
    written = Counter(task.target for task in tasks)
    for index, task in enumerate(tasks):
        if task.statement["do"] not in ("assign", "store") and task.target not in held \
                and task.target.array is None and written[task.target] == 1 \
                and all(last.get(view.buffer, -1) < index for view in task.reads):
            made[task.target] = task
    return made


class RecomputingSession(Session):
    """Computes what several read once for each of them, in the kernel of the reader."""

    def plan(self, tasks: Sequence[Task], held: set[Buffer]) -> tuple[list[Buffer], Plan]:
        again, cost = dict[Buffer, Task](), dict[Buffer, int]()
        for target, task in passing(tasks, held).items() if len(tasks) <= MANY else ():
            cost[target] = 1 + sum(cost[view.buffer] for view in task.reads if view.buffer in again)
            if cost[target] <= CHEAP:
                again[target] = task
        rewritten = list[Task]()
        for task in tasks:
            if task.target not in again:
                rewritten += _with_operands(task, again, {})
        return super().plan(rewritten, held)


def _with_operands(task: Task, again: dict[Buffer, Task], here: dict[Buffer, Buffer]) -> list[Task]:
    """A task after those that make its operands, for it alone; no more than `CHEAP` deep."""
    before, reads = list[Task](), list[View]()
    for view in task.reads:
        if view.buffer in again and view.buffer not in here:
            operand = again[view.buffer]
            target = Buffer(operand.target.dtype, operand.target.shape, version=1)
            *above, own = _with_operands(operand, again, here)
            statement = {**own.statement, "again": True}
            before += [*above, replace(own, statement=statement, target=target)]
            here[view.buffer] = target
        reads.append(View(here.get(view.buffer, view.buffer), view.steps))
    return [*before, replace(task, reads=tuple(reads))]


def up_to_its_reader(steps: Sequence[Step]) -> list[list[int]]:
    """What is computed again is in one kernel with what reads it."""
    kernels: list[list[int]] = [[]]
    for index, step in enumerate(steps):
        kernels[-1].append(index)
        if "again" not in step.statement and index + 1 < len(steps):
            kernels.append([])
    return kernels


class Recomputes(Adapter):
    """Keeps nothing that it can compute again."""

    sessions = RecomputingSession
    fuse = staticmethod(up_to_its_reader)


class ElsewhereSession(Session):
    """A write makes a new value of the one before and of what is written."""

    def write(self, statement: Statement, value: View) -> None:
        name = statement["target"]
        replaced = {"do": "replaced", "region": statement.get("view", ())}
        self.variables[name] = self.task(replaced, [self.variables[name], value])


class NeverInPlace(Adapter):
    """Writes to no memory twice."""

    sessions = ElsewhereSession

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        if statement["do"] != "replaced":
            return operations.whole(statement, sources)
        made = np.array(sources[0], order="C")
        places = operations.moved(statement["region"], np.arange(made.size).reshape(made.shape))
        made.reshape(-1)[places.reshape(-1)] = sources[1].reshape(-1)
        return made


# How numbers are added -----------------------------------------------------------------------


class SumsFromTheEnd(Adapter):
    """Associates otherwise: what runs along an axis begins with the last element."""

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        do = statement["do"]
        if "axes" in statement:
            sources = [np.flip(sources[0], tuple(statement["axes"]))]
        elif do == "matmul":
            sources = [np.flip(sources[0], -1), np.flip(sources[1], -2)]
        elif do == "softmax":
            axis = statement["axis"]
            return np.flip(operations.whole(statement, [np.flip(sources[0], axis)]), axis)
        return operations.whole(statement, sources)


class SumsInLanes(Adapter):
    """Adds every eighth term, and then the eight sums; a `cumsum` in blocks of eight."""

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        do, x = statement["do"], sources[0]
        wide = x.astype(np.float32) if x.dtype == np.float16 else x
        if do in ("sum", "mean") and statement["axes"]:
            total = _in_lanes(wide, tuple(statement["axes"]), statement["keepdims"])
            count = np.prod([x.shape[each] for each in statement["axes"]], dtype=np.int64)
            return (total / wide.dtype.type(count) if do == "mean" else total).astype(x.dtype)
        if do == "cumsum":
            return _in_blocks(wide, statement["axis"]).astype(x.dtype)
        if do == "matmul":
            left = wide[..., :, :, None]
            right = sources[1].astype(wide.dtype)[..., None, :, :]
            return _in_lanes(left * right, (left.ndim - 2,), False).astype(x.dtype)
        return operations.whole(statement, sources)


def _in_lanes(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)
                  if keepdims or axis not in axes)
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    rows = x.transpose([*kept, *axes]).reshape(*(x.shape[axis] for axis in kept), count)
    lanes = [rows[..., lane::LANES].sum(-1, dtype=x.dtype) for lane in range(min(LANES, count))]
    return np.asarray(sum(lanes, start=np.zeros(rows.shape[:-1], x.dtype)), x.dtype).reshape(shape)


def _in_blocks(x: Array, axis: int) -> Array:
    made, carried = np.empty_like(x), np.zeros_like(x.take([], axis).sum(axis, keepdims=True))
    for start in range(0, x.shape[axis], LANES):
        block = tuple(slice(start, start + LANES) if each == axis else slice(None)
                      for each in range(x.ndim))
        made[block] = carried + np.cumsum(x[block], axis, dtype=x.dtype)
        carried = made[block].take([-1], axis)
    return made


class SumsInDoubles(Adapter):
    """Accumulates in a wider dtype than it has to, and rounds once."""

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        if sources[0].dtype.kind != "f" or statement["do"] in ("gather", "assign", "store"):
            return operations.whole(statement, sources)
        wide = [each.astype(np.longdouble) for each in sources]
        return operations.whole(statement, wide).astype(sources[0].dtype)


class ContractingSession(Session):
    """A product of singles that an addition reads stays unrounded in it."""

    def plan(self, tasks: Sequence[Task], held: set[Buffer]) -> tuple[list[Buffer], Plan]:
        return super().plan(needed(_contracted(tasks), held | {
            task.target for task in tasks if task.target.array is not None}), held)


def _contracted(tasks: Sequence[Task]) -> list[Task]:
    last = unwritten(tasks)
    products = {task.target: task for index, task in enumerate(tasks)
                if task.statement["do"] == "mul" and task.target.dtype == "float32"
                and last[task.target] == index
                and all(last.get(view.buffer, -1) < index for view in task.reads)}
    return [_multiply_add(task, products) for task in tasks]


def _multiply_add(task: Task, products: dict[Buffer, Task]) -> Task:
    """An addition or a subtraction with the first of its operands that is a product inside."""
    if task.statement["do"] not in ("add", "sub"):
        return task
    for place, view in enumerate(task.reads):
        if view.buffer in products and not view.steps:
            factors = products[view.buffer]
            other = 1 - place
            statement = {"do": "multiply_add", "sign": -1 if task.statement["do"] == "sub" else 1,
                         "place": place}
            return replace(task, statement=statement, reads=(*factors.reads, task.reads[other]),
                           seen=(*factors.seen, task.seen[other]))
    return task


class Contracts(Adapter):
    """Has a fused multiply-add, and uses it wherever it may."""

    sessions = ContractingSession

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        if statement["do"] != "multiply_add":
            return operations.whole(statement, sources)
        a, b, c = (each.astype(np.longdouble) for each in sources)
        first, second = (a * b, c) if statement["place"] == 0 else (c, a * b)
        made: Array = first + second if statement["sign"] == 1 else first - second
        return made.astype(sources[0].dtype)


# What is left open ---------------------------------------------------------------------------


class SaturatesCasts(Adapter):
    """Casts numbers that an integer cannot hold to the nearest one that it can, NaN to -1."""

    @staticmethod
    def computed(statement: Statement, sources: Sequence[Array]) -> Array:
        made = operations.computed(statement, sources)
        if statement["do"] == "cast" and sources[0].dtype.kind == "f" and made.dtype.kind in "iu":
            limits = np.iinfo(made.dtype)
            x = np.trunc(sources[0].astype(np.float64))
            made = np.where(x > limits.max, limits.max, np.where(x < limits.min, limits.min, made))
            made = np.where(np.isnan(x), made.dtype.type(0) - made.dtype.type(1), made)
        return made


class AnswersZero(Adapter):
    """Answers zero where nothing is asked: casts and indices out of range, quotients by zero."""

    @staticmethod
    def computed(statement: Statement, sources: Sequence[Array]) -> Array:
        made, do = operations.computed(statement, sources), statement["do"]
        if do == "cast" and sources[0].dtype.kind == "f" and made.dtype.kind in "iu":
            limits, x = np.iinfo(made.dtype), np.trunc(sources[0].astype(np.float64))
            made = np.where((x >= limits.min) & (x < float(limits.max) + 1), made, 0)
        if do in ("div", "reciprocal"):
            above = sources[0] if do == "div" else np.ones_like(sources[0])
            by_zero = (sources[-1] == 0) & (above != 0) & ~np.isnan(above)
            made = np.where(by_zero, np.zeros_like(made), made)
        return made

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        if statement["do"] != "gather":
            return operations.whole(statement, sources)
        x, index = sources
        if not x.shape[0]:
            return np.zeros((*index.shape, *x.shape[1:]), x.dtype)
        inside = (index >= 0) & (index < x.shape[0])
        rows = x[np.where(inside, index, 0).astype(np.int64)]
        return np.where(inside.reshape(*inside.shape, *[1] * (x.ndim - 1)), rows,
                        np.zeros((), x.dtype))


class OtherNaNs(Adapter):
    """Gives each NaN that it computes a sign and a payload, and takes the other of two zeros."""

    @staticmethod
    def computed(statement: Statement, sources: Sequence[Array]) -> Array:
        made, do = operations.computed(statement, sources), statement["do"]
        if do in ("maximum", "minimum") and made.dtype.kind == "f":
            tied = (sources[0] == 0) & (sources[1] == 0)
            made = np.where(tied, sources[0] + sources[1] if do == "minimum"
                            else -(-sources[0] - sources[1]), made)
        if made.dtype.kind == "f" and do not in (*UNCHANGED, "where"):
            bits = made.dtype.type(np.nan).view(f"u{made.dtype.itemsize}")
            other = ~bits & ~(bits >> 1) | bits | 5
            made = np.where(np.isnan(made), other.view(made.dtype), made)
        return made


#: What gives bits as they are.
UNCHANGED = ("copy", "contiguous", "bitcast", "constant", "neg", "abs", "not")


def flushed(x: Array) -> Array:
    """Zero for each subnormal number, with its sign."""
    if x.dtype not in (np.float32, np.float64):
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


class Flushes(Adapter):
    """Computes with zero in place of subnormal numbers, and says so."""

    def info(self) -> Info:
        return replace(super().info(), choices={"flushed": ["float32", "float64"]})

    @staticmethod
    def computed(statement: Statement, sources: Sequence[Array]) -> Array:
        if statement["do"] in (*UNCHANGED, "where"):
            return operations.computed(statement, sources)
        return flushed(operations.computed(statement, [flushed(each) for each in sources]))

    @staticmethod
    def whole(statement: Statement, sources: Sequence[Array]) -> Array:
        if statement["do"] == "gather":
            return operations.whole(statement, sources)
        return flushed(operations.whole(statement, [flushed(each) for each in sources]))


# Fewer things --------------------------------------------------------------------------------


class OnlySingles(Adapter):
    """Has one dtype, float32."""

    def info(self) -> Info:
        return replace(super().info(), dtypes=("float32",))


class FewStatements(Adapter):
    """Has seven statements on two dtypes, and shows values."""

    def info(self) -> Info:
        return replace(super().info(), dtypes=("int32", "float32"), observes=("values",),
                       statements=("input", "constant", "neg", "add", "sub", "mul", "reshape",
                                   "sum", "copy", "observe"))


#: All of these have to pass.
RIGHT = (Adapter, Eager, FusesAll, FusesNothing, Recomputes, NeverInPlace, SumsFromTheEnd,
         SumsInLanes, SumsInDoubles, Contracts, SaturatesCasts, AnswersZero, OtherNaNs, Flushes,
         OnlySingles, FewStatements)


# The command ---------------------------------------------------------------------------------


def asked(right: type[Adapter], profile: str) -> Report:
    """What the whole suite says of one of them."""
    subject = Subject.of(f"conformance.saboteurs.right:{right.__name__}", profile=profile)
    return run_suite(subject, collect())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it.  The status is 0 when nothing is said against any of them."""
    parser = argparse.ArgumentParser(prog="python -m conformance.saboteurs.right",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("--profile", default="default", choices=tuple(PROFILES))
    parser.add_argument("--report", type=Path, help="where to write what came of it")
    options = parser.parse_args(arguments)
    results = list[dict[str, Any]]()
    for right in RIGHT:
        found = asked(right, options.profile)
        wrong = [each.test for each in found.results if each.verdict in BAD]
        results.append({"name": right.__name__, "means": (right.__doc__ or "").strip(),
                        "programs": sum(each.examples for each in found.results),
                        "verdicts": found.counts(), "wrong": wrong, "ok": found.ok})
        print(f"{right.__name__:<16}{found.asked()}{'; WRONG: ' if wrong else ''}"
              f"{', '.join(wrong)}", flush=True)
    if options.report:
        said = {"format": FORMAT, "commit": commit(), "profile": options.profile,
                "results": results}
        options.report.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return int(not all(each["ok"] for each in results))


if __name__ == "__main__":
    sys.exit(main())
