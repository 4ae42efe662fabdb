"""Results of the reference library, kept in files, so that a test need not compile for it what has not changed.

A result belongs to a test's case, by the name of the function and of the case, and to its place among
those that the case asks for. It is taken as long as the digest of the case is the same: of the source of
the test function, of what else its module holds but for other test functions, of the modules of this
folder that it imports, but for those that only compare (`COMPARING`), and of the versions and flags of the
reference. Anything else is computed: `pytest` says how many were.

FERRAX_UPDATE_ORACLE=1 runs the reference for each case and writes the files anew; what it has no
encoding for (`encode`), and examples of random tests, are never kept.

A file, one of a test module, is JSON compressed by zlib: `{function: [digest, {case: [result, …]}]}`.
"""

import ast
import base64
import functools
import hashlib
import json
import os
import pathlib
import re
import zlib

import ml_dtypes  # noqa: F401  gives NumPy the names of its dtypes
import numpy as np

try:
    import jax
except ModuleNotFoundError:  # before Python 3.11, where no test asks for results of it
    jax = None

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "kept"
UPDATE = os.environ.get("FERRAX_UPDATE_ORACLE") == "1"
COMPARING = {"closeness", "errors_expected", "kept_values", "conftest"}
LARGEST = 1 << 16  # bytes of one result


class Kept(np.ndarray):
    """An array of a file, with the weak type that it had."""

    weak_type = False


class KeptKey:
    """An array of random keys: its data and the name of its dtype."""

    def __init__(self, data, name):
        self.data, self.shape = data, data.shape[:-1]
        self.dtype = type("KeyType", (), {"name": name, "kind": "V", "__repr__": lambda self: name})()


class NotKept(Exception):
    """A result that has no encoding."""


def encode(x):
    """A result as what JSON holds: a list of a letter and what it takes."""
    if x is None or isinstance(x, (bool, int, str)) and type(x) in (bool, int, str):
        return ["v", x]
    if type(x) is float:
        return ["f", x.hex()]
    if type(x) is complex:
        return ["c", x.real.hex(), x.imag.hex()]
    if isinstance(x, jax.Array) and x.dtype.name.startswith("key<"):
        return ["k", x.dtype.name, encode(jax.random.key_data(x))]
    if isinstance(x, (jax.Array, np.ndarray, np.generic)) and type(x) is not Kept:
        array = np.asarray(x)
        if array.dtype.hasobject or array.dtype.names or array.nbytes > LARGEST:
            raise NotKept
        raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        return ["a", array.dtype.name, list(array.shape), bool(getattr(x, "weak_type", False)), raw]
    if type(x) is dict and all(type(key) is str for key in x):
        return ["d", [[key, encode(value)] for key, value in x.items()]]
    if type(x) in (list, tuple) or isinstance(x, tuple) and hasattr(x, "_fields"):
        return ["t", type(x).__name__, [encode(item) for item in x]]
    if isinstance(x, Raised):
        return ["e", x.name, x.classes, x.text]
    raise NotKept


@functools.cache
def _named(name):
    """The class of a container: comparisons ask for its name."""
    return {"list": list, "tuple": tuple}.get(name) or type(name, (tuple,), {})


def decode(value):
    kind, *rest = value
    if kind == "v":
        return rest[0]
    if kind == "f":
        return float.fromhex(rest[0])
    if kind == "c":
        return complex(*map(float.fromhex, rest))
    if kind == "k":
        return KeptKey(np.asarray(decode(rest[1])), rest[0])
    if kind == "a":
        name, shape, weak, raw = rest
        array = np.frombuffer(base64.b64decode(raw), np.dtype(name)).reshape(shape).view(Kept)
        array.weak_type = weak
        return array
    if kind == "d":
        return {key: decode(item) for key, item in rest[0]}
    if kind == "t":
        return _named(rest[0])(decode(item) for item in rest[1])
    return Raised(None, *rest)


class Raised:
    """An error as a value. `error` is None where it comes from a file."""

    def __init__(self, error, name=None, classes=None, text=None):
        self.error = error
        self.name = name or type(error).__name__
        self.classes = classes or [c.__name__ for c in type(error).__mro__]
        self.text = str(error)[:600] if text is None else text

    def __repr__(self):
        return f"{self.name}: {self.text}"


@functools.cache
def _parts(path):
    """The source of a module: `{test function: its own}`, and all the rest."""
    text = path.read_text(encoding="utf-8")
    tests, rest, end = {}, [], 0
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
            rest += lines[end:first]
            tests[node.name] = "".join(lines[first : node.end_lineno])
            end = node.end_lineno
    return tests, "".join(rest + lines[end:])


@functools.cache
def _modules(path):
    """Modules of this folder that one imports, and that these import."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {HERE / f"{name}.py" for name in names if name not in COMPARING and (HERE / f"{name}.py").exists()}
    return found.union(*map(_modules, found))


@functools.cache
def digest(path, function):
    tests, rest = _parts(path)
    # Results do not depend on how many devices there are, nor, but for roundings, on the processor.
    flags = re.sub(r" --(xla_cpu_max_isa|xla_force_host_platform_device_count)=\w+", "", os.environ.get("XLA_FLAGS", ""))
    flags = [flags, "cpu", os.environ.get("JAX_ENABLE_X64", "")]
    texts = [jax.__version__, *flags, tests.get(function, ""), rest]
    texts += [other.read_text(encoding="utf-8") for other in sorted(_modules(path))]
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=12).hexdigest()


@functools.cache
def _file(module):
    path = FOLDER / f"{module}.z"
    return json.loads(zlib.decompress(path.read_bytes())) if path.exists() else {}


class Case:
    """The case that runs: what is kept of it, and what it computed."""

    def __init__(self, path, function, name):
        self.path, self.function, self.name, self.count = path, function, name, 0
        known, cases = _file(path.stem).get(function, (None, {}))
        fresh = not UPDATE and known == digest(path, function)
        self.kept = cases.get(name, []) if fresh else []
        self.computed = []

    def result(self, run):
        place, self.count = self.count, self.count + 1
        if place < len(self.kept) and self.kept[place] is not None:
            COUNTS["kept"] += 1
            return decode(self.kept[place])
        COUNTS["computed"] += 1
        value = run()
        if UPDATE:
            try:
                self.computed.append(encode(value))
            except NotKept:
                self.computed.append(None)
        return value


CURRENT: list[Case] = []
COUNTS = {"kept": 0, "computed": 0}
NEW: dict[str, dict] = {}  # by module, as in a file


def begin(item):
    random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    if jax is not None and item.path.parent == HERE and not random:
        name = item.callspec.id if hasattr(item, "callspec") else ""
        CURRENT.append(Case(item.path, item.originalname, name))


def end():
    """Of a case that failed what it asked for until then is kept: what it asks for later is computed."""
    if not CURRENT:
        return
    case = CURRENT.pop()
    if UPDATE and any(value is not None for value in case.computed):
        digest_now = digest(case.path, case.function)
        _, cases = NEW.setdefault(case.path.stem, {}).setdefault(case.function, (digest_now, {}))
        cases[case.name] = case.computed


def reference(run):
    """`run()` on the reference library, or what it gave. What `run` asks for itself is a part of its result."""
    if not CURRENT:
        return run()
    case = CURRENT.pop()
    try:
        return case.result(run)
    finally:
        CURRENT.append(case)


def merge(counts, new):
    """Takes over what another process computed."""
    for name, count in counts.items():
        COUNTS[name] += count
    for module, functions in new.items():
        for function, (now, cases) in functions.items():
            NEW.setdefault(module, {}).setdefault(function, (now, {}))[1].update(cases)


def write():
    """Writes what was computed; cases of a function join those that a file has of the same digest."""
    if NEW:
        FOLDER.mkdir(exist_ok=True)
    for module, functions in NEW.items():
        old = _file(module)
        for function, (now, cases) in functions.items():
            known, before = old.get(function, (None, {}))
            old[function] = [now, {**(before if known == now else {}), **cases}]
        lines = json.dumps({name: old[name] for name in sorted(old)}, separators=(",", ":"))
        (FOLDER / f"{module}.z").write_bytes(zlib.compress(lines.encode(), 9))
