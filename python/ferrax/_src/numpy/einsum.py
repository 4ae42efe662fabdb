"""Einstein summation by a sequence of pairwise `dot_general` contractions.

Invariants: subscripts are normalised to strings without ellipsis; a step sums labels that occur in
one operand only, takes diagonals of repeated labels, and contracts two operands at a time in an
order chosen greedily by the size of the intermediate result.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import DTypeLike
from ferrax._src.lax import api as lax
from ferrax._src.lax.out_sharding import with_out_sharding
from ferrax._src.numpy.util import convert, ensure_arrays, reject_out, user_dtype
from ferrax._src.transforms.jit import jit

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _interleaved(subscripts, operands):
    """Turns `einsum(op0, sublist0, op1, sublist1, ..., [sublistout])` into the string form."""
    arguments = [subscripts, *operands]
    arrays = arguments[0:len(arguments) // 2 * 2:2]
    lists = arguments[1:len(arguments) // 2 * 2:2]
    output = arguments[-1] if len(arguments) % 2 else None
    labels = sorted({x for sub in lists for x in sub if x is not Ellipsis})
    letter = {label: _letter(i) for i, label in enumerate(labels)}

    def text(sub):
        return "".join("..." if x is Ellipsis else letter[x] for x in sub)

    spec = ",".join(map(text, lists))
    if output is not None:
        spec += "->" + text(output)
    return spec, arrays


def _letter(i: int) -> str:
    return _LETTERS[i] if i < len(_LETTERS) else chr(i + 140)


def _parse(subscripts: str, shapes):
    """(input terms, output term) without ellipsis; axes of ellipses get labels of their own."""
    text = subscripts.replace(" ", "")
    if ("-" in text or ">" in text) and (
        text.count("->") != 1 or text.count("-") > 1 or text.count(">") > 1
    ):
        raise ValueError(f"Subscripts can only contain one '->', got {subscripts!r}.")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(
            f"Number of einsum subscripts, {len(terms)}, must be equal to the number of operands,"
            f" {len(shapes)}."
        )
    used = set(text) - set(".,->")
    ranks = []
    for i, (term, shape) in enumerate(zip(terms, shapes)):
        if "." in term:
            if term.count(".") != 3 or "..." not in term:
                raise ValueError(f"Invalid Ellipses in {term!r}.")
            rank = len(shape) - (len(term) - 3)
            if rank < 0:
                raise ValueError(f"Ellipses lengths do not match: {term!r} for shape {shape}.")
            ranks.append(rank)
        elif len(term) != len(shape):
            raise ValueError(
                f"einsum: '{term}' names {len(term)} axes, operand {i} has {len(shape)}, of shape {tuple(shape)}"
            )
    rank = max(ranks, default=0)
    spare = (c for c in map(_letter, range(52 + 256)) if c not in used)
    batch = "".join(itertools.islice(spare, rank))
    inputs = []
    for term, shape in zip(terms, shapes):
        own = len(shape) - (len(term) - 3)
        inputs.append(term.replace("...", batch[rank - own:] if own else ""))
    if arrow:
        out = output.replace("...", batch)
    else:
        counts = Counter(c for term in terms for c in term if c != ".")
        out = batch + "".join(sorted(c for c, n in counts.items() if n == 1))
    for c in out:
        if not any(c in term for term in inputs):
            raise ValueError(f"Output character '{c}' did not appear in the input, which is {','.join(inputs)!r}")
    if len(set(out)) != len(out):
        raise ValueError(f"Output character appeared more than once in the output: {out!r}")
    bad = [c for c in used if not c.isalnum() and ord(c) < 140]
    if bad:
        raise ValueError(f"Character '{bad[0]}' is not a valid symbol.")
    return inputs, out


def _label_sizes(inputs, shapes):
    sizes: dict[str, int] = {}
    for i, (term, shape) in enumerate(zip(inputs, shapes)):
        for c, n in zip(term, shape):
            if sizes.setdefault(c, n) == 1:
                sizes[c] = n
            elif n not in (1, sizes[c]):
                raise ValueError(
                    f"einsum: the size of label '{c}' for operand {i} ({n}) does not match previous"
                    f" terms ({sizes[c]})."
                )
    return sizes


def _greedy_path(inputs, out, sizes):
    """Pairs of positions to contract; a used pair is removed and its result appended."""
    terms = [set(t) for t in inputs]
    path: list[tuple[int, ...]] = []

    def volume(labels):
        return math.prod(sizes[c] for c in labels)

    while len(terms) > 2:
        best: Any = None
        for i in range(len(terms)):
            for j in range(i + 1, len(terms)):
                rest = set(out).union(*(t for k, t in enumerate(terms) if k not in (i, j)))
                result = (terms[i] | terms[j]) & rest
                growth = volume(result) - volume(terms[i]) - volume(terms[j])
                cost = (growth, volume(terms[i] | terms[j]))
                if best is None or cost < best[0]:
                    best = (cost, i, j, result)
        _, i, j, result = best
        path.append((i, j))
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [result]
    path.append(tuple(range(len(terms))))
    return path


def _user_path(optimize, count):
    steps = list(optimize)
    if steps and steps[0] == "einsum_path":
        steps = steps[1:]
    path, remaining = [], count
    for step in steps:
        step = tuple(step)
        if any(not 0 <= i < remaining for i in step) or len(set(step)) != len(step):
            raise ValueError(f"einsum: invalid contraction {step} for {remaining} operands")
        remaining += 1 - len(step)
        path.append(step)
    if remaining > 1:
        path.append(tuple(range(remaining)))
    return path


def _contraction_path(inputs, out, sizes, optimize):
    if isinstance(optimize, (list, tuple)) and not isinstance(optimize, str):
        return _user_path(optimize, len(inputs))
    if optimize is False:
        # Left to right, without reordering.
        path = [(0, 1)]
        for remaining in range(len(inputs) - 1, 1, -1):
            path.append((0, remaining - 1))
        return path if len(inputs) > 1 else [(0,)]
    return _greedy_path(inputs, out, sizes)


# ---------------------------------------------------------------------------- one step


def _sum(x, axes):
    """A sum over axes; of truth values it is whether any holds, as their products are."""
    if x.dtype == np.bool_:
        return lax.reduce_or(x, axes=axes)
    return lax.reduce_sum(x, axes=axes)


def _sum_axes(x, term, drop):
    if not drop:
        return x, term
    axes = tuple(i for i, c in enumerate(term) if c in drop)
    return _sum(x, axes), "".join(c for c in term if c not in drop)


def _diagonals(x, term, keep):
    """Removes repeated labels: masks off the diagonal and sums all but the last occurrence."""
    if len(set(term)) == len(term):
        return x, term
    for c in dict.fromkeys(term):
        axes = [i for i, label in enumerate(term) if label == c]
        if len(axes) == 1:
            continue
        mask: Any = None
        for i, j in zip(axes, axes[1:]):
            eye = lax.eq(lax.broadcasted_iota(np.uint32, x.shape, i),
                         lax.broadcasted_iota(np.uint32, x.shape, j))
            mask = eye if mask is None else lax.bitwise_and(mask, eye)
        x = lax.select(mask, x, lax.full_like(x, 0))
        drop = axes if c not in keep else axes[:-1]
        x = _sum(x, tuple(drop))
        term = "".join(label for i, label in enumerate(term) if i not in drop)
    return x, term


def _prepare(x, term, keep, sizes):
    """Sums labels nobody else needs, takes diagonals, drops axes of size 1 that broadcast."""
    x, term = _sum_axes(x, term, {c for c in term if c not in keep and term.count(c) == 1})
    x, term = _diagonals(x, term, keep)
    stretched = [i for i, (c, n) in enumerate(zip(term, x.shape)) if n == 1 and sizes[c] != 1]
    if stretched:
        x = lax.squeeze(x, tuple(stretched))
        term = "".join(c for i, c in enumerate(term) if i not in stretched)
    return x, term


def _pair(a, ta, b, tb, keep, sizes, order, dot):
    a, ta = _prepare(a, ta, set(keep) | set(tb), sizes)
    b, tb = _prepare(b, tb, set(keep) | set(ta), sizes)
    # A label that survived for the other's sake may have been dropped there as a unit axis.
    a, ta = _sum_axes(a, ta, {c for c in ta if c not in keep and c not in tb})
    b, tb = _sum_axes(b, tb, {c for c in tb if c not in keep and c not in ta})
    shared = [c for c in ta if c in tb]
    batch = [c for c in shared if c in keep]
    contracted = [c for c in shared if c not in keep]
    free_a = [c for c in ta if c not in tb]
    free_b = [c for c in tb if c not in ta]
    if order is not None and [c for c in order if c in free_b + free_a] == free_b + free_a:
        # The other order of operands gives the requested axis order without a transpose.
        a, ta, b, tb, free_a, free_b = b, tb, a, ta, free_b, free_a
    numbers = (
        ([ta.index(c) for c in contracted], [tb.index(c) for c in contracted]),
        ([ta.index(c) for c in batch], [tb.index(c) for c in batch]),
    )
    return dot(a, b, numbers), "".join(batch + free_a + free_b)


def _finish(x, term, out, shape):
    if set(term) != set(out):
        # Labels whose every occurrence had size 1 were kept; nothing else may be missing.
        missing = [c for c in out if c not in term]
        x = lax.expand_dims(x, tuple(range(len(missing))))
        term = "".join(missing) + term
    permutation = [term.index(c) for c in out]
    if permutation != list(range(len(out))):
        x = lax.transpose(x, permutation)
    return x if tuple(x.shape) == shape else lax.broadcast_in_dim(x, shape, range(len(shape)))


def einsum(
    subscripts: Any, /, *operands: Any, out: None = None, optimize: Any = "auto",
    precision: Any = None, preferred_element_type: DTypeLike | None = None,
    _dot_general: Any = lax.dot_general, out_sharding: Any = None,
) -> Array:
    """Sums products of operands over labelled axes.

    Args: subscripts: text such as "ij,jk->ik" (ellipsis and repeated labels allowed), or operands
    and label lists in turn; optimize: "auto", False, or a path of `einsum_path`;
    precision, preferred_element_type: as for `lax.dot_general`.
    Raises: ValueError for malformed subscripts and sizes that do not match.
    out: None (NotImplementedError).

    >>> jnp.einsum("ij,ij->i", jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 1], [2, 2]]))
    Array([ 3, 14], dtype=int32)
    """
    if out_sharding is not None:
        return with_out_sharding(
            "einsum", out_sharding, einsum, subscripts, *operands, out=out, optimize=optimize,
            precision=precision, preferred_element_type=preferred_element_type, _dot_general=_dot_general,
        )  # fmt: skip
    reject_out("einsum", out)
    if not isinstance(subscripts, str):
        subscripts, operands = _interleaved(subscripts, operands)
    if isinstance(optimize, (str, bool)) and all(isinstance(x, Array) for x in operands):
        return _einsum_jit(tuple(operands), subscripts, optimize, precision,
                           preferred_element_type, _dot_general)
    return _einsum(operands, subscripts, optimize, precision, preferred_element_type,
                   _dot_general)


def _einsum(operands, subscripts, optimize, precision, preferred_element_type, _dot_general):
    arrays = list(ensure_arrays("einsum", *operands))
    shapes = [tuple(x.shape) for x in arrays]
    inputs, output = _parse(subscripts, shapes)
    sizes = _label_sizes(inputs, shapes)
    path = _contraction_path(inputs, output, sizes, optimize)
    if preferred_element_type is None:
        dtype, weak_type = dtypes.result_type(*arrays, return_weak_type_flag=True)
    else:
        dtype, weak_type = user_dtype(preferred_element_type, "einsum"), False

    def dot(a, b, numbers):
        return _dot_general(a, b, numbers, precision=precision, preferred_element_type=dtype)

    terms = list(inputs)
    shape = tuple(sizes[c] for c in output)
    for step, positions in enumerate(path):
        last = step == len(path) - 1
        group = [(arrays[i], terms[i]) for i in positions]
        arrays = [x for i, x in enumerate(arrays) if i not in positions]
        terms = [t for i, t in enumerate(terms) if i not in positions]
        keep = set(output).union(*terms)
        x, term = group[0]
        if len(group) == 1:
            x, term = _prepare(convert(x, dtype, weak_type), term, keep, sizes)
        for k, (y, other) in enumerate(group[1:], 2):
            later = keep.union(*(t for _, t in group[k:]))
            order = output if last and k == len(group) else None
            x, term = _pair(x, term, y, other, later, sizes, order, dot)
        arrays.append(x)
        terms.append(term)
    result = _finish(arrays[0], terms[0], output, shape)
    return convert(result, dtype, weak_type)


_einsum_jit = jit(
    _einsum, inline=True, static_argnames=(
        "subscripts", "optimize", "precision", "preferred_element_type", "_dot_general"))


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[list[Any], EinsumPathInfo]:
    """The contraction order of `einsum` and a text about its cost, without computing it.

    Returns: a list of position tuples, and an `EinsumPathInfo`.
    Args: subscripts, operands: as for `einsum`; optimize: False (left to right), a list of
    positions, else pairs are chosen greedily.

    >>> path, info = jnp.einsum_path("ij,jk,k", jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4))
    >>> path
    [(1, 2), (0, 1)]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _interleaved(subscripts, operands)
    shapes = [tuple(np.shape(x)) for x in operands]
    inputs, output = _parse(subscripts, shapes)
    sizes = _label_sizes(inputs, shapes)
    path = _contraction_path(inputs, output, sizes, optimize)
    return path, EinsumPathInfo(inputs, output, sizes, path)


class EinsumPathInfo:
    """Cost of a contraction order; its text lists the steps."""

    def __init__(self, inputs, output, sizes, path):
        self.eq = ",".join(inputs) + "->" + output
        self.naive_cost = math.prod(sizes.values()) * max(1, len(inputs))
        self.opt_cost = 0
        self.contraction_list = []
        self.largest_intermediate = 0
        terms = list(inputs)
        for positions in path:
            group = [terms[i] for i in positions]
            terms = [t for i, t in enumerate(terms) if i not in positions]
            keep = set(output).union(*terms)
            result = "".join(dict.fromkeys(c for t in group for c in t if c in keep))
            self.opt_cost += math.prod(sizes[c] for c in set("".join(group))) * len(group)
            elements = math.prod(sizes[c] for c in result)
            self.largest_intermediate = max(self.largest_intermediate, elements)
            self.contraction_list.append((tuple(positions), ",".join(group) + "->" + result))
            terms.append(result)

    def __repr__(self):
        lines = [f"einsum {self.eq}: {self.opt_cost} operations (unordered {self.naive_cost})"]
        lines += [f"  {positions} {text}" for positions, text in self.contraction_list]
        return "\n".join(lines)

