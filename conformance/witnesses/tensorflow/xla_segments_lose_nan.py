"""TensorFlow 2.21.0, CPU. Compiled with XLA, `tf.math.unsorted_segment_max` loses a NaN; without
XLA it keeps it.

Upstream: tensorflow/tensorflow#118375.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x, rows = tf.Variable([1.0, float("nan")]), tf.constant([0, 0])


def greatest():
    return tf.math.unsorted_segment_max(x, rows, 1)


expected = str(greatest().numpy().tolist())
found = str(tf.function(greatest, jit_compile=True)().numpy().tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
