"""Explicit types of equations that have programs, and of those that say how their results are divided.

Programs were checked as they were written: here their specs are followed only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ferrax._src.core import scan_params
from ferrax._src.core.partition import PartitionSpec, entry_names, filled

Spec = PartitionSpec


def opened(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def called(eqn: Any) -> Any:
    """The jaxpr that an equation applies to its operands, if there is one."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in eqn.params:
            jaxpr = opened(eqn.params[name])
            if len(jaxpr.invars) == len(eqn.invars) and len(jaxpr.outvars) == len(eqn.outvars):
                return jaxpr
    return None


def _scan(eqn, specs, inner):
    params = scan_params.counted(eqn.params)
    consts, count = params["num_consts"], params["num_carry"]
    rest = [None if spec is None else spec.update(partitions=spec.partitions[1:]) for spec in specs[consts + count :]]
    outs = inner(opened(eqn.params["jaxpr"]), [*specs[: consts + count], *rest])
    stacked = [None if spec is None else spec.update(partitions=(None, *spec.partitions)) for spec in outs[count:]]
    carry = [new if old is None else old for old, new in zip(specs[consts : consts + count], outs)]
    return [*carry, *stacked]


def _while(eqn, specs, inner):
    first, second = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    carry = specs[first + second :]
    outs = inner(opened(eqn.params["body_jaxpr"]), specs[first:])
    return [new if old is None else old for old, new in zip(carry, outs)]


def _cond(eqn, specs, inner):
    branches = [inner(opened(branch), specs[1:]) for branch in eqn.params["branches"]]
    return [next((spec for spec in found if spec is not None), None) for found in zip(*branches)]


def _alike(eqn, specs, inner):
    """As the operand of the same shape: of loops in several forms and of solvers."""
    known = {tuple(atom.aval.shape): spec for atom, spec in zip(eqn.invars, specs) if spec is not None}
    return [known.get(tuple(out.aval.shape)) for out in eqn.outvars]


def of_shard_map(
    params: dict[str, Any], ranks: Iterable[int], specs: Sequence[Spec | None], inner: Callable[..., Any]
) -> list[Spec]:
    """Of results of these ranks: by the axes that the function is run over as is said, by others as its jaxpr."""
    manual = params["newly_manual_axes"]
    said = [filled(spec, rank) for spec, rank in zip(params["out_specs"], ranks)]
    if manual == set(params["mesh"].axis_names):
        return said
    outs = inner(opened(params["jaxpr"]), [None if spec is None else _but(spec, manual) for spec in specs])
    return [spec if out is None else _joined(spec, out) for spec, out in zip(said, outs)]


def _but(spec, names):
    entries = [tuple(name for name in entry_names(entry) if name not in names) for entry in spec.partitions]
    return spec.update(partitions=[entry or None for entry in entries])


def _joined(spec, other):
    pairs = zip(spec.partitions, other.partitions)
    return spec.update(partitions=[(*entry_names(a), *entry_names(b)) or None for a, b in pairs])


def _shard_map(eqn, specs, inner):
    return of_shard_map(eqn.params, [out.aval.ndim for out in eqn.outvars], specs, inner)


# By primitive: of the equation, the operands' specs, and the function that goes through a jaxpr.
RULES: dict[str, Callable[[Any, list[Spec | None], Callable[..., Any]], list[Spec | None]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "shard_map": _shard_map,
    "sweeps": _alike,
    "custom_linear_solve": _alike,
}


def _of_types(eqn, shardings):
    return [
        None if where is None or where.mesh.empty else filled(where.spec, out.aval.ndim)
        for where, out in zip(shardings, eqn.outvars)
    ]


# Primitives that say how their results are divided.
STATED: dict[str, Callable[[Any], list[Spec | None]]] = {
    "reshard": lambda eqn: _of_types(eqn, [eqn.params["dst_sharding"]]),
}
