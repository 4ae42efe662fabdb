"""Dtypes that NumPy lacks, and functions on dtypes."""

from ferrax._src.dtypes import TypePromotionError as TypePromotionError
from ferrax._src.dtypes import bfloat16 as bfloat16
from ferrax._src.dtypes import canonicalize_dtype as canonicalize_dtype
from ferrax._src.dtypes import extended as extended
from ferrax._src.dtypes import finfo as finfo
from ferrax._src.dtypes import float0 as float0
from ferrax._src.dtypes import iinfo as iinfo
from ferrax._src.dtypes import issubdtype as issubdtype
from ferrax._src.dtypes import itemsize_bits as itemsize_bits
from ferrax._src.dtypes import prng_key as prng_key
from ferrax._src.dtypes import result_type as result_type
from ferrax._src.dtypes import scalar_type_of as scalar_type_of
