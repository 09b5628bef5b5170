"""Programs that are run in many orders, for the tests of who has to wait for whom."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from impl import Context, Tensor


def realized(values: list[int]) -> Tensor:
    return Tensor(np.array(values, np.int32)).realize()


def in_every_order(program: Callable[[], list[list[int]]], expected: list[list[int]]) -> None:
    """The program's values, fused and not, in the usual and in random orders.

    The default device is tried too: it stores element by element, where the reference reads all
    that a kernel reads before it stores.
    """
    for fuse in (1, 0):
        with Context(FUSE=fuse):
            assert program() == expected, f"FUSE={fuse}"
        for seed in (-1, *range(6)):
            with Context(DEVICE="REFERENCE", FUSE=fuse, ORDER_SEED=seed, POISON=1):
                assert program() == expected, f"FUSE={fuse} ORDER_SEED={seed}"
