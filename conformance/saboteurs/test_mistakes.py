"""Every mistake made inside `impl` is found by a test that cites the rule it breaks."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from conformance.saboteurs import finding, impl_patches
from conformance.saboteurs.edits import Edit
from conformance.saboteurs.finding import search, search_apart
from conformance.saboteurs.impl_patches import ImplPatch, all_patches, full_name


@pytest.mark.slow
@pytest.mark.parametrize("saboteur", all_patches(), ids=lambda each: type(each).__name__)
def test_a_test_of_its_rule_finds_it(saboteur: ImplPatch) -> None:
    assert saboteur.description
    found = (search_apart if saboteur.apart else search)(saboteur)
    if found.skipped and not found.killer:
        pytest.skip(found.skipped[0])
    assert found.killer, f"nothing finds out that {saboteur.description}"


class _Misfit(ImplPatch):
    rule = "ordering.peak.not-worse"
    target = "impl.ordering:linearize"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda: original


def test_a_saboteur_that_does_not_fit_the_code_has_not_been_found() -> None:
    """Else any test would do, and nobody would see that none looks for the mistake any more."""
    with pytest.raises(TypeError):
        search(_Misfit())


class _Harmless(ImplPatch):
    rule = "ordering.peak.not-worse"
    target = "impl.ordering:linearize"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **named: original(*arguments, **named)


def test_what_changes_nothing_is_not_found() -> None:
    found = search(_Harmless())
    assert not found.killer and found.passed


def test_what_found_it_the_last_time_is_tried_first_and_then_all_others(
        monkeypatch: pytest.MonkeyPatch) -> None:
    saboteur = next(each for each in all_patches() if type(each).__name__ == "AliasesForgotten")
    found = finding._tried(saboteur, finding.tests_of(saboteur), True)
    assert found.killer and found.passed
    for known, passed in ((found.test, 0), (f"{found.test}-renamed", found.passed)):
        monkeypatch.setattr(finding, "_killers", lambda known=known: {full_name(saboteur): known})
        again = search(saboteur)
        assert (again.killer, again.passed) == (found.killer, passed)


class _BeginsElsewhere(_Harmless):
    first = "test_that_nobody_wrote"


def test_the_test_to_begin_with_cites_the_rule() -> None:
    with pytest.raises(TypeError, match="test_that_nobody_wrote"):
        search(_BeginsElsewhere())


class _Noting(ImplPatch):
    made: ClassVar[list[str]] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        self.made.append(type(self).__module__)
        yield


def test_a_process_makes_the_mistake_of_the_one_that_started_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two modules have one that is called the same."""
    for name in ("one", "two"):
        twin, module = type("Twin", (_Noting,), {"__module__": name}), ModuleType(name)
        vars(module)["Twin"] = twin
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setenv(impl_patches.INHERITED, impl_patches.full_name(twin()))
        with impl_patches.inherited():
            pass
    assert _Noting.made == ["one", "two"]


class _NoSuchText(Edit):
    rule = "ordering.peak.not-worse"
    file = "impl/ordering.py"
    old, new = "no such text", "another"


class _Outside(_NoSuchText):
    old, new = "from __future__ import annotations", "import sys"


def test_an_edit_of_what_is_not_there_is_refused() -> None:
    for edit in (_NoSuchText(), _Outside()):
        with pytest.raises(TypeError, match=edit.old), edit.installed():
            pass


def _doubled(value: int) -> int:
    return value + value


def _maker() -> Callable[[int], int]:
    return lambda value: value + 1


class _Doubling(Edit):
    rule = "ordering.peak.not-worse"
    file = "conformance/saboteurs/test_mistakes.py"
    old, new = "return value +" + " value", "return value *\\\n value"


class _Inner(_Doubling):
    old, new = "lambda value: value +" + " 1", "lambda value: value -" + " 1"


def test_an_edit_changes_functions_for_a_while() -> None:
    with pytest.raises(TypeError):  # more lines than before
        _Doubling().codes()
    made = _maker()
    with _Inner().installed():
        assert (made(3), _maker()(3)) == (2, 2)
    assert (made(3), _maker()(3)) == (4, 4)


class _WithLambda(_Doubling):
    old, new = "return value +" + " value", "return (lambda: value * value)()"


class _WithoutLambda(_Doubling):
    old, new = "return lambda value: value +" + " 1", "return _doubled"


def test_an_edit_may_add_a_lambda_and_take_one_away() -> None:
    with _WithLambda().installed():
        assert _doubled(3) == 9
    made = _maker()
    with _WithoutLambda().installed():
        assert (made(5), _maker()(5)) == (6, 10)
    assert (_doubled(3), _maker()(5)) == (6, 6)


class _Another(_Doubling):
    old, new = "class _NoSuchText" + "(Edit):", "class _NoSuchText(Edit, key=lambda: 1):"


def test_an_edit_does_not_make_functions_of_the_module() -> None:
    with pytest.raises(TypeError, match="another function"):
        _Another().codes()


def test_a_test_that_fails_anyway_finds_nothing(tmp_path: Path) -> None:
    for name, text in (("right", "assert True"), ("wrong", "assert False")):
        path = tmp_path / f"test_{name}.py"
        path.write_text(f"def test_{name}() -> None:\n    {text}\n", encoding="utf-8")
        assert finding.passes(f"{path}::test_{name}") is (name == "right")
