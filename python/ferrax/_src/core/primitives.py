"""Primitives: the ops of programs as objects.

There is one object for each op of the native core, under JAX's name (`lax.exp_p`), and users make
their own with `Primitive`. The rules of a user's primitive are Python functions in the registries
of `ferrax.interpreters`, which are dicts by primitive; those of the native core's are native.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import effects
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import primitive_params


class Primitive:
    """An operation with rules of its own for each transformation.

    Args:
        name: what jaxprs and messages call it.

    `bind` applies it: outside any trace it calls the function given to `def_impl`, else it
    becomes an equation whose types are what the function given to `def_abstract_eval` says. The
    other rules are `ferrax.interpreters.ad.primitive_jvps[p]` and `primitive_transposes[p]`,
    `batching.primitive_batchers[p]`, and `mlir.register_lowering(p, mlir.lower_fun(f))`.

    Errors: NotImplementedError that names primitive and rule where one is missing.

    Example:
        >>> from ferrax.interpreters import ad, mlir
        >>> double_p = ferrax.core.Primitive("double")
        >>> _ = double_p.def_impl(lambda x: 2 * x)
        >>> _ = double_p.def_abstract_eval(lambda x: ferrax.core.ShapedArray(x.shape, x.dtype))
        >>> double_p.bind(3.0)
        6.0
        >>> lowering = mlir.lower_fun(lambda x: 2 * x, multiple_results=False)
        >>> _ = mlir.register_lowering(double_p, lowering)
        >>> ad.deflinear2(double_p, lambda ct, x: [2 * ct])
        >>> ferrax.grad(double_p.bind)(3.0)
        Array(2., dtype=float32, weak_type=True)
    """

    multiple_results = False
    call_primitive = False
    map_primitive = False
    ref_primitive = False
    skip_canonicalization = False
    is_effectful: Any = None
    # Python code that runs as a step of compiled programs, for callbacks.
    _host: Callable[..., Any] | None = None
    # Runs at once under a derivative: it shows values and gives none.
    _observes = False
    _builtin = False
    # Stands for an operation on values that are no arrays.
    _high = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._effectful = False

    def __repr__(self) -> str:
        return self.name

    def def_impl(self, impl: Any) -> Callable[..., Any]:
        """Sets the function that computes the outputs for concrete arrays; returns it."""
        # The instance's rule stands before the class's, which says that there is none.
        self.impl = impl  # type: ignore[method-assign]  # as said above
        return impl

    def def_abstract_eval(self, abstract_eval: Any) -> Callable[..., Any]:
        """Sets the function from the types of the inputs (`ShapedArray`) to those of the outputs:
        one, or a sequence if `multiple_results`. Returns it."""

        def effect_free(*args, **kwargs):
            return abstract_eval(*args, **kwargs), effects.no_effects

        self.abstract_eval = effect_free  # type: ignore[method-assign]  # as in def_impl
        return abstract_eval

    def def_effectful_abstract_eval(self, effectful_abstract_eval: Any) -> Callable[..., Any]:
        """As `def_abstract_eval`, where the function returns `(types, set of effects)`."""
        self.abstract_eval = effectful_abstract_eval  # type: ignore[method-assign]  # as in def_impl
        self._effectful = True
        return effectful_abstract_eval

    def def_bind_with_trace(self, bind_with_trace: Any) -> NoReturn:
        """Not supported: raises NotImplementedError."""
        raise NotImplementedError(
            f"the primitive '{self.name}': traces are native and cannot be given to bind"
        )

    def impl(self, *args: Any, **params: Any) -> Any:
        """What `def_impl` was given. Errors: NotImplementedError without it."""
        raise NotImplementedError(
            f"Evaluation rule for '{self.name}' not implemented: give it with def_impl"
        )

    def abstract_eval(self, *args: Any, **params: Any) -> Any:
        """What `def_abstract_eval` was given. Errors: NotImplementedError without it."""
        raise NotImplementedError(
            f"Abstract evaluation for '{self.name}' not implemented: give it with def_abstract_eval"
        )

    def get_bind_params(self, params: Any) -> dict[str, Any]:
        """The parameters with which `bind` makes an equation with these params again."""
        return params

    def bind(self, *args: Any, **params: Any) -> Any:
        """Applies the primitive: its output, or a list of outputs if `multiple_results`."""
        if self._observes:
            values = _core.observed_values(self.name, args)
            if values is not None:
                return self.impl(*values, **params)
        results = _core.record_primitive(self, self.name, args, params, self._effectful)
        if results is None:
            return self.impl(*args, **params)
        return results if self.multiple_results else results[0]


class BuiltinPrimitive(Primitive):
    """A primitive of the native core, such as `lax.sin_p`.

    `bind` applies it, `impl` at once; its rules are native and cannot be replaced
    (NotImplementedError).

    >>> lax.sin_p, lax.sin_p.bind(0.0)
    (sin, Array(0., dtype=float32, weak_type=True))
    """

    _builtin = True

    def __init__(self, op, multiple_results):
        super().__init__(primitive_params.NAMES.get(op, op))
        # What the native core calls it.
        self.op = op
        self.multiple_results = multiple_results

    def native_params(self, params):
        """The parameters of an equation as the native core has them."""
        return primitive_params.native(self.op, params)

    def bind(self, *args, **params):
        results = _core.bind(self.op, args, primitive_params.native(self.op, params))
        if self.multiple_results and not isinstance(results, list):
            return [results]
        return results

    impl = bind

    def abstract_eval(self, *avals, **params):
        program, _, _ = _core.trace_program(
            lambda arrays: _as_list(self.bind(*arrays, **params)),
            "stage",
            self.name,
            [aval_type(aval) for aval in avals],
        )
        outs = [core.ShapedArray(*ty) for ty in program.out_types]
        return (outs if self.multiple_results else outs[0]), effects.no_effects

    def _native(self, what):
        raise NotImplementedError(
            f"{what}: '{self.name}' is a primitive of the native core, whose rules cannot be "
            "replaced; define a primitive of your own"
        )

    def def_impl(self, impl):
        self._native("def_impl")

    def def_abstract_eval(self, abstract_eval):
        self._native("def_abstract_eval")

    def def_effectful_abstract_eval(self, effectful_abstract_eval):
        self._native("def_effectful_abstract_eval")


def apply_primitive(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Applies a primitive at once: one that is defined in Python by its lowering, so that this may be what
    `def_impl` is given.

    Args: primitive: the primitive; args: its operands; params: its parameters.

    Errors: NotImplementedError where it is what `def_impl` was given, and the lowering writes MLIR.

    >>> ferrax.interpreters.xla.apply_primitive(lax.neg_p, jnp.ones(2))
    Array([-1., -1.], dtype=float32)
    """
    lowering = None if primitive._builtin else lowerings.get(primitive)
    impl = getattr(primitive.impl, "func", None)
    # The public name is a boundary of errors around this function.
    is_impl = getattr(impl, "__wrapped__", impl) is apply_primitive
    if lowering is None or (lowering.writes_mlir and not is_impl):
        return primitive.bind(*args, **params)
    avals_in = [core.typeof(x) for x in args] if lowering.takes_context else ()
    avals_out = _as_list(primitive.abstract_eval(*avals_in, **params)[0]) if lowering.takes_context else ()
    results = lowering.outputs(primitive, avals_in, avals_out, args, params)
    return results if primitive.multiple_results else results[0]


class _AtOnce(threading.local):
    # How many programs of calls outside of compiled functions are being applied to primitives without a
    # lowering: these run as what `def_impl` was given.
    depth = 0


at_once = _AtOnce()


def lacks_lowering(primitive: Any, message: str) -> NotImplementedError:
    """The error of a primitive that is compiled and has no lowering."""
    error = NotImplementedError(message)
    error._has_impl = "impl" in vars(primitive)  # type: ignore[attr-defined]  # for `by_implementation`
    return error


def by_implementation(apply: Callable[..., Any], *args: Any) -> Any:
    """What `apply(*args)` returns, which applies a program that a transformation outside of compiled
    functions made of a call. JAX makes none there and calls each primitive: one that has no lowering is
    therefore what `def_impl` was given. Nothing was run yet where a lowering is missing, for programs are
    compiled before."""
    try:
        return apply(*args)
    except NotImplementedError as error:
        if not getattr(error, "_has_impl", False) or at_once.depth:
            raise
    at_once.depth += 1
    try:
        return apply(*args)
    finally:
        at_once.depth -= 1


def apply_program(program: Any, values: Any) -> Any:
    """The outputs of a program for these values, of a call or recorded."""
    if by_moves is not None and (results := by_moves(program, values)) is not None:
        return results
    try:
        return by_implementation(_core.apply_program, program, values)
    except RuntimeError as error:
        if by_places is None or not getattr(error, "asks_places", False):
            raise
    return by_places(program, values)


# What runs programs that put values on devices, and returns None for others; None while nothing traced was put
# anywhere.
by_moves: Callable[[Any, Any], Any] | None = None
# What runs programs that ask where their values are (`placed_programs`), whose compilation raises such an error; and
# operations over such programs.
by_places: Callable[[Any, Any], Any] | None = None
bound_by_places: Callable[[str, Any, Any], Any] | None = None


def bind_over_programs(op: str, values: Any, params: dict[str, Any]) -> Any:
    """The results of a native operation with sub-programs, such as a loop."""
    try:
        return _core.bind(op, values, params)
    except RuntimeError as error:
        if bound_by_places is None or not getattr(error, "asks_places", False):
            raise
    return bound_by_places(op, values, params)


def _as_list(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


def aval_type(aval) -> tuple:
    """`(shape, dtype, weak)` of a type."""
    varying = getattr(aval, "_varying", ())
    ty = aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False))
    return (*ty, varying) if varying else ty


# The classes of primitives that are more than `BuiltinPrimitive`, by op; filled by modules above.
builtin_classes: dict[str, type[BuiltinPrimitive]] = {}
_MULTIPLE_RESULTS = frozenset(
    {
        "jit", "cond", "while", "scan", "remat2", "custom_jvp_call", "custom_vjp_call",
        "custom_lin", "optimization_barrier", "sweeps", "threefry2x32", "linear_call",
        "custom_linear_solve", "custom_vmap_call", "sort", "top_k", "eigh", "svd", "lu", "qr", "geqrf",
        "geqp3", "eig", "schur", "hessenberg", "tridiagonal",
    }
)  # fmt: skip

# Ops whose primitives are in `lax.linalg`.
LINALG = frozenset(
    {
        "cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu",
        "lu_pivots_to_permutation", "ormqr", "qr", "schur", "svd", "triangular_solve", "tridiagonal",
        "tridiagonal_solve",
    }
)  # fmt: skip

_builtin: dict[str, BuiltinPrimitive] = {}


def builtin(name: str) -> BuiltinPrimitive:
    """The primitive of the native core's op of this name; there is one for each."""
    known = _builtin.get(name)
    if known is None:
        kind = builtin_classes.get(name, BuiltinPrimitive)
        known = _builtin[name] = kind(name, name in _MULTIPLE_RESULTS)
    return known


def named_primitives() -> dict[str, BuiltinPrimitive]:
    """Every op of the native core as JAX names it: `exp_p` and so on; not those of files alone,
    whose primitives are defined in Python."""
    names = (name for name, _ in _core.documented_ops() if name not in IN_FILES)
    table = {f"{name}_p": builtin(name) for name in names}
    table["remat_p"] = table["remat2_p"]
    return table


class Rules(dict):
    """A registry of rules by primitive, a dict.

    A rule for a primitive of the native core is not called, which a warning says.

    >>> from ferrax.interpreters import ad
    >>> thrice_p = ferrax.core.Primitive("thrice")
    >>> ad.deflinear(thrice_p, lambda ct: [3 * ct])
    >>> thrice_p in ad.primitive_jvps, thrice_p in ad.primitive_transposes
    (True, True)
    """

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def __setitem__(self, primitive, rule):
        # Nobody asks how to transpose what has no tangent: that this rule is not called is no news.
        unasked = self.kind == "transpose rule" and getattr(primitive, "op", None) == "stop_gradient"
        if getattr(primitive, "_builtin", False) and not unasked:
            warnings.warn(
                f"the {self.kind} of '{primitive}', a primitive of the native core, is native: the "
                "one that is given here is not called",
                stacklevel=user_stacklevel(),
            )
        super().__setitem__(primitive, rule)


primitive_jvps = Rules("jvp rule")
primitive_transposes = Rules("transpose rule")
primitive_batchers = Rules("batching rule")
axis_primitive_batchers = Rules("batching rule")
fancy_primitive_batchers = Rules("batching rule")
lowerings = Rules("lowering")
# Of primitives whose operands and results have the same axes: functions from parameters to the axes along which
# elements depend on others, and of how many elements the blocks along each are that depend on each other alone, a block
# with one element of smaller arrays; 0 if there are none. Parts along all other axes are made of parts alike.
coupled_axes: dict[Any, Callable[..., Any]] = {}
# Ops that only files hold.
IN_FILES = frozenset({"linear_call", "custom_linear_solve", "custom_vmap_call"})
# The ops that files hold in the place of primitives that are defined here: functions from parameters,
# and whether rules are to be traced, to the name and the parameters of an op of the same operands.
data_forms: dict[Any, Callable[..., Any]] = {}
