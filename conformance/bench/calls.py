"""A function of one tiny kernel, and the same function with ten numbers that it reads besides."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.bench.peers import NotMeasured, repeated

#: How many names the second one reads; each holds 1.
NAMES = 10


class TenNames:
    """What a user keeps in an object, and may change between two calls."""

    def __init__(self) -> None:
        self.a = self.b = self.c = self.d = self.e = 1.0
        self.f = self.g = self.h = self.i = self.j = 1.0


def function(names: int, done: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """`x + y`, or `x * the sum of ten names + y`; `done` asks for the value."""
    if not names:
        return lambda x, y: done(x + y)
    o = TenNames()
    return lambda x, y: done(
        x * (o.a + o.b + o.c + o.d + o.e + o.f + o.g + o.h + o.i + o.j) + y)


def measured(names: int, make: Callable[[np.ndarray], Any],
             captured: Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]],
             done: Callable[[Any], Any], waited: Callable[[Any], Any]) -> dict[str, float]:
    """`seconds` of a call that was captured before, in the words of a library; least of many tries,
    since the call is so short that whatever else runs is seen.
    """
    if names not in (0, NAMES):
        raise NotMeasured(f"there is no function of {names} names")
    x, y = (make(np.arange(8, dtype=np.float32) + more) for more in (0, 1))
    call = captured(function(names, done))
    for _ in range(4):  # what was right once may be wrong when it is run again
        found = waited(call(x, y))
        found = found.numpy() if hasattr(found, "numpy") else np.asarray(found)
        np.testing.assert_array_equal(found, np.arange(8) * ((names or 1) + 1) + 1)
    return {"seconds": min(repeated(lambda: waited(call(x, y)), 200) for _ in range(50))}
