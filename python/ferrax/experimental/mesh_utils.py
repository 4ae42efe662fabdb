"""Devices in the order in which a mesh should have them."""

from ferrax._src.parallel.mesh_utils import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
