"""What branches and loops share: bodies as flat functions, and the checks of what they return.

A type is `(shape, dtype, weak)` here, as the native core gives it. Two types match if they differ
in weakness at most.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.core import api_util, float0 as float0_leaves, named_axes
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.explicit_types import all_typed, meshes_of, set_type, without_axis
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.varying import lying
from ferrax._src.state import arguments as ref_args
from ferrax._src.tracing import known
from ferrax._src.tracing.abstract_values import stand_in
from ferrax._src.tree import tree_util
from ferrax._src.tree.tree_paths import equality_errors_pytreedef

# Stands for an argument that was not given.
absent: Any = object()


class _State(threading.local):
    """The kinds of the bodies that this thread traces, outermost first."""

    def __init__(self) -> None:
        self.bodies: tuple[str, ...] = ()


_state = _State()


def bodies() -> tuple[str, ...]:
    """Which branches and bodies of loops are traced now, outermost first: "cond", "switch", "scan", "while_body", …"""
    return _state.bodies


class OfUser:
    """A function made of the user's function `func` and of what else it depends on, `rest`."""

    __slots__ = ("func", "rest")

    def __init__(self, func, *rest):
        self.func = func
        self.rest = rest


class Body:
    """A function of a list of arrays that calls `fun` on trees of them; keeps the output's tree.

    `refs` are the leaves that are mutable arrays, by number; `explicit` are the explicit types of all.
    """

    __slots__ = ("fun", "trees", "out_tree", "kind", "refs", "explicit", "explicit_out")

    def __init__(self, fun, trees, kind, refs=None, explicit=()):
        self.fun = fun
        self.trees = trees
        # Of the output, once the function is traced.
        self.out_tree: Any = None
        self.kind = kind
        self.refs = refs
        self.explicit = explicit
        self.explicit_out: Any = None

    def __call__(self, leaves):
        outside = _state.bodies
        _state.bodies = (*outside, self.kind)
        try:
            return self._traced(leaves)
        finally:
            _state.bodies = outside

    def _traced(self, leaves):
        for leaf, sharding in zip(leaves, self.explicit):
            set_type(leaf, sharding)
        if self.refs:
            leaves = ref_args.place(leaves, self.refs, argument_names(self.fun, self.trees))
        args, start = [], 0
        for tree in self.trees:
            stop = start + tree.num_leaves
            args.append(tree.unflatten(leaves[start:stop]))
            start = stop
        result = self.fun(*args)
        leaves, self.out_tree = float0_leaves.flatten(result)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, ShapeDtypeStruct):
                leaves[index] = stand_in(leaf)
            elif not isinstance(leaf, core.Array):
                ref_args.check_returned(self.fun, self.kind, leaves, result)
                _check_output(self.fun, self.out_tree, index, leaf)
        self.explicit_out = all_typed(leaves)
        if self.kind in ("scan", "while_body"):
            self._check_carry(self.trees[0].num_leaves)
        return leaves

    def _check_carry(self, count):
        """Errors: TypeError where the carry is divided differently after a step."""
        for number, (before, after) in enumerate(zip(self.explicit[:count], self.explicit_out)):
            if after is None or (before is None and api_util.is_own(self.fun)):
                continue
            if (before is None and (any(after.spec.partitions) or after.spec.unreduced or after.spec.reduced)) or (
                before is not None and before.spec != after.spec
            ):
                raise TypeError(
                    f"{self.kind}: the carry has to keep its type from step to step, and "
                    f"component {number} is divided as "
                    f"{None if before is None else before.spec} before and as {after.spec} "
                    f"after a step of {api_util.fun_place(self.fun)}: reshard it"
                    f"{at_user_line()}"
                )


def _check_output(fun, tree, index, leaf):
    try:
        _core.type_of(leaf)
    except TypeError as error:
        path = paths(tree)[index]
        raise TypeError(
            f"function {api_util.fun_place(fun)} returned a value of type {type(leaf).__name__}"
            f"{f' at output component {path}' if path else ''}, which is not a valid array type: "
            f"{leaf!r}. Return arrays, numbers or pytrees of them.{at_user_line()}"
        ) from error


def flatten(tree, what):
    """The leaves of a tree that are arrays or numbers, its structure and the leaves' types."""
    leaves, treedef = float0_leaves.flatten(tree)
    return leaves, treedef, [type_of(leaf, what) for leaf in leaves]


def type_of(leaf, what):
    try:
        return _core.type_of(leaf)
    except TypeError as error:
        raise TypeError(
            f"{what} takes arrays, numbers and pytrees of them, got {leaf!r} of type "
            f"{type(leaf).__name__}, which is not a valid array type."
        ) from error


def argument_names(fun, trees):
    """A function that names the leaves of the arguments, for messages about tracers."""
    own = getattr(fun, "leaf_names", None)
    return functools.partial(leaf_names, fun, trees) if own is None else lambda: own(trees)


def leaf_names(fun, trees):
    """The names of the leaves of the arguments of `fun` that have these structures."""
    args = [float0_leaves.hide(tree_util.with_placeholders(tree)) for tree in trees]
    return api_util.argument_names(fun, args, None)


def traced_leaves(leaves):
    """The leaves that are arrays of the native core, None for others: what messages about tracers follow."""
    return [leaf if issubclass(type(leaf), core.Array) else None for leaf in leaves]


def traced_body(fun, trees, types, kind, leaves, refs=None, found=None):
    """`(body, out_tree)` of a function of trees of these types, which may be known from before.

    `leaves` are the arguments that the body is first run with, or arrays that its arguments are
    elements of; `refs` are those that are mutable arrays, by number. The explicit types of the outputs are added to the
    list `found`.
    """
    explicit = [
        without_axis(sharding, 0 if len(ty[0]) < len(sharding.spec) else None) if sharding is not None else None
        for sharding, ty in zip(all_typed(leaves), types)
    ]
    user, rest = (fun.func, (type(fun), *fun.rest)) if isinstance(fun, OfUser) else (fun, ())
    key = None
    if not refs:
        result, key = known.find(user, (*rest, *trees, *types, *filter(None, explicit), *meshes_of(leaves)))
        if result is not None:
            if found is not None:
                found.append(result[2])
            return result[:2]
    body = Body(fun, trees, kind, refs, explicit)
    traced = _core.trace_body(
        body,
        api_util.fun_name(fun),
        types,
        argument_names(fun, trees),
        traced_leaves(leaves),
    )
    if key is not None and traced.lasts:
        known.keep(user, key, (traced, body.out_tree, body.explicit_out))
    if found is not None:
        found.append(body.explicit_out)
    return traced, body.out_tree


def trace(fun, trees, types, kind, leaves, refs=None):
    """`(program, captured, out_tree, touched)`; what is captured are the program's first inputs.

    `touched` is None, or what `fun` does to mutable arrays: the values that it gives to them are the
    program's last outputs.
    """
    traced, out_tree = traced_body(fun, trees, types, kind, leaves, refs)
    program, captured, touched = traced.of_loop()
    return program, captured, out_tree, touched


def carry_refs(program, captured, touched, carry):
    """`(program, captured, values)` with what the refs hold as the last `values` of the carry.

    `carry` is the number of leaves in the carry of a body whose inputs are captured values, carry
    and others, and whose outputs are carry, others and the values of refs.
    """
    written = [] if touched is None else touched.written
    if not written:
        return program, captured, []
    places = [entry.position for entry in written]
    kept = [place for place in range(len(captured)) if place not in places]
    first = len(captured)
    inputs = len(program.in_types)
    outputs = len(program.out_types)
    values = outputs - touched.count
    program = program.rearranged(
        [*kept, *range(first, first + carry), *places, *range(first + carry, inputs)],
        [
            *range(carry),
            *range(values, values + len(written)),
            *range(carry, values),
            *range(values + len(written), outputs),
        ],
    )
    return program, [captured[place] for place in kept], [captured[place] for place in places]


def matches(type1, type2) -> bool:
    return type1[0] == type2[0] and type1[1] == type2[1] and type1[3:] == type2[3:]


def continues(before, after) -> bool:
    """Whether a value of the one type may be the next one of a carry of the other: what varies over axes of a mesh
    may stay the same along some."""
    return matches(before[:3], after[:3]) and set(*before[3:]) >= set(*after[3:])


def type_text(ty) -> str:
    """A type as `float32[2,3]`."""
    return core.ShapedArray(*ty).str_short()


def at_user_line() -> str:
    line = _core.user_location()
    return f"\nAt {line}." if line else ""


def promote_weak(leaf, ty, body_type):
    """A weakly typed initial value in the dtype that the body gives it; None if it needs none."""
    if not ty[2] or matches(ty, body_type) or ty[1] == body_type[1]:
        return None
    dtype, _ = _core.promote_types([(ty[1], True), (body_type[1], body_type[2])])
    if dtype == ty[1]:
        return None
    if isinstance(leaf, core.Array):
        return _convert_element_type(leaf, dtype, weak_type=False)
    return np.asarray(leaf).astype(dtype)[()]


def promote_carry(init, types, out_types, body):
    """`(init, types, whether any changed)` with weak values promoted to the body's types, and, if the body is one of
    this package's, values that are the same along axes of a mesh taken as ones that differ where they do after a step.
    """
    changed = False
    init, types = list(init), list(types)
    own = api_util.is_own(body)
    for index, (leaf, ty, out) in enumerate(zip(init, types, out_types)):
        promoted = promote_weak(leaf, ty, out)
        missing: set[str] = set(*out[3:]) - set(*ty[3:]) if own else set()
        if missing and matches(ty[:2], out[:2]):
            promoted = lying(core.as_array(leaf), missing)
        if promoted is not None:
            init[index], types[index], changed = promoted, _core.type_of(promoted), True
    return init, types, changed


def paths(tree):
    """The path of each leaf, as text."""
    dummy = float0_leaves.hide(tree_util.with_placeholders(tree))
    return [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path(dummy)]


def _bullets(differences) -> str:
    if len(differences) == 1:
        text = differences[0]
        return f"T{text[1:]}." if text.startswith("the ") else f"{text}."
    return ";\n".join(f"  * {text}" for text in differences) + "."


def _mismatch(text, differences, revise) -> TypeError:
    return TypeError(f"{text}\n\n{_bullets(differences)}\n\n{revise}{at_user_line()}")


def _first_parameter(fun):
    parameters = api_util._parameters(fun)
    return parameters[0][0] if parameters and parameters[0] else None


def _with_float0(tree, types):
    """The structure and the types where arrays of dtype float0 are leaves too."""
    leaves, tree = tree_util.tree_flatten(tree_util.with_placeholders(tree))
    rest = iter(types)
    return tree, [
        (leaf.shape, leaf.dtype, False) if float0_leaves.is_float0(leaf) else next(rest)
        for leaf in leaves
    ]


def check_carry(name, fun, in_tree, in_types, out_tree, out_types) -> None:
    """TypeError that lists the leaves where a carry's structure or types change."""
    if in_tree == out_tree and all(map(continues, in_types, out_types)):
        return
    in_tree, in_types = _with_float0(in_tree, in_types)
    out_tree, out_types = _with_float0(out_tree, out_types)
    parameter = _first_parameter(fun)

    def component(path):
        if not path:
            return f"the input carry {parameter}" if parameter else "the input carry"
        if parameter:
            return f"the input carry component {parameter}{path}"
        return f"the input carry at {path}"

    place = f"{name} is {api_util.fun_place(fun)}."
    if in_tree != out_tree:
        differences = [
            f"{component(tree_util.keystr(path))} is a {first} but comes out as a "
            f"{second}, so {explanation}"
            for path, first, second, explanation in equality_errors_pytreedef(in_tree, out_tree)
        ]
        if not differences:
            return
        raise _mismatch(
            f"{name}: the carry has to keep the same pytree structure from step to step, but it changes:",
            differences,
            f"{place} Let it return a carry of the structure that it takes, or start from one that "
            "it returns.",
        )
    differences = [
        f"{component(path)} has type {type_text(before)} but comes out with type "
        f"{type_text(after)}{_difference(before, after, 'the initial value')}"
        for path, before, after in zip(paths(in_tree), in_types, out_types)
        if not continues(before, after)
    ]
    raise _mismatch(
        f"{name}: the carry has to keep its shapes and dtypes from step to step, but they change:",
        differences,
        f"{place} Convert what it returns (astype, reshape), or start from a carry of those types.",
    )


def _difference(first, second, less) -> str:
    what = [name for name, i in (("shapes", 0), ("dtypes", 1)) if first[i] != second[i]]
    if what:
        return f", so the {' and '.join(what)} do not match"
    axes = tuple(map(named_axes.from_text, sorted(set(*second[3:]) ^ set(*first[3:]))))
    return (
        f", so one may differ along {axes} of the mesh where the other does not. This might be fixed by applying "
        f"`lax.pcast(..., {axes}, to='varying')` to {less}, or by check_vma=False in shard_map"
    )


def check_explicit_branches(name, labels, explicit) -> None:
    """TypeError where a branch's outputs are divided differently from the first branch's."""
    for label, own in zip(labels[1:], explicit[1:]):
        for number, (first, second) in enumerate(zip(explicit[0], own)):
            if first is not None and second is not None and first.spec != second.spec:
                raise TypeError(
                    f"{name}: output {number} of {labels[0]} is divided as {first.spec}, and that of {label} as "
                    f"{second.spec}: reshard one.{at_user_line()}"
                )


def check_branches(name, labels, funs, trees, types) -> None:
    """TypeError that lists the leaves where a branch's outputs differ from the first branch's."""
    for label, fun, tree, own in zip(labels[1:], funs[1:], trees[1:], types[1:]):
        if tree == trees[0] and all(map(matches, types[0], own)):
            continue
        _raise_branch_mismatch(
            name, (labels[0], funs[0], trees[0], types[0]), (label, fun, tree, own)
        )


def _raise_branch_mismatch(name, first, second):
    (label1, fun1, tree1, types1), (label2, fun2, tree2, types2) = first, second
    tree1, types1 = _with_float0(tree1, types1)
    tree2, types2 = _with_float0(tree2, types2)

    def at(path):
        return f" at path {path}" if path else ""

    places = f"\n\n{label1} is {api_util.fun_place(fun1)}\n{label2} is {api_util.fun_place(fun2)}"
    if tree1 != tree2:
        differences = [
            f"{label1} output{at(tree_util.keystr(path))} is a {thing1}, that of {label2} "
            f"a {thing2}: {explanation}"
            for path, thing1, thing2, explanation in equality_errors_pytreedef(tree1, tree2)
        ]
        if not differences:
            return
        raise _mismatch(
            f"{name}: all branches have to return the same pytree structure, got two:{places}",
            differences,
            f"Let {label2} return the structure of {label1}, or the other way round.",
        )
    differences = [
        f"the output of {label1}{at(path)} has type {type_text(a)}, and that of {label2} has "
        f"type {type_text(b)}{_difference(a, b, 'the one that varies less')}"
        for path, a, b in zip(paths(tree1), types1, types2)
        if not matches(a, b)
    ]
    raise _mismatch(
        f"{name}: all branches have to return the same shapes and dtypes, got two:{places}",
        differences,
        f"Convert the outputs of {label1} or {label2} (astype, reshape, broadcast_to).",
    )
