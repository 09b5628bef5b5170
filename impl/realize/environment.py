"""What the settings in force and the devices of a call ask of its plan and of its run."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from impl import settings
from impl.caching import Described
from impl.device import Device
from impl.effects import Effects
from impl.fusion import FusionLimits
from impl.ir import Ops, in_memory
from impl.places import Place, place_of
from impl.schedule import Environment

_COPY = Ops.COPY
#: More inputs than this in one kernel gain nothing: their rows crowd each other out of the cache.
MOST_ARGUMENTS = 60


class Mode:
    """What the settings in force say about planning and running; asked for once, not each time."""

    def __init__(self) -> None:
        get = settings.get
        self.default = Device.DEFAULT
        self.debug, self.poison, self.viz = get("DEBUG"), get("POISON"), get("VIZ")
        self.checked, self.recorded = get("SPEC"), get("CAPTURE_PROCESS_REPLAY")
        self.use_cache = bool(get("SCACHE"))
        self.numbers = get("CHECK_NAN")
        self.captures = bool(get("JIT")) and not self.numbers  # a replay is not looked at
        self.shown = self.debug or self.viz
        # Nobody looks at what is found, and what was found before may be found again.
        self.quiet = self.use_cache and not (self.checked or self.recorded or self.shown)
        self.watched = self.debug >= 2 or self.poison or self.numbers
        self.direct = self.quiet and not self.watched
        self.environments: dict[tuple[Place, ...], Environment] = {}

    @functools.cached_property
    def circumstances(self) -> str:
        """All that a plan on the default device depends on besides its graph: a value, not a name.

        Who enters a `Context` for each line finds the plans of the last time.
        """
        found = _environment((self.default,))
        return repr((settings.plan_text(), self.default, found.device_key))


def in_force() -> Mode:
    """What the settings in force in this thread say."""
    return settings.derived(Mode)


def environment(effects: Effects, mode: Mode | None = None) -> Environment:
    """What the devices of the values and the present settings ask of a plan."""
    mode = mode or in_force()
    names: dict[Place, None] = {mode.default: None}
    if isinstance(effects, Described):
        names.update(dict.fromkeys([buffer.device for buffer in effects.description.slots]))
        names.update(effects.description.copies)
    else:
        for node in effects.nodes:
            leaf = in_memory(node)
            if leaf is not None:
                names[leaf.arg[0].device] = None
            elif node.op is _COPY:
                names[place_of(node)] = None
    key = tuple(names)
    return mode.environments.get(key) or mode.environments.setdefault(key, _environment(key))


def _environment(names: Sequence[Place]) -> Environment:
    devices = [(name, Device[name]) for name in names]
    seed = settings.get("ORDER_SEED")
    # r[impl fusion.limit.device, caching.key.circumstances]
    arguments = min(MOST_ARGUMENTS, *(device.maximum_arguments for _, device in devices))
    overlap = bool(settings.get("OVERLAP"))
    # They join those that are ready when one is needed.
    # r[impl distributed.buckets.none+2, distributed.together.once+4]
    joined = overlap and not all(device.buckets for _, device in devices)
    limits = FusionLimits(arguments=arguments,
                          bucket=0 if joined else settings.get("BUCKET_BYTES"))
    # r[impl device.local.limit+3]
    limits = replace(limits, local_bytes=min(
        limits.local_bytes, *(device.local_bytes for _, device in devices)))
    if settings.get("SCARCE"):
        limits = replace(limits, memory_worth=0, small_kernel=0)  # r[impl fusion.switch.meaning]
    if not settings.get("REMATERIALIZE"):
        limits = replace(limits, late=0)  # r[impl fusion.late.same]
    return Environment(devices[0][0], limits, bool(settings.get("FUSE")),
                       not settings.get("NO_MEMORY_PLANNER"),
                       overlap and all(d.concurrent for _, d in devices),
                       None if seed < 0 else seed,
                       # Text: it is hashed once, and not for every key.
                       repr([(name, *device.plan_key()) for name, device in devices]))
