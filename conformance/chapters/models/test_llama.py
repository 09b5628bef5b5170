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


def in_gguf() -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """The weights by the names of GGUF; queries and keys have their pairs side by side."""
    names = {own: theirs for theirs, own in llama._NAMES.items()}
    tensors: dict[str, tuple[int, tuple[int, ...], bytes]] = {}
    for name, array in arrays().items():
        found = name.removesuffix(".weight").removeprefix("model.layers.")
        block, _, inner = found.partition(".")
        theirs = f"blk.{block}.{names[inner]}" if block.isdigit() else names[found]
        if theirs.endswith(("attn_q", "attn_k")):
            heads = 4 if theirs.endswith("q") else 2
            array = array.reshape(heads, 2, -1, 16).swapaxes(1, 2).reshape(array.shape)
        tensors[f"{theirs}.weight"] = (0, array.shape, array.tobytes())
    return tensors


def value(name: str, given: Any) -> bytes:
    """A value of the metadata: a text, a number, or a list of texts or of whole numbers."""
    kinds = {str: 8, bool: 7, int: 5, float: 6}

    def plain(one: Any) -> bytes:
        return test_gguf.text(one) if isinstance(one, str) else struct.pack(
            {bool: "<?", int: "<i", float: "<f"}[type(one)], one)

    if isinstance(given, list):
        return test_gguf.text(name) + struct.pack("<IIQ", 9, kinds[type(given[0])], len(given)) \
            + b"".join(map(plain, given))
    return test_gguf.text(name) + struct.pack("<I", kinds[type(given)]) + plain(given)


def gguf_file(path: Path, tensors: dict[str, Any], **others: Any) -> Path:
    """A file of GGUF with the sizes of `SIZES`; names of other values have two _ for a dot."""
    said = {"general.architecture": "llama"} | {
        f"llama.{name}": getattr(SIZES, own) for name, own in llama._SIZES.items()}
    said |= {name.replace("__", "."): value for name, value in others.items()}
    return test_gguf.written(path, tensors, b"".join(
        value(*each) for each in said.items()), len(said))


def test_files_of_gguf_are_loaded(tmp_path: Path) -> None:
    path, tensors = tmp_path / "model.gguf", in_gguf()
    loaded = llama.load(gguf_file(path, tensors))
    assert abs(loaded.config.rms_norm_eps - 1e-5) < 1e-9  # it is a float32 there
    wanted = dataclasses.replace(SIZES, rms_norm_eps=loaded.config.rms_norm_eps)
    _check(loaded, wanted)
    tensors["rope_freqs.weight"] = (0, (2,), np.array([1.0, 4.0], "<f4").tobytes())
    slower = llama.load(gguf_file(path, tensors))
    cosines, _ = llama.rotary_tables(slower.config)
    assert np.allclose(cosines[5], np.cos([5, 5 / 40, 5, 5 / 40]), atol=1e-6)


def quantised(tied: bool = False) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Tensors of a file whose matrices are Q8_0, and the numbers that they stand for; 32 wide."""
    random = np.random.default_rng(3)
    found: dict[str, Any] = {"output_norm.weight": (0, (32,), np.ones(32, "<f4").tobytes())}
    numbers = {}
    shapes = {"token_embd": (19, 32), "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32),
              "attn_output": (32, 32), "ffn_gate": (64, 32), "ffn_up": (64, 32),
              "ffn_down": (32, 64)} | ({} if tied else {"output": (19, 32)})
    for name, shape in shapes.items():
        whole = random.integers(-127, 128, (*shape[:1], shape[1] // 32, 32)).astype(np.int8)
        scales = np.full((*whole.shape[:2], 1), 2 ** -8, "<f2")
        data = np.concatenate([scales.view(np.uint8), whole.view(np.uint8)], -1)
        full = name if name in ("token_embd", "output") else f"blk.0.{name}"
        found[f"{full}.weight"] = (8, shape, data.tobytes())
        numbers[f"{full}.weight"] = (whole.astype(np.float32) * 2 ** -8).reshape(shape)
    for name in ("attn_norm", "ffn_norm"):
        found[f"blk.0.{name}.weight"] = (0, (32,), np.ones(32, "<f4").tobytes())
    return found, numbers


@pytest.mark.parametrize("tied", [False, True])
def test_matrices_of_a_quantised_file_stay_packed(tmp_path: Path, tied: bool) -> None:
    sizes = {"llama__block_count": 1, "llama__embedding_length": 32,
             "llama__feed_forward_length": 64}
    tensors, numbers = quantised(tied)
    plain = tensors | {name: (0, one.shape, one.tobytes()) for name, one in numbers.items()}
    packed = llama.load(gguf_file(tmp_path / "packed.gguf", tensors, **sizes))
    wide = llama.load(gguf_file(tmp_path / "wide.gguf", plain, **sizes))
    assert np.allclose(packed(Tensor(TOKENS)).numpy(), wide(Tensor(TOKENS)).numpy(), atol=1e-5)
    assert tied or packed.generate([1, 2, 3], 3) == wide.generate([1, 2, 3], 3)
    held = {name: one for name, one in packed.state_dict().items() if one.ndim > 1}
    assert held and all(one.dtype.name == "uint8" for one in held.values())
    assert not any(one.requires_grad for one in held.values())
    tensors["output_norm.weight"] = (0, (32,), np.ones(32, "<f4").tobytes())
    with pytest.raises(ShapeError, match="gate_proj.weight has shape"):
        llama.load(gguf_file(tmp_path / "packed.gguf", tensors,
                             **sizes | {"llama__feed_forward_length": 65}))


@pytest.mark.parametrize(("kind", "dtype"), [(1, "float16"), (30, "bfloat16")])
def test_matrices_of_half_width_stay_so(tmp_path: Path, kind: int, dtype: str) -> None:
    """They take half of the memory, and are computed with as float32."""
    sizes = {"llama__block_count": 1, "llama__embedding_length": 32,
             "llama__feed_forward_length": 64}
    tensors, numbers = quantised()
    halves = {name: (kind, one.shape, (one.astype("<f2") if kind == 1 else
                                       (one.view("<u4") >> 16).astype("<u2")).tobytes())
              for name, one in numbers.items()}
    plain = tensors | {name: (0, one.shape, one.tobytes()) for name, one in numbers.items()}
    half = llama.load(gguf_file(tmp_path / "half.gguf", tensors | halves, **sizes))
    wide = llama.load(gguf_file(tmp_path / "wide.gguf", plain, **sizes))
    found = half(Tensor(TOKENS))
    assert found.dtype.name == "float32"
    assert np.allclose(found.numpy(), wide(Tensor(TOKENS)).numpy(), atol=1e-5)
    assert half.generate([1, 2, 3], 3) == wide.generate([1, 2, 3], 3)
    held = {name: one for name, one in half.state_dict().items() if one.ndim > 1}
    assert held and all(one.dtype.name == dtype for one in held.values())


def test_files_of_gguf_are_not_trusted(tmp_path: Path) -> None:
    path, tensors = tmp_path / "model.gguf", in_gguf()
    for others, told in (
            ({"general__architecture": "bert"}, "is a 'bert'"),
            ({"llama__block_count": 3}, "has 2 of its 3 blocks"),
            ({"llama__block_count": -1}, "llama.block_count is -1"),
            ({"llama__embedding_length": "16"}, "llama.embedding_length is '16'"),
            ({"llama__context_length": 2 ** 30}, "llama.context_length is 1073741824")):
        with pytest.raises(ArgumentError, match=told):
            llama.load(gguf_file(path, tensors, **others))
    with pytest.raises(ShapeError, match="gate_proj.weight has shape"):
        llama.load(gguf_file(path, tensors, llama__feed_forward_length=25))
    with pytest.raises(ArgumentError, match="no embedding of tokens"):
        llama.load(gguf_file(path, {name: one for name, one in tensors.items()
                                    if name != "token_embd.weight"}))
    tensors["blk.0.other.weight"] = tensors["output_norm.weight"]
    with pytest.raises(ArgumentError, match="'blk.0.other.weight', which is not known"):
        llama.load(gguf_file(path, tensors))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="3 heads of keys do not divide 4 heads"):
        dataclasses.replace(SIZES, num_key_value_heads=3)
    with pytest.raises(ArgumentError, match="turns are scaled by 'yarn'"):
        llama.rotary_tables(dataclasses.replace(SIZES, rope_scaling={"type": "yarn"}))
    with pytest.raises(ShapeError, match="Llama: 13 tokens are more than its 12 places"):
        model()(Tensor.zeros(1, 13, dtype="int32"))
