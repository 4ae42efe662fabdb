"""A process that lives: forks, Python code that runs where nobody expects it, Ctrl-C in one kernel."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp


def start(script, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )


def finish(process, seconds):
    """What a process wrote; one that hangs is killed and fails."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return out, err, process.returncode


# Forks


def test_forks_while_other_threads_compile_and_run():
    script = """
        import os, signal, sys, threading, time
        import numpy as np
        import ferrax, ferrax.numpy as jnp

        signal.alarm(100)
        sys.setswitchinterval(1e-5)
        stop = threading.Event()
        big = jnp.ones(300_000)

        def compiles(seed):
            n = 0
            while not stop.is_set():
                n += 1
                ferrax.jit(lambda x: jnp.sin(x) * n + seed)(jnp.ones(n % 50 + 1))
                jnp.cos(np.zeros(n % 2000 + 1, np.float32))

        def runs():
            while not stop.is_set():
                (jnp.exp(big) + big).sum()
                jnp.sort(big)

        threads = [threading.Thread(target=compiles, args=(i,), daemon=True) for i in range(2)]
        threads += [threading.Thread(target=runs, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        results = []
        for n in range(25):
            time.sleep(0.01 * (n % 4))
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                x = jnp.ones(200_000 + n)
                f = ferrax.jit(lambda x: (jnp.sin(x) ** 2 + jnp.cos(x) ** 2).sum() / x.shape[0])
                good = abs(float(f(x)) - 1) < 1e-5
                good &= float(jnp.tanh(np.zeros(3000 + n, np.float32)).sum()) == 0
                good &= float((jnp.ones((90, 90)) @ jnp.ones((90, 90)))[0, 0]) == 90
                # A grandchild, too: the child's own pool is left behind.
                if n == 0:
                    grandchild = os.fork()
                    if grandchild == 0:
                        os._exit(0 if abs(float(f(x * 2)) - 1) < 1e-5 else 4)
                    good &= os.waitpid(grandchild, 0)[1] == 0
                os._exit(0 if good else 3)
            results.append(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        print(results, flush=True)
    """
    out, err, code = finish(start(script, FERRAX_NUM_THREADS="4"), 120)
    assert (code, out.strip()) == (0, str([0] * 25)), err


def test_pools_of_forked_processes():
    script = """
        import multiprocessing, signal
        import ferrax, ferrax.numpy as jnp

        signal.alarm(60)

        def work(n):
            x = jnp.arange(100_000.0 + n)
            return int(ferrax.jit(lambda x: (x >= 0).sum())(x))

        # The parent's threads and locks are in use before and between.
        assert work(5) == 100_005
        for _ in range(2):
            with multiprocessing.get_context("fork").Pool(3) as pool:
                assert pool.map(work, range(8)) == [100_000 + n for n in range(8)]
            assert work(7) == 100_007
        print("good", flush=True)
    """
    out, err, code = finish(start(script, FERRAX_NUM_THREADS="3"), 70)
    assert (code, out.strip()) == (0, "good"), err


# Python code in the middle


# What went wrong where Python ignores exceptions.
failures = []


@pytest.fixture(autouse=True)
def nothing_failed():
    failures.clear()
    yield
    assert not failures


def busy():
    """Uses what may be in use: the caches of ops, calls and programs, the trace stack."""
    try:
        with ferrax.ensure_compile_time_eval():
            assert float(jnp.sin(jnp.zeros(3)).sum() + 1) == 1
            assert float(ferrax.jit(lambda x: x + 1)(1.0)) == 2
            assert float(ferrax.grad(lambda x: x * x)(3.0)) == 6
    except BaseException as error:
        failures.append(error)
        raise


class Noisy:
    """Runs programs when it goes, and counts."""

    gone = 0

    def __del__(self):
        busy()
        Noisy.gone += 1


def test_destructors_that_run_programs():
    gc.collect()
    before = Noisy.gone
    # A static argument, kept by the cache of a jitted function.
    function = ferrax.jit(lambda x, noisy: x + 1, static_argnums=1)
    function(1.0, Noisy())
    ferrax.clear_caches()
    assert Noisy.gone == before + 1
    # What a rule closes over, kept by the programs that `grad` remembers.
    def rules(noisy):
        double = ferrax.custom_vjp(lambda x: 2 * x)
        double.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g if noisy else g,))
        return double

    for _ in range(3):
        assert float(ferrax.grad(rules(Noisy()))(1.0)) == 2
    gc.collect()
    ferrax.clear_caches()
    gc.collect()
    assert Noisy.gone == before + 4
    busy()


def test_programs_that_a_full_cache_forgets_may_have_destructors():
    gc.collect()
    before = Noisy.gone

    def remembered(n, noisy):
        policy = ferrax.checkpoint_policies.save_only_these_names(f"name {n}")

        def own(*args, **kwargs):
            assert noisy is not None
            return policy(*args, **kwargs)

        f = ferrax.checkpoint(lambda x: jnp.sin(x) * n, policy=own)
        return ferrax.grad(f)(1.0)

    remembered(0, Noisy())
    # More programs than are remembered.
    x = jnp.ones(2)
    for n in range(2200):
        ferrax.vmap(lambda x, n=n: x * float(n))(x)
    gc.collect()
    assert Noisy.gone == before + 1


class Reentrant:
    """A static argument whose hash and equality run programs and trace the function again."""

    depth = 0

    def __init__(self, number):
        self.number = number

    def call(self):
        if Reentrant.depth == 0:
            Reentrant.depth += 1
            busy()
            assert float(scaled(2.0, Reentrant(self.number + 100))) == 2 * (self.number + 100)
            Reentrant.depth -= 1

    def __hash__(self):
        self.call()
        return 7

    def __eq__(self, other):
        self.call()
        return self.number == other.number


scaled = ferrax.jit(lambda x, by: x * by.number, static_argnums=1)


def test_comparisons_of_static_arguments_that_call_the_function():
    for _ in range(2):
        for number in range(3):
            assert float(scaled(1.0, Reentrant(number))) == number


def test_registration_that_registers_while_it_fails():
    class Shown(type):
        def __repr__(cls):
            other = type("Other", (), {})
            ferrax.tree_util.register_pytree_node(other, lambda _: ((), None), lambda *_: other())
            busy()
            return "shown"

    class Node(metaclass=Shown):
        pass

    ferrax.tree_util.register_pytree_node(Node, lambda _: ((), None), lambda *_: Node())
    with pytest.raises(ValueError, match="shown"):
        ferrax.tree_util.register_pytree_node(Node, lambda _: ((), None), lambda *_: Node())


def test_weak_references_to_code_whose_callbacks_run_programs():
    called = []
    namespace = {"jnp": jnp}
    kept = []
    for n in range(4200):
        exec(compile(f"def f(x):\n    return x + {n}", f"file{n}", "exec"), namespace)
        code = namespace["f"].__code__

        def back(_):
            # The user's line of an op is looked up in what is being emptied.
            busy()
            called.append(1)

        if n % 50 == 0:
            kept.append(weakref.ref(code, back))
        ferrax.make_jaxpr(namespace["f"])(1.0)
        del code
    assert called


def test_errors_while_recording_may_run_programs():
    class Loud(Exception):
        pass

    def collects(phase, info):
        if phase == "start":
            busy()

    def fails(x):
        with pytest.raises((TypeError, ValueError)):
            jnp.reshape(x, (7, 7)) if x.ndim else None
        for _ in range(20):
            with pytest.raises(TypeError):
                ferrax.lax.add(x, jnp.ones((3, 3, 3)))
        return x

    threshold = gc.get_threshold()
    gc.callbacks.append(collects)
    gc.set_threshold(2, 1, 1)
    try:
        ferrax.jit(fails)(jnp.ones((2, 2)))
        ferrax.grad(lambda x: fails(x).sum())(jnp.ones((2, 2)))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collects)


def test_a_pending_interrupt_may_have_destructors():
    class Stop(Exception):
        def __del__(self):
            busy()

    def raises(x):
        raise Stop("stopped")

    for _ in range(3):
        with pytest.raises(Exception, match="stopped"):
            ferrax.jit(
                lambda x: ferrax.pure_callback(raises, ferrax.ShapeDtypeStruct((), np.float32), x)
            )(1.0)


# Threads that end


def test_forks_while_threads_end():
    """A thread lets go of thousands of objects when it ends, without the interpreter: a child of that moment goes on."""
    script = """
        import os, signal, threading
        import ferrax, ferrax.numpy as jnp
        from ferrax import lax

        signal.alarm(100)
        names = {}
        exec("\\n".join(f"def f{i}(x): return add(x, x)" for i in range(4000)), {"add": lax.add}, names)
        stop = threading.Event()

        def chain(x):
            for function in names.values():
                x = function(x)
            return x

        def threads():
            while not stop.is_set():
                thread = threading.Thread(target=lambda: ferrax.make_jaxpr(chain)(1.0))
                thread.start()
                thread.join()

        spawners = [threading.Thread(target=threads) for _ in range(3)]
        for spawner in spawners:
            spawner.start()
        failed = 0
        for _ in range(4):
            children = []
            for _ in range(12):
                children.append(os.fork())
                if children[-1] == 0:
                    signal.alarm(20)
                    (jnp.ones(3) + 1).sum()
                    os._exit(0)
            failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
        stop.set()
        for spawner in spawners:
            spawner.join()
        print(failed, "failed")
    """
    out, err, code = finish(start(script), 100)
    assert (code, out.strip()) == (0, "0 failed"), err


def test_what_an_ended_thread_kept_goes():
    class Kept:
        pass

    def work(seen):
        kept = Kept()
        seen.append(weakref.ref(kept))

        @ferrax.custom_jvp
        def double(x):
            return x * 2 if kept is not None else x

        double.defjvp(lambda primals, tangents: (double(*primals), tangents[0] * 2))
        ferrax.grad(double)(1.0)

    seen = []
    for _ in range(3):
        thread = threading.Thread(target=work, args=(seen,))
        thread.start()
        thread.join()
    for _ in range(100):
        # Another thread's first operations.
        thread = threading.Thread(target=lambda: ferrax.make_jaxpr(lambda x: x + 1)(1.0))
        thread.start()
        thread.join()
        gc.collect()
        if all(reference() is None for reference in seen):
            break
        time.sleep(0.01)
    assert [reference() for reference in seen] == [None] * 3


# Ctrl-C


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(
    ("kernel", "threads"),
    [
        # Each would take hours: whoever waits for its end fails.
        ("jnp.sum(jnp.sin(x[:, None] * x[None, :]) ** 2)", "1"),
        ("jnp.sum(jnp.sin(x[:, None] * x[None, :]) ** 2)", "2"),
        ("jnp.sin(x[:, None] * x[None, :]).max(axis=1)", "2"),
    ],
    ids=["whole-1", "whole-2", "rows-2"],
)
def test_interrupt_within_one_kernel(kernel, threads):
    script = f"""
        import signal, sys
        import ferrax, ferrax.numpy as jnp

        signal.signal(signal.SIGINT, signal.default_int_handler)
        x = jnp.linspace(0.0, 1.0, 1 << 22)
        f = ferrax.jit(lambda x: {kernel})
        compiled = f.lower(x).compile()
        print("ready", flush=True)
        try:
            compiled(x)
        except KeyboardInterrupt:
            print("interrupted", float(jnp.sin(x).sum() * 0 + 2), flush=True)
            sys.exit(7)
    """
    process = start(script, FERRAX_NUM_THREADS=threads)
    assert process.stdout.readline().strip() == "ready", process.stderr.read()
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    out, err, code = finish(process, 60)
    assert (code, out.strip()) == (7, "interrupted 2.0"), err
