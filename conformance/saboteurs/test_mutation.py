"""Mutants: that they differ in one place, and that tests are seen to find them or not."""
from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.saboteurs.mutation import TARGETS, Target, changes, mutants, mutated
from conformance.trace import ROOT, files_of

CODE = '''
"""Text is left alone."""
import os
def function(a: int = 1, b: "2" = True) -> "3 + 4":
    """So is this."""
    total = 0
    for each in range(3):
        if each < a and not b:
            continue
        total += min(a, -each)
        print(total)
    if b is None:
        raise ValueError(f"{1 + 1} messages too")
    return (total + 1 if a == 2 else total // 4)
'''


def test_every_sort_of_change_is_made_where_something_is_decided() -> None:
    tree = ast.parse(CODE)
    found = [(ast.unparse(old).splitlines()[0], ast.unparse(new).splitlines()[0])
             for old, new in changes(tree)]
    for wanted in (("each < a", "each <= a"), ("each < a and (not b)", "each < a or not b"),
                   ("not b", "b"), ("continue", "break"), ("total += min(a, -each)", "pass"),
                   ("min(a, -each)", "max(a, -each)"), ("-each", "each"), ("print(total)", "pass"),
                   ("True", "False"), ("b is None", "b is not None"), ("total + 1", "total - 1"),
                   ("a == 2", "a != 2"), ("total // 4", "total * 4"), ("4", "5")):
        assert wanted in found
    assert not [old for old, _ in found if "messages" in old or "alone" in old or "3 + 4" in old]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
def test_every_mutant_compiles_and_is_another_program(target: Target) -> None:


    assert target.files() and all(map(files_of, target.tests))
    path = max(target.files(), key=lambda each: each.stat().st_size)
    whole, found = ast.unparse(ast.parse(path.read_text(encoding="utf-8"))), mutants(path)
    assert len(found) > 5
    for mutant in found[::10]:
        changed = mutated(path, mutant.number)
        compile(changed, "", "exec")
        assert ast.unparse(changed) != whole, mutant


@pytest.mark.slow
def test_a_run_says_what_was_found(tmp_path: Path) -> None:
    """Of the checker, where every mutant of a sample this small is found or written down."""
    report = tmp_path / "mutation.json"
    ran = subprocess.run([sys.executable, "-m", "conformance.saboteurs.mutation",
                          "--minutes", "0.03", "--target", "checker", "--report", str(report)],
                         cwd=ROOT, text=True, capture_output=True, check=False,
                         env={**os.environ})
    score = json.loads(report.read_text(encoding="utf-8"))["targets"]["checker"]
    assert score["mutants"] > 150, ran.stderr
    assert score["tried"] == score["killed"] + score["endless"] + len(score["survivors"]) > 0
    assert ran.stdout.count("\nkilled") + ran.stdout.startswith("killed") == score["killed"] > 0
    assert ran.returncode == bool(score["survivors"])
