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
    old = "self._reasons.update(dict.fromkeys(reads.changed()))"
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


class UnionsAreOneClass(Edit):
    rule = "following.checks.class"
    description = "of a union nobody asks which classes are registered"
    file = "impl/following/parts.py"
    first = "test_what_is_asked_for_the_class_of_an_object_is_seen"
    old = "                self.checks(self.only(each, thing.path))\n"
    new = "                pass\n"


class PatternsAskNoClass(Edit):
    rule = "following.checks.class"
    description = "a pattern does not ask what its class takes for one of its own"
    file = "impl/following/instructions.py"
    first = "test_what_is_asked_for_the_class_of_an_object_is_seen"
    old, new = "        following.checks(kind)\n", ""


class ObjectsSayTheirClass(Edit):
    rule = "following.checks.class"
    description = "an object is of the class that it has, whatever its `__class__` says"
    file = "impl/following/parts.py"
    first = "test_what_is_asked_for_the_class_of_an_object_is_seen"
    old = '                self.attribute(thing, "__class__")\n'
    new = "                pass\n"


class PatternsOfTheSubject(Edit):
    rule = "following.patterns.read"
    description = "the names that a pattern lists are those of the subject"
    file = "impl/following/instructions.py"
    first = "test_what_a_pattern_reads_is_seen"
    old = 'listed = following.attribute(kind, "__match_args__")'
    new = 'listed = following.attributes(subject, "__match_args__")'


class MappingsHaveItems(Edit):
    rule = "following.patterns.read"
    description = "a pattern takes the items of a mapping, whatever its `get` gives"
    file = "impl/following/instructions.py"
    first = "test_what_a_pattern_reads_is_seen"
    old = 'following.attributes(subject, "get"), [elements'
    new = "NONE, [elements"


class ExceptionsSayNothing(Edit):
    rule = "following.exceptions.methods"
    description = "no operator calls anything of an exception"
    file = "impl/following/parts.py"
    first = "test_what_an_exception_says_is_seen"
    old, new = "            self.told(thing, kind, shown)\n", "            return NOTHING\n"


class ExceptionsHaveNoClass(Edit):
    rule = "following.exceptions.methods"
    description = "of an exception that is made in the body nobody knows the class"
    file = "impl/following/calls.py"
    first = "test_what_an_exception_says_is_seen"
    old, new = "        elif pure.is_pure(value):\n", "        if pure.is_pure(value):\n"


class BlocksAskTheObject(Edit):
    rule = "following.special.class"
    description = "a block asks the object for `__enter__`, not its class"
    file = "impl/following/instructions.py"
    first = "test_methods_that_python_calls_are_those_of_the_class"
    old = "*[following.special(thing, name) for thing in stack[-1]]"
    new = "*[following.attribute(thing, name) for thing in stack[-1]]"


class SpecialMethodsArePlain(Edit):
    rule = "following.special.class"
    description = "a special method that is no plain function calls nothing"
    file = "impl/following/parts.py"
    first = "test_methods_that_python_calls_are_those_of_the_class"
    old, new = "                elif _is_called(part):", "                elif False:"


class PropertiesAreOfOneSort(Edit):
    rule = "following.descriptors.get"
    description = "what a property of another sort adds is not followed"
    file = "impl/following/attributes.py"
    first = "test_what_a_descriptor_does_is_seen"
    old, new = "if _computes(found) and isinstance(found, (property,", "if isinstance(found, (*(),"


class DescriptorsAreNotSet(Edit):
    rule = "following.descriptors.get"
    description = "what a descriptor does when it is set is not followed"
    file = "impl/following/following.py"
    first = "test_what_a_descriptor_does_is_seen"
    old = "        if isinstance(setting, types.FunctionType):\n            self.own(type"
    new = "        if False:\n            self.own(type"


class MissingNamesStayMissing(Edit):
    rule = "following.hooks.later"
    description = "a `__getattr__` that a class is given later is not seen"
    file = "impl/following/attributes.py"
    first = "test_hooks_that_are_added_later_are_seen"
    old = '        self.own(kind.__mro__, "__getattr__")  # r[impl following.hooks.later]\n'
    new = ""


class MissingNamesOfModulesStayMissing(Edit):
    rule = "following.hooks.later"
    description = "a `__getattr__` that a module is given later is not seen"
    file = "impl/following/attributes.py"
    first = "test_hooks_that_are_added_later_are_seen"
    old = "                if held is MISSING:  # r[impl following.hooks.later]\n"
    new = "                if False:\n"


class HooksStay(Edit):
    rule = "following.hooks.later"
    description = "the hooks of a class are those of the capture"
    file = "impl/following/attributes.py"
    first = "test_hooks_that_are_added_later_are_seen"
    old = '            self.reads.note("attribute", kind, name, f"{kind.__name__}.{name}")\n\n' \
        "    def special"
    new = "            pass\n\n    def special"


class NamesOfModulesAreBelieved(Edit):
    rule = "following.homes.held"
    description = "a class is of the module that it says"
    file = "impl/following/pure.py"
    first = "test_what_only_says_another_module_is_of_the_user"
    old, new = "return \"\" if is_open(kind) and", "return \"\" if False and"


class FunctionsAreWhatTheyWrap(Edit):
    rule = "following.homes.held"
    description = "a function is of the module that a decorator gave it the name of"
    file = "impl/following/pure.py"
    first = "test_what_only_says_another_module_is_of_the_user"
    old = '    home = function.__globals__.get("__name__", "")\n'
    new = "    return function.__module__ or ''\n"


class WaysBackAreNotCalled(Edit):
    rule = "following.given.returned"
    description = "the function that custom_gradient is given is called, what it returns is not"
    file = "impl/following/calls.py"
    first = "test_what_is_given_to_the_library_is_called_with_what_it_returns"
    old, new = "else self.handed([found])  # the way", "else found  # the way"


class FunctionsOfOnesOwnReadNothing(Edit):
    rule = "following.given.inherited"
    description = "`apply` of a function of one's own calls nothing of the user"
    file = "impl/following/calls.py"
    first = "test_what_inherits_a_method_of_the_library_is_called_by_it"
    old, new = "            rest |= self.call_back(", "            rest |= NONE and self.call_back("


class RandomNumbersAreAnywhere(Edit):
    rule = "following.traced.reason"
    description = "where the random numbers are is read once"
    file = "impl/following/calls.py"
    first = "test_where_the_random_numbers_are_is_a_reason"
    old, new = "                if name in _DRAWN:", '                if name == "manual_seed":'
