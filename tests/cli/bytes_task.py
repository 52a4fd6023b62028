"""A user's module, with gin as t5x's have it: a task over another vocabulary."""

import gin
import seqio
import tensorflow as tf

BYTES = seqio.Feature(seqio.ByteVocabulary())


@gin.configurable
def examples(split, shuffle_files=False, seed=None):
    return tf.data.Dataset.from_tensor_slices({"inputs": ["a"], "targets": ["b"]})


seqio.TaskRegistry.add(
    "bytes_task",
    source=seqio.FunctionDataSource(examples, splits=["test"]),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={"inputs": BYTES, "targets": BYTES},
    metric_fns=[],
)
