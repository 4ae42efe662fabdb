"""What may still change."""

from ferrax._src.base import public as _public
from ferrax._src.callbacks.callback import io_callback as io_callback
from ferrax._src.experimental.hi.types import cur_qdd as cur_qdd

_public.export(__name__)
