"""Blocks of results for those of arguments, `push_block_spec`, and functions with rules of their own, `custom_fusion`.

In: a function of arrays and a `BlockSpec` for each argument, or `pl.no_block_spec`. Out: that of each result: what a
kernel that makes such blocks of the arguments makes of the results.

Invariant: of the operands of an operation one at most has a block, or all have the same.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.jaxpr import Literal, eval_jaxpr, interpret
from ferrax._src.pallas import grid
from ferrax._src.pallas.fuser_blocks import ELEMENTWISE, Traced
from ferrax._src.pallas.fuser_rules import regrouped, size_of
from ferrax._src.pallas.specs import no_block_spec
from ferrax._src.tracing import staging
from ferrax._src.transforms import composites
from ferrax._src.tree import tree_util


@api_boundary
def push_block_spec(f: Callable[..., Any], *in_spec_args: Any, **in_spec_kwargs: Any) -> Callable[..., Any]:
    """The blocks of the results of a function for these of its arguments.

    Args:
      f: a function of pytrees of arrays.
      in_spec_args, in_spec_kwargs: a `BlockSpec`, or `pl.no_block_spec` where one is whole, for each argument.

    Returns: a function of the types of the arguments to a `BlockSpec` for each result, in their tree.

    Errors: ValueError where the trees differ, and where an operation cannot be done in blocks: where a dimension of
    length 1 that has blocks is repeated, where operands have different blocks; NotImplementedError for operations that
    have no rule.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import fuser
    >>> block = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    >>> pushed = fuser.push_block_spec(lambda x: 2 * x.T, block)(jnp.ones((8, 4)))
    >>> pushed.block_shape, pushed.index_map(1, 0)
    ((4, 2), (0, 1))
    """

    def wrapped(*args, **kwargs):
        given, tree = tree_util.tree_flatten((in_spec_args, in_spec_kwargs))
        traced = Traced(f, args, kwargs)
        if tree != traced.in_tree:
            raise ValueError(f"push_block_spec: the arguments are in the tree {traced.in_tree}, the blocks in {tree}")
        whole = [no_block_spec] * len(traced.constants)
        return traced.out_tree.unflatten(interpret(traced.jaxpr, whole, given, _pushed, lambda atom: no_block_spec))

    return wrapped


def _pushed(eqn, specs):
    name = eqn.primitive.name
    if name == "custom_fusion":
        rule = eqn.params["push_block_spec_rule"]
        if rule is None:
            raise ValueError("push_block_spec: a custom_fusion needs def_push_block_spec")
        return list(rule(tuple(specs[eqn.params["num_consts"] :])))
    if all(spec is no_block_spec for spec in specs):
        return [no_block_spec] * len(eqn.outvars)
    if name in ELEMENTWISE:
        return [_of_elements(eqn, specs)]
    if name not in _RULES:
        raise NotImplementedError(f"push_block_spec: {name} has no rule. Compute it after the kernel.")
    return [_RULES[name](eqn, specs[0])]


def _of_elements(eqn, specs):
    shape = eqn.outvars[0].aval.shape
    found = no_block_spec
    for atom, spec in zip(eqn.invars, specs):
        if spec is no_block_spec or isinstance(atom, Literal):
            continue
        if tuple(atom.aval.shape) != tuple(shape):
            raise ValueError(f"push_block_spec: {eqn.primitive.name} repeats an operand that has blocks")
        if found is not no_block_spec and found is not spec and found != spec:
            raise ValueError(f"push_block_spec: operands of {eqn.primitive.name} have different blocks")
        found = spec if found is no_block_spec else found
    return found


def _placed(spec, blocks, index):
    """A specification of these blocks, whose index is a function of that of another one."""
    before = spec.index_map

    def index_map(*ids):
        found = before(*ids)
        return index(tuple(found) if isinstance(found, (tuple, list)) else (found,))

    return spec.replace(block_shape=tuple(blocks), index_map=None if before is None else index_map)


def _transpose(eqn, spec):
    order = eqn.params["permutation"]
    return _placed(spec, [spec.block_shape[dim] for dim in order], lambda index: tuple(index[dim] for dim in order))


def _squeeze(eqn, spec):
    rank = len(eqn.invars[0].aval.shape)
    gone = [dim % rank for dim in eqn.params["dimensions"]]
    kept = [dim for dim in range(rank) if dim not in gone]
    return _placed(spec, [spec.block_shape[dim] for dim in kept], lambda index: tuple(index[dim] for dim in kept))


def _reshape(eqn, spec):
    source, shape = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    found = regrouped(source, spec.block_shape, shape)
    if found is None:
        raise NotImplementedError(
            f"push_block_spec: {eqn.primitive.name} from {source} to {shape} has no blocks of {spec.block_shape}. "
            "Do it after the kernel."
        )
    return _placed(spec, *found)


def _broadcast_in_dim(eqn, spec):
    source, shape = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    dims = list(eqn.params["broadcast_dimensions"])
    if any(size != shape[place] for size, place in zip(source, dims)):
        raise ValueError("push_block_spec: a dimension of length 1 that has blocks is repeated")
    places = {place: dim for dim, place in enumerate(dims)}
    blocks = [spec.block_shape[places[dim]] if dim in places else size for dim, size in enumerate(shape)]
    return _placed(
        spec, blocks, lambda index: tuple(index[places[dim]] if dim in places else 0 for dim in range(len(shape)))
    )


def _reduce(eqn, spec):
    source, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
    for axis in axes:
        if size_of(spec.block_shape[axis]) != source[axis]:
            raise ValueError(f"push_block_spec: {eqn.primitive.name} over axis {axis}, which blocks divide")
    kept = [dim for dim in range(len(source)) if dim not in axes]
    return _placed(spec, [spec.block_shape[dim] for dim in kept], lambda index: tuple(index[dim] for dim in kept))


_RULES: dict[str, Any] = {
    "broadcast_in_dim": _broadcast_in_dim, "expand_dims": _reshape, "reshape": _reshape, "squeeze": _squeeze,
    "transpose": _transpose,
}  # fmt: skip
_RULES |= dict.fromkeys(("argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
                         "reduce_sum"), _reduce)  # fmt: skip


# Operations with blocks of their own.


def _run(*arrays, jaxpr, num_consts, **params):
    return eval_jaxpr(jaxpr, arrays[:num_consts], *arrays[num_consts:])


custom_fusion_p = composites.composite("custom_fusion", _run, multiple_results=True)


class custom_fusion:
    """A function that says itself which blocks it needs, and how it computes a block.

    Args: fun: a function of pytrees of arrays. A decorator. It needs `def_pull_block_spec` and `def_eval_rule`.

    Elsewhere it is `fun`, which is differentiated and batched as such.

    >>> from ferrax.experimental.pallas import fuser
    >>> @fuser.custom_fusion
    ... def add(x, y):
    ...     return x + y
    >>> _ = add.def_pull_block_spec(lambda blocks: (blocks[0], blocks[0]))
    >>> _ = add.def_eval_rule(lambda context, x, y: (x + y,))
    >>> add(jnp.ones(2), 1.0)
    Array([2., 2.], dtype=float32)
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.eval_rule: Callable[..., Any] | None = None
        self.pull_block_spec_rule: Callable[..., Any] | None = None
        self.push_block_spec_rule: Callable[..., Any] | None = None
        self.pallas_impl: Callable[..., Any] | None = None

    def def_pull_block_spec(self, pull_block_spec_rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule of a tuple with a `BlockIndexTransform` for each result, to one for each argument."""
        self.pull_block_spec_rule = pull_block_spec_rule
        return pull_block_spec_rule

    def def_push_block_spec(self, push_block_spec_rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule of a tuple with a `BlockSpec` for each argument, to one for each result."""
        self.push_block_spec_rule = push_block_spec_rule
        return push_block_spec_rule

    def def_eval_rule(self, eval_rule: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a context (`out_block_specs`, `out_block_indices`) and the arguments' blocks, to a tuple of
        the results' blocks."""
        self.eval_rule = eval_rule
        return eval_rule

    def def_pallas_impl(self, pallas_impl: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in place of the function within kernels."""
        self.pallas_impl = pallas_impl
        return pallas_impl

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.eval_rule is None or self.pull_block_spec_rule is None:
            raise ValueError(f"custom_fusion: {self.fun} needs def_eval_rule and def_pull_block_spec")
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(f"custom_fusion: arguments of {self.fun} are positional, got {list(bound.kwargs)}")
        if self.pallas_impl is not None and grid.innermost() is not None:
            return self.pallas_impl(*bound.args)
        leaves, in_tree = tree_util.tree_flatten(bound.args)
        leaves = [core.as_array(x, "custom_fusion") for x in leaves]
        closed, shapes = staging.make_jaxpr(lambda *xs: self.fun(*in_tree.unflatten(xs)), return_shape=True)(*leaves)
        results = custom_fusion_p.bind(
            *closed.consts, *leaves, jaxpr=closed.open, num_consts=len(closed.consts), eval_rule=self.eval_rule,
            pull_block_spec_rule=self.pull_block_spec_rule, push_block_spec_rule=self.push_block_spec_rule,
        )  # fmt: skip
        return tree_util.tree_structure(shapes).unflatten(results)
