"""The trace: it passes on this project, and each thing that it refuses is seen refused."""
from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from conformance import trace
from conformance.trace import ROOT, verifies

INDEX = """\
# Index

| floor | chapter | what it owns |
|---|---|---|
| 0 | [conventions](conventions.md) | words |
| 3 | [memory](memory.md) | reuse |
| 4 | [kernel](kernel.md) | loops |
"""
MEMORY = """\
# Memory

Two buffers share bytes, see r[kernel.loop.order].

r[memory.reuse.disjoint]
Two live buffers MUST NOT
share a byte.

```text
MUST is free in here
```

The word `MUST` in code is no rule.
"""
KERNEL = """\
# Kernel

r[note kernel.loop.order+2]
A loop MUST run upwards.

r[note kernel.loop.short]
A loop SHOULD be short.
r[exception kernel.loop.short: some loops are long]

r[kernel.loop.free]
A loop MAY be unrolled.
"""
FILES = {
    "spec/index.md": INDEX,
    "spec/memory.md": MEMORY,
    "spec/kernel.md": KERNEL,
    "spec/conventions.md": "# Conventions\n",
    "docs/index.md": "# Home\n\nSee [r[memory.reuse.disjoint]].\n",
    "impl/__init__.py": "",
    "impl/memory.py": "x = 1  # r[impl memory.reuse.disjoint]\n",
    "impl/kernel.py": 'y = "r[impl no.such.rule]"\n# r[impl kernel.loop.order+2]\n',
    "conformance/suite/test_memory.py": (
        '@verifies("memory.reuse.disjoint", observe="memory")\ndef test_reuse(): ...\n'
    ),
    "conformance/chapters/kernel/test_kernel.py": (
        '@trace.verifies("kernel.loop.order+2")\nclass TestLoops:\n    def test_up(self): ...\n'
    ),
    "conformance/test_tools.py": "def test_of_the_suite_itself(): ...\n",
    "conformance/saboteurs/__init__.py": (
        'class Base:\n    rule: str = ""\n\n'
        'class EarlyFree(Base):\n    rule = "memory.reuse.disjoint"\n    description = "frees"\n'
        'class Downwards(Base):\n    rule = "kernel.loop.order+2"\n'
    ),
}

Edit = Callable[[str, str, str], None]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project with nothing wrong in it."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert trace.lock(tmp_path) == []
    assert trace.check(tmp_path) == []
    return tmp_path


@pytest.fixture
def edit(tree: Path) -> Edit:
    """Replace a part of one file of the project; '' stands for its end."""

    def replace(name: str, old: str, new: str) -> None:
        path = tree / name
        text = path.read_text() if path.exists() else ""
        assert old in text
        path.write_text(text.replace(old, new) if old else text + new)

    return replace


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "spec").is_dir(), reason="needs a source checkout")
def test_this_project_passes() -> None:
    problems = trace.check(ROOT)
    assert not problems, "\n" + "\n".join(map(str, problems))


ORDER = "[note kernel.loop.order+2]"
FAILURES = {
    "duplicate id": (
        "spec/kernel.md", "", "\nr[kernel.loop.free]\nA loop MAY be tiled.\n",
        "spec/kernel.md:13: rule kernel.loop.free is stated already at spec/kernel.md:10"),
    "digits in an id": (
        "spec/kernel.md", "", "\nr[kernel.loop.rule1]\nIt MAY.\n", "not a rule id"),
    "two parts in an id": (
        "spec/kernel.md", "", "\nr[kernel.loop]\nIt MAY.\n", "not a rule id"),
    "first revision written out": (
        "spec/kernel.md", "loop.free]", "loop.free+1]", "not a rule id"),
    "rule in another chapter": (
        "spec/kernel.md", "", "\nr[memory.loop.free]\nIt MAY.\n", "stands in another chapter"),
    "rule without a sentence": (
        "spec/kernel.md", "", "\nr[kernel.loop.empty]\n\nIt may.\n", "has no normative word"),
    "rule in a paragraph": (
        "spec/kernel.md", "", "\nA loop.\nr[kernel.loop.inner]\nIt MAY.\n",
        "rule kernel.loop.inner stands in a paragraph"),
    "two ideas in a rule": (
        "spec/kernel.md", "MAY be", "MAY and SHOULD be", "has ['MAY', 'SHOULD'] where one"),
    "unknown level": (
        "spec/kernel.md", "MAY be", "SHALL be", "has ['SHALL'] where one"),
    "normative word in prose": (
        "spec/kernel.md", "# Kernel", "# Kernel\n\nIt MUST work.",
        "spec/kernel.md:3: the word MUST stands outside a rule"),
    "unknown id in code": (
        "impl/memory.py", "", "# r[impl memory.reuse.nothing]\n",
        "impl/memory.py:2: there is no rule memory.reuse.nothing"),
    "unknown id in a test": (
        "conformance/suite/test_memory.py", "", '@verifies("a.b.c")\ndef test_b(): ...\n',
        "conformance/suite/test_memory.py:4: there is no rule a.b.c"),
    "unknown id in a saboteur": (
        "conformance/saboteurs/__init__.py", "", 'class Other:\n    rule = "a.b.c"\n',
        "conformance/saboteurs/__init__.py:9: there is no rule a.b.c"),
    "a mistake in a text that is gone": (
        "conformance/saboteurs/impl_memory.py", "", 'class Gone:\n    rule = "memory.reuse'
        '.disjoint"\n    file = "impl/memory.py"\n    old, new = "was there", "is there"\n',
        "conformance/saboteurs/impl_memory.py:1: Gone edits a text that stands in impl/memory."),
    "a saboteur with a test that is gone": (
        "conformance/saboteurs/impl_memory.py", "", 'class Gone:\n    rule = "memory.reuse'
        '.disjoint"\n    first = "test_nothing"\n', "Gone names test_nothing, which no test"),
    "a mistake in a function that is gone": (
        "conformance/saboteurs/impl_memory.py", "", 'class Gone:\n    rule = "memory.reuse'
        '.disjoint"\n    target = "impl.memory:nobody"\n',
        "Gone changes impl.memory:nobody, which is gone"),
    "unknown id in prose": (
        "docs/index.md", "", "See r[memory.reuse.never].\n",
        "docs/index.md:4: there is no rule memory.reuse.never"),
    "unknown id in a docstring": (
        "impl/memory.py", "", '"""Reuse.\n\nSee r[memory.reuse.never].\n"""\n',
        "impl/memory.py:4: there is no rule memory.reuse.never"),
    "old revision in code": (
        "impl/kernel.py", "+2", "",
        "impl/kernel.py:2: cites revision 1 of kernel.loop.order, which is at 2"),
    "old revision in a test": (
        "conformance/chapters/kernel/test_kernel.py", "+2", "",
        "cites revision 1 of kernel.loop.order"),
    "deleted without a retired entry": (
        "spec/kernel.md", "r[kernel.loop.free]\nA loop MAY be unrolled.\n", "",
        "rule kernel.loop.free is gone"),
    "text changed in one revision": (
        "spec/kernel.md", "run upwards", "run downwards",
        "rule kernel.loop.order changed its text and kept its revision"),
    "revision went back": (
        "spec/kernel.md", ORDER, "[note kernel.loop.order]", "went back from revision 2 to 1"),
    "not locked": (
        "spec/kernel.md", "", "\nr[kernel.loop.new]\nIt MAY.\n",
        "law kernel.loop.new is not in spec/rules.lock"),
    "another tier than the lock says": (
        "spec/kernel.md", "[note kernel.loop.short]", "[kernel.loop.short]",
        "law kernel.loop.short is not in spec/rules.lock"),
    "a law that only tests of impl cite": (
        "spec/kernel.md", ORDER, "[kernel.loop.order+2]",
        "law kernel.loop.order has no portable check"),
    "a portable check of a note": (
        "spec/memory.md", "r[memory", "r[note memory",
        "test_memory.test_reuse holds everybody to memory.reuse.disjoint, which is a note"),
    "retired and stated": (
        "spec/rules.retired", "", "kernel.loop.free it was wrong\n",
        "rule kernel.loop.free is retired and stated"),
    "a MUST with no code": (
        "impl/kernel.py", "# r[impl", "# [impl", "MUST rule kernel.loop.order has no code"),
    "a MUST with no test": (
        "conformance/chapters/kernel/test_kernel.py",
        '@trace.verifies("kernel.loop.order+2")\n', "",
        "MUST rule kernel.loop.order has no test"),
    "a MUST NOT with no saboteur": (
        "conformance/saboteurs/__init__.py", '"memory.reuse.disjoint"', '""',
        "MUST NOT rule memory.reuse.disjoint has no saboteur"),
    "a SHOULD with neither test nor exception": (
        "spec/kernel.md", "r[exception kernel.loop.short: some loops are long]\n", "",
        "SHOULD rule kernel.loop.short has no test and no exception"),
    "an exception without a reason": (
        "spec/kernel.md", ": some loops are long", "", "has no reason"),
    "an exception from a MUST": (
        "spec/memory.md", "", "\nr[exception memory.reuse.disjoint: too hard]\n",
        "rule memory.reuse.disjoint is no SHOULD"),
    "a chapter's test without a rule": (
        "conformance/suite/test_memory.py", "", "def test_b(): ...\n",
        "conformance/suite/test_memory.py:3: test_b verifies no rule"),
    "a module without its chapter": (
        "impl/extra.py", "", "x = 1\n", "impl/extra.py:1: module extra has no chapter"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_fault_is_refused(name: str, tree: Path, edit: Edit) -> None:
    file, old, new, expected = FAILURES[name]
    edit(file, old, new)
    problems = [str(problem) for problem in trace.check(tree)]
    assert any(expected in problem for problem in problems), "\n".join(problems)
    assert all("Remedy: " in problem for problem in problems)


def test_a_revision_asks_every_citation_to_follow(tree: Path, edit: Edit) -> None:
    edit("spec/kernel.md", ORDER, "[note kernel.loop.order+3]")
    edit("spec/kernel.md", "run upwards", "run once")
    assert trace.lock(tree) == []
    places = [(problem.file, problem.line) for problem in trace.check(tree)]
    assert places == [("conformance/chapters/kernel/test_kernel.py", 2),
                      ("conformance/saboteurs/__init__.py", 7), ("impl/kernel.py", 2)]


def test_lock_refuses_changed_text(tree: Path, edit: Edit) -> None:
    before = (tree / "spec" / "rules.lock").read_text()
    edit("spec/kernel.md", "run upwards", "run downwards")
    assert [problem.file for problem in trace.lock(tree)] == ["spec/kernel.md"]
    assert (tree / "spec" / "rules.lock").read_text() == before


def test_lock_does_not_see_line_breaks(tree: Path, edit: Edit) -> None:
    edit("spec/memory.md", "MUST NOT\nshare", "MUST NOT share")
    assert trace.check(tree) == []


def test_what_a_test_of_saboteurs_has_for_itself_is_none(tree: Path) -> None:
    (tree / "conformance/saboteurs/test_them.py").write_text(
        'class Harmless:\n    rule = "memory.reuse.disjoint"\n', encoding="utf-8")
    assert "Harmless" not in {place.name for place in trace.load(tree).saboteurs}


def test_a_law_needs_a_saboteur_that_works_around_any_implementation(tree: Path,
                                                                     edit: Edit) -> None:
    edit("conformance/saboteurs/__init__.py", '"memory.reuse.disjoint"', '""')
    edit("conformance/saboteurs/impl_memory.py", "",
         'class Within:\n    rule = "memory.reuse.disjoint"\n')
    assert [problem.what for problem in trace.check(tree)] == [
        "law memory.reuse.disjoint has no saboteur of any implementation"]


def test_a_retired_rule_leaves_the_lock(tree: Path, edit: Edit) -> None:
    edit("spec/kernel.md", "r[kernel.loop.free]\nA loop MAY be unrolled.\n", "")
    assert [problem.file for problem in trace.lock(tree)] == ["spec/rules.lock"]
    edit("spec/rules.retired", "", "kernel.loop.free it said nothing\n")
    assert trace.lock(tree) == []
    assert trace.check(tree) == []
    assert "kernel.loop.free" not in (tree / "spec" / "rules.lock").read_text()


def test_the_lock_is_sorted_and_complete(tree: Path) -> None:
    lines = (tree / "spec" / "rules.lock").read_text().splitlines()[2:]
    assert [line.split()[:2] for line in lines] == [
        ["kernel.loop.free", "1"], ["kernel.loop.order", "2"],
        ["kernel.loop.short", "1"], ["memory.reuse.disjoint", "1"],
    ]


def test_conventions_need_no_module_and_no_code(tree: Path, edit: Edit) -> None:
    edit("spec/conventions.md", "", "\nr[conventions.law.value]\nA value MUST hold.\n")
    edit("conformance/suite/test_conventions.py", "",
         '@verifies("conventions.law.value")\ndef test_values(): ...\n')
    edit("conformance/saboteurs/__init__.py", "",
         'class Law:\n    rule = "conventions.law.value"\n')
    assert trace.lock(tree) == []
    assert trace.check(tree) == []


def test_the_matrix_joins_a_rule_with_what_cites_it(tree: Path) -> None:
    row = next(row for row in trace.matrix(tree) if row["id"] == "memory.reuse.disjoint")
    assert (row["level"], row["tier"]) == ("MUST NOT", "law")
    assert [place["file"] for place in row["code"]] == ["impl/memory.py"]
    assert [place["name"] for place in row["tests"]] == ["test_memory.test_reuse"]
    assert [place["name"] for place in row["saboteurs"]] == ["EarlyFree"]


def test_the_commands(tree: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace.main(["check", "--root", str(tree)]) == 0
    assert trace.main(["lock", "--root", str(tree)]) == 0
    assert capsys.readouterr().out.endswith("2 saboteurs, 0 problems\n")
    assert trace.main(["matrix", "--json", "--root", str(tree)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4
    edit("impl/memory.py", "disjoint", "never")
    assert trace.main(["check", "--root", str(tree)]) == 1
    assert "impl/memory.py:1: there is no rule memory.reuse.never. Remedy: " in (
        capsys.readouterr().out)
    assert trace.main(["check", "--root", str(tree / "impl")]) == 2


def test_verifies_marks_a_test_and_stacks() -> None:
    @verifies("memory.reuse.disjoint", observe="memory")
    @verifies("kernel.loop.order+2")
    def sample() -> None: ...

    seen = vars(sample)
    assert seen["__rules__"] == ["kernel.loop.order+2", "memory.reuse.disjoint"]
    marks = [mark.args for mark in seen["pytestmark"]]
    assert sorted(marks) == [("kernel.loop.order+2", "values"),
                             ("memory.reuse.disjoint", "memory")]


@pytest.mark.slow
def test_a_chapter_states_its_laws_first() -> None:
    rules = trace.load(ROOT).rules
    late = [f"{law.file}:{law.line}: {law.id} stands below the note {note.id}"
            for note, law in pairwise(rules)
            if note.file == law.file and (note.tier, law.tier) == ("note", "law")]
    assert not late, "\n".join(late)


def test_issues_of_others_are_links_in_prose() -> None:
    markdown = pytest.importorskip("markdown")
    text = "Seen as py-t/torch#12, `a/b#3`, [c/d#4](e.md), and x#5."
    assert markdown.markdown(text, extensions=["conformance.trace.markdown_rules"]) == (
        '<p>Seen as <a href="https://github.com/py-t/torch/issues/12">py-t/torch#12</a>, '
        '<code>a/b#3</code>, <a href="e.md">c/d#4</a>, and x#5.</p>')
