"""Lines of several operands: products of arrays, attention, convolutions, windows, transforms, linear systems.

Each function is given the generator (`generate.Generator`: `rng`, `dim`, `input`, `line`, `size`, `count`), the
name of an operand, its shape as expressions, and its dtype; it adds lines, or none where it does not apply.
`KINDS` says how often each is drawn, and for which dtypes.
"""

from __future__ import annotations

import math

from .program import COMPLEX, FLOATS
from .sizes import EXTENTS, SMALL
from .steps import INTEGERS, put

MOST_PRODUCTS = 1 << 28
NUMBERS = (*FLOATS, *COMPLEX, *INTEGERS)


def tuple_of(shape) -> str:
    """A shape as the text of a tuple, with its sizes in braces."""
    parts = ", ".join(e if e.isdigit() else f"{{{e}}}" for e in shape)
    return f"({parts},)" if len(shape) == 1 else f"({parts})"


def text(e: str) -> str:
    return e if e.isdigit() else f"{{{e}}}"


def free_extent(g, s, dtype: str, rows: int, terms: int) -> str:
    """A dimension of a product's other operand, by which it does not become too large."""
    fits = [n for n in EXTENTS if n * rows * terms <= MOST_PRODUCTS and g.fits(n * max(rows, terms), dtype)]
    return g.dim(g.rng.choice(fits[g.rng.choice([0, 0, len(fits) // 2, -6]) :] or [1]))


def before(g, x: str, dtype: str) -> str:
    """What a product may be of: a chain that is fused into it, or not."""
    chains = ["{0}", "{0}", "{0}"]
    if dtype in FLOATS:
        chains += ["jnp.tanh({0})", "({0} * 0.5 + 1.0)", "jax.nn.softmax({0}, axis=-1)", "jax.nn.relu({0})"]
    return g.rng.choice(chains).format(x)


def after(g, x: str, dtype: str) -> str:
    chains = ["({0})"] * 3
    if dtype in FLOATS:
        chains += ["jnp.tanh({0})", "jax.nn.softmax({0}, axis=-1)", "(jax.nn.relu({0}) * 0.5)", "({0} + 1.0)",
                   "jax.nn.gelu({0})", "({0}) - ({0}).max(-1, keepdims=True)"]  # fmt: skip
    return g.rng.choice(chains).format(x)


def scale(terms: int, dtype: str) -> str:
    """Keeps results near 1."""
    return f" * {1 / math.sqrt(max(terms, 1)):.3g}" if dtype in FLOATS or dtype in COMPLEX else ""


def matmul(g, x, s, dtype):
    terms, rows = g.size(s[-1]), g.count(s[:-1])
    n = free_extent(g, s, dtype, rows, terms)
    kind = g.rng.choice(["@", "@", "@ T", "tensordot", "dot_general", "preferred", "bias", "twice"])
    w = g.input([n, s[-1]] if kind == "@ T" else [s[-1], n], dtype)
    x, result, shape = before(g, x, dtype), dtype, [*s[:-1], n]
    if kind == "@ T":
        product = f"{x} @ {w}.T"
    elif kind == "tensordot":
        product = f"jnp.tensordot({x}, {w}, 1)"
    elif kind == "dot_general":
        product = f"lax.dot_general({x}, {w}, ((({len(s) - 1},), (0,)), ((), ())))"
    elif kind == "preferred" and dtype in ("float16", "bfloat16"):
        result, product = "float32", f"jnp.matmul({x}, {w}, preferred_element_type=jnp.float32)"
    else:
        product = f"{x} @ {w}"
    product = f"({product}){scale(terms, dtype)}"
    if kind == "bias":
        product = f"{product} + {g.input([n], dtype)}"
    g.line(after(g, product, result), shape, result)
    if kind == "twice" and g.fits(rows * terms, dtype):
        g.line(after(g, f"({g.last()} @ {w}.T){scale(g.size(n), dtype)}", dtype), s, dtype)


def matmul_left(g, x, s, dtype):
    """The operand is on the right, as it is or transposed."""
    if len(s) < 2:
        return
    turned = g.rng.random() < 0.5
    over, kept = (s[-1], s[-2]) if turned else (s[-2], s[-1])
    batch = g.count(s[:-2])
    n = free_extent(g, s, dtype, batch * g.size(kept), g.size(over))
    shape = [*s[:-2], n, kept] if g.rng.random() < 0.4 else None
    w = g.input([*s[:-2], n, over] if shape else [n, over], dtype)
    x = before(g, x, dtype)
    product = f"({w} @ {x}{'.swapaxes(-1, -2)' * turned}){scale(g.size(over), dtype)}"
    g.line(after(g, product, dtype), [*s[:-2], n, kept], dtype)


# Of an operand abc (or ab) and another, in which w is free.
EINSUMS = {
    3: ["abc,cbw->abw", "abc,bw->awc", "abc,acw->abw", "abc,bcw->aw", "abc,wc->wab", "abc,ab->bc", "abc,abw->acw",
        "abc,cw->bwa", "abc,abc->ab", "abc,abw->awc", "abc,bcw->wab", "abc,b->ac"],
    2: ["ab,wb->wa", "ab,aw->bw", "ab,ab->a", "ab,b->a", "ab,bw->wa", "ab,aw->wb", "ab,wa->bw"],
    4: ["abcd,abwd->abcw", "abcd,cdw->abw", "abcd,adw->abcw", "abcd,acw->abdw", "abcd,bdw->abcw", "abcd,abcw->abdw"],
}  # fmt: skip


def einsum(g, x, s, dtype):
    if len(s) not in EINSUMS:
        return
    equation = g.rng.choice(EINSUMS[len(s)])
    left, result = equation.split("->")
    first, second = left.split(",")
    of = dict(zip(first, s))
    everything = math.prod(g.size(e) for e in s)
    if "w" in second:
        others = g.count([of[one] for one in second if one != "w"]), g.count([of[one] for one in result if one != "w"])
        fits = [n for n in EXTENTS if n * everything <= MOST_PRODUCTS and g.fits(n * max(others), dtype)]
        of["w"] = g.dim(g.rng.choice(fits[g.rng.choice([0, len(fits) // 2]) :] or [1]))
    w = g.input([of[one] for one in second], dtype)
    terms = math.prod(g.size(e) for letter, e in of.items() if letter not in result)
    product = f"(jnp.einsum('{equation}', {before(g, x, dtype)}, {w}){scale(terms, dtype)})"
    g.line(after(g, product, dtype), [of[one] for one in result], dtype)


def pairs_fit(g, s, dtype) -> bool:
    """Whether products of all pairs of rows are not too large."""
    rows = g.size(s[-2])
    return rows * g.count(s) <= MOST_PRODUCTS and g.fits(g.count(s[:-1]) * rows, dtype)


def gram(g, x, s, dtype):
    if len(s) < 2 or not pairs_fit(g, s, dtype):
        return
    product = f"({before(g, x, dtype)} @ {x}.swapaxes(-1, -2){scale(g.size(s[-1]), dtype)})"
    if dtype in FLOATS:
        masked = ["{0}", "jnp.tril({0})", "jnp.triu({0}, 1)", "jnp.where({0} > 0, {0}, -1.0)"]
        product = g.rng.choice(masked).format(product)
    g.line(after(g, product, dtype), [*s[:-1], s[-2]], dtype)


def attention(g, x, s, dtype):
    if len(s) < 2 or not pairs_fit(g, s, dtype):
        return
    rows = text(s[-2])
    key = x if g.rng.random() < 0.5 else g.input(s, dtype)
    value = x if g.rng.random() < 0.5 else g.input(s, dtype)
    scores = f"({before(g, x, dtype)} @ {key}.swapaxes(-1, -2){scale(g.size(s[-1]), dtype)})"
    below = "jnp.arange({r})[:, None] >= jnp.arange({r})"
    masks = ["{0}", "{0}", "jnp.tril({0})", "jnp.where({0} > -1.0, {0}, -1e4)", "({0} + {b})",
             f"jnp.where({below}, {{0}}, -1e4)", f"jnp.where({below}, {{0}}, -jnp.inf)"]  # fmt: skip
    mask = g.rng.choice(masks)
    bias = g.input([s[-2], s[-2]], dtype) if "{b}" in mask else ""
    masked = mask.replace("{0}", scores).replace("{r}", rows).replace("{b}", bias)
    g.line(f"jax.nn.softmax({masked}, axis=-1) @ {value}", s, dtype)


def attention_heads(g, x, s, dtype):
    """`jax.nn.dot_product_attention` and its einsums, of (batch, rows, heads, features)."""
    if len(s) != 4 or g.count(s) * g.size(s[1]) > MOST_PRODUCTS or not g.fits(g.count(s[:3]) * g.size(s[1]), dtype):
        return None
    key, value = (x if g.rng.random() < 0.4 else g.input(s, dtype) for _ in range(2))
    if g.rng.random() < 0.5:
        causal = ", is_causal=True" * (g.rng.random() < 0.5)
        return g.line(f"jax.nn.dot_product_attention({x}, {key}, {value}{causal})", s, dtype)
    scores = f"jnp.einsum('bqhd,bkhd->bhqk', {x}, {key}){scale(g.size(s[3]), dtype)}"
    masks = ["{0}", "jnp.tril({0})", "jnp.where(jnp.tril(jnp.ones_like({0})) > 0, {0}, -1e4)"]
    scores = g.rng.choice(masks).format(scores)
    return g.line(f"jnp.einsum('bhqk,bkhd->bqhd', jax.nn.softmax({scores}, axis=-1), {value})", s, dtype)


def vectors(g, x, s, dtype):
    """Products with vectors, and of vectors."""
    v = g.input([s[-1]], dtype)
    if len(s) == 1 and g.count(s) <= 4096:
        options = [(f"({x} @ {v})", []), (f"jnp.outer({x}, {v})", [s[0], s[0]]), (f"jnp.vdot({x}, {v})", [])]
    else:
        options = [(f"({x} @ {v})", s[:-1]), (f"({x} * {v}).sum(-1).astype({x}.dtype)", s[:-1])]
        if len(s) > 1:
            options.append((f"({g.input([s[-2]], dtype)} @ {x})", [*s[:-2], s[-1]]))
    product, shape = g.rng.choice(options)
    terms = 1 if "outer" in product else g.size(s[-2] if product.endswith(f"@ {x})") and len(s) > 1 else s[-1])
    g.line(f"{product}{scale(terms, dtype)}", shape, dtype)


def convolution(g, x, s, dtype):
    if len(s) not in (3, 4) or min(map(g.size, s[1:])) < 1:
        return
    rank, last = len(s) - 2, g.rng.random() < 0.5
    space, channels = (s[1:-1], s[-1]) if last else (s[2:], s[1])
    if min(map(g.size, space)) < 3:
        return
    width = g.rng.choice([1, 2, 3, 3, 5]) if min(map(g.size, space)) >= 5 else g.rng.choice([1, 3])
    places = g.count(space) * g.size(s[0])
    fits = [n for n in SMALL if n * g.count(s) * width**rank <= MOST_PRODUCTS and g.fits(n * places, dtype)]
    if not fits or g.count(s) * width**rank > 1 << 25:
        return
    groups = g.rng.choice([1, 1, 1, g.size(channels)]) if g.size(channels) <= 32 else 1
    out = g.dim(g.rng.choice(fits) if groups == 1 else groups * g.rng.choice([1, 1, 2]))
    stride, dilate = g.rng.choice([(1, 1), (1, 1), (2, 1), (1, 2), (3, 1)])
    span = (width - 1) * dilate + 1
    if min(map(g.size, space)) < span:
        return
    each = channels if groups == 1 else "1"
    w = g.input([*[str(width)] * rank, each, out] if last else [out, each, *[str(width)] * rank], dtype)
    padding = g.rng.choice(["SAME", "VALID", "1"])
    pads = {"SAME": "'SAME'", "VALID": "'VALID'", "1": str(((1, 1),) * rank)}[padding]
    dims = "HWD"[:rank]
    numbers = f", dimension_numbers=('N{dims}C', '{dims}IO', 'N{dims}C')" if last else ""
    numbers += f", rhs_dilation={(dilate,) * rank}" * (dilate > 1)
    numbers += f", feature_group_count={groups}" * (groups > 1)
    operands = f"{before(g, x, dtype)}, {w}, {(stride,) * rank}, {pads}{numbers}"
    product = f"(lax.conv_general_dilated({operands}){scale(g.size(each) * width**rank, dtype)})"
    results = {"SAME": "(({0})+{1}-1)//{1}", "VALID": "(({0})-{2})//{1}+1", "1": "(({0})+2-{2})//{1}+1"}[padding]
    space = [results.format(e, stride, span) for e in space]
    g.line(after(g, product, dtype), [s[0], *space, out] if last else [s[0], out, *space], dtype)


def window(g, x, s, dtype):
    a = g.rng.randrange(len(s))
    size, stride = g.rng.choice([(2, 2), (3, 1), (3, 2), (5, 1)])
    if g.size(s[a]) < size or g.count(s) * size > 1 << 24:
        return
    ones = [1] * len(s)
    of = f"({', '.join(map(str, put(ones, a, size)))},), ({', '.join(map(str, put(ones, a, stride)))},)"
    padding = g.rng.choice(["SAME", "VALID"])
    kind = g.rng.choice(["-jnp.inf, lax.max", "0.0, lax.add"])
    extent = f"(({s[a]})+{stride}-1)//{stride}" if padding == "SAME" else f"(({s[a]})-{size})//{stride}+1"
    g.line(f"lax.reduce_window({x}, {kind}, {of}, '{padding}'){' * 0.5' * ('add' in kind)}", put(s, a, extent), dtype)


def fourier(g, x, s, dtype):
    """There and back, so that the rest of the program stays with floats."""
    a = g.rng.randrange(len(s))
    n = g.size(s[a])
    if n > 5000 and n % 2 or dtype not in ("float32", "float64", "complex64"):
        return None
    if dtype == "complex64":
        name, factor = g.rng.choice([("fft", 1 / math.sqrt(n)), ("ifft", math.sqrt(n))])
        return g.line(f"jnp.fft.{name}({x}, axis={a}) * {factor:.3g}", s, dtype)
    if g.rng.random() < 0.5:
        part = g.rng.choice(["real", "imag"])
        return g.line(f"jnp.{part}(jnp.fft.fft({x}, axis={a})) * {1 / math.sqrt(n):.3g}", s, dtype)
    half = f"({s[a]})//2+1"
    return g.line(f"jnp.abs(jnp.fft.rfft({x}, axis={a})) * {1 / math.sqrt(n):.3g}", put(s, a, half), dtype)


def linear_systems(g, x, s, dtype):
    """Of matrices that are far from singular; the operand gives their right sides or their elements."""
    if dtype not in ("float32", "float64") or len(s) < 2:
        return
    rows, columns, batch = g.size(s[-2]), g.size(s[-1]), g.count(s[:-2])
    if rows > 65 or batch * rows**3 > 1 << 24:
        return
    n, products = text(s[-2]), f"{x} @ {x}.swapaxes(-1, -2) * {1 / max(columns, 1):.3g}"
    square = f"(jnp.tanh({products}) / {n} + 4 * jnp.eye({n}, dtype={x}.dtype))"
    matrix = [*s[:-1], s[-2]]
    options = [(f"jnp.linalg.solve({square}, {x})", s), (f"jnp.linalg.solve({square}, {g.input(s, dtype)})", s),
               (f"jnp.linalg.inv({square})", matrix), (f"jnp.linalg.cholesky({square})", matrix)]  # fmt: skip
    if rows <= 17 and batch * rows <= 4096:
        options += [(f"jnp.linalg.svd({square}, compute_uv=False)", s[:-1]), (f"jnp.linalg.eigvalsh({square})", s[:-1])]
    if rows <= 6:
        options.append((f"jnp.linalg.det({square}) * {4.0**-rows:.3g}", s[:-2]))
    g.line(*g.rng.choice(options), dtype)


# (function, how often, dtypes).
KINDS = [
    (matmul, 4, NUMBERS), (matmul_left, 3, NUMBERS), (einsum, 3, NUMBERS), (gram, 1.5, NUMBERS),
    (vectors, 1.5, NUMBERS), (attention, 2, FLOATS), (attention_heads, 1.5, FLOATS), (convolution, 2, FLOATS),
    (window, 1, FLOATS), (fourier, 0.7, ("float32", "float64", "complex64")),
    (linear_systems, 0.7, ("float32", "float64")),
]  # fmt: skip
