"""Lines with elements at computed places, order, loops, branches, batches, random numbers, and changes of dtype.

Functions are as those of `layers`.
"""

from __future__ import annotations

from .layers import NUMBERS, scale, text, tuple_of
from .program import COMPLEX, FLOATS
from .steps import INTEGERS, put


def picks(g, x, s, dtype):
    """Elements at places that are operands."""
    a = g.rng.randrange(len(s))
    most = [n for n in (1, 3, 64, 257, 1000) if g.fits(n * g.count(s) // max(g.size(s[a]), 1), dtype)]
    n, at, slices = g.dim(g.rng.choice(most or [1])), ":, " * a, "slice(None), " * a
    of, picked = s[a], put(s, a, n)
    kinds = ["take", "index", "add", "max", "take_along", "slice", "update", "where", "chain"] + ["segments"] * 2
    kind = g.rng.choice(kinds if dtype not in COMPLEX else ["take", "index", "slice", "update"])
    if kind == "segments":
        labels = g.input([s[0]], "int32", n)
        name = g.rng.choice(["sum", "sum", "max", "min"])
        return g.line(f"jax.ops.segment_{name}({x}, {labels}, {text(n)})", [n, *s[1:]], dtype)
    if kind in ("slice", "update"):
        start, half = g.input([], "int32", f"({of})//2+1"), f"({of})//2"
        if kind == "slice":
            return g.line(f"lax.dynamic_slice_in_dim({x}, {start}, {text(half)}, {a})", put(s, a, half), dtype)
        update = f"{x}[{at}:{text(half)}]" if g.rng.random() < 0.5 else g.input(put(s, a, half), dtype)
        return g.line(f"lax.dynamic_update_slice_in_dim({x}, {update}, {start}, {a})", s, dtype)
    if kind == "take_along":
        labels = g.input(put(s, a, "1" if g.rng.random() < 0.5 else n), "int32", of)
        shape = next(one.shape for one in g.inputs if one.name == labels)
        return g.line(f"jnp.take_along_axis({x}, {labels}, axis={a})", list(shape), dtype)
    if kind == "where":
        return g.line(f"jnp.where({g.input(put(['1'] * len(s), a, of), 'bool')}, {x}, {x} * 2)", s, dtype)
    labels = g.input([n], "int32", of)
    if kind == "take":
        return g.line(f"jnp.take({x}, {labels}, axis={a})", picked, dtype)
    if kind in ("add", "max"):
        update = "1" if g.rng.random() < 0.5 else g.input(picked if a else [n, *s[1:]], dtype)
        return g.line(f"{x}.at[{slices}{labels}].{kind}({update})", s, dtype)
    if kind == "chain" and dtype in FLOATS:
        bias = g.input([s[-1] if a < len(s) - 1 else "1"], dtype)
        return g.line(f"jnp.tanh({x}[{at}{labels}]) * 0.5 + {bias}", picked, dtype)
    return g.line(f"{x}[{at}{labels}]", picked, dtype)


def cross_entropy(g, x, s, dtype):
    if len(s) not in (2, 3):
        return None
    turned = len(s) == 2 and g.rng.random() < 0.4
    rows, classes = ([s[1]], s[0]) if turned else (s[:-1], s[-1])
    logits, labels = f"{x}.T" if turned else x, g.input(rows, "int32", classes)
    if g.rng.random() < 0.6:
        loss = f"-jnp.take_along_axis(jax.nn.log_softmax({logits}, axis=-1), {labels}[..., None], axis=-1)"
        return g.line(loss, [*rows, "1"], dtype)
    hot = f"jax.nn.one_hot({labels}, {text(classes)}, dtype={x}.dtype)"
    return g.line(f"-(jax.nn.log_softmax({logits}, axis=-1) * {hot}).sum(-1)", rows, dtype)


def ordering(g, x, s, dtype):
    a, last = g.rng.randrange(len(s)), g.size(s[-1])
    kind = g.rng.choice(["top_k", "top_k", "argmax", "argsort"])
    if kind == "top_k" and last >= 3:
        k = g.rng.choice([k for k in (1, 3, 8, 33, 257) if k <= last])
        ways = [f"lax.top_k({x}, {k})[0]", f"(lax.top_k({x}, {k})[0] * 2 + 1)"]
        if dtype in FLOATS:
            ways.append(f"lax.top_k({x}, {k})[1].astype({x}.dtype)")
        return g.line(g.rng.choice(ways), [*s[:-1], str(k)], dtype)
    if kind == "argmax":
        return g.line(f"jnp.{g.rng.choice(['argmax', 'argmin'])}({x}, axis={a}).astype('int32')", put(s, a), "int32")
    return g.line(f"jnp.argsort({x}, axis={a}).astype('int32')", s, "int32")


def loop(g, x, s, dtype):
    """Loops over arrays of the operand's shape."""
    bodies = ["jnp.tanh(c) + {0}", "c * 0.5 + {0}", "c - c.mean(-1, keepdims=True) + {0} * 0.5",
              "jax.nn.softmax(c + {0}, axis=-1)", "jnp.sin(c) * {0}", "jnp.roll(c, 1, -1) * 0.5 + {0}"]  # fmt: skip
    body = g.rng.choice(bodies).format(x)
    if len(s) > 1 and g.size(s[-1]) <= 256 and g.rng.random() < 0.4:
        w = g.input([s[-1], s[-1]], dtype)
        body = f"jnp.tanh(c @ {w}{scale(g.size(s[-1]), dtype)}) + {x}"
    steps = g.rng.choice([1, 2, 3, 5])
    step = f"lambda p: (p[0] + 1, (lambda c: {body})(p[1]))"
    forms = [f"lax.fori_loop(0, {steps}, lambda i, c: {body}, {x})",
             f"lax.while_loop(lambda p: p[0] < {steps}, {step}, (0, {x}))[1]"]  # fmt: skip
    if g.mode not in ("grad", "jvp"):
        forms.append(f"lax.fori_loop(0, {g.input([], 'int32', '4')}, lambda i, c: {body}, {x})")
    form = g.rng.choice(forms[:1] if g.mode == "grad" else forms)
    g.line(form, s, dtype)


def scan(g, x, s, dtype):
    if len(s) < 2 or g.size(s[0]) > 48:
        return
    bodies = ["(jnp.tanh(c) + e, c * 0.5)", "(c * 0.5 + e, e - c.max())", "(e, jax.nn.softmax(c + e, axis=-1))",
              "(c + e * 0.1, e)", "(c * 0.9 + e, jnp.tanh(c) + e)"]  # fmt: skip
    body = g.rng.choice(bodies)
    if g.size(s[-1]) <= 256 and g.rng.random() < 0.4:
        body = f"(jnp.tanh(c @ {g.input([s[-1], s[-1]], dtype)}{scale(g.size(s[-1]), dtype)} + e), c)"
    reverse = ", reverse=True" * (g.rng.random() < 0.3)
    result = g.rng.choice([0, 1, 1])
    g.line(f"lax.scan(lambda c, e: {body}, {x}[0], {x}{reverse})[{result}]", s if result else s[1:], dtype)


def batches(g, x, s, dtype):
    """Functions of rows, mapped over the leading axis."""
    if len(s) < 2 or g.size(s[0]) > 48:
        return
    row = g.rng.choice(["r - r.mean()", "jax.nn.softmax(r, axis=-1)", "jnp.tanh(r) + r.max()",
                        "jnp.cumsum(r, axis=-1) * 0.1", "jnp.sort(r, axis=0)"])  # fmt: skip
    mapped = g.rng.choice(["jax.vmap(lambda r: {0})({1})", "lax.map(lambda r: {0}, {1})",
                           "jax.checkpoint(jax.vmap(lambda r: {0}))({1})",
                           "jax.jit(jax.vmap(lambda r: {0}))({1})"])  # fmt: skip
    g.line(mapped.format(row, x), s, dtype)


def branch(g, x, s, dtype):
    which = g.input([], "int32", "3")
    ways = ["jnp.tanh(v)", "v * 2 - 1", "v - v.max(-1, keepdims=True)", "jnp.flip(v, -1)", "jax.nn.softmax(v, axis=-1)",
            "jnp.sort(v, axis=-1)"]  # fmt: skip
    drawn = [f"lambda v: {way}" for way in g.rng.sample(ways, 3)]
    if g.rng.random() < 0.5:
        return g.line(f"lax.cond({which} > 0, {drawn[0]}, {drawn[1]}, {x})", s, dtype)
    return g.line(f"lax.switch({which}, [{', '.join(drawn)}], {x})", s, dtype)


def random_bits(g, x, s, dtype):
    drawn = [f"{x} * (jax.random.uniform(jax.random.key(7), {tuple_of(s)}, 'float32') + 0.5)",
             f"jnp.where(jax.random.bernoulli(jax.random.key(3), 0.5, {tuple_of(s)}), {x} * 2, 0.0)"]  # fmt: skip
    g.line(g.rng.choice(drawn if dtype == "float32" else drawn[1:]), s, dtype)


def changed_dtype(g, x, s, dtype):
    others = [one for one in FLOATS if one != dtype and (one != "float64" or g.wide)]
    other = g.rng.choice(others)
    if other == "float16":
        return g.line(f"jnp.clip({x}, -100.0, 100.0).astype(jnp.float16)", s, other)
    return g.line(f"{x}.astype(jnp.{other})", s, other)


def whole_numbers(g, x, s, dtype):
    """From floats to integers or bools, or back."""
    if dtype in FLOATS:
        if g.rng.random() < 0.5:
            return g.line(f"({x} > 0.1)", s, "bool")
        return g.line(f"jnp.clip(jnp.floor({x} * 2), -5.0, 5.0).astype('int32')", s, "int32")
    if dtype == "bool":
        return g.line(f"{x}.astype(jnp.float32)", s, "float32")
    return g.line(f"(({x} & 7).astype(jnp.float32) * 0.25)", s, "float32")


# (function, how often, dtypes), as `layers.KINDS`.
KINDS = [
    (picks, 3, NUMBERS), (cross_entropy, 1.5, FLOATS), (ordering, 1.5, (*FLOATS, *INTEGERS)), (loop, 1.5, FLOATS),
    (scan, 1.5, FLOATS), (batches, 1, FLOATS), (branch, 1.5, FLOATS), (random_bits, 0.5, FLOATS),
    (changed_dtype, 1, FLOATS), (whole_numbers, 0.8, (*FLOATS, "int32", "int8", "bool")),
]  # fmt: skip
