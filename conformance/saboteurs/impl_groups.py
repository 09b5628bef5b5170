"""Mistakes in kernels for work-groups, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class NobodyWaits(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "the lanes of a group do not wait for what others store"
    first = "test_lanes_wait_where_they_need_each_other"
    target = "impl.lowering.waits:_Open.conflicts"

    def replacement(self, original: Function) -> Function:
        return lambda now, other: False


class LoopsDoNotComeRound(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "the end of an iteration is forgotten when the next one begins"
    first = "test_a_loop_that_stages_share_comes_round"
    target = "impl.lowering.waits:_Walk._entered"

    def replacement(self, original: Function) -> Function:
        return lambda walk, block, before: before


class LoopsComeRoundOnce(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "what an iteration leaves open once it has waited elsewhere is forgotten"
    first = "test_what_an_iteration_leaves_open_is_followed_until_nothing_is_added"
    target = "impl.lowering.waits:_Walk._entered"

    def replacement(self, original: Function) -> Function:
        def entered(walk: Any, block: Any, before: Any) -> Any:
            full = original(walk, block, before)
            return before if full == before else before | walk.course(block, before).after
        return entered


class AllLanesStore(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "what lanes do not share is stored by all of them"
    first = "test_what_lanes_do_not_share_is_stored_once"
    target = "impl.lowering.waits:_alone"

    def replacement(self, original: Function) -> Function:
        return lambda item: item


class WaitsInsideOfLanes(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "a barrier stands in what one lane does alone"
    first = "test_all_lanes_come_by_a_barrier"
    target = "impl.lowering.waits:_alone"

    def replacement(self, original: Function) -> Function:
        from impl.lowering.blocks import Block, Loop, Wait
        return lambda item: Loop(Block(None, None, items=[Wait(), item], alone=True))


class LastIterationsDropped(ImplPatch):
    rule = "dialects.group.once+2"
    description = "as many groups as divide the iterations, rounded down"
    target = "impl.groups.shape:Shape._count"

    def replacement(self, original: Function) -> Function:
        def groups(shape: Any, bound: Any) -> int:
            rounded = int(original(shape, bound))
            return rounded - 1 if shape.shared and rounded > 1 else rounded
        return groups


class AnyLoopIsShared(ImplPatch):
    rule = "groups.lane.legal+2"
    description = "lanes share whatever loop they are asked to"
    target = "impl.groups.lanes:_not_in_lanes"

    def replacement(self, original: Function) -> Function:
        return lambda known, loop: ""


class PartsBeginTheirBuffer(ImplPatch):
    rule = "opencl.launch.reach"
    description = "a memory is taken to begin where its buffer begins"
    first = "test_arguments_begin_anywhere"
    target = "impl.device.remote:DeviceMemory._inside"

    def replacement(self, original: Function) -> Function:
        return lambda memory, start, nbytes: original(memory, 0, nbytes)


class NothingIsKept(ImplPatch):
    rule = "opencl.memory.reuse"
    description = "freed memory goes back to the driver"
    target = "impl.opencl.memory:OpenCLBuffers.give"

    def replacement(self, original: Function) -> Function:
        return lambda pool, buffer: None


class OldDriversPrograms(ImplPatch):
    rule = "opencl.cache.key"
    description = "programs are kept for whatever device there is"
    target = "impl.opencl:OpenCLDevice._identity"

    def replacement(self, original: Function) -> Function:
        return lambda device: ""


class MissingTypesAreTried(ImplPatch):
    rule = "device.launch.refused+2"
    description = "nobody looks whether the device has a type"
    first = "test_a_type_that_the_device_lacks_is_named"
    target = "impl.render.printer:_refuse_types"

    def replacement(self, original: Function) -> Function:
        return lambda device, ast: None


class WhateverFitsIsPrivate(ImplPatch):
    rule = "lowering.wait.private"
    description = "nobody compares how accesses grow from lane to lane"
    target = "impl.kernel.private:_block"

    def replacement(self, original: Function) -> Function:
        from impl.dtypes import dtypes
        from impl.ir import UOp
        return lambda accesses: (1, dict.fromkeys(accesses, UOp.const(dtypes.index, 0)))


class ParametersAreNoPart(ImplPatch):
    rule = "device.key.complete+2"
    description = "the key of a program leaves out its parameters"
    target = "impl.render.source:key_of"

    def replacement(self, original: Function) -> Function:
        from dataclasses import replace
        return lambda source, *environment: original(replace(source, signature=""), *environment)


class CalledLikeWords(ImplPatch):
    rule = "render.name.legal"
    description = "a kernel is called what its user calls it, whatever that means in the language"
    first = "test_no_kernel_is_called_like_a_word_of_a_language"
    target = "impl.render.printer:identifier"

    def replacement(self, original: Function) -> Function:
        return lambda name: original(name).removeprefix("k_")
