"""A schedule as plain data, in the form tensor-schedule/1. Chapter: spec/schedule.md."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from impl import memory
from impl.caching import stable_name
from impl.dependencies import Touch
from impl.ir import UOp
from impl.schedule.plan import Plan
from impl.schedule.reasons import label, shown_numbers
from impl.symbolic import plain


def document(plan: Plan, hit: bool, nodes: Sequence[UOp]) -> dict[str, Any]:
    """The schedule as plain data: see r[schedule.document.complete]."""
    names = shown_numbers(plan)
    # r[impl schedule.document.outputs]
    outputs = list(dict.fromkeys([names[r.storage] for r in plan.results if r.storage in names]))
    return {
        "format": "tensor-schedule/1", "implementation": "impl",  # r[impl schedule.document.schema]
        "buffers": [_buffer_row(plan, n, i) for n, i in names.items()],
        # r[impl schedule.document.complete]
        "kernels": [{**_kernel_row(plan, k, names), "label": label(plan, k, nodes)}
                    for k in range(len(plan.kernels))],
        "dependencies": [{"before": d.before, "after": d.after, "kind": d.kind,
                          "buffer": names[d.storage], "version": d.version}
                         for d in plan.dependencies],
        "order": list(plan.order),
        "boundaries": [{"before": b, "after": a, "buffer": names[s], "reason": why}
                       for b, a, s, why in plan.boundaries],
        # r[impl schedule.document.agrees+2]
        "fusions": [{"kernel": number, "reason": kernel.fusion}
                    for number, kernel in enumerate(plan.kernels) if kernel.fusion],
        "notes": list(plan.notes),
        "memory": _memory_rows(plan, names),
        "outputs": outputs,
        "cache": {"hit": hit, "key": stable_name(plan.key)},
    }


def _buffer_row(plan: Plan, number: int, name: int) -> dict[str, Any]:
    storage = plan.storages[number]  # r[impl schedule.document.buffers]
    kind = "state" if number in plan.written else storage.kind
    return {"id": name, "name": f"b{name}", "kind": kind, "dtype": storage.dtype.name,
            "shape": [plain(storage.size)], "bytes": storage.nbytes, "device": storage.device}


def _kernel_row(plan: Plan, number: int, names: dict[int, int]) -> dict[str, Any]:
    kernel = plan.kernels[number]
    # r[impl schedule.document.devices+2]
    told: dict[str, Any] = {}
    if kernel.transfer is not None:  # r[impl multi.transfer.told, collectives.order.same]
        given = [touch.stop - touch.start for touch in kernel.reads]
        told["transfer"] = kernel.transfer.told(*given)
        told["sent"] = sum(map(kernel.transfer.sent, given))
    if number in plan.under_way:  # r[impl memory.transfer.covers+2]
        told["until"] = plan.under_way[number]
    # r[impl schedule.document.flow+2]
    kind = "loop" if kernel.loop else "copy" if kernel.task else "kernel"
    return {**told, "id": number, "name": kernel.name, "kind": kind,
            "device": kernel.device, "reads": [_touch_row(t, names) for t in kernel.reads],
            "writes": [_touch_row(t, names) for t in kernel.writes],
            "bytes": sum(t.stop - t.start for t in (*kernel.reads, *kernel.writes)),
            "stages": kernel.stages}


def _touch_row(touch: Touch, names: dict[int, int]) -> dict[str, int]:
    return {"buffer": names[touch.storage], "version": touch.version, "start": touch.start,
            "stop": touch.stop}


def _memory_rows(plan: Plan, names: dict[int, int]) -> dict[str, Any]:
    arenas, placements = [], []
    for number, (device, one) in enumerate(plan.memories.items()):
        arenas.append({"id": number, "device": device, "bytes": one.planned})
        placements += [{"buffer": names[s.storage], "arena": number,
                        "offset": one.offsets[s.storage], "bytes": s.nbytes, "first": s.first,
                        "last": s.last, "in_place_of": None} for s in one.lifetimes]
    total = plan.memories.values()
    return {"alignment": memory.ALIGNMENT, "arenas": arenas, "placements": placements,
            "planned": sum(m.planned for m in total), "unplanned": sum(m.unplanned for m in total),
            "lower_bound": sum(m.lower_bound for m in total)}
