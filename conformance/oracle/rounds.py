"""Do the rounds that documents list for transfers come to an end, and bring what they have to?

Each device does its transfers in the order of its document, and in each one round after the other.
In a round it sends from what it had before, and receives; it goes on when all of that is done. So
a send without a receive, and devices that wait for each other in a circle, leave somebody standing.

Of what a device has, each run of bytes says whose parts are in it:

    start, stop, ((device, shift), ...)     byte b holds byte b + shift of the source of `device`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.protocol import Document

#: Rules, as `checker` has them: each device finishes, and has what the transfer says.
MATCHED, COMPLETE = "collectives.rounds.matched", "collectives.rounds.complete"
Parts = tuple[tuple[str, int], ...]
Run = tuple[int, int, Parts]
#: What stands where nothing was put.
NOTHING: Parts = (("nobody", 0),)


class Content:
    """What a device has of a value: runs of bytes, each with the parts that are in it."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def between(self, start: int, stop: int) -> list[Run]:
        """The runs from `start` to `stop`, without a gap."""
        found, at = list[Run](), start
        for first, last, parts in self.runs:
            first, last = max(first, start), min(last, stop)
            if first < last:
                found += [(at, first, NOTHING)] if at < first else []
                found.append((first, last, parts))
                at = last
        return found + ([(at, stop, NOTHING)] if at < stop else [])

    def put(self, runs: Sequence[Run]) -> None:
        """Replace what stands there."""
        start, stop = runs[0][0], runs[-1][1]
        rest = [(first, last, parts) for first, last, parts in self._outside(start, stop)]
        self.runs = sorted([*rest, *runs])

    def combine(self, runs: Sequence[Run]) -> None:
        """Add the parts of these runs to what stands there."""
        for start, stop, parts in runs:
            self.put([(first, last, tuple(sorted((*there, *parts))))
                      for first, last, there in self.between(start, stop)])

    def _outside(self, start: int, stop: int) -> Iterator[Run]:
        for first, last, parts in self.runs:
            if first < start:
                yield first, min(last, start), parts
            if last > stop:
                yield max(first, stop), last, parts


@dataclass
class Round:
    """What one device sends and receives in one round of a transfer, and what is not done yet."""

    transfer: str
    sends: list[tuple[str, int, int, bool]]      # to whom, start, stop, of its source
    receives: list[tuple[str, int, int, bool]]   # from whom, start, stop, combined
    came: list[tuple[list[Run], bool]] = field(default_factory=list)


@dataclass
class Device:
    """Where a device is in its rounds, and what it has of each transfer's value."""

    name: str
    rounds: list[Round] = field(default_factory=list)
    at: int = 0
    has: defaultdict[str, Content] = field(default_factory=lambda: defaultdict(Content))

    @property
    def now(self) -> Round | None:
        """The round that it is in; None at its end."""
        return self.rounds[self.at] if self.at < len(self.rounds) else None

    def finish(self) -> bool:
        """Go on to the next round, if this one is done."""
        now = self.now
        if now is None or now.sends or now.receives:
            return False
        for runs, combined in now.came:
            (self.has[now.transfer].combine if combined else self.has[now.transfer].put)(runs)
        self.at += 1
        return True


def wrong(documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """Rules that the rounds of documents break, each with what is wrong.

    There is one document of all devices, or one of each process that lists what its devices do.
    Nothing is said where the document of somebody who takes part is missing.
    """
    devices = _devices(documents)
    if not all(told["devices"][number] in devices for document in documents
               for _, told in _listed(document) for group in told["groups"] for number in group):
        return
    _run(devices)
    standing = [each for each in devices.values() if each.now is not None]
    if standing:
        yield MATCHED, _standing(standing[0], devices)
        return
    for document in documents[:1]:
        for transfer, told in _listed(document):
            yield from _incomplete(transfer, told, devices)


def _listed(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """The transfers that list their rounds, in order, by their name: the same in all documents."""
    kernels = {kernel["id"]: kernel for kernel in document["kernels"]}
    for number in document["order"]:
        told = kernels.get(number, {}).get("collective", {})
        if "rounds" in told:
            yield f"kernel {number} ({told['kind']})", told


def _devices(documents: Sequence[Document]) -> dict[str, Device]:
    """The rounds of all devices; those of one that several documents list are the first's."""
    found: dict[str, Device] = {}
    for document in documents:
        mine: dict[str, Device] = {}
        for transfer, told in _listed(document):
            names = told["devices"]
            for number in told["own"]:
                if names[number] not in found:
                    mine.setdefault(names[number], Device(names[number]))
            for each in told["rounds"]:
                rounds = {names[number]: Round(transfer, [], []) for number in told["own"]}
                for sender, to, start, stop, what in each["sends"]:
                    rounds[names[sender]].sends.append((names[to], start, stop, what == "source"))
                for receiver, giver, start, stop, how in each["receives"]:
                    rounds[names[receiver]].receives.append(
                        (names[giver], start, stop, how == "combine"))
                for name, one in rounds.items():
                    if name in mine and (one.sends or one.receives):
                        mine[name].rounds.append(one)
        found.update(mine)
    return found


def _run(devices: dict[str, Device]) -> None:
    """Let all go on as long as somebody can."""
    waiting = list(devices)
    while waiting:
        device = devices[waiting.pop()]
        now = device.now
        if now is None:
            continue
        for send in list(now.sends):
            other = devices.get(send[0])
            if other is not None and _handed(device, now, send, other):
                waiting.append(other.name)
        for giver in dict.fromkeys(each[0] for each in now.receives):
            if giver in devices:
                waiting += _taken(devices[giver], device)
        if device.finish():
            waiting += [device.name, *devices]


def _taken(giver: Device, receiver: Device) -> list[str]:
    """Let somebody hand on what is waited for; its name, if there was such a thing."""
    now = giver.now
    sends = [send for send in now.sends if send[0] == receiver.name] if now else []
    return [giver.name] if now and [1 for send in sends if _handed(giver, now, send, receiver)] \
        else []


def _handed(device: Device, now: Round, send: tuple[str, int, int, bool], other: Device) -> bool:
    """Hand on what is sent, if the other one is at its receive: the first that is as long."""
    _, start, stop, given = send
    then = other.now
    receive = next((each for each in then.receives if each[0] == device.name), None) \
        if then is not None and then.transfer == now.transfer else None
    if then is None or receive is None or receive[2] - receive[1] != stop - start:
        return False
    by = receive[1] - start
    runs = [(start, stop, ((device.name, 0),))] if given else \
        device.has[now.transfer].between(start, stop)
    then.came.append(([(first + by, last + by, tuple((who, shift - by) for who, shift in parts))
                       for first, last, parts in runs], receive[3]))
    then.receives.remove(receive)
    now.sends.remove(send)
    return True


def _standing(first: Device, devices: dict[str, Device]) -> str:
    """For whom one waits that does not go on, and for whom that one waits, and so on."""
    told, name = list[str](), first.name
    met = set[str]()
    while name in devices and devices[name].now is not None and name not in met:
        met.add(name)
        now = devices[name].now
        assert now is not None
        other = (now.sends or now.receives)[0][0]
        what = "to take what it sends" if now.sends else "to send what it receives"
        told.append(f"{name} waits in {now.transfer} for {other} {what}")
        name = other
    end = f"and {name} is at its end" if name not in met else "and so on in a circle"
    return f"{'; '.join(told)}; {end}"


def _incomplete(transfer: str, told: dict[str, Any],
                devices: dict[str, Device]) -> Iterator[tuple[str, str]]:
    for group in told["groups"]:
        names = [told["devices"][number] for number in group]
        for place, name in enumerate(names):
            if name not in devices:
                continue
            for start, stop, parts in wanted(told, names, place):
                for first, last, there in devices[name].has[transfer].between(start, stop):
                    if there != parts:
                        yield COMPLETE, (f"after {transfer} bytes {first} to {last} of {name} "
                                         f"are made of {_said(there)}, and not of {_said(parts)}")
                        return


def _said(parts: Parts) -> str:
    return " and ".join(f"those of {name}" + f" {shift:+} bytes on" * bool(shift)
                        for name, shift in parts)


def wanted(told: dict[str, Any], names: Sequence[str], place: int) -> Iterator[Run]:
    """What the member of a group has to have at the end."""
    kind, size, count = told["kind"], told["bytes"], len(names)
    part = size // count
    if kind == "all-reduce":
        yield 0, size, tuple(sorted((name, 0) for name in names))
    elif kind == "reduce-scatter":
        yield 0, part, tuple(sorted((name, place * part) for name in names))
    elif kind == "permute":
        yield 0, size, ((names[(place - told["shift"]) % count], 0),)
    else:
        for number, name in enumerate(names):
            if kind == "all-gather":
                yield number * size, (number + 1) * size, ((name, -number * size),)
            else:  # all-to-all
                yield number * part, (number + 1) * part, ((name, (place - number) * part),)
