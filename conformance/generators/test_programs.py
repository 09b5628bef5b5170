"""The generator, the shrinker, the validator and the witnesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import oracle, protocol
from conformance.generators import (
    declared_programs,
    effect_programs,
    grammar,
    multi_programs,
    programs,
    sharded_programs,
    table_programs,
)
from conformance.protocol import Program, ProtocolError, Statement, shapes
from conformance.protocol.shapes import Limits
from conformance.runner.report import Report, Result, read
from conformance.saboteurs.values import ReaderSeesLaterWrite
from conformance.trace import ROOT


def test_every_list_of_choices_is_a_well_formed_program() -> None:
    for number in range(200):
        program = programs.random_program(number, 20)
        protocol.check("program", program)
        shapes.check_program(program)


def test_the_same_seed_is_the_same_program() -> None:
    assert programs.random_program(7) == programs.random_program(7)
    assert programs.random_program(7) != programs.random_program(8)


def test_a_program_that_is_spread_over_devices_has_the_values_that_it_had() -> None:
    copies = 0
    for number, program in enumerate([*programs.witnesses().values(),
                                      *map(programs.random_program, range(100))]):
        for devices in (2, 3):
            spread = multi_programs.placed(program, number, devices)
            protocol.check("program", spread)
            shapes.check_program(spread)
            found = [protocol.Value.of(each.name, each.value) for each in oracle.run(spread)]
            assert not oracle.differences(program, found)
            copies += multi_programs.transfers(spread)
    assert copies > 500
    assert multi_programs.random_program(7) == multi_programs.random_program(7)


def test_every_statement_is_generated() -> None:
    seen = {statement["do"] for number in range(2000)
            for generate in (programs.random_program, effect_programs.random_program)
            for statement in generate(number)["statements"]}
    seen |= {statement["do"] for number in range(100)
             for statement in sharded_programs.random_program(number)["statements"]}
    assert seen == set(protocol.STATEMENTS) - {"gradient"}  # which has a tier of its own


def test_programs_on_meshes_are_well_formed_and_within_what_is_declared() -> None:
    """Whatever an implementation declares, and the same in every process."""
    for limits in (Limits(6), Limits(4, axes=1, uneven=False, together=False), Limits(2)):
        for number in range(150):
            for make in (sharded_programs.random_program, sharded_programs.replayed_program):
                program = make(number, 8, limits)
                protocol.check("program", program)
                shapes.check_program(program)
                assert shapes.within(program, limits)
                assert make(number, 8, limits) == program
    assert not all(shapes.within(sharded_programs.random_program(number), Limits(2))
                   for number in range(20))


def words_of(cell: str) -> list[str]:
    """The names between backticks."""
    return [word for part in cell.split("`")[1::2] for word in part.split()]


def the_table_of_the_guide() -> set[tuple[str, str]]:
    """Each statement with each dtype that it is defined for, as the guide says."""
    sorts = {"all": protocol.DTYPES, "bool": ("bool",), "integers": protocol.INTEGERS,
             "floats": protocol.FLOATS}
    text = (ROOT / "docs" / "conformance" / "adapter.md").read_text(encoding="utf-8")
    _, table = text.split("| statement | dtypes | fields | what it means |\n|---|---|---|---|\n")
    rows = [row.split("|")[1:] for row in table.partition("\n\n")[0].splitlines()]
    return {(do, dtype) for dos, dtypes, *_ in rows for do in words_of(dos)
            for sort in dtypes.split(",") if sort.strip() for dtype in sorts[sort.strip()]}


def _dtype_of(statement: Statement, kinds: shapes.Kinds) -> str:
    """The dtype that a statement is about: of what it reads, and not of conditions and indices."""
    sources = statement.get("from", ())
    if not sources:
        return str(statement["dtype"])
    return kinds[sources[0 if statement["do"] == "gather" else -1]].dtype


def test_what_is_declared_is_tried_with_every_dtype_that_the_guide_names() -> None:
    """And what the guide does not name is not a program."""
    tried: set[tuple[str, str]] = set()
    for program in declared_programs.programs_for(protocol.DTYPES):
        protocol.check("program", program)
        kinds: shapes.Kinds = {}
        for each in program["statements"]:
            shapes.step(each, kinds)
            if each["do"] != "observe":
                tried.add((each["do"], _dtype_of(each, kinds)))
    assert tried == the_table_of_the_guide()


def planted_bug(program: Program) -> bool:
    """Whether the program tells a lazy reader that sees later writes from a right one."""
    wrong = ReaderSeesLaterWrite().program(program, {})
    values = [protocol.Value.of(each.name, each.value) for each in oracle.run(wrong)]
    return bool(oracle.differences(program, values))


def test_a_planted_hazard_is_found_and_shrinks_to_a_few_statements() -> None:
    found = [program for number in range(400)
             if planted_bug(program := programs.random_program(number, 14))]
    assert len(found) >= 4
    for program in found[:4]:
        smallest = programs.shrink(program, planted_bug)
        assert planted_bug(smallest)
        # An input, a reader, a value, a write, an observation, and what these operands need.
        assert len(smallest["statements"]) <= 7


@pytest.mark.parametrize("name", programs.witnesses())
def test_a_witness_is_a_program_that_says_what_it_is_for(name: str) -> None:
    program = programs.witnesses()[name]
    protocol.check("program", program)
    shapes.check_program(program)
    assert program["note"] and program["rules"]
    assert oracle.run(program)


@pytest.mark.parametrize(("change", "where"), [
    ({"do": "fly"}, "statements"), ({"do": "neg", "to": "t1"}, "'from' is missing"),
    ({"do": "neg", "to": "t1", "from": ["t0", "t0"]}, "too few or too many"),
    ({"do": "flip", "to": "t1", "from": ["t0"], "axes": [-1]}, "less than 0"),
    ({"do": "neg", "to": "1", "from": ["t0"]}, "does not match"),
    ({"do": "realize", "names": [], "now": True}, "'now' is not expected")])
def test_the_validator_names_the_place(change: dict, where: str) -> None:
    with pytest.raises(ProtocolError, match=where):
        protocol.check("program", protocol.program([change]))


@pytest.mark.parametrize("statements", [
    [{"do": "neg", "to": "a", "from": ["nothing"]}],
    [{"do": "constant", "to": "a", "dtype": "bool", "shape": [2], "value": True},
     {"do": "add", "to": "b", "from": ["a", "a"]}],
    [{"do": "constant", "to": "a", "dtype": "int8", "shape": [0], "value": 1},
     {"do": "max", "to": "b", "from": ["a"], "axes": [0], "keepdims": False}],
    [{"do": "constant", "to": "a", "dtype": "int8", "shape": [2], "value": 1},
     {"do": "shrink", "to": "b", "from": ["a"], "bounds": [[1, 3]]}],
    [{"do": "constant", "to": "a", "dtype": "int8", "shape": [2], "value": 1},
     {"do": "copy", "to": "b", "from": ["a"], "device": 1},
     {"do": "gather", "to": "c", "from": ["a", "b"]}],
    [{"do": "constant", "to": "a", "dtype": "int8", "shape": [2], "value": 1},
     {"do": "copy", "to": "b", "from": ["a"], "device": 1},
     {"do": "assign", "target": "a", "from": ["b"]}]])
def test_ill_formed_programs_are_refused(statements: list) -> None:
    with pytest.raises(shapes.ProgramError):
        shapes.check_program(protocol.program(statements))


def test_the_schemas_mean_the_same_to_another_validator() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = protocol.schema("program")
    for program in [*programs.witnesses().values(), *map(programs.random_program, range(20))]:
        jsonschema.validate(program, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(protocol.program([{"do": "neg", "to": "t1"}]), schema)


def test_a_report_without_its_footer_is_not_one(tmp_path: Path) -> None:
    info = protocol.Info("x", "1")
    report = Report(info, ["values"], "ci", 0, [Result("test_a.b", ["a.b.c"], "values", "pass")])
    path = tmp_path / "report.jsonl"
    report.write(path)
    assert [line["type"] for line in read(path)] == ["header", "test", "footer"]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ProtocolError, match="not a whole report"):
        read(path)


def test_the_programs_of_the_grammar_have_nearly_all_its_cells() -> None:
    found: set[grammar.Cell] = set()
    for _, program in grammar.stars():
        shapes.check_program(program)
        found |= grammar.cells(program)
    told = grammar.share(found)
    assert found <= grammar.wanted()
    assert told["met"] >= 0.99 * told["cells"] > 3000, told["missing"]
    few = grammar.share(found, ("input", "add", "less", "where"), ("bool", "int8"))
    assert 20 < few["met"] == few["cells"] < 80
    assert grammar.share((), ("input", "neg"), ("int8",))["missing"][0] == "after neg input"


def test_a_cell_says_what_is_read_and_in_which_state() -> None:
    statements: list[Statement] = [
        {"do": "input", "to": "x", "dtype": "int8", "shape": [4, 4], "data": "00" * 16},
        {"do": "realize", "names": ["x"]}, {"do": "neg", "to": "y", "from": ["x"]},
        {"do": "store", "target": "x", "view": [], "from": ["y"]},
        {"do": "sum", "to": "z", "from": ["x"], "axes": [0], "keepdims": False}]
    assert grammar.cells(protocol.program(statements)) == {
        ("after", "neg", "input"), ("dtype", "neg", "int8"), ("axes", "neg", "2"),
        ("elements", "neg", "whole sixteens"), ("state", "neg", "it is in memory"),
        ("store to", "input", ""), ("store of", "neg", ""), ("after", "sum", "store"),
        ("dtype", "sum", "int8"), ("axes", "sum", "2"), ("elements", "sum", "whole sixteens"),
        ("state", "sum", "it was written to")}


def test_tables_are_made_of_each_other_in_every_way() -> None:
    """Each way changes the value, so that a program that leaves it out is another one."""
    made = [table_programs.chain(way, 5) for way in range(len(table_programs.WAYS))]
    summed = [table_programs.between_sums(way, 5) for way in range(len(table_programs.WAYS))]
    drawn = [table_programs.random_program(seed, 5) for seed in range(40)]
    others = [table_programs.between_sums(way, 5, other=True)
              for way in range(len(table_programs.WAYS))]
    for program in (*made, *summed, *others, *drawn):
        shapes.check_program(program)
    for programs_of_ways in (made, summed):
        values = {oracle.run(program)[0].value.tobytes() for program in programs_of_ways}
        assert len(values) == len(table_programs.WAYS)
    assert drawn[3] == table_programs.random_program(3, 5) != table_programs.random_program(4, 5)
