"""The lesson's checkpoint lets a right planner pass, and no wrong one."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn.lessons import LESSONS
from conformance.trace import ROOT

HEAD = "from impl.memory import *\n"
#: Files that are wrong, and what is said about each. More of them are in `test_learn_memory`.
WRONG = {
    "a plan of nothing but zeros": ("""
def plan(spans, reuse=True):
    high = max((span.nbytes for span in spans), default=0)
    bound = lower_bound(spans)
    return MemoryPlan({span.storage: 0 for span in spans}, list(spans), max(high, bound),
                      sum(span.nbytes for span in spans), bound)
""", "memory.reuse.disjoint: temporaries 0 and 1 are alive at position 0 and share bytes 0 to 64"),
    "nothing is written": ("""
def plan(spans, reuse=True):
    raise NotImplementedError
""", "your code raised NotImplementedError (line 4)"),
    "it is no Python": ("def plan(", "your file raised SyntaxError"),
    "a name is wrong": ("""
def plan(spans, reuse=True):
    return sorted(spams)
""", "name 'spams' is not defined (line 4)\n"),
    "a name is wrong outside of a function": (
        "most = mots", "name 'mots' is not defined (line 2)\n"),
    "a list that grows for ever": ("""
def plan(spans, reuse=True):
    grown = [spans]
    while True:
        grown = grown + grown
""", ": a small problem does not need so much memory"),
}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "conformance.learn", *words], text=True,
                          capture_output=True, check=False, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})


def check(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "my_memory.py").write_text(HEAD + text, encoding="utf-8")
    return run(folder, "check", "memory")


@pytest.mark.slow
@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_planner_is_shown_the_smallest_counterexample(text: str, said: str,
                                                              tmp_path: Path) -> None:
    found = check(tmp_path, text)
    assert found.returncode == 1 and said in found.stdout, found.stdout + found.stderr
    known = json.loads((tmp_path / ".learn.json").read_text(encoding="utf-8"))
    assert known["memory"]["green"] == []


def test_a_function_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "my_schedule.py").write_text("def moves(document):\n    pass\n", encoding="utf-8")
    found = run(tmp_path, "check", "schedule")
    assert found.stdout.startswith("raised: your file has no function `moved`\n")


@pytest.mark.slow
def test_what_only_the_tests_show_is_red_too(tmp_path: Path) -> None:
    """Our planner asks for `meets` only where none of its quick ways reaches the bound."""
    found = check(tmp_path, """
Lifetime.meets = lambda one, other: one.first < other.last and other.first < one.last
""")
    assert found.returncode == 1
    assert "RED    memory.reuse.disjoint\n    test_" in found.stdout
    assert "green  memory.planned.bounds" in found.stdout


def test_what_was_ended_is_not_green(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tests may have passed by then."""
    def ended(words: list[str], plugins: list[Any]) -> None:
        plugins[0].ran["kernel.mma.value"] = 3
        plugins[0].pytest_keyboard_interrupt(SimpleNamespace(value=KeyboardInterrupt()))

    monkeypatch.setattr(pytest, "main", ended)
    with pytest.raises(KeyboardInterrupt):
        learn._tested("fragments")
    monkeypatch.setattr(pytest, "main", lambda words, plugins: plugins[0].ran.update(
        {"kernel.mma.value": 3}))
    assert learn._tested("fragments") == ["kernel.mma.value"]


@pytest.mark.slow
def test_our_planner_passes(tmp_path: Path) -> None:
    found = check(tmp_path, "")
    assert found.returncode == 0, found.stdout
    assert "6 of 6 rules are green: the lesson is done." in found.stdout
    progress = run(tmp_path, "progress").stdout
    assert "memory: 6 of 6 rules green at the last check, 0 of 6 hints read" in progress


def test_a_lesson_is_begun_hinted_at_and_begun_anew(tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_memory.py"
    named = ["memory", "--mine", str(mine)]
    assert learn.main(["check", *named]) == 1 and "there is no" in capsys.readouterr().err
    assert learn.main(["start", *named]) == 0
    said, text = capsys.readouterr().out, mine.read_text(encoding="utf-8")
    assert "all 6 rules of this lesson are red, and that is right" in said
    assert text.count("raise NotImplementedError") == len(LESSONS["memory"].functions)
    assert "span.storage" in text and "MemoryPlan(offsets" in text  # what it is to be made of
    mine.write_text(text + "# mine\n", encoding="utf-8")
    assert learn.main(["start", *named]) == 1 and "exists already" in capsys.readouterr().err
    hints = []
    for _ in range(len(LESSONS["memory"].hints) + 1):
        assert learn.main(["hint", *named]) == 0
        hints.append(capsys.readouterr().out)
    assert hints[0].startswith("1 of 6: Write `lower_bound` first") and len(set(hints)) == 7
    assert "all 6 hints" in hints[6] and "Write `lower_bound`" not in hints[6]
    assert learn.main(["hint", *named, "--all"]) == 0
    assert capsys.readouterr().out.count("\n") == 6
    assert learn.main(["reset", *named]) == 0
    assert mine.read_text(encoding="utf-8") == text
    assert mine.with_name("my_memory.py.old").read_text(encoding="utf-8") == text + "# mine\n"
    capsys.readouterr()
    assert learn.main(["progress", "--mine", str(mine)]) == 0
    assert "memory: 0 of 6 rules green at the last check, 0 of 6 hints" in capsys.readouterr().out


def test_what_is_reached_while_a_check_runs_stays(tmp_path: Path) -> None:
    """Two checks at a time in one folder, and a hint that is read beside them."""
    mine = tmp_path / "my_memory.py"
    first, second = learn.Progress(mine), learn.Progress(mine)
    second.of("caching").update(green=["caching.key.alias"])
    second.write("caching")
    assert learn.main(["hint", "memory", "--mine", str(mine)]) == 0
    first.of("memory").update(green=["memory.alignment.arena"])
    first.write("memory")
    assert learn.Progress(mine).known == {
        "caching": {"green": ["caching.key.alias"], "hints": 0},
        "memory": {"green": ["memory.alignment.arena"], "hints": 1}}


def test_a_lesson_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        learn.main(["hint"])
    assert f"name a lesson: {', '.join(sorted(LESSONS))}" in capsys.readouterr().err


def test_without_a_word_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert learn.main([]) == 2
    assert "learn start memory" in capsys.readouterr().out


def test_every_lesson_has_its_page_and_its_rules() -> None:
    """What the table of chapters calls a lesson is one, and the other way round."""
    pages = {page.stem for page in (ROOT / "docs" / "course").glob("*.md")} - {"index"}
    assert pages == set(LESSONS)
    locked = (ROOT / "spec" / "rules.lock").read_text(encoding="utf-8")
    for slug, lesson in LESSONS.items():
        assert len(set(lesson.rules)) == len(lesson.rules), slug
        for rule in lesson.rules:
            assert rule.split(".")[0] in (lesson.chapters or (slug,)) and rule in locked


def test_lessons_stand_in_the_order_of_the_course() -> None:
    """Here, on the course's index, and beside the pages."""
    numbers = {slug: lesson.number for slug, lesson in LESSONS.items()}
    assert list(numbers.values()) == sorted(set(numbers.values()))
    index = (ROOT / "docs" / "course" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (\d+) \| \[(.+?)\]\((\w+)\.md\) \|.*\| (?:.*&nbsp;h|.*&nbsp;min) \|", index, re.M)
    assert [(slug, int(number)) for number, _, slug in rows] == list(numbers.items())
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"- {number} {title}: course/{slug}.md" in menu for number, title, slug in rows)


@pytest.mark.parametrize("slug", LESSONS)
def test_a_solution_is_shown_when_it_is_asked_for(slug: str,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    """It stands in no page before the exercise, and breaks no rule on small problems."""
    assert learn.main(["solution", slug]) == 0
    said = capsys.readouterr().out
    page = (ROOT / "docs" / "course" / f"{slug}.md").read_text(encoding="utf-8")
    assert all(f"def {name}(" in said for name in LESSONS[slug].functions)
    assert f"learn solution {slug}" in page
    asked, folded, _ = page.partition(f"<!-- solution: {slug} -->")
    assert not folded or all(f"def {name}(" not in asked for name in LESSONS[slug].functions)
    module = SimpleNamespace(**vars(import_module(learn.module_name(slug))))
    if (Path(learn.__file__).parent / "solutions" / f"{slug}.py").exists():
        written = import_module(f"conformance.learn.solutions.{slug}")
        vars(module).update((name, getattr(written, name)) for name in LESSONS[slug].functions)
    judged: Any = module
    assert [str(each) for each in LESSONS[slug].counterexamples(judged)] == []


def test_a_late_file_may_import_everything(tmp_path: Path) -> None:
    """It is run when a function of it is called first, once."""
    mine = tmp_path / "my_training.py"
    mine.write_text("from impl import Tensor\nprint('once')\n"
                    "def pipeline(passes, given):\n    return passes\n"
                    "def step(*given):\n    return None\n", encoding="utf-8")
    found = run(tmp_path, "check", "training")
    assert found.stdout.startswith("once\nschedule.passes.pure: fuse runs before place")
