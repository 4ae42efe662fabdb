"""Views of mutable arrays: what NumPy's views do, and what JAX's do under jit."""

import functools
import random

import jax
import jax._src.state.discharge as discharge
import numpy as np
import oracle
import pytest
from jax.experimental import pallas as jax_pallas
from ref_cases import module, raises, same

import ferrax
import ferrax.numpy as jnp
from ferrax._src.numpy.ref_ops import run_state as run_state_of_refs


def ds(s):
    return ferrax.ds if s.name == "ferrax" else jax_pallas.ds


def written(s, change, shape=(2, 3, 4), jitted=True):
    """What a ref of this shape holds after `change(ref, 1)`, and what that gave; under jit, where the
    number is traced. JAX's views are there under jit alone."""

    def run(i):
        ref = s.jax.new_ref(s.jnp.arange(float(np.prod(shape))).reshape(shape))
        return change(ref, i), ref[...]

    return (s.jax.jit(run) if jitted or s.name == "jax" else run)(1)


def put(view, value):
    view[...] = value


CASES = {
    "read": lambda s, ref, i: ref.at[1][...],
    "traced": lambda s, ref, i: ref.at[i][0],
    "traced, negative": lambda s, ref, i: ref.at[i - 2][0],
    "traced, out of bounds": lambda s, ref, i: ref.at[i + 7, i - 9][...],
    "write": lambda s, ref, i: put(ref.at[1, 2], s.jnp.ones(4)),
    "write, traced": lambda s, ref, i: put(ref.at[i, 2], s.jnp.ones(4)),
    "write, out of bounds": lambda s, ref, i: put(ref.at[i + 7, i - 9], s.jnp.ones(4)),
    "nested": lambda s, ref, i: put(ref.at[1].at[1:].at[i], s.jnp.ones(4)),
    "nested slices": lambda s, ref, i: put(ref.at[:, 1:].at[1, :, 1:3], s.jnp.ones((2, 2))),
    "ds": lambda s, ref, i: put(ref.at[0, ds(s)(i, 2)], s.jnp.ones((2, 4))),
    "ds, out of bounds": lambda s, ref, i: put(ref.at[0, ds(s)(i + 4, 2)], s.jnp.ones((2, 4))),
    "ds of ds": lambda s, ref, i: put(
        ref.at[:, :, ds(s)(i, 3)].at[0, :, ds(s)(i, 2)], s.jnp.ones((3, 2))
    ),
    "ds of ds, out of bounds": lambda s, ref, i: ref.at[:, :, ds(s)(i, 3)].at[0, :, ds(s)(i + 5, 2)][...],
    "array": lambda s, ref, i: put(ref.at[0].at[s.jnp.array([2, 0])], s.jnp.ones((2, 4))),
    "array, then integer": lambda s, ref, i: put(
        ref.at[0].at[s.jnp.array([2, 0])].at[1], s.jnp.ones(4)
    ),
    "array of a slice": lambda s, ref, i: put(
        ref.at[:, 1:].at[s.jnp.array([0, 1]), s.jnp.array([1, 0])], s.jnp.ones((2, 4))
    ),
    "mask": lambda s, ref, i: ref.at[0].at[:, np.array([True, False, True, False])][...],
    "set": lambda s, ref, i: ref.at[0, 1].set(s.jnp.ones(4)),
    "get": lambda s, ref, i: ref.at[0, 1].get(),
    "swap": lambda s, ref, i: module(s).swap(ref.at[1], (0, 1), 7.0),
    "ref.get": lambda s, ref, i: module(s).get(ref.at[i]),
    "reshape, read": lambda s, ref, i: ref.reshape(6, 4)[i],
    "reshape of a view": lambda s, ref, i: ref.at[1].reshape((12,))[3:7],
    "bitcast, read": lambda s, ref, i: ref.bitcast(s.jnp.int32)[...],
    "bitcast to narrow": lambda s, ref, i: ref.bitcast(s.jnp.uint16)[...],
    "cond": lambda s, ref, i: s.lax.cond(i > 0, lambda v: v[0], lambda v: v[1], ref.at[1]),
    "write in cond": lambda s, ref, i: s.lax.cond(
        i > 0, lambda v: put(v.at[0], s.jnp.ones(4)), lambda v: None, ref.at[1]
    ),
    "closed over by a loop": lambda s, ref, i: s.lax.fori_loop(
        0, 3, lambda k, total: total + ref.at[1].at[k][0], 0.0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jitted", [False, True])
@same
def test_views(s, name, jitted):
    # Known integers out of bounds are errors.
    jitted = jitted or "out of bounds" in name
    return written(s, functools.partial(CASES[name], s), jitted=jitted)


# JAX has no rule for these.
ONLY_HERE = {
    "write through reshape": (
        lambda ref, i: put(ref.reshape(6, 4).at[3], jnp.ones(4)),
        lambda x: x.reshape(6, 4)[3:4],
        1.0,
    ),
    "write through transpose": (
        lambda ref, i: put(ref.T.at[1], jnp.ones((3, 2))),
        lambda x: x.T[1],
        1.0,
    ),
    "nested steps": (
        lambda ref, i: put(ref.at[:, 1:].at[1, :, ::2], jnp.ones((2, 2))),
        lambda x: x[1, 1:, ::2],
        1.0,
    ),
    "transpose of a view": (
        lambda ref, i: put(ref.at[1].transpose(1, 0).at[i + 1], jnp.ones(3)),
        lambda x: x[1].T[2],
        1.0,
    ),
    "steps from a traced start": (
        lambda ref, i: put(ref.at[0, 1, ferrax.ds(i, 2, 2)], jnp.ones(2)),
        lambda x: x[0, 1, 1::2],
        1.0,
    ),
}


@pytest.mark.parametrize("name", ONLY_HERE)
@pytest.mark.parametrize("jitted", [False, True])
def test_writes_go_through(name, jitted):
    change, seen, value = ONLY_HERE[name]
    _, found = written(oracle.FERRAX, change, jitted=jitted)
    expected = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    seen(expected)[...] = value
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wide", ["uint32", "int16", "float16"])
@pytest.mark.parametrize("old", ["uint8", "uint16", "float32"])
def test_writes_through_bitcasts(old, wide):
    """The bits that are put in are read back, and the others stay."""
    x = np.arange(64, dtype=old).reshape(4, 16)
    ref = ferrax.new_ref(x)
    view = ref.bitcast(wide)
    before = np.asarray(view[...])
    value = np.asarray(view[...])[:1] + np.asarray(3, wide)
    view[:1] = value
    np.testing.assert_array_equal(np.asarray(view[...])[:1], value)
    np.testing.assert_array_equal(np.asarray(view[...])[1:], before[1:])
    back = jax.jit(lambda: _through_jax(ref[...], wide))()
    np.testing.assert_array_equal(np.asarray(back), np.asarray(view[...]))


def _through_jax(x, dtype):
    return jax.new_ref(np.asarray(x)).bitcast(np.dtype(dtype))[...]


def random_chain(random, x):
    """`(make, view)`: makes a view of a ref and of `x`, a NumPy array, and what this is."""
    steps = []
    seen = x
    for _ in range(random.randint(1, 4)):
        kind = random.choice(["slice", "slice", "integer", "traced", "window", "transpose"])
        if not seen.ndim:
            break
        axis = random.randrange(seen.ndim)
        size = seen.shape[axis]
        before = (slice(None),) * axis
        if kind == "slice":
            start = random.randrange(size)
            step = random.randint(1, 2)
            index = (*before, slice(start, random.randint(start + 1, size), step))
            steps.append(lambda v, index=index: v.at[index])
            seen = seen[index]
        elif kind in ("integer", "traced"):
            number = random.randrange(-size, size)
            traced = kind == "traced"
            steps.append(
                lambda v, b=before, n=number, t=traced: v.at[(*b, jnp.int32(n) if t else n)]
            )
            seen = seen[(*before, slice(number % size, number % size + 1))].reshape(
                seen.shape[:axis] + seen.shape[axis + 1 :]
            )
        elif kind == "window":
            start = random.randrange(size)
            count = random.randint(1, size - start)
            steps.append(
                lambda v, b=before, n=start, c=count: v.at[(*b, ferrax.ds(jnp.int32(n), c))]
            )
            seen = seen[(*before, slice(start, start + count))]
        else:
            axes = random.sample(range(seen.ndim), seen.ndim)
            steps.append(lambda v, axes=tuple(axes): v.transpose(axes))
            seen = seen.transpose(axes)
    return (lambda ref: functools.reduce(lambda v, step: step(v), steps, ref)), seen


@pytest.mark.parametrize("seed", range(40))
def test_chains_are_numpys_views(seed):
    rng = random.Random(seed)
    x = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
    make, seen = random_chain(rng, x)
    expected = seen.copy()
    assert seen.base is not None or seen is x

    @ferrax.jit
    def run(value):
        ref = ferrax.new_ref(value)
        view = make(ref)
        read = view[...]
        view[...] = read * 2 + 1
        view.addupdate(jnp.ones(view.shape))
        return read, view.shape, ref[...]

    given = x.copy()
    read, shape, found = run(given)
    np.testing.assert_array_equal(read, expected)
    assert tuple(int(size) for size in shape) == expected.shape
    seen[...] = seen * 2 + 2
    np.testing.assert_array_equal(found, x)


def test_a_chain_of_indices_is_one_index():
    """Writes copy nothing but the elements: no other slices are in the program."""

    def run(x, i):
        ref = ferrax.new_ref(x)
        ref.at[i].at[1:].at[ferrax.ds(i, 2)].at[0][...] = jnp.ones(4)
        return ref[...]

    names = [eqn.primitive.name for eqn in ferrax.make_jaxpr(run)(jnp.zeros((3, 9, 4)), 1).eqns]
    assert names.count("dynamic_update_slice") == 1
    assert not {"dynamic_slice", "slice", "scatter"} & set(names)


@pytest.mark.parametrize("order", ["grad", "hessian", "jvp", "vmap"])
def test_transformations(order):
    def through_views(x, i):
        ref = ferrax.new_ref(x)
        row = ref.at[i]
        row[1:] = jnp.sin(row[1:]) * row[0]
        ref.reshape(6).at[ferrax.ds(i, 2)].addupdate(jnp.ones(2) * x[1, 1])
        return (ref.T[...] ** 2).sum()

    def plain(x, i):
        x0 = x
        x = x.at[i, 1:].set(jnp.sin(x[i, 1:]) * x[i, 0])
        flat = x.reshape(6)
        piece = ferrax.lax.dynamic_slice(flat, (i,), (2,)) + x0[1, 1]
        return (ferrax.lax.dynamic_update_slice(flat, piece, (i,)) ** 2).sum()

    x = jnp.linspace(0.2, 1.7, 6).reshape(2, 3)
    transform = {
        "grad": lambda f: ferrax.grad(f)(x, 1),
        "hessian": lambda f: ferrax.hessian(f)(x, 1),
        "jvp": lambda f: ferrax.jvp(lambda x: f(x, 1), (x,), (x * 2,)),
        "vmap": lambda f: ferrax.vmap(f, (None, 0))(x, jnp.arange(2)),
    }[order]
    for expected, found in zip(
        ferrax.tree.leaves(transform(plain)), ferrax.tree.leaves(transform(through_views))
    ):
        np.testing.assert_allclose(expected, found, rtol=1e-5)


@pytest.mark.parametrize(
    ("case", "message", "kind"),
    [
        (lambda s, ref: ref.at[5], "out of bounds for axis 0 of size 2", ValueError),
        (lambda s, ref: ref.at[0].at[-4], "out of bounds for axis 0 of size 3", ValueError),
        (lambda s, ref: ref.at[ds(s)(1, 2)], "a slice of 2 elements from 1", ValueError),
        (lambda s, ref: ref.at[::-1], "step >= 1", ValueError),
        (lambda s, ref: ref.at[None, 0], "no new axes", IndexError),
        (lambda s, ref: ref.at[0, 0, 0, 0], "4 entries", ValueError),
        (lambda s, ref: ref.reshape(5, 5), "has 24 elements", ValueError),
        (lambda s, ref: ref.transpose((0, 0, 1)), "no order of the 3 axes", ValueError),
        (lambda s, ref: put(ref.at[0], s.jnp.ones(3)), "value has shape", ValueError),
        (lambda s, ref: put(ref.at[0, 0], s.jnp.ones(4, s.jnp.int32)), "dtype", ValueError),
        (lambda s, ref: ref.reshape(24).bitcast(s.jnp.int16), "needs two axes", ValueError),
        (lambda s, ref: s.jax.vmap(lambda v: v[0])(ref.at[0]), "TransformedRef", TypeError),
    ],
)
def test_errors(case, message, kind):
    # JAX finds some of them when the view is read.
    in_jax = message not in ("no order of the 3 axes", "no new axes")
    raises(lambda s: written(s, lambda ref, i: case(s, ref)), message, kind, in_jax)


def test_views_have_types():
    ref = ferrax.new_ref(jnp.zeros((2, 3), jnp.int8))
    view = ref.at[1]
    assert (view.shape, view.dtype.name, view.ndim, view.size, len(view)) == ((3,), "int8", 1, 3, 3)
    assert str(ferrax.typeof(view)) == "Ref{int8[3]}"
    assert repr(view) == "TransformedRef(int8[3] of Ref{int8[2,3]})"
    assert view.ref is ref
    assert ferrax.tree.leaves(view) == [view]


# `ds` as an index of arrays.

SLICES = {
    "static": lambda s, x, i: x[s.jax.ds(1, 2)],
    "size alone": lambda s, x, i: x[s.jax.ds(3)],
    "traced": lambda s, x, i: x[s.jax.ds(i, 2)],
    "negative": lambda s, x, i: x[s.jax.ds(-1, 2)],
    "traced, negative": lambda s, x, i: x[s.jax.ds(i - 3, 2)],
    "beyond": lambda s, x, i: x[s.jax.ds(4, 2)],
    "traced, beyond": lambda s, x, i: x[s.jax.ds(i + 9, 2)],
    "empty": lambda s, x, i: x[s.jax.ds(1, 0)],
    "steps": lambda s, x, i: x[s.jax.ds(i, 2, 3)],
    "steps, beyond": lambda s, x, i: x[s.jax.ds(i + 3, 2, 2)],
    "second axis": lambda s, x, i: x[:, s.jax.ds(i, 3)],
    "beside an integer": lambda s, x, i: x[i, s.jax.ds(i, 3)],
    "beside an array": lambda s, x, i: x[s.jnp.array([0, 3]), s.jax.ds(i, 3)],
    "beside a new axis": lambda s, x, i: x[s.jax.ds(i, 3), None],
    "set": lambda s, x, i: x.at[s.jax.ds(i, 2)].set(0),
    "set, beyond": lambda s, x, i: x.at[s.jax.ds(i + 4, 2)].set(0),
    "add": lambda s, x, i: x.at[1, s.jax.ds(i, 2)].add(s.jnp.ones(2)),
    "get, filled": lambda s, x, i: x.at[s.jax.ds(i + 4, 2)].get(mode="fill", fill_value=-1),
}


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("jitted", [False, True])
@oracle.same
def test_slices_of_arrays(s, name, jitted):
    x = s.jnp.arange(20.0).reshape(5, 4)
    run = functools.partial(SLICES[name], s)
    return (s.jax.jit(run) if jitted else run)(x, 1)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda s: s.jax.ds(0, 2, -1), ValueError),
        (lambda s: s.jnp.arange(3)[s.jax.ds(0, 4)], TypeError),
        (lambda s: s.jax.jit(lambda n: s.jnp.arange(3)[s.jax.ds(0, n)])(2), TypeError),
        (lambda s: s.jnp.arange(3)[s.jax.ds(s.jnp.arange(2), 2)], TypeError),
        (lambda s: s.jnp.arange(3)[s.jax.ds(1.5, 2)], TypeError),
    ],
)
def test_slice_errors(make, kind):
    for side in (oracle.FERRAX, oracle.JAX):
        with pytest.raises(kind):
            make(side)


# Functions of values made of functions of refs.


def run_state(s):
    return run_state_of_refs if s.name == "ferrax" else discharge.run_state


def double(refs):
    refs["y"][...] = refs["x"][...] * 2 + refs["y"][...]


STATES = {
    "values": lambda s, f, x: f({"x": x, "y": s.jnp.ones(2)}),
    "jit": lambda s, f, x: s.jax.jit(f)({"x": x, "y": s.jnp.ones(2)}),
    "jvp": lambda s, f, x: s.jax.jvp(lambda x: f({"x": x, "y": s.jnp.ones(2)})["y"], (x,), (x,)),
}


@pytest.mark.parametrize("name", STATES)
@same
def test_run_state(s, name):
    return STATES[name](s, run_state(s)(double), s.jnp.array([1.0, 2.0]))


def test_run_state_backwards_and_batched():
    f = run_state_of_refs(double)

    def loss(x):
        return (f({"x": x, "y": x})["y"] ** 2).sum()

    x = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(ferrax.grad(loss)(x), 18 * x)
    np.testing.assert_allclose(ferrax.hessian(loss)(x), 18 * np.eye(2))
    np.testing.assert_allclose(ferrax.vmap(loss)(x[:, None]), 9 * x**2)


def test_run_state_returns_nothing():
    with pytest.raises(ValueError, match="returns None, got 3"):
        run_state_of_refs(lambda ref: 3)(1.0)


# Refs that are freed, and those that values only pass through.


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("again", ["read", "write", "free", "view"])
def test_freed_refs_are_not_used(jitted, again):
    def use(x):
        ref = ferrax.new_ref(x)
        view = ref.at[0]
        ferrax.free_ref(ref)
        {
            "read": lambda: ref[...],
            "write": lambda: put(ref, x),
            "free": lambda: ferrax.free_ref(ref),
            "view": lambda: view[...],
        }[again]()

    with pytest.raises(ValueError, match="freed by free_ref and is used again"):
        (ferrax.jit(use) if jitted else use)(jnp.zeros(2))


def test_refs_are_freed_where_they_were_made():
    ref = ferrax.new_ref(jnp.zeros(2))
    with pytest.raises(ValueError, match="comes from outside"):
        ferrax.jit(lambda: ferrax.free_ref(ref))()
    assert repr(ref) == "Ref([0., 0.], dtype=float32)"
    ferrax.free_ref(ref)
    assert repr(ref) == "Ref{float32[2]}"


def test_values_pass_through_without_derivatives():
    seen = ferrax.new_ref(0.0, kind="no_grad_no_remat")

    def f(x):
        y = jnp.sin(x)
        seen[...] = y
        return y * seen[...]

    np.testing.assert_allclose(ferrax.grad(f)(0.5), np.cos(0.5) * np.sin(0.5), rtol=1e-6)
    np.testing.assert_allclose(seen[...], np.sin(0.5), rtol=1e-6)
    with pytest.raises(ValueError, match="kind is None or"):
        ferrax.new_ref(0.0, kind="other")
