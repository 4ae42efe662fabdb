"""``ferrax.experimental.pallas.ops.tpu``: what JAX has as kernels for TPUs; here for any device."""
