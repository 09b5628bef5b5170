"""Numbers as text. Chapter: functions."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, param, store
from conformance.trace import verifies
from impl.dialects import CUDA, C, Metal, OpenCL
from impl.dtypes import ALL
from impl.ir import Ops
from impl.render import render


@verifies("functions.literal.exact")
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


@verifies("functions.literal.exact")
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
