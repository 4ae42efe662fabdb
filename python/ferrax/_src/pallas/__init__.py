"""Kernels over grids of blocks: `ferrax.experimental.pallas`."""
