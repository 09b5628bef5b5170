"""TensorFlow 2.21.0, CPU. In a `tf.function`, 0 - x is replaced by -x, which has no kernel for
unsigned integers: the function ends with an error, where the difference is right without it.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf  # noqa: E402

x = tf.Variable([1, 2], dtype=tf.uint8)


def difference():
    return tf.zeros_like(x) - x


expected = str(difference().numpy().tolist())
try:
    found = str(tf.function(difference)().numpy().tolist())
except tf.errors.InvalidArgumentError as error:
    words = str(error)
    found = f"InvalidArgumentError: {words[words.find('Value for attr'):][:66]}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
