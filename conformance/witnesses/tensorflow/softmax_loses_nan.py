"""TensorFlow 2.21.0, CPU. `tf.nn.softmax` of numbers among which one is NaN gives zeros beside it.
Every weight depends on every number: NumPy, torch and XLA give NaN everywhere.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.constant([1.0, float("nan"), 3.0])
expected, found = "[nan, nan, nan]", str(tf.nn.softmax(x).numpy().tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
