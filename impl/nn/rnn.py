"""Sequences of different lengths as one tensor, with the names of `torch.nn.utils.rnn`."""
from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from impl.dtypes import dtypes
from impl.errors import ArgumentError, ShapeError
from impl.nn.names import publish
from impl.tensor import Tensor

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
           "pad_sequence", "unpack_sequence", "unpad_sequence"]
publish("utils.rnn", __all__)


def pad_sequence(sequences: Iterable[Tensor], batch_first: bool = False,
                 padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Sequences (length, *rest) one beside the other: (longest, count, *rest).

    With `batch_first` it is (count, longest, *rest). What is missing is `padding_value`, behind
    each sequence or, with `padding_side="left"`, before it.

    Raises:
        ArgumentError: there is no sequence, or `padding_side` is neither "left" nor "right".
        ShapeError: the sequences differ in more than their lengths.
    """
    given = list(sequences)
    if not given:
        raise ArgumentError("pad_sequence", "there is no sequence", "give one tensor at least")
    if padding_side not in ("left", "right"):
        raise ArgumentError("pad_sequence", f"padding_side is {padding_side!r}",
                            'use "left" or "right"')
    if any(not one.shape or one.shape[1:] != given[0].shape[1:] for one in given):
        shapes = ", ".join(str(one.shape) for one in given)
        raise ShapeError("pad_sequence", f"the shapes are {shapes}",
                         "give sequences that differ in their first axis only")
    longest = max(one.shape[0] for one in given)
    rest = [(0, 0)] * (given[0].ndim - 1)
    rows = [one.pad([(longest - one.shape[0], 0) if padding_side == "left" else
                     (0, longest - one.shape[0]), *rest], value=padding_value) for one in given]
    return rows[0].stack(*rows[1:], dim=0 if batch_first else 1)


def unpad_sequence(padded: Tensor, lengths: Tensor | Iterable[int],
                   batch_first: bool = False) -> list[Tensor]:
    """The sequences that `pad_sequence` has put side by side, each with its length.

    Raises:
        ShapeError: there are not as many lengths as sequences.
    """
    sizes = _numbers(lengths)
    rows = padded if batch_first else padded.transpose(0, 1)
    if len(sizes) != rows.shape[0]:
        raise ShapeError("unpad_sequence", f"there are {len(sizes)} lengths for "
                         f"{rows.shape[0]} sequences", "give one length for each sequence")
    return [rows[number, :size] for number, size in enumerate(sizes)]


class PackedSequence(NamedTuple):
    """Sequences of different lengths without what fills them up: place after place.

    `data` (all elements, *rest) has the first elements of all sequences, the longest first, then
    the second ones, and so on; `batch_sizes` says how many there are of each. Made by
    `pack_padded_sequence`; `nn.RNN`, `nn.GRU` and `nn.LSTM` take it.
    """

    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None

    def to(self, *given: Any, **named: Any) -> PackedSequence:
        """The elements elsewhere, or in another dtype."""
        return self._replace(data=self.data.to(*given, **named))

    def through(self, layer: Any, states: Any) -> tuple[PackedSequence, Any]:
        """What a recurrent layer makes of it: the outputs, packed as this is, and last states.

        It is no method of `RNN`, because a capture follows what the text of a layer names: the
        lists of lengths, which only a packed input needs, would be part of every captured layer.
        """
        x, lengths = pad_packed_sequence(self)
        places = Tensor.arange(x.shape[0], device=x.device).unsqueeze(1)
        there = (places < lengths.to(x.device)).unsqueeze(2)
        x, last = layer._all(x, layer._first(x, states), there)
        again = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return again, last[0] if layer._states == 1 else last


def _numbers(lengths: Any) -> list[int]:
    return [int(one) for one in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Padded sequences (length, batch, *rest) without their padding.

    Raises:
        ShapeError: a length is not possible, or there is not one for each sequence.
        ArgumentError: they are to be sorted, the longest first, and are not.
    """
    rows = input if batch_first else input.transpose(0, 1)
    sizes = _numbers(lengths)
    if len(sizes) != rows.shape[0] or any(not 0 < one <= rows.shape[1] for one in sizes):
        raise ShapeError("pack_padded_sequence", f"lengths {sizes} of sequences in a tensor of "
                         f"shape {input.shape}", "give a length from 1 on for each sequence")
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    if enforce_sorted and order != list(range(len(sizes))):
        raise ArgumentError("pack_padded_sequence", f"lengths {sizes} do not fall",
                            "use enforce_sorted=False")
    counts = [sum(one > place for one in sizes) for place in range(max(sizes))]
    flat = [order[number] * rows.shape[1] + place
            for place, count in enumerate(counts) for number in range(count)]
    data = rows.flatten(0, 1)[Tensor(flat, rows.device, dtypes.int32)]
    back = [place for _, place in sorted(zip(order, range(len(order)), strict=True))]
    return PackedSequence(data, Tensor(counts, dtype=dtypes.int64),
                          *((None, None) if enforce_sorted else
                            (Tensor(order, dtype=dtypes.int64), Tensor(back, dtype=dtypes.int64))))


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False,
                        padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """The sequences (length, batch, *rest) filled up with a number, and their lengths."""
    counts = _numbers(sequence.batch_sizes)
    longest, batch = len(counts), counts[0]
    wanted = longest if total_length is None else total_length
    if wanted < longest:
        raise ShapeError("pad_packed_sequence", f"total_length {wanted}, the longest sequence "
                         f"has {longest}", "give that or more")
    starts = [0, *accumulate(counts)]
    order = range(batch) if sequence.unsorted_indices is None \
        else _numbers(sequence.unsorted_indices)
    table = [[starts[place] + row if place < longest and row < counts[place] else -1
              for place in range(wanted)] for row in order]
    lengths = [sum(row < count for count in counts) for row in order]
    places = Tensor(table, sequence.data.device, dtypes.int32)
    places = places if batch_first else places.transpose(0, 1)
    data = sequence.data
    known = (places >= 0).reshape(*places.shape, *(1,) * (data.ndim - 1))
    return known.where(data[places.maximum(0)], padding_value), Tensor(lengths, dtype=dtypes.int64)


def pack_sequence(sequences: Iterable[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of different lengths, packed."""
    given = list(sequences)
    return pack_padded_sequence(pad_sequence(given), [one.shape[0] for one in given],
                                enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that `pack_sequence` has packed."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))
