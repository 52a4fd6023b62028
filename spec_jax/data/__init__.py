"""Text in and scores out: vocabulary, batches, metrics, corpora and samples.

`metrics` scores predictions (BLEU, ROUGE), `samples` holds the few committed
texts, `corpora` builds the training text from Debian packages. Nothing here
imports a model; foreign libraries are imported where they are used.
"""
