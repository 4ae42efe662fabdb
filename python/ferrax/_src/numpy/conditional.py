"""`where` with one or three arguments."""

from __future__ import annotations

from typing import Any, overload

from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy.nonzero import nonzero_for
from ferrax._src.numpy.util import check_array_like, where as select_where


@overload
def where(
    condition: ArrayLike, x: None = None, y: None = None, /, *, size: int | None = None,
    fill_value: Any = None,
) -> tuple[Array, ...]: ...
@overload
def where(
    condition: ArrayLike, x: ArrayLike, y: ArrayLike, /, *, size: None = None,
    fill_value: None = None,
) -> Array: ...
@bounded
def where(
    condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /, *,
    size: int | None = None, fill_value: Any = None,
) -> Array | tuple[Array, ...]:
    """Elements of `x` where the condition holds, else of `y`, broadcast and promoted.

    With the condition alone, the same as `nonzero`. Both branches are computed; for gradients
    make the unused one finite too.

    Raises: TypeError if only one of `x` and `y` is given; ValueError for `size` or `fill_value`
    with three arguments.

    Args: condition: array of any dtype, not zero where it holds; x, y: arrays; size, fill_value: as
    for `nonzero`.

    >>> jnp.where(jnp.arange(3) > 1, 1.0, 0.0)
    Array([0., 0., 1.], dtype=float32, weak_type=True)
    """
    try:
        if x is None and y is None:
            check_array_like("where", condition)

            return nonzero_for("where", condition, size, fill_value)
        check_array_like("where", condition, x, y)
        if size is not None or fill_value is not None:
            raise ValueError(
                "where: size and fill_value are for where(condition) alone, not for where(condition, "
                "x, y)"
            )
        return select_where(condition, x, y)
    except Exception:
        leave()
        raise
