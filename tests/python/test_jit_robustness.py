"""`jit` after errors, in threads, under Ctrl-C, without memory."""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp

# Errors leave a clean state


def test_errors_inside_leave_the_trace_stack_clean():
    from ferrax._src import core

    def fails(x):
        _ = x + 1
        raise ZeroDivisionError("user error")

    for call in (
        lambda: ferrax.jit(fails)(1.0),
        lambda: ferrax.grad(fails)(1.0),
        lambda: ferrax.vmap(fails)(jnp.ones(2)),
        lambda: ferrax.jit(ferrax.grad(ferrax.jit(fails)))(1.0),
        lambda: ferrax.jvp(ferrax.vmap(fails), (jnp.ones(2),), (jnp.ones(2),)),
        lambda: ferrax.make_jaxpr(fails)(1.0),
        lambda: ferrax.linear_transpose(fails, 1.0),
        lambda: ferrax.eval_shape(fails, 1.0),
    ):
        with pytest.raises(ZeroDivisionError, match="user error"):
            call()
        assert core.trace_state_clean()
        assert float(jnp.sin(0.0) + 1) == 1.0


def test_errors_caught_inside_a_trace():
    def inner(x):
        raise ValueError("inner")

    def outer(x):
        try:
            ferrax.jit(inner)(x)
        except ValueError:
            x = x * 2
        try:
            ferrax.grad(lambda y: y[5, 5])(x)
        except Exception:
            x = x + 1
        return x

    assert float(ferrax.jit(outer)(3.0)) == 7.0
    assert float(ferrax.grad(outer)(3.0)) == 2.0


def test_a_failed_trace_is_not_cached():
    state = {"fail": True}

    def fun(x):
        if state["fail"]:
            raise RuntimeError("not yet")
        return x + 1

    f = ferrax.jit(fun)
    with pytest.raises(RuntimeError, match="not yet"):
        f(1.0)
    state["fail"] = False
    assert float(f(1.0)) == 2.0


def test_reentrant_calls_of_the_same_jit():
    @functools.partial(ferrax.jit, static_argnums=1)
    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    assert float(power(2.0, 5)) == 64.0
    assert float(ferrax.grad(power)(2.0, 2)) == 12.0


@same
def test_recursion_without_end(S):
    @S.jax.jit
    def f(x):
        return f(x)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        f(1.0)
    except RecursionError:
        return "RecursionError"
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.raises("TracerArrayConversionError", "UnexpectedTracerError")
@same
@pytest.mark.parametrize("how", ["use", "jit", "numpy"])
def test_escaped_tracers(S, how):
    held = []
    S.jax.jit(lambda x: held.append(x * 2) or x)(1.0)
    tracer = held[0]
    if how == "use":
        return tracer + 1
    if how == "jit":
        return S.jax.jit(lambda y: y + tracer)(1.0)
    return np.asarray(tracer)


def test_two_threads_trace_at_once():
    results, errors = {}, []
    barrier = threading.Barrier(4)

    def make(k):
        def fun(x):
            for i in range(30):
                x = jnp.sin(x) * k + i
                time.sleep(0)
            return x.sum()

        return fun

    shared = ferrax.jit(make(2.0))

    def work(k):
        try:
            barrier.wait()
            own = ferrax.jit(ferrax.value_and_grad(make(float(k))))
            for _ in range(3):
                results[k] = [np.asarray(v) for v in own(jnp.ones(4))] + [np.asarray(shared(jnp.ones(4)))]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for k in range(4):
        value, gradient = ferrax.value_and_grad(make(float(k)))(jnp.ones(4))
        np.testing.assert_allclose(results[k][0], value, rtol=1e-5)
        np.testing.assert_allclose(results[k][1], gradient, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(results[k][2], shared(jnp.ones(4)), rtol=1e-5)


def test_contexts_are_per_thread():
    seen = {}

    def work():
        seen["other"] = jnp.ones(2).dtype.name

    with ferrax.enable_x64(True):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        seen["own"] = jnp.ones(2).dtype.name
    assert seen == {"other": "float32", "own": "float64"}


def test_interrupt_during_a_long_run(tmp_path):
    script = textwrap.dedent(
        """
        import signal, sys
        import ferrax, ferrax.numpy as jnp
        # Jobs in the background of a shell start with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        @ferrax.jit
        def f(x):
            for _ in range(400):
                x = jnp.sin(x @ x)
            return x
        x = jnp.ones((16, 16))
        f(x)
        big = jnp.ones((700, 700))
        print("ready", flush=True)
        try:
            while True:
                f(big)
        except KeyboardInterrupt:
            print("interrupted", float(jnp.add(1.0, 1.0)), flush=True)
            sys.exit(7)
        """
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=25)
    finally:
        process.kill()
    assert process.returncode == 7, err
    assert out.strip() == "interrupted 2.0"


def test_huge_allocation_is_a_memory_error():
    with pytest.raises(MemoryError):
        jnp.ones((1 << 20, 1 << 20))
    with pytest.raises(MemoryError):
        ferrax.jit(lambda x: jnp.broadcast_to(x, (1 << 22, 1 << 22)) + 1)(1.0)
    assert float(jnp.ones(3).sum()) == 3.0


@same
def test_clear_caches(S):
    count = []

    def fun(x):
        count.append(1)
        return x

    f = S.jax.jit(fun)
    f(1.0)
    f.clear_cache()
    f(1.0)
    S.jax.clear_caches()
    f(1.0)
    return len(count)


@same
def test_x64_values(S):
    with S.jax.enable_x64(True):
        f = S.jax.jit(lambda x: (x + 1, S.jnp.arange(3), S.jnp.ones(2) / 3))
        return f(1), f(np.arange(2)), S.jax.grad(lambda x: x**3)(2.0)


@same
def test_make_jaxpr_of_statics(S):
    jaxpr = S.jax.make_jaxpr(lambda x, n: x * n, static_argnums=1)(1.0, 3)
    return [e.primitive.name for e in jaxpr.eqns], len(jaxpr.jaxpr.invars)


@same
def test_pickle_and_copy_of_arrays(S):
    import copy
    import pickle

    x = S.jnp.arange(3.0)
    return pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)
