"""Files that are written for others, that lie where they are, and that claim what they lack."""
from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import formats
from impl import Context, Tensor, dtypes, nn
from impl.errors import DTypeError
from impl.nn import saving

KINDS = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint16 uint32 "
         "uint64").split()


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def everything() -> dict[Any, Any]:
    shared = Tensor([[1.0, 2.0], [3.0, 4.0]])
    return {"kinds": {name: Tensor([[1, 0, 1], [0, 1, 1]]).cast(name) for name in KINDS},
            "numbers": [3, -2 ** 40, 2 ** 70, 1.5, True, None, np.float32(2.5)],
            "words": ("é", (), [], {}), "one": Tensor(3.5), "none": Tensor.zeros(0, 4),
            "tied": [shared, shared], 7: "key", "array": np.arange(3)}


def test_torch_loads_what_is_saved_for_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    saving.save(everything(), tmp_path / "all.pt")
    found = torch.load(tmp_path / "all.pt", weights_only=True)
    for name in KINDS:
        assert str(found["kinds"][name].dtype) == f"torch.{name}"
        assert found["kinds"][name].tolist() == [[1, 0, 1], [0, 1, 1]]
    assert found["numbers"] == [3, -2 ** 40, 2 ** 70, 1.5, True, None, 2.5]
    assert found["words"] == ("é", (), [], {}) and found[7] == "key"
    assert found["one"].item() == 3.5 and found["none"].shape == (0, 4)
    first, second = found["tied"]
    assert first.data_ptr() == second.data_ptr() and found["array"].tolist() == [0, 1, 2]
    mapped = torch.load(tmp_path / "all.pt", mmap=True)
    assert mapped["tied"][0].tolist() == [[1, 2], [3, 4]]


def test_what_is_saved_for_torch_is_loaded_here(tmp_path: Path) -> None:
    saving.save(everything(), tmp_path / "all.pth")
    found = saving.load(tmp_path / "all.pth")
    for name in KINDS:
        assert found["kinds"][name].dtype.name == name
        assert found["kinds"][name].tolist() == [[1, 0, 1], [0, 1, 1]]
    assert found["numbers"][2] == 2 ** 70
    assert found["tied"][0] is found["tied"][1]
    with pytest.raises(DTypeError, match="save: model is a Linear"):
        saving.save({"model": nn.Linear(2, 2)}, tmp_path / "all.pth")
    assert saving.load(tmp_path / "all.pth")[7] == "key"  # what was there is there
    assert [each.name for each in tmp_path.iterdir()] == ["all.pth"]
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(DTypeError, match="too deep"):
        saving.save(deep, tmp_path / "deep.pt")
    with pytest.raises(DTypeError, match="has 3001 bits"):
        saving.save(2 ** 3000, tmp_path / "large.pt")
    with pytest.raises(DTypeError, match="a key that is no text"):
        saving.save({(1, 2): 3}, tmp_path / "key.pt")


def test_tensors_of_safetensors_lie_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    given = {"wide": Tensor.arange(12).reshape(3, 4), "brain": Tensor([1.5, 2.5]).bfloat16(),
             "mask": Tensor([True, False]), "none": Tensor.zeros(0, 3)}
    nn.state.safe_save(given, path)
    found = nn.state.safe_load(path)
    assert np.array_equal(found["wide"][1].numpy(), [4, 5, 6, 7])
    assert found["brain"].dtype is dtypes.bfloat16 and found["brain"].tolist() == [1.5, 2.5]
    assert found["mask"].tolist() == [True, False] and found["none"].shape == (0, 3)
    # What is written to the tensor is not written to the file, and the other way round.
    before = path.read_bytes()
    found["wide"][0] = 9
    assert found["wide"].tolist()[0] == [9] * 4 and path.read_bytes() == before
    nn.state.safe_save({"wide": Tensor.zeros(3, 4)}, path)
    assert found["wide"].tolist()[2] == [8, 9, 10, 11]


def test_a_slice_reads_its_bytes_alone(tmp_path: Path) -> None:
    """The file has a hole of 2^36 bytes: to read it all would take a minute, and the memory."""
    header = b'{"w":{"dtype":"F32","shape":[1048576,16384],"data_offsets":[0,68719476736]}}'
    path = tmp_path / "large.safetensors"
    try:
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.seek(2 ** 36 - 4, io.SEEK_CUR)
            file.write(struct.pack("<f", 7.0))
    except OSError:
        pytest.skip("this disk has no files with holes")
    if path.stat().st_blocks * 512 > 2 ** 24:
        pytest.skip("this disk has no files with holes")
    weight = nn.state.safe_load(path)["w"]
    assert weight.shape == (1048576, 16384)
    assert weight[-1, -2:].tolist() == [0.0, 7.0]


def _npy(header: str, data: bytes = b"\0" * 24) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


@pytest.mark.parametrize("content", [
    _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9,)}"),
    _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"),
    _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps([print])),
    _npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
    _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
    _npy("{'descr': '<f4'}"), _npy("(" * 5000), _npy("{'descr': '<f4', 'fortran_order': "),
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff", b"\x93NUMPY"])
def test_arrays_that_are_not_there_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DTypeError, match="is damaged|none of the files"):
        saving.load(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(DTypeError, match="is damaged"):
        saving.load(tmp_path / "a.npz")


def test_arrays_of_all_kinds_are_loaded(tmp_path: Path) -> None:
    given = {"big": np.arange(6, dtype=">f4").reshape(2, 3), "line": np.arange(6.)[::2],
             "turned": np.arange(6.).reshape(2, 3).T,
             "mask": np.array([True, False]), "one": np.array(2), "none": np.zeros((0, 2))}
    writers: tuple[Any, ...] = (np.savez, np.savez_compressed)
    for write in writers:
        write(tmp_path / "a.npz", **given)
        found = saving.load(tmp_path / "a.npz")
        assert all(np.array_equal(found[name].numpy(), one) for name, one in given.items())
    for name, one in given.items():
        np.save(tmp_path / f"{name}.npy", one)
        assert np.array_equal(saving.load(tmp_path / f"{name}.npy").numpy(), one)


@pytest.mark.parametrize(("content", "told"), [
    (b"", "none of the files that are read, or empty"), (b"junk" * 100, "none of the files"),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "of PyTorch before version 1.6"),
    (b"\x46" + b"\0" * 7 + b'{"w":{"dtype":"F8_E9","shape":[1],"data_offsets":[0,1]}}' + b" " * 14
     + b"\0", "elements of type 'F8_E9' are not read")])
def test_what_is_no_file_of_tensors_is_named(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DTypeError, match=told):
        saving.load(tmp_path / "file")


# The command that asks readers


@pytest.fixture(scope="module")
def watch() -> formats.Watch:
    return formats.Watch()


@pytest.mark.parametrize(("load", "told"), [
    (lambda kind, path: [os.system("true")], "it caused os.system"),
    (lambda kind, path: [(path.parent / "other").write_bytes(b"")], "it caused open"),
    (lambda kind, path: pickle.loads(pickle.dumps([print])) and [], "it caused pickle.find_class"),
    (lambda kind, path: [{"a": Tensor.zeros(1000, 1000)}], "4000000 bytes of a file of 4"),
    (lambda kind, path: [1 // 0], "ZeroDivisionError"), (lambda kind, path: [{}], "")])
def test_the_command_sees_what_a_reader_may_not(
        load: Callable[[str, Path], Any], told: str, watch: formats.Watch, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    monkeypatch.setattr(formats, "load", load)
    assert formats.judge("any", tmp_path / "file", watch, 4)[0].startswith(told)


def test_damaged_files_are_read_well(watch: formats.Watch, tmp_path: Path) -> None:
    draw = random.Random(1)
    files = [(kind, one) for kind, several in formats.whole(peers=False).items() for one in several]
    given = set()
    formats.read_once(files, tmp_path / "file")
    for kind, content in files * 12:
        content = formats.changed(content, draw)
        (tmp_path / "file").write_bytes(content)
        told, tensors = formats.judge(kind, tmp_path / "file", watch, len(content))
        assert not told, (kind, told, content)
        given |= {kind} if tensors else set()
    assert {"gguf", "pt"} <= given  # not all of what is damaged is refused
