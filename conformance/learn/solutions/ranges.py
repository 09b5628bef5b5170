"""A solution of the lesson ranges: python -m conformance.learn solution ranges"""
# mypy: ignore-errors
# ruff: noqa: B905
from math import prod


def source(movement, argument, shape, index):
    if movement == "shrink":
        return tuple(i + start for i, (start, _) in zip(index, argument)), True
    if movement == "flip":
        return tuple(size - 1 - i if axis in argument else i
                     for axis, (i, size) in enumerate(zip(index, shape))), True
    if movement == "permute":
        moved = list(index)
        for i, axis in zip(index, argument):
            moved[axis] = i
        return tuple(moved), True
    if movement == "expand":
        return tuple(i if size == new else 0
                     for i, size, new in zip(index, shape, argument)), True
    if movement == "pad":
        return padded(argument, shape, index)
    longer = [(i, size) for i, size in zip(index, argument) if size != 1]
    parts = iter(runs([i for i, _ in longer], [size for _, size in longer],
                      [size for size in shape if size != 1]))
    return tuple(0 if size == 1 else next(parts) for size in shape), True


def padded(amounts, shape, index):
    inside, moved = True, []
    for i, (before, after), size in zip(index, amounts, shape):
        if before:
            i = i - before
            inside = inside & (i >= 0)
        if after:
            inside = inside & (i < size)
        moved.append(i)
    return tuple(moved), inside


def runs(index, outer, inner):
    """Run by run: a run ends where the products of both shapes agree."""
    i = j = 0
    found = []
    while i < len(outer):
        first_i, first_j, i, j = i, j, i + 1, j + 1
        while prod(outer[:i]) != prod(inner[:j]):
            if prod(outer[:i]) < prod(inner[:j]):
                i += 1
            else:
                j += 1
        found += taken_apart(index[first_i:i], outer[first_i:i], inner[first_j:j])
    return found


def taken_apart(index, outer, inner):
    """One number of them all, and the parts of that."""
    flat = index[0]
    for i, size in zip(index[1:], outer[1:]):
        flat = flat * size + i
    parts = []
    for size in inner[:0:-1]:
        parts.append(flat % size)
        flat = flat // size
    return [flat, *parts[::-1]]
