"""A plan is found again exactly when it is the right one.  Chapter: spec/caching.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program
from conformance.runner.subject import Failure, NotClaimed, Subject, same_values
from conformance.suite import after, verifies


def _program(write: Callable[[Draft], str], dtype: str = "float32", size: int = 4) -> Program:
    """Two realized inputs t0 and t1 and what `write` makes of them, realized and observed."""
    draft = Draft()
    for start in range(2):
        array = programs.pattern(dtype, (size,), start)
        draft.add("input", dtype=dtype, shape=[size], data=protocol.encode(array))
    draft.append({"do": "realize", "names": ["t0", "t1"]})
    name = write(draft)
    draft.append({"do": "realize", "names": [name]})
    draft.append({"do": "observe", "names": [name]})
    return protocol.program(draft.statements)


def _keys(subject: Subject, program: Program, **options: Any) -> list[str]:
    """The cache keys of the schedules of a program, whose values are checked too."""
    seen = subject.check_values(program, "schedule", "cache", **options)
    return [document["cache"]["key"] for document in seen.schedule]


def _all_differ(subject: Subject, *chosen: Program) -> None:
    """The schedules of each of these programs have keys of their own."""
    keys: dict[tuple[str, ...], Program] = {}
    for program in chosen:
        if not subject.supports(program):
            continue
        key = tuple(_keys(subject, program))  # none at all: a movement may need no kernel
        if key and key in keys:
            raise Failure("this program has the key of another one:\n"
                          f"{protocol.paste(keys[key])}", program)
        keys[key] = program
    subject.met(sum(map(bool, keys)), "no program had a plan")


def _add(left: str, right: str) -> Callable[[Draft], str]:
    return lambda draft: draft.add("add", left, right)


@verifies("caching.key.alias", observe="cache")
def test_the_pattern_of_aliases_is_part_of_the_key(subject: Subject) -> None:
    _all_differ(subject, _program(_add("t0", "t0")), _program(_add("t0", "t1")))


@verifies("caching.key.program", observe="cache")
def test_everything_that_decides_a_plan_is_part_of_the_key(subject: Subject) -> None:
    def scaled(value: float) -> Callable[[Draft], str]:
        return lambda draft: draft.add("mul", "t0", draft.constant(draft.kinds["t0"], value))

    _all_differ(
        subject, _program(_add("t0", "t1")), _program(_add("t0", "t1"), dtype="int32"),
        _program(_add("t0", "t1"), dtype="uint32"), _program(_add("t0", "t1"), size=5),
        _program(lambda draft: draft.add("sub", "t0", "t1")), _program(scaled(2)),
        _program(scaled(3)), _program(lambda draft: draft.add("flip", "t0", axes=[0])),
        _program(lambda draft: draft.add("cumsum", "t0", axis=0)),
        _program(lambda draft: draft.add("sum", "t0", axes=[0], keepdims=True)))


@verifies("caching.key.settings", observe="cache")
def test_toggling_a_setting_never_returns_a_stale_plan(subject: Subject) -> None:
    """After any other setting has been tried, the plan is that of a fresh implementation."""
    if not subject.info.settings:
        raise NotClaimed("no setting is declared")
    kernels = 0
    for program in (programs.witnesses()["chain-of-temporaries"], _large_sum()):
        if not subject.supports(program):
            subject.skipped += 1
            continue
        fresh: dict[tuple[str, int], list[Any]] = {}
        for setting in subject.info.settings:
            for value in (0, 1):
                subject.adapter.reset()
                fresh[setting, value] = _plans(subject, program, {setting: value})
        for (setting, value), plans in fresh.items():
            if _plans(subject, program, {setting: value}) != plans:
                raise Failure(f"{setting}={value} got the plan of other settings", program)
            kernels += sum(len(each["kernels"]) for each in plans)
    if subject.examples:
        subject.met(kernels, "no program made a kernel")


def _large_sum() -> Program:
    """A sum of so many elements that an implementation may take it in several steps."""
    draft = Draft()
    ones = draft.add("constant", dtype="float32", shape=[256, 256], value=1)
    copied = draft.add("contiguous", ones)
    total = draft.add("sum", copied, axes=[0, 1], keepdims=False)
    draft.append({"do": "observe", "names": [total]})
    return protocol.program(draft.statements)


def _plans(subject: Subject, program: Program, settings: dict[str, int]) -> list[Any]:
    documents = subject.check_values(program, "schedule", settings=settings).schedule
    return [{key: field for key, field in document.items() if key != "cache"}
            for document in documents]


@verifies("caching.hit.equal", observe="cache")
@verifies("caching.hit.said", observe="cache")
@after("effects.value.eager")
def test_a_hit_gives_the_values_of_a_miss(subject: Subject) -> None:
    hits = 0

    def again(program: Program) -> None:
        nonlocal hits
        subject.adapter.reset()
        miss = subject.check_values(program, "schedule", "cache")
        hit = subject.check_values(program, "schedule", "cache")
        subject.check_values(_other_inputs(program), "schedule", "cache")
        if miss.schedule and miss.schedule[0]["cache"]["hit"]:
            raise Failure("the first plan is said to come from an empty cache", program)
        hits += sum(document["cache"]["hit"] for document in hit.schedule)
        different = same_values(miss, hit)
        if different:
            raise Failure(f"{different} differ when the plan was cached", program)

    subject.for_programs(again, rule="caching.hit.equal")
    subject.met(hits, "nothing was ever found in the cache")


def _other_inputs(program: Program) -> Program:
    """The program with other elements in its inputs, in the range of the old ones."""
    changed = deepcopy(program)
    for statement in changed["statements"]:
        if statement["do"] == "input":
            array = protocol.decode(statement["dtype"], statement["shape"], statement["data"])
            statement["data"] = protocol.encode(array.reshape(-1)[::-1].reshape(array.shape))
    return changed


@verifies("caching.key.renaming", observe="cache")
@after("effects.value.eager")
def test_names_are_not_part_of_the_key(subject: Subject) -> None:
    keyed = 0

    def same(program: Program) -> None:
        nonlocal keyed
        keys = []
        for each in (program, programs.renamed(program)):
            subject.adapter.reset()
            keys.append(_keys(subject, each))
        keyed += len(keys[0])
        if keys[0] != keys[1]:
            raise Failure("other names for the variables, other keys", program)

    subject.for_programs(same, rule="caching.hit.equal", share=0.5)
    subject.met(keyed, "no schedule has a key")


@verifies("caching.result.independent")
@after("effects.value.eager")
def test_a_later_run_leaves_earlier_results_alone(subject: Subject) -> None:
    """The same expression for several inputs: all results are looked at only at the end."""
    for write in ("add", "mul", "sub"):
        draft = Draft()
        results = []
        for number in range(4):
            array = programs.pattern("float32", (5,), number)
            name = draft.add("input", dtype="float32", shape=[5], data=protocol.encode(array))
            results.append(draft.add("neg", draft.add(write, name, name)))
            draft.append({"do": "realize", "names": [results[-1]]})
        draft.append({"do": "observe", "names": results})
        subject.check_whole(protocol.program(draft.statements))
    subject.for_programs(lambda program: _check(subject, program),
                         rule="caching.result.independent", share=0.25)


def _check(subject: Subject, program: Program) -> None:
    subject.check_values(program)


@verifies("caching.key.place+2", observe="cache")
def test_where_a_value_is_stored_is_part_of_the_key(subject: Subject) -> None:
    def stored(start: int) -> Program:
        def write(draft: Draft) -> str:
            part = draft.add("shrink", "t1", bounds=[[0, 2]])
            draft.append({"do": "store", "target": "t0", "from": [part],
                          "view": [{"do": "shrink", "bounds": [[start, start + 2]]}]})
            return "t0"
        return _program(write)

    _all_differ(subject, *map(stored, range(3)))


@verifies("caching.key.held", observe="cache")
def test_whether_a_value_is_held_is_part_of_the_key(subject: Subject) -> None:
    """A reader of what is overwritten: looked at later, or forgotten before."""
    def advanced(held: bool) -> Program:
        def write(draft: Draft) -> str:
            reader = draft.add("neg", "t0")
            value = draft.add("add", "t0", "t1")
            draft.append({"do": "assign", "target": "t0", "from": [value]})
            draft.append({"do": "drop", "names": [value, *([] if held else [reader])]})
            return "t0"
        return _program(write)

    if len(_keys(subject, advanced(True))) > 1:  # each was planned before the other was known
        subject.met(0, "the reader and the write were never planned together")
    _all_differ(subject, advanced(True), advanced(False))


@verifies("caching.key.stable", observe="cache")
@after("effects.value.eager")
def test_keys_are_the_same_in_every_process(subject: Subject) -> None:
    chosen = [each for number in range(6)
              if subject.supports(each := programs.random_program(number, 10))]
    seen = []
    for hash_seed in ("1", "2"):
        other = subject.elsewhere(PYTHONHASHSEED=hash_seed)
        try:
            seen.append([_keys(other, program) for program in chosen])
        finally:
            other.close()
        subject.examples += other.examples
    for program, one, two in zip(chosen, *seen, strict=True):
        if one != two:
            raise Failure("two processes have other keys for it", program)
    subject.met(sum(map(len, seen[0])), "no schedule has a key")


# What is kept in files ---------------------------------------------------------------------------


@verifies("caching.kept.equal")
@after("effects.value.eager")
def test_what_other_processes_kept_changes_no_value(subject: Subject) -> None:
    """One process after the other: with a new folder, with what the first kept, with damaged
    files, without some of them, and with a folder that is none."""
    variable = subject.info.choices.get("kept")
    if not variable:
        raise NotClaimed("it does not say where it keeps anything")
    chosen = [_program(_add("t0", "t1")), _program(_add("t0", "t0")), _large_sum()]
    chosen += [programs.random_program(number, 10) for number in range(2)]
    chosen = [each for each in chosen if subject.supports(each)]
    with TemporaryDirectory() as folder:
        _in_a_process(subject, chosen, **{variable: folder})
        files = _files(folder)
        if not files:
            subject.met(0, "nothing was kept")
        other = Path(folder, "notes.txt")  # of somebody else, who keeps something there too
        other.write_text("not yours")
        _in_a_process(subject, chosen, **{variable: folder})
        for number, file in enumerate(files):
            damage(file, number)
        _in_a_process(subject, chosen[::-1], **{variable: folder})
        for file in _files(folder)[::2]:
            file.unlink()
        _in_a_process(subject, chosen, **{variable: folder})
        if not other.exists() or other.read_text() != "not yours":
            raise Failure(f"a file of somebody else in {variable} is not what it was", chosen[0])
        _in_a_process(subject, chosen, **{variable: str(other)})


def _in_a_process(subject: Subject, chosen: Sequence[Program], **environment: str) -> None:
    process = subject.elsewhere(**environment)
    try:
        for program in chosen:
            process.check_values(program)
    finally:
        process.close()
    subject.examples += process.examples


def _files(folder: str) -> list[Path]:
    """What is kept in a folder, and in those below it."""
    return sorted(Path(inside, name) for inside, _, names in os.walk(folder) for name in names
                  if name != "notes.txt")


def damage(file: Path, number: int) -> None:
    """Cut a file short, change a byte in its middle, empty it, or add to it."""
    content = bytearray(file.read_bytes())
    if number % 4 == 0:
        content = content[:-1]
    elif number % 4 == 1 and content:
        content[len(content) // 2] ^= 0x41
    else:
        content = bytearray() if number % 4 == 2 else content + b"0"
    file.write_bytes(content)
