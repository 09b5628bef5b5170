"""A solution of the lesson memory: python -m conformance.learn solution memory"""
# mypy: ignore-errors
from impl.memory import MemoryPlan


def lower_bound(spans):
    changes = {}
    for span in spans:
        changes[span.first] = changes.get(span.first, 0) + span.nbytes
        changes[span.last + 1] = changes.get(span.last + 1, 0) - span.nbytes
    most = alive = 0
    for position in sorted(changes):
        alive += changes[position]
        most = max(most, alive)
    return most


def plan(spans, reuse=True):
    total = sum(span.nbytes for span in spans)
    if reuse:
        ways = [(lambda span: -span.nbytes), (lambda span: span.first - span.last),
                (lambda span: span.first)]
        tried = [first_fit(sorted(spans, key=way)) for way in ways]
        offsets = min(tried, key=lambda offsets: height(offsets, spans))
    else:
        offsets = {}
        for span in spans:
            offsets[span.storage] = height(offsets, spans)
    return MemoryPlan(offsets, list(spans), height(offsets, spans), total, lower_bound(spans))


def height(offsets, spans):
    return max((offsets[span.storage] + span.nbytes for span in spans if span.storage in offsets),
               default=0)


def first_fit(spans):
    placed, offsets = [], {}
    for span in spans:
        taken = sorted((offsets[other.storage], other.nbytes) for other in placed
                       if span.meets(other))
        offset = 0
        for start, size in taken:
            if offset + span.nbytes <= start:
                break
            offset = max(offset, start + size)
        offsets[span.storage] = offset
        placed.append(span)
    return offsets
