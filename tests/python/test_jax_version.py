"""The version of JAX that is followed: how it is said, and what it changes.

What JAX 0.12.0.1 does is stated: it needs a newer Python than these tests. `jax_version_cases.py` has the cases, and
is a program that says whether a JAX does what it states.
"""

import os
import subprocess
import sys

import jax_version_cases
import pytest

import ferrax
import ferrax.numpy as jnp
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


CASES = jax_version_cases.__file__
ALL = len(jax_version_cases.CASES)


def test_what_is_stated_of_the_older_version_is_what_jax_does():
    assert run(CASES) == f"{ALL} 0.10.2"


@pytest.mark.parametrize("version", ["0.10.2", "0.12.0.1"])
def test_ferrax_does_what_the_version_does(version):
    assert run("-m", "ferrax.compat", "--jax-version", version, CASES) == f"{ALL} {version}"


def test_names_are_those_of_the_version_when_it_changes():
    program = """
import ferrax, ferrax.compat
had = [hasattr(ferrax.numpy, "top_k"), hasattr(ferrax.core, "DropVar")]
ferrax.compat.install("0.12")
import jax
had += [hasattr(jax.numpy, "top_k"), hasattr(jax.core, "DropVar")]
ferrax.config.update("jax_version", "0.10.2")
had += [hasattr(jax.numpy, "top_k"), hasattr(jax.core, "DropVar")]
ferrax.compat.uninstall()
had += [hasattr(ferrax.numpy, "top_k"), hasattr(ferrax.core, "DropVar")]
print(*map(int, had))
"""
    assert run("-c", program) == "1 1 1 0 0 1 1 1"


def test_an_absent_name_is_said_to_be_so():
    said = run("-m", "ferrax.compat", "--jax-version", "0.12", "-c", "import jax; jax.core.DropVar")
    assert said == "AttributeError: ferrax, which answers for JAX 0.12.0.1 here, has no jax.core.DropVar"
    said = run("-m", "ferrax.compat", "-c", "from jax.numpy import top_k")
    assert said.startswith("ImportError: ferrax, which answers for JAX 0.10.2 here, has no jax.numpy.top_k")


def test_a_thread_may_follow_another_version_and_functions_are_traced_anew():
    traced = []

    @ferrax.jit
    def both(x):
        traced.append(jax_version.followed())
        return type(jnp.broadcast_arrays(x, x)) is tuple

    assert not both(1.0)
    with config.states["jax_version"]("0.12"):
        assert both(1.0) and both(2.0)
        assert ferrax.__version__ == jax_version.of_process()
    assert not both(3.0)
    assert traced == [jax_version.OLD, jax_version.NEW]


def test_options_of_jit_may_be_of_either_version():
    def within(x, inline):
        return ferrax.make_jaxpr(lambda x: ferrax.jit(lambda y: y + 1, inline=inline)(x))(x).eqns[0]

    early, late = ferrax.Inline.JAX_EARLY, ferrax.Inline.XLA_LATE
    assert [str(within(1.0, i).primitive) for i in (True, False, early, late)] == ["add", "jit", "add", "jit"]
    with config.states["jax_version"]("0.12"):
        assert [str(within(1.0, i).primitive) for i in (True, False, early, late)] == ["jit", "jit", "add", "jit"]
        # An equation is bound again with its own parameters.
        eqn = within(1.0, True)
        assert float(eqn.primitive.bind(2.0, **eqn.params)[0]) == 3.0
        # Functions of ferrax are written out as they were.
        assert "jit" not in str(ferrax.make_jaxpr(lambda x: jnp.stack([x, x]))(1.0))
