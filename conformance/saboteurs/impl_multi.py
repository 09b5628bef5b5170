"""Mistakes in the pieces of a value, in what is sent, and in the rounds of a collective."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit

DIVIDE = "impl/multi/divide.py"


class ForgetsWhatIsDue(Edit):
    rule = "multi.value.equal"
    description = "parts of a sum are taken for the sum"
    file = DIVIDE
    old = "        due.append((name, op))\n"
    new = "        due.append((name, op)) if op is None else 0\n"


class WritesTheFirstPiece(Edit):
    rule = "multi.value.equal"
    description = "each device keeps the first part of what all have"
    file = DIVIDE
    old = "return UOp(Ops.GATHER, node.dtype, (pieces, coordinate(mesh, name)))"
    new = "return UOp(Ops.GATHER, node.dtype, (pieces, UOp.const(dtypes.int32, 0)))"


class PartsRoundDown(Edit):
    rule = "multi.shard.parts"
    description = "the first piece takes what is over from the last"
    file = "impl/multi/mesh.py"
    old = "start = 0 if name is None else min(place[name] * width, size)"
    new = "start = 0 if name is None else min(place[name] * (size // self.count(axis)), size)"


class CombinesThePast(Edit):
    rule = "multi.uneven.masked"
    description = "elements past the end take part in reductions"
    file = DIVIDE
    old = "source = nodes.where(mask, source, neutral)"
    new = "source = nodes.where(mask, source, source)"


class LastOperandWins(Edit):
    rule = "multi.operands.cheapest+2"
    description = "operands are brought into the dearest way"
    file = DIVIDE
    old = "        min(choices, key=lambda axes: sum(price(one, axes) for one in wide))"
    new = "        max(choices, key=lambda axes: sum(price(one, axes) for one in wide))"


class LooksAtOneOperand(Edit):
    rule = "multi.operands.cheapest+2"
    description = "cuts of several operands are not kept together"
    file = DIVIDE
    old, new = "    if len(choices) > 1:\n", "    if len(choices) > 99:\n"


class AKernelForEachDevice(Edit):
    rule = "multi.program.one"
    description = "more devices make more stages"
    file = DIVIDE
    old = "            node = copied_to(node, Transfer(\"all-reduce\", mesh, mesh, name, op))"
    new = "            node = copied_to(node if mesh.axes[name] < 3 else " \
          "copied_to(node, Transfer(\"all-reduce\", mesh, mesh, name, op)), " \
          "Transfer(\"all-reduce\", mesh, mesh, name, op))"


class ResultsAreCopies(Edit):
    rule = "multi.result.sharding"
    description = "every result is put together on all devices"
    file = "impl/multi/program.py"
    old = "            piece = brought(piece, piece.axes)"
    new = "            piece = brought(piece, (None,) * len(piece.axes))"


class TakesADeviceTwice(Edit):
    rule = "multi.mesh.devices"
    description = "a mesh may name a device twice"
    file = "impl/multi/mesh.py"
    old, new = "if not names or len(set(names)) != len(names):", "if not names:"


class TakesAnyAxis(Edit):
    rule = "multi.mesh.axis"
    description = "an axis that the mesh has not is passed over"
    file = "impl/multi/mesh.py"
    old, new = "        if name not in mesh.axes:", "        if name in mesh.axes and axis == -99:"


class RingStopsEarly(Edit):
    rule = "collectives.reduce.equal"
    description = "the last round of a ring is left out"
    file = "impl/collectives/steps.py"
    old = "    return reducing + gathering"
    new = "    return reducing + gathering[:-1]"


class SeesTheRound(Edit):
    rule = "collectives.round.before"
    description = "a move sends what the round has brought"
    file = "impl/collectives/running.py"
    old = "        staging = self.devices[receiver].allocate(nbytes)\n"
    new = "        return source.part(offset, nbytes)\n"


class RingSendsAll(Edit):
    rule = "collectives.bytes.ring"
    description = "every move of a ring sends all elements"
    file = "impl/collectives/steps.py"
    old = "    cut = parts(size, count)\n    # r[impl collectives.bytes.ring]\n"
    new = "    cut = [(0, size)] * count\n    # r[impl collectives.bytes.ring]\n"


class IgnoresTheName(Edit):
    rule = "collectives.algorithm.named"
    description = "the setting ALLREDUCE is not looked at"
    file = "impl/collectives/running.py"
    old = "    name = str(settings.get(\"ALLREDUCE\"))"
    new = "    name = \"\" if settings else \"\""


class ReducesForAll(Edit):
    rule = "collectives.due.scattered"
    description = "everybody gets the whole sum, and keeps a piece"
    file = DIVIDE
    old = "        if name in axes and now[axes.index(name)] is None:\n" \
          "            axis = axes.index(name)\n"
    new = "        if name in axes and now == 0:\n            axis = axes.index(name)\n"


class CountsOneDevice(Edit):
    rule = "multi.transfer.told"
    description = "what a schedule says of bytes is the size of the piece"
    file = "impl/multi/transfers.py"
    old = "            return 2 * nbytes * others // self.count"
    new = "            return nbytes"
