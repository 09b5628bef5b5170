"""Which tests a run has: all but the slow ones, those of a folder, a part of them."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from conformance.conftest import pytest_collection_modifyitems


def _left(shard: tuple[int, int] = (1, 1), args: tuple[str, ...] = ("conformance",),
          **asked: str) -> str:
    """What is left of some tests, of which the capital letters are slow; and what is not."""
    items: list[Any] = [Mock(get_closest_marker=lambda mark, name=name:
                             mark == "slow" and name.isupper() or None) for name in "aBcDefGh"]
    for item, name in zip(items, "aBcDefGh", strict=True):
        item.name = name
    gone: list[Any] = []
    config: Any = SimpleNamespace(
        args=[*args], getini=lambda name: {"testpaths": ["conformance"]}[name],
        option=SimpleNamespace(**{"markexpr": "", "keyword": "", "shard": shard, **asked}),
        hook=SimpleNamespace(pytest_deselected=lambda items: gone.extend(items)))
    pytest_collection_modifyitems(config, items)
    return "".join(each.name for each in items) + "".join(each.name for each in gone)


@pytest.mark.parametrize(("asked", "left"), [
    ({}, "acefhBDG"), ({"markexpr": "slow"}, "aBcDefGh"), ({"keyword": "name"}, "aBcDefGh"),
    ({"args": ("conformance/house",)}, "aBcDefGh"),
    ({"args": ("conformance/house/test_house.py::test_names",)}, "aBcDefGh"),
    ({"shard": (1, 2)}, "aehBcDfG"), ({"shard": (2, 2)}, "cfaBDeGh"),
    ({"markexpr": "slow", "shard": (3, 4)}, "cGaBDefh")])
def test_slow_tests_are_for_who_asks(asked: dict[str, Any], left: str) -> None:
    assert _left(**asked) == left
