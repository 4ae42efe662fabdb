"""`buffer_callback`: Python functions that write their results into arrays which they are given.

Invariants: a callback's operands are read-only views of the program's arrays, unless an output
aliases one: then both are views of one copy of it. Outputs are fresh memory, which becomes the
results; what the callback does not write there is indeterminate.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import effects, errors
from ferrax._src.callbacks.callback import (
    FlatCallback,
    batch_by_method,
    check_vmap_method,
    no_derivative,
    primitive_with_results,
    result_types,
)
from ferrax._src.tree import tree_util


class Buffer:
    """Memory that a callback reads or writes: `np.asarray(buffer)` is a view of it.

    Attributes:
        shape, dtype, ndim: as those of arrays.
        writeable: whether the callback may write to it; operands it may only read.

    Callbacks are given buffers; they are not made otherwise.

    >>> ferrax.experimental.buffer_callback.Buffer.__module__
    'ferrax.experimental.buffer_callback'
    """

    def __init__(self, array: np.ndarray, writeable: bool) -> None:
        self._array = array.view()
        self._array.flags.writeable = writeable
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.writeable = writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The memory as a NumPy array. ValueError for another dtype: convert the array."""
        if dtype is not None and np.dtype(dtype) != self.dtype:
            raise ValueError(
                f"a Buffer of {self.dtype} gives arrays of this dtype, got dtype={np.dtype(dtype)}: "
                "convert the array"
            )
        return self._array.copy() if copy else self._array

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The memory as a DLPack capsule; `kwargs` are those of the protocol."""
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the memory is: `(1, 0)`, the CPU."""
        return self._array.__dlpack_device__()

    def __repr__(self) -> str:
        access = "" if self.writeable else ", read-only"
        return f"Buffer({self.dtype}{list(self.shape)}{access})"


class ExecutionStage(enum.Enum):
    """When a callback is called. Those of ferrax are called when the program runs: `EXECUTE`.

    >>> ferrax.experimental.buffer_callback.ExecutionStage.EXECUTE.value
    3
    """

    INSTANTIATE = 0
    PREPARE = 1
    INITIALIZE = 2
    EXECUTE = 3


class ExecutionContext:
    """What a callback is told of the program that calls it.

    >>> ferrax.experimental.buffer_callback.ExecutionContext().stage
    <ExecutionStage.EXECUTE: 3>
    """

    @property
    def stage(self) -> ExecutionStage:
        """`ExecutionStage.EXECUTE`."""
        return ExecutionStage.EXECUTE

    @property
    def stream(self) -> int:
        """The stream of a GPU. JaxRuntimeError: programs run on the CPU."""
        raise errors.JaxRuntimeError(
            "an ExecutionContext has a stream on GPUs only, not on the CPU"
        )


@dataclasses.dataclass(frozen=True)
class BufferCallback(FlatCallback):
    """A function of the context, a tree of output buffers, and operands as buffers, as one of flat
    arguments that returns flat results."""

    out_tree: Any
    types: tuple
    aliases: tuple

    def __call__(self, *leaves):
        operands: list[np.ndarray] = [np.asarray(leaf) for leaf in leaves]
        results: list[np.ndarray] = [np.empty(aval.shape, aval.dtype) for aval in self.types]
        for place, output in self.aliases:
            results[output][...] = operands[place]
            operands[place] = results[output]
        args, kwargs = self.in_tree.unflatten(Buffer(array, False) for array in operands)
        outputs = self.out_tree.unflatten([Buffer(array, True) for array in results])
        returned = self.callback_func(ExecutionContext(), outputs, *args, **kwargs)
        if returned is not None:
            raise ValueError(
                "the function of a buffer_callback writes its results into its output buffers and "
                f"returns None; it returned {returned!r}"
            )
        return results


buffer_callback_p = primitive_with_results("buffer_callback")


@buffer_callback_p.def_effectful_abstract_eval
def _types(*avals, callback, result_avals, has_side_effect, vmap_method):
    return result_avals, {effects.io_effect} if has_side_effect else effects.no_effects


no_derivative(
    buffer_callback_p,
    "buffer_callback has no JVP: Python code that is called back cannot be differentiated. Give the "
    "function around it a rule, with ferrax.custom_jvp or ferrax.custom_vjp.",
    "buffer_callback has no transpose: Python code that is called back cannot be run backwards. Give "
    "the function around it a rule with ferrax.custom_vjp.",
)
batch_by_method(
    buffer_callback_p, lambda callback, types: dataclasses.replace(callback, types=types)
)


def _checked_aliases(aliases, operands, results) -> tuple:
    """The pairs of an operand and an output, ordered; ValueError for those that cannot be one."""
    pairs = sorted((int(place), int(output)) for place, output in (aliases or {}).items())
    for place, output in pairs:
        if not 0 <= place < len(operands):
            raise ValueError(
                f"input_output_aliases: there is no input {place}, the inputs are 0 to "
                f"{len(operands) - 1}"
            )
        if not 0 <= output < len(results):
            raise ValueError(
                f"input_output_aliases: there is no output {output}, the outputs are 0 to "
                f"{len(results) - 1}"
            )
        given, wanted = core.typeof(operands[place]), results[output]
        if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(
                f"input_output_aliases: input {place} is {given.str_short()} and output {output} "
                f"{wanted.str_short()}; aliases have one shape and dtype"
            )
    return tuple(pairs)


def buffer_callback(
    callback: Callable[..., None], result_shape_dtypes: Any, *, has_side_effect: bool = False,
    vmap_method: str | None = None, input_output_aliases: dict[int, int] | None = None,
    command_buffer_compatible: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function of arrays, computed by Python code that writes into buffers.

    Args:
        callback: called as `callback(context, outputs, *args, **kwargs)`: an `ExecutionContext`, a tree
            of writeable buffers like `result_shape_dtypes`, and the arguments with buffers for their
            leaves. It writes all of its outputs and returns None.
        result_shape_dtypes: a tree of anything with shape and dtype: the types of the results.
        has_side_effect: whether it is called where nothing uses its results, too.
        vmap_method: what `vmap` does, as for `pure_callback`.
        input_output_aliases: from numbers of inputs to numbers of outputs, both flattened: such an
            output begins as what the input is, and shares its memory.
        command_buffer_compatible: says something of GPUs, and changes nothing on the CPU.

    Returns: a function of trees of arrays, which returns a tree of arrays.

    Errors: ValueError for aliases that do not fit, unknown methods, and under derivatives;
    NotImplementedError under `vmap` without a method; JaxRuntimeError where the function raises or
    returns something.

    Example:
        >>> def increment(context, out, x):
        ...     np.asarray(out)[...] = np.asarray(x) + 1
        >>> function = buffer_callback.buffer_callback(
        ...     increment, ferrax.ShapeDtypeStruct((2,), jnp.float32))
        >>> ferrax.jit(function)(jnp.array([1.0, 2.0]))
        Array([2., 3.], dtype=float32)
    """
    check_vmap_method(vmap_method)
    avals, out_tree = result_types(result_shape_dtypes)

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree_util.tree_flatten((args, kwargs))
        aliases = _checked_aliases(input_output_aliases, leaves, avals)
        outs = buffer_callback_p.bind(
            *leaves,
            callback=BufferCallback(callback, in_tree, out_tree, avals, aliases),
            result_avals=avals,
            has_side_effect=bool(has_side_effect),
            vmap_method=vmap_method,
        )
        return out_tree.unflatten(outs)

    return call


__all__ = ["Buffer", "ExecutionContext", "ExecutionStage", "buffer_callback"]
