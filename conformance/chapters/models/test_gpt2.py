"""GPT-2 against the same network in torch, its checkpoints, and what it writes."""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from impl import Context, Tensor, nn
from impl.errors import ArgumentError, ShapeError
from impl.models import gpt2

SIZES = gpt2.GPT2Config(vocab_size=19, n_positions=12, n_embd=16, n_layer=2, n_head=4)
TOKENS = np.random.default_rng(1).integers(0, 19, (2, 7)).astype(np.int32)


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def arrays() -> dict[str, np.ndarray]:
    """Weights by the names of the checkpoints, drawn so that each of them matters, and places
    more than tokens: else one token would follow itself for ever.
    """
    random = np.random.default_rng(0)
    shapes = {"wte.weight": (19, 16), "wpe.weight": (12, 16), "ln_f.weight": (16,),
              "ln_f.bias": (16,)}
    for place in range(2):
        for name, shape in {"ln_1.weight": (16,), "ln_1.bias": (16,), "ln_2.weight": (16,),
                            "ln_2.bias": (16,), "attn.c_attn.weight": (16, 48),
                            "attn.c_attn.bias": (48,), "attn.c_proj.weight": (16, 16),
                            "attn.c_proj.bias": (16,), "mlp.c_fc.weight": (16, 64),
                            "mlp.c_fc.bias": (64,), "mlp.c_proj.weight": (64, 16),
                            "mlp.c_proj.bias": (16,)}.items():
            shapes[f"h.{place}.{name}"] = shape
    return {name: random.standard_normal(shape).astype(np.float32)
            * (2.0 if name == "wpe.weight" else 0.4)
            for name, shape in shapes.items()}


def model(layers: int = 2, **others: np.ndarray) -> gpt2.GPT2:
    made = gpt2.GPT2(dataclasses.replace(SIZES, n_layer=layers))
    weights = arrays() | others
    made.load_state_dict({name: weights[name] for name in made.state_dict()})
    return made


def writing(layers: int = 2) -> gpt2.GPT2:
    """One whose last norm is plain: with a bias there, it would say one word for ever."""
    return model(layers, **{"ln_f.weight": np.ones(16, np.float32),
                            "ln_f.bias": np.zeros(16, np.float32)})


def in_torch(weights: dict[str, Any], tokens: Any) -> Any:
    """The network in torch's words, written from the paper."""
    torch: Any = pytest.importorskip("torch")
    F = torch.nn.functional
    batch, length = tokens.shape

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (16,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    def projected(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:length]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    for block in ("h.0", "h.1"):
        query, key, value = (each.view(batch, length, 4, 4).transpose(1, 2) for each in projected(
            norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn").split(16, 2))
        scores = (query @ key.transpose(2, 3) / 2).masked_fill(later, -torch.inf).softmax(-1)
        x = x + projected((scores @ value).transpose(1, 2).reshape(batch, length, 16),
                          f"{block}.attn.c_proj")
        x = x + projected(F.gelu(projected(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"),
                                 approximate="tanh"), f"{block}.mlp.c_proj")
    return norm(x, "ln_f") @ weights["wte.weight"].T


def test_values_and_gradients_are_those_of_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    weights = {name: torch.tensor(array, requires_grad=True) for name, array in arrays().items()}
    given = torch.from_numpy(TOKENS).long()
    scores = in_torch(weights, given)
    wanted = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), given[:, 1:].flatten())
    wanted.backward()
    ours = model()
    assert np.abs(ours(Tensor(TOKENS)).numpy() - scores.detach().numpy()).max() < 1e-4
    loss = ours.loss(Tensor(TOKENS))
    loss.backward()
    Tensor.realize(loss, *(one.grad for one in ours.parameters() if one.grad is not None))
    assert abs(loss.item() - wanted.item()) < 1e-4
    state = ours.state_dict()
    assert state.keys() == weights.keys()
    for name, tensor in state.items():
        assert tensor.grad is not None
        assert np.abs(tensor.grad.numpy() - weights[name].grad.numpy()).max() < 1e-4, name


def test_what_is_written_with_a_cache_is_what_is_written_without() -> None:
    ours = writing()
    writer = gpt2.Writer(ours)
    for prompt in ([3, 1, 4], [1, 5], [9]):
        found = list(writer.write(prompt, 11 - len(prompt)))
        text = prompt + found
        # A place sees none behind it: one pass tells what follows each of them.
        follow = ours(Tensor([text]))[0].argmax(-1).tolist()
        assert found == follow[len(prompt) - 1:-1] and len(text) == 11
        assert len(set(found)) > 2
    assert writer.step.replays > 15 and len(writer.step.entries) == 1
    assert len(list(writer.write([1, 2, 3], 100))) == 10  # the last one needs no place
    assert ours.generate([3, 1, 4], 2) == list(writer.write([3, 1, 4], 2))


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_public_checkpoints_are_loaded(prefix: str, tmp_path: Path) -> None:
    tensors = {prefix + name: Tensor(array) for name, array in arrays().items()}
    tensors[f"{prefix}h.0.attn.bias"] = Tensor.ones(1, 1, 12, 12)
    if prefix:
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    nn.state.safe_save(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"n_head": 4, "model_type": "gpt2"}))
    loaded = gpt2.load(tmp_path)
    assert loaded.config == SIZES
    found = loaded(Tensor(TOKENS)).numpy()
    assert np.allclose(found, model()(Tensor(TOKENS)).numpy(), atol=1e-6)
    (tmp_path / "config.json").unlink()
    assert gpt2.load(tmp_path / "model.safetensors").config.n_head == 1  # of the usual width, 64


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="16 is not divided by 3 heads"):
        gpt2.GPT2Config(n_embd=16, n_head=3)
    ours = model()
    with pytest.raises(ShapeError, match="13 tokens are more than its 12 places"):
        ours(Tensor.zeros(1, 13, dtype="int32"))
    for prompt, told in (([], "a prompt of 0 tokens"), ([1] * 13, "of 13 tokens for 12 places"),
                         ([19], "19 is no token of 19")):
        with pytest.raises(ArgumentError, match=told):
            ours.generate(prompt, 1)
    nn.state.safe_save({"weight": Tensor([1.0])}, tmp_path / "other.safetensors")
    with pytest.raises(ArgumentError, match="has no tensors of GPT-2"):
        gpt2.load(tmp_path / "other.safetensors")
