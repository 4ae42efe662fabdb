"""`tools/own_words.py` finds copied functions and sentences, and leaves own ones alone."""

import importlib.util
import pathlib
import re
import textwrap

import pytest

_TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "own_words.py"
_spec = importlib.util.spec_from_file_location("own_words", _TOOL)
own_words = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(own_words)

THEIRS = '''
import numpy as np

class Curve:
    def length(self, points: list, scale=1.0) -> float:
        """The sum of the distances of points that follow each other on a curve."""
        total = 0.0
        for before, after in zip(points[:-1], points[1:]):
            step = np.subtract(after, before)
            total += float(np.sqrt(np.sum(step * step)))
        if total > self.limit:
            raise ValueError(f"a curve of length {total} is too long")
        return scale * total / len(points)
'''
RENAMED = '''
from numpy import sqrt, subtract, sum as sum
def path(self, ps, s=1.0):
    "Something else."
    acc = 0.0
    for p, q in zip(ps[:-1], ps[1:]):
        d = subtract(q, p)
        acc += float(sqrt(sum(d * d)))
    if acc > self.limit:
        raise ValueError("no")
    return s * acc / len(ps)
'''
OWN = '''
import numpy as np
def mean_step(self, points, scale=1.0):
    """How far points are from those before them, on average."""
    steps = np.linalg.norm(np.diff(np.asarray(points), axis=0), axis=-1)
    whole = float(steps.sum())
    if self.limit < whole:
        raise ValueError(f"expected at most {self.limit}, got {whole}")
    return whole * scale / (1 + len(steps))
'''
SENTENCE = '''
def f():
    # It is the sum of the distances of points that
    # follow each other on a curve, as you know.
    return 1
'''
# The same shape with one variable for all is another function.
CONFUSED = re.sub(r"\b(acc|ps|p|q|d|s)\b", "x", RENAMED).replace("(self, x, x=1.0)", "(self, x)")


def close(tmp_path, ours, theirs=THEIRS, share=own_words.SHARE):
    (tmp_path / "file.py").write_text(textwrap.dedent(ours))
    mine = own_words.Ours(tmp_path)
    return list(own_words.compare(mine, [own_words.search(mine.known(), theirs, "other/curve.py")], share))


def test_a_function_with_other_names_is_found(tmp_path):
    (found,) = close(tmp_path, RENAMED)
    assert found.what == "file.py::path"
    assert "other/curve.py::Curve.length" in found.line and found.line.startswith("100%")


def test_one_inside_another_is_found(tmp_path):
    nested = "def outer(limit):\n" + textwrap.indent(RENAMED, "    ") + "    return path\n"
    assert {"file.py::outer", "file.py::outer.path"} == {found.what for found in close(tmp_path, nested, share=0.5)}


def test_a_renaming_is_one_to_one(tmp_path):
    assert close(tmp_path, RENAMED, share=0.95) and not close(tmp_path, CONFUSED, share=0.7)


@pytest.mark.parametrize("ours", [OWN, "def f(x):\n    return x + 1\n"])
def test_an_own_function_is_not(tmp_path, ours):
    assert not close(tmp_path, ours)


def test_a_sentence_is_found_across_lines_of_a_comment(tmp_path):
    (found,) = close(tmp_path, SENTENCE)
    assert found.what == "the sum of the distances of points that follow each other on a curve"


def test_what_is_allowed_has_a_reason_and_is_needed(tmp_path):
    lines = ["# a note", "", 'file.py::path  # of the interface', '"distances of points that follow each other"  # a title']
    allowed = own_words.Allowed(lines)
    assert all(allowed.passes(finding) for finding in close(tmp_path, RENAMED))
    assert allowed.unused == {'"distances of points that follow each other"'}
    assert all(allowed.passes(finding) for finding in close(tmp_path, SENTENCE))
    assert not allowed.unused
    other = own_words.Allowed(['file.py::other  # why'])
    assert not any(other.passes(finding) for finding in close(tmp_path, RENAMED))
    with pytest.raises(SystemExit, match="no reason"):
        own_words.Allowed(["file.py::path"])


def test_a_package_that_is_missing_is_an_error():
    with pytest.raises(SystemExit, match="not installed"):
        own_words.package("no_such_package_as_this")
