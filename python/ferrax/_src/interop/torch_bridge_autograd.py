"""Compiled functions of arrays as functions of torch's autograd. It is imported when torch is known to be there.

In: a call, which is a program, its values without derivatives, and whether 64 bits are on; and tensors. Out: tensors.
Operands and results are copied where something lives on that could see them change. One backward step
reads residuals, which torch saves and frees as it does its own; what is differentiated twice, batched, or traced by
torch computes them anew, as a call of the program's gradient. Within torch's tracing a call is the operation
`ferrax::call`, which names it by number.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.interop.torch_bridge import (
    array_dtype,
    has_no_memory,
    tensor_dtype,
    to_array,
    to_tensor,
)
from ferrax._src.interop.torch_bridge_programs import Program, pull_back
from ferrax._src.tree import tree_util

# Calls by the numbers that graphs of torch's have, and these by value. They stay: none knows when a graph is gone.
_numbered: list[Call] = []
_numbers: dict[Any, int] = {}


@dataclasses.dataclass(eq=False)
class Call:
    """A program with its values `rest`. `out_tree` is the structure of its results once it ran."""

    program: Program
    rest: Any
    x64: bool
    out_tree: Any = None

    def number(self) -> int:
        leaves = tuple(tree_util.tree_leaves(self.rest))
        values = tuple(id(leaf) if isinstance(leaf, core.Array) else leaf for leaf in leaves)
        key = self.program, self.x64, values, tuple(map(type, leaves))
        if key not in _numbers:
            _numbered.append(self)
            _numbers[key] = len(_numbered) - 1
        return _numbers[key]

    def gradient(self, chosen: tuple[int, ...], cotangents: int) -> Call:
        return Call(self.program.gradient(chosen, cotangents), self.rest, self.x64)

    def tangent(self, chosen: tuple[int, ...]) -> Call:
        return Call(self.program.tangent(chosen), self.rest, self.x64)

    def batched(self, axes: tuple[int | None, ...]) -> Call:
        return Call(self.program.batched(axes), self.rest, self.x64)


def apply(call: Call, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a call, flat, with derivatives of all kinds."""
    if any(map(_has_hidden_axis, tensors)):
        return _apply_over_hidden_axis(call, tensors)
    function = _Transformed if _is_transformed(tensors) else _Plain
    return function.apply(call, *tensors)


def _is_transformed(tensors) -> bool:
    """Whether torch transforms or traces, so that what is called are to be operations that it knows."""
    return (
        torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(map(has_no_memory, tensors))
    )


def _has_hidden_axis(tensor) -> bool:
    """Whether it is of a batch of `is_grads_batched=True` or `vectorize=True`, which are older than `torch.func`."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def _apply_over_hidden_axis(call, tensors):
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    axes = tuple(0 if _has_hidden_axis(tensor) else None for tensor in tensors)
    # The size, here 0, is only looked at where a tensor has no such axis.
    whole = [t if axis is None else torch._remove_batch_dim(t, level, 0, 0) for t, axis in zip(tensors, axes)]
    batched = call.batched(axes)
    outs = apply(batched, whole)
    call.out_tree = batched.out_tree
    return tuple(torch._add_batch_dim(out, 0, level) for out in outs)


# Values


def _compute(call, tensors):
    """The results as tensors that share nothing, of tensors that may lie anywhere."""
    if torch._C._len_torch_dispatch_stack() > 0 or any(map(has_no_memory, tensors)):
        call.out_tree = tree_util.tree_structure(_types(call, tensors))
        return tuple(torch.ops.ferrax.call(call.number(), list(tensors)))
    with _bits(call.x64):
        arrays = [to_array(tensor, copy=False) for tensor in tensors]
        return _tensors(call, call.program.run(call.rest, *arrays), tensors)


def _bits(x64):
    """Has 64 bits on or off. Setting a flag costs as much as the rest of a small call."""
    return contextlib.nullcontext() if config.enable_x64.value == x64 else config.enable_x64(x64)


def _tensors(call, out, operands):
    leaves, call.out_tree = tree_util.tree_flatten(out)
    device = _device(operands)
    return tuple(to_tensor(leaf).to(device) for leaf in leaves)


def _device(tensors):
    """Where results go: to the first device that is not the processor."""
    return next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))


def _types(call, tensors):
    """The tree of the types of results. Sizes that torch keeps open are fixed by being read."""
    with _bits(call.x64):
        structs = [
            core.ShapeDtypeStruct(tuple(map(int, t.shape)), dtypes.canonicalize_dtype(array_dtype(t.dtype)))
            for t in tensors
        ]
        return call.program.types(call.rest, structs)


@torch.library.custom_op("ferrax::call", mutates_args=(), schema="(int number, Tensor[] operands) -> Tensor[]")
def _operation(number, operands):
    return list(_compute(_numbered[number], operands))


@_operation.register_fake
def _(number, operands):
    leaves = tree_util.tree_leaves(_types(_numbered[number], operands))
    device = _device(operands)
    return [torch.empty(leaf.shape, dtype=tensor_dtype(leaf.dtype), device=device) for leaf in leaves]


# Derivatives


def _mark(ctx, outs):
    ctx.inexact = tuple(i for i, out in enumerate(outs) if _has_tangent(out))
    ctx.mark_non_differentiable(*(out for out in outs if not _has_tangent(out)))


def _has_tangent(tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _gradients(ctx, operands, cotangents):
    """Of the operands at `ctx.chosen`, as a call that torch can differentiate and transform."""
    call = ctx.call.gradient(ctx.chosen, len(cotangents))
    return apply(call, (*operands, *cotangents))


def _placed(ctx, gradients):
    """What `backward` returns: a gradient for each of the chosen operands, where that lies."""
    found: list[Any] = [None] * ctx.count
    for position, device, gradient in zip(ctx.chosen, ctx.devices, gradients):
        found[position] = gradient.to(device)
    return (None, *found)


class _Function(torch.autograd.Function):
    @staticmethod
    def jvp(ctx, _, *tangents):
        operands = ctx.saved_tensors[: ctx.count]
        chosen = tuple(i for i, t in enumerate(tangents) if t is not None and _has_tangent(operands[i]))
        given = [tangents[i] for i in chosen]
        found: list[Any] = [None] * ctx.results
        for position, tangent in zip(ctx.inexact, apply(ctx.call.tangent(chosen), (*operands, *given))):
            found[position] = tangent
        return tuple(found)


class _Plain(_Function):
    """Of tensors with memory: residuals are kept from the forward to the backward step."""

    @staticmethod
    def forward(ctx, call, *tensors):
        chosen = tuple(i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed)
        ctx.call, ctx.chosen, ctx.count = call, chosen, len(tensors)
        ctx.save_for_forward(*tensors)
        if not chosen:
            outs = _compute(call, tensors)
            ctx.results = len(outs)
            _mark(ctx, outs)
            return outs
        ctx.devices = [tensors[i].device for i in chosen]
        with _bits(call.x64):
            arrays = [to_array(tensor, copy=True) for tensor in tensors]
            out, pull = call.program.forward(chosen)(call.rest, *arrays)
            outs = _tensors(call, out, tensors)
            # What was not to be differentiated may be written to from here on: the copies are kept.
            operands = [t if i in chosen else to_tensor(arrays[i], copy=False) for i, t in enumerate(tensors)]
        ctx.results = len(outs)
        _mark(ctx, outs)
        _save(ctx, operands, pull)
        return outs

    @staticmethod
    def backward(ctx, *cotangents):
        given = [cotangents[i] for i in ctx.inexact]
        saved = ctx.saved_tensors
        if torch.is_grad_enabled() or _is_transformed(given) or any(map(_has_hidden_axis, given)):
            return _placed(ctx, _gradients(ctx, saved[: ctx.count], given))
        with _bits(ctx.call.x64):
            arrays = [to_array(tensor, copy=False) for tensor in given]
            gradients = pull_back(_residuals(ctx, saved[ctx.count :]), arrays)
            return _placed(ctx, map(to_tensor, gradients))


def _save(ctx, operands, pull):
    """Keeps residuals as tensors where torch has such, so that it frees them, or does with them what its hooks say."""
    leaves, ctx.tree = tree_util.tree_flatten(pull)
    as_tensors = [leaf if leaf.weak_type or not _is_known(leaf.dtype) else None for leaf in leaves]
    ctx.others = as_tensors
    shared = [to_tensor(leaf, copy=False) for leaf, other in zip(leaves, as_tensors) if other is None]
    ctx.save_for_backward(*operands, *shared)


def _is_known(dtype) -> bool:
    try:
        return tensor_dtype(dtype) is not None
    except TypeError:
        return False


def _residuals(ctx, saved):
    tensors = iter(saved)
    leaves = [to_array(next(tensors), copy=False) if other is None else other for other in ctx.others]
    return ctx.tree.unflatten(leaves)


class _Transformed(_Function):
    """Within `torch.func` and torch's tracing: no residuals but the operands."""

    @staticmethod
    def forward(call, *tensors):
        return _compute(call, tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, *tensors = inputs
        ctx.count, ctx.results = len(tensors), len(output)
        _mark(ctx, output)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx, *cotangents):
        operands = ctx.saved_tensors
        ctx.chosen = tuple(i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed)
        ctx.devices = [operands[i].device for i in ctx.chosen]
        return _placed(ctx, _gradients(ctx, operands, [cotangents[i] for i in ctx.inexact]))

    @staticmethod
    def vmap(info, axes, call, *tensors):
        batched = call.batched(tuple(axes[1:]))
        outs = apply(batched, tensors)
        call.out_tree = batched.out_tree
        return outs, (0,) * len(outs)


__all__ = ["Call", "apply"]
