"""Which steps suit a sum of products: a register tile, and operands in the caches.

Chapter: spec/choosing.md. C[i, j] = sum over k of A[i, k] B[k, j], whatever i, j and k are: output
loops along which A is constant are columns, those along which B is constant are rows. The column
along which results lie side by side becomes the vector.
"""
from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass, replace

from impl.blocking.chunk import Chunk
from impl.blocking.dots import Dot, is_bytes
from impl.blocking.hidden import Hide
from impl.blocking.pack import Aside, Pack
from impl.blocking.tiles import Tiles
from impl.blocking.windows import Pair, Window, find_pairs, reads_arguments
from impl.choosing.planner import Planner, cut_vector
from impl.dtypes import HALF, DType
from impl.ir import TRUE, Ops, RangeKind, UOp
from impl.kernel.analysis import (
    LANES,
    PRODUCTS,
    Analysis,
    DeviceLimits,
    growth,
    shared_loops,
    stage_of,
)
from impl.kernel.tiles import tile_product
from impl.steps.loops import Cut, Merge, Own, Share, Swap
from impl.steps.memory import Fetch
from impl.steps.padding import PadTo
from impl.steps.step import StepError
from impl.steps.upcast import Upcast

#: What a multiply-add costs in a tile with so many vectors a row: loads are shared by fewer.
_PRICES = {4: 1.0, 3: 1.02, 2: 1.2, 1: 1.7}
#: The same in a tile of so many rows: they alone keep the multiply-adds busy.
_MANY_ROWS, _PRICES_OF_ROWS = 8, {4: 1.0, 3: 1.0, 2: 1.02, 1: 1.3}
#: A product with fewer multiply-adds is left to the other rules.
_LEAST_PRODUCT = 1 << 12
#: A column of so few elements fills no vector.
_LEAST_COLUMN = 8
#: A column that fills less of its vectors gives way to another one where sums are long.
_LEAST_USED = 0.76
#: A sum of so many products costs several times as much as to store it.
_DEEP_SUM = 96
#: A sum of so many products costs more than to store its vector element by element.
_LONG_SUM = 256
#: The same where a vector along the columns would have a few elements.
_LONGER_SUM = 16
#: An operand that fewer tiles read is copied only if it cannot be read as it lies.
_LEAST_TILES = 4
#: With fewer rows than this an operand that cannot be read as it lies is not worth copying.
_LEAST_ROWS = 8
#: The same where the operand would be read element by element.
_FEWEST_ROWS = 3
#: A sum is not cut into shorter chunks.
_LEAST_CHUNK = 128
#: A loop of the prefix becomes a BLOCK loop only if those around it offer as many iterations.
_LEAST_PARALLEL = 4
#: Sums over more elements cost more than the storing of their results.
_MOST_FLAT = 32
#: A vector along a column whose elements are so far apart is worth more than a copy of rows.
_FEW_APART = 3
#: Sums over fewer elements are there before the memory that is asked for.
_LEAST_WAIT = 32
#: To copy an element of rows that cannot be read as they lie takes as long as so many of others.
_TURN = 2
#: Bytes of a line of memory.
_LINE = 64
#: A unit for matrices computes so many columns at a time, and sums at least so many products.
_PANEL, _LEAST_DEPTH = 32, 16
#: So many columns share what is read of the rows. More of them have too many sums for a cache.
_MOST_PANEL = 256
#: Rows that are added, so that a multiple of what is computed at a time is there, are few.
_MOST_PADDED = 1.13


@dataclass(frozen=True)
class Roles:
    """What the loops of a product are to its two operands."""

    column: UOp               # the vector
    rows: tuple[UOp, ...]     # output loops of the first operand alone
    first: int                # which factor is constant along the column
    inner: tuple[UOp, ...]    # the loops of the sum


def _stage_with(known: Analysis, node: UOp) -> UOp:
    """The first stage that needs a node."""
    return next(store for store in known.ast.src if node in stage_of(store).order)


def find_roles(planner: Planner, node: UOp) -> Roles | None:
    """The roles of the loops of a reduction; None if it is no product with rows and columns."""
    known, value = planner.known, node.src[0]
    plain = all(r.arg[1] not in LANES and planner.extent(r) for r in node.src[1:])
    if node.arg is not Ops.ADD or value.op not in PRODUCTS or known.free[node] & known.lanes \
            or not plain or value.op is Ops.MUL and planner.work(node) < _LEAST_PRODUCT:
        return None
    outputs = [r for r in known.loops(known.free[node]) if planner.extent(r) > 1
               and r.arg[1] in (RangeKind.GLOBAL, RangeKind.LOOP)]
    sides = [[bool(known.free[f] >> known.position[r] & 1) for f in value.src] for r in outputs]
    alone = [r for r, side in zip(outputs, sides, strict=True) if side[0] != side[1]]
    store = _stage_with(known, node)
    grows = planner.growth[store.src[0].src[1]] or {}
    # r[impl choosing.product.column+3]
    found = [roles for column in alone
             if (roles := _roles_of(planner, column, outputs, sides, node)) is not None]
    beside = [roles for roles in found if grows.get(roles.column) == 1]
    wide = [roles for roles in beside if planner.extent(roles.column) >= _LEAST_COLUMN]
    deep = math.prod(planner.extent(r) for r in node.src[1:])
    if deep >= _DEEP_SUM and (not wide or _used(planner, node, wide[0]) < _LEAST_USED):
        full = [roles for roles in found if _used(planner, node, roles) > _LEAST_USED]
        wide = sorted(full, key=lambda each: -math.prod(planner.extent(r) for r in each.rows)) \
            or wide
    if not wide and deep >= (_LONG_SUM if not beside else _LONGER_SUM):
        # Many products for each result: their vectors may be stored one element here, one there.
        wide = sorted([roles for roles in found if planner.extent(roles.column) >= _LEAST_COLUMN],
                      key=lambda each: -math.prod(planner.extent(r) for r in each.rows))
    return next(iter(wide or beside), None)


def _used(planner: Planner, node: UOp, roles: Roles) -> float:
    """The part of the lanes that a column fills, of vectors as long as there are."""
    extent, width = planner.extent(roles.column), planner.limits.elements(node.dtype.itemsize)
    return extent / (-(-extent // width) * width)


def _roles_of(planner: Planner, column: UOp, outputs: list[UOp], sides: list[list[bool]],
              node: UOp) -> Roles | None:
    """The roles where a loop is the column; None if no loop is left for rows."""
    first = sides[outputs.index(column)].index(False)
    rows = tuple(r for r, side in zip(outputs, sides, strict=True)
                 if side[first] and not side[1 - first])
    if rows and planner.extent(rows[-1]) < _LEAST_COLUMN:
        rows = tuple(sorted(rows, key=planner.extent))
    return Roles(column, rows, first, node.src[1:]) if rows else None


@dataclass(frozen=True)
class RegisterTile:
    """A register tile: so many rows of so many vectors of so many elements."""

    rows: int
    vectors: int
    width: int


def choose_tile(limits: DeviceLimits, itemsize: int, rows: int, columns: int) -> RegisterTile:
    """The tile that wastes least: all registers but those for one row of the second operand."""
    # r[impl choosing.product.tile]
    width = limits.elements(itemsize)
    while width > 2 and width >= 2 * columns:
        width //= 2
    most = (4, 3, 2, 1) if limits.vector_registers >= 32 else (2, 1)
    vectors = min(most, key=lambda v: (-(-columns // (v * width)) * v * _PRICES[v], -v))
    room = (limits.vector_registers - 1 - vectors) // vectors
    room = min(room, 14)
    return RegisterTile(-(-rows // -(-rows // room)), vectors, width)


def plan_product(planner: Planner, node: UOp) -> bool:
    """Take the steps for one product; False if other rules have to look after it."""
    if any(key[0] is Ops.LOCAL for key in planner.known.stored):
        return _plan_stage(planner, node)
    roles = find_roles(planner, node)
    if roles is None or not planner.may_own(roles.column):
        return False
    known = planner.known
    if not all(r in known.info.prefix for r in (roles.column, *roles.rows)):
        return False
    if _fuse(planner, node, roles):
        return plan_product(planner, planner.again(node))
    rows = math.prod(planner.extent(r) for r in roles.rows)
    tile = choose_tile(planner.limits, node.dtype.itemsize, planner.extent(roles.rows[-1]),
                       planner.extent(roles.column))
    second = node.src[0].src[1 - roles.first]
    straight = _contiguous(planner, second, roles.column)
    if rows < _LEAST_ROWS and not straight and (
            rows < _FEWEST_ROWS or planner.use(planner.loads(node), roles.column).vector
            or _lie_along(planner, node, roles.inner[-1])):
        return False
    if rows >= _LEAST_ROWS and plan_tiles(planner, node, roles):
        return True
    if planner.limits.dots and rows >= _LEAST_ROWS and is_bytes(node):
        return plan_product(planner, _dots(planner, roles))
    steady = _contiguous(planner, node.src[0].src[roles.first], roles.inner[-1])
    if not steady:
        roles = _rows_for_threads(planner, node, roles, tile, straight)
    order_loops(planner, roles)
    if straight and _is_flat(planner, node, roles):
        return _plan_flat(planner, roles, tile)
    shared = [] if steady else _shared_windows(planner, planner.again(node), roles)
    panels = _columns(planner, roles.column.arg[0], tile)
    inner = [r.arg[0] for r in roles.inner]
    if rows > (_LEAST_TILES - 1) * tile.rows or not straight:
        inner = _chunks(planner, inner, tile, node.dtype, _window_bytes(planner, roles, shared))
        planner.take(Pack(planner.position(inner[0]), 1 - roles.first),
                     "a panel of the operand in the order in which it is read")
    if shared:
        _copy_windows(planner, inner[-1], roles.first)
    _rows(planner, roles.rows[-1].arg[0], tile)
    if panels is not None and not steady and not shared:
        _copy_rows(planner, panels, inner, roles.first)
    _fuse_sums(planner, inner)
    _fetch(planner, inner[-1])
    return True


def _lie_along(planner: Planner, node: UOp, loop: UOp) -> bool:
    """Whether whole vectors of both operands lie side by side along a loop of the sum; or of one,
    and the elements of a long column of the other two or three apart.
    """
    # r[impl choosing.product.along+2]
    width = planner.limits.elements(node.dtype.itemsize)
    beside = [_contiguous(planner, operand, loop) for operand in node.src[0].src]
    return planner.extent(loop) >= width and all(beside) \
        or any(beside) and planner.few_apart(loop, planner.loads(node), _FEW_APART)


def cut_divided(planner: Planner) -> None:
    """Cut the loops of a sum and of its results that memory sees in phases, as pixels that were
    shuffled, channels of a group, or heads that share keys: behind that each of the two loops has
    a step of its own.
    """
    # r[impl choosing.product.phases]
    refused: set[UOp] = set()
    while (found := _phase(planner, refused)) is not None:
        loop, size = found
        kind = Chunk if loop.arg[1] is RangeKind.REDUCE else Cut
        if not planner.take_if_legal(kind(planner.known.position[loop], size),
                                     "memory sees two loops in one"):
            refused.add(loop)


def _phase(planner: Planner, refused: set[UOp]) -> tuple[UOp, int] | None:
    """A loop of a reduction, or around it, that is divided in an index; and by which number."""
    known = planner.known
    if not any(n.op is Ops.REDUCE for n in known.order):
        return None
    for node in known.order:
        if node.op in (Ops.FLOORDIV, Ops.FLOORMOD) and node.src[1].op is Ops.CONST:
            loop, size = node.src[0], int(node.src[1].arg)
            mine = loop in known.info.prefix or node.op is Ops.FLOORDIV \
                and size >= _LEAST_COLUMN and _is_plain_sum(known, loop)
            if mine and loop not in refused and 1 < size < planner.extent(loop) \
                    and planner.extent(loop) % size == 0:
                return loop, size
    return None


def _is_plain_sum(known: Analysis, loop: UOp) -> bool:
    """Whether a loop is that of a sum which is none of products: those are cut for their tiles."""
    found = [n for n in known.order if n.op is Ops.REDUCE and loop in n.src[1:]]
    return bool(found) and not any(n.src[0].op in PRODUCTS for n in found)


def _rows_for_threads(planner: Planner, node: UOp, roles: Roles, tile: RegisterTile,
                      straight: bool) -> Roles:
    """Cut a part of the rows for each thread, where it takes long to copy them; the other roles.

    Otherwise threads have panels, and each one copies all rows. With a part of the rows each one
    copies all panels, which is quicker done if they are copied as they lie (`straight`).
    """
    # r[impl choosing.product.parts+2]
    threads, row, columns = planner.threads(), roles.rows[-1], planner.extent(roles.column)
    others = math.prod(planner.extent(r) for r in planner.known.info.prefix
                       if r is not roles.column and r is not row)
    extent, deep = planner.extent(row), math.prod(planner.extent(r) for r in roles.inner)
    if threads < 2 or others >= threads or extent % threads or deep <= _MOST_FLAT \
            or extent < 2 * threads * tile.rows \
            or not tile.vectors * tile.width < columns <= (_TURN if straight else 1) * extent:
        return roles
    outer = planner.take(Cut(planner.position(row.arg[0]), extent // threads),
                         "a part of the rows for each thread, which copies no others")[0]
    found = find_roles(planner, planner.again(node))
    assert found is not None, "a part of the rows is as good as all"
    return replace(found, rows=tuple(r for r in found.rows if r.arg[0] != outer.arg[0]))


def plan_tiles(planner: Planner, node: UOp, roles: Roles) -> bool:
    """Take the steps for a product that a unit for matrices computes; False if it cannot."""
    # r[impl choosing.product.unit]
    known = planner.known
    if len(known.ast.src) != 1 or len(roles.rows) != 1 \
            or [n for n in known.order if n.op is Ops.REDUCE] != [node]:
        return False
    row, column = roles.rows[0], roles.column
    product = tile_product(node, row, column)
    if product is None or product.first.index.dtype.name not in planner.limits.tiles:
        return False
    rows, columns, depth = product.sizes
    if depth < _LEAST_DEPTH:
        return False
    panel = _panel(planner, node, rows, columns)
    order_loops(planner, roles)
    number = column.arg[0]
    if panel < columns:
        number = planner.take(Cut(planner.position(number), panel),
                              "columns that share copies of rows")[-1].arg[0]
    planner.take(Own(planner.position(number)), "a unit computes all columns of a panel")
    made = planner.take(Tiles(planner.position(roles.inner[0].arg[0])))
    planner.made -= {loop.arg[0] for loop in made}  # what goes on with the sums becomes a vector
    return True


def _panel(planner: Planner, node: UOp, rows: int, columns: int) -> int:
    """How many columns a unit computes at a time: if their sums are not results themselves, those
    that share a copy of some rows; and each thread has some.
    """
    others = math.prod(planner.extent(r) for r in planner.known.info.prefix) // (rows * columns)
    threads = planner.threads() if others < planner.threads() else 1
    most = -(-columns // threads)
    if planner.known.ast.src[0].src[1] is not node:
        most = min(most, _MOST_PANEL)
    if columns <= most:
        return columns
    return next((n for n in range(most, _PANEL - 1, -1) if columns % n == 0
                 and -(-n // _PANEL) * _PANEL <= _MOST_PADDED * n), columns)


def _dots(planner: Planner, roles: Roles) -> UOp:
    """The sum of products of bytes, four at a time."""
    made = planner.take(Dot(planner.position(roles.inner[0].arg[0])))
    return next(n for n in planner.known.order if n.op is Ops.REDUCE
                and n.src[0].op is Ops.DOT and made[0] in n.src)


def _copy_rows(planner: Planner, panels: int, inner: list[int], first: int) -> None:
    """Copy the operand of the rows, which cannot be read as it lies; panels share the copy."""
    shared = _shared_panels(planner, panels)
    if shared is not None:
        planner.take(Share(planner.position(shared)), "panels share a copy of the other operand")
    planner.take(Pack(planner.position(inner[0]), first),
                 "rows of the operand in the order in which they are read")


def _fetch(planner: Planner, number: int) -> None:
    """Ask for a tile of outputs before its sums begin, if its vectors will lie across two lines.

    Stores wait for each other, and one across two lines for both.
    """
    # r[impl choosing.product.memory+2]
    if planner.extent(planner.numbered[number]) < _LEAST_WAIT:
        return
    loop = planner.numbered[number]
    stores = [s for s in planner.known.ast.src if loop in s.src[1].toposort()]
    across = any(step * store.src[0].dtype.itemsize % _LINE and row.arg[1] in LANES
                 and step not in (0, 1) for store in stores
                 for row, step in (planner.growth[store.src[0].src[1]] or {}).items())
    if across and all(store.src[0].src[0].op is Ops.PARAM for store in stores):
        planner.take(Fetch(planner.position(number)))


def _is_flat(planner: Planner, node: UOp, roles: Roles) -> bool:
    """Whether sums are so short that it counts how results are stored, and no operand is large."""
    if len(roles.rows) != 1 or len(roles.inner) != 1 or not planner.may_own(roles.column):
        return False
    row, size = planner.extent(roles.column) * node.dtype.itemsize, planner.limits.second_cache
    deep = planner.extent(roles.inner[0])
    return deep <= _MOST_FLAT and deep * row <= size // 2 < planner.extent(roles.rows[0]) * row


def _plan_flat(planner: Planner, roles: Roles, tile: RegisterTile) -> bool:
    """Rows around columns: results are stored from end to end."""
    # r[impl choosing.product.memory+2]
    row, column = roles.rows[0].arg[0], roles.column.arg[0]
    planner.take(Own(planner.position(column)), "rows are stored from end to end")
    planner.take(Swap(planner.position(column), planner.position(row)),
                 "rows are stored from end to end")
    _columns(planner, column, tile)
    _rows(planner, row, tile)
    return True


def _shared_panels(planner: Planner, number: int) -> int | None:
    """The panels that share a copy: those of one thread, if there is no other loop for threads."""
    prefix, threads = planner.known.info.prefix, planner.threads()
    extent = planner.extent(planner.numbered[number])
    if math.prod(planner.extent(r) for r in prefix[:-1]) >= threads:
        return number
    if extent % threads or extent == threads:
        return None  # each panel copies what it needs
    made = planner.take(Cut(planner.position(number), extent // threads),
                        "a part of the panels for each thread")
    return made[-1].arg[0]


def _plan_stage(planner: Planner, node: UOp) -> bool:
    """Take the steps for a product that is one stage of several, as in attention.

    Its rows are lanes of the prefix, which all stages have. Its column is a loop of the stage. An
    operand that has to be copied is copied once for all rows: the last loop of the prefix becomes
    a BLOCK loop, and the copy stands before it.
    """
    known, value = planner.known, node.src[0]
    if node.arg is not Ops.ADD or value.op is not Ops.MUL \
            or any(r.arg[1] is not RangeKind.REDUCE or not planner.extent(r)
                   for r in node.src[1:]) or planner.work(node) < _LEAST_PRODUCT:
        return False
    store = _stage_with(known, node)
    grows, lanes = planner.growth[store.src[0].src[1]] or {}, known.free[node] & known.lanes
    free = [known.free[factor] for factor in value.src]
    found = [(r, second) for r in store.src[2:] for second in (0, 1)
             if r.arg[1] is RangeKind.LOOP and grows.get(r) == 1 and planner.extent(r) > 1
             and free[second] >> known.position[r] & 1
             and not free[1 - second] >> known.position[r] & 1]
    if not found or lanes & free[found[0][1]]:
        return False
    column, second = found[0]
    straight = _contiguous(planner, value.src[second], column)
    if not lanes and known.info.prefix:
        _hide(planner, column, node.dtype)
    if not lanes and not (known.info.prefix and _stage_rows(planner, node, second, straight)):
        return False
    inner = node.src[1].arg[0]
    if not straight and shared_loops(store) == () and lanes:
        return False
    lanes = planner.known.free[planner.again(node)] & planner.known.lanes
    rows = math.prod(planner.extent(r) for r in planner.known.loops(lanes))
    tile = _stage_tile(planner.limits, node.dtype.itemsize, rows, planner.extent(column))
    _columns(planner, column.arg[0], tile)
    if not straight:
        planner.take(Pack(planner.position(inner), second),
                     "a copy for all rows, in the order in which it is read")
    _set_aside(planner, inner, 1 - second)
    return True


def _hide(planner: Planner, column: UOp, dtype: DType) -> None:
    """Leave out tiles of a product that a mask hides, as a causal one hides what comes later."""
    # r[impl choosing.product.hidden]
    rows = _lanes_of_rows(planner, planner.extent(planner.known.info.prefix[-1]))
    tile = _stage_tile(planner.limits, dtype.itemsize, rows, planner.extent(column))
    planner.take_if_legal(Hide(planner.known.position[column], tile.width * tile.vectors, rows))


def _set_aside(planner: Planner, number: int, factor: int) -> None:
    """Compute an operand once for all columns, if it is computed from several loads, or one that
    some rows leave out.
    """
    # r[impl choosing.product.memory+2]
    loop = planner.numbered[number]
    node = next(n for n in planner.known.order if n.op is Ops.REDUCE and loop in n.src[1:])
    value = node.src[0].src[factor]
    user = _stage_with(planner.known, node)
    again = [r for r in user.src[2:] if r.arg[1] is RangeKind.LOOP
             and not planner.known.free[value] >> planner.known.position[r] & 1]
    loads = [n for n in value.toposort() if n.op is Ops.LOAD]
    if not loads or len(loads) == 1 and loads[0].src[0].src[2] is TRUE \
            or math.prod(planner.extent(r) for r in again) < 2:
        return
    step = Aside(planner.position(number), factor)
    with contextlib.suppress(StepError):
        made = planner.take(step)
        copy = next(s for s in planner.known.ast.src if made[0] in s.src)
        width = planner.limits.elements(value.dtype.itemsize)
        along = Upcast(planner.position(copy.src[-1].arg[0]), width)
        if planner.extent(copy.src[-1]) % width == 0 and _is_vector(along, planner.known):
            planner.take(along, "vector along the sum")


def _is_vector(step: Upcast, known: Analysis) -> bool:
    """Whether a lane that is cut off is one along which all memory is contiguous, or constant."""
    made = Analysis(step.apply(known), known)
    lane = next(r for r in made.ranges if r not in known.position and r.arg[1] in LANES)
    bit = made.mask((lane,))
    places = [n.src[1] for n in made.order if n.op is Ops.INDEX and made.free[n.src[1]] & bit]
    grows = growth(made.order, (lane,))
    return all((grows[place] or {lane: 2}).get(lane, 0) in (0, 1) for place in places)


def _stage_tile(limits: DeviceLimits, itemsize: int, rows: int, columns: int) -> RegisterTile:
    """The tile for rows that are lanes already: no more vectors than leave registers for a row."""
    tile = choose_tile(limits, itemsize, max(rows, 4), columns)
    most = max((limits.vector_registers - 1) // (rows + 1), 1)
    prices = _PRICES if rows < _MANY_ROWS else _PRICES_OF_ROWS
    vectors = min(range(1, most + 1), key=lambda v: (-(-columns // (v * tile.width)) * v
                                                     * prices[min(v, 4)], -v))
    return replace(tile, vectors=vectors)


def _stage_rows(planner: Planner, node: UOp, second: int, straight: bool) -> bool:
    """Make rows of the last loop of the prefix, and where it pays a BLOCK loop of what is left."""
    known, row = planner.known, planner.known.info.prefix[-1]
    bit = 1 << known.position[row]
    number, amount = row.arg[0], _lanes_of_rows(planner, planner.extent(row))
    parts = _parts_of_rows(planner, -(-planner.extent(row) // amount), straight)
    if not known.free[node.src[0].src[1 - second]] & bit or amount < 2 \
            or known.free[node.src[0].src[second]] & bit or not (straight or parts):
        return False
    if planner.extent(row) % amount:
        number = planner.take(PadTo(planner.position(number), amount),
                              "the last rows are stored in part")[0].arg[0]
    made = planner.take(Upcast(planner.position(number), amount),
                        "register tile: rows share what is loaded")
    left = [r for r in made if r.arg[1] not in LANES]
    if left and parts > 1:
        left = planner.take(Cut(planner.position(left[0].arg[0]),
                                planner.extent(left[0]) // parts), "rows for each thread")[-1:]
    if left and parts:
        planner.take(Share(planner.position(left[0].arg[0])), "all rows share copies of operands")
    if left and parts == 1:
        _share_around(planner, node, second, planner.extent(left[0]))
    return True


def _parts_of_rows(planner: Planner, tiles: int, straight: bool) -> int:
    """Into how many parts to cut the tiles of rows: each has a copy, and a thread. 0: no copy.

    One if the other loops of the prefix offer iterations enough. To copy takes as long as a tile.
    """
    # r[impl choosing.product.parts+2]
    threads, others = planner.threads(), planner.known.info.prefix[:-1]
    if math.prod(planner.extent(r) for r in others) >= min(_LEAST_PARALLEL, threads):
        return 1
    return 0 if straight else _parts(tiles, threads, tiles - 1, 1)


def _share_around(planner: Planner, node: UOp, second: int, tiles: int) -> None:
    """Loops around the rows share the copy, too, as far as it does not depend on them."""
    # r[impl choosing.product.memory+2]
    parts = 1
    while parts == 1 and (prefix := planner.known.info.prefix):
        operand = planner.again(node).src[0].src[second]
        extent = planner.extent(prefix[-1])
        others = math.prod(planner.extent(r) for r in prefix[:-1])
        if planner.known.free[operand] >> planner.known.position[prefix[-1]] & 1 or not extent:
            return
        parts = _parts(extent, -(-planner.threads() // max(others, 1)), extent, 1 / tiles)
        if parts == extent > 1:
            return
        if parts > 1:
            planner.take(Cut(len(prefix) - 1, extent // parts), "a part for each thread")
        last = len(planner.known.info.prefix) - 1
        planner.take(Share(last), "its iterations share copies of operands")
        tiles *= extent


def _parts(iterations: int, threads: int, most: int, copy: float) -> int:
    """Into how many parts to cut iterations that share a copy, at most; 0 if there are none.

    To make the copy takes as long as `copy` iterations.
    """
    several = *range(1, min(most, 2 * threads) + 1), most
    found = [n for n in several if n and iterations % n == 0]
    return min(found, key=lambda n: -(-n // threads) * (iterations // n + copy), default=0)


def _lanes_of_rows(planner: Planner, extent: int) -> int:
    """How many rows at a time: as many as the registers and the second cache hold."""
    # r[impl choosing.product.stage]
    if not extent:  # r[impl choosing.step.legal+2]: lanes are cut off a loop of fixed extent
        return 1
    passed = sum(n.arg[1] * n.dtype.itemsize for n in planner.known.order if n.op is Ops.LOCAL)
    many = planner.limits.vector_registers >= 32 and 8 * passed <= planner.limits.second_cache // 2
    few = (4, 2) if planner.limits.vector_registers >= 32 else (6, 4, 2)
    return next((n for n in ((8, 4, 2) if many else few)
                 if -(-extent // n) * n <= _MOST_PADDED * extent), 1)


def copy_gathered(planner: Planner) -> bool:
    """Copy an operand whose lanes lie apart in memory, if loops of its stage read it again."""
    # r[impl choosing.product.memory+2]
    known = planner.known
    for node in known.order:
        if node.op is not Ops.REDUCE or node.arg is not Ops.ADD or node.src[0].op is not Ops.MUL:
            continue
        store = _stage_with(known, node)
        for factor, operand in enumerate(node.src[0].src):
            again = math.prod(planner.extent(r) for r in store.src[2:]
                              if r.arg[1] is RangeKind.LOOP
                              and not known.free[operand] >> known.position[r] & 1)
            step = Pack(known.position[node.src[1]], factor)
            if again >= _LEAST_TILES and _gathers(planner, store, operand) \
                    and planner.take_if_legal(step, "a copy for all that read it"):
                return True
    return False


def _gathers(planner: Planner, store: UOp, value: UOp) -> bool:
    """Whether what is stored side by side is read apart."""
    along = planner.growth[store.src[0].src[1]] or {}
    lanes = [r for r in planner.known.loops(planner.known.free[value] & planner.known.lanes)
             if along.get(r) == 1]
    grows = [planner.growth[n.src[0].src[1]] or {} for n in value.toposort() if n.op is Ops.LOAD]
    return any(grow.get(lane) != 1 for lane in lanes for grow in grows)


def _fuse(planner: Planner, node: UOp, roles: Roles) -> bool:
    """Make one loop of two that all memory sees as one; False if there are none."""
    known = planner.known
    first, second = (known.free[node.src[0].src[f]] for f in (roles.first, 1 - roles.first))
    columns = [r for r in known.info.prefix if (second & ~first) >> known.position[r] & 1]
    places = [n.src[1] for n in known.order if n.op is Ops.INDEX]
    for group in (columns, list(roles.rows)):
        for outer, inner in itertools.permutations(group, 2):
            size = planner.extent(inner)
            if size and planner.extent(outer) and all(
                    _as_one(planner, place, outer, inner, size) for place in places):
                _side_by_side(planner, outer.arg[0], inner.arg[0])
                planner.take(Merge(planner.position(outer.arg[0]), planner.position(inner.arg[0])),
                             "two loops that memory sees as one")
                return True
    return False


def _fuse_sums(planner: Planner, numbers: list[int]) -> None:
    """Make one loop of the loops of the sum, where copies have put their elements in one line."""
    while len(numbers) > 1:
        inner, outer = planner.numbered[numbers.pop()], planner.numbered[numbers[-1]]
        places = [n.src[1] for n in planner.known.order if n.op is Ops.INDEX]
        if all(_as_one(planner, place, outer, inner, planner.extent(inner)) for place in places):
            made = planner.take(Merge(planner.known.position[outer], planner.known.position[inner]),
                                "the sum reads its operands in one line")
            numbers[-1] = made[0].arg[0]


def _as_one(planner: Planner, index: UOp, outer: UOp, inner: UOp, size: int) -> bool:
    """Whether an index depends on outer * size + inner, and not otherwise on the two."""
    grows = planner.growth[index]
    return grows is not None and grows.get(outer, 0) == size * grows.get(inner, 0)


def _side_by_side(planner: Planner, outer: int, inner: int) -> None:
    """Bring one loop of the prefix behind another one."""
    place = planner.position(outer) + 1
    if place == len(planner.known.info.prefix):
        planner.take(Swap(place - 2, place - 1), "loops that are made one")
        place -= 1
    if place != planner.position(inner):
        planner.take(Swap(place, planner.position(inner)), "loops that are made one")


def _contiguous(planner: Planner, value: UOp, loop: UOp) -> bool:
    """Whether an operand is read from memory as it lies: whole vectors, without conditions."""
    if value.op is not Ops.LOAD or value.src[0].src[2] is not TRUE:
        return False
    return (planner.growth[value.src[0].src[1]] or {}).get(loop) == 1


def order_loops(planner: Planner, roles: Roles) -> None:
    """Rows become loops of the stage; the column is the last loop of the prefix."""
    prefix = planner.known.info.prefix
    others = [r for r in prefix if r not in roles.rows and r is not roles.column]
    wanted = [r.arg[0] for r in (*others, roles.column, *roles.rows)]
    for place, number in enumerate(wanted):
        here = planner.known.info.prefix[place].arg[0]
        if here != number:
            planner.take(Swap(place, planner.position(number)),
                         "rows inside the columns: they share a panel of the other operand")
    for _ in roles.rows:
        planner.take(Own(len(planner.known.info.prefix) - 1), "rows share a panel")


def _shared_windows(planner: Planner, node: UOp, roles: Roles) -> list[Pair]:
    """How the operand of the rows is read in windows, of which its rows share the elements: as that
    of a convolution is read for the gradient of its weights.
    """
    # r[impl choosing.product.windows]
    operand = node.src[0].src[roles.first]
    rows = [planner.numbered[row.arg[0]] for row in roles.rows]
    pairs = find_pairs(planner.known, operand, rows, list(node.src[1:]))
    if math.prod(planner.extent(pair.output) for pair in pairs) < _LEAST_TILES \
            or not reads_arguments(planner.known, operand):
        return []
    return pairs


def _window_bytes(planner: Planner, roles: Roles, pairs: list[Pair]) -> int:
    """The bytes that a copy of windows has for each iteration of the first loop of the sum."""
    inside = {loop.arg[0] for pair in pairs for loop in (pair.output, pair.inner)}
    if not pairs or roles.inner[0].arg[0] in inside:
        return 0
    others = [planner.extent(r) for r in (*roles.rows, *roles.inner[1:])
              if r.arg[0] not in inside]
    return 4 * math.prod(others) * math.prod(pair.reach for pair in pairs)


def _copy_windows(planner: Planner, number: int, factor: int) -> None:
    """Copy what the rows share, with vectors along the copy."""
    step = Window(planner.position(number), factor)
    with contextlib.suppress(StepError):
        made = planner.take(step)
        copy = next(s for s in planner.known.ast.src if made[0] in s.src)
        cut_vector(planner, copy.src[-1].arg[0], planner.limits.elements(4))


def _chunks(planner: Planner, inner: list[int], tile: RegisterTile, dtype: DType,
            beside: int) -> list[int]:
    """Cut a long sum, so that a panel of one chunk stays in the second cache, with `beside` bytes
    for each iteration; its loops.
    """
    # r[impl choosing.product.windows]
    each = math.prod(planner.extent(planner.numbered[number]) for number in inner[1:])
    row = tile.width * tile.vectors * dtype.itemsize * each + beside
    extent = planner.extent(planner.numbered[inner[0]])
    most = planner.limits.second_cache // 2 // row
    sizes = [n for n in range(max(-(-_LEAST_CHUNK // each), 2), most + 1) if extent % n == 0]
    if extent * row <= planner.limits.second_cache or not sizes or dtype in HALF:
        return inner
    made = planner.take(Chunk(planner.position(inner[0]), sizes[-1]),
                        "a panel of the whole sum would not stay in the second cache")
    return [r.arg[0] for r in made if r.arg[1] is RangeKind.REDUCE]


def _columns(planner: Planner, number: int, tile: RegisterTile) -> int | None:
    """Cut the lanes off the column: vectors, and several of them a row; the loop that is left."""
    extent, whole = planner.extent(planner.numbered[number]), tile.width * tile.vectors
    if extent % whole:
        number = planner.take(PadTo(planner.position(number), whole),
                              "the last panel is stored in part")[0].arg[0]
    made = planner.take(Upcast(planner.position(number), tile.width),
                        "vector along the columns: results lie side by side")
    left = [r for r in made if r.arg[1] not in LANES]
    if left and tile.vectors > 1:
        made = planner.take(Upcast(planner.position(left[0].arg[0]), tile.vectors),
                            "more vectors share an element of the first operand")
        left = [r for r in made if r.arg[1] not in LANES]
    return left[0].arg[0] if left else None


def _rows(planner: Planner, number: int, tile: RegisterTile) -> None:
    """Cut the lanes off the rows; what is left over becomes a smaller tile."""
    extent = planner.extent(planner.numbered[number])
    if tile.rows < 2:
        return
    made = planner.take(Upcast(planner.position(number), tile.rows),
                        "register tile: rows share what is loaded")
    rest = extent % tile.rows
    if rest > 1:
        lanes = [r for r in made if r.arg[1] in LANES]
        own = [r for r in made if r not in lanes and planner.extent(r) == rest
               and not any(lanes[0] in s.src and r in s.src for s in planner.known.ast.src)]
        planner.take(Upcast(planner.position(own[0].arg[0]), rest), "the rows that are left over")


__all__ = ["Roles", "RegisterTile", "choose_tile", "copy_gathered", "cut_divided", "find_roles",
           "order_loops", "plan_product"]
