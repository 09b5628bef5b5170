"""A solution of the lesson fragments: python -m conformance.learn solution fragments"""
# mypy: ignore-errors
# ruff: noqa: B905
from itertools import product
from math import prod


def places(lanes, elements):
    digits = [*lanes, *elements]
    found = []
    for values in product(*(range(size) for size, _, _ in digits)):
        row = sum(value * digit[1] for value, digit in zip(values, digits))
        column = sum(value * digit[2] for value, digit in zip(values, digits))
        found.append((row, column))
    return found


def owner(lanes, elements, row, column):
    size = prod(digit[0] for digit in elements)
    return divmod(places(lanes, elements).index((row, column)), size)


def multiply(first, second, total, first_part, second_part, total_part):
    one, two, result = (
        dict(zip(places(*part), [number for lane in registers for number in lane]))
        for registers, part in ((first, first_part), (second, second_part), (total, total_part)))
    depth = 1 + max(column for _, column in one)
    for row, column in result:
        result[row, column] += sum(one[row, k] * two[k, column] for k in range(depth))
    numbers = iter([result[place] for place in places(*total_part)])
    return [[next(numbers) for _ in lane] for lane in total]
