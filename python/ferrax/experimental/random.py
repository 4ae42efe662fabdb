"""Random numbers by an object that has a state."""

from ferrax._src.base import public as _public
from ferrax._src.random.stateful import (
    StatefulPRNG as StatefulPRNG,
    stateful_rng as stateful_rng,
)

_public.export(__name__)
