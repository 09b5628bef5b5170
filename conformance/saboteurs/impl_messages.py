"""Mistakes in what a person reads, made inside `impl.errors`, `.nn`, `.inspect` and `.settings`."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

# Errors


class NoRemedy(Edit):
    rule = "errors.message.whole"
    description = "the remedy of an error is an attribute only"
    first = "test_a_mistake_is_explained"
    file = "impl/errors.py"
    old, new = "; at {self.line}. Remedy: {self.remedy}", "; at {self.line}"


class NamesTheInnermost(Edit):
    rule = "errors.message.whole"
    description = "an error names the method in which the one that was called has failed"
    first = "test_an_error_names_what_was_called"
    file = "impl/tensor/names.py"
    old, new = "error.rename(error.operation.removesuffix(failed) + self.method)", "pass"


class LayersAreTheUsers(Edit):
    rule = "errors.message.whole"
    description = "a line in a layer counts as the user's"
    first = "test_a_mistake_is_explained"
    file = "impl/errors.py"
    old, new = 'return filename.startswith((_PACKAGE, "<frozen ")) and', \
        'return filename.startswith(_PACKAGE) and os.sep + "nn" + os.sep not in filename and'


class NamesTheRequest(Edit):
    rule = "errors.message.later"
    description = "an error about a kernel names the line in which its value was asked for"
    file = "impl/realize/run.py"
    old, new = 'error.say_line(kernel_line(plan, number, nodes) if nodes else "")', "pass"


class NamesTheRequestAgain(Edit):
    rule = "errors.message.later"
    description = "where a kernel ran before, what its device says names the line of the request"
    first = "test_a_device_that_fails_names_the_line_of_what_it_computes"
    file = "impl/realize/prepared.py"
    old, new = "error.say_line(line_of(known or origin))", "pass"


class ReplaysNameTheRequest(Edit):
    rule = "errors.message.later"
    description = "what a device says of a kernel of a captured function names the line of the call"
    first = "test_every_way_to_run_kernels_says_the_same_of_one_that_fails"
    file = "impl/realize/prepared.py"
    old, new = "return known[begun] if begun >= 0 else in_common(known)", "return None, None"


class ShortcutsSayNothing(Edit):
    rule = "errors.message.later"
    description = "what a device says of a kernel of a call that is one function names no line"
    first = "test_every_way_to_run_kernels_says_the_same_of_one_that_fails"
    file = "impl/realize/prepared.py"
    old, new = '    {name(self._end_early)}(error, None, None)"', '    {name(id)}(error)"'


class NamesAnyKernel(Edit):
    rule = "errors.message.later"
    description = "an error names the first of the kernels that were compiled together"
    file = "impl/realize/run.py"
    old = "            Device[kernel.device].compile([kernel.ast])\n"
    new = "            return error.say_line(kernel_line(plan, number, nodes))\n"


class PlainValueError(Edit):
    rule = "errors.type.builtin+2"
    description = "parts that are too few raise a ValueError of Python's own"
    file = "impl/tensor/movement.py"
    old, new = 'raise ShapeError("chunk", f"{chunks!r}', 'raise ValueError("chunk", f"{chunks!r}'


class OnlyOurOwnError(ImplPatch):
    rule = "errors.type.builtin+2"
    description = "a SettingError is no ValueError"

    @contextmanager
    def mistake(self) -> Iterator[None]:
        kind = import_module("impl.errors").SettingError
        before = kind.__bases__
        kind.__bases__ = before[:1]
        try:
            yield
        finally:
            kind.__bases__ = before


class CapitalsMatter(Edit):
    rule = "errors.name.missing"
    description = "a name is looked for as it was written"
    file = "impl/nn/names.py"
    old, new = "_remedy(name.lower(), own", "_remedy(name, own"


class LayersHideWhatTheyTake(Edit):
    rule = "errors.argument.refused"
    description = "who makes a layer with other arguments is not told which it takes"
    file = "impl/tensor/names.py"
    old, new = 'str(wrong), f"it takes {own}")', 'str(wrong), own[:0] or "give others")'


class LetsErrorsThrough(Edit):
    rule = "errors.argument.raw"
    description = "an error of Python's own in a method is left as it is"
    file = "impl/tensor/names.py"
    old, new = "if not _is_of_floors(step.tb_frame.f_code.co_filename):", "if step:"


class ExplainsWhatIsNotOurs(Edit):
    rule = "errors.argument.raw"
    description = "an error of a function that was given is taken for one about arguments"
    file = "impl/tensor/names.py"
    old, new = "if not _is_of_floors(step.tb_frame.f_code.co_filename):", "if not step:"


class ForgetsTheLine(Edit):
    rule = "errors.pickle.parts"
    description = "an error that is loaded again names the line that loads it"
    file = "impl/errors.py"
    old, new = "(self.operation, self.detail, self.remedy, self.line)", \
        "(self.operation, self.detail, self.remedy)"


# Reports


class AnyVersionWillDo(Edit):
    rule = "inspect.format.refused"
    description = "a document of a later version is shown as if it were of this one"
    file = "impl/inspect/text.py"
    old, new = 'if document.get("format") != FORMAT:', \
        'if not str(document.get("format")).startswith(FORMAT[:-1]):'


class ListedByNumber(Edit):
    rule = "inspect.table.lines"
    description = "kernels are listed by their numbers, and not in their order"
    first = "test_kernel_table"
    file = "impl/inspect/text.py"
    old, new = 'for number in document["order"]]', 'for number in sorted(document["order"])]'


class ReasonsWithoutBuffers(Edit):
    rule = "inspect.explain.complete"
    description = "the list of boundaries does not say which value crosses"
    file = "impl/inspect/text.py"
    old, new = "-> kernel {row['after']}{through}: {reason}", "-> kernel {row['after']}: {reason}"


class OneHazardForTwoKernels(Edit):
    rule = "inspect.explain.complete"
    description = "of several dependencies between two kernels only the first is told"
    file = "impl/inspect/text.py"
    old, new = 'if row["after"] == number:', \
        'if row["after"] == number and row["before"] not in found:'


class BoundIsThePlan(Edit):
    rule = "inspect.report.whole"
    description = "what the plan needs is called the least that is possible"
    first = "test_memory_summary"
    file = "impl/inspect/text.py"
    old, new = 'memory["unplanned"], memory["lower_bound"]', \
        'memory["unplanned"], memory["planned"]'


class StyleInAnotherFile(Edit):
    rule = "inspect.report.whole"
    description = "a report loads its style from a file beside it"
    first = "test_report_is_one_file"
    file = "impl/inspect/report.py"
    old, new = 'f"<style>{STYLE}</style>', \
        'f"<link rel=\'stylesheet\' href=\'report.css\'/>'


class OneLineForTwoKernels(Edit):
    rule = "inspect.report.whole"
    description = "of several kinds of dependency between two kernels only the first is drawn"
    first = "test_graph_shows_kernels_and_dependencies"
    file = "impl/inspect/drawing.py"
    old, new = "for pair, kinds in links.items() for kind in kinds]", \
        "for pair, kinds in links.items() for kind in list(kinds)[:1]]"


class GoneAStepEarly(Edit):
    rule = "inspect.report.whole"
    description = "a temporary does not count at the last step that needs it"
    first = "test_memory_summary"
    file = "impl/inspect/drawing.py"
    old, new = 'change[place["last"] + 1] -= place["bytes"]', \
        'change[place["last"]] -= place["bytes"]'


class AllAtTheBottom(Edit):
    rule = "inspect.report.whole"
    description = "every temporary is drawn at the bottom of its arena"
    first = "test_memory_summary"
    file = "impl/inspect/drawing.py"
    old, new = 'y = bottom - place["offset"] * scale - height - 0.75', \
        "y = bottom - height - 0.75"


class BoundIsTheTop(Edit):
    rule = "inspect.report.whole"
    description = "the lower bound is drawn where the arena ends"
    first = "test_memory_summary"
    file = "impl/inspect/drawing.py"
    old, new = "bound = bottom - least * scale", "bound = top"


class LabelsAreMarkup(Edit):
    rule = "inspect.report.whole"
    description = "words in a drawing are taken for markup"
    first = "test_report_is_one_file"
    file = "impl/inspect/drawing.py"
    old, new = 'return tag("text", escape(words),', 'return tag("text", words,'


class QuotesAreMarkup(Edit):
    rule = "inspect.report.whole"
    description = "a quotation mark in a hint ends it"
    first = "test_report_is_one_file"
    file = "impl/inspect/drawing.py"
    old, new = "escape(_number(value), quote=True)", "escape(_number(value), quote=False)"


class ThePositionIsTheNumber(Edit):
    rule = "inspect.report.large"
    description = "who waits for whom is the other way round"
    file = "impl/inspect/compact.py"
    old, new = '[at[row["before"]], at[row["after"]], word(row["kind"]),', \
        '[at[row["after"]], at[row["before"]], word(row["kind"]),'


class HalfOfARule(Edit):
    rule = "inspect.report.rules"
    description = "a report has the first words of each rule only"
    first = "test_a_rule_that_is_named_leads_to_its_text"
    file = "impl/inspect/rules.py"
    old, new = "escape(text))", "escape(text[:60]))"


class NamesLeadNowhere(Edit):
    rule = "inspect.report.rules"
    description = "in the graph's legend the name of a rule is text"
    first = "test_a_rule_that_is_named_leads_to_its_text"
    file = "impl/inspect/report.py"
    old, new = "linked(LEGEND)", "LEGEND"


class SomeMachineCode(Edit):
    rule = "inspect.machine.loaded"
    description = "a report shows the first function of an object, whichever kernel it is about"
    first = "test_each_kernel_shows_its_own_machine_code"
    file = "impl/cpu/disassembly.py"
    old, new = "_functions(tool, path).get(name)", "next(iter(_functions(tool, path).values()))"


class AlmostAlike(Edit):
    rule = "inspect.repeats.whole"
    description = "kernels that move other amounts are taken for the same"
    file = "impl/inspect/repeats.py"
    old, new = 'kernel.get("label"), kernel.get("bytes"),', 'kernel.get("label"), 0,'


class LastLayerHasNoReader(Edit):
    rule = "inspect.repeats.whole"
    description = "what the last part of a repeat hands on is not drawn"
    file = "impl/inspect/repeats.py"
    old, new = 'before, after = kept[row["before"]], kept[row["after"]]', \
        'before, after = row["before"], kept[row["after"]]'


class NamedByTheKey(Edit):
    rule = "inspect.names.user"
    description = "a buffer has the name of the last variable that is seen, however long the way"
    file = "impl/inspect/naming.py"
    old, new = "if key not in found and name not in taken:", "if False:"


class OnlyTheNumberCounts(Edit):
    rule = "inspect.diff.lines+2"
    description = "lines that have as many kernels in both schedules are taken for the same"
    file = "impl/inspect/compare.py"
    old, new = "if Counter(map(alike, both[0])) != Counter(map(alike, both[1]))]", \
        "if len(both[0]) != len(both[1])]"


class TheOrderIsNotCompared(Edit):
    rule = "inspect.diff.lines+2"
    description = "the same kernels in another order are taken for the same schedule"
    first = "test_what_differs_beside_kernels"
    file = "impl/inspect/compare.py"
    old, new = "for (one, two), told in parts if", "for (one, two), told in parts[2:] if"


class TheFirstCallWithTheLastTimes(Edit):
    rule = "inspect.viewer.served+2"
    description = "times of the last call stand in the document of the first"
    first = "test_a_schedule_is_shown_as_one_call"
    file = "impl/inspect/serving.py"
    old, new = "self.shown = self.latest  #", "self.shown.spans = self.latest.spans  #"


class AnyHostMayAsk(Edit):
    rule = "inspect.viewer.served+2"
    description = "pages are given to whoever reaches the port, under any name"
    file = "impl/inspect/serving.py"
    old, new = 'if host not in ("127.0.0.1", "localhost"):', "if host is None:"


class OldNaNsCount(Edit):
    rule = "inspect.nan.first"
    description = "an element that was a NaN before is blamed on the kernel"
    file = "impl/realize/finite.py"
    old, new = "np.flatnonzero(wrong & (before != after))", "np.flatnonzero(wrong)"


class WhatWasLeftHidesIt(Edit):
    rule = "inspect.nan.first"
    description = "what an earlier run left in memory is taken for what was there"
    file = "impl/realize/finite.py"
    old, new = "for storage in self._anew():", "for storage in self._anew()[:0]:"


class SilentAboutTheSecond(Edit):
    rule = "inspect.debug.lines+2"
    description = "of what a kernel stores only the first value has a line"
    file = "impl/schedule/reasons.py"
    old, new = "for touch in kernel.writes:\n", "for touch in kernel.writes[:1]:\n"


# Settings


class SettingsEdit(Edit):
    """A mistake after which the settings are as they were, and nothing is remembered of them."""

    @contextmanager
    def mistake(self) -> Iterator[None]:
        settings = import_module("impl.settings")
        before = settings._values.scoped
        try:
            with super().mistake():
                settings.Context._set(before)
                yield
        finally:
            settings.Context._set(before)


class OneStackForAllThreads(SettingsEdit):
    rule = "settings.context.restore"
    description = "a thread that leaves a Context gets the values of who has entered it last"
    file = "impl/settings.py"
    old = "self._set(self.outer[threading.get_ident()].pop())"
    new = "self._set(self.outer[list(self.outer)[-1]].pop())"


class StaysAfterAnError(SettingsEdit):
    rule = "settings.context.restore"
    description = "a Context that an exception leaves stays in force"
    file = "impl/settings.py"
    old = "self._set(self.outer[threading.get_ident()].pop())"
    new = "self._set(_values.scoped if _[0] is not None else " \
        "self.outer[threading.get_ident()].pop())"


class ListsTheNearest(Edit):
    rule = "settings.error.clear"
    description = "the error for an unknown name lists only the names that are near"
    first = "test_unknown_names_are_refused"
    file = "impl/settings.py"
    old, new = '", ".join(sorted(REGISTRY))', '", ".join(near)'


class NoGreatestValue(Edit):
    rule = "settings.error.clear"
    description = "a value above the greatest is taken"
    first = "test_impossible_values_are_refused"
    file = "impl/settings.py"
    old, new = "if not setting.minimum <= number <= setting.maximum:", \
        "if not setting.minimum <= number:"


class SmallLettersAreFar(Edit):
    rule = "settings.error.clear"
    description = "a setting in small letters is not recognised"
    first = "test_unknown_names_are_refused"
    file = "impl/settings.py"
    old, new = "or name.upper() == each]", "or name == each]"


class CheckedWhenAskedFor(Edit):
    rule = "settings.environment.early+2"
    description = "what the environment says is taken as it is"
    file = "impl/settings.py"
    old, new = "given = {name: _checked(name, os.environ[name])", "given = {name: os.environ[name]"


class SwapsAreTwoEdits(Edit):
    rule = "settings.environment.early+2"
    description = "two letters in the wrong order are not one edit"
    file = "impl/settings.py"
    old, new = "== long[start:start + 2][::-1]", "== long[start:start + 2]"


class WordsAreNoPartOfTheKey(SettingsEdit):
    rule = "settings.plan.key"
    description = "settings that are words are not in the key of a plan"
    file = "impl/settings.py"
    old, new = "for s in REGISTRY.values() if s.plan)", \
        "for s in REGISTRY.values() if s.plan and not isinstance(s.default, str))"


class FoundByWhatIsRead(Edit):
    rule = "inspect.report.found"
    description = "a kernel is not found by what it writes"
    first = "test_kernels_are_found_by_all_their_buffers"
    file = "impl/inspect/report.py"
    old = '*touched([*kernel["reads"], *kernel["writes"]], names)]).lower()'
    new = '*touched([*kernel["reads"]], names)]).lower()'
