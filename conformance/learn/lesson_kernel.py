"""The lesson on kernels: a chooser of register tiles, judged by what a tile loads and multiplies.

Nothing is timed. A tile of so many rows of so many vectors is counted, for one element of the sum
and all results, and compared with the best of all tiles that fit the registers.

    choosing.product.tile: 1 row of 1 vector: 6 vectors multiplied and 12 loaded, 18 in all; ...

        16 registers, vectors of 4; 3 x 8 results

             B
          A  +
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import (
    Counterexample,
    Lesson,
    first_of_each,
    is_whole,
    published,
    raised,
)

ITEMSIZE = 4  # bytes of an element: float32
#: A tile may take so many halves of what the best one takes.
HALVES = 3


class Product(NamedTuple):
    """A product of matrices, and what the processor has for it."""

    registers: int
    elements: int  # of a vector
    rows: int
    columns: int

    def __str__(self) -> str:
        return (f"{self.registers} registers, vectors of {self.elements}; {self.rows} x "
                f"{self.columns} results")


class Work(NamedTuple):
    """Vectors that are multiplied and loaded for one element of the sum, for all results."""

    multiplied: int
    loaded: int

    @property
    def total(self) -> int:
        return self.multiplied + self.loaded


def products() -> Iterator[Product]:
    """From the smallest up."""
    processors = tuple(itertools.product((8, 16, 32), (4, 8, 16)))
    shapes = sorted(itertools.product((1, 2, 3, 5, 8, 13, 64, 1021), (1, 4, 8, 20, 48, 100, 512)),
                    key=lambda shape: (shape[0] * shape[1], shape))
    return (Product(*processor, *shape) for shape in shapes for processor in processors)


def registers(rows: int, vectors: int) -> int:
    """Of a tile: its sums, a row of the second operand, one number of the first."""
    return rows * vectors + vectors + 1


def work(product: Product, rows: int, vectors: int, width: int) -> Work:
    """What a product takes with a tile: its last rows have a smaller one."""
    panels = -(-product.columns // (vectors * width))
    tiles = -(-product.rows // rows)
    return Work(panels * product.rows * vectors, panels * (product.rows + tiles * vectors))


@cache
def best(product: Product) -> tuple[Work, int, int]:
    """The least that a tile takes which fits the registers, with its rows and vectors."""
    fitting = [(rows, vectors) for rows in range(1, min(product.rows, product.registers) + 1)
               for vectors in range(1, product.registers)
               if registers(rows, vectors) <= product.registers]
    return min(((work(product, *tile, product.elements), *tile) for tile in fitting),
               key=lambda each: (each[0].total, each[1:]))


def kernel(module: ModuleType) -> Iterator[Counterexample]:
    """The first product that breaks each rule of the lesson on kernels."""
    return first_of_each(filter(None, [_judged(module, product)]) for product in products())


def _judged(module: ModuleType, product: Product) -> Counterexample | None:
    limits = module.DeviceLimits(vector_bytes=product.elements * ITEMSIZE,
                                 vector_registers=product.registers)
    try:
        tile = module.choose_tile(limits, ITEMSIZE, product.rows, product.columns)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, str(product))
    if wrong := _unlike(tile) or _unusable(tile, product):
        return Counterexample("raised", wrong, str(product))
    needed = registers(tile.rows, tile.vectors)
    if needed > product.registers:
        return Counterexample("choosing.product.tile", f"{named(tile.rows, tile.vectors)} "
                              f"need {needed} registers, of {product.registers}",
                              picture(product, tile))
    least, rows, vectors = best(product)
    taken = work(product, tile.rows, tile.vectors, tile.width)
    if 2 * taken.total > HALVES * least.total:
        return Counterexample(
            "choosing.product.tile", f"{named(tile.rows, tile.vectors)}: {said(taken)}; "
            f"{named(rows, vectors)} would do with {least.total}", picture(product, tile))
    return None


def _unlike(tile: Any) -> str:
    """What keeps an answer from being a tile at all, or ""."""
    names = ("rows", "vectors", "width")
    if not all(hasattr(tile, name) for name in names):
        return (f"choose_tile answers a {type(tile).__name__}, and not a tile: "
                "RegisterTile(rows, vectors, width)")
    wrong = [name for name in names if not is_whole(getattr(tile, name))
             or getattr(tile, name) < 1]
    return f"{wrong[0]} of your tile is no whole number above zero" if wrong else ""


def _unusable(tile: Any, product: Product) -> str:
    """What keeps a tile from being cut off the loops of a product, or ""."""
    if tile.rows > product.rows:
        return f"your tile has {tile.rows} rows, and the product {product.rows}"
    if not 2 <= tile.width <= product.elements or tile.width & (tile.width - 1):
        return (f"the vectors of your tile have {tile.width} elements, and not 2, 4 or so on up "
                f"to {product.elements}")
    return ""


def named(rows: int, vectors: int) -> str:
    return (f"{rows} row{'s' if rows > 1 else ''} of {vectors} "
            f"vector{'s' if vectors > 1 else ''}")


def said(taken: Work) -> str:
    return (f"{taken.multiplied} vectors multiplied and {taken.loaded} loaded, "
            f"{taken.total} in all")


def picture(product: Product, tile: Any) -> str:
    """A line for each row of the tile: a number of A, and its sums; above them a row of B."""
    shown = min(tile.vectors, 12)
    more = " .." if shown < tile.vectors else ""
    lines = [str(product), "", "     " + " ".join(["B"] * shown) + more]
    lines += ["  A  " + " ".join("+" * shown) + more for _ in range(min(tile.rows, 8))]
    if tile.rows > 8:
        lines.append("  ..")
    return "\n".join(lines)


def _excess(choose: Callable[..., Any], limits_of: Callable[..., Any]) -> list[float]:
    """How much more than the least that it could take each product takes, in percent."""
    found = []
    for product in products():
        limits = limits_of(vector_bytes=product.elements * ITEMSIZE,
                           vector_registers=product.registers)
        tile = choose(limits, ITEMSIZE, product.rows, product.columns)
        taken = work(product, tile.rows, tile.vectors, tile.width).total
        found.append(100 * taken / best(product)[0].total - 100)
    return found


def score(module: ModuleType) -> Iterator[str]:
    """The reader's tiles, and ours, beside the best that fit."""
    ours = published(import_module("impl.choosing.products"))
    both = [_excess(each.choose_tile, module.DeviceLimits) for each in (module, ours)]
    yield f"{f'in {len(both[0])} products':<19}{'yours':>9}{'ours':>9}"
    for name, of in (("on average", lambda each: sum(each) / len(each)), ("at most", max)):
        yield f"{name:<19}" + "".join(f"{of(each):>7.1f} %" for each in both)


KERNEL = Lesson(
    module="choosing.products", chapters=("kernel", "steps", "blocking", "choosing"),
    functions=("choose_tile",),
    names="""\
What the processor has is in
    limits.vector_registers         how many registers there are
    limits.elements(itemsize)       how many elements a vector has, 8 or so, if each has `itemsize`
                                    bytes
and the answer is
    RegisterTile(rows, vectors, width)
with so many rows of the first operand, no more than there are, and so many vectors of columns of
the second one, each of `width` elements: 2, 4 and so on up to what a vector has.""",
    rules=("choosing.product.tile", "steps.padding.untouched",
           "blocking.copy.stored", "steps.value.equal"),
    hints=(
        "Begin with a tile of one row of one vector. It is right, and keeps all rules but one: "
        "choosing.product.tile.",
        "A tile takes rows * vectors registers for its sums, `vectors` for a row of the second "
        "operand, and one for a number of the first one. That is what has to fit.",
        "Write a function that counts: for one element of the sum a tile multiplies rows * "
        "vectors times, and loads rows + vectors times.",
        "Count for all results. There are ceil(columns / (vectors * width)) panels; what the "
        "last one has too much is multiplied as well. Rows that are left over get a smaller "
        "tile, which loads `vectors` vectors, too.",
        "There are less than a hundred tiles that fit. Try all of them, and take the one that "
        "multiplies and loads least. Nobody measures how long that takes.",
        "The width may always be limits.elements(itemsize): columns that are too many are "
        "padded, and are not stored."),
    counterexamples=kernel, number=15,
    score=score)
