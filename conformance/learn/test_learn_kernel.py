"""The checkpoint of the lesson on kernels lets a right chooser of tiles pass, and no wrong one."""
from __future__ import annotations

import importlib
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

solution: Any = importlib.import_module("conformance.learn.solutions.kernel")
ours: Any = importlib.import_module("impl.choosing.products")


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


def least(limits: Limits, itemsize: int, rows: int, columns: int,
          needs: Callable[[int, int], int] = registers, sign: int = 1) -> Tile:
    """Tries all tiles, with some parts exchanged."""
    product = Product(limits.vector_registers, limits.elements(itemsize), rows, columns)
    fitting = [(r, v) for r in range(1, rows + 1) for v in range(1, product.registers)
               if r < product.registers and needs(r, v) <= product.registers]
    return Tile(*min(fitting, key=lambda tile: (sign * work(
        product, tile[0], tile[1], product.elements).total, -tile[1])), product.elements)


def by_rows(limits: Limits, itemsize: int, rows: int, columns: int) -> Tile:
    """For each number of rows as many vectors as fit, or as there are columns."""
    width = limits.elements(itemsize)
    found = []
    for count in range(1, min(rows, limits.vector_registers - 2) + 1):
        room = (limits.vector_registers - 1) // (count + 1)
        for vectors in range(1, min(room, -(-columns // width)) + 1):
            taken = work(Product(0, width, rows, columns), count, vectors, width)
            found.append((taken.multiplied + taken.loaded, count, vectors))
    return Tile(*min(found)[1:], width)


def narrower(limits: Limits, itemsize: int, rows: int, columns: int) -> Tile:
    """Vectors of half the width, where one of them is enough."""
    tile = the_best(limits, itemsize, rows, columns)
    return tile._replace(width=tile.width // 2) if 2 * columns <= tile.width > 2 else tile


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
    "all registers but one are sums": (
        lambda limits, size, rows, columns: least(limits, size, rows, columns, lambda r, v:
                                                  r * v + 1),
        "choosing.product.tile: 7 rows of 1 vector need 9 registers, of 8"),
    "the number of the first operand has no register": (
        lambda limits, size, rows, columns: least(limits, size, rows, columns, lambda r, v:
                                                  r * v + v),
        "choosing.product.tile: 7 rows of 1 vector need 9 registers, of 8"),
    "six rows of two, whatever the product is": (
        lambda limits, size, rows, columns: Tile(min(rows, 6), 2, limits.elements(size)),
        "choosing.product.tile: 1 row of 2 vectors: 2 vectors multiplied and 3 loaded, 5 in all; "
        "1 row of 1 vector would do with 3"),
    "as many vectors as fit": (
        lambda limits, size, rows, columns: Tile(
            1, (limits.vector_registers - 1) // 2, limits.elements(size)),
        "choosing.product.tile: 1 row of 3 vectors: 3 vectors multiplied and 4 loaded"),
    "as many rows as fit": (
        lambda limits, size, rows, columns: Tile(
            min(rows, limits.vector_registers - 2), 1, limits.elements(size)),
        "would do with "),
    "columns that are left over are forgotten": (
        lambda limits, size, rows, columns: least(
            limits, size, rows, columns // limits.elements(size) * limits.elements(size)),
        "choosing.product.tile: 1 row of 3 vectors: 3 vectors multiplied and 4 loaded"),
    "the one that loads most": (
        lambda limits, size, rows, columns: least(limits, size, rows, columns, sign=-1),
        "choosing.product.tile: 1 row of 3 vectors"),
    "vectors of two": (
        lambda limits, size, rows, columns: the_best(limits, size, rows, columns)._replace(width=2),
        "choosing.product.tile: 1 row of 1 vector: "),
    "it raises": (lambda limits, size, rows, columns: [][0],
                  "raised: your code raised IndexError: list index out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_chooser_gets_the_smallest_counterexample(name: str) -> None:
    choose, said = WRONG[name]
    found = str(next(kernel(module(choose))))
    assert said in found and "registers, vectors of" in found


@pytest.mark.parametrize("choose", [the_best, least, by_rows, narrower, solution.choose_tile,
                                    ours.choose_tile])
def test_a_right_one_is_let_pass(choose: Chooser) -> None:
    assert not list(kernel(module(choose)))


def test_a_tile_near_the_best_is_let_pass_and_the_score_says_how_near() -> None:
    def near(limits: Limits, size: int, rows: int, columns: int) -> Tile:
        product = Product(limits.vector_registers, limits.elements(size), rows, columns)
        least = best(product)[0].total
        fitting = [(r, v) for r in range(1, rows + 1) for v in range(1, 8)
                   if registers(r, v) <= limits.vector_registers and 2 * work(
                       product, r, v, product.elements).total <= HALVES * least]
        return Tile(*fitting[0], product.elements)

    assert not list(kernel(module(near)))
    assert all(line.split()[2] != "0.0" for line in list(score(module(near)))[1:])


def test_the_page_shows_the_score() -> None:
    page = (ROOT / "docs" / "course" / "kernel.md").read_text(encoding="utf-8")
    assert "\n".join(score(module(solution.choose_tile))) in page


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
