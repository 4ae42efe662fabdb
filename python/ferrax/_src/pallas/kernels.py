"""A kernel as a program of values: what every step of a grid does.

In: the Python function, and what its refs hold. Out: a `Kernel`, whose program takes the step's
indices, sizes of the grid that are known when it runs, and what each ref holds, and gives what each
holds afterwards. Refs are values threaded by the trace already (`state.ref`), so nothing else is to be
done: loops, branches, derivatives and batches of programs apply.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src import core, state
from ferrax._src.core import api_util, named_axes
from ferrax._src.core.jaxpr import ClosedJaxpr, subjaxprs
from ferrax._src.core.primitives import apply_program
from ferrax._src.pallas import grid
from ferrax._src.pallas.blocks import without_captured
from ferrax._src.pallas.generator import generator
from ferrax._src.state import new_ref
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

_INT32 = np.dtype(np.int32)


class Kernel:
    """The program of one step.

    Attributes: `program`; `modified`, for each ref whether a step can change it; `has_effects`; `uses_axes`, whether it
    asks for its place on an axis that the call is mapped over, or for what others on it have.
    """

    def __init__(self, function, types, sizes, unflatten, names=(), has_barrier=False):
        """`types` are those of what the refs hold, `unflatten` makes `(args, kwargs)` of the refs, but for the last if
        that is the semaphore of barriers."""
        self.place = api_util.fun_place(function)
        self.sizes = sizes
        self.rank = len(sizes)
        first = grid.types(sizes)

        def run(*values):
            ids, now, held = grid.split(values, sizes)
            refs = [new_ref(value) for value in held]
            barrier = refs[-1] if has_barrier else None
            args, kwargs = unflatten(refs[:-1] if has_barrier else refs)
            with grid.frame(ids, now, barrier), grid.names(names, sizes, ids), generator():
                result = function(*args, **kwargs)
            if result is not None:
                raise ValueError(
                    f"The kernel function in the pallas_call {self.place} should return None. It returns a PyTree: "
                    f"{tree_util.tree_structure(result)}. Write results to the output refs."
                )
            return [state.conform(ref, state.read(ref)) for ref in refs]

        program, captured, _ = staging.stage(
            run, (*first, *types), {}
        )
        program = without_captured(
            program,
            captured,
            function,
            f"The kernel function in the pallas_call {self.place} captures constants. You should pass them as inputs."
            " It captures",
        )
        self.program = program
        self.first = len(first)
        self.modified = [
            source != self.first + number for number, source in enumerate(program.forwarded())
        ]
        jaxpr = ClosedJaxpr(program, []).open
        self.has_effects = bool(jaxpr.effects)
        self.uses_axes = _uses_axes(jaxpr, set(named_axes.names()))

    def __call__(self, ids: Any, sizes: Any, held: Any) -> list[Any]:
        """What the refs hold after a step."""
        return apply_program(self.program, [*ids, *sizes, *held])

    def reads_at_start(self, axes, numbers) -> bool:
        """Whether what any of these refs hold before a step matters where the indices along these
        axes are 0."""
        free = [axis for axis in range(self.rank) if axis not in axes]
        types = self.program.in_types

        def run(*values):
            ids: list[Any] = [np.int32(0)] * self.rank
            for axis, value in zip(free, values):
                ids[axis] = value
            ids = [core.as_array(value, "pallas_call") for value in ids]
            return apply_program(self.program, [*ids, *values[len(free) :]])

        scalar = core.ShapeDtypeStruct((), _INT32)
        held = [core.ShapeDtypeStruct(shape, dtype) for shape, dtype, *_ in types[self.rank :]]
        started, captured, _ = staging.stage(run, (*[scalar] * len(free), *held), {})
        needs = started.bind_constants(captured).optimise().trimmed()[1]
        offset = len(free) + self.first - self.rank
        return any(needs[offset + number] for number in numbers)


def _uses_axes(jaxpr, names) -> bool:
    """Whether an equation is of one of these axes."""
    if not names:
        return False
    for eqn in jaxpr.eqns:
        found = [eqn.params.get(key, ()) for key in ("axis_name", "axes")]
        if any(name in names for value in found for name in (value if isinstance(value, tuple) else (value,))):
            return True
    return any(_uses_axes(inner, names) for inner in subjaxprs(jaxpr))
