"""Layers of neural networks as pairs of functions `(init, apply)`.

Example:
    >>> from ferrax.example_libraries import stax
    >>> init, apply = stax.serial(stax.Dense(8), stax.Relu, stax.Dense(2), stax.LogSoftmax)
    >>> shape, params = init(ferrax.random.key(0), (-1, 4))
    >>> ferrax.jit(apply)(params, jnp.ones((3, 4))).shape
    (3, 2)
"""

from ferrax._src.base import public as _public
from ferrax._src.experimental.stax import (
    AvgPool as AvgPool,
    BatchNorm as BatchNorm,
    Conv as Conv,
    Conv1DTranspose as Conv1DTranspose,
    ConvTranspose as ConvTranspose,
    Dense as Dense,
    Dropout as Dropout,
    Elu as Elu,
    Exp as Exp,
    FanInConcat as FanInConcat,
    FanInSum as FanInSum,
    FanOut as FanOut,
    Flatten as Flatten,
    Gelu as Gelu,
    GeneralConv as GeneralConv,
    GeneralConvTranspose as GeneralConvTranspose,
    Identity as Identity,
    LeakyRelu as LeakyRelu,
    LogSoftmax as LogSoftmax,
    MaxPool as MaxPool,
    Relu as Relu,
    Selu as Selu,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Softplus as Softplus,
    SumPool as SumPool,
    Tanh as Tanh,
    elementwise as elementwise,
    parallel as parallel,
    serial as serial,
    shape_dependent as shape_dependent,
)
from ferrax._src.nn.functions import (
    elu as elu,
    gelu as gelu,
    leaky_relu as leaky_relu,
    log_softmax as log_softmax,
    relu as relu,
    selu as selu,
    sigmoid as sigmoid,
    softmax as softmax,
    softplus as softplus,
    standardize as standardize,
)
from ferrax._src.nn.initializers import (
    glorot_normal as glorot_normal,
    normal as normal,
    ones as ones,
    zeros as zeros,
)

glorot = glorot_normal
randn = normal
logsoftmax = log_softmax

_public.export(__name__)
