"""Compares functions and messages with those of an installed JAX and prints what is too close.

Behaviour is meant to be alike, text is not. A function is compared with those of JAX that have its
name, as sequences of the tokens of their bodies, without docstrings and annotations; signatures are
the interface. Printed are those of at least `MIN_TOKENS` tokens that have at least the ratio
`--ratio` in common with one of them (Ratcliff and Obershelp's measure, as `difflib` has it). A
message is a string of at least `MIN_WORDS` words, in code; printed are those that JAX's source has
too, letter by letter, and NumPy's has not.

    python tools/too_close.py                # what is above the limits; exits with 1 if anything is
    python tools/too_close.py --ratio 0.6    # and what is nearest to them

What is in `ALLOWED` has its reason there.
"""

from __future__ import annotations

import argparse
import ast
import collections
import difflib
import importlib.util
import io
import pathlib
import sys
import tokenize

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIN_TOKENS = 30
MIN_WORDS = 6
RATIO = 0.8

# Functions by their names in a module, and why they may be as they are.
_ONE_CALL = "hands its arguments to one function, by the names of the interface"
_FIELDS = "keeps its arguments as fields, whose names are the interface"
_DECORATOR = "the usual form of a context manager that decorates"
ALLOWED = {
    "policy": "what a policy of two policies is, one line and a check",
    "matrix_norm": _ONE_CALL, "tensordot": _ONE_CALL, "trace": _ONE_CALL, "vecdot": _ONE_CALL,
    "logspace": _ONE_CALL, "static": _ONE_CALL, "custom_vjp_primal_tree_values": _ONE_CALL,
    "WrappedFun.__init__": _FIELDS,
    "_StateContext.__call__": _DECORATOR, "named_scope.__call__": _DECORATOR,
}  # fmt: skip
# Files whose texts may be JAX's, and why.
ALLOWED_TEXTS = {
    "tree_paths.py": "explanations of differences are values, which programs get and compare",
    "error.py": "so are the messages of checks",
    "basic_index.py": "one message, all of which is facts: the index, the axis, its size, a parameter",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _body(function: Function) -> str:
    """The source of a function's body without docstrings and annotations."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, Function | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return "\n".join(map(ast.unparse, function.body))


def tokens(function: Function) -> list[str]:
    """The tokens of a function's body."""
    source = io.StringIO(_body(function))
    skipped = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    return [t.string for t in tokenize.generate_tokens(source.readline) if t.type not in skipped]


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    """The nodes of a module that are docstrings."""
    found = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(body[0].value)
    return found


def _text(node: ast.AST) -> str | None:
    """A string literal, or an f-string with `{}` for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


class Sources:
    """The functions by name, and the messages, of all Python files below a folder."""

    def __init__(self, folder: pathlib.Path, skipped: tuple[str, ...] = ()):
        self.functions: dict[str, list[tuple[str, str, Function]]] = collections.defaultdict(list)
        self.messages: dict[str, str] = {}
        for path in sorted(folder.rglob("*.py")):
            relative = path.relative_to(folder)
            if skipped and relative.parts[0] in skipped:
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = _docstrings(tree)
            inside = {v for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
            for node in ast.walk(tree):
                text = None if node in docstrings or node in inside else _text(node)
                if text is not None and len(text.split()) >= MIN_WORDS:
                    self.messages.setdefault(" ".join(text.split()), f"{relative}:{node.lineno}")
            for outer in ast.walk(tree):
                for node in ast.iter_child_nodes(outer):
                    if isinstance(node, Function):
                        owner = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
                        found = (owner + node.name, f"{relative}:{node.lineno}", node)
                        self.functions[node.name].append(found)


def close_functions(ours: Sources, theirs: Sources, ratio: float):
    """(ratio, name, where here, where there) of each function that is too close."""
    for name, found in ours.functions.items():
        known = [(place, tokens(node)) for _, place, node in theirs.functions.get(name, ())]
        for full_name, place, node in found:
            mine = tokens(node)
            if len(mine) < MIN_TOKENS or full_name in ALLOWED or not known:
                continue
            best = (0.0, "")
            for other_place, other in known:
                matcher = difflib.SequenceMatcher(None, mine, other, autojunk=False)
                if matcher.quick_ratio() > max(best[0], ratio):
                    best = max(best, (matcher.ratio(), other_place))
            if best[0] >= ratio:
                yield best[0], name, place, best[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ratio", type=float, default=RATIO)
    options = parser.parse_args()
    spec = importlib.util.find_spec("jax")
    if spec is None or spec.origin is None:
        sys.exit("too_close: JAX is not installed, there is nothing to compare with")
    ours = Sources(ROOT / "python" / "ferrax")
    theirs = Sources(pathlib.Path(spec.origin).parent)
    functions = sorted(close_functions(ours, theirs, options.ratio), reverse=True)
    for ratio, name, here, there in functions:
        print(f"{ratio:.2f}  {name}  {here}  (JAX: {there})")
    numpy = Sources(pathlib.Path(np.__file__).parent).messages
    messages = sorted(
        (place, text) for text, place in ours.messages.items()
        if text in theirs.messages and text not in numpy
        and place.split("/")[-1].split(":")[0] not in ALLOWED_TEXTS
    )  # fmt: skip
    for place, text in messages:
        print(f"message  {place}  {text!r}  (JAX: {theirs.messages[text]})")
    print(f"{len(functions)} functions, {len(messages)} messages are too close to JAX's source")
    return 1 if functions or messages else 0


if __name__ == "__main__":
    sys.exit(main())
