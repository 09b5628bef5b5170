"""Where values stand in the text, and that the text depends on the kernel alone."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.chapters.groups.test_tensor_cores import nvidia_missing
from conformance.emulation import address_spaces, nvrtc
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import load, param, reduce, store
from conformance.trace import verifies
from impl import symbolic
from impl.dialects import CUDA, C, Metal, OpenCL
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits
from impl.render import render
from impl.searching import optimize

WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)


def text_of(ast: UOp) -> str:
    return render(ast, C()).text


@verifies("render.hint.pays+2")
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


@verifies("render.reduce.rounding+2")
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


@verifies("render.name.legal")
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


@verifies("render.name.legal")
def test_no_kernel_is_called_like_a_word_of_a_language() -> None:
    for language in (C, OpenCL, CUDA, Metal):
        assert f"k_{WORDS[0]}(" in named(language)


@pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable())
@verifies("render.name.legal")
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
