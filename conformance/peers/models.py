"""Models beside their originals: the same weights, the same inputs, values and gradients.

    python -m conformance.peers.models [--write] [NAME...]

The originals are those of transformers, torchvision and diffusers, which have to be installed. What
they compute is kept in `models.json`, for tests that run without them: the names and shapes of all
tensors, some values, and for each gradient its product with numbers drawn by its name.
"""
from __future__ import annotations

import argparse
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from impl import Tensor, nn
from impl.models import bert, gpt2, llama, lstm, mixtral, resnet, unet, vit, whisper

EXPECTED = Path(__file__).with_name("models.json")


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that belong to a name, from a normal distribution."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return random.standard_normal(shape).astype(np.float32)


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A weight, drawn by its name so that it matters: norms near 1, variances above 0."""
    if name.endswith("running_var"):
        return 0.5 + np.abs(drawn(name, shape))
    if len(shape) == 1:
        return drawn(name, shape) * np.float32(0.3) + np.float32(
            name.endswith("weight") and "bias" not in name)
    return drawn(name, shape) * np.float32(1.2 / np.sqrt(np.prod(shape[1:])))


def whole(name: str, most: int, *shape: int) -> np.ndarray:
    """Whole numbers below a number."""
    return np.random.default_rng(zlib.crc32(name.encode())).integers(0, most, shape).astype("i4")


class Case(NamedTuple):
    """A model of small sizes, what it is called with, and its original."""

    ours: Callable[[], nn.Module]
    inputs: dict[str, np.ndarray]
    call: Callable[[Any, Mapping[str, Tensor]], Tensor]
    #: Of the original: the module, and what it gives for tensors of torch.
    original: Callable[[], Any]
    ask: Callable[[Any, Mapping[str, Any]], Any]


TOKENS = {"tokens": whole("tokens", 19, 2, 6)}
_BERT: dict[str, Any] = {
    "vocab_size": 19, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 9, "layer_norm_eps": 1e-12}
_VIT: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "image_size": 8, "patch_size": 4, "layer_norm_eps": 1e-12}
_MIXTRAL: dict[str, Any] = {
    "vocab_size": 19, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12,
    "num_local_experts": 4, "num_experts_per_tok": 2}
_GPT2: dict[str, Any] = {
    "vocab_size": 19, "n_positions": 9, "n_embd": 16, "n_layer": 2, "n_head": 2}
_LLAMA: dict[str, Any] = {
    "vocab_size": 19, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12,
    "rms_norm_eps": 1e-5}
_WHISPER: dict[str, Any] = {
    "vocab_size": 19, "num_mel_bins": 5, "d_model": 16, "encoder_layers": 1,
    "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_layers": 1,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 24, "max_source_positions": 6,
    "max_target_positions": 12, "pad_token_id": 0}
_UNET: dict[str, Any] = {
    "in_channels": 2, "out_channels": 2, "block_out_channels": (8, 12),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "layers_per_block": 1,
    "norm_num_groups": 2, "attention_head_dim": 6}


def _transformers(name: str, config: str, sizes: Mapping[str, Any], **others: Any) -> Any:
    import transformers
    return getattr(transformers, name)(getattr(transformers, config)(**sizes, **others))


def _resnet() -> Any:
    """torchvision's with fewer and smaller layers: it has no argument for that."""
    import torch
    import torchvision.models.resnet as theirs
    model = theirs.ResNet(theirs.Bottleneck, [1, 1, 1, 1])
    model.inplanes = 4
    model.conv1, model.bn1 = torch.nn.Conv2d(3, 4, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(4)
    model.layer1 = model._make_layer(theirs.Bottleneck, 4, 1)
    model.layer2 = model._make_layer(theirs.Bottleneck, 8, 1, stride=2)
    model.layer3 = model.layer4 = torch.nn.Sequential()
    model.fc = torch.nn.Linear(32, 5)
    return model


def _unet() -> Any:
    import diffusers
    return diffusers.UNet2DModel(sample_size=8, norm_eps=1e-6, flip_sin_to_cos=False, freq_shift=1,
                                 downsample_padding=0, **_UNET)


def _lstm() -> Any:
    """PyTorch's example: https://github.com/pytorch/examples, word_language_model/model.py."""
    import torch

    class RNNModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Embedding(19, 6)
            self.rnn = torch.nn.LSTM(6, 8, 2)
            self.decoder = torch.nn.Linear(8, 19)

        def forward(self, tokens: Any) -> Any:
            return self.decoder(self.rnn(self.encoder(tokens.T))[0]).transpose(0, 1)

    return RNNModel()


CASES = {
    "bert": Case(
        lambda: bert.Bert(bert.BertConfig(**_BERT)),
        TOKENS | {"seen": np.array([[1] * 6, [1] * 4 + [0] * 2], np.int32),
                  "kinds": whole("kinds", 2, 2, 6)},
        lambda model, given: model(given["tokens"], given["seen"], given["kinds"]).flatten(1).cat(
            model.pooled(model(given["tokens"])), dim=1),
        lambda: _transformers("BertModel", "BertConfig", _BERT),
        lambda model, given: __import__("torch").cat([model(
            given["tokens"], given["seen"], given["kinds"]).last_hidden_state.flatten(1), model(
            given["tokens"]).pooler_output], 1)),
    "vit": Case(
        lambda: vit.ViT(vit.ViTConfig(**_VIT, num_labels=5)),
        {"pictures": drawn("pictures", (2, 3, 8, 8))},
        lambda model, given: model(given["pictures"]),
        lambda: _transformers("ViTForImageClassification", "ViTConfig", _VIT, num_labels=5),
        lambda model, given: model(given["pictures"]).logits),
    "resnet": Case(
        lambda: resnet.ResNet(resnet.Bottleneck, (1, 1), 5, 4),
        {"pictures": drawn("pictures", (2, 3, 12, 12))},
        lambda model, given: model(given["pictures"]),
        _resnet, lambda model, given: model(given["pictures"])),
    "gpt2": Case(
        lambda: gpt2.GPT2(gpt2.GPT2Config(**_GPT2)), TOKENS,
        lambda model, given: model(given["tokens"]),
        lambda: _transformers("GPT2Model", "GPT2Config", _GPT2, bos_token_id=0, eos_token_id=0),
        lambda model, given: model(given["tokens"]).last_hidden_state @ model.wte.weight.T),
    "llama": Case(
        lambda: llama.Llama(llama.LlamaConfig(**_LLAMA, rope_theta=100.0)), TOKENS,
        lambda model, given: model(given["tokens"]),
        lambda: _transformers("LlamaForCausalLM", "LlamaConfig", _LLAMA, rope_parameters={
            "rope_type": "default", "rope_theta": 100.0}),
        lambda model, given: model(given["tokens"]).logits),
    "mixtral": Case(
        lambda: mixtral.Mixtral(mixtral.MixtralConfig(**_MIXTRAL, rope_theta=100.0)), TOKENS,
        lambda model, given: model(given["tokens"]),
        lambda: _transformers("MixtralForCausalLM", "MixtralConfig", _MIXTRAL, rope_parameters={
            "rope_type": "default", "rope_theta": 100.0}, sliding_window=None),
        lambda model, given: model(given["tokens"]).logits),
    "lstm": Case(
        lambda: lstm.LSTMModel(19, 6, 8, 2), TOKENS,
        lambda model, given: model(given["tokens"]), _lstm,
        lambda model, given: model(given["tokens"])),
    "whisper": Case(
        lambda: whisper.Whisper(whisper.WhisperConfig(**_WHISPER)),
        TOKENS | {"sound": drawn("sound", (2, 5, 12))},
        lambda model, given: model(given["sound"], given["tokens"]),
        lambda: _transformers("WhisperForConditionalGeneration", "WhisperConfig", _WHISPER,
                              bos_token_id=0, eos_token_id=0,
                              decoder_start_token_id=0),
        lambda model, given: model(given["sound"], decoder_input_ids=given["tokens"]).logits),
    "unet": Case(
        lambda: unet.UNet(unet.UNetConfig(**_UNET)),
        {"pictures": drawn("pictures", (2, 2, 8, 8)), "times": np.array([3, 700], np.int32)},
        lambda model, given: model(given["pictures"], given["times"]), _unet,
        lambda model, given: model(given["pictures"], given["times"]).sample),
}


class Found(NamedTuple):
    """What a model computes: its values, and for each gradient its product with drawn numbers."""

    shapes: dict[str, list[int]]
    values: np.ndarray
    slopes: dict[str, float]


def ask_ours(case: Case) -> Found:
    """Our model with the drawn weights."""
    model = case.ours()
    state = model.state_dict()
    shapes = {name: list(tensor.shape) for name, tensor in state.items()}
    model.load_state_dict({name: weight(name, tuple(shape)) for name, shape in shapes.items()})
    result = case.call(model, {name: Tensor(array) for name, array in case.inputs.items()})
    (result * Tensor(drawn("loss", tuple(result.shape)))).sum().backward()
    slopes = {name: (tensor.grad * Tensor(drawn(f"slope of {name}", tuple(tensor.shape)))).sum()
              for name, tensor in model.named_parameters() if tensor.grad is not None}
    result.realize(*slopes.values())
    return Found(shapes, result.numpy(), {name: one.item() for name, one in slopes.items()})


def ask_original(case: Case) -> Found:
    """The original with the same weights, by the names of its checkpoint."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        model = case.original().eval()
        shapes = {name: list(tensor.shape) for name, tensor in saved(model, folder).items()}
        model = filled(model, folder, {name: torch.from_numpy(weight(name, tuple(shape)).copy())
                                       for name, shape in shapes.items()})
        result = case.ask(model, {name: torch.from_numpy(array)
                                  for name, array in case.inputs.items()})
        (result * torch.from_numpy(drawn("loss", tuple(result.shape)))).sum().backward()
        learned = {name for name, one in model.named_parameters()}
        with torch.no_grad():  # saved in place of the weights, they have the names of checkpoints
            for one in model.parameters():
                one.copy_(torch.zeros_like(one) if one.grad is None else one.grad)
        slopes = {name: float((tensor.detach() * torch.from_numpy(
            drawn(f"slope of {name}", tuple(tensor.shape)))).sum())
            for name, tensor in saved(model, folder).items()
            if name in learned or name not in model.state_dict()}
    return Found(shapes, result.detach().numpy(), slopes)


def saved(model: Any, folder: str) -> dict[str, Any]:
    """The tensors of an original by the names of its checkpoint."""
    if not hasattr(model, "save_pretrained"):
        return {name: tensor for name, tensor in model.state_dict().items()
                if not name.endswith("num_batches_tracked")}
    import safetensors.torch
    model.save_pretrained(folder)
    file, = Path(folder).glob("*.safetensors")
    return dict(safetensors.torch.load_file(file))


def filled(model: Any, folder: str, tensors: dict[str, Any]) -> Any:
    """The original with other weights."""
    if not hasattr(model, "save_pretrained"):
        model.load_state_dict(tensors, strict=False)
        return model
    import safetensors.torch
    file, = Path(folder).glob("*.safetensors")
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    return type(model).from_pretrained(folder).eval()


def difference(found: Found, wanted: Found) -> str:
    """In what two models differ by more than 1e-4 of the greatest number, if they do."""
    if found.shapes != wanted.shapes:
        return "names or shapes: " + str(sorted(
            name for name in found.shapes.keys() | wanted.shapes.keys()
            if found.shapes.get(name) != wanted.shapes.get(name)))
    if not near(found.values, wanted.values):
        return f"values: {np.abs(found.values - wanted.values).max()}"
    if found.slopes.keys() != wanted.slopes.keys():
        return f"gradients: {sorted(found.slopes.keys() ^ wanted.slopes.keys())}"
    most = max(map(abs, wanted.slopes.values()))
    wrong = [name for name, one in wanted.slopes.items()
             if abs(found.slopes[name] - one) > 1e-4 * max(abs(one), most / 100)]
    return f"gradients: {wrong}" if wrong else ""


def near(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all values differ by at most 1e-4 of the greatest one."""
    return found.shape == wanted.shape and bool(
        np.abs(found - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max()))


def expected(name: str) -> Found:
    """What the original computed when this command was run."""
    said = json.loads(EXPECTED.read_text(encoding="utf-8"))[name]
    values = np.array(said["values"], np.float32).reshape(said["shape"])
    return Found(said["shapes"], values, said["slopes"])


def main() -> None:
    """Ask all models, or those that are named; exit with 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.peers.models",
                                     description=main.__doc__)
    parser.add_argument("names", nargs="*", help="models, as bert; all, if none is named")
    parser.add_argument("--write", action="store_true", help="keep what the originals compute")
    given = parser.parse_args()
    wrong = 0
    kept = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    for name in given.names or CASES:
        wanted = ask_original(CASES[name])
        kept[name] = {"shapes": wanted.shapes, "shape": wanted.values.shape, "values": [
            float(f"{one:.7g}") for one in wanted.values.flatten()], "slopes": {
            key: float(f"{one:.7g}") for key, one in wanted.slopes.items()}}
        differs = difference(ask_ours(CASES[name]), wanted)
        print(f"{name:<10} {differs or 'the same'}")
        wrong += bool(differs)
    if given.write:
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in kept.items())
        EXPECTED.write_text(f"{{{rows}}}\n", encoding="utf-8")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
