"""The families of rows, in the order of the tables. A family is a module with `TITLE` and `ROWS`."""

from __future__ import annotations

import attention
import collectives
import compile as compilation
import control_flow
import convolutions
import decompositions
import devices
import dispatch
import first_calls
import foreign
import fourier
import functions
import grids
import kernels
import models
import movement
import new_shapes
import normalisation
import optax_adam
import processes
import products
import programs
import reductions
import sampling
import sorting
import steps
import training

FAMILIES = (
    dispatch, new_shapes, kernels, reductions, normalisation, movement, products, attention,
    convolutions, functions, sorting, sampling, decompositions, fourier, models, training,
    optax_adam, programs, control_flow, steps, grids, foreign, collectives, devices, processes,
    compilation, first_calls,
)  # fmt: skip

# README's rows, by their names.
PICKED = (
    "eager `x + 1`, 8 floats",
    "warm `jit(f)(x)`",
    "eager `exp` at a new shape",
    "`import`, beyond NumPy's own",
    "extension module, stripped",
    "`tanh(exp(sin(x)))` of 1M floats",
    "`sum` of 1M floats",
    "`softmax` of 1000×1000",
    "gradient of the layer norm",
    "`x @ y` of 512×512, float32",
    "attention, 1×8×1024×64",
    "gradient of the attention",
    "3×3 convolution, 32×64×64×32 to 64 features",
    "`sort` of 1M floats",
    "`cholesky` of 512×512",
    "`fft` of 2^20",
    "MLP, a training step",
    "CNN, a training step",
    "transformer, a training step",
    "transformer, forward, batch 1",
    "first call of the transformer's training step",
    "N-body, 100 steps of 256 bodies",
    "Hessian of 200 variables",
    "step of Optax's Adam for 50 leaves",
    "`psum` of 4×1024 floats over 4 devices",
    "`fori_loop` of a scalar, for each of 100,000 steps",
)
