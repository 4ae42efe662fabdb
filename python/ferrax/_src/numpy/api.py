"""What `ferrax.numpy` exports; layers above use it as `jnp`. Modules of this one import each other."""

import numpy as _np
from numpy import (
    character as character,
    complexfloating as complexfloating,
    dtype as dtype,
    flexible as flexible,
    floating as floating,
    generic as generic,
    get_printoptions as get_printoptions,
    inexact as inexact,
    integer as integer,
    number as number,
    object_ as object_,
    printoptions as printoptions,
    save as save,
    savez as savez,
    set_printoptions as set_printoptions,
    signedinteger as signedinteger,
    unsignedinteger as unsignedinteger,
)
from numpy.exceptions import ComplexWarning as ComplexWarning

from ferrax._core import Array as ndarray  # noqa: F401
from ferrax._core.ufuncs import *  # noqa: F403
from ferrax._src.base.dtypes import finfo as finfo, iinfo as iinfo
from ferrax._src.numpy.array_creation import (
    arange as arange,
    array as array,
    asarray as asarray,
    astype as astype,
    copy as copy,
    empty as empty,
    empty_like as empty_like,
    from_dlpack as from_dlpack,
    frombuffer as frombuffer,
    fromfile as fromfile,
    fromfunction as fromfunction,
    fromiter as fromiter,
    fromstring as fromstring,
    full as full,
    full_like as full_like,
    geomspace as geomspace,
    linspace as linspace,
    logspace as logspace,
    ones as ones,
    ones_like as ones_like,
    zeros as zeros,
    zeros_like as zeros_like,
)
from ferrax._src.numpy.array_text import (
    array_repr as array_repr,
    array_str as array_str,
    load as load,
)
from ferrax._src.numpy.bessel import (
    i0 as i0,
    kaiser as kaiser,
)
from ferrax._src.numpy.bits import (
    packbits as packbits,
    unpackbits as unpackbits,
)
from ferrax._src.numpy.conditional import (
    where as where,
)
from ferrax._src.numpy.convolution import (
    convolve as convolve,
    correlate as correlate,
)
from ferrax._src.numpy.counting import (
    bincount as bincount,
    histogram as histogram,
    histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges,
    histogramdd as histogramdd,
)
from ferrax._src.numpy.cumulative import (
    cumprod as cumprod,
    cumsum as cumsum,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    nancumprod as nancumprod,
    nancumsum as nancumsum,
)
from ferrax._src.numpy.dtype_api import (
    can_cast as can_cast,
    isdtype as isdtype,
    issubdtype as issubdtype,
    promote_types as promote_types,
    result_type as result_type,
)
from ferrax._src.numpy.einsum import (
    einsum as einsum,
    einsum_path as einsum_path,
)
from ferrax._src.numpy.extremes import (
    minmax as minmax,
    top_k as top_k,
)
from ferrax._src.numpy.fitting import (
    polyfit as polyfit,
    roots as roots,
)
from ferrax._src.numpy.index_tricks import (
    c_ as c_,
    index_exp as index_exp,
    r_ as r_,
    s_ as s_,
)
from ferrax._src.numpy.joining import (
    append as append,
    array_split as array_split,
    atleast_1d as atleast_1d,
    atleast_2d as atleast_2d,
    atleast_3d as atleast_3d,
    block as block,
    column_stack as column_stack,
    concat as concat,
    concatenate as concatenate,
    dsplit as dsplit,
    dstack as dstack,
    hsplit as hsplit,
    hstack as hstack,
    split as split,
    stack as stack,
    unstack as unstack,
    vsplit as vsplit,
    vstack as vstack,
)
from ferrax._src.numpy.matrices import (
    bartlett as bartlett,
    blackman as blackman,
    diag as diag,
    diagflat as diagflat,
    diagonal as diagonal,
    eye as eye,
    hamming as hamming,
    hanning as hanning,
    identity as identity,
    indices as indices,
    meshgrid as meshgrid,
    mgrid as mgrid,
    ogrid as ogrid,
    ravel_multi_index as ravel_multi_index,
    trace as trace,
    tri as tri,
    tril as tril,
    tril_indices as tril_indices,
    tril_indices_from as tril_indices_from,
    triu as triu,
    triu_indices as triu_indices,
    triu_indices_from as triu_indices_from,
    unravel_index as unravel_index,
    vander as vander,
)
from ferrax._src.numpy.nan_reductions import (
    nanmax as nanmax,
    nanmean as nanmean,
    nanmin as nanmin,
    nanprod as nanprod,
    nanstd as nanstd,
    nansum as nansum,
    nanvar as nanvar,
)
from ferrax._src.numpy.nonzero import (
    argwhere as argwhere,
    compress as compress,
    extract as extract,
    fill_diagonal as fill_diagonal,
    flatnonzero as flatnonzero,
    mask_indices as mask_indices,
    nonzero as nonzero,
    place as place,
)
from ferrax._src.numpy.numeric import (
    corrcoef as corrcoef,
    cov as cov,
    diff as diff,
    ediff1d as ediff1d,
    gradient as gradient,
    interp as interp,
    polyval as polyval,
    trapezoid as trapezoid,
    unwrap as unwrap,
)
from ferrax._src.numpy.padding import (
    pad as pad,
)
from ferrax._src.numpy.polynomials import (
    poly as poly,
    polyadd as polyadd,
    polyder as polyder,
    polydiv as polydiv,
    polyint as polyint,
    polymul as polymul,
    polysub as polysub,
)
from ferrax._src.numpy.products import (
    cross as cross,
    dot as dot,
    inner as inner,
    kron as kron,
    matmul as matmul,
    matvec as matvec,
    outer as outer,
    tensordot as tensordot,
    vdot as vdot,
    vecdot as vecdot,
    vecmat as vecmat,
)
from ferrax._src.numpy.quantiles import (
    median as median,
    nanmedian as nanmedian,
    nanpercentile as nanpercentile,
    nanquantile as nanquantile,
    percentile as percentile,
    quantile as quantile,
)
from ferrax._src.numpy.rearrangement import (
    flip as flip,
    fliplr as fliplr,
    flipud as flipud,
    repeat as repeat,
    resize as resize,
    roll as roll,
    rot90 as rot90,
    tile as tile,
)
from ferrax._src.numpy.reductions import (
    all as all,
    amax as amax,
    amin as amin,
    any as any,
    argmax as argmax,
    argmin as argmin,
    average as average,
    count_nonzero as count_nonzero,
    max as max,
    mean as mean,
    min as min,
    nanargmax as nanargmax,
    nanargmin as nanargmin,
    prod as prod,
    ptp as ptp,
    std as std,
    sum as sum,
    var as var,
)
from ferrax._src.numpy.rounding import (
    around as around,
    clip as clip,
    modf as modf,
    nan_to_num as nan_to_num,
    round as round,
    spacing as spacing,
)
from ferrax._src.numpy.scalar_types import SCALAR_TYPES as _SCALAR_TYPES, ScalarType as _ScalarType
from ferrax._src.numpy.selection import (
    choose as choose,
    delete as delete,
    diag_indices as diag_indices,
    diag_indices_from as diag_indices_from,
    insert as insert,
    ix_ as ix_,
    piecewise as piecewise,
    select as select,
)
from ferrax._src.numpy.sets import (
    intersect1d as intersect1d,
    isin as isin,
    setdiff1d as setdiff1d,
    setxor1d as setxor1d,
    union1d as union1d,
    unique as unique,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from ferrax._src.numpy.shape import (
    array_equal as array_equal,
    array_equiv as array_equiv,
    broadcast_arrays as broadcast_arrays,
    broadcast_shapes as broadcast_shapes,
    broadcast_to as broadcast_to,
    expand_dims as expand_dims,
    iscomplexobj as iscomplexobj,
    isrealobj as isrealobj,
    isscalar as isscalar,
    iterable as iterable,
    matrix_transpose as matrix_transpose,
    moveaxis as moveaxis,
    ndim as ndim,
    permute_dims as permute_dims,
    ravel as ravel,
    reshape as reshape,
    rollaxis as rollaxis,
    shape as shape,
    size as size,
    squeeze as squeeze,
    swapaxes as swapaxes,
    transpose as transpose,
    trim_zeros as trim_zeros,
)
from ferrax._src.numpy.sorting import (
    argpartition as argpartition,
    argsort as argsort,
    digitize as digitize,
    lexsort as lexsort,
    partition as partition,
    searchsorted as searchsorted,
    sort as sort,
    sort_complex as sort_complex,
)
from ferrax._src.numpy.special_ufuncs import (
    frexp as frexp,
    gcd as gcd,
    lcm as lcm,
    ldexp as ldexp,
    sinc as sinc,
)
from ferrax._src.numpy.take import (
    put as put,
    put_along_axis as put_along_axis,
    take as take,
    take_along_axis as take_along_axis,
)
from ferrax._src.numpy.ufunc_api import (
    add as add,
    bitwise_and as bitwise_and,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    frompyfunc as frompyfunc,
    logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
    logical_and as logical_and,
    logical_or as logical_or,
    logical_xor as logical_xor,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    negative as negative,
    subtract as subtract,
    ufunc as ufunc,
)
from ferrax._src.numpy.ufuncs import (
    allclose as allclose,
    angle as angle,
    bitwise_count as bitwise_count,
    copysign as copysign,
    deg2rad as deg2rad,
    degrees as degrees,
    divide as divide,
    divmod as divmod,
    fabs as fabs,
    float_power as float_power,
    floor_divide as floor_divide,
    fmax as fmax,
    fmin as fmin,
    fmod as fmod,
    heaviside as heaviside,
    hypot as hypot,
    isclose as isclose,
    iscomplex as iscomplex,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    isneginf as isneginf,
    isposinf as isposinf,
    isreal as isreal,
    log2 as log2,
    mod as mod,
    pow as pow,
    power as power,
    rad2deg as rad2deg,
    radians as radians,
    remainder as remainder,
    signbit as signbit,
)
from ferrax._src.numpy.vectorization import (
    apply_along_axis as apply_along_axis,
    apply_over_axes as apply_over_axes,
    vectorize as vectorize,
)

pi = _np.pi
e = _np.e
inf = _np.inf
nan = _np.nan
euler_gamma = _np.euler_gamma
newaxis = None

# For type checkers: which of them there are depends on the version of ml_dtypes.
bfloat16: _ScalarType
bool: _ScalarType
bool_: _ScalarType
cdouble: _ScalarType
complex128: _ScalarType
complex64: _ScalarType
csingle: _ScalarType
double: _ScalarType
float16: _ScalarType
float32: _ScalarType
float4_e2m1fn: _ScalarType
float64: _ScalarType
float6_e2m3fn: _ScalarType
float6_e3m2fn: _ScalarType
float8_e3m4: _ScalarType
float8_e4m3: _ScalarType
float8_e4m3b11fnuz: _ScalarType
float8_e4m3fn: _ScalarType
float8_e4m3fnuz: _ScalarType
float8_e5m2: _ScalarType
float8_e5m2fnuz: _ScalarType
float8_e8m0fnu: _ScalarType
int1: _ScalarType
int16: _ScalarType
int2: _ScalarType
int32: _ScalarType
int4: _ScalarType
int64: _ScalarType
int8: _ScalarType
single: _ScalarType
uint1: _ScalarType
uint16: _ScalarType
uint2: _ScalarType
uint32: _ScalarType
uint4: _ScalarType
uint64: _ScalarType
uint8: _ScalarType
globals().update(_SCALAR_TYPES)
int_ = _SCALAR_TYPES["int64"]
uint = _SCALAR_TYPES["uint64"]
float_ = _SCALAR_TYPES["float64"]
complex_ = _SCALAR_TYPES["complex128"]
