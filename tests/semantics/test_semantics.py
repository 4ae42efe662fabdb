"""Runs the Markdown specs of this directory: on ferrax, and on the reference, so both agree.

A spec is prose with `python` blocks. Each `##` section is one test; the blocks before the
first section run ahead of each. A comment on a statement states what comes of it:

    expression  # => text          its `repr` or `str`, white space aside
    statement   # error: Class     it raises Class (or a subclass), …
    statement   # error: Class "part of the message"
    statement   # warns: Class "part of the message"

`jax`, `jnp`, `lax` and `np` are there from the start. A block opened with ```` ```python ferrax ````
runs on ferrax only: there the two differ on purpose, and the prose says why. One opened with
```` ```python pending Class ```` states what ferrax is still to do: until then each of its statements
raises that class, and the test fails for another and once one works. README.md and the pages of docs/ in
`PAGES` are run too, on ferrax, docs/torch.md where PyTorch is installed. There a block opened with ```` ```python processes 4 ```` is
run by so many processes, each of which checks what
is stated.
"""

import ast
import importlib
import importlib.util
import io
import pathlib
import re
import sys
import tokenize
import warnings
from unittest import mock

import numpy as np
import pytest

DIRECTORY = pathlib.Path(__file__).parent
FENCE = re.compile(
    r"^```python(?: (?P<mark>ferrax|pending (?P<class>\w+)|processes (?P<count>\d+)))?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
EXPECTED = re.compile(r'#\s*(?P<kind>=>|error:|warns:)\s*(?P<text>.*)$')
CLASS = re.compile(r'(?P<name>\w+)(?:\s+"(?P<part>.*)")?$')


def sections(path):
    """`(heading, preamble + body)` of each `##` section, line numbers kept by padding."""
    text = path.read_text(encoding="utf-8")
    starts = [match.start() for match in re.finditer(r"^## ", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)]):
        heading = text[start:].split("\n", 1)[0][3:]
        skipped = re.sub(r"[^\n]", "", text[starts[0]:start])
        yield heading, text[: starts[0]] + skipped + text[start:end]


ROOT = DIRECTORY.parent.parent
NAMES = ["devices", "kernels", "profiling", "references", "symbolic_shapes"]
if importlib.util.find_spec("torch") is not None:
    NAMES.append("torch")
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in NAMES)]
CASES = [
    pytest.param(package, path, body, id=f"{package}-{path.stem}-{heading.split('.')[0]}")
    for path in sorted(DIRECTORY.glob("*.md"))
    for heading, body in sections(path)
    for package in ("ferrax", "jax")
] + [
    pytest.param("ferrax", path, body, id=f"{path.stem}-{heading}")
    for path in PAGES
    for heading, body in sections(path)
    if FENCE.search(body)
]


def squeezed(text):
    return re.sub(r"\s+", "", text)


def comments(code):
    """Expectations by line."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT and (match := EXPECTED.match(token.string)):
            found[token.start[0]] = (match["kind"], match["text"].strip())
    return found


def execute(statement, namespace, name):
    """The value of an expression, None of another statement."""
    if isinstance(statement, ast.Expr):
        return eval(compile(ast.Expression(statement.value), name, "eval"), namespace)
    return exec(compile(ast.Module([statement], []), name, "exec"), namespace)


def check(statement, kind, text, namespace, where, name):
    if kind == "=>":
        value = execute(statement, namespace, name)
        accepted = {squeezed(repr(value)), squeezed(str(value))}
        assert squeezed(text) in accepted, f"{where}: expected {text}, got {value!r}"
        return
    match = CLASS.match(text)
    assert match, f"{where}: cannot read the expectation {text!r}"
    part = match["part"] or ""
    if kind == "error:":
        try:
            value = execute(statement, namespace, name)
        except Exception as error:
            classes = [cls.__name__ for cls in type(error).__mro__]
            assert match["name"] in classes, f"{where}: got {type(error).__name__}: {error}"
            assert part in str(error), f"{where}: the message is {error}"
            return
        pytest.fail(f"{where}: expected {match['name']}, got {value!r}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        execute(statement, namespace, name)
    assert any(
        match["name"] in [cls.__name__ for cls in item.category.__mro__]
        and part in str(item.message)
        for item in caught
    ), f"{where}: warned {[str(item.message) for item in caught]}"


def modules(package):
    """What is there from the start."""
    names = {"jax": package, "jnp": f"{package}.numpy", "lax": f"{package}.lax"}
    return {"np": np, **{name: importlib.import_module(module) for name, module in names.items()}}


def padded(body, block):
    """The code of a block at its own lines."""
    return "\n" * body.count("\n", 0, block.start("code")) + block["code"]


# A block of a page, after those before its first section, in a process that MPI started.
PROGRAM = """
import pathlib, sys
sys.path.insert(0, {directory!r})
from test_semantics import modules, run_block
namespace = modules("ferrax")
for code in {codes!r}:
    run_block(code, namespace, pathlib.Path({path!r}))
print("done")
"""


def run_by_processes(path, body, block):
    with mock.patch.object(sys, "path", [str(DIRECTORY.parent / "python"), *sys.path]):
        import mpi_launch  # of the tests beside these

    if sys.platform != "linux":
        pytest.skip("wheels of MPI are tested on Linux")
    before = FENCE.finditer(path.read_text(encoding="utf-8").split("\n## ", 1)[0])
    codes = [padded(body, other) for other in before] + [padded(body, block)]
    program = PROGRAM.format(directory=str(DIRECTORY), codes=codes, path=str(path))
    status, out, err = mpi_launch.run_text(program, int(block["count"]))
    assert status == 0 and out.count("done") == int(block["count"]), out + err


@pytest.mark.parametrize(("package", "path", "body"), CASES)
def test_spec(package, path, body):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    namespace = modules(package)
    blocks = list(FENCE.finditer(body))
    assert len(blocks) == body.count("```python"), f"{path.name}: a block is opened with something unknown"
    for block in blocks:
        if block["mark"] == "ferrax" and package != "ferrax":
            continue
        code = padded(body, block)
        if block["count"] is not None:
            run_by_processes(path, body, block)
            continue
        if block["class"] is None or package != "ferrax":
            run_block(code, namespace, path)
            continue
        for statement in ast.parse(code).body:
            where = f"{path.name}:{statement.lineno}"
            check(statement, "error:", block["class"], namespace, f"{where}, pending", str(path))


def run_block(code, namespace, path):
    """Runs the statements of a block and checks what is stated of them."""
    expectations = comments(code)
    for statement in ast.parse(code).body:
        lines = range(statement.lineno, statement.end_lineno + 1)
        expected = [expectations.pop(line) for line in lines if line in expectations]
        where = f"{path.name}:{statement.lineno}"
        if not expected:
            execute(statement, namespace, str(path))
            continue
        assert len(expected) == 1, f"{where}: several expectations for one statement"
        check(statement, *expected[0], namespace, where, str(path))
    assert not expectations, f"{path.name}: no statement at lines {sorted(expectations)}"
