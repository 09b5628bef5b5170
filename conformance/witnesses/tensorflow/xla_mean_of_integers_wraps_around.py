"""TensorFlow 2.21.0, CPU. Compiled with XLA, the mean of int32 is that of a sum in 32 bits;
without XLA it is right.

Upstream: tensorflow/tensorflow#125978, mended by tensorflow/tensorflow#126012 after this version.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.Variable([2**31 - 1, 2**31 - 1])
compiled = tf.function(lambda: tf.reduce_mean(x), jit_compile=True)
expected, found = int(tf.reduce_mean(x)), int(compiled())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
