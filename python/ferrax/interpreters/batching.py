"""Batching rules of primitives: registries and what rules are written with."""

from ferrax._src.base import public as _public
from ferrax._src.transforms.batching_rules import (
    axis_primitive_batchers as axis_primitive_batchers,
    bdim_at_front as bdim_at_front,
    broadcast as broadcast,
    defbroadcasting as defbroadcasting,
    defreducer as defreducer,
    defvectorized as defvectorized,
    fancy_primitive_batchers as fancy_primitive_batchers,
    moveaxis as moveaxis,
    not_mapped as not_mapped,
    primitive_batchers as primitive_batchers,
)
from ferrax._src.transforms.vmappables import (
    register_vmappable as register_vmappable,
    unregister_vmappable as unregister_vmappable,
)

_public.export(__name__)
