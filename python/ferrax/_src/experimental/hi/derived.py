"""Rules of a `HiPrim` made of its other ones: what a class puts in the places of its methods.

`jvp_from_lin` is a method, the others are pairs of methods. Where the compiler differentiates it needs none of them: it
makes reverse mode of a `jvp` or a `lin` itself (`is_derived`). They are for programs that call a primitive's rules.
Cost: a trace of the rule that they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ferrax._src.core.avals import mapped_aval, unmapped_aval
from ferrax._src.experimental.hi.accums import is_zero
from ferrax._src.transforms.ad import Zero, zeros_like_aval
from ferrax._src.transforms.autodiff import linear_transpose, linearize
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.batching_rules import bdim_at_front
from ferrax._src.tree import opaque


def jvp_from_lin(self: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`jvp` of a class that has `lin` and `linearized`.

    Args: self: the primitive; primals, tangents: tuples of arguments and of their tangents, `Zero`s among these.
    Errors: TypeError where `lin` is itself made of `jvp`.

    >>> class Square(hijax.HiPrim):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x * x
    ...     def lin(self, nonzero, x):
    ...         return self(x), 2 * x
    ...     def linearized(self, slope, t):
    ...         return slope * t
    ...     jvp = hijax.jvp_from_lin
    >>> ferrax.jvp(lambda x: Square(ferrax.typeof(x))(x), (3.0,), (1.0,))[1]
    Array(6., dtype=float32, weak_type=True)
    """
    check_ends(self)
    nonzero = self.in_tree.unflatten([not is_zero(t) for t in self.in_tree.flatten_up_to(tangents)])
    out, residuals, *rest = self.lin(nonzero, *primals)
    return out, self.linearized(residuals, *rest[1:], *tangents)


def check_ends(prim: Any) -> None:
    """Errors: TypeError for a primitive of which two rules are each made of the other."""
    if is_derived(type(prim).jvp) and is_derived(type(prim).lin):
        raise TypeError(
            f"{type(prim).__name__} has both `jvp = jvp_from_lin` and `lin, linearized = linearize_from_jvp`: each is "
            "made of the other. Define one of them"
        )


class _LinearizeFromJvp(NamedTuple):
    """`lin` and `linearized` of a class that has `jvp`.

    >>> class Square(hijax.HiPrim):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x * x
    ...     def jvp(self, primals, tangents):
    ...         return self(*primals), 2 * primals[0] * tangents[0]
    ...     lin, linearized = hijax.linearize_from_jvp
    >>> square = Square(ferrax.typeof(jnp.float32(3)))
    >>> out, residuals, nonzero = square.lin((True,), jnp.float32(3))
    >>> square.linearized(residuals, jnp.float32(1))
    Array(6., dtype=float32)
    """

    lin: Callable[..., Any]
    linearized: Callable[..., Any]


class _VjpFromJvp(NamedTuple):
    """`vjp_fwd` and `vjp_bwd_retval` of a class that has `jvp`.

    >>> class Square(hijax.HiPrim):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x * x
    ...     def jvp(self, primals, tangents):
    ...         return self(*primals), 2 * primals[0] * tangents[0]
    ...     vjp_fwd, vjp_bwd_retval = hijax.vjp_from_jvp
    >>> ferrax.grad(lambda x: Square(ferrax.typeof(x))(x))(3.0)
    Array(6., dtype=float32, weak_type=True)
    """

    vjp_fwd: Callable[..., Any]
    vjp_bwd_retval: Callable[..., Any]


class _VjpFromLin(NamedTuple):
    """`vjp_fwd` and `vjp_bwd_retval` of a class that has `lin` and `linearized`.

    >>> class Square(hijax.HiPrim):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x * x
    ...     def lin(self, nonzero, x):
    ...         return self(x), 2 * x
    ...     def linearized(self, slope, t):
    ...         return slope * t
    ...     vjp_fwd, vjp_bwd_retval = hijax.vjp_from_lin
    >>> ferrax.grad(lambda x: Square(ferrax.typeof(x))(x))(3.0)
    Array(6., dtype=float32, weak_type=True)
    """

    vjp_fwd: Callable[..., Any]
    vjp_bwd_retval: Callable[..., Any]


class _Linear:
    """What `lin` of `linearize_from_jvp` gives as residuals: the linear function, and which results it gives."""

    def __init__(self, fun, nonzero):
        self.fun = fun
        self.nonzero = nonzero


def _types_of_tangents(prim, flags):
    return [aval.to_tangent_aval() for aval, flag in zip(prim.in_avals_flat, flags) if flag]


def _tangents(prim, flags, given):
    """The tree of tangents, of those that are there."""
    given = iter(given)
    pairs = zip(flags, prim.in_avals_flat)
    return prim.in_tree.unflatten([next(given) if flag else Zero(aval.to_tangent_aval()) for flag, aval in pairs])


def _lin(self, nzs_in, *primals):
    flags = self.in_tree.flatten_up_to(nzs_in)
    nonzero: list[bool] = []

    def moved(*given):
        out, tangents = self.jvp(primals, _tangents(self, flags, given))
        leaves = self.out_tree.flatten_up_to(tangents)
        nonzero[:] = [not is_zero(t) for t in leaves]
        return [t for t in leaves if not is_zero(t)], out

    zeros = [_zero(ty) for ty in _types_of_tangents(self, flags)]
    _, linear, out = linearize(moved, *zeros, has_aux=True)

    def fun(*tangents):
        leaves = self.in_tree.flatten_up_to(tangents)
        return linear(*[_instantiate(t) for t, flag in zip(leaves, flags) if flag])

    return out, _Linear(fun, list(nonzero)), self.out_tree.unflatten(nonzero)


def _linearized(self, residuals, *tangents):
    found = iter(residuals.fun(*tangents))
    pairs = zip(residuals.nonzero, self.out_avals_flat)
    return self.out_tree.unflatten([next(found) if flag else Zero(aval.to_tangent_aval()) for flag, aval in pairs])


def _pulled(prim, flags, push, out_ct):
    """The tree of the arguments' cotangents: `push`, from a tree of tangents to that of the result's, transposed."""

    def moved(*given):
        return [_instantiate(t) for t in prim.out_tree.flatten_up_to(push(_tangents(prim, flags, given)))]

    cts = [_instantiate(ct) for ct in prim.out_tree.flatten_up_to(out_ct)]
    examples = [_zero(ty) for ty in _types_of_tangents(prim, flags)]
    return _tangents(prim, flags, linear_transpose(moved, *examples)(cts))


def _zero(ty):
    return ty.vspace_zero() if getattr(ty, "is_high", False) else zeros_like_aval(ty)


def _instantiate(tangent):
    return _zero(tangent.aval) if type(tangent) is Zero else tangent


def _forward_of_jvp(self, nzs_in, *primals):
    return self(*primals), (primals, nzs_in)


def _backward_of_jvp(self, residuals, out_ct):
    primals, nzs_in = residuals
    return _pulled(self, self.in_tree.flatten_up_to(nzs_in), lambda tangents: self.jvp(primals, tangents)[1], out_ct)


def _forward_of_lin(self, nzs_in, *primals):
    out, residuals, *rest = self.lin(nzs_in, *primals)
    return (out, (residuals, nzs_in, rest[1:]), *rest[:1])


def _backward_of_lin(self, residuals, out_ct):
    residuals, nzs_in, structured = residuals
    flags = self.in_tree.flatten_up_to(nzs_in)
    return _pulled(self, flags, lambda tangents: self.linearized(residuals, *structured, *tangents), out_ct)


linearize_from_jvp = _LinearizeFromJvp(_lin, _linearized)
vjp_from_jvp = _VjpFromJvp(_forward_of_jvp, _backward_of_jvp)
vjp_from_lin = _VjpFromLin(_forward_of_lin, _backward_of_lin)
_DERIVED = {jvp_from_lin, *linearize_from_jvp, *vjp_from_jvp, *vjp_from_lin}


def is_derived(method: Any) -> bool:
    """Whether a method is one of this module, or what users see of it."""
    return getattr(method, "__wrapped__", method) in _DERIVED


# For `batch`.


def unmap_avals(axis_data: Any, avals: Any, dims: Any) -> Any:
    """The types of batches whose elements have these.

    Args:
        axis_data: what `batch` is told of the axis: its `size`.
        avals: a tree of types.
        dims: in the same tree, where each has the axis; None for one that is the same for each element.

    >>> class axis:
    ...     name, size, spmd_name = None, 3, None
    >>> hijax.unmap_avals(axis, (ferrax.typeof(1.0), ferrax.typeof(jnp.ones(2))), (None, 1))
    (ShapedArray(float32[], weak_type=True), ShapedArray(float32[2,3]))
    """
    add = lambda aval, dim: unmapped_aval(axis_data.size, dim, aval)  # noqa: E731
    return opaque.tree_map(add, avals, dims)


def bdims_at_front(axis_data: Any, args: Any, dims: Any) -> Any:
    """Batches with the axis in front; what is the same for each element is repeated.

    Args:
        axis_data: what `batch` is told of the axis: its `size`.
        args: a tree of arrays.
        dims: in the same tree, where each has the axis, or None.

    >>> class axis:
    ...     name, size, spmd_name = None, 3, None
    >>> [x.shape for x in hijax.bdims_at_front(axis, (jnp.ones((2, 3)), jnp.ones(2)), (1, None))]
    [(3, 2), (3, 2)]
    """
    return opaque.tree_map(lambda x, dim: bdim_at_front(x, dim, axis_data.size), args, dims)


def vmap_rule(
    axis_data: Any, f: Callable[..., Any], in_axes: Any, out_axes: Any, *, sum_match: bool = False
) -> Callable[..., Any]:
    """A function mapped over the axis that `batch` is told of, of arguments and results among which are `Zero`s.

    Args:
        axis_data: what `batch` is told of the axis.
        f: the function of an element; a `Zero` comes to it with the type of an element, and one that it gives gets
            that of a batch.
        in_axes, out_axes, sum_match: as `ferrax.vmap` has them.
    Errors: those of `ferrax.vmap`.

    >>> class axis:
    ...     name, size, spmd_name = None, 3, None
    >>> hijax.vmap_rule(axis, jnp.dot, (0, None), 0)(jnp.ones((3, 2)), jnp.ones(2))
    Array([2., 2., 2.], dtype=float32)
    """
    size = axis_data.size

    def element(axis, x):
        return Zero(mapped_aval(size, axis, x.aval)) if type(x) is Zero else x

    def batch(axis, x):
        return Zero(unmapped_aval(size, axis, x.aval)) if type(x) is Zero else x

    def each(function, axes, values):
        def of_prefix(axis, part):
            return opaque.tree_map(lambda x: function(axis, x), part, is_leaf=lambda x: type(x) is Zero)

        return opaque.tree_map(of_prefix, axes, values, is_leaf=lambda x: x is None)

    mapped = vmap(
        f, in_axes=in_axes, out_axes=out_axes, axis_name=axis_data.name, axis_size=size,
        spmd_axis_name=axis_data.spmd_name, sum_match=sum_match,
    )  # fmt: skip
    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes

    def batched(*args):
        return each(batch, out_axes, mapped(*each(element, in_axes, args)))

    return batched
