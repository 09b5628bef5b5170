"""All tensors of a model at once: as a vector, as a stack of models; sequences side by side."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import impl.torch as torch
from impl import Tensor, func, nn
from impl.errors import ArgumentError, NameMissingError, ShapeError
from impl.settings import Context

random = np.random.default_rng(11)
X = random.standard_normal((4, 3)).astype("f")


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


class Tied(nn.Module):
    """A layer whose weight has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 2)])
        self.weight = self.layers[0].weight

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers[0](x) + self.weight.sum()
        return result


def test_what_is_tied_has_its_first_name() -> None:
    embed, head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
    head.weight, model = embed.weight, nn.ModuleDict({"embed": embed, "head": head})
    assert [name for name, _ in model.named_parameters()] == ["embed.weight"]
    assert sorted(model.state_dict()) == ["embed.weight", "head.weight"]


def test_a_model_is_called_with_other_tensors() -> None:
    model = Tied()
    own, weight, bias = model.weight, np.ones((2, 3), "f"), np.array([1, 2], "f")
    given = {"weight": Tensor(weight), "layers.0.bias": Tensor(bias)}
    wanted = X @ weight.T + bias + weight.sum()
    found = nn.state.functional_call(model, given, Tensor(X))
    assert np.allclose(found.numpy(), wanted, atol=1e-5)
    halves = [{"weight": given["weight"]}, {"layers.0.bias": given["layers.0.bias"]}]
    found = nn.state.functional_call(model, halves, (Tensor(X),))
    assert np.allclose(found.numpy(), wanted, atol=1e-5)
    assert model.weight is own and model.layers[0].weight is own
    with pytest.raises(ShapeError, match="the model has no nothing"):
        nn.state.functional_call(model, {"nothing": Tensor(weight)}, Tensor(X))


def test_its_tensors_are_back_after_an_error() -> None:
    model = Tied()
    own = model.weight
    with pytest.raises(ShapeError):
        nn.state.functional_call(model, {"weight": Tensor.ones(2, 3)}, Tensor.ones(4, 5))
    assert model.weight is own and model.layers[0].weight is own


def test_gradients_are_taken_of_what_was_given() -> None:
    model = Tied()
    given = {"weight": Tensor(np.ones((2, 3), "f")), "layers.0.bias": Tensor(np.zeros(2, "f"))}
    slopes = func.grad(lambda p: nn.state.functional_call(model, p, Tensor(X)).sum())(given)
    assert np.allclose(slopes["weight"].numpy(), X.sum(0) + 8 * np.ones((2, 3)), atol=1e-5)
    assert np.allclose(slopes["layers.0.bias"].numpy(), [4, 4])


def test_models_are_run_as_one_stack() -> None:
    models = [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval() for _ in range(3)]
    parameters, buffers = nn.state.stack_module_state(models)
    assert parameters["0.weight"].shape == (3, 2, 3) and parameters["0.weight"].requires_grad
    assert sorted(buffers) == ["1.running_mean", "1.running_var"] or \
        sorted(buffers) == ["1.num_batches_tracked", "1.running_mean", "1.running_var"]
    call = func.vmap(lambda p, b, x: nn.state.functional_call(models[0], (p, b), (x,)),
                     in_axes=(0, 0, None))
    found = call(parameters, buffers, Tensor(X)).numpy()
    for row, model in zip(found, models, strict=True):
        assert np.allclose(row, model(Tensor(X)).numpy(), atol=1e-5)
    with pytest.raises(ArgumentError, match="not the same tensors"):
        nn.state.stack_module_state([models[0], nn.Linear(3, 2)])


def test_parameters_are_one_vector() -> None:
    model = nn.Linear(3, 2)
    saved = [each.numpy() for each in model.parameters()]
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert np.array_equal(vector.numpy(), np.concatenate([each.ravel() for each in saved]))
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    for each, before in zip(model.parameters(), saved, strict=True):
        assert np.array_equal(each.numpy(), before * 2) and each.requires_grad
    with pytest.raises(ShapeError, match="for 8 elements"):
        nn.utils.vector_to_parameters(Tensor.ones(7), model.parameters())
    with pytest.raises(ArgumentError, match="no parameter"):
        nn.utils.parameters_to_vector([])


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_sequences_side_by_side(first: bool, side: str) -> None:
    rows = [random.standard_normal((size, 2)).astype("f") for size in (3, 1, 4)]
    padded = nn.utils.rnn.pad_sequence([Tensor(each) for each in rows], first, 7.0, side)
    wanted = np.full((3, 4, 2), 7, "f")
    for row, each in zip(wanted, rows, strict=True):
        row[:len(each) if side == "right" else None][-len(each):] = each
    assert np.array_equal(padded.numpy(), wanted if first else wanted.swapaxes(0, 1))
    if side == "right":
        found = nn.utils.rnn.unpad_sequence(padded, Tensor([3, 1, 4]), first)
        assert all(np.array_equal(one.numpy(), each)
                   for one, each in zip(found, rows, strict=True))


def test_what_are_no_sequences_is_said() -> None:
    with pytest.raises(ArgumentError, match="no sequence"):
        nn.utils.rnn.pad_sequence([])
    with pytest.raises(ShapeError, match=r"\(2, 2\), \(2, 3\)"):
        nn.utils.rnn.pad_sequence([Tensor.ones(2, 2), Tensor.ones(2, 3)])
    with pytest.raises(ArgumentError, match="middle"):
        nn.utils.rnn.pad_sequence([Tensor.ones(2)], padding_side="middle")
    with pytest.raises(NameMissingError, match="mask"):
        _ = nn.utils.prune
    assert torch.func.functional_call is nn.state.functional_call
    assert torch.func.grad is func.grad


def test_an_element_is_looked_for() -> None:
    x = Tensor([[1.0, 2], [3, 4]])
    assert 4 in x and 5 not in x and Tensor(3.0) in x


ROWS = random.standard_normal((10, 3)).astype("f")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -8])
def test_bags_are_rows_or_parts_of_a_vector(mode: str, padding: int | None) -> None:
    def combined(bags: list[list[int]]) -> np.ndarray:
        kept = [[each for each in bag if padding is None or each != padding % 10] for bag in bags]
        return np.array([getattr(ROWS[bag], mode)(0) if bag else np.zeros(3) for bag in kept])

    rows, flat = [[1, 2, 4], [2, 2, 2], [9, 0, 9]], [4, 2, 7, 7, 2, 1, 3]
    parts = [flat[:2], [], flat[2:5], flat[5:]]
    for given, offsets, last, bags in (
            (rows, None, False, rows), (flat, [0, 2, 2, 5], False, parts),
            (flat, [0, 2, 2, 5, 7], True, parts)):
        found = nn.functional.embedding_bag(
            Tensor(given), Tensor(ROWS), None if offsets is None else Tensor(offsets), mode=mode,
            include_last_offset=last, padding_idx=padding)
        assert np.allclose(found.numpy(), combined(bags), atol=1e-6)


def test_rows_of_bags_have_weights_and_gradients() -> None:
    layer = nn.EmbeddingBag(10, 3, mode="sum", padding_idx=1)
    weights = Tensor([0.5, 2.0, -1.0], requires_grad=True)
    found = layer(Tensor([4, 1, 4]), Tensor([0, 1]), weights)
    row = layer.weight[4].numpy()
    assert np.allclose(found.numpy(), [row * 0.5, -row], atol=1e-6)
    found.sum().backward()
    assert weights.grad is not None and layer.weight.grad is not None
    assert np.allclose(weights.grad.numpy(), [row.sum(), 0, row.sum()], atol=1e-5)
    wanted = np.zeros((10, 3))
    wanted[4] = -0.5
    assert np.allclose(layer.weight.grad.numpy(), wanted)
    with pytest.raises(ShapeError, match="mode 'mean', no offsets"):
        Tensor([1]).embedding_bag(layer.weight)
    with pytest.raises(ArgumentError, match="scale_grad_by_freq"):
        nn.EmbeddingBag(3, 2, scale_grad_by_freq=True)


class Ordered(nn.Module):
    """A layer first, then tensors of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.own = nn.Parameter(Tensor.zeros(2, 2))
        self.fixed = nn.Buffer(Tensor.ones(1))
        self.register_buffer("named", Tensor.ones(1))


def test_tensors_of_a_layer_come_before_the_layers_in_it() -> None:
    """PyTorch's order: what an optimiser saved there has its numbers."""
    model = Ordered()
    assert [name for name, _ in model.named_parameters()] == ["own", "first.weight"]
    assert sorted(name for name, _ in model.named_buffers()) == ["fixed", "named"]
    assert list(model.state_dict())[-1] == "first.weight" and len(model.state_dict()) == 4
