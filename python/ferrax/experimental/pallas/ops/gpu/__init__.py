"""``ferrax.experimental.pallas.ops.gpu``: what JAX has as kernels for GPUs; here for any device."""
