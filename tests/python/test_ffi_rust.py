"""Handlers in Rust, by the macro of `ferrax-ffi`, called by ferrax and by JAX."""

import ctypes
import functools
import gc
import pathlib
import shutil
import subprocess
import tempfile

import jax
import jax.ffi
import numpy as np
import pytest
from ffi_libraries import register_state, side_ffi
from oracle import FERRAX, SIDES, same

import ferrax

HANDLERS = ("rust_norm", "rust_squares", "rust_in_place", "rust_dtypes", "rust_attributes", "rust_panics")
CRATE = pathlib.Path(__file__).with_name("ffi_rust")


def cargo_build(crate, name):
    """The library of a crate. It is built offline: there is nothing to fetch."""
    target = pathlib.Path(tempfile.mkdtemp())
    command = ["cargo", "build", "-q", "--offline", "--target-dir", str(target), "--manifest-path", str(crate)]
    subprocess.run(command, check=True)
    return target / "debug" / f"lib{name}.so"


@functools.cache
def built():
    folder = pathlib.Path(tempfile.mkdtemp())
    # A copy, so that no lock file is left beside the sources.
    shutil.copytree(CRATE, folder / "crate")
    manifest = folder / "crate" / "Cargo.toml"
    root = CRATE.parent.parent.parent / "rust" / "ferrax-ffi"
    manifest.write_text(manifest.read_text().replace("../../../rust/ferrax-ffi", root.as_posix()))
    return cargo_build(manifest, "ffi_rust")


@functools.cache
def registered(name):
    """The library, loaded for a side, its handlers registered there."""
    jax.devices()
    path = built().with_name(f"{name}.so")
    shutil.copy(built(), path)
    library, ffi = ctypes.cdll.LoadLibrary(str(path)), side_ffi(name)
    for handler in HANDLERS:
        ffi.register_ffi_target(handler, ffi.pycapsule(getattr(library, handler)), platform="cpu")
    register_state(ffi, "rust_counter", library, "rust_counter_id", "rust_counter_info")
    ffi.register_ffi_target(
        "rust_count",
        {"instantiate": ffi.pycapsule(library.rust_make_counter), "execute": ffi.pycapsule(library.rust_count)},
        platform="cpu",
    )
    return library


def call(s, name, *results, **options):
    registered(s.name)
    structs = [s.jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    return s.jax.ffi.ffi_call(name, structs if len(structs) > 1 else structs[0], **options)


def rows(s, *shape):
    return s.jnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


F32 = np.float32
CALLS = {
    "rows": lambda s: call(s, "rust_norm", ((3, 4), F32), ((3,), F32))(rows(s, 3, 4), eps=F32(1e-5)),
    "no rows": lambda s: call(s, "rust_norm", ((0, 4), F32), ((0,), F32))(rows(s, 0, 4), eps=F32(1e-5)),
    "in a loop": lambda s: s.lax.fori_loop(
        0, 3, lambda i, x: call(s, "rust_norm", ((3, 4), F32), ((3,), F32))(x + i, eps=F32(1e-5))[0], rows(s, 3, 4)
    ),
    "vmap": lambda s: s.jax.vmap(
        lambda x: call(s, "rust_norm", ((4,), F32), ((), F32), vmap_method="broadcast_all")(x, eps=F32(1e-5))
    )(rows(s, 3, 4)),
    "threads": lambda s: call(s, "rust_squares", ((100,), F32))(rows(s, 100)),
    "in place": lambda s: s.jax.jit(call(s, "rust_in_place", ((3,), F32), input_output_aliases={0: 0}))(rows(s, 3)),
    "dtypes": lambda s: call(s, "rust_dtypes", ((2,), np.complex64), ((2,), F32))(
        s.jnp.array([1 + 2j, -3j], np.complex64), s.jnp.array([1.5, -2], s.jnp.bfloat16)
    ),
    "attributes": lambda s: call(s, "rust_attributes", ((1,), F32))(
        array=np.arange(4, dtype=np.int32), text="höher", flag=True, whole=-3, inner={"scale": 0.5}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@same
def test_calls(s, name):
    return CALLS[name](s)


ERRORS = {
    "no attribute": (
        lambda s: call(s, "rust_norm", ((3, 4), F32), ((3,), F32))(rows(s, 3, 4)),
        r"NOT_FOUND: there is no attribute `eps`, only \[\]",
    ),
    "another attribute": (
        lambda s: call(s, "rust_norm", ((3, 4), F32), ((3,), F32))(rows(s, 3, 4), eps=1e-5),
        "INVALID_ARGUMENT: the attribute `eps`: wanted float32, got a float64",
    ),
    "dtype": (
        lambda s: call(s, "rust_squares", ((3,), F32))(s.jnp.arange(3)),
        "INVALID_ARGUMENT: the operand 0 has to be float32, got int32",
    ),
    "the handler's own": (
        lambda s: call(s, "rust_norm", ((3, 4), F32), ((2,), F32))(rows(s, 3, 4), eps=F32(1)), "2 scales of 3 rows",
    ),
    "panic": (lambda s: call(s, "rust_panics", ((), F32))(), "INTERNAL: the handler panicked: as asked"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
@SIDES
def test_errors(S, name):
    run, message = ERRORS[name]
    with pytest.raises(S.jax.errors.JaxRuntimeError, match=message):
        S.jax.block_until_ready(run(S))


@SIDES
def test_a_state_for_each_compiled_function(S):
    library = registered(S.name)
    library.rust_counters_alive.restype = ctypes.c_size_t
    gc.collect()
    before = library.rust_counters_alive()
    count = call(S, "rust_count", ((1,), np.int32))
    first, second = S.jax.jit(lambda: count()), S.jax.jit(lambda: count() + 0)
    assert [int(first()[0]) for _ in range(3)] == [1, 2, 3]
    assert int(second()[0]) == 1
    assert library.rust_counters_alive() == before + 2
    if S is FERRAX:
        del first, second
        ferrax.clear_caches()
        gc.collect()
        assert library.rust_counters_alive() <= before
