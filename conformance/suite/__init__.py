"""The portable suite: checks of what any implementation has to do, chapter by chapter.

A check is a function `test_...(subject)`.  It puts programs to an implementation through the
protocol and looks at what comes back.  Nothing here, and nothing that is used here, knows `impl`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def verifies(rule: str, *, observe: str = "values") -> Callable[[Decorated], Decorated]:
    """Say that a test verifies `rule`, by what it observes of an implementation. May be stacked.

    Args:
        rule: the id, with its revision unless that is the first: `"memory.reuse.disjoint+2"`.
        observe: the observation tier that the test needs ("values", "schedule", "memory", ...).
    """
    try:  # the command needs no pytest, and the site is built without it
        import pytest
    except ImportError:
        pytest = None  # type: ignore[assignment]

    def mark(test: Decorated) -> Decorated:
        rules = [*getattr(test, "__rules__", []), rule]
        setattr(test, "__rules__", rules)  # noqa: B010  (a class has no plain attribute for it)
        setattr(test, "__tier__", observe)  # noqa: B010
        marked: Decorated = test if pytest is None else pytest.mark.verifies(rule, observe)(test)
        return marked

    return mark


def after(*rules: str) -> Callable[[Decorated], Decorated]:
    """Say that a check means nothing while one of these rules is broken."""
    def mark(check: Decorated) -> Decorated:
        setattr(check, "__after__", rules)  # noqa: B010 (a function has no such attribute)
        return check
    return mark
