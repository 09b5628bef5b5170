"""A solution of the lesson searching: python -m conformance.learn solution searching"""
# mypy: ignore-errors
# ruff: noqa: B905
import math


def least(runners, sample, rounds):
    found = [math.inf] * len(runners)
    for turn in range(rounds):
        limit = 1.5 * min(found, default=0)
        for place, runner in enumerate(runners):
            if turn < 2 or found[place] < limit:
                found[place] = min(found[place], sample(runner))
    return found


def chosen(start, others, sample, rounds):
    runners = [start, *others]
    found = least(runners, sample, rounds)
    best = found.index(min(found))
    return runners[best] if found[best] <= 0.98 * found[0] else start


def search(starts, more, times, width, over):
    seen, seconds = set(), {}

    def measured(candidates):
        new = []
        for each in candidates:
            if each.kernel not in seen:
                seen.add(each.kernel)
                new.append(each)
        for each, taken in zip(new, times(new)):
            if taken < math.inf:
                seconds[each] = taken
        return sorted(seconds, key=seconds.get)[:width]

    beam, idle = measured(starts), 0
    while beam and idle < 2 and not over():
        best, tried = seconds[beam[0]], len(seen)
        beam = measured([longer for each in beam for longer in more(each)])
        if len(seen) == tried:
            break
        idle = 0 if seconds[beam[0]] < best else idle + 1
    return beam
