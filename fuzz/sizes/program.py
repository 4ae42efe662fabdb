"""A program: inputs, lines of text, results, and how it is called.

Lines are Python over `jnp`, `lax` and `jax`. Sizes in them stand in braces, as expressions of named dimensions:
`jnp.broadcast_to(v1, ({d0}, {d1 * 2}))`. So all sizes of a program change together when a dimension does. Any program
is a JSON object, and a script of a few lines that shows what is wrong with it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
WIDTH = {"bool": 1, "int8": 1, "uint8": 1, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
         "float64": 8, "complex64": 8, "complex128": 16}  # fmt: skip
# How a program is called: as it is, with its first operand given away, over a batch of inputs, its derivatives.
MODES = ("plain", "donate", "vmap", "grad", "jvp")
NAME = re.compile(r"\b[vx]\d+\b")
SIZE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Input:
    """`below` is None, or of an integer array the expression that all elements are less than."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    below: str | None = None


@dataclass(frozen=True)
class Line:
    name: str
    text: str
    shape: tuple[str, ...]
    dtype: str

    def uses(self) -> set[str]:
        return set(NAME.findall(self.text))


@dataclass(frozen=True)
class Program:
    """`plan`: it is only compiled, and its plan checked, so that it can be of any size."""

    seed: int
    dims: dict[str, int]
    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    mode: str = "plain"
    plan: bool = False
    batch: int = 2
    note: str = field(default="", compare=False)

    def size(self, expression: str) -> int:
        """Of integers and dimensions alone: programs are made here, or are files of this project."""
        return int(eval(expression, {"__builtins__": {}}, dict(self.dims)))

    def extents(self, shape) -> tuple[int, ...]:
        return tuple(self.size(expression) for expression in shape)

    def rendered(self, text: str) -> str:
        return SIZE.sub(lambda match: str(self.size(match[1])), text)

    def function(self) -> str:
        """The definition of `f` with all sizes put in."""
        body = "".join(f"    {line.name} = {self.rendered(line.text)}\n" for line in self.lines)
        return f"def f({', '.join(one.name for one in self.inputs)}):\n{body}    return {', '.join(self.outputs)},\n"

    def floats(self) -> list[int]:
        """The inputs that derivatives are taken of."""
        return [number for number, one in enumerate(self.inputs) if one.dtype in FLOATS]

    def x64(self) -> bool:
        dtypes = [one.dtype for one in (*self.inputs, *self.lines)]
        return self.mode in ("grad", "jvp") or any(dtype in ("float64", "int64", "complex128") for dtype in dtypes)

    def loss(self) -> str:
        """How the squares of a result become a part of what is derived. A mean divides cotangents by the size: of
        float16 little would be left of them."""
        return "sum" if any(one.dtype == "float16" for one in (*self.inputs, *self.lines)) else "mean"

    def largest(self) -> int:
        """The elements of the largest array."""
        return max((math.prod(self.extents(one.shape)) for one in (*self.inputs, *self.lines)), default=0)

    def bytes(self) -> int:
        """Of the largest array."""
        arrays = (*self.inputs, *self.lines)
        return max((math.prod(self.extents(one.shape)) * WIDTH[one.dtype] for one in arrays), default=0)

    def pruned(self) -> Program:
        """Without what no result needs."""
        needed, lines = set(self.outputs), []
        for line in reversed(self.lines):
            if line.name in needed:
                needed |= line.uses()
                lines.insert(0, line)
        inputs = tuple(one for one in self.inputs if one.name in needed)
        return dataclasses.replace(self, lines=tuple(lines), inputs=inputs)

    def to_json(self) -> str:
        """A line for each part, so that changes of cases can be read."""
        parts = dataclasses.asdict(self)
        parts["inputs"] = [[one.name, one.shape, one.dtype, one.below] for one in self.inputs]
        parts["lines"] = [[one.name, one.text, one.shape, one.dtype] for one in self.lines]
        used = {name for one in (*self.inputs, *self.lines) for name in re.findall(r"\bd\d+\b", str(one))}
        parts["dims"] = {name: size for name, size in self.dims.items() if name in used}
        return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(part)}" for key, part in parts.items()) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> Program:
        parts = json.loads(text)
        parts["inputs"] = tuple(Input(name, tuple(s), dtype, below) for name, s, dtype, below in parts["inputs"])
        parts["lines"] = tuple(Line(name, text, tuple(s), dtype) for name, text, s, dtype in parts["lines"])
        parts["outputs"] = tuple(parts["outputs"])
        return Program(**parts)


def making(program: Program, one: Input) -> str:
    """What makes an input, as text."""
    shape = program.extents(one.shape)
    if one.dtype == "bool":
        return f"jnp.asarray(r.random({shape}) < 0.5)"
    if one.dtype in COMPLEX:
        return f"jnp.asarray(r.standard_normal({shape}) + 1j * r.standard_normal({shape}), '{one.dtype}')"
    if one.dtype in FLOATS:
        return f"jnp.asarray(r.standard_normal({shape}), '{one.dtype}')"
    least, below = (0, max(program.size(one.below), 1)) if one.below else (0 if one.dtype[0] == "u" else -5, 6)
    return f"jnp.asarray(r.integers({least}, {below}, {shape}), '{one.dtype}')"


def script(program: Program) -> str:
    """A program of a few lines, which says for each result how far `jit` is from op by op."""
    arguments = ", ".join(one.name for one in program.inputs)
    floats = program.floats()
    lines = ["import numpy as np", "import ferrax as jax", "from ferrax import lax, numpy as jnp"]
    if program.x64():
        lines.append("jax.config.update('jax_enable_x64', True)")
    if program.plan:
        lines.append("jax.config.update('jax_enable_checks', True)")
    if program.plan:
        arrays = [f"jax.ShapeDtypeStruct({program.extents(one.shape)}, '{one.dtype}')" for one in program.inputs]
        lines += [f"{one.name} = {array}" for one, array in zip(program.inputs, arrays)]
    else:
        lines += ["r = np.random.default_rng(0)"]
        lines += [f"{one.name} = {making(program, one)}" for one in program.inputs]
    lines += ["", program.function().rstrip(), ""]
    if program.mode == "vmap":
        if not program.plan:
            lines.append(f"{arguments}, = [jnp.stack([one] * {program.batch}) for one in ({arguments},)]")
        lines.append("g = jax.vmap(f)")
    elif program.mode == "grad":
        lines.append(f"g = jax.grad(lambda *a: sum((o * o).{program.loss()}() for o in f(*a)), {floats})")
    elif program.mode == "jvp":
        lines += [f"wrt = {floats}  # tangents: the values",
                  "some = lambda a: tuple(a[i] for i in wrt)",
                  "put = lambda a, b: [b[wrt.index(i)] if i in wrt else c for i, c in enumerate(a)]",
                  "g = lambda *a: jax.jvp(lambda *b: f(*put(a, b)), some(a), some(a))[1]"]  # fmt: skip
    else:
        lines.append("g = f" + "  # its first operand was donated" * (program.mode == "donate"))
    if program.plan:
        lines.append(f"jax.jit(g).lower({arguments}).compile()")
    else:
        lines += ["wide = lambda a: np.asarray(a).astype('complex128')",
                  f"for a, b in zip(jax.jit(g)({arguments}), g({arguments})):",
                  "    print(np.abs(wide(a) - wide(b)).max(initial=0))"]  # fmt: skip
    return "\n".join(lines) + "\n"
