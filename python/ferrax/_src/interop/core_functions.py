"""Small functions and values that libraries take from `jax.core` and `jax.interpreters.pxla`."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ferrax._src import core
from ferrax._src.base.errors import (
    ConcretizationTypeError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from ferrax._src.core import AbstractValue, mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.tokens import AbstractToken
from ferrax._src.interop.call_primitives import call_p

# What a traced function returns, as types.
OutputType = tuple[AbstractValue, ...]
abstract_token = AbstractToken()
call = call_p.bind
# Stands for an axis that has no name, which no name is equal to.
no_axis_name = object()
# The types of NumPy's and Python's numbers, which jaxprs have literally.
literalable_types = {bool, int, float, complex, *(kind for kind in np.sctypeDict.values() if kind is not np.void)}

ArrayMapping = OrderedDict[Hashable, int]
Index = int | slice | tuple[int | slice, ...]
MeshAxisName = Any


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known: that of anything but some tracers."""
    try:
        core.concrete_or_error(None, x)
    except ConcretizationTypeError:
        return False
    return True


def is_constant_dim(d: Any) -> bool:
    """Whether the extent `d` is an integer whose value is known."""
    try:
        operator.index(d)
    except (TypeError, ConcretizationTypeError):
        return False
    return True


def is_constant_shape(s: Sequence[Any]) -> bool:
    """Whether all extents of the shape `s` are integers whose values are known."""
    return all(map(is_constant_dim, s))


def concretization_function_error(fun: Any, suggest_astype: bool = False) -> Callable[[Any, Any], NoReturn]:
    """A method that refuses to be `fun`, such as `float`, of a tracer.

    Args: fun: the function; suggest_astype: whether the text is to name `astype`. Returns: a function of an object
    and a tracer, which raises ConcretizationTypeError, or the error of it for truth values and integers.
    """
    name = getattr(fun, "__name__", fun)
    why = f"`{name}` needs a value, and this array is traced."
    if suggest_astype:
        why += f" `x.astype({name})` converts an array."

    def error(self, arg):
        if fun is bool:
            raise TracerBoolConversionError(arg)
        if fun in (hex, oct, operator.index):
            raise TracerIntegerConversionError(arg)
        raise ConcretizationTypeError(arg, why)

    return error


class _ThreadResources:
    """What `with mesh:` says on this thread: `thread_resources.env.physical_mesh`."""

    @property
    def env(self) -> _ThreadResources:
        return self

    @property
    def physical_mesh(self) -> mesh.Mesh:
        """The mesh that was entered last; an empty one where there is none."""
        return mesh.entered_mesh()


thread_resources = _ThreadResources()


def array_mapping_to_axis_resources(array_mapping: Mapping[Hashable, int]) -> PartitionSpec:
    """The `PartitionSpec` for a dict from axes of a mesh to the axes of an array that they divide.

    >>> from ferrax._src.interop.core_functions import array_mapping_to_axis_resources
    >>> array_mapping_to_axis_resources({"x": 0, "z": 2, "y": 0})
    P(('x', 'y'), None, 'z')
    """
    over: dict[int, list[Any]] = {}
    for name, axis in array_mapping.items():
        over.setdefault(axis, []).append(name)
    entries = [tuple(over.get(axis, ())) for axis in range(max(over, default=-1) + 1)]
    return PartitionSpec(*[x if len(x) > 1 else x[0] if x else None for x in entries])


class _NoPrograms:
    """The place of a module of JAX's runtime, whose functions raise NotImplementedError when they are called.

    >>> from ferrax.extend.ifrt_programs import ifrt_programs
    >>> ifrt_programs.make_xla_program("", None)
    Traceback (most recent call last):
        ...
    NotImplementedError: ifrt_programs.make_xla_program: programs run in the process that compiles them...
    """

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args, **kwargs):
            raise NotImplementedError(
                f"ifrt_programs.{name}: programs run in the process that compiles them; compiled ones are saved by "
                "ferrax.experimental.serialize_executable, and Python is called by ferrax.experimental.colocated_python"
            )

        return refuse


ifrt_programs = _NoPrograms()


def get_profiled_instructions_proto(tensorboard_dir: str) -> bytes:
    """What a profile that was written to the folder `tensorboard_dir` says of NVIDIA's GPUs to XLA: nothing, `b""`.

    >>> from ferrax.experimental import profiler
    >>> profiler.get_profiled_instructions_proto("/tmp")
    b''
    """
    return b""
