"""From a rule to the code that follows it, the tests that verify it and the bugs they catch.

A rule is written in `spec/CHAPTER.md` as a line with its sentence below: `r[chapter.topic.name]`
is a law, which any implementation can be held to, `r[note chapter.topic.name]` a note on `impl`.
A law has a check in the portable suite, `conformance/suite`, which cites nothing but laws.
Code cites it in a comment, `# r[impl chapter.topic.name]`; a test with `@verifies("...")`; a
saboteur, which is an implementation with one bug on purpose, with its attribute `rule`.

    python -m conformance.trace check     every citation holds, every rule has what it needs,
                                          and code in a text is that of its source
    python -m conformance.trace lock      record the rules and their revisions in spec/rules.lock
    python -m conformance.trace matrix    the whole table, as Markdown (or --json)
    python -m conformance.trace promises  what one can rely on, and how each promise is tested

Nothing here imports the implementation: it reads text.
"""
from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.suite import verifies as verifies

#: Where `spec/`, `impl/` and `conformance/` stand in a source checkout.
ROOT = Path(__file__).resolve().parents[2]

#: Libraries on top of all chapters, which none of them imports, and what holds the parts together.
USER_LIBRARIES = frozenset(
    {"array_api", "assembly", "complex", "fft", "func", "models", "nn", "onnx", "torch", "__main__",
     "__init__"})

#: Chapters of text and tests only: their rules hold for all modules alike.
WITHOUT_MODULE = frozenset({"conventions", "statements"})

#: Where the checks are that any implementation can be held to.
PORTABLE_TESTS = "conformance/suite/"
#: Saboteurs of `impl` only: its functions are replaced, or its lines edited.
WITHIN_IMPL = ("conformance/saboteurs/impl_", "conformance/saboteurs/threats")

NAME = r"[a-z]+(?:-[a-z]+)*"
RULE_ID = re.compile(rf"{NAME}\.{NAME}\.{NAME}")
#: The tier, which is empty for a law, and the id.
RULE_LINE = re.compile(r"^r\[(note )?(?!impl |exception |note )([^\]\s]+)\]\s*$")
EXCEPTION_LINE = re.compile(r"^r\[exception ([^\]\s:]+):?\s*([^\]]*)\]\s*$")
CITATION = re.compile(r"r\[impl ([^\]]+)\]")
REFERENCE = re.compile(r"r\[([a-z][a-z-]*\.[a-z.-]+(?:\+\d+)?)\]")
NORMATIVE = re.compile(r"\b(?:MUST NOT|MUST|SHOULD NOT|SHOULD|SHALL NOT|SHALL|MAY NOT|MAY)\b")
LEVELS = ("MUST", "MUST NOT", "SHOULD", "MAY")
#: A law is for everybody, a note for this implementation.
TIERS = ("law", "note")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
CHAPTER_ROW = re.compile(rf"^\|\s*(\d+)\s*\|\s*\[({NAME})\]\({NAME}\.md\)\s*\|\s*(.*?)\s*\|\s*$")


@dataclass(frozen=True, order=True)
class Problem:
    """Something the check refuses: where, what, and what to do."""

    file: str
    line: int
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}. Remedy: {self.remedy}"


@dataclass(frozen=True)
class Rule:
    """One rule as the specification states it. `level` is '' if its sentence is not one rule."""

    id: str
    revision: int
    tier: str
    level: str
    text: str
    file: str
    line: int

    @property
    def chapter(self) -> str:
        return self.id.split(".")[0]

    @property
    def digest(self) -> str:
        """A hash of the sentence that does not see how its lines are broken."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()


@dataclass(frozen=True)
class Citation:
    """A place that names a rule: a comment in code, a test, a saboteur, an exception, a text."""

    id: str
    revision: int
    file: str
    line: int
    name: str = ""
    note: str = ""


@dataclass(frozen=True)
class Edited:
    """Where a saboteur says that it makes its mistake, and which test it says to find it first."""

    place: Citation
    file: str
    old: str
    first: str
    target: str


@dataclass(frozen=True)
class Locked:
    """One line of `spec/rules.lock`."""

    id: str
    revision: int
    tier: str
    level: str
    digest: str
    line: int


@dataclass(frozen=True)
class Chapter:
    """One row of the table in `spec/index.md`, which declares the order of the chapters."""

    floor: int
    slug: str
    owns: str


@dataclass
class Project:
    """All that the text of a source checkout says about rules."""

    root: Path
    chapters: list[Chapter] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    code: list[Citation] = field(default_factory=list)
    tests: list[Citation] = field(default_factory=list)
    saboteurs: list[Citation] = field(default_factory=list)
    edits: list[Edited] = field(default_factory=list)
    exceptions: list[Citation] = field(default_factory=list)
    references: list[Citation] = field(default_factory=list)
    locked: list[Locked] = field(default_factory=list)
    retired: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def by_id(self) -> dict[str, Rule]:
        return {rule.id: rule for rule in self.rules}


# Reading text


def split_revision(identifier: str) -> tuple[str, int]:
    """`"a.b.c+2"` is revision 2 of `a.b.c`; no suffix is revision 1."""
    name, _, revision = identifier.strip().partition("+")
    return name, int(revision) if revision.isdigit() else 1


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines outside fenced blocks, with inline code taken out."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        elif not fence:
            yield number, CODE_SPAN.sub("", line)


def read_chapters(root: Path) -> list[Chapter]:
    """The chapters in import order, from the table in `spec/index.md`."""
    index = root / "spec" / "index.md"
    lines = index.read_text(encoding="utf-8").splitlines() if index.exists() else []
    rows = [found for line in lines if (found := CHAPTER_ROW.match(line))]
    return [Chapter(int(row[1]), row[2], row[3]) for row in rows]


def read_spec(project: Project, path: Path) -> None:
    """Collect the rules, the exceptions and the cross references of one file of prose."""
    text = path.read_text(encoding="utf-8")
    raw = text.splitlines()
    file = path.relative_to(project.root).as_posix()
    ruled: set[int] = set()
    is_spec = file.startswith("spec/")
    for number, line in prose(text):
        exception = EXCEPTION_LINE.match(raw[number - 1])
        found = RULE_LINE.match(line)
        if is_spec and exception:
            name, revision = split_revision(exception[1])
            note = exception[2].strip()
            project.exceptions.append(Citation(name, revision, file, number, note=note))
        elif is_spec and found:
            body = rule_body(raw, number)
            ruled.update(range(number, number + len(body) + 1))
            tier = "note" if found[1] else "law"
            add_rule(project, found[2], tier, " ".join(body), file, number)
            above = raw[number - 2] if number > 1 else ""
            if above.strip() and not above.startswith("#"):
                what = f"rule {found[2]} stands in a paragraph, and the site shows no rule there"
                project.problems.append(Problem(file, number, what, "put an empty line above it"))
        else:
            if is_spec and number not in ruled:
                refuse_normative(project, line, file, number)
            for reference in REFERENCE.findall(line):
                name, revision = split_revision(reference)
                project.references.append(Citation(name, revision, file, number))


def rule_body(raw: list[str], number: int) -> list[str]:
    """The lines of a rule's sentence: those below line `number` up to an empty one."""
    body = []
    for line in raw[number:]:
        if not line.strip() or EXCEPTION_LINE.match(line):
            break
        body.append(line.strip())
    return body


def add_rule(project: Project, identifier: str, tier: str, text: str, file: str,
             line: int) -> None:
    name, revision = split_revision(identifier)
    words = NORMATIVE.findall(CODE_SPAN.sub("", text))
    level = words[0] if len(words) == 1 and words[0] in LEVELS else ""
    project.rules.append(Rule(name, revision, tier, level, text, file, line))
    at = (file, line)
    if not RULE_ID.fullmatch(name) or "+" in identifier and revision < 2:
        remedy = "write r[chapter.topic.name] in lower case, without digits, revision +2 or later"
        project.problems.append(Problem(*at, f"'{identifier}' is not a rule id", remedy))
    elif file == f"spec/{Path(file).name}" and name.split(".")[0] != Path(file).stem:
        remedy = f"begin the id with '{Path(file).stem}.' or move the rule to its chapter"
        project.problems.append(Problem(*at, f"rule {name} stands in another chapter", remedy))
    if not level:
        what = f"rule {name} has {words or 'no normative word'} where one of {LEVELS} has to be"
        remedy = "one idea a rule, stated right below its id with exactly one such word"
        project.problems.append(Problem(*at, what, remedy))


def refuse_normative(project: Project, line: str, file: str, number: int) -> None:
    for word in NORMATIVE.findall(line):
        remedy = "make it a rule, or say it in other words"
        what = f"the word {word} stands outside a rule"
        project.problems.append(Problem(file, number, what, remedy))


def read_code(project: Project, path: Path) -> None:
    """Collect the citations in the comments of one module, and the references in its texts."""
    text = path.read_text(encoding="utf-8")
    if not CITATION.search(text) and not REFERENCE.search(text):
        return  # to take a text apart costs far more
    file = path.relative_to(project.root).as_posix()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            for identifiers in CITATION.findall(token.string):
                for identifier in identifiers.split(","):
                    name, revision = split_revision(identifier)
                    project.code.append(Citation(name, revision, file, token.start[0]))
        elif token.type == tokenize.STRING and token.string.endswith('"""'):
            for offset, line in prose(token.string):
                for reference in REFERENCE.findall(line):
                    name, revision = split_revision(reference)
                    at = token.start[0] + offset - 1
                    project.references.append(Citation(name, revision, file, at))


def read_tests(project: Project, path: Path) -> None:
    """Collect the citations of one test file, and refuse a chapter's test that has none."""
    file = path.relative_to(project.root).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"), file)
    chapter_test = path.stem.removeprefix("test_") in {c.slug for c in project.chapters}
    for node, inherited in collected_tests(tree):
        cited = [*inherited, *rules_of(node)]
        for identifier in rules_of(node):
            name, revision = split_revision(identifier)
            place = Citation(name, revision, file, node.lineno, name=f"{path.stem}.{node.name}")
            project.tests.append(place)
        if chapter_test and not cited and not isinstance(node, ast.ClassDef):
            remedy = 'say which one: @verifies("chapter.topic.name")'
            what = f"{node.name} verifies no rule"
            project.problems.append(Problem(file, node.lineno, what, remedy))


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def collected_tests(tree: ast.Module) -> Iterator[tuple[Definition, list[str]]]:
    """What pytest collects, each with the rules that its class verifies for it."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield node, []
            for inner in node.body:
                if isinstance(inner, Definition) and inner.name.startswith("test"):
                    yield inner, rules_of(node)
        elif isinstance(node, Definition) and node.name.startswith("test"):
            yield node, []


def rules_of(node: Definition) -> list[str]:
    """The ids in a definition's `verifies("...")` marks, parametrised ones included."""
    calls = [c for d in node.decorator_list for c in ast.walk(d) if isinstance(c, ast.Call)]
    return [
        call.args[0].value
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) == "verifies"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


def read_saboteurs(project: Project, path: Path) -> None:
    """Collect the classes that name the rule they break."""
    file = path.relative_to(project.root).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"), file)
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in classes.values():
        identifier = class_text(node, "rule")
        if identifier:
            name, revision = split_revision(identifier)
            note = class_text(node, "description")
            place = Citation(name, revision, file, node.lineno, name=node.name, note=note)
            project.saboteurs.append(place)
            above = [classes[base.id] for base in node.bases
                     if isinstance(base, ast.Name) and base.id in classes]
            edited = next(filter(None, (class_text(each, "file") for each in (node, *above))), "")
            if not node.name.startswith("_"):  # what others are made of
                project.edits.append(Edited(place, edited, class_text(node, "old"),
                                            class_text(node, "first"),
                                            class_text(node, "target")))


def class_text(node: ast.ClassDef, attribute: str) -> str:
    """The string that a class body assigns to `attribute`, or ''."""
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            targets: list[ast.expr] = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        for target in targets:
            pairs = [(target, statement.value)]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(target.elts, statement.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and name.id == attribute \
                        and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    return value.value
    return ""


def read_lock(project: Project) -> None:
    """Read the recorded rules and the ids that were given up."""
    for line, words in table(project.root / "spec" / "rules.lock"):
        name, revision, tier, level = words[0], words[1], words[2], " ".join(words[3:-1])
        project.locked.append(Locked(name, int(revision), tier, level, words[-1], line))
    for line, words in table(project.root / "spec" / "rules.retired"):
        project.retired[words[0]] = line


def table(path: Path) -> Iterator[tuple[int, list[str]]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.split()


def read_rules(root: Path = ROOT) -> Project:
    """Read the texts only: the rules, and the references to them."""
    project = Project(root, read_chapters(root))
    for path in [*sorted((root / "spec").rglob("*.md")), *sorted((root / "docs").rglob("*.md"))]:
        read_spec(project, path)
    return project


def load(root: Path = ROOT) -> Project:
    """Read all of a source checkout."""
    project = read_rules(root)
    for path in sorted((root / "impl").rglob("*.py")):
        read_code(project, path)
    for path in sorted((root / "conformance").rglob("test_*.py")):
        read_tests(project, path)
    for path in sorted((root / "conformance" / "saboteurs").rglob("*.py")):
        if not path.name.startswith("test_"):  # those of tests are no mistakes that anybody finds
            read_saboteurs(project, path)
    read_lock(project)
    return project


def chapter_tests(chapter: str, root: Path = ROOT) -> list[Path]:
    """The files that test a chapter: checks of the portable suite, then tests of `impl`."""
    portable = root / "conformance" / "suite" / f"test_{chapter}.py"
    return [*([portable] if portable.is_file() else []),
            *sorted((root / "conformance" / "chapters" / chapter).glob("test_*.py"))]


def files_of(name: str, root: Path = ROOT) -> list[Path]:
    """The files of tests with this name, such as "test_memory": of `impl` first, then portable.

    Raises:
        ValueError: there is none.
    """
    found = sorted((root / "conformance").rglob(f"{name}.py"))
    if not found:
        raise ValueError(f"there is no file {name}.py in conformance")
    return found


# The check


def check(root: Path = ROOT) -> list[Problem]:
    """Everything that is wrong, in the order of the files."""
    project = load(root)
    checks = (duplicates, wrong_citations, missing_evidence, misplaced, tiers, stray_modules,
              exceptions, lock_drift)
    from conformance.trace.excerpts import differences  # here, since it reads this module

    found = [*project.problems, *(problem for one in checks for problem in one(project)),
             *differences(root)]
    return sorted(set(found))


def duplicates(project: Project) -> Iterator[Problem]:
    seen: dict[str, Rule] = {}
    for rule in project.rules:
        if rule.id in seen:
            where = f"{seen[rule.id].file}:{seen[rule.id].line}"
            what = f"rule {rule.id} is stated already at {where}"
            yield Problem(rule.file, rule.line, what, "give one of the two another name")
        seen.setdefault(rule.id, rule)


def wrong_citations(project: Project) -> Iterator[Problem]:
    """Citations of rules that do not exist, or not in that revision."""
    rules = project.by_id()
    cited = [*project.code, *project.tests, *project.saboteurs, *project.exceptions]
    for place in [*cited, *project.references]:
        rule = rules.get(place.id)
        if rule is None:
            gone = " (it is retired)" if place.id in project.retired else ""
            what = f"there is no rule {place.id}{gone}"
            yield Problem(place.file, place.line, what, "cite a rule that spec/ states")
        elif rule.revision != place.revision and place not in project.references:
            what = f"cites revision {place.revision} of {place.id}, which is at {rule.revision}"
            remedy = f"see what changed at {rule.file}:{rule.line}, then cite +{rule.revision}"
            yield Problem(place.file, place.line, what, remedy)


def missing_evidence(project: Project) -> Iterator[Problem]:
    """Rules that lack the code, the test or the saboteur that their level demands."""
    code, tests, saboteurs, excepted = (
        {place.id for place in places}
        for places in (project.code, project.tests, project.saboteurs, project.exceptions)
    )
    for rule in project.rules:
        at = (rule.file, rule.line)
        what = f"{rule.level} rule {rule.id} has no "
        obliged = rule.level.startswith("MUST")
        if obliged and rule.id not in code and rule.chapter not in WITHOUT_MODULE:
            remedy = f"write '# r[impl {rule.id}]' on the lines that follow it"
            yield Problem(*at, what + "code", remedy)
        if obliged and rule.id not in tests:
            yield Problem(*at, what + "test", f'write a test with @verifies("{rule.id}")')
        if obliged and rule.id not in saboteurs:
            remedy = f"add a class with rule = '{rule.id}' to conformance/saboteurs/"
            yield Problem(*at, what + "saboteur", remedy)
        if rule.level == "SHOULD" and rule.id not in tests | excepted:
            remedy = f"write a test, or 'r[exception {rule.id}: reason]' below the rule"
            yield Problem(*at, what + "test and no exception", remedy)


def misplaced(project: Project) -> Iterator[Problem]:
    """Saboteurs whose mistake or whose test is not there any more: they would show nothing."""
    tests = {place.name.rpartition(".")[2] for place in project.tests}
    for edit in project.edits:
        place, name = edit.place, edit.place.name
        path = project.root / edit.file  # the root, where the file is not written as a text
        known = edit.old and path != project.root
        count = path.read_text(encoding="utf-8").count(edit.old) if known and path.exists() else 0
        if known and count != 1:
            what = f"{name} edits a text that stands in {edit.file} {count} times"
            yield Problem(place.file, place.line, what,
                          "name the code as it is now, once, or delete a mistake that nobody can "
                          "make any more")
        if edit.target and not _is_named(project.root, edit.target):
            yield Problem(place.file, place.line, f"{name} changes {edit.target}, which is gone",
                          "name the function as it is now, \"package.module:function\"")
        if edit.first and edit.first.partition("[")[0] not in tests:
            yield Problem(place.file, place.line, f"{name} names {edit.first}, which no test is "
                          "called", "name a test that cites its rule")


def _is_named(root: Path, target: str) -> bool:
    """Whether a module has the first name of "package.module:Class.method"."""
    module, _, path = target.partition(":")
    file = root.joinpath(*module.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    if not file.exists():
        return not module.startswith(("impl", "conformance"))  # a module of somebody else
    text = file.read_text(encoding="utf-8")
    return re.search(rf"\b{re.escape(path.partition('.')[0])}\b", text) is not None


def tiers(project: Project) -> Iterator[Problem]:
    """Laws that nobody else can be held to, and checks of others by what is a note here."""
    rules = project.by_id()
    portable = [place for place in project.tests if place.file.startswith(PORTABLE_TESTS)]
    around = [place for place in project.saboteurs if not place.file.startswith(WITHIN_IMPL)]
    checked, sabotaged = ({place.id for place in places} for places in (portable, around))
    for place in portable:
        if place.id in rules and rules[place.id].tier != "law":
            what = f"{place.name} holds everybody to {place.id}, which is a note"
            yield Problem(place.file, place.line, what, "make it a law, or cite one")
    for rule in rules.values():
        at = (rule.file, rule.line)
        if rule.tier != "law" or rule.level == "MAY":
            continue
        if rule.id not in checked:
            remedy = f"write a check in {PORTABLE_TESTS}, or make it r[note {rule.id}]"
            yield Problem(*at, f"law {rule.id} has no portable check", remedy)
        elif rule.level.startswith("MUST") and rule.id not in sabotaged:
            remedy = f"add an AdapterSaboteur with rule = '{rule.id}' to conformance/saboteurs/"
            yield Problem(*at, f"law {rule.id} has no saboteur of any implementation", remedy)


def stray_modules(project: Project) -> Iterator[Problem]:
    """Modules of the implementation that no chapter describes."""
    slugs = {chapter.slug for chapter in project.chapters}
    for path in sorted((project.root / "impl").glob("*")):
        is_module = path.suffix == ".py" or (path / "__init__.py").exists()
        if is_module and path.stem not in slugs | USER_LIBRARIES:
            file = path.relative_to(project.root).as_posix()
            remedy = f"write spec/{path.stem}.md and its row in spec/index.md, or move the code"
            yield Problem(file, 1, f"module {path.stem} has no chapter", remedy)


def exceptions(project: Project) -> Iterator[Problem]:
    rules = project.by_id()
    for place in project.exceptions:
        if not place.note:
            remedy = f"write r[exception {place.id}: reason]"
            yield Problem(place.file, place.line, f"exception {place.id} has no reason", remedy)
        if place.id in rules and rules[place.id].level != "SHOULD":
            what = f"rule {place.id} is no SHOULD and knows no exception"
            yield Problem(place.file, place.line, what, "follow the rule, or change its level")


def lock_drift(project: Project) -> Iterator[Problem]:
    """Differences between the rules and their record."""
    yield from refused(project)
    locked = {entry.id: entry for entry in project.locked}
    for rule in project.rules:
        entry = locked.get(rule.id)
        if entry is None or entry.revision < rule.revision or entry.tier != rule.tier:
            what = f"{rule.tier} {rule.id} is not in spec/rules.lock in this revision"
            remedy = "run python -m conformance.trace lock, and commit the lock"
            yield Problem(rule.file, rule.line, what, remedy)


def refused(project: Project) -> Iterator[Problem]:
    """What may not even be locked: it would break a citation without anyone noticing."""
    rules = project.by_id()
    for entry in project.locked:
        rule = rules.get(entry.id)
        if rule is None and entry.id not in project.retired:
            remedy = "state it again, or add 'id reason' to spec/rules.retired"
            yield Problem("spec/rules.lock", entry.line, f"rule {entry.id} is gone", remedy)
        elif rule and rule.revision < entry.revision:
            what = f"rule {rule.id} went back from revision {entry.revision} to {rule.revision}"
            yield Problem(rule.file, rule.line, what, f"make it +{entry.revision + 1}")
        elif rule and rule.revision == entry.revision and rule.digest != entry.digest:
            what = f"rule {rule.id} changed its text and kept its revision"
            yield Problem(rule.file, rule.line, what, f"make it r[{rule.id}+{rule.revision + 1}]")
    for name, line in project.retired.items():
        if name in rules:
            what = f"rule {name} is retired and stated in {rules[name].file}"
            remedy = "give the new rule another name: a retired one keeps its meaning"
            yield Problem("spec/rules.retired", line, what, remedy)


# Locking and showing

LOCK_HEADER = """\
# The rules of the specification: id, revision, tier, level, SHA-256 of the sentence.
# Written by: python -m conformance.trace lock
"""


def lock(root: Path = ROOT) -> list[Problem]:
    """Record all rules in `spec/rules.lock`; changes nothing if there is something to refuse."""
    project = load(root)
    problems = sorted({*project.problems, *duplicates(project), *refused(project)})
    problems = [problem for problem in problems if problem.file.startswith("spec/")]
    if not problems:
        lines = [f"{r.id} {r.revision} {r.tier} {r.level} {r.digest}\n" for r in project.rules]
        text = LOCK_HEADER + "".join(sorted(lines))
        (root / "spec" / "rules.lock").write_text(text, encoding="utf-8")
    return problems


def matrix(root: Path = ROOT) -> list[dict[str, Any]]:
    """One row for each rule: the rule, and all that cites it."""
    project = load(root)

    kinds = {"code": project.code, "tests": project.tests, "saboteurs": project.saboteurs,
             "exceptions": project.exceptions}
    cited: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for kind, places in kinds.items():
        for place in places:
            cited.setdefault((kind, place.id), []).append(asdict(place))
    return [{**asdict(rule), "chapter": rule.chapter,
             **{kind: cited.get((kind, rule.id), []) for kind in kinds}}
            for rule in project.rules]


def matrix_text(rows: list[dict[str, Any]]) -> str:
    """The matrix as a Markdown table."""
    lines = ["| rule | tier | level | code | tests | saboteurs |", "|---|---|---|---|---|---|"]
    for row in rows:
        code = ", ".join(f"{place['file']}:{place['line']}" for place in row["code"])
        tests = ", ".join(place["name"] for place in row["tests"])
        saboteurs = ", ".join(place["name"] for place in row["saboteurs"])
        lines.append(f"| {row['id']} | {row['tier']} | {row['level']} | {code} | {tests} "
                     f"| {saboteurs} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.trace", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "lock", "matrix", "promises"))
    parser.add_argument("--json", action="store_true", help="the matrix as JSON")
    parser.add_argument("--root", type=Path, default=ROOT, help="the source checkout")
    options = parser.parse_args(arguments)
    if not (options.root / "spec").is_dir():
        print(f"{options.root} holds no spec/: run this in a source checkout", file=sys.stderr)
        return 2
    if options.command == "promises":
        from conformance.trace.promises import table
        print(table())
        return 0
    if options.command == "matrix":
        rows = matrix(options.root)
        print(json.dumps(rows, indent=1) if options.json else matrix_text(rows))
        return 0
    problems = (check if options.command == "check" else lock)(options.root)
    for problem in problems:
        print(problem)
    project = load(options.root)
    laws = sum(rule.tier == "law" for rule in project.rules)
    print(f"{laws} laws and {len(project.rules) - laws} notes, "
          f"{len(project.code)} citations in code, "
          f"{len(project.tests)} in tests, {len(project.saboteurs)} saboteurs, "
          f"{len(problems)} problems")
    return 1 if problems else 0

