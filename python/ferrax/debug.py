"""Looking at values of programs while they run."""

from ferrax._src.debugger import breakpoint as breakpoint
from ferrax._src.debugging import (
    debug_callback as callback,
    debug_log as log,
    debug_print as print,
)
from ferrax._src.effects import DebugEffect, OrderedDebugEffect

__all__ = ["DebugEffect", "OrderedDebugEffect", "breakpoint", "callback", "log", "print"]
