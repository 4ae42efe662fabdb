"""Memory plans: what they say of programs whose plans are known, and that their pictures are well-formed."""

import html.parser
import os
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

X = np.ones((8, 16), np.float32)


def layers(x, y):
    x = jnp.sort(x, axis=1)
    x = jnp.sin(x) * 2 + y
    x = jnp.cumsum(x, axis=1)
    return jnp.sort(x, axis=0).sum(), y


def test_fields():
    plan = ferrax.jit(layers).memory_plan(X, X)
    assert plan.name == "layers"
    assert [step.kind for step in plan.steps] == ["call", "kernel", "call", "call", "kernel"]
    kernel = plan.steps[1]
    assert {"sin", "mul", "add"} <= {o.name for o in kernel.operations}
    assert any("test_memory_plan.py:" in (o.line or "") for o in kernel.operations)
    assert all("/" not in line for line in kernel.lines)
    (id,) = kernel.in_place
    held = plan.buffer(id)
    assert held.place == "arena" and len(held.values) == 2
    assert [value.first for value in held.values] == [0, 1]
    assert held.values[0].type == "f32[8,16]" and held.values[0].of.name == "sort"
    arena = [b for b in plan.buffers if b.place == "arena"]
    assert plan.arena == max(b.at + b.bytes for b in arena)
    assert plan.peak == max(step.live for step in plan.steps) == plan.steps[plan.peak_step].live
    assert any(b.reuses for b in arena) and all(plan.buffer(r) in arena for b in arena for r in b.reuses)
    # An argument that is returned is copied.
    assert plan.returns[1].copied == X.nbytes == plan.copied
    with pytest.raises(KeyError):
        plan.buffer(1000)


def test_library_functions_are_at_the_users_line():
    (step,) = ferrax.jit(lambda x: jnp.sort(x)).memory_plan(X).steps
    assert "test_memory_plan.py" in step.lines[0]


def test_sizes_agree_with_memory_analysis():
    compiled = ferrax.jit(layers).lower(X, X).compile()
    plan, memory = compiled.memory_plan(), compiled.memory_analysis()
    assert plan.arena == memory.temp_size_in_bytes
    assert sum(b.bytes for b in plan.buffers if b.place == "argument") == memory.argument_size_in_bytes
    assert sum(b.bytes for b in plan.buffers if b.place == "result") == memory.output_size_in_bytes


def test_values_in_the_arena_at_one_time_lie_apart():
    plan = ferrax.jit(ferrax.grad(lambda x, y: layers(jnp.tanh(x @ y.T), y[:, :8])[0])).memory_plan(X, X)
    arena = [b for b in plan.buffers if b.place == "arena"]
    for one in arena:
        for other in arena:
            together = one.first <= other.last and other.first <= one.last
            if one is not other and together:
                assert one.at + one.bytes <= other.at or other.at + other.bytes <= one.at


def test_donations_and_runs_of_rows():
    # Under `tiny` longer rows are reduced in segments, each of which is a step of its own.
    x = np.ones((1024, 3 if os.environ.get("FERRAX_TUNING") == "tiny" else 512), np.float32)
    plan = ferrax.jit(ferrax.nn.softmax, donate_argnums=0).memory_plan(x)
    assert plan.runs and plan.runs[0].rows == 1024
    assert {step.run for step in plan.steps} == {0}
    argument, result = plan.buffer(0), plan.buffer(plan.returns[0].buffer)
    assert argument.donation in (result.id, None)
    doubled = ferrax.jit(lambda x: jnp.exp(x) * 2).memory_plan(x)
    assert doubled.buffer(0).donation == doubled.returns[0].buffer


def test_bodies_have_plans_of_their_own():
    def run(x):
        return ferrax.lax.scan(lambda c, _: (jnp.sort(c) + 1, None), x, None, length=4)[0]

    plan = ferrax.jit(run).memory_plan(X)
    (inner,) = [inner for step in plan.steps for inner in step.inner]
    assert inner.steps and inner.buffers


def test_abstract_arguments():
    x = ferrax.ShapeDtypeStruct((1 << 20, 1 << 10), np.float32)
    assert ferrax.jit(jnp.exp).memory_plan(x).buffers[0].bytes == 1 << 32


def test_text():
    plan = ferrax.jit(layers).memory_plan(X, X)
    assert repr(plan).startswith("<MemoryPlan of layers: 5 steps, ")
    text = str(plan)
    for part in ("512 B", "in place", "reuses", "argument 0", "return ", "step 0: call sort"):
        assert part in text, text


class _Tags(html.parser.HTMLParser):
    void = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() not in (tag, "td", "tr"):
                pass


@pytest.mark.parametrize("case", ["layers", "nothing", "loop", "rows", "<odd> & name"])
def test_pictures(case, tmp_path):
    x = np.ones((1024, 512), np.float32)
    odd = lambda x: jnp.sort(x)  # noqa: E731
    odd.__name__ = case
    f, args = {
        "layers": (layers, (X, X)),
        "nothing": (lambda x: x, (X,)),
        "loop": (lambda x: ferrax.lax.fori_loop(0, 3, lambda i, c: jnp.sort(c) + i, x), (X,)),
        "rows": (ferrax.nn.softmax, (x,)),
        "<odd> & name": (odd, (X,)),
    }[case]
    plan = ferrax.jit(f).memory_plan(*args)
    path = tmp_path / "plan.html"
    page = plan.to_html(path)
    assert path.read_text(encoding="utf-8") == page
    assert plan._repr_html_() in page and "<script" not in page and "http:" not in page.replace("http://www.w3.org/2000/svg", "")
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    begin, end = page.index("<svg"), page.index("</svg>") + len("</svg>")
    svg = ET.fromstring(page[begin:end])
    name = "{http://www.w3.org/2000/svg}"
    drawn = [r for r in svg.iter(name + "rect") if r.get("class") == "b"]
    shown = [b for b in plan.buffers if b.place != "rows" and b.bytes]
    assert len(drawn) == sum(max(len(b.values), 1) for b in shown)
    titles = [t.text for t in svg.iter(name + "title")]
    assert all(any(t.startswith(f"buffer {b.id}:") for t in titles) for b in shown)
    width, height = float(svg.get("width")), float(svg.get("height"))
    for rect in svg.iter(name + "rect"):
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width + 0.1 and y >= 0 and y + h <= height
