"""Kernels over grids, views of mutable arrays and foreign functions on a GPU do what they do on the CPU."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))

import test_ffi as foreign
import test_pallas as kernels
from oracle import FERRAX

import ferrax

ferrax.config.update("jax_platforms", None)  # the environment may allow the CPU alone
(GPU,) = ferrax.devices("gpu")

NAMES = (
    "blocks", "overhang", "squeezed", "padded elements", "transposed map", "revisited output", "scratch persists",
    "product", "written input", "input and output in one place", "prefetched", "traced grid", "vmap of one of two", "jvp",
)  # fmt: skip


def on(device, run):
    with ferrax.default_device(device):
        found = ferrax.jit(run)() if device is GPU else run()
    leaves = ferrax.tree.leaves(found)
    assert all(leaf.devices() == {device} for leaf in leaves)
    return leaves


@pytest.mark.parametrize("name", NAMES)
def test_grids(name):
    cpu = ferrax.devices("cpu")[0]
    for ours, expected in zip(on(GPU, lambda: kernels.GRIDS[name](FERRAX)), on(cpu, lambda: kernels.GRIDS[name](FERRAX))):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["jit", "in a loop", "in a branch", "in place", "vmap, sequential", "vmap, broadcast_all"])
def test_foreign_functions(name):
    foreign.registered("ferrax")
    cpu = ferrax.devices("cpu")[0]
    for ours, expected in zip(on(GPU, lambda: foreign.CALLS[name](FERRAX)), on(cpu, lambda: foreign.CALLS[name](FERRAX))):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)
