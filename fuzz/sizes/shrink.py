"""Simpler programs that fail in the same way: fewer lines, inputs for values, smaller dimensions."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator

from .program import NAME, Input, Line, Program

CALL = re.compile(r"(?:jnp|jax\.nn|lax)\.\w+\(([^(),]+)(?:, axis=-?\d)?\)")
FACTOR = re.compile(r" [*+-] -?\d[\d.e-]*")


def renamed(line: Line, name: str, other: str) -> Line:
    return dataclasses.replace(line, text=re.sub(rf"\b{name}\b", other, line.text))


def without_lines(program: Program) -> Iterator[Program]:
    """One result alone; a value that is an input, or is what it was made of."""
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield dataclasses.replace(program, outputs=(name,))
    for line in program.lines:
        if program.outputs != (line.name,) and line.name not in program.outputs:
            yield dataclasses.replace(program, outputs=(line.name,))
    for number, line in enumerate(program.lines):
        rest = program.lines[:number] + program.lines[number + 1 :]
        if line.name not in program.outputs and line.dtype != "bool":
            fresh = f"x{1 + max((int(one.name[1:]) for one in program.inputs), default=0)}"
            inputs = (*program.inputs, Input(fresh, line.shape, line.dtype))
            lines = tuple(renamed(one, line.name, fresh) for one in rest)
            yield dataclasses.replace(program, lines=lines, inputs=inputs)
        for other in sorted(line.uses()):
            outputs = tuple(dict.fromkeys(other if one == line.name else one for one in program.outputs))
            lines = tuple(renamed(one, line.name, other) for one in rest)
            yield dataclasses.replace(program, lines=lines, outputs=outputs)


def within_lines(program: Program) -> Iterator[Program]:
    """A call that is its operand, a factor or term less, an operand that is another one."""
    for number, line in enumerate(program.lines):
        texts = [line.text.replace(match[0], f"({match[1]})", 1) for match in CALL.finditer(line.text)]
        texts += [line.text[: match.start()] + line.text[match.end() :] for match in FACTOR.finditer(line.text)]
        names = sorted(set(NAME.findall(line.text)))
        texts += [re.sub(rf"\b{b}\b", a, line.text) for a in names for b in names if a != b]
        for text in texts:
            lines = list(program.lines)
            lines[number] = dataclasses.replace(line, text=text)
            yield dataclasses.replace(program, lines=tuple(lines))


def smaller_sizes(program: Program) -> Iterator[Program]:
    for name, size in program.dims.items():
        power = 1 << max(size - 1, 1).bit_length() - 1
        for less in dict.fromkeys((1, 2, size // 8, size // 4, size // 2, power, size * 3 // 4, size - 1)):
            if 0 < less < size:
                yield dataclasses.replace(program, dims={**program.dims, name: less})


def simpler(program: Program) -> Iterator[Program]:
    if program.mode != "plain":
        yield dataclasses.replace(program, mode="plain")
    yield from without_lines(program)
    yield from within_lines(program)
    yield from smaller_sizes(program)


def same_kind(status: str, other: str) -> bool:
    """Whether two failures are taken for the same: a crash where numbers are wrong can be one, too."""
    damaged = ("crash", "wrong jit", "wrong op by op", "bits again")
    return status == other or status == "crash" and other in damaged


def shrunk(program: Program, status: str, run: Callable[[Program], dict], seconds: float) -> Program:
    """The simplest program that is found in the time, and fails like the given one."""
    end, again = time.monotonic() + seconds, True
    while again and time.monotonic() < end:
        again = False
        for one in simpler(program):
            if time.monotonic() > end:
                break
            one = one.pruned()
            if not one.lines or not one.inputs or one.mode in ("grad", "jvp") and not one.floats():
                continue
            if same_kind(status, run(one)["status"]):
                program, again = one, True
                break
    return program


def signature(program: Program, status: str) -> str:
    """What failures of one cause tend to have in common: the functions of the shrunk program."""
    code = " ".join(line.text for line in program.lines)
    words = set(re.findall(r"(?<=[.])[a-z]\w+|@|\.T\b", code)) - {"nn", "dtype", "astype"}
    dtypes = {one.dtype for one in program.inputs} - {"float32"}
    return " ".join([status, program.mode, *sorted(words | dtypes)])
