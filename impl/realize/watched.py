"""A kernel that is a text of the user, watched while it runs. Chapter: spec/custom.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl.custom import WrittenText
from impl.device import Memory, Program
from impl.errors import DeviceError
from impl.host import np
from impl.ir import Ops

#: Bytes before and after each argument that nobody may change; a multiple of every alignment.
_ZONE = 4096
_PATTERN = 0xA7


def run_watched(program: Program, text: WrittenText, memories: Sequence[Memory]) -> None:
    """Run a text on copies of its arguments, with zones around them, and look at what it changed.

    Raises:
        DeviceError: it stored where nothing was declared. The arguments are as before, then.
    """
    if any(len(memory.members) > 1 for memory in memories):
        return program(memories)  # a mesh has no such copies
    device, types = program.device, {n.arg: n.dtype for n in program.ast.toposort()
                                     if n.op is Ops.PARAM}
    zone = np.full(_ZONE, _PATTERN, np.uint8)
    blocks, before = [], []
    for place, size in enumerate(text.sizes):
        nbytes = size * types[place].itemsize
        given = np.concatenate([zone, device.get(memories[place], 0, nbytes), zone])
        block = device.allocate(given.nbytes + -given.nbytes % _ZONE)
        device.put(block, given)
        blocks.append(block)
        before.append(given)
    program([block.part(_ZONE, given.nbytes - 2 * _ZONE)
             for block, given in zip(blocks, before, strict=True)])
    after = [device.get(block, 0, given.nbytes)
             for block, given in zip(blocks, before, strict=True)]
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        _compare(program, text, place, types[place].itemsize, old, new)
    for place, interval in enumerate(text.bounds):
        if interval is not None:
            device.put(memories[place], after[place][_ZONE:-_ZONE])


def _compare(program: Program, text: WrittenText, place: int, itemsize: int, old: np.ndarray,
             new: np.ndarray) -> None:
    """Raise if something has changed besides what may."""
    # r[impl custom.text.watched]
    changed = old != new
    interval = text.bounds[place]
    if interval is not None:
        changed[_ZONE + interval[0] * itemsize:_ZONE + interval[1] * itemsize] = False
    found = np.flatnonzero(changed)
    if not found.size:
        return
    element, size, name = (int(found[0]) - _ZONE) // itemsize, text.sizes[place], text.names[place]
    if not 0 <= element < size:
        said = f"it stored into element {element} of {name}, which has {size}"
    elif interval is None:
        said = f"it stored into element {element} of {name}, which is not among its writes"
    else:
        said = f"it stored into element {element} of {name}, outside of its bounds {interval}"
    raise DeviceError(program.name, said, "mend the text, or declare what it stores in writes and "
                      "bounds")
