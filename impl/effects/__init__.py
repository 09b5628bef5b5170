"""Buffers, their versions, and what it takes to overwrite one. Chapter: spec/effects.md.

A UOp denotes a value and a value never changes. Memory does: an assign or a view write gives a
buffer a new version. The eager law says that every value that anybody can still observe is the one
that was meant where its expression was written. This chapter owns what the law needs to know:
which version a leaf names, and who still waits to read it.

    buffers     memory that holds a value
    versions    which version of it a leaf names; what is in memory now
    writes      a write to a part of memory, as the next version of it
    holders     the living tensors
    collecting  all that a schedule has to compute; who must not lose what they read
    turns       the lock of all that plans, runs and writes
"""
from impl.effects.buffers import Buffer, Placeholder, born_again, new_buffer_node
from impl.effects.collecting import Effects, collect, unrealized
from impl.effects.holders import Holder, living, living_here, register, register_line
from impl.effects.turns import lock
from impl.effects.versions import (
    Forgotten,
    advance,
    constant_of,
    forget_realized,
    in_the_middle,
    is_lost,
    leaf_of,
    mark_realized,
    recall_realized,
    spoil,
    was_computed,
)
from impl.effects.writes import way, write

__all__ = ["Buffer", "Effects", "Forgotten", "Holder", "Placeholder", "advance", "born_again",
           "collect", "constant_of", "forget_realized", "in_the_middle", "is_lost", "leaf_of",
           "living", "living_here", "lock", "mark_realized", "new_buffer_node", "recall_realized",
           "register", "register_line", "spoil", "unrealized", "was_computed", "way", "write"]
