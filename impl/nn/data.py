"""Batches of examples, with the names of `torch.utils.data`."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from impl.errors import ArgumentError
from impl.host import np
from impl.nn import sampling, workers
from impl.nn.names import publish
from impl.nn.sampling import *  # noqa: F403
from impl.nn.workers import get_worker_info
from impl.tensor import Tensor

__all__ = ["ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset",
           "StackDataset", "Subset", "TensorDataset", "get_worker_info", "random_split",
           *sampling.__all__]
publish("data", __all__)


class Dataset:
    """Examples by number: a subclass has `__getitem__` and `__len__`."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Examples one after the other: a subclass has `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __add__(self, other: Any) -> ChainDataset:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """The examples of several datasets that are only iterated, one after the other."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for one in self.datasets:
            yield from one

    def __len__(self) -> int:
        return sum(len(one) for one in self.datasets)


class ConcatDataset(Dataset):
    """The examples of several datasets, numbered on."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = list(datasets)
        if not self.datasets:  # r[impl errors.argument.refused]
            raise ArgumentError("ConcatDataset", "there is no dataset", "give one at least")
        self.cumulative_sizes = np.cumsum([len(one) for one in self.datasets]).tolist()

    def __len__(self) -> int:
        return int(self.cumulative_sizes[-1])

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):  # r[impl errors.argument.refused]
            raise IndexError(f"ConcatDataset: example {index} of {len(self)}")
        number = int(np.searchsorted(self.cumulative_sizes, place, "right"))
        before = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][place - before]


class StackDataset(Dataset):
    """Datasets of one length side by side: example i is a tuple, or a dict, of theirs."""

    def __init__(self, *datasets: Any, **named: Any) -> None:
        if bool(datasets) == bool(named):  # r[impl errors.argument.refused]
            raise ArgumentError("StackDataset", "datasets with names and without, or none",
                                "give all of them one way")
        self.datasets: Any = named or datasets
        lengths = {len(one) for one in (named.values() if named else datasets)}
        if len(lengths) != 1:  # r[impl errors.argument.refused]
            raise ArgumentError("StackDataset", f"lengths {sorted(lengths)} differ",
                                "give datasets of one length")
        self.length = lengths.pop()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: one[index] for name, one in self.datasets.items()}
        return tuple(one[index] for one in self.datasets)


class TensorDataset(Dataset):
    """Tensors of one length: example i is the tuple of their rows i."""

    def __init__(self, *tensors: Tensor) -> None:
        if len({len(one) for one in tensors}) != 1:  # r[impl errors.argument.refused]
            raise ArgumentError("TensorDataset", f"lengths {[len(one) for one in tensors]} differ",
                                "give tensors with as many rows each")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(one[index] for one in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """Some examples of another dataset, by their numbers there."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Parts with these lengths, or shares of the whole, by chance; what is left goes to the first.

    Raises:
        ArgumentError: the lengths are not those of the whole.
    """
    total = len(dataset)
    counts = [int(total * one) for one in lengths] if sum(lengths) <= 1 else list(map(int, lengths))
    if sum(lengths) <= 1:
        for place in range(total - sum(counts)):
            counts[place % len(counts)] += 1
    if sum(counts) != total:  # r[impl errors.argument.refused]
        raise ArgumentError("random_split", f"lengths {counts} are not {total} together",
                            "give lengths that are, or shares that are 1 together")
    with generator or nullcontext():
        order = Tensor.randperm(total).tolist()
    stops = np.cumsum(counts)
    return [Subset(dataset, order[stop - count:stop])
            for stop, count in zip(stops, counts, strict=True)]


class DataLoader:
    """Batches of a dataset, in its order or by chance (`shuffle`).

    With `num_workers` so many processes make them ahead, each up to `prefetch_factor` batches.
    They come in the same order, and are the same, whoever makes them. Of a dataset that is only
    iterated each process has a copy, and gives all that it yields: `get_worker_info` says which
    part is its own. Rows of a `TensorDataset` are gathered by one operation a batch. The order
    follows `Tensor.manual_seed`.
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool = False,
                 sampler: Any = None, batch_sampler: Any = None, num_workers: int = 0,
                 collate_fn: Callable[[list[Any]], Any] | None = None, pin_memory: bool = False,
                 drop_last: bool = False, generator: Any = None,
                 persistent_workers: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], Any] | None = None,
                 prefetch_factor: int | None = None,
                 multiprocessing_context: Any = None, pin_memory_device: str = "",
                 in_order: bool = True) -> None:
        if batch_sampler is None and batch_size is not None and batch_size < 1:
            # r[impl errors.argument.refused]
            raise ArgumentError("DataLoader", f"batch_size is {batch_size}", "give 1 or more")
        if shuffle and sampler is not None:  # r[impl errors.argument.refused]
            raise ArgumentError("DataLoader", "shuffle and a sampler: each is an order",
                                "leave out shuffle=True")
        if num_workers < 0 or timeout < 0 or prefetch_factor == 0:
            # r[impl errors.argument.refused]
            raise ArgumentError("DataLoader", f"num_workers={num_workers}, timeout={timeout}, "
                                f"prefetch_factor={prefetch_factor}",
                                "give no workers or some, 0 seconds or more, and a batch at least")
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.collate_fn, self.drop_last, self.generator = collate_fn, drop_last, generator
        self.num_workers, self.persistent_workers = num_workers, persistent_workers
        self.prefetch_factor, self.in_order = prefetch_factor or 2, in_order
        self.timeout, self.worker_init_fn = timeout, worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self._crew: workers.Crew | None = None

    def __len__(self) -> int:
        """The number of batches."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        count, size = len(self.sampler or self.dataset), self.batch_size or 1
        return count // size if self.drop_last else -(-count // size)

    def __iter__(self) -> Iterator[Any]:
        maker = BatchMaker(self.dataset, self.batch_size, self.drop_last, self.collate_fn)
        numbers = iter(()) if maker.streams else self._numbers()
        if self.num_workers:
            return self._made_ahead(maker, numbers)
        return maker.stream() if maker.streams else map(maker, numbers)

    def _made_ahead(self, maker: BatchMaker, numbers: Iterator[list[int]]) -> Iterator[Any]:
        """What processes make; they stay for the next time if they are to."""
        crew, self._crew = self._crew, None  # whoever iterates at the same time has others
        if crew is None:
            with self.generator or nullcontext():
                seed = int(Tensor.randint(1, low=0, high=2 ** 31 - 1).item())
            crew = workers.Crew(maker, self.num_workers, seed, self.worker_init_fn,
                                self.multiprocessing_context, self.timeout)
        done = False
        try:
            yield from crew.batches(numbers, self.prefetch_factor, self.in_order)
            done = True
        finally:
            if done and self.persistent_workers and self._crew is None:
                self._crew = crew
            else:
                crew.end()

    def _numbers(self) -> Iterator[list[int]]:
        """The numbers of the examples of each batch."""
        if self.batch_sampler is not None:
            return (list(batch) for batch in self.batch_sampler)
        count = len(self.dataset)
        order = list(self.sampler) if self.sampler is not None else \
            self._shuffled(count) if self.shuffle else range(count)
        size = self.batch_size or 1
        batches = (list(order[start:start + size]) for start in range(0, len(order), size))
        return (batch for batch in batches if len(batch) == size or not self.drop_last)

    def _shuffled(self, count: int) -> list[int]:
        with self.generator or nullcontext():
            order: list[int] = Tensor.randperm(count).tolist()
            return order


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of a dataset, in this process or in another one."""

    dataset: Any
    batch_size: int | None
    drop_last: bool
    collate_fn: Callable[[list[Any]], Any] | None

    @property
    def streams(self) -> bool:
        """Whether the dataset is only iterated."""
        return isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__getitem__")

    def __call__(self, numbers: list[int]) -> Any:
        """The batch of the examples with these numbers."""
        if self.batch_size is None:
            return self.dataset[numbers[0]]
        if self.collate_fn is None and type(self.dataset) is TensorDataset:
            return list(self.dataset[_rows(numbers)])
        several = getattr(self.dataset, "__getitems__", None)
        return self._joined(several(numbers) if several is not None else
                            [self.dataset[number] for number in numbers])

    def _joined(self, examples: list[Any]) -> Any:
        return (self.collate_fn or collate)(examples)

    def stream(self) -> Iterator[Any]:
        """Batches of a dataset that is only iterated; its examples, if there is no size."""
        if self.batch_size is None:
            yield from self.dataset
            return
        batch = []
        for example in self.dataset:
            batch.append(example)
            if len(batch) == self.batch_size:
                yield self._joined(batch)
                batch = []
        if batch and not self.drop_last:
            yield self._joined(batch)


def _rows(numbers: list[int]) -> Any:
    """A slice where the numbers are one: nothing has to be gathered."""
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return slice(numbers[0], numbers[0] + len(numbers))
    return Tensor(numbers)


def collate(batch: list[Any]) -> Any:
    """Examples joined: numbers and tensors along a new first axis, tuples and dicts part by part.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return Tensor.stack(batch)
    if isinstance(first, Mapping):
        return {key: collate([one[key] for one in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(list(parts)) for parts in zip(*batch, strict=True)))
    if isinstance(first, (tuple, list)):
        return [collate(list(parts)) for parts in zip(*batch, strict=True)]
    if isinstance(first, (str, bytes)):
        return batch
    return Tensor(np.stack(batch)) if isinstance(first, np.ndarray) else Tensor(batch)


default_collate = collate
