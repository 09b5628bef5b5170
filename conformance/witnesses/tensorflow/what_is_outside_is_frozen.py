"""TensorFlow 2.21.0, CPU. What a `tf.function` reads from outside is that of the first call: a
number, a flag, an attribute. The guide to `tf.function` says so; no error does.

Upstream: the guide to `tf.function`, which names it as a limitation.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

outside = {"k": 2.0}
scaled = tf.function(lambda x: x * outside["k"])
found = []
for k in (2.0, 2.0, 3.0, 3.0):
    outside["k"] = k
    found.append(float(scaled(tf.ones([]))))
expected = [2.0, 2.0, 3.0, 3.0]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
