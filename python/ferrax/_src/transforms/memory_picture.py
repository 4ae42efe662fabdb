"""Pictures of memory plans: SVG in HTML, in one piece, without scripts.

In: a `MemoryPlan`. Out: text. Steps go from left to right. From the top: bytes of the arena that hold values, by
step; results; the arena, whose bytes go upwards; arguments and constants. A rectangle is a buffer, from its first
to its last step; its height is its bytes, in the scale of its band. Below, a table of the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ferrax._src.transforms.memory_parts import Buffer, Operation, Step, size

_LEFT, _RIGHT, _WIDTH = 92, 16, 1120
# The least width of a step, and heights of the bands.
_STEP = 5.0
_GAP = 30
_LIVE_HEIGHT = 54
_ARENA_HEIGHT = 340
_SIDE_HEIGHT = 120

FAMILIES = {
    "products": "#4c78a8",
    "reductions, sorts": "#54a24b",
    "elements": "#f0a63c",
    "movement": "#9aa0a6",
    "updates": "#d9534f",
    "loops, branches": "#9467bd",
    "arguments": "#c6d4e6",
    "constants": "#dcdcdc",
}
# Of the names of operations; what is none of these is computed element by element.
_BEGINNINGS = {
    "products": ("dot", "conv_general", "ragged_dot"),
    "updates": ("dynamic_update", "scatter"),
    "loops, branches": ("cond", "scan", "sweeps", "while"),
    "reductions, sorts": ("reduce_", "arg", "cum", "sort", "top_k", "select_and", "fft"),
    "movement": (
        "broadcast", "concatenate", "copy", "dynamic_slice", "expand_dims", "gather", "iota", "pad", "reshape",
        "rev", "slice", "squeeze", "transpose",
    ),
}  # fmt: skip
_STYLE = """
.fxplan{font:13px/1.45 system-ui,sans-serif;color:#222;background:#fff;padding:12px;max-width:100%}
.fxplan h2{font-size:16px;margin:0 0 2px}.fxplan p{margin:0 0 8px;color:#555}
.fxplan .scroll{overflow-x:auto}.fxplan svg text{font:11px system-ui,sans-serif;fill:#333}
.fxplan svg .b{stroke:#fff;stroke-width:.7}.fxplan svg .b:hover{stroke:#111;stroke-width:1.6}
.fxplan svg .in{fill:#fff;pointer-events:none}.fxplan svg .dark{fill:#333;pointer-events:none}
.fxplan table{border-collapse:collapse;margin-top:10px}.fxplan td,.fxplan th{padding:2px 10px 2px 0;
text-align:left;vertical-align:top;border-top:1px solid #eee;font-weight:400}
.fxplan th{color:#777}.fxplan td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.fxplan pre{margin:4px 0;font-size:11px;background:#f7f7f7;padding:6px;overflow-x:auto}
.fxplan summary{cursor:pointer}.fxplan .peak td{background:#fdeeee}
.fxplan .key{display:inline-block;margin-right:14px;white-space:nowrap;color:#555}
.fxplan .key i{display:inline-block;width:11px;height:11px;margin-right:5px;vertical-align:-1px}
"""




def _family(buffer: Buffer, number: int) -> str:
    """What kind of operation computed a value of a buffer."""
    if buffer.place in ("argument", "constant"):
        return f"{buffer.place}s"
    name = buffer.values[number].of.name if buffer.values else ""
    for family, beginnings in _BEGINNINGS.items():
        if name.startswith(beginnings):
            return family
    return "elements"


def _operation(operation: Operation) -> str:
    of = f" for the derivative of {operation.derivative_of}" if operation.derivative_of else ""
    return f"{operation.name}{of}{' at ' + operation.line if operation.line else ''}"


def _tip(buffer: Buffer) -> str:
    """What pointing at a buffer shows."""
    lines = [
        f"buffer {buffer.id}: {size(buffer.bytes)} ({buffer.bytes} bytes), {buffer.where}",
        f"steps {buffer.first} to {buffer.last}",
    ]
    for number, value in enumerate(buffer.values):
        by = f"{value.type} = {_operation(value.of)}"
        lines.append(f"from step {value.first}, in place: {by}" if number else by)
    if buffer.reuses:
        lines.append("in memory that buffers had before: " + ", ".join(map(str, buffer.reuses)))
    if buffer.donation is not None:
        other = f"buffer {buffer.donation}"
        gives = buffer.place == "argument"
        lines.append(f"becomes {other} if it is donated" if gives else f"is {other} if that is donated")
    return "\n".join(lines)


class _Canvas:
    """Where steps and bytes are in the picture, and what has been drawn."""

    def __init__(self, steps: int) -> None:
        self.steps = max(steps, 1)
        self.plot = max(float(_WIDTH - _LEFT - _RIGHT), self.steps * _STEP)
        self.column = self.plot / self.steps
        self.parts: list[str] = []
        self.height = 8.0

    def x(self, step: float) -> float:
        return _LEFT + step * self.column

    def text(self, x: float, y: float, text: str, anchor: str = "start", extra: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>')

    def buffer(self, buffer: Buffer, bottom: float, height: float, floor: float = 1.0) -> None:
        """A rectangle over the life of a buffer, with its name if there is room, and its updates in place."""
        height = max(height, floor)
        top, middle = bottom - height, bottom - height / 2
        given = buffer.place in ("argument", "constant")
        begins = [buffer.first, *(value.first for value in buffer.values[1:])]
        ends = [*begins[1:], buffer.last + 1]
        self.parts.append(f"<g><title>{escape(_tip(buffer))}</title>")
        for number, (begin, end) in enumerate(zip(begins, ends)):
            x, width = self.x(begin), (end - begin) * self.column
            colour = FAMILIES[_family(buffer, number)]
            self.parts.append(
                f'<rect class="b" x="{x:.1f}" y="{top:.2f}" width="{width:.1f}" height="{height:.2f}" '
                f'fill="{colour}"/>'
            )
            room = width - 8
            if number and height >= 9:
                arrow = f"M{x - 4:.1f} {middle - 4:.1f}l8 4l-8 4z"
                self.parts.append(f'<path class="in" d="{arrow}" stroke="#333" stroke-width=".6"/>')
                room -= 8
            label = _fitting(buffer.values[number], room) if buffer.values and height >= 13 else ""
            if label:
                shade = ' class="dark"' if given else ' class="in"'
                self.text(x + width - room - 4, middle + 4, label, extra=shade)
        self.parts.append("</g>")


def _fitting(value: Any, width: float) -> str:
    """A name of a value that fits into so many pixels; empty if none does."""
    for text in (f"{value.of.name} {value.type}", value.of.name, value.type):
        if len(text) * 5.9 <= width:
            return text
    return ""


def _stacked(buffers: Iterable[Buffer]) -> tuple[list[tuple[Buffer, int]], int]:
    """Offsets for buffers that have none, such that those that live at the same time lie apart; and the
    bytes that this takes. Long lives are below."""
    placed: list[tuple[Buffer, int]] = []
    top = 0
    for buffer in sorted(buffers, key=lambda b: (b.first - b.last, b.first, b.id)):
        offset = 0
        for other, begin in sorted(placed, key=lambda pair: pair[1]):
            apart = other.last < buffer.first or buffer.last < other.first
            if not apart and begin < offset + buffer.bytes:
                offset = max(offset, begin + other.bytes)
        placed.append((buffer, offset))
        top = max(top, offset + buffer.bytes)
    return placed, top


def _ticks(top: int) -> list[int]:
    """Round numbers of bytes up to `top`, about four."""
    step = 1
    while top / step > 5:
        step *= 2
    return list(range(0, top + 1, step))


def _axis(canvas: _Canvas, bottom: float, height: float, top: int, title: str) -> None:
    for tick in _ticks(top):
        y = bottom - height * tick / max(top, 1)
        canvas.line(_LEFT, y, _LEFT + canvas.plot, y, 'stroke="#e8e8e8"')
        canvas.text(_LEFT - 6, y + 4, size(tick), "end")
    middle = bottom - height / 2
    canvas.text(12, middle, title, "middle", f' transform="rotate(-90 12 {middle:.1f})" font-weight="600"')


def _live(canvas: _Canvas, plan: Any) -> None:
    """Bytes of values in the arena, by step, and where they are most."""
    canvas.height += 16
    bottom = canvas.height + _LIVE_HEIGHT
    most = max(plan.peak, 1)
    _axis(canvas, bottom, _LIVE_HEIGHT, 0, "live")
    canvas.text(_LEFT - 6, bottom - _LIVE_HEIGHT + 4, size(plan.peak), "end")
    path = [f"M{_LEFT} {bottom:.1f}"]
    for number, step in enumerate(plan.steps):
        y = bottom - _LIVE_HEIGHT * step.live / most
        path.append(f"L{canvas.x(number):.1f} {y:.1f}L{canvas.x(number + 1):.1f} {y:.1f}")
    path.append(f"L{canvas.x(canvas.steps):.1f} {bottom:.1f}Z")
    canvas.parts.append(f'<path d="{"".join(path)}" fill="#f7d9d7" stroke="#c0392b" stroke-width="1"/>')
    x = canvas.x(plan.peak_step + 0.5)
    canvas.parts.append(
        f'<circle cx="{x:.1f}" cy="{bottom - _LIVE_HEIGHT:.1f}" r="3.5" fill="#c0392b"><title>most is live at step '
        f"{plan.peak_step}: {size(plan.peak)}</title></circle>"
    )
    left = x < _LEFT + canvas.plot * 0.7
    label = f"peak {size(plan.peak)}, step {plan.peak_step}"
    canvas.text(x + (7 if left else -7), bottom - _LIVE_HEIGHT - 4, label, "start" if left else "end")
    canvas.height = bottom + _GAP


def _band(canvas: _Canvas, buffers: Sequence[Buffer], title: str) -> dict[int, tuple[float, float]]:
    """Buffers outside the arena; the heights of their middles and of their tops, by number."""
    placed, top = _stacked(buffers)
    if not placed:
        return {}
    height = min(_SIDE_HEIGHT, 16.0 * len(placed) + 8)
    bottom = canvas.height + height
    _axis(canvas, bottom, height, top, title)
    where = {}
    for buffer, offset in placed:
        low = bottom - height * offset / max(top, 1)
        tall = height * buffer.bytes / max(top, 1)
        canvas.buffer(buffer, low, tall)
        where[buffer.id] = (low - tall / 2, low - tall)
    canvas.height = bottom + _GAP
    return where


def _arena(canvas: _Canvas, plan: Any) -> None:
    buffers = [buffer for buffer in plan.buffers if buffer.place == "arena" and buffer.bytes]
    if not buffers:
        return
    height = min(_ARENA_HEIGHT, 60 + 24.0 * len(buffers))
    bottom = canvas.height + height
    _axis(canvas, bottom, height, plan.arena, "arena")
    for buffer in buffers:
        low = bottom - height * buffer.at / plan.arena
        canvas.buffer(buffer, low, height * buffer.bytes / plan.arena)
    canvas.height = bottom + _GAP


def _steps(canvas: _Canvas, plan: Any) -> None:
    """The axis of steps: a square for a kernel, a circle for a call, filled where something is copied."""
    y = canvas.height - _GAP + 12
    canvas.text(_LEFT - 6, y + 18, "step", "end")
    every = max(1, round(26 / canvas.column))
    for number, step in enumerate(plan.steps):
        x = canvas.x(number + 0.5)
        fill = "#d9534f" if step.copied else "#fff"
        shape = (
            f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"'
            if step.kind == "kernel"
            else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"'
        )
        if canvas.column >= 8:
            canvas.parts.append(
                f'{shape} fill="{fill}" stroke="#555"><title>{escape(f"step {number}: {step}")}</title>'
                f"</{'rect' if step.kind == 'kernel' else 'circle'}>"
            )
        if number % every == 0:
            canvas.text(x, y + 18, str(number), "middle")
    canvas.height = y + 26


def _picture(plan: Any) -> str:
    canvas = _Canvas(len(plan.steps))
    _live(canvas, plan)
    above = canvas.height - _GAP + 8
    by_place: dict[str, list[Buffer]] = {}
    for buffer in plan.buffers:
        by_place.setdefault(buffer.place, []).append(buffer)
    given = by_place.get("argument", []) + by_place.get("constant", [])
    results = _band(canvas, by_place.get("result", []), "results")
    _arena(canvas, plan)
    arguments = _band(canvas, given, "arguments")
    below = canvas.height - _GAP
    _steps(canvas, plan)
    under = []
    for run in plan.runs:
        x, width = canvas.x(run.first), (run.last + 1 - run.first) * canvas.column
        tip = (
            f"steps {run.first} to {run.last} go through {run.rows} rows, a block at a time, "
            f"with {size(run.own_bytes)} of memory for each row of a block"
        )
        under.append(
            f'<g><title>{escape(tip)}</title><rect x="{x:.1f}" y="{above:.1f}" width="{width:.1f}" '
            f'height="{below - above:.1f}" fill="#fff7dc" stroke="#e3c65b" stroke-dasharray="4 3"/></g>'
        )
        if width > 60:
            canvas.text(x + 3, above + 10, f"{run.rows} rows")
    x = canvas.x(plan.peak_step + 0.5)
    if plan.peak:
        under.append(
            f'<line x1="{x:.1f}" y1="{above - 8:.1f}" x2="{x:.1f}" y2="{below:.1f}" stroke="#c0392b" '
            'stroke-dasharray="2 3"/>'
        )
    for buffer in by_place.get("result", []):
        if buffer.donation in arguments:
            giver = plan.buffer(buffer.donation)
            x1, y1 = canvas.x(giver.last + 1), arguments[buffer.donation][0]
            x2, y2 = canvas.x(buffer.first), results[buffer.id][0]
            bend = f"{x1 + 18:.1f} {y1 - 30:.1f} {x2 - 18:.1f} {y2 + 30:.1f}"
            under.append(
                f'<path d="M{x1 - 2:.1f} {y1:.1f}C{bend} {x2:.1f} {y2:.1f}" '
                'fill="none" stroke="#7b3fb5" stroke-opacity=".7" stroke-dasharray="5 3" marker-end="url(#fxarrow)">'
                f"<title>argument {giver.at}, if it is donated, is the memory of result {buffer.at}</title></path>"
            )
    width = _LEFT + canvas.plot + _RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{canvas.height:.0f}" '
        f'viewBox="0 0 {width:.0f} {canvas.height:.0f}"><defs><marker id="fxarrow" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#7b3fb5"/></marker></defs>'
        f"{''.join(under)}{''.join(canvas.parts)}</svg>"
    )


def _legend(plan: Any) -> str:
    used = {_family(b, n) for b in plan.buffers for n in range(max(len(b.values), 1))}
    keys = [(colour, name) for name, colour in FAMILIES.items() if name in used]
    items = [f'<span class="key"><i style="background:{colour}"></i>{name}</span>' for colour, name in keys]
    if any(len(buffer.values) > 1 for buffer in plan.buffers):
        items.append('<span class="key">▷ updated in place</span>')
    if plan.runs:
        box = "background:#fff7dc;outline:1px dashed #e3c65b"
        items.append(f'<span class="key"><i style="{box}"></i>by blocks of rows</span>')
    if any(buffer.donation is not None for buffer in plan.buffers):
        items.append('<span class="key" style="color:#7b3fb5">┄▸ if donated</span>')
    items.append('<span class="key">□ kernel, ○ call, <span style="color:#d9534f">■</span> copies</span>')
    return f"<div>{''.join(items)}</div>"


def _row(number: int, step: Step, is_peak: bool) -> str:
    buffers = f"{', '.join(map(str, step.reads))} → {', '.join(map(str, step.writes))}"
    notes = []
    if step.in_place:
        notes.append("in place: " + ", ".join(map(str, step.in_place)))
    if step.copied:
        notes.append(f"copies {size(step.copied)}")
    if step.run is not None:
        notes.append("by rows")
    inside = "".join(
        f'<details><summary>inside: {escape(inner.name)}</summary>{_body(inner)}</details>' for inner in step.inner
    )
    return (
        f'<tr{" class=peak" if is_peak else ""}><td class="n">{number}</td><td>{step.kind}</td>'
        f"<td><details><summary>{escape(step.name)}</summary><pre>{escape(step.text)}</pre></details>{inside}</td>"
        f"<td style='white-space:nowrap'>{'<br>'.join(map(escape, step.lines))}</td><td>{buffers}</td>"
        f"<td>{'<br>'.join(notes)}</td>"
        f'<td class="n">{size(step.live)}</td></tr>'
    )


def _body(plan: Any) -> str:
    rows = (_row(n, step, bool(plan.peak) and n == plan.peak_step) for n, step in enumerate(plan.steps))
    head = "".join(f"<th>{name}</th>" for name in ("step", "", "computes", "line", "buffers", "", "live"))
    copied = [r for r in plan.returns if r.copied]
    returned = (
        f"<p>Copied where it returns: {', '.join(f'buffer {r.buffer} ({size(r.copied)})' for r in copied)}.</p>"
        if copied
        else ""
    )
    return (
        f'<div class="scroll">{_picture(plan)}</div>{_legend(plan)}{returned}'
        f"<table><tr>{head}</tr>{''.join(rows)}</table>"
    )


def fragment(plan: Any) -> str:
    """The picture of a plan, with its table, as a piece of a page."""
    kernels = sum(step.kind == "kernel" for step in plan.steps)
    given = sum(b.bytes for b in plan.buffers if b.place in ("argument", "constant"))
    results = sum(b.bytes for b in plan.buffers if b.place == "result")
    facts = (
        f"{kernels} kernels and {len(plan.steps) - kernels} calls; arena {size(plan.arena)}, of which values take "
        f"{size(plan.peak)} at most; arguments and constants {size(given)}, results {size(results)}; "
        f"{size(plan.copied)} copied"
    )
    return (
        f'<div class="fxplan"><style>{_STYLE}</style><h2>Memory plan of {escape(plan.name)}</h2><p>{facts}</p>'
        f"{_body(plan)}</div>"
    )


def page(plan: Any) -> str:
    """The same as a page."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Memory plan of {escape(plan.name)}'
        f"</title></head><body>{fragment(plan)}</body></html>\n"
    )
