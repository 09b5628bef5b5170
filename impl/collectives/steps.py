"""Collectives as rounds of moves between the devices of a group. Chapter: spec/collectives.md.

Devices of a group are 0 to k-1. Each is given a source and fills a value; in a round every move
reads what was there before the round. Sizes are those of pieces, in elements: an all-reduce fills
one piece of one, an all-gather k pieces of one, a reduce-scatter one piece of k, an all-to-all k
pieces of k, a broadcast and a permute one of one.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

from impl.errors import ArgumentError
from impl.multi import LATENCY, PER_BYTE


@dataclass(frozen=True)
class Move:
    """Elements `start` to `stop` of the value on `sender`, sent to `receiver`.

    They are put at `to`, or at the same place. With `combined` they are combined with what stands
    there, else they replace it. With `given` they are those of the source, not of the value.
    """

    sender: int
    receiver: int
    start: int
    stop: int
    combined: bool = False
    given: bool = False
    to: int = -1

    @property
    def target(self) -> int:
        """Where the first element is put."""
        return self.start if self.to < 0 else self.to

    @property
    def is_local(self) -> bool:
        """Whether nothing is sent."""
        return self.sender == self.receiver


Rounds = list[list[Move]]
Algorithm = Callable[[int, int], Rounds]


def parts(size: int, count: int) -> list[tuple[int, int]]:
    """A run of elements in `count` parts that differ by one element at most."""
    edges = [size * i // count for i in range(count + 1)]
    return list(zip(edges, edges[1:], strict=False))


def _pieces(size: int, count: int) -> list[tuple[int, int]]:
    """Pieces of `size` elements, one behind the other."""
    return [(i * size, (i + 1) * size) for i in range(count)]


def _own(size: int, count: int) -> list[Move]:
    """Each begins with what it is given."""
    return [Move(i, i, 0, size, given=True) for i in range(count)]


def _around(cut: Sequence[tuple[int, int]], first: int, combined: bool = False) -> Rounds:
    """Parts go round a ring: device i sends part i + first, then the one that came to it."""
    count = len(cut)
    return [[Move(i, (i + 1) % count, *cut[(i + first - turn) % count], combined)
             for i in range(count)] for turn in range(count - 1)]


def _tree(count: int) -> list[list[tuple[int, int]]]:
    """Pairs, then pairs of pairs: who hands on to whom, until all is on the first."""
    return [[(i + step, i) for i in range(0, count - step, 2 * step)]
            for step in (1 << bit for bit in range((count - 1).bit_length()))]


# ---------------------------------------------------------------- all-reduce

def _reduce_naive(size: int, count: int) -> Rounds:
    """All send all they have to the first, one after the other, and it sends the result to all."""
    found = [[Move(i, 0, 0, size, True)] for i in range(1, count)]
    return [_own(size, count), *found, [Move(0, i, 0, size) for i in range(1, count)]]


def _reduce_ring(size: int, count: int) -> Rounds:
    """Each sends a part to its neighbour, k-1 times combined and k-1 times as it is."""
    cut = parts(size, count)
    # r[impl collectives.bytes.theory]
    return [_own(size, count), *_around(cut, 0, True), *_around(cut, 1)]


def _reduce_tree(size: int, count: int) -> Rounds:
    """Pairs combine, then pairs of pairs; the result comes back the same way."""
    up = [[Move(a, b, 0, size, True) for a, b in pairs] for pairs in _tree(count)]
    down = [[Move(m.receiver, m.sender, 0, size) for m in moves] for moves in reversed(up)]
    return [_own(size, count), *up, *down]


def _reduce_direct(size: int, count: int) -> Rounds:
    """Everybody combines one part of all, and sends it to all: k rounds, as few bytes as ring."""
    cut = parts(size, count)
    reducing = [[Move((i + turn) % count, i, *cut[i], True, given=True) for i in range(count)]
                for turn in range(1, count)]
    begun = [Move(i, i, *cut[i], given=True) for i in range(count)]
    return [begun, *reducing,
            [Move(i, (i + turn) % count, *cut[i]) for turn in range(1, count)
             for i in range(count)]]


# ---------------------------------------------------------------- all-gather

def _placed(size: int, count: int) -> list[Move]:
    """Each puts its own piece in its place."""
    return [Move(i, i, 0, size, given=True, to=i * size) for i in range(count)]


def _gather_naive(size: int, count: int) -> Rounds:
    """All send their piece to the first, and it sends all pieces to all."""
    to_first = [Move(i, 0, *piece) for i, piece in enumerate(_pieces(size, count)) if i]
    return [_placed(size, count), to_first,
            [Move(0, i, 0, size * count) for i in range(1, count)]]


def _gather_ring(size: int, count: int) -> Rounds:
    """Pieces go round."""
    return [_placed(size, count), *_around(_pieces(size, count), 0)]


def _gather_tree(size: int, count: int) -> Rounds:
    """Runs of pieces double on their way to the first; all pieces come back the same way."""
    up, step = Rounds(), 1
    for pairs in _tree(count):
        up.append([Move(a, b, a * size, min(a + step, count) * size) for a, b in pairs])
        step *= 2
    down = [[Move(m.receiver, m.sender, 0, size * count) for m in moves] for moves in reversed(up)]
    return [_placed(size, count), *up, *down]


def _gather_direct(size: int, count: int) -> Rounds:
    """Everybody sends its piece to all."""
    return [_placed(size, count),
            [Move(i, (i + turn) % count, 0, size, given=True, to=i * size)
             for turn in range(1, count) for i in range(count)]]


# ---------------------------------------------------------------- reduce-scatter

def _taken(size: int, count: int) -> list[Move]:
    """Each ends with its own piece at the start."""
    return [Move(i, i, i * size, (i + 1) * size, to=0) for i in range(count)]


def _scatter_naive(size: int, count: int) -> Rounds:
    """All send all to the first, and it sends each its piece."""
    every, *others = _pieces(size, count), *range(1, count)
    return [_own(size * count, count), *[[Move(i, 0, 0, size * count, True)] for i in others],
            [Move(0, i, *every[i]) for i in others], _taken(size, count)]


def _scatter_ring(size: int, count: int) -> Rounds:
    """Pieces go round, and each adds its own: piece i comes to device i last."""
    return [_own(size * count, count), *_around(_pieces(size, count), -1, True),
            _taken(size, count)]


def _scatter_tree(size: int, count: int) -> Rounds:
    """Pairs combine, then pairs of pairs; runs of pieces halve on their way back."""
    up = [[Move(a, b, 0, size * count, True) for a, b in pairs] for pairs in _tree(count)]
    down, step = Rounds(), 1
    for pairs in _tree(count):
        down.insert(0, [Move(b, a, a * size, min(a + step, count) * size) for a, b in pairs])
        step *= 2
    return [_own(size * count, count), *up, *down, _taken(size, count)]


def _scatter_direct(size: int, count: int) -> Rounds:
    """Everybody sends each its piece, a piece a round."""
    cut = _pieces(size, count)
    return [[Move(i, i, *cut[i], given=True, to=0) for i in range(count)],
            *[[Move((i + turn) % count, i, *cut[i], True, given=True, to=0) for i in range(count)]
              for turn in range(1, count)]]


# ---------------------------------------------------------------- all-to-all, broadcast, permute

def _exchange_naive(size: int, count: int) -> Rounds:
    """Pairs of devices in turn, one at a time."""
    return [_kept(size, count), *[[_crossing(i, j, size)] for i in range(count)
                                  for j in range(count) if i != j]]


def _exchange_ring(size: int, count: int) -> Rounds:
    """In round t everybody sends to the one that is t places on."""
    return [_kept(size, count), *[[_crossing(i, (i + turn) % count, size) for i in range(count)]
                                  for turn in range(1, count)]]


def _exchange_direct(size: int, count: int) -> Rounds:
    """Everybody sends to all, in one round."""
    return [_kept(size, count), [_crossing(i, (i + turn) % count, size)
                                 for turn in range(1, count) for i in range(count)]]


def _kept(size: int, count: int) -> list[Move]:
    return [_crossing(i, i, size) for i in range(count)]


def _crossing(sender: int, receiver: int, size: int) -> Move:
    """Piece `receiver` of one becomes piece `sender` of the other."""
    return Move(sender, receiver, receiver * size, (receiver + 1) * size, given=True,
                to=sender * size)


def _begun(size: int) -> list[Move]:
    """The first has the value."""
    return [Move(0, 0, 0, size, given=True)]


def _spread_naive(size: int, count: int) -> Rounds:
    """The first sends all to all."""
    return [_begun(size), [Move(0, i, 0, size) for i in range(1, count)]]


def _spread_tree(size: int, count: int) -> Rounds:
    """Who has it hands it on: in each round twice as many."""
    return [_begun(size), *[[Move(b, a, 0, size) for a, b in pairs]
                            for pairs in reversed(_tree(count))]]


def _spread_ring(size: int, count: int) -> Rounds:
    """The first gives each a part, and the parts go round."""
    cut = parts(size, count)
    return [_begun(size), [Move(0, i, *cut[i]) for i in range(1, count)], *_around(cut, 0)]


def _spread_direct(size: int, count: int) -> Rounds:
    """The first gives each a part, and everybody sends its part to all."""
    cut = parts(size, count)
    return [_begun(size), [Move(0, i, *cut[i]) for i in range(1, count)],
            [Move(i, (i + turn) % count, *cut[i]) for turn in range(1, count)
             for i in range(count)]]


def permuted(size: int, count: int, shift: int) -> Rounds:
    """Everybody sends what it has to the one that is `shift` places on."""
    return [[Move(i, (i + shift) % count, 0, size, given=True) for i in range(count)]]


#: By the kind of a transfer, the algorithms by name: from the size of a piece, and the number of
#: devices, to rounds.
ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all-reduce": {"naive": _reduce_naive, "ring": _reduce_ring, "tree": _reduce_tree,
                   "all-to-all": _reduce_direct},
    "all-gather": {"naive": _gather_naive, "ring": _gather_ring, "tree": _gather_tree,
                   "all-to-all": _gather_direct},
    "reduce-scatter": {"naive": _scatter_naive, "ring": _scatter_ring, "tree": _scatter_tree,
                       "all-to-all": _scatter_direct},
    "all-to-all": {"naive": _exchange_naive, "ring": _exchange_ring,
                   "all-to-all": _exchange_direct},
    "broadcast": {"naive": _spread_naive, "ring": _spread_ring, "tree": _spread_tree,
                  "all-to-all": _spread_direct},
}


def predicted(found: Rounds, itemsize: int, latency: float = LATENCY,
              per_byte: float = PER_BYTE) -> float:
    """Seconds that the rounds take, each as long as its busiest device.

    A device sends and receives at the same time, and one move after the other. What is local is
    not counted.
    """
    total = 0.0
    for moves in found:
        busy: dict[tuple[int, bool], float] = {}
        for move in moves:
            if not move.is_local:
                cost = latency + per_byte * (move.stop - move.start) * itemsize
                for side in ((move.sender, True), (move.receiver, False)):
                    busy[side] = busy.get(side, 0.0) + cost
        total += max(busy.values(), default=0.0)
    return total


@lru_cache(1024)
def quickest(kind: str, size: int, count: int, itemsize: int) -> str:
    """The algorithm of a collective that takes least time; `size` are the elements of a piece."""
    # r[impl collectives.algorithm.named+2]
    known = ALGORITHMS[kind]
    return min(known, key=lambda name: predicted(known[name](size, count), itemsize))


def rounds(kind: str, size: int, count: int, itemsize: int, name: str = "") -> Rounds:
    """The collective by the algorithm that is asked for by name, or takes least time.

    `size` are the elements of a piece.

    Raises:
        ArgumentError: there is no such algorithm for it.
    """
    known = ALGORITHMS[kind]
    if name and name not in known:
        raise ArgumentError(kind, f"{name!r} is no algorithm", f"use {', '.join(known)}")
    return known[name or quickest(kind, size, count, itemsize)](size, count)


def side_by_side(given: Sequence[tuple[int, Rounds]]) -> Rounds:
    """The rounds of several collectives at once, each with its number of elements. Those of one
    stand behind those of the one before.
    """
    found, begin = list[Rounds](), 0
    for size, its in given:
        found.append([[_shifted(move, begin) for move in moves] for moves in its])
        begin += size
    return [[move for moves in each for move in moves]
            for each in zip_longest(*found, fillvalue=[])]


def _shifted(move: Move, by: int) -> Move:
    """A move of elements that stand `by` places further."""
    return replace(move, start=move.start + by, stop=move.stop + by,
                   to=move.to if move.to < 0 else move.to + by)


def moves_told(moves: Sequence[Move], groups: Sequence[Sequence[int]],
               itemsize: int) -> dict[str, list[list[int | str]]]:
    """A round as plain data: what each device of each group sends and receives, in bytes."""
    sends, receives = list[list[int | str]](), list[list[int | str]]()
    for group in groups:
        for move in moves:
            length = (move.stop - move.start) * itemsize
            sender, receiver, to = group[move.sender], group[move.receiver], move.target * itemsize
            if length:
                sends.append([sender, receiver, move.start * itemsize, move.stop * itemsize,
                              "source" if move.given else "value"])
                receives.append([receiver, sender, to, to + length,
                                 "combine" if move.combined else "put"])
    return {"sends": sends, "receives": receives}


def sent(found: Rounds, count: int) -> Sequence[int]:
    """How many elements each device of a group sends."""
    total = [0] * count
    for moves in found:
        for move in moves:
            total[move.sender] += 0 if move.is_local else move.stop - move.start
    return total
