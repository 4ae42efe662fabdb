"""`check`, `debug_check` and `check_error`: effects that `checkify` turns into values.

A check is an equation over the arrays of an `Error`. Outside of functions that are staged it
raises; in staged ones it cannot be compiled, for compiled programs do not raise, and `checkify`
must take it out before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.callbacks.callback import callback_primitive, observe_jvp
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import Primitive
from ferrax._src.core.typing import ArrayLike
from ferrax._src.experimental.checkify.error import Error, FailedCheckError, failure, init_error
from ferrax._src.lax.elementwise import bitwise_not
from ferrax._src.transforms.batching_rules import bdim_at_front, primitive_batchers
from ferrax._src.tree import tree_util


class JaxRuntimeError(ValueError):
    """A check failed. The message is that of `Error.get` and the line of the check, the cause the exception behind it.

    >>> from ferrax.experimental import checkify
    >>> error, _ = checkify.checkify(lambda x: checkify.check(x > 0, "not positive"))(-1.0)
    >>> try:
    ...     error.throw()
    ... except checkify.JaxRuntimeError as failure:
    ...     print(str(failure).splitlines()[0])
    not positive (`check` failed)
    """


def _raise_failed(*args, err_tree, debug):
    if debug:
        return []
    exception = err_tree.unflatten(args).get_exception()
    if exception is not None:
        raise JaxRuntimeError(exception.told()) from exception
    return []


def _types(*avals, err_tree, debug):
    return [], set(err_tree.unflatten(avals)._kinds)


def _batch(primitive, args, dims, *, err_tree, debug):
    size, *_ = (np.shape(x)[dim] for x, dim in zip(args, dims) if dim is not None)
    of_elements = err_tree.unflatten(bdim_at_front(x, dim, size) for x, dim in zip(args, dims))
    failed, whole = tree_util.tree_flatten(of_elements._of_batch())
    primitive.bind(*failed, err_tree=whole, debug=debug)
    return [], []


def _define(primitive):
    primitive.multiple_results = True
    primitive.is_effectful = lambda params: True
    primitive.def_impl(_raise_failed)
    primitive.def_effectful_abstract_eval(_types)
    observe_jvp(primitive)
    primitive_batchers[primitive] = lambda args, dims, **params: _batch(
        primitive, args, dims, **params
    )
    return primitive


# A check in a function that is being staged.
check_p = _define(Primitive("check"))
# A check under eager derivatives and batches alone, whose programs run at once: it raises as soon
# as its values are known.
eager_check_p = _define(callback_primitive("check"))
eager_check_p._observes = True


def _refuse(*args, err_tree, debug):
    if debug:
        return []
    raise ValueError(
        "checkify.check in a compiled function: a program cannot raise, so the check has to become "
        "an output first. Transform checkify.checkify(f) in place of f (not functionalized yet), "
        "as in jit(checkify.checkify(f)), and call throw() on the error that it returns."
    )


register_lowering(check_p, lower_fun(_refuse))


def _bind(error, debug):
    if not error._kinds:
        return
    leaves, tree = tree_util.tree_flatten(error._of_batch())
    frame = _core.recording_frame(())
    staged = frame is not None and frame[0] == "stage"
    (check_p if staged else eager_check_p).bind(*leaves, err_tree=tree, debug=debug)


def _check(pred, msg, debug, args, kwargs):
    name = "debug_check" if debug else "check"
    array = isinstance(pred, core.Array)
    if not (isinstance(pred, bool) or (array and pred.shape == () and pred.dtype == np.bool_)):
        raise TypeError(
            f"{name}: pred has to be one boolean, got {pred!r}; jnp.all or jnp.any makes one of "
            "several"
        )
    for leaf in tree_util.tree_leaves((args, kwargs)):
        if not isinstance(leaf, (core.Array, np.ndarray)):
            raise TypeError(
                "Formatting arguments of checkify.check are trees of arrays; got the leaf "
                f"{leaf!r} of type {type(leaf)}."
            )

    template, payload = failure(FailedCheckError, _core.user_location(), (msg,), args, kwargs)
    failed = core.as_array(not pred) if isinstance(pred, bool) else bitwise_not(pred)
    _bind(init_error._with_failure(failed, template, payload), debug)


def check(
    pred: ArrayLike, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any,
) -> None:
    """Checks a predicate: it must be True.

    Args:
      pred: a bool or a boolean array of shape `()`.
      msg: the message if it is False, a format string for the other arguments.
      fmt_args, fmt_kwargs: arrays and pytrees of arrays, which the message shows.
      debug: do nothing outside of `checkify`.

    Outside of `jit` and other functions that stage, a failed check raises at once. A staged
    function must go through `checkify`, which makes failed checks an output of it.

    Errors: JaxRuntimeError, a ValueError, for a failed check; ValueError for a staged check that
    `checkify` has not taken out; TypeError for predicates and format arguments of other types.

    Example:
        >>> from ferrax.experimental import checkify
        >>> def root(x):
        ...     checkify.check(x >= 0, "{x} has no root", x=x)
        ...     return jnp.sqrt(x)
        >>> error, _ = ferrax.jit(checkify.checkify(root))(-1.0)
        >>> print(error.get())
        -1.0 has no root (`check` failed)
    """
    _check(pred, msg, debug, fmt_args, fmt_kwargs)


def debug_check(pred: ArrayLike, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A `check` that does nothing outside of `checkify`. 

    Args: pred, msg, fmt_args, fmt_kwargs: as for `check`, with its errors.

    Example:
        >>> from ferrax.experimental import checkify
        >>> checkify.debug_check(jnp.array(False), "of no effect here")
    """
    _check(pred, msg, True, fmt_args, fmt_kwargs)


def check_error(error: Error) -> None:
    """Raises if `error` has a failed check: the opposite of what `checkify` does.

    An effect as `check` is: functions with it must go through `checkify` before they are staged.
    Of an error with batch axes the last lane that failed counts.

    Errors: JaxRuntimeError if a check failed; TypeError for arguments that are no `Error`;
    ValueError as for `check`.

    Example:
        >>> from ferrax.experimental import checkify
        >>> def positive(x):
        ...     checkify.check(x > 0, "not positive")
        ...     return x
        >>> error, out = ferrax.jit(checkify.checkify(positive))(2.0)
        >>> checkify.check_error(error)
    """
    if not isinstance(error, Error):
        raise TypeError(
            f"check_error: expected an Error, as checkify gives it, got {type(error).__name__}"
        )
    _bind(error, False)


def _throw(error: Error) -> None:
    """Raises JaxRuntimeError with the message of the check that failed first, if one did."""
    check_error(error)


# The class is written without knowing of equations.
Error.throw = _throw  # type: ignore[assignment,method-assign]  # as said above
