"""A random program of a seed: typed, so that it has no errors, and of bounded cost.

A line takes the last value or an older one, and draws what is done with it from the tables of `steps`, `layers`
and `flow`. Shapes are expressions over dimensions, whose values are drawn where code paths change (`sizes`).
"""

from __future__ import annotations

import math
import random
import string

from . import flow, layers, sizes, steps
from .layers import text, tuple_of
from .program import FLOATS, WIDTH, Input, Line, Program


class TooLarge(Exception):
    """An array would be too large: the line is left out."""


# How many lines have which form: one of `layers` or `flow`, or one of the tables of `steps`.
FORMS = {"unary": 4, "binary": 4, "move": 5, "rows": 5, "reduction": 2.5, "mask": 1.5, "layer": 9}


class Generator:
    """`most`: bytes of the largest input; results may have four times that, and 64 KiB."""

    def __init__(self, seed: int, most: int, plans: float = 0.0):
        self.rng = rng = random.Random(seed)
        self.plan = rng.random() < plans
        self.mode = rng.choices(["plain", "donate", "vmap", "grad", "jvp"], [12, 1.5, 1.5, 3, 1.5])[0]
        derivative = self.mode in ("grad", "jvp")
        self.dtype = rng.choice(sizes.DIFFERENTIABLE if derivative else sizes.DTYPES)
        self.wide = derivative or self.dtype == "float64"
        most = sizes.target(rng, most // (4 if self.mode in ("vmap", "jvp") else 1))
        if self.plan:
            most *= rng.choice([1, 1, 8])
        else:
            most = min(most, sizes.MOST_ELEMENTS * WIDTH[self.dtype])
        self.most = 4 * most + (1 << 16)
        self.dims: dict[str, int] = {}
        self.inputs: list[Input] = []
        self.lines: list[Line] = []
        self.pool: list[tuple[str, list[str], str]] = []
        self.seed = seed
        extents = sizes.shape(rng, most, self.dtype)
        while not self.fits(math.prod(extents), self.dtype):  # with one row more than the bytes would have
            extents = sizes.shape(rng, most, self.dtype)
        self.input([self.dim(size) for size in extents], self.dtype)

    def program(self) -> Program:
        rng = self.rng
        for _ in range(rng.choice([1, 2, 2, 3, 3, 4, 5, 6, 8])):
            state = len(self.inputs), len(self.lines), len(self.pool)
            try:
                self.step()
            except TooLarge:
                self.inputs, self.lines, self.pool = (
                    part[:length] for part, length in zip((self.inputs, self.lines, self.pool), state))  # fmt: skip
        if not any(line.dtype in FLOATS or self.mode not in ("grad", "jvp") for line in self.lines):
            self._unary(*self.pool[0])
        derivative = self.mode in ("grad", "jvp")
        names = [line.name for line in self.lines if not derivative or line.dtype in FLOATS]
        results = {*names[-1:], *(rng.choice(names) for _ in range(rng.choice([0, 0, 1, 2])) if names)}
        outputs = tuple(sorted(results, key=names.index))
        return Program(self.seed, self.dims, tuple(self.inputs), tuple(self.lines), outputs, self.mode, self.plan,
                       rng.choice([1, 2, 3])).pruned()  # fmt: skip

    # What the functions of `layers` use.

    def dim(self, size: int) -> str:
        name = f"d{len(self.dims)}"
        self.dims[name] = int(size)
        return name

    def size(self, expression: str) -> int:
        return int(eval(expression, {"__builtins__": {}}, dict(self.dims)))

    def count(self, shape) -> int:
        return math.prod(map(self.size, shape))

    def fits(self, count: int, dtype: str) -> bool:
        return count * WIDTH[dtype] <= self.most and (self.plan or count <= sizes.MOST_ELEMENTS)

    def add(self, name: str, shape, dtype: str) -> None:
        if len(shape) > 6 or not self.fits(self.count(shape), dtype):
            raise TooLarge
        self.pool.append((name, list(shape), dtype))

    def input(self, shape, dtype: str, below: str | None = None) -> str:
        """One more input: of integers below a number, or of the program's numbers, which further lines may use."""
        name = f"x{len(self.inputs)}"
        if below is None and dtype != "bool" or not self.inputs:
            self.add(name, shape, dtype)
        self.inputs.append(Input(name, tuple(shape), dtype, below))
        return name

    def line(self, code: str, shape, dtype: str) -> None:
        name = f"v{len(self.lines)}"
        self.add(name, shape, dtype)
        self.lines.append(Line(name, code, tuple(shape), dtype))

    def last(self) -> str:
        return self.lines[-1].name

    # The forms of lines.

    def step(self) -> None:
        rng = self.rng
        x, shape, dtype = self.pool[-1] if rng.random() < 0.7 else rng.choice(self.pool)
        empty, scalar = self.count(shape) == 0, not shape
        forms = dict.fromkeys(FORMS, 0) | {"unary": 1, "binary": 1} if scalar else dict(FORMS)
        if empty:
            forms |= {"rows": 0, "reduction": 0, "mask": 0, "layer": 0}
        form = rng.choices(list(forms), list(forms.values()))[0]
        getattr(self, f"_{form}")(x, shape, dtype)

    def fill(self, template: str, x: str, shape, axis: int = 0, **more) -> str:
        """A template with the operand, an axis and its extent put in."""
        extent = shape[axis] if shape else "1"
        values = {"x": x, "a": axis, "n": text(extent), "m": text(f"({extent})//2"), "at": ":, " * axis,
                  "shape": tuple_of(shape)} | more  # fmt: skip
        return string.Template(template).substitute(values)

    def _unary(self, x, shape, dtype):
        self.line(self.fill(steps.choose(self.rng, steps.UNARY, dtype), x, shape), shape, dtype)

    def _binary(self, x, shape, dtype):
        template = steps.choose(self.rng, steps.BINARY, dtype)
        self.line(self.fill(template, x, shape, y=self.operand(shape, dtype)), shape, dtype)

    def operand(self, shape, dtype: str) -> str:
        """Something that broadcasts against a shape: of the program, or an input."""
        rng, extents = self.rng, [self.size(e) for e in shape]

        def broadcasts(other) -> bool:
            return len(other) <= len(shape) and all(
                self.size(e) in (1, extent) for e, extent in zip(other[::-1], extents[::-1]))  # fmt: skip

        fits = [name for name, other, of in self.pool if of == dtype and broadcasts(other)]
        if fits and rng.random() < 0.7:
            return rng.choice(fits[-4:])
        if shape and rng.random() < 0.15 and self.count(shape):  # the transposed array is an operand
            return f"{self.input(shape[::-1], dtype)}.T"
        kept = [e if rng.random() < 0.6 else "1" for e in shape]
        return self.input(kept[rng.choice([0, 0, 1]) :] or kept, dtype)

    def axis(self, shape) -> int:
        return self.rng.choice([len(shape) - 1, self.rng.randrange(len(shape))])

    def _rows(self, x, shape, dtype):
        self.line(self.fill(steps.choose(self.rng, steps.ROWS, dtype), x, shape, self.axis(shape)), shape, dtype)

    def _reduction(self, x, shape, dtype):
        rng, axis = self.rng, self.axis(shape)
        others = tuple(i for i in range(len(shape)) if i != axis)
        some = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
        axes = rng.choice([(axis,), (axis,), others or (axis,), some])
        kept = [e for i, e in enumerate(shape) if i not in axes]
        template = steps.choose(rng, steps.REDUCTIONS, dtype).replace("$a", str(axes))
        self.line(self.fill(template, x, shape), kept, dtype)

    def _move(self, x, shape, dtype):
        rng, axis = self.rng, self.axis(shape)
        template, of, larger = rng.choice(steps.MOVES[:5] if rng.random() < 0.35 else steps.MOVES)
        if larger and not self.fits(4 * self.count(shape), dtype) or self.size(shape[axis]) < 3:
            return
        new = of(shape, axis)
        pads = tuple((1, 2) if i == axis else (0, 0) for i in range(len(shape)))
        order = (*range(axis, len(shape)), *range(axis))
        self.line(self.fill(template, x, shape, axis, new=tuple_of(new), pads=pads, order=order), new, dtype)

    def _mask(self, x, shape, dtype):
        if len(shape) < 2:
            return
        template = self.rng.choice(steps.MASKS["floats" if dtype in FLOATS else "others"])
        filled = self.fill(template, x, shape, len(shape) - 1, r=text(shape[-2]), b=len(shape) - 2)
        self.line(filled, shape, dtype)

    def _layer(self, x, shape, dtype):
        fits = [(function, weight) for function, weight, dtypes in layers.KINDS + flow.KINDS if dtype in dtypes]
        if not fits:
            return self._rows(x, shape, dtype)
        function = self.rng.choices([one for one, _ in fits], [weight for _, weight in fits])[0]
        return function(self, x, shape, dtype)


def program_of(seed: int, most: int, plans: float = 0.0) -> Program:
    return Generator(seed, most, plans).program()


