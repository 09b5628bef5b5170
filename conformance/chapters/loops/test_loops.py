"""Loops that are values, against the same steps in Python. Chapter: spec/loops.md."""
from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Ops, Tensor, TinyJit, Variable, func
from impl.errors import ArgumentError, DTypeError, GraphError, ShapeError, TraceError

NUMBERS = np.random.default_rng(0)
W, XS = NUMBERS.standard_normal((4, 4)) / 2, NUMBERS.standard_normal((5, 3, 4))
H = NUMBERS.standard_normal((3, 4))


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """Nothing is compiled for functions that run once."""
    with Context(DEVICE="REFERENCE"):
        yield


def close(mine: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    got, other = (np.asarray(v.numpy() if isinstance(v, Tensor) else v) for v in (mine, wanted))
    assert got.shape == other.shape
    np.testing.assert_allclose(got, other, tolerance, tolerance)


def network(w: Tensor, h: Tensor, xs: Tensor, scan: Callable[..., Any] = func.scan,
            reverse: bool = False) -> tuple[Any, Any]:
    """Two carries of two dtypes, two results of a step, and weights from outside."""
    def step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Any]:
        state = (carry["h"] @ w + x).tanh()
        number = carry["n"] + 1
        return {"h": state, "n": number}, (state * 2, number * (x.sum() > 0).int())
    return scan(step, {"h": h, "n": Tensor(0, device=h.device)}, xs, reverse=reverse)


def written_out(step: Callable[..., Any], carry: Any, xs: Tensor, reverse: bool = False) -> Any:
    """What a scan is short for."""
    found = []
    order = range(xs.shape[0])
    for i in reversed(order) if reverse else order:
        carry, y = step(carry, xs[i])
        found.append(y)
    if reverse:
        found = found[::-1]
    return carry, tuple(Tensor.stack(*[y[k] for y in found]) for k in range(2))


@verifies("loops.value.equal+2")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_the_loop_written_out(reverse: bool) -> None:
    given = Tensor(W), Tensor(H), Tensor(XS)
    # Before it is computed: what is in memory has no kernels.
    document = Tensor.schedule_document(network(*given)[0]["h"] + 1)
    assert [k["kind"] for k in document["kernels"]].count("loop") == 1
    assert "scan of 5 iterations" in Tensor.explain(network(*given)[0]["h"])
    carry, ys = network(*given, reverse=reverse)
    wanted, others = network(*given, scan=written_out, reverse=reverse)
    close(carry["h"], wanted["h"])
    assert carry["n"].item() == 5 and carry["n"].dtype is wanted["n"].dtype
    close(ys[0], others[0])
    close(ys[1], others[1])


@verifies("loops.value.equal+2")
def test_what_may_go_in_and_out() -> None:
    x = Tensor([1.0, 2.0])
    # Nothing carried, nothing stacked, constants, one value twice, a value as it came.
    assert func.scan(lambda c, r: (None, r * 2), None, x)[1].tolist() == [2, 4]
    assert func.scan(lambda c, _: (c * 2, None), Tensor(1.0), length=4)[0].item() == 16
    (a, b), (c, d, e) = func.scan(lambda c, r: ((c[1], c[0]), (r, Tensor(7.0), c[0])),
                                  (Tensor(1.0), Tensor(2.0)), x)
    assert [a.item(), b.item(), c.tolist(), d.tolist(), e.tolist()] == [1, 2, [1, 2], [7, 7],
                                                                        [1, 2]]
    last, none = func.scan(lambda c, r: (c + r, c), Tensor([1.0]), Tensor.zeros(0, 1))
    assert last.tolist() == [1] and none.shape == (0, 1)
    assert func.scan(lambda c, r: (c + r.sum(), None), x[0], x.reshape(2, 1).expand(2, 3))[
        0].item() == 10

    def writes(c: Tensor, r: Tensor) -> tuple[Tensor, None]:
        c[1:] = c[:-1] + r
        return c, None
    assert func.scan(writes, Tensor([1.0, 0.0, 0.0]), x)[0].tolist() == [1, 3, 4]
    assert x.tolist() == [1, 2]
    nested = func.scan(lambda c, r: (func.scan(lambda d, s: (d * 0.5 + s * r, None), c, x)[0],
                                     c), Tensor(1.0), x)
    want, seen = 1.0, []
    for r in (1.0, 2.0):
        seen.append(want)
        for s in (1.0, 2.0):
            want = want * 0.5 + s * r
    assert nested[0].item() == want and nested[1].tolist() == seen


@verifies("loops.value.equal+2")
def test_while_and_cond_decide_when_they_run() -> None:
    def collatz(n: Tensor) -> tuple[Tensor, Tensor]:
        return func.while_loop(
            lambda c: c[0] > 1, lambda c: (func.cond(
                c[0] % 2 == 0, lambda v: v // 2, lambda v: v * 3 + 1, c[0]), c[1] + 1),
            (n, Tensor(0)))
    captured = TinyJit(lambda n: collatz(n)[1].realize())
    for n, steps in ((1, 0), (7, 16), (6, 8), (27, 111), (1, 0)):
        assert collatz(Tensor(n))[1].item() == steps
        assert captured(Tensor(n)).item() == steps
    assert func.vmap(lambda n: collatz(n)[1])(Tensor([7, 1, 6])).tolist() == [16, 0, 8]
    ran = func.cond(Tensor(False), lambda: Tensor([1.0]) / 0, lambda: Tensor([2.0]))
    assert ran.tolist() == [2]
    assert func.cond(True, lambda x: {"a": x}, lambda x: {"a": -x}, 3.0)["a"].item() == 3


@verifies("loops.value.equal+2")
def test_under_a_captured_function_and_on_a_mesh() -> None:
    def loss(w: Tensor, h: Tensor, xs: Tensor) -> Tensor:
        carry, ys = network(w, h, xs)
        return (ys[0].sin() * carry["h"]).sum()
    captured = TinyJit(func.value_and_grad(loss, (0, 1, 2)))
    for factor in (1.0, 0.5, 0.25, 2.0):
        value, gradients = captured(Tensor(W * factor), Tensor(H), Tensor(XS))
        again, others = func.value_and_grad(loss, (0, 1, 2))(Tensor(W * factor), Tensor(H),
                                                             Tensor(XS))
        close(value, again)
        for mine, wanted in zip(gradients, others, strict=True):
            close(mine, wanted)
    mesh = ("REFERENCE", "REFERENCE:1")
    spread = Tensor(W).shard(mesh), Tensor(H).shard(mesh, 0), Tensor(XS).shard(mesh, 1)
    _, gradients = func.value_and_grad(loss, (0, 1, 2))(*spread)
    _, others = func.value_and_grad(loss, (0, 1, 2))(Tensor(W), Tensor(H), Tensor(XS))
    for mine, wanted in zip(gradients, others, strict=True):
        close(mine, wanted)
    ended = func.while_loop(lambda c: c.sum() < 10, lambda c: c + 0.5,
                            Tensor(np.zeros(4)).shard(mesh, 0))
    assert ended.tolist() == [2.5] * 4


@verifies("loops.body.once")
def test_a_body_is_planned_once() -> None:
    def run(factor: float, rows: np.ndarray) -> Tensor:
        carry, _ = network(Tensor(W * factor), Tensor(H[:2]), Tensor(rows[:, :2]))
        return carry["h"].realize()
    many = np.concatenate([XS, XS, XS])
    before = GlobalCounters.plan_misses
    run(1.0, many)
    planned = GlobalCounters.plan_misses - before
    assert planned == 2  # the schedule, and the body in it
    run(0.5, many * 2)  # after others, the schedule around it may be planned for both
    before = GlobalCounters.plan_misses
    run(0.25, many * 3)
    assert GlobalCounters.plan_misses == before
    loop = next(node for node in network(Tensor(W), Tensor(H), Tensor(XS))[0]["h"].uop.toposort()
                if node.op is Ops.LOOP)
    assert pickle.loads(pickle.dumps(loop.arg)) == loop.arg
    assert len(loop.toposort()) < 60


@verifies("loops.random.step+2")
def test_each_step_draws_numbers_of_its_own() -> None:
    def step(c: Tensor, x: Tensor) -> Any:
        return c + Tensor.rand(4), (c * Tensor.randn(4), x * Tensor.rand(1))
    for reverse in (False, True):
        Tensor.manual_seed(5)
        carry, ys = func.scan(step, Tensor(np.zeros(4)), Tensor(XS[:, 0]), reverse=reverse)
        found = [carry.numpy(), *(y.numpy() for y in ys), Tensor.rand(2).numpy()]
        Tensor.manual_seed(5)
        carry, ys = written_out(step, Tensor(np.zeros(4)), Tensor(XS[:, 0]), reverse)
        wanted = [carry.numpy(), *(y.numpy() for y in ys), Tensor.rand(2).numpy()]
        for mine, other in zip(found, wanted, strict=True):
            close(mine, other)
    with pytest.raises(ArgumentError, match="random"):
        func.while_loop(lambda c: c < 1, lambda c: c + Tensor.rand(), Tensor(0.0))


def losses(scan: Callable[..., Any]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def loss(w: Tensor, h: Tensor, xs: Tensor) -> Tensor:
        carry, ys = network(w, h, xs, scan)
        return (ys[0].sin() * carry["h"]).sum() + carry["h"].square().sum()
    return loss


@verifies("loops.gradient.reverse+2")
def test_the_gradient_is_that_of_the_steps() -> None:
    given = Tensor(W), Tensor(H), Tensor(XS)
    mine, wanted = losses(func.scan), losses(written_out)
    for found, other in zip(func.grad(mine, (0, 1, 2))(*given),
                            func.grad(wanted, (0, 1, 2))(*given), strict=True):
        close(found, other)
    # Without a transform, where nothing was kept; and a part of the targets.
    close(mine(*given).gradient(given[0])[0], wanted(*given).gradient(given[0])[0])
    second = [func.grad(lambda h, f=f: func.grad(f, 1)(given[0], h, given[2]).square().sum())(
        given[1]) for f in (mine, wanted)]
    close(*second)
    many = Tensor(np.stack([XS, -XS]))
    for f in (mine, wanted):
        second.append(func.vmap(func.grad(f, 0), (None, None, 0))(given[0], given[1], many))
        second.append(func.grad(lambda x, f=f: func.vmap(f, (None, None, 0))(
            given[0], given[1], x).square().sum())(many))
    close(second[2], second[4])
    close(second[3], second[5])
    w = Tensor(W, requires_grad=True)
    losses(func.scan)(w, given[1], given[2]).backward()
    close(w.grad, wanted(*given).gradient(given[0])[0])
    for pred in (True, False):
        slope = func.grad(lambda x, p=pred: func.cond(
            Tensor(p), lambda v: (v.sin() * given[0]).sum(), lambda v: (v * v).sum(), x))(given[0])
        close(slope, np.cos(W) * W if pred else 2 * W)
    with pytest.raises(GraphError, match="while_loop has no gradient"):
        func.grad(lambda x: func.while_loop(lambda c: c < 9, lambda c: c * 2, x))(2.0)


@verifies("loops.gradient.reverse+2")
def test_a_number_that_the_body_reads_has_its_gradient() -> None:
    """It is in no memory, so nothing but the transform says that it is one's own."""
    def power(w: Tensor) -> Tensor:
        return func.scan(lambda c, m: (c * w, None), Tensor(1.0), Tensor([1.0, 2.0]))[0]

    half = Tensor(0.5)
    assert func.grad(power)(half).item() == 1.0 and func.hessian(power)(half).item() == 2.0
    assert func.jvp(power, (half,), (Tensor(1.0),))[1].item() == 1.0
    assert func.grad(lambda w: func.cond(Tensor(True), lambda v: v * w, lambda v: v, Tensor(3.0)))(
        half).item() == 3.0


def recurrent(scan: Callable[..., Any]) -> Callable[..., Tensor]:
    """A layer: weights of 4 by 4 and numbers for each column, three rows in each step."""
    def last(w: Tensor, b: Tensor, h: Tensor, xs: Tensor) -> Tensor:
        carry, (ys, _) = scan(lambda c, x: ((c.linear(w, b) + x).tanh(), (c * 2, c)), h, xs)
        return (carry * ys).sum()
    return last


@verifies("loops.gradient.product")
@verifies("loops.outside.once")
@pytest.mark.parametrize(("rows", "dtype", "tolerance"), [
    (1, np.float64, 1e-9), (3, np.float64, 1e-9), (3, np.float16, 0.05)])
def test_products_wait_until_the_loop_is_over(rows: int, dtype: type, tolerance: float) -> None:
    given = [Tensor(np.asarray(each, dtype)) for each in (W, H[0], H[:rows], XS[:, :rows])]
    mine = func.grad(recurrent(func.scan), (0, 1))(*given)
    wanted = func.grad(recurrent(written_out), (0, 1))(*given)
    loops = [node for node in mine[0].uop.toposort() if node.op is Ops.LOOP]
    first, back = loops[0], loops[-1]
    assert {source.shape[-2:] for source in first.src if 4 in source.shape[-1:]} \
        == {(rows, 4), (4, 4), (1, 4)}
    assert [root.shape for root in back.arg.roots[:back.arg.carries]] == [(rows, 4)]
    for found, other in zip(mine, wanted, strict=True):
        close(found, other, tolerance)
    # Nothing waits for what would be larger: one number for each element, no rows.
    each = func.grad(lambda w: func.scan(
        lambda c, x: ((c * w).sin() + x, None), given[2], given[3])[0].sum())(given[2])
    back = [node for node in each.uop.toposort() if node.op is Ops.LOOP][-1]
    assert [root.shape for root in back.arg.roots[:back.arg.carries]] == [(rows, 4)] * 2


@verifies("loops.gradient.forward")
def test_the_change_is_that_of_the_steps() -> None:
    given = Tensor(W), Tensor(H), Tensor(XS)
    mine, wanted = losses(func.scan), losses(written_out)
    close(func.jvp(mine, given, given)[1], func.jvp(wanted, given, given)[1])
    changes = [func.jvp(lambda x, s=s: network(given[0], given[1], x, s)[1][0], (given[2],),
                        (given[2],))[1] for s in (func.scan, written_out)]
    close(*changes)
    close(func.hvp(mine, given, given)[0], func.hvp(wanted, given, given)[0])
    value, change = func.jvp(lambda x: func.while_loop(
        lambda c: c[0].sum() < 50, lambda c: (c[0] * 1.5 + x, c[1] + 1), (x, Tensor(0)))[0],
        (Tensor(np.abs(H)),), (Tensor(np.abs(H)),))
    close(value, change)  # it is linear
    for pred in (True, False):
        _, change = func.jvp(lambda x, p=pred: func.cond(
            Tensor(p), lambda v: v.sin() * given[1], lambda v: v * v, x), (given[1],), (given[1],))
        close(change, np.cos(H) * H * H if pred else 2 * H * H)


@verifies("loops.value.equal+2")
def test_a_condition_has_one_element() -> None:
    for condition in (True, Tensor(True), Tensor([True]), Tensor([[1.0]]) > 0):
        assert func.cond(condition, lambda x: x, lambda x: x * 2, Tensor([1.0])).tolist() == [1]


@verifies("loops.value.equal+2")
def test_bools_are_values() -> None:
    for chosen in (True, False):
        assert func.cond(Tensor(chosen), lambda: True, lambda: False).item() is chosen
    count, goes_on = func.while_loop(lambda s: s[1], lambda s: (s[0] + 1, False),
                                     (Tensor(1.0), True))
    assert count.item() == 2 and goes_on.item() is False
    last, seen = func.scan(lambda c, x: (x > 1, c), True, np.array([0.0, 2.0]))
    assert last.item() is True and seen.tolist() == [True, False]


@verifies("loops.count.symbolic")
def test_a_scan_over_a_symbolic_number_of_rows() -> None:
    x, size = Tensor(H).realize(), Variable("n", 1, 3)

    def both(n: Any) -> tuple[Tensor, Tensor]:
        return func.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x[:n])
    step = TinyJit(both)
    for n in (2, 2, 3, 1, 2, 3, 3):
        for mine, whole in zip(step(size.bind(n)), both(n), strict=True):
            np.testing.assert_array_equal(mine.numpy(), whole.numpy())
    assert step.replays == 3
    assert step.traces == 0
    slope = func.grad(lambda z: both_of(z, size.bind(2)))(x)
    np.testing.assert_array_equal(slope.numpy(), func.grad(lambda z: both_of(z, 2))(x).numpy())


def both_of(z: Tensor, n: Any) -> Tensor:
    """A number to which all rows that there are lead."""
    carry, _ = func.scan(lambda c, r: (c * r.sum(), None), z[0], z[:n])
    return carry.sum()


@verifies("loops.arguments.refused+4")
def test_what_does_not_fit_is_refused() -> None:
    x = Tensor(H)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ShapeError, "the carry", lambda: func.scan(lambda c, r: (c[0], None), x, x)),
        (DTypeError, "the carry is float32", lambda: func.scan(
            lambda c, r: (c.float(), None), x, x)),
        (ArgumentError, "the carry", lambda: func.scan(lambda c, r: ((c, c), None), x, x)),
        (ArgumentError, "no pair", lambda: func.scan(lambda c, r: c, x, x)),
        (ShapeError, "rows", lambda: func.scan(lambda c, r: (c, None), x, (x, x[:2]))),
        (ShapeError, "rows", lambda: func.scan(lambda c, r: (c, None), x)),
        (ShapeError, "the condition", lambda: func.cond(x > 0, lambda: x, lambda: x)),
        (ShapeError, "the condition", lambda: func.while_loop(lambda c: c, lambda c: c, x)),
        (ShapeError, "second function", lambda: func.cond(True, lambda: x, lambda: x[0])),
        (DTypeError, "second function", lambda: func.cond(True, lambda: x, lambda: x.float())),
        (ArgumentError, "another form", lambda: func.cond(True, lambda: "a", lambda: "b")),
        (ArgumentError, "another form", lambda: func.scan(
            lambda c, r: ((c[0], None), None), (x, "a"), x)),
        (TraceError, "scan", lambda: func.scan(lambda c, r: (c * r.item(), None), x[0], x[0])),
    ]
    for kind, said, call in wrong:
        with pytest.raises(kind, match=said):
            call()


def total(w: Tensor, xs: Tensor, scan: Callable[..., Any]) -> Tensor:
    _, ys = scan(lambda h, x: ((h @ w + x).tanh(), ((h @ w + x).tanh(), x)),
                 Tensor.zeros(w.shape[0]), xs)
    return ys[0].square().sum()


@verifies("loops.value.equal+2")
@pytest.mark.parametrize("width", [16, 3])
def test_a_recurrent_layer_compiled(width: int) -> None:
    """Rows of one size that lies as kernels want it, and of one that does not."""
    with Context(DEVICE="CPU"):
        w = Tensor(NUMBERS.standard_normal((width, width)).astype(np.float32) / 4)
        xs = Tensor(NUMBERS.standard_normal((6, width)).astype(np.float32))
        got = func.value_and_grad(lambda w: total(w, xs, func.scan))(w)
        wanted = func.value_and_grad(lambda w: total(w, xs, written_out))(w)
        for mine, other in zip(got, wanted, strict=True):
            close(mine, other, 1e-5)
