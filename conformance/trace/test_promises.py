"""Promises are read from what is there."""
from __future__ import annotations

import pytest

from conformance.trace import ROOT, promises


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, int, int, int, str]]:
    return list(promises.rows())


@pytest.mark.slow
def test_each_promise_has_rules_tests_and_mistakes(
        rows: list[tuple[str, str, int, int, int, str]]) -> None:
    assert [row[0] for row in rows if not min(row[2:5])] == []


def test_each_group_of_rules_is_one(rows: list[tuple[str, str, int, int, int, str]]) -> None:
    for promise in promises.PROMISES:
        for group in promise.rules:
            assert (ROOT / "spec" / f"{group.split('.')[0]}.md").is_file(), group


def test_runs_are_told_with_their_commits(
        rows: list[tuple[str, str, int, int, int, str]]) -> None:
    told = {row[0]: row[5] for row in rows}
    assert all("commit" in run or ", at " in run or "stored" in run or "each change" in run
               or "first row" in run for run in told.values()), told
    captured = next(run for run in told.values() if "captured programs" in run)
    assert " 0 silent differences" in captured
