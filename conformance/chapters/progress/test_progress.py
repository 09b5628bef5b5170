"""One line on the terminal while something takes long. See spec/progress.md."""
from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.trace import verifies
from impl import Context, Tensor, nn, progress
from impl.cpu import compiler_problem, objects
from impl.nn import state
from impl.progress import Progress

SECONDS = 30.0


class Screen(io.StringIO):
    """A terminal, which says when something was written."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count

    def shows(self, text: str) -> None:
        """Wait until something stands there."""
        while text not in self.getvalue():
            self.written.clear()
            assert self.written.wait(SECONDS), self.getvalue()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal as stderr, and no patience."""
    found = Screen()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))
    monkeypatch.setattr(progress, "LATE", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    return found


@verifies("progress.line.late")
def test_work_that_takes_long_says_how_far_it_is(screen: Screen) -> None:
    with Progress("baking", 4) as work:
        work.step(2)
        screen.shows("\rbaking: [##########..........] 2 of 4, 0 s\x1b[K")
        with Progress("stirring", 7):
            pass
    assert "stirring" not in screen.getvalue()
    with Progress("stirring") as work:  # and the next one may speak again
        work.step(1234)
        screen.shows("\rstirring: 1,234 done, 0 s\x1b[K")


@verifies("progress.line.late")
def test_quick_work_says_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LATE", SECONDS)
    with Progress("baking", 4):
        pass
    assert screen.getvalue() == ""


@verifies("progress.line.late")
def test_a_line_is_no_wider_than_the_terminal() -> None:
    work = Progress("compiling kernels", 1000)
    work.step(1000)
    assert work.text(61) == "compiling kernels: [####################] 1,000 of 1,000, 61 s"
    assert len(work.text(61, 40)) == 39


@verifies("progress.line.gone")
def test_the_line_is_gone_when_the_work_has_ended(screen: Screen) -> None:
    with pytest.raises(ZeroDivisionError), Progress("baking", 4):
        assert screen.written.wait(SECONDS)
        raise ZeroDivisionError
    assert screen.getvalue().endswith("\r\x1b[K")
    assert progress._line.acquire(blocking=False)
    progress._line.release()


@verifies("progress.line.quiet")
def test_nobody_is_told_who_does_not_look(screen: Screen) -> None:
    with Context(PROGRESS=0), Progress("baking", 4):
        assert not screen.written.wait(0.05)
    screen.terminal = False
    with Progress("baking", 4):
        assert not screen.written.wait(0.05)


@contextmanager
def noted(place: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Progress]]:
    """What a module begins that may take long."""
    found: list[Progress] = []

    class Noted(Progress):
        def __enter__(self) -> Progress:
            found.append(self)
            return super().__enter__()

    with monkeypatch.context() as patched:
        patched.setattr(place, "Progress", Noted)
        yield found


@verifies("progress.line.late")
def test_loading_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with noted(state, monkeypatch) as found:
        model = nn.Linear(2, 3)
        state.load_state_dict(model, state.get_state_dict(nn.Linear(2, 3)))
    assert [each.what for each in found] == ["loading 2 tensors"]


@pytest.mark.skipif(bool(compiler_problem()), reason="there is no C compiler")
@verifies("progress.line.late")
def test_compiling_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with noted(objects, monkeypatch) as found, Context(DEVICE="CPU", CACHELEVEL=0):
        x = Tensor([0.25, 0.75]).realize()
        ((x * 1.2345).contiguous().sum() + 6.789).realize()
    assert {each.what for each in found} == {"compiling kernels"}
    assert all(each.done == each.total > 0 for each in found)
