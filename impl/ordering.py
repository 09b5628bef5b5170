"""One legal linear order of the kernels. Chapter: spec/ordering.md.

Every order that respects the dependences computes the same values. This module picks the one in
which little memory is alive at a time, and picks the same one in every process.

Needs: which kernel waits for which, and the temporaries that each touches, with their sizes.
Guarantees: every kernel once, each after all that it waits for; and the same order in every
process.
"""
from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from impl.dependencies import Dependency, Lives, Pair, alive_bytes, waits
from impl.errors import GraphError
from impl.fusion import Group, Member


class Uses:
    """Which kernels touch each temporary, and its size in bytes."""

    def __init__(self, nbytes: dict[int, int], touched: Sequence[Sequence[int]]) -> None:
        self.nbytes = nbytes
        self.touched = [sorted({s for s in one if s in nbytes}) for one in touched]
        self.users: dict[int, list[int]] = {}
        for kernel, storages in enumerate(self.touched):
            for storage in storages:
                self.users.setdefault(storage, []).append(kernel)


def alive_in(order: Sequence[int], uses: Uses) -> list[int]:
    """The bytes of temporaries that are alive at each position of the order."""
    return alive_bytes(Lives(order, uses.touched).of(uses.nbytes), len(order))


def peak_bytes(order: Sequence[int], uses: Uses) -> int:
    """The most bytes of temporaries that are alive at one position of the order."""
    return max(alive_in(order, uses), default=0)


def overlapped(order: list[int], pairs: set[Pair], seconds: Sequence[float],
               transfers: Collection[int], uses: Uses,
               awaited: Collection[int] = ()) -> list[int]:
    """The order in which devices wait least for transfers, which run beside kernels.

    A transfer starts as soon as its source is there; meanwhile what needs nothing of it runs, in
    the given order. `seconds` is what each takes, about; the transfers that are `awaited` start
    when there is nothing else to do. The given order stays, if the peak of the other one is above
    that of the order as made; with such transfers by an eighth of it, and by 64 KiB.
    """
    # r[impl ordering.transfers.early+2]
    found = _by_time(order, _Graph(len(order), pairs), seconds, transfers, awaited)
    limit = peak_bytes(order, uses)
    if all(before < after for before, after in pairs):
        limit = max(limit, peak_bytes(range(len(order)), uses))
    if awaited:
        limit += max(limit // 8, _LITTLE)  # what waits to be sent together has to lie somewhere
    return found if peak_bytes(found, uses) <= limit else order


#: What a transfer that is awaited counts as, in seconds: longer than all kernels.
_AWAITED = 1e3
#: Bytes that are no reason to send something by itself.
_LITTLE = 1 << 16


def _by_time(order: Sequence[int], graph: _Graph, seconds: Sequence[float],
             transfers: Collection[int], awaited: Collection[int]) -> list[int]:
    """A transfer as soon as it may start, else the first kernel that may, else the next one;
    awaited transfers when no kernel can run.
    """
    # r[impl ordering.waiting.late+3]
    seconds = [_AWAITED if kernel in awaited else one for kernel, one in enumerate(seconds)]
    place = {kernel: position for position, kernel in enumerate(order)}
    earliest = [0.0] * len(order)
    sending, computing, waiting = list[int](), list[int](), list[tuple[float, int]]()
    late = list[int]()
    computed = sent = 0.0
    found: list[int] = []

    def release(kernel: int) -> None:
        if kernel in transfers:
            heapq.heappush(late if kernel in awaited else sending, place[kernel])
        else:
            heapq.heappush(waiting, (earliest[kernel], place[kernel]))

    for kernel, missing in enumerate(graph.missing):
        if not missing:
            release(kernel)
    while sending or computing or waiting or late:
        if late and not computing and not (waiting and waiting[0][0] <= computed):
            sending, late = [*sending, *late], []
            heapq.heapify(sending)
        if sending:
            kernel = order[heapq.heappop(sending)]
            done = sent = max(sent, computed, earliest[kernel]) + seconds[kernel]
        else:
            if not computing:
                computed = max(computed, waiting[0][0])
            while waiting and waiting[0][0] <= computed:
                heapq.heappush(computing, heapq.heappop(waiting)[1])
            kernel = order[heapq.heappop(computing)]
            done = computed = computed + seconds[kernel]
        found.append(kernel)
        for other in graph.after[kernel]:
            earliest[other] = max(earliest[other], done)
            graph.missing[other] -= 1
            if not graph.missing[other]:
                release(other)
    return graph.complete(found)


class _Graph:
    """Successors and counts of predecessors, each dependence once."""

    def __init__(self, count: int, pairs: Iterable[Pair]) -> None:
        self.after: list[list[int]] = [[] for _ in range(count)]
        self.missing = [0] * count
        for before, after in sorted(pairs):  # r[impl ordering.deterministic.same]
            self.after[before].append(after)
            self.missing[after] += 1

    def complete(self, order: list[int]) -> list[int]:
        """The order, if all kernels are in it."""
        if len(order) < len(self.after):  # r[impl ordering.cycle.error]
            raise GraphError("ordering", f"the kernels {self._cycle(set(order))} wait for each "
                             "other", "report this: dependences between kernels must not form a "
                             "cycle")
        return order

    def _cycle(self, done: set[int]) -> list[int]:
        """A cycle among the kernels that could not be ordered."""
        before: dict[int, int] = {}
        for number, successors in enumerate(self.after):
            for other in successors:
                if number not in done and other not in done:
                    before[other] = number
        walk, seen = next(iter(before)), []
        while walk not in seen:
            seen.append(walk)
            walk = before[walk]
        return [*seen[seen.index(walk):], walk][::-1]


def linearize(count: int, dependencies: Iterable[Dependency], uses: Uses,
              seed: int | None = None) -> list[int]:
    """The kernel numbers in an order in which they may run.

    With a seed, a random legal order (r[ordering.any-legal.equal]). Otherwise the order of lowest
    peak memory of three: as the kernels were made; always the one that frees most; and the same
    from the last kernel to the first.

    Raises:
        GraphError: the dependences form a cycle; the message has its path (r[ordering.cycle.error])
    """
    pairs = {(d.before, d.after) for d in dependencies}
    return least_peak(count, pairs, uses) if seed is None \
        else _random_order(_Graph(count, pairs), seed)


def least_peak(count: int, pairs: set[Pair], uses: Uses) -> list[int]:
    """The order of lowest peak memory of three."""
    return _least_alive(count, pairs, uses)[1]


def _least_alive(count: int, pairs: set[Pair], uses: Uses) -> tuple[list[int], list[int]]:
    """The bytes that are alive at each position of that order, and the order."""
    best, peak = None, 0
    least = max([sum([uses.nbytes[s] for s in one]) for one in uses.touched], default=0)
    for order in _orders(count, pairs, uses):
        alive = alive_in(order, uses)
        most = max(alive, default=0)
        if best is None or most < peak:
            best, peak = (alive, order), most
        if most == least:  # no order needs less than its neediest kernel
            break
    assert best is not None
    return best


def _orders(count: int, pairs: set[Pair], uses: Uses) -> Iterator[list[int]]:
    # r[impl ordering.peak.not-worse, ordering.peak.claimed, ordering.chains.claimed]
    if all([before < after for before, after in pairs]):
        yield list(range(count))
    yield _greedy_order(_Graph(count, pairs), uses)
    turned = [(after, before) for before, after in pairs]  # the same kernels, run backwards
    yield _greedy_order(_Graph(count, turned), uses)[::-1]


def _greedy_order(graph: _Graph, uses: Uses) -> list[int]:
    """Kahn's algorithm; among the ready kernels the one that adds least to live memory."""
    remaining = {s: len(users) for s, users in uses.users.items()}
    started: set[int] = set()
    done: set[int] = set()

    def growth(kernel: int) -> int:
        change = 0
        for storage in uses.touched[kernel]:
            if storage not in started:
                change += uses.nbytes[storage]
            if remaining[storage] == 1:
                change -= uses.nbytes[storage]
        return change

    ready = [(growth(k), k) for k, count in enumerate(graph.missing) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, kernel = heapq.heappop(ready)
        if kernel in done:
            continue  # an entry with an old price
        done.add(kernel)
        order.append(kernel)  # r[impl ordering.legal.permutation]
        fresh = [storage for storage in uses.touched[kernel] if storage not in started]
        started.update(fresh)
        for storage in uses.touched[kernel]:
            remaining[storage] -= 1
        for other in _repriced(kernel, graph, uses, remaining, done, fresh):
            heapq.heappush(ready, (growth(other), other))
    return graph.complete(order)


def _repriced(kernel: int, graph: _Graph, uses: Uses, remaining: dict[int, int],
              done: set[int], fresh: Sequence[int]) -> list[int]:
    """Kernels that have become ready, and ready ones that now add less: they would free a storage,
    or touch one that has come to life.
    """
    found: list[int] = []
    for other in graph.after[kernel]:
        graph.missing[other] -= 1
        if graph.missing[other] == 0:
            found.append(other)
    for storage in uses.touched[kernel]:
        if remaining[storage] == 1:
            last = next(k for k in uses.users[storage] if k not in done)
            if graph.missing[last] == 0:
                found.append(last)
    for storage in fresh:
        found += [k for k in uses.users[storage] if graph.missing[k] == 0 and k not in done]
    return found


def _random_order(graph: _Graph, seed: int) -> list[int]:
    chooser = random.Random(seed)
    ready = [k for k, count in enumerate(graph.missing) if count == 0]
    order: list[int] = []
    while ready:
        kernel = ready.pop(chooser.randrange(len(ready)))  # r[impl ordering.any-legal.equal]
        order.append(kernel)
        for other in graph.after[kernel]:
            graph.missing[other] -= 1
            if graph.missing[other] == 0:
                ready.append(other)
    return graph.complete(order)


Sides = tuple[dict[int, None], dict[int, None]]  # the storages that are read, and written


class Peaks:
    """How much memory groups need at most, in the best order known for them.

    It is asked for groups of which few differ from the last ones, so it remembers what each
    touches; and it looks at whole storages, not at bytes. `storage_of[value]` is the storage of a
    value; `nbytes` are the sizes of temporaries.
    """

    def __init__(self, storage_of: Sequence[int], nbytes: dict[int, int]) -> None:
        self.storage_of, self.nbytes = storage_of, nbytes
        # By identity of the members, which are kept alive for that.
        self.known: dict[int, tuple[list[Member], Sides, list[int]]] = {}

    def __call__(self, groups: list[Group]) -> tuple[int, int]:
        """How many bytes of temporaries are alive at most, and while which group runs."""
        known = [self._touched(group) for group in groups]
        users = Counter(itertools.chain.from_iterable(touched for _, touched in known))
        uses = Uses({n: size for n, size in self.nbytes.items() if users[n] > 1},
                    [touched for _, touched in known])
        alive, order = _least_alive(len(groups), waits([sides for sides, _ in known]), uses)
        most = max(alive, default=0)
        return most, order[alive.index(most)] if alive else 0

    def _touched(self, group: Group) -> tuple[Sides, list[int]]:
        """The storages that a group reads, those that it writes, and all of them."""
        key = id(group.members)
        if key not in self.known:
            storage, stages = self.storage_of, [m.stage for m in group.members]
            reads = dict.fromkeys(storage[a.value] for s in stages for a in s.reads)
            writes = dict.fromkeys(storage[a.value] for s in stages for a in s.writes)
            self.known[key] = group.members, (reads, writes), list({**reads, **writes})
        return self.known[key][1:]
