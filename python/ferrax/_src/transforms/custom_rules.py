"""What `custom_jvp` and `custom_vjp` share: arguments taken apart, calls traced, rules asked for.

A rule is traced when a transformation first needs it. Where the call happens under an eager `grad`
or `jvp` (values are known on demand there) it is traced at once, with the values at hand, so that
Python control flow on them works in rules too.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes, errors
from ferrax._src.core import api_util
from ferrax._src.lax.creation import full
from ferrax._src.state import Ref, at_user_line, type_text
from ferrax._src.tracing.staging import Flat
from ferrax._src.transforms import linearized, ref_rules
from ferrax._src.tree import tree_util

P = ParamSpec("P")
R = TypeVar("R")

# What asking for a value raises that is not known.
VALUE_UNKNOWN = (
    errors.ConcretizationTypeError,
    errors.TracerArrayConversionError,
    errors.TracerIntegerConversionError,
)


def array_types(arrays) -> list[tuple]:
    return list(map(core.abstract_type, arrays))


def tangent_type(ty):
    shape, dtype, _, *varying = ty
    return (shape, dtype if dtypes.has_tangent(dtype) else dtypes.float0, False, *varying)


def show(ty) -> str:
    return str(core.ShapedArray(*ty[:2]))


def zeros(ty):
    """Zero tangents of values of this type."""
    shape, dtype, *_ = ty
    if not dtypes.has_tangent(dtype):
        return np.zeros(shape, dtypes.float0)

    return full(shape, 0, dtype)


class SymbolicZero:
    """A tangent or cotangent that is known to be zero, of type `aval`.

    Rules defined with `symbolic_zeros=True` get these in place of arrays of zeros.

    >>> from ferrax.custom_derivatives import SymbolicZero, zero_from_primal
    >>> isinstance(zero_from_primal(1.0, symbolic_zeros=True), SymbolicZero)
    True
    """

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.aval.shape))

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicZero) and self.aval == other.aval

    def __hash__(self) -> int:
        return hash((SymbolicZero, self.aval.shape, str(self.aval.dtype)))


def symbolic_zero(ty) -> SymbolicZero:
    return SymbolicZero(core.ShapedArray(*tangent_type(ty)))


def zero_from_primal(value: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of `value`: a tree of arrays, or of `SymbolicZero`s.

    Args: value: a tree of arrays and scalars; symbolic_zeros: whether to return `SymbolicZero`s.

    Errors: TypeError for leaves that are no arrays.

    Example:
        >>> from ferrax.custom_derivatives import zero_from_primal
        >>> zero_from_primal({"a": jnp.float32(3.0)})
        {'a': Array(0., dtype=float32)}
    """

    def zero(leaf):
        ty = array_types([core.as_array(leaf, "zero_from_primal")])[0]
        return symbolic_zero(ty) if symbolic_zeros else linearized.tangent_zeros(*ty)

    return tree_util.tree_map(zero, value)


def forwarded_attribute(self, name: str) -> Any:
    """`__getattr__` of decorators: those that define rules are the decorated function's too."""
    if name.startswith("def") and "fun" in self.__dict__:
        return getattr(self.fun, name)
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def resolve_arguments(fun, kind, args, kwargs) -> tuple:
    """`args` and `kwargs` as positions of `fun`, with its defaults."""
    plain = fun._function if isinstance(fun, _core.PjitFunction) else fun
    if not kwargs and not api_has_defaults(plain) and len(args) >= plain.__code__.co_argcount:
        return args
    try:
        signature = inspect.signature(fun)
    except (ValueError, TypeError):
        if kwargs:
            raise
        return args
    bound = _bound(signature, fun, kind, args, kwargs)
    if bound.kwargs:
        raise TypeError(
            f"keyword-only arguments of the {kind} function {api_util.fun_place(fun)} could not "
            f"be put in positions: {sorted(bound.kwargs)}. Make them positional."
        )
    # Keyword-only arguments keep their defaults: rules do not see them.
    bound.apply_defaults()
    return bound.args


def _bound(signature, fun, kind, args, kwargs) -> inspect.BoundArguments:
    """Errors: TypeError for arguments that the function does not take."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"the arguments of the {kind} function {api_util.fun_place(fun)} could not be put in "
            f"positions: {error}"
        ) from None


def check_arguments(fun, kind, args) -> None:
    """Errors: TypeError for arguments that the function does not take, as `resolve_arguments` has it."""
    with contextlib.suppress(ValueError):  # of a function without a signature
        _bound(inspect.signature(fun), fun, kind, args, {})


def api_has_defaults(fun) -> bool:
    return bool(getattr(fun, "__defaults__", None)) or not hasattr(fun, "__code__")


class CustomFunction(Generic[P, R]):
    """A function with rules of its own; `kind` is the name of what made it one.

    Subclasses have `_check_rules`, which raises AttributeError where there are none yet; `_record`,
    which traces a `Call` and records it with them; and `_record_with_refs`, the same for a `RefCall`.
    """

    kind: str

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        functools.update_wrapper(self, fun)
        api_util.check_callable(fun)
        # The rules of its arguments are those of `__call__`.
        self.fun: Callable[..., R] = fun
        self.nondiff_argnums = nondiff_positions(fun, nondiff_argnums, nondiff_argnames)
        self.symbolic_zeros = False

    __getattr__ = forwarded_attribute

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_rules()
        if not (kwargs or self.nondiff_argnums or _core.ref_frames() or _has_ref(args)):
            try:
                return self.fun(*args)
            except TypeError:
                check_arguments(self.fun, self.kind, args)
                raise
        given = resolve_arguments(self.fun, self.kind, args, kwargs)
        if ref_rules.with_refs(self, given):
            return self._call_with_refs(given, ())
        try:
            return self._call(given)
        except UsesRefs as found:
            refs = found.refs
        return self._call_with_refs(given, refs)

    def _check_rules(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _check_rules")

    def _record(self, call, kind) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _record")

    def _record_with_refs(self, call) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _record_with_refs")

    def _call(self, args):
        call = Call(self.fun, self.nondiff_argnums, args, self.kind)
        self._check_kept(call)
        kind = recording_kind(call)
        if kind is None:
            return call.run()
        results = self._record(call, kind)
        call.forget_values()
        return call.out_tree.unflatten(results)

    def _check_kept(self, call):
        """Errors for arguments at `nondiff_argnums` that do not belong there."""

    def _check_result(self, call, result):
        """Errors for what a function that uses mutable arrays may not return where nothing is recorded."""

    def _call_with_refs(self, args, closed):
        """A call that uses mutable arrays, among the arguments or those of `closed`."""
        call = ref_rules.RefCall(self, args, closed, self.kind)
        if not call.recorded():
            result = self.fun(*args)
            self._check_result(call, result)
            return result
        try:
            return self._record_with_refs(call)
        except UsesRefs as found:
            refs = call.found(found.refs)
        return self._call_with_refs(args, [*closed, *refs])


def _has_ref(args) -> bool:
    for x in args:  # noqa: SIM110  a generator expression would cost three times this loop
        if type(x) is Ref:
            return True
    return False


def nondiff_positions(fun, argnums, argnames) -> tuple[int, ...]:
    argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not argnames:
        return argnums
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    parameters = list(inspect.signature(fun).parameters)
    for name in names:
        if name not in parameters:
            raise ValueError(
                f"nondiff_argnames has '{name}', which {api_util.fun_place(fun)} does not take"
            )
    return tuple(sorted({*argnums, *(parameters.index(name) for name in names)}))


def pair(result, rule, what):
    """The two parts of what a rule returned; TypeError if it is no pair of `what`."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(
            f"{rule}: expected a pair of {what}, as a tuple or list, got {result}."
        )
    return result


class UsedDerivatives:
    """A context in which so many derivatives are used up by rules that are being traced."""

    __slots__ = ("count", "before")

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        self.before = linearized.orders.used
        linearized.orders.used = self.count

    def __exit__(self, *exc):
        linearized.orders.used = self.before


class UsesRefs(Exception):  # noqa: N818
    """A function or rule that was traced as one of arrays uses these mutable arrays."""

    def __init__(self, refs):
        super().__init__(refs)
        self.refs = list(refs)


class Call:
    """One call of a function with rules of its own: arguments, traced program, captured values."""

    def __init__(self, fun, nondiff, args, kind):
        for position in nondiff:
            if not -len(args) <= position < len(args):
                raise IndexError(
                    f"{kind}: nondiff_argnums has {position}, but {api_util.fun_place(fun)} was "
                    f"called with {len(args)} arguments"
                )
        self.nondiff = tuple(sorted(position % len(args) for position in nondiff))
        self.kept, dynamic = api_util.split_arguments(args, self.nondiff)
        self.fun = fun
        self.kind = kind
        self.name = api_util.fun_name(fun)
        self.leaves, self.in_tree = tree_util.tree_flatten(dynamic)
        self.arrays = [core.as_array(leaf, self.name) for leaf in self.leaves]
        self.types = array_types(self.arrays)
        self.tangents = [dtypes.has_tangent(ty[1]) for ty in self.types]
        # Once the call is recorded: its constants that are traced, weakly, None for others.
        self.references: Sequence[Any] = ()

    def run(self):
        """The function where nothing records the call.

        Errors: UnexpectedTracerError if it closes over what is differentiated.
        """
        out = self.fun(*self.arguments(self.dynamic()))
        traced = [leaf for leaf in tree_util.tree_leaves(out) if isinstance(leaf, core.Tracer)]
        found = _core.recording_frame(traced) if traced else None
        if found is not None and found[0] == "diff":
            raise errors.UnexpectedTracerError(
                f"the {self.kind} function {api_util.fun_place(self.fun)} closes over a value that "
                "is being differentiated, and its rule gives no derivative with respect to that "
                "value. Pass the value as an argument of the function; closure_convert makes "
                "arguments of what a function closes over."
            )
        return out

    def trace(self, kind):
        """Traces the function; `kind` is that of the frame which records the call."""
        orders = linearized.orders
        concrete = kind in ("diff", "value")
        # A rule that calls the function itself finds a value frame. The rules of that call wait,
        # unless another derivative goes through the rule.
        self.in_rule = kind == "value"
        self.differentiated = kind == "diff" or (
            kind == "value" and orders.used < orders.derivatives
        )
        whole = tree_util.tree_structure((self.dynamic(), {}))
        flat = Flat(self.fun, whole, fixed=self.arguments)
        names = lambda: api_util.argument_names(self.fun, self.arguments(self.dynamic()), {})  # noqa: E731
        # What the function itself records is not differentiated: its rules are.
        with UsedDerivatives(orders.derivatives):
            self.program, self.captured, self.touched = _core.trace_program(
                flat,
                "value" if concrete else "stage",
                self.name,
                self.arrays,
                names,
                self.arrays,
            )
        if self.touched is not None:
            raise UsesRefs(self.touched.entries)
        self.out_tree = flat.out_tree
        self.out_types = self.program.out_types

    def checked_output(self, leaves, tree, rule):
        """The arrays of an output that a rule gave. Errors: TypeError if it is not of the structure
        and types of the function's."""
        if tree != self.out_tree:
            raise TypeError(
                f"{rule} must produce a pair whose first element has the container (pytree) "
                f"structure of the output of {self.name}, {self.out_tree}, but got {tree}."
            )
        arrays = [core.as_array(leaf, rule) for leaf in leaves]
        for ty, expected in zip(array_types(arrays), self.out_types):
            if ty[:2] != tuple(expected[:2]):
                raise TypeError(
                    f"{rule} must produce a pair whose first element has the shapes and dtypes of "
                    f"the output of {self.name}: expected {show(expected)}, got {show(ty)}."
                )
        return arrays

    def dynamic(self):
        return self.in_tree.unflatten(self.leaves)

    def arguments(self, dynamic):
        return api_util.join_arguments(self.nondiff, self.kept, dynamic)

    def traced_rule(self, flat, types, values, what, place, places=None):
        """A rule's program over `types` with its captured values: traced with the values that the
        call has now (`values`), or, when a transformation asks for it later, without (None).

        Errors: UnexpectedTracerError if it is traced later and closes over traced values other than
        those of the call's constants (where not all of them are at hand: those in `places`).
        """
        if values is not None:
            with UsedDerivatives(linearized.orders.used + 1):
                program, captured, touched = _core.trace_program(
                    flat, "value", f"{self.name}_{what}", types, None, values
                )
            if touched is not None:
                raise UsesRefs(touched.entries)
            return program, captured
        program, captured, touched = _core.trace_program(
            flat, "stage", f"{self.name}_{what}", types
        )
        if touched is not None:
            raise ValueError(
                f"{place} closes over a mutable array of type {type_text(next(iter(touched.entries)))}."
                " Rules are traced on their own here: pass the array as an argument of the function"
                f", and from the forward to the reverse rule as a residual.{at_user_line()}"
            )
        passed = self.passed()
        for value in captured:
            number = passed.get(id(value))
            known = number is not None and (places is None or number in places)
            if isinstance(value, core.Tracer) and not known:
                raise errors.UnexpectedTracerError(
                    f"{place} closes over a value of type {core.typeof(value)} that is being "
                    f"traced: {_core.describe_tracer(value)}. Rules are traced on their own: pass "
                    "the value as an argument of the function, or as a residual."
                )
        return program, captured

    def trace_ahead(self, trace):
        """Traces rules while values are at hand. Errors wait, as nobody asks for the rule of a call
        whose arguments turn out to have no tangents, behind `stop_gradient` for instance. Returns the
        error for those who ask; None where they are to trace the rule themselves, without values. What
        says how to go on is raised at once."""
        try:
            trace()
        except (UsesRefs, *VALUE_UNKNOWN):
            if not self.in_rule:
                raise
            self.set_constants(self.captured)
        except Exception as error:
            self.set_constants(self.captured)
            return None if self.in_rule else error
        return None

    def with_constants(self, program, own, rule_captured):
        """`program` over all inputs of the recorded call: its constants, those of the rule (where
        the rule was traced with the call) and its arguments; then `own` further inputs.

        `rule_captured` are the captured values of `program`, which are its last inputs.
        """
        count = len(self.types)
        index = {id(value): i for i, value in enumerate(self.constants)}
        inputs = list(self.constant_types)
        for number, value in enumerate(rule_captured):
            inputs[index[id(value)]] = count + own + number
        return program.rewire(inputs + list(range(count + own)))

    def set_constants(self, *captured):
        """What the recorded call captures: what its program does and what its rules do."""
        self.constants = []
        seen = set()
        for value in (value for values in captured for value in values):
            if id(value) not in seen:
                seen.add(id(value))
                self.constants.append(value)
        self.constant_types = [core_type(value) for value in self.constants]

    def forget_values(self):
        """Once the call is recorded: its rules, which live as long as the program that it is in,
        need types and structures alone, and traced values must not outlive their trace."""
        self.references = [
            weakref.ref(value) if isinstance(value, core.Tracer) else None
            for value in self.constants
        ]
        self.constants = self.constant_types
        self.leaves = [0.0] * len(self.leaves)
        self.arrays = self.captured = None  # type: ignore[assignment]  # nobody may ask any more

    def passed(self):
        """The numbers of those of the call's constants that are traced, by identity. A value that
        nobody holds any longer is not among them."""
        values = [reference and reference() for reference in self.references]
        return {id(value): i for i, value in enumerate(values) if value is not None}

    def over_call(self, program, own, captured):
        """The program of a rule that was traced by itself over all inputs of the recorded call, as
        `with_constants`. Traced values that it closes over come from the call's constants; others
        become part of the program."""
        inputs = [*self.constant_types, *range(len(self.types) + own)]
        places = {number: number for number in range(len(self.constant_types))}
        return self.closed(program, inputs, places, captured)

    def closed(self, program, inputs, places, captured):
        """A rule's program over `inputs`, its own or types of others. A traced value that it closes
        over is the one of these that `places` has for the number of the call's constant."""
        passed = self.passed()
        first = len(program.in_types) - len(captured)
        inputs, rest = list(inputs), []
        for number, value in enumerate(captured, first):
            if isinstance(value, core.Tracer):
                inputs[places[passed[id(value)]]] = number
            else:
                rest.append(number)
        values = [captured[number - first] for number in rest]
        return program.rewire(inputs + rest).bind_constants(values)

    def call_program(self):
        """The function's program with the constants in front."""
        return self.with_constants(self.program, 0, self.captured)


def core_type(value):
    return (value.shape, value.dtype, value.weak_type)


def recording_kind(call) -> str | None:
    """The kind of frame that records a call; None if it runs at once. Notes in the call which of
    its arguments that frame differentiates in, as far as can be told before it ends."""
    kept = [leaf for leaf in tree_util.tree_leaves(call.kept) if isinstance(leaf, core.Tracer)]
    found = _core.recording_frame([*call.arrays, *kept])
    if found is None:
        return None
    kind, own = found
    call.perturbed = tuple(flag and its for flag, its in zip(call.tangents, own))
    return kind
