"""TensorFlow 2.21.0, CPU. `tf.constant` of a number of Python and float16 goes by way of float32,
and rounds twice; of an array of NumPy it rounds once.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

number = 1 + 2.0**-11 + 2.0**-40
expected, found = float(np.float16(number)), float(tf.constant(number, tf.float16))

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
