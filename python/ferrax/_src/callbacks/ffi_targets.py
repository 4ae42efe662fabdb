"""Handlers of other languages by name: `register_ffi_target`, `register_ffi_type`, `include_dir`.

A handler is a C function of XLA's foreign function interface, in a library that is loaded by `ctypes` or
by an extension module. What is registered stays for the life of the process.
"""

from __future__ import annotations

import ctypes
import pathlib
import sys
from typing import Any

from ferrax import _core
from ferrax._src.base import errors

# Handlers for other machines are kept, so that programs that register them for all run.
_elsewhere: dict[tuple[str, str], Any] = {}
_STAGES = ("instantiate", "prepare", "initialize", "execute")
# Capsules and functions whose addresses are in use.
_kept: list[Any] = []

# Prototypes of our own: those of `ctypes.pythonapi` are everybody's.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def pycapsule(funcptr: Any) -> Any:
    """A capsule of a function of a library that `ctypes` has loaded.

    Args: funcptr: the function, such as `library.my_handler`.

    >>> import ctypes
    >>> type(ferrax.ffi.pycapsule(ctypes.pythonapi.Py_IsInitialized)).__name__
    'PyCapsule'
    """
    return _new_capsule(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


def _address(what: str, capsule: Any) -> int:
    """The address in a capsule. Errors: JaxRuntimeError for what is none."""
    if type(capsule).__name__ != "PyCapsule":
        raise errors.JaxRuntimeError(
            f"INVALID_ARGUMENT: {what} is given by a capsule, got {capsule!r}. Make one of a function that ctypes has "
            "loaded: jax.ffi.pycapsule(library.function)"
        )
    _kept.append(capsule)
    return _get_pointer(capsule, _get_name(capsule))


def register_ffi_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any
) -> None:
    """Registers a handler, or handlers by stages, under a name that `ffi_call` calls.

    Args:
      name: the name.
      fn: a capsule of a handler; or a dict of capsules for the stages "instantiate" (once for a compiled
        function), "prepare", "initialize" and "execute", of which the last must be there.
      platform: of the machines that it is for: on others than "cpu" it is kept and not called.
      api_version: 1, the interface with typed call frames.
      kwargs: there are no others.

    Errors: JaxRuntimeError for what is no capsule, without a handler that executes, for another handler
    under a known name, and for a library built for a version of the interface that is not known (known are
    0.1 to 0.5); NotImplementedError for `api_version=0`, functions without call frames.

    >>> import ctypes
    >>> library = ctypes.cdll.LoadLibrary("libhandlers.so")  # doctest: +SKIP
    >>> ferrax.ffi.register_ffi_target("my_norm", ferrax.ffi.pycapsule(library.my_norm))  # doctest: +SKIP
    """
    if kwargs:
        raise TypeError(f"register_ffi_target: there are no arguments {', '.join(map(repr, kwargs))}")
    if platform.lower() not in ("cpu", "host"):
        _elsewhere[name, platform] = fn
        return
    if api_version != 1:
        raise NotImplementedError(
            f"register_ffi_target: handlers take call frames (api_version=1), got api_version={api_version}. Build the "
            "library with the handler macros of xla/ffi/api/ffi.h"
        )
    stages = fn if isinstance(fn, dict) else {"execute": fn}
    unknown = set(stages) - set(_STAGES)
    if unknown:
        raise errors.JaxRuntimeError(
            f"INVALID_ARGUMENT: stages of a handler are {', '.join(_STAGES)}, got {', '.join(map(repr, unknown))}"
        )
    addresses = [
        _address(f"the handler {name}", stages[stage]) if stages.get(stage) is not None else 0
        for stage in _STAGES
    ]
    _core.ffi_register(name, "cpu", addresses)


def register_ffi_type(name: str, type_registration: Any, platform: str = "cpu") -> None:
    """Registers a type of states that handlers make and keep.

    Args:
      name: the type's name.
      type_registration: a dict of capsules: "type_id", of its id, which is given here, and "type_info", of
        what says how a state is deleted.
      platform: of the machines that it is for.

    Errors: JaxRuntimeError for what are no capsules, and for another id than the name has; ValueError without an id.

    >>> ferrax.ffi.register_ffi_type("my_state", {"type_id": id_capsule})  # doctest: +SKIP
    """
    if "type_id" not in type_registration:
        raise ValueError("register_ffi_type: the registration has a capsule 'type_id'")
    if platform.lower() not in ("cpu", "host"):
        return
    info = type_registration.get("type_info")
    _core.ffi_register_type(
        name,
        _address(f"the id of the type {name}", type_registration["type_id"]),
        0 if info is None else _address(f"the information on the type {name}", info),
    )


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> None:
    """Registers a type of states by its id alone.

    Args: name: the type's name; obj: a capsule of its id; platform: of the machines that it is for.

    Errors: as `register_ffi_type`.

    >>> ferrax.ffi.register_ffi_type_id("my_state", id_capsule)  # doctest: +SKIP
    """
    register_ffi_type(name, {"type_id": obj}, platform)


# Targets whose calls with a leading axis of a batch are calls of its parts.
batch_partitionable: set[str] = set()


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Says that calls of a target over parts of a batch are parts of a call over all of it.

    Args: name: the target's name.

    >>> ferrax.ffi.register_ffi_target_as_batch_partitionable("my_norm")
    """
    batch_partitionable.add(name)


def include_dir() -> str:
    """The folder of the headers that handlers in C++ are built with: `xla/ffi/api/ffi.h` is in it.

    They are part of jaxlib; nothing of it is imported. Errors: FileNotFoundError where it is not installed.

    >>> ferrax.ffi.include_dir()  # doctest: +SKIP
    """
    # The package itself, whatever answers for its name here.
    for path in map(pathlib.Path, sys.path):
        folder = path / "jaxlib" / "include"
        if (folder / "xla" / "ffi" / "api" / "ffi.h").exists():
            return str(folder)
    raise FileNotFoundError(
        "the headers that handlers in C++ are built with come with jaxlib, which is not installed: pip install jaxlib. "
        "Handlers in C have a header here: pathlib.Path(ferrax.__file__).parent / 'include' / 'ferrax_ffi.h'"
    )

