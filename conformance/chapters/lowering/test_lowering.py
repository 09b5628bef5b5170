"""Where values stand, and what is computed once. Chapter: lowering."""
from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, param, reduce, store
from conformance.trace import verifies
from impl.dialects import C
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits
from impl.lowering import lower
from impl.lowering.blocks import Block, Loop, Wait
from impl.lowering.lower import Lowered
from impl.lowering.waits import _touched, place_waits
from impl.render import render
from impl.searching import optimize

WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)


def text_of(ast: UOp) -> str:
    return render(ast, C()).text


def loop_depth(text: str, wanted: str) -> int:
    """How many loops are open where a pattern first occurs."""
    depth = 0
    for line in text[text.index("void "):].splitlines():
        if re.search(wanted, line):
            return depth
        depth += line.rstrip().endswith("{") and "for (" in line
        depth -= line.strip() == "}"
    raise AssertionError(f"{wanted} does not occur in\n{text}")


@verifies("lowering.place.body+2")
def test_a_value_stands_at_the_level_of_its_loops() -> None:
    """sqrt(a[i]) does not depend on j, though only the innermost loop uses it."""
    i, j = new_range(8, RangeKind.GLOBAL), new_range(8, RangeKind.GLOBAL)
    root = kb.apply(Ops.SQRT, load(param(1), i))
    value = kb.apply(Ops.MUL, root, load(param(2), flat((i, 8), (j, 1))))
    text = text_of(kb.kernel(store(param(0), flat((i, 8), (j, 1)), value), prefix=(i, j)))
    assert loop_depth(text, r"sqrt_f32\(.*;") == 1
    assert loop_depth(text, r"p2\[") == 2


@verifies("lowering.place.body+2")
def test_a_shared_value_is_computed_once() -> None:
    i = new_range(8, RangeKind.GLOBAL)
    value = kb.apply(Ops.EXP, load(param(2), i))
    text = text_of(kb.kernel(store(param(0), i, value),
                             store(param(1), i, kb.apply(Ops.ADD, value, value)), prefix=(i,)))
    body = text[text.index("void "):]
    assert body.count("exp_f32(") == 1 and body.count("p2[") == 1


@verifies("lowering.address.read")
def test_the_base_of_an_address_reads_what_the_address_reads() -> None:
    """Rows of a table by numbers whose places are no sums in their simplest form."""
    i, j = new_range(8, RangeKind.GLOBAL), new_range(8, RangeKind.UPCAST)
    zero, eight = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 8)
    read = load(param(2, dtypes.int32), i).src[0]
    read = read.replace(src=(read.src[0], UOp(Ops.ADD, dtypes.index, (i, zero)), read.src[2]))
    row = UOp(Ops.CAST, dtypes.index, (UOp(Ops.LOAD, dtypes.int32, (read,)),))
    value = load(param(1), kb.apply(Ops.ADD, kb.apply(Ops.MUL, row, eight), j))
    text = text_of(kb.kernel(store(param(0), flat((i, 8), (j, 1)), value, j), prefix=(i,)))
    assert "f32x8" in text


@verifies("lowering.place.body+2")
def test_nested_reductions_stand_inside_each_other() -> None:
    i, k, q = (new_range(n, kind) for n, kind in (
        (3, RangeKind.GLOBAL), (4, RangeKind.REDUCE), (5, RangeKind.REDUCE)))
    inner = reduce(Ops.MAXIMUM, load(param(1), flat((i, 20), (k, 5), (q, 1))), q)
    ast = kb.kernel(store(param(0), i, reduce(Ops.ADD, inner, k)), prefix=(i,))
    assert loop_depth(text_of(ast), r"p1\[") == 3
    given, out = np.random.default_rng(0).random((3, 4, 5), np.float32), np.zeros(3, np.float32)
    kb.run(ast, out, given)
    np.testing.assert_allclose(out, given.max(2).sum(1), rtol=1e-6)


@verifies("lowering.reduce.merge+2")
def test_reductions_over_one_loop_share_it() -> None:
    """Sum and maximum read each element once; the variance needs the mean first."""
    r, k = new_range(5, RangeKind.GLOBAL), new_range(64, RangeKind.REDUCE)
    x = load(param(3), flat((r, 64), (k, 1)))
    mean = kb.apply(Ops.MUL, reduce(Ops.ADD, x, k), kb.number(FLOAT, 1 / 64))
    apart = kb.apply(Ops.SUB, x, mean)
    spread = reduce(Ops.ADD, kb.apply(Ops.MUL, apart, apart), k)
    ast = kb.kernel(store(param(0), r, spread), store(param(1), r, reduce(Ops.MAXIMUM, x, k)),
                    store(param(2), r, mean), prefix=(r,))
    assert text_of(ast).count("for (long i") == 3
    given = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    outs = [np.zeros(5, np.float32) for _ in range(3)]
    kb.run(ast, *outs, given)
    np.testing.assert_allclose(outs[0], 64 * given.var(1), rtol=1e-5)
    assert (outs[1] == given.max(1)).all()
    np.testing.assert_allclose(outs[2], given.mean(1), rtol=1e-4, atol=1e-6)


@verifies("lowering.depth.unlimited")
@verifies("lowering.length.linear", observe="time")
def test_long_kernels_render_in_time_that_grows_with_their_length() -> None:
    counts = []
    for length in (2_000, 8_000):
        i = new_range(64, RangeKind.GLOBAL)
        value = load(param(1), i)
        for step in range(length):
            value = kb.apply(Ops.ADD if step % 2 else Ops.MUL, value, load(param(1), i))
        ast = kb.kernel(store(param(0), i, value), prefix=(i,))
        count = 0

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            written = text_of(ast)
        finally:
            sys.setprofile(None)
        assert written.count("\n") > length / 40
        counts.append(count)
    assert counts[1] < 5 * counts[0]  # calls of functions: four times the length


@verifies("lowering.lower.language")
def test_lowering_is_independent_of_the_language() -> None:
    low = lower(optimize(kb.matmul(64, 64, 64), WIDE))
    kinds = [type(item).__name__ for item in low.root.items]
    assert kinds == ["Loop", "Loop", "Begin", "Loop", "Finish", "Write"]  # panel, tiles, rest
    assert len(low.vector) > 0


@verifies("lowering.lower.language")
def test_languages_without_vectors_have_the_same_loops() -> None:
    i = new_range(640, RangeKind.LOOP)
    pair = kb.kernel(*(store(param(place), i, kb.apply(op, load(param(2), i), load(param(2), i)), i)
                       for place, op in enumerate((Ops.ADD, Ops.MUL))))
    for ast in (kb.softmax(6, 100), *(optimize(each, WIDE) for each in (kb.matmul(8, 8, 8), pair))):
        assert outline(lower(ast)) == outline(lower(ast, vectors=False))


def outline(low: Lowered) -> list[str]:
    """What stands in a lowered kernel, loop by loop."""
    found, blocks = [], [low.root]
    for block in blocks:
        found += [type(item).__name__ for item in block.items]
        blocks += [item.block for item in block.items if isinstance(item, Loop)]
    return found


def looped(stages: list[tuple[str, str]]) -> UOp:
    """Stages that lanes share, in a loop that all of them run: each reads and writes arguments."""
    p, stores = new_range(4, RangeKind.BLOCK), []
    for number, (reads, writes) in enumerate(stages):
        j = new_range(96, RangeKind.LANE)
        value = kb.number(FLOAT, number)
        for each in reads:
            turned = kb.apply(Ops.SUB, kb.number(dtypes.index, 95), j)
            value = kb.apply(Ops.ADD, value, load(param("ABC".index(each)), turned))
        target = "ABC".index(writes) if writes else 3 + number
        stores.append(store(param(target), j, value, p, j))
    return kb.kernel(*stores)


def passed(block: Block) -> Iterator[Any]:
    """What a lane comes by, with three iterations of each loop that all lanes run."""
    for item in block.items:
        inner = item.block if isinstance(item, Loop) else None
        if inner is not None and inner.loop is not None \
                and inner.loop.arg[1] is RangeKind.BLOCK:
            for _ in range(3):
                yield from passed(inner)
        else:
            yield item


def unwaited(low: Lowered) -> bool:
    """Whether two lanes may touch something, of which one stores it, with no barrier between."""
    stored, loaded = set[Any](), set[Any]()
    for item in passed(low.root):
        if isinstance(item, Wait):
            stored, loaded = set(), set()
            continue
        does = _touched(item)
        if does.stored & (stored | loaded) or does.loaded & stored:
            return True
        stored |= does.stored
        loaded |= does.loaded
    return False


@verifies("lowering.wait.lanes")
def test_what_an_iteration_leaves_open_is_followed_until_nothing_is_added() -> None:
    """With a barrier at its beginning an iteration waits elsewhere, and leaves more open."""
    kernels = [[("AB", ""), ("A", "C"), ("", "B"), ("", "A"), ("BC", "")]]
    draw = random.Random(0)
    for _ in range(60):
        kernels.append([("".join(draw.sample("ABC", draw.randrange(3))),
                         draw.choice(("", *"ABC"))) for _ in range(draw.randrange(2, 7))])
    for stages in kernels:
        ast = looped(stages)
        low = lower(ast.replace(arg=replace(ast.arg, lanes=32)), False)
        place_waits(low)
        assert not unwaited(low), stages
