"""Tensors of PyTorch as arrays and arrays as tensors, in trees. Torch is imported by the first call.

A conversion copies: tensors are written to in place, and arrays never change. Cost: one copy of the elements, and
for 64-bit integers that become 32-bit ones a look at each.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import ml_dtypes
import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes, errors
from ferrax._src.core.devices import Device, local_devices
from ferrax._src.core.placement import device_put
from ferrax._src.tree import tree_util

# The dtypes of arrays that are those of tensors, too, by the same names. A torch that lacks one has no tensors of it.
_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip


@functools.cache
def library() -> Any:
    """The module `torch`. Errors: ImportError where it is missing."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("ferrax.torch needs PyTorch, which is not installed: pip install ferrax[torch]") from None


@functools.cache
def _tables() -> tuple[dict, dict]:
    """NumPy's dtypes by torch's, and the other way round."""
    torch = library()
    pairs = [
        (getattr(torch, name), np.dtype(getattr(ml_dtypes, name, name)))
        for name in _NAMES
        if hasattr(torch, name)
    ]
    return dict(pairs), {ours: theirs for theirs, ours in pairs}


def is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, library().Tensor)


def array_dtype(dtype: Any) -> np.dtype:
    """The dtype of arrays that a torch dtype stands for, 64 bits as they are. Errors: TypeError if there is none."""
    found = _tables()[0].get(dtype)
    if found is None:
        raise TypeError(f"no dtype of arrays is {dtype}: convert the tensor first, for instance with tensor.float()")
    return found


def tensor_dtype(dtype: Any) -> Any:
    """The torch dtype of a dtype of arrays. Errors: TypeError if there is none."""
    found = _tables()[1].get(dtype)
    if found is None:
        what = "random keys" if dtypes.issubdtype(dtype, dtypes.prng_key) else str(dtype)
        how = "ferrax.random.key_data(keys)" if dtypes.issubdtype(dtype, dtypes.prng_key) else "x.astype(dtype)"
        raise TypeError(f"no dtype of torch {library().__version__} is that of {what}: convert first, with {how}")
    return found


def from_torch(tensors: Any, copy: bool | None = None, *, detach: bool = False) -> Any:
    """Arrays of the tensors of a tree, with their shapes and dtypes, not weak.

    Tensors may lie anyhow: strides, conjugate and negative bits are resolved, other devices copied from.

    Args:
        tensors: a tensor, or a tree of them, such as `dict(module.named_parameters())`.
        copy: None and True copy. False shares the memory, which must not be written while the array lives.
        detach: whether tensors that require gradients are taken without these; they are refused otherwise.

    Returns:
        A tree of arrays. Without `jax_enable_x64` 64-bit floats and complex numbers are rounded to 32-bit ones, and
        integers are those of 32 bits if each of them fits.

    Raises:
        ImportError: PyTorch is not installed.
        TypeError: a leaf is no tensor, is not strided (sparse, nested), has no value (meta, within `torch.func` or
            `torch.compile`) or a dtype that arrays do not have.
        ValueError: a tensor requires gradients; `copy=False`, and a copy is needed.
        OverflowError: an integer needs 64 bits, which are off.

    Example:
        >>> import torch
        >>> ferrax.torch.from_torch({"w": torch.ones(2, dtype=torch.bfloat16), "n": torch.tensor(3)})
        {'n': Array(3, dtype=int32), 'w': Array([1, 1], dtype=bfloat16)}
    """
    library()

    def convert(path, leaf):
        if not is_tensor(leaf):
            at = f" at {tree_util.keystr(path)}" if path else ""
            raise TypeError(f"from_torch takes tensors, got {leaf!r} of type {type(leaf).__name__}{at}")
        if leaf.requires_grad and not detach:
            at = f" at {tree_util.keystr(path)}" if path else ""
            raise ValueError(
                f"from_torch: the tensor{at} requires gradients, which arrays do not carry back to torch. Pass "
                "detach=True to go without, or call the function of arrays through ferrax.torch.as_torch_function"
            )
        return to_array(leaf, copy is not False, only_shared=copy is False)

    return tree_util.tree_map_with_path(convert, tensors)


def to_array(tensor: Any, copy: bool, only_shared: bool = False) -> core.Array:
    """One tensor as an array, without its gradient. `copy`: whether it gets memory of its own; else it is shared
    where that can be, and with `only_shared` it is a ValueError where it cannot."""
    _check_value(tensor)
    wide = array_dtype(tensor.dtype)
    narrow = dtypes.canonicalize_dtype(wide)
    if only_shared and (reason := _why_copied(tensor, wide, narrow)):
        raise ValueError(f"from_torch: copy=False, but {reason}")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if wide != narrow and dtypes.issubdtype(wide, np.integer):
        return core.as_array(_fitting(tensor, narrow))
    try:
        return _core.array_from_dlpack(tensor, True if copy else False if only_shared else None)
    except (BufferError, RuntimeError, TypeError) as error:
        # Versions of torch that do not export this dtype do export bytes.
        if only_shared:
            raise ValueError(f"from_torch: copy=False, but torch {library().__version__} fails: {error}") from error
        octets = tensor.contiguous().reshape(-1).view(library().uint8).numpy()
        return core.as_array(octets.view(wide).reshape(tuple(tensor.shape)))


def _check_value(tensor) -> None:
    """Errors: TypeError unless elements lie in memory somewhere."""
    torch = library()
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise TypeError(f"a tensor of layout {tensor.layout} is no array: convert it first, with tensor.to_dense()")
    if tensor.is_meta or has_no_memory(tensor):
        raise TypeError(
            f"a tensor of type {type(tensor).__name__} on device {tensor.device} has no elements to read here. Within "
            "torch.func and torch.compile call functions of arrays through ferrax.torch.as_torch_function"
        )


def has_no_memory(tensor: Any) -> bool:
    """Whether this stands for elements that another class or a transformation of torch knows of."""
    torch = library()
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    own = type(tensor).__torch_dispatch__
    return own is not torch.Tensor.__torch_dispatch__


def _why_copied(tensor, wide, narrow) -> str | None:
    if wide != narrow:
        return f"{wide} becomes {narrow} (jax_enable_x64 is off)"
    if tensor.device.type != "cpu":
        return f"the tensor is on {tensor.device}"
    if tensor.is_conj() or tensor.is_neg():
        return "its conjugate or negative is still to be computed"
    return None


def _fitting(tensor, dtype) -> np.ndarray:
    """Its integers with fewer bits. Errors: OverflowError where one does not fit."""
    values = tensor.numpy()
    bounds = np.iinfo(dtype)
    if values.size and (values.max() > bounds.max or values.min() < bounds.min):
        raise OverflowError(
            f"an integer of a tensor of {values.dtype} does not fit into {np.dtype(dtype)}: got values from "
            f"{values.min()} to {values.max()}. Set jax_enable_x64 to keep 64 bits"
        )
    return values.astype(dtype)


def to_torch(arrays: Any, copy: bool = True) -> Any:
    """Tensors of the arrays of a tree, on the CPU, with their shapes and dtypes.

    Args:
        arrays: an array, or a tree of arrays, NumPy arrays and numbers; those on other devices are copied from.
        copy: True gives tensors memory of their own. False shares that of the arrays, which never change: the tensors
            must not be written to, which torch does not check.

    Returns:
        A tree of tensors that do not require gradients.

    Raises:
        ImportError: PyTorch is not installed.
        TypeError: a leaf is no array, or torch does not have its dtype: 4-bit numbers, random keys.
        ConcretizationTypeError: a leaf is traced.

    Example:
        >>> import torch
        >>> ferrax.torch.to_torch({"x": jnp.arange(3.0)})
        {'x': tensor([0., 1., 2.])}
    """
    library()

    def convert(leaf):
        if is_tensor(leaf):
            raise TypeError("to_torch takes arrays, got a tensor")
        return to_tensor(core.as_array(leaf, "to_torch"), copy)

    return tree_util.tree_map(convert, arrays)


@functools.cache
def _cpu() -> Device:
    return local_devices(backend="cpu")[0]


def to_tensor(array: core.Array, copy: bool = True) -> Any:
    """One array as a tensor: a copy, or its own memory, which must not be written."""
    torch = library()
    dtype = tensor_dtype(array.dtype)
    if isinstance(array, core.Tracer):
        raise errors.ConcretizationTypeError(array, "to_torch: tensors have values")
    if len(array.devices()) != 1 or array.__dlpack_device__() != (1, 0):
        array = device_put(array, _cpu())
    try:
        tensor = torch.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError):
        # Versions of torch that do not import this dtype do import bytes.
        octets = np.asarray(array).reshape(-1).view(np.uint8).copy()
        return torch.from_numpy(octets).view(dtype).reshape(array.shape)
    return tensor.clone() if copy else tensor


__all__ = ["from_torch", "to_torch"]
