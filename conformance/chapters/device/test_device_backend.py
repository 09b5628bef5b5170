"""A backend written after the page in spec/device.md: kernels for CUDA, run by the emulator."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from conformance import emulation
from conformance.kernels import kernel_builder as kb
from conformance.trace import verifies
from impl import Context, Device, GlobalCounters, Tensor, TinyJit, symbolic
from impl.errors import DeviceError
from impl.searching import beam

# isort: split
from impl.device import Memory
from impl.device.workgroups import GroupDevice, GroupProgram
from impl.dialects import CUDA
from impl.kernel import DeviceLimits
from impl.render import SourceText, symbol, unit_text


class WrittenProgram(GroupProgram):
    """A kernel, run by the emulator in the memory of the host."""

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Launch it: once, or once for each phase; a launch of no groups is none."""
        given = [*(memories[position].array for position in self.text.parameters),
                 *map(np.int64, values)]
        scratch = self.scratch()
        for phase, (groups, lanes) in enumerate(self.shape.launches(values)):
            more = [np.int64(phase), scratch.array] if scratch is not None else []
            if groups:
                self.function.launch(symbol(self.key), groups, lanes, 0, [*given, *more])


class Written(GroupDevice):
    """A device of the host's memory and the emulator's lanes."""

    kind = "WRITTEN"
    program = WrittenProgram

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.functions = {}
        self.local_bytes = 16 << 10  # for what passes between stages; reductions need some, too

    @property
    def limits(self) -> DeviceLimits:
        """What the steps may use."""
        return DeviceLimits(name="WRITTEN", lanes=64, lockstep=32, local_memory=32 << 10)

    def dialect(self) -> CUDA:
        """The language of its kernels."""
        return CUDA()

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile all texts in one unit."""
        module = emulation.compile(unit_text(sources.items()), "cuda")
        self.functions.update(dict.fromkeys(sources, module))
        GlobalCounters.compiled += len(sources)

    def attempt(self, program: GroupProgram) -> None:
        """Compile one program for a search, and keep nothing of it."""
        program.function = emulation.compile(unit_text([(program.key, program.text)]), "cuda")


def problem() -> str:
    """Why it cannot be used, in one line; empty if it can."""
    return emulation.unavailable()


# Device.register(Written, problem), in a package that impl/assembly.py imports

pytestmark = pytest.mark.skipif(bool(problem()), reason=problem())


@pytest.fixture(autouse=True)
def written(emulation_folder: Path, tmp_path: Path) -> Iterator[None]:
    """The device is known while a test runs."""
    Device.register(Written, problem)
    with Context(DEVICE="WRITTEN", CACHE_FOLDER=str(tmp_path), SCACHE=0):
        yield
    Device.kinds.pop("WRITTEN")
    Device.opened.pop("WRITTEN", None)


@verifies("steps.value.equal")
def test_kernels_store_what_the_reference_stores() -> None:
    kernels = [kb.random_kernel(4000 + seed) for seed in range(12)]
    Device["WRITTEN"].compile([made.ast for made in kernels])
    for seed, made in enumerate(kernels):
        assert (made.result(made.ast, "WRITTEN", seed)
                == made.result(made.ast, "REFERENCE", seed)).all()


@verifies("device.table.equal+2")
@verifies("device.copy.exact")
def test_tensors_live_on_it() -> None:
    values = np.random.default_rng(0).integers(-9, 9, (30, 200)).astype(np.float32)
    x = Tensor(values).realize()
    assert (x.sum(1) + x.max(1)).tolist() == (values.sum(1) + values.max(1)).tolist()
    assert x.sum().item() == values.sum() and x.to("REFERENCE").tolist() == values.tolist()

    @TinyJit
    def step(given: Tensor) -> Tensor:
        return (given * 2).sum(0)
    for turn in range(4):
        found = step(Tensor(values + turn).realize())
        assert found.tolist() == (2 * (values + turn)).sum(0).tolist()


@verifies("device.launch.refused+2")
def test_a_value_outside_its_bounds_is_refused() -> None:
    n = symbolic.Variable("n", 1, 4).uop
    i = kb.new_range(n, kb.RangeKind.GLOBAL)
    ast = kb.kernel(kb.store(kb.param(0, kb.INT), i, kb.number(kb.INT, 7)), prefix=(i,),
                    variables=(n,))
    program, out = Device["WRITTEN"].compile([ast])[0], np.zeros(4, np.int32)
    memory = Device["WRITTEN"].allocate(16)
    Device["WRITTEN"].copy_in(memory, out)
    program([memory], [3])
    assert memory.view(kb.INT).tolist() == [7, 7, 7, 0]
    with pytest.raises(ValueError, match="5 is not from 1 to 4"):
        program([memory], [5])
    with pytest.raises(DeviceError, match="0 memories for 1 arguments"):
        program([], [3])


@verifies("searching.trial.harmless")
def test_steps_are_searched_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "_known", {})
    values = np.arange(300, dtype=np.float32).reshape(3, 100)
    monkeypatch.setattr(beam._Search, "_is_over", lambda self: self.tried > 4)
    with Context(BEAM=1, BEAM_TIMEOUT_SEC=100, PARALLEL=1):
        assert Tensor(values).sum(1).tolist() == values.sum(1).tolist()
    assert list(beam._known.values())[-1].tried > 1
