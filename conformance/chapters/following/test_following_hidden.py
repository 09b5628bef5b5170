"""What a body reads without naming it: Python itself asks for it, or this library calls it."""
from __future__ import annotations

import pytest

from conformance.runner import changed, hidden
from conformance.trace import verifies
from impl import Context, TinyJit


def programs(rule: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", hidden.PROGRAMS[rule], ids=lambda each: each.name)


def holds(program: changed.Changed) -> None:
    with Context(DEVICE="REFERENCE"):
        wanted, _ = changed.played(program, lambda function: function)
        found, step = changed.played(program, TinyJit)
    assert found == wanted
    assert (step.replays == 0) == program.name.endswith("(traced)"), step.explain()


@programs("following.checks.class")
@verifies("following.checks.class", observe="replay")
def test_what_is_asked_for_the_class_of_an_object_is_seen(program: changed.Changed) -> None:
    holds(program)


@programs("following.patterns.read")
@verifies("following.patterns.read", observe="replay")
def test_what_a_pattern_reads_is_seen(program: changed.Changed) -> None:
    holds(program)


@programs("following.exceptions.methods")
@verifies("following.exceptions.methods", observe="replay")
def test_what_an_exception_says_is_seen(program: changed.Changed) -> None:
    holds(program)


@programs("following.special.class")
@verifies("following.special.class", observe="replay")
def test_methods_that_python_calls_are_those_of_the_class(program: changed.Changed) -> None:
    holds(program)


@programs("following.descriptors.get")
@verifies("following.descriptors.get", observe="replay")
def test_what_a_descriptor_does_is_seen(program: changed.Changed) -> None:
    holds(program)


@programs("following.hooks.later")
@verifies("following.hooks.later", observe="replay")
def test_hooks_that_are_added_later_are_seen(program: changed.Changed) -> None:
    holds(program)


@programs("following.homes.held")
@verifies("following.homes.held", observe="replay")
def test_what_only_says_another_module_is_of_the_user(program: changed.Changed) -> None:
    holds(program)


@programs("following.given.returned")
@verifies("following.given.returned", observe="replay")
def test_what_is_given_to_the_library_is_called_with_what_it_returns(
        program: changed.Changed) -> None:
    holds(program)


@programs("following.given.inherited")
@verifies("following.given.inherited", observe="replay")
def test_what_inherits_a_method_of_the_library_is_called_by_it(program: changed.Changed) -> None:
    holds(program)


@programs("following.traced.reason")
@verifies("following.traced.reason", observe="replay")
def test_where_the_random_numbers_are_is_a_reason(program: changed.Changed) -> None:
    holds(program)
