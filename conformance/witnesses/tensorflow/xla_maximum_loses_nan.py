"""TensorFlow 2.21.0, CPU. Compiled with XLA, `tf.maximum` and `tf.minimum` lose a NaN that is the
second operand; without XLA they keep it.

Upstream: tensorflow/tensorflow#116992.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x, y = tf.Variable([1.0]), tf.Variable([float("nan")])
compiled = tf.function(lambda: tf.maximum(x, y), jit_compile=True)
expected, found = str(tf.maximum(x, y).numpy().tolist()), str(compiled().numpy().tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
