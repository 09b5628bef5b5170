"""TensorFlow 2.21.0, CPU. Compiled with XLA, `tf.reduce_max` and `tf.reduce_min` lose a NaN;
without XLA they keep it.

Upstream: tensorflow/tensorflow#116992.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.Variable([1.0, float("nan"), 3.0])
compiled = tf.function(lambda: tf.reduce_max(x), jit_compile=True)
expected, found = str(tf.reduce_max(x).numpy()), str(compiled().numpy())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
