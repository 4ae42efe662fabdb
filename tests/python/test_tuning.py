"""From where on a way to compute is taken (`FERRAX_TUNING`): how it is chosen, and that no bit of a result depends on it."""

import json
import os
import subprocess
import sys

import pytest

from ferrax import lib, numpy as jnp

# Prints a digest of what each program of `test_threads` gives.
DIGESTS = """
import hashlib, json
import numpy as np
import ferrax
from test_threads import PROGRAMS

ferrax.config.update("jax_enable_checks", True)
ferrax.config.update("jax_enable_compilation_cache", False)

def digest(outputs):
    state = hashlib.sha256()
    for leaf in ferrax.tree.leaves(outputs):
        state.update(np.asarray(leaf).tobytes())
    return state.hexdigest()

found = {}
with ferrax.enable_x64():
    for name, (function, operands) in PROGRAMS.items():
        found[name] = digest(ferrax.jit(function)(*operands))
        found[name + ", op by op"] = digest(function(*operands))
print(json.dumps(found))
"""


def run(program: str, tuning: str) -> subprocess.CompletedProcess:
    paths = [os.path.dirname(__file__), *sys.path]
    env = os.environ | {"FERRAX_TUNING": tuning, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600)


def digests(tuning: str) -> dict[str, str]:
    result = run(DIGESTS, tuning)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_no_bit_depends_on_tuning():
    usual = digests("default")
    assert len(usual) > 20
    for tuning in ("tiny", "huge"):
        found = digests(tuning)
        assert [name for name in usual if found[name] != usual[name]] == [], tuning


@pytest.mark.parametrize("word", ["small", "Tiny", "1"])
def test_other_words_are_errors(word):
    result = run("import ferrax", word)
    assert result.returncode == 1
    expected = f"ValueError: FERRAX_TUNING expected 'tiny', 'default' or 'huge', got '{word}'"
    assert expected in result.stderr


def test_small_arrays_go_every_way_with_tiny_thresholds():
    program = """
import ferrax, ferrax.numpy as jnp
from ferrax import lib
x = jnp.arange(12.0).reshape(4, 3)
print(lib.stats()["run by rows"], end=" ")
ferrax.jit(ferrax.nn.softmax)(x)
print(lib.stats()["run by rows"])
"""
    assert [run(program, tuning).stdout.split() for tuning in ("tiny", "default")] == [["0", "1"], ["0", "0"]]


def test_stats_count_what_is_taken():
    before = lib.stats()
    assert all(isinstance(count, int) for count in before.values())
    key = jnp.asarray([3, 1, 2, 5, 4, 7, 6], jnp.int16)
    jnp.sort(key), jnp.argsort(key)
    after = lib.stats()
    assert after.keys() == before.keys()
    assert after["sort: places"] >= before["sort: places"]
    assert all(after[name] >= count for name, count in before.items())
