"""Mistakes of schedulers that claim to need little memory."""

from __future__ import annotations

from conformance.protocol import Document
from conformance.saboteurs import AdapterSaboteur


class _Claimed(AdapterSaboteur):
    base = "conformance.adapters.impl_adapter:Adapter"


class MemoryIsNotShared(_Claimed):
    rule = "memory.plan.claimed"
    description = "all temporaries lie one after the other"

    def document(self, document: Document) -> None:
        memory, offset = document.get("memory"), 0
        if memory is None or len(memory["arenas"]) != 1:
            return
        for place in memory["placements"]:
            place["offset"], offset = offset, offset + place["bytes"]
        memory["planned"] = memory["arenas"][0]["bytes"] = memory["unplanned"] = offset


class _LevelByLevel(_Claimed):
    """Runs first all kernels that wait for nobody, then all that wait for these."""

    def document(self, document: Document) -> None:
        level = dict.fromkeys(document["order"], 0)
        for kernel in document["order"]:
            level[kernel] = max([level[each["before"]] + 1 for each in document["dependencies"]
                                 if each["after"] == kernel], default=0)
        document["order"] = sorted(document["order"], key=lambda kernel: (level[kernel], kernel))


class AllBegin(_LevelByLevel):
    rule = "ordering.peak.claimed"
    description = "whatever can run runs at once, and its results wait for the rest"


class ChainsTakeTurns(_LevelByLevel):
    rule = "ordering.chains.claimed"
    description = "chains of kernels take turns"
