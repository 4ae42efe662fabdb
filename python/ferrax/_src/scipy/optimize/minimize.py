"""`minimize`: the methods of minimization under one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy.logsumexp import as_inexact
from ferrax._src.scipy.optimize.bfgs import minimize_bfgs, minimize_lbfgs

_METHODS: dict[str, Callable[..., Any]] = {
    "bfgs": minimize_bfgs,
    "l-bfgs-experimental-do-not-rely-on-this": minimize_lbfgs,
}


class OptimizeResults(NamedTuple):
    """What a minimization ended with; a pytree.

    Attributes:
        x: the last point.
        success: whether the gradient is as small there as was asked for.
        status: 0 for success, 1 for too many iterations, 3 and 5 for line searches that failed (no step
            in the bracket; no bracket), -1 for anything else.
        fun, jac: the function and its gradient there.
        hess_inv: the approximate inverse of the Hessian, or None.
        nfev, njev, nit: how many functions, gradients and iterations were computed.

    >>> result = ferrax.scipy.optimize.minimize(
    ...     lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(2), method="BFGS")
    >>> bool(result.success)
    True
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


def minimize(
    fun: Callable[..., Any], x0: ArrayLike, args: tuple[Any, ...] = (), *, method: str,
    tol: float | None = None, options: Mapping[str, Any] | None = None,
) -> OptimizeResults:  # fmt: skip
    """A local minimum of a function of a vector.

    Args:
        fun: called as `fun(x, *args)`; gives a real scalar and can be differentiated.
        x0: where to begin: floating vector.
        args: a tuple of further arguments.
        method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this" for L-BFGS, which takes complex
            vectors, too.
        tol: how small the gradient has to be, as the option `gtol`, which counts if there are both.
        options: `maxiter`, the most iterations; `gtol` (1e-5) and `norm` (infinity), for the norm of the
            gradient at the end. Of BFGS `line_search_maxiter` (10); of L-BFGS `maxls` (20), `maxcor`
            (10), the steps that it remembers, `ftol`, the least relative decrease of a step, `maxfun`
            and `maxgrad`, the most functions and gradients.

    Returns: `OptimizeResults`.

    Errors: TypeError for `args` that are no tuple and for options that the method does not have;
    ValueError for unknown methods and for other than one axis.

    It can be compiled and batched. Nocedal and Wright, "Numerical Optimization" (2nd ed., 2006),
    chapters 3, 6 and 7.

    Example:
        >>> rosenbrock = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        >>> ferrax.scipy.optimize.minimize(rosenbrock, jnp.zeros(2), method="BFGS").x.round(2)
        Array([1., 1.], dtype=float32)
    """
    if not isinstance(args, tuple):
        raise TypeError(
            f"minimize: args must be a tuple, got {args!r}; for one argument, (argument,)"
        )
    run = _METHODS.get(method.lower())
    if run is None:
        raise ValueError(f'minimize: Method {method} not recognized; "BFGS" is supported')
    start = as_inexact("minimize", x0)
    if start.ndim != 1:
        raise ValueError(f"minimize: x0 must be a vector, got shape {tuple(start.shape)}")
    settings = dict(options or {})
    if tol is not None:
        settings.setdefault("gtol", tol)
    end = run(lambda x: fun(x, *args), start, **settings)
    inverse = end.memory if run is minimize_bfgs else None
    return OptimizeResults(
        x=end.x,
        success=end.converged & ~end.failed,
        status=end.status,
        fun=end.value,
        jac=end.gradient,
        hess_inv=inverse,
        nfev=end.evaluations,
        njev=end.evaluations,
        nit=end.number,
    )
