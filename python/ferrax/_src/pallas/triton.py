"""What kernels for GPUs by Triton name: `ferrax.experimental.pallas.triton`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NoReturn

from ferrax._src.lax.elementwise import tanh
from ferrax._src.numpy.products import dot as _dot
from ferrax._src.pallas.specs import CompilerParams as BaseParams
from ferrax._src.state import at_user_line


@dataclasses.dataclass(frozen=True)
class CompilerParams(BaseParams):
    """Parameters of Triton's compiler, which are kept with the equation.

    >>> plgpu.CompilerParams(num_warps=4)
    CompilerParams(num_warps=4, num_stages=None)
    """

    num_warps: int | None = None
    num_stages: int | None = None


def approx_tanh(x: Any) -> Any:
    """`tanh`, of which hardware may have a coarser one.

    Args: x: an array of floats.

    >>> plgpu.approx_tanh(jnp.float32(0))
    Array(0., dtype=float32)
    """
    return tanh(x)


def debug_barrier() -> None:
    """Waits for the other threads of a block: a step has one.

    >>> plgpu.debug_barrier()
    """


def dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: bool | None = None, precision: Any = None
) -> Any:
    """The product of two matrices, in float32 for narrower floats.

    Args: a, b: matrices; trans_a, trans_b: whether to transpose them first; allow_tf32, precision: one of them, as
    for `jnp.dot`.

    Errors: ValueError for what are no matrices, and for both of the last two.

    >>> plgpu.dot(jnp.ones((2, 3)), jnp.ones((4, 3)), trans_b=True).shape
    (2, 4)
    """
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"`a` and `b` must be 2D arrays, got shapes {a.shape} and {b.shape}.{at_user_line()}")
    if allow_tf32 is not None:
        if precision is not None:
            raise ValueError(f"dot: give allow_tf32 or precision, got {allow_tf32} and {precision}")
        precision = "high" if allow_tf32 else "highest"
    a, b = (a.T if trans_a else a), (b.T if trans_b else b)
    wide = "float32" if str(a.dtype) in ("float16", "bfloat16") else None
    return _dot(a, b, precision=precision, preferred_element_type=wide)


def elementwise_inline_asm(
    asm: str, *, args: Sequence[Any], constraints: str, pack: int, result_shape_dtypes: Sequence[Any]
) -> NoReturn:
    """Instructions of a GPU: not supported.

    Args: asm, args, constraints, pack, result_shape_dtypes: any. Errors: NotImplementedError.

    >>> plgpu.elementwise_inline_asm("tanh", args=[], constraints="", pack=1, result_shape_dtypes=[])
    Traceback (most recent call last):
    NotImplementedError: elementwise_inline_asm: kernels are compiled for any machine...
    """
    raise NotImplementedError(
        f"elementwise_inline_asm: kernels are compiled for any machine, {asm!r} is of one. Use jnp's functions."
        f"{at_user_line()}"
    )
