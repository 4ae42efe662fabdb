"""`debug_nans` and `debug_infs`: which programs fail, and that the others run as ever.

The texts of the errors are in `snapshots/`, of the cases in `error_cases_values.py`.
"""

import threading

import numpy as np
import pytest

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import lax


@pytest.fixture(autouse=True)
def restored():
    yield
    jax.config.update("jax_debug_nans", False)
    jax.config.update("jax_debug_infs", False)


def raised(fun, *args):
    with pytest.raises(FloatingPointError) as caught:
        fun(*args)
    return str(caught.value)


def test_off_by_default_and_after_the_block():
    with jax.debug_nans(True):
        pass
    assert np.isnan(jnp.log(-1.0)) and np.isnan(jax.jit(jnp.log)(-1.0))


def test_config_update_holds_for_all_threads():
    jax.config.update("jax_debug_nans", True)
    raised(jnp.log, -1.0)
    texts = []
    thread = threading.Thread(target=lambda: texts.append(raised(jnp.log, -1.0)))
    thread.start()
    thread.join()
    assert "'log' gave nan" in texts[0]
    with jax.debug_nans(False):
        jnp.log(-1.0)


def test_a_block_is_this_threads_own():
    results = []
    with jax.debug_nans(True):
        thread = threading.Thread(target=lambda: results.append(jnp.log(-1.0)))
        thread.start()
        thread.join()
    assert len(results) == 1 and np.isnan(results[0])


def test_compiled_functions_are_looked_at_without_being_traced_again():
    @jax.jit
    def f(x):
        return jnp.log(x)

    f(-1.0)
    with jax.debug_nans(True):
        assert "'log' gave nan, of the operand -1.0." in raised(f, -1.0)
        f(1.0)
    assert f.stats().traces == 1 and np.isnan(f(-1.0))


def test_nans_and_infinities_are_watched_apart():
    x = jnp.zeros(2)
    with jax.debug_nans(True):
        assert np.isinf(1 / x).all()
        raised(lambda: x / x)
    with jax.debug_infs(True):
        assert np.isnan(x / x).all()
        assert "'div' gave inf at index (0,)" in raised(lambda: 1 / x)
        assert "-inf" in raised(lambda: -1 / x)
    with jax.debug_nans(True), jax.debug_infs(True):
        raised(lambda: x / x), raised(lambda: 1 / x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_dtypes(dtype):
    x = jnp.zeros(3, dtype)
    with jax.debug_nans(True):
        assert "'div' gave" in raised(lambda: x / x)
        assert "'div' gave" in raised(jax.jit(lambda x: x / x), x)


def test_values_that_do_not_reach_a_result_are_no_errors():
    @jax.jit
    def safe(x):
        return jnp.where(x > 0, jnp.log(x), 0.0)

    with jax.debug_nans(True):
        assert safe(jnp.array([-1.0, 1.0])).tolist() == [0.0, 0.0]


def test_the_value_that_reached_the_result_is_blamed():
    @jax.jit
    def f(x, y):
        masked = jnp.where(x > 0, jnp.log(x), 0.0)
        return masked + jnp.sqrt(y)

    with jax.debug_nans(True):
        assert "'sqrt' gave nan" in raised(f, jnp.array([-1.0, 1.0]), jnp.array([-1.0, 1.0]))


def test_integers_and_keys_pass():
    with jax.debug_nans(True), jax.debug_infs(True):
        key = jax.random.key(0)
        assert jax.random.normal(key, (3,)).shape == (3,)
        assert (jnp.arange(3) // 2).tolist() == [0, 0, 1]
        assert jnp.max(jnp.arange(3.0)) == 2 and jnp.min(jnp.arange(3.0)) == 0


def test_donated_arguments_are_deleted_all_the_same():
    f = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones(3)
    with jax.debug_nans(True):
        assert f(x).tolist() == [2, 2, 2]
        assert x.is_deleted()
        g = jax.jit(lambda x: jnp.log(x), donate_argnums=0)
        assert "'log' gave nan at index (1,)" in raised(g, jnp.array([1.0, -1.0]))


def test_callbacks_and_prints_do_not_hinder(capfd):
    @jax.jit
    def f(x):
        jax.debug.print("x = {}", x)
        y = jax.pure_callback(lambda x: np.sqrt(x), jax.ShapeDtypeStruct((), np.float32), x)
        return jnp.log(y - 2)

    with jax.debug_nans(True):
        assert "'log' gave nan, of the operand -1.0." in raised(f, 1.0)


BACKWARD = {
    "eager": lambda f: jax.grad(f),
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](1.0),
    "hessian": lambda f: jax.hessian(f),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(x[None]),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
}


@pytest.mark.parametrize("how", BACKWARD)
def test_the_backward_pass_names_the_primal_op(how):
    def f(x):
        root = jnp.sqrt(jnp.sum(x * x))
        return root * 2

    with jax.debug_nans(True):
        text = raised(BACKWARD[how](f), jnp.zeros(3))
    assert "for the derivative of 'sqrt'" in text or "for the derivative of 'mul'" in text, text
    assert "test_debug_nans.py" in text and "(f)" in text


def test_tangents():
    with jax.debug_nans(True):
        text = raised(lambda x: jax.jvp(jnp.sqrt, (x,), (0.0,)), 0.0)
    assert "for the derivative of 'sqrt'" in text


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("loop", ["scan", "fori", "while", "map"])
def test_the_iteration_is_named(jit, loop):
    def step(i, x):
        return jnp.sqrt(x) - jnp.where(i == 5, 10.0, 0.0)

    def f(x):
        if loop == "scan":
            return lax.scan(lambda x, i: (step(i, x), None), x, jnp.arange(8))[0]
        if loop == "fori":
            return lax.fori_loop(0, 8, step, x)
        if loop == "map":
            return lax.map(lambda i: jnp.log(6.0 - i), jnp.arange(8.0))
        return lax.while_loop(lambda s: s[0] < 8, lambda s: (s[0] + 1, step(*s)), (0, x))[1]

    with jax.debug_nans(True):
        text = raised(jax.jit(f) if jit else f, 2.0)
    op, number = ("log", 7) if loop == "map" else ("sqrt", 6)
    assert f"'{op}' gave nan" in text
    assert f"In iteration {number} (from 0) of 8 of '{'while' if loop == 'while' else 'scan'}'" in text


def test_gradient_of_a_loop_names_the_iteration_of_the_loop():
    def f(x):
        return lax.scan(lambda c, x: (c + jnp.sqrt(x), None), 0.0, x * x)[0]

    with jax.debug_nans(True):
        for grad in (jax.grad(f), jax.jit(jax.grad(f))):
            text = raised(grad, jnp.array([1.0, 2.0, 0.0, 3.0]))
            assert "derivative of" in text, text


def test_library_functions_with_masked_values_run():
    x = jnp.array([0.0, 1.0, 2.0])
    with jax.debug_nans(True):
        assert jnp.sinc(x)[0] == 1
        assert np.isfinite(jax.nn.logsumexp(x)) and np.isfinite(jax.nn.softmax(x)).all()
        assert jnp.nanmean(x) == 1
        assert jnp.linspace(0.0, 1.0, 3).tolist() == [0, 0.5, 1]
        assert jnp.std(x) > 0 and np.isfinite(jnp.logaddexp(x, x)).all()


def test_gradient_of_a_loop_without_a_bound_names_the_iteration():
    """The slope of sqrt at 0 is infinite, times the 0 that comes from above."""

    def loop(x):
        def step(state):
            i, total = state
            return i + 1, total + jnp.where(i == 2, 0.0 * jnp.sqrt(x * (i - 2)), x)

        return lax.while_loop(lambda state: state[0] < 5, step, (0, 0.0 * x))[1]

    for transform in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        with jax.debug_nans(True):
            text = raised(transform(loop), jnp.float32(2))
        assert "of 5 of 'sweeps'" in text and "sqrt" in text and "test_debug_nans.py" in text, text


def test_lanes_that_are_done_are_not_blamed():
    """What a loop over a batch computes for them is thrown away: no error, and none in its stead."""

    def f(x, n, bound):
        def body(c):
            quotient = c[1] * c[1] / c[1] - 1.0  # 0 / 0 after the last step of the first lane
            last = c[0] >= 1
            return c[0] + 1, jnp.where(last, jnp.sqrt(jnp.where(last, quotient - bound, 1.0)), quotient)

        return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    over = jax.vmap(f, in_axes=(0, 0, None))
    x, n = jnp.array([1.0, 2.5]), jnp.array([1, 2])
    total = lambda x, bound: over(x, n, bound).sum()  # noqa: E731
    with jax.debug_nans(True):
        for wrap in (lambda g: g, jax.jit):
            np.testing.assert_allclose(wrap(over)(x, n, 0.25), [0, 0.5], rtol=1e-6)
            np.testing.assert_allclose(wrap(jax.grad(total))(x, 0.25), [1, 1], rtol=1e-6)
            for g in (lambda x, b: over(x, n, b), jax.grad(total)):
                with pytest.raises(FloatingPointError, match=r"'sqrt' gave nan at index \(1,\)"):
                    wrap(g)(x, 0.75)
