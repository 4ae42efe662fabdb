"""Costs of single operations: what each counts as arithmetic, and the bytes that it reads and writes.

The counts are those that JAX documents and tests: a fused multiplication and addition is two flops, any other function
of an element one, what only moves elements none. Primitives that are not here are free.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ferrax._src.interop.roofline.model import RooflineResult, RooflineShape, cost_of, of_names


def _moved(flops: Any, *arrays: RooflineShape) -> RooflineResult:
    """So many flops, and the bytes of these arrays."""
    return RooflineResult(unfused_flops=int(flops), unfused_hbm_bytes=sum(array.bytes for array in arrays))


def _out(ctx) -> RooflineShape:
    return RooflineShape.from_aval(ctx.avals_out[0])


@of_names(
    "abs acos asin atan bessel_i0e bessel_i1e cbrt ceil conj cos cosh digamma erf erf_inv erfc exp expm1 floor imag "
    "integer_pow is_finite lgamma log log1p logistic neg not real round rsqrt sign sin sinh sqrt square tan"
)
def _of_element(ctx, x, **params):
    return _moved(x.size, x, _out(ctx))


@of_names("add and div eq ge gt le lt max min mul ne or rem sub xor")
def _of_two(ctx, x, y, **params):
    return _moved(_out(ctx).size, x, y, _out(ctx))


@of_names("select_n")
def _select(ctx, which, *cases, **params):
    return _moved(_out(ctx).size, which, _out(ctx))


@of_names("cummax cummin cumprod cumsum")
def _running(ctx, x, *, axis, **params):
    """Along one line."""
    return _moved(x.shape[axis], x, _out(ctx))


@of_names("cumlogsumexp")
def _running_log(ctx, x, *, axis, **params):
    """As many exponentials as sums and logarithms."""
    return _moved(2 * x.shape[axis], x, _out(ctx))


@of_names("reduce_sum")
def _sum(ctx, x, *, axes, **params):
    out = _out(ctx)
    return RooflineResult(
        unfused_flops=x.size - out.size if x.size else 0, unfused_hbm_bytes=x.dtype.itemsize * (x.size + out.size)
    )


@of_names("dot_general")
def _product(ctx, x, y, *, dimension_numbers, **params):
    out = _out(ctx)
    contracted = math.prod(x.shape[axis] for axis in dimension_numbers[0][0])
    flops = 2 * out.size * contracted
    moved = (0 if ctx.pin_lhs_in_vmem else x.bytes + out.bytes) + (0 if ctx.pin_rhs_in_vmem else y.bytes)
    return RooflineResult(flops=flops, unfused_flops=flops, hbm_bytes=moved, unfused_hbm_bytes=moved)


@of_names("gather")
def _gather(ctx, operand, indices, *, mode, **params):
    """What is read of the operand is what is written. Where places may be out of bounds, each index is compared
    twice, and the two and their conjunction over a place reduced; then each element is chosen."""
    out = _out(ctx)
    flops = 4 * indices.size + out.size if "fill" in str(mode).lower() else 0
    return _moved(flops, out, out, indices)


@of_names("scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub scatter_add scatter_max scatter_min "
          "scatter_mul scatter_sub")  # fmt: skip
def _scatter(ctx, operand, indices, updates, **params):
    """What is read, what is written to it, and the result, at the places of the updates."""
    jaxpr = params.get("update_jaxpr")
    if jaxpr is not None:
        each = cost_of(jaxpr).unfused_flops
    else:
        each = 0 if ctx.primitive.name == "scatter" else 1
    return _moved(each * updates.size, updates, updates, updates, indices)


@of_names("pure_callback io_callback")
def _callback(ctx, *args, **params):
    return RooflineResult(unfused_hbm_bytes=RooflineShape.total_bytes([*ctx.avals_in, *ctx.avals_out]))


@of_names("debug_callback debug_print")
def _debug_callback(ctx, *args, **params):
    return RooflineResult(unfused_hbm_bytes=RooflineShape.total_bytes(ctx.avals_in))


@of_names("conv_general_dilated")
def _convolution(
    ctx, x, kernel, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, batch_group_count,
    **params,
):  # fmt: skip
    """Two flops for each element of the kernel that meets one of the input: no padding, nothing that dilation put
    between."""
    out = _out(ctx)
    of_x, of_kernel, of_out = (tuple(spec) for spec in dimension_numbers)
    met = 1
    for number, (stride, (low, _), between, apart) in enumerate(
        zip(window_strides, padding, lhs_dilation, rhs_dilation), 2
    ):
        sizes = x.shape[of_x[number]], kernel.shape[of_kernel[number]], out.shape[of_out[number]]
        met *= met_along(*sizes, stride, low, between, apart)
    batch = x.shape[of_x[0]] // batch_group_count
    products = batch * kernel.shape[of_kernel[1]] * out.shape[of_out[1]] * met
    return _moved(2 * products, x, kernel, out)


def met_along(size: int, taps: int, outs: int, stride: int, low: int, between: int, apart: int) -> int:
    """How often a tap of a kernel meets an element along an axis: the pairs of a tap `k` and an output `o` with
    `o * stride + k * apart - low == i * between` for an element `i`.

    For each tap the outputs in bounds are a range, and those on an element every `between / gcd(stride, between)`th,
    so that the cost is that of the taps alone, or of outputs if these are fewer.
    """
    if outs < taps:
        # The same count with taps and outputs exchanged.
        taps, outs, stride, apart = outs, taps, apart, stride
    if not (size and taps and outs):
        return 0
    shift = low - np.arange(taps, dtype=np.int64) * apart
    first = np.maximum(-(-shift // stride), 0)
    final = np.minimum(((size - 1) * between + shift) // stride, outs - 1)
    common = math.gcd(stride, between)
    period = between // common
    start = shift // common * pow(stride // common, -1, period) % period
    fits = (shift % common == 0) & (first <= final)
    count = (final - start) // period - (first - 1 - start) // period
    return int(np.where(fits, count, 0).sum())
