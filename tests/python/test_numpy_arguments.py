"""Arguments of functions of numpy at the edges of what they take: objects that stand for arrays, None,
positions for keywords, and what is refused."""

import numpy as np
import pytest
from closeness import along
from oracle import FERRAX, JAX, SIDES, same


def standing_for(s, values, *, registered):
    """An object that stands for an array, perhaps a pytree at that."""

    class Thing:
        def __init__(self, values):
            self.values = values

        def __jax_array__(self):  # noqa: PLW3201
            return s.jnp.asarray(self.values)

    if registered:
        s.jax.tree_util.register_pytree_node(
            Thing, lambda thing: ((thing.values,), None), lambda _, values: Thing(*values)
        )
    return Thing(np.asarray(values, np.float32))


@pytest.mark.parametrize("registered", [False, True])
@same
def test_shapes_of_objects_that_stand_for_arrays(s, registered):
    thing, x = standing_for(s, [0.0, 1.0, 2.0], registered=registered), s.jnp.arange(3.0)
    shapes = [s.jnp.shape(thing), s.jnp.ndim(thing), s.jnp.size(thing), s.jnp.iscomplexobj(thing)]
    return [str(shape) for shape in shapes], x + thing, x < thing


@same
def test_objects_that_stand_for_arrays(s):
    thing, x = standing_for(s, [0.0, 1.0, 2.0], registered=True), s.jnp.arange(3.0) + 1
    pairs = [
        "copysign", "mod", "hypot", "logaddexp", "isclose", "allclose", "heaviside", "fmod", "floor_divide",
        "float_power",
    ]  # fmt: skip
    return [
        [getattr(s.jnp, name)(thing, x) for name in pairs],
        [getattr(s.jnp, name)(x, thing) for name in pairs],
        s.jnp.sinc(thing), s.jnp.i0(thing), s.jnp.where(x > 1, thing, x),
    ]  # fmt: skip


@same
def test_none_is_not_mapped(s):
    first = s.jnp.vectorize(lambda a, b, c=None: a if b is None and c is None else b)
    return [
        first(s.jnp.arange(3.0), None),
        first(s.jnp.ones(2), s.jnp.ones((2, 2))),
        first(1.0, None, c=None),
    ]


@same
def test_grids_without_an_end(s):
    return [s.jnp.mgrid[:], s.jnp.ogrid[:], s.jnp.mgrid[3:], s.jnp.mgrid[1::2], s.jnp.mgrid[:, :2]]


@pytest.mark.parametrize("length", [None, 2])
@same
def test_pads_by_medians(s, length):
    x = s.jnp.array([[3.0, 1.0, 2.0, 7.0], [5.0, -1.0, 0.5, 2.0]])
    kwargs = {} if length is None else {"stat_length": length}
    return [s.jnp.pad(x, width, mode="median", **kwargs) for width in (0, 1, ((0, 2), (1, 0)))] + [
        s.jnp.pad(x.astype(int), 1, mode="median", **kwargs)
    ]


@same
def test_flat_positions_of_any_indices(s):
    index = s.jnp.array([1, 2, -1]), s.jnp.array([2, 5, 0])
    return [
        s.jnp.ravel_multi_index(index, (2, 3), mode=mode) for mode in ("ignore", "wrap", "clip")
    ]


@same
def test_device_get_keeps_keys(s):
    key = s.jax.random.key(0)
    return s.jax.device_get({"key": key, "x": s.jnp.ones(2)})


@same
def test_device_get_keeps_what_is_traced(s):
    def f(x):
        return s.jax.device_get({"x": x})["x"] * x

    x = s.jnp.arange(3.0)
    return s.jax.jit(f)(x), s.jax.vmap(s.jax.grad(f))(x)


@SIDES
def test_strict_promotion_inside_of_functions_is_not_the_users(S):
    with S.jax.numpy_dtype_promotion("strict"):
        assert np.asarray(S.jnp.linspace(0, 1, 3)).tolist() == [0.0, 0.5, 1.0]
        assert np.asarray(S.jnp.r_[0:1:3j]).tolist() == [0.0, 0.5, 1.0]
        assert S.jnp.sort_complex(S.jnp.arange(2.0)).dtype == np.complex64
        with pytest.raises(Exception, match="promotion"):
            S.jnp.arange(2) + S.jnp.ones(2)


@SIDES
def test_copy_by_position_is_deprecated(S):
    with pytest.warns(DeprecationWarning, match="position"):
        assert S.jnp.array(S.jnp.arange(2), None, False, "K", 2).shape == (1, 2)


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (lambda s: s.jnp.broadcast_shapes((-1,)), TypeError),
        (lambda s: "abc" in s.jnp.arange(2), TypeError),
        (lambda s: s.jnp.ravel_multi_index((0,), (2,), mode="bogus"), ValueError),
    ],
)
def test_refused(case, error):
    for s in (FERRAX, JAX):
        with pytest.raises(error):
            case(s)


def test_vectorize_follows_rank_promotion():
    for s in (FERRAX, JAX):
        with s.jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank|shapes"):
            s.jnp.vectorize(lambda a, b: a + b)(s.jnp.ones((2, 3)), s.jnp.ones(3))


@SIDES
def test_a_jaxpr_maker_says_of_what(S):
    assert S.jax.make_jaxpr(S.jnp.sin).__name__ == "make_jaxpr(sin)"


@same
def test_arrays_of_keys(s):
    keys = s.jax.random.split(s.jax.random.key(0))
    made = [
        s.jnp.zeros((2,), keys.dtype), s.jnp.zeros_like(keys), s.jnp.ones_like(keys), s.jnp.empty_like(keys[0]),
        s.jnp.full_like(keys, keys[1]),
    ]  # fmt: skip
    return [s.jax.random.key_data(x) for x in made] + [s.jnp.isclose(keys, keys[:1])]


@same
def test_elements_by_one_hot(s):
    x = s.jnp.arange(12.0).reshape(3, 4)
    index = s.jnp.array([[0, -1], [2, 7], [3, 1]])

    def taken(x):
        return s.jnp.take_along_axis(x, index, 1, mode="one_hot")

    return taken(x), s.jax.grad(lambda x: s.jnp.sum(taken(x) ** 2))(x), taken(x > 5)


@same
def test_coordinates_in_a_traced_shape(s):
    return s.jax.jit(lambda n: s.jnp.unravel_index(s.jnp.array([5, -1, 30]), (n, 4)))(3)


@same
def test_sequences_are_compared(s):
    return [
        s.jnp.array_equiv([1, 2], [[1, 2], [1, 2]]), s.jnp.array_equiv([1, 2], [1, 3]),
        s.jnp.array_equal([1, 2], (1, 2)),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["constant", "empty", "edge", "mean"])
@same
def test_pads_stay_weak(s, mode):
    return s.jnp.pad(s.jnp.array(1.0)[None], 1, mode=mode)[1:2]


@same
def test_grids_have_one_dtype(s):
    with s.jax.numpy_dtype_promotion("strict"):
        return s.jnp.mgrid[1:6:8j, 2:4], s.jnp.ogrid[1:6:8j, 2:4]


@pytest.mark.parametrize("shape", [(3,), (3, 3), (2, 1, 3)])
@same
def test_steps_need_no_promotion_of_rank(s, shape):
    with s.jax.numpy_rank_promotion("raise"):
        return s.jnp.trapezoid(s.jnp.arange(24.0).reshape(2, 3, 4), dx=s.jnp.ones(shape))


@pytest.mark.parametrize("shape, axis", [((2, 3), 1), ((1, 1, 3), 0), ((1, 2, 3), -2), ((2,), 2)])
@same
def test_steps_along_an_axis(s, shape, axis):
    """Their axes are those of the values."""
    y, dx = (np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) for sizes in ((2, 3, 3), shape))
    return s.jnp.trapezoid(y, dx=dx, axis=axis)


@same(cancels=along(0))  # the coefficients of one fit
def test_fits_need_no_promotion_of_rank(s):
    x = np.arange(6, dtype=np.float32)
    with s.jax.numpy_rank_promotion("raise"):
        return s.jnp.polyfit(x, np.stack([x, 2 - 3 * x], 1), 1)


@same
def test_masks_are_dropped_by_array(s):
    """As NumPy's `array` does; `asarray` refuses them."""
    return s.jnp.array(np.ma.masked_array([1, 2], [True, False]))


@pytest.mark.raises("ValueError", "OverflowError")
@pytest.mark.parametrize("call", [
    lambda s: s.jnp.asarray(np.ma.masked_array([1, 2], [True, False])),
    lambda s: s.jax.jit(lambda x: x)(np.ma.masked_array([1, 2], [True, False])),
    lambda s: s.jnp.interp(0.0, s.jnp.arange(3.0), s.jnp.arange(3.0), period=np.array([1.0])),
    lambda s: s.jax.eval_shape(s.jnp.searchsorted, s.jax.ShapeDtypeStruct((2**31,), np.float32), 1.0),
])  # fmt: skip
@same
def test_refused_by_both(s, call):
    return call(s)


@pytest.mark.parametrize("value", [3.0, True, 2j, np.float64(2), np.ones(2)], ids=repr)
@same
def test_operators_take_what_stands_for_a_number(s, value):
    class Thing:
        def __jax_array__(self):  # noqa: PLW3201
            return value

    x = s.jnp.ones(2)
    return x + Thing(), Thing() * x, x == Thing()


@SIDES
@pytest.mark.parametrize("value", ["x", [1, 2], None], ids=repr)
def test_operators_leave_what_stands_for_no_array(S, value):
    class Thing:
        def __jax_array__(self):  # noqa: PLW3201
            return value

    with pytest.raises(TypeError):
        S.jnp.ones(2) + Thing()
