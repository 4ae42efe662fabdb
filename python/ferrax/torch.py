"""Functions and arrays shared with PyTorch: `pip install ferrax[torch]`.

Torch itself is imported by the first call. docs/torch.md has programs of both.
"""

from ferrax._src.base import public as _public
from ferrax._src.interop.torch_bridge import from_torch, to_torch
from ferrax._src.interop.torch_bridge_calls import as_jax_function
from ferrax._src.interop.torch_bridge_functions import as_torch_function

__all__ = ["as_jax_function", "as_torch_function", "from_torch", "to_torch"]

_public.export(__name__)
