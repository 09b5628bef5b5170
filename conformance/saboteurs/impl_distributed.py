"""Mistakes of several processes: what they send, and whom they wait for.

The processes of a job are started by `mpiexec` and import `impl` anew. So a mistake is written into
a copy of the package, which stands first on their path.
"""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from conformance.trace import ROOT

#: The tests of processes start them with this path, where it is set.
PATH = "TENSOR_SCHEDULE_TESTED"
MONITOR, FILES = "impl/distributed/monitor.py", "impl/nn/files.py"


class Copied(ImplPatch):
    """One mistake: in a copy of `file`, the text `new` stands where `old` does."""

    file: ClassVar[str] = ""
    old: ClassVar[str] = ""
    new: ClassVar[str] = ""

    @contextmanager
    def mistake(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "impl", Path(folder, "impl"),
                            ignore=shutil.ignore_patterns("__pycache__"))
            path = Path(folder, self.file)
            text = path.read_text(encoding="utf-8")
            if text.count(self.old) != 1:
                raise TypeError(f"{self.file} does not have {self.old!r} once")
            path.write_text(text.replace(self.old, self.new), encoding="utf-8")
            os.environ[PATH] = folder
            try:
                yield
            finally:
                del os.environ[PATH]


class KeepsItsOwnSum(Copied):
    rule = "distributed.value.equal"
    description = "what a process has is taken for what all have"
    file = "impl/distributed/sums.py"
    old = "self.sums()"
    new = "[total.put(range(total.size), mine) for mine, total, _ in self.sums.messages]"


class CallsAllProcessesAlike(Copied):
    rule = "collectives.span.named"
    description = "what a process measures bears the name of its own device"
    file = "impl/collectives/device.py"
    old = "return [self.mesh.devices[number] for number in self.numbers]"
    new = "return [member.name for member in self.members]"


class BlamesItself(Copied):
    rule = "distributed.late.named+3"
    description = "the error names the rank that waits"
    file = MONITOR
    old = "who = [rank for rank in silent if rank in waiting.members] or silent"
    new = "who = [self.rank]"


class NeverLooksUp(Copied):
    rule = "distributed.end.named+2"
    description = "a process that was killed is waited for until the time is up"
    file = MONITOR
    old = "dead = [rank for rank in self.others if self._lost(rank)]"
    new = "dead = list[int]()"


class GoesOnAfterAnError(Copied):
    rule = "distributed.error.final"
    description = "who was refused once may take part in what comes next"
    file = "impl/distributed/engine.py"
    old = "if self.monitor.failed is not None:"
    new = "if self.monitor.size < 0:"


class TrustsPlans(Copied):
    rule = "distributed.plan.same"
    description = "plans are compared by nothing but that there is one"
    file = "impl/distributed/device.py"
    old = "hashlib.blake2b(repr(key).encode(), digest_size=8)"
    new = "hashlib.blake2b(b'', digest_size=8)"


class SendsEachSum(Copied):
    rule = "distributed.together.once+4"
    description = "each gradient is sent by itself"
    file = "impl/realize/beside.py"
    old = "        return plan.stretches  # r"
    new = "        return []  # r"


class SendsFewBytesByThemselves(Copied):
    rule = "distributed.together.once+4"
    description = "sums of a few bytes are sent after their note, and not with it"
    file = "impl/distributed/sums.py"
    old = "if self.noted > NOTED:"
    new = "if self.noted:"


class AddsInAPassOfItsOwn(Copied):
    rule = "distributed.pair.combined+2"
    description = "what two processes have is added before any kernel needs it"
    file = "impl/multi/pieces.py"
    old = "not mesh.is_of_processes or transfer.count != 2"
    new = "not mesh.is_of_processes or transfer.count != 1"


class ExchangesOnGPUs(Copied):
    rule = "distributed.pair.combined+2"
    description = "what two processes have on GPUs is exchanged, and NCCL has nothing to do"
    file = "impl/multi/pieces.py"
    old = 'device_kind(mesh.devices[0].partition("@")[0])'
    new = "device_kind(mesh.devices[0])"
    first = "test_processes_with_one_gpu_send_over_mpi"


class PutsSumsOfProcessesIntoBuckets(Copied):
    rule = "distributed.buckets.none+2"
    description = "sums between processes are put together when they are planned"
    file = "impl/realize/environment.py"
    old = "bucket=0 if joined else settings"
    new = "bucket=settings"


class NeverPutsSumsOfProcessesIntoBuckets(Copied):
    rule = "distributed.buckets.none+2"
    description = "sums between processes have no buckets, though nothing is put off"
    file = "impl/realize/environment.py"
    old = "joined = overlap and not"
    new = "joined = not"


class SendsBeforeItHasCome(Copied):
    rule = "distributed.value.equal"
    description = "a transfer is sent together with one whose result it sends"
    file = "impl/collectives/lanes.py"
    old = "if not entry.waits.isdisjoint(waiting):"
    new = "if isinstance(entry, Computed) and not entry.waits.isdisjoint(waiting):"
    first = "test_each_way_is_as_on_one_device_and_sends_what_it_needs"


class WaitsAtOnce(Copied):
    rule = "ordering.waiting.late+3"
    description = "what waits for a transfer between processes runs as soon as it may"
    file = "impl/schedule/passes.py"
    old = "transfers, uses, awaited)"
    new = "transfers, uses)"


class TakesAllProcessors(Edit):
    rule = "distributed.processors.shared"
    description = "each of four processes has as many threads as the machine has processors"
    file = "impl/cpu/machine.py"
    old = "return max(1, own // together)"
    new = "return max(1, own)"


class WritesInPlace(Edit):
    rule = "distributed.save.complete"
    description = "the file with the name is written where it stands"
    file = FILES
    old = "beside = path.with_name(f\"{path.name}.{distributed.rank()}.part\")"
    new = "beside = path"


class CommitsFirst(Edit):
    rule = "distributed.save.complete"
    description = "what was saved before goes before the new one has its name"
    file = FILES
    old = "    _replace(path, {}, {}, metadata)\n    parts = re"
    new = "    path.unlink(missing_ok=True); _replace(path, {}, {}, metadata)\n    parts = re"


class LosesTheOthersError(Edit):
    rule = "distributed.save.complete"
    description = "a process goes on though another one could not write"
    file = FILES
    old = "        if text:\n"
    new = "        if not purpose:\n"


class PutsPiecesFirst(Edit):
    rule = "distributed.save.equal+2"
    description = "every piece is put where the first one belongs"
    file = FILES
    old = "whole[tuple(slice(start, start + size) for start, size\n"
    new = "whole[tuple(slice(0, size) for start, size\n"


class ComparesNothing(Copied):
    rule = "distributed.other.named"
    description = "a process takes part in whatever another one does"
    file = "impl/distributed/engine.py"
    old = "if self._heads.tobytes() != digest * len(self.members):"
    new = "if not self.notes.size:"


class SaysNotHow(Copied):
    rule = "distributed.other.named"
    description = "a sum and a product of as many bytes are the same"
    file = "impl/distributed/engine.py"
    old = 'return f"{transfer.kind}{how} over'
    new = 'return f"{transfer.kind} over'
    first = "test_transfers_of_as_many_bytes_are_not_the_same"


class KeepsItsOwnSeed(Copied):
    rule = "distributed.random.same"
    description = "each process draws its own numbers"
    file = "impl/distributed/device.py"
    old = "        generator.seed(found[0][0])"
    new = "        generator.seed(generator.number)"
    first = "test_random_numbers_without_a_seed_are_those_of_one_process"


class ForgetsWhatWasDrawn(Copied):
    rule = "distributed.random.same"
    description = "numbers that each process drew by itself are never spoken of"
    file = "impl/distributed/device.py"
    old = "if any(drawn and not chosen for"
    new = "if any(drawn and chosen and not drawn for"
    first = "test_random_numbers_without_a_seed_are_those_of_one_process"


class TrustsCopies(Copied):
    rule = "distributed.copies.same"
    description = "copies are compared by how many bytes they have"
    file = "impl/distributed/device.py"
    old = "hashlib.blake2b(_bytes(source, nbytes).tobytes(), digest_size=8)"
    new = "hashlib.blake2b(bytes(nbytes), digest_size=8)"
    first = "test_copies_are_compared_when_asked_for"


class TakesAnySize(Copied):
    rule = "distributed.mesh.size+2"
    description = "a mesh may have more places than there are processes"
    file = "impl/distributed/device.py"
    old = "    if count != ranks():"
    new = "    if count < 1:"


class SharesOneGPU(Copied):
    rule = "distributed.nccl.calls"
    description = "two processes with one GPU are a clique"
    file = "impl/distributed/cliques.py"
    old = "if not rows[:, 0].all() or len("
    new = "if not rows[:, 0].all() or 0 > len("
    first = "test_processes_with_one_gpu_send_over_mpi"


class LeavesItUnderWay(Copied):
    rule = "distributed.nccl.ended"
    description = "a call that will never be done is not given up"
    file = "impl/distributed/cliques.py"
    old = "target=self.clique.abort"
    new = "target=self.device.synchronize"
    first = "test_a_call_of_nccl_that_others_do_not_make_is_given_up"


class CrowdsOnOneGPU(Copied):
    rule = "distributed.gpus.own"
    description = "all processes of a machine use its first GPU"
    file = "impl/cuda/driver.py"
    old = "(number + own) % count"
    new = "number % count"
    first = "test_collectives_between_gpus_of_processes_are_calls_of_nccl"
