"""The cache of compiled programs on disk: what is found again, what is not believed, what is not kept."""

import os
import resource
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax._src.core import program_cache
from ferrax.experimental.compilation_cache import compilation_cache

X = np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def folder(tmp_path):
    """A cache of the test's own that keeps all programs."""
    names = [*program_cache._FLAGS, "jax_raise_persistent_cache_errors"]
    before = {name: ferrax.config.read(name) for name in names}
    path = tmp_path / "cache"
    ferrax.config.update("jax_compilation_cache_dir", str(path))
    ferrax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    yield path
    for name, value in before.items():
        ferrax.config.update(name, value)
    compilation_cache.reset_cache()


def chain(factor=2.0, length=8):
    """A program whose text is its own."""

    def function(x):
        for step in range(length):
            x = jnp.sin(x * (factor + step))
        return x.sum(0), x @ x.T

    return function


def run(function, *arguments):
    """What a new jitted function gives, and what that changed of hits, misses, written files and problems."""
    before = ferrax.cache.stats()[:4]
    results = ferrax.jit(lambda *args: function(*args))(*arguments)
    after = ferrax.cache.stats()[:4]
    return [np.asarray(r) for r in ferrax.tree.leaves(results)], tuple(a - b for a, b in zip(after, before))


def same(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_equal_programs_are_found(folder):
    first, counts = run(chain(), X)
    assert counts == (0, 1, 1, 0)
    again, counts = run(chain(), X)
    assert counts == (1, 0, 0, 0) and same(first, again)
    assert run(chain(3.0), X)[1] == (0, 1, 1, 0)
    assert run(chain(), X[:2])[1] == (0, 1, 1, 0)
    found = ferrax.cache.stats()
    assert (found.entries, found.dir) == (3, str(folder))
    assert found.bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert ferrax.cache.clear() == 3
    assert ferrax.cache.stats().entries == 0
    assert run(chain(), X)[1] == (0, 1, 1, 0)


def test_gradients_loops_and_random_numbers(folder):
    def step(x):
        def loss(x):
            y = ferrax.lax.scan(lambda c, row: (jnp.tanh(c + row), c.sum()), x[0], x)[1]
            return ferrax.lax.cond(y.sum() > 0, jnp.sin, jnp.cos, y).sum() + ferrax.nn.logsumexp(x)

        noise = ferrax.random.normal(ferrax.random.key(3), x.shape)
        return ferrax.value_and_grad(loss)(x + noise), ferrax.lax.while_loop(lambda c: c[0] < 5, lambda c: c * 2, x[1] + 1)

    first, counts = run(step, X)
    assert counts[1:] == (1, 1, 0)
    again, counts = run(step, X)
    assert counts == (1, 0, 0, 0) and same(first, again)


PROCESS = """
import sys
import numpy as np
import ferrax, ferrax.numpy as jnp
def f(x):
    for step in range(12):
        x = jnp.sin(x * (1.5 + step))
    return x.sum(0), x @ x.T
got = ferrax.jit(f)(np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6))
s = ferrax.cache.stats()
print(s.hits, s.misses, s.written, s.problems, *(np.asarray(g).tobytes().hex() for g in got))
"""


def environment(folder, **more):
    return {
        **os.environ,
        "FERRAX_COMPILATION_CACHE_DIR": str(folder),
        "FERRAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **more,
    }


def process(folder, code=PROCESS, **more):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    return subprocess.Popen(
        command, env=environment(folder, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def printed(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.split()


def test_a_second_process_finds_what_the_first_wrote(tmp_path):
    first, second = printed(process(tmp_path / "c")), printed(process(tmp_path / "c"))
    assert first[:4] == ["0", "1", "1", "0"]
    assert second[:4] == ["1", "0", "0", "0"]
    assert first[4:] == second[4:]


def test_processes_at_once_share_a_folder(tmp_path):
    folder = tmp_path / "c"
    # Twenty programs, of which there is room for a few: files come and go under the others.
    code = """
    import numpy as np
    import ferrax, ferrax.numpy as jnp
    x = np.ones((4, 6), np.float32)
    for n in range(60):
        def f(x):
            for step in range(12):
                x = jnp.sin(x) * 0.5 + n % 20 / 16
            return x.sum()
        want = x
        for step in range(12):
            want = np.sin(want) * 0.5 + n % 20 / 16
        assert abs(float(ferrax.jit(f)(x)) - want.sum()) < 1e-3
    s = ferrax.cache.stats()
    assert s.hits + s.misses == 60, s
    print(s.hits, s.misses, s.written, s.problems)
    """
    many = [process(folder, code, FERRAX_COMPILATION_CACHE_MAX_SIZE="9000") for _ in range(4)]
    results = [printed(one) for one in many]
    assert all(problems == "0" for _, _, _, problems in results), results
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 20_000
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("damage", ["cut off", "a bit", "empty", "other", "text"])
def test_damaged_files_are_removed_and_made_again(folder, damage):
    first, _ = run(chain(), X)
    (path,) = folder.iterdir()
    good = path.read_bytes()
    other = bytearray(good)
    other[len(good) // 2] ^= 4
    if damage == "other":
        run(chain(5.0), X)
        other = next(p for p in folder.iterdir() if p != path).read_bytes()
    bad = {"cut off": good[:-9], "a bit": bytes(other), "empty": b"", "other": bytes(other), "text": b"import os"}
    path.write_bytes(bad[damage])
    with pytest.warns(UserWarning, match="cannot use .*jax_compilation_cache_dir"):
        again, counts = run(chain(), X)
    assert counts == (0, 1, 1, 1) and same(first, again)
    assert path.read_bytes() == good
    assert run(chain(), X)[1] == (1, 0, 0, 0)


def test_problems_warn_once_and_are_errors_if_wanted(folder):
    folder.parent.joinpath("cache").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="the cache of compiled programs"):
        assert run(chain(), X)[1] == (0, 1, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(chain(3.0), X)[1] == (0, 1, 0, 1)
        ferrax.config.update("jax_raise_persistent_cache_errors", True)
        f = ferrax.jit(chain(4.0))
        with pytest.raises(ferrax.errors.JaxRuntimeError, match="cannot write"):
            f(X)
        ferrax.config.update("jax_raise_persistent_cache_errors", False)
        f(X)


def test_where_nothing_can_be_written_the_cache_is_read(folder):
    run(chain(), X)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a full disk, and for the superuser too: no file may grow.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        assert run(chain(), X)[1] == (1, 0, 0, 0)
        with pytest.warns(UserWarning, match="cannot write"):
            assert run(chain(3.0), X)[1] == (0, 1, 0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ferrax.cache.stats().entries == 1


def test_what_is_used_stays_and_the_rest_goes(folder):
    for n in range(6):
        assert run(chain(n + 0.5), X)[1] == (0, 1, 1, 0)
    (path, *_) = files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    # Used again, as the newest.
    assert run(chain(0.5), X)[1] == (1, 0, 0, 0)
    size = sum(path.stat().st_size for path in files)
    ferrax.config.update("jax_compilation_cache_max_size", size)
    assert run(chain(9.5), X)[1] == (0, 1, 1, 0)
    assert ferrax.cache.stats().bytes <= size
    assert path.exists() and not files[1].exists()
    assert run(chain(9.5), X)[1] == (1, 0, 0, 0)


def test_settings_have_effects(folder):
    for name, value, counts in (
        ("jax_persistent_cache_min_compile_time_secs", 100.0, (0, 0, 0, 0)),
        ("jax_persistent_cache_min_entry_size_bytes", 1 << 20, (0, 1, 0, 0)),
        ("jax_compilation_cache_max_size", 100, (0, 1, 0, 0)),
        ("jax_compilation_cache_max_size", 0, (0, 0, 0, 0)),
        ("jax_enable_compilation_cache", False, (0, 0, 0, 0)),
        ("jax_compilation_cache_dir", None, (0, 0, 0, 0)),
    ):
        before = ferrax.config.read(name)
        ferrax.config.update(name, value)
        assert run(chain(), X)[1] == counts, name
        ferrax.config.update(name, before)
    assert not folder.exists()
    with ferrax._src.base.config.enable_compilation_cache(False):
        assert run(chain(), X)[1] == (0, 0, 0, 0)
        assert ferrax.cache.stats().dir is None
    assert run(chain(), X)[1] == (0, 1, 1, 0)
    elsewhere = str(folder) + "-2"
    compilation_cache.set_cache_dir(elsewhere)
    assert ferrax.config.jax_compilation_cache_dir == elsewhere
    assert run(chain(), X)[1] == (0, 1, 1, 0)


def test_programs_with_parts_of_this_process_are_not_kept(folder):
    def with_callback(x):
        return ferrax.pure_callback(np.sin, ferrax.ShapeDtypeStruct((6,), x.dtype), chain()(x)[0])

    def printing(x):
        ferrax.debug.print("{}", x[0, 0])
        return chain()(x)

    large = np.arange(1 << 19, dtype=np.float32)

    def with_constant(x):
        return ferrax.lax.cond(x[0, 0] > 9, lambda: jnp.asarray(large), lambda: large * 2.0).sum() + chain()(x)[0]

    ref = ferrax.new_ref(jnp.zeros(()))

    def with_ref(x):
        ref[...] = ref[...] + x.sum()
        return chain()(x)

    for program in (with_callback, printing):
        assert run(program, X)[1][2] == 0, program.__name__
    # Its value is an input and an output of a program without refs.
    before = float(ref[...])
    run(with_ref, X)
    run(with_ref, X)
    assert float(ref[...]) - before == pytest.approx(2 * X.sum(), rel=1e-5)
    run(with_constant, X)
    assert all(path.stat().st_size < 1 << 20 for path in folder.iterdir())


def test_generators_of_this_process_are_not_kept(folder):
    from ferrax.extend.random import define_prng_impl

    def bits(key, width, shape):
        return jnp.full(shape, key[0] * 7, jnp.uint32)

    mine = define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jnp.stack([seed.astype(jnp.uint32)] * 2),
        split=lambda key, shape: jnp.broadcast_to(key + 1, (*shape, 2)),
        random_bits=bits,
        fold_in=lambda key, data: key + data.astype(jnp.uint32),
        name="mine",
        tag="my",
    )

    def program(x):
        keys = ferrax.random.split(ferrax.random.key(3, impl=mine), 2)
        return ferrax.lax.cond(x[0, 0] > 0, lambda k: k, lambda k: k[::-1], keys)

    assert run_keys(program)[2] == 0


def run_keys(program):
    before = ferrax.cache.stats()[:4]
    ferrax.jit(program)(X)
    return tuple(a - b for a, b in zip(ferrax.cache.stats()[:4], before))


def test_debugging_works_on_programs_from_files(folder):
    def bad(x):
        return jnp.log(chain()(x)[0] - 100.0)

    for _ in range(2):
        with ferrax.debug_nans(True), pytest.raises(FloatingPointError, match="(?s)log.*test_program_cache.py"):
            ferrax.jit(lambda x: bad(x))(X)


def test_default_folder(tmp_path):
    code = "import ferrax; print(ferrax.config.jax_compilation_cache_dir, ferrax.cache.stats().dir)"
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("FERRAX_", "JAX_", "XDG_"))}

    def default(**more):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**variables, **more}, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert default(XDG_CACHE_HOME="/x/y") == ["/x/y/ferrax"] * 2
    assert default(HOME=str(tmp_path)) == [f"{tmp_path}/.cache/ferrax"] * 2
    assert default(JAX_COMPILATION_CACHE_DIR="/z") == ["/z"] * 2
    assert default(FERRAX_ENABLE_COMPILATION_CACHE="0", HOME=str(tmp_path))[1] == "None"


def test_events_and_logs(folder, caplog):
    seen = []
    ferrax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
    ferrax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: seen.append(event))
    try:
        with ferrax._src.base.config.explain_cache_misses(True), ferrax.log_compiles():
            told = []
            for _ in range(2):
                run(chain(5.0), X)
                told.append([event.rpartition("/")[2] for event in seen if "compilation_cache" in event])
                seen.clear()
            assert told[0] == ["tasks_using_cache", "compile_requests_use_cache", "cache_misses"]
            assert told[1] == ["compile_requests_use_cache", "cache_hits", "cache_retrieval_time_sec"]
            texts = [record.getMessage() for record in caplog.records]
            assert sum("has no equal program" in text for text in texts) == 1
            assert sum(text.endswith(", from the cache on disk.") for text in texts) == 1
        ferrax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()
        run(chain(6.0), X)
        run(chain(7.0), X)
        assert [event for event in seen if "cache" in event] == ["/jax/compilation_cache/task_disabled_cache"]
    finally:
        ferrax.monitoring.clear_event_listeners()
