"""The playground's half in Python: it schedules what the reader wrote. It runs in the page.

It stands in the archive that `playground.py` makes, beside the scheduler. Nothing here needs NumPy
but `values`.
"""
from __future__ import annotations

import ast
import itertools
import json
import linecache
import traceback
from typing import Any

from impl import Context, Tensor, Variable, dtypes, func, nn
from impl.dialects import CUDA, WGSL, C
from impl.errors import TensorScheduleError
from impl.export.javascript import LIMITS
from impl.inspect import memory_summary, report_html
from impl.ir import Ops, UOp
from impl.kernel import DeviceLimits
from impl.realize import schedule_with_kernels
from impl.render import Dialect, SourceText, render
from impl.searching import optimize

#: What errors and labels call the text that the reader wrote.
FILE = "program"
#: The languages, each with a device for which steps are chosen: a processor with vectors of 256
#: bits, a GPU that has what every page may rely on, a GPU of NVIDIA.
LANGUAGES: dict[str, tuple[DeviceLimits, type[Dialect]]] = {
    "C": (DeviceLimits(), C), "WGSL": (LIMITS, WGSL),
    "CUDA": (DeviceLimits(name="CUDA", lanes=256, lockstep=32, exchange=True,
                          local_memory=48 << 10), CUDA)}
#: Longer graphs are cut.
_MOST_NODES = 400

_shown: dict[str, Any] = {}
_kernels: dict[int, UOp] = {}


class NotUnderstood(Exception):
    """The program gives nothing that can be scheduled."""


def made(program: str) -> str:
    """Schedule a program: as JSON what was made, or `refused`, why it was not."""
    try:
        with Context(DEVICE="REFERENCE", TRACK_MATCH_STATS=2):
            results = run(program)
            nodes = _graph([each.uop for each in results])
            document, kernels = schedule_with_kernels(results)
    except Exception as error:
        return json.dumps({"refused": refusal(error)})
    _shown.clear()
    _shown.update(document)
    _kernels.clear()
    _kernels.update(kernels)
    count, temporaries = len(document["kernels"]), memory_summary(document).splitlines()[0]
    return json.dumps({
        "said": f"{count} kernel{'' if count == 1 else 's'}. "
                f"{temporaries[0].upper()}{temporaries[1:]}.",
        "kernels": count, "graph": nodes, "results": [_form(each) for each in results]})


def report(language: str) -> str:
    """The report of what was made last, with the kernels as text of a language."""
    limits, dialect = LANGUAGES[language]
    rows = []
    for row in _shown["kernels"]:
        if row["id"] in _kernels:
            kernel = optimize(_kernels[row["id"]], limits)
            row = {**row, "source": _readable(render(kernel, dialect())),
                   "optimizations": list(kernel.arg.steps), "because": list(kernel.arg.reasons)}
        rows.append(row)
    return report_html({**_shown, "kernels": rows})


def _readable(text: SourceText) -> str:
    """A kernel's text for who reads it: the kernel comes first."""
    kernel = f"{text.signature.format(name=text.name)} {text.body}"
    return f"{kernel}\n// The definitions, which stand before it:\n{text.prelude}" \
        if text.definitions else kernel


def values(program: str) -> str:
    """Run a program: as JSON the values of its results, or `refused`."""
    try:
        with Context(DEVICE="REFERENCE"):
            results = run(program)
            return json.dumps({"values": [repr(each.realize()) for each in results]})
    except Exception as error:
        return json.dumps({"refused": refusal(error)})


def run(program: str) -> list[Tensor]:
    """Run a program, and return the tensors of its last line.

    Raises:
        NotUnderstood: there are none.
    """
    linecache.cache[FILE] = len(program), None, program.splitlines(keepends=True), FILE
    tree = ast.parse(program, FILE)
    if not tree.body:
        raise NotUnderstood("There is no program. Write a line, or choose an example.")
    last = _value_of(tree.body[-1])
    if last is None:
        raise NotUnderstood("The last line has to be a tensor, or several with commas between "
                            f"them; it is {ast.unparse(tree.body[-1]):.60}")
    if isinstance(tree.body[-1], ast.Expr):
        tree.body.pop()
    names: dict[str, Any] = {"Tensor": Tensor, "Variable": Variable, "dtypes": dtypes,
                             "func": func, "nn": nn, "__name__": FILE}
    Tensor.manual_seed(0)
    exec(compile(tree, FILE, "exec"), names)
    found = eval(compile(ast.Expression(last), FILE, "eval"), names)
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    strange = [each for each in results if not isinstance(each, Tensor)]
    if strange or not results:
        kind = type(strange[0]).__name__ if strange else "an empty list"
        raise NotUnderstood(f"The last line has to be a tensor, or several with commas between "
                            f"them; in it is {kind}")
    return results


def _value_of(line: ast.stmt) -> ast.expr | None:
    """What a program shows whose last line this is: an expression, or the name that it sets."""
    if isinstance(line, ast.Expr):
        return line.value
    target = line.targets[0] if isinstance(line, ast.Assign) and len(line.targets) == 1 else \
        line.target if isinstance(line, ast.AugAssign) else None
    if not isinstance(target, ast.Name):
        return None
    return ast.copy_location(ast.Name(target.id, ast.Load()), line)


def refusal(error: Exception) -> str:
    """An error in words: those of the library as they are, Python's with the line."""
    if isinstance(error, TensorScheduleError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{error.msg}; at {FILE}:{error.lineno}"
    if isinstance(error, NotUnderstood):
        return str(error)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == FILE]
    where = f"; at {FILE}:{lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {error}{where}"


def _graph(roots: list[UOp]) -> list[dict[str, Any]]:
    """The nodes of the values as they were written, each after its sources."""
    known: dict[UOp, int] = {}
    for root in roots:
        for node in root.toposort():
            known.setdefault(node, len(known))
    rows = []
    for node, number in itertools.islice(known.items(), _MOST_NODES):
        rows.append({"number": number, "name": node.op.name.lower(),
                     "dtype": node.dtype.name, "shape": _shape(node),
                     "said": str(node.arg) if node.op is Ops.CONST else "",
                     "of": [known[source] for source in node.src],
                     "result": node in roots})
    return rows


def _shape(node: UOp) -> str:
    shape = node.shape
    return "" if shape is None else " x ".join(map(str, shape)) or "one number"


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype.name} {tensor.shape}"
