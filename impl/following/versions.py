"""Where versions of Python differ in what an instruction of one name does; see `instructions`.

What has a name of its own in one version only stands with the others in `instructions`. An
instruction that is not known there is a reason to trace the function, and so is a version that is
not in this table.
"""
from __future__ import annotations

import sys
from typing import NamedTuple


class StackLayout(NamedTuple):
    """How one version of Python lays its stack."""

    null_below: bool  #: what stands for "no object" of a call lies below the function, not above
    method_bit: bool  #: the lowest bit of LOAD_ATTR's number says that a call follows
    ended: int        #: what END_FOR takes away; 0: FOR_ITER takes the iterator away itself


VERSIONS = {
    (3, 11): StackLayout(null_below=True, method_bit=False, ended=0),
    (3, 12): StackLayout(null_below=True, method_bit=True, ended=2),
    (3, 13): StackLayout(null_below=False, method_bit=True, ended=1),
}
#: That of the Python that runs; None if it is not known.
LAYOUT = VERSIONS.get(sys.version_info[:2])
