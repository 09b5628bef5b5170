"""A solution of the lesson symbolic: python -m conformance.learn solution symbolic"""
# mypy: ignore-errors
# ruff: noqa: B905


def corners(operation, left, right):
    values = [operation(a, b) for a in left for b in right]
    return min(values), max(values)


def interval(operation, left, right):
    (low, high), (least, most) = left, right
    if operation == "+":
        return low + least, high + most
    if operation == "-":
        return low - most, high - least
    if operation == "*":
        return corners(lambda a, b: a * b, left, right)
    if operation in ("max", "min"):
        choose = max if operation == "max" else min
        return choose(low, least), choose(high, most)
    if operation == "//":
        if least <= 0 <= most:     # nothing is farther away than what is divided by 1 or -1
            farthest = max(abs(low), abs(high))
            return -farthest, farthest
        return corners(lambda a, b: a // b, left, right)
    if least == most > 0 and low // least == high // least:
        return low % least, high % least
    return min(least + 1, 0), max(most - 1, 0)
