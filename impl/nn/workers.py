"""Processes that make batches ahead, while the one that asks for them computes.

Each has its own queue of numbers, and one queue brings all batches back. What is asked for is
numbered, so batches come in the order in which they were asked for, whoever was first.
"""
from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue
import random
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from impl.errors import ArgumentError, DistributedError
from impl.host import np
from impl.tensor import Tensor

__all__ = ["Crew", "WorkerInfo", "get_worker_info"]

#: So often it is looked whether the processes are alive, in seconds.
_LOOK = 1.0
#: So long a process may take to end, in seconds.
_END = 2.0


@dataclass(frozen=True)
class WorkerInfo:
    """Which process this is, of how many, with which seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_own: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which of the processes that make batches this is; None in the one that asks for them."""
    return _own


class Crew:
    """Some processes that make batches with `maker`, see `DataLoader`."""

    def __init__(self, maker: Any, workers: int, seed: int, first: Callable[[int], Any] | None,
                 context: Any, timeout: float) -> None:
        made: Any = context if hasattr(context, "Process") else \
            multiprocessing.get_context(context)
        self.streams, self.timeout, self.epoch = maker.streams, timeout, 0
        self.results = made.Queue()
        self.asked = [made.SimpleQueue() for _ in range(workers)]
        self.processes = [made.Process(target=_work, daemon=True, args=(
            maker, number, workers, seed, first, asked, self.results))
            for number, asked in enumerate(self.asked)]
        try:
            for process in self.processes:
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.end()  # r[impl errors.argument.refused]
            raise ArgumentError("DataLoader", f"processes cannot be given the dataset ({error})",
                                "define its class and collate_fn at the top of a module, or use "
                                'multiprocessing_context="fork"') from None

    def batches(self, numbers: Iterator[list[int]], ahead: int, in_order: bool) -> Iterator[Any]:
        """The batches of these examples; of a dataset that is only iterated all that there are."""
        self.epoch += 1
        busy = deque(range(len(self.processes)))  # who is asked next; not who has no more
        given = [self._ask(place, numbers, busy) for place in range(ahead * len(busy))].count(True)
        waiting: dict[int, _Answer] = {}
        for taken in count():
            if taken == given:
                return
            answer = self._next(taken, waiting, in_order)
            if answer.kind == "error":
                raise pickle.loads(answer.content)
            if answer.kind == "end":
                if answer.worker in busy:
                    busy.remove(answer.worker)
                continue
            given += self._ask(given, numbers, busy)
            yield pickle.loads(answer.content)

    def _ask(self, place: int, numbers: Iterator[list[int]], busy: deque[int]) -> bool:
        """Let the process whose turn it is make one more batch, if there is one to be made."""
        batch = None if self.streams else next(numbers, None)
        if not busy or batch is None and not self.streams:
            return False
        self.asked[busy[0]].put((self.epoch, place, batch))
        busy.rotate(-1)
        return True

    def _next(self, place: int, waiting: dict[int, _Answer], in_order: bool) -> _Answer:
        """The answer of this number, or whichever comes first.

        Raises:
            DistributedError: a process has ended, or nothing has come for `timeout` seconds.
        """
        began = time.monotonic()
        while place not in waiting:
            try:
                answer: _Answer = self.results.get(timeout=min(_LOOK, self.timeout or _LOOK))
            except queue.Empty:
                self._look(time.monotonic() - began)
                continue
            if not in_order:
                return answer
            waiting[answer.place] = answer
        return waiting.pop(place)

    def _look(self, waited: float) -> None:
        for number, process in enumerate(self.processes):
            if process.exitcode is not None:
                raise DistributedError(
                    "DataLoader", f"process {number} ended with status {process.exitcode}",
                    "look at what it printed; -9 is often a lack of memory: use fewer workers")
        if self.timeout and waited >= self.timeout:
            raise DistributedError("DataLoader", f"nothing came for {self.timeout:g} s",
                                   "give a longer timeout, or look at what the dataset waits for")

    def end(self) -> None:
        """End the processes, also those that are in the middle of something."""
        for asked, process in zip(self.asked, self.processes, strict=True):
            if process.pid is not None:
                asked.put(None)
        self.results.cancel_join_thread()
        until = time.monotonic() + _END
        for process in self.processes:
            if process.pid is None:
                continue
            while process.is_alive() and time.monotonic() < until:  # they may wait to be read
                with contextlib.suppress(queue.Empty):
                    self.results.get(timeout=0.02)
            if process.is_alive():
                process.terminate()
            process.join()


class _Answer(NamedTuple):
    """A batch, an error or an end, in the bytes of a pickle, and who made it."""

    place: int
    worker: int
    kind: str
    content: bytes


def _work(maker: Any, number: int, workers: int, seed: int, first: Callable[[int], Any] | None,
          asked: Any, results: Any) -> None:
    """What a process does: it makes batches until it is told to end."""
    global _own
    _own = WorkerInfo(number, workers, seed + number, maker.dataset)
    random.seed(seed + number)
    np.random.seed((seed + number) % 2 ** 32)
    Tensor.manual_seed(seed + number)
    stream, since = iter(()), 0
    failed: BaseException | None = None
    try:
        if first is not None:
            first(number)
    except Exception as error:  # noqa: BLE001  (whoever asks for batches is told)
        failed = error
    while (task := asked.get()) is not None:
        epoch, place, numbers = task
        try:
            if failed is not None:
                raise failed
            if maker.streams:
                stream, since = stream if since == epoch else maker.stream(), epoch
                batch = next(stream, _END_OF_STREAM)
                kind = "end" if batch is _END_OF_STREAM else "batch"
            else:
                kind, batch = "batch", maker(numbers)
            content = pickle.dumps(None if kind == "end" else batch, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  (whoever asks for batches is told)
            kind, content = "error", _told(error, number)
        results.put(_Answer(place, number, kind, content))


_END_OF_STREAM = object()


def _told(error: BaseException, number: int) -> bytes:
    """An exception with where it happened, also if it cannot be sent itself."""
    lines = "".join(traceback.format_exception(error))
    error.add_note(f"in process {number} of a DataLoader:\n{lines}")
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # noqa: BLE001  (an exception may forbid anything)
        content = pickle.dumps(RuntimeError(f"in process {number} of a DataLoader:\n{lines}"))
    return content
