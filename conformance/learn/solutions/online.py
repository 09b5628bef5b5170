"""A solution of the lesson online: python -m conformance.learn solution online"""
# mypy: ignore-errors
from conformance.learn.lesson_online import where

INFINITY = float("inf")


def power(score, most):
    return (score - where(most == -INFINITY, 0.0, most)).exp()


def total(total_before, before, most, summed):
    return total_before * power(before, most) + summed


def scale(total_before, before, most, total):
    return weight(total_before * power(before, most), total)


def weight(power, total):
    return power / where(total == 0.0, 1.0, total)
