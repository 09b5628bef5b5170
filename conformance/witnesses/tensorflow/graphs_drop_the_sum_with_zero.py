"""TensorFlow 2.21.0, CPU. In a `tf.function`, x + 0.0 is replaced by x, which is another number
where x is -0.0: 1 / (x + 0.0) changes its sign.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.Variable([-0.0] * 4)


def quotient():
    return 1.0 / (x + 0.0)


expected, found = float(quotient()[0]), float(tf.function(quotient)()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
