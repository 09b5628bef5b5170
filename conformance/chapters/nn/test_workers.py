"""Batches that processes make ahead, and what a training notes of itself."""
from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from impl import Context, Tensor, nn
from impl.errors import ArgumentError, DistributedError, DTypeError
from impl.nn.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info
from impl.nn.logs import RunLog, progress

forks = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(),
                           reason="this system does not fork")


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


class Squares(Dataset):
    """Tuples and dicts of arrays and numbers, and who made them."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index ** 2, np.float32), {"index": index, "process": os.getpid()}


def loaded(dataset: Any, workers: int = 2, **given: Any) -> list[Any]:
    return list(DataLoader(dataset, given.pop("batch_size", 3), num_workers=workers,
                           multiprocessing_context="fork" if workers else None, **given))


@forks
def test_processes_make_the_same_batches_in_the_same_order() -> None:
    Tensor.manual_seed(5)
    wanted = loaded(Squares(), 0, shuffle=True)
    Tensor.manual_seed(5)
    found = loaded(Squares(), 3, shuffle=True)
    assert [(one[0].tolist(), one[1]["index"].tolist()) for one in found] \
        == [(one[0].tolist(), one[1]["index"].tolist()) for one in wanted]
    makers = {one for batch in found for one in batch[1]["process"].tolist()}
    assert len(makers) == 3 and os.getpid() not in makers
    rows = loaded(TensorDataset(Tensor.arange(7)), drop_last=True)
    assert [batch[0].tolist() for batch in rows] == [[0, 1, 2], [3, 4, 5]]


class Batched(Dataset):
    """As datasets of Hugging Face: several examples are asked for at once."""

    def __len__(self) -> int:
        return 4

    def __getitems__(self, numbers: list[int]) -> list[dict[str, int]]:
        return [{"a": number, "many": len(numbers)} for number in numbers]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("one by one")


def test_a_dataset_may_give_a_batch_at_once() -> None:
    assert [batch["many"].tolist() for batch in loaded(Batched(), 0)] == [[3, 3, 3], [1]]


class Stream(IterableDataset):
    """Numbers, of which each process gives its share."""

    def __iter__(self) -> Iterator[int]:
        own = get_worker_info()
        return iter(range(own.id, 10, own.num_workers) if own else range(10))


@forks
def test_a_stream_is_shared_among_the_processes_each_time() -> None:
    loader = DataLoader(Stream(), 2, num_workers=2, persistent_workers=True,
                        multiprocessing_context="fork")
    for _ in range(2):
        found = [batch.tolist() for batch in loader]
        assert found == [[0, 2], [1, 3], [4, 6], [5, 7], [8], [9]]
    crew = loader._crew
    assert crew is not None and all(process.is_alive() for process in crew.processes)
    crew.end()
    assert get_worker_info() is None


class Broken(Squares):
    """Example 4 is not there."""

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            raise KeyError("no example")
        return index


class Ended(Squares):
    """Example 4 ends its process."""

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            os._exit(3)
        return index


class Stuck(Squares):
    """Example 4 takes for ever."""

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            time.sleep(1000)
        return index


@forks
def test_what_goes_wrong_in_a_process_is_told() -> None:
    with pytest.raises(KeyError, match="no example") as error:
        loaded(Broken())
    assert "in process 1 of a DataLoader" in error.value.__notes__[0]
    with pytest.raises(DistributedError, match="process 1 ended with status 3"):
        loaded(Ended())
    with pytest.raises(DistributedError, match="nothing came for 0.5 s"):
        loaded(Stuck(), timeout=0.5)
    with pytest.raises(ZeroDivisionError):
        loaded(Squares(), worker_init_fn=lambda number: 1 // number)


def test_numbers_of_processes_that_mean_nothing_are_refused() -> None:
    for given in ({"num_workers": -1}, {"prefetch_factor": 0}, {"timeout": -1.0}):
        with pytest.raises(ArgumentError, match=next(iter(given))):
            DataLoader(Squares(), **given)


@forks
def test_who_leaves_early_leaves_no_process_behind() -> None:
    loader = DataLoader(Squares(), 1, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)
    mine = multiprocessing.active_children()
    batches.close()  # type: ignore[attr-defined]
    assert len(mine) == 2 and not any(process.is_alive() for process in mine)


# What is noted


def test_a_run_is_a_page_of_curves(tmp_path: Path) -> None:
    run = RunLog(tmp_path / "run.jsonl")
    for step in range(2000):
        run.log(step, loss=Tensor(1 / (step + 1)) if step < 3 else 1 / (step + 1))
    run.log(2000, **{"accuracy/<train>": np.float32(0.5), "accuracy/test": 0.25,
                     "gone": float("nan")})
    run.page(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert page.count("<section>") == 3 and page.count("<path") == 4
    assert "accuracy/&lt;train&gt;" in page and "<train>" not in page
    assert "up to step 2000" in page and "http" not in page
    assert len(page) < 40_000 and "nan " not in page.split("<path")[1]
    again = RunLog(tmp_path / "run.jsonl")
    assert again.rows == run.rows and again.names == ["loss", "accuracy/<train>",
                                                      "accuracy/test", "gone"] \
        or json.dumps(again.rows) == json.dumps(run.rows)


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    RunLog(path).log(1, loss=2.0)
    with path.open("ab") as file:
        file.write(b'[1]\n{"step": 2, "secon')
    run = RunLog(path)
    assert run.curve("loss") == [(1, 2.0)]
    for wrong, kind in (({"loss": "low"}, DTypeError), ({"seconds": 1}, ArgumentError)):
        with pytest.raises(kind):
            run.log(2, **wrong)


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    nn.logs.RunLog().page(tmp_path / "run.html", "nothing yet")
    assert "<h1>nothing yet</h1>" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_progress_is_that_of_tqdm_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("tqdm.auto")
    made.tqdm = lambda items, desc, **given: (items, desc, given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", made)
    shown: Any = progress([1, 2], "epoch", leave=False)
    assert shown == ([1, 2], "epoch", {"leave": False})
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert list(progress([1, 2], "epoch")) == [1, 2]
