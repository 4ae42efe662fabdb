"""`ferrax.torch` where PyTorch is not installed: it is imported, and its functions say what to install."""

import sys

import numpy as np
import pytest

import ferrax.torch
from ferrax._src.interop import torch_bridge


@pytest.mark.parametrize("name", ferrax.torch.__all__)
def test_it_says_what_to_install(name, monkeypatch):
    torch_bridge.library.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    argument = np.sin if name.startswith("as_") else np.ones(2)
    with pytest.raises(ImportError, match=r"pip install ferrax\[torch\]"):
        getattr(ferrax.torch, name)(argument)


def test_what_torch_itself_misses_is_not_blamed_on_it(monkeypatch):
    torch_bridge.library.cache_clear()

    def broken(name):
        raise ModuleNotFoundError("No module named 'part'", name="part")

    monkeypatch.setattr(torch_bridge.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="part"):
        ferrax.torch.to_torch(1.0)
