"""Computations around a kernel as functions that the kernel calls: `fuse`, `fusible`, `Fusion`.

In: a function whose program has one call of a `fusible`. Out: a function of the same results, in which the fusible is
given what makes each of its inputs, and what becomes of its outputs, in place of arrays: so it decides itself where,
and on which blocks, these are computed.

Invariant: an equation belongs to what makes an input, or to what becomes of a group of outputs, or to several of
these, which then compute it each for itself; its results are the same.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ferrax._src import core, state
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.jaxpr import Jaxpr, Var, eval_jaxpr
from ferrax._src.tracing import staging
from ferrax._src.transforms import composites
from ferrax._src.tree import tree_util


@dataclasses.dataclass
class Fusion:
    """A function that a fusible is given: of nothing to one of its inputs, or of outputs to what becomes of them.

    Args: func: the function; in_type: the types of its arguments, `(args, kwargs)`; out_type: the tree of the types
    of its results; strict_mode: whether blocks that arguments are asked for more than once have to be the same.

    >>> from ferrax.experimental.pallas import fuser
    >>> ones = fuser.Fusion(lambda: jnp.ones(3), ((), {}), ferrax.ShapeDtypeStruct((3,), jnp.float32))
    >>> ones(), ones.shape
    (Array([1., 1., 1.], dtype=float32), (3,))
    """

    func: Callable[..., Any]
    in_type: Any
    out_type: Any
    strict_mode: bool = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    @property
    def type(self) -> Any:
        """The tree of the types of the results."""
        return self.out_type

    @property
    def shape(self) -> Any:
        """That of their shapes."""
        return _each("shape", self.out_type)

    @property
    def dtype(self) -> Any:
        """That of their dtypes."""
        return _each("dtype", self.out_type)

    @property
    def in_shape(self) -> Any:
        """The shapes of the arguments."""
        return _each("shape", self.in_type)

    @property
    def in_dtype(self) -> Any:
        """Their dtypes."""
        return _each("dtype", self.in_type)


def _each(name: str, types: Any) -> Any:
    return tree_util.tree_map(lambda ty: getattr(ty, name), types)


def _run(*arrays, jaxpr, num_consts, **params):
    return eval_jaxpr(jaxpr, arrays[:num_consts], *arrays[num_consts:])


fusible_p = composites.composite("fusible", _run, multiple_results=True)


def fusible(f: Callable[..., Any] | None = None, *, output_fusion_prefix: Any = True) -> Callable[..., Any]:
    """A function of arrays, of one that takes functions in place of arrays.

    Args:
      f: a function of a `Fusion` for each leaf of the arguments, in their tree, and last of what becomes of the
        outputs: a `Fusion` of these that gives a tuple, or None where they are just returned. It returns what that
        gives, or the outputs.
      output_fusion_prefix: a tree of True, with one `Fusion` or None for each, where parts of the outputs are to be
        used apart; its structure is the beginning of that of the outputs.

    Within `fuse` it gets what is around its call; elsewhere functions that give the arguments, and None.

    >>> from ferrax.experimental.pallas import fuser
    >>> @fuser.fusible
    ... def double(x_fn, out_fn):
    ...     doubled = 2 * x_fn()
    ...     return doubled if out_fn is None else out_fn(doubled)
    >>> double(jnp.ones(2)), fuser.fuse(lambda x: double(x + 1) - 3)(jnp.ones(2))
    (Array([2., 2.], dtype=float32), Array([1., 1.], dtype=float32))
    """
    if f is None:
        return functools.partial(fusible, output_fusion_prefix=output_fusion_prefix)
    function = f
    nothing = tree_util.tree_map(lambda _: None, output_fusion_prefix)

    @api_boundary
    @functools.wraps(function)
    def wrapped(*args):
        leaves, in_tree = tree_util.tree_flatten(args)
        leaves = [core.as_array(x, "fusible") for x in leaves]

        def plain(*leaves):
            given = [Fusion(lambda x=x: x, ((), {}), core.typeof(x)) for x in leaves]
            return function(*in_tree.unflatten(given), nothing)

        closed, shapes = staging.make_jaxpr(plain, return_shape=True)(*leaves)
        out_tree = tree_util.tree_structure(shapes)
        results = fusible_p.bind(
            *closed.consts, *leaves, jaxpr=closed.open, num_consts=len(closed.consts), in_tree=in_tree,
            out_tree=out_tree, func=function, output_fusion_prefix=output_fusion_prefix,
        )  # fmt: skip
        return out_tree.unflatten(results)

    return wrapped


def fuse(
    f: Callable[..., Any] | None = None, *, resolve_fusion_dtypes: bool = True, debug: bool = False,
    strict_mode: bool = True,
) -> Callable[..., Any]:
    """A function that computes what `f` does, all of it in the call of a `fusible` that is in it.

    Args:
      f: a function of pytrees of arrays. It calls one fusible, not within a `jit`, a loop or a branch; what is
        computed behind it may depend on it or not.
      resolve_fusion_dtypes: there are no dtypes here that stand for others, so that it has nothing to do.
      debug: whether to print the program of `f` whenever it is traced.
      strict_mode: that of the `Fusion` objects of outputs.

    What does not depend on the fusible is computed outside of it.

    Errors: ValueError without a fusible, and where a result depends on several groups of its outputs
    (`output_fusion_prefix`); NotImplementedError for an argument that is a mutable array.

    >>> from ferrax.experimental.pallas import fuser
    >>> @fuser.fusible
    ... def double(x_fn, out_fn):
    ...     return 2 * x_fn() if out_fn is None else out_fn(2 * x_fn())
    >>> fuser.fuse(lambda x: double(x + 1) - 3)(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    if f is None:
        return functools.partial(
            fuse, resolve_fusion_dtypes=resolve_fusion_dtypes, debug=debug, strict_mode=strict_mode
        )
    function = f

    @api_boundary
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        leaves, in_tree = tree_util.tree_flatten((args, kwargs))
        if any(isinstance(x, state.Ref) for x in leaves):
            raise NotImplementedError(
                "fuse: an argument is a mutable array. Let the function close over it, or pass what it holds, ref[...]."
            )

        def flat(*leaves):
            args, kwargs = in_tree.unflatten(leaves)
            return function(*args, **kwargs)

        closed, shapes = staging.make_jaxpr(flat, return_shape=True)(*leaves)
        if debug:
            print(f"fuse of {getattr(function, '__name__', function)}: {closed}")
        leaves = [core.as_array(x, "fuse") for x in leaves]
        known = dict(zip((*closed.open.constvars, *closed.open.invars), (*closed.consts, *leaves)))
        return tree_util.tree_structure(shapes).unflatten(_fused(closed.open, known, strict_mode))

    return wrapped


def _fused(jaxpr: Jaxpr, known: dict[Var, Any], strict_mode: bool) -> list[Any]:
    """The outputs of a jaxpr whose inputs have the values in `known`."""
    places = [place for place, eqn in enumerate(jaxpr.eqns) if eqn.primitive is fusible_p]
    if not places:
        raise ValueError("fuse: the function calls no fusible, or only within another function's program such as jit's")
    call = jaxpr.eqns[places[0]]
    before, after = jaxpr.eqns[: places[0]], jaxpr.eqns[places[0] + 1 :]
    rest = [*before, *after]
    results: list[Any] = [None] * len(jaxpr.outvars)
    inside = _reached(call.outvars, after)
    apart = [place for place, atom in enumerate(jaxpr.outvars) if atom not in inside]
    for place, value in zip(apart, _function(rest, [jaxpr.outvars[place] for place in apart], (), known)()):
        results[place] = value
    if len(apart) == len(results):
        return results
    given = [
        Fusion(functools.partial(_first, _function(before, [atom], (), known)), ((), {}), atom.aval)
        for atom in call.invars[call.params["num_consts"] :]
    ]
    prefix = tree_util.tree_structure(call.params["output_fusion_prefix"])
    groups = prefix.flatten_up_to(call.params["out_tree"].unflatten(call.outvars))
    fusions: list[Fusion | None] = []
    order: list[int] = []
    for group in groups:
        variables = tree_util.tree_leaves(group)
        reached = _reached(variables, after)
        own = [place for place, atom in enumerate(jaxpr.outvars) if atom in reached]
        if set(own) & set(order):
            raise ValueError(
                "fuse: a result depends on several outputs of the fusible whose uses are to be apart "
                f"(output_fusion_prefix={call.params['output_fusion_prefix']}). Give these one True in it."
            )
        order += own
        outs = [jaxpr.outvars[place] for place in own]
        if outs == variables:
            fusions.append(None)
            continue
        function = _function(rest, outs, variables, known)
        types = tree_util.tree_map(lambda var: var.aval, group)
        fusions.append(Fusion(function, (types, {}), tuple(atom.aval for atom in outs), strict_mode))
    found = call.params["func"](*call.params["in_tree"].unflatten(given), prefix.unflatten(fusions))
    leaves = tree_util.tree_leaves(found)
    if len(leaves) != len(order):
        raise ValueError(
            f"fuse: the fusible returned {len(leaves)} arrays; what becomes of its outputs is {len(order)}. Have it "
            "return what the functions that it is given last return."
        )
    for place, value in zip(order, leaves):
        results[place] = value
    return results


def _first(function):
    return function()[0]


def _reached(variables: Iterable[Var], eqns: Iterable[Any]) -> set[Any]:
    """These variables and those that depend on them."""
    found = set(variables)
    for eqn in eqns:
        if any(isinstance(atom, Var) and atom in found for atom in eqn.invars):
            found.update(eqn.outvars)
    return found


def _function(eqns: Sequence[Any], outs: Sequence[Any], variables: Sequence[Var], known: dict[Var, Any]):
    """A function from trees of the values of variables to a tuple of these outputs, of the equations that they need."""
    needed = {atom for atom in outs if isinstance(atom, Var)}
    kept = []
    for eqn in reversed(eqns):
        if needed & set(eqn.outvars):
            kept.append(eqn)
            needed.update(atom for atom in eqn.invars if isinstance(atom, Var))
    constants = [var for var in known if var in needed]
    jaxpr = Jaxpr(constants, variables, outs, kept[::-1])
    values = [known[var] for var in constants]

    def function(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(eval_jaxpr(jaxpr, values, *tree_util.tree_leaves((args, kwargs))))

    return function
