"""Networks in flax.linen whose parameter trees are t5x's, and Decoders over them."""
