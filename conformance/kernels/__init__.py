"""Kernels for the tests of this implementation: built by hand, drawn by chance, or watched.

`python -m conformance steps` and `python -m conformance sanitize` are made of this.
"""
