"""TensorFlow 2.21.0, CPU. `tf.reduce_mean` of halves adds in halves: 300 numbers of 300 have an
infinite mean, and an infinite variance. With XLA the mean is 300.

Upstream: tensorflow/tensorflow#124049, which is to mend it.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.constant([300.0] * 300, tf.float16)
expected, found = 300.0, float(tf.reduce_mean(x))

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
