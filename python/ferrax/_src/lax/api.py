"""The operations, as `ferrax.lax` exports them beside those of `_src.composed`; layers above use it as
`lax`. Modules of this one import each other."""

# ruff: noqa: F401, F403
from ferrax._core.lax import *
from ferrax._src.core.op_types import (
    AccuracyMode as AccuracyMode,
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    DotDimensionNumbers as DotDimensionNumbers,
    GatherDimensionNumbers as GatherDimensionNumbers,
    GatherScatterMode as GatherScatterMode,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    RoundingMethod as RoundingMethod,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    Tolerance as Tolerance,
)
from ferrax._src.lax.control_flow.associative_scan import associative_scan as associative_scan
from ferrax._src.lax.control_flow.barrier import optimization_barrier as optimization_barrier
from ferrax._src.lax.control_flow.conditionals import (
    cond as cond,
    switch as switch,
)
from ferrax._src.lax.control_flow.scan import scan as scan
from ferrax._src.lax.control_flow.while_loop import (
    fori_loop as fori_loop,
    while_loop as while_loop,
)
from ferrax._src.lax.creation import (
    broadcasted_iota as broadcasted_iota,
    empty as empty,
    full as full,
    full_like as full_like,
    iota as iota,
    shape_as_value as shape_as_value,
    zeros_like_array as zeros_like_array,
)
from ferrax._src.lax.dot import (
    batch_matmul as batch_matmul,
    dot as dot,
    dot_general as dot_general,
)
from ferrax._src.lax.elementwise import (
    _convert_element_type as _convert_element_type,
    bitcast_convert_type as bitcast_convert_type,
    convert_element_type as convert_element_type,
    dtype as dtype,
    integer_pow as integer_pow,
    mul as mul,
    reciprocal as reciprocal,
    reduce_precision as reduce_precision,
    round as round,
    select as select,
    stop_gradient as stop_gradient,
)
from ferrax._src.lax.gather_scatter import (
    gather as gather,
    index_take as index_take,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_apply as scatter_apply,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_sub as scatter_sub,
)
from ferrax._src.lax.parallel import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    axis_size as axis_size,
    pbroadcast as pbroadcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    pshuffle as pshuffle,
    psum as psum,
    psum_scatter as psum_scatter,
    pswapaxes as pswapaxes,
)
from ferrax._src.lax.reduce import (
    argmax as argmax,
    argmin as argmin,
    cumlogsumexp as cumlogsumexp,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    reduce_and as reduce_and,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_or as reduce_or,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    reduce_xor as reduce_xor,
)
from ferrax._src.lax.shape import (
    broadcast as broadcast,
    broadcast_in_dim as broadcast_in_dim,
    broadcast_like as broadcast_like,
    broadcast_shapes as broadcast_shapes,
    broadcast_to_rank as broadcast_to_rank,
    collapse as collapse,
    concatenate as concatenate,
    expand_dims as expand_dims,
    pad as pad,
    reshape as reshape,
    rev as rev,
    split as split,
    squeeze as squeeze,
    stack as stack,
    tile as tile,
    transpose as transpose,
    unstack as unstack,
)
from ferrax._src.lax.slicing import (
    dynamic_index_in_dim as dynamic_index_in_dim,
    dynamic_slice as dynamic_slice,
    dynamic_slice_in_dim as dynamic_slice_in_dim,
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
    dynamic_update_slice as dynamic_update_slice,
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
    index_in_dim as index_in_dim,
    slice as slice,
    slice_in_dim as slice_in_dim,
)
from ferrax._src.lax.sorting import (
    sort as sort,
    sort_key_val as sort_key_val,
    top_k as top_k,
)
