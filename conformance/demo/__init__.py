"""A small implementation to start from: the standard library, no NumPy, nothing of the suite.

`interpreter` knows what the operations mean, `naive` delays them, schedules them and speaks the
protocol.  `python -m conformance --impl-cmd "python conformance/demo/naive.py"` tests it.
"""
