"""Arguments at and beyond the edge of what is possible: refused, or right."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, Variable
from impl.dtypes import dtypes
from impl.errors import ArgumentError, AxisError, ReplayError, ShapeError
from impl.kernel.analysis import estimate

IMAGE = Tensor(np.ones((1, 1, 6, 6), np.float32))
KERNEL = Tensor(np.ones((1, 1, 2, 2), np.float32))
ROW = Tensor(np.ones((1, 3), np.float32))
NONE = Tensor(np.zeros((0, 3), np.float32))

IMPOSSIBLE: dict[str, Callable[[], Any]] = {
    "one_hot(-2)": lambda: Tensor([0, 1]).one_hot(-2),
    "one_hot(2.5)": lambda: Tensor([0, 1]).one_hot(2.5),  # type: ignore[arg-type]
    "repeat(-1, 2)": lambda: ROW.repeat(-1, 2),
    "repeat(1.5, 2)": lambda: ROW.repeat(1.5, 2),
    "repeat_interleave(-1)": lambda: ROW.repeat_interleave(-1),
    "reshape(a)": lambda: ROW.reshape("a"),
    "reshape(1.5)": lambda: ROW.reshape(1.5),
    "unflatten(a)": lambda: ROW.unflatten(0, ["a"]),  # type: ignore[list-item]
    "expand(-2, 3)": lambda: ROW.expand(-2, 3),
    "conv_transpose2d": lambda: IMAGE.conv_transpose2d(KERNEL, padding=9),
    "topk(True)": lambda: ROW.topk(True),
    "topk(a)": lambda: ROW.topk("a"),  # type: ignore[arg-type]
    "topk(None)": lambda: ROW.topk(None),  # type: ignore[arg-type]
    "attention": lambda: Tensor.ones(2, 0).scaled_dot_product_attention(
        Tensor.ones(2, 0), Tensor.ones(2, 3)),
    "group_norm(0)": lambda: IMAGE.group_norm(0),
    "split(1.5)": lambda: ROW.split(1.5, 1),  # type: ignore[arg-type]
    "max_pool2d(2.5)": lambda: IMAGE.max_pool2d(2.5),  # type: ignore[arg-type]
    "padding=0.5": lambda: IMAGE.max_pool2d(2, padding=0.5),  # type: ignore[arg-type]
    "stride=1.5": lambda: IMAGE.conv2d(KERNEL, stride=1.5),  # type: ignore[arg-type]
    "roll": lambda: ROW.roll((1, 2, 3), (0, 1)),
    "gelu": lambda: ROW.gelu("x"),
    "tril": lambda: ROW.tril(1.5),  # type: ignore[arg-type]
    "pad(1)": lambda: ROW.pad(1),  # type: ignore[arg-type]
}


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_argument_is_refused(name: str) -> None:
    with pytest.raises(ShapeError):
        IMPOSSIBLE[name]()


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("padding", [((1,), (1, 1)), ((1, 1, 1), (1, 1)), ((1.5, 1), (1, 1)),
                                     (("a", 1), (1, 1)), (1.5, 1), ((1, 1),)])
def test_padding_that_is_no_pairs_is_refused(padding: Any) -> None:
    with pytest.raises(ShapeError, match="pad"):
        Tensor([[1.0, 2.0]]).pad(padding)


@verifies("tensor.arguments.refused+2")
def test_arguments_near_the_impossible_work() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert Tensor(x).roll((1, 1), 1).numpy().tolist() == np.roll(x, (1, 1), 1).tolist()
    assert Tensor(x).norm(0).item() == 5
    assert Tensor(x).repeat(0, 2).shape == (0, 6)
    values, _ = Tensor(x).topk(Variable("k", 1, 3).bind(2))  # type: ignore[arg-type]
    assert values.tolist() == [[2, 1], [5, 4]]


@verifies("tensor.einsum.diagonal")
@pytest.mark.parametrize("formula", ["ii", "ii->i", "iij->ij", "iij,jk->ki", "iii", "iji->j",
                                     "ii,ii", "...ii->...i"])
def test_letters_that_stand_several_times(formula: str) -> None:
    ranks = [len(part.replace("...", "j")) for part in formula.partition("->")[0].split(",")]
    given = [np.arange(3.0 ** rank, dtype=np.float32).reshape((3,) * rank) for rank in ranks]
    found = Tensor.einsum(formula, *map(Tensor, given))
    assert found.tolist() == np.einsum(formula, *given).tolist()


@verifies("tensor.searchsorted.halved+2")
@pytest.mark.parametrize("length", [64, 65, 127, 128, 1000])
def test_places_in_long_sorted_rows(length: int) -> None:
    """Of equal numbers, infinities and NaN; in one row, and in a row for each row of values."""
    rng = np.random.default_rng(length)
    edges = np.sort(rng.integers(0, length // 2, length)).astype(np.float32)
    edges[0], edges[-2:] = -np.inf, np.nan
    values = rng.integers(-2, length // 2 + 2, 50).astype(np.float32)
    values[:3] = np.nan, np.inf, -np.inf
    rows = np.stack([edges, np.arange(length, dtype=np.float32)])
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    for side in sides:
        found = Tensor(edges).searchsorted(Tensor(values), side=side)
        assert found.dtype is dtypes.int32
        assert found.tolist() == np.searchsorted(edges, values, side).tolist()
        several = Tensor(rows).searchsorted(Tensor(np.stack([values, values / 2])), side=side)
        assert several.tolist() == [np.searchsorted(row, each, side).tolist()
                                    for row, each in ((rows[0], values), (rows[1], values / 2))]
    shared = Tensor(rows).searchsorted(Tensor(values))  # the same values for each row
    assert shared.tolist() == [np.searchsorted(row, values).tolist() for row in rows]
    work = sum(estimate(item.ast).operations for item in Tensor(edges).searchsorted(
        Tensor(values)).schedule())
    assert length < 1000 or work < 50 * length


@verifies("tensor.einsum.pairs")
def test_axes_that_nobody_needs_are_added_up_at_once() -> None:
    rng = np.random.default_rng(0)
    sizes = dict(zip("abcdef", (3, 4, 5, 6, 2, 7), strict=True))
    for formula, most in (("ab,bc,cd->ad", 150), ("ab,cd->a", 45), ("ab,ac,ad->a", 51),
                          ("ab,bc,ca->", 75), ("ba,cb,dc,ed->ea", 186), ("a,b,c->cab", 72),
                          ("abc,cd,be->ade", 504), ("ab,ab,ab->ba", 24), ("abcdef->ebd", 5040)):
        parts = formula.partition("->")[0].split(",")
        given = [rng.integers(-4, 5, [sizes[each] for each in part]).astype(np.float32)
                 for part in parts]
        found = Tensor.einsum(formula, *map(Tensor, given))
        work = sum(estimate(item.ast).operations for item in found.schedule())
        np.testing.assert_array_equal(found.numpy(), np.einsum(formula, *given), formula)
        assert work <= 2 * most, (formula, work)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = Tensor.einsum(Tensor(x), [0, 1], Tensor(x), [2, 1], [0, 2])
    assert found.tolist() == Tensor.einsum(Tensor(x), [0, ...], Tensor(x), [2, ...],
                                           [0, 2]).tolist() == (x @ x.T).tolist()
    for axes in (3, [99], ["i"]):
        with pytest.raises(ArgumentError, match="einsum"):
            Tensor.einsum(Tensor(x), axes)
    one = Tensor.einsum("ij,jk,jl->ikl", Tensor(x), Tensor(x[:1].T), Tensor(x[:, :1].T))
    assert one.shape == (2, 1, 2)


@verifies("tensor.arguments.refused+2")
def test_axes_that_are_no_pair() -> None:
    x = Tensor(np.zeros((2, 3, 4), np.float32))
    for dim1, dim2 in ((1, -2), (3, 0)):
        with pytest.raises(AxisError):
            x.diagonal(0, dim1, dim2)
    for source, destination in (((0, 1), 0), ((0, 0), (0, 1))):
        with pytest.raises(AxisError):
            x.movedim(source, destination)
    with pytest.raises(ShapeError, match="'i' is 3 and 4"):
        Tensor.einsum("jii", x)


@verifies("tensor.axis.name")
def test_an_axis_may_be_called_dim() -> None:
    """Every method that takes one, found by its signature."""
    x = Tensor(np.arange(1, 7, dtype=np.float32).reshape(2, 3))
    required = {"norm": (2,), "quantile": (0.5,), "nanquantile": (0.5,)}
    tried = []
    for name, method in inspect.getmembers(Tensor, inspect.isfunction):
        if name.startswith("_") or "axis" not in inspect.signature(method).parameters \
                or name in ("shard", "shard_"):  # of which other tests ask
            continue
        ours, theirs = (getattr(x, name)(*required.get(name, ()), **{word: 1})
                        for word in ("axis", "dim"))
        for one, other in zip(*(each if isinstance(each, tuple) else (each,)
                                for each in (ours, theirs)), strict=True):
            assert Tensor(one).tolist() == Tensor(other).tolist(), name
        tried.append(name)
    assert {"sum", "cumsum", "cummax", "softmax", "argmax", "norm", "var_mean"} <= set(tried)


CLASSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda x, t: x.cross_entropy(t, "none"),
    "nll_loss": lambda x, t: x.log_softmax(1).nll_loss(t, "none"),
    "sparse_categorical_crossentropy": lambda x, t: x.sparse_categorical_crossentropy(
        t, ignore_index=-100, reduction="none")}


@verifies("tensor.loss.value")
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_a_loss_at_no_class_is_nan(name: str, dtype: str) -> None:
    x = Tensor(np.array([[1, 2], [3, 4], [5, 1]], np.float32))
    assert not np.isnan(CLASSES[name](x, Tensor([0, 1, 1], dtype=dtype)).numpy()).any()
    for wrong in (2, 100) if dtype == "uint8" else (2, 100, -1, -128):
        found = CLASSES[name](x, Tensor([0, wrong, 1], dtype=dtype)).numpy()
        assert np.isnan(found).tolist() == [False, True, False], (wrong, found)


@verifies("tensor.loss.value")
def test_a_class_that_is_ignored_may_be_none() -> None:
    x = Tensor(np.array([[1, 2], [3, 4]], np.float32))
    found = x.cross_entropy(Tensor([-100, 1]), ignore_index=-100)
    assert found.item() == x.cross_entropy(Tensor([0, 1]), "none").tolist()[1]
    many = Tensor(np.ones((2, 300), np.float32))
    assert many.cross_entropy(Tensor([3, 255], dtype="uint8")).item() > 0


@verifies("tensor.loss.value")
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("dtype", "wrong"), [
    ("uint32", 2**31), ("int64", 2**32 + 1), ("int64", -2**32), ("uint64", 2**63 + 1)])
def test_no_class_is_a_class_in_fewer_bits(name: str, dtype: str, wrong: int) -> None:
    x = Tensor(np.array([[1, 2], [3, 4]], np.float32))
    found = CLASSES[name](x, Tensor(np.array([0, wrong], dtype))).numpy()
    assert np.isnan(found).tolist() == [False, True], found


@verifies("tensor.one-hot.wide")
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint32", "int64", "uint64"])
def test_one_hot_has_a_single_one(dtype: str) -> None:
    made = Tensor([0, 5], dtype=dtype).one_hot(300).numpy()
    assert np.argwhere(made).tolist() == [[0, 0], [1, 5]]


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
def test_padding_of_more_than_half_a_window_is_refused(pool: str) -> None:
    for padding in (2, 3):
        with pytest.raises(ShapeError):
            getattr(IMAGE, pool)(2, padding=padding)
    assert getattr(IMAGE, pool)(2, padding=1).shape == (1, 1, 4, 4)
    with pytest.raises(ShapeError):  # the window reaches over three places
        getattr(IMAGE, pool)(2, dilation=2, padding=2)
    assert getattr(IMAGE, pool)(2, dilation=2, padding=1).shape == (1, 1, 3, 3)


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("index", [
    [True, False], np.array([True] * 4), (slice(None), np.array([True, False])),
    (..., np.array([True, False])), np.ones((3, 2), bool), (None, [True, False])], ids=repr)
def test_a_mask_of_another_shape_is_refused(index: Any) -> None:
    x = Tensor(np.zeros((3, 3), np.float32))
    with pytest.raises(AxisError):
        x[index]
    with pytest.raises(AxisError):
        x[index] = 1
    assert x[..., [True, False, True]].shape == (3, 2)
    assert x[np.eye(3, dtype=bool)].shape == (3,)


@verifies("tensor.index.elements")
@pytest.mark.parametrize("index", [
    True, False, (0, True), (True, [0, 1]), (..., True), (..., False, [1]), (None, True, 0),
    (slice(None), True, [0, 2]), np.bool_(True), (np.array(True), 1), (False, True),
    (True, slice(None), [True, False, True]), ([0, 1], True, [1, 2]), (..., [True] * 4, True),
    (0, True, slice(None), [1, 2])], ids=repr)
def test_a_mask_without_axes_takes_all_or_nothing(index: Any) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    with Context(DEVICE="REFERENCE"):
        x = Tensor(array)
        assert x[index].shape == array[index].shape
        assert np.array_equal(x[index].numpy(), array[index])
        x[index], array[index] = 7, 7
        assert np.array_equal(x.numpy(), array)
        assert x[Tensor(3) > 2].shape == (1, 2, 3, 4)


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("method", ["cumsum", "cumprod", "cummax", "softmax", "log_softmax"])
def test_an_axis_that_is_not_there_is_refused(method: str) -> None:
    for x, axis in ((Tensor(3.0), 3), (NONE, 9)):
        with pytest.raises(AxisError):
            getattr(x, method)(axis)
        assert getattr(x, method)(-1).shape == x.shape


@verifies("gradient.empty.reached")
@pytest.mark.parametrize("name", ["double", "cumsum", "cumprod", "sort", "softmax", "prod", "mean"])
def test_the_gradient_of_no_elements_is_empty(name: str) -> None:
    made: Any = {"double": lambda x: x * 2, "sort": lambda x: x.sort()[0]}
    for shape in ((0, 3), (3, 0)):
        x = Tensor(np.zeros(shape, np.float32), requires_grad=True)
        made.get(name, lambda x: getattr(x, name)())(x).sum().backward()
        assert x.grad is not None and x.grad.numpy().shape == shape


@verifies("gradient.empty.reached")
def test_the_gradient_through_no_rows_is_zero() -> None:
    weight = Tensor(np.ones((3, 4), np.float32), requires_grad=True)
    loss = (NONE @ weight).sum()
    loss.backward()
    assert loss.item() == 0 and weight.grad is not None
    assert weight.grad.numpy().tolist() == np.zeros((3, 4)).tolist()


@verifies("effects.view-write.copies+3")
@pytest.mark.parametrize("name", ["pad", "unfold", "index"])
def test_a_write_to_a_copy_stays_there(name: str) -> None:
    made: Any = {"pad": lambda x: x.pad(((1, 1), (0, 0))), "unfold": lambda x: x.unfold(0, 2),
                 "index": lambda x: x[[0, 2]]}
    x = Tensor(np.arange(9, dtype=np.float32).reshape(3, 3))
    taken = made[name](x)
    taken[...] = 7
    assert (taken.numpy() == 7).all() and x.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@verifies("effects.view-write.region")
@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_a_write_through_a_diagonal_reaches_the_matrix(offset: int) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = Tensor(array)
    x.diagonal(offset, 1, 2).mul_(-10)
    rows = np.arange(3)[max(-offset, 0):min(3, 4 - offset)]
    array[:, rows, rows + offset] *= -10
    assert x.tolist() == array.tolist()


@verifies("effects.view-write.copies+3")
@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("call", [
    "+x", "x.round()", "x.floor()", "x.ceil()", "x.trunc()", "x.clip()", "x.clamp()", "x.roll(0)",
    "x.roll(0, 0)", "x.roll(0, (0, 1))", "x.dropout(0.5)", "x.dropout(0, training=True)"])
def test_a_method_with_nothing_to_do_gives_another_tensor(call: str, realized: bool) -> None:
    x = Tensor([[1, 2], [3, 4]])
    result = eval(call, {"x": x.realize() if realized else x})
    result += 10
    assert (x.tolist(), result.tolist()) == ([[1, 2], [3, 4]], [[11, 12], [13, 14]])


@verifies("gradient.realized.keeps+2")
@pytest.mark.parametrize("call", ["+x", "x.clip()", "x.roll(0, 0)", "x.dropout(0.5)"])
def test_a_gradient_goes_through_a_method_with_nothing_to_do(call: str) -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    result = eval(call, {"x": (weight * 3).realize()})
    (result * result).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [18.0, 36.0]


@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("operator", [
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^"])
def test_a_list_is_no_operand(operator: str) -> None:
    for text in (f"x {operator} [1, 2]", f"(1, 2) {operator} x"):
        with pytest.raises(ArgumentError, match="no tensor; .* Remedy: make it one: Tensor") as it:
            eval(text, {"x": Tensor(2)})
        assert "eval" not in it.value.operation and ("[1, 2]" in str(it.value)
                                                     or "(1, 2)" in str(it.value))


@verifies("tensor.inplace.form")
def test_a_tensor_alone_takes_another_form() -> None:
    x = Tensor([0, 1, 2, 3, 4, 5])
    same = x
    assert x.unsqueeze_(0) is same and x.shape == (1, 6)
    assert x.squeeze_().resize_(2, 3).t_().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.transpose_(0, 1).swapaxes_(0, 1).swapdims_(0, 1).tolist() == [[0, 1, 2], [3, 4, 5]]
    before = x * 1
    x[0] = 7
    x += 1
    assert x.tolist() == [[8, 8, 8], [4, 5, 6]] and before.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.resize_(2, 2).tolist() == [[8, 8], [8, 4]]
    assert x.resize_as_(Tensor.zeros(5)).tolist() == [8, 8, 8, 4, 0]
    view = x[1:]
    for tied in (x, view, Tensor([1.0], requires_grad=True)):
        with pytest.raises(ArgumentError, match="unsqueeze_: .*another form"):
            tied.unsqueeze_(0)
    view[0] = 1
    assert x.tolist() == [8, 1, 8, 4, 0]


@verifies("tensor.inplace.form")
def test_a_replay_gives_no_shapes() -> None:
    turn = TinyJit(lambda x: x.t_() * 2)
    with pytest.raises(ReplayError, match="calls t_"):
        for _ in range(3):
            turn(Tensor([[1.0, 2.0]]).realize())
