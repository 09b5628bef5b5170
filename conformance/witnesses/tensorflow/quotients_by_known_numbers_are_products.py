"""TensorFlow 2.21.0, CPU. In a `tf.function`, a division by a number that is known is a product
with its reciprocal, which rounds twice.

Upstream: tensorflow/tensorflow#102771, for 1 / x alone.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.Variable([-8.028369])
expected, found = float((x / 3.0)[0]), float(tf.function(lambda: x / 3.0)()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
