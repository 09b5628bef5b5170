"""Code in the texts is that of its source, and links in the texts lead to a file."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.trace import ROOT, prose
from conformance.trace.excerpts import (
    NoSuchDefinition,
    c_definitions,
    differences,
    excerpts,
    renewed,
    texts,
)

LINK = re.compile(r"\]\((?!\w+:)([^()\s#]+)(?:#[^()\s]*)?\)")

pytestmark = pytest.mark.skipif(not (ROOT / "spec").is_dir(), reason="needs a source checkout")

SOURCE = '''
"""A module."""

LIMIT = 3
#: What goes before.
FIRST, SECOND = 1, 2


@decorated
def outer(x):
    def inner():
        return x

    return inner


# About the class.
class Shape:
    """A shape."""

    sides = 4  # as many as it has
               # corners

    def area(self):
        return 1

    def name(self):
        return "shape"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "impl").mkdir()
    (tmp_path / "spec").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "impl" / "shapes.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def block(line: str, *code: str) -> str:
    return "\n".join(["Text.", "", "```python", line, *code, "```", ""])


def shown(project: Path, names: str) -> list[str]:
    return renewed(block(f"# impl/shapes.py: {names}", "old"), project).splitlines()[4:-1]


def test_every_text_shows_its_sources_as_they_are() -> None:
    wrong = "\n".join(map(str, differences()))
    assert not wrong, wrong
    assert sum(len(list(excerpts(path.read_text(encoding="utf-8")))) for path in texts()) > 100


def test_no_text_leaves_code_to_be_filled_in_by_a_build() -> None:
    left = [path.name for path in texts() if "--8<--" in path.read_text(encoding="utf-8")]
    assert not left, f"show the code itself: {left}"


def test_a_function_is_shown_with_its_decorators(project: Path) -> None:
    assert shown(project, "outer") == ["@decorated", "def outer(x):", "    def inner():",
                                       "        return x", "", "    return inner"]


def test_a_comment_belongs_to_what_it_stands_above(project: Path) -> None:
    assert shown(project, "SECOND") == ["#: What goes before.", "FIRST, SECOND = 1, 2"]
    assert shown(project, "Shape")[:2] == ["# About the class.", "class Shape:"]


def test_a_statement_that_gives_two_names_is_shown_once(project: Path) -> None:
    assert shown(project, "FIRST, LIMIT, SECOND") == ["#: What goes before.",
                                                      "FIRST, SECOND = 1, 2", "", "LIMIT = 3"]


def test_definitions_keep_their_distance(project: Path) -> None:
    assert shown(project, "LIMIT, FIRST") == ["LIMIT = 3", "#: What goes before.",
                                              "FIRST, SECOND = 1, 2"]
    assert shown(project, "outer, LIMIT")[5:] == ["    return inner", "", "LIMIT = 3"]


def test_parts_of_a_class_are_shown(project: Path) -> None:
    assert shown(project, "Shape.name") == ["def name(self):", '    return "shape"']
    head = ["# About the class.", "class Shape:", '    """A shape."""', "",
            "    sides = 4  # as many as it has", "               # corners"]
    assert shown(project, "Shape:") == head
    assert shown(project, "Shape:, Shape.name") == \
        [*head, "", "    def name(self):", '        return "shape"']


def test_a_whole_file_is_shown(project: Path) -> None:
    new = renewed(block("# impl/shapes.py"), project)
    assert new == block("# impl/shapes.py", *SOURCE.splitlines())


def test_what_moved_is_found(project: Path) -> None:
    (project / "impl" / "shapes.py").rename(project / "impl" / "forms.py")
    new = renewed(block("# impl/shapes.py: LIMIT"), project)
    assert new == block("# impl/forms.py: LIMIT", "LIMIT = 3")


def test_what_several_files_define_is_refused(project: Path) -> None:
    for name in ("forms.py", "figures.py"):
        (project / "impl" / name).write_text("LOST = 1\n", encoding="utf-8")
    with pytest.raises(NoSuchDefinition, match="LOST, and several others do: impl/figures.py"):
        renewed(block("# impl/shapes.py: LOST"), project)
    with pytest.raises(NoSuchDefinition, match="does not define GONE any more, and no other"):
        renewed(block("# impl/shapes.py: GONE"), project)


def test_a_block_in_a_list_keeps_its_indentation(project: Path) -> None:
    text = "- Text.\n\n    ```python\n    # impl/shapes.py: LIMIT\n    old\n    ```\n"
    assert renewed(text, project).splitlines()[4] == "    LIMIT = 3"


def test_a_difference_is_told_with_its_line(project: Path) -> None:
    text = block("# impl/shapes.py: LIMIT", "LIMIT = 4") + block("# impl/shapes.py: GONE")
    (project / "spec" / "shapes.md").write_text(text, encoding="utf-8")
    first, second = differences(project)
    assert (first.file, first.line) == ("spec/shapes.md", 4)
    assert "not what impl/shapes.py says" in first.what
    assert second.line == 10
    assert "does not define GONE" in second.what
    (project / "spec" / "shapes.md").write_text(
        block("# impl/shapes.py: LIMIT", "LIMIT = 3"), encoding="utf-8")
    assert not list(differences(project))


def test_other_blocks_are_left_alone(project: Path) -> None:
    text = block("# a comment", "x = 1") + block("x = 1") + "Text.  \n"
    assert renewed(text, project) == text


def test_a_paragraph_of_c_has_the_names_that_it_declares() -> None:
    text = ("/* A job. */\nstatic struct {\n  long own;\n\n  char *more;\n} job;\n\n"
            "static long run(long count) {\n\n  return job.own + count;\n}\n")
    spans = {span.name: (span.first, span.last) for span in c_definitions(text)}
    assert spans["job"] == (0, 6)
    assert spans["run"] == (7, 11)
    assert "own" not in spans


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_a_file(path: Path) -> None:
    lines = prose(path.read_text(encoding="utf-8"))
    lost = [f"{path.name}:{number}: {target}" for number, line in lines
            for target in LINK.findall(line) if not (path.parent / target).exists()]
    assert not lost, "\n".join(lost)
