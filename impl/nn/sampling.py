"""In which order examples are taken, with the names of `torch.utils.data`."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from impl.errors import ArgumentError
from impl.tensor import Tensor

__all__ = ["BatchSampler", "DistributedSampler", "RandomSampler", "Sampler", "SequentialSampler",
           "SubsetRandomSampler", "WeightedRandomSampler"]


def _count(kind: str, name: str, value: Any) -> int:
    """A number of examples.

    Raises:
        ArgumentError: it is no whole number from 1 on.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        # r[impl errors.argument.refused]
        raise ArgumentError(kind, f"{name} is {value!r:.60}", "give a whole number from 1 on")
    return value


class Sampler:
    """Numbers of examples: a subclass has `__iter__`, and `__len__` where it knows."""

    def __init__(self, data_source: Any = None) -> None:
        """`data_source` is PyTorch's, and is not read."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """All examples, in their order."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All examples by chance, or `num_samples` of them; with `replacement` one may come twice."""

    def __init__(self, data_source: Any, replacement: bool = False,
                 num_samples: int | None = None, generator: Any = None) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.count = None if num_samples is None else \
            _count("RandomSampler", "num_samples", num_samples)

    @property
    def num_samples(self) -> int:
        """How many are drawn."""
        return len(self.data_source) if self.count is None else self.count

    def __iter__(self) -> Iterator[int]:
        count, total, drawn = len(self.data_source), self.num_samples, list[int]()
        with self.generator or nullcontext():
            if self.replacement:
                drawn = Tensor.randint(total, low=0, high=count).tolist()
            while len(drawn) < total:
                drawn += Tensor.randperm(count).tolist()
        return iter(drawn[:total])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Certain examples, by chance."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        with self.generator or nullcontext():
            order = Tensor.randperm(len(self.indices)).tolist()
        return iter([self.indices[place] for place in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Examples by chance, each as often as its weight says; the weights need not add up to 1."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True,
                 generator: Any = None) -> None:
        self.weights = weights if isinstance(weights, Tensor) else Tensor(
            [float(one) for one in weights], dtype="float32")
        if len(self.weights.shape) != 1:  # r[impl errors.argument.refused]
            raise ArgumentError("WeightedRandomSampler", f"weights of shape {self.weights.shape}",
                                "give one weight for each example")
        self.num_samples = _count("WeightedRandomSampler", "num_samples", num_samples)
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        with self.generator or nullcontext():
            drawn = self.weights.multinomial(self.num_samples, self.replacement)
            return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """The numbers of another sampler, `batch_size` of them at a time."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        self.batch_size = _count("BatchSampler", "batch_size", batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        batch = list[int]()
        for number in self.sampler:
            batch.append(number)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count, size = len(self.sampler), self.batch_size
        return count // size if self.drop_last else -(-count // size)


class DistributedSampler(Sampler):
    """The share of one of `num_replicas` processes, the one with number `rank`.

    Each has as many: some examples come twice, or with `drop_last` some are left out. The order is
    that of `seed` and of the epoch that `set_epoch` names, and the same in all processes.
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None,
                 shuffle: bool = True, seed: int = 0, drop_last: bool = False) -> None:
        if num_replicas is None or rank is None:
            from impl import distributed
            own, count = distributed.rank(), distributed.ranks()
            num_replicas = count if num_replicas is None else num_replicas
            rank = own if rank is None else rank
        if not 0 <= rank < num_replicas:  # r[impl errors.argument.refused]
            raise ArgumentError("DistributedSampler", f"rank {rank} of {num_replicas} processes",
                                f"give 0 to {num_replicas - 1}")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else -(-count // num_replicas)

    def __iter__(self) -> Iterator[int]:
        count, total = len(self.dataset), self.num_samples * self.num_replicas
        order = list(range(count))
        if self.shuffle:
            before = Tensor.get_rng_state()
            Tensor.manual_seed(self.seed + self.epoch)
            order = Tensor.randperm(count).tolist()
            Tensor.set_rng_state(before)
        while len(order) < total:
            order += order[:total - len(order)]
        return iter(order[self.rank:total:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Another order from the next time on."""
        self.epoch = epoch
