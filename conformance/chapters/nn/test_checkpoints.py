"""Files of torch.save: read, and never run."""
from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from impl import nn
from impl.errors import DTypeError


def test_a_file_of_torch_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(12.).reshape(3, 4)
    given = {"a": base.T, "half": base.half(), "brain": base.bfloat16(), "long": base.long(),
             "bool": base > 4, "none": torch.zeros(0, 2), "row": base[1],
             "model": torch.nn.Linear(2, 3).state_dict(), "more": [1, 2.5, ("x", None, True)],
             "learned": torch.nn.Parameter(base)}
    path = tmp_path / "model.pt"
    torch.save(given, path)
    found = nn.state.torch_load(path)
    for name in ("a", "half", "long", "bool", "none", "row", "learned"):
        assert np.array_equal(found[name].numpy(), given[name].detach().numpy()), name
    assert found["brain"].tolist() == given["brain"].tolist()
    assert found["more"] == given["more"] and found["half"].dtype.itemsize == 2
    nn.Linear(2, 3).load_state_dict(found["model"])


def made(path: Path, content: bytes, name: str = "m/data.pkl") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


class Runs:
    """Makes a file when a pickle of it is loaded as pickles are."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_what_a_file_asks_for_is_not_run(tmp_path: Path) -> None:
    path = made(tmp_path / "evil.pt", pickle.dumps(Runs(tmp_path / "made"), 2))
    with pytest.raises(DTypeError, match=r"torch_load: it has an object of \w+.mkdir"):
        nn.state.torch_load(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [
    b"", b"garbage", b"\x80\x02}", b"\x80\x02r\xff\xff\xff\xff.", b"\x80\x02]q\xff", b"t.",
    b"\x80\x02X\xff\xff\xff\x7fabc.", pickle.dumps({(1, 2): 3}, 2), pickle.dumps({1, 2}, 4)])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match="torch_load"):
        nn.state.torch_load(made(tmp_path / "bad.pt", content))
    (tmp_path / "raw.pt").write_bytes(content)
    with pytest.raises(DTypeError, match="torch_load"):
        nn.state.torch_load(tmp_path / "raw.pt")


def test_changed_bytes_give_values_or_an_error(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    whole = io.BytesIO()
    torch.save({"a": torch.ones(3, 2), "b": [torch.zeros(4)]}, whole)
    random, path = np.random.default_rng(3), tmp_path / "changed.pt"
    for _ in range(300):
        changed = bytearray(whole.getvalue())
        for place in random.integers(0, len(changed), 3):
            changed[place] = random.integers(256)
        path.write_bytes(changed)
        try:
            nn.state.torch_load(path)
        except DTypeError:
            pass
