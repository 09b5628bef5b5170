"""TensorFlow 2.21.0, CPU. `tf.tensor_scatter_nd_max` with a NaN leaves what was there;
`tf.maximum` of the two is NaN.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

nan = tf.constant([float("nan")])
expected = str(tf.maximum(tf.zeros([1]), nan).numpy().tolist())
found = str(tf.tensor_scatter_nd_max(tf.zeros([1]), [[0]], nan).numpy().tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
