"""Where values stand in the text, and that the text depends on the kernel alone."""
from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.chapters.groups.test_tensor_cores import nvidia_missing
from conformance.emulation import address_spaces, nvrtc
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, param, reduce, store
from conformance.trace import verifies
from impl import symbolic
from impl.dtypes import ALL, dtypes
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Limits
from impl.render import CUDA, C, Metal, OpenCL, lower, render
from impl.render.blocks import Loop
from impl.render.lower import Lowered
from impl.searching import optimize

WIDE = Limits(vector_bytes=64, vector_registers=32)


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


@verifies("render.place.level")
@verifies("render.place.once")
def test_a_value_stands_at_the_level_of_its_loops() -> None:
    """sqrt(a[i]) does not depend on j, though only the innermost loop uses it."""
    i, j = new_range(8, RangeKind.GLOBAL), new_range(8, RangeKind.GLOBAL)
    root = kb.apply(Ops.SQRT, load(param(1), i))
    value = kb.apply(Ops.MUL, root, load(param(2), flat((i, 8), (j, 1))))
    text = text_of(kb.kernel(store(param(0), flat((i, 8), (j, 1)), value), prefix=(i, j)))
    assert loop_depth(text, r"sqrt_f32\(.*;") == 1
    assert loop_depth(text, r"p2\[") == 2


@verifies("render.place.once")
def test_a_shared_value_is_computed_once() -> None:
    i = new_range(8, RangeKind.GLOBAL)
    value = kb.apply(Ops.EXP, load(param(2), i))
    text = text_of(kb.kernel(store(param(0), i, value),
                             store(param(1), i, kb.apply(Ops.ADD, value, value)), prefix=(i,)))
    body = text[text.index("void "):]
    assert body.count("exp_f32(") == 1 and body.count("p2[") == 1


@verifies("render.place.level")
def test_nested_reductions_stand_inside_each_other() -> None:
    i, k, q = (new_range(n, kind) for n, kind in (
        (3, RangeKind.GLOBAL), (4, RangeKind.REDUCE), (5, RangeKind.REDUCE)))
    inner = reduce(Ops.MAXIMUM, load(param(1), flat((i, 20), (k, 5), (q, 1))), q)
    ast = kb.kernel(store(param(0), i, reduce(Ops.ADD, inner, k)), prefix=(i,))
    assert loop_depth(text_of(ast), r"p1\[") == 3
    given, out = np.random.default_rng(0).random((3, 4, 5), np.float32), np.zeros(3, np.float32)
    kb.run(ast, out, given)
    np.testing.assert_allclose(out, given.max(2).sum(1), rtol=1e-6)


@verifies("render.reduce.merge")
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


@verifies("render.reduce.turns")
def test_only_long_loops_over_tiles_of_products_are_written_out() -> None:
    """A sum of 130 products has two turns left over."""
    long, short, asked = kb.matmul(1024, 512, 130), kb.matmul(64, 512, 130), "#pragma GCC unroll 4"
    lines = [line.strip() for line in text_of(optimize(long, WIDE)).splitlines()]
    assert lines.count(asked) == 1
    loop = lines[lines.index(asked) + 1:]
    assert loop[0].startswith("for (long ") and "< 130;" in loop[0]
    assert sum("= fma_f32x" in line for line in loop[:loop.index("}")]) >= 16
    for other in (long, optimize(short, WIDE), optimize(kb.softmax(4096, 1024), WIDE)):
        assert asked not in text_of(other)
    rng = np.random.default_rng(0)
    one, two = (rng.standard_normal(shape).astype(np.float32) for shape in ((1024, 130),
                                                                            (130, 512)))
    out = np.zeros((1024, 512), np.float32)
    kb.run(optimize(long), out, one, two)
    np.testing.assert_allclose(out, one.astype(np.float64) @ two, rtol=1e-4, atol=1e-4)


@verifies("render.text.deterministic")
@pytest.mark.parametrize("make", [lambda: kb.matmul(33, 48, 20), lambda: kb.softmax(6, 100)])
def test_equal_kernels_give_equal_text(make: object) -> None:
    """Loops have other numbers each time."""
    assert callable(make)
    one, two = make(), make()
    assert one is not two
    assert text_of(one) == text_of(two)
    assert text_of(optimize(one, WIDE)) == text_of(optimize(two, WIDE))


@verifies("render.reduce.contract")
def test_only_the_product_of_a_sum_is_contracted() -> None:
    """a*a - a*a is 0, whatever the rounding: no product may be kept unrounded in the other."""
    i, k = new_range(64, RangeKind.GLOBAL), new_range(64, RangeKind.REDUCE)
    square = kb.apply(Ops.MUL, load(param(1), i), load(param(1), i))
    ast = kb.kernel(store(param(0), i, kb.apply(Ops.SUB, square, square)), prefix=(i,))
    given = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    out = np.ones(64, np.float32)
    kb.run(ast, out, given)
    assert (out == 0).all()
    difference = kb.apply(Ops.SUB, kb.apply(Ops.MUL, load(param(1), i), load(param(2), i)),
                          load(param(1), i))
    kb.run(kb.kernel(store(param(0), i, difference), prefix=(i,)), out, given,
           other := given[::-1].copy())
    assert (out == given * other - given).all()
    twice = kb.apply(Ops.MUL, load(param(1), k), load(param(1), k))
    total = reduce(Ops.ADD, kb.apply(Ops.ADD, twice, twice), k)
    assert "fma_f32" not in text_of(kb.kernel(store(param(0), 0, total)))
    assert "fma_f32" in text_of(kb.kernel(store(param(0), 0, reduce(Ops.ADD, twice, k))))


@verifies("render.depth.unlimited")
@verifies("render.length.linear", observe="time")
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


@verifies("render.literal.exact")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_numbers_reach_the_kernel_exactly(dtype: object) -> None:
    assert dtype in ALL
    kind = next(d for d in ALL if d is dtype)
    values = kb.to_host(kb.special(kind), kind)
    stores = [store(param(0, kind), place, kb.number(kind, value))
              for place, value in enumerate(values.tolist())]
    out = kb.from_host(np.zeros(len(values)), kind)
    kb.run(kb.kernel(*stores), out)
    found = kb.to_host(out, kind)
    assert np.array_equal(found, values, equal_nan=kind.kind == "f")
    if kind.kind == "f":
        assert (np.signbit(found) == np.signbit(values))[~np.isnan(values)].all()


@verifies("render.literal.exact")
@pytest.mark.parametrize("number", [-np.inf, -0.0, -2.5, -2e30])
def test_what_is_negative_may_follow_a_minus_sign(number: float) -> None:
    """Two minus signs would be a decrement."""
    ast = kb.kernel(store(param(0), 0, kb.apply(Ops.NEG, kb.number(FLOAT, number))))
    for language in (C(), OpenCL(), CUDA(), Metal()):
        text = render(ast, language).text
        assert "--" not in text[text.index("p0[0] ="):].splitlines()[0]
    out = np.zeros(1, np.float32)
    kb.run(ast, out)
    assert out[0] == -np.float32(number) and not np.signbit(out[0])


@verifies("render.name.plain")
def test_any_name_is_made_an_identifier() -> None:
    i = new_range(3, RangeKind.GLOBAL)
    for name in ("sum, exp (model.py:12)", "3d", "", "naïve", 'x"; }'):
        ast = kb.kernel(store(param(0), i, load(param(1), i)), prefix=(i,), name=name)
        source = render(ast, C())
        assert re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", source.name)
        assert f"void {source.name}(void **args)" in source.text


#: Words of some languages; types; functions that have other arguments than a kernel.
WORDS = ("half", "kernel", "constant", "thread", "vertex", "int", "template", "asm", "main", "exp",
         "max", "float4", "uint2", "packed_half4", "bfloat", "bool", "new", "global", "local",
         "restrict", "size_t", "threadIdx", "fma", "printf", "__half", "_Bool", "sampler", "memcpy",
         "signed", "typename", "std", "metal", "abs", "select", "dot", "uchar", "texture")


def named(language: Any) -> str:
    """A text with a kernel for each of the words."""
    i, found = new_range(3, RangeKind.GLOBAL), []
    for name in WORDS:
        ast = kb.kernel(store(param(0), i, load(param(1), i)), prefix=(i,), name=name)
        source = render(ast, language())
        found.append(source)
        assert source.name not in WORDS and source.name.endswith(name.strip("_")), source.name
    body = [f"{each.signature.format(name=each.name)} {each.body}" for each in found]
    return "\n".join((*dict.fromkeys(each for s in found for each in s.definitions), *body))


@verifies("render.name.reserved")
def test_no_kernel_is_called_like_a_word_of_a_language() -> None:
    for language in (C, OpenCL, CUDA, Metal):
        assert f"k_{WORDS[0]}(" in named(language)


@pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable())
@verifies("render.name.reserved")
def test_kernels_called_like_words_compile() -> None:
    for language, name in ((CUDA, "cuda"), (Metal, "metal")):
        emulation.compile(named(language), name)
    if not address_spaces.unavailable():
        address_spaces.check(named(Metal))
    if not nvidia_missing():
        nvrtc.check(named(CUDA), (80,))


@verifies("render.argument.order")
def test_variables_follow_the_pointers() -> None:
    """A loop may have an extent that is known at run time only."""
    variable = symbolic.Variable("n", 1, 100).uop
    i = new_range(variable, RangeKind.GLOBAL)
    value = kb.apply(Ops.CAST, symbolic.mul(variable, i), dtype=dtypes.int32)
    ast = kb.kernel(store(param(0, dtypes.int32), i, value), prefix=(i,), variables=(variable,))
    assert "args[1]" in text_of(ast)
    for device in ("CPU", "REFERENCE"):
        for count in (1, 7, 100):
            out = np.full(100, -1, np.int32)
            kb.run(ast, out, values=(count,), device=device)
            assert out.tolist() == [n * count for n in range(count)] + [-1] * (100 - count)


@verifies("render.argument.order")
def test_variables_come_in_their_order() -> None:
    names = [symbolic.Variable(name, 0, 100).uop for name in ("second", "first")]
    stores = [store(param(0, dtypes.int32), place, kb.apply(Ops.CAST, name, dtype=dtypes.int32))
              for place, name in enumerate(names)]
    for device in ("CPU", "REFERENCE"):
        out = np.zeros(2, np.int32)
        kb.run(kb.kernel(*stores, variables=names), out, values=(7, 9), device=device)
        assert out.tolist() == [7, 9]


@verifies("render.lower.language")
def test_lowering_is_independent_of_the_language() -> None:
    low = lower(optimize(kb.matmul(64, 64, 64), WIDE))
    kinds = [type(item).__name__ for item in low.root.items]
    assert kinds == ["Loop", "Loop", "Begin", "Loop", "Finish", "Write"]  # panel, tiles, rest
    assert len(low.vector) > 0


@verifies("render.lower.language")
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
