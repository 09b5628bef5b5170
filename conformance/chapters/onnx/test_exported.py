"""Models that torch exports answer as torch and onnxruntime do, captured and with other sizes."""
from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

from impl import Context, Tensor, TinyJit

pytest.importorskip("onnx")
torch: Any = pytest.importorskip("torch")

import impl.onnx  # noqa: E402


class Sequences(torch.nn.Module):
    """An LSTM, of which the outputs alone are used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return self.body(x)[0]


def modules() -> dict[str, tuple[Any, tuple[int, ...], dict[int, str]]]:
    """Models, the shape of an input, and which of its axes may have other sizes."""
    nn = torch.nn
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 2))
    images[1].running_mean.uniform_(-1, 1)
    images[1].running_var.uniform_(1, 2)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0, batch_first=True)
    return {
        "linear": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(-1)),
                   (4, 6), {0: "batch"}),
        "images": (images, (2, 3, 8, 8), {0: "batch"}),
        "transformer": (nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), (2, 3, 16),
                        {0: "batch"}),
        "sequences": (Sequences(), (2, 2, 5), {0: "batch", 1: "time"})}


@pytest.mark.parametrize("name", ["linear", "images", "transformer", "sequences"])
def test_a_model_of_torch_answers_as_torch(name: str) -> None:
    module, shape, axes = modules()[name]
    module.eval()
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(shape),), written, dynamo=False,
                          input_names=["x"], output_names=["y"], dynamic_axes={"x": axes})
    other = tuple(size + (place in axes) for place, size in enumerate(shape))
    with Context(DEVICE="REFERENCE"):
        function = impl.onnx.load(written.getvalue())
        captured = TinyJit(function)
        for number, sizes in enumerate((shape, shape, shape, other)):
            x = np.random.default_rng(number).standard_normal(sizes).astype(np.float32)
            wanted = module(torch.from_numpy(x)).detach().numpy()
            assert np.abs(captured(Tensor(x).realize()).numpy() - wanted).max() < 1e-4
            if number == 2:
                _check_gradient(function, module, x)
            if number == 3:
                assert np.abs(_by_onnxruntime(written.getvalue(), x) - wanted).max() < 1e-4
    assert "1 replayed" in captured.explain() or "2 replayed" in captured.explain()


def _check_gradient(function: Any, module: Any, x: np.ndarray) -> None:
    """Gradients flow through a model to its inputs."""
    ours, theirs = Tensor(x, requires_grad=True), torch.from_numpy(x).requires_grad_()
    function(ours).square().sum().backward()
    module(theirs).square().sum().backward()
    assert ours.grad is not None
    assert np.abs(ours.grad.numpy() - theirs.grad.numpy()).max() < 1e-4


def _by_onnxruntime(content: bytes, x: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found
