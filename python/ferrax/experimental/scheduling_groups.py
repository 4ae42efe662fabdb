"""Functions whose operations are a group, and have attributes."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.hints import (
    scheduling_group as scheduling_group,
    xla_metadata_call as xla_metadata_call,
    xla_metadata_call_p as xla_metadata_call_p,
)

_public.export(__name__)
