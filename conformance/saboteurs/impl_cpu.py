"""Mistakes of the CPU device, made inside `impl.cpu` and in its runtime in C."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_disk import WrittenInPlace
from conformance.saboteurs.impl_patches import ImplPatch
from impl.cpu import backend, objects
from impl.render import symbol

Function = Callable[..., Any]


class RuntimeEdit(ImplPatch):
    """In impl/cpu/runtime.c, the text `new` stands where `old` does."""

    old: ClassVar[str] = ""
    new: ClassVar[str] = ""

    @contextmanager
    def mistake(self) -> Iterator[None]:
        right = objects.RUNTIME
        texts = (*right.definitions, right.body)
        if sum(text.count(self.old) for text in texts) != 1:
            raise TypeError(f"the runtime has not {self.old!r} once")
        *before, body = (text.replace(self.old, self.new) for text in texts)
        wrong = replace(right, definitions=tuple(before), body=body)
        with mock.patch.object(objects, "RUNTIME", wrong), \
                mock.patch.object(backend, "RUNTIME", wrong), \
                mock.patch.object(objects, "loaded", objects.Objects()):
            yield


# Compiling


class LeastIsTheGreatest(Edit):
    rule = "cpu.values.reference"
    description = "the least of two numbers is the greatest"
    file = "impl/functions/definitions.py"
    old, new = 'sign = ">" if name == "max" else "<"', 'sign = ">"'


class NamesAreCompiled(Edit):
    rule = "cpu.compile.once"
    description = "a kernel's name is part of its key"
    file = "impl/render/source.py"
    old = "source.prelude, source.signature, source.body)"
    new = "source.prelude, source.name, source.body)"


class FastMathOnTheCPU(ImplPatch):
    rule = "cpu.flags.safe"
    description = "the compiler may assume that there is no NaN"
    first = "test_flags_change_no_value"
    target = "impl.cpu.compiler:_flags"

    def replacement(self, original: Function) -> Function:
        return lambda command: (*original(command), "-ffast-math")


class NewFlagsForOldCompilers(ImplPatch):
    rule = "cpu.flags.safe"
    description = "every GCC is given the flags of the newest"
    first = "test_a_compiler_that_knows_fewer_flags_compiles"
    target = "impl.cpu.compiler:_unknown_to"

    def replacement(self, original: Function) -> Function:
        return lambda command, seconds: ()


class LibrariesForNobody(ImplPatch):
    rule = "cpu.compile.linked"
    description = "a kernel that calls a function of a library is linked without it"
    first = "test_what_calls_nothing_is_linked_without_libraries"
    target = "impl.cpu.compiler:_LIBRARIES"

    def replacement(self, original: Any) -> Any:
        return original[:1]


class RegistersAsTheyAre(ImplPatch):
    rule = "cpu.call.clean"
    description = "GCC is left to call the library with full vector registers"
    first = "test_a_call_of_the_library_finds_clean_registers"
    target = "impl.cpu.compiler:_CALLING"

    def replacement(self, original: Any) -> Any:
        return ()


class LibrariesForAll(LibrariesForNobody):
    description = "every kernel is linked with libraries"

    def replacement(self, original: Any) -> Any:
        return original[1:]


class HandlersWaitForThePool(Edit):
    rule = "realize.nested.apart"
    description = "a handler that comes while a compiler is started asks a pool for one, too"
    first = "test_the_handler_of_a_signal_compiles_while_a_compiler_is_started"
    file = "impl/cpu/objects.py"
    old, new = "if me in _starting:", "if me in ():"


class CompilersWithoutNames(Edit):
    rule = "cpu.compile.failure"
    description = "the error does not name the compiler that CC asks for"
    first = "test_a_missing_compiler_is_named"
    file = "impl/cpu/compiler.py"
    old, new = 'return f"CC={chosen} is not found"', 'return "no C compiler found"'


class SilentCompilers(Edit):
    rule = "cpu.compile.failure"
    description = "the error does not say what the compiler said"
    first = "test_a_refused_kernel_is_kept"
    file = "impl/cpu/compiler.py"
    old, new = "refused {names}: {message};", "refused {names};"


class CompilersVectorise(ImplPatch):
    rule = "cpu.compiler.fault"
    description = "the compiler makes vectors of what is written as numbers"
    target = "impl.cpu.compiler:_flags"

    def replacement(self, original: Function) -> Function:
        return lambda command: (*original(command), "-O3", "-ftree-vectorize")


# The cache


class TextsAreKeys(Edit):
    rule = "cpu.cache.key"
    description = "a compiled kernel is found by its text alone"
    file = "impl/cpu/backend.py"
    old = "key_of(source, compiled_by())"
    new = "key_of(source)"


class ModesAreNotAsked(Edit):
    rule = "cpu.object.trusted"
    description = "a folder is believed whoever may write to it"
    first = "test_the_folder_belongs_to_its_owner"
    file = "impl/caching/disk.py"
    old, new = "return not_private(folder.stat()) or replaceable(folder)", \
        "return replaceable(folder)"


class ObjectsAreBelieved(Edit):
    rule = "cpu.object.trusted"
    description = "an object is loaded if it is there"
    first = "test_another_object_under_the_same_name_is_not_loaded"
    file = "impl/caching/disk.py"
    old, new = 'if content is None or _digest(content) != name.partition(".")[0]:', \
        "if content is None:"


class ObjectsGrowInPlace(WrittenInPlace):
    rule = "cpu.cache.whole"
    first = "test_files_get_their_names_in_order_when_they_are_whole"


class EntriesFirst(ImplPatch):
    rule = "cpu.cache.whole"
    description = "an entry is there before the object that it names"
    first = "test_files_get_their_names_in_order_when_they_are_whole"
    target = "impl.cpu.objects:Objects.keep"

    def replacement(self, original: Function) -> Function:
        def keep(loaded: Any, kept: Any, unit: Any, content: bytes) -> None:
            name = f"{hashlib.sha256(content).hexdigest()}.so"
            for key, _ in unit:
                named = {"object": name, "symbol": symbol(key)}
                kept.put("kernel", key, json.dumps(named).encode())
            original(loaded, kept, unit, content)
        return keep


class FoldersAreUsedAnyway(Edit):
    rule = "cpu.cache.without"
    description = "a folder is tried for each kernel, although it cannot be used"
    first = "test_an_unusable_folder_stops_nobody"
    file = "impl/caching/disk.py"
    old, new = "self._private() if problem else Store(Path(chosen))", "Store(Path(chosen))"


class LevelZeroIsOne(Edit):
    rule = "cpu.cache.without"
    description = "the folder is used, whatever CACHELEVEL says"
    first = "test_level_zero_leaves_the_folder_alone"
    file = "impl/caching/disk.py"
    old, new = 'if settings.get("CACHELEVEL") == 0:', 'if settings.get("CACHELEVEL") < 0:'


# Threads


class LaunchesWaitForCompilers(ImplPatch):
    rule = "cpu.threads.process"
    description = "a launch waits until no thread compiles"
    first = "test_a_launch_does_not_wait_for_a_compiler"
    target = "impl.cpu.programs:CPUProgram.run"

    def replacement(self, original: Function) -> Function:
        def run(*given: Any) -> None:
            with objects.build_lock:
                original(*given)
        return run


class ThreadsCountTheirParts(RuntimeEdit):
    rule = "cpu.threads.equal"
    description = "which part a thread runs follows from how many it has run"
    old, new = "chunk_for(me), job.phase,", "taken, job.phase,"


class AnybodyHelps(RuntimeEdit):
    rule = "cpu.threads.count"
    description = "workers that were started for a kernel with more threads share any kernel"
    old, new = "TS_TAKEN(word) < TS_CHUNKS(word) && (me) < TS_THREADS(word)", \
        "(me) >= 0 && TS_TAKEN(word) < TS_CHUNKS(word)"


class PartsInTurn(RuntimeEdit):
    rule = "cpu.threads.placed"
    description = "threads take parts in turn, whoever comes first"
    first = "test_the_runtime_under_stress"
    old, new = "for (long whose = me;; whose", "for (long whose = 0;; whose"


class WhoComesLateRunsNothing(RuntimeEdit):
    rule = "cpu.threads.process"
    description = "who finds the workers busy leaves its parts to them"
    first = "test_the_runtime_under_stress"
    old, new = "phases(launch, scratch, together);\n  if", \
        "if (mine || launch->chunks == 1) phases(launch, scratch, together);\n  if"


class WorkersOfTheParent(RuntimeEdit):
    rule = "cpu.threads.process"
    first = "test_a_child_starts_workers_of_its_own"
    description = "after a fork, the child counts on the workers of its parent"
    old = "busy = workers = sleeping = waiting = placed = 0;"
    new = "busy = sleeping = waiting = placed = 0;"


class EndsWithAnAbort(RuntimeEdit):
    rule = "cpu.threads.process"
    description = "a process that ends while it has workers is aborted, as C++ does"
    first = "test_a_process_ends_with_its_workers"
    old, new = "pthread_detach(thread);", "if (!workers) atexit(abort);"


class WorkersTakeSignals(RuntimeEdit):
    rule = "cpu.threads.process"
    description = "a worker takes any signal"
    first = "test_workers_leave_signals_to_others"
    old, new = "sigfillset(&every);", "sigemptyset(&every);"


class WorkersStandWhereverTheyAre(RuntimeEdit):
    rule = "cpu.threads.placed"
    description = "a worker may be put on the processor of its caller"
    first = "test_workers_are_not_where_their_caller_is"
    old, new = "start((int)launch->threads - 1), keep_apart();", "start((int)launch->threads - 1);"


class EstimatesAreNeverMended(RuntimeEdit):
    rule = "cpu.threads.woken"
    description = "what a launch took changes nothing about what is thought of it"
    first = "test_a_kernel_that_takes_longer_than_was_thought_gets_workers"
    old, new = "if (mine) learn(launch, now() - begin, together);", "(void)begin;"
