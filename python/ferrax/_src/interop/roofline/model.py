"""What a roofline says of a function, and the walk through its jaxpr that adds it up.

In: a function and arguments, or their types. Out: the types of its results, and a `RooflineResult`. The costs of an
equation are what the rule of its primitive says; those of one that holds a jaxpr are those of that jaxpr, once. The
memory in use is what inputs and the values that are still needed take, after each equation. Nothing runs; the cost is
linear in the jaxpr.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferrax._src import core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.dead_code import dce_jaxpr
from ferrax._src.core.jaxpr import ClosedJaxpr, Literal
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.numpy import api as jnp
from ferrax._src.parallel.shard_map import shard_map
from ferrax._src.tracing.staging import make_jaxpr
from ferrax._src.transforms.autodiff import vjp
from ferrax._src.tree import tree_util

__all__ = [
    "RooflineResult", "RooflineRuleContext", "RooflineShape", "register_roofline", "register_standard_roofline",
    "roofline", "roofline_and_grad",
]  # fmt: skip

_log = logging.getLogger("ferrax")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRuleContext:
    """What a rule knows of an equation beside the shapes of its operands and its parameters.

    >>> from ferrax.experimental import roofline
    >>> [field for field in roofline.RooflineRuleContext.__slots__ if field.startswith("avals")]
    ['avals_in', 'avals_out']
    """

    name_stack: Any
    primitive: Any
    avals_in: Sequence[Any]
    avals_out: Sequence[Any]
    jaxpr_eqn_ctx: Any
    mesh: Any
    pin_lhs_in_vmem: bool
    pin_rhs_in_vmem: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RooflineShape:
    """The shape and dtype of an operand.

    >>> from ferrax.experimental import roofline
    >>> shape = roofline.RooflineShape.from_aval(ferrax.typeof(jnp.ones((2, 3))))
    >>> shape.size, shape.bytes
    (6, 24)
    """

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def from_aval(cls, aval: Any) -> RooflineShape:
        """That of a type. Errors: TypeError for what is no type of arrays."""
        if not isinstance(aval, core.ShapedArray):
            raise TypeError(f"RooflineShape.from_aval: expected a ShapedArray, got {aval!r} of type {type(aval)}")
        return cls(shape=tuple(aval.shape), dtype=aval.dtype)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return int(self.size * self.dtype.itemsize)

    @classmethod
    def total_bytes(cls, avals: Sequence[Any]) -> int:
        """How many bytes arrays of these types take together."""
        return sum(cls.from_aval(aval).bytes for aval in avals)


def _merged(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {axis: one.get(axis, 0) + other.get(axis, 0) for axis in {**one, **other}}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """Costs of a function.

    `flops` and `hbm_bytes` are those of products of matrices, as if all else were fused into these; `unfused_flops` and
    `unfused_hbm_bytes` are those of all operations, as if each read and wrote memory; `ici_bytes` and `ici_latency` are
    by axis of a mesh the bytes that a link carries and the hops that are waited for; `peak_hbm_bytes` are the most
    bytes in use.

    >>> from ferrax.experimental import roofline
    >>> sum = roofline.RooflineResult(flops=2, peak_hbm_bytes=4) + roofline.RooflineResult(flops=3)
    >>> sum.flops, (sum * 2).peak_hbm_bytes
    (5, 8)
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    ici_latency: dict[str, int] = dataclasses.field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """No costs."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        """The costs of one after the other: of the peaks the higher."""

        def both(name):
            one, two = getattr(self, name), getattr(other, name)
            if isinstance(one, dict):
                return _merged(one, two)
            return max(one, two) if name == "peak_hbm_bytes" else one + two

        return RooflineResult(**{name: both(name) for name in self.__slots__})

    def __mul__(self, constant: float) -> RooflineResult:
        """All costs so many times, as integers."""

        def times(value):
            if isinstance(value, dict):
                return {axis: int(x * constant) for axis, x in value.items()}
            return int(value * constant)

        return RooflineResult(**{name: times(getattr(self, name)) for name in self.__slots__})

    __rmul__ = __mul__


Rule = Callable[..., RooflineResult]

# Rules of users, by primitive, and those of ferrax's primitives, by name: `rules` and `collectives` fill it.
_registered: dict[Any, Rule] = {}
_of_name: dict[str, Rule] = {}


def of_names(names: str) -> Callable[[Rule], Rule]:
    """A decorator: the rule of ferrax's primitives of these names."""

    def register(rule):
        _of_name.update(dict.fromkeys(names.split(), rule))
        return rule

    return register


def register_roofline(prim: Any) -> Callable[[Rule], Rule]:
    """A decorator: the rule of a primitive.

    Args: prim: the primitive. A rule is called with a `RooflineRuleContext`, a `RooflineShape` for each operand, and
    the equation's parameters as keywords, and returns a `RooflineResult`.

    >>> from ferrax.experimental import roofline
    >>> third_p = ferrax.core.Primitive("third")
    >>> _ = third_p.def_abstract_eval(lambda x: x)
    >>> @roofline.register_roofline(third_p)
    ... def _rule(ctx, x, **params):
    ...     return roofline.RooflineResult(unfused_flops=3 * x.size)
    >>> roofline.roofline(third_p.bind)(jnp.ones(4))[1].unfused_flops
    12
    """

    def register(rule):
        _registered[prim] = rule
        return rule

    return register


def register_standard_roofline(prim: Any) -> None:
    """Says that a primitive costs nothing.

    Args: prim: the primitive.

    >>> from ferrax.experimental import roofline
    >>> free_p = ferrax.core.Primitive("free")
    >>> roofline.register_standard_roofline(free_p)
    """
    _registered[prim] = lambda ctx, *args, **params: RooflineResult.zeros()


def _rule_of(primitive) -> Rule | None:
    """The rule of a primitive; None of those that cost nothing. A user's without a rule is told of."""
    rule = _registered.get(primitive) or _of_name.get(primitive.name)
    own = primitive._builtin or str(getattr(vars(primitive).get("impl"), "__module__", "")).startswith("ferrax.")
    if rule is None and not own:
        _log.warning("no roofline rule for the primitive '%s': it counts as free", primitive)
    return rule


def cost_of(jaxpr: Any, mesh: Any = None, pins: tuple[bool, bool] = (False, False)) -> RooflineResult:
    """The costs of a jaxpr. `pins`: whether left and right operands of products of matrices are in fast memory."""
    jaxpr = jaxpr.open if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    total = RooflineResult.zeros()
    last = {var: number for number, eqn in enumerate(jaxpr.eqns) for var in eqn.invars if not isinstance(var, Literal)}
    for var in jaxpr.outvars:
        if not isinstance(var, Literal):
            last[var] = len(jaxpr.eqns)
    in_use = peak = RooflineShape.total_bytes([var.aval for var in (*jaxpr.constvars, *jaxpr.invars)])
    for number, eqn in enumerate(jaxpr.eqns):
        total += _cost_of_equation(eqn, mesh, pins)
        dying = {var for var in eqn.invars if not isinstance(var, Literal) and last[var] == number}
        in_use += RooflineShape.total_bytes([var.aval for var in eqn.outvars])
        in_use -= RooflineShape.total_bytes([var.aval for var in dying])
        peak = max(peak, in_use)
    return total + RooflineResult(peak_hbm_bytes=peak)


def _cost_of_equation(eqn, mesh, pins) -> RooflineResult:
    for name in ("jaxpr", "call_jaxpr"):
        if name in eqn.params:
            return cost_of(eqn.params[name], mesh, pins)
    rule = _rule_of(eqn.primitive)
    if rule is None:
        return RooflineResult.zeros()
    ins, outs = [x.aval for x in eqn.invars], [x.aval for x in eqn.outvars]
    context = RooflineRuleContext(
        name_stack=eqn.source_info.name_stack, primitive=eqn.primitive, avals_in=ins, avals_out=outs,
        jaxpr_eqn_ctx=eqn.ctx, mesh=mesh, pin_lhs_in_vmem=pins[0], pin_rhs_in_vmem=pins[1],
    )  # fmt: skip
    return rule(context, *map(RooflineShape.from_aval, ins), **eqn.params)


def _with_vjp(f):
    """The gradients of `f` for cotangents of the values of its results, in bfloat16."""

    def wrapped(*args):
        primals, pullback = vjp(f, *args)
        return pullback(tree_util.tree_map(jnp.bfloat16, primals))

    return wrapped


def roofline(
    f: Callable[..., Any], mesh: Any = None, in_specs: Any = None, out_specs: Any = None, *,
    pin_lhs_in_vmem: bool = False, pin_rhs_in_vmem: bool = False, vjp: bool = False, print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult]]:  # fmt: skip
    """A function from arguments of `f`, or their types, to the types of its results and its costs. It runs nothing.

    Args:
        f: a function of positional arguments.
        mesh, in_specs, out_specs: if all are given, `f` is what each device of a mesh does, as for `shard_map`, and
            costs are those of one device. `mesh` may be without devices.
        pin_lhs_in_vmem, pin_rhs_in_vmem: whether the left operands and the results of products of matrices, and the
            right ones, are in fast memory, so that no bytes count.
        vjp: whether the costs are those of the gradients instead.
        print_jaxpr: whether to print what is counted.

    Counted are operations element by element, sums and running reductions, products of matrices, convolutions, gathers
    and scatters, callbacks, and collectives. Bodies of loops count once. Errors: those of tracing `f`.

    >>> from ferrax.experimental import roofline
    >>> shapes, costs = roofline.roofline(lambda x, y: jnp.sin(x @ y))(jnp.ones((2, 3)), jnp.ones((3, 4)))
    >>> costs.flops, costs.unfused_flops, costs.hbm_bytes
    (48, 56, 104)
    """
    divided = mesh is not None and in_specs is not None and out_specs is not None

    @api_boundary
    @functools.wraps(f)
    def wrapped(*args):
        run = shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs) if divided else f
        run = _with_vjp(run) if vjp else run
        closed, shapes = make_jaxpr(run, return_shape=True)(*args)
        if mesh is not None and out_specs is not None:
            leaves, tree = tree_util.tree_flatten(shapes)
            specs = tree_util.broadcast_prefix(out_specs, shapes)
            places = [NamedSharding(mesh, spec) for spec in specs]
            structs = [ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for x, where in zip(leaves, places)]
            shapes = tree.unflatten(structs)
        jaxpr, _ = dce_jaxpr(closed.open, True)
        # Of a device only what it does itself.
        parts = [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name == "shard_map"]
        jaxpr = parts[-1] if parts else jaxpr
        if print_jaxpr:
            print(jaxpr)
        return shapes, cost_of(jaxpr, mesh, (pin_lhs_in_vmem, pin_rhs_in_vmem))

    return wrapped


def roofline_and_grad(
    f: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any, *,
    pin_lhs_in_vmem: bool = False, pin_rhs_in_vmem: bool = False, print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult, RooflineResult]]:  # fmt: skip
    """As `roofline`, with the costs of the gradients as a third result: those for arguments of bfloat16, but for int32.

    Args: as for `roofline`.

    >>> from ferrax.experimental import roofline
    >>> mesh = ferrax.make_mesh((1,), ("x",), axis_types=(ferrax.sharding.AxisType.Auto,))
    >>> x = ferrax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=ferrax.NamedSharding(mesh, ferrax.P("x")))
    >>> _, forward, backward = roofline.roofline_and_grad(jnp.dot, mesh, ferrax.P("x"), ferrax.P("x"))(x, x)
    >>> forward.flops, backward.flops
    (128, 256)
    """
    options = {"pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem, "print_jaxpr": print_jaxpr}

    def lowered(x):
        dtype = x.dtype if x.dtype == jnp.int32 else jnp.bfloat16
        return ShapeDtypeStruct(x.shape, dtype, sharding=x.sharding)

    @api_boundary
    @functools.wraps(f)
    def wrapped(*args):
        shapes, forward = roofline(f, mesh, in_specs, out_specs, **options)(*args)
        backward = roofline(f, mesh, in_specs, out_specs, vjp=True, **options)(*tree_util.tree_map(lowered, args))[1]
        return shapes, forward, backward

    return wrapped
