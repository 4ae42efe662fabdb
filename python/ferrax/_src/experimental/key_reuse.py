"""Finds random keys that are used twice: `debug_key_reuse`, `check_key_reuse`.

In: jaxprs, and the arrays that they run on. Out: what a jaxpr does with keys, a `KeyReuseSignature`, or a
`KeyReuseError`. A key is *consumed* when numbers are drawn from it or it is split, or by an operation of which
nothing is known. What hands a key on (a reshape, a copy) makes another name of the same key.

Under the flag the native core calls `follow` before all that runs, and what that returns with the results. Which
keys are consumed is kept beside the arrays, in a table by identity, which forgets an array when it goes; so the
use of a key is followed across calls, and without the flag nothing is kept and nothing asked. A program is
analysed each time that it runs, which takes time linear in its size.

Invariants:
- A mask says which elements of an array of keys are consumed; `True` and `False` stand for all and none.
- Names of one key share one mask, that of the first of them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax import _core
from ferrax._src.base import dtypes
from ferrax._src.base.effects import Effect
from ferrax._src.base.errors import KeyReuseError
from ferrax._src.core import scan_params
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import Primitive, builtin
from ferrax._src.random.gamma import random_gamma_p
from ferrax._src.tracing import staging
from ferrax._src.transforms.batching_rules import defvectorized

Mask = bool | np.ndarray


# ---------------------------------------------------------------------------------------------
# Signatures.


class _End:
    """What happens to the keys of one input or output. Equal by value, cannot be changed."""

    __slots__ = ("idx", "mask")
    idx: int
    mask: Mask

    def __init__(self, idx: int, mask: Any = True) -> None:
        mask = np.array(mask, bool)
        same = not mask.any() or mask.all()
        mask.flags.writeable = False
        object.__setattr__(self, "idx", idx)
        object.__setattr__(self, "mask", bool(mask.any()) if same else mask)

    def __setattr__(self, name, value):
        raise ValueError(f"a {type(self).__name__} cannot be changed")

    def _value(self):
        mask = np.asarray(self.mask)
        return type(self).__name__, self.idx, mask.shape, mask.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _End) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        mask = "" if self.mask is True else f", {self.mask}"
        return f"{type(self).__name__}({self.idx}{mask})"


class Sink(_End):
    """The input with this number is consumed, where `mask` is true.

    >>> from ferrax.experimental.key_reuse import Sink
    >>> Sink(0)
    Sink(0)
    """

    __slots__ = ()


class Source(_End):
    """The output with this number is fresh keys, where `mask` is true.

    >>> from ferrax.experimental.key_reuse import Source
    >>> Source(1)
    Source(1)
    """

    __slots__ = ()


class Forward(NamedTuple):
    """An output is the same keys as an input.

    >>> from ferrax.experimental.key_reuse import Forward
    >>> Forward(0, 1)
    Forward(0, 1)
    """

    in_idx: int
    out_idx: int

    def __repr__(self) -> str:
        return f"Forward({self.in_idx}, {self.out_idx})"


class KeyReuseSignature:
    """What an operation or a function does with keys: a set of `Sink`s, `Source`s and `Forward`s.

    Outputs that are neither sources nor handed on are consumed keys.

    >>> from ferrax.experimental.key_reuse import KeyReuseSignature, Sink, Source
    >>> KeyReuseSignature(Sink(1), Source(0))
    KeyReuseSignature(Sink(1), Source(0))
    """

    def __init__(self, *ends: Sink | Source | Forward) -> None:
        self._ends = frozenset(ends)

    def _of(self, kind):
        return sorted((end for end in self._ends if isinstance(end, kind)), key=repr)

    @property
    def sinks(self) -> Iterator[Sink]:
        return iter(self._of(Sink))

    @property
    def sources(self) -> Iterator[Source]:
        return iter(self._of(Source))

    @property
    def forwards(self) -> Iterator[Forward]:
        return iter(self._of(Forward))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyReuseSignature) and self._ends == other._ends

    def __hash__(self) -> int:
        return hash(self._ends)

    def __repr__(self) -> str:
        ends = [*self.sinks, *self.sources, *self.forwards]
        return f"KeyReuseSignature({', '.join(map(repr, ends))})"


# ---------------------------------------------------------------------------------------------
# Marks of the user's, for tests.


class _KeyEffect(Effect):
    """Keeps a mark in a program although nobody uses its result."""


_effect = _KeyEffect()


def _mark(name) -> Primitive:
    primitive = Primitive(name)
    primitive.def_impl(lambda x, **params: x)
    primitive.def_effectful_abstract_eval(lambda x, **params: (x, {_effect}))
    register_lowering(primitive, lower_fun(lambda x, **params: x, multiple_results=False))
    defvectorized(primitive)
    return primitive


consume_p = _mark("consume")
assert_consumed_value_p = _mark("assert_consumed_value")


def consume(key: Any) -> Any:
    """The keys, which count as consumed from now on.

    >>> from ferrax.experimental.key_reuse import check_key_reuse, consume
    >>> check_key_reuse(consume, ferrax.random.key(0))
    """
    return consume_p.bind(key)


class _Expected:
    """A mask as a parameter of an equation: equal by value."""

    def __init__(self, mask):
        self.end = Sink(0, mask)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Expected) and self.end == other.end

    def __hash__(self) -> int:
        return hash(self.end)


def assert_unconsumed(key: Any) -> None:
    """Says that keys are not consumed here; an AssertionError of `check_key_reuse` if they are.

    >>> from ferrax.experimental.key_reuse import assert_unconsumed, check_key_reuse
    >>> check_key_reuse(assert_unconsumed, ferrax.random.key(0))
    """
    assert_consumed_value_p.bind(key, value=_Expected(False))


def assert_consumed(key: Any, value: Any = True) -> None:
    """Says that keys are consumed here, or those where `value` is true.

    >>> from ferrax.experimental.key_reuse import assert_consumed, check_key_reuse, consume
    >>> check_key_reuse(lambda key: (consume(key), assert_consumed(key))[0], ferrax.random.key(0))
    """
    assert_consumed_value_p.bind(key, value=_Expected(value))


# ---------------------------------------------------------------------------------------------
# Signatures of operations, by name.

_hands_on = KeyReuseSignature(Forward(0, 0))
_consumes = KeyReuseSignature(Sink(0))
_makes = KeyReuseSignature(Source(0))
_looks = KeyReuseSignature()

_FIXED: dict[str, KeyReuseSignature] = {
    "consume": KeyReuseSignature(Sink(0), Forward(0, 0)),
    "assert_consumed_value": _hands_on,
    "random_bits": _consumes,
    "random_gamma": _consumes,
    "random_split": KeyReuseSignature(Sink(0), Source(0)),
    "dynamic_update_slice": KeyReuseSignature(Sink(1), Forward(0, 0)),
    "scatter": KeyReuseSignature(Sink(2), Forward(0, 0)),
    **dict.fromkeys(("random_fold_in", "random_seed", "random_wrap", "random_clone"), _makes),
    **dict.fromkeys(("random_unwrap", "debug_callback", "eq", "ne"), _looks),
    **dict.fromkeys(
        ("broadcast_in_dim", "copy", "copy_p", "convert_element_type", "dynamic_slice", "gather", "layout_constraint",
         "reshape", "reshard", "sharding_constraint", "squeeze", "stage"),
        _hands_on,
    ),
}  # fmt: skip


def _is_key(atom) -> bool:
    return dtypes.issubdtype(getattr(atom.aval, "dtype", None), dtypes.prng_key)


def _inner(params, name) -> KeyReuseSignature:
    found = params[name]
    return jaxpr_type_signature(found.open if isinstance(found, ClosedJaxpr) else found)


def _of_slice(eqn):
    if not _is_key(eqn.invars[0]):
        return _hands_on
    params = eqn.params
    mask = np.zeros(eqn.invars[0].aval.shape, bool)
    strides = params["strides"] or (1,) * mask.ndim
    mask[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))] = True
    return KeyReuseSignature(Sink(0, mask), Source(0))


def _of_concatenate(eqn):
    if len(eqn.invars) == 1:
        return _hands_on
    return KeyReuseSignature(*map(Sink, range(len(eqn.invars))), Source(0))


def _of_device_put(eqn):
    return KeyReuseSignature(*(Forward(n, n) for n in range(len(eqn.invars))))


def _of_cond(eqn):
    """What any branch consumes is consumed, what all make or hand on is so. The first input is the choice."""
    branches = [jaxpr_type_signature(branch.open) for branch in eqn.params["branches"]]
    sinks: dict[int, Any] = {}
    sources: dict[int, list] = {}
    for branch in branches:
        for sink in branch.sinks:
            sinks[sink.idx] = np.logical_or(sinks.get(sink.idx, False), sink.mask)
        for source in branch.sources:
            sources.setdefault(source.idx, []).append(source.mask)
    alike = frozenset.intersection(*(frozenset(branch.forwards) for branch in branches))
    return KeyReuseSignature(
        *(Sink(n + 1, mask) for n, mask in sinks.items()),
        *(Source(n, functools.reduce(np.logical_and, masks)) for n, masks in sources.items()
          if len(masks) == len(branches)),
        *(Forward(end.in_idx + 1, end.out_idx) for end in alike),
    )  # fmt: skip


def _refuse_loop(what, eqn, body):
    raise KeyReuseError(
        f"{what} leads to key reuse when repeatedly executed: split the key in each step, and carry one of the new "
        f"keys to the next.\n  signature={body}\n  at {eqn.source_info.line or 'an unknown line'}"
    )


def _of_scan(eqn):
    body = _inner(eqn.params, "jaxpr")
    params = scan_params.counted(eqn.params)
    consts, carries = params["num_consts"], params["num_carry"]
    made = {end.idx for end in body.sources if np.any(end.mask)}
    for end in body.sinks:
        if end.idx < consts or (end.idx < consts + carries and end.idx - consts not in made):
            _refuse_loop("scan body function", eqn, body)
    return body


def _of_while(eqn):
    params = eqn.params
    condition, body = _inner(params, "cond_jaxpr"), _inner(params, "body_jaxpr")
    made = {end.idx for end in body.sources if np.any(end.mask)}
    used = {}
    for what, signature, consts in (
        ("cond", condition, params["cond_nconsts"]), ("body", body, params["body_nconsts"])
    ):  # fmt: skip
        used[what] = {end.idx - consts for end in signature.sinks}
        if not used[what] <= made:
            _refuse_loop(f"while_loop {what} function", eqn, signature)
    if used["cond"] & used["body"]:
        _refuse_loop("the condition and the body of a while_loop both use one key, which", eqn, body)
    first = params["cond_nconsts"]
    consts = params["body_nconsts"]
    return KeyReuseSignature(
        *(Sink(n + first + consts) for n in used["cond"]),
        *(Sink(end.idx + first, end.mask) for end in body.sinks),
        *body.sources,
        *(Forward(end.in_idx + first, end.out_idx) for end in body.forwards if end.in_idx == end.out_idx + consts),
    )


def _of_checkpoint(eqn):
    # The second run draws the same numbers again.
    return _looks if eqn.params.get("differentiated") else _inner(eqn.params, "jaxpr")


# Those that do not depend on parameters, by primitive.
key_reuse_signatures = {
    consume_p if name == "consume" else builtin(name): signature
    for name, signature in _FIXED.items()
    if name not in ("assert_consumed_value", "random_gamma")
} | {random_gamma_p: _consumes}

_RULES: dict[str, Callable[[JaxprEqn], KeyReuseSignature]] = {
    "slice": _of_slice,
    "concatenate": _of_concatenate,
    "device_put": _of_device_put,
    "jit": lambda eqn: _inner(eqn.params, "jaxpr"),
    "shard_map": lambda eqn: _inner(eqn.params, "jaxpr"),
    "checkpoint": _of_checkpoint,
    "remat2": _of_checkpoint,
    "cond": _of_cond,
    "scan": _of_scan,
    "while": _of_while,
}


def key_reuse_signature_from_eqn(eqn: JaxprEqn) -> KeyReuseSignature:
    """What an equation does with keys. An operation of which nothing is known consumes all that go in.

    >>> from ferrax._src.experimental.key_reuse import key_reuse_signature_from_eqn
    >>> eqn = ferrax.make_jaxpr(ferrax.random.split)(ferrax.random.key(0)).eqns[0]
    >>> key_reuse_signature_from_eqn(eqn)
    KeyReuseSignature(Sink(0), Source(0))
    """
    name = eqn.primitive.name
    if name in _FIXED:
        return _FIXED[name]
    if name in _RULES:
        return _RULES[name](eqn)
    return KeyReuseSignature(*(Sink(n) for n, atom in enumerate(eqn.invars) if _is_key(atom)))


# ---------------------------------------------------------------------------------------------
# Jaxprs.


class _Keys:
    """Which keys of a jaxpr are consumed, at an equation."""

    def __init__(self):
        self.same_as: dict[Any, Any] = {}
        self.masks: dict[Any, Mask] = {}

    def first(self, atom):
        while not isinstance(atom, Literal) and atom in self.same_as:
            atom = self.same_as[atom]
        return atom

    def consumed(self, atom) -> Mask:
        return False if isinstance(atom, Literal) else self.masks.get(self.first(atom), False)

    def consume(self, atom, mask) -> bool:
        """Whether some of the keys are consumed already."""
        first = self.first(atom)
        if np.shape(mask) not in ((), tuple(first.aval.shape)):
            mask = True
        known = self.masks.get(first, False)
        self.masks[first] = np.logical_or(known, mask)
        return bool(np.any(np.logical_and(known, mask)))


def _check_expected(eqn, consumed):
    expected = eqn.params["value"].end.mask
    if not np.all(np.asarray(consumed) == expected):
        raise AssertionError(f"expected {expected} for whether keys are consumed, found {consumed}, in {eqn}")


def jaxpr_type_signature(jaxpr: Jaxpr) -> KeyReuseSignature:
    """What a jaxpr does with the keys among its inputs and outputs. Inputs are numbered with the constants last.

    Errors: KeyReuseError if it uses a key twice; AssertionError for keys that are not as asserted.

    >>> from ferrax.experimental.key_reuse import jaxpr_type_signature
    >>> jaxpr_type_signature(ferrax.make_jaxpr(ferrax.random.bits)(ferrax.random.key(0)).jaxpr)
    KeyReuseSignature(Sink(0))
    """
    keys = _Keys()
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        signature = key_reuse_signature_from_eqn(eqn)
        if name == "assert_consumed_value":
            _check_expected(eqn, keys.consumed(eqn.invars[0]))
        for given, out in signature.forwards:
            if not isinstance(eqn.invars[given], Literal):
                keys.same_as[eqn.outvars[out]] = eqn.invars[given]
        for end in signature.sinks:
            # Constants of an inner jaxpr are no inputs of the equation.
            if end.idx < len(eqn.invars) and _is_key(eqn.invars[end.idx]):
                if keys.consume(eqn.invars[end.idx], end.mask):
                    where = eqn.source_info.line
                    raise KeyReuseError(
                        f"In {name}, argument {end.idx} is already consumed.{f' At {where}.' if where else ''}"
                    )
        fresh = {end.idx: end.mask for end in signature.sources}
        for n, variable in enumerate(eqn.outvars):
            if _is_key(variable) and variable not in keys.same_as:
                keys.masks[variable] = np.logical_not(fresh.get(n, False))
    inputs = [*jaxpr.invars, *jaxpr.constvars]
    ends: list[Sink | Source | Forward] = [
        Sink(n, keys.masks[v]) for n, v in enumerate(inputs) if _is_key(v) and np.any(keys.masks.get(v, False))
    ]
    for n, atom in enumerate(jaxpr.outvars):
        if isinstance(atom, Literal) or not _is_key(atom):
            continue
        first = keys.first(atom)
        if first in inputs:
            ends.append(Forward(inputs.index(first), n))
        elif not np.all(keys.consumed(atom)):
            ends.append(Source(n, np.logical_not(keys.consumed(atom))))
    return KeyReuseSignature(*ends)


def function_type_signature(fun: Callable[..., Any], *args: Any) -> KeyReuseSignature:
    """What a function does with the keys among its arguments, which may be abstract.

    Errors: as of `check_key_reuse`.

    >>> from ferrax.experimental.key_reuse import function_type_signature
    >>> function_type_signature(ferrax.random.split, ferrax.random.key(0))
    KeyReuseSignature(Sink(0), Source(0))
    """
    return jaxpr_type_signature(staging.make_jaxpr(fun)(*args).open)


def check_key_reuse_jaxpr(jaxpr: Jaxpr) -> None:
    """Checks a jaxpr for keys that are used twice.

    Errors: KeyReuseError.

    >>> from ferrax.experimental.key_reuse import check_key_reuse_jaxpr
    >>> check_key_reuse_jaxpr(ferrax.make_jaxpr(ferrax.random.split)(ferrax.random.key(0)).jaxpr)
    """
    jaxpr_type_signature(jaxpr)


def check_key_reuse(fun: Callable[..., Any], /, *args: Any) -> None:
    """Traces a function and checks it for keys that are used twice, without running it.

    Args: fun: the function; args: its arguments, arrays or their types.
    Errors: KeyReuseError if it uses a key twice.

    >>> from ferrax.experimental.key_reuse import check_key_reuse
    >>> check_key_reuse(lambda key: ferrax.random.normal(key) + 1, ferrax.random.key(0))
    """
    function_type_signature(fun, *args)


# ---------------------------------------------------------------------------------------------
# Arrays: what was consumed, and where.


class _Use(NamedTuple):
    array: weakref.ref
    mask: Mask
    line: str | None


_uses: dict[int, _Use] = {}


def consumed(array: Any) -> Mask:
    """Which of an array's keys were consumed while `debug_key_reuse` was set.

    >>> from ferrax._src.experimental.key_reuse import consumed
    >>> consumed(ferrax.random.key(0))
    False
    """
    known = _uses.get(id(array))
    return False if known is None else known.mask


def _set(array, mask, line=None):
    key = id(array)
    if not np.any(mask):
        _uses.pop(key, None)
        return
    # The entry is dropped before the address can be another array's.
    _uses[key] = _Use(weakref.ref(array, lambda _: _uses.pop(key, None)), mask, line)


def _is_key_array(value):
    return value is not None and dtypes.issubdtype(value.dtype, dtypes.prng_key)


def follow(program: Any, name: str, values: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
    """Checks a program that is about to run on these values (`None` for numbers), for the native core.

    Returns what is to be called with the results. Errors: KeyReuseError.

    >>> from ferrax._src.experimental import key_reuse
    >>> with ferrax.debug_key_reuse(True):
    ...     key = ferrax.random.key(0)
    ...     numbers = ferrax.random.bits(key)
    >>> key_reuse.consumed(key)
    True
    """
    signature = jaxpr_type_signature(ClosedJaxpr(program).open)
    sinks = [end for end in signature.sinks if end.idx < len(values) and _is_key_array(values[end.idx])]
    for end in sinks:
        known = _uses.get(id(values[end.idx]))
        if known is not None and np.any(np.logical_and(known.mask, end.mask)):
            line = "" if known.line is None else f" It was used before at {known.line}."
            raise KeyReuseError(f"Previously-consumed key passed to {name} at index {end.idx}.{line}")

    def done(results: Sequence[Any]) -> None:
        line = _core.user_location()
        for end in sinks:
            mask = np.logical_or(consumed(values[end.idx]), end.mask)
            _set(values[end.idx], True if np.all(mask) else mask, line)
        fresh = {end.idx: end.mask for end in signature.sources}
        handed = {end.out_idx: end.in_idx for end in signature.forwards if end.in_idx < len(values)}
        for n, result in enumerate(results):
            if not _is_key_array(result):
                continue
            if n in handed:
                mask = consumed(values[handed[n]])
                same = np.shape(mask) in ((), result.shape)
                _set(result, mask if same else bool(np.any(mask)), line)
            else:
                _set(result, np.logical_not(fresh.get(n, False)), line)

    return done
