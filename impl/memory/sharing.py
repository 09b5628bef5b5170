"""Where a temporary takes over the memory of another one, and where that does not pay.

What may take over what is said in the chapter spec/dependencies.md, and when it is worth it too.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from impl.dependencies import (
    Accesses,
    Placement,
    Temporary,
    Touch,
    spans,
    take_over,
    touched_storages,
)
from impl.fusion import Group
from impl.ordering import Uses, alive_bytes
from impl.symbolic import plain


# --8<-- [start:share]
def share(groups: Sequence[Group], order: Sequence[int], placement: Placement,
          temporaries: dict[int, Temporary], accesses: Accesses) -> tuple[Accesses, set[int]]:
    """Let temporaries take over the memory of others: the accesses after that, and who did.

    It saves memory in the one step in which both are alive. So it is done where more is alive
    than the peak would be if it were done everywhere; elsewhere it only ties a compiler's hands.
    The placement is changed.
    """
    touched = touched_storages(accesses)
    nbytes = {n: plain(one.nbytes) for n, one in temporaries.items()}
    trial = replace(placement, storage=list(placement.storage), version=list(placement.version))
    alive = alive_bytes(order, Uses(nbytes, touched))
    born, _ = spans(order, touched)
    least = list(alive)
    for new in take_over(groups, order, touched, temporaries, trial):
        least[born[new]] -= nbytes[new]
    # r[impl dependencies.take-over.peak]
    lowest = max(least, default=0)
    steps = {step for step, now in enumerate(alive) if now > lowest}
    moved = take_over(groups, order, touched, temporaries, placement, steps) if steps else {}

    def after(touches: list[Touch]) -> list[Touch]:
        return [t._replace(storage=moved[t.storage][0], version=t.version + moved[t.storage][1])
                if t.storage in moved else t for t in touches]

    if moved:
        accesses = [(after(reads), after(writes)) for reads, writes in accesses]
    return accesses, set(moved)
# --8<-- [end:share]
