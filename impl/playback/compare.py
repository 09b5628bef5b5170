"""Answering recorded questions again, with the present code, and comparing."""
from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from impl import realize
from impl.caching import canonicalize
from impl.device import Device
from impl.errors import DeviceError
from impl.playback.records import Record, decode, read_records
from impl.playback.text import schedule_text
from impl.schedule import make_plan
from impl.settings import Context


@dataclass(frozen=True)
class Verdict:
    """What became of a record. `outcome`: "same", "changed" or "skipped"; `detail` says more."""

    file: str
    outcome: str
    detail: str = ""
    record: Record | None = None


def replay(folder: Path) -> Iterator[Verdict]:
    """Answer every recorded question again."""
    for file, record in read_records(folder):
        if isinstance(record, str):
            yield Verdict(file, "skipped", record)
        else:
            yield _again(file, record)


def _again(file: str, record: Record) -> Verdict:
    """One question. An error is an answer too, and another one."""
    try:
        device = Device[record.device]
    except DeviceError as error:  # r[impl playback.replay.told]
        return Verdict(file, "skipped", error.detail, record)
    if record.kind == "program" and device.plan_key() != record.machine:
        return Verdict(file, "skipped", f"it was made for another {device.name}", record)
    try:
        with Context(**{**record.settings, "DEVICE": record.device}):
            now = _schedule(record) if record.kind == "schedule" else device.source(record.question)
    except Exception as error:
        now = f"{type(error).__name__}: {error}"
    # r[impl playback.replay.told]
    difference = "\n".join(difflib.unified_diff(
        record.answer.splitlines(), (now or "").splitlines(), "recorded", "now", "", "", 1, ""))
    return Verdict(file, "changed" if difference else "same", difference, record)


def _schedule(record: Record) -> str:
    """The schedule for the recorded effects, made without any cache."""
    effects = decode(record.question)
    environment = realize.environment(effects)
    plan = make_plan(effects, canonicalize(effects, environment.device_key), environment)
    return schedule_text(plan, effects.nodes)
