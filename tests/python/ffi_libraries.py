"""Libraries of handlers that tests build, and their registration on a side.

In: sources beside this file, the headers of JAX. `FERRAX_FFI_INCLUDE` names a folder with those of another JAX: ferrax's
handlers are built against them then, JAX's own as before. Out: libraries that `ctypes` has loaded, one for each side, each
with its own ids of types.
"""

import ctypes
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import jax
import jax.ffi

import ferrax

HERE = pathlib.Path(__file__).parent
HANDLERS = (
    "rms", "types", "sum_attributes", "in_place", "squares", "later", "touch", "fail", "lies", "norm_forward",
    "norm_backward", "array_sum", "option", "run_ids",
)  # fmt: skip


def side_ffi(name):
    return (ferrax if name == "ferrax" else jax).ffi


def include(name):
    return (os.environ.get("FERRAX_FFI_INCLUDE") if name == "ferrax" else None) or ferrax.ffi.include_dir()


@functools.cache
def folder():
    return pathlib.Path(tempfile.mkdtemp())


@functools.cache
def compiled(source, headers, *options):
    """The path of a library, built once of a source beside this file. `FERRAX_FFI_CXXFLAGS` are options more."""
    path = folder() / f"{len(list(folder().iterdir()))}_{source}.so"
    more = os.environ.get("FERRAX_FFI_CXXFLAGS", "").split()
    compiler = ["g++", "-std=c++17", "-w"] if source.endswith(".cc") else ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror"]
    command = [*compiler, "-O1", "-shared", "-fPIC", "-pthread", f"-I{headers}", *options, *more]
    subprocess.run([*command, str(HERE / source), "-o", str(path)], check=True)
    return path


@functools.cache
def loaded(source, name, headers):
    """A copy of a library for a side: loaded twice, a file is one library."""
    path = folder() / f"{name}_{source}.so"
    shutil.copy(compiled(source, headers), path)
    return ctypes.cdll.LoadLibrary(str(path))


def pointer(ffi, function):
    """A capsule of the address that a function gives."""
    function.restype = ctypes.c_void_p
    return ffi.pycapsule(ctypes.c_void_p(function()))


def register_state(ffi, name, library, id_name, info_name):
    registration = {
        "type_id": pointer(ffi, getattr(library, id_name)), "type_info": pointer(ffi, getattr(library, info_name)),
    }  # fmt: skip
    ffi.register_ffi_type(name, registration, platform="cpu")


@functools.cache
def registered(name):
    """The handlers of `ffi_handlers.cc`, loaded for one of the sides and registered there."""
    ffi = side_ffi(name)
    # What is registered before JAX has started may keep it from starting.
    jax.devices()
    library = loaded("ffi_handlers.cc", name, include(name))
    for handler in HANDLERS:
        ffi.register_ffi_target(handler, ffi.pycapsule(getattr(library, handler)), platform="cpu")
    register_state(ffi, "counter", library, "counter_id", "counter_info")
    ffi.register_ffi_target(
        "count",
        {"instantiate": ffi.pycapsule(library.make_counter), "execute": ffi.pycapsule(library.count)},
        platform="cpu",
    )
    if name == "jax":  # whose processors call no handlers of other stages
        return library
    register_state(ffi, "prepared", library, "prepared_id", "prepared_info")
    ffi.register_ffi_target(
        "staged",
        {
            "prepare": ffi.pycapsule(library.staged_prepare), "initialize": ffi.pycapsule(library.staged_initialize),
            "execute": ffi.pycapsule(library.staged),
        },
        platform="cpu",
    )  # fmt: skip
    return library
