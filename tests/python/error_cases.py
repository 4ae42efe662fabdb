"""Programs that fail, for `test_errors_snapshot`: what a user would write, one function each."""

import functools

import numpy as np

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import lax

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# Values that are not known while tracing


@case
def bool_of_tracer():
    @jax.jit
    def relu(x):
        if x > 0:
            return x
        return 0.0

    relu(1.0)


@case
def bool_of_tracer_in_while():
    @jax.jit
    def halve(x, tolerance):
        while x > tolerance:
            x = x / 2
        return x

    halve(8.0, tolerance=0.5)


@case
def bool_of_array_tracer_under_vmap():
    def pick(params):
        return params["w"] if params["flag"] else -params["w"]

    jax.vmap(pick)({"w": jnp.ones(3), "flag": jnp.array([True, False, True])})


@case
def bool_of_many_elements():
    if jnp.arange(3) > 1:
        pass


@case
def int_of_tracer():
    @jax.jit
    def repeat(x, n):
        return [x] * int(n)

    repeat(1.0, 3)


@case
def range_of_tracer():
    @jax.jit
    def total(n):
        return sum(i for i in range(n))

    total(3)


@case
def shape_of_tracer():
    @jax.jit
    def make(n):
        return jnp.zeros((n, 2))

    make(3)


@case
def float_of_tracer():
    jax.jit(lambda x: np.float32(float(x)))(1.0)


@case
def float_under_grad():
    @jax.grad
    def loss(x):
        return x * float(x)

    loss(2.0)


@case
def numpy_of_tracer():
    @jax.jit
    def log(x):
        return np.log(x)

    log(jnp.ones(3))


@case
def numpy_array_indexed_by_tracer():
    table = np.arange(10)

    @jax.jit
    def look_up(i):
        return table[i]

    look_up(3)


@case
def boolean_mask():
    @jax.jit
    def positive(x):
        return x[x > 0].sum()

    positive(jnp.arange(3.0))


@case
def boolean_mask_update():
    @jax.jit
    def zero_out(x):
        return x.at[x > 0].set(0)[x > 1]

    zero_out(jnp.arange(3.0))


@case
def nonzero_without_size():
    jax.jit(lambda x: jnp.nonzero(x))(jnp.arange(3))


@case
def slice_of_tracer():
    jax.jit(lambda x, n: x[:n])(jnp.arange(3), 2)


@case
def arange_of_tracer():
    jax.jit(lambda n: jnp.arange(n))(3)


@case
def escaped_tracer():
    kept = []

    @jax.jit
    def remember(x):
        kept.append(x * 2)
        return x

    remember(1.0)
    kept[0] + 1


@case
def escaped_tracer_into_jit():
    kept = {}

    def remember(x):
        kept["x"] = jnp.sin(x)
        return x

    jax.grad(remember)(1.0)
    jax.jit(lambda y: y + kept["x"])(1.0)


# Shapes


@case
def add_shapes():
    jnp.ones((2, 3)) + jnp.ones((4, 3))


@case
def add_shapes_in_jit():
    @jax.jit
    def residual(x, y):
        return (x - y) ** 2

    residual(jnp.ones((8, 3)), jnp.ones((8, 4)))


@case
def lax_add_shapes():
    lax.add(jnp.ones(3), jnp.ones((1, 3)))


@case
def dot_shapes():
    jnp.dot(jnp.ones((2, 3)), jnp.ones((2, 3)))


@case
def matmul_shapes_in_grad():
    def loss(w, x):
        return (x @ w).sum()

    jax.grad(loss)(jnp.ones((4, 2)), jnp.ones((8, 3)))


@case
def concatenate_shapes():
    jnp.concatenate([jnp.ones((2, 3)), jnp.ones((3, 2))], axis=0)


@case
def stack_shapes():
    jnp.stack([jnp.ones(2), jnp.ones(3)])


@case
def reshape_size():
    jnp.arange(6).reshape(4, 2)


@case
def broadcast_to_shape():
    jnp.broadcast_to(jnp.ones(3), (2, 4))


@case
def einsum_sizes():
    jnp.einsum("ij,jk->ik", jnp.ones((2, 3)), jnp.ones((4, 2)))


@case
def too_many_indices():
    jnp.ones((2, 3))[0, 1, 2]


@case
def static_index_out_of_range_axis():
    jnp.ones((2, 3)).at[0, 0, 0].set(1)


# Axes


@case
def sum_axis():
    jnp.ones((2, 3)).sum(axis=2)


@case
def transpose_axes():
    jnp.transpose(jnp.ones((2, 3)), (0, 2))


@case
def lax_reduce_axis():
    lax.reduce_sum(jnp.ones((2, 3)), (5,))


@case
def duplicate_axis():
    jnp.sum(jnp.ones((2, 3)), axis=(0, 0))


@case
def squeeze_axis():
    jnp.squeeze(jnp.ones((2, 3)), 0)


# Dtypes


@case
def lax_add_dtypes():
    lax.add(jnp.float32(1), jnp.int32(2))


@case
def promotion_of_fp8():
    jnp.ones(2, "float8_e4m3fn") + jnp.ones(2, "float32")


@case
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        jnp.ones(2, "int32") + jnp.ones(2, "float32")


@case
def bitwise_and_of_floats():
    jnp.bitwise_and(jnp.ones(2), jnp.ones(2))


@case
def list_argument():
    jnp.sum([1, 2, 3])


@case
def list_index():
    jnp.arange(5)[[0, 1]]


@case
def float_index():
    jnp.arange(5)[1.5]


@case
def item_assignment():
    x = jnp.zeros(3)
    x[0] = 1.0


@case
def string_argument_of_jit():
    @jax.jit
    def greet(name, times):
        return times

    greet("you", 3)


@case
def object_result_of_jit():
    @jax.jit
    def result(x):
        return {"x": x, "name": "value"}

    result(1.0)


@case
def big_python_int():
    jnp.add(jnp.int32(1), 2**40)


# Transformations


@case
def grad_of_vector():
    jax.grad(lambda x: x * 2)(jnp.ones(3))


@case
def grad_of_integer():
    jax.grad(lambda n: n * 2.0)(3)


@case
def grad_of_tree():
    jax.grad(lambda x: (x, x))(1.0)


@case
def grad_of_complex():
    jax.grad(lambda z: z * 2)(1j)


@case
def grad_argnums():
    jax.grad(lambda x, y: x * y, argnums=2)(1.0, 2.0)


@case
def grad_without_aux():
    jax.grad(lambda x: x, has_aux=True)(1.0)


@case
def jvp_dtypes():
    jax.jvp(jnp.sin, (jnp.ones(3),), (jnp.ones(3, "int32"),))


@case
def jvp_shapes():
    jax.jvp(jnp.sin, (jnp.ones(3),), (jnp.ones(2),))


@case
def jvp_trees():
    jax.jvp(lambda d: d["a"], ({"a": 1.0},), ({"b": 1.0},))


@case
def vjp_cotangent():
    _, pull = jax.vjp(jnp.sin, jnp.ones(3))
    pull(jnp.ones(4))


@case
def linear_transpose_of_sin():
    jax.linear_transpose(jnp.sin, jnp.ones(3))(jnp.ones(3))


@case
def vmap_sizes():
    def distance(point, center):
        return ((point["x"] - center) ** 2).sum()

    jax.vmap(distance)({"x": jnp.ones((5, 2))}, jnp.ones((4, 2)))


@case
def vmap_rank():
    jax.vmap(lambda x, y: x + y, in_axes=(0, 1))(jnp.ones(3), jnp.ones(3))


@case
def vmap_in_axes_count():
    jax.vmap(lambda x, y: x + y, in_axes=(0, 0, 0))(jnp.ones(3), jnp.ones(3))


@case
def vmap_in_axes_tree():
    jax.vmap(lambda d: d["a"], in_axes=({"b": 0},))({"a": jnp.ones(3)})


@case
def vmap_out_axes_none():
    jax.vmap(lambda x: x * 2, out_axes=None)(jnp.ones(3))


@case
def vmap_nothing():
    jax.vmap(lambda x: x, in_axes=None)(1.0)


@case
def static_unhashable():
    @functools.partial(jax.jit, static_argnames="sizes")
    def network(x, sizes):
        return x * len(sizes)

    network(1.0, sizes=[8, 8])


@case
def static_argnums_range():
    jax.jit(lambda x: x, static_argnums=3)


@case
def donated_then_used():
    x = jnp.ones(4)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    x * 2


@case
def compiled_for_other_shape():
    compiled = jax.jit(lambda x: x * 2).lower(jnp.ones(3)).compile()
    compiled(jnp.ones(4))


@case
def compiled_under_grad():
    compiled = jax.jit(lambda x: x * 2).lower(1.0).compile()
    jax.grad(lambda x: compiled(x))(1.0)


@case
def error_inside_nested_functions():
    def layer(w, x):
        return jnp.tanh(x @ w)

    @jax.jit
    def network(params, x):
        for w in params:
            x = layer(w, x)
        return x

    network([jnp.ones((3, 4)), jnp.ones((5, 2))], jnp.ones((1, 3)))


@case
def scatter_multiply_gradient():
    i = jnp.array([0, 0])
    jax.grad(lambda v: jnp.ones(3).at[i].multiply(v).sum())(jnp.ones(2))


@case
def tree_map_mismatch():
    jax.tree_util.tree_map(lambda a, b: a + b, {"a": 1, "b": (2, 3)}, {"a": 1, "b": (2, 3, 4)})
