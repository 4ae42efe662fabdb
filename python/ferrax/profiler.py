"""``ferrax.profiler``: what ran when, on which thread, and what is in memory.

Example:
    >>> import tempfile
    >>> with ferrax.profiler.trace(tempfile.mkdtemp()):
    ...     with ferrax.profiler.TraceAnnotation("my work"):
    ...         x = jnp.ones(3) + 1
"""

from ferrax._src.base import public as _public
from ferrax._src.profiling.annotations import (
    StepTraceAnnotation as StepTraceAnnotation,
    TraceAnnotation as TraceAnnotation,
    annotate_function as annotate_function,
)
from ferrax._src.profiling.data import (
    ProfileData as ProfileData,
    ProfileEvent as ProfileEvent,
    ProfilePlane as ProfilePlane,
)
from ferrax._src.profiling.memory import (
    device_memory_profile as device_memory_profile,
    save_device_memory_profile as save_device_memory_profile,
)
from ferrax._src.profiling.options import ProfileOptions as ProfileOptions
from ferrax._src.profiling.remote import register_subprocess as register_subprocess
from ferrax._src.profiling.report import report as report
from ferrax._src.profiling.server import (
    start_server as start_server,
    stop_server as stop_server,
)
from ferrax._src.profiling.session import (
    start_trace as start_trace,
    stop_and_get_fdo_profile as stop_and_get_fdo_profile,
    stop_trace as stop_trace,
    trace as trace,
)

_public.export(__name__)
