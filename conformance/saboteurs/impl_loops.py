"""Mistakes in loops: steps, bodies, derivatives, and what is refused."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class RowsAreTheFirst(Edit):
    rule = "loops.value.equal+2"
    description = "each step reads the first row"
    file = "impl/realize/looping.py"
    old = "rows[slot] = _Places(source, order * nbytes, nbytes)"
    new = "rows[slot] = _Places(source, order * 0, nbytes)"


class ReversedLoopsGoForward(Edit):
    rule = "loops.value.equal+2"
    description = "a reversed scan begins with the first row"
    file = "impl/realize/looping.py"
    old = "order = np.arange(count)[::-1] if loop.reverse"
    new = "order = np.arange(count)[::-1] if not count"


class AllRowsAreThere(Edit):
    rule = "loops.count.symbolic"
    description = "a scan over a symbolic number of rows runs for one of them"
    file = "impl/transforms/control.py"
    old, new = "return int(sizes[0] or 0)", "return 1 if is_symbolic(sizes[0]) else sizes[0] or 0"


class NumbersAreNobodys(Edit):
    rule = "loops.gradient.reverse+2"
    description = "a number that a transform differentiates for is one of the body"
    file = "impl/transforms/control.py"
    first = "test_a_number_that_the_body_reads_has_its_gradient"
    old, new = " or is_variable(part) ", " "


class TheSecondFunctionRuns(Edit):
    rule = "loops.value.equal+2"
    description = "a choice is always the second one"
    file = "impl/realize/looping.py"
    old = "self.body(0 if _truth(chosen) else 1)"
    new = "self.body(1 if _truth(chosen) else 1)"


class BodiesAreForgotten(Edit):
    rule = "loops.body.once"
    description = "a body has constants of its own in each call, so that it is planned again"
    file = "impl/gradient/loops.py"
    old = "renamed = {old: param(slot, old) for slot, (old, _) in enumerate(every)}"
    new = "renamed = {old: old for slot, (old, _) in enumerate(every)} and " \
        "{old: param(slot, old).rtag(next(_marks)) for slot, (old, _) in enumerate(every)}"


class BodiesKeepWhatWentIn(Edit):
    rule = "schedule.plan.slots"
    description = "a body that has run keeps the memory of its inputs and results"
    first = "test_a_body_keeps_no_memory"
    file = "impl/realize/looping.py"
    old = "for number in range(len(self.segments.places)):"
    new = "for number in range(sum(map(len, (arena[2] for arena in self.arenas)))):"


class BodiesKeepTemporaries(Edit):
    rule = "schedule.plan.slots"
    description = "a body that has run keeps the memory of its temporaries"
    first = "test_a_body_keeps_no_memory"
    file = "impl/realize/looping.py"
    old = "for number in range(len(self.segments.places)):"
    new = "for number in range(len(self.given)):"


class BodiesAreCompiledOnTheWay(Edit):
    rule = "realize.failure.left+2"
    description = "a body is planned and compiled when the turn of its loop has come"
    first = "test_a_compiler_that_fails_at_a_body_changes_nothing"
    file = "impl/realize/run.py"
    old = "if kernel.loop is not None:"
    new = "if False:"


class StepsDrawTheSame(Edit):
    rule = "loops.random.step+2"
    description = "every step draws the numbers of the first"
    file = "impl/transforms/control.py"
    old = "replaced[node] = nodes.add(made, along)"
    new = "replaced[node] = nodes.add(made, nodes.scale(along, 0))"


class SumsAreTheLast(Edit):
    rule = "loops.gradient.reverse+2"
    description = "of what every step reads the gradient is that of the first step"
    file = "impl/gradient/loops.py"
    old = "[add(sums[slot], of(slot)) for slot in whole]"
    new = "[of(slot) for slot in whole]"


class GradientsGoForward(Edit):
    rule = "loops.gradient.reverse+2"
    description = "the gradient of a scan goes from the first step to the last"
    file = "impl/gradient/loops.py"
    old = "loop.count, not loop.reverse)"
    new = "loop.count, loop.reverse)"


class CarriesDoNotChange(Edit):
    rule = "loops.gradient.forward"
    description = "the change of a carry is that of the carry before"
    file = "impl/gradient/loops.py"
    old = "found = push_forward(roots, {params[slot]: marks[slot] for slot in changing})"
    new = "found = push_forward(roots, {params[slot]: marks[slot] for slot in list(changing)[1:]})"


class DtypesMayChange(Edit):
    rule = "loops.arguments.refused+4"
    description = "a carry may become another dtype"
    file = "impl/transforms/control.py"
    old = "if mine.dtype is not theirs.dtype:  # r[impl loops.arguments.refused+4]"
    new = "if mine.dtype.kind != theirs.dtype.kind:  # r[impl loops.arguments.refused+4]"


class ProductsAreOfOneRow(Edit):
    rule = "loops.gradient.product"
    description = "a product after the loop adds up the steps alone, and not their rows"
    file = "impl/gradient/loops.py"
    old = "axes = (0, *(axis + 1 for axis in self.axes))"
    new = "axes = (0, *self.axes)"


class ProductsAreAddedUp(Edit):
    rule = "loops.gradient.product"
    description = "gradients are added up in the loop, whatever they are"
    file = "impl/gradient/loops.py"
    old = "if sum(map(_elements, more)) < _elements(gradient):"
    new = "if sum(map(_elements, more)) < 0:"


class RepetitionsAreStored(Edit):
    rule = "loops.outside.once"
    description = "what the body repeats is repeated before the loop, and stored"
    file = "impl/transforms/control.py"
    old = "for node in map(_not_repeated, wanted):"
    new = "for node in wanted:"


class NothingIsComputedBefore(Edit):
    rule = "loops.invariant.once"
    description = "what is the same in every iteration is computed in each"
    file = "impl/realize/invariant.py"
    old = "return node if made_of and"
    new = "return node if not made_of and"


class MatricesLieAsTheyDid(Edit):
    rule = "loops.invariant.once"
    description = "a matrix that rows are multiplied by is turned around in each iteration"
    file = "impl/realize/invariant.py"
    first = "test_a_matrix_lies_as_its_product_reads_it"
    old, new = "or lies[-1] not in axes", "or lies[-1] in axes"


class RowsAreTheSame(Edit):
    rule = "loops.invariant.once"
    description = "what is made of the row of a sequence is computed once"
    file = "impl/realize/looping.py"
    old = "changing = range(loop.carries + loop.sequences)"
    new = "changing = range(loop.carries)"


class WhatBeginsIsCopied(Edit):
    rule = "loops.carry.stacked"
    description = "what an iteration begins with is copied to where it is stacked"
    file = "impl/realize/looping.py"
    old = "and node.arg[0] < loop.carries and _nbytes(node):"
    new = "and node.arg[0] < 0 and _nbytes(node):"


class CarriesLieInTheirOwnRow(Edit):
    rule = "loops.carry.stacked"
    description = "a carry lies where the iteration has begun that has made it"
    file = "impl/realize/looping.py"
    old = "after = order + (-1 if self.loop.reverse else 1)"
    new = "after = order + (-1 if self.loop.reverse else 0)"


class CarriesLieWhereNobodyStores(Edit):
    rule = "loops.carry.stacked"
    description = "a carry moves to where another one begins, which no kernel stores"
    file = "impl/realize/looping.py"
    first = "test_a_carry_moves_to_another_and_is_stacked"
    apart = True  # a process in which others were made before does not make it, now and then
    old, new = "if root not in begun:", "if root not in ():"


class AnotherCountLiesAlike(Edit):
    rule = "loops.carry.stacked"
    description = "with another number of iterations rows lie where they are aligned, too"
    file = "impl/realize/looping.py"
    first = "test_rows_that_lie_elsewhere_with_another_count"
    old = "loop.outputs, direct, place,"
    new = "loop.outputs, place,"


class IterationsAreCalls(Edit):
    rule = "loops.iterations.call"
    description = "each iteration is a call"
    file = "impl/realize/looping.py"
    old = "if most < 1 or not isinstance(table, Table):"
    new = "if most > 0 or not isinstance(table, Table):"


class CallsBeginAgain(Edit):
    rule = "loops.iterations.call"
    description = "the second call for a scan runs the iterations of the first"
    file = "impl/realize/looping.py"
    old = "along = ways[number][begin:begin + most]"
    new = "along = ways[number][0:most]"


class ProductsAreComputedAgain(Edit):
    rule = "loops.gradient.kept"
    description = "what a scan has stacked is computed again for its gradient"
    first = "test_products_of_a_step_are_kept"
    file = "impl/gradient/loops.py"
    old = "if root >= loop.carries and loop.roots[root].op not in"
    new = "if root < 0 and loop.roots[root].op not in"


class AllProductsAreKept(Edit):
    rule = "loops.gradient.kept"
    description = "a scan keeps its products, however many numbers they are"
    first = "test_products_of_a_step_are_kept"
    file = "impl/gradient/loops.py"
    old = "return found if sum(map(_elements, found)) <= most else []"
    new = "return found if most else []"
