"""What may still change."""

from ferrax._src.callback import io_callback as io_callback
