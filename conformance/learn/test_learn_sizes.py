"""The lesson on symbolic sizes lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_sizes
from conformance.learn.lesson import published
from conformance.learn.lesson_sizes import (
    ARITHMETIC,
    COMPARED,
    GENERAL,
    GREATEST,
    SMALL,
    WATCHED,
    sizes,
    surely,
)
from conformance.learn.lessons import LESSONS
from impl.ir import BoundVariable, UOp

solution: Any = importlib.import_module("conformance.learn.solutions.sizes")
NAMES = ("multiplied", "most", "decided")


def said_of(parts: dict[str, Any]) -> Iterator[str]:
    module: Any = SimpleNamespace(
        **{name: parts.get(name, getattr(solution, name)) for name in NAMES})
    return map(str, sizes(module))


# Right, in other ways than the solution ----------------------------------------------------


def by_pairs(one: Any, other: Any) -> Any:
    """One dict for all pairs, cleared at the end."""
    found: Any = {}
    for (left, times), (right, more) in product(one.items(), other.items()):
        found.setdefault(tuple(sorted([*left, *right])), []).append(times * more)
    return {key: sum(all_of) for key, all_of in found.items() if sum(all_of)}


def by_counting(size: Any, intervals: Any) -> int:
    """All values of all variables: as tight as can be, and too slow for real intervals."""
    names = sorted({name for factors in size for name in factors})
    best = None
    for chosen in product(*(range(intervals[each][0], intervals[each][1] + 1) for each in names)):
        values = dict(zip(names, chosen, strict=True))
        total = 0
        for factors, times in size.items():
            for name in factors:
                times *= values[name]
            total += times
        best = total if best is None or total > best else best
    assert best is not None
    return best


def by_intervals(size: Any, intervals: Any) -> int:
    """An interval for each term, which grows factor by factor."""
    total = 0
    for factors, times in size.items():
        low = high = times
        for name in factors:
            ends = [side * end for side in (low, high) for end in intervals[name]]
            low, high = min(ends), max(ends)
        total += high
    return total


def by_the_span(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    return surely(one, sign, other, intervals)


def by_two_questions(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    """One is always below if the greatest of the difference is; equal is neither below nor above.
    """
    def below(left: Any, right: Any, room: int) -> bool:
        rest = dict(left)
        for key, times in right.items():
            rest[key] = rest.get(key, 0) - times
        return bool(solution.most(rest, intervals) < room)
    if sign == "==":
        if below(one, other, 0) or below(other, one, 0):
            return False
        return True if below(one, other, 1) and below(other, one, 1) else None
    room = 0 if sign == "<" else 1
    return True if below(one, other, room) else False if below(other, one, 1 - room) else None


@pytest.mark.parametrize("parts", [
    {}, {"multiplied": by_pairs}, {"most": by_counting}, {"most": by_intervals},
    {"decided": by_the_span}, {"decided": by_two_questions}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(said_of(parts)) == []


# Wrong, as one writes them -----------------------------------------------------------------


def last_one_wins(one: Any, other: Any) -> Any:
    return {tuple(sorted(left + right)): times * more
            for left, times in one.items() for right, more in other.items()}


def as_they_come(one: Any, other: Any) -> Any:
    """Factors are not sorted."""
    found: Any = {}
    for left, times in one.items():
        for right, more in other.items():
            found[left + right] = found.get(left + right, 0) + times * more
    return {key: times for key, times in found.items() if times}


def with_zeros(one: Any, other: Any) -> Any:
    found: Any = {}
    for left, times in one.items():
        for right, more in other.items():
            key = tuple(sorted(left + right))
            found[key] = found.get(key, 0) + times * more
    return found


def as_sets(one: Any, other: Any) -> Any:
    """n * n becomes n."""
    found: Any = {}
    for left, times in one.items():
        for right, more in other.items():
            key = tuple(sorted({*left, *right}))
            found[key] = found.get(key, 0) + times * more
    return {key: times for key, times in found.items() if times}


def term_by_term(one: Any, other: Any) -> Any:
    return {tuple(sorted(left + right)): times * more
            for (left, times), (right, more) in zip(one.items(), other.items(), strict=False)}


def at_the_top(size: Any, intervals: Any) -> int:
    """All variables at their greatest."""
    return int(lesson_sizes.value(size, {name: high for name, (_, high) in intervals.items()}))


def two_corners(size: Any, intervals: Any) -> int:
    """All at their least, or all at their greatest, for each term."""
    return sum(max(lesson_sizes.value({key: times}, {n: ends[side] for n, ends in
                                                     intervals.items()}) for side in (0, 1))
               for key, times in size.items())


def absolute(size: Any, intervals: Any) -> int:
    return sum(abs(times) * max(1, *(abs(end) for name in factors for end in intervals[name]), 0)
               ** len(factors) for factors, times in size.items())


def of_today(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    """With the least values of all, as if they were those of today."""
    least = {name: low for name, (low, _) in intervals.items()}
    return lesson_sizes.SIGNS[sign](lesson_sizes.value(one, least),
                                    lesson_sizes.value(other, least))


def side_by_side(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    """The interval of each side, without their difference."""
    (low, high), (least, greatest) = (lesson_sizes.span(each, intervals) for each in (one, other))
    if sign == "==":
        return True if low == high == least == greatest else \
            False if high < least or greatest < low else None
    if sign == "<":
        return True if high < least else False if low >= greatest else None
    return True if high <= least else False if low > greatest else None


def equal_as_texts(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    """What is not the same text is not equal."""
    return one == other if sign == "==" else solution.decided(one, sign, other, intervals)


def strict(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    """<= is taken for <."""
    return solution.decided(one, sign.replace("<=", "<"), other, intervals)


def either(one: Any, sign: str, other: Any, intervals: Any) -> Any:
    """What is not always so is never so."""
    return bool(solution.decided(one, sign, other, intervals))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"multiplied": last_one_wins}, f"{ARITHMETIC}: (n + 1) * (n + 1) is "),
    ({"multiplied": as_they_come}, f"{COMPARED}: n*m and m*n are one size, and have two names"),
    ({"multiplied": with_zeros}, f"{COMPARED}: 0*n is nothing, and makes two names for one size"),
    ({"multiplied": as_sets}, f"{ARITHMETIC}: (n) * (n) is 1 with n = -1, and yours is -1"),
    ({"multiplied": term_by_term}, f"{ARITHMETIC}: (1) * (n + 1) is 0 with n = -1, and "),
    ({"multiplied": lambda one, other: [*one.items()]}, "raised: that is no size: a dict from"),
    ({"most": at_the_top}, f"{GREATEST}: with n = 1, -n is -1: your memory is too small"),
    ({"most": two_corners}, f"{GREATEST}: with m = -3, n = 1, m*m*n - 3*m + 2 is 20"),
    ({"most": absolute}, f"{SMALL}: the terms of -n add up to -1 at most; you keep memory for 3"),
    ({"most": lambda size, intervals: 1 << 40}, f"{SMALL}: the terms of 0 add up to 0 at most"),
    ({"most": lambda size, intervals: None}, "raised: that is no whole number"),
    ({"decided": of_today}, f"{WATCHED}: 1 < n is not always False: with n = 2 it is True"),
    ({"decided": side_by_side}, f"{GENERAL}: n < n is False for all values, since their "
     "difference is always 0"),
    ({"decided": equal_as_texts}, f"{WATCHED}: 1 == n is not always False: with n = 1 it is True"),
    ({"decided": strict}, f"{WATCHED}: 0 <= 0 is not always False: it is True"),
    ({"decided": either}, f"{WATCHED}: 1 < n is not always False: with n = 2 it is True"),
    ({"decided": lambda *asked: None}, f"{GENERAL}: 0 < 0 is False for all values"),
    ({"decided": lambda *asked: "no"}, "raised: the answer is True, False, or None"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    found = []
    for each in said_of(parts):  # no further than to the one
        if said in each:
            return
        found.append(each)
    pytest.fail("\n".join(found))


def test_the_runtime_asks_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in ((BoundVariable, "number"), (UOp, "arithmetic")):  # loading changes them
        monkeypatch.setattr(place, name, vars(place)[name])
    module: Any = published(importlib.import_module("impl.symbolic.size"))
    n, m = (module.Variable(name, 1, 20).bind(7) for name in "nm")
    ours = [module.product(*map(module.node_of, (module.as_size(n) + 1, module.as_size(m) * 2))),
            module.extent_of(module.unbound((module.as_size(n) * 2 - m).expression))]
    asked: list[str] = []

    def counted(name: str) -> Any:
        def called(*given: Any) -> Any:
            asked.append(name)
            return getattr(solution, name)(*given)
        return called

    vars(module).update({name: counted(name) for name in NAMES})
    lesson_sizes.install(module)
    one, two = module.as_size(n), module.as_size(m)
    assert module.product((one + 1).expression, (two * 2).expression) is ours[0]
    found = module.extent_of(module.unbound((one * 2 - two).expression))
    assert found.expression is ours[1].expression and module.plain(found) == 39
    with module.watching() as noted:
        _ = one + 1 > one, one < 21, one < 5, one == two
    assert [module.text(each) for each in noted] == ["n < 5", "m == n"]
    assert asked.count("decided") == 4 and {*asked} == {*NAMES}
    vars(module).update(decided=either)
    with pytest.raises(ValueError, match=r'decided\(n, "==", m\) answers False, and it is True'), \
            module.watching():
        _ = one == two


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "sizes.md").read_text(encoding="utf-8")
    for parts in (WRONG[1][0], WRONG[11][0]):
        assert "\n".join(map(str.rstrip, next(said_of(parts)).strip().splitlines())) in page
    assert "\n".join(lesson_sizes.score(solution)) in page
    assert len(LESSONS["sizes"].hints) == 6 and "the next of six hints" in page
