"""The operations, as `ferrax.lax` exports them beside those of `_src.composed`; layers above use it as
`lax`. Modules of this one import each other."""

# ruff: noqa: F401, F403
from ferrax._core.lax import *
from ferrax._src.core.op_types import (
    AccuracyMode,
    DotAlgorithm,
    DotAlgorithmPreset,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    GatherScatterMode,
    Precision,
    PrecisionLike,
    RoundingMethod,
    ScatterDimensionNumbers,
    Tolerance,
)
from ferrax._src.lax.control_flow.associative_scan import associative_scan
from ferrax._src.lax.control_flow.barrier import optimization_barrier
from ferrax._src.lax.control_flow.conditionals import cond, switch
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.control_flow.while_loop import fori_loop, while_loop
from ferrax._src.lax.creation import (
    broadcasted_iota,
    empty,
    full,
    full_like,
    iota,
    shape_as_value,
    zeros_like_array,
)
from ferrax._src.lax.dot import batch_matmul, dot, dot_general
from ferrax._src.lax.elementwise import (
    _convert_element_type,
    bitcast_convert_type,
    convert_element_type,
    dtype,
    integer_pow,
    mul,
    reciprocal,
    reduce_precision,
    round,
    select,
    stop_gradient,
)
from ferrax._src.lax.gather_scatter import (
    gather,
    index_take,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
)
from ferrax._src.lax.parallel import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pbroadcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
)
from ferrax._src.lax.reduce import (
    argmax,
    argmin,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
)
from ferrax._src.lax.shape import (
    broadcast,
    broadcast_in_dim,
    broadcast_like,
    broadcast_shapes,
    broadcast_to_rank,
    collapse,
    concatenate,
    expand_dims,
    pad,
    reshape,
    rev,
    split,
    squeeze,
    stack,
    tile,
    transpose,
    unstack,
)
from ferrax._src.lax.slicing import (
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    index_in_dim,
    slice,
    slice_in_dim,
)
from ferrax._src.lax.sorting import sort, sort_key_val, top_k
