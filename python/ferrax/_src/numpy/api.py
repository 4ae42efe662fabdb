"""NumPy's functions under one name, `jnp`, for the layers above: those that these use."""

# ruff: noqa: F401
from numpy import complexfloating, floating, inexact

from ferrax._core import ufuncs
from ferrax._src.base.dtypes import (
    finfo,
)
from ferrax._src.numpy.array_creation import (
    arange,
    array,
    asarray,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from ferrax._src.numpy.conditional import (
    where,
)
from ferrax._src.numpy.einsum import (
    einsum,
)
from ferrax._src.numpy.numeric import (
    polyval,
)
from ferrax._src.numpy.reductions import (
    argmax,
    cumsum,
    max,
    mean,
    sum,
)
from ferrax._src.numpy.scalar_types import SCALAR_TYPES
from ferrax._src.numpy.shape import (
    broadcast_to,
    concatenate,
    moveaxis,
    split,
    stack,
    transpose,
)
from ferrax._src.numpy.sorting import (
    searchsorted,
)
from ferrax._src.numpy.take import (
    take,
)
from ferrax._src.numpy.ufunc_api import (
    logaddexp,
    logical_and,
    maximum,
    minimum,
    subtract,
)
from ferrax._src.numpy.ufuncs import (
    clip,
    power,
)

abs = ufuncs.abs
exp = ufuncs.exp
expm1 = ufuncs.expm1
log = ufuncs.log
log1p = ufuncs.log1p
nextafter = ufuncs.nextafter
sqrt = ufuncs.sqrt
square = ufuncs.square
tanh = ufuncs.tanh

float32 = SCALAR_TYPES["float32"]
int32 = SCALAR_TYPES["int32"]
