"""Figures of the lessons on kernels and on replay, drawn by the running implementation."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from textwrap import dedent
from typing import Any

from figures import box, figure, text

from conformance.learn.lesson_kernel import registers
from impl import GlobalCounters, Tensor, TinyJit, Variable
from impl.choosing import hand_steps
from impl.choosing.products import choose_tile
from impl.dialects import C
from impl.dtypes import DType, dtypes
from impl.errors import ReplayError
from impl.ir import UOp
from impl.kernel import DeviceLimits
from impl.render import render
from impl.schedule import schedule_cache
from impl.steps import Step, apply_steps

WIDTH = 720
#: The steps of the lesson's text, one more a row, and what each row is called.
STEPS = (("as it is written", ()), ("a vector of 8 columns", ("UPCAST(1,8)",)),
         ("4 rows of it", ("UPCAST(1,8)", "UPCAST(0,4)")),
         ("8 rows of it", ("UPCAST(1,8)", "UPCAST(0,8)")))


def svg(height: float, label: str, parts: list[str]) -> str:
    return (f"<svg viewBox='0 0 {WIDTH} {height:.0f}' role='img' aria-label='{label}'>"
            f"{''.join(parts)}</svg>")


# The lesson on kernels ---------------------------------------------------------------------


def plain_product() -> UOp:
    """The lesson's product of 32 x 32, before any step."""
    a, b = (Tensor.ones(32, 32).contiguous().realize() for _ in range(2))
    kernel: UOp = (a @ b).schedule()[0].ast
    return kernel


def inner_text(steps: tuple[str, ...]) -> str:
    """The text of the innermost loop of the product after some steps."""
    made = apply_steps(plain_product(), [Step.parse(each) for each in steps])
    return next(part for part in render(made, C()).body.split("for (")
                if "= fma" in part).split("}")[0]


def inner_loop(steps: tuple[str, ...]) -> tuple[int, int]:
    """Loads and multiply-adds in the innermost loop after some steps."""
    loop = inner_text(steps)
    return sum(line.strip().startswith("const f") for line in loop.splitlines()), \
        loop.count("= fma")


def kernel_steps() -> str:
    """Instructions for one result and one element of the sum, after each list of steps."""
    left, scale, parts, y = 216, 105.0, list[str](), 30.0
    for place, (name, steps) in enumerate(STEPS):
        loads, multiplied = inner_loop(steps)
        results = 1
        for step in steps:
            results *= int(step.split(",")[1].rstrip(")"))
        parts.append(text(left - 10, y + 17, name, anchor="end"))
        x = float(left)
        for count, css, what in ((loads, "tone tone-1", "loads"),
                                 (multiplied, "tone tone-0", "multiply-adds")):
            wide = count / results * scale
            parts.append(box(x, y, wide, 24, css, f"{count} {what} for {results} results"))
            x += wide + 1
        words = f"{loads} + {multiplied} for {results} result{'s' if results > 1 else ''}"
        parts.append(text(x + 8, y + 17, words, "axis", "start"))
        y += 38 if place < len(STEPS) - 1 else 30
    legend = [box(left, 4, 12, 12, "tone tone-1", "loads"),
              text(left + 18, 14, "loads", "axis", "start"),
              box(left + 80, 4, 12, 12, "tone tone-0", "multiply-adds"),
              text(left + 98, 14, "multiply-adds", "axis", "start")]
    return figure(svg(y, "instructions after each list of steps", legend + parts),
                  "Instructions in the innermost loop for one result, counted in the text that the "
                  "implementation prints.")


def kernel_text() -> str:
    """The innermost loop of the tile of 4 rows, as it is printed."""
    body = dedent("      for (" + inner_text(STEPS[2][1]).rstrip() + "\n      }")
    return f"<pre><code>{escape(body)}</code></pre>"


def kernel_tiles() -> str:
    """Loads for each multiply-add of all tiles, and the one that is chosen."""
    most_rows, most_vectors, has = 14, 6, 32
    chosen = choose_tile(DeviceLimits(vector_bytes=64, vector_registers=has), 4, 512, 512)
    left, top, wide, high = 92, 44, 42.0, 30.0
    parts = [text(left + wide * most_rows / 2, 14, "rows of the tile", "axis"),
             text(left - 46, top + high * most_vectors / 2, "vectors", "axis", "end")]
    for rows in range(1, most_rows + 1):
        parts.append(text(left + (rows - 0.5) * wide, top - 8, str(rows), "axis"))
    for vectors in range(1, most_vectors + 1):
        y = top + (vectors - 1) * high
        parts.append(text(left - 12, y + 20, str(vectors), "axis", "end"))
        for rows in range(1, most_rows + 1):
            x, loads = left + (rows - 1) * wide, (rows + vectors) / (rows * vectors)
            needed = registers(rows, vectors)
            if needed > has:
                parts.append(f"<rect x='{x + 1}' y='{y + 1}' width='{wide - 2}' "
                             f"height='{high - 2}' rx='3' class='frame'>"
                             f"<title>{needed} registers</title></rect>")
                continue
            ours = (rows, vectors) == (chosen.rows, chosen.vectors)
            tone = "tone-1" if ours else "tone-0"
            parts.append(box(x + 1, y + 1, wide - 2, high - 2, f"tone {tone}",
                             f"{needed} registers"))
            parts.append(text(x + wide / 2, y + 20, f"{loads:.2f}", "name dense"))
    return figure(svg(top + high * most_vectors + 6, "loads of all tiles", parts),
                  f"Loads for each multiply-add, where {has} registers hold the tile and what it "
                  f"is computed from; empty where they do not. For a product of 512 x 512 the "
                  f"implementation takes {chosen.rows} rows of {chosen.vectors} vectors.")


def kernel_chosen() -> str:
    """The steps that are chosen for the lesson's product, with their reasons."""
    chosen = hand_steps(plain_product(), DeviceLimits(vector_bytes=32, vector_registers=16))
    return table(("step", "reason"), ((f"<code>{escape(step.name)}</code>", escape(reason))
                                      for step, reason in chosen))


# The lesson on replay -----------------------------------------------------------------------


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def call_pairs() -> Iterator[tuple[str, Callable[..., Tensor], tuple[Any, ...], tuple[Any, ...]]]:
    """What is asked, the function, the arguments of a captured call and of the next one."""
    def given(*elements: float, dtype: DType = dtypes.float32) -> Tensor:
        return Tensor(list(elements), dtype=dtype).realize()

    x, y, z = given(1, 2), given(3, 4), given(5, 6)
    n, m = Variable("n", 0, 100), Variable("n", 0, 200)

    def add(one: Tensor, two: Tensor) -> Tensor:
        return one + two

    def scale(one: Tensor, factor: Any) -> Tensor:
        return one * factor

    yield "<code>x + y</code>, and <code>x + z</code>", add, (x, y), (x, z)
    yield "<code>x + y</code>, and <code>x + x</code>", add, (x, y), (x, x)
    yield "<code>x * 2</code>, and <code>x * 3</code>", scale, (x, 2), (x, 3)
    yield "<code>x * 0.0</code>, and <code>x * -0.0</code>", scale, (x, 0.0), (x, -0.0)
    yield "<code>x * 2</code>, and the same on three elements", scale, (x, 2), (given(1, 2, 3), 2)
    yield "<code>x * 2</code>, and the same on float16", scale, (x, 2), \
        (given(1, 2, dtype=dtypes.float16), 2)
    yield "<code>x * n.bind(2)</code>, and <code>x * n.bind(3)</code>", scale, (x, n.bind(2)), \
        (x, n.bind(3))
    yield "<code>x * n.bind(2)</code>, and the same with an <code>n</code> to 200", scale, \
        (x, n.bind(2)), (x, m.bind(2))


def replay_keys() -> str:
    """Pairs of programs: whether a plan is found, and whether a recording is replayed."""
    rows = []
    for what, function, before, now in call_pairs():
        keys = [function(*given).schedule_document()["cache"]["key"] for given in (before, now)]
        captured = TinyJit(function)
        captured(*before), captured(*before)
        try:
            captured(*now)
            replayed = "replayed" if captured.replays else "captured again"
        except ReplayError:
            replayed = "refused"
        rows.append((what, "found" if keys[0] == keys[1] else "another one", replayed))
    return table(("the first, and the second", "the plan", "the recording"), rows)


def replay_calls() -> str:
    """What each of five calls of one function does, as it is and captured."""
    ran: list[int] = []

    def body(x: Tensor) -> Tensor:
        ran.append(1)
        return (x * 3 + 1).sum()

    # What the body notes is outside; without `trust` it would run at each call for that alone.
    captured, rows = TinyJit(body, trust=True), []
    schedule_cache.clear()
    for call in range(1, 6):
        row: list[object] = [call]
        for function in (body, captured):
            x = Tensor([float(call), 1.0]).realize()
            ran.clear()
            GlobalCounters.reset()
            function(x).realize()
            row += [len(ran), GlobalCounters.plan_misses, GlobalCounters.plan_hits]
        rows.append(row)
    names = ("call", *(f"{what}, {how}" for how in ("as it is", "captured")
                       for what in ("Python ran", "plans made", "found")))
    return table(names, rows)


FIGURES: dict[str, Callable[[], str]] = {
    "kernel-steps": kernel_steps,
    "kernel-text": kernel_text,
    "kernel-chosen": kernel_chosen,
    "kernel-tiles": kernel_tiles,
    "replay-calls": replay_calls,
    "replay-keys": replay_keys,
}
