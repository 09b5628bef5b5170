"""House rules that hold themselves: where a file may stand, and what it may import.

The order of the chapters is the table in `spec/index.md`; nothing here repeats it.
"""
from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from conformance.learn.lessons import LESSONS
from conformance.trace import ROOT, USER_LIBRARIES, WITHOUT_MODULE, chapter_tests, read_chapters

TOP_LEVEL = {
    "spec", "impl", "conformance", "docs", "mkdocs.yml", "pyproject.toml",
    "README.md", "LICENSE", "CHANGELOG.md", ".ci", ".github", ".gitignore",
}
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "misc", "common"}
COLUMNS = 100

SLUGS = [chapter.slug for chapter in read_chapters(ROOT)]
MODULES = sorted((ROOT / "impl").rglob("*.py"))
PYTHON = [*MODULES, *sorted((ROOT / "conformance").rglob("*.py")),
          *sorted((ROOT / "docs").rglob("*.py"))]

pytestmark = pytest.mark.skipif(not (ROOT / "spec").is_dir(), reason="needs a source checkout")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def chapter_of(path: Path, root: Path) -> str:
    """The part of `impl` that a file belongs to: `impl/dialects/c.py` belongs to render."""
    return path.relative_to(root / "impl").parts[0].removesuffix(".py")


def imported_chapters(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and part of `impl` of each import that happens at run time, local ones included."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = ["impl", *path.relative_to(root / "impl").parts[:-1]]
    for node in ast.walk(tree):
        if node in for_types:
            continue
        for name in imported_names(node, package):
            parts = name.split(".")
            if parts[0] == "impl":
                yield getattr(node, "lineno", 0), parts[1] if len(parts) > 1 else "__init__"


def imported_names(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Full names of what a statement imports, `importlib.import_module("...")` included."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        if node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value)


def upward_imports(path: Path, root: Path, slugs: list[str]) -> list[str]:
    """The imports of a chapter's module that do not lead to an earlier chapter."""
    own = chapter_of(path, root)
    if own in USER_LIBRARIES:
        return []
    if own not in slugs and own != "__init__":
        return [f"impl/{path.relative_to(root / 'impl').as_posix()}: spec/index.md has no row for "
                f"the chapter {own}"]
    allowed = set(slugs[: slugs.index(own) + 1]) if own in slugs else set()
    return [
        f"impl/{path.relative_to(root / 'impl').as_posix()}:{line}: imports {target}, "
        f"which does not come before {own} in spec/index.md"
        for line, target in imported_chapters(path, root)
        if target not in allowed
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_lead_to_earlier_chapters(path: Path) -> None:
    found = upward_imports(path, ROOT, SLUGS)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_what_another_module_uses_has_a_public_name(path: Path) -> None:
    private = [f"{name_of(path)}:{node.lineno}: {alias.name}"
               for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))
               if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("impl")
               for alias in node.names if alias.name.startswith("_")]
    assert not private, "\n".join(private)


#: The rooms of the suite that somebody with a runtime of his own needs, who has no `impl`.
PORTABLE = ("suite", "runner", "protocol", "adapters", "demo", "oracle", "generators")
ROOMS = sorted(path.name for path in (ROOT / "conformance").iterdir()
               if path.is_dir() and path.name != "__pycache__")
#: The files of portable rooms that may know `impl`: its adapter, which nobody else imports.
KNOWS_IMPL = {"adapters/impl_adapter.py", "adapters/checked.py"}


def packages(path: Path) -> set[str]:
    """The packages whose modules a file imports at any time, and the rooms of `conformance`."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    names = [name.split(".") for node in ast.walk(tree) for name in imported_names(node, [])]
    return {parts[0] if parts[0] != "conformance" else ".".join(parts[:2]) for parts in names}


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_implementation_does_not_know_its_suite(path: Path) -> None:
    known = [name for name in packages(path) if name.startswith("conformance")]
    assert not known, f"{name_of(path)} imports {known}"


#: Run where neither `impl` nor the rooms of its tests can be imported.
ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'impl' or name.startswith('conformance.') \\
                and name.split('.')[1] not in {portable}:
            raise ImportError(f'{{name}} is not here')

sys.meta_path.insert(0, Absent())
{code}
"""


def alone(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has the portable rooms only."""
    program = ALONE.format(portable=(*PORTABLE, "__main__"), code=code)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True,
                          capture_output=True, check=False)


@pytest.mark.parametrize("room", [room for room in PORTABLE if room != "demo"])
def test_a_portable_room_knows_portable_rooms_only(room: str) -> None:
    """Each of its modules is imported; the libraries behind adapters may be absent."""
    folder = ROOT / "conformance" / room
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts)
             for path in sorted(folder.glob("*.py"))
             if f"{room}/{path.name}" not in KNOWS_IMPL and not path.stem.endswith("_adapter")
             and (room == "suite" or not path.stem.startswith("test_"))]
    ran = alone("\n".join(
        f"try: import {name.removesuffix('.__init__')}\n"
        "except ModuleNotFoundError as error:\n"
        "    if error.name.partition('.')[0] in ('conformance', 'impl'): raise" for name in names))
    assert ran.returncode == 0 and len(names) > 1, ran.stderr


def test_the_suite_runs_where_the_implementation_is_not() -> None:
    """On the demo, in a process of its own, and on an adapter of Python's."""
    for words in (["--impl-cmd", f"{sys.executable} conformance/demo/naive.py"],
                  ["--impl", "conformance.adapters.numpy_adapter:Adapter"]):
        ran = alone("from conformance.runner.command import main\n"
                    f"sys.exit(main({[*words, '--chapter', 'tensor', '--profile', 'quick']}))")
        assert ran.returncode == 0 and "pass" in ran.stdout, ran.stdout + ran.stderr
    assert alone("import impl").returncode and alone("import conformance.trace").returncode


def test_the_package_is_imported_without_what_stands_above_tensors() -> None:
    """See spec/host.md: what is imported when."""
    code = ("import sys, impl; from impl import nn; print(*[name for name in sys.modules if "
            "name.startswith(('impl.realize', 'impl.device', 'impl.kernel', 'impl.schedule'))])")
    ran = subprocess.run([sys.executable, "-c", f"{code}; print(impl.Device.DEFAULT)"], cwd=ROOT,
                         text=True, capture_output=True, check=False)
    assert ran.stdout.splitlines()[:1] == [""] and len(ran.stdout.split()) == 1, ran


def test_the_rooms_are_listed() -> None:
    listed = (ROOT / "conformance" / "README.md").read_text(encoding="utf-8")
    assert [room for room in ROOMS if f"| `{room}/` |" not in listed] == []


def test_a_chapter_is_listed_once() -> None:
    assert SLUGS, "spec/index.md holds no table of chapters"
    assert len(set(SLUGS)) == len(SLUGS)
    floors = [chapter.floor for chapter in read_chapters(ROOT)]
    assert floors == sorted(floors), "the chapters stand from the ground floor up"


@pytest.mark.parametrize("slug", SLUGS)
def test_a_chapter_has_text_module_and_tests(slug: str) -> None:
    assert (ROOT / "spec" / f"{slug}.md").is_file(), f"spec/{slug}.md is missing"
    assert chapter_tests(slug), f"conformance/chapters/{slug}/ has no tests of it"
    forms = [ROOT / "impl" / f"{slug}.py", ROOT / "impl" / slug / "__init__.py"]
    count = sum(form.is_file() for form in forms)
    wanted = 0 if slug in WITHOUT_MODULE else 1
    assert count == wanted, f"chapter {slug} has {count} modules where {wanted} belongs"


def test_every_text_and_module_has_a_chapter() -> None:
    texts = {path.stem for path in (ROOT / "spec").glob("*.md")} - {"index"}
    assert texts <= set(SLUGS), rows_to_write(texts - set(SLUGS))
    modules = {chapter_of(path, ROOT) for path in MODULES} - USER_LIBRARIES
    assert modules <= set(SLUGS), rows_to_write(modules - set(SLUGS))
    judges = {chapter for slug, lesson in LESSONS.items() for chapter in lesson.chapters or (slug,)}
    assert judges <= set(SLUGS), f"lessons of no chapter: {sorted(judges - set(SLUGS))}"


def rows_to_write(chapters: set[str]) -> str:
    """What spec/index.md lacks, as it has to stand there."""
    rows = "\n".join(f"| FLOOR | [{name}]({name}.md) | what it owns |" for name in sorted(chapters))
    return ("write into the table of spec/index.md, below all chapters whose modules it imports "
            "and above those that import it, with the floor of the rows beside it:\n" + rows)


def test_a_missing_row_is_shown_as_it_has_to_stand() -> None:
    assert "\n| FLOOR | [new](new.md) | " in rows_to_write({"new"})


def test_the_top_level_holds_what_it_should() -> None:
    assert top_level() <= TOP_LEVEL, f"move away: {sorted(top_level() - TOP_LEVEL)}"
    missing = [name for name in sorted(TOP_LEVEL) if not (ROOT / name).exists()]
    assert not missing, f"missing: {missing}"


def top_level() -> set[str]:
    """The names at the top: what git tracks, or without git what it would not ignore."""
    if (ROOT / ".git").exists():
        try:
            listing = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, check=True,
                                     capture_output=True).stdout
            return {line.split("/")[0].strip('"') for line in listing.splitlines()}
        except (OSError, subprocess.CalledProcessError):
            pass  # no git here, or a checkout that belongs to somebody else
    ignored = [".git", *(ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    names = {path.name for path in ROOT.iterdir()}
    return {name for name in names if not any(fnmatch.fnmatch(name, one) for one in ignored)}


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_lines_fit_a_page_and_names_say_something(path: Path) -> None:
    long = [
        f"{name_of(path)}:{number}: {len(line)} columns"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long, "\n".join(long)
    assert path.stem not in VAGUE_NAMES, f"{path.stem}: name the file after what it does"


# Names


#: Public functions of several modules that are imported by their names alone, and why they may be.
NAMES_OF_SEVERAL = {
    **dict.fromkeys(("add", "mul", "sub", "total", "cast", "reduce"),
                    "an operation, made as a node, as an index, or of arrays"),
    "bindings": "the library below a device, one for each kind",
    "problem": "why a device cannot be used, one for each kind",
    "missing": "the error about a name that a module of the public API has not",
    "table": "what a command prints",
    "linearize": "an order of kernels, and JAX's name of a transform",
    "scan": "a running result, made as a node or differentiated, and JAX's name of a loop",
    "load": "a node that reads memory, and PyTorch's name of reading a file",
}


def public_names(path: Path, kind: type[ast.stmt]) -> list[str]:
    """The classes or functions of a module that others may use."""
    return [node.name for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body
            if isinstance(node, kind) and isinstance(node, ast.ClassDef | ast.FunctionDef)
            and not node.name.startswith("_")]


def homes(paths: list[Path], kind: type[ast.stmt]) -> dict[str, list[Path]]:
    """The modules that define each name, where there are several."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        for name in public_names(path, kind):
            found.setdefault(name, []).append(path)
    return {name: where for name, where in found.items() if len(where) > 1}


def imported_alone(paths: list[Path]) -> set[str]:
    """The names that modules of `impl` import without the module in front of them."""
    return {alias.name for path in paths
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("impl")
            for alias in node.names}


def test_a_class_has_a_name_of_its_own() -> None:
    """Who reads `Limits` in a message, or looks for it, finds one class."""
    several = homes(MODULES, ast.ClassDef)
    found = {name: list(map(name_of, where)) for name, where in several.items()}
    assert not found, f"one name for several classes: {found}"


@pytest.mark.slow
def test_a_function_that_is_imported_has_a_name_of_its_own() -> None:
    """Two modules may have a function of one name only where callers write the module's, too."""
    # Those of array_api and torch have names of others, and are imported by nobody else.
    several = homes([path for path in MODULES if path.parent.name != "array_api"
                     and path.name not in ("torch.py", "operators.py")],
                    ast.FunctionDef)
    imported = imported_alone(MODULES)
    found = {name: list(map(name_of, where)) for name, where in several.items()
             if name in imported and name not in NAMES_OF_SEVERAL}
    assert not found, f"one name for several functions: {found}"
    gone = set(NAMES_OF_SEVERAL) - set(several)
    assert not gone, f"one module has it now, take it off the list: {gone}"


def test_names_of_several_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class One: ...\ndef two(): ...\ndef _own(): ...\n")
    (tmp_path / "b.py").write_text("from impl.a import two\nclass One: ...\ndef two(): ...\n"
                                   "def _own(): ...\n")
    paths = sorted(tmp_path.glob("*.py"))
    assert homes(paths, ast.ClassDef) == {"One": paths}
    assert homes(paths, ast.FunctionDef) == {"two": paths} and imported_alone(paths) == {"two"}


# Circles inside a folder


#: Modules that import each other today. Whoever parts them takes them off this list.
#: These name the type of the device, and nothing else.
KNOWN_CIRCLES = [{f"impl/{folder}/__init__.py", f"impl/{folder}/{module}.py"} for folder, module in
                 [("cuda", "graph"), ("opencl", "table"), ("webgpu", "queue")]]


def imports_inside(folder: Path, root: Path) -> dict[str, set[str]]:
    """The modules below a folder, and which of the others each one names: in a function, and for
    types only, too. One that takes a name from the folder names its `__init__.py`.
    """
    below = {path: path.relative_to(root).as_posix() for path in folder.rglob("*.py")}
    by_name = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name
               for name in below.values()}
    found: dict[str, set[str]] = {}
    for path, own in below.items():
        package = list(path.relative_to(root).parts[:-1])
        names = {name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))
                 for name in imported_names(node, package)}
        parts = {by_name.get(each) or by_name.get(each.rpartition(".")[0]) for each in names}
        found[own] = {each for each in parts if each is not None and each != own}
    return found


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules each of which can be reached from each other one."""
    reached = {name: {name} for name in imports}
    waiting = list(imports)
    while waiting:
        name = waiting.pop()
        more = set().union(reached[name], *(reached[each] for each in imports[name]))
        if more != reached[name]:
            reached[name] = more
            waiting += [each for each, others in imports.items() if name in others]
    found = [{other for other in reached[name] if name in reached[other]} for name in imports]
    return [each for number, each in enumerate(found) if len(each) > 1 and each not in
            found[:number]]


@pytest.mark.parametrize("folder", [path for path in sorted((ROOT / "impl").iterdir())
                                    if (path / "__init__.py").is_file()], ids=name_of)
def test_no_modules_of_a_folder_import_each_other(folder: Path) -> None:
    found = circles(imports_inside(folder, ROOT))
    new = [each for each in found if each not in KNOWN_CIRCLES]
    assert not new, "; ".join(" <-> ".join(sorted(each)) for each in new)
    gone = [each for each in KNOWN_CIRCLES if each not in found
            and all(name.startswith(name_of(folder) + "/") for name in each)]
    assert not gone, f"there is no such circle any more, take it off the list: {gone}"


@pytest.mark.parametrize(("sources", "found"), [
    ({"a": "from impl.memory.b import x", "b": "import numpy"}, []),
    ({"a": "from impl.memory.b import x", "b": "from impl.memory import a"}, [{"a", "b"}]),
    ({"a": "from .b import x", "b": "def f():\n    from .a import y"}, [{"a", "b"}]),
    ({"a": "from .b import x", "b": "from . import c", "c": "if TYPE_CHECKING:\n    import "
      "impl.memory.a"}, [{"a", "b", "c"}]),
    ({"__init__": "from impl.memory.a import x", "a": "import numpy"}, []),
    ({"__init__": "from impl.memory.a import x", "a": "from impl.memory import y"},
     [{"__init__", "a"}]),
])
def test_circles_are_seen(sources: dict[str, str], found: list[set[str]], tmp_path: Path) -> None:
    folder = tmp_path / "impl" / "memory"
    folder.mkdir(parents=True)
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text)
    seen = circles(imports_inside(folder, tmp_path))
    assert [{Path(each).stem for each in one} for one in seen] == found


# The import check itself


#: Files that name all devices that there were, and need not name one more here: what other
#: libraries call them (with the chapter that shows the code), texts for some of them (that of the
#: guide is asked for by `chapters/custom`), what is opened in another way, what was done when.
NO_LISTS_OF_DEVICES = {
    "impl/device/__init__.py", "spec/device.md", "conformance/chapters/device/test_device.py",
    "docs/own-kernels.md", "spec/custom.md", "conformance/chapters/custom/test_custom.py",
    "conformance/emulation/devices.py", "CHANGELOG.md"}
LISTS_OF_DEVICES = {"README.md", "docs/conformance/devices.md"}


def without_a_device(texts: Mapping[str, str], kinds: Collection[str]) -> dict[str, str]:
    """Files that name all of some kinds of devices but one: a list in which that one is missing."""
    named = {name: {kind for kind in kinds if re.search(rf"\b{kind}\b", text)}
             for name, text in texts.items()}
    return {name: missing for name, found in named.items() if len(found) == len(kinds) - 1
            for missing in {*kinds} - found}


def test_a_list_of_devices_has_all_of_them() -> None:
    from conformance.kernels.devices import KINDS

    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
             for pattern in ("README.md", "docs/**/*.md", "spec/*.md", "impl/**/*.py",
                             "conformance/**/*.py", "conformance/*.md")
             for path in ROOT.glob(pattern)}
    missing = without_a_device(texts, KINDS)
    listed = without_a_device({name: texts[name] for name in LISTS_OF_DEVICES}, KINDS)
    others = {name: kind for name, kind in missing.items() if name not in NO_LISTS_OF_DEVICES}
    assert len(KINDS) >= 6 and not others and not listed, \
        f"a list of devices lacks one (or is none: NO_LISTS_OF_DEVICES): {others}"
    assert all(kind in texts[name] for name in LISTS_OF_DEVICES for kind in KINDS)


def test_a_device_that_is_missing_is_seen() -> None:
    texts = {"all": "CPU, CUDA and METAL", "some": "CUDA", "old": "`CPU` or CUDA, METALS"}
    assert without_a_device(texts, ["CPU", "CUDA", "METAL"]) == {"old": "METAL"}


def cited_chapters(text: str) -> list[str]:
    """The chapters that the docstring of a file of tests names first, as `spec/NAME.md`."""
    return re.findall(r"Chapters?: +spec/([\w-]+)\.md", ast.get_docstring(ast.parse(text)) or "")


def test_tests_name_the_chapter_that_they_stand_in() -> None:
    """A file that was copied from another chapter's cites that one's."""
    folder = ROOT / "conformance" / "chapters"
    wrong = [f"{path.relative_to(ROOT)} stands in {path.parent.name} and cites {cited}"
             for path in sorted(folder.glob("*/*.py"))
             for cited in cited_chapters(path.read_text(encoding="utf-8"))
             if cited.replace("-", "_") != path.parent.name]
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize(("source", "found"), [
    ("from impl.ir import UOp", 0),
    ("from impl import ir", 0),
    ("import impl.memory", 0),
    ("import numpy", 0),
    ("if TYPE_CHECKING:\n    from impl.schedule import x", 0),
    ("from impl.schedule import plan", 1),
    ("from impl import Tensor", 1),
    ("import impl", 1),
    ("def f():\n    import impl.schedule", 1),
    ("from .schedule import plan", 1),
    ("from . import schedule, ir", 1),
    ("import importlib\nimportlib.import_module('impl.schedule')", 1),
    ("from impl.nn import Linear", 1),
])
def test_upward_imports_are_seen(source: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "impl").mkdir()
    path = tmp_path / "impl" / "memory.py"
    path.write_text(source)
    assert len(upward_imports(path, tmp_path, ["ir", "memory", "schedule"])) == found


def test_a_folder_is_one_chapter(tmp_path: Path) -> None:
    (tmp_path / "impl" / "render").mkdir(parents=True)
    path = tmp_path / "impl" / "render" / "__init__.py"
    path.write_text("from .c import source\nfrom ..ir import UOp\nfrom ..cpu import x\n")
    found = upward_imports(path, tmp_path, ["ir", "render", "cpu"])
    assert [problem.split(":")[1] for problem in found] == ["3"]
