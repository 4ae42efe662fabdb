"""Devices in the order in which a mesh should have them."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.mesh_utils import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]

_public.export(__name__)
