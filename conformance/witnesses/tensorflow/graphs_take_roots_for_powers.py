"""TensorFlow 2.21.0, CPU. In a `tf.function`, `tf.pow(x, 0.5)` is replaced by `tf.sqrt(x)`, and an
exponent of -0.5 by `tf.math.rsqrt`. The power of minus infinity is infinity, its root NaN; that of
-0.0 is 0.0, its root -0.0.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.Variable([float("-inf")])
expected, found = float(tf.pow(x, 0.5)[0]), float(tf.function(lambda: tf.pow(x, 0.5))()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
