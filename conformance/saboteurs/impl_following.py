"""Mistakes in following code, made inside `impl.following`."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class AttributesAreFrozen(Edit):
    rule = "replay.guard.complete"
    description = "attributes of objects are not compared"
    file = "impl/following/reads.py"
    old, new = "        for place in places:\n", \
        "        for place in [each for each in places if each.kind != 'attribute']:\n"


class GlobalsAreFrozen(Edit):
    rule = "following.reads.places"
    description = "a global is read at the capture, and is no place that is compared"
    file = "impl/following/attributes.py"
    old = 'held = self.reads.note("item", space, name, name)'
    new = "held = space.get(name, MISSING)"


class NumbersOfClassesAreObjects(Edit):
    rule = "following.reads.places"
    description = "a number of a class is compared by where it lies"
    file = "impl/following/attributes.py"
    first = "test_a_number_of_a_class_is_compared_as_a_number"
    old, new = 'if hasattr(type(found), "__get__") else "attribute"', 'if name else "attribute"'


class TextsOfClassesAreWrapped(Edit):
    rule = "following.reads.places"
    description = "a text that is shown once for each object is that of what says __wrapped__"
    file = "impl/following/calls.py"
    first = "test_a_class_of_python_whose_text_names_itself_is_followed"
    old, new = "value = pure.shown_once(value)", "value = vars(value)['__wrapped__']"


class NamesOfObjectsStay(Edit):
    rule = "following.reads.places"
    description = "an object has for ever the names that it had"
    file = "impl/following/calls.py"
    first = "test_the_names_that_an_object_has_are_read"
    old = 'self.reads.note("names", value, "", f"dir({thing.path})")'
    new = "pass"


class OnlyOneWayIsLookedAt(Edit):
    rule = "following.reads.places"
    description = "where two ways of a body meet, what the second one brings is not looked at"
    file = "impl/following/following.py"
    first = "test_what_is_read_is_found_however_it_is_written"
    old, new = "return [a | b for a, b in zip(first, second, strict=False)]", "return first"


class ThingsLieAnywhere(Edit):
    rule = "following.reads.places"
    description = "the order of guards depends on where in memory lies what was found"
    file = "impl/following/things.py"
    first = "test_guards_and_reasons_have_one_order"
    old, new = "        return self.number\n", "        return id(self) // 16\n"


class WritesAreNotRead(Edit):
    rule = "following.reads.places"
    description = "what a body writes to a place for the time of a call is not what it reads there"
    file = "impl/following/attributes.py"
    first = "test_bodies_of_users_are_replayed"
    old = "frozenset(found.get(name, ()))"
    new = "NONE"


class WhatWasChangedIsNotSaid(Edit):
    rule = "following.traced.reason"
    description = "a function that leaves another value outside each time is captured for ever"
    file = "impl/replay/jit.py"
    first = "test_what_holds_another_value_after_each_call_is_named"
    old = "self.reasons.update(dict.fromkeys(reads.changed()))"
    new = "pass"


class WhatPythonHasFrozenReadsNothing(Edit):
    rule = "following.reads.places"
    description = "functions of modules that are frozen into Python, such as os, are not followed"
    file = "impl/following/pure.py"
    first = "test_hidden_changes_are_seen"
    old, new = ' or name.startswith("<frozen ")', ""


class LinesOfTheLibrary(Edit):
    rule = "following.traced.reason"
    description = "the line that is named is one of a schedule of rates, not the user's"
    file = "impl/following/noting.py"
    first = "test_what_a_library_does_is_named_with_the_line_of_the_user"
    old, new = "while frame.caller is not None and", "while frame.caller is not None and False and"


class ComputedNamesAreNone(Edit):
    rule = "following.reads.places"
    description = "getattr with a name that is computed reads no method of the class"
    file = "impl/following/calls.py"
    first = "test_names_that_are_computed_are_followed_by_how_they_begin"
    old, new = "if name.startswith(start)])", "if name == start])"


class LayersAreNotMade(Edit):
    rule = "following.reads.places"
    description = "what checks the arguments of a layer is taken for the one that makes it"
    file = "impl/following/calls.py"
    first = "test_bodies_of_users_are_replayed"
    old = 'wrapped = getattr(value, "__wrapped__", None)'
    new = "wrapped = None"


class NamespacesAreOneObject(Edit):
    rule = "following.reads.places"
    description = "what a namespace has is no place where two of them are compared"
    file = "impl/following/parts.py"
    first = "test_bodies_of_users_are_replayed"
    old = "found |= self.elements(self.only(vars(thing.value), thing.path)) \\\n"
    new = "found |= NONE \\\n"


class GradientsAlwaysPass(Edit):
    rule = "replay.guard.complete"
    description = "a block without gradients is not noticed"
    file = "impl/following/following.py"
    first = "test_whether_gradients_pass_is_compared"
    old = 'self.reads.note("attribute", mode, "gradients", "whether gradients pass")'
    new = "mode.gradients"


class SeedsByAnotherName(Edit):
    rule = "following.reads.places"
    description = "random numbers begin again by a name of one's own, and a replay does not see it"
    file = "impl/following/calls.py"
    first = "test_random_numbers_that_begin_again_are_not_replayed"
    old = '("numpy.random", "impl.tensor.")'
    new = '("numpy.random", "impl.tensor.random")'


class ClassesAreFrozen(Edit):
    rule = "following.reads.places"
    description = "the class of an object is no place: another one may be assigned to it"
    file = "impl/following/noting.py"
    old, new = "                self.class_of(value, path)\n", "                pass\n"


class ReasonsAreForgotten(Edit):
    rule = "following.traced.reason"
    description = "what nobody can follow is replayed"
    file = "impl/following/noting.py"
    old, new = "self.reads.reasons[self.reason(does, remedy)] = None", "pass"


class NobodyIsTrusted(Edit):
    rule = "following.trust.known"
    description = "a function that is trusted is traced all the same"
    file = "impl/replay/jit.py"
    old, new = "            reads.reasons.clear()\n", "            pass\n"


class SizesAreNotCounted(Edit):
    rule = "replay.sizes.same"
    description = "a number that Python made of a size is taken for the size"
    file = "impl/following/noting.py"
    old, new = "self.reads.counted |= any(", "self.reads.counted |= False and any("


class ListsMayGrow(Edit):
    rule = "replay.guard.complete"
    description = "a list that has grown since the capture is gone through as far as it went then"
    file = "impl/following/reads.py"
    old, new = "return len(now) == len(self.held) and all(", "return all("
