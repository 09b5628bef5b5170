"""Each model beside what its original computed, and what only some of them have."""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.peers import models
from impl import Context, Tensor, nn
from impl.errors import ArgumentError, ShapeError
from impl.models import bert, lstm, mixtral, resnet, unet, vit, whisper
from impl.models.writing import LanguageModel, Writer


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def filled(name: str) -> Any:
    """A model with the drawn weights."""
    made = models.CASES[name].ours()
    made.load_state_dict({key: models.weight(key, tuple(tensor.shape))
                          for key, tensor in made.state_dict().items()})
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", models.CASES)
def test_names_values_and_gradients_are_those_of_the_original(name: str) -> None:
    assert models.difference(models.ask_ours(models.CASES[name]), models.expected(name)) == ""


def test_the_comparison_finds_what_differs() -> None:
    wanted = models.expected("lstm")
    name, value = max(wanted.slopes.items(), key=lambda one: abs(one[1]))
    assert "values" in models.difference(wanted._replace(values=wanted.values * 1.001), wanted)
    assert "weight_hh_l0" in models.difference(
        wanted._replace(shapes=wanted.shapes | {"rnn.weight_hh_l0": [1]}), wanted)
    assert name in models.difference(
        wanted._replace(slopes=wanted.slopes | {name: value * 1.001}), wanted)


FOLDERS = {"bert": (bert.load, "bert", "bert."), "vit": (vit.load, "vit", ""),
           "mixtral": (mixtral.load, "mixtral", ""), "whisper": (whisper.load, "whisper", ""),
           "unet": (unet.load, None, "")}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_of_checkpoints_are_loaded(name: str, tmp_path: Path) -> None:
    load, kind, prefix = FOLDERS[name]
    ours: Any = filled(name)
    said = dataclasses.asdict(ours.config) | ({"model_type": kind} if kind else {
        "_class_name": "UNet2DModel"})
    with pytest.raises(ArgumentError, match="has no config.json"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(said))
    tensors = {prefix + key: tensor for key, tensor in ours.state_dict().items()}
    if name == "bert":  # as old ones have it, without what few use
        tensors = {key.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor
                   for key, tensor in tensors.items() if "pooler" not in key}
        tensors["cls.predictions.bias"] = Tensor.zeros(19)
    if name == "whisper":
        tensors["proj_out.weight"] = tensors["model.decoder.embed_tokens.weight"]
    file = "model" if kind else "diffusion_pytorch_model"
    nn.state.safe_save(tensors, tmp_path / f"{file}.safetensors")
    found: Any = load(tmp_path)
    assert json.dumps(dataclasses.asdict(found.config)) == json.dumps(
        dataclasses.asdict(ours.config))
    for key, tensor in ours.state_dict().items():
        assert "pooler" in key or np.array_equal(found.state_dict()[key].numpy(), tensor.numpy())
    (tmp_path / "config.json").write_text('{"model_type": "other", "_class_name": "Other"}')
    with pytest.raises(ArgumentError, match="it is a '?[Oo]ther"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["resnet", "lstm"])
def test_files_of_checkpoints_are_loaded(name: str, tmp_path: Path) -> None:
    load, ours, path = (resnet.load if name == "resnet" else lstm.load), filled(name), \
        tmp_path / "model.safetensors"
    nn.state.safe_save(ours.state_dict(), path)
    found = load(path).state_dict()
    assert found.keys() == ours.state_dict().keys()
    for key, tensor in ours.state_dict().items():
        assert np.array_equal(found[key].numpy(), tensor.numpy())
    nn.state.safe_save({"other": Tensor([1.0])}, path)
    with pytest.raises(ArgumentError, match="has no tensors of"):
        load(path)


def writers() -> dict[str, LanguageModel]:
    """Models that keep something else than Llama does; the last one writes of a sound."""
    sound = models.drawn("sound", (5, 12))
    return {"lstm": filled("lstm"), "whisper": filled("whisper").listen(Tensor(sound))}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "whisper"])
def test_what_is_written_with_a_cache_is_what_is_written_without(name: str) -> None:
    model = writers()[name]
    prompts = [[3, 1, 4], [5], [9, 2]]
    writer = Writer(model, 10, rows=3)
    found = [list(column) for column in zip(*writer.write_all(prompts, 6), strict=True)]
    for prompt, text in zip(prompts, found, strict=True):
        follow = model(Tensor([prompt + text]))[0].argmax(-1).tolist()
        assert text == follow[len(prompt) - 1:-1]
    assert writer.step.replays > 0 and len(writer.step.entries) == 1
    assert " 0 traced" in writer.step.explain()


def test_sentences_are_vectors_of_length_one() -> None:
    model: bert.Bert = filled("bert")
    tokens, seen = Tensor([[3, 1, 4, 0], [3, 1, 4, 1]]), Tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    found = model.sentences(tokens, seen).numpy()
    assert np.allclose((found ** 2).sum(1), 1, atol=1e-5)
    assert np.allclose(found[0], model.sentences(Tensor([[3, 1, 4]])).numpy()[0], atol=1e-5)


def test_each_token_goes_through_the_best_networks_only() -> None:
    layer = filled("mixtral").model.layers[0].block_sparse_moe
    shares = layer.shares(Tensor(models.drawn("x", (5, 16)))).numpy()
    scores = models.drawn("x", (5, 16)) @ layer.gate.weight.numpy().T
    assert ((shares > 0).sum(1) == 2).all() and np.allclose(shares.sum(1), 1, atol=1e-6)
    for row, score in zip(shares, scores, strict=True):
        assert set(np.argsort(score)[-2:]) == set(np.flatnonzero(row))


def test_the_spectrogram_is_that_of_the_definition() -> None:
    samples = np.sin(np.arange(2000) * 0.3).astype(np.float32) + models.drawn("noise", (2000,)) / 9
    found = whisper.spectrogram(Tensor(samples), 8, 3200).numpy()
    wide = np.pad(np.pad(samples, (0, 1200)), 200, mode="reflect")
    hann = np.hanning(401)[:-1]
    energy = np.array([np.abs(np.fft.rfft(wide[start:start + 400] * hann)) ** 2
                       for start in range(0, 3200, 160)])
    loudness = np.log10(np.maximum(energy @ whisper.mel_filters(8).T, 1e-10)).T
    wanted = (np.maximum(loudness, loudness.max() - 8) + 4) / 4
    assert found.shape == (8, 20) and np.abs(found - wanted).max() < 1e-3


def test_filters_of_pitch_are_triangles() -> None:
    filters = whisper.mel_filters(80)
    assert filters.shape == (80, 201) and (filters >= 0).all() and filters[:, 0].max() == 0
    peaks = filters.argmax(1)
    assert (np.diff(peaks) >= 0).all() and 38 < peaks[45] < 60


def test_noise_becomes_pictures() -> None:
    """The guide draws some; here is one step, by equations 6 and 7 of Ho et al."""
    diffusion = unet.Diffusion(filled("unet"), steps=4)
    share = np.linspace(1e-4, 0.02, 4)
    left = np.cumprod(1 - share)
    noisy, noise = models.drawn("noisy", (1, 2, 8, 8)), models.drawn("noise", (1, 2, 8, 8))
    times = Tensor([2])
    seen = diffusion.model(Tensor(noisy), times).numpy()
    clean = ((noisy - np.sqrt(1 - left[2]) * seen) / np.sqrt(left[2])).clip(-1, 1)
    wanted = (np.sqrt(left[1]) * share[2] * clean + np.sqrt(1 - share[2]) * (1 - left[1]) * noisy
              ) / (1 - left[2]) + np.sqrt(share[2] * (1 - left[1]) / (1 - left[2])) * noise
    found = diffusion.back(Tensor(noisy), times, Tensor(noise)).numpy()
    assert np.abs(found - wanted).max() < 1e-4
    loss = diffusion.loss(Tensor(noisy), times, Tensor(noise)).item()
    mixed = np.sqrt(left[2]) * noisy + np.sqrt(1 - left[2]) * noise
    assert abs(loss - ((diffusion.model(Tensor(mixed.astype("f")), times).numpy() - noise) ** 2
                       ).mean()) < 1e-4


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="pictures of shape"):
        filled("vit")(Tensor.zeros(1, 3, 9, 9))
    with pytest.raises(ShapeError, match="10 windows of sound, and it hears 12 at once"):
        filled("whisper").memory(Tensor.zeros(1, 5, 10))
    with pytest.raises(ArgumentError, match="blocks of kind CrossAttnDownBlock2D"):
        unet.UNetConfig(down_block_types=("CrossAttnDownBlock2D",))
    with pytest.raises(ArgumentError, match="a tied head, and 4 is not 3"):
        lstm.LSTMModel(5, 3, 4, tied=True)
