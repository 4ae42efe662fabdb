"""Typical mistakes with transformations, loops, rules, dtypes, keys and options, for `test_errors_snapshot`."""

import numpy as np

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import lax

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# Loops and branches


@case
def scan_carry_shape():
    lax.scan(lambda carry, x: (jnp.concatenate([carry, carry]), x), jnp.ones(2), jnp.arange(3))


@case
def scan_carry_structure():
    lax.scan(lambda carry, x: ((carry, carry), x), 0.0, jnp.arange(3.0))


@case
def scan_without_a_pair():
    lax.scan(lambda carry, x: carry + x, 0.0, jnp.arange(3.0))


@case
def scan_lengths():
    lax.scan(lambda carry, x: (carry, x), 0.0, (jnp.arange(3), jnp.arange(4)))


@case
def scan_over_nothing():
    lax.scan(lambda carry, x: (carry + 1, None), 0.0, None)


@case
def scan_other_length():
    lax.scan(lambda carry, x: (carry, x), 0.0, jnp.arange(3), length=4)


@case
def scan_over_a_scalar():
    lax.scan(lambda carry, x: (carry, x), 0.0, 5.0)


@case
def error_in_a_scan_body():
    def body(carry, x):
        return carry @ x, None

    lax.scan(body, jnp.ones((2, 2)), jnp.ones((4, 3, 2)))


@case
def while_condition_of_floats():
    lax.while_loop(lambda x: x, lambda x: x - 1.0, 3.0)


@case
def while_condition_of_an_array():
    lax.while_loop(lambda x: x > 0, lambda x: x - 1.0, jnp.ones(3))


@case
def fori_body_shape():
    lax.fori_loop(0, 3, lambda i, x: x[None], jnp.ones(2))


@case
def cond_shapes():
    lax.cond(True, lambda x: x, lambda x: x[0], jnp.ones(2))


@case
def cond_structures():
    lax.cond(True, lambda x: (x, x), lambda x: x, 1.0)


@case
def cond_without_functions():
    lax.cond(True, 1.0, 2.0)


@case
def cond_of_an_array():
    lax.cond(jnp.array([True, False]), lambda x: x, lambda x: -x, 1.0)


@case
def cond_argument_count():
    lax.cond(True, lambda x: x, lambda x, y: x, 1.0)


@case
def switch_without_branches():
    lax.switch(0, [], 1.0)


@case
def switch_index_of_floats():
    lax.switch(0.5, [lambda x: x, lambda x: -x], 1.0)


@case
def map_of_unequal_lengths():
    lax.map(lambda x: x[0] + x[1], (jnp.ones(3), jnp.ones(4)))


# Rules of one's own


@case
def custom_jvp_without_a_rule():
    jax.grad(jax.custom_jvp(lambda x: x * 2))(1.0)


@case
def custom_jvp_rule_returns_one_value():
    @jax.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: tangents[0])
    jax.grad(f)(1.0)


@case
def custom_jvp_tangent_shape():
    @jax.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: (f(*primals), jnp.ones(3)))
    jax.grad(f)(1.0)


@case
def custom_vjp_without_rules():
    jax.grad(jax.custom_vjp(lambda x: x * 2))(1.0)


@case
def custom_vjp_cotangent_count():
    @jax.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda residuals, g: (g,))
    jax.grad(f)(1.0, 2.0)


@case
def custom_vjp_cotangent_shape():
    @jax.custom_vjp
    def f(x):
        return x * 2

    f.defvjp(lambda x: (x * 2, None), lambda _, g: (jnp.ones(3),))
    jax.grad(f)(1.0)


@case
def custom_vjp_in_forward_mode():
    @jax.custom_vjp
    def f(x):
        return x * 2

    f.defvjp(lambda x: (x * 2, None), lambda _, g: (2 * g,))
    jax.jvp(f, (1.0,), (1.0,))


@case
def error_in_a_custom_rule():
    @jax.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def rule(primals, tangents):
        return primals[0], tangents[0] @ jnp.ones(3)

    jax.jit(jax.grad(lambda x: f(x).sum()))(jnp.ones(2))


# Transformations


@case
def grad_without_arguments():
    jax.grad(lambda x: x)()


@case
def grad_of_none():
    jax.grad(lambda x: None)(1.0)


@case
def grad_of_a_string():
    jax.grad(lambda x, mode: x)("mode", 1.0)


@case
def grad_not_of_a_function():
    jax.grad(3.0)


@case
def jit_not_of_a_function():
    jax.jit(3.0)


@case
def missing_argument_of_jit():
    jax.jit(lambda x, y: x + y)(1.0)


@case
def unknown_static_argname():
    jax.jit(lambda x: x, static_argnames="mode")(1.0)


@case
def value_error_of_the_user_in_vmap_of_grad():
    def loss(x):
        raise ValueError("the model has no layers")

    jax.vmap(jax.grad(loss))(jnp.ones(3))


@case
def vmap_axis_out_of_range():
    jax.vmap(lambda x: x, in_axes=2)(jnp.ones((2, 3)))


@case
def unknown_axis_name():
    jax.vmap(lambda x: lax.psum(x, "batch"), axis_name="rows")(jnp.ones(3))


@case
def psum_outside():
    lax.psum(jnp.ones(3), "batch")


@case
def jacobian_of_integers():
    jax.jacrev(lambda x: x * 2)(jnp.arange(3))


@case
def hessian_of_a_vector():
    jax.hessian(lambda x: x**2)(3)


@case
def checkpoint_on_a_value():
    jax.grad(jax.checkpoint(lambda x: x if x > 0 else -x))(1.0)


@case
def vmap_of_unequal_trees():
    jax.vmap(lambda p: p["w"] + p["b"])({"w": jnp.ones((3, 2)), "b": jnp.ones((2,))})


# Arrays


@case
def matmul_of_scalars():
    jnp.ones(3) @ 2.0


@case
def stack_of_nothing():
    jnp.stack([])


@case
def array_of_strings():
    jnp.array(["a", "b"])


@case
def ragged_lists():
    jnp.array([[1, 2], [3]])


@case
def unknown_dtype():
    jnp.zeros(3, "float33")


@case
def negative_shape():
    jnp.zeros((2, -1))


@case
def float_shape():
    jnp.zeros(2.5)


@case
def where_with_one_choice():
    jnp.where(jnp.array([True, False]), jnp.ones(2))


@case
def split_unevenly():
    jnp.split(jnp.arange(7), 3)


@case
def clip_of_complex():
    jnp.clip(jnp.array([1 + 1j]), 0, 1)


@case
def argmax_of_nothing():
    jnp.argmax(jnp.zeros(0))


@case
def max_of_nothing():
    jnp.zeros((0,)).max()


@case
def unknown_keyword():
    jnp.sum(jnp.ones(3), axes=0)


@case
def sort_axis():
    jnp.sort(jnp.ones((2, 3)), axis=2)


@case
def take_mode():
    jnp.take(jnp.arange(3), 1, mode="wrong")


@case
def at_set_shape():
    jnp.zeros(3).at[:2].set(jnp.ones(3))


@case
def einsum_letters():
    jnp.einsum("ij,jk->il", jnp.ones((2, 3)), jnp.ones((3, 4)))


@case
def cholesky_of_a_vector():
    jnp.linalg.cholesky(jnp.ones(3))


@case
def solve_shapes():
    jnp.linalg.solve(jnp.ones((3, 2)), jnp.ones(3))


@case
def convolution_channels():
    lax.conv(jnp.ones((1, 3, 8, 8)), jnp.ones((4, 2, 3, 3)), (1, 1), "SAME")


@case
def math_function_of_a_tracer():
    import math

    jax.jit(lambda x: math.sqrt(x))(2.0)


@case
def format_of_a_tracer():
    jax.jit(lambda x: f"{x:.2f}")(2.0)


@case
def tracer_as_a_dictionary_key():
    jax.jit(lambda x: {x: 1}[x])(2.0)


@case
def arange_step_of_a_tracer():
    jax.jit(lambda step: jnp.arange(0, 10, step))(2)


# Keys, trees and settings


@case
def seed_as_a_key():
    jax.random.normal(0, (3,))


@case
def key_in_arithmetic():
    jax.random.key(0) + 1


@case
def numpy_shape_of_random():
    jax.random.normal(jax.random.key(0), "3")


@case
def split_of_many_keys():
    jax.random.split(jax.random.split(jax.random.key(0)), 3)


@case
def randint_of_floats():
    jax.random.randint(jax.random.key(0), (3,), 0, 5, dtype=jnp.float32)


@case
def unflatten_leaves():
    jax.tree.unflatten(jax.tree.structure((1, 2)), [1])


@case
def tree_map_over_lists():
    jax.tree.map(lambda x, y: x, [1, 2], [1, 2, 3])


@case
def unknown_flag():
    jax.config.update("jax_enable_x65", True)


@case
def unknown_device():
    jax.devices("quantum")


@case
def one_hot_of_a_tracer_of_classes():
    jax.jit(lambda x, n: jax.nn.one_hot(x, n))(jnp.arange(3), 3)


@case
def softmax_axis():
    jax.nn.softmax(jnp.ones(3), axis=1)


@case
def callback_shape():
    jax.jit(lambda x: jax.pure_callback(lambda y: np.ones(2, np.float32), x, x))(jnp.ones(3)).block_until_ready()
