"""The version of JAX that is followed: how it is said, and what it changes.

What JAX 0.12.0.1 does is stated: it needs a newer Python than these tests. `jax_version_cases.py` has the cases,
and `tools/beside_jax.py` runs them on both where that JAX is installed.
"""

import os
import subprocess
import sys

import pytest

from ferrax._src.base import config, jax_version
from ferrax._src.compat import required


def run(*command, **environment):
    """What a process prints, or the last line of its errors."""
    environment = {key: value for key, value in os.environ.items() if key != "FERRAX_JAX_VERSION"} | environment
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


SAID = (
    "import importlib.metadata as m, jax; print(jax.__version__, jax.__version_info__, jax.lib.__version__, "
    "m.version('jax'), m.version('jaxlib'), jax.numpy.__array_api_version__)"
)
OLD = "0.10.2 (0, 10, 2) 0.10.2 0.10.2 0.10.2 2024.12"
NEW = "0.12.0.1 (0, 12, 0, 1) 0.12.0.1 0.12.0.1 0.12.0.1 2025.12"


@pytest.mark.parametrize(
    "command, environment, expected",
    [
        (["-m", "ferrax.compat", "-c", SAID], {}, OLD),
        (["-m", "ferrax.compat", "-c", SAID], {"FERRAX_JAX_VERSION": "0.12.0.1"}, NEW),
        (["-m", "ferrax.compat", "--jax-version", "0.12", "-c", SAID], {}, NEW),
        (["-m", "ferrax.compat", "--jax-version", "0.10", "-c", SAID], {"FERRAX_JAX_VERSION": "0.12"}, OLD),
        (["-c", f"import ferrax.compat; ferrax.compat.install('0.12'); {SAID}"], {}, NEW),
        (["-c", f"import ferrax.compat as c; c.install(); c.install('0.12'); {SAID}"], {}, NEW),
        (["-c", f"import ferrax; ferrax.config.update('jax_version', (0, 12)); import ferrax.compat as c; "
          f"c.install(); {SAID}"], {}, NEW),
    ],
)  # fmt: skip
def test_the_version_is_said_by_argument_environment_or_flag(command, environment, expected):
    assert run(*command, **environment) == expected


def test_a_folder_of_the_path_is_of_its_version():
    folder = run("-m", "ferrax.compat", "--jax-version", "0.12", "--path")
    python_path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    assert run("-c", SAID, PYTHONPATH=python_path) == NEW


@pytest.mark.parametrize("bad", ["0.11", "1", "", "0.12.0.10", "newest", "0.1"])
def test_what_is_no_version_is_refused(bad):
    text = f"must be one of 0.10.2, 0.12.0.1 (or its beginning, such as '0.12'), got {bad!r}"
    assert text in run("-c", "import ferrax", FERRAX_JAX_VERSION=bad)
    assert text in run("-m", "ferrax.compat", "--jax-version", bad, "-c", "0")
    with pytest.raises(ValueError, match=r"must be one of 0\.10\.2, 0\.12\.0\.1"):
        config.config.update("jax_version", bad)
    assert config.config.jax_version == jax_version.of_process()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Requires-Dist: jax>=0.11.1\nRequires-Dist: numpy>=2", (0, 11, 1)),
        ("Requires-Dist: jax (>=0.4.38,!=0.7.0)\nRequires-Dist: jaxlib>=0.5", (0, 5)),
        ("Requires-Dist: jax[cpu]~=0.12.0; python_version > '3.11'", (0, 12, 0)),
        ("Requires-Dist: jax>=0.11.0; extra == 'jax'\nRequires-Dist: jax", ()),
        ("Requires-Dist: jax-cosmo>=9\nRequires-Dist: jaxtyping>=2\nProvides-Extra: jax", ()),
        ("Requires-Dist: jax<0.11", ()),
    ],
)
def test_what_a_library_asks_for(text, expected):
    assert required.least(text) == expected


def test_an_installed_library_asks_for_the_newer_version(tmp_path):
    made = tmp_path / "needy-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: needy\nVersion: 1.0\nRequires-Dist: jax>=0.11.1\n")
    python_path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert run("-m", "ferrax.compat", "-c", SAID, PYTHONPATH=python_path) == NEW
    # What is said counts more, and ferrax by its own name asks no library.
    asked = "-m", "ferrax.compat", "--jax-version", "0.10.2", "-c", SAID
    assert run(*asked, PYTHONPATH=python_path) == OLD
    assert run("-c", "import ferrax; print(ferrax.__version__)", PYTHONPATH=python_path) == "0.10.2"
    found = run("-m", "ferrax.compat", "-c", SAID, PYTHONPATH=python_path, FERRAX_JAX_VERSION="0.10.2")
    assert found == OLD
