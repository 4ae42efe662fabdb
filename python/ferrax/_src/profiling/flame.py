"""A profile as a page: a chart of the events of each thread over time, and the table as text.

In: nested events by thread. Out: one file of HTML that asks for nothing else. Of more events than a browser draws at
ease the shortest are left out, and the page says how many. Cost: linear, but for choosing those.
"""

from __future__ import annotations

import heapq
import html
import json
from collections.abc import Sequence
from typing import Protocol

from ferrax._src.profiling.space import Shown

# Events that a page has.
_MOST = 100_000


class Nested(Protocol):
    """An event among others, in picoseconds."""

    @property
    def shown(self) -> Shown: ...
    @property
    def begin(self) -> int: ...
    @property
    def duration(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def source(self) -> str: ...


def page(lines: Sequence[tuple[str, str, Sequence[Nested]]], text: str, most: int = _MOST) -> str:
    """The page of these threads: the names of their planes and their own, and their events."""
    durations = [event.duration for _, _, events in lines for event in events]
    shortest = heapq.nlargest(most, durations)[-1] if len(durations) > most else 0
    names: dict[tuple[str, str], int] = {}
    shown: list[list[str]] = []
    rows, kept = [], 0
    for plane, line, events in lines:
        row = []
        for event in sorted(events, key=lambda event: event.begin):
            if event.duration < shortest or kept >= most:
                continue
            kept += 1
            stats = "\n".join(f"{name}: {value!s}" for name, value in event.shown.stats if value != event.source)
            key = event.shown.name, f"{event.source}\n{stats}".strip()
            number = names.setdefault(key, len(names))
            if number == len(shown):
                kind = next((str(value) for name, value in event.shown.stats if name == "kind"), "")
                shown.append([event.shown.name, kind, key[1]])
            row.append([round(event.begin / 1e6, 3), round(event.duration / 1e6, 3), event.depth, number])
        rows.append({"name": f"{plane} {line}", "events": row})
    # A text of the user's must not end the script.
    data = json.dumps({"shown": shown, "rows": rows}, separators=(",", ":")).replace("<", "\\u003c")
    missing = len(durations) - kept
    note = f"<p>{missing} short events are left out.</p>" if missing else ""
    return _PAGE.replace("@NOTE@", note).replace("@TABLE@", html.escape(text)).replace("@DATA@", data)


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Profile</title>
<style>
body { font: 14px sans-serif; margin: 1em; color: #222; background: #fff; }
canvas { display: block; width: 100%; cursor: grab; border: 1px solid #ccc; }
pre { overflow-x: auto; background: #f6f6f6; padding: 1em; }
#tip { position: fixed; display: none; white-space: pre; pointer-events: none; background: #fffbe6;
       border: 1px solid #999; padding: .4em; font-size: 12px; max-width: 60em; overflow: hidden; }
</style></head><body>
<h1>Profile</h1>
<p>Wheel: zoom. Drag: move. Double click: the event from edge to edge. Key 0: all.</p>@NOTE@
<canvas id="chart"></canvas><div id="tip"></div>
<h2>Kernels</h2><pre>@TABLE@</pre>
<script id="data" type="application/json">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("chart"), tip = document.getElementById("tip");
const pen = canvas.getContext("2d"), HIGH = 18, HEAD = 20;
const COLOURS = {kernel: 12, library: 35, call: 210, compile: 280, share: 45, transfer: 170, callback: 330, "": 100};
let top_ = 24;
for (const row of data.rows) {
  row.y = top_ + HEAD;
  row.deep = row.events.reduce((most, e) => Math.max(most, e[2]), -1) + 1;
  top_ = row.y + row.deep * HIGH + 8;
}
const every = data.rows.flatMap(row => row.events);
const first = every.reduce((least, e) => Math.min(least, e[0]), Infinity);
const last = every.reduce((most, e) => Math.max(most, e[0] + e[1]), -Infinity);
let from = every.length ? first : 0, to = every.length ? Math.max(last, first + 1e-3) : 1;
const whole = [from, to];
const at = x => (x - from) / (to - from) * canvas.clientWidth;
function colour(number) {
  const [name, kind] = data.shown[number];
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) | 0;
  return `hsl(${(COLOURS[kind] ?? 0) + hash % 12} 70% ${72 + hash % 8}%)`;
}
const colours = data.shown.map((_, number) => colour(number));
function time(us) {
  const [scale, unit] = us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : [1, "us"];
  return `${(us / scale).toFixed(3)} ${unit}`;
}
function draw() {
  const wide = canvas.clientWidth, dots = window.devicePixelRatio || 1;
  canvas.style.height = top_ + "px";
  canvas.width = wide * dots; canvas.height = top_ * dots;
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, wide, top_);
  pen.font = "11px sans-serif"; pen.textBaseline = "middle";
  pen.fillStyle = "#555";
  for (let part = 0; part < 8; part++)
    pen.fillText(time(from + part * (to - from) / 8 - whole[0]), part * wide / 8 + 2, 10);
  for (const row of data.rows) {
    pen.fillStyle = "#222"; pen.fillText(row.name, 2, row.y - HEAD / 2);
    const ends = [];
    for (const [begin, long, depth, number] of row.events) {
      if (begin > to || begin + long < from) continue;
      const x = Math.max(at(begin), 0), end = Math.min(at(begin + long), wide);
      // What would be drawn on the same dot again.
      if (end - x < 0.5 && ends[depth] >= x) continue;
      const w = Math.max(end - x, 0.5);
      ends[depth] = x + w;
      pen.fillStyle = colours[number];
      pen.fillRect(x, row.y + depth * HIGH, w, HIGH - 1);
      if (w > 30) {
        pen.save(); pen.beginPath(); pen.rect(x, row.y + depth * HIGH, w - 2, HIGH); pen.clip();
        pen.fillStyle = "#111"; pen.fillText(data.shown[number][0], x + 3, row.y + depth * HIGH + HIGH / 2);
        pen.restore();
      }
    }
  }
}
function found(mouse) {
  const box = canvas.getBoundingClientRect(), y = mouse.clientY - box.top;
  const near = (to - from) / canvas.clientWidth, when = from + (mouse.clientX - box.left) * near;
  for (const row of data.rows) {
    const depth = Math.floor((y - row.y) / HIGH);
    if (depth < 0 || depth >= row.deep) continue;
    return row.events.find(e => e[2] === depth && e[0] - near <= when && when <= e[0] + e[1] + near);
  }
}
function show(begin, end) { from = begin; to = Math.max(end, begin + 1e-4); draw(); }
canvas.addEventListener("wheel", mouse => {
  mouse.preventDefault();
  const box = canvas.getBoundingClientRect(), part = (mouse.clientX - box.left) / canvas.clientWidth;
  const middle = from + part * (to - from), scale = Math.exp(mouse.deltaY / 400);
  show(middle - (middle - from) * scale, middle + (to - middle) * scale);
}, {passive: false});
let held = null;
canvas.addEventListener("mousedown", mouse => { held = mouse.clientX; });
window.addEventListener("mouseup", () => { held = null; });
canvas.addEventListener("mousemove", mouse => {
  if (held !== null) {
    const moved = (held - mouse.clientX) / canvas.clientWidth * (to - from);
    held = mouse.clientX;
    show(from + moved, to + moved);
  }
  const event = found(mouse);
  tip.style.display = event ? "block" : "none";
  if (!event) return;
  const [name, , more] = data.shown[event[3]];
  tip.textContent = `${name}\\n${time(event[1])}, from ${time(event[0] - whole[0])}` + (more ? "\\n" + more : "");
  tip.style.left = Math.min(mouse.clientX + 12, window.innerWidth - 320) + "px";
  tip.style.top = mouse.clientY + 14 + "px";
});
canvas.addEventListener("mouseleave", () => { tip.style.display = "none"; });
canvas.addEventListener("dblclick", mouse => { const e = found(mouse); if (e) show(e[0], e[0] + e[1]); });
window.addEventListener("keydown", key => { if (key.key === "0") show(...whole); });
window.addEventListener("resize", draw);
draw();
</script></body></html>
"""
