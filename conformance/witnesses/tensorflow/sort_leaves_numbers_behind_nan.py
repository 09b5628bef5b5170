"""TensorFlow 2.21.0, CPU. `tf.sort` of numbers with a NaN leaves them unsorted: 3, NaN, 1, 2 comes
back with a number below one before it. NumPy, and TensorFlow with XLA, put NaN last.

Upstream: tensorflow/tensorflow#119359.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

x = [3.0, float("nan"), 1.0, 2.0]
expected, found = str(np.sort(x).tolist()), str(tf.sort(tf.constant(x)).numpy().tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
