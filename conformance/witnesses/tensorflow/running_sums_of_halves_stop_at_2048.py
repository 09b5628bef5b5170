"""TensorFlow 2.21.0, CPU. `tf.cumsum` of halves is kept in halves: of 5000 ones it stops at 2048.
With XLA it is 5000.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

expected, found = 5000.0, float(tf.cumsum(tf.ones([5000], tf.float16))[-1])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
