"""Runs the portable suite, and random programs, on an implementation, and reports what came of it.
"""
