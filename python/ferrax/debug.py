"""Looking at values of programs while they run."""

from ferrax._src.base import public as _public
from ferrax._src.base.effects import DebugEffect, OrderedDebugEffect
from ferrax._src.callbacks.debugger import breakpoint as breakpoint
from ferrax._src.callbacks.debugging import (
    debug_callback as callback,
    debug_log as log,
    debug_print as print,
)
from ferrax._src.callbacks.mesh_views import visualize_mesh
from ferrax._src.callbacks.sharding_views import (
    inspect_array_sharding,
    visualize_array_sharding,
    visualize_sharding,
)

__all__ = [
    "DebugEffect",
    "OrderedDebugEffect",
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_mesh",
    "visualize_sharding",
]

_public.export(__name__)
