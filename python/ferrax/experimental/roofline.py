"""Costs of functions on a machine whose memory and links bound them."""

from ferrax._src.base import public as _public
from ferrax._src.interop.roofline import collectives as _collectives, rules as _rules  # noqa: F401  # fill the tables
from ferrax._src.interop.roofline.model import (
    RooflineResult as RooflineResult,
    RooflineRuleContext as RooflineRuleContext,
    RooflineShape as RooflineShape,
    register_roofline as register_roofline,
    register_standard_roofline as register_standard_roofline,
    roofline as roofline,
    roofline_and_grad as roofline_and_grad,
)

_public.export(__name__)
