"""Run-time errors in functions that are transformed: checks whose results are values.

Example:
    >>> from ferrax.experimental import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "{x} is not positive", x=x)
    ...     return jnp.log(x)
    >>> error, out = ferrax.jit(checkify.checkify(f))(jnp.float32(2.0))
    >>> error.throw()
"""

from ferrax._src.base import public as _public
from ferrax._src.experimental.checkify.error import (
    Error as Error,
    ErrorCategory as ErrorCategory,
    init_error as init_error,
)
from ferrax._src.experimental.checkify.primitive import (
    JaxRuntimeError as JaxRuntimeError,
    check as check,
    check_error as check_error,
    debug_check as debug_check,
)
from ferrax._src.experimental.checkify.transform import (
    all_checks as all_checks,
    automatic_checks as automatic_checks,
    checkify as checkify,
    div_checks as div_checks,
    float_checks as float_checks,
    index_checks as index_checks,
    nan_checks as nan_checks,
    user_checks as user_checks,
)

_public.export(__name__)
