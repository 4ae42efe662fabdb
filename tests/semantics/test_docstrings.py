"""Runs the examples in the help of all public names.

In them `ferrax`, `jnp`, `lax` and `np` are there from the start, and the public modules by their last
names, those of kernels as `pl`, `pltpu` and `plgpu`; the rest is imported. Numbers may differ in the last places: functions are not rounded correctly.
What an example sets of the flags is put back. Those that need an extra run where it is installed.
"""

import doctest
import importlib.util
import inspect
import pathlib
import re
import sys
from unittest import mock

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import pallas

with mock.patch.object(sys, "path", [str(pathlib.Path(__file__).parents[2] / "tools"), *sys.path]):
    from public_names import help_of, public_modules, public_names

NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?")
NAMES = {module.__name__.rsplit(".", 1)[-1]: module for module in public_modules()}
NAMES |= {"ferrax": ferrax, "jnp": jnp, "lax": lax, "np": np}
NAMES |= {"pl": pallas, "pltpu": pallas.tpu, "plgpu": pallas.triton}
# What examples of a module import; `make test-torch` runs them.
NEEDS = {"ferrax.torch": "torch"}


class _Close(doctest.OutputChecker):
    def check_output(self, want, got, optionflags):
        if super().check_output(want, got, optionflags):
            return True
        same_text = re.sub(r"\s*#\s*", "#", NUMBER.sub("#", want)) == re.sub(r"\s*#\s*", "#", NUMBER.sub("#", got))
        pairs = zip(NUMBER.findall(want), NUMBER.findall(got))
        return same_text and all(np.isclose(float(a), float(b), 1e-6, 0) for a, b in pairs)


def by_module():
    groups = {}
    for module, name, value in public_names():
        groups.setdefault(module.__name__, []).append((f"{module.__name__}.{name}", help_of(value)))
    for module in public_modules():
        groups.setdefault(module.__name__, []).append((module.__name__, inspect.getdoc(module) or ""))
    return {name: texts for name, texts in groups.items() if importlib.util.find_spec(NEEDS.get(name, "ferrax"))}


@pytest.mark.parametrize(("module", "texts"), by_module().items(), ids=by_module())
def test_examples_hold(module, texts):
    runner = doctest.DocTestRunner(_Close(), verbose=False, optionflags=doctest.ELLIPSIS)
    flags = {name: getattr(ferrax.config, name) for name in ("jax_enable_x64",)}
    for name, text in texts:
        test = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)
        failed = runner.run(test).failed
        for flag, value in flags.items():
            ferrax.config.update(flag, value)
        assert not failed, f"the example of {name} fails: see the output"
