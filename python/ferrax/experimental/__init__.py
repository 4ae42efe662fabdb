"""What may still change."""

from ferrax._src.callbacks.callback import io_callback as io_callback
