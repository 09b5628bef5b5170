"""Softmax in blocks, with a running maximum: step ONLINE. Chapter: spec/blocking.md."""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from conformance import emulation
from conformance.chapters.groups.test_tensor_cores import launched, needs_emulator, sources
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, local, param, reduce, store
from conformance.trace import verifies
from impl.blocking import Online
from impl.choosing import hand_steps
from impl.dialects import CUDA
from impl.dtypes import dtypes
from impl.groups import Local, lane_steps
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits, verify_kernel
from impl.kernel.analysis import Analysis
from impl.kernel.private import exceeds, shared_bytes
from impl.searching import with_steps
from impl.searching.beam import actions
from impl.steps import StepError, Upcast, apply_steps

ROWS, KEYS, DEEP, WIDE = 8, 24, 5, 6


def attention(keys: int = KEYS, other: str = "") -> UOp:
    """out[r, d] = sum over k of softmax(q[r] keys[k] + mask[r, k]) values[k, d]; `other` says what
    is different from that.
    """
    r = new_range(ROWS, RangeKind.GLOBAL)
    j, j2, j3, d = (new_range(n, RangeKind.LOOP) for n in (keys, keys, keys, WIDE))
    i, k, k2, k3 = (new_range(n, RangeKind.REDUCE) for n in (DEEP, keys, keys, keys))
    scores, top, powers, total, weights = (local(n, size) for n, size in enumerate(
        (keys, 1, keys, 1, keys)))
    zero = kb.number(dtypes.index, 0)
    crossed = [local(5 + n, keys) for n in range(61 if other == "diamonds" else 0)]

    def seen(buffer: UOp, name: str, at: UOp) -> UOp:
        half = kb.apply(Ops.CMPLT, at, kb.number(dtypes.index, keys // 2), dtype=dtypes.bool)
        return load(buffer, at, half if other == f"half of the {name}" else TRUE)

    def score(at: UOp) -> UOp:
        masked = load(param(3), flat((r, keys), (at, 1)))
        return kb.apply(Ops.ADD, seen(crossed[-1] if crossed else scores, "scores", at), masked)

    product = kb.apply(Ops.MUL, load(param(1), flat((r, DEEP), (i, 1))),
                       load(param(2), flat((j, DEEP), (i, 1))))
    most = reduce(Ops.MINIMUM if other == "least" else Ops.MAXIMUM, score(k), k)
    shifted = kb.apply(Ops.SUB, score(j2), load(top, zero))
    summed = load(scores, k2) if other == "scores" else seen(powers, "sum", k2)
    quotient = kb.apply(Ops.DIV, seen(powers, "powers", j3), load(total, zero))
    if other == "rounded":
        quotient = kb.apply(Ops.CAST, kb.apply(Ops.CAST, quotient, dtype=dtypes.float16),
                            dtype=FLOAT)
    wide = new_range(WIDE, RangeKind.REDUCE)
    values = load(param(0) if other == "stored" else param(4),
                  flat((k3, WIDE), (wide if other == "summed" else d, 1)))
    result = reduce(Ops.ADD, kb.apply(Ops.MUL, seen(weights, "weights", k3), values), k3)
    if other == "summed":
        result = reduce(Ops.ADD, result, wide)
    if other == "needed":
        result = kb.apply(Ops.ADD, result, load(top, zero))
    stages = [store(scores, j, reduce(Ops.ADD, product, i), j),
              *(_crossing(buffer, (crossed[at - 2 - at % 2:at - at % 2] or [scores]))
                for at, buffer in enumerate(crossed)), store(top, zero, most),
              store(powers, j2, kb.apply(Ops.EXP, shifted), j2),
              store(total, zero, reduce(Ops.ADD, summed, k2)), store(weights, j3, quotient, j3),
              store(param(0), flat((r, WIDE), (d, 1)), result, d)]
    return kb.kernel(*stages, prefix=(r,), name="attention")


def _crossing(buffer: UOp, below: list[UOp]) -> UOp:
    """A stage that needs all those below it."""
    at = new_range(buffer.arg[1], RangeKind.LOOP)
    total = load(below[0], at)
    for each in below[1:]:
        total = kb.apply(Ops.ADD if buffer.arg[0] % 2 else Ops.MAXIMUM, total, load(each, at))
    return store(buffer, at, total, at)


def weighted(ast: UOp) -> int:
    """The loop of the weighted sum."""
    total = next(n for n in ast.src[-1].toposort() if n.op is Ops.REDUCE)
    return Analysis(ast).position[total.src[1]]


def online(ast: UOp, amount: int) -> UOp:
    made = apply_steps(ast, [Online(weighted(ast), amount)])
    verify_kernel(made)
    return made


def masks() -> Iterator[np.ndarray]:
    """None, causal, one that hides the first keys, one that hides all, great and small scores."""
    yield np.zeros((ROWS, KEYS), np.float32)
    yield np.triu(np.full((ROWS, KEYS), -np.inf, np.float32), 1)
    first = np.zeros((ROWS, KEYS), np.float32)
    first[:, :KEYS // 2], first[3] = -np.inf, -np.inf
    yield first
    steps = np.linspace(-200, 200, KEYS, dtype=np.float32)
    yield np.stack([steps if row % 2 else steps[::-1] for row in range(ROWS)])
    special = np.zeros((ROWS, KEYS), np.float32)
    special[0, 7], special[1, 20], special[2, 0] = np.nan, np.inf, np.nan
    yield special


def operands(mask: np.ndarray) -> list[np.ndarray]:
    draw = np.random.default_rng(4)
    q, k, v = (draw.normal(size=size).astype(np.float32) for size in (
        (ROWS, DEEP), (KEYS, DEEP), (KEYS, WIDE)))
    return [np.zeros((ROWS, WIDE), np.float32), q, k, mask, v]


def wanted(mask: np.ndarray) -> np.ndarray:
    _, q, k, _, v = (each.astype(np.float64) for each in operands(mask))
    with np.errstate(invalid="ignore"):
        scores = q @ k.T + mask
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return (powers / powers.sum(1, keepdims=True)) @ v


@verifies("blocking.online.legal")
@verifies("blocking.online.equal")
def test_blocks_have_the_softmax_of_the_row() -> None:
    ast = attention()
    made = [with_steps(each, ()) for each in (ast, *(online(ast, n) for n in (1, 4, 8, 12)))]
    for mask in masks():
        right = wanted(mask)
        for each, device in (*((each, "REFERENCE") for each in made), (made[3], "CPU")):
            given = operands(mask)
            kb.run(each, *given, device=device)
            np.testing.assert_allclose(given[0], right, 1e-5, 1e-6)


@verifies("blocking.online.equal")
def test_what_is_rounded_elsewhere_is_near() -> None:
    """Also where all elements together are more than the greatest number, or where great ones are
    seen first and weigh nothing in the end.
    """
    made = [with_steps(online(attention(), amount), ()) for amount in (1, 4, 8)]
    for mask, great in itertools.product(masks(), (1e-30, 1.0, 3.4e38)):
        if not np.isfinite(mask).all():
            continue
        given = operands(mask)
        given[4][:] *= np.float32(great) / np.abs(given[4]).max()
        scores = given[1].astype(np.float64) @ given[2].T.astype(np.float64) + mask
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        values = given[4].astype(np.float64)
        # What an error of a score in its last place does to a weight, and what is rounded besides.
        allowed = (KEYS + np.abs(scores).max()) * 2.0**-21 * (weights @ np.abs(values))
        for each, device in itertools.product(made, ("REFERENCE", "CPU")):
            given[0][:] = 0
            kb.run(each, *given, device=device)
            assert (np.abs(given[0] - weights @ values) <= allowed + 1e-38).all(), (great, device)


@verifies("blocking.online.legal")
def test_stages_that_need_both_of_those_before_are_looked_at_once() -> None:
    ast = attention(other="diamonds")
    assert len(ast.src) == 67 and "ONLINE" in str(online(ast, 8).arg.steps)


@verifies("blocking.online.legal")
@verifies("steps.legal.refused")
def test_what_is_no_softmax_is_refused() -> None:
    for other, word in (("least", "no softmax"), ("scores", "no softmax"),
                        ("rounded", "no softmax"), ("needed", "another stage"),
                        ("stored", "another stage"), ("half of the scores", "another stage"),
                        ("half of the sum", "no softmax"), ("half of the powers", "no softmax"),
                        ("half of the weights", "no softmax"), ("summed", "around the sum")):
        with pytest.raises(StepError, match=word):
            online(attention(other=other), 8)
    ast = attention()
    for amount in (0, 5, 24, 48):
        with pytest.raises(StepError, match="ask for a divisor"):
            online(ast, amount)
    with pytest.raises(StepError, match="name one of kind REDUCE"):
        apply_steps(ast, [Online(0, 8)])
    with pytest.raises(StepError, match="not the loop of one sum of products"):
        apply_steps(ast, [Online(next(
            place for place, loop in enumerate(Analysis(ast).ranges)
            if loop.arg[1] is RangeKind.REDUCE), 1)])


@verifies("steps.asked.named")
def test_only_who_asks_gets_a_running_maximum() -> None:
    ast = attention(4096)
    lanes = DeviceLimits(name="CUDA", lanes=256, lockstep=32, local_memory=48 << 10)
    for limits in (lanes, DeviceLimits()):
        tried = actions(Analysis(ast), random.Random(0), limits)
        assert tried and not any(isinstance(step, Online) for step in tried)
    chosen = [*hand_steps(ast, DeviceLimits()), *lane_steps(attention(512), lanes)]
    assert not any(isinstance(step, Online) for step, _ in chosen)


def shared(ast: UOp, lanes: int) -> UOp:
    """All stages' loops shared by lanes."""
    while loops := [r for stage in ast.src for r in stage.src[2:] if r.arg[1] is RangeKind.LOOP]:
        ast = apply_steps(ast, [Local(Analysis(ast).position[loops[0]], lanes)])
    return ast


@verifies("blocking.online.legal")
def test_a_long_row_needs_no_more_memory_than_a_short_one() -> None:
    whole = attention(8192)
    assert exceeds(shared(whole, 64), 48 << 10)
    made = shared(apply_steps(online(whole, 64), [Upcast(0, 8)]), 64)
    short = shared(apply_steps(online(attention(512), 64), [Upcast(0, 8)]), 64)
    assert shared_bytes(made) == shared_bytes(short) == 8 * (3 * 64 + WIDE) * 4


@needs_emulator
@verifies("blocking.online.legal")
@verifies("blocking.online.equal")
def test_groups_of_lanes_have_blocks_of_rows_and_of_keys() -> None:
    made = [shared(apply_steps(online(attention(), amount), [Upcast(0, rows)]), lanes)
            for amount, rows, lanes in ((8, 4, 8), (12, 8, 32), (4, 2, 4))]
    text, called = sources([(ast, CUDA) for ast in made])
    module = emulation.compile(text, "cuda")
    for mask, (ast, (name, source)) in zip(masks(), zip(itertools.cycle(made), itertools.cycle(
            called), strict=False), strict=False):
        given = operands(mask)
        module.launch_in_orders(name, launched(ast), source.lanes, 0,
                                [given[at] for at in source.parameters])
        np.testing.assert_allclose(given[0], wanted(mask), 1e-5, 1e-6)
