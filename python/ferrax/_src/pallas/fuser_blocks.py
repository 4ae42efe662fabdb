"""Functions around kernels as functions of blocks: `get_fusion_values`, `pull_block_spec`, `evaluate`.

In: a function of arrays, and the blocks that a kernel makes of its results. Out: the blocks that it needs of the
arguments, and a function of these that computes the block of a step. What the function closes over is made arguments
first; scalars among it are known before the kernel, as prefetched ones, so that index maps may use them.

Invariant: each variable of the function's program has at most one block at each step; what is not needed has none.
Cost: of tracing, linear in the equations, inner functions written out; of a step, that of its blocks.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core, state
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.jaxpr import (
    Jaxpr,
    Literal,
    Var,
    eval_jaxpr,
    interpret,
    jaxprs_in_params,
    literal_value,
)
from ferrax._src.pallas import fuser_rules as rules
from ferrax._src.pallas.flat import _ELEMENTWISE
from ferrax._src.pallas.fuser_rules import BlockIndexTransform
from ferrax._src.pallas.specs import BlockSpec, no_block_spec
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

ELEMENTWISE = frozenset((*_ELEMENTWISE, "multiple_of"))
_CALLS = frozenset("jit closed_call core_call custom_jvp_call custom_vjp_call remat checkpoint".split())


# Operations whose results' blocks are computed differently by where they are.
_PLACED = frozenset(("concatenate", "custom_fusion", "iota"))


class Traced:
    """The program of a function for these types, inner functions written out. `constants` are what it closes over."""

    def __init__(self, function: Callable[..., Any], args: tuple, kwargs: dict) -> None:
        leaves, self.in_tree = tree_util.tree_flatten((args, kwargs))

        def flat(*leaves):
            args, kwargs = self.in_tree.unflatten(leaves)
            return function(*args, **kwargs)

        closed, shapes = staging.make_jaxpr(flat, return_shape=True)(*leaves)
        if any(isinstance(x, state.Ref) for x in closed.consts):
            raise NotImplementedError("the function closes over a mutable array: read it before, ref[...]")
        count = len(closed.consts)
        whole = staging.make_jaxpr(lambda *xs: _written_out(closed.open, xs[:count], xs[count:]))(
            *closed.consts, *leaves
        )
        inputs = [*whole.open.constvars, *whole.open.invars]
        first = len(whole.open.constvars) + count
        self.out_tree = tree_util.tree_structure(shapes)
        self.constants = [*whole.consts, *closed.consts]
        self.jaxpr = Jaxpr(inputs[:first], inputs[first:], whole.open.outvars, whole.open.eqns)


def _written_out(jaxpr, consts, args):
    def apply(eqn, values):
        if eqn.primitive.name in _CALLS:
            (inner, *_) = jaxprs_in_params({k: v for k, v in eqn.params.items() if k in ("jaxpr", "call_jaxpr")})
            closed = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            return _written_out(inner, getattr(closed, "consts", ()), values)
        results = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
        return list(results) if eqn.primitive.multiple_results else [results]

    return interpret(jaxpr, consts, args, apply)


def _scalars(traced: Traced) -> set[Any]:
    """The scalars that are known before the kernel: those closed over, and what is computed of these alone."""
    found = {var for var in traced.jaxpr.constvars if not var.aval.shape}
    for eqn in traced.jaxpr.eqns:
        known = all(isinstance(atom, Literal) or atom in found for atom in eqn.invars)
        if known and eqn.invars and not any(var.aval.shape for var in eqn.outvars):
            found.update(eqn.outvars)
    return found


@api_boundary
def get_fusion_values(fusion: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Callable[..., Any], tuple, tuple]:
    """What a function closes over as arguments of it.

    Args: fusion: a function of pytrees of arrays; args, kwargs: its arguments, or what has a shape and a dtype.

    Returns: `(function, values, scalars)`: the function of a tuple in place of `values`, the arrays that `fusion`
    closes over, and of its arguments; `scalars` are those of no axes, which `function` closes over still: a kernel
    prefetches them.

    Errors: NotImplementedError for a function that closes over a mutable array.

    >>> from ferrax.experimental.pallas import fuser
    >>> bias = jnp.arange(3.0)
    >>> function, values, scalars = fuser.get_fusion_values(lambda x: x + bias, jnp.ones(3))
    >>> len(values), len(scalars), function(values, jnp.ones(3))
    (1, 0, Array([1., 2., 3.], dtype=float32))
    """
    traced = Traced(fusion, args, kwargs)
    given = list(zip(traced.jaxpr.constvars, traced.constants))
    values = tuple(core.as_array(x, "get_fusion_values") for var, x in given if var.aval.shape)
    scalars = tuple(core.as_array(x, "get_fusion_values") for var, x in given if not var.aval.shape)

    def function(values, *args, **kwargs):
        shaped, known = iter(values), iter(scalars)
        constants = [next(shaped if var.aval.shape else known) for var in traced.jaxpr.constvars]
        leaves = tree_util.tree_leaves((args, kwargs))
        return traced.out_tree.unflatten(eval_jaxpr(traced.jaxpr, constants, *leaves))

    return function, values, scalars


def make_scalar_prefetch_handler(*indices: int) -> Callable[..., Any]:
    """A function that finds prefetched scalars among all that a kernel prefetches.

    Args: indices: where they are: the first is an index of the prefetched arguments, the next of what is there.

    >>> from ferrax.experimental.pallas import fuser
    >>> fuser.make_scalar_prefetch_handler(1, 0)("a", ("b", "c"))
    'b'
    """

    def handler(*prefetched: Any) -> Any:
        found: Any = prefetched
        for index in indices:
            found = found[index]
        return found

    return handler


class _State(threading.local):
    prefetched: tuple = ()


_state = _State()


@contextlib.contextmanager
def _prefetching(prefetched):
    before = _state.prefetched
    _state.prefetched = tuple(prefetched)
    try:
        yield
    finally:
        _state.prefetched = before


class _Pulled:
    """The blocks of a program's variables, `wanted`, for those of its outputs."""

    def __init__(self, traced: Traced, specs: list, handler: Any, grid_len: int | None, strict: bool) -> None:
        self.traced, self.specs, self.handler, self.grid_len, self.strict = traced, specs, handler, grid_len, strict
        self.scalars = _scalars(traced)
        self.wanted: dict[Any, BlockIndexTransform] = {}
        jaxpr = traced.jaxpr
        large = [var for var in jaxpr.constvars if var.aval.shape]
        if large:
            raise ValueError(
                f"pull_block_spec: the function closes over arrays, of {large[0].aval}: make them arguments by "
                "get_fusion_values"
            )
        for atom, spec in zip(jaxpr.outvars, specs, strict=True):
            if spec is not no_block_spec and not isinstance(atom, Literal):
                shape = atom.aval.shape if spec.block_shape is None else spec.block_shape
                same = next(n for n, other in enumerate(specs) if other is spec or other == spec)
                self.want(atom, BlockIndexTransform(
                    tuple(shape), lambda *given, same=same: given[same], pipeline_mode=spec.pipeline_mode
                ))  # fmt: skip
        for eqn in reversed(jaxpr.eqns):
            needed = [self.wanted.get(var) for var in eqn.outvars]
            if any(needed) and not self.scalars.issuperset(eqn.outvars):
                for atom, block in zip(eqn.invars, self.operands(eqn, needed), strict=True):
                    if isinstance(atom, Var) and atom not in self.scalars and block is not None:
                        self.want(atom, block)

    def operands(self, eqn, needed):
        """The blocks that an equation needs of its operands."""
        name = eqn.primitive.name
        if name == "custom_fusion":
            own = eqn.params["pull_block_spec_rule"](tuple(needed))
            return [None] * eqn.params["num_consts"] + list(own)
        rule = rules.elementwise if name in ELEMENTWISE else rules.PULL.get(name)
        if rule is None:
            raise NotImplementedError(f"pull_block_spec: {name} has no rule. Compute it before the kernel.")
        return rule(eqn, needed[0], self.scalar)

    def want(self, var, block) -> None:
        before = self.wanted.setdefault(var, block)
        if before is not block and not self.is_same(before, block):
            raise ValueError(
                f"pull_block_spec: different blocks of one array, of {var.aval}, are needed at a step: "
                f"{before.block_shape} and {block.block_shape}, or at different places. Give it as two arguments."
            )

    def is_same(self, one, other) -> bool:
        sizes = [tuple(map(rules.size_of, block.block_shape)) for block in (one, other)]
        kinds = [[hasattr(dim, "padding") for dim in block.block_shape] for block in (one, other)]
        if sizes[0] != sizes[1] or kinds[0] != kinds[1]:
            return False
        return not self.strict or one.block_index_transform is other.block_index_transform or (
            self.index_program(one) == self.index_program(other)
        )

    def index_program(self, block):
        """What says how the index of a block depends on those of the outputs'."""
        ranks = [0 if spec is no_block_spec else len(self.shape_of(number)) for number, spec in enumerate(self.specs)]
        scalar = core.ShapeDtypeStruct((), np.dtype(np.int32))
        types = [(scalar,) * rank for rank in ranks]
        count = sum(not var.aval.shape for var in self.traced.jaxpr.constvars)
        given = [core.ShapeDtypeStruct((1,), var.aval.dtype) for var in self.traced.jaxpr.constvars][:count]

        def index(given, *indices):
            handler, self.handler = self.handler, lambda *values: values
            try:
                with _prefetching(given):
                    return block.block_index_transform(*indices)
            finally:
                self.handler = handler

        return str(staging.make_jaxpr(index)(given, *types))

    def shape_of(self, number):
        spec = self.specs[number]
        return self.traced.jaxpr.outvars[number].aval.shape if spec.block_shape is None else spec.block_shape

    def scalar(self, atom) -> Callable[[], Any]:
        """A function to the value of a scalar, in an index map or a kernel."""
        if isinstance(atom, Literal):
            return lambda: literal_value(atom)
        if atom not in self.scalars:
            raise NotImplementedError(
                "pull_block_spec: where a block begins depends on an argument: close over the scalar, which is then "
                "prefetched"
            )
        return lambda: self.known()[atom]

    def known(self) -> dict[Any, Any]:
        """The values of the scalars that are prefetched, and of what is computed of them."""
        jaxpr = self.traced.jaxpr
        variables = list(jaxpr.constvars)
        values: list[Any] = []
        if variables:
            if self.handler is None:
                raise ValueError(
                    "pull_block_spec: the function needs prefetched scalars: give a scalar_prefetch_handler"
                )
            found = self.handler(*_state.prefetched)
            values = [x[0] for x in (found if isinstance(found, (tuple, list)) else (found,))]
        outs = [var for eqn in jaxpr.eqns for var in eqn.outvars if var in self.scalars]
        eqns = [eqn for eqn in jaxpr.eqns if self.scalars.issuperset(eqn.outvars)]
        results = eval_jaxpr(Jaxpr(variables, [], outs, eqns), values)
        return dict(zip((*variables, *outs), (*values, *results)))

    def indices(self, ids):
        """The block index of each output at a step."""
        found: list[Any] = []
        for number, spec in enumerate(self.specs):
            if spec is no_block_spec:
                found.append(None)
            elif spec.index_map is None:
                found.append((0,) * len(self.shape_of(number)))
            else:
                index = spec.index_map(*ids, *_state.prefetched)
                found.append(tuple(index) if isinstance(index, (tuple, list)) else (index,))
        return found

    def spec_of(self, var):
        """The specification of an argument."""
        block = self.wanted.get(var)
        if block is None:
            return no_block_spec

        def index_map(*given):
            count = len(given) if self.grid_len is None else self.grid_len
            with _prefetching(given[count:]):
                return tuple(block.block_index_transform(*self.indices(given[:count])))

        return BlockSpec(
            block.block_shape, index_map, pipeline_mode=block.pipeline_mode, memory_space=block.memory_space
        )

    def compute(self, ids, values):
        """The blocks of the outputs at a step, of those of the arguments."""
        # Index maps are called where an operation depends on where its block is.
        bases, jaxpr = functools.cache(lambda: self.indices(ids)), self.traced.jaxpr
        scalars = self.known()
        env = scalars | dict(zip(jaxpr.invars, values))

        def value(atom):
            return literal_value(atom) if isinstance(atom, Literal) else env.get(atom)

        for eqn in jaxpr.eqns:
            blocks = [self.wanted.get(var) for var in eqn.outvars]
            if any(blocks) and not self.scalars.issuperset(eqn.outvars):
                env.update(zip(eqn.outvars, self.results(eqn, [value(atom) for atom in eqn.invars], blocks, bases)))
        return [value(atom) for atom in jaxpr.outvars]

    def results(self, eqn, values, blocks, bases):
        name = eqn.primitive.name
        indices = [
            None if block is None or name not in _PLACED else tuple(block.block_index_transform(*bases()))
            for block in blocks
        ]
        if name == "custom_fusion":
            specs = tuple(no_block_spec if block is None else BlockSpec(block.block_shape) for block in blocks)
            context = CustomEvalContext(specs, tuple(indices))
            return list(eqn.params["eval_rule"](context, *values[eqn.params["num_consts"] :]))
        rule = rules.COMPUTE.get(name)
        if rule is None:
            return [eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))]
        operands = [self.wanted.get(atom) if isinstance(atom, Var) else None for atom in eqn.invars]
        shapes = [() if block is None else block.block_shape for block in (*operands, *blocks)]
        return [rule(eqn, values, shapes, indices[0])]


class CustomEvalContext:
    """Where the blocks of a `custom_fusion`'s results are.

    Attributes: out_block_specs: a `BlockSpec` for each result, for its shape; out_block_indices: their indices.
    """

    def __init__(self, out_block_specs: tuple, out_block_indices: tuple) -> None:
        self.out_block_specs = out_block_specs
        self.out_block_indices = out_block_indices


@api_boundary
def pull_block_spec(
    f: Callable[..., Any], out_block_specs: Any, *, scalar_prefetch_handler: Callable[..., Any] | None = None,
    grid_len: int | None = None, strict_mode: bool = True,
) -> Callable[..., tuple[Callable[..., Any], tuple, dict]]:  # fmt: skip
    """What blocks a function needs of its arguments for these of its results.

    Args:
      f: a function that closes over no arrays but scalars, as `get_fusion_values` gives it.
      out_block_specs: a `BlockSpec`, or `pl.no_block_spec` where nothing is wanted, for each result, in their tree.
      scalar_prefetch_handler: a function of what the kernel prefetches to the scalars that `f` closes over, each in an
        array of one element, as `make_scalar_prefetch_handler` makes one.
      grid_len: the rank of the grid; None where nothing is prefetched.
      strict_mode: whether blocks of an argument that is used twice have to be at one place, not only of one shape.

    Returns: a function of the types of the arguments to `(kernel, args, kwargs)`: trees of a `BlockSpec` for each
    argument, and `kernel(ids, prefetched, *args, **kwargs)`, of the step's indices, what is prefetched and blocks, to
    the block of the results.

    Operations of elements, of layout and reductions over whole axes have blocks. Errors: NotImplementedError for
    others; ValueError where one argument is needed in different blocks.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import fuser
    >>> block = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    >>> kernel, (spec,), _ = fuser.pull_block_spec(lambda x: 2 * x.T, block, grid_len=2)(jnp.ones((8, 4)))
    >>> spec.block_shape, spec.index_map(1, 0)
    ((4, 2), (0, 1))
    >>> kernel((1, 0), (), jnp.ones((4, 2))).shape
    (2, 4)
    """

    def wrapped(*args, **kwargs):
        traced = Traced(f, args, kwargs)
        specs = traced.out_tree.flatten_up_to(out_block_specs)
        pulled = _Pulled(traced, specs, scalar_prefetch_handler, grid_len, strict_mode)

        def kernel(ids, prefetched, *args, **kwargs):
            leaves = tree_util.tree_leaves((args, kwargs), is_leaf=lambda x: x is no_block_spec)
            with _prefetching(prefetched):
                return traced.out_tree.unflatten(pulled.compute(tuple(ids), leaves))

        found = traced.in_tree.unflatten([pulled.spec_of(var) for var in traced.jaxpr.invars])
        return kernel, *found

    return wrapped


def evaluate(f: Callable[..., Any], *, allow_transpose: bool = True) -> Callable[..., Any]:
    """A function that does what `f` does, operation by operation, where that has no loops and branches.

    Args: f: a function of pytrees of arrays; allow_transpose: whether it may have transposes.

    Errors: NotImplementedError for loops and branches, ValueError for a transpose that is not allowed.

    >>> from ferrax.experimental.pallas import fuser
    >>> fuser.evaluate(lambda x: x + 1)(jnp.ones(2))
    Array([2., 2.], dtype=float32)
    """

    def wrapped(*args, **kwargs):
        traced = Traced(f, args, kwargs)
        for eqn in traced.jaxpr.eqns:
            if eqn.primitive.name in ("scan", "while", "cond"):
                raise NotImplementedError(f"evaluate: {eqn.primitive.name} in a function of operations one by one")
            if eqn.primitive.name == "transpose" and not allow_transpose:
                raise ValueError("evaluate: the function has a transpose, with allow_transpose=False")
        leaves = tree_util.tree_leaves((args, kwargs))
        return traced.out_tree.unflatten(eval_jaxpr(traced.jaxpr, traced.constants, *leaves))

    return wrapped
