"""Tables of lines that keep, drop or move the elements of one array.

In a template `$x` is the operand, `$y` another that broadcasts against it, `$a` an axis, `$n` its extent, `$m` half
of that, `${at}` what stands before the index of the axis. Values stay near 1: what overflows cannot be judged.
Each table has parts by dtype: of all, of what has an order, of floats, of integers, of bools, of complex numbers.
"""

import random
import re

from .program import COMPLEX, FLOATS

INTEGERS = ("int8", "uint8", "int32")


def table(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"[|\n]", text) if part.strip()]


UNARY = {
    "any": table("$x + $x | $x * $x | $x * 2 - 1 | ($x) | jnp.where($x == 0, 1, $x)"),
    "ordered": table("""
        jnp.abs($x) | jnp.maximum($x, 1) | jnp.where($x > 1, $x, 2) | jnp.clip($x, 0, 1) | jnp.sign($x)
        ($x > 0).astype($x.dtype) | jnp.minimum(1, $x) - $x | jnp.clip($x, 0, 3)"""),
    "floats": table("""
        jnp.tanh($x) | jnp.sin($x) | jnp.cos($x) | jnp.exp(-jnp.abs($x)) | jnp.log1p(jnp.abs($x))
        jnp.expm1(-jnp.abs($x)) | jnp.sqrt(jnp.abs($x) + 0.5) | jax.nn.sigmoid($x) | jax.nn.relu($x)
        jax.nn.gelu($x) | jax.nn.silu($x) | jax.nn.softplus($x) | jax.nn.elu($x) | jax.nn.leaky_relu($x)
        jax.nn.gelu($x, approximate=False) | $x * 1.5 + 0.25 | $x - 0.5 | 0.5 * $x | 1.0 / ($x * $x + 1.0)
        lax.rsqrt($x * $x + 1.0) | lax.erf($x) | jnp.square($x) * 0.25 | jnp.arctan($x) | jnp.arcsinh($x)
        jnp.cbrt($x) | jnp.ceil($x * 2) | jnp.floor($x) | jnp.round($x * 2) | $x ** 2 * 0.5 | $x ** 3 * 0.125
        jnp.where($x > 0.25, $x, 2.0) | jnp.where(jnp.abs($x) < 1, $x * 0.5, $x)
        $x.astype(jnp.bfloat16).astype($x.dtype) | $x.astype(jnp.float32).astype($x.dtype) | -$x
        jnp.clip($x * 3, -100, 100).astype(jnp.int32).astype($x.dtype) | jnp.logaddexp($x, 0.5 * $x)
        jnp.hypot($x, 1.0) | jnp.where(jnp.isfinite($x), $x, 0.0) | jnp.minimum($x, 0.5 - $x)
        jnp.log(jnp.exp(-jnp.abs($x)) + 1.0)"""),
    "integers": ["$x | 1", *table("$x & 3 | $x ^ 2 | $x % 3 | $x // 2 | $x << 1 | $x >> 1 | ($x > 1) * $x")],
    "bools": table("~$x | $x & True | jnp.logical_not($x) | $x ^ $x | jnp.where($x, False, $x)"),
    "complex": table("""
        $x.conj() * $x | jnp.conj($x) | $x * (0.5 + 1j) | jnp.real($x) + $x | jnp.abs($x) * $x * 0.5
        jnp.where(jnp.abs($x) > 1, $x, 0.5) | -$x | $x * 0.5 + 1"""),
}  # fmt: skip
BINARY = {
    "any": table("$x + $y | $x - $y | $x * $y | $y - $x | jnp.where($x == $y, $x, $y)"),
    "ordered": table("jnp.maximum($x, $y) | jnp.minimum($y, $x) | jnp.where($x > $y, $x, $y) | ($x <= $y) * $x"),
    "floats": table("""
        $x / ($y * $y + 1.0) | jnp.where($x > $y, $x, $y * 0.5) | jnp.tanh($x + $y) | jnp.logaddexp($x, $y)
        $x * jax.nn.sigmoid($y) | ($x - $y) ** 2 * 0.25 | jnp.where($y > 0, $x, -1e4) | jnp.hypot($x, $y)"""),
    "integers": ["$x | $y", *table("$x & $y | $x ^ $y | $x % ($y * 0 + 3)")],
    "bools": table("$x & $y | jnp.logical_or($x, $y) | jnp.logical_and($x, $y) | $x ^ $y | jnp.where($y, $x, ~$x)"),
    "complex": table("$x * jnp.conj($y) | $x + $y * 1j | jnp.real($y) * $x"),
}  # fmt: skip
# Along one axis, with results of the operand's shape.
ROWS = {
    "any": table("""
        jnp.flip($x, $a) | jnp.roll($x, 3, axis=$a) | $x[${at}::-1] | lax.rev($x, ($a,))
        jnp.roll($x, -$m, axis=$a) | jnp.concatenate([$x[${at}$m:], $x[${at}:$m]], axis=$a)"""),
    "ordered": table("""
        $x - $x.max($a, keepdims=True) | $x + $x.min($a, keepdims=True) | lax.cummax($x, axis=$a)
        jnp.sort($x, axis=$a) | $x * ($x > $x.min($a, keepdims=True)) | lax.cummin($x, axis=$a, reverse=True)
        $x.at[${at}:$m].add(1) | $x.at[${at}$m:].set($x[${at}$m:] * 2) | $x.at[${at}::2].max(1)
        jnp.where($x == $x.max($a, keepdims=True), 1, $x)
        $x - jnp.sum($x, axis=$a, keepdims=True).astype($x.dtype)
        jnp.take_along_axis($x, jnp.argsort($x, axis=$a), axis=$a)"""),
    "floats": table("""
        jax.nn.softmax($x, axis=$a) | jax.nn.standardize($x, axis=$a)
        jax.nn.log_softmax($x, axis=$a) | $x - $x.mean($a, keepdims=True)
        $x * lax.rsqrt(($x * $x).mean($a, keepdims=True) + 1.0)
        $x / (1.0 + jnp.abs($x).max($a, keepdims=True))
        ($x - $x.mean($a, keepdims=True)) * lax.rsqrt(jnp.var($x, axis=$a, keepdims=True) + 0.5)
        ($x - $x.mean($a, keepdims=True)) / (jnp.std($x, axis=$a, keepdims=True) + 1.0)
        jnp.cumsum($x, axis=$a) / $n | $x - jax.nn.logsumexp($x, axis=$a, keepdims=True)
        jax.nn.softmax($x, axis=$a) * $x.sum($a, keepdims=True)
        jax.nn.softmax($x * 0.5, axis=$a) - jax.nn.softmax($x, axis=$a) | lax.cumlogsumexp($x, axis=$a)
        $x / (jnp.linalg.norm($x, axis=$a, keepdims=True) + 1.0) | jnp.exp($x - $x.max($a, keepdims=True))
        lax.associative_scan(jnp.add, $x, axis=$a) / $n | jnp.cumsum($x, axis=$a) - $x
        jnp.tanh($x - $x.mean($a, keepdims=True)) + $x | lax.cumsum($x, axis=$a, reverse=True) / $n"""),
    "integers": table("jnp.cumsum($x, axis=$a) | jnp.cumsum($x & 1, axis=$a)"),
    "bools": table("$x & $x.any($a, keepdims=True) | $x ^ $x.all($a, keepdims=True)"),
    "complex": table("""
        $x - $x.sum($a, keepdims=True) / $n | jnp.cumsum($x, axis=$a) / $n
        $x / (jnp.linalg.norm($x, axis=$a, keepdims=True) + 1.0)"""),
}  # fmt: skip
# Over the axes `$a`, which are dropped.
REDUCTIONS = {
    "any": table("jnp.sum($x, axis=$a).astype($x.dtype)"),
    "ordered": table("""
        $x.max($a) | $x.min($a) | ($x > 1).sum($a).astype($x.dtype) | ($x > 0).any($a).astype($x.dtype)
        ($x < 9).all($a).astype($x.dtype)"""),
    "floats": table("""
        $x.mean($a) | jnp.var($x, axis=$a) | jnp.abs($x).sum($a) | jnp.sqrt(($x * $x).sum($a))
        ($x * $x).mean($a) | jax.nn.logsumexp($x, axis=$a) | jnp.exp(-jnp.abs($x)).sum($a)
        jnp.std($x, axis=$a) | jnp.where($x > 0, $x, 0.0).sum($a)
        ($x.astype(jnp.float32) * 0.5).sum($a).astype($x.dtype) | $x.sum($a) / (1.0 + jnp.abs($x).sum($a))"""),
    "integers": table("jnp.sum($x * $x, axis=$a).astype($x.dtype)"),
    "bools": table("$x.any($a) | $x.all($a) | ($x.sum($a) > 3)"),
    "complex": table("$x.mean($a) | ($x * jnp.conj($x)).sum($a) | jnp.sum(jnp.abs($x), axis=$a) * (1 + 0j)"),
}  # fmt: skip


def groups_of(dtype: str) -> list[str]:
    if dtype in FLOATS:
        return ["any", "ordered", "floats", "floats"]
    if dtype in INTEGERS:
        return ["any", "ordered", "integers"]
    return ["complex", "any"] if dtype in COMPLEX else ["bools"]


def choose(rng: random.Random, rows: dict[str, list[str]], dtype: str) -> str:
    """One of the lines for a dtype; floats have the most of their own."""
    return rng.choice([line for group in groups_of(dtype) for line in rows[group]])


def put(shape, axis, *extents):
    return [*shape[:axis], *extents, *shape[axis + 1 :]]


def merged(shape, axis):
    return [*shape[: axis - 1], f"({shape[axis - 1]})*({shape[axis]})", *shape[axis + 1 :]] if axis else list(shape)


# (template, the result's shape of the operand's and the axis, whether it is larger). `$new` is the result's shape,
# `$order` the axes from the given one on and then the others, `$pads` widths for the axis alone.
MOVES = [
    ("$x.T", lambda s, a: s[::-1], False),
    ("$x.swapaxes($a, 0)", lambda s, a: put(put(s, 0, s[a]), a, s[0]) if a else s, False),
    ("jnp.moveaxis($x, $a, 0)", lambda s, a: [s[a], *s[:a], *s[a + 1 :]], False),
    ("jnp.moveaxis($x, 0, $a)", lambda s, a: [*s[1 : a + 1], s[0], *s[a + 1 :]], False),
    ("jnp.transpose($x, $order)", lambda s, a: [*s[a:], *s[:a]], False),
    ("$x[${at}1:]", lambda s, a: put(s, a, f"({s[a]})-1"), False),
    ("$x[${at}:-1]", lambda s, a: put(s, a, f"({s[a]})-1"), False),
    ("$x[${at}:$m]", lambda s, a: put(s, a, f"({s[a]})//2"), False),
    ("$x[${at}::3]", lambda s, a: put(s, a, f"(({s[a]})+2)//3"), False),
    ("$x[${at}1::2]", lambda s, a: put(s, a, f"({s[a]})//2"), False),
    ("$x[${at}::-2]", lambda s, a: put(s, a, f"(({s[a]})+1)//2"), False),
    ("$x[${at}:1]", lambda s, a: put(s, a, "1"), False),
    ("$x[${at}0]", lambda s, a: put(s, a), False),
    ("$x.reshape($new)", merged, False),
    ("$x.reshape(-1)", lambda s, a: ["*".join(f"({e})" for e in s)], False),
    ("jnp.expand_dims($x, $a)", lambda s, a: [*s[:a], "1", *s[a:]], False),
    ("lax.dynamic_slice_in_dim($x, 1, $m, $a)", lambda s, a: put(s, a, f"({s[a]})//2"), False),
    ("jnp.pad($x, $pads)", lambda s, a: put(s, a, f"({s[a]})+3"), False),
    ("jnp.pad($x, $pads, constant_values=1)", lambda s, a: put(s, a, f"({s[a]})+3"), False),
    ("jnp.pad($x, $pads, mode='edge')", lambda s, a: put(s, a, f"({s[a]})+3"), False),
    ("jnp.pad($x, $pads, mode='reflect')", lambda s, a: put(s, a, f"({s[a]})+3"), False),
    ("jnp.concatenate([$x[${at}:1], $x], axis=$a)", lambda s, a: put(s, a, f"({s[a]})+1"), False),
    ("jnp.concatenate([jnp.zeros_like($x[${at}:1]), $x[${at}:-1]], axis=$a)", lambda s, a: s, False),
    ("jnp.repeat($x, 2, axis=$a)", lambda s, a: put(s, a, f"2*({s[a]})"), True),
    ("jnp.concatenate([$x, ($x * 2).astype($x.dtype)], axis=$a)", lambda s, a: put(s, a, f"2*({s[a]})"), True),
    ("jnp.concatenate([jnp.flip($x, $a), $x, $x[${at}:$m]], axis=$a)",
     lambda s, a: put(s, a, f"2*({s[a]})+({s[a]})//2"), True),
    ("jnp.stack([$x, $x + $x], axis=$a)", lambda s, a: [*s[:a], "2", *s[a:]], True),
    ("jnp.broadcast_to($x[:, None], $new)", lambda s, a: [s[0], "3", *s[1:]], True),
    ("jnp.tile($x, 2)", lambda s, a: put(s, len(s) - 1, f"2*({s[-1]})"), True),
    ("jnp.broadcast_to($x, $new)", lambda s, a: ["2", *s], True),
]  # fmt: skip
# Of the last two axes, with results of the operand's shape.
MASKS = {
    "floats": table("""
        jnp.tril($x) | jnp.triu($x, 1) | jnp.where(jnp.arange($r)[:, None] >= jnp.arange($n), $x, -1e4)
        jnp.where(lax.broadcasted_iota('int32', $shape, $b) >= lax.broadcasted_iota('int32', $shape, $a), $x, -jnp.inf)
        jax.nn.softmax(jnp.where(jnp.arange($r)[:, None] >= jnp.arange($n), $x, -jnp.inf), axis=-1)
        jax.nn.softmax(jnp.tril($x), axis=-1) | jnp.tril(jax.nn.softmax($x, axis=-1))
        jnp.where(jnp.tril(jnp.ones_like($x)) > 0, 0.0, $x)
        $x + jnp.where(jnp.arange($n) < $m, 0.0, -1e4).astype($x.dtype) | $x * (jnp.arange($n) % 2 == 0)"""),
    "others": table("jnp.tril($x) | jnp.triu($x, -1)"),
}  # fmt: skip
