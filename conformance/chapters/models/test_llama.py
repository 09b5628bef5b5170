"""Llama against the same network in torch, its checkpoints, and what it writes."""
from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.nn import test_gguf
from impl import Context, Tensor, nn
from impl.errors import ArgumentError, ShapeError
from impl.models import llama

SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8}
SIZES = llama.LlamaConfig(vocab_size=19, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=12,
                     rope_theta=100.0)
TOKENS = np.random.default_rng(1).integers(0, 19, (2, 6)).astype(np.int32)


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def arrays() -> dict[str, np.ndarray]:
    """Weights by the names of the checkpoints, drawn so that each of them matters."""
    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens": (19, 16), "model.norm": (16,), "lm_head": (19, 16)}
    for place in range(2):
        for name, shape in {
                "input_layernorm": (16,), "post_attention_layernorm": (16,),
                "self_attn.q_proj": (16, 16), "self_attn.k_proj": (8, 16),
                "self_attn.v_proj": (8, 16), "self_attn.o_proj": (16, 16),
                "mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16),
                "mlp.down_proj": (16, 24)}.items():
            shapes[f"model.layers.{place}.{name}"] = shape
    return {f"{name}.weight": random.standard_normal(shape).astype(np.float32) * 0.5
            for name, shape in shapes.items()}


def model(config: llama.LlamaConfig = SIZES) -> llama.Llama:
    made = llama.Llama(config)
    made.load_state_dict(arrays())
    return made


def speeds_in_words(scaling: dict[str, Any] | None) -> list[float]:
    """How far each pair is turned from place to place, by the definition of Llama 3.1."""
    found = []
    for pair in range(2):
        speed = 100.0 ** (-2 * pair / 4)
        if scaling is not None:
            length, whole = 2 * np.pi / speed, scaling["original_max_position_embeddings"]
            if length > whole / scaling["low_freq_factor"]:
                speed /= scaling["factor"]
            elif length > whole / scaling["high_freq_factor"]:
                smooth = (whole / length - 1) / 3
                speed = (1 - smooth) * speed / scaling["factor"] + smooth * speed
        found.append(speed)
    return found


def in_torch(weights: dict[str, Any], tokens: Any, scaling: dict[str, Any] | None) -> Any:
    """The network in torch's words: pairs are complex numbers, each key is written out."""
    torch: Any = pytest.importorskip("torch")
    batch, length = tokens.shape

    def norm(x: Any, name: str) -> Any:
        root = (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return x / root * weights[f"{name}.weight"]

    def turned(x: Any) -> Any:
        angles = torch.arange(length)[:, None] * torch.tensor(speeds_in_words(scaling))
        whole = torch.complex(x[..., :2], x[..., 2:]) * torch.exp(1j * angles)
        return torch.cat([whole.real, whole.imag], -1).float()

    x = weights["model.embed_tokens.weight"][tokens]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    for place in range(2):
        def part(name: str, x: Any, place: int = place) -> Any:
            return x @ weights[f"model.layers.{place}.{name}.weight"].T
        inside = norm(x, f"model.layers.{place}.input_layernorm")
        query, key, value = (part(f"self_attn.{name}_proj", inside).view(
            batch, length, -1, 4).transpose(1, 2) for name in "qkv")
        heads = []
        for head in range(4):
            scores = turned(query[:, head]) @ turned(key[:, head // 2]).transpose(1, 2) / 2
            heads.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ value[:, head // 2])
        x = x + part("self_attn.o_proj", torch.cat(heads, -1))
        inside = norm(x, f"model.layers.{place}.post_attention_layernorm")
        gate = part("mlp.gate_proj", inside)
        x = x + part("mlp.down_proj", gate * gate.sigmoid() * part("mlp.up_proj", inside))
    return norm(x, "model.norm") @ weights["lm_head.weight"].T


@pytest.mark.parametrize("scaling", [None, SCALING])
def test_values_and_gradients_are_those_of_torch(scaling: dict[str, Any] | None) -> None:
    torch: Any = pytest.importorskip("torch")
    weights = {name: torch.tensor(array, requires_grad=True) for name, array in arrays().items()}
    given = torch.from_numpy(TOKENS).long()
    scores = in_torch(weights, given, scaling)
    ours = model(dataclasses.replace(SIZES, rope_scaling=scaling))
    assert np.abs(ours(Tensor(TOKENS)).numpy() - scores.detach().numpy()).max() < 1e-4
    if scaling is not None:
        return
    wanted = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), given[:, 1:].flatten())
    wanted.backward()
    loss = ours.loss(Tensor(TOKENS))
    loss.backward()
    state = ours.state_dict()
    Tensor.realize(loss, *(one.grad for one in state.values() if one.grad is not None))
    assert abs(loss.item() - wanted.item()) < 1e-4
    assert state.keys() == weights.keys()
    for name, tensor in state.items():
        assert tensor.grad is not None
        assert np.abs(tensor.grad.numpy() - weights[name].grad.numpy()).max() < 1e-4, name


def test_what_is_written_with_a_cache_is_what_is_written_without() -> None:
    ours = model()
    writer = llama.Writer(ours)
    found = list(writer.write([3, 1, 4], 7))
    # A place sees none behind it: one pass tells what follows each of them.
    follow = ours(Tensor([[3, 1, 4, *found]]))[0].argmax(-1).tolist()
    assert found == follow[2:-1] and len(found) == 7
    assert len(set(found)) > 2 and writer.step.replays > 0


def _check(loaded: llama.Llama, config: llama.LlamaConfig = SIZES) -> None:
    assert loaded.config == config
    found = loaded(Tensor(TOKENS)).numpy()
    assert np.allclose(found, model()(Tensor(TOKENS)).numpy(), atol=1e-5)


def test_folders_of_checkpoints_are_loaded(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has no config.json"):
        llama.load(tmp_path)
    said = {name: value for name, value in dataclasses.asdict(SIZES).items()}
    (tmp_path / "config.json").write_text(json.dumps(said | {"model_type": "llama", "other": 1}))
    tensors = {name: Tensor(array) for name, array in arrays().items()}
    nn.state.safe_save(tensors, tmp_path / "model.safetensors")
    _check(llama.load(tmp_path))
    assert llama.load(tmp_path, places=5).config.max_position_embeddings == 5
    (tmp_path / "model.safetensors").unlink()
    where = {}
    for number, name in enumerate(sorted(tensors)):  # in two files
        where[name] = f"part-{number % 2}.safetensors"
    for file in set(where.values()):
        nn.state.safe_save({name: one for name, one in tensors.items() if where[name] == file},
                           tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    _check(llama.load(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral"}))
    with pytest.raises(ArgumentError, match="it is a 'mistral'"):
        llama.load(tmp_path)


def test_files_of_gguf_are_loaded(tmp_path: Path) -> None:
    names = {own: theirs for theirs, own in llama._NAMES.items()}
    tensors = {}
    for name, array in arrays().items():
        found = name.removesuffix(".weight").removeprefix("model.layers.")
        block, _, inner = found.partition(".")
        theirs = f"blk.{block}.{names[inner]}" if block.isdigit() else names[found]
        if theirs.endswith(("attn_q", "attn_k")):  # halves side by side
            heads = 4 if theirs.endswith("q") else 2
            array = array.reshape(heads, 2, -1, 16).swapaxes(1, 2).reshape(array.shape)
        tensors[f"{theirs}.weight"] = (0, array.shape, array.tobytes())

    def written(tensors: dict[str, Any], kind: str = "llama") -> Path:
        said = [test_gguf.text("general.architecture") + struct.pack("<I", 8)
                + test_gguf.text(kind)]
        for name, own in llama._SIZES.items():
            value = getattr(SIZES, own)
            said.append(test_gguf.text(f"llama.{name}") + (
                struct.pack("<If", 6, value) if isinstance(value, float)
                else struct.pack("<II", 4, value)))
        return test_gguf.written(tmp_path / "model.gguf", tensors, b"".join(said), len(said))

    loaded = llama.load(written(tensors))
    assert abs(loaded.config.rms_norm_eps - 1e-5) < 1e-9  # it is a float32 there
    _check(loaded, dataclasses.replace(SIZES, rms_norm_eps=loaded.config.rms_norm_eps))
    with pytest.raises(ArgumentError, match="is a 'bert'"):
        llama.load(written(tensors, "bert"))
    tensors["blk.0.other.weight"] = tensors["output_norm.weight"]
    with pytest.raises(ArgumentError, match="'blk.0.other.weight', which is not known"):
        llama.load(written(tensors))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="3 heads of keys do not divide 4 heads"):
        dataclasses.replace(SIZES, num_key_value_heads=3)
    with pytest.raises(ArgumentError, match="turns are scaled by 'yarn'"):
        llama.rotary_tables(dataclasses.replace(SIZES, rope_scaling={"type": "yarn"}))
    with pytest.raises(ShapeError, match="Llama: 13 tokens are more than its 12 places"):
        model()(Tensor.zeros(1, 13, dtype="int32"))
