"""What profiles say to XLA."""

from ferrax._src.base import public as _public
from ferrax._src.interop.core_functions import (
    get_profiled_instructions_proto as get_profiled_instructions_proto,
)

_public.export(__name__)
