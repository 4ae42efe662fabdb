"""`jax_traceback_filtering`: which frames users see of errors that leave ferrax."""

import inspect
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import textwrap
import traceback
import types

import error_cases
import error_cases_typical
import error_cases_values
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax._src.base import config, errors, public, traceback_util

CASES = {**error_cases.CASES, **error_cases_values.CASES, **error_cases_typical.CASES}
PACKAGE = errors.PACKAGE_DIRECTORY


def raised(call):
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def files(error):
    """The files of the frames of an error's traceback, outermost first."""
    return [entry.filename for entry in traceback.extract_tb(error.__traceback__)]


def shown(error):
    """The error and those that are printed with it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_ours(filename):
    return filename.startswith(PACKAGE)


@pytest.mark.parametrize("name", CASES)
def test_frames_are_the_users(name):
    error = raised(CASES[name])
    for each in shown(error):
        assert not any(map(is_ours, files(each))), files(each)
    assert os.path.basename(files(error)[-1]).startswith(("error_cases", "test_tracebacks"))


@pytest.mark.parametrize("name", CASES)
def test_without_a_filter_frames_are_there(name):
    with config.traceback_filtering("off"):
        error = raised(CASES[name])
    assert not getattr(error, "__notes__", ())
    # What is raised by the native core itself has none in any case.
    filtered = raised(CASES[name])
    assert len(files(error)) >= len(files(filtered))
    assert [name for name in files(error) if not is_ours(name)][-1] == files(filtered)[-1]


def outer(x):
    return ferrax.jit(lambda x: lax.scan(body, x, jnp.arange(3.0))[0])(x)


def body(carry, x):
    return middle(carry, x), None


def middle(carry, x):
    return jnp.reshape(carry + x, (2,))


def nested():
    return ferrax.grad(lambda x: ferrax.vmap(outer)(x).sum())(jnp.ones((2, 3)))


FUNCTIONS = ["nested", "<lambda>", "outer", "<lambda>", "body", "middle"]


def functions(error):
    names = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
    return names[names.index("nested"):]


def test_functions_of_the_users_keep_their_frames_in_order():
    assert functions(raised(nested)) == FUNCTIONS


@pytest.mark.parametrize("mode", ["remove_frames", "quiet_remove_frames"])
def test_removed_frames(mode):
    with config.traceback_filtering(mode):
        error = raised(nested)
    assert functions(error) == FUNCTIONS
    notes = getattr(error, "__notes__", [])
    if mode == "remove_frames":
        assert isinstance(error.__cause__, ferrax.errors.UnfilteredStackTrace) and not notes
        whole = files(error.__cause__)
        assert sum(map(is_ours, whole)) > 5
        # From the outermost caller inwards, in the order in which functions were called.
        names = [entry.name for entry in traceback.extract_tb(error.__cause__.__traceback__)]
        assert names.index("test_removed_frames") < names.index("nested")
        kept = [n for n, file in zip(names, whole) if not is_ours(file) and "/python3" not in file]
        assert kept[kept.index("nested"):] == FUNCTIONS
        assert "cannot reshape" in str(error.__cause__)
    elif sys.version_info >= (3, 11):
        assert error.__cause__ is None and len(notes) == 1 and "JAX_TRACEBACK_FILTERING=off" in notes[0]
    else:
        assert isinstance(error.__cause__, ferrax.errors.SimplifiedTraceback)


def test_marked_frames():
    with config.traceback_filtering("tracebackhide"):
        error = raised(nested)
    assert error.__cause__ is None and not getattr(error, "__notes__", ())
    for frame, _ in traceback.walk_tb(error.__traceback__):
        hidden = is_ours(frame.f_code.co_filename)
        # Where the package calls Python's own library, that is not the user's either.
        if hidden or frame.f_code.co_filename == __file__:
            assert bool(frame.f_locals.get("__tracebackhide__")) == hidden
    assert any(map(is_ours, files(error)))


def test_causes_of_the_users_are_kept():
    class ModelError(Exception):
        pass

    def failing(x):
        try:
            jnp.reshape(x, (7,))
        except TypeError as error:
            raise ModelError("no such layer") from error

    for mode in ("remove_frames", "quiet_remove_frames"):
        with config.traceback_filtering(mode):
            error = raised(lambda: ferrax.jit(failing)(jnp.ones(3)))
        assert type(error) is ModelError and str(error) == "no such layer"
        chain = list(shown(error))
        assert any(type(each) is TypeError and "cannot reshape" in str(each) for each in chain)
        for each in chain:
            if not isinstance(each, ferrax.errors.UnfilteredStackTrace):
                assert not any(map(is_ours, files(each)))


def test_errors_that_users_catch_within_a_function():
    def guarded(x):
        try:
            return jnp.reshape(x, (7,))
        except TypeError as error:
            assert [entry.name for entry in traceback.extract_tb(error.__traceback__)] == ["guarded"]
            return x

    assert ferrax.jit(guarded)(jnp.ones(3)).shape == (3,)


def test_interrupts_keep_all_frames():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        ferrax.grad(interrupted)(1.0)
    assert any(map(is_ours, files(caught.value)))


def test_excluded_files_are_hidden(monkeypatch):
    monkeypatch.setattr(traceback_util.source_info, "excluded_paths", [error_cases.__file__])
    error = raised(CASES["error_inside_nested_functions"])
    # Of those that ferrax called; the one that called ferrax is beyond the boundary.
    assert files(error).count(error_cases.__file__) == 1
    monkeypatch.undo()
    assert files(raised(CASES["error_inside_nested_functions"])).count(error_cases.__file__) > 1


PLAIN = textwrap.dedent("""
    import ferrax as jax
    import ferrax.numpy as jnp

    def loss(x):
        return jnp.dot(x, jnp.ones(4))

    jax.jit(jax.grad(loss))(jnp.ones(3))
""")


def printed(program, tmp_path, *command, **environment):
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE.rstrip(os.sep)), **environment}
    command = [sys.executable, *command, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


@pytest.mark.parametrize("mode", [None, "auto", "off", "remove_frames", "quiet_remove_frames"])
def test_what_python_prints(mode, tmp_path):
    text = printed(PLAIN, tmp_path, **({} if mode is None else {"JAX_TRACEBACK_FILTERING": mode}))
    last = text[text.rindex("Traceback (most recent call last)"):]
    lines = re.findall(r'File "(.*)", line (\d+)', last)
    ours = [name for name, _ in lines if is_ours(name)]
    assert bool(ours) == (mode == "off")
    if mode != "off":
        assert [int(line) for _, line in lines] == [8, 6]
    assert text.count("Traceback (most recent") == (2 if mode == "remove_frames" else 1)
    assert "TypeError: " in last


IPYTHON = textwrap.dedent("""
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_cell({cell!r})
""")


def test_what_ipython_prints(tmp_path):
    pytest.importorskip("IPython")
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(IPYTHON.format(cell=PLAIN), tmp_path))
    assert "TypeError" in text and "return jnp.dot(x, jnp.ones(4))" in text
    assert PACKAGE not in text and "ferrax/_src" not in text


# Public names.


def public_modules():
    for module in pkgutil.walk_packages(ferrax.__path__, "ferrax."):
        parts = module.name.split(".")
        if "_src" in parts or parts[1] in ("compat", "_core") or any(p.startswith("_") for p in parts):
            continue
        yield __import__(module.name, fromlist=["_"])


MODULES = [ferrax, *public_modules()]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_public_names_are_boundaries_and_named_after_public_modules(module):
    for name, value in vars(module).items():
        if name.startswith("_") or not isinstance(value, (type, types.FunctionType)):
            continue
        if not value.__module__.startswith("ferrax"):
            continue
        assert "_src" not in value.__module__ or value.__name__ != name, name
        if isinstance(value, types.FunctionType):
            assert value in public._boundaries, name
            if value.__name__ == value.__qualname__ == name:
                assert pickle.loads(pickle.dumps(value)) is value


def test_boundaries_have_the_parameters_of_their_functions():
    assert len(public._exported) > 1000
    for function, made in public._exported.items():
        if made is not function:
            # As text, in which NaN is like itself.
            shown = [str(inspect.signature(f, follow_wrapped=False)) for f in (made, function)]
            assert shown[0] == shown[1]
            assert made.__doc__ == function.__doc__ and made.__wrapped__ is function


def takes(a, b=2, /, c=3, *rest, d, e=5, **others):
    return a, b, c, rest, d, e, others


def takes_names(first, *, second=2, third=3):
    return first, second, third


def test_boundaries_pass_arguments_on():
    bounded = traceback_util.boundary(takes)
    assert bounded(1, d=4) == takes(1, d=4)
    assert bounded(1, 7, 8, 9, 10, d=4, e=6, f=11) == takes(1, 7, 8, 9, 10, d=4, e=6, f=11)
    assert bounded(1, c=0, d=4) == takes(1, c=0, d=4)
    names = traceback_util.boundary(takes_names)
    assert names(1, third=5) == (1, 2, 5) and names(first=0) == (0, 2, 3)
    with pytest.raises(TypeError, match="takes_names"):
        names()


def test_errors_are_named_after_public_modules():
    for error in (raised(lambda: jnp.sum(jnp.ones(3), axis=4)), raised(CASES["too_many_shapes"]),
                  raised(lambda: ferrax.config.update("jax_optimization_level", "O3"))):
        printed = traceback.format_exception_only(type(error), error)[0]
        assert "_src" not in printed
    assert isinstance(raised(lambda: jnp.sum(jnp.ones(3), axis=4)), ValueError)
