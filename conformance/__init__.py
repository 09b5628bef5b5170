"""The conformance suite: what any implementation of the specification can be tested with.

`python -m conformance --impl package.module:Adapter` drives an implementation written in
Python, `--impl-cmd ./executable` one in any language.  The suite speaks a protocol, never of
internals: see `protocol` for the programs, `oracle` for what they mean, `checker` for what a
schedule document has to satisfy.
"""
