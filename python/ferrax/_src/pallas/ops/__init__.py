"""Attention, normalisation and products under the names of JAX's kernels for GPUs and TPUs: `pallas.ops`."""
