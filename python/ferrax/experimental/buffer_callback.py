"""Python functions that write their results into buffers, called from compiled programs."""

from ferrax._src.base import public as _public
from ferrax._src.callbacks.buffer_callback import (
    Buffer as Buffer,
    ExecutionContext as ExecutionContext,
    ExecutionStage as ExecutionStage,
    buffer_callback as buffer_callback,
)

_public.export(__name__)
