"""Python functions that run where arrays are."""

from ferrax._src.base import public as _public
from ferrax._src.callbacks.colocated import (
    colocated_cpu_devices as colocated_cpu_devices,
    colocated_python as colocated_python,
    colocated_python_class as colocated_python_class,
)

_public.export(__name__)
