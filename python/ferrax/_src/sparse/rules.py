"""What operations do with sparse arrays: the rules of `sparsify`.

Operations that are zero at zero act on the stored elements, those that are not linear once elements at
one place were added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.composed.special.bessel import bessel_i1e_p
from ferrax._src.core import scan_params
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.primitives import builtin
from ferrax._src.lax import api as lax
from ferrax._src.lax.control_flow.conditionals import switch
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.control_flow.while_loop import while_loop
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse import bcoo_structure as structure
from ferrax._src.sparse.base import in_bounds, is_sparse, masked, out_of_bounds
from ferrax._src.sparse.bcoo import BCOO, bcoo_dot_general, bcoo_sum_duplicates, bcoo_transpose
from ferrax._src.sparse.bcsr import (
    BCSR,
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_sum_duplicates,
)
from ferrax._src.sparse.transform import bcoo_rules, bcsr_rules, evaluate

_LINEAR = ("conj", "copy", "imag", "neg", "real", "reduce_precision")
_ZERO_AT_ZERO = (
    "abs", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "convert_element_type", "erf", "erf_inv",
    "expm1", "floor", "log1p", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
)  # fmt: skip


def _with_data(mat: Any, data: Any) -> Any:
    """A sparse array with other elements at the same places."""
    children, aux = mat.tree_flatten()
    return type(mat).tree_unflatten(aux, (data, *children[1:]))


def _unique(mat: Any) -> Any:
    """With one element at each place."""
    if mat.unique_indices:
        return mat
    if isinstance(mat, BCSR):
        return bcsr_sum_duplicates(mat, nse=mat.nse)
    return bcoo_sum_duplicates(mat, nse=mat.nse)


def _elementwise(primitive, linear):
    def rule(mat, **params):
        mat = mat if linear else _unique(mat)
        return _with_data(mat, primitive.bind(mat.data, **params))

    bcoo_rules[primitive.name] = bcsr_rules[primitive.name] = rule


for _name in _LINEAR:
    _elementwise(builtin(_name), True)
for _primitive in (*map(builtin, _ZERO_AT_ZERO), bessel_i1e_p):
    _elementwise(_primitive, False)


def _integer_pow(mat, *, y, **params):
    if y <= 0:
        raise NotImplementedError(
            f"sparse integer_pow: zeros to the power {y} are no zeros, so that the result would be dense; "
            "if that is wanted, convert arguments with sparse.todense()."
        )
    mat = _unique(mat)
    return _with_data(mat, lax.integer_pow(mat.data, y))


bcoo_rules["integer_pow"] = bcsr_rules["integer_pow"] = _integer_pow


def _add(x, y):
    if is_sparse(x) and is_sparse(y):
        if x.indices is y.indices and x.shape == y.shape:
            return _with_data(x, lax.add(x.data, y.data))
        if x.shape != y.shape or x._layout[:3] != y._layout[:3]:
            raise NotImplementedError(
                "Addition between sparse arrays of different shapes or with different batch and dense "
                f"dimensions is not implemented, got {x} and {y}"
            )
        n_batch = x.n_batch
        pairs = []
        for a, b in ((x.data, y.data), (x.indices, y.indices)):
            batch = np.broadcast_shapes(a.shape[:n_batch], b.shape[:n_batch])
            a, b = (jnp.broadcast_to(z, (*batch, *z.shape[n_batch:])) for z in (a, b))
            pairs.append(jnp.concatenate([a, b.astype(a.dtype)], axis=n_batch))
        return BCOO(tuple(pairs), shape=x.shape)
    mat, dense = (x, y) if is_sparse(x) else (y, x)
    if dense.shape != mat.shape:
        raise NotImplementedError(
            f"sparse add: a dense operand has to have the shape of the sparse one, got {mat} and shape "
            f"{tuple(dense.shape)}; convert with sparse.todense()"
        )
    return lax.add(mat.todense(), dense)


def _sub(x, y):
    if is_sparse(x) and is_sparse(y):
        return _add(x, _with_data(y, lax.neg(y.data)))
    raise NotImplementedError(
        "Subtraction between a sparse and a dense array is not implemented; convert with sparse.todense()"
    )


def _mul(x, y, **params):
    if is_sparse(x) and is_sparse(y):
        if x.indices is y.indices and x.shape == y.shape and x.unique_indices:
            return _with_data(x, lax.mul(x.data, y.data))
        return structure.bcoo_multiply_sparse(x, y)
    mat, dense = (x, y) if is_sparse(x) else (y, x)
    return _with_data(mat, structure.bcoo_multiply_dense(mat, dense))


def _div(x, y):
    if is_sparse(y):
        raise NotImplementedError(
            "sparse division: the elements of the divisor that are not stored are zeros, so that the result "
            "would be dense; if that is wanted, convert arguments with sparse.todense()."
        )
    # By the inverse, as elements are multiplied; integers would lose it.
    if not jnp.issubdtype(x.dtype, np.inexact):
        raise NotImplementedError(
            f"Division of a sparse array of {x.dtype} is not implemented; convert it"
        )
    return _with_data(
        x,
        structure.bcoo_multiply_dense(
            x, lax.div(jnp.ones((), y.dtype), y) if not y.ndim else jnp.ones_like(y) / y
        ),
    )


def _reduce_sum(mat, *, axes, **params):
    result = structure.bcoo_reduce_sum(mat, axes=axes)
    return jnp.sum(result.data, dtype=result.dtype) if not result.shape else result


def _pad(mat, value, *, padding_config, **params):
    """Zeros around and between elements; negative padding cuts elements off."""
    if is_sparse(value) or not core.is_concrete(value) or np.any(np.asarray(value) != 0):
        raise NotImplementedError(
            "sparse pad: padding other than zeros that are known while tracing would make the result dense; if "
            "that is wanted, convert arguments with sparse.todense()."
        )
    shape = tuple(n + low + high + max(n - 1, 0) * gap for n, (low, high, gap) in zip(mat.shape, padding_config))
    batch, sparse, dense = mat._layout.parts(mat.shape)
    data, indices, kept = mat.data, mat.indices, (0, 0, 0)
    inner = padding_config[len(batch) : len(batch) + len(sparse)]
    if sparse:
        low, _, gap = np.array(inner, indices.dtype).T.reshape(3, *[1] * (indices.ndim - 1), -1)
        keep = in_bounds(indices, sparse)
        moved = indices * (gap + 1) + low
        inside = shape[len(batch) : len(batch) + len(sparse)]
        keep = keep & in_bounds(moved, inside)
        indices = out_of_bounds(moved, keep, inside)
        data = masked(data, keep)
    # Batch axes of size 1 stand for any size: padded, they have their own.
    padded = [config for config in padding_config[: len(batch)] if any(config)]
    if padded:
        data, indices = (jnp.broadcast_to(x, (*batch, *x.shape[len(batch) :])) for x in (data, indices))
    outer, own = list(padding_config[: len(batch)]), list(padding_config[len(batch) + len(sparse) :])
    data = lax.pad(data, jnp.zeros((), data.dtype), [*outer, kept, *own])
    indices = lax.pad(indices, jnp.zeros((), indices.dtype), [*outer, kept, kept])
    return BCOO(
        (data, indices), shape=shape, unique_indices=mat.unique_indices and not padded
    )


def _dynamic_slice(mat, *starts, slice_sizes):
    return structure.bcoo_dynamic_slice(mat, starts, slice_sizes)


def _gather(
    mat, starts, *, offset_dims, collapsed_slice_dims, start_index_map, slice_sizes, mode, fill_value,
    operand_batching_dims=(), start_indices_batching_dims=(), unique_indices=False,
    indices_are_sorted=False,
):  # fmt: skip
    numbers = lax.GatherDimensionNumbers(
        tuple(offset_dims), tuple(collapsed_slice_dims), tuple(start_index_map),
        tuple(operand_batching_dims), tuple(start_indices_batching_dims),
    )  # fmt: skip
    return structure.bcoo_gather(mat, starts, numbers, slice_sizes, mode=mode)


def _gather_rule(mat, starts, *, dimension_numbers=None, **params):
    if is_sparse(starts):
        raise NotImplementedError("gather with sparse indices is not implemented")
    if dimension_numbers is None:
        return _gather(mat, starts, **params)
    return structure.bcoo_gather(
        mat, starts, dimension_numbers, params["slice_sizes"], mode=params["mode"]
    )


def _of(function, *names):
    """A rule by a function of one sparse array, for these parameters; others follow from them."""
    return lambda mat, **params: function(mat, **{name: params[name] for name in names})


bcoo_rules.update(
    add=_add,
    add_any=_add,
    sub=_sub,
    mul=_mul,
    div=_div,
    reduce_sum=_reduce_sum,
    broadcast_in_dim=lambda mat, *, shape=None, broadcast_dimensions, **params: (
        structure.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=broadcast_dimensions)
    ),
    concatenate=lambda *mats, dimension, **params: structure.bcoo_concatenate(
        mats, dimension=dimension
    ),
    conv_general_dilated=lambda x, y, **params: structure.bcoo_conv_general_dilated(x, y, **params),
    dot_general=lambda x, y, *, dimension_numbers, preferred_element_type=None, **params: (
        bcoo_dot_general(
            x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
        )
    ),
    dynamic_slice=_dynamic_slice,
    gather=_gather_rule,
    pad=_pad,
    reshape=_of(structure.bcoo_reshape, "new_sizes", "dimensions"),
    rev=_of(structure.bcoo_rev, "dimensions"),
    slice=_of(structure.bcoo_slice, "start_indices", "limit_indices", "strides"),
    squeeze=_of(structure.bcoo_squeeze, "dimensions"),
    transpose=_of(bcoo_transpose, "permutation"),
)
bcsr_rules.update(
    dot_general=lambda x, y, *, dimension_numbers, preferred_element_type=None, **params: (
        bcsr_dot_general(
            x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
        )
    ),
    broadcast_in_dim=lambda mat, *, shape=None, broadcast_dimensions, **params: (
        bcsr_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=broadcast_dimensions)
    ),
    concatenate=lambda *mats, dimension, **params: bcsr_concatenate(mats, dimension=dimension),
)


# ---------------------------------------------------------------------------- programs in equations


def _call(*values, **params):
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]
    return evaluate(jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr), list(values))


def _cond(index, *operands, branches, **params):
    functions = [lambda *args, branch=branch: evaluate(branch, list(args)) for branch in branches]
    return switch(index, functions, *operands)


def _while(*values, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts, **params):
    first = cond_nconsts + body_nconsts
    cond_consts, body_consts = values[:cond_nconsts], values[cond_nconsts:first]
    return while_loop(
        lambda carry: evaluate(cond_jaxpr, [*cond_consts, *carry])[0],
        lambda carry: evaluate(body_jaxpr, [*body_consts, *carry]),
        list(values[first:]),
    )


def _scan(*values, jaxpr, length, reverse=False, unroll=1, **params):
    params = scan_params.counted(params)
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, carry = values[:num_consts], list(values[num_consts : num_consts + num_carry])
    xs = list(values[num_consts + num_carry :])
    if any(is_sparse(x) for x in xs):
        raise NotImplementedError(
            "sparse rule for scan with x values that are sparse is not implemented"
        )

    def body(carry, x):
        results = evaluate(jaxpr, [*consts, *carry, *x])
        return results[:num_carry], results[num_carry:]

    carry, ys = scan(body, carry, xs, length, reverse, unroll)
    return [*carry, *ys]


_CALLS = (
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint",
)  # fmt: skip
for _rules in (bcoo_rules, bcsr_rules):
    _rules.update(dict.fromkeys(_CALLS, _call))
    _rules.update(cond=_cond, scan=_scan, todense=lambda mat, **params: mat.todense())
    _rules["while"] = _while
