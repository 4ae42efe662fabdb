"""How each public function that takes arrays is called, and with what, for laws that hold of all of them.

A row of the tables (`algebra_numpy.py`, `algebra_lax.py`, `algebra_scipy.py`) is an expression over the names
of the function's module and the letters below, which are arrays of `rows` × `columns` or of sizes that follow:

    x y        numbers between -0.9 and 0.9         v w  a row of such        a  one of them      d e  three
    p q        numbers between 0.1 and 0.9          u    a row of such        o  an index, 0 or 1
    m n        well away from singular, square      s    positive definite    g  complex
    i j        integers from 0 to 5                 l    indices of columns   b  true or false    k  a key
    X A        x twice; what attends to itself      L    twelve samples       P  a 3 × 4 grid
    c1 w1 w3   two channels of length five, and kernels, one of them local

Before an expression `~` says that nothing is said of derivatives, `1:` nothing of those of second order.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import types

import algebra_lax
import algebra_numpy
import algebra_scipy
import numpy as np

import ferrax
import ferrax.numpy as jnp

TABLES = (algebra_numpy, algebra_lax, algebra_scipy)
HELPERS = {
    "jnp": jnp,
    **{name: getattr(jnp, name) for name in ("ones_like", "zeros_like", "full_like")},
    "softmax": ferrax.nn.softmax,
    "S0": ferrax.lax.ScatterDimensionNumbers((), (0,), (0,)),
    "array2": lambda s, t: jnp.stack([jnp.asarray(s), jnp.asarray(t)]),
    "stack3": lambda s, t: jnp.stack([s, t]),
    "solve2": jnp.linalg.solve,
}


def between(low, high, *shape):
    return lambda rng: rng.uniform(low, high, shape)


def integers(count, *shape):
    return lambda rng: rng.integers(0, count, shape).astype(np.int32)


def letters(rows, columns):
    """Functions of a generator of random numbers that make the arrays."""
    r, c = rows, columns

    def regular(rng):
        return 3 * np.eye(c) + rng.uniform(-0.5, 0.5, (c, c))

    def definite(rng):
        root = rng.uniform(-0.9, 0.9, (c, c))
        return root @ root.T + np.diag(np.arange(1.0, c + 1))

    wide, unit = (-0.9, 0.9), (0.1, 0.9)
    return {
        **dict.fromkeys("xy", between(*wide, r, c)), **dict.fromkeys("pq", between(*unit, r, c)),
        **dict.fromkeys("vw", between(*wide, c)), **dict.fromkeys("de", between(*wide, 3)),
        **dict.fromkeys("mn", regular), **dict.fromkeys("ij", integers(6, r, c)),
        "u": between(*unit, c), "a": between(*wide), "s": definite, "o": integers(2), "l": integers(c, c),
        "b": lambda rng: rng.uniform(size=(r, c)) < 0.5, "g": lambda rng: rng.uniform(*wide, (r, c)) + 1j * rng.uniform(*wide, (r, c)),
        "X": between(*wide, 2, r, c), "A": between(*wide, 2, r, 2, c), "L": between(*wide, 12), "P": between(*wide, 3, 4),
        "c1": between(*wide, 1, 2, 5), "w1": between(*wide, 3, 2, 2), "w3": between(*wide, 3, 4, 4),
        "k": lambda rng: ferrax.random.key(int(rng.integers(1 << 30))),
    }  # fmt: skip


NAMES = tuple(letters(1, 2))


@dataclasses.dataclass(frozen=True)
class Row:
    """One expression: `call` takes the arrays of `arguments`, of which derivatives of `order` exist."""

    module: str
    name: str
    text: str
    call: types.FunctionType
    arguments: tuple
    order: int

    def __str__(self):
        return f"{self.module.removeprefix('ferrax.')}: {self.text}"

    def draw(self, rng, rows, columns):
        made = letters(rows, columns)
        return [jnp.asarray(made[name](rng)) if name != "k" else made[name](rng) for name in self.arguments]


def names_in(code):
    """Global names of an expression and of the functions in it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


def row(module, text):
    order = 2
    if text.startswith("~"):
        order, text = 0, text[1:]
    elif text.startswith("1:"):
        order, text = 1, text[2:]
    found = names_in(compile(text, text, "eval"))
    used = tuple(name for name in NAMES if name in found)
    scope = HELPERS | vars(importlib.import_module(module))
    return Row(module, text.partition("(")[0], text, eval(f"lambda {', '.join(used)}: {text}", scope), used, order)


def split(text):
    """The expressions of a table."""
    return [e.strip() for line in text.strip().splitlines() for e in line.split("; ") if e.strip()]


def distributions():
    for name, (place, parameters) in algebra_scipy.DISTRIBUTIONS.items():
        module = f"ferrax.scipy.stats.{name}"
        for function in public(module):
            start = {"ppf": "p", "isf": "p"}.get(function, place)
            yield module, f"{function}({', '.join(x for x in (start, parameters) if x)})"


def rows():
    found = [row(module, text) for table in TABLES for module, rest in table.TABLE.items() for text in split(rest)]
    return found + [row(module, text) for module, text in distributions()]


def left_out(module):
    """The public names of a module that have no row, with the reason."""
    found = {}
    for table in TABLES:
        if module in table.OUT:
            text = table.OUT[module]
            for part in text.replace("\n", " \n").split("\n"):
                reason, colon, names = part.rpartition(":")
                found.update(dict.fromkeys(names.split(), reason))
    return found


def public(module):
    """The functions of a module by their public names: classes and primitives are none."""
    values = vars(importlib.import_module(module)).items()
    return [
        name for name, value in values
        if callable(value) and not name.startswith("_") and not name.endswith("_p") and not inspect.isclass(value)
    ]


def modules():
    """The public modules of numerical functions."""
    for package in (ferrax.numpy, ferrax.lax, ferrax.nn, ferrax.scipy):
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield found.name
    yield from ("ferrax.random", "ferrax.image", "ferrax.ops")
