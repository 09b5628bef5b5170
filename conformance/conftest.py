"""pytest options and the `subject` fixture: which implementation the checks are run on."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conformance.runner.checks import SUITE
from conformance.runner.command import DEFAULT, part_of
from conformance.runner.subject import PROFILES, Inconclusive, NotClaimed, Subject

_OUTER = pytest.StashKey[bool]()  # of a run that is not within another


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--impl", default=DEFAULT, help="package.module:Adapter")
    group.addoption("--impl-cmd", default="", help="an executable that speaks JSON lines")
    group.addoption("--profile", default="ci", choices=tuple(PROFILES))
    group.addoption("--seed", type=int, default=0)
    group.addoption("--shard", type=part_of, default="1/1", help="a part of the tests: --shard=2/4")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Who tests another implementation is asked the checks of the suite, and nothing else here."""
    if config.option.impl == DEFAULT and not config.option.impl_cmd:
        return None
    path = collection_path.resolve()
    here = path.is_relative_to(SUITE.parent) and not SUITE.is_relative_to(path)
    return True if here and not path.is_relative_to(SUITE) else None


def pytest_configure(config: pytest.Config) -> None:
    """Where `impl` is what is tested, its schedules are checked under SPEC=1, in every test."""
    if config.option.impl == DEFAULT and not config.option.impl_cmd:
        from conformance.adapters.checked import watch  # only here: others have no `impl`
        watch()
    if getattr(config.option, "dist", "") == "load":  # `-n auto`
        config.option.dist = "worksteal"  # a module's tests, with its fixtures, in one process
    _draw_the_same_examples()
    _keep_bytecode(config)


def _keep_bytecode(config: pytest.Config) -> None:
    """Where no bytecode may be written, it is kept in a folder of this run: each of the hundreds
    of processes that tests start would compile all modules again.
    """
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and not os.environ.get("PYTHONPYCACHEPREFIX"):
        folder, patch = TemporaryDirectory(prefix="tensor-schedule-bytecode-"), pytest.MonkeyPatch()
        patch.delenv("PYTHONDONTWRITEBYTECODE")
        patch.setenv("PYTHONPYCACHEPREFIX", folder.name)
        patch.setattr(sys, "dont_write_bytecode", False)
        patch.setattr(sys, "pycache_prefix", folder.name)
        for end in (folder.cleanup, patch.undo):  # the last one first
            config.add_cleanup(end)


def _draw_the_same_examples() -> None:
    """What hypothesis draws depends neither on the run nor on how busy the machine is."""
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:
        return
    settings.register_profile("conformance", deadline=None, derandomize=True, database=None,
                              suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("conformance")


@pytest.fixture(scope="session")
def implementation(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """The implementation under test, started once."""
    options = request.config.option
    subject = Subject.of(options.impl, options.impl_cmd, options.profile, options.seed)
    yield subject
    subject.close()


@pytest.fixture(scope="session")
def emulation_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where emulated kernels are kept: one folder for all processes of a run."""
    if "EMULATION_FOLDER" in os.environ:  # of a run within another
        yield Path(os.environ["EMULATION_FOLDER"])
        return
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "emulation"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMULATION_FOLDER", str(path))
        yield path


@pytest.fixture
def subject(request: pytest.FixtureRequest, implementation: Subject) -> Subject:
    """The implementation, with nothing kept from an earlier check."""
    tiers = [mark.args[1] for mark in request.node.iter_markers("verifies") if len(mark.args) > 1]
    for tier in tiers:
        if tier not in implementation.info.observes:
            pytest.skip(f"the tier {tier} is not claimed")
    implementation.begin()
    return implementation


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A run of all tests leaves out the slow ones, unless `-m` or `-k` says what is wanted. Whoever
    names a folder, a file or a test gets all of it. Of what is left, `--shard` is a part.
    """
    options, chosen = config.option, items
    if config.args == config.getini("testpaths") and not options.markexpr and not options.keyword:
        chosen = [item for item in items if not item.get_closest_marker("slow")]
    number, count = options.shard
    kept = dict.fromkeys(chosen[number - 1::count])
    if left := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests are alive until the end: do not look at them in each collection."""
    if not gc.get_freeze_count():  # else this is a run within another
        session.config.stash[_OUTER] = True
        _let_be()


def _let_be() -> None:
    """Let later collections not look at what is there; now and then it is looked at again, since
    what died meanwhile is let be, too. And give back the blocks that devices keep.
    """
    global _times_let_be
    _times_let_be += 1
    if _times_let_be % _LOOKED_AT == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    if device := sys.modules.get("impl.device"):
        for opened in list(device.Device.opened.values()):
            if hasattr(opened, "pool"):
                opened.pool.clear()


#: After how many modules what was let be is looked at again.
_LOOKED_AT, _times_let_be = 20, 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of the CPU device needs a compiler, one of another device that device."""
    asked = {each for mark in item.iter_markers("device") for each in mark.args}
    for kind in sorted(asked - {"CPU", "REFERENCE"}):
        from impl import Device
        if problem := Device.kinds[kind][1]():
            pytest.skip(problem)
    if not _COMPILER and any(mark.args == ("CPU",) for mark in item.iter_markers("device")):
        pytest.skip("needs a C compiler")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item,
                            nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """What a test has scheduled and not run would be run, and counted, in a later one; and its
    programs might have a plan in common with those of a later one.

    And what its module has left would be looked at by every collection; a capture makes two.
    """
    if realize := sys.modules.get("impl.realize"):
        while realize.session.scheduled:
            with suppress(Exception):  # each is taken off the list before it runs
                realize.session.run_scheduled()
    if schedule := sys.modules.get("impl.schedule"):
        schedule.schedule_cache.families.known.clear()
    yield
    if _OUTER in item.config.stash and (nextitem is None or nextitem.path != item.path):
        _let_be()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> object:
    """What an implementation does not claim is skipped, with what it said.

    So is, on a machine without a C compiler, a test that asked for one.
    """
    try:
        result = yield
        subject = getattr(item, "funcargs", {}).get("subject")
        if isinstance(subject, Subject) and subject.skipped and not subject.examples:
            pytest.skip("no program of this check uses only what is declared")
        return result
    except NotClaimed as reason:
        pytest.skip(str(reason))
    except Inconclusive as reason:
        options = item.config.option
        if options.impl == DEFAULT and not options.impl_cmd and options.profile != "quick":
            raise  # what this project's own tests no longer meet, they no longer verify
        pytest.skip(f"inconclusive: {reason}")
    except Exception as error:
        if _COMPILER or "no C compiler found" not in _everything_said(error):
            raise
        pytest.skip("needs a C compiler")


def _everything_said(error: BaseException | None) -> str:
    """The message of an error and of those that led to it."""
    said = ""
    while error is not None:
        said, error = said + str(error), error.__cause__ or error.__context__
    return said


_COMPILER = os.environ.get("CC") or any(shutil.which(name) for name in ("cc", "gcc", "clang"))
