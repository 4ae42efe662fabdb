"""Libraries that import `jax`, unmodified: programs that use them give what they give on JAX.

Each program, examples that import jax among them, runs in a process of its own, by `python -m
ferrax.compat`. What it prints on JAX 0.10.2 is in `reference.json`, which `run_programs.py` writes.
`make test-ecosystem` installs the libraries; one that is missing fails its test. The newest versions, which follow
JAX 0.12, are tested with Python 3.12 where there is one (`tools/try_newest.py`).
"""

import importlib.util
import json
import sys

import pytest
import run_programs

MODULES = {
    "jaxtyping": ("jaxtyping", "beartype"),
    "haiku": ("haiku", "optax"),
    "flax": ("flax", "optax"),
    "equinox": ("equinox", "optax"),
    "optax_digits": ("optax", "sklearn", "matplotlib"),
    "haiku_rows": ("haiku", "optax", "sklearn", "matplotlib"),
    "blackjax_schools": ("blackjax", "matplotlib"),
}
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="these versions of the libraries need Python 3.11")
REFERENCE = json.loads(run_programs.REFERENCE.read_text(encoding="utf-8"))


def test_each_program_has_its_results():
    assert sorted(REFERENCE) == sorted(run_programs.NAMES)
    assert sorted(json.loads(run_programs.NEWEST_REFERENCE.read_text(encoding="utf-8"))) == sorted(run_programs.NEWEST)


@pytest.mark.parametrize("name", run_programs.NAMES)
def test_a_library_computes_what_it_computes_on_jax(name):
    missing = [module for module in MODULES.get(name, (name,)) if importlib.util.find_spec(module) is None]
    assert not missing, "not installed: run `make test-ecosystem`, which installs them"
    run_programs.compare(run_programs.run(name, on_ferrax=True), REFERENCE[name])
