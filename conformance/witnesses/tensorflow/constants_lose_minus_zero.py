"""TensorFlow 2.21.0, CPU. `tf.constant(-0.0)` is 0.0 where `tf.constant(0.0)` was made before: one
tensor is kept for numbers that are equal in Python. So it depends on what ran before, and 1 / x
changes its sign.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

zero = tf.constant(0.0)
expected, found = "-0.0", str(tf.constant(-0.0).numpy())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
