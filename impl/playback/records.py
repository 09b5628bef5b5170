"""Records: a question that was put to the scheduler or the renderer, and the answer as text."""
from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impl import realize, settings
from impl.caching import Store, stable_name, store
from impl.caching.disk import say_once, unusable
from impl.device import Device
from impl.effects import Buffer, Effects, leaf_of
from impl.errors import user_line
from impl.ir import Ops, UOp
from impl.playback.text import kernel_text, schedule_text
from impl.schedule import Plan

#: Another number whenever a record of the old form cannot be read as one of the new form.
FORMAT = "tensor-schedule-record/1"
KIND = "record"


@dataclass
class Record:
    """One question and its answer.

    `question` is what `encode` makes of the effects of a schedule, or the kernel of a program
    before it is optimised; `answer` is the schedule or the source, as text.
    """

    kind: str                  # "schedule" or "program"
    question: Any
    answer: str
    device: str                # the default device, or the one that the program is for
    machine: tuple[Any, ...]   # what the device says of itself that can change the answer
    settings: dict[str, settings.Value]
    line: str                  # the user's line
    name: str                  # the program's name; of a schedule, the name of its key


def encode(effects: Effects) -> dict[str, Any]:
    """The graph of a schedule as rows, sources first; a buffer is a number, device and size."""
    place: dict[UOp, int] = {}
    slots: dict[Buffer, int] = {}
    rows: list[tuple[Any, ...]] = []
    for node in effects.nodes:
        place[node] = len(place)
        leaf = leaf_of(node)
        if leaf is not None:
            rows.append(("leaf", slots.setdefault(leaf.arg[0], len(slots)), node.shape))
        elif node.op is Ops.BIND:
            rows.append(("bind", node))
        else:
            rows.append((int(node.op), node.dtype, tuple(place[s] for s in node.src), node.arg,
                         node.tag))
    held = [(slots[u.arg[0]], u.arg[2]) for u in effects.held if u.arg[0] in slots]
    return {"rows": rows, "buffers": [(b.device, b.dtype, b.size) for b in slots],
            "roots": [place[root] for root in effects.roots], "held": sorted(held)}


def decode(question: dict[str, Any]) -> Effects:
    """The effects again, on buffers without memory."""
    buffers = [Buffer(*parts) for parts in question["buffers"]]
    nodes: list[UOp] = []
    for first, *rest in question["rows"]:
        if first == "leaf":
            nodes.append(buffers[rest[0]].leaf(rest[1]))
        elif first == "bind":
            nodes.append(rest[0])
        elif first == Ops.CONST:
            nodes.append(UOp.const(rest[0], rest[2]))
        else:
            dtype, sources, arg, tag = rest
            nodes.append(UOp(Ops(first), dtype, tuple(nodes[i] for i in sources), arg, tag))
    return Effects([nodes[i] for i in question["roots"]], list(dict.fromkeys(nodes)),
                   {buffers[slot].leaf(shape) for slot, shape in question["held"]})


_recorded: set[Any] = set()


def folder_of_records() -> Path:
    """Where records are kept: a folder in that of the compiled kernels."""
    return store().folder / "process_replay"


def capture_schedule(effects: Effects, plan: Plan) -> None:
    """Record a schedule, once in a process."""
    if plan.key not in _recorded:
        _recorded.add(plan.key)
        device = Device.DEFAULT
        _keep(Record("schedule", encode(effects), schedule_text(plan, effects.nodes), device,
                     (), plan_settings(), user_line(), stable_name(plan.key)[:12]))


def capture_programs(plan: Plan) -> None:
    """Record the programs of a plan, each once in a process."""
    for kernel, program in zip(plan.kernels, realize.programs_of(plan), strict=True):
        key = (kernel.ast, kernel.device, settings.plan_key())
        if program is not None and program.source is not None and key not in _recorded:
            _recorded.add(key)
            _keep(Record("program", kernel.ast, program.source, kernel.device,
                         program.device.plan_key(), plan_settings(), user_line(), program.name))


def capture() -> None:
    """From now on, record what `CAPTURE_PROCESS_REPLAY=1` asks for."""
    realize.session.schedule_recorders.append(capture_schedule)
    realize.session.program_recorders.append(capture_programs)


def plan_settings() -> dict[str, settings.Value]:
    """The settings in force that can change an answer."""
    return {s.name: settings.get(s.name) for s in settings.REGISTRY.values() if s.plan}


def _keep(record: Record) -> None:
    """Write a record; the same question has the same name in every process."""
    folder = folder_of_records()
    if settings.get("CACHELEVEL") == 0:
        say_once("CAPTURE_PROCESS_REPLAY: nothing is recorded, since CACHELEVEL=0")
    elif problem := unusable(folder):
        say_once(f"CAPTURE_PROCESS_REPLAY: nothing is recorded: {folder} {problem}")
    else:  # r[impl playback.record.complete]
        asked = record.name if record.kind == "schedule" else kernel_text(record.question)
        question = repr((record.kind, asked, record.device, sorted(record.settings.items())))
        key = hashlib.sha256(question.encode()).hexdigest()
        Store(folder).put(KIND, key, FORMAT.encode() + b"\n" + pickle.dumps(record, 4))


class _Loader(pickle.Unpickler):
    """Loads nothing but what records are made of."""

    def find_class(self, module: str, name: str) -> Any:
        """A class or a function of this package."""
        found = super().find_class(module, name) if module.split(".")[0] == "impl" \
            and "." not in name else None
        if not getattr(found, "__module__", "").startswith("impl."):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a record")
        return found


def read_records(folder: Path) -> Iterator[tuple[str, Record | str]]:
    """The name of each file and its record, or why it cannot be read.

    Files that somebody else could have written are not opened: r[playback.record.private].
    """
    kept = Store(folder)
    for path in kept.entries(KIND):
        yield path.name, _record(kept.read_entry(path, KIND))


def _record(content: bytes | None) -> Record | str:
    if content is None:
        return "it is damaged, or may have been written by somebody else"
    form, _, pickled = content.partition(b"\n")
    if form != FORMAT.encode():  # r[impl playback.replay.told]
        return f"its format is {form[:40].decode(errors='replace')!r}, and not {FORMAT!r}"
    try:
        record: Record = _Loader(io.BytesIO(pickled)).load()
        unknown = sorted(set(record.settings) - set(settings.REGISTRY))
        return f"there is no setting {', '.join(unknown)} any more" if unknown else record
    except Exception as error:  # r[impl playback.replay.told]: whatever a class has become
        return f"it cannot be read any more: {type(error).__name__}: {error}"
