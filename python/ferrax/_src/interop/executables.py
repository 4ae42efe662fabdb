"""`ferrax.experimental.serialize_executable`: compiled functions as bytes.

The bytes are a saved program, optimised and with its captured arrays as constants, and JSON text of what only Python
needs: which arguments are given up, and where arguments and results are. They hold no code of Python's and no pickle,
and the checksum, the types and every index in them are checked while they are read, so that bytes of unknown origin
can do no more than be refused, or be another program. Loading neither traces nor transforms: the program is planned,
and its kernels made, for the machine that loads it.

Pytrees may hold classes of the user's, so that they are handed back beside the bytes, as JAX does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.core import Tracer
from ferrax._src.core.devices import Client, Device, devices
from ferrax._src.core.mesh import AxisType, Mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.sharding import NamedSharding, SingleDeviceSharding
from ferrax._src.transforms import stages
from ferrax._src.tree.tree_util import PyTreeDef

__all__ = ["deserialize_and_load", "serialize"]

# What tells these files from exported functions, and the version of the JSON text.
_KIND, _VERSION = "compiled", 1


def serialize(compiled: stages.Compiled) -> tuple[bytes, PyTreeDef, PyTreeDef]:
    """The bytes of a compiled function, and the pytrees of its arguments and results, which are not in them.

    Args: compiled: what `jit(f).lower(...).compile()` returned. Arrays that the function closes over are in the bytes.

    Errors: TypeError for anything else; ValueError for a function that reads or writes mutable arrays; those of
    `ferrax.export` for programs that call Python; NotImplementedError for shardings of kinds that files do not hold.

    >>> from ferrax.experimental import serialize_executable
    >>> compiled = ferrax.jit(lambda x: x + 1).lower(jnp.zeros(2)).compile()
    >>> data, in_tree, out_tree = serialize_executable.serialize(compiled)
    >>> serialize_executable.deserialize_and_load(data, in_tree, out_tree)(jnp.ones(2))
    Array([2., 2.], dtype=float32)
    """
    if not isinstance(compiled, stages.Compiled):
        raise TypeError(f"serialize: expected a Compiled, got {compiled!r} of type {type(compiled).__name__}")
    if compiled._refs is not None:
        what = "reads or writes a closed-over mutable array" if compiled._refs.inputs else "has mutable arguments"
        raise ValueError(f"serialize: {compiled.fun_name} {what}; pass and return the values of the arrays")
    if any(isinstance(array, Tracer) for array in compiled._captured):
        raise ValueError(f"serialize: {compiled.fun_name} closes over values that are being traced")
    described = json.dumps(
        {
            "kind": _KIND,
            "version": _VERSION,
            "fun_name": compiled.fun_name,
            "donated": list(map(bool, compiled._donated or ())),
            "no_kwargs": bool(compiled._no_kwargs),
            "shardings": compiled._shardings and [list(map(_written, side)) for side in compiled._shardings],
            "orders": compiled._orders and [list(side) for side in compiled._orders],
        }
    )
    program = compiled._types.bind_constants(compiled._captured).optimise()
    return bytes(_core.program_to_bytes(program, described, [], [], 0)), compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes, in_tree: PyTreeDef, out_tree: PyTreeDef, backend: str | Client | None = None,
    execution_devices: Sequence[Device] | None = None,
) -> stages.Compiled:  # fmt: skip
    """The compiled function that `serialize` made these bytes of.

    Args:
        serialized: the bytes.
        in_tree, out_tree: the pytrees of the arguments, a pair of positional and keyword arguments, and of the results.
        backend: the name of a platform, or its client; None: the default one.
        execution_devices: the devices to run on, those of `backend` unless given; the ones that the function was
            compiled for are found among them by their `id`. One device takes the results of a function without
            shardings.

    Errors: ValueError for bytes that are no such function, trees that do not fit it, and devices that are of another
    backend or are not there; TypeError for what is not bytes. Nothing in the bytes is run.

    >>> from ferrax.experimental import serialize_executable
    >>> trees = ferrax.tree.structure(((0,), {})), ferrax.tree.structure(0)
    >>> serialize_executable.deserialize_and_load(b"garbage", *trees)
    Traceback (most recent call last):
        ...
    ValueError: this is not a saved program: it has only 7 bytes...
    """
    if not isinstance(serialized, (bytes, bytearray, memoryview)):
        raise TypeError(f"deserialize_and_load: expected bytes, got {type(serialized).__name__}")
    known = _devices(backend, execution_devices)
    program, text = _core.program_from_bytes(bytes(serialized))
    try:
        described = json.loads(text)
        if described["kind"] != _KIND:
            raise KeyError("kind")
        version = described["version"]
        if version != _VERSION:
            raise ValueError(f"this compiled function is of version {version}; this library reads {_VERSION}")
        name, donated = str(described["fun_name"]), list(map(bool, described["donated"]))
        shardings = described["shardings"] and _sides([[_read(x, known) for x in s] for s in described["shardings"]])
        orders = described["orders"] and _sides([[x and tuple(x) for x in side] for side in described["orders"]])
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"these bytes hold a program, but no compiled function: {error!r}") from None
    _check_fits(program, in_tree, out_tree, donated, shardings, orders)
    if shardings is None and execution_devices is not None:
        place = SingleDeviceSharding(known[min(known)])
        shardings = ([None] * len(program.in_types), [place] * len(program.out_types))
    typed = program
    if orders:
        assert stages.permuted_program is not None
        program = stages.permuted_program(program, *orders)
    compiled = stages.Compiled(program, [], in_tree, out_tree, donated, None, name)
    compiled._typed, compiled._shardings, compiled._orders = typed, shardings, orders
    compiled._no_kwargs = bool(described.get("no_kwargs"))
    compiled._make()
    return compiled


def _devices(backend, chosen) -> dict[int, Device]:
    """The devices by id. Errors: ValueError for chosen ones of another backend, and for none."""
    client = devices(backend)[0].client if backend is None or isinstance(backend, str) else backend
    if chosen is None:
        return {device.id: device for device in client.devices()}
    others = [device for device in chosen if device.client.platform != client.platform]
    if others or not chosen:
        raise ValueError(
            f"deserialize_and_load: execution_devices must be devices of the backend {client.platform!r}, got {chosen}"
        )
    return {device.id: device for device in chosen}


def _sides(described) -> Any:
    """What is said of arguments and of results."""
    ins, outs = described
    return list(ins), list(outs)


def _check_fits(program, in_tree, out_tree, donated, shardings, orders) -> None:
    """Errors: ValueError where trees or lists are of other lengths than the program's arguments and results."""
    counts = len(program.in_types), len(program.out_types)
    if len(in_tree.children()) != 2 or (in_tree.num_leaves, out_tree.num_leaves) != counts:
        raise ValueError(
            f"deserialize_and_load: the function has {counts[0]} arguments and {counts[1]} results, which the trees "
            f"{in_tree} and {out_tree} do not fit"
        )
    fits = len(donated) in (0, counts[0])
    for side, types in zip(orders or (), (program.in_types, program.out_types)):
        fits = fits and all(o is None or sorted(o) == list(range(len(ty[0]))) for o, ty in zip(side, types))
    for sides in (shardings, orders):
        fits = fits and (not sides or all(len(side) in (0, count) for side, count in zip(sides, counts)))
    if not fits:
        raise ValueError("what these bytes say of arguments and results does not fit their program")


def _written(sharding) -> Any:
    """A sharding as JSON has it. Errors: NotImplementedError for kinds that files do not hold."""
    if sharding is None:
        return None
    kind = sharding.memory_kind
    if isinstance(sharding, SingleDeviceSharding):
        (device,) = sharding.device_set
        return {"device": device.id, "memory_kind": kind}
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        raise NotImplementedError(
            f"serialize: files hold a SingleDeviceSharding or a NamedSharding over devices, got {sharding}"
        )
    mesh, spec = sharding.mesh, sharding.spec
    if spec.unreduced or spec.reduced:
        raise NotImplementedError(f"serialize: files hold no sums that are still to be done, got {spec}")
    names = [name for entry in spec for name in (entry if isinstance(entry, tuple) else (entry,))]
    if not all(name is None or isinstance(name, str) for name in [*names, *mesh.axis_names]):
        raise NotImplementedError(f"serialize: the axes of a mesh must be named by strings, got {sharding}")
    return {
        "sizes": list(mesh.axis_sizes),
        "names": list(mesh.axis_names),
        "types": [kind.name for kind in mesh.axis_types],
        "devices": [device.id for device in mesh.devices.flat],
        "spec": ["*" if x is PartitionSpec.UNCONSTRAINED else list(x) if isinstance(x, tuple) else x for x in spec],
        "memory_kind": kind,
    }


def _read(described, known) -> Any:
    """The sharding that `_written` made this of, over devices by id. Errors: ValueError where one is not there."""
    if described is None:
        return None

    def device(number):
        if number not in known:
            raise ValueError(f"this function was compiled for device {number}, and there are {sorted(known)}")
        return known[number]

    kind = described["memory_kind"]
    if "device" in described:
        return SingleDeviceSharding(device(described["device"]), memory_kind=kind)
    grid = np.array([device(number) for number in described["devices"]], dtype=object)
    types = tuple(AxisType[name] for name in described["types"])
    mesh = Mesh(grid.reshape(described["sizes"]), tuple(described["names"]), axis_types=types)
    entries = [tuple(x) if isinstance(x, list) else x for x in described["spec"]]
    spec = PartitionSpec(*[PartitionSpec.UNCONSTRAINED if x == "*" else x for x in entries])
    return NamedSharding(mesh, spec, memory_kind=kind)
