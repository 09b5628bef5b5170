"""TensorFlow 2.21.0, CPU. `tf.cast` from float64 to float16 goes by way of float32, and rounds
twice.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

number = 1 + 2.0**-11 + 2.0**-40
expected = float(np.float16(number))
found = float(tf.cast(tf.constant([number], tf.float64), tf.float16)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
