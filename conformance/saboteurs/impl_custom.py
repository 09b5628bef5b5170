"""Mistakes with kernels of the user: where they load and store, and what they are taken for."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class PartsAreStoredIntoNothing(Edit):
    rule = "custom.value.equal"
    description = "what a kernel stores in part begins as memory in which nothing stands"
    file = "impl/ranges/graph.py"
    old = "old = self.number_of[kept]"
    new = "old = self.number_of[kept] and None"


class LoadsSeeWhatWasStored(Edit):
    rule = "custom.value.equal"
    description = "a kernel may load from the memory that it stores into at another index"
    file = "impl/custom/in_place.py"
    old = "each.op is Ops.INDEX and each.src[0] is given and each.src[1:]"
    new = "each.op is Ops.LOAD and each.src[0] is given and each.src[1:]"


class OneResultIsOrdered(Edit):
    rule = "custom.value.equal"
    description = "of the results of a kernel nobody waits for the second"
    file = "impl/ranges/stages.py"
    old = "[write, *[access for access, _ in given.more]])"
    new = "[write, *[access for access, _ in given.more[:0]]])"


class EachResultHasAKernel(Edit):
    rule = "custom.kernel.alone"
    description = "a loop is another one in each kernel that is written"
    file = "impl/custom/notation.py"
    old = "renamed[each] = new_range(each.src[0], kind, number)"
    new = "renamed[each] = new_range(each.src[0], kind)"


class OutsideIsInside(Edit):
    rule = "custom.access.inside"
    description = "an index below 0 is taken as it is"
    file = "impl/custom/notation.py"
    old = "if least < 0:"
    new = "if least < -(1 << 62):"


class AssignsAreCopies(Edit):
    rule = "custom.assign.direct"
    description = "a result is stored, and then copied to where it is assigned"
    file = "impl/placement.py"
    old = "if len(users) == 1 and _is_assign(users[0])"
    new = "if len(users) == 0 and _is_assign(users[0])"


class LaterStoresAreForgotten(Edit):
    rule = "custom.assign.direct"
    description = "a kernel is taken to store in place what a later store of it loads"
    file = "impl/custom/in_place.py"
    old = "if any(given in store.toposort() for store in later):"
    new = "if any(given in store.toposort() for store in later[:0]):"


class HeldResultsAreOverwritten(Edit):
    rule = "custom.assign.direct"
    description = "a result that somebody holds lies where the next version is written"
    file = "impl/placement.py"
    old = "access.value in self.held and users[0].write.value in self.taken"
    new = "access.value in self.held and users[0].write.value in ()"


class GradientsAreZero(Edit):
    rule = "custom.gradient.given+2"
    description = "the user's function is given zeros"
    file = "impl/tensor/custom.py"
    old = "gradient if place == mine else"
    new = "gradient if place != mine else"


class AnyNumberOfGradients(Edit):
    rule = "custom.arguments.refused"
    description = "missing gradients are not noticed"
    file = "impl/tensor/custom.py"
    old = "if len(found) != len(results):"
    new = "if len(found) > len(results):"


class LanesHaveItemsThatThereAreNot(Edit):
    rule = "custom.text.value"
    description = "all lanes of the last group run a text, also where there are fewer items"
    file = "impl/render/texts.py"
    old = '[dialect.opened(f"item < {text.items}"), body'
    new = '[dialect.opened(), body'


class TextsBeginWithNothing(Edit):
    rule = "custom.text.value"
    description = "what a text reads and writes begins as memory in which nothing stands"
    file = "impl/tensor/custom.py"
    old = "kept = [n for n in stored if n in loaded or not _is_fresh(given[n])]"
    new = "kept = [n for n in stored if n in loaded and _is_fresh(given[n])]"


class NobodyWatchesOtherArguments(Edit):
    rule = "custom.text.watched"
    description = "elements that bounds leave out may be stored"
    file = "impl/realize/watched.py"
    old = "interval[0] * itemsize:_ZONE + interval[1] * itemsize]"
    new = "interval[0] * itemsize:_ZONE + (interval[1] + 1) * itemsize]"


class LinesAreCountedFromNothing(Edit):
    rule = "custom.text.line"
    description = "the first line of a text is the second one to a compiler"
    file = "impl/dialects/c.py"
    old = "#line 1 "
    new = "#line 2 "


class UndeclaredArgumentsAreTaken(Edit):
    rule = "custom.text.refused"
    description = "an argument may be neither read nor written"
    file = "impl/custom/texts.py"
    old = "if memory not in made.reads and memory not in made.writes:"
    new = "if memory not in made.reads and memory not in memories:"
