"""The checkpoint of the lesson on kernels lets a right chooser of tiles pass, and no wrong one."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from conformance.learn.lesson_kernel import (
    HALVES,
    Product,
    best,
    kernel,
    products,
    registers,
    score,
    work,
)
from conformance.trace import ROOT


class Tile(NamedTuple):
    rows: int
    vectors: int
    width: int


class Limits:
    """What a chooser is told of a processor."""

    def __init__(self, vector_bytes: int, vector_registers: int) -> None:
        self.vector_bytes, self.vector_registers = vector_bytes, vector_registers

    def elements(self, itemsize: int) -> int:
        return self.vector_bytes // itemsize


Chooser = Callable[[Limits, int, int, int], Any]


def module(choose: Chooser) -> Any:
    return SimpleNamespace(DeviceLimits=Limits, choose_tile=choose)


def the_best(limits: Limits, itemsize: int, rows: int, columns: int) -> Tile:
    product = Product(limits.vector_registers, limits.elements(itemsize), rows, columns)
    return Tile(*best(product)[1:], product.elements)


#: Each wrong chooser, and what is said about it.
WRONG: dict[str, tuple[Chooser, str]] = {
    "one row of one vector": (
        lambda limits, size, rows, columns: Tile(1, 1, limits.elements(size)),
        "choosing.product.tile: 1 row of 1 vector: 6 vectors multiplied and 12 loaded, 18 in all; "
        "3 rows of 2 vectors would do with 11"),
    "all registers are sums": (
        lambda limits, size, rows, columns: Tile(
            min(rows, 6), -(-columns // limits.elements(size)), limits.elements(size)),
        "choosing.product.tile: 1 row of 5 vectors need 11 registers, of 8"),
    "more rows than there are": (
        lambda limits, size, rows, columns: Tile(4, 1, limits.elements(size)),
        "raised: your tile has 4 rows, and the product 1"),
    "no such vector": (
        lambda limits, size, rows, columns: Tile(1, 1, 64),
        "raised: the vectors of your tile have 64 elements, and not 2, 4 or so on up to 4"),
    "vectors of three": (
        lambda limits, size, rows, columns: Tile(1, 1, 3), "raised: the vectors of your tile"),
    "nothing": (lambda limits, size, rows, columns: None,
                "raised: choose_tile answers a NoneType, and not a tile: RegisterTile("),
    "half a row": (lambda limits, size, rows, columns: Tile(0, 1, 4),
                   "raised: rows of your tile is no whole number above zero"),
    "it raises": (lambda limits, size, rows, columns: [][0],
                  "raised: your code raised IndexError: list index out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_chooser_gets_the_smallest_counterexample(name: str) -> None:
    choose, said = WRONG[name]
    found = str(next(kernel(module(choose))))
    assert said in found and "registers, vectors of" in found


def test_the_best_tiles_are_let_pass() -> None:
    assert not list(kernel(module(the_best)))
    assert "load 0.0 % more" in next(score(module(the_best)))


def test_a_tile_near_the_best_is_let_pass_and_the_score_says_how_near() -> None:
    def near(limits: Limits, size: int, rows: int, columns: int) -> Tile:
        product = Product(limits.vector_registers, limits.elements(size), rows, columns)
        least = best(product)[0].total
        fitting = [(r, v) for r in range(1, rows + 1) for v in range(1, 8)
                   if registers(r, v) <= limits.vector_registers and 2 * work(
                       product, r, v, product.elements).total <= HALVES * least]
        return Tile(*fitting[0], product.elements)

    assert not list(kernel(module(near)))
    said = next(score(module(near)))
    assert "the best that fit" in said and " 0.0 % more" not in said


def test_products_come_from_the_smallest_up() -> None:
    sizes = [product.rows * product.columns for product in products()]
    assert sizes == sorted(sizes) and sizes[0] == 1


def test_a_tile_costs_what_it_multiplies_and_loads() -> None:
    product = Product(32, 8, 7, 20)
    assert work(product, 7, 3, 8) == (21, 10)  # one panel, and no rows left over
    assert work(product, 4, 2, 8) == (28, 22)  # two panels, and tiles of 4 and of 3 rows
    assert registers(7, 3) == 25


def test_the_readers_file_takes_the_place_of_ours(tmp_path: Path) -> None:
    mine = tmp_path / "my_kernel.py"
    mine.write_text("from impl.choosing.products import *\n"
                    "def choose_tile(limits, itemsize, rows, columns):\n"
                    "    return RegisterTile(1, 1, limits.elements(itemsize))\n", encoding="utf-8")
    found = subprocess.run([sys.executable, "-m", "conformance.learn", "check", "kernel", "--mine",
                            str(mine)], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 1, found.stderr
    page = (ROOT / "docs" / "course" / "kernel.md").read_text(encoding="utf-8")
    assert found.stdout.partition("\n\n")[0] in page  # the page shows what is printed
    assert "1 of 4 rules are red on small problems" in found.stdout
