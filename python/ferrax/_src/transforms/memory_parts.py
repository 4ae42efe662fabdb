"""What memory plans are made of: buffers with the values in them, and steps.

Plain data with its text; `memory_plan` has the plan.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any


def size(count: int) -> str:
    """A number of bytes as people write it: `1.5 MiB`."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, ("KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} {units[-1]}"


@dataclass(frozen=True)
class Operation:
    """An operation of a program: its name, the user's line (`file:line (function)`) or None, and, in derivatives,
    the name of the operation that is differentiated.

    >>> plan = ferrax.jit(jnp.exp).memory_plan(jnp.zeros(4))
    >>> plan.steps[0].operations[0].name
    'exp'
    """

    name: str
    line: str | None
    derivative_of: str | None

    @property
    def place(self) -> str:
        """The line without the folders of its file; empty where none is known."""
        return os.path.basename(self.line) if self.line else ""

    def __str__(self) -> str:
        of = f" for the derivative of {self.derivative_of}" if self.derivative_of else ""
        return f"{self.name}{of}{' at ' + self.place if self.line else ''}"


@dataclass(frozen=True)
class Value:
    """An array that a buffer holds: its type, such as `f32[8,64]`, the operation that computes it, and the first
    step at which it is there.

    >>> ferrax.jit(jnp.exp).memory_plan(jnp.zeros(4)).buffers[-1].values[0].type
    'f32[4]'
    """

    type: str
    of: Operation
    first: int


@dataclass(frozen=True)
class Buffer:
    """A piece of memory: where it is, from its first to its last step, and the values in it.

    Attributes: `id`, as in `Compiled.as_text()`; `bytes`; `place`: "argument", "constant", "arena", "result", or
    "rows" (of the memory of a block of rows); `at`: which argument, constant or result it is, or its first byte in
    the arena; `first`, `last`: steps; `values` in turn, each but the first written over the one before;
    `reuses`: the buffers that its part of the arena belonged to before; `donation`: of an argument the buffer of
    the result that has its memory if it is donated, of a result that of the argument; else None.

    >>> [buffer.place for buffer in ferrax.jit(jnp.exp).memory_plan(jnp.zeros(4)).buffers]
    ['argument', 'result']
    """

    id: int
    bytes: int
    place: str
    at: int
    first: int
    last: int
    values: tuple[Value, ...]
    reuses: tuple[int, ...]
    donation: int | None

    @property
    def where(self) -> str:
        """Its place in words."""
        return f"{self.place} at {self.at}" if self.place in ("arena", "rows") else f"{self.place} {self.at}"

    def __str__(self) -> str:
        parts = [f"{size(self.bytes)}, {self.where}, steps {self.first}-{self.last}"]
        for number, value in enumerate(self.values):
            by = f"{value.type} of {value.of}" if value.of.name != self.where else value.type
            parts.append(f"from step {value.first} in place {by}" if number else by)
        if self.reuses:
            parts.append("reuses " + ", ".join(map(str, self.reuses)))
        if self.donation is not None:
            gives = self.place == "argument"
            parts.append(
                f"becomes buffer {self.donation} if it is donated"
                if gives
                else f"is buffer {self.donation} if that is donated"
            )
        return "; ".join(parts)


@dataclass(frozen=True)
class Step:
    """A kernel or a call of a library function.

    Attributes: `kind`: "kernel" or "call"; `operations` of the program that it computes; `reads`, `writes`, `in_place`:
    numbers of buffers; `copied`: bytes that it moves unchanged; `run`: the number in `runs` of the run of steps by
    blocks of rows that it is in, or None; `live`: bytes of the arena that hold values; `text`: the kernel or call as
    in `Compiled.as_text()`; `inner`: plans of its branches or of the body of its loop.

    >>> ferrax.jit(jnp.sort).memory_plan(jnp.zeros(4)).steps[0].kind
    'call'
    """

    kind: str
    operations: tuple[Operation, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    in_place: tuple[int, ...]
    copied: int
    run: int | None
    live: int
    text: str
    inner: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The names of its operations, each once."""
        return ", ".join(dict.fromkeys(operation.name for operation in self.operations)) or self.kind

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's lines that it comes from, without folders."""
        return tuple(dict.fromkeys(o.place for o in self.operations if o.line))

    def __str__(self) -> str:
        buffers = f"{' '.join(map(str, self.reads))} -> {' '.join(map(str, self.writes))}"
        parts = [f"{self.kind} {self.name}: {buffers}"]
        if self.in_place:
            parts.append("in place " + ", ".join(map(str, self.in_place)))
        if self.copied:
            parts.append(f"copies {size(self.copied)}")
        parts.append(f"{size(self.live)} live")
        parts.extend(self.lines)
        return "; ".join(parts)


@dataclass(frozen=True)
class Return:
    """An array that a function returns: the number of its buffer, and the bytes that are copied because it is an
    argument, a constant or another result.

    >>> ferrax.jit(lambda x: x).memory_plan(jnp.zeros(4)).returns
    (Return(buffer=0, copied=16),)
    """

    buffer: int
    copied: int


@dataclass(frozen=True)
class Run:
    """Steps `first` to `last`, which go through `rows` rows together, a block at a time; `own_bytes`: of memory for
    each row of a block.

    >>> ferrax.jit(ferrax.nn.softmax).memory_plan(jnp.zeros((1024, 512))).runs[0].rows
    1024
    """

    first: int
    last: int
    rows: int
    own_bytes: int
