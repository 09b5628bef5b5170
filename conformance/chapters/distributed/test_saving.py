"""Saving from a mesh, and what is left when a save does not come to its end."""
from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.distributed.test_distributed import needs_mpi, started
from conformance.faults import jobs
from conformance.trace import verifies
from impl import Context, Mesh, Tensor, distributed, dtypes, nn
from impl.errors import DistributedError, DTypeError
from impl.nn import files

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(6))
GRID = Mesh(DEVICES, {"data": 2, "model": 3})
X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def spread() -> dict[str, Tensor]:
    """Tensors that lie in all ways on a mesh, and one that lies on a device."""
    whole = {"rows": Tensor(X), "blocks": Tensor(X), "half": Tensor(X).bfloat16(),
             "copies": Tensor(X), "few": Tensor([1, 2], dtype=dtypes.int64),
             "none": Tensor(X[:0]), "one": Tensor(2.5)}
    cuts: dict[str, dict[str, int]] = {
        "rows": {"data": 0}, "blocks": {"data": 1, "model": 0}, "half": {"model": 1},
        "copies": {}, "few": {"model": 0}, "none": {"data": 0}, "one": {}}
    return {"alone": Tensor(X[0]), **{name: tensor.shard(GRID, **cuts[name])
                                      for name, tensor in whole.items()}}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert list(one) == list(other)
    for name, tensor in one.items():
        assert tensor.dtype is other[name].dtype, name
        np.testing.assert_array_equal(tensor.numpy(), other[name].numpy(), err_msg=name)


@verifies("distributed.save.equal+2")
def test_what_is_saved_from_a_mesh_is_loaded_anywhere(tmp_path: Path) -> None:
    state, path = spread(), tmp_path / "model.safetensors"
    for _ in range(2):  # the second one replaces the first
        nn.state.safe_save(state, path)
        assert len(list(tmp_path.iterdir())) == 1 + len(DEVICES)
    loaded = nn.state.safe_load(path)
    equal(loaded, state)
    assert all(tensor.sharding is None for tensor in loaded.values())
    other = {name: Tensor.zeros(*tensor.shape, dtype=tensor.dtype).contiguous().shard(
        DEVICES[:2], 0 if tensor.shape else None).realize() for name, tensor in state.items()}
    lying = {name: tensor.sharding for name, tensor in other.items()}
    nn.state.load_state_dict(other, loaded)
    equal(other, state)
    assert {name: tensor.sharding for name, tensor in other.items()} == lying
    nn.state.safe_save(loaded, path)  # whole again: the parts belong to nobody, and are no harm
    equal(nn.state.safe_load(path), state)


@verifies("distributed.save.equal+2")
def test_each_element_is_written_once(tmp_path: Path) -> None:
    state, path = spread(), tmp_path / "model.safetensors"
    nn.state.safe_save(state, path)
    sizes = [part.stat().st_size for part in tmp_path.glob("model.*.*")]
    assert sum(sizes) < sum(t.numel() * t.dtype.itemsize for t in state.values()) + 6 * 700


@verifies("distributed.save.equal+2")
def test_a_part_that_is_missing_or_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    nn.state.safe_save(spread(), path)
    part = sorted(tmp_path.glob("model.*.1-of-6.*"))[0]
    content = part.read_bytes()
    part.write_bytes(content[:-5])
    with pytest.raises(DTypeError, match="no safetensors file, or cut short"):
        nn.state.safe_load(path)
    part.unlink()
    with pytest.raises(FileNotFoundError, match="1-of-6"):
        nn.state.safe_load(path)


class Killed(BaseException):
    """The end of the process, at this moment."""


def steps_of(monkeypatch: pytest.MonkeyPatch, last: int) -> Callable[[], int]:
    """Let whatever changes the disk end the process after so many times; how many there were."""
    done = 0

    def counted(original: Callable[..., Any], is_change: Callable[..., bool]) -> Any:
        def change(*given: Any, **more: Any) -> Any:
            nonlocal done
            if is_change(*given):
                if done == last:
                    raise Killed
                done += 1
            return original(*given, **more)
        return change

    monkeypatch.setattr(files, "open", counted(
        builtins.open, lambda path, mode="r", *rest: "w" in mode), raising=False)
    for module, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
        monkeypatch.setattr(module, name, counted(getattr(module, name), lambda *_: True))
    return lambda: done


@verifies("distributed.save.complete")
@pytest.mark.parametrize("on_mesh", [True, False])
def test_a_save_that_ends_anywhere_leaves_the_one_before(
        on_mesh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"

    def place(array: np.ndarray) -> Tensor:
        return Tensor(array).shard(DEVICES[:2], 0) if on_mesh else Tensor(array)

    old, new = {"x": place(X)}, {"x": place(X + 1)}
    nn.state.safe_save(old, path)
    ended = 0
    while True:
        with monkeypatch.context() as patched:
            count = steps_of(patched, ended)
            try:
                nn.state.safe_save(new, path)
                break
            except Killed:
                assert count() == ended
        found = nn.state.safe_load(path)["x"].numpy()
        assert (found == X).all() or (found == X + 1).all() and ended > 2, ended
        if (found == X + 1).all():  # only what is not needed any more was to be removed
            nn.state.safe_save(old, path)
        ended += 1
    assert ended >= (8 if on_mesh else 3)
    equal(nn.state.safe_load(path), new)


@verifies("distributed.save.complete")
def test_an_error_of_one_process_is_one_of_all(tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    old = {"x": Tensor(X).shard(DEVICES[:2], 0)}
    nn.state.safe_save(old, path)
    monkeypatch.setattr(distributed, "all_gather",
                        lambda _, given: [given, b"" if len(given) == 8 else b"no space left"])
    with pytest.raises(DistributedError, match="rank 1 could not write: no space left"):
        nn.state.safe_save({"x": Tensor(X + 1).shard(DEVICES[:2], 0)}, path)
    equal(nn.state.safe_load(path), old)


@verifies("distributed.save.complete")
def test_a_process_that_is_killed_while_it_saves() -> None:
    assert not jobs.saving(0, 2)


SAVED = """
x = Tensor(np.arange(10, dtype=np.float32).reshape(5, 2))
state = {"a": x.shard(mesh, data=0), "b": x.shard(mesh), "c": x}
nn.state.safe_save(state, "model.safetensors")
(one,) = state["a"].addressable_shards
assert (one.data == x.numpy()[one.index]).all() and one.device == f"REFERENCE@{me}"
if me == 0:
    nn.state.safe_save({"c": x}, "alone.safetensors")  # on no mesh: nobody is asked
loaded = nn.state.safe_load("model.safetensors")
other = {name: Tensor.zeros(5, 2).contiguous().shard(mesh, data=1) for name in state}
nn.state.load_state_dict(other, loaded)
assert all((t.numpy() == x.numpy()).all() for t in other.values())
"""


@needs_mpi
@verifies("distributed.save.equal+2")
def test_processes_save_and_load_together(tmp_path: Path) -> None:
    started(2, SAVED, tmp_path)
    loaded = nn.state.safe_load(tmp_path / "model.safetensors")
    for tensor in loaded.values():
        assert (tensor.numpy() == np.arange(10, dtype=np.float32).reshape(5, 2)).all()
    assert len(list(tmp_path.glob("model.*.safetensors"))) == 2
