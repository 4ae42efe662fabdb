"""Sizes, positions and widths at the ends of their types: right results or clear errors, never a
process that dies. What could kill one runs in a process of its own."""

import subprocess
import sys

import jax
import jax.numpy as jjnp
import numpy as np
import pytest
from oracle import compare_arrays

import ferrax
import ferrax.lax as lax
import ferrax.numpy as jnp

TOP = 2**63 - 1

# Widths of one axis, and what they make of [1, 2, 3] with zeros, from the definition.
PADS = [
    (-TOP, TOP, 1),
    (-TOP, TOP - 1, 0),
    (-TOP + 2, TOP, 0),
    (TOP, -TOP, 1),
    (2**62, -(2**62), 1),
    (0, -(2**40) * 2 + 2, 2**40),
    (1 - 2**41, -2, 2**40),
    (-(2**40), -(2**40), 2**40),
]


def padded(values, low, high, interior):
    """The definition, over a dictionary of places."""
    step = interior + 1
    size = len(values) + (len(values) - 1) * interior + low + high
    places = {low + index * step: value for index, value in enumerate(values)}
    return [places.get(place, 0) for place in range(size)]


def in_process(script):
    """The output of a script in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


def test_pads_of_any_width():
    script = f"""
import numpy as np, ferrax
from ferrax import lax, export
x = np.array([1, 2, 3], np.uint8)
for config in {PADS!r}:
    f = lambda x: lax.pad(x, np.uint8(0), [config])
    saved = export.deserialize(export.export(ferrax.jit(f))(x).serialize()).call
    batched = ferrax.vmap(f)(np.stack([x, x + 1]))[0]
    print([np.asarray(g).tolist() for g in (f(x), ferrax.jit(f)(x), saved(x), batched)])
"""
    lines = in_process(script).splitlines()
    for config, line in zip(PADS, lines, strict=True):
        expected = padded([1, 2, 3], *config)
        assert line == repr([expected] * 4), config


def test_the_gradient_of_such_a_pad():
    script = f"""
import ferrax, ferrax.numpy as jnp
from ferrax import lax
for config in {PADS!r}:
    f = lambda x: jnp.sum(lax.pad(x, 0.0, [config]) * 2)
    try:
        print(ferrax.grad(f)(jnp.arange(3.0)).tolist())
    except (ValueError, OverflowError) as error:
        print(error)
"""
    for line, config in zip(in_process(script).splitlines(), PADS, strict=True):
        kept = padded([1, 2, 3], *config)
        assert line == repr([2.0 * (i in kept) for i in (1, 2, 3)]) or "64-bit" in line, config


def test_results_without_a_size():
    for config in [(0, 0, TOP), (TOP, TOP, 0), (0, 2**62, 2**61)]:
        with pytest.raises((ValueError, MemoryError)):
            lax.pad(np.ones(3, np.uint8), np.uint8(0), [config])
    with pytest.raises(ValueError, match="at least 0|negative"):
        lax.pad(np.ones(3, np.uint8), np.uint8(0), [(-TOP, 0, 0)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: jnp.zeros((2**62,)),
        lambda: jnp.zeros((2**40, 2**40)),
        lambda: jnp.broadcast_to(jnp.zeros(()), (2**33, 2**33)),
        lambda: lax.iota(np.int32, 2**62),
        lambda: ferrax.jit(lambda x: jnp.broadcast_to(x, (2**33, 2**33)).sum())(1.0),
    ],
)
def test_arrays_that_no_machine_holds(make):
    with pytest.raises(MemoryError, match="address space"):
        make()


def test_arrays_without_elements():
    """One axis of size 0 is enough, wherever it is."""
    for shape in [(0, 2**40, 2**40), (2**40, 0, 2**40), (2**40, 2**40, 0)]:
        x = jnp.zeros(shape)
        assert x.shape == shape and x.size == 0 and x.nbytes == 0
        assert x.T.shape == shape[::-1]
        assert float(x.sum()) == 0
        assert jnp.sort(x, 0).shape == shape and jnp.cumsum(x, 1).shape == shape
        assert jnp.concatenate([x, x], 1).size == 0
        assert ferrax.jit(lambda x: (x + 1).transpose(1, 2, 0))(x).size == 0
    y = jnp.zeros((2**40, 0))
    assert float(jnp.vdot(y, y)) == 0


def test_positions_past_their_type():
    x = jnp.arange(5)
    for start in (2**40, 2**70, -(2**40), -(2**70), TOP):
        clipped = min(max(start + 5 if start < 0 else start, 0), 3)
        assert lax.dynamic_slice(x, (start,), (2,)).tolist() == [clipped, clipped + 1]
        assert lax.dynamic_slice_in_dim(x, start, 2).tolist() == [clipped, clipped + 1]
        updated = lax.dynamic_update_slice(x, jnp.array([7, 8]), (start,))
        expected = list(range(5))
        expected[clipped : clipped + 2] = [7, 8]
        assert updated.tolist() == expected
    for k in (2**40, -(2**40), 2**63, -(2**70), 3, -3, 2):
        np.testing.assert_array_equal(jnp.eye(3, k=k), jjnp.eye(3, k=k))
        np.testing.assert_array_equal(jnp.eye(3, 5, k=k), jjnp.eye(3, 5, k=k))
    for step in (2**40, TOP):
        assert lax.slice(x, (3,), (5,), (step,)).tolist() == [3]
        assert x[1::step].tolist() == [1]


def turns(jnp, x):
    return sum(x.reshape(2**k, -1).T.reshape(-1) for k in range(1, 13))


def uneven_turns(jnp, x):
    factors = [2, 3, 5, 7, 6, 10, 14, 15, 21, 35, 30, 42, 70, 105]
    return sum(jnp.sin(x.reshape(k, -1).T.reshape(-1) * k) for k in factors)


def chained_turns(jnp, x):
    for k in [6, 10, 15, 14, 21, 35] * 4:
        x = (x + k).reshape(k, -1).T.reshape(-1)
    return x


def windowed_turns(jnp, x):
    y = jnp.pad(x.reshape(14, -1).T.reshape(-1), (3, 5))[2:-6]
    return jnp.concatenate([y.reshape(15, -1).T.reshape(-1), x]).reshape(-1, 12).T.sum(1)


@pytest.mark.parametrize(
    ("fun", "size"),
    [(turns, 8192), (uneven_turns, 210), (chained_turns, 210), (windowed_turns, 210)],
)
def test_more_views_than_a_kernel_has_loops(fun, size):
    x = np.arange(float(size), dtype=np.float32) / 7
    expected = jax.jit(lambda x: fun(jjnp, x))(x)
    sines = fun is uneven_turns
    compare_arrays(ferrax.jit(lambda x: fun(jnp, x))(x), expected, cancels=1.0 if sines else 0.0)
    loss = lambda jnp: lambda x: (fun(jnp, x) ** 2).sum()  # noqa: E731
    gradient = jax.jit(jax.grad(loss(jjnp)))(x)
    # Cosines are multiplied by up to twice 105 times the sum of a few sines.
    compare_arrays(ferrax.jit(ferrax.grad(loss(jnp)))(x), gradient, cancels=500.0 if sines else 0.0)


def test_verification_on_demand():
    """Plans and programs are verified under the flag, in any build."""
    with ferrax.enable_checks(True):
        y = ferrax.jit(lambda x: jnp.pad(x.T, 1)[1:].sum(0) + turns(jnp, x.reshape(-1))[0])(
            jnp.ones((64, 128))
        )
    assert y.shape == (66,)


def test_rolls_by_integers_of_any_size():
    x = np.arange(5)
    for shift in (2**70, -(2**70), 2**64 - 1, 2**63, -(2**63), 2**63 - 1):
        # NumPy takes no integers past 64 bits.
        expected = np.roll(x, shift % 5)
        np.testing.assert_array_equal(jnp.roll(x, shift), expected)
        np.testing.assert_array_equal(jnp.roll(x[None], (1, shift), (0, 1)), expected[None])
    with pytest.raises(TypeError, match="integers"):
        jnp.roll(x, np.inf)


@pytest.mark.parametrize("exponent", [2**31, 2**40, 2**62 + 1, 2**63, 2**70, 2**70 + 1])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "complex64"])
def test_powers_with_exponents_of_any_size(exponent, dtype):
    x = np.array([0, 1, -1, 2, 3, -2] if dtype != "uint8" else [0, 1, 2, 3, 255], dtype)
    ours, theirs = (f(x, exponent) for f in (lax.integer_pow, jax.lax.integer_pow))
    assert ours.dtype == theirs.dtype
    if dtype != "complex64":
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ferrax.jit(lambda x: jnp.power(x, exponent))(x), theirs)
    else:
        # Infinities of complex products differ; units do not.
        np.testing.assert_array_equal(np.asarray(ours)[:3], np.asarray(theirs)[:3])
    if dtype == "float32":
        for n in (exponent, -exponent):
            for at in (1.0, -1.0, 0.5, 2.0):
                ours, theirs = (
                    lib.grad(lambda x: xla.integer_pow(x, n))(at)  # noqa: B023
                    for lib, xla in ((ferrax, lax), (jax, jax.lax))
                )
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=f"{n} at {at}")


def test_bounds_and_positions_past_64_bits():
    assert int(lax.fori_loop(0, -(2**70), lambda i, c: c + 1, 3)) == 3
    for place in (2**40, -(2**70)):
        with pytest.raises(ValueError, match="out of bounds"):
            jnp.delete(jnp.arange(3), place)
