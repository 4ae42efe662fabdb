"""``ferrax.ffi``: functions of other languages in programs, by XLA's foreign function interface.

Example:
    >>> import ctypes
    >>> library = ctypes.cdll.LoadLibrary("libhandlers.so")  # doctest: +SKIP
    >>> ferrax.ffi.register_ffi_target("my_norm", ferrax.ffi.pycapsule(library.my_norm))  # doctest: +SKIP
    >>> ferrax.ffi.ffi_call("my_norm", ferrax.ShapeDtypeStruct((4,), jnp.float32))(x)  # doctest: +SKIP
"""

from ferrax._src.base import public as _public
from ferrax._src.callbacks.ffi_calls import ffi_call as ffi_call
from ferrax._src.callbacks.ffi_lowering import (
    build_ffi_lowering_function as build_ffi_lowering_function,
    ffi_lowering as ffi_lowering,
)
from ferrax._src.callbacks.ffi_targets import (
    include_dir as include_dir,
    pycapsule as pycapsule,
    register_ffi_target as register_ffi_target,
    register_ffi_target_as_batch_partitionable as register_ffi_target_as_batch_partitionable,
    register_ffi_type as register_ffi_type,
    register_ffi_type_id as register_ffi_type_id,
)
from ferrax._src.interop.core_functions import abstract_token as abstract_token

_public.export(__name__)
