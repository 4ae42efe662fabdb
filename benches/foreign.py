"""Foreign functions (`ffi`): what a call costs of a handler that does next to nothing, built with a C compiler."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
from timing import compiled, timed

TITLE = "Foreign functions"
SMALL, LARGE = 8, 1_000_000
SOURCE = """
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static ffi::Error Twice(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  const float *from = x.typed_data();
  float *to = y->typed_data();
  for (size_t i = 0; i < x.element_count(); ++i) to[i] = 2 * from[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    twice, Twice, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


@functools.cache
def _built(include) -> pathlib.Path:
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "twice.cc").write_text(SOURCE)
    path = folder / "twice.so"
    options = ["-std=c++17", "-O2", "-w", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run(["g++", *options, str(folder / "twice.cc"), "-o", str(path)], check=True)
    return path


@functools.cache
def _registered(name, package) -> None:
    """Each library loads a copy of its own, and is started before: it asks the handler for its version."""
    ffi = package.ffi
    path = _built(ffi.include_dir()).with_name(f"twice_{name}.so")
    shutil.copy(_built(ffi.include_dir()), path)
    package.devices()
    ffi.register_ffi_target("twice", ffi.pycapsule(ctypes.cdll.LoadLibrary(str(path)).twice), platform="cpu")


def _twice(library, x):
    _registered(library.name, library.jax)
    call = library.jax.ffi.ffi_call("twice", library.jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(x)


def _chain(library, x):
    for _ in range(10):
        x = _twice(library, x) * 0.5
    return x


def _eager(library):
    x = library.jax.device_put(np.ones(SMALL, np.float32))
    return lambda: library.jax.block_until_ready(_twice(library, x))


ROWS = [
    timed("jitted call of a handler, 8 floats", "µs", None, compiled(np.ones(SMALL, np.float32), _twice)),
    timed("the same eagerly", "µs", None, _eager),
    timed("10 such calls with products between, 8 floats", "µs", None, compiled(np.ones(SMALL, np.float32), _chain)),
    timed("jitted call of a handler, 1M floats", "µs", None, compiled(np.ones(LARGE, np.float32), _twice)),
]
