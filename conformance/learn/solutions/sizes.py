"""A solution of the lesson sizes: python -m conformance.learn solution sizes"""
# mypy: ignore-errors
from itertools import product


def multiplied(one, other):
    found = {}
    for factors, times in one.items():
        for others, more in other.items():
            key = tuple(sorted(factors + others))
            found[key] = found.get(key, 0) + times * more
    return {key: times for key, times in found.items() if times}


def most(size, intervals):
    total = 0
    for factors, times in size.items():
        corners = []
        for ends in product(*(intervals[name] for name in factors)):
            value = times
            for end in ends:
                value *= end
            corners.append(value)
        total += max(corners)
    return total


def decided(one, sign, other, intervals):
    turned = multiplied(other, {(): -1})
    difference = {key: one.get(key, 0) + turned.get(key, 0) for key in {**one, **turned}}
    high = most(difference, intervals)
    low = -most(multiplied(difference, {(): -1}), intervals)
    if sign == "==":
        return True if low == high == 0 else False if low > 0 or high < 0 else None
    if sign == "<=":
        return True if high <= 0 else False if low > 0 else None
    return True if high < 0 else False if low >= 0 else None
