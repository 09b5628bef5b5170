"""A solution of the lesson barriers: python -m conformance.learn solution barriers"""
# mypy: ignore-errors
# ruff: noqa: A002, B905
from conformance.learn.lesson_barriers import Again, Touched


def must_wait(open, stage):
    return bool(open.stored & (stage.stored | stage.loaded) or open.loaded & stage.stored)


def barriers(items):
    return placed(items, Touched())[0]


def placed(items, open):
    answer = []
    for item in items:
        if isinstance(item, Again):
            inner, open = around(item, open)
            answer.append(inner)
        else:
            answer.append(must_wait(open, item))
            open = item if answer[-1] else open | item
    return answer, open


def around(loop, open):
    while True:
        inner, after = placed(loop.items, open)
        if after | open == open:
            return inner, after
        open = open | after
