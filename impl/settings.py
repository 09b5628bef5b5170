"""Every switch of the runtime, in one registry. Chapter: spec/settings.md.

A setting is read from the environment once, typed, documented, and scoped by `Context`. Each one
says what it can change: `plan` (the schedule or the code of kernels) or nothing but output and
caching. The plan cache takes all `plan` settings into its key, so that none can be forgotten.
"""
from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from impl.errors import SettingError

Value = int | str
Derived = TypeVar("Derived")


@dataclass(frozen=True)
class Setting:
    """One switch: its default, what it may be, what it does, and whether it changes plans."""

    name: str
    default: Value
    meaning: str
    plan: bool = False
    choices: tuple[int, ...] = ()
    minimum: int = 0
    maximum: int = 1 << 30


REGISTRY: dict[str, Setting] = {s.name: s for s in (
    Setting("DEBUG", 0, "how much is printed: 1 schedules, 2 kernels, 3 decisions, 4 source",
            maximum=7),
    Setting("PROGRESS", 1, "0: what takes long draws no line on the terminal that says how far it "
            "is", maximum=1),
    Setting("DEVICE", "", "the default device, one of sorted(Device.kinds); empty picks CPU if it "
            "can compile, else REFERENCE", plan=True),
    Setting("NOOPT", 0, "1: kernels are rendered as written, without optimisation steps", plan=True,
            maximum=1),
    Setting("BEAM", 0, "n: steps are searched for by trying; the n fastest lists go on",
            plan=True, maximum=1000),
    Setting("BEAM_TIMEOUT_SEC", 10, "a search gives up a version that compiles longer", plan=True,
            minimum=1),
    Setting("BEAM_BUDGET_SEC", 60, "a search for one kernel starts no new trials after this time",
            plan=True, minimum=1),
    Setting("BEAM_UPCAST_MAX", 512, "the most lanes of a value that a search tries", plan=True,
            minimum=1),
    Setting("BEAM_UOPS_MAX", 6000, "the most values, lanes counted, that a search tries", plan=True,
            minimum=1),
    Setting("BEAM_DEBUG", 0, "1: a search says how far it is", maximum=1),
    Setting("IGNORE_BEAM_CACHE", 0, "1: search again, whatever was found before", maximum=1),
    Setting("PARALLEL", 0, "how many versions a search compiles at once; 0: one a processor",
            maximum=4096),
    Setting("FUSE", 1, "0: every operation gets a kernel of its own", plan=True, maximum=1),
    Setting("TENSOR_CORES", 1, "0: products are not computed by a GPU's units for small matrices",
            plan=True, maximum=1),
    Setting("ALLOW_TF32", 0, "1: products of float32 may be computed in TF32: operands are rounded "
            "to 10 bits", plan=True, maximum=1),
    Setting("ALLREDUCE", "", "the algorithm of all-reduce on a mesh: naive, ring, tree or "
            "all-to-all; empty: the one that is predicted to take least time"),
    *(Setting(name, "", f"the same of {kind}; {also}") for name, kind, also in (
        ("ALLGATHER", "all-gather", "naive, ring, tree or all-to-all"),
        ("REDUCESCATTER", "reduce-scatter", "naive, ring, tree or all-to-all"),
        ("ALLTOALL", "all-to-all", "naive, ring or all-to-all"),
        ("BROADCAST", "broadcast", "naive, ring, tree or all-to-all"))),
    Setting("DISTRIBUTED_SECONDS", 60, "how long a process waits for the others of its job",
            minimum=1, maximum=86400),
    Setting("NCCL", 1, "0: GPUs of NVIDIA send each other something without NCCL, as others do",
            maximum=1),
    Setting("BUCKET_BYTES", 25 << 20, "the most bytes of sums that the devices of a mesh combine "
            "together; 0: each alone", plan=True),
    Setting("OVERLAP", 1, "whether devices of a mesh compute while they send each other something: "
            "0 never, 1 where it pays, 2 wherever it can be", plan=True, maximum=2),
    Setting("REMATERIALIZE", 1, "0: nothing is computed twice to save memory", plan=True,
            maximum=1),
    Setting("SCARCE", 0, "1: plan small programs like large ones, as if memory were scarce",
            plan=True, maximum=1),
    Setting("SPEC", 0, "1: verify every graph, pass, kernel and schedule; 2: thoroughly",
            maximum=2),
    Setting("SCACHE", 1, "0: schedule anew at every realize", maximum=1),
    Setting("SHARE_SIZES", 0, "1: programs that differ only in sizes may share a plan; last digits "
            "may depend on which programs ran before", plan=True, maximum=1),
    Setting("NO_MEMORY_PLANNER", 0, "1: every temporary gets memory of its own", plan=True,
            maximum=1),
    Setting("POISON", 0, "1: fill memory with a pattern before it is reused", plan=True, maximum=1),
    Setting("ORDER_SEED", -1, "run kernels in a random legal order drawn from this seed", plan=True,
            minimum=-1),
    Setting("JIT", 1, "0: TinyJit runs the function every time", maximum=1),
    Setting("JIT_ENTRIES", 8, "how many captures a function may have, for different values of what "
            "it reads", minimum=1, maximum=4096),
    Setting("CACHELEVEL", 1, "0: nothing is read from or written to disk", maximum=2),
    Setting("CACHE_FOLDER", "", "where compiled kernels are kept; empty: the user's cache folder"),
    Setting("CACHE_SIZE", 1024, "the most MiB in CACHE_FOLDER; 0: no bound", maximum=1 << 24),
    Setting("CAPTURE_PROCESS_REPLAY", 0, "1: record schedules and programs for `impl.playback`",
            maximum=1),
    Setting("CPU_COUNT", 0, "threads that share a kernel; 0: one for each processor it may use",
            plan=True, maximum=1024),
    Setting("CC", "", "the C compiler; empty: cc, gcc or clang from PATH", plan=True),
    Setting("CPU_TARGET", "", "the processor that CPU kernels are made for, by its name after "
            "-march=, such as x86-64-v3; empty: the one they run on", plan=True),
    Setting("VECTOR_BYTES", 0, "the width of vectors in CPU kernels: 16, 32, or 64; 0: that of "
            "the target's registers", plan=True, choices=(0, 16, 32, 64), maximum=64),
    Setting("CUDA_PTX", 0, "1: NVRTC makes PTX, which the driver compiles for its GPU", plan=True,
            maximum=1),
    Setting("CHECK_NAN", 0, "1: look for NaN after each kernel, and name the first that makes one; "
            "2: for infinity, too", maximum=2),
    Setting("VIZ", 0, "1: show every schedule to browsers on this machine", maximum=1),
    Setting("VIZ_PORT", 0, "the port of VIZ; 0: any that is free", maximum=65535),
    Setting("TRACK_MATCH_STATS", 0, "1: count the matches of every rewrite rule", maximum=3),
)}


def _checked(name: str, value: Any) -> Value:
    """The value in the setting's type.

    Raises:
        SettingError: unknown name (r[settings.error.clear]) or a value it cannot have
            (r[settings.error.clear]).
    """
    setting = REGISTRY.get(name)
    if setting is None:  # r[impl settings.error.clear]
        near = [each for each in REGISTRY if one_edit_apart(name.upper(), each)
                or name.upper() == each]  # r[impl settings.error.clear]
        raise SettingError(name, "is not a setting", f"{meant(near)}use one of "
                           + ", ".join(sorted(REGISTRY)))
    if isinstance(setting.default, str):
        return str(value)
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):  # r[impl settings.error.clear]
        raise SettingError(name, f"{value!r} is not a whole number",
                           f"{setting.meaning}; default {setting.default}") from None
    if not setting.minimum <= number <= setting.maximum:
        raise SettingError(name, f"{number} is not from {setting.minimum} to {setting.maximum}",
                           setting.meaning)
    if setting.choices and number not in setting.choices:
        raise SettingError(name, f"{number} is none of {', '.join(map(str, setting.choices))}",
                           setting.meaning)
    return number


def meant(names: Sequence[str]) -> str:
    """The beginning of a remedy: what was probably meant, if anything is near."""
    return f"did you mean {' or '.join(names)}? Else " if names else ""


class _Values(threading.local):
    """The values in force in this thread: environment first, then `Context` over it."""

    def __init__(self) -> None:
        self.scoped: dict[str, Value] = {}
        self.plan: tuple[Value, ...] | None = None
        self.plan_text: str | None = None
        self.derived: dict[Callable[[], Any], Any] = {}


_values = _Values()
_environment: dict[str, Value] = {}


#: Variables of other programs that look like one of ours, misspelt.
FOREIGN = frozenset(("CACHE", "CCACHE", "DEVICES", "SCCACHE", "XCACHE"))
_SHORT = 5  # names below this length are a letter away from too many words


def one_edit_apart(one: str, other: str) -> bool:
    """Whether a letter added, left out, replaced, or swapped with its neighbour makes the other."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    short, long = sorted((one, other), key=len)
    start = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b),
                 len(short))
    if len(short) < len(long):
        return short[start:] == long[start + 1:]
    return short[start + 1:] == long[start + 1:] or \
        (short[start:start + 2] == long[start:start + 2][::-1]
         and short[start + 2:] == long[start + 2:])


def misspelt(names: Iterable[str]) -> list[tuple[str, str]]:
    """Those names that are no setting but one edit away from one, each with the setting."""
    return [(name, setting) for name in sorted(names)
            if name not in REGISTRY and name not in FOREIGN and name.isupper()
            for setting in REGISTRY if len(setting) >= _SHORT and one_edit_apart(name, setting)]


def _read_environment() -> None:
    """Before the first value is read: check what is ours, name what is probably meant to be.

    Raises:
        SettingError: a setting has a value that it cannot have.
    """
    for name, setting in misspelt(os.environ):  # r[impl settings.environment.early+2]
        print(f"tensor-schedule: the environment variable {name} is no setting; did you mean "
              f"{setting}?", file=sys.stderr)
    # r[impl settings.environment.early+2]
    given = {name: _checked(name, os.environ[name]) for name in REGISTRY if os.environ.get(name)}
    _environment.update(given)


def get(name: str) -> Any:
    """The value in force: of the innermost `Context`, else of the environment, else the default."""
    scoped = _values.scoped
    if name in scoped:
        return scoped[name]
    if name not in _environment:
        if not _environment:
            _read_environment()
        if name not in _environment:
            default = REGISTRY[name].default if name in REGISTRY else None
            _environment[name] = _checked(name, default)
    return _environment[name]


def workers() -> int:
    """How many compilers a search runs at once."""
    return int(get("PARALLEL")) or os.cpu_count() or 1


def plan_key() -> tuple[Value, ...]:
    """The values of all settings that can change a plan (r[settings.plan.key]), in fixed order."""
    if _values.plan is None:
        # r[impl settings.plan.key]
        _values.plan = tuple(get(s.name) for s in REGISTRY.values() if s.plan)
    return _values.plan


def plan_text() -> str:
    """`plan_key` as a text, which is hashed once and not for every key."""
    if _values.plan_text is None:
        _values.plan_text = repr(plan_key())
    return _values.plan_text


def derived(make: Callable[[], Derived]) -> Derived:
    """What a function makes of the settings in force; made once for as long as they are."""
    known = _values.derived
    found: Derived | None = known.get(make)
    if found is None:
        found = known[make] = make()
    return found


class Context:
    """Settings for a block of code: `with Context(DEBUG=2): ...`. Nests; restores on leaving."""

    def __init__(self, **values: Any) -> None:
        self.values = {name: _checked(name, value) for name, value in values.items()}
        # By thread: several may be inside at once, and each goes back to what it had.
        self.outer: dict[int, list[dict[str, Value]]] = {}

    def __enter__(self) -> Context:
        self.outer.setdefault(threading.get_ident(), []).append(_values.scoped)
        self._set({**_values.scoped, **self.values})
        return self

    def __exit__(self, *_: object) -> None:
        # r[impl settings.context.restore]
        self._set(self.outer[threading.get_ident()].pop())

    @staticmethod
    def _set(scoped: dict[str, Value]) -> None:
        _values.scoped, _values.plan, _values.plan_text, _values.derived = scoped, None, None, {}


def describe() -> Iterator[tuple[str, Value, Value, str]]:
    """Name, value in force, default and meaning of every setting, in alphabetical order."""
    for name, setting in sorted(REGISTRY.items()):
        yield name, get(name), setting.default, setting.meaning


def table() -> str:
    """What `describe` gives, to be read: a line for each setting, with its default."""
    rows = [(f"{name}={value}", f"{meaning} (default: {default if default != '' else 'empty'})")
            for name, value, default, meaning in describe()]
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"{left:{width}}  {right}" for left, right in rows)
