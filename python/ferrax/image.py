"""``ferrax.image``: images of other sizes."""

from ferrax._src.base import public as _public
from ferrax._src.image.resampling import (
    ResizeMethod as ResizeMethod,
    resize as resize,
    scale_and_translate as scale_and_translate,
)

_public.export(__name__)
