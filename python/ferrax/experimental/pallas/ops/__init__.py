"""``ferrax.experimental.pallas.ops``: attention and such under the names of JAX's kernels for GPUs and TPUs."""
