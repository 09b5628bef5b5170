"""Mistakes in what all devices share, made inside `impl.device`."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class NumberZeroIsAnother(Edit):
    rule = "device.name.resolved+2"
    description = "CPU:0 is another device than CPU"
    first = "test_a_device_has_one_name"
    file = "impl/places.py"
    old, new = "return kind if int(number) == 0 else", "return kind if not number else"


class OneDeviceIsNamed(Edit):
    rule = "device.name.resolved+2"
    description = "the error lists one of the devices that there are"
    first = "test_an_unknown_device_is_refused_with_the_names"
    file = "impl/device/__init__.py"
    old, new = "{', '.join(names)}, or NAME:NUMBER", "{names[0]}, or NAME:NUMBER"


class SaidEachTime(Edit):
    rule = "device.default.line"
    description = "it is said each time that another device takes the default's place"
    file = "impl/device/__init__.py"
    old, new = "self.announced = True", "self.announced = False"


class TheProcessorNeedsACompiler(Edit):
    rule = "device.default.host"
    description = "a processor without a compiler is refused by name"
    file = "impl/device/__init__.py"
    old, new = 'if device_kind(full) == "CPU":  # r[impl device.default.host]', "if False:"


class AlignedTo16(Edit):
    rule = "device.memory.blocks"
    description = "memory is aligned as a vector of 16 bytes wants it"
    first = "test_memory_is_aligned"
    file = "impl/device/__init__.py"
    old, new = "-block.ctypes.data % self.alignment", "-block.ctypes.data % 16"


class RefusedAndCounted(Edit):
    rule = "device.memory.blocks"
    description = "memory that is not to be had counts as allocated"
    first = "test_memory_that_cannot_be_had_is_refused"
    file = "impl/device/__init__.py"
    old, new = 'raise DeviceError("allocate",', \
        'GlobalCounters.grown(nbytes); raise DeviceError("allocate",'


class HalfIsKept(Edit):
    rule = "device.memory.kept+3"
    description = "half of a device's memory is kept for whoever asks next"
    file = "impl/device/__init__.py"
    old, new = "return total // 4", "return total // 2"


class WritesAreSeenElsewhere(Edit):
    rule = "device.lent.kept"
    description = "a run overwrites what another library has"
    first = "test_what_another_library_has_stays_what_it_was"
    file = "impl/realize/run.py"
    old, new = "if memory is not None and is_seen(memory):", "if memory is None:"


class ReplaysOverwriteWhatIsLent(Edit):
    rule = "device.lent.kept"
    description = "a replay overwrites what another library has"
    first = "test_a_replay_leaves_alone_what_another_library_has"
    file = "impl/replay/states.py"
    old, new = "realize.part_from_others(written)", "pass"


class LentMemoryIsLetGo(Edit):
    rule = "device.lent.kept"
    description = "memory that another library sees is used for the next value"
    first = "test_what_another_library_has_stays_what_it_was"
    file = "impl/device/lent.py"
    old, new = "memory  # r[impl device.lent.kept]", \
        "Memory(memory.device, memory.block, memory.start, memory.nbytes)"


class PartsKeepNothingAlive(Edit):
    rule = "device.memory.blocks"
    description = "a part does not keep its block alive"
    first = "test_parts_share_memory_and_keep_it_alive"
    file = "impl/device/__init__.py"
    old, new = "self.block, start, nbytes, self,", "self.block, start, nbytes, None,"


class CopiesOfAllThatFits(Edit):
    rule = "device.copy.exact"
    description = "a copy of some bytes copies all that fit"
    file = "impl/device/__init__.py"
    old, new = "min(target.nbytes, source.nbytes) if nbytes is None else nbytes", \
        "min(target.nbytes, source.nbytes)"


class CompiledEachTime(Edit):
    rule = "device.compile.once"
    description = "a kernel is compiled each time it is asked for"
    file = "impl/device/__init__.py"
    old, new = "if (a, key) not in self.programs", \
        "if (key, a) not in self.programs"


class OneArgumentMore(Edit):
    rule = "device.launch.refused+2"
    description = "a kernel may have one argument more than the device takes"
    first = "test_a_kernel_with_too_many_arguments_is_refused"
    file = "impl/device/__init__.py"
    old, new = "program.arguments > self.maximum_arguments", \
        "program.arguments > self.maximum_arguments + 1"


class SomeMemoriesAreEnough(Edit):
    rule = "device.launch.refused+2"
    description = "a launch is let through that has some of its memories"
    first = "test_a_launch_with_too_few_memories_is_refused"
    file = "impl/device/__init__.py"
    old, new = "if len(memories) < self.arguments:  #", "if not memories and self.arguments:  #"


class OnlyTheGreatestIsAsked(Edit):
    rule = "device.launch.refused+2"
    description = "a value below the bounds of its variable is let through"
    first = "test_arguments_are_checked"
    file = "impl/device/__init__.py"
    old, new = "if not least <= value <= most:", "if not value <= most:"


class DoublesEverywhere(Edit):
    rule = "device.launch.refused+2"
    description = "functions of float32 use doubles on a device that has none"
    first = "test_floats_need_no_doubles"
    file = "impl/dialects/gpu.py"
    old, new = '{"angle": FLOAT_ANGLE} if dtypes.float64 in self.lacks else {}', "{}"


class ValuesOfTheFirstLaunch(Edit):
    rule = "device.table.equal+2"
    description = "a value that is exchanged in a table goes to its first launch"
    file = "impl/cpu/programs.py"
    old, new = "self.arranged.first_value[launch] + variable", \
        "self.arranged.first_value[0] + variable"


class ReplaysCountOnce(Edit):
    rule = "device.counters.exact"
    description = "the replay of a table counts as one launch"
    file = "impl/device/__init__.py"
    old, new = "counters.kernels += kernels * times", "counters.kernels += times"


class LimitsAreNoProperty(Edit):
    rule = "caching.key.circumstances"
    description = "plans for other limits are used"
    first = "test_every_property_that_matters_changes_the_key"
    file = "impl/device/__init__.py"
    old, new = "self.maximum_arguments, self.limits)", "self.maximum_arguments)"


class NamesAreEnough(Edit):
    rule = "device.name.resolved+2"
    description = "a tensor is moved to any device that has a name"
    first = "test_a_device_that_is_not_here_is_refused_at_once"
    file = "impl/assembly.py"
    old = "return Device.usable(name)\n\n    realize"
    new = "return Device.canonical(name)\n\n    realize"


class SettingsAreEnough(Edit):
    rule = "device.name.resolved+2"
    description = "a tensor is made on any device that the setting names"
    first = "test_a_device_that_is_not_here_is_refused_at_once"
    file = "impl/assembly.py"
    old, new = "return Device.usable(name) if", "return name if"
