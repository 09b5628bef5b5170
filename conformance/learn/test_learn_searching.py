"""The lesson on searching lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.kernels import kernel_builder as kb
from conformance.learn import lesson_searching
from conformance.learn.lesson import published
from conformance.learn.lesson_searching import (
    EVERY,
    HARMLESS,
    LIMITS,
    World,
    products,
    right,
    searching,
)
from conformance.learn.lessons import LESSONS
from impl.kernel import DeviceLimits

solution: Any = importlib.import_module("conformance.learn.solutions.searching")
NAMES = ("least", "chosen", "search")
Calls = Callable[..., Any]


def said_of(parts: dict[str, Any]) -> str:
    module: Any = SimpleNamespace(
        **{name: parts.get(name, getattr(solution, name)) for name in NAMES})
    return "\n".join(map(str, searching(module)))


# Right, in other ways than the solution ----------------------------------------------------


def all_rounds(runners: Any, sample: Calls, rounds: int) -> Any:
    """Nobody is given up."""
    turns = [[sample(each) for each in runners] for _ in range(rounds)]
    return [min(samples) for samples in zip(*turns, strict=True)]


def one_cycle(runners: Any, sample: Calls, rounds: int) -> Any:
    """Sampled one after the other, round and round."""
    found: dict[int, list[float]] = {place: [] for place in range(len(runners))}
    for number in range(rounds * len(runners)):
        place = number % len(runners)
        found[place].append(sample(runners[place]))
    return [min(samples) for samples in found.values()]


def by_sorting(start: Any, others: Any, sample: Calls, rounds: int) -> Any:
    times = all_rounds([start, *others], sample, rounds)
    good = sorted((taken, place) for place, taken in enumerate(times[1:])
                  if taken <= 0.98 * times[0])
    return others[good[0][1]] if good else start


def with_pairs(starts: Any, more: Calls, times: Calls, width: int, over: Calls) -> Any:
    """The beam is a list of pairs; what was tried is a dict."""
    tried: dict[str, float] = {}

    def grown(beam: Any, made: Any) -> Any:
        new = {each.kernel: each for each in reversed(made) if each.kernel not in tried}
        pairs = list(zip(times(list(new.values())), new.values(), strict=True))
        tried.update((each.kernel, taken) for taken, each in pairs)
        both = sorted([*beam, *pairs], key=lambda pair: float(pair[0]))
        return [pair for pair in both if pair[0] != math.inf][:width]

    beam, best = grown([], starts), [math.inf, math.inf, math.inf]
    while not over() and beam:
        best.append(beam[0][0])
        if best[-1] == best[-3]:
            break
        count = len(tried)
        beam = grown(beam, [longer for _, each in beam for longer in more(each)])
        if len(tried) == count:
            break
    return [each for _, each in beam]


def one_by_one(starts: Any, more: Calls, times: Calls, width: int, over: Calls) -> Any:
    """Each is measured alone; what was extended is not extended again."""
    known: dict[str, tuple[float, Any]] = {}

    def tried(one: Any) -> None:
        if one.kernel not in known:
            known[one.kernel] = (math.inf, one)
            known[one.kernel] = (times([one])[0], one)

    def best() -> Any:
        return [each for seconds, each in sorted(known.values(), key=lambda pair: pair[0])[:width]
                if seconds < math.inf]

    for each in starts:
        tried(each)
    idle, done = 0, set[str]()
    while idle < 2 and not over():
        beam = best()
        leaders = [each for each in beam if each.kernel not in done]
        done |= {each.kernel for each in leaders}
        new = [longer for each in leaders for longer in more(each) if longer.kernel not in known]
        if not new:
            break
        for each in new:
            tried(each)
        idle = idle + 1 if best()[:1] == beam[:1] else 0
    return best()


@pytest.mark.parametrize("parts", [
    {}, {"least": all_rounds}, {"least": one_cycle}, {"chosen": by_sorting},
    {"search": with_pairs}, {"search": one_by_one}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert said_of(parts) == ""


# Wrong, as one writes them -----------------------------------------------------------------


def in_a_row(runners: Any, sample: Calls, rounds: int) -> Any:
    return [min(sample(each) for _ in range(rounds)) for each in runners]


def means(runners: Any, sample: Calls, rounds: int) -> Any:
    turns = [[sample(each) for each in runners] for _ in range(rounds)]
    return [sum(samples) / rounds for samples in zip(*turns, strict=True)]


def once(runners: Any, sample: Calls, rounds: int) -> Any:
    return [sample(each) for each in runners]


def soon_given_up(runners: Any, sample: Calls, rounds: int) -> Any:
    """After one sample."""
    found = [sample(each) for each in runners]
    for _ in range(rounds - 1):
        for place, runner in enumerate(runners):
            if found[place] < 1.5 * min(found):
                found[place] = min(found[place], sample(runner))
    return found


def last_counts(runners: Any, sample: Calls, rounds: int) -> Any:
    found = []
    for _ in range(rounds):
        found = [sample(each) for each in runners]
    return found


def fastest(start: Any, others: Any, sample: Calls, rounds: int) -> Any:
    runners = [start, *others]
    times = all_rounds(runners, sample, rounds)
    return runners[times.index(min(times))]


def first_that_gains(start: Any, others: Any, sample: Calls, rounds: int) -> Any:
    limit, *times = all_rounds([start, *others], sample, rounds)
    return next((each for each, taken in zip(others, times, strict=True)
                 if taken <= 0.98 * limit), start)


def one_after_the_other(start: Any, others: Any, sample: Calls, rounds: int) -> Any:
    limit = min(sample(start) for _ in range(rounds))
    times = all_rounds(others, sample, rounds)
    best = min(times, default=math.inf)
    return others[times.index(best)] if best <= 0.98 * limit else start


def searcher(seen: bool = True, old: bool = True, wide: bool = True, patient: int = 2,
             checks: bool = True, running: bool = True, orders: bool = True,
             starts_seen: bool = True) -> Calls:
    """The search with a mistake."""
    def search(starts: Any, more: Calls, times: Calls, width: int, over: Calls) -> Any:
        tried: set[Any] = set()

        def measured(made: Any) -> Any:
            new = []
            for each in made:
                name = each.kernel if orders else each.steps
                if name not in tried or not seen:
                    tried.add(name)
                    new.append(each)
            return [(taken, each) for taken, each in zip(times(new), new, strict=True)
                    if taken < math.inf or not running]

        beam = sorted(measured(starts), key=lambda pair: float(pair[0]))[:width]
        if not starts_seen:
            tried.clear()
        idle = turn = 0
        while beam and idle < patient and turn < 12 and not (checks and over()):
            best, turn = beam[0][0], turn + 1
            new = measured([longer for _, each in beam for longer in more(each)])
            if not new:
                break
            beam = sorted([*beam, *new] if old else new, key=lambda pair: float(pair[0]))
            beam = beam[:width] if wide else beam
            idle = 0 if beam[0][0] < best else idle + 1
        return [each for _, each in beam[:width]]
    return search


def with_the_times(*given: Any) -> Any:
    return [(1.0, each) for each in solution.search(*given)]


def the_best_alone(*given: Any) -> Any:
    return next(iter(solution.search(*given)), None)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"least": in_a_row}, f"{HARMLESS}: A takes 10 and B takes 9, and you say 30 and 9"),
    ({"least": means}, f"{HARMLESS}: A takes 10 and B takes 9, and you say 20 and 18"),
    ({"least": once}, f"{HARMLESS}: A was sampled 1 times, and 3 samples of it are wanted"),
    ({"least": soon_given_up}, f"{HARMLESS}: A takes 10 and B takes 9, and you say 10 and 27"),
    ({"least": last_counts}, f"{HARMLESS}: A takes 10 and B takes 9, and you say 30 and 9"),
    ({"least": lambda runners, sample, rounds: None}, "raised: least answers None, and not a "),
    ({"chosen": fastest}, f"{HARMLESS}: rules takes 100 and A takes 99. You choose A, and rules "
     "is to be chosen: A is less than 2 in 100 faster"),
    ({"chosen": first_that_gains}, f"{HARMLESS}: rules takes 10, A takes 9 and B takes 8. You "
     "choose A, and B is to be chosen"),
    ({"chosen": one_after_the_other}, f"{HARMLESS}: rules takes 10 and A takes 9. You choose "
     "rules, and A is to be chosen\n\n"),
    ({"chosen": lambda start, others, *rest: None}, "raised: chosen answers None"),
    ({"search": searcher(orders=False)}, f"{LIMITS}: the kernel of A B is tried a second time"),
    ({"search": searcher(seen=False)}, f"{LIMITS}: the kernel of A is tried a second time"),
    ({"search": searcher(starts_seen=False)}, f"{LIMITS}: the kernel of A is tried a second time"),
    ({"search": searcher(old=False)}, f"{HARMLESS}: you answer [A]; the best 1 of what was tried, "
     "the fastest first, is [no steps]"),
    ({"search": searcher(wide=False)}, f"{LIMITS}: you try A A, though it is none of the best 1 "
     "with one more step"),
    ({"search": searcher(patient=1)}, f"{EVERY}: you never try A A: it is A with one more step, "
     "and that was one of the best 2"),
    ({"search": searcher(patient=3)}, f"{LIMITS}: you try A A A, though two generations had found "
     "nothing faster"),
    ({"search": searcher(checks=False)}, f"{LIMITS}: time was up, and you try A"),
    ({"search": searcher(running=False)}, f"{HARMLESS}: you answer [no steps]; the best 1 of what "
     "was tried, the fastest first, is []"),
    ({"search": with_the_times}, "and not a list of candidates"),
    ({"search": the_best_alone}, "raised: search answers Candidate("),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in said_of(parts)


@pytest.mark.parametrize("parts", [
    {"least": lambda runners, sample, rounds: [sample(runners[0]) for _ in iter(int, 1)]},
    {"search": lambda starts, more, times, *rest: [times(starts) for _ in iter(int, 1)]}])
def test_what_never_ends_is_ended(parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_searching, "_MOST_CALLS", 50)
    found = said_of(parts)
    assert "TimeoutError: it was not done after 50" in found or "IndexError" in found


def test_the_runtime_searches_as_the_reader_does() -> None:
    module = published(importlib.import_module("impl.searching.beam"))
    known: Any = module
    asked: list[str] = []
    cost = {"": 8.0, "SWAP(0,1)": 7.0}

    def counted(name: str) -> Calls:
        def call(*given: Any) -> Any:
            asked.append(name)
            return getattr(solution, name)(*given)
        return call

    vars(module).update({name: counted(name) for name in NAMES})
    lesson_searching.install(module)
    released: list[Any] = []
    bench: Any = SimpleNamespace(limits=DeviceLimits(), trial=lambda asts, seconds: list(asts),
                                 release=released.extend)
    product = kb.matmul(4, 4, 4)
    search = known._Search(product, bench, 2, [])
    search.trial = SimpleNamespace(
        sample=lambda ast: cost.get(" ".join(ast.arg.steps), 9.0))
    search.draw = known.random.Random(0)
    start = known._Candidate((), product)
    beam = search._measured([start], ())
    found = search._last(start, search._grown(start, beam))
    assert (found.steps, found.seconds, found.start_seconds) == (("SWAP(0,1)",), 7.0, 8.0)
    assert {*asked} == {*NAMES} and len(released) == search.tried > 10


def test_a_narrow_beam_is_stuck_and_a_wide_one_is_not() -> None:
    seconds = products()
    least = min(seconds.values())
    reached = [seconds[right(World(seconds, width)).beam[0]] for width in (1, 4, 5)]
    assert reached[0] == reached[1] == 4 * least and reached[2] == least


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "searching.md").read_text(encoding="utf-8")
    for parts in (WRONG[3][0], WRONG[15][0]):
        assert "\n".join(map(str.rstrip, said_of(parts).strip().splitlines())) in page
    assert "\n".join(lesson_searching.score(solution)) in page
    assert len(LESSONS["searching"].hints) == 5 and "the next of five hints" in page


def test_our_race_takes_as_long_as_the_page_says() -> None:
    """Two samples of each, and more of those that are near: what is slow is given up."""
    beam: Any = importlib.import_module("impl.searching.beam")

    def ours(runners: Any, sample: Calls, rounds: int) -> Any:
        assert rounds == beam._SAMPLES
        warm: set[str] = set()

        def sampled(name: str) -> Any:
            if name in warm:
                return sample(name)
            warm.add(name)
            return 1.0  # of a first run, which counts for nothing

        search = beam._Search(None, None, 2, [])
        search.trial = SimpleNamespace(sample=sampled)
        made = [beam._Candidate((), None, program=name) for name in runners]
        search._race(made, ())
        return [each.seconds for each in made]

    taken = f"{lesson_searching._race_cost(ours):.0f}"
    assert f"a race of 32 takes {taken} s with you" in "\n".join(lesson_searching.score(solution))
    page = (learn.ROOT / "docs" / "course" / "searching.md").read_text(encoding="utf-8")
    assert f"and ours takes {taken} seconds too" in page
