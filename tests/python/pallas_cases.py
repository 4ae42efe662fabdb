"""Kernels that tests of Pallas share: what they are given, on ferrax and on JAX."""

import numpy as np
from jax.experimental import pallas as jax_pl
from jax.experimental.pallas import tpu as jax_tpu, triton as jax_triton

from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import tpu as pltpu, triton as plgpu


def modules(s):
    """`pallas`, `pallas.tpu` and `pallas.triton` of a side."""
    return (pl, pltpu, plgpu) if s.name == "ferrax" else (jax_pl, jax_tpu, jax_triton)


def call(s, kernel, *outs, **options):
    """`pallas_call` of a side; `outs` are pairs of shape and dtype: of one output, or of a tuple."""
    shapes = tuple(s.jax.ShapeDtypeStruct(*out) for out in outs)
    given = {"interpret": True} | options
    return modules(s)[0].pallas_call(kernel, shapes if len(outs) > 1 else shapes[0], **given)


def floats(s, *shape, seed=0):
    """Numbers in [-1, 1)."""
    values = np.random.default_rng(seed).uniform(-1, 1, shape)
    return s.jnp.asarray(values.astype(np.float32))
