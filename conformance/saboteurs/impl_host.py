"""Mistakes around NumPy, which may not be there."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class QuestionsImportNumPy(Edit):
    rule = "host.numpy.late+2"
    description = "whether a value is an array is asked of NumPy, which is imported for that"
    first = "test_schedules_are_the_same_without_it"
    file = "impl/host.py"
    old, new = "if name in _unmet and", 'if name == "void" and'


class TheFirstComesNext(Edit):
    rule = "host.numpy.without"
    description = "without NumPy, temporaries are placed in the order in which they were given"
    first = "test_both_ways_of_placing_choose_the_same"
    file = "impl/memory/greedy.py"
    old, new = "place = min(waiting, key=lows.__getitem__)", "place = waiting[0]"


class PythonSaysThatNumPyIsMissing(Edit):
    rule = "host.numpy.missing"
    description = "whoever needs NumPy gets an error of Python's, without a line and a remedy"
    first = "test_numbers_are_not_exchanged_without_it"
    file = "impl/host.py"
    old, new = "raise LibraryMissingError(", "raise ImportError("
