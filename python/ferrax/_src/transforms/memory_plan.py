"""Memory plans: where the values of a compiled function are, when, and what is copied.

The native core says it once as plain data (`Program.memory_plan`); here are the object that holds it and
its text. The picture is drawn in `memory_picture`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ferrax._src.transforms import memory_picture
from ferrax._src.transforms.memory_parts import (
    Buffer,
    Operation,
    Return,
    Run,
    Step,
    Value,
    size,
)


@dataclass(frozen=True)
class MemoryPlan:
    """What a compiled function does with memory: `jit(f).memory_plan(x)`, or of a compiled stage.

    Printed it is a list of buffers and steps; in a notebook, and by `to_html`, a picture.

    Attributes: `name` of the function; `arena`: bytes of the memory that values in between share; `peak`: bytes of
    values in it where they are most, which is at `peak_step`; `steps`, `buffers`, `runs`, `returns`.

    >>> print(ferrax.jit(lambda x: jnp.sort(jnp.sort(x) + 1)).memory_plan(jnp.zeros(256)))  # doctest: +SKIP
    """

    name: str
    arena: int
    peak: int
    peak_step: int
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    runs: tuple[Run, ...]
    returns: tuple[Return, ...]

    @property
    def copied(self) -> int:
        """Bytes that its steps and its return move unchanged, without those of inner plans."""
        return sum(step.copied for step in self.steps) + sum(r.copied for r in self.returns)

    def buffer(self, id: int) -> Buffer:
        """The buffer with this number. Errors: KeyError."""
        for buffer in self.buffers:
            if buffer.id == id:
                return buffer
        raise KeyError(id)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The picture as a page of HTML with SVG, which needs no other file; written to `path` if there is one.

        Rectangles are buffers, from their first to their last step; the arena is drawn byte by byte. Pointing at one
        shows its values and where they are computed.

        >>> ferrax.jit(jnp.exp).memory_plan(jnp.zeros(4)).to_html()[:15]
        '<!DOCTYPE html>'
        """
        page = memory_picture.page(self)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
        return page

    def _repr_html_(self) -> str:
        return memory_picture.fragment(self)

    def __repr__(self) -> str:
        return (
            f"<MemoryPlan of {self.name}: {len(self.steps)} steps, {len(self.buffers)} buffers, "
            f"arena {size(self.arena)}, peak {size(self.peak)}>"
        )

    def __str__(self) -> str:
        lines = [
            f"memory plan of '{self.name}': arena {size(self.arena)}, "
            f"at most {size(self.peak)} live, at step {self.peak_step}; {size(self.copied)} copied"
        ]
        lines += [f"  buffer {buffer.id}: {buffer}" for buffer in self.buffers]
        for number, step in enumerate(self.steps):
            if step.run is not None and self.runs[step.run].first == number:
                run = self.runs[step.run]
                lines.append(
                    f"  steps {run.first}-{run.last} by blocks of {run.rows} rows, "
                    f"{size(run.own_bytes)} of their own each"
                )
            lines.append(f"  step {number}: {step}")
            for inner in step.inner:
                lines += ["    " + line for line in str(inner).splitlines()]
        returned = [
            f"{r.buffer} (copied, {size(r.copied)})" if r.copied else str(r.buffer) for r in self.returns
        ]
        lines.append("  return " + ", ".join(returned))
        return "\n".join(lines)


def _operation(data: dict[str, Any]) -> Operation:
    return Operation(**data)


def _buffer(data: dict[str, Any]) -> Buffer:
    values = tuple(Value(v["type"], _operation(v["of"]), v["first"]) for v in data["values"])
    return Buffer(**{**data, "values": values, "reuses": tuple(data["reuses"])})


def _step(data: dict[str, Any]) -> Step:
    rest = dict(data)
    kind = "kernel" if rest.pop("is_kernel") else "call"
    for name in ("reads", "writes", "in_place"):
        rest[name] = tuple(rest[name])
    rest["operations"] = tuple(map(_operation, rest["operations"]))
    rest["inner"] = tuple(map(made_of, rest["inner"]))
    return Step(kind=kind, **rest)


def made_of(data: dict[str, Any]) -> MemoryPlan:
    """The plan that the native core gives."""
    return MemoryPlan(
        **{
            **data,
            "steps": tuple(map(_step, data["steps"])),
            "buffers": tuple(map(_buffer, data["buffers"])),
            "runs": tuple(Run(*run) for run in data["runs"]),
            "returns": tuple(Return(*output) for output in data["returns"]),
        }
    )
