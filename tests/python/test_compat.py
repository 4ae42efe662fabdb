"""`ferrax.compat`: imports of `jax` mean ferrax, in processes of their own."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

import pytest

PACKAGE = pathlib.Path(__import__("ferrax").__file__).parent.parent


@pytest.fixture(autouse=True, scope="module")
def compiled_once():
    """The first process here writes the bytecode of ferrax, wherever Python is told to write none."""
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        yield


def run(*arguments, python_path=(), **options):
    """The output of a Python process that has ferrax on its path; an error where it fails."""
    environment = dict(os.environ, JAX_PLATFORMS="cpu")
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, python_path), str(PACKAGE)])
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_module_is_one_object_under_both_names():
    assert run("-m", "ferrax.compat", "-c", """
import sys, importlib, pickle
import jax, ferrax, ferrax.extend.core
import jax.numpy as jnp
import jax.extend.linear_util as lu
from jax.experimental import checkify
from jax import tree_util
from jax.tree_util import tree_map
assert jax is ferrax and jnp is ferrax.numpy and tree_util is ferrax.tree_util
assert lu is ferrax.extend.linear_util is sys.modules["jax.extend.linear_util"]
assert importlib.import_module("jax.interpreters.ad") is ferrax.interpreters.ad
assert ferrax.numpy.__name__ == ferrax.numpy.__spec__.name == "ferrax.numpy"
assert pickle.loads(pickle.dumps(jax.tree_util.Partial(jnp.sin)))(0.0) == 0
assert jax.__version__ == "0.10.2" == jax.lib.__version__ and jax.__version_info__ == (0, 10, 2)

# What a library patches acts.
before = jax.random.fold_in
jax.random.fold_in = lambda key, data: "patched"
assert ferrax.random.fold_in(0, 1) == "patched"

# An installation is undone.
import ferrax.compat
ferrax.compat.install()  # a second one does nothing
assert ferrax.compat.is_installed()
ferrax.compat.uninstall()
assert not any(name.split(".")[0] == "jax" for name in sys.modules)
import ferrax._src.core
assert ferrax._src.core.typeof(1.0).weak_type
try:
    ferrax.core.get_aval
except AttributeError as error:
    assert "jax." not in str(error)
print("done")
""") == "done\n"  # fmt: skip


def test_private_names_are_public_ones():
    assert run("-m", "ferrax.compat", "-c", """
import sys
import jax
import jax._src.core
import jax.flatten_util
import jax._src.interpreters.partial_eval as pe
from jax._src import core, dtypes, traceback_util, tree_util
from jax._src.flatten_util import ravel_pytree
from jax._src.lax.control_flow import scan_p
assert core.ShapedArray is jax.core.ShapedArray and core.trace_state_clean()
assert jax._src.interpreters.ad.primitive_jvps is jax.interpreters.ad.primitive_jvps
assert jax._src.interpreters.ad.CustomVJPException is jax.errors.UnexpectedTracerError
assert pe.trace_to_jaxpr_dynamic is jax.interpreters.partial_eval.trace_to_jaxpr_dynamic
assert ravel_pytree is jax.flatten_util.ravel_pytree and scan_p is jax.lax.scan_p
assert list in tree_util._registry and object not in tree_util._registry
assert dtypes.supports_inf("float32") and not dtypes.supports_inf("int32")
assert core.physical_aval(jax.typeof(jax.random.key(0))).str_short() == "uint32[2]"

# Frames of files that a library excludes are not the user's, and equations name those that are.
frame = sys._getframe()
assert traceback_util.include_frame(frame)
assert not traceback_util.include_filename(jax.__file__)
traceback_util.register_exclusion("/some/library")
assert not traceback_util.include_filename("/some/library/file.py")
assert traceback_util.include_filename("/some/library_of_mine.py")
assert "/some/library" in traceback_util._exclude_paths
assert traceback_util.api_boundary(lambda: 1)() == 1

# A function that a library puts in place of the compiler is called before a program runs.
from jax._src import compiler
inner, called = compiler.backend_compile_and_load, []
def forbid(backend, *args):
    called.append(backend.platform)
    raise PermissionError("forbidden")
compiler.backend_compile_and_load = forbid
double = jax.jit(lambda x: x * 2 + 1)
for _ in range(2):
    try:
        double(3)
    except PermissionError:
        continue
    raise AssertionError("it was compiled")
compiler.backend_compile_and_load = inner
assert double(3) == 7 and called == ["cpu", "cpu"]

for absent in ("jax._src.compilation_cache", "jaxlib.xla_extension"):
    try:
        __import__(absent)
    except ModuleNotFoundError as error:
        assert absent in str(error), error
    else:
        raise AssertionError(absent)
print("done")
""") == "done\n"  # fmt: skip


def test_errors_name_what_jax_calls_it_and_what_there_is_instead():
    assert run("-m", "ferrax.compat", "-c", """
import importlib.util
import jax
def said(statement, error):
    try:
        exec(statement, {"jax": jax})
    except error as found:
        return type(found).__name__ + ": " + str(found)
print(said("jax.tree_map", AttributeError))
print(said("from jax import tree_map", ImportError))
print(said("from jax.core import get_aval", ImportError))
print(said("import jax.experimental.host_callback", ImportError))
print(said("jax.interpreters.mlir.ir_constant", AttributeError))
print(said("jax.numpy.no_such_function", AttributeError))
assert not hasattr(jax, "tree_map") and getattr(jax.core, "get_aval", None) is None
assert not hasattr(jax.experimental, "host_callback") and not hasattr(jax, "compat_mode")
assert importlib.util.find_spec("jax.linear_util") is None
assert importlib.util.find_spec("jax.numpy").name == "ferrax.numpy"
""").splitlines() == [
        "AttributeError: ferrax, which answers for JAX 0.10.2 here, has no jax.tree_map: it was removed "
        "from JAX before 0.10.2; use jax.tree.map",
        "ImportError: ferrax, which answers for JAX 0.10.2 here, has no jax.tree_map: it was removed "
        "from JAX before 0.10.2; use jax.tree.map",
        "ImportError: ferrax, which answers for JAX 0.10.2 here, has no jax.core.get_aval: it was removed "
        "from JAX before 0.10.2; use jax.typeof",
        "ModuleNotFoundError: ferrax, which answers for JAX 0.10.2 here, has no "
        "jax.experimental.host_callback: it was removed from JAX before 0.10.2; use jax.pure_callback, "
        "jax.experimental.io_callback or jax.debug.callback",
        "AttributeError: ferrax, which answers for JAX 0.10.2 here, has no jax.interpreters.mlir.ir_constant: "
        "there is no MLIR here. Lower a primitive to a function of existing operations: "
        "mlir.register_lowering(prim, mlir.lower_fun(function, multiple_results=...))",
        "AttributeError: ferrax, which answers for JAX 0.10.2 here, has no jax.numpy.no_such_function",
    ]  # fmt: skip


def test_programs_are_run_as_python_runs_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, jax, helper\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], jax.__version__, helper.VALUE, sys.modules['__main__'].__file__)\n"
        "    sys.exit(3)\n"
    )
    (tmp_path / "helper.py").write_text(
        "import jax.numpy as jnp\nVALUE = float(jnp.ones(3).sum())\n"
    )
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
    for how in ([str(script)], ["-m", "script"]):
        command = [sys.executable, "-m", "ferrax.compat", *how, "--flag", "a b"]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert done.returncode == 3, done.stderr
        assert done.stdout == f"['--flag', 'a b'] 0.10.2 3.0 {script}\n"
    wrong = subprocess.run(
        [sys.executable, "-m", "ferrax.compat", "-x"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert wrong.returncode == 2 and "knows no option -x" in wrong.stderr


def test_a_folder_on_the_path_does_the_same(tmp_path):
    folder = run("-m", "ferrax.compat", "--path").strip()
    program = (
        "import importlib.metadata as m, jaxlib, jax.numpy as jnp, ferrax\n"
        "import jax._src.core\n"
        "print(jnp is ferrax.numpy, jaxlib.__version__, m.version('jax'), m.version('jaxlib'))\n"
    )
    for first in ("import jaxlib\n", "from jax import lax\n"):
        assert run("-c", first + program, python_path=[folder]) == "True 0.10.2 0.10.2 0.10.2\n"
    # Processes that a program starts find the same jax.
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing, jax\n"
        "def version(n): return jax.__file__\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        assert pool.map(version, [1]) == [jax.__file__]\n"
        "    print(jax.__name__)\n"
    )
    assert run("-m", "ferrax.compat", script) == "ferrax\n"


def test_jax_itself_cannot_be_replaced_once_it_is_imported():
    pytest.importorskip("jax")
    assert "jax is imported already, from" in run("-c", """
import jax, ferrax.compat
try:
    ferrax.compat.install()
except RuntimeError as error:
    print(error)
assert not ferrax.compat.is_installed()
""")  # fmt: skip


def test_pjit_is_deprecated():
    import ferrax
    from ferrax.experimental import pjit

    with pytest.warns(DeprecationWarning, match="Use ferrax.jit"):
        assert pjit.pjit(ferrax.numpy.sin)(0.0) == 0.0
    assert not hasattr(pjit, "other")


def test_backends_are_not_looked_at_by_importing(tmp_path):
    """Libraries choose the number of devices after importing `jax`, if no backend is there yet."""
    program = """
import jax, os
from jax._src import xla_bridge
assert not xla_bridge._backends
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
assert len(jax.devices()) == 3 and list(xla_bridge._backends) == ["cpu"]
"""
    (tmp_path / "program.py").write_text(program)
    settings = {key: value for key, value in os.environ.items() if key != "FERRAX_NUM_CPU_DEVICES"}
    subprocess.run([sys.executable, "-m", "ferrax.compat", str(tmp_path / "program.py")], env=settings, check=True)
