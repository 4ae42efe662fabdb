"""`ferrax.experimental.colocated_python`: Python functions that run where arrays are.

Arrays are in the memory of the process that runs the function, so that it is called as it is, with the arrays; nothing
is pickled. What JAX's functions check is checked: that a device is known, and that arguments and results are of the
types that were said. In functions being traced it is a callback, for which the types of the results have to be said.
Cost: that of a call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.callbacks.callback import pure_callback
from ferrax._src.core import api_util
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.devices import Device, devices, local_devices
from ferrax._src.core.mesh import Mesh
from ferrax._src.tree import tree_util

__all__ = ["DeviceList", "colocated_cpu_devices", "colocated_python", "colocated_python_class"]


class DeviceList(tuple[Device, ...]):
    """Devices in their order: a tuple that says what they have in common.

    Args: the devices, as one tuple or list.

    >>> from ferrax.experimental.colocated_python import serialization
    >>> serialization.DeviceList(tuple(ferrax.devices())).is_fully_addressable
    True
    """

    __slots__ = ()

    @property
    def is_fully_addressable(self) -> bool:
        """Whether they are all this process'."""
        return self.addressable_device_list == self

    @property
    def addressable_device_list(self) -> DeviceList:
        """Those of this process."""
        return DeviceList(device for device in self if device in set(local_devices()))

    @property
    def memory_kinds(self) -> tuple[str, ...]:
        """The kinds of memory that each has."""
        return tuple(memory.kind for memory in self[0].addressable_memories()) if self else ()

    @property
    def default_memory_kind(self) -> str | None:
        """The kind of memory that arrays are in."""
        return self[0].default_memory().kind if self else None


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPU devices of the machines that these devices are of: of a CPU device itself.

    Args: devices_or_mesh: a sequence of devices, or a `Mesh`. Returns: a list, or a mesh of the same form.
    Errors: ValueError where a process has fewer CPU devices than of the given ones.

    >>> from ferrax.experimental import colocated_python
    >>> colocated_python.colocated_cpu_devices(ferrax.devices()) == ferrax.devices()
    True
    """
    if isinstance(devices_or_mesh, Mesh):
        mesh = devices_or_mesh
        found = np.array(colocated_cpu_devices(list(mesh.devices.flat)), dtype=object)
        return Mesh(found.reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)
    given = list(devices_or_mesh)
    spare: dict[int, list[Device]] = {}
    for device in devices("cpu"):
        if device not in given:
            spare.setdefault(device.process_index, []).append(device)
    result = []
    for device in given:
        if device.platform != "cpu":
            there = spare.get(device.process_index)
            if not there:
                raise ValueError(
                    f"colocated_cpu_devices: process {device.process_index} has too few CPU devices for {given}; set "
                    "jax_num_cpu_devices before devices are used"
                )
            device = there.pop(0)
        result.append(device)
    return result


@dataclasses.dataclass(frozen=True)
class _Specialization:
    """What was said of a function's arguments, results and devices; None of what was not."""

    in_specs: Any = None
    out_specs_fn: Callable[..., Any] | None = None
    devices: tuple[Device, ...] | None = None


def _spec(x) -> Any:
    return ShapeDtypeStruct.like(x) if hasattr(x, "dtype") else ShapeDtypeStruct.like(core.typeof(x))


def _check(what, fun, found, wanted) -> None:
    """Errors: ValueError where the leaves of a tree are of other types than was said."""
    leaves, tree = tree_util.tree_flatten(found)
    specs, said = tree_util.tree_flatten(wanted)
    if tree != said:
        raise ValueError(f"colocated_python: {what} of {fun} have the structure {tree}, was said {said}")
    for leaf, spec in zip(leaves, specs):
        if (leaf.shape, leaf.dtype) != (tuple(spec.shape), spec.dtype):
            raise ValueError(f"colocated_python: {what} of {fun} are of other types than was said: {leaf}, not {spec}")


class _Callable:
    """A function that runs where its arguments are."""

    def __init__(self, fun, call, specialization):
        functools.update_wrapper(self, fun)
        self._fun, self._call, self._said = fun, call, specialization

    def __call__(self, *args, **kwargs):
        return self._run(args, kwargs)

    @api_boundary
    def _run(self, args, kwargs):
        said, name = self._said, api_util.fun_place(self._fun)
        leaves = tree_util.tree_leaves((args, kwargs))
        if not leaves and said.devices is None:
            raise ValueError(
                f"No devices found. {name} has no arguments: call its method specialize(devices=...) and use the result"
            )
        specs = tree_util.tree_map(_spec, (args, kwargs))
        if said.in_specs is not None:
            _check("arguments", name, specs, said.in_specs)
        outs = None if said.out_specs_fn is None else said.out_specs_fn(*specs[0], **specs[1])
        if any(isinstance(leaf, core.Tracer) for leaf in leaves):
            if outs is None:
                raise TypeError(
                    f"colocated_python: {name} is called in a function being traced, where the types of its results "
                    "have to be known: use its method specialize(out_specs_fn=...)"
                )
            return pure_callback(self._call, outs, *args, **kwargs)
        with config.default_device(said.devices[0]) if said.devices else contextlib.nullcontext():
            found = self._call(*args, **kwargs)
        if outs is not None:
            _check("results", name, tree_util.tree_map(_spec, found), outs)
        return found

    def specialize(
        self, in_specs: Any = None, out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Device] | None = None,
    ) -> _Callable:  # fmt: skip
        """The function, of which more is said; each of these can be said once.

        Args:
            in_specs: the types of the arguments, a pair of positional and keyword ones, as `ShapeDtypeStruct`s.
            out_specs_fn: a function from the types of the arguments to those of the results.
            devices: where it runs; needed for functions without arguments.

        Errors: ValueError for what was said already; TypeError for an `out_specs_fn` that is no function.
        """
        given = {"in_specs": in_specs, "out_specs_fn": out_specs_fn, "devices": devices and tuple(devices)}
        given = {key: value for key, value in given.items() if value is not None}
        for key in given:
            if getattr(self._said, key) is not None:
                raise ValueError(f"colocated_python: {key} were specified already for {api_util.fun_place(self._fun)}")
        if out_specs_fn is not None and not callable(out_specs_fn):
            raise TypeError(f"colocated_python: out_specs_fn must be a function, got {out_specs_fn!r}")
        return _Callable(self._fun, self._call, dataclasses.replace(self._said, **given))


def colocated_python(fun: Callable[..., Any]) -> Any:
    """The function, called with the arrays on the machine where these are.

    Args: fun: a function of pytrees of arrays that returns such a tree.

    Returns: a function with a method `specialize(in_specs, out_specs_fn, devices)`, which says the types of arguments
    and results, and the devices.

    Errors: of the function ValueError if it has no arguments and no devices, or arguments or results are of other types
    than was said; TypeError where it is traced and the types of its results were not said.

    >>> from ferrax.experimental.colocated_python import colocated_python
    >>> @colocated_python
    ... def count(x):
    ...     return jnp.asarray(len(set(x.tolist())))
    >>> int(count(jnp.array([1, 1, 2])))
    2
    """
    api_util.check_callable(fun)
    return _Callable(fun, fun, _Specialization())


class _Holder:
    """An object of the user's, made when it is first needed."""

    def __init__(self, make):
        self._make, self._lock, self._made = make, threading.Lock(), None

    def get(self):
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
            return self._made


class _Method:
    """A method of a wrapper: bound, it is a function that runs where its arguments are. An attribute of the object's
    own comes before it."""

    def __init__(self, method):
        self._method = method

    def __get__(self, instance, owner):
        if instance is None:
            return self._method
        # What is bound keeps the object, not the wrapper: an attribute of this may be one.
        holder, name = instance._holder, self._method.__name__
        return _Callable(self._method, lambda *a, **k: getattr(holder.get(), name)(*a, **k), _Specialization())


def colocated_python_class(cls: type) -> type:
    """A class whose objects live where the arrays are that their methods are called with.

    Args: cls: the class. Its object is made at the first call of a method, with the arguments that the wrapper was
    made with, and lives as long as the wrapper.

    Returns: a class with the methods, each as `colocated_python` makes a function. Errors: TypeError for what is no
    class.

    >>> from ferrax.experimental.colocated_python import colocated_python_class
    >>> @colocated_python_class
    ... class Total:
    ...     def __init__(self):
    ...         self.sum = 0
    ...     def add(self, x):
    ...         self.sum = self.sum + x
    ...         return self.sum
    >>> total = Total()
    >>> total.add(jnp.int32(2)), total.add(jnp.int32(3))
    (Array(2, dtype=int32), Array(5, dtype=int32))
    """
    if not isinstance(cls, type):
        raise TypeError(f"colocated_python_class: expected a class, got {cls!r}")

    def __init__(self, *args, **kwargs):
        self._holder = _Holder(lambda: cls(*args, **kwargs))

    methods: dict[str, Any] = {}
    for name in dir(cls):
        value = getattr(cls, name)
        if callable(value) and not name.startswith("__"):
            methods[name] = _Method(value)
    names = {key: getattr(cls, key) for key in ("__doc__", "__module__", "__qualname__")}
    return type(cls.__name__, (), {**names, **methods, "__init__": __init__})
