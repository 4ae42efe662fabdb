"""Operators, indexing and methods of BCOO and BCSR arrays, by sparsified functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ferrax._src.numpy import api as jnp
from ferrax._src.sparse import rules
from ferrax._src.sparse.bcoo import BCOO
from ferrax._src.sparse.bcsr import BCSR
from ferrax._src.sparse.transform import sparsify
from ferrax._src.transforms.vmappables import register_vmappable


def _take(self: Any, idx: Any) -> Any:
    """Elements and slices, as of dense arrays."""
    taken = sparsify(operator.itemgetter(idx))(self)
    # Where nothing is taken the operations make zeros, which know nothing of the array.
    made_of_nothing = np.size(taken) == 0 and not isinstance(taken, BCOO)
    return BCOO.fromdense(taken) if made_of_nothing else taken


def _iterate(self: Any) -> Iterator[Any]:
    return iter([self[k] for k in range(self.shape[0])])


def _power(self: Any, exponent: Any) -> Any:
    # The exponent is no traced value, so that whole numbers are powers.
    return sparsify(lambda x: jnp.power(x, exponent))(self)


def _astype(self: Any, *args: Any, **kwargs: Any) -> Any:
    """With another dtype; as `Array.astype`."""
    return sparsify(lambda x: x.astype(*args, **kwargs))(self)


def _reshape(self: Any, *args: Any, **kwargs: Any) -> Any:
    """With another shape; as `Array.reshape`."""
    return sparsify(lambda x: x.reshape(*args, **kwargs))(self)


def _sum(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The sum over some axes, or all; as `Array.sum`."""
    return sparsify(lambda x: x.sum(*args, **kwargs))(self)


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    made = sparsify(function)

    def method(self: Any) -> Any:
        return made(self)

    return method


def _binary(function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    made = sparsify((lambda x, y: function(y, x)) if swapped else function)

    def method(self: Any, other: Any) -> Any:
        return made(self, other)

    return method


_BINARY: dict[str, Callable[..., Any]] = {
    "matmul": jnp.matmul, "mul": jnp.multiply, "truediv": jnp.divide, "add": jnp.add, "sub": jnp.subtract,
    "pow": jnp.power,
}  # fmt: skip
_COMPARED: dict[str, Callable[..., Any]] = {
    "gt": jnp.greater, "ge": jnp.greater_equal, "lt": jnp.less, "le": jnp.less_equal, "eq": jnp.equal,
    "ne": jnp.not_equal,
}  # fmt: skip


def _install() -> None:
    methods: dict[str, Callable[..., Any]] = {
        "astype": _astype,
        "reshape": _reshape,
        "sum": _sum,
        "__abs__": _unary(jnp.abs),
        "__neg__": _unary(jnp.negative),
        "__pos__": _unary(jnp.positive),
        "__pow__": _power,
        "__getitem__": _take,
        "__iter__": _iterate,
    }
    for name, function in _BINARY.items():
        methods.setdefault(f"__{name}__", _binary(function))
        methods[f"__r{name}__"] = _binary(function, swapped=True)
    for name, function in _COMPARED.items():
        methods[f"__{name}__"] = _binary(function)
    for name, method in methods.items():
        setattr(BCOO, name, method)
    for name in ("__matmul__", "__rmatmul__", "__getitem__"):
        setattr(BCSR, name, methods[name])


def _element(cont, get_index, mat, axis):
    """The element of a batch that `vmap` takes along a batch axis."""
    if axis is None:
        return mat
    if not 0 <= axis < mat.n_batch:
        raise ValueError(
            f"vmap maps a sparse array over its batch axes: in_axes={axis} is not below n_batch={mat.n_batch}"
        )
    buffers = []
    for buffer in mat._bufs:
        sizes = list(buffer.shape)
        sizes[axis] = mat.shape[axis]
        buffers.append(cont(jnp.broadcast_to(buffer, sizes), axis))
    shape = mat.shape[:axis] + mat.shape[axis + 1 :]
    return type(mat).tree_unflatten(mat._info._replace(shape=shape)._asdict(), buffers)


def _batch(cont, size, mat, axis):
    """The batch of elements that `vmap` returns."""
    if axis is None:
        return mat
    if not 0 <= axis <= mat.n_batch:
        raise ValueError(
            f"vmap puts batches of sparse arrays among batch axes: out_axes={axis} is above n_batch={mat.n_batch}"
        )
    buffers = [cont(size, buffer, axis) for buffer in mat._bufs]
    shape = (*mat.shape[:axis], size, *mat.shape[axis:])
    return type(mat).tree_unflatten(mat._info._replace(shape=shape)._asdict(), buffers)


_install()
# The numbers of elements are made as for arrays.
_NO_IOTA: Any = None
for _format in (BCOO, BCSR):
    register_vmappable(_format, int, int, _element, _batch, _NO_IOTA)

__all__ = ["rules"]
