"""What is kept for meshes between runs."""
from __future__ import annotations

import numpy as np

from conformance.trace import verifies
from impl import Context, Mesh, Tensor
from impl.realize import session


@verifies("realize.arena.meshes+3")
def test_meshes_that_are_no_longer_used_keep_no_arena() -> None:
    with Context(DEVICE="REFERENCE"):
        for place in [place for place in session.arenas if isinstance(place, Mesh)]:
            del session.arenas[place]  # of tests before
        used = []
        for count in (2, 3, 4, 2, 5):
            mesh = Mesh(["REFERENCE", *(f"REFERENCE:{i}" for i in range(1, count))])
            x = Tensor(np.ones((60, 4), np.float32)).shard(mesh, 0).realize()
            assert (x.sum(0) * 2).sum().item() == 480
            used.append(mesh)
            kept = [place for place in session.arenas if isinstance(place, Mesh)]
            assert kept == list(dict.fromkeys(reversed(used)))[:2][::-1]
