"""A function at a point, traced and differentiated by the native core: what `autodiff` and the
functions of `interop` are made of.

In go a function and arguments; out come the program that was traced under a frame in which values are
known on demand, what it does to mutable arrays, and `Linearized`: outputs, and the linear program of
the derivative. Integers have tangents of dtype float0, and None stands for cotangents that are zero.
Cost: one trace, and a program of as many equations as the function has.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.core.explicit_types import all_typed, of_cotangent, retyped
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.creation import full
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.state import arguments as ref_args, differentiated_write
from ferrax._src.tracing.staging import Flat
from ferrax._src.transforms import stepwise
from ferrax._src.tree import tree_util


class _Orders(threading.local):
    """How many derivatives are being traced, and how many of them rules that are being traced have
    used up already: a rule is itself differentiated by the others. `forward`: the innermost one is
    a `jvp`, whose tangents are known. `pushes`: what is made now is the derivative of a program, as one of
    `jvp` or `linearize`, not one to be transposed; `linearizes`: as one of `linearize`."""

    derivatives = 0
    used = 0
    forward = False
    # How many rules that ask for values of tangents or cotangents were traced so far.
    by_value = 0
    pushes = linearizes = False

    @contextlib.contextmanager
    def pushing(self, linearizes=False, yes=True):
        """A context in which derivatives of programs are made in this way."""
        before = self.pushes, self.linearizes
        self.pushes, self.linearizes = yes, linearizes
        try:
            yield
        finally:
            self.pushes, self.linearizes = before


orders = _Orders()

# Whether there are primitives whose derivative within a checkpoint is made by another rule; once True it stays.
asks_for_checkpoints = [False]


def float0_zeros(shape):
    return np.zeros(shape, dtype=dtypes.float0)


def zeros(shape, dtype, weak=False, varying=()):
    out = full(shape, 0, dtype)
    return weaken(out) if weak else out


def tangent_zeros(shape, dtype, weak=False, varying=()):
    return zeros(shape, dtype, weak) if dtypes.has_tangent(dtype) else float0_zeros(shape)


def strengthen(array):
    return _convert_element_type(array, array.dtype, weak_type=False)


def weaken(array):
    return _convert_element_type(array, array.dtype, weak_type=True)


def reject_refs(leaves):
    ref_args.reject(leaves, "a differentiated argument", "Differentiate by its value, ref[...].")


def trace(fun, args, kwargs=None, has_aux=False, fixed=None, name=None, forward=False):
    """Traces over `args`: leaves, the traced program with captured values, the flat function.

    `flat.touched` is what the function does to mutable arrays: the values that it gives to them
    are the program's last outputs.
    """
    leaves, in_tree = tree_util.tree_flatten((args, kwargs or {}))
    reject_refs(leaves)
    own_name = api_util.fun_name(fun)
    arrays = [core.as_array(leaf, own_name) for leaf in leaves]
    flat = Flat(fun, in_tree, has_aux, fixed, kind="differentiation")
    names = functools.partial(api_util.argument_names, fun, args, kwargs)
    before = orders.forward
    orders.derivatives += 1
    orders.forward = forward
    try:
        program, captured, flat.touched = _core.trace_program(
            flat, "diff", name or own_name, arrays, names, arrays
        )
    finally:
        orders.derivatives -= 1
        orders.forward = before
    return arrays, program, captured, flat


def _reversed_inputs(touched, count) -> list[bool]:
    """Which of the captured values order reverse rules that use mutable arrays: they have tangents
    too."""
    flags = [False] * count
    if touched is not None:
        for ref, entry in touched.entries.items():
            if state.ordered_ref(ref) is not None and entry.position is not None:
                flags[entry.position] = True
    return flags


def write_refs(flat, results, flags):
    """Writes what the function gave to mutable arrays. Returns the other results, their flags, and
    the refs for which further outputs, with tangents, order reverse rules."""
    touched = flat.touched
    if touched is None or not touched.count:
        return results, flags, []
    first = len(flags) - touched.count
    reverses = []
    for entry, flag, value in zip(touched.written, flags[first:], results[first:]):
        if state.ordered_ref(entry.ref) is not None:
            if flag:
                reverses.append(state.ordered_ref(entry.ref))
        elif flag:
            raise differentiated_write(entry)
        else:
            state.write(entry.ref, value)
    return results[:first] + results[len(flags) :], flags[:first], reverses


class Linearized:
    """A function at a point: outputs, and the linear program of its derivative.

    `pushforward` and `pullback` are pure functions of the residuals, so that these may be traced.
    """

    def __init__(self, fun, args, has_aux=False, fixed=None, kwargs=None, pushes=False):
        by_value = orders.by_value
        arrays, program, captured, self.flat = trace(fun, args, kwargs, has_aux, fixed)
        self.in_types = [(a.shape, a.dtype, a.weak_type) for a in arrays]
        self.nonzero_in = [dtypes.has_tangent(a.dtype) for a in arrays]
        self.explicit_in = all_typed(arrays)
        ordering = _reversed_inputs(self.flat.touched, len(captured))
        with orders.pushing(pushes, pushes):
            self.primal, self.linear, flags = program.linearize(self.nonzero_in + ordering)
        results = apply_program(self.primal, arrays + captured)
        results, flags, self.reverses = write_refs(self.flat, results, flags)
        count = len(flags)
        num_out = self.flat.num_out
        known = self.flat.types
        self._results: Any = [*map(retyped, results, known), *results[len(known) : count]]
        self._residuals = results[count:]
        # Refs that reverse rules use: for each a last input and, where it is there, an output.
        self.ordered: list[Any] = [
            state.ordered_ref(ref)
            for ref, entry in (self.flat.touched.entries.items() if any(ordering) else ())
            if state.ordered_ref(ref) is not None and entry.position is not None
        ]
        self.flags = flags
        self.out_types = program.out_types[:num_out]
        # Rules that use mutable arrays have an order, which programs keep.
        ordered = self.ordered or self.reverses
        self.stepwise = (
            orders.by_value != by_value and not ordered and stepwise.applies(self.linear)
        )

    def take(self):
        """Output, aux (None without) and residuals, once: the point does not keep them alive."""
        results, residuals = self._results, self._residuals
        self._results, self._residuals = [], []
        num_out = self.flat.num_out
        out = self.flat.out_tree.unflatten(results[:num_out])
        aux = self.flat.aux(results[num_out:]) if self.flat.has_aux else None
        return out, aux, residuals

    def arguments_among(self, residuals) -> list[int | None]:
        """For each residual, which leaf of the arguments it is; None where it was computed."""
        positions = self.primal.forwarded()
        count = len(self.in_types)
        return [
            n if n is not None and n < count else None
            for n in positions[len(positions) - len(residuals) :]
        ]

    def pushforward(self, residuals, tangents):
        """Output tangents (float0 for integers) for input tangents, all flat."""
        given = [t for t, nonzero in zip(tangents, self.nonzero_in) if nonzero]
        given += [zeros(ref.shape, ref.dtype) for ref in self.ordered]
        results = iter(apply_program(self.linear, [*residuals, *given]))
        made = [next(results) if flag else None for flag in self.flags][: self.flat.num_out]
        made = [tangent_zeros(*ty) if t is None else t for t, ty in zip(made, self.out_types)]
        return [*map(retyped, made, self.flat.types)]

    def pullback(self, residuals, cotangents, chosen=None, logs=None):
        """Input cotangents (None for zeros) for output cotangents, all flat; of `chosen`, flags of the
        inputs, only these are computed, others are None. What rules log goes into the dict `logs`."""
        wanted, given = [], []
        for index, flag in enumerate(self.flags):
            if flag:
                known = index < self.flat.num_out and cotangents[index] is not None
                wanted.append(known)
                if known:
                    given.append(cotangents[index])
        for ref in self.reverses:
            wanted.append(True)
            given.append(strengthen(state.read(ref)))
        if not any(wanted):
            return [None] * len(self.in_types)
        if logs is not None and (self.ordered or self.reverses):
            raise NotImplementedError("with_logs: not of functions whose derivatives use mutable arrays")
        if self.stepwise or logs is not None:
            return stepwise.pullback(self, residuals, wanted, given, logs)
        tangents = sum(self.nonzero_in) + len(self.ordered)
        linear = [False] * len(residuals) + [True] * tangents
        program, flags = self.linear.transpose(linear, wanted)
        if chosen is not None and not self.ordered:
            program, flags = self._chosen(program, flags, chosen)
        results = iter(apply_program(program, [*residuals, *given]))
        flags = iter(flags[len(residuals) :])
        cotangents = [
            next(results) if nonzero and next(flags) else None for nonzero in self.nonzero_in
        ]
        for ref, flag in zip(self.ordered, flags):
            if flag:
                state.write(ref, next(results) if not ref.weak_type else weaken(next(results)))
        return cotangents

    def _chosen(self, program, flags, chosen):
        """The transposed program without the cotangents that nobody asks for, and its flags."""
        first = len(flags) - sum(self.nonzero_in)
        keep = [flag for flag, nonzero in zip(chosen, self.nonzero_in) if nonzero]
        numbers = itertools.accumulate(flags, initial=0)
        kept = [
            number
            for place, (number, flag) in enumerate(zip(numbers, flags))
            if flag and (place < first or keep[place - first])
        ]
        left = [flag and keep[i] for i, flag in enumerate(flags[first:])]
        return program.select_outputs(kept).trimmed()[0], [*flags[:first], *left]

    def cotangent_or_zeros(self, cotangents, chosen=None):
        """The cotangents with zeros for None; those that are not among `chosen` stay None."""
        found = [
            tangent_zeros(*ty) if ct is None and (chosen is None or chosen[number]) else ct
            for number, (ct, ty) in enumerate(zip(cotangents, self.in_types))
        ]
        return [retyped(ct, of_cotangent(sharding)) for ct, sharding in zip(found, self.explicit_in)]
