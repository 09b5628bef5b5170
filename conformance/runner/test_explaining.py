"""What the tools of the suite say to somebody who makes a mistake: where it is, and what to do."""
from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance import protocol
from conformance.adapters import numpy_adapter
from conformance.oracle import OracleAdapter
from conformance.protocol import (
    Array,
    ImplementationError,
    Info,
    Observation,
    Options,
    Program,
    Statement,
)
from conformance.runner import report
from conformance.runner.checks import collect, run_suite, smoke
from conformance.runner.command import main
from conformance.runner.explaining import described, meant
from conformance.runner.report import Expectation, witness_of
from conformance.runner.subject import Subject

HERE = f"{Path(__file__).parent.name}/{Path(__file__).name}"
EXISTING = "test_dtypes.test_integer_division_rounds_down"


class Asserting(numpy_adapter.Adapter):
    """Fails with an assertion that says nothing, wherever something is flipped."""

    def evaluate(self, statement: Statement, sources: Sequence[Array]) -> Array:
        if statement["do"] == "flip":
            raise AssertionError
        return super().evaluate(statement, sources)


class MissingField(numpy_adapter.Adapter):
    shaped = {**numpy_adapter.Adapter.shaped, "permute": lambda s, x: x.transpose(s["axes"])}


class NoneOfAdd(numpy_adapter.Adapter):
    functions = {**numpy_adapter.Adapter.functions, "add": lambda a, b: None}


class Misspelt(numpy_adapter.Adapter):
    functions = {**numpy_adapter.Adapter.functions, "subtract": np.subtract}


class MisspeltDtype(OracleAdapter):
    def info(self) -> Info:
        return Info("oracle", "1", dtypes=("float32", "float"))


class WrongAboutFlips(numpy_adapter.Adapter):
    shaped = {**numpy_adapter.Adapter.shaped, "flip": lambda s, x: x}


class WrongElsewhere(OracleAdapter):
    """Answers with sevens where anything but adding is done."""

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        seen = super().run(program, observe, options)
        used = {each["do"] for each in program["statements"]}
        if used - {"input", "constant", "add", "observe"}:
            seen.values = [replace(each, data="07" * (len(each.data) // 2))
                           for each in seen.values]
        return seen


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The status of a command, and what it printed."""
    status = main(words)
    return status, capsys.readouterr().out


def flip(folder: Path) -> Path:
    path = folder / "flip.json"
    path.write_text(protocol.paste(protocol.program([
        {"do": "input", "to": "t0", "dtype": "int8", "shape": [2], "data": "0102"},
        {"do": "flip", "to": "t1", "from": ["t0"], "axes": [0]},
        {"do": "observe", "names": ["t1"]}])), encoding="utf-8")
    return path


# Errors of an adapter ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [False, True], ids=["in this process", "in another one"])
def test_an_error_says_where_it_was_raised(isolated: bool) -> None:
    assertion, lookup = line_of("            raise Assertion"), line_of('x.transpose(s["axes"])}')
    for name, text in (("Asserting", f"AssertionError in {HERE}:{assertion}: raise AssertionError"),
                       ("MissingField", f"KeyError in {HERE}:{lookup}: 'axes'")):
        subject = Subject.of(f"{__name__}:{name}", isolated=isolated)
        try:
            found = run_suite(subject, collect(["conventions"]),
                              rules=["conventions.support.declared"])
        finally:
            subject.close()
        assert [each.message.splitlines()[0] for each in found.results] == [text]
        assert text in found.table()


def test_an_error_is_described_as_far_as_it_is_known() -> None:
    assert described(ValueError("what")) == "ValueError: what"
    assert described(ImplementationError("Trouble: what")) == "Trouble: what"
    assert described(ImplementationError("Segmentation fault")) == "Segmentation fault"
    told = ('Traceback (most recent call last):\n'
            '  File "/x/lib/python3/site-packages/lib/part.py", line 7, in f\n    return g()\n'
            '           ^^^\nTrouble\n')
    far = described(ImplementationError("Trouble: ", told))
    assert far == "Trouble in lib/part.py:7: return g()"


@pytest.mark.parametrize("isolated", [False, True], ids=["in this process", "in another one"])
def test_run_shows_the_whole_traceback(isolated: bool, tmp_path: Path,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    status, out = said(capsys, "run", str(flip(tmp_path)), "--impl", f"{__name__}:Asserting",
                       *["--isolated"] * isolated)
    assert status == 1 and out.startswith(f"wrong: AssertionError in {HERE}:")
    assert "Traceback (most recent call last)" in out and "in evaluate" in out


def test_an_adapter_that_fails_the_first_program_is_told_which_that_is(
        capsys: pytest.CaptureFixture[str]) -> None:
    status, out = said(capsys, "--impl", f"{__name__}:NoneOfAdd")
    assert status == 2 and "harness" not in out
    assert out.startswith("nothing was tested: the adapter fails the first program, an addition")
    assert "t1 is object ()" in out and '{"do": "add", "to": "t1"' in out


@pytest.mark.parametrize(("name", "text"), [
    ("Misspelt", 'it declares "subtract", which is no statement; did you mean "sub"?'),
    ("MisspeltDtype", 'it declares "float", which is no dtype; did you mean "float32"?')])
def test_what_the_suite_has_no_name_for_is_not_passed_over(name: str, text: str) -> None:
    found = smoke(Subject.of(f"{__name__}:{name}"))
    assert found.startswith(text.partition("; did")[0]) and "did you mean" in found


def test_names_that_are_like_nothing_mean_nothing() -> None:
    assert meant("subtract", protocol.STATEMENTS) == '; did you mean "sub"?'
    assert meant("zzz", protocol.STATEMENTS) == ""


# Selections --------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "text"), [
    (["--rule", "tensor.reduce.axis"], 'did you mean "tensor.reduce.axes"?'),
    (["--rule", "no.such.rule"], "python -m conformance rules"),
    (["--tier", "value"], 'did you mean "values"?'),
    (["--tier", "values,zzz"], "there is no tier zzz"),
    (["--chapter", "memory", "--rule", "tensor.reduce.axes"], "no check is of this"),
    (["--chapter", "tensor", "--tier", "memory"], "no check is of this")])
def test_a_selection_that_selects_nothing_is_an_error(
        words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = said(capsys, "--impl", "conformance.oracle:OracleAdapter", *words)
    assert status == 2 and out.startswith("nothing was tested: ") and text in out


def test_what_was_not_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--impl", "conformance.adapters.numpy_adapter:Adapter", "--chapter", "tensor",
          "--chapter", "memory"])
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("not-run") and "(the tier memory is not claimed)" in line
               for line in lines)


# Expected failures -------------------------------------------------------------------------


def entry(test: str) -> dict[str, str]:
    return {"test": test, "rule": "dtypes.division.floor", "reason": "known"}


@pytest.mark.parametrize(("entries", "text"), [
    ([entry(EXISTING), {"test": "a", "reason": "b"}], 'entry 1 has no "rule"'),
    ([{**entry(EXISTING), "isue": "x"}], '"isue" of entry 0 is no text that an entry has: test,'),
    ([{**entry(EXISTING), "issue": 3}], '"issue" of entry 0'),
    ({"test": "a"}, "not a list of entries"), ("[", "is not JSON"), (None, "No such file")])
def test_a_file_of_expected_failures_that_is_none(
        entries: object, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "known.json"
    if entries is not None:
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries),
                        encoding="utf-8")
    with pytest.raises(ValueError, match="known.json"):
        Expectation.read(path)
    status, out = said(capsys, "--impl", "conformance.oracle:OracleAdapter", "--expected",
                       str(path))
    assert status == 2 and f"{path}" in out and text in out


def test_only_a_test_that_does_not_exist_is_missed() -> None:
    """Not one that the selection left out."""
    subject = Subject.of("conformance.oracle:OracleAdapter")
    left_out = Expectation(**entry(EXISTING))
    misspelt = Expectation(**entry(EXISTING.replace("rounds", "round")))
    assert run_suite(subject, collect(["tensor"]), expected=[left_out]).ok
    for rules in ([], ["tensor.reduce.axes"]):
        found = run_suite(subject, collect(["tensor"]), rules=rules, expected=[misspelt])
        assert not found.ok and found.results[-1].verdict == "error"
        assert f'no such test; did you mean "{EXISTING}"?' in found.results[-1].message


# Witnesses ---------------------------------------------------------------------------------


def test_a_report_keeps_programs_that_can_be_run_alone(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, spec = tmp_path / "report.jsonl", f"{__name__}:WrongAboutFlips"
    status, out = said(capsys, "--impl", spec, "--rule", "tensor.movement.elements", "--report",
                       str(path))
    test = "test_tensor.test_every_movement_of_every_small_shape"
    assert status == 1
    assert f"python -m conformance run {path} --test {test} --impl {spec}" in out
    assert report.read(path)[1]["repro"] in out
    status, out = said(capsys, "run", str(path), "--test", test, "--impl", spec)
    assert status == 1 and out.startswith("wrong: t")
    assert said(capsys, "run", str(path), "--test", test.partition(".")[2], "--impl",
                "conformance.oracle:OracleAdapter")[0] == 0
    status, out = said(capsys, "run", str(path), "--impl", spec)
    assert status == 1 and "which program?" in out and f"--test {test}" in out


@pytest.mark.parametrize("text", [None, "{", "[]", '{"format": "tensor-program/1"}'])
def test_a_file_without_a_program_is_named(text: str | None, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("program.json", "report.jsonl"):
        path = tmp_path / name
        if text is not None:
            path.write_text(text, encoding="utf-8")
        status, out = said(capsys, "run", str(path), "--impl", "conformance.oracle:OracleAdapter")
        assert status == 1 and out.startswith("nothing was run: ")
    with pytest.raises(ValueError, match=r"report\.jsonl"):
        witness_of(tmp_path / "report.jsonl")


@pytest.mark.slow
def test_what_hypothesis_finds_is_made_small_and_can_be_run_again() -> None:
    subject: Subject = Subject.of(f"{__name__}:WrongElsewhere")
    check = [each for each in collect(["effects"]) if "hypothesis" in each.name]
    found = run_suite(subject, check).results[0]
    assert found.verdict == "fail" and found.witness and "run witness.json" in found.repro
    assert len(found.witness["statements"]) <= 3


def test_a_part_of_a_witness_does_not_keep_what_was_said_of_the_whole() -> None:
    subject: Subject = Subject.of(f"{__name__}:WrongElsewhere")
    check = [each for each in collect(["conventions"]) if "every_witness" in each.name]
    found = run_suite(subject, check).results[0]
    assert found.witness and not {"note", "rules"} & set(found.witness)


def test_the_list_of_checks_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = said(capsys, "rules")
    assert status == 0
    names, rules = out.splitlines()[::2], out.splitlines()[1::2]
    assert len(names) == len(rules) == len(collect())
    for name, rule, check in zip(names, rules, collect(), strict=True):
        assert name.split() == [check.tier, check.name] and rule.split() == list(check.rules)

