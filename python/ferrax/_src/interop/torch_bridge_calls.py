"""Functions of PyTorch's tensors as functions of arrays, with derivatives.

In: a function or module of torch. Out: a function of arrays that calls it back from programs. The backward step is a
callback of its own, which runs the function again on the same operands, from the state of torch's random generator that
the forward step began with, and asks autograd; nothing is kept between the two but arrays. Its derivatives are made the
same way. Cost: a call, a copy of all operands and results; of a derivative the function once more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.callbacks.callback import pure_callback
from ferrax._src.core import api_util
from ferrax._src.interop.torch_bridge import (
    array_dtype,
    is_tensor,
    library,
    tensor_dtype,
    to_array,
    to_tensor,
)
from ferrax._src.lax import api as lax
from ferrax._src.transforms.custom_rules import SymbolicZero
from ferrax._src.transforms.custom_vjp import custom_vjp
from ferrax._src.tree import tree_util

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", None)


def as_jax_function(
    fun: Callable[..., Any], result_shape_dtypes: Any = None, *, vmap_method: str | None = "sequential"
) -> Callable[..., Any]:
    """A function of PyTorch's tensors as one of arrays, for programs that are compiled and differentiated.

    It is called back, on the CPU, with copies of its arguments, which it may write to. `grad` and `vjp` to any order
    run it again and ask autograd; for random numbers of torch's generator it then begins where it began before.
    Forward-mode derivatives are refused, as for `custom_vjp`. Everything else is as for `pure_callback`: it is not
    called where its results are not used.

    Args:
        fun: a function of trees of tensors to a tree of tensors. A `torch.nn.Module` becomes a function of its
            parameters (and buffers, if wanted), as a dict by name, and its arguments; what is not in the dict is the
            module's, and no derivative reaches it. The module itself stays as it is.
        result_shape_dtypes: a tree like the results', of anything with shape and dtype. None: found for each signature
            by calling `fun` with tensors that have no values, in torch's `FakeTensorMode`.
        vmap_method: as for `pure_callback`: "sequential", "sequential_unrolled", "expand_dims", "broadcast_all" or
            None.

    Raises:
        ImportError: PyTorch is not installed.
        TypeError: `fun` is not callable; when called, the types of results cannot be found, results are no tensors, or
            an argument's dtype is none of torch's.
        ValueError: another `vmap_method`; when called, a name that is none of the module's.
        JaxRuntimeError: when run, `fun` raises, which is the cause, or gives other types than expected.

    Example:
        >>> import torch
        >>> f = ferrax.torch.as_jax_function(lambda x: torch.special.i0(x).sum())
        >>> ferrax.jit(ferrax.grad(f))(jnp.array([0.0, 1.0]))
        Array([0.        , 0.56515914], dtype=float32)
    """
    torch = library()
    api_util.check_callable(fun)
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"as_jax_function: vmap_method must be one of {VMAP_METHODS}, got {vmap_method!r}")
    function = functools.partial(_call_module, fun) if isinstance(fun, torch.nn.Module) else fun
    flats: dict[Any, _Flat] = {}

    @api_util.wraps(fun, "A function of arrays", "made by as_jax_function")
    def called(*args, **kwargs):
        if isinstance(fun, torch.nn.Module):
            _check_names(fun, args)
        leaves, tree = tree_util.tree_flatten((args, kwargs))
        arrays = [core.as_array(leaf, api_util.fun_name(fun)) for leaf in leaves]
        types = tuple((x.shape, x.dtype) for x in arrays)
        key = tree, types, dtypes.canonicalize_dtype(np.int64)
        flat = flats.get(key)
        if flat is None:
            out = _results(function, fun, tree, types) if result_shape_dtypes is None else result_shape_dtypes
            made = _flat(function, fun, tree, types, out, vmap_method)
            flat = flats.setdefault(key, made)
        return flat.out_tree.unflatten(flat.call(*arrays))

    return called


# Modules


def _check_names(module, args) -> None:
    """Errors: TypeError, ValueError unless the first argument is a dict of some of its parameters and buffers."""
    state = args[0] if args else None
    if not isinstance(state, dict):
        raise TypeError(
            f"{type(module).__name__}, made by as_jax_function, takes the dict of its parameters first, such as "
            f"ferrax.torch.from_torch(dict(module.named_parameters()), detach=True), got {type(state).__name__}"
        )
    known = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    unknown = sorted(set(state) - known)
    if unknown:
        raise ValueError(f"{type(module).__name__} has no parameters and buffers of the names {unknown}")


def _call_module(module, state, *args, **kwargs):
    """The module with this state. Buffers that it writes to are not its own."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers() if name not in state}
    return library().func.functional_call(module, {**buffers, **state}, args, kwargs)


# Types of results


def _results(function, fun, tree, types):
    """The types of results, from a call with tensors that have no values."""
    # A module of torch's that takes long to import.
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch = library()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.random.fork_rng(devices=[]), _plain_modes():
            tensors = [torch.empty(shape, dtype=tensor_dtype(dtype)) for shape, dtype in types]
            args, kwargs = tree.unflatten(tensors)
            out = function(*args, **kwargs)
    except Exception as error:
        raise TypeError(
            f"as_jax_function: the types of the results of {api_util.fun_name(fun)} cannot be found, as it fails for "
            f"tensors without values: {error}\nPass result_shape_dtypes"
        ) from error
    return tree_util.tree_map(lambda leaf: _type(fun, leaf), out)


def _type(fun, leaf):
    if not is_tensor(leaf):
        raise TypeError(f"as_jax_function: {api_util.fun_name(fun)} is to return tensors, got {leaf!r}")
    dtype = dtypes.canonicalize_dtype(array_dtype(leaf.dtype))
    return core.ShapeDtypeStruct(tuple(map(int, leaf.shape)), dtype)


@contextlib.contextmanager
def _plain_modes():
    """Gradients are on, whatever is on around the program that calls back: its results depend on its operands alone."""
    torch = library()
    with torch.inference_mode(False), torch.enable_grad():
        yield


# Flat functions


@dataclasses.dataclass(eq=False)
class _Flat:
    """A function of tensors to a list of tensors, of fixed types.

    `ranks` are those of the arguments of one lane. `per_lane`: whether arguments that have no batch are expanded to it,
    so that a gradient is that of each lane.
    """

    function: Callable[..., Sequence[Any]]
    name: str
    ranks: tuple[int, ...]
    results: tuple[core.ShapeDtypeStruct, ...]
    out_tree: Any
    vmap_method: str | None
    per_lane: bool = False

    def __post_init__(self) -> None:
        self.__name__ = self.name
        self.gradients: dict[Any, _Flat] = {}
        self._differentiable = _differentiable(self)

    def call(self, *arrays):
        """Its results in programs."""
        return self._differentiable(*arrays)[:-1]

    def __call__(self, *arrays):
        """Its results, and the random state before it ran, for each lane."""
        state = library().get_rng_state().numpy()
        lanes = np.broadcast_shapes(*(x.shape[: x.ndim - rank] for x, rank in zip(arrays, self.ranks)))
        with _plain_modes():
            tensors = [to_tensor(array) for array in arrays]
            if self.per_lane:
                tensors = [t.expand(lanes + t.shape[t.dim() - rank :]).clone() for t, rank in zip(tensors, self.ranks)]
            outs = list(self.function(*tensors))
        for out in outs:
            if not is_tensor(out):
                raise TypeError(f"{self.name} is to return tensors, got {out!r} of type {type(out).__name__}")
        return [*(to_array(out, copy=True) for out in outs), np.broadcast_to(state, (*lanes, *state.shape))]

    def gradient(self, chosen: tuple[int, ...], types: Sequence[core.ShapeDtypeStruct]) -> _Flat:
        """From its arguments, which are of these types, cotangents of its inexact results and its random state to
        cotangents of the arguments at `chosen`."""
        found = self.gradients.get(chosen)
        if found is None:
            inexact = tuple(i for i, result in enumerate(self.results) if dtypes.has_tangent(result.dtype))
            results = tuple(types[i] for i in chosen)
            made = _Flat(
                functools.partial(_gradients, self.function, len(types), inexact, chosen),
                f"gradient of {self.name}",
                (*self.ranks, *(len(self.results[i].shape) for i in inexact), 1),
                results,
                tree_util.tree_structure(list(results)),
                self.vmap_method,
                per_lane=True,
            )
            found = self.gradients.setdefault(chosen, made)
        return found


def _flat(function, fun, tree, types, out, vmap_method):
    leaves, out_tree = tree_util.tree_flatten(out)
    results = tuple(core.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    name = api_util.fun_name(fun)

    def flat(*tensors):
        args, kwargs = tree.unflatten(tensors)
        found, found_tree = tree_util.tree_flatten(function(*args, **kwargs))
        if found_tree != out_tree:
            raise TypeError(f"{name} returned {found_tree}, but result_shape_dtypes is {out_tree}")
        return found

    return _Flat(flat, name, tuple(len(shape) for shape, _ in types), results, out_tree, vmap_method)


def _gradients(function, count, inexact, chosen, *given):
    """What `_Flat.gradient` computes."""
    torch = library()
    operands, cotangents, state = list(given[:count]), given[count:-1], given[-1]
    again = any(t.requires_grad for t in given)
    for i in chosen:
        if not operands[i].requires_grad:
            operands[i] = operands[i].detach().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state.detach().reshape(-1, state.shape[-1])[0].clone())
        # Copies, since what requires gradients and is nobody's result cannot be written to.
        outs = function(*(t.clone() if i in chosen else t for i, t in enumerate(operands)))
    pairs = [(outs[i], ct) for i, ct in zip(inexact, cotangents) if outs[i].requires_grad]
    wanted = [operands[i] for i in chosen]
    if not pairs:
        return [torch.zeros_like(t) for t in wanted]
    results, cotangents = zip(*pairs)
    return torch.autograd.grad(
        results, wanted, cotangents, create_graph=again, allow_unused=True, materialize_grads=True
    )


# Programs


def _differentiable(flat):
    """A flat function in programs, with its derivatives. Its last result is the random state before it ran; the forward
    rule is itself again, so that it is differentiated as often as one likes."""

    def primal(*arrays):
        state = core.ShapeDtypeStruct(tuple(library().get_rng_state().shape), np.uint8)
        return pure_callback(flat, [*flat.results, state], *arrays, vmap_method=flat.vmap_method)

    def forward(*operands):
        chosen = tuple(i for i, x in enumerate(operands) if x.perturbed and dtypes.has_tangent(x.value.dtype))
        values = [x.value for x in operands]
        results = call(*values)
        types = [core.ShapeDtypeStruct(x.shape, x.dtype) for x in values]
        residuals = tree_util.Partial(_Backward(flat, flat.gradient(chosen, types), chosen), values, results[-1])
        return results, residuals

    primal.__name__ = flat.name
    call = custom_vjp(primal)
    call.defvjp(forward, lambda residuals, cotangents: residuals(cotangents), symbolic_zeros=True)
    return call


@dataclasses.dataclass(frozen=True)
class _Backward:
    """From operands, the random state and cotangents of the results to those of the operands at `chosen`, None for
    others. Torch's cotangents of complex numbers are the conjugates of those here."""

    flat: _Flat
    gradient: _Flat
    chosen: tuple[int, ...]

    def __call__(self, operands, state, cotangents):
        given = [
            _conjugate(lax.full(ct.shape, 0, ct.dtype) if isinstance(ct, SymbolicZero) else ct)
            for ct, result in zip(cotangents, self.flat.results)
            if dtypes.has_tangent(result.dtype)
        ]
        found: list[Any] = [None] * len(operands)
        for i, value in zip(self.chosen, self.gradient.call(*operands, *given, state)):
            found[i] = _conjugate(value)
        return tuple(found)


def _conjugate(x):
    return lax.conj(x) if dtypes.issubdtype(x.dtype, np.complexfloating) else x


__all__ = ["as_jax_function"]
