"""TensorFlow 2.21.0, CPU. `tf.math.reciprocal(-2)` is -0.5 in an array of one element, and
-0.49999997 for eight of nine: those that a vector computes are approximations.

Upstream: tensorflow/tensorflow#102771, where it is the cause.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

expected = tf.math.reciprocal(tf.constant([-2.0])).numpy()[0]
found = tf.math.reciprocal(tf.constant([-2.0] * 9)).numpy()[0]

print(f"expected {expected}, found {found}")
raise SystemExit(bool(found == expected))  # 0 while the library does this
