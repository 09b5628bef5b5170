"""Mistakes in the pieces of a value, in what is sent, and in the rounds of a collective."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit

DIVIDE = "impl/multi/divide.py"
TRANSFERS = "impl/multi/transfers.py"


class ForgetsWhatIsDue(Edit):
    rule = "multi.value.equal"
    description = "parts of a sum are taken for the sum"
    file = DIVIDE
    old = "        due.append((name, op))\n"
    new = "        due.append((name, op)) if op is None else 0\n"


class WritesTheFirstPiece(Edit):
    rule = "multi.value.equal"
    description = "each device keeps the first part of what all have"
    file = "impl/multi/pieces.py"
    old = "return UOp(Ops.GATHER, node.dtype, (pieces, coordinate(mesh, name)))"
    new = "return UOp(Ops.GATHER, node.dtype, (pieces, UOp.const(dtypes.int32, 0)))"


class LeavesGradientsWhole(Edit):
    rule = "multi.gradient.sharding"
    description = "every device is sent the whole gradient of a parameter that is cut"
    file = "impl/tensor/autograd.py"
    old = "given = given.shard_like(tensor)"
    new = "given = given.shard_like(tensor) if tensor is None else given"


class TakesAnyPieces(Edit):
    rule = "multi.local.whole"
    description = "pieces are not compared with those that the devices should have"
    file = "impl/multi/local.py"
    old, new = "if size != wanted:", "if len(size) != len(wanted):"


class PutsPiecesInTheFirst(Edit):
    rule = "multi.local.whole"
    description = "each device is given the last piece"
    file = "impl/tensor/placement.py"
    old, new = "cls.runtime.put_pieces(found, blocks)", \
        "cls.runtime.put_pieces(found, blocks[-1:] * len(blocks))"


class PutsTogetherWhatIsWritten(Edit):
    rule = "multi.write.region"
    description = "a write of a part puts the whole value together"
    file = DIVIDE
    old, new = "else _region(base, view, node.src[0])", "else None"


class FollowsEachWish(Edit):
    rule = "multi.wish.followed"
    description = "a wish is a demand"
    file = DIVIDE
    old, new = "if more <= 0:", "if more is not None:"


class FollowsNoWishOfWhatIsDue(Edit):
    rule = "multi.wish.followed"
    description = "what is due is first combined as a whole"
    file = DIVIDE
    old = "more = price(given, wish.axes) - price(given, given.axes)"
    new = "more = price(given, wish.axes)"


class MergesAxesAtOnce(Edit):
    rule = "multi.reshape.merged"
    description = "an axis that is cut is put together where axes are merged"
    file = DIVIDE
    old, new = "            self.merger.merge(node)", "            self.merger.known.clear()"


class GathersRowsToAdd(Edit):
    rule = "multi.scatter.rows"
    description = "rows that are cut along words are put together before they are added"
    file = DIVIDE
    old = "        cut = next((a for a, name in enumerate(rows.axes) if name is not None), 0)\n"
    new = "        cut = 0\n"


class PartsRoundDown(Edit):
    rule = "multi.shard.parts+2"
    description = "the first piece takes what is over from the last"
    file = "impl/multi/mesh.py"
    old = "start = 0 if name is None else min(self.mesh.number(device, name) * width, size)"
    new = "start = 0 if name is None else " \
          "min(self.mesh.number(device, name) * (size // self.count(axis)), size)"


class CombinesThePast(Edit):
    rule = "multi.uneven.masked"
    description = "elements past the end take part in reductions"
    file = DIVIDE
    old = "source = nodes.where(mask, source, neutral)"
    new = "source = nodes.where(mask, source, source)"


class LastOperandWins(Edit):
    rule = "multi.operands.cheapest+5"
    description = "of the ways into which operands may be brought the last one wins"
    file = "impl/multi/operands.py"
    old, new = "if sent < least:", "if sent < math.inf:"


class LooksAtOneOperand(Edit):
    rule = "multi.operands.cheapest+5"
    description = "cuts of several operands are not kept together"
    file = "impl/multi/operands.py"
    old, new = "        found[_together(given)] = None\n", "        pass\n"


class ForgetsThePriceOfSums(Edit):
    rule = "multi.operands.cheapest+5"
    description = "what a product leaves due costs nothing"
    file = "impl/multi/operands.py"
    old, new = "bytes_sent(mesh, kept, kept, due,", "bytes_sent(mesh, kept, kept, (),"


class SendsAgainAndAgain(Edit):
    rule = "multi.operands.cheapest+5"
    description = "what was gathered already has its price again"
    file = "impl/multi/pieces.py"
    old = "    if given.brought_to and axes in given.brought_to and given"
    new = "    if given.brought_to and axes in () and given"


class PricesPiecesAsTheyWere(Edit):
    rule = "multi.operands.priced"
    description = "what an axis that was put together adds to a piece is not counted"
    file = TRANSFERS
    old, new = "            local[joined] = shape[joined]\n", "            pass\n"


class PricesWhatLiesThereAlready(Edit):
    rule = "multi.operands.priced"
    description = "to go back to where a value came from has a price"
    file = "impl/multi/pieces.py"
    old = "    if given.brought_from is not None and axes == given.brought_from.axes:"
    new = "    if given.brought_from is not None and axes == ():"


class GathersBeforeAxesChangePlaces(Edit):
    rule = "multi.transfer.places"
    description = "axes are put together before others change places"
    file = TRANSFERS
    old = "        axis = next((axis for axis in left if free(now[axis]) is not None), last)\n"
    new = "        axis = last\n"


class PiecesHoldEachOther(Edit):
    rule = "multi.memory.gone"
    description = "a value knows the piece that it was brought to, which knows that value"
    file = "impl/multi/pieces.py"
    old, new = "(_sent(given, axes), {}, 0)", "(_sent(given, axes), {(): given}, 0)"


class CombinesWhatWasGathered(Edit):
    rule = "multi.due.gathered+2"
    description = "every device is sent the gradient of all that was gathered"
    file = DIVIDE
    old, new = "        if not known:\n", "        if known or not known:\n"


class CombinesScattersAtOnce(Edit):
    rule = "multi.gradient.sharding"
    description = "what devices scattered is combined before anybody wants it"
    file = "impl/multi/rows.py"
    old, new = "    if alone:\n", "    if alone and not node.src:\n"


class AKernelForEachDevice(Edit):
    rule = "multi.program.one+2"
    description = "more devices make more stages"
    file = TRANSFERS
    old = "found, now = list[Passage](),"
    new = "found, now = [Passage(Transfer(\"all-reduce\", mesh, mesh, name, Ops.ADD)) " \
          "for name in axes if name and mesh.extent(name) > 2],"


class ResultsAreCopies(Edit):
    rule = "multi.result.sharding"
    description = "every result is put together on all devices"
    file = "impl/multi/program.py"
    old = "            piece = brought(piece, piece.axes)"
    new = "            piece = brought(piece, (None,) * len(piece.axes))"


class PrintsNothing(Edit):
    rule = "multi.print.elements+2"
    description = "a tensor on a mesh is printed without its elements"
    file = "impl/collectives/device.py"
    old, new = "if len(parts) != len(self.members):", "if len(parts) != 0:"


class PutsTogetherForOne(Edit):
    rule = "multi.shards.own+2"
    description = "what a device has is sent to it by all"
    file = DIVIDE
    old = "        if bounds != part and not (nothing"
    new = "        if bounds != part or not (nothing"


class TakesADeviceTwice(Edit):
    rule = "multi.mesh.devices+2"
    description = "a mesh may name a device twice"
    file = "impl/multi/mesh.py"
    old, new = "if not names or len(set(names)) != len(names):", "if not names:"


class TakesAnyAxis(Edit):
    rule = "multi.mesh.axis+2"
    description = "an axis that the mesh has not is passed over"
    file = "impl/multi/mesh.py"
    old, new = "        if name not in mesh.axes:", "        if name in mesh.axes and axis == -99:"


class RingStopsEarly(Edit):
    rule = "collectives.reduce.equal+2"
    description = "the last round of a ring is left out"
    file = "impl/collectives/steps.py"
    old = "*_around(cut, 0, True), *_around(cut, 1)]"
    new = "*_around(cut, 0, True), *_around(cut, 1)[:-1]]"


class SeesTheRound(Edit):
    rule = "collectives.round.before+2"
    description = "a move sends what the round has brought"
    file = "impl/collectives/running.py"
    old = "        overwritten = values is targets and _meet(moves)"
    new = "        overwritten = values is not targets and _meet(moves)"


class TakesAllMemoryForShared(Edit):
    rule = "collectives.memory.reached+2"
    description = "a kernel is given the memory of another GPU"
    file = "impl/collectives/running.py"
    old = "all(device.host_memory and device.shared_memory for device in devices)"
    new = "all(device.host_memory or device.shared_memory for device in devices)"


class RingSendsAll(Edit):
    rule = "collectives.bytes.theory"
    description = "every move of a ring sends all elements"
    file = "impl/collectives/steps.py"
    old = "    cut = parts(size, count)\n    # r[impl collectives.bytes.theory]\n"
    new = "    cut = [(0, size)] * count\n    # r[impl collectives.bytes.theory]\n"


class TreesGoOneByOne(Edit):
    rule = "collectives.bytes.theory"
    description = "the first sends all pieces of an all-gather to everybody itself"
    file = "impl/collectives/steps.py"
    old = "    return [_placed(size, count), *up, *down]"
    new = "    return [_placed(size, count), *up, [Move(0, i, 0, size * count) " \
          "for i in range(1, count)]]"


class IgnoresTheName(Edit):
    rule = "collectives.algorithm.named+2"
    description = "the settings of algorithms are not looked at"
    file = "impl/collectives/running.py"
    old = "        name = str(settings.get(SETTINGS[kind]))"
    new = "        name = \"\""


LANES = "impl/collectives/lanes.py"


class NobodyWaitsForTheLast(Edit):
    rule = "collectives.lanes.wait"
    description = "a device goes on when its own part of a transfer is done"
    file = LANES
    old = "self._timed(place, number, \"copy\", work), done[number].set]"
    new = "self._timed(place, number, \"copy\", work[:-1]), done[number].set]"


class KernelsDoNotWait(Edit):
    rule = "collectives.lanes.wait"
    description = "a kernel begins while a transfer brings what it reads"
    file = LANES
    old = "            steps += [self.done[place][number].wait for place in sorted(part.waits)]"
    new = "            steps += [self.done[place][number].wait for place in sorted(part.waits)[1:]]"


class CombinesInLanes(Edit):
    rule = "collectives.lanes.equal"
    description = "with lanes, a transfer leaves out what comes last"
    file = LANES
    old = "entry.phases = list(self.device.exchanges(entry.exchanges))"
    new = "entry.phases = [(i, p[:-1]) for i, p in self.device.exchanges(entry.exchanges)]"


class TransfersAreShort(Edit):
    rule = "memory.transfer.covers+2"
    description = "memory of a transfer is given away when the transfer has begun"
    file = "impl/schedule/passes.py"
    old = "        touched[draft.order[last]] += own[transfer]"
    new = "        touched[draft.order[last]] += own[transfer][:0]"


class AlwaysPays(Edit):
    rule = "collectives.lanes.pay"
    description = "lanes are used for the shortest kernels"
    file = LANES
    old = "and seconds > 4 * HANDOVER * (transfers + 1)"
    new = "and seconds > -4 * HANDOVER * (transfers + 1)"


class EverybodyHasAllThreads(Edit):
    rule = "collectives.lanes.cores"
    description = "each device uses as many threads as if it were alone"
    file = "impl/cpu/programs.py"
    old = "        found.shape = (chunks, max(1, threads // count), *others)"
    new = "        found.shape = (chunks, max(1, threads), *others)"


class ErrorsStayInTheLane(Edit):
    rule = "collectives.lanes.error+2"
    description = "an error in a lane ends what the lane does, and nobody hears of it"
    file = LANES
    old = "        if interrupted is not None or self.error is not None:"
    new = "        if interrupted is not None:"


class ReducesForAll(Edit):
    rule = "collectives.due.scattered+2"
    description = "everybody gets the whole sum, and keeps a piece"
    file = TRANSFERS
    old = "        to = free(name)\n        kind = \"all-reduce\""
    new = "        to = None\n        kind = \"all-reduce\""


class CountsOneDevice(Edit):
    rule = "multi.transfer.told"
    description = "what a schedule says of bytes is the size of the piece"
    file = TRANSFERS
    old = "            return 2 * nbytes * others // self.count"
    new = "            return nbytes"


class TransfersTakeTurns(Edit):
    rule = "inspect.timeline.predicted+2"
    description = "in a predicted timeline nothing runs beside a transfer"
    file = "impl/inspect/timeline.py"
    old = "        if beside:\n            sent = done[number]\n"
    new = "        if beside:\n            sent = computed = done[number]\n"


class SecondsInATrace(Edit):
    rule = "inspect.trace.format"
    description = "a trace has its times in milliseconds"
    file = "impl/inspect/timeline.py"
    old = '"ts": 1e6 * (span.start - first)'
    new = '"ts": 1e3 * (span.start - first)'


class RollsTheOtherWay(Edit):
    rule = "collectives.permute.roll"
    description = "pieces go to the device before"
    file = "impl/multi/rolls.py"
    old = "                                    shift=shift // (size // count)))"
    new = "                                    shift=-shift // (size // count)))"


class GathersToCut(Edit):
    rule = "collectives.gather.undone+2"
    description = "what was gathered is cut again, and was sent for nothing"
    file = "impl/multi/pieces.py"
    old = "    if before is not None and axes == before.axes:"
    new = "    if before is not None and axes == \"\":"


class KeepsAllArenas(Edit):
    rule = "realize.arena.meshes+3"
    description = "every mesh that was ever used keeps an arena"
    file = "impl/realize/run.py"
    old = "                del arenas[old]"
    new = "                arenas[old] = arenas[old]"


class NamesTheWayItLies(Edit):
    rule = "multi.transfer.instead+4"
    description = "the sharding that is told is the one that the value has"
    file = "impl/multi/pieces.py"
    old = "else _instead(node, given.axes, axes)"
    new = "else _instead(node, given.axes, given.axes)"


class TellsHowTheViewShouldLie(Edit):
    rule = "multi.transfer.instead+4"
    description = "of a transposed view the sharding is told that the view should have"
    file = "impl/multi/pieces.py"
    old = "tuple([lying[node.arg.index(axis)] for axis in range(len(before))])"
    new = "lying"


class AdvisesWithoutAReason(Edit):
    rule = "multi.transfer.instead+4"
    description = "of what was computed from tensors that lie in several ways one way is told"
    file = "impl/multi/pieces.py"
    old, new = "if len(found) != 1:", "if not found:"


class TellsTheWholeSum(Edit):
    rule = "multi.transfer.cut+2"
    description = "a result that is needed cut is said to need half the bytes of a whole one"
    file = "impl/multi/transfers.py"
    old, new = "nbytes // size * piece(size, count) * count", "nbytes"


class EachSumGoesAlone(Edit):
    rule = "collectives.together.bucket+2"
    description = "each sum is a transfer of its own"
    file = "impl/fusion/groups.py"
    old, new = "if self.bucket is None or before", "if self.bucket is not None or before"


class TheLeastNeededGoesFirst(Edit):
    rule = "collectives.together.bucket+2"
    description = "gradients do not wait while layers need other sums"
    file = "impl/multi/buckets.py"
    old, new = "like = max(self.waiting", "like = min(self.waiting"


class TheLastRoundsAreLost(Edit):
    rule = "collectives.together.equal"
    description = "sums that go together stop with the one that has the fewest rounds"
    file = "impl/collectives/running.py"
    old, new = "for each in zip_longest(*given)]", "for each in zip(*given)]"
