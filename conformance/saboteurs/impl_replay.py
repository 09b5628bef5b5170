"""Mistakes in captures and replays, made inside `impl.replay`."""
from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from conformance.saboteurs.threats import OutputsAreShared

Function = Callable[..., Any]


class OutputsStayWhereTheyWere(OutputsAreShared):
    rule = "replay.output.fresh"


class ResultsTakeTurns(Edit):
    rule = "replay.output.again+3"
    description = "a replay holds the memory of the results before until it has made the new ones"
    first = "test_an_output_has_the_memory_of_the_one_before"
    file = "impl/realize/prepared.py"
    old, new = "if memory is None:\n            return", "if memory or 1:\n            return"


class ResultsAreWrittenAgain(Edit):
    rule = "replay.outputs.distinct"
    description = "a replay writes its result where the last one is, whoever holds it"
    first = "test_what_is_held_in_any_way_stays"
    file = "impl/realize/prepared.py"
    old, new = "alone = getrefcount(memory) == holds + NAMED", "alone = holds > 0"


class PlacedBeforeItIs(Edit):
    rule = "realize.failure.next+2"
    description = "memory counts as put in place before it is, also for the call after an interrupt"
    first = "test_an_interrupt_while_memory_is_put_in_its_place"
    file = "impl/realize/prepared.py"
    old = "self.placed[number] = None  # r[impl realize.failure.next+2]"
    new = "self.placed[number] = memory"


class SizesCountBeforeTheyAre(Edit):
    rule = "realize.failure.next+2"
    description = "a transfer has its new size before what was prepared for the old one is gone"
    first = "test_an_interrupt_while_a_transfer_gets_another_size"
    file = "impl/collectives/lanes.py"
    old = "self._renew(entry)  # first: an interrupt may come in between\n"
    new = "entry.nbytes = nbytes; self._renew(entry)\n"


class PlacedWhereItWas(Edit):
    rule = "realize.failure.next+2"
    description = "what was in place before an interrupt counts as being there still"
    first = "test_an_interrupt_while_memory_is_put_in_its_place"
    file = "impl/realize/prepared.py"
    old, new = "self.placed[number] = None  # r[impl realize.failure.next+2]", "pass"


class ResultsInheritWishes(Edit):
    rule = "replay.output.alone"
    description = "whoever requires a gradient of a result requires it of the next one, too"
    first = "test_what_somebody_has_left_in_a_result_is_in_no_other"
    file = "impl/realize/prepared.py"
    old, new = 'f"and not {weak}({buffer}) and {weak}({leaf}) == 1 "', 'f"and {weak}({leaf}) == 1 "'


class ResultsAreAsOldAsBefore(Edit):
    rule = "replay.shortcut.same+3"
    description = "a result that is handed out again counts as made when it was made first"
    first = "test_a_result_that_is_handed_out_again_is_new"
    file = "impl/realize/prepared.py"
    old = "return [*words, f\"if again: {born_again('made', name)}\"]"
    new = "return words"


class ResultsInheritReaders(Edit):
    rule = "replay.output.alone"
    description = "an expression that waits reads the result of the next call"
    first = "test_what_somebody_has_left_in_a_result_is_in_no_other"
    file = "impl/realize/prepared.py"
    old, new = "and {counted}({leaf}) == {NAMED + 1}", "and {counted}({leaf}) > 0"


class PartsOfMeshesAreNotHeld(Edit):
    rule = "replay.output.again+3"
    description = "a result on a mesh is written again while a part of it is held"
    first = "test_memory_of_which_a_part_is_held_is_not_unused"
    file = "impl/realize/prepared.py"
    old, new = "whole = memory.members[0] is memory", "whole = True"


class ModelsAreCopied(ImplPatch):
    rule = "replay.wrapper.attributes"
    description = "the attributes of a captured model are those of a copy"
    target = "impl.replay.jit:TinyJit.__getattr__"

    def replacement(self, original: Function) -> Function:
        return lambda captured, name: original(SimpleNamespace(
            function=copy.copy(captured.__dict__["function"])), name)


class CapturesForgetForEver(ImplPatch):
    rule = "replay.gradient.eager"
    description = "what was computed before a capture is not known as its expression any more"
    first = "test_an_argument_that_is_computed_for_the_call"
    target = "impl.replay.capture:Capture.end"

    def replacement(self, original: Function) -> Function:
        return lambda capture: None


class RulesAreForgotten(Edit):
    rule = "replay.gradient.eager"
    description = "a gradient that a rule gives a value is lost where the value leaves a call"
    first = "test_a_gradient_goes_through_what_a_call_returned"
    file = "impl/replay/history.py"
    old, new = "and not isinstance(node.tag, Ruled):", "and node.tag:"


class FrozenLooksLikeWanted(Edit):
    rule = "replay.guard.complete"
    description = "a call is replayed where what an argument was computed from is frozen now"
    first = "test_a_body_that_asks_what_requires_a_gradient"
    file = "impl/tensor/parameters.py"
    old, new = "return DEPENDS if wants_gradient(tensor.uop) else FROZEN", "return DEPENDS"


class DisturbedForEver(Edit):
    rule = "replay.thread.isolated+2"
    description = "each call is captured, though each capture is disturbed"
    first = "test_captures_that_are_always_disturbed_become_rare"
    file = "impl/replay/jit.py"
    old, new = "self._waits = 2 ** min(self._disturbances, 10) - 2", "self._waits = 0"


class NewParametersAreForgotten(Edit):
    rule = "replay.gradient.eager"
    description = "a result of what a parameter has become in a call has no gradient for it"
    first = "test_a_result_of_what_a_parameter_has_become"
    file = "impl/replay/capture.py"
    old, new = "if new and not leading_to(below(others), new)", "if False and leading_to(new, new)"


class MovementsAreKnownOfStandIns(Edit):
    rule = "replay.gradient.eager"
    description = "a movement of an argument that the captured call returned is one of its stand-in"
    first = "test_a_result_that_is_a_movement_of_a_parameter"
    file = "impl/replay/history.py"
    old, new = "known = self.root if anew else shown_value", "known = shown_value"


class ArgumentsComeFromNowhere(Edit):
    rule = "replay.arguments.depending"
    description = "a gradient inside of a capture ends at the arguments"
    file = "impl/replay/stand_ins.py"
    first = "test_a_gradient_inside_goes_through_what_an_argument_was_computed_from"
    old, new = "and (leaf.late is not None or depends):\n", "and False:\n"


class OverwrittenStatesTellNothing(Edit):
    rule = "replay.gradient.eager"
    description = "a gradient is 0 through the value of a state that a replay has overwritten"
    file = "impl/replay/history.py"
    first = "test_a_state_that_depends_on_a_parameter"
    old = "return self.overwritten(root, leaf), 0, ()"
    new = "return buffer.reference(), version, shape"


class FrozenParametersHaveNoPast(Edit):
    rule = "replay.gradient.eager"
    description = "what a replay computes of a frozen parameter never requires a gradient again"
    file = "impl/replay/capture.py"
    first = "test_what_was_computed_of_something_frozen"
    old, new = "if h._parameter is not None", "if h._parameter"


class ArgumentsKeepTheirHistory(Edit):
    rule = "replay.gradient.eager"
    description = "the gradient of a value that a captured call gave an argument is that of before"
    file = "impl/tensor/base.py"
    first = "test_an_argument_that_is_given_another_value"
    old, new = "leaf.late is None and in_memory(node) is leaf", "leaf.late is None and (True)"


class BodiesCountTwice(Edit):
    rule = "replay.guard.state"
    description = "a body that runs again on the arguments themselves writes to places twice"
    file = "impl/replay/jit.py"
    first = "test_a_body_reaches_its_argument_by_another_name_and_counts"
    old, new = "if call.shared and reads.written:", "if False:"


class GradientsThroughArgumentsAreReplayed(Edit):
    rule = "replay.arguments.depending"
    description = "a gradient through a tensor from outside is that of the capture for ever"
    file = "impl/replay/capture.py"
    first = "test_a_gradient_inside_goes_through_what_an_argument_was_computed_from"
    old, new = "for leaf in reached(root, ends):", "for leaf in ():"


class DependentArgumentsHaveOneForm(Edit):
    rule = "replay.arguments.depending"
    description = "an argument that depends on a parameter is like one that does not"
    file = "impl/replay/arguments.py"
    first = "test_what_requires_a_gradient"
    old, new = "depends = (found,) if found else ()", "depends = ()"


class WhatIsDetachedRequiresAGradient(Edit):
    rule = "replay.arguments.depending"
    description = "all that is computed by a parameter requires a gradient in a replay"
    file = "impl/replay/history.py"
    first = "test_what_requires_a_gradient"
    old, new = "own.isdisjoint(slope_sources(node))", "own.isdisjoint(sources_of(node))"


class WhatIsComputedForOthersRequiresAGradient(Edit):
    rule = "replay.arguments.depending"
    description = "what a capture computes before it begins requires a gradient"
    file = "impl/tensor/base.py"
    first = "test_what_others_compute_requires_no_gradient_for_that"
    old, new = "(as_written, needed, weak", "(as_written, True, weak"


class NobodyAsksWhichGradientsAreOne(Edit):
    rule = "replay.guard.complete"
    description = "a body that asks whether two gradients are one is answered as in the capture"
    first = "test_which_tensor_a_gradient_is"
    file = "impl/replay/capture.py"
    old, new = "        if reads.gradients:  # r", "        if False:  # r"


class GradientsWithNamesAreFollowed(Edit):
    rule = "replay.guard.complete"
    description = "a gradient that the function knows by a name is looked for at its tensor"
    first = "test_a_gradient_with_a_name_of_its_own"
    file = "impl/replay/capture.py"
    old, new = " or id(gradient) in self.reads.tensors:", ":"


class GradientsOfAnyFormAreRead(Edit):
    rule = "replay.guard.complete"
    description = "a gradient of another shape is read as the one that there was"
    first = "test_gradients_that_are_only_read_are_those_that_their_tensors_have"
    file = "impl/replay/states.py"
    old, new = "return found if found is not None and self._form(found) == self.form else None", \
        "return found"


class SharedGradientsHaveOnePlace(Edit):
    rule = "replay.guard.complete"
    description = "a gradient of two tensors is looked for at one of them only"
    first = "test_a_gradient_of_two_tensors_is_looked_for_at_each"
    file = "impl/replay/capture.py"
    old, new = "if isinstance(owner, GradientOf) or owner() is not gradient)]", \
        "if owner() is not gradient)]"


class ShortcutsKnowThemselves(Edit):
    rule = "replay.output.again+3"
    description = "the function of a shortcut keeps the memory of its capture after a reset"
    first = "test_a_capture_gives_its_memory_back_at_once"
    file = "impl/following/reads.py"
    old, new = 'self.space.pop("hold")', 'self.space["hold"]'


class HandlersReplayInShortcuts(Edit):
    rule = "replay.call.interrupted"
    description = "a captured function is replayed in the middle of a call that took a shortcut"
    first = "test_a_call_inside_of_a_replay_runs_as_it_is"
    file = "impl/replay/jit.py"
    old, new = "lock.launching = launching = True", "lock.launching = launching = False"


class ShortcutsTellNoExpression(Edit):
    rule = "replay.gradient.eager"
    description = "what a call that is one function returns was computed from nothing"
    file = "impl/replay/results.py"
    old, new = "    if expression is not None:  # as", "    if False:  # as"


class ShortcutsForgetDependents(Edit):
    rule = "replay.arguments.depending"
    description = "what a call that is one function returns depends on no parameter"
    file = "impl/replay/results.py"
    old, new = 'f"if dependent: {name(note_dependent)}(leaf)"', 'f"if dependent: {name(id)}(leaf)"'


class HandlersReplay(Edit):
    rule = "replay.call.interrupted"
    description = "a captured function is replayed while its kernels are being launched"
    first = "test_a_call_inside_of_a_replay_runs_as_it_is"
    file = "impl/replay/jit.py"
    old, new = "with session.capturing.inlining():  # r", "with lock.mutex:  # r"


class StatesMakeResultsForget(Edit):
    rule = "replay.gradient.eager"
    description = "a result holds nothing where the function writes to any state"
    first = "test_a_result_beside_a_state_that_is_written_holds_its_arguments"
    file = "impl/replay/history.py"
    old, new = "if not (why or bits & written)", "if not (why or every & written)"


class WhatSharesMemoryStaysTogether(ImplPatch):
    rule = "replay.state.parted"
    description = "a capture does not part tensors that share memory"
    target = "impl.replay.capture:part"

    def replacement(self, original: Function) -> Function:
        return lambda tensors: None


class ArgumentsAreNotParted(ImplPatch):
    rule = "replay.state.parted"
    description = "an argument may share memory with the state"
    first = "test_an_output_that_is_fed_back"
    target = "impl.replay.states:States.part"

    def replacement(self, original: Function) -> Function:
        return lambda states, tensors, used: None


class ShortcutsLookAtNoShape(ImplPatch):
    rule = "replay.shortcut.same+3"
    description = "a call takes a shortcut with an argument of any shape"
    target = "impl.replay.guards:identical"

    def replacement(self, original: Function) -> Function:
        return lambda first, second: True


class ScheduledArgumentsAreRead(Edit):
    rule = "replay.shortcut.same+3"
    description = "an argument that was scheduled, and whose kernel waits, is read as it is"
    first = "test_arguments_that_are_not_computed_or_views"
    file = "impl/replay/recording.py"
    old, new = "if realize.session.scheduled or any(", "if any("


class StatesStayWhereTheyWere(ImplPatch):
    rule = "replay.shortcut.same+3"
    description = "a call whose arguments are alike finds the states where they were first found"
    first = "test_what_writes_draws_or_returns_an_argument"
    target = "impl.replay.states:States.find"

    def replacement(self, original: Function) -> Function:
        known: dict[Any, Any] = {}

        def find(states: Any, buffer: Any, size: int) -> Any:
            return known.setdefault((id(states), buffer), original(states, buffer, size))
        return find


class ShortcutsForgetStates(ImplPatch):
    rule = "replay.shortcut.same+3"
    description = "a shortcut reads the states where they were when it was made"
    target = "impl.replay.states:States.owners"

    def replacement(self, original: Function) -> Function:
        return lambda states: []


class ReadersOfSettledStatesAreForgotten(Edit):
    rule = "replay.readers.kept"
    description = "a state is overwritten where it lies, whoever waits for its value"
    first = "test_states_that_lie_where_they_lay"
    file = "impl/replay/settled.py"
    old, new = "and [*map(getrefcount, leaves)] == self.alone", "and leaves"


class OtherNamesOfSettledStatesAreForgotten(Edit):
    rule = "replay.readers.kept"
    description = "a state is overwritten where it lies, also where it is seen in another shape"
    first = "test_states_that_lie_where_they_lay"
    file = "impl/replay/settled.py"
    old, new = "[len(buffer.leaves) for buffer in self.written] == self.one", "bool(found)"


class SettledStatesStayWhereTheyWere(Edit):
    rule = "replay.shortcut.same+3"
    description = "a state that was given other memory is looked for where it was"
    first = "test_states_that_lie_where_they_lay"
    file = "impl/replay/settled.py"
    old, new = "return [arg[0] for arg in found] == buffers", "return bool(found)"


class StatesAreArguments(Edit):
    rule = "replay.guard.state"
    description = "a state is given as an argument, too, to a call that overwrites it where it lies"
    first = "test_a_state_that_nobody_could_follow_is_an_argument"
    file = "impl/replay/guards.py"
    old, new = 'test.add(f"b{name} in {{}}", used)', "pass"


class ArgumentsLieAnyhow(Edit):
    rule = "replay.shortcut.same+3"
    description = "a value that is cut is taken for the copies that an argument was"
    first = "test_states_on_a_mesh_lie_where_they_lay"
    file = "impl/replay/guards.py"
    old, new = 'b{name}.shardings.get(s{name}) != {{}}"', 'b{name}.shardings is {{}}"'


class SettledStatesAreReadHalfWritten(Edit):
    rule = "realize.failure.left+2"
    description = "a state that was being overwritten where it lay can be read"
    first = "test_a_call_on_settled_states_that_ends_early"
    file = "impl/replay/settled.py"
    old, new = "return self.written if self.begun else []", "return []"


class KnownValuesAreNotCaptured(ImplPatch):
    rule = "replay.capture.whole"
    description = "what was computed before a capture is not computed in it"
    target = "impl.replay.capture:forget_realized"

    def replacement(self, original: Function) -> Function:
        return lambda *which: ()


class PendingWorkIsCaptured(ImplPatch):
    rule = "replay.pending.before"
    description = "what was pending is computed in the capture"
    target = "impl.replay.capture:_realize_all"

    def replacement(self, original: Function) -> Function:
        return lambda tensors: None


class VariablesStayAsTheyWere(ImplPatch):
    rule = "replay.sizes.follow+3"
    description = "a bound variable has the value of the capture"
    target = "impl.replay.recording:Recording._follows"

    def replacement(self, original: Function) -> Function:
        def follows(recording: Any, bind: Any, paths: Any) -> Any:
            return None if bind in paths else original(recording, bind, paths)
        return follows


class RandomNumbersComeAgain(ImplPatch):
    rule = "replay.random.advances"
    description = "every replay draws the random numbers of the capture"
    target = "impl.replay.recording:Recording._follows"

    def replacement(self, original: Function) -> Function:
        def follows(recording: Any, bind: Any, paths: Any) -> Any:
            found = original(recording, bind, paths)
            return None if isinstance(found, int) else found
        return follows


class AliasesAreNotCompared(ImplPatch):
    rule = "replay.arguments.form"
    description = "which arguments are one tensor is not looked at"
    target = "impl.replay.arguments:aliases_of"

    def replacement(self, original: Function) -> Function:
        return lambda leaves: []


class ArgumentsAreOneByTheirMemory(Edit):
    rule = "replay.arguments.form"
    description = "two arguments that share memory are taken for one tensor that is given twice"
    first = "test_two_tensors_of_one_value_are_not_one_tensor_twice"
    file = "impl/replay/arguments.py"
    old, new = "() if same == path else", "() if path else"


class ViewsAloneAreWritten(ImplPatch):
    rule = "replay.failure.done+2"
    description = "what a call that is not recorded assigns to a view does not reach its tensor"
    first = "test_a_view_of_what_was_given_another_value"
    target = "impl.replay.stand_ins:StandIns.see"

    def replacement(self, original: Function) -> Function:
        return lambda call: None


class GradientsAreThoseOfTheCapture(ImplPatch):
    rule = "replay.guard.complete"
    description = "a replay uses the gradient that a tensor had in the capture"
    target = "impl.replay.capture:Capture._guard_gradients"

    def replacement(self, original: Function) -> Function:
        return lambda *words: None


class GradientsAreReturnedAnew(Edit):
    rule = "replay.state.eager"
    description = "what a replay returns is not the gradient that it leaves, but looks like it"
    first = "test_a_gradient_that_is_returned_is_that_of_its_tensor"
    file = "impl/replay/results.py"
    old, new = "held.grad if held is not None and leaf.gradient", "None if leaf.gradient"


class StandInsAloneRequireGradients(Edit):
    rule = "replay.arguments.depending"
    description = "an argument of which a captured call asks a gradient does not require one"
    first = "test_an_argument_that_is_made_a_parameter_inside"
    file = "impl/replay/stand_ins.py"
    old = "                tensor._parameter = True\n                register_parameter(tensor)"
    new = "                pass"


class ArgumentsMayBeStates(ImplPatch):
    rule = "replay.guard.state"
    description = "an argument that the function uses by another name, too, is not noticed"
    first = "test_what_was_recorded_of_a_view_is_nothing_of_other_tensors"
    target = "impl.replay.states:States.may_be"

    def replacement(self, original: Function) -> Function:
        return lambda states, tensors, before: True


class ValuesAreReadInCaptures(ImplPatch):
    rule = "replay.read.traced"
    description = "a value that is read in a capture is that of the capture for ever"
    target = "impl.realize.session:Session.refuse_capture"

    def replacement(self, original: Function) -> Function:
        return lambda *words: None


class KeywordsStandInOrder(ImplPatch):
    rule = "replay.arguments.form"
    description = "keywords are compared in the order in which they were written"
    target = "impl.replay.recording:expected"

    def replacement(self, original: Function) -> Function:
        return lambda signature, function: signature


class OnlyReturnedValuesAreRecorded(Edit):
    rule = "replay.effects.all"
    description = "an effect that is still pending when the function returns is not recorded"
    file = "impl/replay/capture.py"
    old, new = "touched = [h for h in living() if isinstance(h, Tensor) and known", \
        "touched = [h for h in living() if h in returned.values() and known"


class ReadersAreComputedForThemselves(Edit):
    rule = "replay.readers.together"
    description = "what waits for a state is computed after the arguments, all of it again"
    first = "test_a_loss_that_waits_is_computed_with_the_gradients"
    file = "impl/replay/states.py"
    old, new = "[*self.changed(), *arguments])[0] if written else []", \
        "[*self.changed(), *arguments])[0] if not written else []"


class ReadersOfAViewAreForgotten(Edit):
    rule = "replay.readers.kept"
    description = "who holds the old value of what a replay overwrites sees the new one"
    file = "impl/replay/states.py"
    old, new = "kept |= {leaf.arg[0]} & written", "kept |= set()"


class KeepsTheFirstPlace(Edit):
    rule = "replay.readers.kept"
    description = "who holds an old value keeps it only where the state has not moved since"
    file = "impl/replay/states.py"
    old, new = "if current is buffer:", "if current is buffer and captured is buffer:"


class TuplesAreLists(Edit):
    rule = "replay.arguments.call"
    description = "a tuple in an argument may be a list at the next call"
    file = "impl/replay/arguments.py"
    old = "return (kind.__name__ if kind in EXACT else"
    new = 'return ("list" if kind in EXACT else'


class TheOldFunctionIsCalled(Edit):
    rule = "replay.guard.complete"
    description = "a captured method is found by a number that another one had"
    file = "impl/replay/jit.py"
    first = "test_a_method_that_is_given_another_function"
    old, new = "known.function != bound:", "known.function.__self__ is not instance:"


class StandInsAreLeftOutside(Edit):
    rule = "replay.guard.complete"
    description = "what a body keeps of an argument in a call that is captured is a copy"
    file = "impl/replay/jit.py"
    first = "test_what_is_left_outside_is_the_argument"
    old, new = "            call.leave(reads)\n", ""


class CapturesHaveNoLimit(Edit):
    rule = "replay.entries.limit"
    description = "there is a further capture for each call that differs"
    file = "impl/replay/jit.py"
    old, new = "        return len(self.entries) >= int(settings.get(\"JIT_ENTRIES\"))\n", \
        "        return False\n"


class RoomIsFoundTwice(Edit):
    rule = "replay.entries.limit"
    description = "a thread that had room for a capture, and waited, does not look again"
    file = "impl/replay/jit.py"
    first = "test_two_captures_at_once_are_no_more_than_there_may_be"
    old, new = "            if not self._is_traced():\n", "            if True:\n"


class BoundVariablesAreNodes(ImplPatch):
    rule = "symbolic.bound.number"
    description = "a bound variable equals no number"
    target = "impl.ir:BoundVariable.__eq__"

    def replacement(self, original: Function) -> Function:
        return lambda node, other: node is other


class CapturedFunctionsStayInTheirProcess(Edit):
    rule = "replay.pickle.again"
    description = "a captured function that is defined by its name is copied as an object"
    file = "impl/replay/jit.py"
    old, new = "name) is self:", "name) is None:"


class GeneratorsAreCaptured(Edit):
    rule = "replay.refused.kind"
    description = "a generator is captured: its result is one that has been used up"
    file = "impl/replay/jit.py"
    old, new = "(inspect.isgeneratorfunction, \"generator\"),", ""


class OthersEffectsAreRecorded(Edit):
    rule = "replay.thread.isolated+2"
    description = "another thread may work during the turn of a capture"
    file = "impl/effects/turns.py"
    old, new = "while self.owner not in (0, me):", "while False:"


class WaitsMakeNoDifference(Edit):
    rule = "replay.thread.isolated+2"
    description = "a turn into which another thread has come is not marked"
    file = "impl/effects/turns.py"
    old, new = "self.disturbed, self.guest = True, 1", "self.guest = 1"


class CapturesInsideACapture(Edit):
    rule = "replay.nested.inlined+2"
    description = "a captured function counts its calls and is replayed inside another one"
    file = "impl/replay/jit.py"
    old = "if session.capturing.inlined or not mode.captures:"
    new = "if not mode.captures:"


class WrappersKeepWhatIsSet(Edit):
    rule = "replay.wrapper.attributes"
    description = "what is set on a captured model stays on the wrapper"
    first = "test_what_is_set_on_a_captured_model_is_set_on_the_model"
    file = "impl/replay/jit.py"
    old, new = 'if "_told" not in own or name in own or', "if True or"


class DataIsHandedOut(Edit):
    rule = "replay.outputs.distinct"
    description = "replays return the memory of data that the body made a tensor of"
    first = "test_data_that_a_body_makes_a_tensor_of"
    file = "impl/replay/capture.py"
    old, new = "if any(buffer_and_shape(tensor)[0] in data for tensor", "if any(False for tensor"


class ClassesAreTheirNames(Edit):
    rule = "replay.arguments.call"
    description = "an argument of another class with the same name is one of that class"
    first = "test_classes_of_one_name"
    file = "impl/replay/arguments.py"
    old, new = "_Class(kind), *items", "kind.__name__, *items"


class AttributesAreNoFields(Edit):
    rule = "replay.arguments.call"
    description = "what a dataclass holds besides its fields is that of the capture"
    first = "test_attributes_that_are_no_fields"
    file = "impl/following/records.py"
    old, new = '*_slots(kind), *getattr(value, "__dict__", ())', ""


class ClassesOfTheUsersAreTheLibrarys(Edit):
    rule = "replay.arguments.call"
    description = "a dict or a tensor of a class of the user's own is a plain one"
    first = "test_a_class_of_the_users_own_is_no_other_one"
    file = "impl/replay/jit.py"
    old, new = "        if arguments.strange:\n", "        if False:\n"


class ContainersHaveOneName(Edit):
    rule = "replay.guard.state"
    description = "a list that the function also knows by another name is an argument as any other"
    first = "test_a_container_that_the_function_knows_by_another_name"
    file = "impl/following/reads.py"
    old, new = "if isinstance(each, EXACT) or is_record(each))))", "if False)))"


class FunctionsAreHandedOut(Edit):
    rule = "replay.guard.complete"
    description = "a function that the captured call made is what all replays return"
    first = "test_functions_that_a_body_makes_are_made_at_each_call"
    file = "impl/replay/capture.py"
    old = "        return held_by_name(part.__module__ or \"\", part.__qualname__) is part\n"
    new = "        return True\n"


class StrangeResultsTellOfStandIns(Edit):
    rule = "replay.guard.complete"
    description = "a function that a call returned while it was captured knows copies of arguments"
    first = "test_a_pullback_is_that_of_its_call"
    file = "impl/replay/jit.py"
    old, new = "if capture.is_strange and not capture.changed", "if False and not capture.changed"


class SizesAreThoseOfTheCapture(Edit):
    rule = "replay.sizes.follow+3"
    description = "a size or a bound variable that is returned is that of the capture"
    first = "test_sizes_that_are_returned"
    file = "impl/replay/results.py"
    old, new = "if arguments is None or not isinstance(value, (UOp, Size)):", "if True:"


class PullbacksReadStates(Edit):
    rule = "replay.state.parted"
    description = "a pullback that was made outside reads what the tensors are now"
    first = "test_a_pullback_from_outside_knows_what_tensors_were"
    file = "impl/following/calls.py"
    old = 'if any(pure.home_of(type(each)).startswith("impl.transforms") for'
    new = 'if any(False for'


class ParametersOfACallAreForgotten(Edit):
    rule = "replay.gradient.eager"
    description = "what depends on a parameter that the body has made depends on none in a replay"
    first = "test_parameters_that_a_body_makes"
    file = "impl/replay/capture.py"
    old, new = "if made and not self.undone:", "if False:"


class ResultsStayViews(Edit):
    rule = "replay.output.own+2"
    description = "what a captured call returns is still a view of the argument"
    file = "impl/replay/capture.py"
    old, new = "for tensor in fresh.values():", "for tensor in ():"


class ErrorsTakeBack(Edit):
    rule = "replay.failure.done+2"
    description = "an argument that was assigned before the capture failed is what it was"
    file = "impl/replay/jit.py"
    old, new = "            call.write_back()\n", "            pass\n"


class ResultsHaveNoHistory(ImplPatch):
    rule = "replay.gradient.eager"
    description = "what a replay returns is a value from nowhere"
    target = "impl.replay.history:Expression.note"

    def replacement(self, original: Function) -> Function:
        return lambda expression, leaf, *standing: None


class ArgumentsForgetWhatTheyWere(Edit):
    rule = "replay.gradient.eager"
    description = "an argument that is returned as it is comes from nowhere"
    file = "impl/replay/history.py"
    first = "test_an_argument_that_is_returned_as_it_is"
    old, new = "if leaf.late is not None and known.op is Ops.BUFFER:", "if False:"


class GradientsHaveTheValuesOfTheCapture(Edit):
    rule = "replay.gradient.eager"
    description = "a gradient of what a replay returned uses the random numbers of the capture"
    file = "impl/replay/history.py"
    old, new = "start - begun + int(bind.src[1].arg)\n", "int(bind.src[1].arg)\n"


class LostWaysAreNoWays(Edit):
    rule = "replay.gradient.eager"
    description = "a gradient through an argument that nobody holds any more is 0"
    file = "impl/tensor/autograd.py"
    old, new = "if isinstance(custom, Lost) and custom.others:", "if False:"


class ResultsHoldAllCallsBefore(Edit):
    rule = "replay.gradient.eager"
    description = "a state that goes through many calls holds all values that it had"
    file = "impl/replay/history.py"
    old = "        if held and lasts:\n            return root, 0, ()\n"
    new = "        return root, 0, ()\n"


class TransformsReplay(Edit):
    rule = "replay.nested.inlined+2"
    description = "a transform calls a captured function as if it had values"
    file = "impl/transforms/tracing.py"
    old = "return session.capturing.inlining()"
    new = "from contextlib import nullcontext; return nullcontext()"


class ExplanationsAreLong(Edit):
    rule = "replay.explain.short"
    description = "an explanation names every place, whether it was asked to or not"
    file = "impl/replay/recording.py"
    first = "test_an_explanation_is_short_and_whole_on_request"
    old, new = "if not verbose:  #", "if False:  #"


class ValuesAreOnlyCounted(Edit):
    rule = "replay.explain.short"
    description = "an explanation tells how many values are guarded, and not which"
    file = "impl/following/reads.py"
    first = "test_an_explanation_is_short_and_whole_on_request"
    old, new = 'if sort == "values":', 'if sort == "none":'


class OldValuesMoveAlong(ImplPatch):
    rule = "replay.shortcut.same+3"
    description = "what a settled state was before is read where it lies after the call"
    first = "test_what_a_state_was_is_returned"
    target = "impl.replay.recording:Recording.returned"

    def replacement(self, original: Function) -> Function:
        def returned(recording: Any, states: Any, outputs: Any) -> Any:
            moves = dict(states.moves)
            states.now.update({buffer: outputs[moves[place]] for buffer, place in states.moved})
            return original(recording, states, outputs)
        return returned


class NamesOfMemoryHaveNone(Edit):
    rule = "replay.call.any"
    description = "an argument that is another name of a memory holds none of its own"
    first = "test_an_argument_that_is_another_name_of_a_memory"
    file = "impl/tensor/parameters.py"
    old, new = "            if named:\n", "            if not tensors:\n"


class ViewsAreWrittenAsAWhole(ImplPatch):
    rule = "effects.view-write.region"
    description = "a call that is captured writes all of a view of which its body writes a part"
    first = "test_a_view_of_what_was_given_another_value"
    target = "impl.replay.stand_ins:StandIns.write_back"

    def replacement(self, original: Function) -> Function:
        def write_back(call: Any) -> None:
            before = [tensor.uop for tensor in call.tensors]
            original(call)
            for tensor, was in zip(call.tensors, before, strict=True):
                if tensor.uop is not was:
                    tensor.assign(type(tensor)(tensor.uop))
        return write_back
