"""NumPy's interface on ferrax arrays: `import ferrax.numpy as jnp`."""

from ferrax._core import Array as ndarray  # noqa: F401
from ferrax._core import ufuncs as _ufuncs
from ferrax._src.dtypes import finfo as finfo
from ferrax._src.dtypes import iinfo as iinfo
from ferrax._src.numpy.array_creation import (
    arange as arange,
)
from ferrax._src.numpy.array_creation import (
    array as array,
)
from ferrax._src.numpy.array_creation import (
    asarray as asarray,
)
from ferrax._src.numpy.array_creation import (
    astype as astype,
)
from ferrax._src.numpy.array_creation import (
    copy as copy,
)
from ferrax._src.numpy.array_creation import (
    empty as empty,
)
from ferrax._src.numpy.array_creation import (
    empty_like as empty_like,
)
from ferrax._src.numpy.array_creation import (
    from_dlpack as from_dlpack,
)
from ferrax._src.numpy.array_creation import (
    frombuffer as frombuffer,
)
from ferrax._src.numpy.array_creation import (
    fromfile as fromfile,
)
from ferrax._src.numpy.array_creation import (
    fromfunction as fromfunction,
)
from ferrax._src.numpy.array_creation import (
    fromiter as fromiter,
)
from ferrax._src.numpy.array_creation import (
    fromstring as fromstring,
)
from ferrax._src.numpy.array_creation import (
    full as full,
)
from ferrax._src.numpy.array_creation import (
    full_like as full_like,
)
from ferrax._src.numpy.array_creation import (
    geomspace as geomspace,
)
from ferrax._src.numpy.array_creation import (
    linspace as linspace,
)
from ferrax._src.numpy.array_creation import (
    logspace as logspace,
)
from ferrax._src.numpy.array_creation import (
    ones as ones,
)
from ferrax._src.numpy.array_creation import (
    ones_like as ones_like,
)
from ferrax._src.numpy.array_creation import (
    zeros as zeros,
)
from ferrax._src.numpy.array_creation import (
    zeros_like as zeros_like,
)
from ferrax._src.numpy.conditional import (
    where as where,
)
from ferrax._src.numpy.dtype_api import (
    can_cast as can_cast,
)
from ferrax._src.numpy.dtype_api import (
    isdtype as isdtype,
)
from ferrax._src.numpy.dtype_api import (
    issubdtype as issubdtype,
)
from ferrax._src.numpy.dtype_api import (
    promote_types as promote_types,
)
from ferrax._src.numpy.dtype_api import (
    result_type as result_type,
)
from ferrax._src.numpy.einsum import (
    einsum as einsum,
)
from ferrax._src.numpy.einsum import (
    einsum_path as einsum_path,
)
from ferrax._src.numpy.matrices import (
    bartlett as bartlett,
)
from ferrax._src.numpy.matrices import (
    blackman as blackman,
)
from ferrax._src.numpy.matrices import (
    c_ as c_,
)
from ferrax._src.numpy.matrices import (
    diag as diag,
)
from ferrax._src.numpy.matrices import (
    diag_indices as diag_indices,
)
from ferrax._src.numpy.matrices import (
    diag_indices_from as diag_indices_from,
)
from ferrax._src.numpy.matrices import (
    diagflat as diagflat,
)
from ferrax._src.numpy.matrices import (
    diagonal as diagonal,
)
from ferrax._src.numpy.matrices import (
    eye as eye,
)
from ferrax._src.numpy.matrices import (
    hamming as hamming,
)
from ferrax._src.numpy.matrices import (
    hanning as hanning,
)
from ferrax._src.numpy.matrices import (
    identity as identity,
)
from ferrax._src.numpy.matrices import (
    indices as indices,
)
from ferrax._src.numpy.matrices import (
    ix_ as ix_,
)
from ferrax._src.numpy.matrices import (
    kaiser as kaiser,
)
from ferrax._src.numpy.matrices import (
    mask_indices as mask_indices,
)
from ferrax._src.numpy.matrices import (
    meshgrid as meshgrid,
)
from ferrax._src.numpy.matrices import (
    mgrid as mgrid,
)
from ferrax._src.numpy.matrices import (
    ogrid as ogrid,
)
from ferrax._src.numpy.matrices import (
    r_ as r_,
)
from ferrax._src.numpy.matrices import (
    ravel_multi_index as ravel_multi_index,
)
from ferrax._src.numpy.matrices import (
    trace as trace,
)
from ferrax._src.numpy.matrices import (
    tri as tri,
)
from ferrax._src.numpy.matrices import (
    tril as tril,
)
from ferrax._src.numpy.matrices import (
    tril_indices as tril_indices,
)
from ferrax._src.numpy.matrices import (
    tril_indices_from as tril_indices_from,
)
from ferrax._src.numpy.matrices import (
    triu as triu,
)
from ferrax._src.numpy.matrices import (
    triu_indices as triu_indices,
)
from ferrax._src.numpy.matrices import (
    triu_indices_from as triu_indices_from,
)
from ferrax._src.numpy.matrices import (
    unravel_index as unravel_index,
)
from ferrax._src.numpy.matrices import (
    vander as vander,
)
from ferrax._src.numpy.numeric import (
    corrcoef as corrcoef,
)
from ferrax._src.numpy.numeric import (
    cov as cov,
)
from ferrax._src.numpy.numeric import (
    diff as diff,
)
from ferrax._src.numpy.numeric import (
    ediff1d as ediff1d,
)
from ferrax._src.numpy.numeric import (
    gradient as gradient,
)
from ferrax._src.numpy.numeric import (
    interp as interp,
)
from ferrax._src.numpy.numeric import (
    polyval as polyval,
)
from ferrax._src.numpy.numeric import (
    trapezoid as trapezoid,
)
from ferrax._src.numpy.numeric import (
    unwrap as unwrap,
)
from ferrax._src.numpy.padding import (
    pad as pad,
)
from ferrax._src.numpy.products import (
    cross as cross,
)
from ferrax._src.numpy.products import (
    dot as dot,
)
from ferrax._src.numpy.products import (
    inner as inner,
)
from ferrax._src.numpy.products import (
    kron as kron,
)
from ferrax._src.numpy.products import (
    matmul as matmul,
)
from ferrax._src.numpy.products import (
    matvec as matvec,
)
from ferrax._src.numpy.products import (
    outer as outer,
)
from ferrax._src.numpy.products import (
    tensordot as tensordot,
)
from ferrax._src.numpy.products import (
    vdot as vdot,
)
from ferrax._src.numpy.products import (
    vecdot as vecdot,
)
from ferrax._src.numpy.products import (
    vecmat as vecmat,
)
from ferrax._src.numpy.reductions import (
    all as all,
)
from ferrax._src.numpy.reductions import (
    amax as amax,
)
from ferrax._src.numpy.reductions import (
    amin as amin,
)
from ferrax._src.numpy.reductions import (
    any as any,
)
from ferrax._src.numpy.reductions import (
    argmax as argmax,
)
from ferrax._src.numpy.reductions import (
    argmin as argmin,
)
from ferrax._src.numpy.reductions import (
    average as average,
)
from ferrax._src.numpy.reductions import (
    count_nonzero as count_nonzero,
)
from ferrax._src.numpy.reductions import (
    cumprod as cumprod,
)
from ferrax._src.numpy.reductions import (
    cumsum as cumsum,
)
from ferrax._src.numpy.reductions import (
    cumulative_prod as cumulative_prod,
)
from ferrax._src.numpy.reductions import (
    cumulative_sum as cumulative_sum,
)
from ferrax._src.numpy.reductions import (
    max as max,
)
from ferrax._src.numpy.reductions import (
    mean as mean,
)
from ferrax._src.numpy.reductions import (
    min as min,
)
from ferrax._src.numpy.reductions import (
    nanargmax as nanargmax,
)
from ferrax._src.numpy.reductions import (
    nanargmin as nanargmin,
)
from ferrax._src.numpy.reductions import (
    nancumprod as nancumprod,
)
from ferrax._src.numpy.reductions import (
    nancumsum as nancumsum,
)
from ferrax._src.numpy.reductions import (
    nanmax as nanmax,
)
from ferrax._src.numpy.reductions import (
    nanmean as nanmean,
)
from ferrax._src.numpy.reductions import (
    nanmin as nanmin,
)
from ferrax._src.numpy.reductions import (
    nanprod as nanprod,
)
from ferrax._src.numpy.reductions import (
    nanstd as nanstd,
)
from ferrax._src.numpy.reductions import (
    nansum as nansum,
)
from ferrax._src.numpy.reductions import (
    nanvar as nanvar,
)
from ferrax._src.numpy.reductions import (
    prod as prod,
)
from ferrax._src.numpy.reductions import (
    ptp as ptp,
)
from ferrax._src.numpy.reductions import (
    std as std,
)
from ferrax._src.numpy.reductions import (
    sum as sum,
)
from ferrax._src.numpy.reductions import (
    var as var,
)
from ferrax._src.numpy.scalar_types import SCALAR_TYPES as _SCALAR_TYPES
from ferrax._src.numpy.shape import (
    append as append,
)
from ferrax._src.numpy.shape import (
    array_equal as array_equal,
)
from ferrax._src.numpy.shape import (
    array_equiv as array_equiv,
)
from ferrax._src.numpy.shape import (
    array_split as array_split,
)
from ferrax._src.numpy.shape import (
    atleast_1d as atleast_1d,
)
from ferrax._src.numpy.shape import (
    atleast_2d as atleast_2d,
)
from ferrax._src.numpy.shape import (
    atleast_3d as atleast_3d,
)
from ferrax._src.numpy.shape import (
    block as block,
)
from ferrax._src.numpy.shape import (
    broadcast_arrays as broadcast_arrays,
)
from ferrax._src.numpy.shape import (
    broadcast_shapes as broadcast_shapes,
)
from ferrax._src.numpy.shape import (
    broadcast_to as broadcast_to,
)
from ferrax._src.numpy.shape import (
    column_stack as column_stack,
)
from ferrax._src.numpy.shape import (
    concat as concat,
)
from ferrax._src.numpy.shape import (
    concatenate as concatenate,
)
from ferrax._src.numpy.shape import (
    dsplit as dsplit,
)
from ferrax._src.numpy.shape import (
    dstack as dstack,
)
from ferrax._src.numpy.shape import (
    expand_dims as expand_dims,
)
from ferrax._src.numpy.shape import (
    flip as flip,
)
from ferrax._src.numpy.shape import (
    fliplr as fliplr,
)
from ferrax._src.numpy.shape import (
    flipud as flipud,
)
from ferrax._src.numpy.shape import (
    hsplit as hsplit,
)
from ferrax._src.numpy.shape import (
    hstack as hstack,
)
from ferrax._src.numpy.shape import (
    iscomplexobj as iscomplexobj,
)
from ferrax._src.numpy.shape import (
    isrealobj as isrealobj,
)
from ferrax._src.numpy.shape import (
    isscalar as isscalar,
)
from ferrax._src.numpy.shape import (
    iterable as iterable,
)
from ferrax._src.numpy.shape import (
    matrix_transpose as matrix_transpose,
)
from ferrax._src.numpy.shape import (
    moveaxis as moveaxis,
)
from ferrax._src.numpy.shape import (
    ndim as ndim,
)
from ferrax._src.numpy.shape import (
    permute_dims as permute_dims,
)
from ferrax._src.numpy.shape import (
    ravel as ravel,
)
from ferrax._src.numpy.shape import (
    repeat as repeat,
)
from ferrax._src.numpy.shape import (
    reshape as reshape,
)
from ferrax._src.numpy.shape import (
    resize as resize,
)
from ferrax._src.numpy.shape import (
    roll as roll,
)
from ferrax._src.numpy.shape import (
    rollaxis as rollaxis,
)
from ferrax._src.numpy.shape import (
    rot90 as rot90,
)
from ferrax._src.numpy.shape import (
    shape as shape,
)
from ferrax._src.numpy.shape import (
    size as size,
)
from ferrax._src.numpy.shape import (
    split as split,
)
from ferrax._src.numpy.shape import (
    squeeze as squeeze,
)
from ferrax._src.numpy.shape import (
    stack as stack,
)
from ferrax._src.numpy.shape import (
    swapaxes as swapaxes,
)
from ferrax._src.numpy.shape import (
    tile as tile,
)
from ferrax._src.numpy.shape import (
    transpose as transpose,
)
from ferrax._src.numpy.shape import (
    trim_zeros as trim_zeros,
)
from ferrax._src.numpy.shape import (
    unstack as unstack,
)
from ferrax._src.numpy.shape import (
    vsplit as vsplit,
)
from ferrax._src.numpy.shape import (
    vstack as vstack,
)
from ferrax._src.numpy.special_ufuncs import (
    frexp as frexp,
)
from ferrax._src.numpy.special_ufuncs import (
    gcd as gcd,
)
from ferrax._src.numpy.special_ufuncs import (
    i0 as i0,
)
from ferrax._src.numpy.special_ufuncs import (
    lcm as lcm,
)
from ferrax._src.numpy.special_ufuncs import (
    ldexp as ldexp,
)
from ferrax._src.numpy.special_ufuncs import (
    sinc as sinc,
)
from ferrax._src.numpy.ufunc_api import (
    add as add,
)
from ferrax._src.numpy.ufunc_api import (
    bitwise_and as bitwise_and,
)
from ferrax._src.numpy.ufunc_api import (
    bitwise_or as bitwise_or,
)
from ferrax._src.numpy.ufunc_api import (
    bitwise_xor as bitwise_xor,
)
from ferrax._src.numpy.ufunc_api import (
    frompyfunc as frompyfunc,
)
from ferrax._src.numpy.ufunc_api import (
    logaddexp as logaddexp,
)
from ferrax._src.numpy.ufunc_api import (
    logaddexp2 as logaddexp2,
)
from ferrax._src.numpy.ufunc_api import (
    logical_and as logical_and,
)
from ferrax._src.numpy.ufunc_api import (
    logical_or as logical_or,
)
from ferrax._src.numpy.ufunc_api import (
    logical_xor as logical_xor,
)
from ferrax._src.numpy.ufunc_api import (
    maximum as maximum,
)
from ferrax._src.numpy.ufunc_api import (
    minimum as minimum,
)
from ferrax._src.numpy.ufunc_api import (
    multiply as multiply,
)
from ferrax._src.numpy.ufunc_api import (
    negative as negative,
)
from ferrax._src.numpy.ufunc_api import (
    subtract as subtract,
)
from ferrax._src.numpy.ufunc_api import (
    ufunc as ufunc,
)
from ferrax._src.numpy.ufuncs import (
    allclose as allclose,
)
from ferrax._src.numpy.ufuncs import (
    angle as angle,
)
from ferrax._src.numpy.ufuncs import (
    around as around,
)
from ferrax._src.numpy.ufuncs import (
    bitwise_count as bitwise_count,
)
from ferrax._src.numpy.ufuncs import (
    clip as clip,
)
from ferrax._src.numpy.ufuncs import (
    copysign as copysign,
)
from ferrax._src.numpy.ufuncs import (
    deg2rad as deg2rad,
)
from ferrax._src.numpy.ufuncs import (
    degrees as degrees,
)
from ferrax._src.numpy.ufuncs import (
    divide as divide,
)
from ferrax._src.numpy.ufuncs import (
    divmod as divmod,
)
from ferrax._src.numpy.ufuncs import (
    fabs as fabs,
)
from ferrax._src.numpy.ufuncs import (
    float_power as float_power,
)
from ferrax._src.numpy.ufuncs import (
    floor_divide as floor_divide,
)
from ferrax._src.numpy.ufuncs import (
    fmax as fmax,
)
from ferrax._src.numpy.ufuncs import (
    fmin as fmin,
)
from ferrax._src.numpy.ufuncs import (
    fmod as fmod,
)
from ferrax._src.numpy.ufuncs import (
    heaviside as heaviside,
)
from ferrax._src.numpy.ufuncs import (
    hypot as hypot,
)
from ferrax._src.numpy.ufuncs import (
    isclose as isclose,
)
from ferrax._src.numpy.ufuncs import (
    iscomplex as iscomplex,
)
from ferrax._src.numpy.ufuncs import (
    isfinite as isfinite,
)
from ferrax._src.numpy.ufuncs import (
    isinf as isinf,
)
from ferrax._src.numpy.ufuncs import (
    isnan as isnan,
)
from ferrax._src.numpy.ufuncs import (
    isneginf as isneginf,
)
from ferrax._src.numpy.ufuncs import (
    isposinf as isposinf,
)
from ferrax._src.numpy.ufuncs import (
    isreal as isreal,
)
from ferrax._src.numpy.ufuncs import (
    mod as mod,
)
from ferrax._src.numpy.ufuncs import (
    modf as modf,
)
from ferrax._src.numpy.ufuncs import (
    nan_to_num as nan_to_num,
)
from ferrax._src.numpy.ufuncs import (
    pow as pow,
)
from ferrax._src.numpy.ufuncs import (
    power as power,
)
from ferrax._src.numpy.ufuncs import (
    rad2deg as rad2deg,
)
from ferrax._src.numpy.ufuncs import (
    radians as radians,
)
from ferrax._src.numpy.ufuncs import (
    remainder as remainder,
)
from ferrax._src.numpy.ufuncs import (
    round as round,
)
from ferrax._src.numpy.ufuncs import (
    signbit as signbit,
)
from ferrax._src.numpy.ufuncs import (
    spacing as spacing,
)
from ferrax._src.numpy.vectorization import (
    apply_along_axis as apply_along_axis,
)
from ferrax._src.numpy.vectorization import (
    apply_over_axes as apply_over_axes,
)
from ferrax._src.numpy.vectorization import (
    vectorize as vectorize,
)

import numpy as _np
from numpy import (
    character as character,
)
from numpy import (
    complexfloating as complexfloating,
)
from numpy import (
    dtype as dtype,
)
from numpy import (
    flexible as flexible,
)
from numpy import (
    floating as floating,
)
from numpy import (
    generic as generic,
)
from numpy import (
    get_printoptions as get_printoptions,
)
from numpy import (
    index_exp as index_exp,
)
from numpy import (
    inexact as inexact,
)
from numpy import (
    integer as integer,
)
from numpy import (
    number as number,
)
from numpy import (
    object_ as object_,
)
from numpy import (
    printoptions as printoptions,
)
from numpy import (
    s_ as s_,
)
from numpy import (
    save as save,
)
from numpy import (
    savez as savez,
)
from numpy import (
    set_printoptions as set_printoptions,
)
from numpy import (
    signedinteger as signedinteger,
)
from numpy import (
    unsignedinteger as unsignedinteger,
)
from numpy.exceptions import ComplexWarning as ComplexWarning

abs = _ufuncs.abs
sign = _ufuncs.sign
floor = _ufuncs.floor
ceil = _ufuncs.ceil
trunc = _ufuncs.trunc
rint = _ufuncs.rint
sqrt = _ufuncs.sqrt
square = _ufuncs.square
exp = _ufuncs.exp
exp2 = _ufuncs.exp2
expm1 = _ufuncs.expm1
log = _ufuncs.log
log1p = _ufuncs.log1p
log2 = _ufuncs.log2
log10 = _ufuncs.log10
sin = _ufuncs.sin
cos = _ufuncs.cos
tan = _ufuncs.tan
arcsin = _ufuncs.arcsin
arccos = _ufuncs.arccos
arctan = _ufuncs.arctan
sinh = _ufuncs.sinh
cosh = _ufuncs.cosh
tanh = _ufuncs.tanh
arcsinh = _ufuncs.arcsinh
arccosh = _ufuncs.arccosh
arctanh = _ufuncs.arctanh
cbrt = _ufuncs.cbrt
reciprocal = _ufuncs.reciprocal
positive = _ufuncs.positive
true_divide = _ufuncs.true_divide
equal = _ufuncs.equal
not_equal = _ufuncs.not_equal
less = _ufuncs.less
less_equal = _ufuncs.less_equal
greater = _ufuncs.greater
greater_equal = _ufuncs.greater_equal
logical_not = _ufuncs.logical_not
bitwise_not = _ufuncs.bitwise_not
left_shift = _ufuncs.left_shift
right_shift = _ufuncs.right_shift
arctan2 = _ufuncs.arctan2
nextafter = _ufuncs.nextafter
conj = _ufuncs.conj
real = _ufuncs.real
imag = _ufuncs.imag
absolute = _ufuncs.abs
acos = _ufuncs.arccos
acosh = _ufuncs.arccosh
asin = _ufuncs.arcsin
asinh = _ufuncs.arcsinh
atan = _ufuncs.arctan
atanh = _ufuncs.arctanh
atan2 = _ufuncs.arctan2
conjugate = _ufuncs.conj
bitwise_invert = _ufuncs.bitwise_not
invert = _ufuncs.bitwise_not
bitwise_left_shift = _ufuncs.left_shift
bitwise_right_shift = _ufuncs.right_shift

pi = _np.pi
e = _np.e
inf = _np.inf
nan = _np.nan
euler_gamma = _np.euler_gamma
newaxis = None

globals().update(_SCALAR_TYPES)
int_ = _SCALAR_TYPES["int64"]
uint = _SCALAR_TYPES["uint64"]
float_ = _SCALAR_TYPES["float64"]
complex_ = _SCALAR_TYPES["complex128"]


def load(file, *args, **kwargs):
    """Loads an array from a .npy file, or a lazy mapping from a .npz file, as `numpy.load`."""
    out = _np.load(file, *args, **kwargs)
    return asarray(out) if isinstance(out, _np.ndarray) else out


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None):
    """The text of `repr`, with NumPy's options."""
    return _np.array_repr(_np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(a, max_line_width=None, precision=None, suppress_small=None):
    """The text of `str`, with NumPy's options."""
    return _np.array_str(_np.asarray(a), max_line_width, precision, suppress_small)
