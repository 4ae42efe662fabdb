"""``ferrax.lax``: array functions without implicit promotion or broadcasting.

Every function takes arrays (or scalars) of equal dtypes and shapes and is one op, or a few, of the
compiler. ``ferrax.numpy`` is built on them.
"""

# ruff: noqa: F401
from ferrax._src.composed.custom_solves import (
    custom_linear_solve,
    custom_root,
    linear_solve_p as linear_solve_p,
)
from ferrax._src.composed.reduce import reduce, reduce_window
from ferrax._src.composed.shape_primitives import (
    dce_sink as dce_sink,
    dce_sink_p as dce_sink_p,
    split_p as split_p,
    stack_p as stack_p,
    stage as stage,
    stage_p as stage_p,
    tile_p as tile_p,
    unstack_p as unstack_p,
)
from ferrax._src.composed.window_primitives import (
    reduce_p as reduce_p,
    reduce_window_max_p as reduce_window_max_p,
    reduce_window_min_p as reduce_window_min_p,
    reduce_window_p as reduce_window_p,
    reduce_window_sum_p as reduce_window_sum_p,
    select_and_gather_add_p as select_and_gather_add_p,
    select_and_scatter_add_p as select_and_scatter_add_p,
)
from ferrax._src.composed.windows import padtype_to_pads, reduce_window_shape_tuple
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
from ferrax._src.core.primitives import LINALG as _LINALG, named_primitives as _named_primitives
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
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitcast_convert_type,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cbrt,
    ceil,
    clamp,
    clz,
    complex,
    conj,
    convert_element_type,
    cos,
    cosh,
    digamma,
    div,
    dtype,
    eq,
    erf,
    erf_inv,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    ge,
    gt,
    imag,
    integer_pow,
    is_finite,
    le,
    lgamma,
    log,
    log1p,
    logistic,
    lt,
    max,
    min,
    mul,
    ne,
    neg,
    nextafter,
    population_count,
    pow,
    real,
    reciprocal,
    reduce_precision,
    rem,
    round,
    rsqrt,
    select,
    select_n,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    stop_gradient,
    sub,
    tan,
    tanh,
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
from ferrax._src.transforms.map import map
from ferrax.lax import linalg as linalg

# Every op as a primitive: exp_p, add_p, ...; those of decompositions are in `linalg`.
globals().update({name: p for name, p in _named_primitives().items() if p.name not in _LINALG})
