"""The demo's network as a module for a page, made while the site is built.

Its weights are committed, so that a build trains nothing. This makes them anew:

    python docs/hooks/digits.py
"""
from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from impl import Context, Tensor, nn
from impl.__main__ import Classifier, Trainer, accuracy, digits, train
from impl.export import export

HERE = Path(__file__).parent
WEIGHTS, SAMPLES = HERE / "digits.safetensors", HERE / "digits.json"
#: How many held-out pictures the page has.
SHOWN = 20


def module_files() -> dict[str, bytes]:
    """The files of the exported network by name: modules, weights, the document."""
    with Context(DEVICE="REFERENCE"), tempfile.TemporaryDirectory() as folder:
        model = Classifier()
        nn.state.load_state_dict(model, nn.state.safe_load(WEIGHTS))
        picture = Tensor(np.zeros((1, 64), np.float32)).realize()
        made = export(lambda x: model(x).softmax(1), (picture,), folder, name="digits",
                      target="page")
        return {path.name: path.read_bytes() for path in made}


def samples() -> dict[str, Any]:
    """Held-out pictures with what they show, and how many of all held-out ones are recognised."""
    known: dict[str, Any] = json.loads(SAMPLES.read_text(encoding="utf-8"))
    return known


def make() -> None:
    """Train, and write weights and pictures."""
    x, y, held_out, labels = digits()
    trainer = Trainer(None)
    train(trainer, x, y, epochs=20)
    nn.state.safe_save(nn.state.get_state_dict(trainer.model), WEIGHTS)
    SAMPLES.write_text(json.dumps({
        "accuracy": accuracy(trainer, held_out, labels), "held_out": len(labels),
        "samples": [{"label": int(label), "pixels": (16 * pixels).astype(int).tolist()}
                    for pixels, label in zip(held_out[:SHOWN], labels[:SHOWN], strict=True)],
    }) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make()
