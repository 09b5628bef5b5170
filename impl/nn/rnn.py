"""Sequences of different lengths as one tensor, with the names of `torch.nn.utils.rnn`."""
from __future__ import annotations

from collections.abc import Iterable

from impl.errors import ArgumentError, ShapeError
from impl.nn.names import publish
from impl.tensor import Tensor

__all__ = ["pad_sequence", "unpad_sequence"]
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
    sizes = [int(one) for one in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    rows = padded if batch_first else padded.transpose(0, 1)
    if len(sizes) != rows.shape[0]:
        raise ShapeError("unpad_sequence", f"there are {len(sizes)} lengths for "
                         f"{rows.shape[0]} sequences", "give one length for each sequence")
    return [rows[number, :size] for number, size in enumerate(sizes)]
