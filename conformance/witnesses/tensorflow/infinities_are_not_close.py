"""TensorFlow 2.21.0, CPU. `tf.experimental.numpy.isclose` says that an infinity is not close to
itself. NumPy, whose function it is, says that it is.

Upstream: keras-team/keras#23128, for Keras alone.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

inf = float("inf")
expected = bool(np.isclose(inf, inf))
found = bool(tf.experimental.numpy.isclose(inf, inf))

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
