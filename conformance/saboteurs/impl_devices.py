"""Mistakes of devices, made inside `impl`: OpenCL, CUDA, Metal, and what they share."""
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from impl.device import DeviceBackend, GlobalCounters, Table
from impl.errors import DeviceError

Function = Callable[..., Any]


class NobodyGuesses(ImplPatch):
    rule = "device.name.resolved+2"
    description = "no name is near to another one"
    first = "test_a_name_that_is_nearly_right_is_guessed"
    target = "impl.settings:one_edit_apart"

    def replacement(self, original: Function) -> Function:
        return lambda one, other: False


class LocalMemoryHasNoEnd(ImplPatch):
    rule = "device.local.limit+3"
    description = "stages are joined as if there were local memory without end"
    target = "impl.realize.environment:_environment"

    def replacement(self, original: Function) -> Function:
        def environment(names: Any) -> Any:
            found = original(names)
            return replace(found, limits=replace(found.limits, local_bytes=1 << 30))
        return environment


class TrialsStay(ImplPatch):
    rule = "device.trial.released+2"
    description = "what was tried stays on the device"
    target = "impl.device.workgroups:GroupDevice.release"

    def replacement(self, original: Function) -> Function:
        return lambda device, programs: None


# OpenCL


class AnyPlatformWillDo(ImplPatch):
    rule = "opencl.error.told+2"
    description = "nobody says what is missing"
    first = "test_without_a_device_one_line_says_why"
    target = "impl.opencl:_found"

    def replacement(self, original: Function) -> Function:
        return functools.lru_cache(lambda: ((), ""))


class ListedIsEnough(ImplPatch):
    rule = "opencl.error.told+2"
    description = "a device whose driver compiles nothing is used"
    first = "test_a_device_whose_driver_compiles_nothing_is_none"
    target = "impl.opencl:_building_problem"

    def replacement(self, original: Function) -> Function:
        return lambda cl, device: ""


class NobodyWaitsOnOpenCL(ImplPatch):
    rule = "opencl.values.reference"
    description = "lanes do not wait for each other"
    target = "impl.dialects.opencl:OpenCL.wait"

    def replacement(self, original: Function) -> Function:
        return lambda dialect: ""


class OneGroupAtLeast(ImplPatch):
    rule = "opencl.launch.reach"
    description = "a launch that has nothing to do has a group"
    first = "test_every_iteration_is_run_once"
    target = "impl.groups.shape:Shape.groups"

    def replacement(self, original: Function) -> Function:
        return lambda shape, values=(): max(original(shape, values), 1)


class RefusedWithoutAName(ImplPatch):
    rule = "opencl.error.told+2"
    description = "a launch that is refused does not say of which kernel"
    first = "test_what_the_driver_refuses_leaves_the_device_usable"
    target = "impl.opencl:OpenCLDevice.enqueue"

    def replacement(self, original: Function) -> Function:
        return lambda device, name, *given: original(device, "launch", *given)


class HostsClockOnOpenCL(ImplPatch):
    rule = "opencl.time.event"
    description = "the host's clock tells how long the device worked"
    target = "impl.opencl:OpenCLDevice.seconds"

    def replacement(self, original: Function) -> Function:
        return DeviceBackend.seconds


class EachReplayAnew(ImplPatch):
    rule = "opencl.table.prepared"
    description = "a replay sets all arguments again"
    target = "impl.opencl:OpenCLDevice.table"

    def replacement(self, original: Function) -> Function:
        return lambda device, launches: Table(launches)


# CUDA


class NobodyWaitsOnCUDA(ImplPatch):
    rule = "cuda.values.reference"
    description = "lanes do not wait for each other"
    first = "test_random_kernels_store_what_the_reference_stores"
    target = "impl.dialects.cuda:CUDA.wait"

    def replacement(self, original: Function) -> Function:
        return lambda dialect: ""


class ProblemsInTwoLines(ImplPatch):
    rule = "cuda.driver.refused"
    description = "the line does not say what is missing"
    first = "test_without_the_bindings_one_line_says_so"
    target = "impl.cuda.driver:problem"

    def replacement(self, original: Function) -> Function:
        return functools.cache(lambda: "it does not work")


class NumbersBeginAgain(ImplPatch):
    rule = "cuda.driver.refused"
    description = "a number beyond the last GPU is the first one again"
    first = "test_every_gpu_has_its_name"
    target = "impl.cuda.driver:DriverContext.__init__"

    def replacement(self, original: Function) -> Function:
        return lambda context, name, number: original(context, name, number % 2)


class ForksAreForgotten(ImplPatch):
    rule = "cuda.driver.refused"
    description = "nobody looks whether the process was forked"
    first = "test_a_forked_process_is_told"
    target = "impl.cuda.driver:DriverContext.enter"

    def replacement(self, original: Function) -> Function:
        def enter(context: Any) -> Any:
            context.owner = os.getpid()
            return original(context)
        return enter


class TextsWithHeaders(ImplPatch):
    rule = "cuda.text.legal"
    description = "a text includes a header of another package"
    first = "test_texts_compile_for_every_kind_of_gpu"
    target = "impl.render.source:unit_text"

    def replacement(self, original: Function) -> Function:
        def with_header(unit: Any) -> str:
            text: str = original(unit)
            return "#include <cuda_fp16.h>\n" * ("__global__" in text) + text
        return with_header


class FastMath(ImplPatch):
    rule = "cuda.compile.meaning"
    description = "NVRTC computes as fast as it can"
    target = "impl.cuda.compiler:_words"

    def replacement(self, original: Function) -> Function:
        return lambda target: [*original(target)[:1], b"--use_fast_math"]


class AnyArchitecture(ImplPatch):
    rule = "cuda.compile.kept"
    description = "machine code is kept for whatever GPU there is"
    target = "impl.cuda.compiler:target"

    def replacement(self, original: Function) -> Function:
        return lambda architecture: "sm_80"


class CompilersWordsAreLost(ImplPatch):
    rule = "cuda.error.told"
    description = "what NVRTC says of a text is not told"
    first = "test_a_text_that_is_refused_is_an_error_with_its_line"
    target = "impl.cuda.compiler:_log"

    def replacement(self, original: Function) -> Function:
        return lambda nvrtc, program: ""


class NeverPTX(ImplPatch):
    rule = "cuda.compile.ptx"
    description = "the driver is given machine code, whatever is asked for"
    target = "impl.cuda.compiler:target"

    def replacement(self, original: Function) -> Function:
        return lambda architecture: f"sm_{architecture}"


class BlocksAreLost(ImplPatch):
    rule = "cuda.memory.kept+2"
    description = "freed blocks are not kept"
    first = "test_a_block_is_used_again"
    target = "impl.cuda.memory:Blocks.give"

    def replacement(self, original: Function) -> Function:
        return lambda pool, block: None


class KeptBlocksStay(ImplPatch):
    rule = "cuda.memory.kept+2"
    description = "kept blocks are not given back when memory is exhausted"
    first = "test_memory_that_is_exhausted_is_an_error_and_no_end"
    target = "impl.cuda.memory:Blocks.clear"

    def replacement(self, original: Function) -> Function:
        return lambda pool: False


class FetchedTooEarly(ImplPatch):
    rule = "cuda.copy.order"
    description = "the host empties a buffer before the GPU has filled it"
    first = "test_values_may_change_once_they_are_sent"
    target = "impl.cuda.memory:Staging._empty"

    def replacement(self, original: Function) -> Function:
        def empty(staging: Any, turn: int, start: int, values: Any) -> None:
            seen = staging.buffers[turn][1]
            part = values[start:start + len(seen)]
            part[:] = seen[:part.nbytes]
        return empty


class PeersDoNotWait(ImplPatch):
    rule = "cuda.copy.order"
    description = "a copy between two GPUs does not wait for the source"
    first = "test_gpus_wait_for_each_others_copies"
    target = "impl.cuda:CUDADevice.copy"

    def replacement(self, original: Function) -> Function:
        def copy(device: Any, target: Any, source: Any, nbytes: int | None = None) -> None:
            if source.device is device or source.device.kind != "CUDA":
                original(device, target, source, nbytes)
                return
            device.context.call("cuMemcpyPeerAsync", target.address, device.context.handle,
                                source.address, source.device.context.handle, target.nbytes,
                                device.stream)
        return copy


class CallsWithoutNames(ImplPatch):
    rule = "cuda.error.told"
    description = "an error does not say what was refused"
    first = "test_a_launch_that_is_refused_is_an_error"
    target = "impl.cuda.driver:_refused"

    def replacement(self, original: Function) -> Function:
        return lambda name, function, error: original(name, "the driver", error)


class SuspectsAreForgotten(ImplPatch):
    rule = "cuda.error.told"
    description = "nobody says which kernels may have broken the context"
    first = "test_a_context_that_is_lost_says_so_and_names_the_kernel"
    target = "impl.cuda.driver:DriverContext._is_lost"

    def replacement(self, original: Function) -> Function:
        def is_lost(context: Any, code: int = 0) -> Any:
            context.lost = context.lost.partition(";")[0]
            return original(context, code)
        return is_lost


class UnitsOfTheNextGeneration(Edit):
    rule = "cuda.text.legal"
    description = "sm_75 gets the units of sm_80"
    first = "test_units_are_those_of_the_gpu_and_exact_unless_told"
    file = "impl/kernel/fragments.py"
    old, new = "if capability < 80:", "if capability < 70:"


class NoGraph(ImplPatch):
    rule = "cuda.table.replayed"
    description = "a table is launched kernel by kernel"
    first = "test_a_table_is_one_launch_of_a_graph"
    target = "impl.cuda:CUDADevice.table"

    def replacement(self, original: Function) -> Function:
        return lambda device, launches: Table(launches)


class GraphsStayAsTheyAre(ImplPatch):
    rule = "cuda.table.replayed"
    description = "a memory that is exchanged is not exchanged in the graph"
    first = "test_a_table_is_one_launch_of_a_graph"
    target = "impl.cuda.graph:CUDATable.set_memory"

    def replacement(self, original: Function) -> Function:
        return Table.set_memory


class OffForEver(ImplPatch):
    rule = "cuda.table.replayed"
    description = "a node that had nothing to do once is never switched on again"
    first = "test_a_launch_of_nothing_does_nothing"
    target = "impl.cuda.graph:CUDATable._rest"

    def replacement(self, original: Function) -> Function:
        return lambda table, number, idle: original(table, number, True)


class HostsClockOnCUDA(ImplPatch):
    rule = "cuda.time.events"
    description = "the host's clock tells how long the GPU worked"
    target = "impl.cuda:CUDADevice.seconds"

    def replacement(self, original: Function) -> Function:
        return DeviceBackend.seconds


# Metal


class NobodyWaitsOnMetal(ImplPatch):
    rule = "metal.values.reference"
    description = "lanes do not wait for each other"
    first = "test_random_kernels_store_what_the_reference_stores"
    target = "impl.dialects.metal:Metal.wait"

    def replacement(self, original: Function) -> Function:
        return lambda dialect: ""


class LocalsInNoSpace(ImplPatch):
    rule = "metal.space.named+2"
    description = "a parameter does not say in which memory it lies"
    target = "impl.dialects.metal:Metal.argument"

    def replacement(self, original: Function) -> Function:
        def argument(dialect: Any, *given: Any) -> str:
            text: str = original(dialect, *given)
            dialect.given = [each.replace("device ", "constant ") for each in dialect.given]
            return text
        return argument


class DoublesAreFloats(ImplPatch):
    rule = "metal.error.told+3"
    description = "what asks for doubles is printed as it stands"
    first = "test_doubles_are_refused"
    target = "impl.dialects.metal:Metal.lacks"

    def replacement(self, original: Any) -> Any:
        return frozenset()


class ImportErrorsGetThrough(ImplPatch):
    rule = "metal.error.told+3"
    description = "where there is no Metal, the error is that of an import"
    first = "test_elsewhere_one_line_says_so"
    target = "impl.metal:bindings"

    def replacement(self, original: Function) -> Function:
        def bindings() -> Any:
            raise OSError("No module named 'Metal'")
        return bindings


class FastMathOnMetal(ImplPatch):
    rule = "metal.compile.meaning"
    description = "Metal computes as fast as it can"
    target = "impl.metal:_options"

    def replacement(self, original: Function) -> Function:
        def options() -> Any:
            from impl.metal import bindings
            return bindings().MTLCompileOptions.alloc().init()
        return options


class CopiesOvertake(ImplPatch):
    rule = "metal.copy.ordered"
    description = "a copy from the host does not wait for what was launched before"
    target = "impl.metal:MetalDevice.put"

    def replacement(self, original: Function) -> Function:
        return DeviceBackend.put


class CountedAllTheSame(ImplPatch):
    rule = "metal.error.told+3"
    description = "memory that is not to be had counts as allocated"
    first = "test_memory_that_is_exhausted_is_an_error"
    target = "impl.metal:MetalDevice.allocate"

    def replacement(self, original: Function) -> Function:
        def allocate(device: Any, nbytes: int) -> Any:
            try:
                return original(device, nbytes)
            except DeviceError:
                GlobalCounters.grown(nbytes)
                raise
        return allocate


class NamelessLaunches(ImplPatch):
    rule = "metal.error.told+3"
    description = "an error does not name the launches"
    first = "test_a_launch_that_fails_is_an_error"
    target = "impl.metal:MetalDevice.gathered"

    def replacement(self, original: Function) -> Function:
        return lambda device, name: original(device, "a kernel")


class HostsClockOnMetal(ImplPatch):
    rule = "metal.time.commands"
    description = "the host's clock tells how long the GPU worked"
    target = "impl.metal:MetalDevice.seconds"

    def replacement(self, original: Function) -> Function:
        return DeviceBackend.seconds


# WebGPU


class AnyAdapterWillDo(ImplPatch):
    rule = "webgpu.error.told"
    description = "nobody says that there is no adapter"
    first = "test_what_is_missing_is_said_in_one_line"
    target = "impl.webgpu:webgpu_problem"

    def replacement(self, original: Function) -> Function:
        return lambda: ""


class NobodyNarrowsInWgsl(ImplPatch):
    rule = "webgpu.values.reference"
    description = "small integers keep more bits than they have"
    target = "impl.dialects.wgsl:WGSL._narrow"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, text, dtype: text


class LongIntegersArePrinted(Edit):
    rule = "webgpu.error.told"
    description = "integers of 64 bits are printed where there are none"
    first = "test_types_that_are_missing_are_named"
    file = "impl/dialects/wgsl.py"
    old, new = "longer = () if wide else", "longer = () if True else"


class AlwaysThirtyTwoBits(ImplPatch):
    rule = "webgpu.index.narrow+2"
    description = "every index is taken for a short one"
    target = "impl.dialects.wgsl:WGSL.indices"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, small, wraps: original(dialect, True, True)


class LongVariables(Edit):
    rule = "webgpu.index.narrow+2"
    description = "a variable is as long as the indices of its kernel"
    first = "test_a_variable_has_the_bits_of_its_type"
    file = "impl/dialects/wgsl.py"
    old = "self.type_of(dtype), name, self._converted_to(\n" \
          "            self._next(), dtypes.int32, dtype)"
    new = "self.index, name, self._converted_to(self._next(), dtypes.int32, dtypes.index)"


class WholeWordsOnly(Edit):
    rule = "webgpu.word.rest"
    description = "storing a part of a word clears the rest of it"
    first = "test_lanes_that_write_parts_of_a_word_keep_the_others"
    file = "impl/dialects/wgsl.py"
    old, new = "~({mask}u << part));", "0u << part);"


class CompilersAreTrusted(ImplPatch):
    rule = "webgpu.float.exact"
    description = "a compiler sees what floats are made of"
    target = "impl.functions.wgsl:_FLOATS"

    def replacement(self, original: Any) -> Any:
        return {**original, "exact_f32": "fn exact_f32(x: f32) -> f32 { return x; }",
                "apart_f32": "fn apart_f32(x: f32) -> f32 { return x; }"}


class EachBindingBeginsAtItsArgument(Edit):
    rule = "webgpu.argument.offset+2"
    description = "what lies between a binding and its argument is forgotten"
    file = "impl/webgpu/queue.py"
    old, new = "begins.append(rest)", "begins.append(0)"


class AnySizeIsBound(Edit):
    rule = "webgpu.error.told"
    description = "an argument that is too large is bound"
    first = "test_an_argument_that_cannot_be_bound_is_named"
    file = "impl/webgpu/queue.py"
    old, new = "if size > most:", "if size > most and False:"


class BytesTakeTheirNeighbours(Edit):
    rule = "webgpu.word.rest"
    description = "the words at the ends of a copy are not read first"
    first = "test_copies_of_bytes_leave_their_neighbours"
    file = "impl/webgpu/__init__.py"
    old, new = "            words[memory.start - first:end - first] = flat", \
        "            words[:] = 0; words[memory.start - first:end - first] = flat"


class WithoutTheBytes(Edit):
    rule = "webgpu.error.told"
    description = "nobody says that the memory was not enough"
    first = "test_memory_that_is_not_there_is_named"
    file = "impl/webgpu/__init__.py"
    old, new = 'f"{self.name} has no {nbytes} bytes left: {error}"', 'f"{error}"'


class OneRowOfGroups(Edit):
    rule = "webgpu.launch.all"
    description = "groups that do not fit in a row do not run"
    first = "test_groups_that_fill_more_than_a_row"
    file = "impl/webgpu/queue.py"
    old, new = "-(-groups // ROW))", "1)"


class CopiesOvertakeLaunches(Edit):
    rule = "webgpu.launch.all"
    description = "what waits is not submitted before bytes are written"
    first = "test_what_is_gathered_runs_in_the_order_in_which_it_was_asked_for"
    file = "impl/webgpu/__init__.py"
    old, new = "self.launches.submit()\n            self.driver.queue.write_buffer", \
        "pass\n            self.driver.queue.write_buffer"


class NobodyCountsTurns(Edit):
    rule = "webgpu.loop.turns+2"
    description = "a lane turns more often than the driver lets it"
    file = "impl/webgpu/__init__.py"
    old, new = "if self.turns is None or turns(made) <= self.turns:", "if True:"


class RefusedWithoutAKernel(Edit):
    rule = "webgpu.error.told"
    description = "a text that is refused does not say of which kernel"
    first = "test_a_text_that_is_refused_says_of_which_kernel"
    file = "impl/webgpu/__init__.py"
    old, new = 'f"{self.name} refused {name}: {error}"', 'f"{self.name}: {error}"'


class SendsTheSamePieceToAll(Edit):
    rule = "collectives.nccl.calls+2"
    description = "in an all-to-all over NCCL each GPU sends its first piece to everybody"
    file = "impl/collectives/nccl.py"
    old = 'call("ncclSend", source + other * part, part, _BYTES, other)'
    new = 'call("ncclSend", source, part, _BYTES, other)'
