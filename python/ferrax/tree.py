"""Short names for the pytree functions: `tree.map` for `tree_util.tree_map` and so on."""

from ferrax._src.base import public as _public
from ferrax._src.tree.short_names import *  # noqa: F403  the list of names is there

_public.export(__name__)
