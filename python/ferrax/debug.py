"""Looking at values of programs while they run."""

from ferrax._src.base.effects import DebugEffect, OrderedDebugEffect
from ferrax._src.callbacks.debugger import breakpoint as breakpoint
from ferrax._src.callbacks.debugging import (
    debug_callback as callback,
    debug_log as log,
    debug_print as print,
)

__all__ = ["DebugEffect", "OrderedDebugEffect", "breakpoint", "callback", "log", "print"]
