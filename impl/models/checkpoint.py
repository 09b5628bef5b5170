"""Folders of checkpoints as Hugging Face publishes them."""
from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from impl import Tensor, nn
from impl.errors import ArgumentError

__all__ = ["read_folder"]


def read_folder(path: str | os.PathLike[str], kind: str,
                sizes: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `config.json` says of the fields of `sizes`, and the tensors, in one file or several.

    Raises:
        ArgumentError: it is a checkpoint of another `model_type`, or `config.json` is missing.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise ArgumentError(f"{kind}.load", f"{folder} has no config.json, which says how many "
                            "heads there are", "give the folder of a checkpoint")
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if said.get("model_type", kind) != kind:
        raise ArgumentError(f"{kind}.load", f"it is a {said['model_type']!r}",
                            f"give a checkpoint of {kind}")
    turns = said.get("rope_parameters")  # as it is written now
    if turns:
        said |= {"rope_theta": turns["rope_theta"], "rope_scaling": turns}
    index, files = folder / "model.safetensors.index.json", ["model.safetensors"]
    if index.is_file():  # in several files
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted({Path(name).name for name in found.values()})
    state: dict[str, Tensor] = {}
    for name in files:
        state |= nn.state.safe_load(folder / name)
    known = {each.name for each in fields(sizes)}
    return {name: value for name, value in said.items() if name in known}, {
        name: tensor for name, tensor in state.items()
        if not name.endswith("rotary_emb.inv_freq")}
