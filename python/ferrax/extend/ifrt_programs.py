"""Programs of JAX's runtime, which ferrax has not: what use of them says."""

from ferrax._src.interop.core_functions import ifrt_programs as ifrt_programs
