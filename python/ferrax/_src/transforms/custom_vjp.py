"""`custom_vjp`: functions whose reverse derivative the user gives; `custom_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes, errors
from ferrax._src.core import api_util, named_axes
from ferrax._src.core.manual_axes import dual_texts
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.state import arguments as ref_args
from ferrax._src.transforms import linearized, ref_rules, stepwise
from ferrax._src.transforms.ad import Zero
from ferrax._src.transforms.closures import closure_convert
from ferrax._src.transforms.custom_rules import (
    VALUE_UNKNOWN,
    CustomFunction,
    P,
    R,
    SymbolicZero,
    array_types,
    pair,
    show,
    symbolic_zero,
    tangent_type,
    zeros,
)
from ferrax._src.tree import tree_util

__all__ = ["custom_gradient", "custom_vjp"]

# The classes of what rules of `defvjp_with_accums` are given; they are written above this layer (`startup`).
accumulators: list[Any] = []


class custom_vjp(CustomFunction[P, R]):  # noqa: N801
    """A function with a reverse derivative of its own, for `grad` and `vjp`.

    Args:
      fun: the function of arrays and pytrees of them.
      nondiff_argnums: positions of arguments that are not arrays (functions, options). `fwd` gets
        all arguments in their order, `bwd` gets these first.
      nondiff_argnames: the same by name.

    Give the rules with `defvjp(fwd, bwd)`: `fwd` takes the arguments and returns `(output,
    residuals)`; `bwd` takes the residuals and the cotangent of the output and returns a tuple with
    a cotangent for each argument, None for zero.

    Errors: AttributeError if no rules were defined before the first call; TypeError for forward-mode
    differentiation (`jvp`), which such functions do not have, and where rules return other trees;
    ValueError where they return other shapes or dtypes; UnexpectedTracerError for traced values at
    `nondiff_argnums`.

    Example:
        >>> @ferrax.custom_vjp
        ... def clip_gradient(x):
        ...     return x
        >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))
        >>> ferrax.grad(lambda x: 5 * clip_gradient(x))(2.0)
        Array(1., dtype=float32, weak_type=True)
    """

    kind = "custom_vjp"
    fwd = bwd = remat_rules = None
    optimize_remat = logs = accumulates = False

    def defvjp(
        self, fwd: Any, bwd: Any, symbolic_zeros: Any = False, optimize_remat: Any = False,
        generic_batching: bool = False,
    ) -> None:
        """Defines the rules.

        With `symbolic_zeros=True` `fwd` gets, for each leaf of its arguments, an object with
        `value` and `perturbed` (whether it is differentiated in), and `bwd` gets `SymbolicZero`s
        for cotangents that are zero. `optimize_remat=True` has the function itself called in place of
        `fwd` where a checkpoint keeps no residuals of it, so that its value is that of the function.
        `generic_batching` is False (NotImplementedError): rules are batched by `vmap` of what they do.
        """
        if generic_batching:
            raise NotImplementedError("defvjp: generic_batching=True is not available; vmap batches the rules")
        self.fwd = fwd
        self.bwd = bwd
        self.symbolic_zeros = symbolic_zeros
        self.optimize_remat = optimize_remat
        self.logs = self.accumulates = False

    def defvjp_with_logs(
        self, fwd: Any, bwd: Any, symbolic_zeros: Any = False, optimize_remat: Any = False,
        generic_batching: bool = False,
    ) -> None:
        """As `defvjp`, of a reverse rule that logs.

        Args: fwd, symbolic_zeros, optimize_remat, generic_batching: as for `defvjp`; bwd: returns a pair, the tuple of
        cotangents, and None or a dict of trees by their names, which `f_vjp.with_logs(cotangent)` gives for the
        `f_vjp` of `ferrax.vjp`. Other derivatives forget them.
        """
        self.defvjp(fwd, bwd, symbolic_zeros, optimize_remat, generic_batching)
        self.logs = True

    def defvjp_with_accums(
        self, fwd: Any, bwd: Any, symbolic_zeros: Any = False, optimize_remat: Any = False,
        generic_batching: bool = False,
    ) -> None:
        """As `defvjp`, of a reverse rule that puts cotangents into accumulators.

        Args: fwd, symbolic_zeros, optimize_remat, generic_batching: as for `defvjp`; bwd: takes, after the residuals
        and the cotangent of the output, trees like the arguments with a `hijax.ValAccum` for each array, or a
        `hijax.NullAccum` where there is no cotangent, whose method `accum` adds one. It returns None or a dict of
        logs (`defvjp_with_logs`).
        """
        self.defvjp(fwd, bwd, symbolic_zeros, optimize_remat, generic_batching)
        self.logs = self.accumulates = True

    def defremat(self, fwd: Any, rem: Any, bwd: Any, generic_batching: bool = False) -> None:
        """Rules for checkpoints, which are in use where the flag jax_custom_vjp3 is set, which it cannot be here:
        without rules by `defvjp` besides a call is a NotImplementedError.

        Args: fwd: the forward rule; rem: computes the output and residuals again; bwd: the reverse rule;
        generic_batching: as for `defvjp`.
        """
        self._defremat(fwd, rem, bwd, False, generic_batching)

    def defremat_with_logs(self, fwd: Any, rem: Any, bwd: Any, generic_batching: bool = False) -> None:
        """As `defremat`, of a reverse rule that logs.

        Args: fwd, rem, generic_batching: as for `defremat`; bwd: as for `defvjp_with_logs`.
        """
        self._defremat(fwd, rem, bwd, True, generic_batching)

    def _defremat(self, fwd, rem, bwd, logs, generic_batching):
        if generic_batching:
            raise NotImplementedError("defremat: generic_batching=True is not available; vmap batches the rules")
        self.remat_rules = fwd, rem, bwd, logs

    def _check_rules(self):
        if self.remat_rules is not None and (self.fwd is None or self.bwd is None):
            raise NotImplementedError(
                f"{api_util.fun_name(self.fun)}: the rules of custom_vjp.defremat need the flag jax_custom_vjp3, which "
                "is not available; give rules with defvjp, and choose by checkpoint_name what a checkpoint keeps"
            )
        if self.fwd is None or self.bwd is None:
            raise AttributeError(
                f"No VJP defined for the custom_vjp function {api_util.fun_name(self.fun)}: give "
                "its rules with defvjp before the call"
            )

    def _check_kept(self, call):
        for leaf in tree_util.tree_leaves(call.kept):
            if isinstance(leaf, core.Tracer):
                raise errors.UnexpectedTracerError(
                    f"the custom_vjp function {call.name} got a traced value of type "
                    f"{core.typeof(leaf)} at a position in nondiff_argnums. Only arguments that "
                    "are no arrays (functions, options) belong there: take the position out of "
                    "nondiff_argnums and return None as its cotangent."
                )

    def _check_result(self, call, result):
        ref_args.check_returned(self.fun, self.kind, tree_util.tree_leaves(result), result)

    def _record(self, call, kind):
        call.trace(kind)
        rule = _VjpRule(self, call)
        return _core.custom_vjp_call(
            call.call_program(),
            named_axes.kept(rule.forward),
            named_axes.kept(rule.backward),
            call.name,
            len(call.constants),
            self.symbolic_zeros,
            self.optimize_remat,
            [*call.constants, *call.arrays],
        )

    def _record_with_refs(self, call):
        if self.logs:
            raise NotImplementedError(
                f"the custom_vjp function {call.name}: defvjp_with_logs and defvjp_with_accums are not available for "
                "functions that use mutable arrays; use defvjp"
            )
        pure = custom_vjp(_named(self.fun, call.primal))
        rules = _RefRules(self, call)
        pure.defvjp(
            _named(self.fwd, rules.forward),
            _named(self.bwd, rules.backward),
            self.symbolic_zeros,
            self.optimize_remat,
        )
        return call.call(lambda *arrays: pure._call(arrays), True)


def _named(fun, own):
    def named(*args):
        return own(*args)

    named.__name__ = api_util.fun_name(fun)
    return named


class _RefRules:
    """The rules of a call that uses mutable arrays, as rules of a function of arrays."""

    def __init__(self, custom, call):
        self.custom = custom
        self.call = call

    def forward(self, arrays, values, tokens):
        if self.custom.symbolic_zeros:
            values, tokens = ([x.value for x in xs] for xs in (values, tokens))
        fwd, arguments = self.custom.fwd, self.call.arguments
        result, refs = self.call.run(lambda dynamic: fwd(*arguments(dynamic)), arrays, values)
        rule = f"Custom VJP fwd rule {api_util.fun_name(fwd)} for {self.call.place}"
        out, residuals = pair(result, rule, "the output and the residuals")
        held = [state.read(ref) for ref in refs]
        return (out, held, tokens), (ref_rules.take_refs(residuals, refs), held)

    def backward(self, residuals, cotangents):
        residuals, values = residuals
        out, _, tokens = cotangents
        tokens = [None if isinstance(token, SymbolicZero) else token for token in tokens]
        refs = self.call.backward_refs(values, tokens)
        starts = [state.held(ref) for ref in refs]
        residuals = ref_rules.put_refs(residuals, refs)
        result = self.call.replacing(refs, self.custom.bwd, *self.call.kept, residuals, out)
        result = tuple(result) if isinstance(result, list) else result
        flat: list[Any] = []
        is_zero = lambda x: x is None or isinstance(x, SymbolicZero)  # noqa: E731
        dynamic = self.call.dynamic
        if not isinstance(result, tuple) or len(result) != len(dynamic):
            raise TypeError(
                f"Custom VJP bwd rule {api_util.fun_name(self.custom.bwd)} for {self.call.place} "
                f"must produce a tuple with one entry for each of {len(dynamic)} arguments, but got "
                f"{result}."
            )
        for argument, cotangent in zip(dynamic, result):
            _flatten_up_to(argument, cotangent, is_zero, flat)
        numbers = self.call.numbers
        held = [None] * len(refs)
        for place, number in numbers.items():
            held[number] = flat[place]
        flat = [x for place, x in enumerate(flat) if place not in numbers]
        return flat, held, self.call.backward_values(refs, starts)


class CustomVJPPrimal:
    """An argument of a forward rule with symbolic zeros: its value, and whether it is
    differentiated in.

    >>> @ferrax.custom_vjp
    ... def double(x):
    ...     return 2 * x
    >>> double.defvjp(lambda x: (2 * x.value, x.perturbed), lambda perturbed, ct: (2 * ct,),
    ...               symbolic_zeros=True)
    >>> ferrax.grad(double)(3.0)
    Array(2., dtype=float32, weak_type=True)
    """

    def __init__(self, value: Any, perturbed: Any) -> None:
        self.value = value
        self.perturbed = perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The tree of the values of a tree of `CustomVJPPrimal`s.

    Errors: TypeError for other leaves.

    Example:
        >>> def fwd(x):  # of a custom_vjp with symbolic_zeros=True
        ...     x = custom_vjp_primal_tree_values(x)
        ...     return jnp.sin(x), jnp.cos(x)
    """

    def value(leaf):
        if not isinstance(leaf, CustomVJPPrimal):
            raise TypeError(
                f"custom_vjp_primal_tree_values: expected leaves of type CustomVJPPrimal, got "
                f"{type(leaf).__name__}"
            )
        return leaf.value

    return tree_util.tree_map(value, tree)


class _VjpRule:
    """Gives the programs of both rules."""

    def __init__(self, custom, call):
        self.custom = custom
        self.fwd, self.bwd = custom.fwd, custom.bwd
        self.logs, self.accumulates = custom.logs, custom.accumulates
        self.call = call
        self.forwards = {}
        self.backwards = {}
        # What the rules raised where they were traced ahead: the reverse rule by what it was asked for.
        self.failed = {}
        self.forward_failed = None
        # Whether the reverse rule asks for the values of cotangents.
        self.by_value = False
        if call.differentiated:
            key = call.perturbed if custom.symbolic_zeros else ()
            self.forward_failed = call.trace_ahead(functools.partial(self.trace_now, key))
        else:
            call.set_constants(call.captured)

    # Without symbolic zeros the rules do not know which inputs are perturbed.

    def key(self, perturbed):
        perturbed = tuple(perturbed[len(self.call.constants) :])
        return perturbed if self.custom.symbolic_zeros else ()

    def trace_now(self, key):
        """Traces both rules while values are at hand, the reverse rule inside the forward one."""
        call = self.call
        forward = _FlatForward(self, key if self.custom.symbolic_zeros else None)
        made = []

        def both(leaves):
            results = forward(leaves)
            residuals = [core.as_array(leaf) for leaf in results[forward.num_out :]]
            made.extend(self.try_backward(_FlatBackward(self, forward, None), residuals, key))
            return results

        place = f"the forward rule of {api_util.fun_place(call.fun)}"
        program, captured = call.traced_rule(both, call.types, call.arrays, "fwd", place)
        backward, reverse, reverse_captured = made
        call.set_constants(call.captured, captured, reverse_captured)
        # What the reverse rule captured comes to it as further residuals.
        program = call.with_constants(program, 0, captured)
        extra = [self.position(value) for value in reverse_captured]
        forward.traced_types = program.out_types[forward.num_out :]
        forward.program = program.with_outputs(extra)
        forward.extra = extra
        self.forwards[key] = forward
        if reverse is None:
            return
        count = len(reverse.in_types) - len(reverse_captured)
        residuals = count - len(forward.given_types)
        order = [*range(residuals), *range(count, count + len(extra)), *range(residuals, count)]
        self.backwards[key, backward.given] = reverse.rewire(order), backward.flags

    def try_backward(self, backward, residuals, key):
        """The reverse rule that was traced, its program and what that captures.

        A rule that asks for the values of cotangents, which are not known yet, is called when they
        are. Errors wait until somebody asks for the rule.
        """
        try:
            return backward, *self.trace_backward(backward, residuals)
        except VALUE_UNKNOWN as error:
            self.by_value = True
            linearized.orders.by_value += 1
            self.failed[key, backward.given] = error
        except Exception as error:
            self.failed[key, backward.given] = error
        return backward, None, []

    def position(self, value):
        return next(i for i, known in enumerate(self.call.constants) if known is value)

    def trace_backward(self, backward, residuals=None, places=None):
        call, forward = self.call, backward.forward
        types = forward.residual_types(residuals) + [
            ty for ty, given in zip(forward.given_types, backward.given) if given
        ]
        values = None
        if residuals is not None:
            values = [*residuals, *[None] * (len(types) - len(residuals))]
        place = f"the reverse rule of {api_util.fun_place(call.fun)}"
        with stepwise.asking(False):  # of this rule, not of what it calls
            return call.traced_rule(backward, types, values, "bwd", place, places)

    def forward(self, perturbed):
        return self.get_forward(self.key(perturbed)).program, []

    def get_forward(self, key):
        if self.forward_failed is not None:
            raise self.forward_failed
        if key not in self.forwards:
            call = self.call
            forward = _FlatForward(self, key if self.custom.symbolic_zeros else None)
            place = f"the forward rule of {api_util.fun_place(call.fun)}"
            program, captured = call.traced_rule(forward, call.types, None, "fwd", place)
            forward.traced_types = program.out_types[forward.num_out :]
            # The reverse rule, which is traced later, may close over what the call closes over.
            traced = [n for n, reference in enumerate(call.references) if reference is not None]
            program = call.over_call(program, 0, captured)
            forward.program = program.with_outputs(traced) if traced else program
            forward.extra = traced
            self.forwards[key] = forward
        return self.forwards[key]

    def call_backward(self, perturbed, given, residuals, cotangents, logs=None):
        """What the reverse rule's function gives for these values: `(results, flags)`, and what it logs in `logs`."""
        forward = self.get_forward(self.key(perturbed))
        count = forward.known.count(None)
        backward = _FlatBackward(self, forward, tuple(given))
        if logs is not None:
            self.check_unmapped(forward, given, residuals[:count], cotangents)
        results = backward([*residuals[:count], *cotangents])
        if logs is not None:
            for name, value in backward.logs.items():
                if name in logs:
                    raise ValueError(f"with_logs: {name!r} is logged twice in one backward pass, by {self.call.name}")
                logs[name] = value
        constants = len(self.call.constants)
        keep = [flag and wanted for flag, wanted in zip(backward.flags, perturbed[constants:])]
        found = iter(results)
        every = [next(found) if flag else None for flag in backward.flags]
        return [ct for ct, flag in zip(every, keep) if flag], [False] * constants + keep

    def check_unmapped(self, forward, given, residuals, cotangents):
        """Errors: NotImplementedError where values are those of several calls, as of a function that is mapped."""
        wanted = [ty for ty, flag in zip(forward.given_types, given) if flag]
        types = [*(forward.traced_types or [])[: len(residuals)], *wanted]
        if len(types) == len(residuals) + len(cotangents) and any(
            tuple(x.shape) != tuple(ty[0]) for x, ty in zip([*residuals, *cotangents], types)
        ):
            raise NotImplementedError(
                f"with_logs: {self.call.name}, whose reverse rule logs, is mapped by vmap; map the function that calls "
                "with_logs, or return what the rule would log"
            )

    def backward(self, perturbed, given):
        if stepwise.steps.asking and (self.by_value or self.logs and stepwise.steps.logging):
            raise stepwise.AskedRule(self)
        key, given = self.key(perturbed), tuple(given)
        forward = self.get_forward(key)
        if (key, given) in self.failed:
            raise self.failed[key, given]
        if (key, given) not in self.backwards:
            backward = _FlatBackward(self, forward, given)
            residuals = len(forward.traced_types)
            places = {number: residuals + i for i, number in enumerate(forward.extra)}
            program, captured = self.trace_backward(backward, None, places)
            types = [self.call.constant_types[number] for number in forward.extra]
            count = len(program.in_types) - len(captured)
            inputs = [*range(residuals), *types, *range(residuals, count)]
            program = self.call.closed(program, inputs, places, captured)
            self.backwards[key, given] = program, backward.flags
        program, flags = self.backwards[key, given]
        constants = len(self.call.constants)
        keep = [flag and wanted for flag, wanted in zip(flags, perturbed[constants:])]
        if keep != flags:
            outputs = iter(range(sum(flags)))
            numbers = [next(outputs) if flag else None for flag in flags]
            program = program.select_outputs([n for n, k in zip(numbers, keep) if k])
        return program, [False] * constants + keep


class _FlatForward:
    """The forward rule as a function of flat arguments: to outputs and residuals."""

    program: _core.Program

    def __init__(self, rule, perturbed):
        self.rule = rule
        self.perturbed = perturbed
        self.traced_types = None
        # Constants of the call that are further residuals: what the reverse rule closes over.
        self.extra = []
        call = rule.call
        # The cotangents that the reverse rule gets: of outputs of inexact dtype.
        self.given_types = [tangent_type(ty) for ty in call.out_types if dtypes.has_tangent(ty[1])]

    def residual_types(self, residuals):
        return self.traced_types if residuals is None else array_types(residuals)

    def __call__(self, leaves):
        rule, call = self.rule, self.rule.call
        if self.perturbed is not None:
            leaves = [CustomVJPPrimal(x, p) for x, p in zip(leaves, self.perturbed)]
        result = rule.fwd(*call.arguments(call.in_tree.unflatten(leaves)))
        name = f"Custom VJP fwd rule {api_util.fun_name(rule.fwd)} for function {call.name}"
        what = f"the output of {call.name} and the residuals for the reverse rule"
        out, residuals = pair(result, name, what)
        out = call.checked_output(*tree_util.tree_flatten(out), name)
        residuals, self.residual_tree = tree_util.tree_flatten(residuals)
        self.num_out = len(out)
        arrays = [core.as_array(leaf, name) for leaf in residuals]
        traced = [isinstance(leaf, core.Tracer) for leaf in residuals]
        self.known = [None if flag else (leaf,) for leaf, flag in zip(residuals, traced)]
        return out + [array for array, flag in zip(arrays, traced) if flag]

    def residuals(self, traced):
        """The residuals, of the traced ones among them: others are known when the rule is traced,
        and the reverse rule gets them as they are."""
        traced = iter(traced)
        leaves = [next(traced) if known is None else known[0] for known in self.known]
        return self.residual_tree.unflatten(leaves)


class _FlatBackward:
    """The reverse rule as a function of flat residuals and the cotangents that are there."""

    def __init__(self, rule, forward, given):
        self.rule = rule
        self.forward = forward
        self.given = (True,) * len(forward.given_types) if given is None else given

    def __call__(self, leaves):
        rule, call = self.rule, self.rule.call
        count = self.forward.known.count(None)
        residuals = self.forward.residuals(leaves[:count])
        there, flags = iter(leaves[count:]), iter(self.given)
        cotangents = []
        for ty in call.out_types:
            if not dtypes.has_tangent(ty[1]):
                symbolic = self.rule.custom.symbolic_zeros
                cotangents.append(symbolic_zero(ty) if symbolic else zeros(ty))
            elif next(flags):
                cotangents.append(next(there))
            else:
                cotangents.append(symbolic_zero(ty))
        given = *call.kept, residuals, call.out_tree.unflatten(cotangents)
        if rule.accumulates:
            result, logs = self.accumulated(given)
        elif rule.logs:
            name = f"Custom VJP bwd rule {api_util.fun_name(rule.bwd)} for function {call.name}"
            result, logs = pair(rule.bwd(*given), name, "the cotangents of the arguments and logs")
        else:
            result, logs = rule.bwd(*given), None
        if not isinstance(logs, dict | None):
            raise TypeError(
                f"Custom VJP bwd rule {api_util.fun_name(rule.bwd)} for function {call.name} must log None or a dict, "
                f"got {logs!r}"
            )
        self.logs = logs or {}
        return self.check(result)

    def accumulated(self, given):
        """The tuple of cotangents that the rule puts into accumulators, None for zeros, and what it returns."""
        call = self.rule.call
        avals = [core.ShapedArray(*ty[:2]) for ty in call.types]
        value, null = accumulators
        accums = [value(aval) if dtypes.has_tangent(aval.dtype) else null(aval) for aval in avals]
        logs = self.rule.bwd(*given, *call.in_tree.unflatten(accums))
        found = [accum.freeze() for accum in accums]
        return call.in_tree.unflatten([None if type(x) is Zero else x for x in found]), logs

    def check(self, result):
        call = self.rule.call
        name = f"Custom VJP bwd rule {api_util.fun_name(self.rule.bwd)} for function {call.name}"
        result = tuple(result) if isinstance(result, list) else result
        dynamic = call.dynamic()
        flat: list[Any] = []
        is_zero = lambda x: x is None or isinstance(x, SymbolicZero)  # noqa: E731
        if isinstance(result, tuple) and len(result) == len(dynamic):
            for argument, cotangent in zip(dynamic, result):
                try:
                    _flatten_up_to(argument, cotangent, is_zero, flat)
                except (ValueError, TypeError):
                    break
        if len(flat) != len(call.types):
            raise TypeError(
                f"{name} must produce an output with the container (pytree) structure of the "
                "function's arguments: a tuple with one entry for each of "
                f"{len(dynamic)} arguments, of structure {call.in_tree}, but got "
                f"{tree_util.tree_structure(result, is_leaf=is_zero)}."
            )
        self.flags, results = [], []
        for position, (cotangent, ty) in enumerate(zip(flat, call.types)):
            there = not is_zero(cotangent) and dtypes.has_tangent(ty[1])
            self.flags.append(there)
            if not there:
                if isinstance(cotangent, SymbolicZero) and cotangent.shape != ty[0]:
                    path = tree_util.keystr(tree_util.tree_leaves_with_path(dynamic)[position][0])
                    raise ValueError(
                        f"{name} gave a symbolic zero of shape {cotangent.shape} at output{path}, for an "
                        f"argument of type {show(ty)}. None stands for zeros of any argument."
                    )
                continue
            cotangent = core.as_array(cotangent, name)
            got = (cotangent.shape, cotangent.dtype, False)
            if got[0] == ty[0] and got[1] != ty[1] and not dtypes.issubdtype(got[1], dtypes.extended):
                # Rules may compute in another precision.
                cotangent = _convert_element_type(cotangent, ty[1], weak_type=False)
            elif got != tangent_type(ty)[:3]:
                path = tree_util.keystr(tree_util.tree_leaves_with_path(dynamic)[position][0])
                raise ValueError(
                    f"{name} must produce cotangents of the types of the function's arguments, but "
                    f"at output{path} it gave {show(got)} for an argument of type {show(ty)}."
                )
            if cotangent._varying != (own := dual_texts(*ty[3:]) if len(ty) > 3 else ()):
                path = tree_util.keystr(tree_util.tree_leaves_with_path(dynamic)[position][0])
                more, less = set(cotangent._varying) - set(own), set(own) - set(cotangent._varying)
                axes = tuple(map(named_axes.from_text, sorted(more or less)))
                way = f"lax.psum(..., {axes})" if more else f"lax.pcast(..., {axes}, to='varying')"
                raise ValueError(
                    f"{name}: the cotangent at output{path} {'may differ' if more else 'is the same'} along {axes} of "
                    f"the mesh, and the argument {'is the same' if more else 'may differ'}. This might be fixed by "
                    f"{way} in the rule, or by check_vma=False in shard_map."
                )
            results.append(cotangent)
        return results


def _flatten_up_to(argument, cotangent, is_zero, flat):
    """Appends a cotangent for each leaf of an argument: `cotangent` is a prefix of it, where None
    stands for zeros."""
    tree = tree_util.tree_structure(argument)
    if is_zero(cotangent):
        # A zero of one argument keeps its type, which is checked.
        typed = tree_util.treedef_is_leaf(tree) and cotangent is not None
        flat.extend([cotangent] if typed else [None] * tree.num_leaves)
        return
    leaves, found = tree_util.tree_flatten(cotangent, is_leaf=is_zero)
    if tree_util.treedef_is_leaf(found):
        flat.extend(leaves * tree.num_leaves)
        return
    if found == tree:
        flat.extend(leaves)
        return
    children, node = tree_util.tree_flatten(argument, is_leaf=lambda x: x is not argument)
    parts, found = tree_util.tree_flatten(cotangent, is_leaf=lambda x: x is not cotangent)
    if tree_util.treedef_is_leaf(tree) or node != found:
        raise ValueError("other structures")
    for child, part in zip(children, parts):
        _flatten_up_to(child, part, is_zero, flat)


def custom_gradient(
    fun: Callable[..., Any] | None = None, *, with_logs: bool = False, remat: bool = False, with_accums: Any = None
) -> Callable[..., Any]:
    """A function with a gradient of its own, in the style of TensorFlow: `fun` returns `(output,
    pullback)`, where `pullback` takes the cotangent of the output and returns those of the
    arguments (a single one, or a tuple). Without `fun`, a decorator.

    Args: fun: the function; with_logs: whether the pullback returns a pair, of cotangents and logs, as a reverse rule
    of `custom_vjp.defvjp_with_logs`; remat, with_accums: False and None.

    Errors: NotImplementedError for other `remat` and `with_accums`; TypeError where `fun` returns anything else; see
    `custom_vjp` for the rest.

    Example:
        >>> @ferrax.custom_gradient
        ... def square(x):
        ...     return x**2, lambda g: g * x
        >>> ferrax.grad(square)(3.0)
        Array(3., dtype=float32, weak_type=True)
    """
    for name, value in (("remat", remat), ("with_accums", with_accums)):
        if value not in (False, None):
            raise NotImplementedError(f"custom_gradient: {name}={value!r} is not available; use custom_vjp")
    if fun is None:
        return functools.partial(custom_gradient, with_logs=with_logs)

    @custom_vjp
    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        out, _ = fun(*args, **kwargs)
        return out

    def fwd(*args, **kwargs):
        out, rule = fun(*args, **kwargs)
        example = tree_util.tree_map(lambda x: zeros(array_types([core.as_array(x)])[0]), out)
        converted, consts = closure_convert_all(rule, example)
        return out, _Residuals(consts, (converted,))

    def bwd(residuals, cotangent):
        (converted,) = residuals.static
        result = converted(cotangent, *residuals.arrays)
        if with_logs:
            result, logs = pair(result, f"the pullback of {api_util.fun_name(fun)}", "cotangents and logs")
            return result if isinstance(result, tuple) else (result,), logs
        return result if isinstance(result, tuple) else (result,)

    def closure_convert_all(rule, example):
        return closure_convert(rule, example, every=True)

    (wrapped.defvjp_with_logs if with_logs else wrapped.defvjp)(fwd, bwd)
    return wrapped


class _Residuals:
    """Arrays with something that is none, as a pytree node."""

    def __init__(self, arrays, static):
        self.arrays = arrays
        self.static = static


tree_util.register_pytree_node(
    _Residuals,
    lambda node: (tuple(node.arrays), node.static),
    lambda static, arrays: _Residuals(arrays, static),
)

