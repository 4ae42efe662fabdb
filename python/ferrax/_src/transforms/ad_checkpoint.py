"""`checkpoint`: functions whose derivatives compute intermediate values again.

A call is traced into a program and recorded as one op; what its derivative keeps is the native
core's business, which asks the policy. See `checkpoint_policies` for policies. What an equation of `looked_into`
does, such as `shard_map`, the core cannot see: there it becomes a checkpoint of the same policy, and what that keeps
has a name by which it is kept outside, too. So it is where such equations are in the function or in functions that
it calls, not in bodies of loops and branches, of which the policy is asked as of one operation.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes, effects, errors
from ferrax._src.base.jax_version import follows
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import abstract_type, api_util, call_borders, float0, named_axes
from ferrax._src.core.jaxpr import ClosedJaxpr, bind_equation, interpret
from ferrax._src.core.primitives import builtin, by_implementation
from ferrax._src.state import arguments as ref_args
from ferrax._src.tracing import known
from ferrax._src.tracing.staging import Flat, stage
from ferrax._src.transforms import linearized
from ferrax._src.transforms.checkpoint_policies import native_policy, with_kept_within
from ferrax._src.tree import tree_util

__all__ = ["checkpoint", "checkpoint_name", "print_saved_residuals", "remat", "saved_residuals"]

_absent = object()
# By primitives whose equations have a jaxpr that policies are asked about: what gives the parameters of the equation
# that is a checkpoint within, of `(params, policy, prevent_cse)`.
looked_into: dict[Any, Callable[..., dict[str, Any]]] = {}
P = ParamSpec("P")
R = TypeVar("R")


def checkpoint(
    fun: Callable[P, R], *, prevent_cse: bool | Sequence[bool] = True,
    policy: Callable[..., bool] | None = None, static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | Iterable[str] = (), concrete: Any = _absent,
) -> Callable[P, R]:
    """`fun`, with a derivative that computes intermediate values again in place of keeping them.

    Reverse-mode derivatives keep what they need of each operation until the backward pass comes to
    it. A checkpointed function keeps its inputs, and what `policy` says; the rest is computed a
    second time on the way back. That takes less memory and more time. Values and derivatives stay
    what they are, and effects such as prints happen again.

    Args:
      fun: a function of pytrees of arrays. It is traced at each call, so Python control flow
        cannot depend on the values of its arguments.
      prevent_cse: keeps the compiler from finding that the values are there already, which would
        undo the effect. Not needed in the body of a `scan`. Of a sequence of flags, one for each
        argument, any that is set counts for all; so it does of any tree of flags where JAX 0.12 is followed.
      policy: which intermediate values to keep: one of `ferrax.checkpoint_policies`, or a callable
        `(prim, *avals, **params) -> bool`, asked for each operation. None keeps nothing.
      static_argnums, static_argnames: arguments that are passed on as they are, so that Python
        control flow may depend on them.

    Returns a function with the arguments and results of `fun`.

    Errors: TypeError for a `prevent_cse` or `static_argnums` of other types and for arguments that
    are no arrays; ValueError, at a call, for positions that it does not have; NotImplementedError
    for `concrete`, which JAX 0.10 removed (a TypeError where JAX 0.12 is followed), and for derivatives of
    functions that call `io_callback`.

    Example:
        >>> @ferrax.checkpoint
        ... def block(x):
        ...     return jnp.sin(jnp.sin(x))
        >>> ferrax.grad(block)(2.0)
        Array(-0.25563..., dtype=float32, weak_type=True)
    """
    if concrete is not _absent and follows(0, 12):
        raise TypeError("checkpoint: got an unexpected keyword argument 'concrete'")
    if concrete is not _absent:
        raise NotImplementedError(
            "checkpoint: the option `concrete` is gone; declare the arguments that Python control "
            "flow depends on with `static_argnums`"
        )
    api_util.check_callable(fun)
    flags = tree_util.tree_leaves(prevent_cse)
    if isinstance(prevent_cse, Sequence) or follows(0, 12):
        prevent_cse = any(flags) if all(isinstance(flag, bool) for flag in flags) else prevent_cse
    if not isinstance(prevent_cse, bool):
        raise TypeError(
            f"checkpoint: prevent_cse must be a bool or a sequence of bools, got {prevent_cse!r}"
        )
    if isinstance(static_argnums, int):
        static_argnums = (static_argnums,)
    native = native_policy(policy)
    # Of programs that were seen: those to call, and by which policy.
    seen: dict[_core.Program, tuple] = {}
    static_argnames = frozenset(
        api_util.as_tuple_of_strings(static_argnames, "checkpoint: static_argnames")
    )

    def checkpointed(*args, **kwargs):
        static = _static_positions(static_argnums, args)
        call, dynamic, named = fun, args, kwargs
        given: tuple[tuple, ...] = ()
        if static or static_argnames & kwargs.keys():
            dynamic = tuple(arg for i, arg in enumerate(args) if i not in static)
            named = {key: value for key, value in kwargs.items() if key not in static_argnames}
            held = {key: value for key, value in kwargs.items() if key in static_argnames}
            call = _merging(fun, args, static, held)
            values = {i: args[i] for i in sorted(static)} | held
            given = tuple((key, type(value), value) for key, value in values.items())
        (call,), dynamic, named = ref_args.slots("checkpoint", [call], dynamic, named)
        dynamic, named = float0.hide((dynamic, named))
        leaves, in_tree = tree_util.tree_flatten((dynamic, named))
        arrays = [core.as_array(leaf, api_util.fun_name(fun)) for leaf in leaves]
        program, captured, touched, out_tree = _traced(fun, call, given, arrays, in_tree, dynamic, named)
        if any(map(_is_differentiated, arrays)):
            _check_effects(fun, program)
        chosen = native
        if native is not None and touched is None:
            entry = seen.get(program)
            if entry is None:
                inner = _within(program, [*arrays, *captured], native, prevent_cse)
                entry = (program, native) if inner is None else (inner, with_kept_within(policy))
                if len(seen) >= _SEEN:
                    seen.clear()
                seen[program] = entry
            program, chosen = entry
        results = by_implementation(
            _core.checkpoint_call, program, chosen, prevent_cse, [*arrays, *captured]
        )
        if touched is not None:
            results = touched.write_back(results)
        return out_tree.unflatten(results)

    return api_util.update_wrapper(api_boundary(checkpointed), fun)


# So many programs a checkpointed function remembers.
_SEEN = 16


def _within(program, arrays, policy, prevent_cse):
    """The program, for operands as these, whose equations of `looked_into` are checkpoints within; None if it has
    none."""
    if not _has_hidden(program):
        return None
    closed = ClosedJaxpr(program)

    def apply(eqn, values):
        rule = looked_into.get(eqn.primitive)
        if rule is not None:
            return list(eqn.primitive.bind(*values, **rule(eqn.params, policy, prevent_cse)))
        if eqn.primitive is builtin("jit"):
            inner = call_borders.whole(eqn.params)["jaxpr"]
            return interpret(inner.open, inner.consts, values, apply)
        return bind_equation(eqn, values)

    def opened(*args):
        return interpret(closed.open, closed.consts, args, apply)

    opened.__name__ = program.name
    staged, captured, _ = stage(opened, arrays, {})
    return staged.bind_constants(captured) if captured else staged


def _has_hidden(program) -> bool:
    for primitive, params, *_ in program.equations():
        if primitive in looked_into or primitive == "jit" and _has_hidden(params["program"]):
            return True
    return False


def _is_differentiated(array) -> bool:
    frame = _core.tracer_frame(array) if isinstance(array, core.Tracer) else None
    return frame is not None and frame[1] == "diff"


def _check_effects(fun, program) -> None:
    """Errors: NotImplementedError for effects that must not happen a second time."""
    refused = effects.remat_allowed_effects.filter_not_in(
        effect
        for effect in ClosedJaxpr(program).effects
        if isinstance(effect, (effects.IOEffect, effects.OrderedIOEffect))
    )
    if refused:
        raise NotImplementedError(
            f"checkpoint: {api_util.fun_name(fun)} calls Python with side effects "
            f"({', '.join(sorted(map(str, refused)))}), "
            "and its derivative would call it a second time. Call io_callback outside of checkpoint, or "
            "pure_callback, which may be called again"
        )


def _traced(fun, call, given, arrays, in_tree, args, kwargs):
    """`(program, captured, touched, out_tree)` of a function whose arguments have these arrays as
    leaves: of `call`, which is `fun` where these static arguments are given."""
    types = [abstract_type(array) for array in arrays]
    result, key = known.find(fun, ("checkpoint", given, in_tree, *types))
    if result is not None:
        return result
    flat = Flat(call, in_tree, kind="checkpoint")
    names = functools.partial(api_util.argument_names, call, args, kwargs)
    asked = linearized.asks_for_checkpoints[0]
    try:
        with named_axes.checkpointed() if asked else contextlib.nullcontext():
            program, captured, touched = _core.trace_program(
                flat, "stage", api_util.fun_name(fun), types, names, arrays
            )
    except errors.ConcretizationTypeError as error:
        _advise(error)
        raise
    result = program, captured, touched, flat.out_tree
    if key is not None and known.lasting(captured, touched):
        known.keep(fun, key, result)
    return result


def remat(
    fun: Callable[P, R], *, prevent_cse: bool = True, policy: Callable[..., bool] | None = None,
    static_argnums: int | tuple[int, ...] = (), concrete: Any = _absent,
) -> Callable[P, R]:
    """Another name of `checkpoint`.

    Args: fun, prevent_cse, policy, static_argnums, concrete: as for `checkpoint`.

    Example:
        >>> ferrax.grad(ferrax.remat(jnp.sin))(0.0)
        Array(1., dtype=float32, weak_type=True)
    """
    return checkpoint(
        fun,
        prevent_cse=prevent_cse,
        policy=policy,
        static_argnums=static_argnums,
        concrete=concrete,
    )


def _static_positions(static_argnums, args) -> frozenset[int]:
    numbers = isinstance(static_argnums, tuple) and all(type(n) is int for n in static_argnums)
    if not numbers:
        raise TypeError(
            "checkpoint: static_argnums must be an int or a tuple of ints, got "
            f"{static_argnums!r}"
        )
    count = len(args)
    for number in static_argnums:
        if not -count <= number < count:
            raise ValueError(
                f"checkpoint: static_argnums {static_argnums} has {number}, but the function was "
                f"called with {count} positional arguments: numbers from {-count} to {count - 1} "
                "are allowed"
            )
    return frozenset(number % count for number in static_argnums)


def _merging(fun, args, static, held):
    """`fun` as a function of the other arguments."""

    @functools.wraps(fun)
    def merged(*given, **kwargs):
        dynamic = iter(given)
        merged = [arg if i in static else next(dynamic) for i, arg in enumerate(args)]
        return fun(*merged, **held, **kwargs)

    return merged


_ADVICE = (
    "A checkpointed function is traced even where its arguments' values are known: declare "
    "arguments that Python control flow depends on with the `static_argnums` of `checkpoint`."
)


def _advise(error) -> None:
    """Adds to an error about an unknown value what helps in a checkpointed function."""
    (message,) = error.args
    if _ADVICE not in message:
        error.args = (f"{message}\n{_ADVICE}",)


def checkpoint_name(x: Any, name: Any) -> Any:
    """`x`, whose value has a name inside `checkpoint`: policies keep or drop it by that.

    Args:
      x: an array or a pytree of arrays.
      name: a string.

    Errors: TypeError for a name that is no string.

    Example:
        >>> import functools
        >>> from ferrax.ad_checkpoint import checkpoint_name
        >>> policy = ferrax.checkpoint_policies.save_only_these_names("hidden")
        >>> @functools.partial(ferrax.checkpoint, policy=policy)
        ... def layer(w, x):
        ...     return jnp.sin(checkpoint_name(x @ w, "hidden"))
        >>> layer(jnp.zeros((2, 2)), jnp.ones(2))
        Array([0., 0.], dtype=float32)
    """
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_name: name must be a str, got {name!r}")
    return tree_util.tree_map(lambda leaf: _core.bind("name", (leaf,), {"name": name}), x)


def checkpoint_name_fwd(x: Any, name: Any) -> Any:
    """As `checkpoint_name`: a name is that of the value, not of its cotangent, in either.

    Args: x: an array or a pytree of arrays; name: a string (TypeError).

    >>> from ferrax.ad_checkpoint import checkpoint_name_fwd
    >>> checkpoint_name_fwd(1.0, "hidden")
    Array(1., dtype=float32, weak_type=True)
    """
    return checkpoint_name(x, name)


def saved_residuals(f, *args, **kwargs) -> list[tuple[core.ShapedArray, str]]:
    """What the reverse-mode derivative of `f` keeps from evaluating `f(*args, **kwargs)`.

    Args:
      f: a function of pytrees of arrays, checkpointed or with checkpointed parts.
      args, kwargs: its arguments, or anything with their shapes and dtypes.

    Returns for each value that is kept its type and where it comes from: an argument, a constant,
    a `checkpoint_name`, or the operation at a line.

    Example:
        >>> saved_residuals(lambda x: jnp.sin(jnp.sin(x)), 1.0)
        [(ShapedArray(float32[], weak_type=True), 'output of cos from ...'), ...]
    """
    program, captured, _ = stage(f, args, kwargs, writes=True)
    names = api_util.argument_names(f, args, kwargs)
    count = len(program.in_types) - len(captured)
    nonzero = [_is_inexact(dtype) for _, dtype, *_ in program.in_types[:count]]
    residuals = _core.saved_residuals(program, nonzero + [False] * len(captured))
    described = []
    for ty, kind, detail, line in residuals:
        place = f" from {line}" if line else ""
        if kind == "argument" and detail < count:
            text = f"from the argument {names[detail]}"
        elif kind in ("argument", "constant"):
            text = "from a constant"
        elif kind == "name":
            text = f"named '{detail}'{place}"
        elif kind == "jit":
            text = f"output of jitted function '{detail}'{place}"
        else:
            text = f"output of {detail}{place}"
        described.append((core.ShapedArray(*ty), text))
    # Constants first, as they are the first inputs of a jaxpr.
    return sorted(described, key=lambda item: item[1] != "from a constant")


def _is_inexact(dtype) -> bool:
    return dtypes.has_tangent(dtype)


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Prints what `saved_residuals` returns, a line for each value.

    Args: f, args, kwargs: as for `saved_residuals`.

    Example:
        >>> from ferrax.ad_checkpoint import print_saved_residuals
        >>> print_saved_residuals(ferrax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), 1.0)
        f32[] from the argument x
    """
    for aval, text in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short(short_dtypes=True)} {text}")
