"""Who is named by a process that waits, from what it knows of the others; without MPI."""
from __future__ import annotations

from typing import Any

import pytest

from conformance.trace import verifies
from impl.distributed import engine
from impl.distributed import monitor as monitors
from impl.distributed.monitor import Monitor, Said, Waiting
from impl.errors import DistributedError

WAITING = Waiting("0,1,2", (0, 1, 2), 3, "all-reduce", "train.py:7")


def monitor(monkeypatch: pytest.MonkeyPatch, **said: Said) -> Any:
    """What rank 0 of three knows."""
    monkeypatch.setattr(monitors, "ROLL", 0.0)
    found = Monitor.__new__(Monitor)
    found.rank, found.others, found.failed, found.cards = 0, [1, 2], None, {}
    found.said = {int(name[-1]): each for name, each in said.items()}
    found._opening, found._answered = None, False
    monkeypatch.setattr(found, "_hear", lambda: None)
    monkeypatch.setattr(found, "_tell", lambda said: None)
    return found


@verifies("distributed.other.named")
@pytest.mark.parametrize(("notes", "named"), [
    ("aab", [[2]] * 3), ("baa", [[0]] * 3), ("ab", [[1], [0]]),
    ("abab", [[1, 3], [0, 2]] * 2), ("abbbc", [[0, 4]] * 5)])
def test_who_differs_from_most_is_named(notes: str, named: list[list[int]]) -> None:
    found = [sorted(engine.strangers([each.encode() for each in notes], place))
             for place in range(len(notes))]
    assert found == named


@verifies("distributed.end.named+2")
def test_who_has_ended_without_a_collective_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Said(ended=True, counts={"0,1,2": 2})
    with pytest.raises(DistributedError, match="rank 2 has ended its program without collective 3"):
        monitor(monkeypatch, rank2=ended)._look(WAITING, False)
    monitor(monkeypatch, rank2=Said(ended=True, counts={"0,1,2": 3}))._look(WAITING, False)


@verifies("distributed.late.named+3")
def test_who_does_not_answer_the_roll_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DistributedError, match="rank 2 has not come to collective 3"):
        monitor(monkeypatch, rank1=Said(WAITING))._look(WAITING, True)
    with pytest.raises(DistributedError, match="rank 1 waits for all-reduce.*; rank 2 waits for"):
        monitor(monkeypatch, rank1=Said(WAITING), rank2=Said(WAITING))._look(WAITING, True)
