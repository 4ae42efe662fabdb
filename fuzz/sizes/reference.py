"""`jax`, `jnp` and `lax` over bounded values, and what a program gives with them."""

from types import SimpleNamespace

import numpy as np

from . import (
    reference_control,
    reference_elementwise,
    reference_moves,
    reference_products,
    reference_rows,
)
from .bounds import UNIT, Bounded, numpy_dtype, setting, wide
from .program import Program

DTYPES = {name: name for name in (*UNIT, "uint8", "int8", "int32", "int64")} | {"bool_": "bool"}
jnp = SimpleNamespace(
    **DTYPES, **reference_elementwise.JNP, **reference_rows.JNP, **reference_moves.JNP, **reference_products.JNP,
    inf=np.inf, pi=np.pi,
)  # fmt: skip
lax = SimpleNamespace(
    **reference_elementwise.LAX, **reference_rows.LAX, **reference_moves.LAX, **reference_products.LAX,
    **reference_control.LAX,
)  # fmt: skip
nn = SimpleNamespace(
    **reference_elementwise.NN, **reference_rows.NN, **reference_moves.NN, **reference_products.NN,
)  # fmt: skip
jax = SimpleNamespace(nn=nn, ops=SimpleNamespace(**reference_moves.OPS), **reference_control.JAX)


def evaluate(program: Program, arrays, x64: bool, track: bool = True) -> list[Bounded]:
    """The results of a program, of NumPy's arrays that hold what the inputs hold."""
    names = {"jax": jax, "jnp": jnp, "lax": lax}
    exec(program.function(), names)
    values = []
    for one, array in zip(program.inputs, arrays):
        array = np.asarray(array)
        # Inputs of another dtype than the program's are given in more bits, for differences.
        dtype = array.dtype.name if array.dtype == np.float64 else one.dtype
        assert array.dtype == numpy_dtype(dtype), (array.dtype, dtype)
        values.append(Bounded(array.astype(wide(dtype)), 0.0, dtype))
    with setting(track=track, x64=x64), np.errstate(all="ignore"):
        return list(names["f"](*values))
