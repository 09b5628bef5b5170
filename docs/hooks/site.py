"""What the site computes while it is built: links to rules, the rule matrix, reports, figures.

A page asks for a computed part with a comment: `<!-- rule-matrix -->`, `<!-- compatibility -->`,
`<!-- known-threats -->`, `<!-- rule-matrix: memory -->`, `<!-- rule-matrix: steps -->`,
`<!-- mutation -->`, `<!-- agreement -->`, `<!-- dry-run -->`, `<!-- sanitized -->`,
`<!-- onnx-nodes -->`, `<!-- promises -->`, `<!-- mutants -->`, `<!-- figure: NAME -->`,
`<!-- bench: schedule -->`. An unknown name fails the build.

The chapters are pages, too, though they lie in `spec/` and not in `docs/`. Links in all texts are
those of the repository, so that they also lead somewhere in an editor and on a code host.
"""
from __future__ import annotations

import gc
import json
import posixpath
import re
from collections import Counter
from functools import cache
from html import escape
from typing import Any

import digits
import figures
import lesson_figures
import live
import playground
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from mkdocs.utils.templates import TemplateContext

from conformance import learn, protocol, trace
from conformance.bench import table, timings
from conformance.hardware import page as hardware
from conformance.trace import markdown_rules, promises, threats

ASKED = re.compile(r"<!--\s*(rule-matrix|compatibility|known-threats|figure|bench|mutation"
                   r"|agreement|dry-run|sanitized|onnx-nodes|promises|mutants|solution)"
                   r"(?::\s*([\w.-]+))?\s*-->")
PAGE_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^()\s#]+\.md)(?=[#)])")
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CELL_NAME = re.compile(r'(<code>|<a class="rule-link"[^>]*>)([^<]*)')
WORD_END = re.compile(r"(?<=[/_.])(?=\w)|(?<=[a-z0-9])(?=[A-Z])")
LINK = re.compile(r'href="(rule|matrix):([^"]+)"')
SOURCE = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
COLOUR = re.compile(r"</?span\b[^>]*>")
REPORTS = trace.ROOT / "conformance" / "reports"
RESULTS = trace.ROOT / "conformance" / "bench" / "results"

# Worst first: a rule is as good as the worst verdict of its tests.
VERDICTS = ("fail", "error", "xpass", "xfail", "inconclusive", "unsupported", "not-run", "pass")
#: Verdicts behind which there is a program that shows something.
RED = ("fail", "error", "xfail")


def on_pre_build(config: MkDocsConfig) -> None:
    """Forget what the last build read: texts change while `mkdocs serve` runs."""
    rows.cache_clear()
    reports.cache_clear()
    tests_by_rule.cache_clear()
    markdown_rules.known_rules.cache_clear()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the chapters, which lie beside the documentation."""
    for path in sorted((trace.ROOT / "spec").rglob("*.md")):
        name = path.relative_to(trace.ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, content in digits.module_files().items():
        files.append(File.generated(config, f"assets/digits/{name}", content=content))
    for name, content in playground.files().items():
        files.append(File.generated(config, f"assets/playground/{name}", content=content))
    return files


def in_repository(page: str) -> str:
    """Where the text of a page lies: `spec/memory.md`, `docs/course/memory.md`."""
    return page if page.startswith("spec/") else f"docs/{page}"


def site_link(page: str, target: str) -> str:
    """A link between two texts of the repository as one between their pages."""
    here = posixpath.dirname(in_repository(page))
    there = posixpath.normpath(posixpath.join(here, target)).removeprefix("docs/")
    return posixpath.relpath(there, posixpath.dirname(page) or ".")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the computed tables where a page asks for them, as Markdown with headings."""
    source = page.file.src_uri
    chapter = source.removeprefix("spec/").removesuffix(".md").replace("/", ".")
    if source.startswith("spec/") and any(row["id"].startswith(f"{chapter}.") for row in rows()):
        markdown += f"\n\n## The rules of this chapter\n\n<!-- rule-matrix: {chapter} -->\n"
    markdown = PAGE_LINK.sub(lambda link: site_link(source, link[0]), markdown)

    def computed(asked: re.Match[str]) -> str:
        kind, name = asked.groups()
        if kind == "compatibility":
            return compatibility()
        if kind == "known-threats":
            return known_threats()
        if kind == "mutation":
            return mutation()
        if kind == "agreement":
            return agreement()
        if kind == "dry-run":
            return dry_run()
        if kind == "sanitized":
            return sanitized()
        if kind == "onnx-nodes":
            return onnx_nodes()
        if kind == "promises":
            return promises.table(posixpath.relpath("spec", posixpath.dirname(source)), rows())
        if kind == "mutants":
            return mutants()
        if kind == "solution":
            return folded_solution(name or "")
        if kind == "bench":
            return benchmark(name or "")
        if kind == "rule-matrix":
            return matrix_slice(name) if name else whole_matrix()
        return asked[0]

    made = ASKED.sub(computed, markdown)
    return threats.linked(made) if source == "threats.md" else made


def folded_solution(lesson: str) -> str:
    """A solution of a lesson, which is read by who opens it."""
    code = learn.solution(lesson).replace("\n", "\n    ")
    return f'??? example "A solution"\n\n    ```python\n    {code}\n    ```\n'


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the figures, and give the links to rules their addresses."""

    def figure(asked: re.Match[str]) -> str:
        draw = {**figures.FIGURES, **lesson_figures.FIGURES, **live.FIGURES}.get(asked[2] or "")
        if draw is None:
            raise PluginError(f"{page.file.src_uri}: there is no figure {asked[2]!r}")
        gc.freeze()  # a captured call looks for garbage: not among all that the build holds
        return draw().replace('src="asset:', f'src="{get_relative_url("assets/", page.url)}')

    def link(found: re.Match[str]) -> str:
        kind, name = found.groups()
        target = f"spec/{name.split('.')[0]}/" if kind == "rule" else "conformance/matrix/"
        return f'href="{get_relative_url(target, page.url)}#{kind[0]}-{name}"'

    def cell(found: re.Match[str]) -> str:
        return CELL_NAME.sub(lambda name: name[1] + breakable(name[2]), found[0])

    return LINK.sub(link, ASKED.sub(figure, CELL.sub(cell, html)))


@event_priority(100)
def _search_less(context: TemplateContext, page: Page, config: MkDocsConfig,
                 nav: Navigation) -> None:
    """Give the search plugin words: the colours of code are half of all tags, and bodies of
    functions are not what a reader looks for.
    """
    page.whole_content = page.content  # type: ignore[attr-defined]
    page.content = COLOUR.sub("", SOURCE.sub("", page.content or ""))


@event_priority(-100)
def _show_all(context: TemplateContext, page: Page, config: MkDocsConfig,
              nav: Navigation) -> None:
    """Show what the search plugin was not given."""
    page.content = page.whole_content  # type: ignore[attr-defined]


on_page_context = CombinedEvent(_search_less, _show_all)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the theme's search window for those who hear the page."""
    return output.replace('data-md-component="search" role="dialog"',
                          'data-md-component="search" role="dialog" aria-label="Search"')


def breakable(name: str) -> str:
    """A name that a narrow column breaks between its words, and not inside of them."""
    return WORD_END.sub("<wbr>", name)


@cache
def rows() -> list[dict[str, Any]]:
    """The rule matrix of this checkout."""
    return trace.matrix()


@cache
def reports() -> list[dict[str, Any]]:
    """The committed reports: header, tests and footer of each. One with no footer is no report."""
    found = []
    for path in sorted(REPORTS.glob("*.jsonl"), key=lambda path: path.stem):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        if not lines or lines[-1].get("type") != "footer":
            raise PluginError(f"{path}: a report with no footer is not one; write it anew")
        if "interrupted" in lines[-1]:
            raise PluginError(f"{path}: the run was {lines[-1]['interrupted']} when it was ended; "
                              "write it anew")
        tests = [line for line in lines if line["type"] == "test"]
        known = path.with_suffix(".expected.json")
        entries = json.loads(known.read_text(encoding="utf-8")) if known.exists() else []
        found.append({"header": lines[0], "tests": tests, "footer": lines[-1],
                      "name": path.stem, "expected": {each["test"]: each for each in entries}})
    return sorted(found, key=rank)


@cache
def tests_by_rule(name: str) -> dict[str, list[dict[str, Any]]]:
    """The tests of a report that cite each rule."""
    found: dict[str, list[dict[str, Any]]] = {}
    for test in next(report["tests"] for report in reports() if report["name"] == name):
        for rule in bare(test["rules"]):
            found.setdefault(rule, []).append(test)
    return found


def rank(report: dict[str, Any]) -> int:
    """Ours first, then the libraries; at the side of a wide table ours on other devices."""
    ours = report["header"]["implementation"]["name"] == "tensor-schedule"
    return 0 if report["name"] == "impl" else 2 if ours else 1


def own_reports() -> list[dict[str, Any]]:
    """The reports of the implementation whose code the matrix names."""
    return [report for report in reports()
            if report["header"]["implementation"]["name"] == "tensor-schedule"]


def title(report: dict[str, Any]) -> str:
    """The name and version of an implementation; and what it was asked, if not by its own report:
    `tinygrad-sharded.jsonl` beside `tinygrad.jsonl`.
    """
    implementation = report["header"]["implementation"]
    name = implementation["name"]
    own = "impl" if name == "tensor-schedule" else re.sub(r"[ .]", "-", name)
    where = "" if report["name"] == own else ", " + report["name"].removeprefix(f"{own}-")
    return f"{name} {implementation['version']}{where}"


def whole_matrix() -> str:
    """All chapters, a heading and a table each."""
    chapters = trace.read_chapters(trace.ROOT)
    counts = Counter(row["level"] for row in rows())
    summary = ", ".join(f"{counts[level]} {level}" for level in trace.LEVELS if counts[level])
    laws = sum(row["tier"] == "law" for row in rows())
    parts = [f"{laws} laws and {len(rows()) - laws} notes: {summary}."]
    for chapter in chapters:
        if any(row["chapter"] == chapter.slug for row in rows()):
            parts.append(f"## {chapter.slug}\n\n{matrix_slice(chapter.slug, anchors=True)}")
    return "\n\n".join(parts)


def matrix_slice(slug: str, anchors: bool = False) -> str:
    """The rows of a chapter, or of a topic such as `kernel.step`, as a table; only the matrix
    page carries the anchors."""
    chosen = [row for row in rows() if row["id"].startswith(f"{slug}.")]
    if not chosen:
        raise PluginError(f"there are no rules {slug}")
    names = ["rule", "tier", "word", "code", "tests", "saboteurs", *map(title, own_reports())]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(matrix_row(row, anchors) for row in chosen)
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="matrix"><table class="rules">{table}</table></div>'


def matrix_row(row: dict[str, Any], anchors: bool) -> str:
    name = row["id"]
    anchor = f' id="m-{name}"' if anchors else ""
    short = breakable(".".join(name.split(".")[1:]))
    code = [f'<a href="{place_link(place)}">{place_name(place)}</a>' for place in row["code"]]
    tests = [test_name(place["name"]) for place in row["tests"]]
    saboteurs = [
        f'<span title="{escape(place["note"], quote=True)}">'
        f'{breakable(escape(place["name"]))}</span>'
        for place in row["saboteurs"]
    ]
    level = row["level"]
    cells = [
        f'<a href="rule:{name}" title="{escape(row["text"], quote=True)}">{short}</a>',
        f'<span class="tier tier-{row["tier"]}">{row["tier"]}</span>',
        f'<span class="level level-{level.split()[0].lower()}">{level}</span>',
        *(several(part) for part in (code, tests, saboteurs)),
        *(verdict_cell(row["id"], report) for report in own_reports()),
    ]
    return f"<tr{anchor}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def several(items: list[str]) -> str:
    """A short list as it is, a long one folded."""
    unique = list(dict.fromkeys(items))
    if len(unique) <= 4:
        return "<br>".join(unique) or "–"
    return f"<details><summary>{len(unique)}</summary>{'<br>'.join(unique)}</details>"


def test_name(name: str) -> str:
    """`test_memory.test_nothing_overlaps` as "nothing overlaps", with the full name as a hint."""
    words = name.split(".")[-1].removeprefix("test_").replace("_", " ")
    return f'<span title="{escape(name, quote=True)}">{escape(words)}</span>'


def place_name(place: dict[str, Any]) -> str:
    return breakable(escape(f"{place['file'].removeprefix('impl/')}")) + f"<wbr>:{place['line']}"


def place_link(place: dict[str, Any]) -> str:
    """The API page of the module; both pages that hold matrices are two folders deep."""
    return f"../../api/{place['file'].split('/')[1].removesuffix('.py')}/"


def verdict_cell(rule: str, report: dict[str, Any]) -> str:
    """The worst verdict on a rule; a red one leads to what shows it, on the same page."""
    cited = tests_by_rule(report["name"]).get(rule, [])
    worst = min(cited, key=lambda test: VERDICTS.index(test["verdict"]), default=None)
    if worst is None or worst["message"].endswith("is not claimed"):
        return "–"
    verdict = worst["verdict"]
    shown = f'<span class="verdict verdict-{verdict}">{verdict}</span>'
    return f'<a href="#{anchor(report, worst)}">{shown}</a>' if verdict in RED else shown


def anchor(report: dict[str, Any], test: dict[str, Any]) -> str:
    name = f"{report['name']}-{test['test'].split('.')[-1].removeprefix('test_')}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def bare(identifiers: list[str]) -> set[str]:
    return {trace.split_revision(identifier)[0] for identifier in identifiers}


def compatibility() -> str:
    """What each implementation answered, a table of counts and the failures one by one."""
    if not reports():
        return (
            "No report is stored in `conformance/reports/` yet. A report that is put there appears "
            "on this page, and as a column in the [rule matrix](matrix.md), with the next build."
        )
    given = {test["verdict"] for report in reports() for test in report["tests"]}
    shown = [verdict for verdict in reversed(VERDICTS) if verdict in given]
    lines = ["| implementation | tiers | " + " | ".join(shown) + " |",
             "|---|---" + "|--:" * len(shown) + "|"]
    for report in reports():
        counts = Counter(test["verdict"] for test in report["tests"])
        tiers = ", ".join(report["header"]["implementation"].get("observes", []))
        numbers = " | ".join(str(counts[verdict]) for verdict in shown)
        lines.append(f"| {title(report)} | {tiers} | {numbers} |")
    return "\n".join([*lines, "", commands(), "", "## Rule by rule", "", by_rule(), "",
                      *(failures(report) for report in reports())])


def commands() -> str:
    """The command lines that made the reports, folded away."""
    made = [each["header"]["command"] for each in reports() if "command" in each["header"]]
    code = fenced("text", "\n".join(made)).replace("\n", "\n    ")
    return f'??? note "How each report was made"\n\n    {code}\n' if made else ""


def known_threats() -> str:
    """The threats that the suite has found in released libraries, each with its witness."""
    names = {report["name"]: report for report in reports()}
    lines = ["| seen | what happened | library | found by | statements |",
             "|---|---|---|---|--:|"]
    for each in threats.found():
        test = {"test": each.test}
        title_ = each.test.split(".")[-1].removeprefix("test_").replace("_", " ")
        lines.append(f"| {each.issue} | {each.threat.happened} | {each.library} "
                     f"| [{title_}](#{anchor(names[each.report], test)}) | {each.statements} |")
    return threats.linked("\n".join(lines))


def by_rule() -> str:
    """A row for each rule that some report speaks of, a column for each implementation."""
    spoken = {rule for report in reports() for test in report["tests"]
              for rule in bare(test["rules"])}
    chosen = [row["id"] for row in rows() if row["id"] in spoken]
    head = "".join(f"<th>{escape(title(report))}</th>" for report in reports())
    body = "".join(
        f'<tr><td><a href="rule:{rule}">{breakable(rule)}</a></td>'
        + "".join(f"<td>{verdict_cell(rule, report)}</td>" for report in reports()) + "</tr>"
        for rule in chosen)
    return ('<div class="matrix"><table class="implementations">'
            f"<thead><tr><th>rule</th>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def benchmark(name: str) -> str:
    """The committed results of the benchmark: all their tables, or where a peer is ahead."""
    shown = {"schedule": table.markdown, "behind": table.behind,
             "run": table.markdown, "run-behind": timings.behind}.get(name)
    if shown is None:
        raise PluginError(f"there is no table {name!r} of the benchmark")
    kind = "run" if name.startswith("run") else "schedule"
    results = [json.loads(path.read_text(encoding="utf-8"))
               for path in sorted(RESULTS.glob(f"{kind}*.json"))]
    return "\n\n".join(shown(result) for result in results) or "No result is stored yet."


def agreement() -> str:
    """The committed run of generated programs on all devices."""
    known = json.loads((REPORTS / "fuzz-devices.json").read_text(encoding="utf-8"))
    tally = known["tally"]
    lines = [f"{tally['programs']} programs were run, {tally['everywhere']} of them on every "
             f"device: those with float64 are not for METAL. {len(tally['failures'])} had a wrong "
             "value or schedule on some device." + (
                 "" if known["complete"] else " The run was cut before its end."),
             "", "| device | programs |", "|---|--:|"]
    return "\n".join([*lines, *(f"| {name} | {count} |"
                                for name, count in tally["devices"].items())])


def sanitized() -> str:
    """The committed run of all programs under the sanitizers: parts of each kind, by way."""
    known = json.loads((REPORTS / "sanitized.json").read_text(encoding="utf-8"))
    counts = Counter((*name.split()[:2], bool(each["wrong"]))
                     for name, each in known["parts"].items())
    kinds = ("checks", "programs", "workloads")
    wrong = sum(count for (_, _, failed), count in counts.items() if failed)
    lines = [f"{known['compiler']}: {counts.total()} parts of {known['planned']} were run, "
             f"{wrong} of them had something wrong.", "",
             f"| way | settings | {' | '.join(f'right: {kind}' for kind in kinds)} |",
             "|---|---|" + "--:|" * len(kinds)]
    for way, settings in known["ways"].items():
        shown = " ".join(f"`{name}={value}`" for name, value in settings.items())
        right = " | ".join(str(counts[way, kind, False]) for kind in kinds)
        lines.append(f"| {way} | {shown} | {right} |")
    return "\n".join(lines)


def onnx_nodes() -> str:
    """The committed answers to the node tests of ONNX: counts, what is left out, and why."""
    known = json.loads((REPORTS / "onnx-nodes.json").read_text(encoding="utf-8"))
    lines = [f"onnx {known['versions']['onnx']}: {known['apply']} tests apply.", "",
             "| runtime | passed | share |", "|---|--:|--:|"]
    for name, count in known["passed"].items():
        version = known["versions"].get(name, "")
        lines.append(f"| {name} {version} | {count} | {100 * count / known['apply']:.1f} % |")
    lines += ["", "| does not apply | tests |", "|---|--:|"]
    lines += [f"| {why} | {count} |" for why, count in known["apart"].items()]
    lines += ["", "| `impl` does not pass | why |", "|---|---|"]
    lines += [f"| `{test}` | {known['known'].get(test, why)} |"
              for test, why in known["failed"]["impl"].items()]
    return "\n".join(lines)


def dry_run() -> str:
    """The committed dry run of the hardware script, its headings below those of the page."""
    text = hardware.page(json.loads((REPORTS / "hardware-dry.json").read_text(encoding="utf-8")))
    return re.sub(r"^#+ ", lambda mark: f"##{mark[0]}", text, flags=re.M)


def mutation() -> str:
    """The committed result of mutation testing: a row for each target, and what survived."""
    known = json.loads((REPORTS / "mutation.json").read_text(encoding="utf-8"))
    lines = ["| code | mutants | tried | found by a test | survived | score |",
             "|---|--:|--:|--:|--:|--:|"]
    survivors = []
    for name, score in known["targets"].items():
        found = score["killed"] + score["endless"]
        share = f"{100 * found / score['tried']:.0f} %" if score["tried"] else "none tried"
        lines.append(f"| {name} | {score['mutants']} | {score['tried']} | {found} "
                     f"| {len(score['survivors'])} | {share} |")
        survivors += [f"    {each['file']}:{each['line']}  {each['change']}"
                      for each in score["survivors"]]
    code = fenced("text", "\n".join(survivors) or "    none").replace("\n", "\n    ")
    return "\n".join([*lines, "", '??? note "What survived"', "", f"    {code}", ""])


def mutants() -> str:
    """What the portable suite alone found of the mutants of `impl`, a row for each chapter, of
    those that were drawn first and of later ones.
    """
    return "\n\n".join(_of_draw(json.loads(each.read_text(encoding="utf-8")))
                       for each in sorted(REPORTS.glob("mutants-impl*.json")))


def _of_draw(known: dict[str, Any]) -> str:
    counts: dict[str, Counter[str]] = {}
    for each in known["results"]:
        for chapter in (each["kind"], "all"):
            counts.setdefault(chapter, Counter())[_fate(each)] += 1
    lines = [f"Seed {known['seed']}, commit `{known['commit'][:8]}`:", "",
             "| chapter | drawn | " + " | ".join(FATES) + " |",
             "|---|--:" + "|--:" * len(FATES) + "|"]
    for chapter, count in sorted(counts.items(), key=lambda each: each[0] == "all"):
        numbers = " | ".join(str(count[fate]) for fate in FATES)
        lines.append(f"| {chapter} | {count.total()} | {numbers} |")
    return "\n".join(lines)


#: What can become of a mutant.
FATES = ("found", "lives", "not decided", "not executed", "equivalent")


def _fate(mutant: dict[str, Any]) -> str:
    said = mutant["found by"]
    if not said:
        return "lives"
    for words, fate in (("no time", FATES[2]), ("nothing", FATES[3]), ("equivalent", FATES[4])):
        if said.startswith(words):
            return fate
    return FATES[0]


def failures(report: dict[str, Any]) -> str:
    """The red cells of one report, each with the shortest way to see it again."""
    red = [test for test in report["tests"] if test["verdict"] in RED]
    parts = [f"\n## {title(report)}\n"] if red else []
    return "\n".join(parts + [failure(report, test) for test in red])


def failure(report: dict[str, Any], test: dict[str, Any]) -> str:
    """A red cell: what was seen, the smallest program, and plain code of the library."""
    known = report["expected"].get(test["test"], {})
    title_ = test["test"].split(".")[-1].removeprefix("test_").replace("_", " ")
    seen = [line for line in test["message"].splitlines() if not line.startswith("expected: ")]
    reason = "".join(known[key] + end for key, end in (("reason", ". "), ("issue", "."))
                     if known.get(key))
    program = shortened(protocol.paste(test["witness"])) if test["witness"] else ""
    code = (trace.ROOT / known["witness"]).read_text(encoding="utf-8") if known else ""
    rules = ", ".join(f'<a href="rule:{rule}">{rule}</a>' for rule in test["rules"])
    parts = [f"{rules}: {seen[0] if seen else ''}".strip(), reason, fenced("json", program),
             fenced("python", code)]
    body = "\n\n".join(part for part in parts if part)
    indented = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    return (f'<div id="{anchor(report, test)}" markdown>\n\n??? failure "{title_}"\n\n'
            f"{indented}\n\n</div>\n")


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```" if text else ""


def shortened(program: str, most: int = 200) -> str:
    """Long data cut off: it is for reading here, and whole in the report."""
    return re.sub(rf'("data": "[0-9a-f]{{{most}}})[0-9a-f]+"', r'\1..."', program)
