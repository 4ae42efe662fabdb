"""Primitives that users define by methods: `HiPrim`, in JAX 0.10 `VJPHiPrimitive`.

In go types of inputs and outputs, and values of them; the methods say what the primitive does to values, tangents and
batches. A call is one equation (`rules`); where a value is no array in a program (a mutable array, a box), or the
primitive has effects, it is what it does, written out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ferrax import _core
from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.experimental.hi.accums import GradAccum, NullAccum, ValAccum, is_zero
from ferrax._src.experimental.hi.derived import check_ends, is_derived
from ferrax._src.experimental.hi.rules import ByJvp, Rules, call_p
from ferrax._src.experimental.hi.slots import Slots
from ferrax._src.tracing import staging
from ferrax._src.tracing.values_as_arrays import is_hi
from ferrax._src.transforms.ad import is_undefined_primal
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.linearized import asks_for_checkpoints
from ferrax._src.tree import opaque, tree_util


def _is_own(method) -> bool:
    """Whether a method is one of a user's, made of no other rule."""
    return method.__module__ != __name__ and not is_derived(method)


class HiPrim:
    """Base of primitives over values of any type, which a class derives from it defines by methods.

    The class sets, in `__init__`, `in_avals`, a tuple of (trees of) the types of arguments, `out_aval`, the
    (tree of) types of the result, and `params`, a dict whose entries become attributes, and then calls
    `super().__init__()`. `effects` is a set of effects, none unless given. It has `expand`, and of the other methods
    those of the transformations that it is to go through; where a value is made of arrays whose tangents are the
    value's, and none is given, derivatives and batches are those of `expand`. `dce` and `remat` are for programs that
    ask for them: the compiler drops whole equations, and checkpoints compute them again. With effects, or where a
    value is a mutable array or a box, a call is what `expand` does, and so is its derivative.

    Errors: AttributeError where an attribute is missing, and for a class with both `vjp_bwd` and `vjp_bwd_retval`;
    NotImplementedError by a transformation for which a method is missing; TypeError for arguments of other types.

    Example:
        >>> class Cube(hijax.HiPrim):
        ...     def __init__(self, aval):
        ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        ...         super().__init__()
        ...     def expand(self, x):
        ...         return x ** 3
        ...     def vjp_fwd(self, nonzero, x):
        ...         return self(x), x
        ...     def vjp_bwd(self, x, ct, x_accum):
        ...         x_accum.accum(3 * ct * x * x)
        >>> ferrax.grad(lambda x: Cube(ferrax.typeof(x))(x))(2.0)
        Array(12., dtype=float32, weak_type=True)
    """

    in_avals: Any
    out_aval: Any
    params: dict[str, Hashable]
    effects: Any = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if _is_own(cls.jvp) and _is_own(cls.vjp_fwd):
            asks_for_checkpoints[0] = True

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"{type(self).__name__}.__init__ has to set self.{name} before super().__init__()")
        if _overrides(self, "vjp_bwd") and _overrides(self, "vjp_bwd_retval"):
            raise AttributeError(f"{type(self).__name__} defines both vjp_bwd and vjp_bwd_retval: one is enough")
        self.in_avals_flat, self.in_tree = tree_util.tree_flatten(self.in_avals)
        self.out_avals_flat, self.out_tree = tree_util.tree_flatten(self.out_aval)
        self.__dict__.update(self.params)
        self._made: Any = None
        self.check(*self.in_avals)

    @property
    def _rules(self) -> PrimRules:
        if self._made is None:
            self._made = PrimRules(self)
        return self._made

    def check(self, *arg_tys: Any) -> None:
        """Errors for types of arguments that the primitive does not take: none unless overridden."""

    def expand(self, *args: Any) -> Any:
        """The result, computed by other functions."""
        raise self._missing("expand", "")

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> tuple[Any, ...]:
        """The result and residuals, and maybe which results have tangents, and residuals that `vjp_bwd` gets by
        themselves; `nzs_in` says which arguments have tangents."""
        raise self._missing("vjp_fwd", "for grad support, ")

    def vjp_bwd(self, res: Any, outgrad: Any, /, *arg_accums: Any) -> Any:
        """Adds to each argument's accumulator its cotangent, from residuals and the cotangent of the result.

        After a `vjp_fwd` of four results it gets the fourth behind the residuals. What it returns, a dict of what is
        to be logged or None, is not used.
        """
        found, logs = self.vjp_bwd_retval_logs(res, outgrad)
        pairs = zip(self.in_tree.flatten_up_to(arg_accums), _spread(self.in_tree, found))
        for accum, ct in pairs:
            if isinstance(accum, GradAccum):
                accum.accum(ct)
        return logs

    def vjp_bwd_retval_logs(self, res: Any, outgrad: Any, /) -> tuple[Any, Any]:
        """What `vjp_bwd_retval` gives, and what is to be logged, which is not used."""
        return self.vjp_bwd_retval(res, outgrad), None

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        """A tuple of the arguments' cotangents, from residuals and the cotangent of the result."""
        raise self._missing("vjp_bwd` or `vjp_bwd_retval", "for grad support, ")

    def jvp(self, primals: Any, tangents: Any) -> tuple[Any, Any]:
        """The result and its tangent, from tuples of arguments and their tangents, `Zero`s among these."""
        raise self._missing("jvp", "for jvp support, ")

    def lin(self, nzs_in: Any, *primals: Any) -> tuple[Any, ...]:
        """The result and residuals for `linearized`, and maybe more as `vjp_fwd` has it."""
        raise self._missing("lin` and `linearized", "for linearize support, ")

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        """The tangent of the result, from those of the arguments; a fourth result of `lin` comes before these."""
        raise self._missing("lin` and `linearized", "for linearize support, ")

    def transpose(self, out_ct: Any, *maybe_accums: Any) -> None:
        """Adds cotangents to the accumulators that stand for the arguments in which the primitive is linear."""
        raise self._missing("transpose", "for transpose support, ")

    def batch(self, axis_data: Any, args: Any, dims: Any) -> tuple[Any, Any]:
        """The result of a batch and where it has the axis; `dims` says where the arguments have it."""
        raise self._missing("batch` or `batch_dim_rule", "for vmap support, ")

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        """Where the result of a batch has the axis, the rest being mapped."""
        raise self._missing("batch` or `batch_dim_rule", "for vmap support, ")

    def dce(self, used_outs: Any, _live_ins: Any = None) -> tuple[Any, Any, Any]:
        """Which arguments are used, and which results made by which primitive, where only these results are used."""
        if any(tree_util.tree_leaves(used_outs)):
            return True, True, self
        return False, False, None

    def remat(self, _policy: Any, *args: Any) -> tuple[Any, Any]:
        """The result, and what computes it again."""
        return self(*args), self

    def __call__(self, *args: Any) -> Any:
        leaves, tree = opaque.flatten(args)
        if tree != self.in_tree:
            raise TypeError(f"{type(self).__name__} was made for arguments {self.in_avals}, got {args}")
        written_out = self.effects or not all(map(_is_value, (*self.in_avals_flat, *self.out_avals_flat)))
        if _core.trace_state_clean():
            return self.expand(*args)
        if _overrides(self, "staging"):
            return self.staging(None, None, *args)
        if written_out:
            return self.expand(*args)
        return self._bind(leaves, args)

    def staging(self, _trace: Any, _source_info: Any, /, *args: Any) -> Any:
        """The result where a function is traced: one equation, unless overridden. The first two arguments, which JAX
        has, are None."""
        return self._bind(opaque.flatten(args)[0], args)

    def _bind(self, leaves, args):
        rules = self._rules
        rules.learn(args)
        # What a checkpoint computes again is differentiated by the forward rule, as in JAX.
        prim = ByJvp(rules) if rules.has_jvp and named_axes.is_checkpointed() else self
        return rules.outs.raise_(call_p.bind(*rules.ins.lower(leaves), _prim=prim))

    def _missing(self, method, what):
        return NotImplementedError(f"{what}{type(self).__name__} must implement `{method}`")

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.pp_params()}]"

    def pp_params(self) -> dict[str, Any]:
        """What of `params` is shown: all but names that begin with an underscore."""
        return {name: value for name, value in self.params.items() if not name.startswith("_")}

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self.params.items()), frozenset(self.effects)))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, HiPrim):
            return False
        return (self.params, self.effects, self.in_avals) == (other.params, other.effects, other.in_avals)


class VJPHiPrimitive(HiPrim):
    """`HiPrim` under its name in JAX 0.10.

    >>> class Twice(hijax.VJPHiPrimitive):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return 2 * x
    >>> Twice(ferrax.typeof(1.0))(1.0)
    2.0
    """


def _is_value(aval) -> bool:
    return isinstance(aval, core.ShapedArray) or is_hi(aval)


def _overrides(prim, name) -> bool:
    return _is_own(getattr(type(prim), name))


def _spread(tree, values):
    """One value for each leaf of a tree, of which `values` is a prefix; None stands for zeros."""
    values = tuple(values) if isinstance(values, list) else values
    try:
        return tree.flatten_up_to(values)
    except (ValueError, TypeError):
        is_leaf = opaque.leaf_test(is_zero)
        dummy = tree.unflatten([0] * tree.num_leaves)
        return tree_util.broadcast_prefix(values, dummy, is_leaf)


class PrimRules(Rules):
    """The rules of a primitive, over the arrays of its values."""

    def __init__(self, prim: Any) -> None:
        self.prim = prim
        self.name = type(prim).__name__
        self.has_vjp = _overrides(prim, "vjp_fwd")
        self.has_jvp = _overrides(prim, "jvp")
        self.has_lin = _overrides(prim, "lin")
        check_ends(prim)
        self.set_slots(prim.in_avals, prim.out_aval)

    def set_slots(self, in_avals: Any, out_aval: Any) -> None:
        """Says of which types inputs and outputs are."""
        self.ins = Slots(in_avals, f"an argument of {self.name}")
        self.outs = Slots(out_aval, f"the result of {self.name}")
        if all(slot.known for slot in (*self.ins.slots, *self.outs.slots)):
            self._note()

    def _note(self):
        self.in_types, self.out_types = self.ins.types, self.outs.types
        self.in_active, self.out_active = self.ins.active, self.outs.active
        self.carried = any(slot.carried for slot in (*self.ins.slots, *self.outs.slots))

    def __repr__(self) -> str:
        return repr(self.prim)

    def learn(self, args: Any) -> None:
        """Notes of which arrays values are made whose types do not say so."""
        if hasattr(self, "in_types"):
            return
        for slot, value in zip(self.ins.slots, opaque.flatten(args)[0]):
            slot.learn(value)
        if not all(slot.known for slot in self.outs.slots):
            staging.stage(self._learn_result, args, {})
        self._note()

    def _learn_result(self, *args):
        for slot, value in zip(self.outs.slots, opaque.flatten(self.prim.expand(*args))[0]):
            slot.learn(value)

    def _args(self, arrays):
        return self.ins.raise_(arrays)

    def _lower_outs(self, value, what):
        leaves, tree = opaque.flatten(value)
        if tree != self.outs.tree:
            raise TypeError(
                f"{what} of {self.name} gave {value!r}, of structure {tree}, where out_aval says {self.outs.tree}"
            )
        return self.outs.lower(leaves)

    def run(self, arrays):
        return self._lower_outs(self.prim.expand(*self._args(arrays)), "expand")

    def _flags(self, nonzero):
        """Which inputs have tangents, in their tree."""
        return self.ins.tree.unflatten([any(own) for own in self.ins.split(nonzero)])

    def _out_tangents(self, tangents, what):
        try:
            leaves = self.outs.tree.flatten_up_to(tangents)
        except (ValueError, TypeError) as error:
            raise TypeError(
                f"{what} of {self.name} gave tangents of another structure than out_aval: {error}"
            ) from None
        return self.outs.lower_tangents(leaves)

    def jvp(self, primals, tangents):
        given = self.ins.tree.unflatten(self.ins.raise_tangents(tangents))
        out, tangent = self.prim.jvp(self._args(primals), given)
        return self._lower_outs(out, "jvp"), self._out_tangents(tangent, "jvp")

    def _with_flags(self, found, what):
        out, residuals, *rest = found
        given = _spread(self.outs.tree, rest[0]) if rest else [True] * len(self.outs.slots)
        # Structured ones come to the other rule by themselves.
        residuals = (residuals, *rest[1:])
        every = [flag for flag, slot in zip(given, self.outs.slots) for _ in slot.types]
        return self._lower_outs(out, what), residuals, every

    def vjp_fwd(self, nonzero, primals):
        return self._with_flags(self.prim.vjp_fwd(self._flags(nonzero), *self._args(primals)), "vjp_fwd")

    def vjp_bwd(self, nonzero, residuals, cotangents):
        out_ct = self.outs.tree.unflatten(self.outs.raise_tangents(cotangents, cotangent=True))
        accums = [
            (ValAccum if any(own) else NullAccum)(slot.tangent_type(cotangent=True))
            for slot, own in zip(self.ins.slots, self.ins.split(nonzero))
        ]
        self.prim.vjp_bwd(*residuals, out_ct, *self.ins.tree.unflatten(accums))
        return self.ins.lower_tangents([accum.freeze() for accum in accums], cotangent=True)

    def lin(self, nonzero, primals, tangents):
        outs, residuals, _ = self._with_flags(self.prim.lin(self._flags(nonzero), *self._args(primals)), "lin")
        given = self.ins.tree.unflatten(self.ins.raise_tangents(tangents))
        return outs, self._out_tangents(self.prim.linearized(*residuals, *given), "linearized")

    def transpose(self, cotangents, args):
        if not _overrides(self.prim, "transpose"):
            return super().transpose(cotangents, args)
        out_ct = self.outs.tree.unflatten(self.outs.raise_tangents(cotangents, cotangent=True))
        given = []
        for slot, own in zip(self.ins.slots, self.ins.split(args)):
            linear = any(map(is_undefined_primal, own))
            given.append(ValAccum(slot.tangent_type(cotangent=True)) if linear else slot.raise_(own))
        self.prim.transpose(out_ct, *self.ins.tree.unflatten(given))
        found = [x.freeze() if isinstance(x, GradAccum) else None for x in given]
        return self.ins.lower_tangents(found, cotangent=True)

    def batch(self, data, args, dims):
        every = (*self.ins.slots, *self.outs.slots)
        if any(slot.hi for slot in every) or not any(_overrides(self.prim, x) for x in ("batch", "batch_dim_rule")):
            return super().batch(data, args, dims)
        unflatten = self.ins.tree.unflatten
        if not _overrides(self.prim, "batch"):
            wanted = _spread(self.outs.tree, self.prim.batch_dim_rule(data, unflatten(dims)))
            outs, found = super().batch(data, args, dims)
            return [x[0] if dim is None else moveaxis(x, 0, dim) for x, dim in zip(outs, wanted)], wanted
        out, out_dims = self.prim.batch(data, unflatten(args), unflatten(dims))
        leaves, tree = opaque.flatten(out)
        if tree != self.outs.tree:
            raise TypeError(f"batch of {self.name} gave {out!r}, where out_aval says {self.outs.tree}")
        return leaves, _spread(self.outs.tree, out_dims)

