"""Following the code of a function without running it: all that it can read besides its
arguments. Chapter: spec/following.md.

`following` goes through the functions, `instructions` knows each instruction of Python; `calls`,
`attributes` and `parts` know what objects do, `pure` what functions of C do. `things` are what is
moved from place to place, and `reads` are the places that were found.
"""
from impl.following.reads import Read, Reads, Reason

__all__ = ["Read", "Reads", "Reason"]
