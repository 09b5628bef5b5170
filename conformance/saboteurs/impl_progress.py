"""Mistakes in the line that says how far something is."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class SearchesAreSilent(Edit):
    rule = "progress.line.late"
    description = "a search does not say how much it has tried"
    first = "test_a_search_says_how_many_lists_it_has_tried"
    file = "impl/searching/beam.py"
    old, new = "self.progress.step(len(some))", "pass"


class WorkWithinSpeaks(Edit):
    rule = "progress.line.late"
    description = "work within other work writes over its line"
    first = "test_work_that_takes_long_says_how_far_it_is"
    file = "impl/progress.py"
    old, new = "and _line.acquire(blocking=False):", "and (_line.acquire(blocking=False) or True):"


class TheLineStays(Edit):
    rule = "progress.line.gone"
    description = "the last line stays where the next output begins"
    first = "test_the_line_is_gone_when_the_work_has_ended"
    file = "impl/progress.py"
    old, new = 'terminal.write("\\r\\x1b[K")', 'terminal.write("")'


class FilesHaveBars(Edit):
    rule = "progress.line.quiet"
    description = "the line is written into files and pipes as well"
    first = "test_nobody_is_told_who_does_not_look"
    file = "impl/progress.py"
    old, new = "terminal is not None and terminal.isatty()", "terminal is not None"
