"""Where arguments and results of a call are, in programs and as walkers see it.

The native core's call of a program has no shardings. One that was made with some is of a program that states them at
its borders: by an identity of an argument that nothing else reads, and by one that makes a result that nothing else
reads. These are constraints to all passes. Views of a call have them as `in_shardings` and `out_shardings`, beside a
jaxpr without them, as JAX has it; interpreters that go into calls take the parameters from `whole`.

Invariant: a view that is bound as it is gives the program that it is a view of.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ferrax import _core
from ferrax._src.core import primitive_params
from ferrax._src.core.jaxpr import ClosedJaxpr, Var
from ferrax._src.core.mesh import concrete_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.primitive_params import UNSPECIFIED
from ferrax._src.core.primitives import Primitive
from ferrax._src.core.sharding import NamedSharding

# The identities at the borders, which a higher layer writes.
_of_arguments: Primitive | None = None
_of_results: Primitive | None = None


def install(of_arguments: Primitive, of_results: Primitive) -> None:
    """Takes the primitives that state where an argument and a result of a call are."""
    global _of_arguments, _of_results
    _of_arguments, _of_results = of_arguments, of_results


# Programs with borders, by those without, which they are kept with, and what is stated.
_known: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def stated(program: Any, name: str, ins: Sequence[Any], outs: Sequence[Any]) -> Any:
    """The program with borders: `ins` are shardings of its first inputs, `outs` of its first outputs, or None."""
    key = name, tuple(ins), tuple(outs), concrete_mesh()
    by_places = _known.setdefault(program, {})
    if key not in by_places:
        by_places[key] = _stated(program, *key)
    return by_places[key]


def _stated(program, name, ins, outs, mesh):
    def border(primitive, x, where):
        if not isinstance(where, NamedSharding) or where.mesh.empty:
            return x
        return primitive.bind(x, sharding=where, layout=None, context_mesh=mesh, unconstrained_dims=frozenset())

    def run(given):
        given = list(given)
        given[: len(ins)] = [border(_of_arguments, x, where) for x, where in zip(given, ins)]
        results = list(_core.apply_program(program, given))
        results[: len(outs)] = [border(_of_results, x, where) for x, where in zip(results, outs)]
        return results

    made, captured, _ = _core.trace_program(run, "stage", name, list(program.in_types))
    made = made.bind_constants(captured) if captured else made
    return made.giving_up(program.donated) if program.donated else made


def whole(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call with the jaxpr that states all, and no shardings beside it."""
    inner = getattr(params.get("jaxpr"), "_with_borders", None)
    if inner is None:
        return dict(params)
    unsaid = {name: (UNSPECIFIED,) * len(params[name]) for name in ("in_shardings", "out_shardings")}
    return dict(params, jaxpr=inner, **unsaid)


def _uses(jaxpr) -> dict[Var, int]:
    """How often each variable is read."""
    counts: dict[Var, int] = {}
    for atom in (atom for atoms in (*[eqn.invars for eqn in jaxpr.eqns], jaxpr.outvars) for atom in atoms):
        if isinstance(atom, Var):
            counts[atom] = counts.get(atom, 0) + 1
    return counts


def _opened(sharding) -> NamedSharding:
    """The sharding as a parameter of a call, in which an axis of a batch that is left open is one that is not said."""
    entries = list(sharding.spec.partitions)
    if PartitionSpec.UNCONSTRAINED not in entries:
        return sharding
    entries = [None if entry is PartitionSpec.UNCONSTRAINED else entry for entry in entries]
    while entries and entries[-1] is None:
        entries.pop()
    return sharding.update(spec=sharding.spec.update(partitions=entries))


def _shown(op, params, operands, num_outputs):
    shown = _shown_call(op, params, operands, num_outputs)
    closed = shown["jaxpr"]
    if any(eqn.primitive in (_of_arguments, _of_results) for eqn in closed.open.eqns):
        shown |= _without_borders(closed, list(shown["in_shardings"]), list(shown["out_shardings"]))
    return shown


def _without_borders(closed, ins, outs) -> dict[str, Any]:
    """The parameters of a call of a jaxpr that may have borders."""
    jaxpr = closed.open
    counts, inputs = _uses(jaxpr), {var: number for number, var in enumerate(jaxpr.invars)}
    outputs = {var: number for number, var in enumerate(jaxpr.outvars) if isinstance(var, Var)}
    stands_for: dict[Any, Any] = {}
    eqns, mesh = [], None
    for eqn in jaxpr.eqns:
        # Borders of results are identities of what other equations made, borders of arguments among them.
        invars = [stands_for.get(atom, atom) if isinstance(atom, Var) else atom for atom in eqn.invars]
        known: tuple[list[Any], int | None] = [], None
        if eqn.primitive is _of_arguments and isinstance(eqn.invars[0], Var) and counts[eqn.invars[0]] == 1:
            known = ins, inputs.get(eqn.invars[0])
        elif eqn.primitive is _of_results and counts.get(eqn.outvars[0]) == 1:
            known = outs, outputs.get(eqn.outvars[0])
        places, number = known
        if number is None:
            eqns.append(eqn.replace(invars=invars))
            continue
        places[number] = _opened(eqn.params["sharding"])
        mesh = eqn.params["context_mesh"] if mesh is None or mesh.empty else mesh
        stands_for[eqn.outvars[0]] = invars[0]
    if not stands_for:
        return {}
    outvars = [stands_for.get(atom, atom) if isinstance(atom, Var) else atom for atom in jaxpr.outvars]
    inner = ClosedJaxpr(jaxpr.replace(eqns=eqns, outvars=outvars), closed.consts)
    inner._with_borders, inner._places = closed, (tuple(ins), tuple(outs))
    return {
        "jaxpr": inner,
        "in_shardings": inner._places[0],
        "out_shardings": inner._places[1],
        "ctx_mesh": None if mesh is None or mesh.empty else mesh,
    }


def _native(params):
    params = dict(params)
    places = [tuple(params.pop(name, ())) for name in ("in_shardings", "out_shardings")]
    jaxpr = params.pop("jaxpr", None)
    if jaxpr is None:
        return params
    if jaxpr._with_borders is not None and jaxpr._places == tuple(places):
        return params | {"program": jaxpr._with_borders._to_program()}
    program = jaxpr._to_program()
    said = [[where if isinstance(where, NamedSharding) else None for where in side] for side in places]
    if any(where is not None for side in said for where in side):
        program = stated(program, params["name"], *said)
    return params | {"program": program}


_shown_call = primitive_params.SHOWN["jit"]
primitive_params.SHOWN["jit"] = _shown
primitive_params.WHOLE["jit"] = _native
