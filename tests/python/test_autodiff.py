"""Derivatives against JAX: arguments, dtypes, ties, singular points, complex numbers, nesting."""

import numpy as np
import pytest
from oracle import FERRAX, same

import ferrax
import ferrax.numpy as jnp


def flat(S, x):
    """Leaves with None kept, as comparable values."""
    return S.jax.tree_util.tree_leaves(x, is_leaf=lambda leaf: leaf is None)


# Arguments


ARGNUMS = [0, 1, 2, -1, (0,), (0, 1), (1, 0), (-1, 0), [0, 2], 5, -4, "x", 1.0, (0, 5), None]


@same
@pytest.mark.parametrize("argnums", ARGNUMS, ids=str)
@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev", "hessian"])
def test_argnums(S, name, argnums):
    def fun(x, y, z):
        return x * y**2 + S.jnp.sin(z) * x

    return getattr(S.jax, name)(fun, argnums=argnums)(1.0, S.jnp.float32(2), 3.0)


@pytest.mark.raises("TypeError")
@same
def test_has_aux(S):
    def fun(x, y):
        return (x * y).sum(), {"aux": [x * 2, None, 3, "text"], "np": np.arange(2), "y": y}

    x, y = S.jnp.arange(3.0), S.jnp.ones(3)
    return (
        S.jax.grad(fun, has_aux=True)(x, y),
        S.jax.value_and_grad(fun, argnums=(0, 1), has_aux=True)(x, y),
        S.jax.jvp(fun, (x, y), (y, x), has_aux=True),
        S.jax.vjp(fun, x, y, has_aux=True)[2],
        S.jax.jacfwd(fun, has_aux=True)(x, y),
        S.jax.jacrev(fun, has_aux=True)(x, y),
        S.jax.linearize(fun, x, y, has_aux=True)[2],
        S.jax.jit(S.jax.grad(fun, has_aux=True))(x, y),
    )


@same
def test_hessian_has_aux(S):
    return S.jax.hessian(lambda x: ((x**3).sum(), x * 2), has_aux=True)(S.jnp.arange(3.0))


@pytest.mark.raises("TypeError")
@same
@pytest.mark.parametrize("result", ["single", "three"])
def test_has_aux_needs_a_pair(S, result):
    value = {"single": lambda x: x, "three": lambda x: (x, x, x)}[result]
    return S.jax.grad(value, has_aux=True)(1.0)


@same
def test_keywords(S):
    def fun(x, *, scale=1.0, extra=None):
        return (x * scale).sum() + (0 if extra is None else extra)

    g = S.jax.grad(fun)
    return g(S.jnp.ones(2)), g(S.jnp.ones(2), scale=3.0), g(S.jnp.ones(2), extra=2.0)


@pytest.mark.raises("TypeError")
@same
def test_keyword_only_call(S):
    return S.jax.grad(lambda x: x * 2)(x=1.0)


@same
def test_trees_none_and_unused(S):
    def fun(params, unused):
        return (params["w"] @ params["w"]) * 2 + params["list"][0]

    params = {"w": S.jnp.arange(3.0), "none": None, "list": [2.0, S.jnp.ones((2, 2))], "empty": ()}
    g = S.jax.grad(fun, argnums=(0, 1))(params, (S.jnp.ones(2), None))
    out, pull = S.jax.vjp(fun, params, S.jnp.ones(()))
    return g, pull(S.jnp.ones_like(out))


@same
def test_constant_function(S):
    x = S.jnp.ones(2)
    return (
        S.jax.grad(lambda x: 3.0)(x),
        S.jax.jvp(lambda x: 3.0, (x,), (x,))[1],
        S.jax.vjp(lambda x: S.jnp.ones(3), x)[1](S.jnp.ones(3)),
        S.jax.linearize(lambda x: (2.0, x), x)[1](x),
        S.jax.jacfwd(lambda x: S.jnp.ones(3))(x),
        S.jax.jacrev(lambda x: S.jnp.ones(3))(x),
        S.jax.hessian(lambda x: x.sum())(x),
    )


# Integers and float0


INTEGER_CASES = {
    "grad_int": lambda S: S.jax.grad(lambda x: x * 2.0)(3),
    "grad_int_array": lambda S: S.jax.grad(lambda x: x.sum() * 2.0)(S.jnp.arange(3)),
    "grad_bool": lambda S: S.jax.grad(lambda x: x * 2.0)(True),
    "allow_int": lambda S: S.jax.grad(lambda x: x.sum() * 2.0, allow_int=True)(S.jnp.arange(3)),
    "allow_int_tree": lambda S: S.jax.grad(lambda t: t["x"] * t["n"], allow_int=True)({"x": 2.0, "n": 3}),
    "unused_int": lambda S: S.jax.grad(lambda x, n: x * 2.0)(1.0, 3),
    "int_output": lambda S: S.jax.grad(lambda x: S.jnp.int32(3))(1.0),
    "bool_output": lambda S: S.jax.grad(lambda x: x > 0)(1.0),
    "jvp_int": lambda S: S.jax.jvp(lambda x, n: x * n, (2.0, 3), (1.0, np.zeros((), S.jax.float0))),
    "jvp_int_tangent": lambda S: S.jax.jvp(lambda x, n: x * n, (2.0, 3), (1.0, 1)),
    "jvp_int_float_tangent": lambda S: S.jax.jvp(lambda n: n * 2, (3,), (1.0,)),
    "jvp_int_output": lambda S: S.jax.jvp(lambda x: (x * 2, S.jnp.arange(3)), (2.0,), (1.0,)),
    "vjp_int": lambda S: S.jax.vjp(lambda x, n: x * n, 2.0, 3)[1](1.0),
    "vjp_int_output": lambda S: S.jax.vjp(lambda x: (x * 1, 1), 2.0)[1](
        (1.0, np.zeros((), S.jax.float0))
    ),
    "jacrev_int": lambda S: S.jax.jacrev(lambda x: x * 2.0)(3),
    "jacfwd_int": lambda S: S.jax.jacfwd(lambda x: x * 2.0)(3),
    "jacrev_allow_int": lambda S: S.jax.jacrev(
        lambda t: {"p": t["x"] * t["n"], "s": t["x"].sum()}, allow_int=True)(
        {"x": S.jnp.ones(3), "n": S.jnp.arange(3, dtype="uint8")}),
    "jacrev_allow_int_weak": lambda S: S.jax.jit(
        S.jax.jacrev(lambda x, n: x * n, argnums=(0, 1), allow_int=True))(S.jnp.ones(3), 2),
    "vmap_allow_int": lambda S: S.jax.vmap(S.jax.vmap(S.jax.grad(lambda n: n * 2.0, allow_int=True)))(
        S.jnp.arange(6).reshape(2, 3)),
    "vmap_vjp_axes": lambda S: S.jax.vmap(
        lambda x: S.jax.vjp(lambda n, x: x * n, S.jnp.arange(2), x)[1](x), out_axes=(None, 1))(S.jnp.ones((3, 2))),
    "vmap_jvp_int_output": lambda S: S.jax.vmap(
        lambda x: S.jax.jvp(lambda x: (S.jnp.arange(2), x * 2), (x,), (x,)), out_axes=1)(S.jnp.ones((3, 2))),
    "linearize_int": lambda S: S.jax.linearize(lambda x, n: x * n, 2.0, 3)[1](
        1.0, np.zeros((), S.jax.float0)
    ),
    "through_int": lambda S: S.jax.grad(lambda x: x.astype("int32").astype("float32") * 2)(S.jnp.float32(2)),
    "value_and_grad_int": lambda S: S.jax.value_and_grad(lambda n: S.jnp.sin(n), allow_int=True)(2),
    "key": lambda S: S.jax.grad(lambda k: 1.0)(S.random.key(0)),
    "key_closed": lambda S: S.jax.grad(lambda x: x * S.random.uniform(S.random.key(0)))(2.0),
    "string": lambda S: S.jax.grad(lambda x: 1.0)("a"),
    "list": lambda S: S.jax.grad(lambda x: x[0] * x[1])([1.0, 2.0]),
    "not_callable": lambda S: S.jax.grad(3),
    "bf16": lambda S: S.jax.grad(lambda x: (x * x).sum())(S.jnp.ones(3, "bfloat16")),
    "f16_to_f32": lambda S: S.jax.grad(lambda x: x.astype("float32").sum())(S.jnp.ones(3, "float16")),
    "numpy_input": lambda S: S.jax.grad(lambda x: (x**2).sum())(np.arange(3.0)),
}


@same
@pytest.mark.parametrize("name", INTEGER_CASES)
def test_dtypes_of_inputs(S, name):
    return INTEGER_CASES[name](S)


# Shapes and types of tangents and cotangents


MISMATCHES = {
    "grad_vector": lambda S, x: S.jax.grad(lambda x: x * 2)(x),
    "jvp_list_for_tuple": lambda S, x: S.jax.jvp(S.jnp.sin, (x,), [x]),
    "jvp_lists": lambda S, x: S.jax.jvp(S.jnp.sin, [x], [x]),
    "grad_tree": lambda S, x: S.jax.grad(lambda x: (x.sum(), x.sum()))(x),
    "grad_none": lambda S, x: S.jax.grad(lambda x: None)(x),
    "grad_complex_out": lambda S, x: S.jax.grad(lambda x: x.sum() * 1j)(x),
    "grad_one_element": lambda S, x: S.jax.grad(lambda x: x[:1])(x),
    "jvp_dtype": lambda S, x: S.jax.jvp(lambda x: x, (x,), (x.astype("int32"),)),
    "jvp_shape": lambda S, x: S.jax.jvp(lambda x: x, (x,), (x[:2],)),
    "jvp_tree": lambda S, x: S.jax.jvp(lambda x: x, (x,), ([x],)),
    "jvp_count": lambda S, x: S.jax.jvp(lambda x: x, (x,), (x, x)),
    "jvp_not_tuple": lambda S, x: S.jax.jvp(lambda x: x, x, x),
    "jvp_float64": lambda S, x: S.jax.jvp(lambda x: x * 2, (x,), (np.ones(3),)),
    "jvp_float16": lambda S, x: S.jax.jvp(lambda x: x, (x,), (x.astype("float16"),)),
    "jvp_list": lambda S, x: S.jax.jvp(lambda x: x * 2, [x], [x]),
    "vjp_dtype": lambda S, x: S.jax.vjp(lambda x: x, x)[1](S.jnp.ones(3, "int32")),
    "vjp_half": lambda S, x: S.jax.vjp(lambda x: x, x)[1](S.jnp.ones(3, "float16")),
    "vjp_shape": lambda S, x: S.jax.vjp(lambda x: x, x)[1](S.jnp.ones(2)),
    "vjp_scalar": lambda S, x: S.jax.vjp(lambda x: x, x)[1](1.0),
    "vjp_tree": lambda S, x: S.jax.vjp(lambda x: (x, x), x)[1](x),
    "vjp_none": lambda S, x: S.jax.vjp(lambda x: (x, None), x)[1]((x, None)),
    "vjp_numpy": lambda S, x: S.jax.vjp(lambda x: x * 2, x)[1](np.ones(3, "float32")),
    "vjp_complex_ct": lambda S, x: S.jax.vjp(lambda x: x * 2, x)[1](x * 1j),
    "linearized_dtype": lambda S, x: S.jax.linearize(lambda x: x, x)[1](x.astype("int32")),
    "linearized_shape": lambda S, x: S.jax.linearize(lambda x: x, x)[1](x[:2]),
    "linearized_tree": lambda S, x: S.jax.linearize(lambda x: x, x)[1]((x,)),
    "linearized_count": lambda S, x: S.jax.linearize(lambda x: x, x)[1](x, x),
    "transpose_nonlinear": lambda S, x: S.jax.linear_transpose(S.jnp.sin, x)(x),
    "transpose_ints": lambda S, x: S.jax.linear_transpose(lambda x: x * 2, S.jnp.arange(3))(S.jnp.arange(3)),
    "transpose_mixed": lambda S, x: S.jax.linear_transpose(lambda x: x * 2.0, S.jnp.arange(3))(x),
    "transpose_bool": lambda S, x: S.jax.linear_transpose(lambda x: x, x > 1)(x > 1),
    "transpose_int": lambda S, x: S.jax.linear_transpose(lambda x: x * 3, 1)(1),
    "transpose_shape": lambda S, x: S.jax.linear_transpose(lambda x: x * 2, x)(x[:2]),
    "transpose_tree": lambda S, x: S.jax.linear_transpose(lambda x: x * 2, x)([x]),
    "transpose_dtype": lambda S, x: S.jax.linear_transpose(lambda x: x * 2, x)(x.astype("float16")),
    "transpose_abs": lambda S, x: S.jax.linear_transpose(abs, x)(x),
    "jacfwd_complex": lambda S, x: S.jax.jacfwd(lambda x: x)(x + 0j),
    "jacrev_complex_out": lambda S, x: S.jax.jacrev(lambda x: x * 1j)(x),
    "jacrev_int_out": lambda S, x: S.jax.jacrev(lambda x: x.astype("int32"))(x),
}


@same
@pytest.mark.parametrize("name", MISMATCHES)
def test_types_of_tangents(S, name):
    return MISMATCHES[name](S, S.jnp.arange(3.0))


# Ties and singular points


POINTS = {
    "max_tie": lambda S: S.jax.grad(lambda x: x.max())(S.jnp.array([2.0, 2.0, 1.0])),
    "min_tie": lambda S: S.jax.grad(lambda x: x.min())(S.jnp.array([2.0, 1.0, 1.0])),
    "max_axis": lambda S: S.jax.grad(lambda x: x.max(1).sum())(S.jnp.array([[1.0, 1.0], [3.0, 0.0]])),
    "maximum_tie": lambda S: S.jax.grad(S.jnp.maximum, (0, 1))(1.0, 1.0),
    "minimum_tie": lambda S: S.jax.grad(S.jnp.minimum, (0, 1))(1.0, 1.0),
    "relu": lambda S: S.jax.vmap(S.jax.grad(lambda x: S.jnp.maximum(x, 0)))(S.jnp.array([-1.0, 0.0, 1.0])),
    "nn_relu": lambda S: S.jax.grad(S.jax.nn.relu)(0.0),
    "abs": lambda S: S.jax.vmap(S.jax.grad(abs))(S.jnp.array([-1.0, 0.0, -0.0, 1.0])),
    "clip": lambda S: S.jax.vmap(S.jax.grad(lambda x: S.jnp.clip(x, -1, 1)))(S.jnp.array([-2.0, -1.0, 0, 1.0, 2.0])),
    "clamp": lambda S: S.jax.vmap(S.jax.grad(lambda x: S.lax.clamp(-1.0, x, 1.0)))(
        S.jnp.array([-2.0, -1.0, 0, 1.0, 2.0])),
    "sign": lambda S: S.jax.grad(S.jnp.sign)(2.0),
    "floor": lambda S: S.jax.grad(S.jnp.floor)(2.5),
    "round": lambda S: S.jax.grad(S.jnp.round)(2.5),
    "sqrt": lambda S: S.jax.grad(S.jnp.sqrt)(0.0),
    "norm": lambda S: S.jax.grad(lambda x: S.jnp.sqrt((x * x).sum()))(S.jnp.zeros(2)),
    "std": lambda S: S.jax.grad(lambda x: x.std())(S.jnp.ones(3)),
    "where": lambda S: S.jax.grad(lambda x: S.jnp.where(x > 0, S.jnp.sqrt(x), 0.0))(-1.0),
    "prod_zero": lambda S: S.jax.grad(lambda x: x.prod())(S.jnp.array([0.0, 2.0, 3.0])),
    "prod_zeros": lambda S: S.jax.grad(lambda x: x.prod())(S.jnp.array([0.0, 0.0, 3.0])),
    "cumprod_zero": lambda S: S.jax.grad(lambda x: S.jnp.cumprod(x)[-1])(S.jnp.array([0.0, 2.0, 3.0])),
    "cummax": lambda S: S.jax.grad(lambda x: S.lax.cummax(x).sum())(S.jnp.array([1.0, 3.0, 3.0, 2.0])),
    "power_int": lambda S: S.jax.grad(lambda x: x**3)(0.0),
    "power_int_0": lambda S: S.jax.grad(lambda x: x**0)(0.0),
    "power_int_1": lambda S: S.jax.grad(lambda x: x**1)(0.0),
    "power_neg": lambda S: S.jax.grad(lambda x: x**-2)(2.0),
    "power_y": lambda S: S.jax.grad(lambda y: S.jnp.power(0.0, y))(2.0),
    "power_y_neg": lambda S: S.jax.grad(lambda y: S.jnp.power(-1.0, y))(2.0),
    "power_xy": lambda S: S.jax.grad(lambda x, y: x**y, (0, 1))(2.0, 3.0),
    "log_0": lambda S: S.jax.grad(S.jnp.log)(0.0),
    "arctan2": lambda S: S.jax.grad(S.jnp.arctan2, (0, 1))(0.0, 0.0),
    "arctan2_q": lambda S: S.jax.grad(S.jnp.arctan2, (0, 1))(1.0, -2.0),
    "arcsin_1": lambda S: S.jax.grad(S.jnp.arcsin)(1.0),
    "sinc": lambda S: S.jax.grad(S.jnp.sinc)(0.0),
    "logsumexp": lambda S: S.jax.grad(S.jax.nn.logsumexp)(S.jnp.array([-np.inf, -np.inf])),
    "logsumexp_1": lambda S: S.jax.grad(S.jax.nn.logsumexp)(S.jnp.array([-np.inf, 1.0])),
    "softplus": lambda S: S.jax.grad(S.jax.nn.softplus)(-1000.0),
    "logaddexp": lambda S: S.jax.grad(S.jnp.logaddexp, (0, 1))(-np.inf, -np.inf),
    "rem": lambda S: S.jax.grad(S.lax.rem, (0, 1))(5.5, 2.0),
    "mod": lambda S: S.jax.grad(lambda x, y: x % y, (0, 1))(-5.5, 2.0),
    "nextafter": lambda S: S.jax.grad(S.jnp.nextafter)(1.0, 2.0),
    "take_clipped": lambda S: S.jax.grad(lambda x: x[10])(S.jnp.arange(5.0)),
    "take_fill": lambda S: S.jax.grad(lambda x: S.jnp.take(x, 1))(S.jnp.arange(5.0)),
    "at_set_duplicates": lambda S: S.jax.grad(
        lambda v: (S.jnp.zeros(3).at[S.jnp.array([1, 1])].set(v) * S.jnp.arange(3.0)).sum())(S.jnp.ones(2)),
    "at_add_duplicates": lambda S: S.jax.grad(
        lambda v: (S.jnp.zeros(3).at[S.jnp.array([1, 1])].add(v) * S.jnp.arange(3.0)).sum())(S.jnp.ones(2)),
    "at_mul": lambda S: S.jax.grad(lambda x, v: x.at[S.jnp.array([0, 2])].multiply(v).sum(), (0, 1))(
        S.jnp.arange(3.0), S.jnp.ones(2)),
    "at_mul_unique": lambda S: S.jax.grad(
        lambda x, v: x.at[S.jnp.array([0, 2])].multiply(v, unique_indices=True).sum(), (0, 1))(
        S.jnp.arange(3.0), S.jnp.ones(2)),
    "at_max": lambda S: S.jax.grad(lambda x, v: x.at[S.jnp.array([0, 2])].max(v).sum(), (0, 1))(
        S.jnp.arange(3.0), S.jnp.ones(2)),
    "dus": lambda S: S.jax.grad(
        lambda x, u: (S.lax.dynamic_update_slice(x, u, (4,)) * S.jnp.arange(5.0)).sum(), (0, 1))(
        S.jnp.ones(5), S.jnp.ones(3)),
    "dynamic_slice": lambda S: S.jax.grad(lambda x: S.lax.dynamic_slice(x, (4,), (3,)).sum())(S.jnp.ones(5)),
    "stop_gradient": lambda S: S.jax.grad(lambda x: x * S.lax.stop_gradient(x))(3.0),
    "stop_gradient_tree": lambda S: S.jax.grad(lambda x: x * S.lax.stop_gradient({"a": x, "n": 1})["a"])(3.0),
    "var": lambda S: S.jax.grad(lambda x: S.jnp.var(x))(S.jnp.arange(4.0)),
    "bitcast": lambda S: S.jax.grad(lambda x: S.lax.bitcast_convert_type(x, "int32").astype("float32"))(1.0),
    "digamma": lambda S: S.jax.grad(S.lax.digamma)(2.0),
    "erf_inv": lambda S: S.jax.grad(S.lax.erf_inv)(0.5),
    "argmax": lambda S: S.jax.grad(lambda x: S.jnp.argmax(x) * x.sum())(S.jnp.array([1.0, 5.0])),
    "div_0": lambda S: S.jax.grad(lambda x, y: x / y, (0, 1))(1.0, 0.0),
    "tanh_big": lambda S: S.jax.grad(S.jnp.tanh)(100.0),
    "logistic_big": lambda S: S.jax.grad(S.lax.logistic)(-200.0),
    "softmax": lambda S: S.jax.jacrev(S.jax.nn.softmax)(S.jnp.array([1.0, 2.0, -np.inf])),
}


@same(weak=False)
@pytest.mark.parametrize("name", POINTS)
def test_points(S, name):
    return POINTS[name](S)


def test_a_zeroth_power_is_constant():
    """At zero too, where the oracle multiplies 0 by infinity."""
    assert FERRAX.jax.grad(lambda x: x**0.0)(0.0) == 0.0
    assert FERRAX.jax.grad(lambda x, y: x**y, 0)(0.0, 0.0) == 0.0


# Complex numbers


z0, w0 = 1 + 2j, 0.5 - 1j

COMPLEX = {
    "abs2": lambda S: S.jax.grad(lambda z: abs(z) ** 2)(z0),
    "abs": lambda S: S.jax.grad(abs)(z0),
    "abs_0": lambda S: S.jax.grad(abs)(0j),
    "real_sin": lambda S: S.jax.grad(lambda z: S.jnp.sin(z).real)(z0),
    "imag_exp": lambda S: S.jax.grad(lambda z: S.jnp.exp(z * 1j).imag)(z0),
    "vjp_mul": lambda S: S.jax.vjp(lambda z, w: z * w, z0, w0)[1](S.jnp.complex64(1 + 1j)),
    "vjp_div": lambda S: S.jax.vjp(lambda z, w: z / w, z0, w0)[1](S.jnp.complex64(1 + 1j)),
    "vjp_imag": lambda S: S.jax.vjp(S.jnp.imag, z0)[1](1.0),
    "vjp_real": lambda S: S.jax.vjp(S.jnp.real, z0)[1](1.0),
    "vjp_conj": lambda S: S.jax.vjp(S.jnp.conj, z0)[1](S.jnp.complex64(1 + 1j)),
    "vjp_real_to_complex": lambda S: S.jax.vjp(lambda x: x * (2 + 1j), 3.0)[1](S.jnp.complex64(1 + 1j)),
    "vjp_lax_complex": lambda S: S.jax.vjp(S.lax.complex, S.jnp.float32(1), S.jnp.float32(2))[1](
        S.jnp.complex64(1 + 3j)),
    "jvp": lambda S: S.jax.jvp(lambda z: S.jnp.exp(z) * S.jnp.conj(z), (z0,), (w0,)),
    "holomorphic": lambda S: S.jax.grad(lambda z: S.jnp.sin(z) * z**2, holomorphic=True)(z0),
    "holomorphic_real_in": lambda S: S.jax.grad(lambda z: S.jnp.sin(z), holomorphic=True)(1.0),
    "holomorphic_real_out": lambda S: S.jax.grad(lambda z: abs(z), holomorphic=True)(z0),
    "complex_out": lambda S: S.jax.grad(lambda z: z * 2)(z0),
    "jacfwd_holomorphic": lambda S: S.jax.jacfwd(lambda z: z**2, holomorphic=True)(S.jnp.array([z0, w0])),
    "jacrev_holomorphic": lambda S: S.jax.jacrev(lambda z: z**2, holomorphic=True)(S.jnp.array([z0, w0])),
    "jacfwd_holomorphic_real_out": lambda S: S.jax.jacfwd(abs, holomorphic=True)(S.jnp.array([z0, w0])),
    "jacrev_holomorphic_real_out": lambda S: S.jax.jacrev(abs, holomorphic=True)(S.jnp.array([z0, w0])),
    "jacrev_real_of_complex": lambda S: S.jax.jacrev(lambda z: abs(z) ** 2)(S.jnp.array([z0, w0])),
    "hessian_holomorphic": lambda S: S.jax.hessian(lambda z: (z**3).sum(), holomorphic=True)(
        S.jnp.array([z0, w0])),
    "dot": lambda S: S.jax.grad(lambda a, b: S.jnp.vdot(a, b).real, (0, 1))(
        S.jnp.array([z0, w0]), S.jnp.array([w0, 1j])),
    "log": lambda S: S.jax.grad(lambda z: S.jnp.log(z).real)(z0),
    "sqrt": lambda S: S.jax.grad(lambda z: S.jnp.sqrt(z), holomorphic=True)(z0),
    "pow": lambda S: S.jax.grad(lambda z, w: (z**w).real, (0, 1))(z0, w0),
    "tanh": lambda S: S.jax.grad(S.jnp.tanh, holomorphic=True)(z0),
    "angle": lambda S: S.jax.grad(S.jnp.angle)(z0),
    "sign": lambda S: S.jax.jvp(S.jnp.sign, (z0,), (1 + 0j,)),
    "norm": lambda S: S.jax.grad(lambda z: S.jnp.sqrt((abs(z) ** 2).sum()))(S.jnp.array([z0, w0])),
    "astype_real": lambda S: S.jax.vjp(lambda x: x.astype("complex64"), S.jnp.ones(2))[1](
        S.jnp.array([z0, w0], "complex64")),
}


@same(weak=False)
@pytest.mark.parametrize("name", COMPLEX)
def test_complex(S, name):
    return COMPLEX[name](S)


# Concrete values under plain derivatives


CONCRETE = {
    "if": lambda S: S.jax.grad(lambda x: x**2 if x > 0 else -x)(-2.0),
    "if_derived": lambda S: S.jax.grad(lambda x: x**2 if S.jnp.sin(x) > 0 else -x)(2.0),
    "while": lambda S: S.jax.grad(lambda x: _while(x))(1.5),
    "int": lambda S: S.jax.grad(lambda x: x * int(x))(3.7),
    "float": lambda S: S.jax.grad(lambda x: x * float(x))(3.7),
    "complex": lambda S: S.jax.grad(lambda x: x * complex(x).real)(3.7),
    "index": lambda S: S.jax.grad(lambda x: x[S.jnp.argmax(x)])(S.jnp.array([1.0, 4.0, 2.0])),
    "range": lambda S: S.jax.grad(lambda x: sum(x for _ in range(S.jnp.argmax(x * S.jnp.ones(3)) + 2)), allow_int=True)(
        S.jnp.float32(1)),
    "numpy": lambda S: S.jax.grad(lambda x: np.sin(x))(1.0),
    "asarray": lambda S: S.jax.grad(lambda x: S.jnp.asarray(np.asarray(x)))(1.0),
    "item": lambda S: S.jax.grad(lambda x: x * x.item())(3.0),
    "nested_if": lambda S: S.jax.grad(S.jax.grad(lambda x: x**3 if x > 0 else x))(2.0),
    "nested_jvp_if": lambda S: S.jax.jvp(S.jax.grad(lambda x: x**3 if x > 0 else x), (2.0,), (1.0,)),
    "linearize_if": lambda S: S.jax.linearize(lambda x: x**3 if x > 0 else x, 2.0)[1](1.0),
    "vjp_if": lambda S: S.jax.vjp(lambda x: x**3 if x > 0 else x, 2.0)[1](1.0),
    "hessian_if": lambda S: S.jax.hessian(lambda x: x**3 if x > 0 else x)(2.0),
    "jit_if": lambda S: S.jax.jit(S.jax.grad(lambda x: x**2 if x > 0 else -x))(2.0),
    "vmap_if": lambda S: S.jax.vmap(S.jax.grad(lambda x: x**2 if x > 0 else -x))(S.jnp.ones(2)),
    "grad_jit_if": lambda S: S.jax.grad(S.jax.jit(lambda x: x**2 if x > 0 else -x))(2.0),
    "transpose_if": lambda S: S.jax.linear_transpose(lambda x: x if x > 0 else x, 1.0),
    "transpose_if_called": lambda S: S.jax.linear_transpose(lambda x: x if x > 0 else x, 1.0)(1.0),
    "jacrev_if": lambda S: S.jax.jacrev(lambda x: x**2 if x.sum() > 0 else x)(S.jnp.ones(2)),
    "jacfwd_if": lambda S: S.jax.jacfwd(lambda x: x**2 if x.sum() > 0 else x)(S.jnp.ones(2)),
    "bool_mask": lambda S: S.jax.grad(lambda x: x[x > 1].sum())(S.jnp.arange(4.0)),
    "nonzero": lambda S: S.jax.grad(lambda x: x[S.jnp.nonzero(x > 1)].sum())(S.jnp.arange(4.0)),
    "format": lambda S: S.jax.grad(lambda x: x * len(f"{x > 0}"))(1.0) * 0,
    "iterate": lambda S: S.jax.grad(lambda x: sum(v * i for i, v in enumerate(x)))(S.jnp.ones(3)),
    "unpack": lambda S: S.jax.grad(lambda x: (lambda a, b: a * b)(*x))(S.jnp.array([2.0, 3.0])),
    "closure": lambda S: S.jax.grad(lambda x: S.jax.grad(lambda y: x * y if x > y else y)(1.0))(2.0),
    "closure_jit": lambda S: S.jax.grad(lambda x: S.jax.jit(lambda y: x * y)(1.0))(2.0),
    "eq": lambda S: S.jax.grad(lambda x: x if x == 2.0 else 3 * x)(2.0),
    "in": lambda S: S.jax.grad(lambda x: x if x in [1.0, 2.0] else 3 * x)(2.0),
    "round": lambda S: S.jax.grad(lambda x: x * round(x))(2.4),
}


def _while(x):
    while x < 10:
        x = x * x
    return x


@same
@pytest.mark.parametrize("name", CONCRETE)
def test_concrete_values(S, name):
    return CONCRETE[name](S)


# Nesting


def smooth(S):
    return lambda x: S.jnp.sin(x) * S.jnp.exp(-(x**2) / 3) + S.jnp.log1p(x**2)


def tower(S, kinds, fun):
    """Transformations of a scalar function, innermost first."""
    for kind in kinds:
        inner = fun
        if kind == "grad":
            fun = S.jax.grad(inner)
        elif kind == "jit":
            fun = S.jax.jit(inner)
        elif kind == "jvp":
            fun = lambda x, f=inner: S.jax.jvp(f, (x,), (S.jnp.ones_like(x),))[1]  # noqa: E731
        elif kind == "vjp":
            fun = lambda x, f=inner: S.jax.vjp(f, x)[1](S.jnp.ones_like(x))[0]  # noqa: E731
        elif kind == "linearize":
            fun = lambda x, f=inner: S.jax.linearize(f, x)[1](S.jnp.ones_like(x))  # noqa: E731
        elif kind == "vmap":
            fun = lambda x, f=inner: S.jax.vmap(f)(S.jnp.stack([x, 2 * x])).sum()  # noqa: E731
        elif kind == "jacfwd":
            fun = lambda x, f=inner: S.jax.jacfwd(f)(x)  # noqa: E731
    return fun


TOWERS = [
    ("grad", "grad", "grad"),
    ("jvp", "jvp", "jvp"),
    ("vjp", "jvp", "grad"),
    ("jit", "grad", "jit", "grad"),
    ("grad", "jit", "grad", "jit", "grad"),
    ("vmap", "grad", "vmap"),
    ("grad", "vmap", "jvp"),
    ("jvp", "vmap", "grad", "jit"),
    ("linearize", "grad", "vmap"),
    ("vmap", "linearize", "jit"),
    ("jit", "vmap", "jvp", "vmap", "grad"),
    ("jacfwd", "grad", "vjp"),
    ("vjp", "vmap", "linearize"),
    ("jvp", "jit", "vjp", "jit"),
]


@same(ulps=64)
@pytest.mark.parametrize("kinds", TOWERS, ids="-".join)
def test_nested(S, kinds):
    return tower(S, kinds, smooth(S))(S.jnp.float32(0.7))


@same
def test_perturbation_confusion(S):
    grad = S.jax.grad
    return (
        grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0),
        grad(lambda x: x * grad(lambda y: x * y)(2.0))(3.0),
        S.jax.jvp(lambda x: x * S.jax.jvp(lambda y: x * y**2, (1.0,), (1.0,))[1], (2.0,), (1.0,)),
        grad(lambda x: S.jax.vjp(lambda y: x * y * y, 2.0)[1](x)[0])(3.0),
        S.jax.jacfwd(lambda x: x[0] * S.jax.jacrev(lambda y: x * y[::-1])(x))(S.jnp.array([1.0, 2.0])),
    )


@same
def test_pull_and_push_are_functions_of_values(S):
    """The returned functions may be called more than once, transformed, and inside others."""
    x = S.jnp.arange(1.0, 4.0)
    out, pull = S.jax.vjp(lambda x: S.jnp.sin(x) * x, x)
    _, push = S.jax.linearize(lambda x: S.jnp.sin(x) * x, x)
    return (
        pull(x),
        pull(2 * x),
        S.jax.vmap(pull)(S.jnp.eye(3)),
        S.jax.jit(pull)(x),
        push(x),
        S.jax.vmap(push)(S.jnp.eye(3)),
        S.jax.grad(lambda ct: pull(ct)[0].sum())(x),
        S.jax.grad(lambda t: push(t).sum())(x),
        S.jax.linear_transpose(push, x)(x),
    )


@same
def test_pull_is_a_pytree(S):
    def fun(x):
        out, pull = S.jax.vjp(S.jnp.sin, x)
        return out, pull

    out, pull = S.jax.jit(fun)(S.jnp.arange(3.0))
    return out, pull(S.jnp.ones(3)), len(S.jax.tree_util.tree_leaves(pull)) > 0


@same
def test_jacobians_of_trees(S):
    def fun(p, y):
        return {"a": p["x"] * y.sum(), "b": (p["x"].sum() * p["s"], y[:2])}

    p, y = {"x": S.jnp.arange(1.0, 3.0), "s": S.jnp.float32(2)}, S.jnp.arange(3.0)
    return (
        S.jax.jacfwd(fun, argnums=(0, 1))(p, y),
        S.jax.jacrev(fun, argnums=(0, 1))(p, y),
        S.jax.jacfwd(fun, argnums=1)(p, y),
        S.jax.jacrev(fun)(p, y),
    )


@same
def test_hessian_of_trees(S):
    def fun(p):
        return (p["a"] ** 3).sum() * p["b"] + S.jnp.sin(p["b"])

    return S.jax.hessian(fun)({"a": S.jnp.arange(1.0, 3.0), "b": S.jnp.float32(2)})


@same
def test_jacobian_of_matrices(S):
    x = S.jnp.arange(6.0).reshape(2, 3)
    return S.jax.jacfwd(lambda x: x @ x.T)(x), S.jax.jacrev(lambda x: x @ x.T)(x)


@same
def test_zero_sized(S):
    x = S.jnp.zeros((0, 3))
    return (
        S.jax.grad(lambda x: x.sum())(x),
        S.jax.jacfwd(lambda x: x.sum(0))(x),
        S.jax.jacrev(lambda x: x.sum(0))(x),
        S.jax.jvp(lambda x: x.prod(), (x,), (x,)),
        S.jax.grad(lambda x: x.prod())(x),
    )


@same
def test_linear_transpose(S):
    x = S.jnp.arange(3.0)
    struct = S.jax.ShapeDtypeStruct((3,), S.jnp.float32)

    def fun(t):
        return {"s": t[0].sum() * 2 + t[1][0], "r": t[1][::-1]}

    return (
        S.jax.linear_transpose(lambda x: x[1:] * 3 + x[:-1], struct)(x[:2]),
        S.jax.linear_transpose(fun, (x, x))({"s": 2.0, "r": x}),
        S.jax.linear_transpose(lambda x, y: x - 2 * y, x, x)(x),
        S.jax.jit(S.jax.linear_transpose(lambda x: x.reshape(3, 1) * x.shape[0], x))(x.reshape(3, 1)),
        S.jax.vmap(S.jax.linear_transpose(lambda x: x.sum(), x))(x),
        S.jax.linear_transpose(lambda x: S.jnp.zeros(2), x)(S.jnp.ones(2)),
    )


@same
def test_weak_types_of_derivatives(S):
    return (
        S.jax.value_and_grad(lambda x: x**2)(3.0),
        S.jax.value_and_grad(lambda x: x**2)(S.jnp.float32(3)),
        S.jax.value_and_grad(lambda x: x * S.jnp.float32(2))(3.0),
        S.jax.jvp(lambda x: x * S.jnp.float32(2), (3.0,), (1.0,)),
        S.jax.vjp(lambda x, y: x * y, 3.0, S.jnp.float32(2))[1](S.jnp.float32(1)),
        S.jax.linearize(lambda x: x * 2, 3.0)[1](1.0),
        S.jax.jacfwd(lambda x: x**2)(3.0),
        S.jax.jacrev(lambda x: x**2)(3.0),
        S.jax.hessian(lambda x: x**3)(3.0),
        S.jax.jit(S.jax.grad(lambda x: x**2))(3.0),
        S.jax.grad(lambda x, y: x * 2.0, argnums=1)(1.0, 2.0),
        S.jax.grad(lambda x: 2.0)(1.0),
    )


@same
def test_x64_derivatives(S):
    with S.jax.enable_x64(True):
        x = S.jnp.arange(3.0)
        return (
            S.jax.grad(lambda x: S.jnp.sin(x).sum())(x),
            S.jax.grad(lambda x: x**2)(3.0),
            S.jax.grad(lambda x: (x * np.float64(2)).sum())(x.astype("float32")),
            S.jax.jacfwd(lambda x: x**3)(x),
        )


@same
def test_products(S):
    a, b = S.jnp.arange(6.0).reshape(2, 3), S.jnp.arange(12.0).reshape(3, 4)
    fun = lambda a, b: S.jnp.tanh(a @ b).sum()  # noqa: E731
    return (
        S.jax.grad(fun, (0, 1))(a, b),
        S.jax.grad(lambda a: S.jnp.einsum("ij,kj->ik", a, a).sum())(a),
        S.jax.jvp(S.jnp.matmul, (a, b), (a, b)),
        S.jax.hessian(lambda v: v @ (a.T @ a) @ v)(S.jnp.arange(3.0)),
        S.jax.grad(lambda a: S.jnp.tensordot(a, b, 1)[0, 0])(a),
    )


@same
def test_control_by_shape(S):
    def fun(x):
        for i in range(x.shape[0]):
            x = x.at[i].add(S.jnp.sin(x[i - 1]))
        return x.sum()

    x = S.jnp.arange(4.0)
    return S.jax.grad(fun)(x), S.jax.hessian(fun)(x)


def test_plain_grad_evaluates_each_value_once():
    """A branch on a value under `grad` runs the recorded prefix, not the whole function again."""
    seen = []

    def fun(x):
        for _ in range(50):
            x = x * 1.01
            seen.append(bool(x > 0))
        return x

    value, gradient = ferrax.value_and_grad(fun)(1.0)
    assert len(seen) == 50
    np.testing.assert_allclose(value, 1.01**50, rtol=1e-5)
    np.testing.assert_allclose(gradient, 1.01**50, rtol=1e-5)


def test_gradients_of_deep_programs():
    def fun(x):
        for _ in range(1500):
            x = jnp.sin(x) * 1.1
        return x

    expected, slope = np.float64(0.5), 1.0
    for _ in range(1500):
        expected, slope = np.sin(expected) * 1.1, slope * np.cos(expected) * 1.1
    value, gradient = ferrax.jit(ferrax.value_and_grad(fun))(0.5)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-30)


@same(cancels=8.0)  # terms of the third derivative, which are divided by powers of 0.3
def test_second_derivative_of_the_absolute_value_of_complex_numbers(S):
    def magnitude(x):
        return S.jnp.abs(S.lax.complex(S.jnp.sin(x), x * x))

    slope = lambda f: lambda x: S.jax.jvp(f, (x,), (S.jnp.ones_like(x),))[1]  # noqa: E731
    x = S.jnp.float32(0.3)
    return (
        slope(magnitude)(x),
        slope(slope(magnitude))(x),
        slope(slope(slope(magnitude)))(x),
        S.jax.grad(S.jax.grad(magnitude))(x),
        slope(magnitude)(S.jnp.float32(0)),
        S.jax.grad(lambda x: S.jnp.abs(S.lax.complex(x, x)))(S.jnp.float32(0)),
    )


@same
def test_integer_outputs_under_nested_derivatives(S):
    def f(x):
        return S.jnp.argmax(x), x.sum()

    x = S.jnp.arange(3.0)
    nested = S.jax.jvp(lambda x: S.jax.jvp(f, (x,), (x,)), (x,), (x,))
    jitted = S.jax.jit(lambda x: S.jax.jvp(f, (x,), (x,)))(x)
    shapes = [(leaf.shape, S.jax.dtypes.float0 == leaf.dtype) for leaf in S.jax.tree_util.tree_leaves((nested, jitted))]
    return shapes, nested[1][1], jitted[1][1], S.jax.jacfwd(lambda x: S.jnp.argmax(x))(x)


@same
def test_arguments_among_residuals(s):
    """What a derivative needs of the arguments can be let go of, and given again."""
    y, back = s.jax.vjp(lambda x, w: 2 * (x @ w), s.jnp.ones((3, 4)), s.jnp.eye(4))
    kept = [np.shape(value) for value in back.args_res]
    back.args_res = [None, None]
    back.args_res = [s.jnp.full((3, 4), 3.0), s.jnp.eye(4) * 5]
    there, again = s.jax.tree.flatten(back)
    return y, kept, back(y), s.jax.tree.unflatten(again, there)(y)


def test_missing_arguments_among_residuals():
    _, back = ferrax.vjp(jnp.multiply, 2.0, 3.0)
    back.args_res[0] = None
    with pytest.raises(ValueError, match="args_res has no value for leaf 0"):
        back(1.0)
    back.args_res[0] = jnp.ones(2)
    with pytest.raises(ValueError, match="must have shape"):
        back(1.0)
    assert "NotNeeded" in repr(ferrax.vjp(jnp.sin, 1.0)[1].args_res)


def documented(x, y):
    """Says what it does."""
    return x * y


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev", "vmap"])
def test_help_of_derived_functions(name):
    first, _, own = getattr(ferrax, name)(documented).__doc__.partition("\n")
    assert "of documented" in first and own.endswith("Says what it does.")
    assert "of <lambda>" in getattr(ferrax, name)(lambda x: x).__doc__
    assert ferrax.make_jaxpr(documented).__qualname__ == "make_jaxpr(documented)"


def test_the_linear_program_of_a_vjp_is_shown():
    _, f_vjp = ferrax.vjp(lambda x, y: jnp.sin(x) * y, 2.0, 3.0)
    kept = len(f_vjp.opaque_residuals) + 1  # and y
    assert len(f_vjp.jaxpr.invars) == kept + 2 and len(f_vjp.jaxpr.outvars) == 1
    assert {equation.primitive.name for equation in f_vjp.jaxpr.eqns} <= {"mul", "add", "add_any"}
