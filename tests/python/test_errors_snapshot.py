"""The texts of errors, whole, as files under `snapshots/`: what a user reads is reviewed as text.

`FERRAX_UPDATE_SNAPSHOTS=1` writes the files anew. Each text names what was called, what it got and
what it expected, and, for everything inside transformed functions, the user's file and line.
"""

import os
import pathlib
import re
import types

import error_cases
import error_cases_typical
import error_cases_values
import pytest

from ferrax._src.base import traceback_util

error_cases.CASES.update(error_cases_values.CASES)
error_cases.CASES.update(error_cases_typical.CASES)
SNAPSHOTS = pathlib.Path(__file__).parent / "snapshots"
UPDATE = os.environ.get("FERRAX_UPDATE_SNAPSHOTS") == "1"
HERE = str(pathlib.Path(__file__).parent.resolve()) + os.sep


def normalised(error):
    text = f"{type(error).__module__}.{type(error).__qualname__}: {error}\n"
    text = text.replace(HERE, "")
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
    for note in getattr(error, "__notes__", ()):
        # Whether frames are left out is told by `test_tracebacks`.
        if note == traceback_util._NOTE:
            continue
        text += f"note: {note.replace(HERE, '')}\n"
    return text


def lines_of(name):
    """Line numbers of the case relative to its first line, so that edits above do not matter."""
    code = error_cases.CASES[name].__code__
    return code.co_firstlineno


def text_of(name):
    with pytest.raises(Exception) as caught:
        error_cases.CASES[name]()
    first = lines_of(name)
    return re.sub(
        r"(error_cases\w*\.py:)(\d+)", lambda m: f"{m[1]}+{int(m[2]) - first}", normalised(caught.value)
    )


@pytest.mark.parametrize("name", error_cases.CASES)
def test_text(name):
    got = text_of(name)
    path = SNAPSHOTS / f"{name}.txt"
    if UPDATE:
        path.write_text(got, encoding="utf-8")
    assert path.exists(), f"no snapshot of {name}; FERRAX_UPDATE_SNAPSHOTS=1 writes it"
    assert got == path.read_text(encoding="utf-8")


def test_no_snapshot_is_left_over():
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(error_cases.CASES)


# Errors raised while an op is recorded or run inside a transformed function point at the line.
INSIDE = [
    "bool_of_tracer", "bool_of_tracer_in_while", "bool_of_array_tracer_under_vmap", "int_of_tracer",
    "range_of_tracer", "shape_of_tracer", "float_of_tracer", "float_under_grad", "numpy_of_tracer",
    "numpy_array_indexed_by_tracer", "boolean_mask", "add_shapes_in_jit", "matmul_shapes_in_grad",
    "error_inside_nested_functions",
]


@pytest.mark.parametrize("name", INSIDE)
def test_text_names_the_line(name):
    assert "error_cases.py:+" in text_of(name)


@pytest.mark.parametrize("name", error_cases.CASES)
def test_text_is_about_the_users_program(name):
    """No internal error, no path of the package's own files, more than a class name."""
    text = text_of(name)
    assert "internal error" not in text and "ferrax/_src" not in text and "/rust/" not in text
    assert len(text.split(": ", 1)[1].strip()) > 20


# JAX raises another error, or none, where ferrax looks more closely or has an argument of its own.
UNLIKE = {"leak_into_an_attribute", "too_many_shapes", "too_many_static_values", "too_many_structures",
          "too_many_weak_types"}  # fmt: skip


def cases_of_jax():
    """The same programs with JAX."""
    cases = {}
    for module in (error_cases, error_cases_values, error_cases_typical):
        path = pathlib.Path(module.__file__)
        text = re.sub(r"^import ferrax as jax$", "import jax", path.read_text(encoding="utf-8"), flags=re.M)
        theirs = types.ModuleType(path.stem)
        exec(compile(re.sub(r"\bferrax\b", "jax", text), str(path), "exec"), vars(theirs))
        cases.update(theirs.CASES)
    return cases


THEIRS = cases_of_jax()


@pytest.mark.parametrize("name", sorted(set(error_cases.CASES) - UNLIKE))
def test_class_is_that_of_jax(name):
    """Or one derived from it."""
    with pytest.raises(Exception) as theirs:
        THEIRS[name]()
    with pytest.raises(Exception) as ours:
        error_cases.CASES[name]()
    assert theirs.type.__name__ in [parent.__name__ for parent in ours.type.__mro__], theirs.value
