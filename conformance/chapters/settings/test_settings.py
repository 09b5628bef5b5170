"""Settings are typed, scoped, and part of the key of plans. Chapter: spec/settings.md."""
from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from conformance.trace import ROOT, verifies
from impl import Context, Tensor, settings
from impl.errors import SettingError
from impl.settings import REGISTRY


@verifies("settings.context.restore")
def test_contexts_nest_and_restore() -> None:
    before = settings.get("DEBUG"), settings.plan_key()
    with Context(DEBUG=0, NOOPT=1):
        assert settings.get("NOOPT") == 1
        with Context(NOOPT=0):
            assert settings.get("NOOPT") == 0
        assert settings.get("NOOPT") == 1
    assert (settings.get("DEBUG"), settings.plan_key()) == before


@verifies("settings.context.restore")
def test_an_exception_restores_too() -> None:
    before = settings.get("FUSE")
    with pytest.raises(ZeroDivisionError), Context(FUSE=1 - before):
        1 / 0  # noqa: B018
    assert settings.get("FUSE") == before


@verifies("settings.context.restore")
def test_one_context_can_be_entered_twice() -> None:
    context = Context(NOOPT=1)
    with context, context:
        assert settings.get("NOOPT") == 1
    assert settings.get("NOOPT") == REGISTRY["NOOPT"].default


@verifies("settings.context.restore")
def test_another_thread_does_not_see_it() -> None:
    seen = []
    with Context(NOOPT=1):
        thread = threading.Thread(target=lambda: seen.append(settings.get("NOOPT")))
        thread.start()
        thread.join()
    assert seen == [REGISTRY["NOOPT"].default]


@verifies("settings.context.restore")
def test_threads_share_one_context() -> None:
    """Whoever leaves it gets his own values back, in whatever order they leave."""
    shared, entered, left = Context(NOOPT=1), threading.Event(), threading.Event()
    seen: list[int] = []

    def second() -> None:
        with Context(BEAM_TIMEOUT_SEC=33):
            with shared:
                entered.set()
                left.wait(60)
            seen.append(settings.get("BEAM_TIMEOUT_SEC"))

    thread = threading.Thread(target=second)
    with Context(BEAM_TIMEOUT_SEC=22):
        with shared:
            thread.start()
            entered.wait(60)
        left.set()
        seen.append(settings.get("BEAM_TIMEOUT_SEC"))
        thread.join()
    assert sorted(seen) == [22, 33]


@verifies("settings.error.clear")
def test_unknown_names_are_refused() -> None:
    for wrong in (lambda: Context(NOOPTS=1), lambda: settings.get("noopt")):
        with pytest.raises(SettingError, match="NOOPT") as caught:
            wrong()
        assert all(name in caught.value.remedy for name in REGISTRY)


@verifies("settings.error.clear")
@pytest.mark.parametrize("value", [-1, 2, "x", None, 1.5j, 0.7])
def test_impossible_values_are_refused(value: object) -> None:
    with pytest.raises(SettingError, match="NOOPT"):
        Context(NOOPT=value)


@verifies("settings.error.clear")
def test_the_environment_is_checked_too() -> None:
    code = "from impl import settings; print(settings.get('DEBUG'))"
    for text, expected in (("3", "3"), ("", "0"), ("many", "SettingError")):
        environment = {**os.environ, "DEBUG": text, "PYTHONPATH": str(ROOT)}
        result = subprocess.run([sys.executable, "-c", code], env=environment, text=True,
                                capture_output=True, check=False)
        assert expected in result.stdout + result.stderr


@verifies("settings.environment.early+2")
@pytest.mark.parametrize(("name", "value"), [
    ("BEAM", "many"), ("CPU_COUNT", "-3"), ("CACHE_SIZE", "1G"), ("TRACK_MATCH_STATS", "9")])
def test_a_wrong_value_is_found_when_any_other_setting_is_read(
        name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_environment", {})  # as in a process that has read none
    monkeypatch.setenv(name, value)
    for _ in range(2):
        with pytest.raises(SettingError, match=f"{name}: "):
            settings.get("JIT")


@verifies("settings.error.clear")
@pytest.mark.parametrize(("name", "meant"), [
    ("DEBUGG", "did you mean DEBUG?"), ("debug", "did you mean DEBUG?"), ("JTI", "mean JIT?"),
    ("FUS", "did you mean FUSE?"), ("CACHE_FODLER", "did you mean CACHE_FOLDER?")])
def test_the_setting_that_was_meant_is_named(name: str, meant: str) -> None:
    with pytest.raises(SettingError, match="Remedy: .*" + meant.replace("?", r"\?")):
        Context(**{name: 1})


@verifies("settings.error.clear")
def test_nothing_is_guessed_where_nothing_is_near() -> None:
    with pytest.raises(SettingError) as caught:
        Context(THREADS=1)
    assert "did you mean" not in str(caught.value)


@verifies("settings.environment.early+2")
def test_a_misspelt_variable_is_named_once() -> None:
    code = "from impl import Tensor; (Tensor([1.0]) + 1).item(); (Tensor([1.0]) + 2).item()"
    environment = {**os.environ, "DEVICE": "REFERENCE", "DEBUGG": "2", "NOPT": "1", "FUSES": "0",
                   "DEBUG_LEVEL": "3", "debugg": "1", "CI": "1", "SCCACHE": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, text=True,
                         capture_output=True, check=True)
    lines = ran.stderr.splitlines()
    assert len(lines) == 2, ran.stderr
    assert "DEBUGG" in lines[0] and "did you mean DEBUG?" in lines[0]
    assert "NOPT" in lines[1] and "did you mean NOOPT?" in lines[1]


@verifies("settings.environment.early+2")
@pytest.mark.parametrize(("name", "found"), [
    ("DEBUGG", True), ("DEBG", True), ("DEBUF", True), ("DEBGU", True), ("XDEBUG", True),
    ("EDBUG", True), ("DEBUG", False), ("DEB", False), ("DEBGUU", False), ("GUBED", False),
    ("DEBUG_X", False), ("DE_BUG", True), ("debug", False), ("CACHE_FOLDERS", True)])
def test_what_is_one_edit_away(name: str, found: bool) -> None:
    assert bool(settings.misspelt([name])) is found


@verifies("settings.environment.early+2")
def test_variables_of_other_programs_never_warn() -> None:
    """Names that are in many environments."""
    names = """PATH HOME USER SHELL TERM LANG LC_ALL PWD OLDPWD SHLVL TMPDIR EDITOR PAGER DISPLAY
        CI CC CXX CFLAGS LD CPP CACHE CCACHE SCCACHE CACHE_DIR DEVICES JIT JITS SPEC SPECS VIZ
        VI FUSES PYTHONPATH CUDA_VISIBLE_DEVICES OMP_NUM_THREADS VIRTUAL_ENV XDG_CACHE_HOME
        PIP_CACHE_DIR GITHUB_ACTIONS HOSTNAME LOGNAME MAIL SSH_AUTH_SOCK GPG_TTY NO_COLOR
        DEBUGINFOD_URLS DEBUGGER DEBUG_COLORS RUST_LOG MAKEFLAGS MAKELEVEL HF_HOME""".split()
    assert not settings.misspelt(names)


@verifies("settings.plan.key")
def test_every_setting_that_changes_plans_is_in_the_key() -> None:
    for setting in REGISTRY.values():
        other: settings.Value = "other" if isinstance(setting.default, str) else \
            setting.choices[-1] if setting.choices else \
            setting.minimum if setting.default == setting.maximum else int(setting.default) + 1
        before = settings.plan_key()
        with Context(**{setting.name: other}):
            assert (settings.plan_key() != before) is setting.plan, setting.name
        assert settings.plan_key() == before


@verifies("settings.plan.key")
@pytest.mark.parametrize("setting", ["NOOPT", "FUSE", "NO_MEMORY_PLANNER", "POISON"])
def test_toggling_a_setting_gives_no_stale_plan(setting: str) -> None:
    def documents() -> int:
        x = Tensor([[1.0, 2.0], [3.0, 4.0]])
        return len((x.sum(1, keepdim=True) + x.contiguous().exp()).schedule_document()["kernels"])

    with Context(**{setting: REGISTRY[setting].default}):
        default = documents()
        with Context(**{setting: 1 - int(REGISTRY[setting].default)}):
            toggled = documents()
        assert documents() == default
    assert (toggled > default) is (setting == "FUSE")


@verifies("settings.error.clear")
def test_every_setting_is_described() -> None:
    rows = list(settings.describe())
    assert [name for name, *_ in rows] == sorted(REGISTRY)
    assert all(meaning for *_, meaning in rows)
    with Context(DEBUG=2):
        lines = settings.table().splitlines()
    assert len(lines) == len(rows)
    assert any(line.startswith("DEBUG=2 ") and line.endswith("(default: 0)") for line in lines)
    assert any(line.startswith("CC= ") and line.endswith("(default: empty)") for line in lines)
