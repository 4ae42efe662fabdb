"""Orders of steps of a program."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.hints import (
    control_dep as control_dep,
    schedule as schedule,
)

_public.export(__name__)
