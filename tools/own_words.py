"""Finds where ferrax follows the sources of JAX, NumPy and SciPy: functions by their statements, texts
by runs of words. Behaviour, names of the interface and formulas are meant to be alike; code and
sentences are not.

A function's body becomes tokens, without docstrings and annotations and as `ast.unparse` writes it. Names
that are bound in the outermost function around it are variables; other names, numbers and operators stay;
strings are one token; modules before a dot are dropped. Two runs of tokens are alike if a renaming of
variables, one to one, makes one of the other. A function's measure is the share of its tokens that stand
in runs of at least `RUN` tokens which one function of another package has too; functions of fewer than
`MIN_TOKENS` tokens say nothing. These are the fingerprints of Schleimer, Wilkerson and Aiken (Winnowing:
local algorithms for document fingerprinting, SIGMOD 2003), all of them kept, over parameterised strings
(Baker, Parameterized pattern matching: algorithms and applications, JCSS 52, 1996).

A text is a string or a block of comments; its runs of at least `WORDS` words that another package's texts
have too are named.

    python tools/own_words.py                 # what is above the limits; exits with 1 if anything is
    python tools/own_words.py --share 0.5     # and what is nearest to them

The sources are read where they are installed, nothing of them runs. `own_words_allowed.txt` lists what
passes, with its reason: functions as `path::name`, and words in quotes, as of the title of a paper; a line
there that nothing needs is an error.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import importlib.util
import multiprocessing
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = pathlib.Path(__file__).with_name("own_words_allowed.txt")
PACKAGES = ("jax", "numpy", "scipy")
MIN_TOKENS = 40
RUN = 14
SHARE = 0.6
WORDS = 8
# Words that signatures and printed arrays are made of; runs of these and of names of two letters say nothing.
PRINTED = set("array dtype float int bool complex weak_type true false none jnp def return import lambda args".split())
# A run that more functions have is an idiom of the language, and does not choose what to compare with.
COMMON = 12
# How many functions, those with most runs in common, a function is compared with.
NEAREST = 8
# Folders that hold no library code.
SKIPPED = {"tests", "test", "testing", "internal_test_util", "__pycache__"}
WORD = re.compile(r"[A-Za-z][A-Za-z'_]*")
_TOKEN = re.compile(
    r"[fb]?'S'|[^\W\d]\w*|\d[\w.]*(?:(?<=e)[+-]\d+)?|\*\*=|//=|[-+*/%@&|^=<>!:]=|\*\*|//|<<|>>|->|\n|\S"
)
_COMMENT = re.compile(r"(?:^|\s)#+:?\s+(.*)")

Def = ast.FunctionDef | ast.AsyncFunctionDef
# A token of a body: the number of a variable, or the text of anything else.
Token = int | str
Run = tuple[Token, ...]


class Function(NamedTuple):
    name: str
    tokens: Run


class Finding(NamedTuple):
    """Something that is too close: the name of a function or the words of a text, and the line that says so."""

    what: str
    line: str


class Module:
    """A source file: its texts, as (line, text), and its functions."""

    def __init__(self, source: str):
        self.texts = list(_comments(source))
        self._tree = ast.parse(source)
        self._imported: set[str] = set()
        nodes = list(ast.walk(self._tree))
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.texts.append((node.lineno, node.value))
                node.value = "S"
            elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
                node.value = b"S"
            elif isinstance(node, ast.arg):
                node.annotation = None
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._imported |= {(name.asname or name.name).split(".")[0] for name in node.names}
            elif isinstance(node, Def):
                node.returns = None
                if ast.get_docstring(node, clean=False) is not None:
                    del node.body[0]
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                node.values = [ast.Constant("S")]

    def functions(self, inner: bool) -> Iterator[Function]:
        """Its functions and methods; with `inner` also each function in a function."""
        yield from self._functions(self._tree, "", None, inner)

    def _functions(
        self, node: ast.AST, prefix: str, variables: set[str] | None, inner: bool
    ) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Def):
                bound = _bound(child) if variables is None else variables
                yield Function(prefix + child.name, self._tokens(child, bound))
                if inner:
                    yield from self._functions(child, f"{prefix}{child.name}.", bound, inner)
            else:
                name = f"{child.name}." if isinstance(child, ast.ClassDef) else ""
                yield from self._functions(child, prefix + name, variables, inner)

    def _tokens(self, function: Def, variables: set[str]) -> Run:
        numbers: dict[str, int] = {}
        found: list[Token] = []
        attribute = False
        for text in _TOKEN.findall("\n".join(map(ast.unparse, function.body))):
            if text in variables and not attribute:
                found.append(numbers.setdefault(text, len(numbers)))
            elif text == "." and found and found[-1] in self._imported:
                found.pop()
            else:
                found.append("'S'" if text.endswith("'S'") else text)
            attribute = text == "."
        return tuple(found)


def _bound(function: Def) -> set[str]:
    """The names that a function binds, or one inside it."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, Def) and node is not function:
            names.add(node.name)
    return names


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Each block of comments. A string with a sharp in it is taken for one as well, which adds nothing."""
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if comment := _COMMENT.search(line):
            block.append(comment[1])
        elif block:
            yield number - len(block), " ".join(block)
            block = []


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The Python files below a folder that are library code."""
    return sorted(p for p in folder.rglob("*.py") if not SKIPPED & set(p.relative_to(folder).parts))


def runs(tokens: Iterable, length: int) -> Iterator[tuple]:
    """All runs of so many tokens or words, one from each place."""
    return zip(*(tokens[start:] for start in range(length)))


def shape(run: Run) -> Run:
    """A run whose variables all look alike: what is wanted of runs that are alike, and cheap."""
    return tuple([0 if type(token) is int else token for token in run])


def renamed(run: Run) -> Run:
    """A run with its variables numbered from its start: equal for runs that are alike."""
    numbers: dict[Token, int] = {}
    return tuple(
        [numbers.setdefault(token, len(numbers)) if type(token) is int else token for token in run]
    )


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def says_something(text: str) -> bool:
    """Whether enough of a run's words are words of a language."""
    return sum(len(word) > 2 and word not in PRINTED for word in words(text)) >= WORDS - 2


class Known(NamedTuple):
    """What is looked for in other packages: the shapes of our runs of tokens, and our runs of words."""

    shapes: set[Run]
    words: set[tuple[str, ...]]


class Found(NamedTuple):
    """Of one file of another package, what is known: each function's runs, and the runs of words."""

    functions: list[tuple[str, frozenset[Run]]]
    words: set[tuple[str, ...]]


def search(known: Known, source: str, where: str) -> Found:
    """What a file has of what is known."""
    module = Module(source)
    functions = []
    for function in module.functions(inner=False):
        shapes = runs(shape(function.tokens), RUN)
        hits = [i for i, run in enumerate(shapes) if run in known.shapes]
        if hits:
            alike = frozenset(renamed(function.tokens[i : i + RUN]) for i in hits)
            functions.append((f"{where}::{function.name}", alike))
    texts = {run for _, text in module.texts for run in runs(words(text), WORDS)}
    return Found(functions, texts & known.words)


class Ours:
    """The functions and texts of a package, by their files."""

    def __init__(self, folder: pathlib.Path):
        self.functions: list[Function] = []
        self.texts: list[tuple[str, int, str]] = []
        for path in files(folder):
            where = path.relative_to(folder).as_posix()
            module = Module(path.read_text(encoding="utf-8"))
            self.texts += [(where, line, text) for line, text in module.texts]
            for function in module.functions(inner=True):
                if len(function.tokens) >= MIN_TOKENS:
                    self.functions.append(function._replace(name=f"{where}::{function.name}"))

    def known(self) -> Known:
        shapes = {run for function in self.functions for run in runs(shape(function.tokens), RUN)}
        texts = {run for _, _, text in self.texts for run in runs(words(text), WORDS)}
        return Known(shapes, texts)

    def close_functions(self, theirs: dict[str, frozenset[Run]], share: float) -> Iterator[Finding]:
        """The functions of which at least that share stands in one of theirs."""
        having = collections.defaultdict(list)
        for name, alike in theirs.items():
            for run in alike:
                having[run].append(name)
        found = []
        for function in self.functions:
            mine = [renamed(run) for run in runs(function.tokens, RUN)]
            names = (having[run] for run in set(mine) if run in having)
            votes = collections.Counter(name for some in names if len(some) <= COMMON for name in some)
            best = max(((_covered(mine, theirs[n]), n) for n, _ in votes.most_common(NEAREST)), default=(0, ""))
            if best[0] >= share * len(function.tokens):
                found.append((best[0] / len(function.tokens), function, best[1]))
        for ratio, function, name in sorted(found, reverse=True):
            yield Finding(function.name, f"{ratio:.0%} of {len(function.tokens)} tokens: {function.name}  ~  {name}")

    def close_texts(self, theirs: set[tuple[str, ...]]) -> Iterator[Finding]:
        """The runs of words that stand in one of their texts."""
        for where, line, text in self.texts:
            mine = words(text)
            starts = [i for i, run in enumerate(runs(mine, WORDS)) if run in theirs]
            for first, last in _stretches(starts):
                said = " ".join(mine[first : last + WORDS])
                if says_something(said):
                    yield Finding(said, f"{last - first + WORDS} words: {where}:{line}: {said}")


def _covered(mine: list[Run], theirs: frozenset[Run]) -> int:
    """How many tokens stand in a run that is theirs as well."""
    starts = [i for i, run in enumerate(mine) if run in theirs]
    return len({place for i in starts for place in range(i, i + RUN)})


def _stretches(places: list[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each stretch of places that follow each other."""
    for i, place in enumerate(places):
        if not i or places[i - 1] + 1 < place:
            first = place
        if i + 1 == len(places) or places[i + 1] > place + 1:
            yield first, place


class Allowed:
    """What passes; it notes which of its lines were needed."""

    def __init__(self, lines: list[str]):
        self.unused: set[str] = set()
        for line in lines:
            what, _, reason = line.partition("  # ")
            if line and not line.startswith("#"):
                if not reason.strip():
                    sys.exit(f"{ALLOWED.name}: gives no reason: {line}")
                self.unused.add(what.strip())
        self._functions = {what for what in self.unused if not what.startswith('"')}
        self._quoted = {what: " ".join(words(what)) for what in self.unused - self._functions}

    def passes(self, finding: Finding) -> bool:
        """Whether a function is listed, or what a text says beside words that are."""
        if "::" in finding.what:
            self.unused.discard(finding.what)
            return finding.what in self._functions
        rest = finding.what
        for line, quoted in self._quoted.items():
            if quoted in rest:
                self.unused.discard(line)
                rest = rest.replace(quoted, "")
        return not says_something(rest)


def package(name: str) -> pathlib.Path:
    """Where a package is installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(
            f"own_words: {name} is not installed, so nothing was checked. The extra `test` installs it, JAX 0.10.2 "
            f"with Python 3.11 or newer; this is {sys.version.split()[0]}."
        )
    return pathlib.Path(spec.origin).parent


_known: Known


def _begin(known: Known) -> None:
    """Sets up a process that searches; its trees hold no circles worth the collector's time."""
    global _known
    _known = known
    gc.disable()


def _search_file(task: tuple[str, pathlib.Path]) -> Found:
    where, path = task
    return search(_known, path.read_text(encoding="utf-8", errors="replace"), where)


def compare(ours: Ours, found_in_files: Iterable[Found], share: float) -> Iterator[Finding]:
    """Everything of ours that is too close to what was found in other packages."""
    functions: dict[str, frozenset[Run]] = {}
    texts: set[tuple[str, ...]] = set()
    for found in found_in_files:
        functions.update(found.functions)
        texts |= found.words
    yield from ours.close_functions(functions, share)
    yield from ours.close_texts(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=SHARE, help="the share of a function that is too much")
    options = parser.parse_args()
    folders = [package(name) for name in PACKAGES]
    allowed = Allowed(ALLOWED.read_text(encoding="utf-8").splitlines())
    tasks = [(path.relative_to(folder.parent).as_posix(), path) for folder in folders for path in files(folder)]
    tasks.sort(key=lambda task: -task[1].stat().st_size)
    gc.disable()
    ours = Ours(ROOT / "python" / "ferrax")
    with multiprocessing.Pool(initializer=_begin, initargs=(ours.known(),)) as pool:
        findings = list(compare(ours, pool.imap_unordered(_search_file, tasks), options.share))
    close = [finding for finding in findings if not allowed.passes(finding)]
    lines = [finding.line for finding in close]
    lines += [f"{ALLOWED.name}: nothing needs this line any more: {what}" for what in sorted(allowed.unused)]
    print("\n".join(lines) or "own words: ok")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
