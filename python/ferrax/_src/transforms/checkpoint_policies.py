"""Which intermediate values a checkpointed function keeps for its derivative.

A policy is a callable `policy(prim, *avals, **params)`. It is asked for each operation of the
function whether the results are kept: with the operation as a primitive (by its `name`), the types
of its operands and its parameters. Policies defined here have a native counterpart, `native`,
which the compiler asks without calling Python.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any, NamedTuple

from ferrax import _core
from ferrax._src import core
from ferrax._src.core import api_util
from ferrax._src.core.primitives import builtin

__all__ = ["Offloadable", "Recompute", "Saveable", "checkpoint_policies", "native_policy"]

# The name of values that a policy keeps of what is done by each device, outside of that.
KEPT_WITHIN = "kept within"


class _Decision:
    """What a checkpoint policy may return for a value: `Saveable` or `Recompute`.

    >>> from ferrax.ad_checkpoint import Recompute, Saveable
    >>> def policy(primitive, *avals, **params):
    ...     return Saveable if primitive.name == "sin" else Recompute
    >>> ferrax.grad(ferrax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=policy))(0.0)
    Array(1., dtype=float32, weak_type=True)
    """

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return self._name


Saveable = _Decision("Saveable")
Recompute = _Decision("Recompute")


class Offloadable(NamedTuple):
    """A policy's decision to keep a value in another memory.

    The CPU has one memory, so the value is kept as it is.

    Attributes: `src` and `dst`, names of memories.

    >>> policies = ferrax.checkpoint_policies
    >>> policy = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    >>> loss = ferrax.checkpoint(lambda w: jnp.sin(w @ w).sum(), policy=policy)
    >>> ferrax.grad(loss)(jnp.zeros((2, 2)))
    Array([[0., 0.],
           [0., 0.]], dtype=float32)
    """

    src: str
    dst: str


def _saves(decision, policy) -> bool:
    if isinstance(decision, bool):
        return decision
    if decision is Saveable or isinstance(decision, Offloadable):
        return True
    if decision is Recompute:
        return False
    raise TypeError(
        f"the checkpoint policy {api_util.fun_place(policy)} must return a bool, Saveable, "
        f"Recompute or an Offloadable, got {decision!r}"
    )


def primitive(name):
    """The object that stands for an operation in a policy."""
    return builtin(name)


class _Asked:
    """The user's policy as the native core asks it."""

    def __init__(self, policy):
        self.policy = policy

    def __call__(self, name, types, params):
        if name == "name" and params["name"] == KEPT_WITHIN:
            return True
        avals = [core.ShapedArray(*ty) for ty in types]
        return _saves(self.policy(primitive(name), *avals, **params), self.policy)


def native_policy(policy):
    """The native counterpart of a policy; None for None.

    Errors: TypeError for what cannot be called.
    """
    if policy is None:
        return None
    found = getattr(policy, "native", None)
    if isinstance(found, _core.Policy):
        return found
    if not callable(policy):
        raise TypeError(
            f"a checkpoint policy must be a callable (prim, *avals, **params) -> bool, got "
            f"{policy!r}; see ferrax.checkpoint_policies"
        )
    return _core.python_policy(api_util.fun_name(policy), _Asked(policy))


def with_kept_within(policy):
    """The native counterpart of a policy, for programs that have values of that name: they are kept, too."""
    native, own = native_policy(policy), getattr(policy, "native", None)
    if native is not own:
        return native  # it knows the name by itself
    return _core.either_policy(own, _core.builtin_policy("names", [KEPT_WITHIN]))


def _native(name):
    def decorate(policy):
        policy.native = _core.builtin_policy(name)
        return policy

    return decorate


@_native("everything")
def everything_saveable(*_, **__) -> bool:
    """Keeps all that the derivative needs, as without `checkpoint`."""
    return True


@_native("nothing")
def nothing_saveable(*_, **__) -> bool:
    """Keeps the inputs alone, as `checkpoint` does without a policy."""
    return False


@_native("dots")
def dots_saveable(prim, *_, **__) -> bool:
    """Keeps the results of products and convolutions: what costs most to compute again."""
    return prim.name in ("dot_general", "conv_general_dilated")


@_native("dots_without_batch")
def dots_with_no_batch_dims_saveable(prim, *_, **params) -> bool:
    """Keeps the results of products without batch dimensions, such as activations times weights.

    Products with batch dimensions, such as attention scores, tend to be large; they are computed
    again.
    """
    return prim.name == "dot_general" and not any(params["dimension_numbers"][1])


def offload_dot_with_no_batch_dims(offload_src, offload_dst):
    """As `dots_with_no_batch_dims_saveable`; the CPU has one memory, so offloading is keeping.

    Args:
      offload_src, offload_dst: names of memories, which have no effect.
    """

    @_native("dots_without_batch")
    def policy(prim, *avals, **params):
        if dots_with_no_batch_dims_saveable(prim, *avals, **params):
            return Offloadable(offload_src, offload_dst)
        return Recompute

    return policy


@dataclasses.dataclass(frozen=True)
class _Named:
    """Keeps values by their names."""

    names: frozenset
    but_these: bool = False

    def __call__(self, prim, *_, **params) -> bool:
        return prim.name == "name" and (params["name"] in self.names) != self.but_these

    @functools.cached_property
    def native(self):
        return _core.builtin_policy("other_names" if self.but_these else "names", list(self.names))

    def __repr__(self):
        kind = "save_any_names_but_these" if self.but_these else "save_only_these_names"
        return f"{kind}({', '.join(map(repr, sorted(self.names)))})"


def save_only_these_names(*names_which_can_be_saved):
    """Keeps values that `checkpoint_name` gave one of these names, and nothing else.

    Example:
        >>> policy = ferrax.checkpoint_policies.save_only_these_names("hidden")
        >>> @functools.partial(ferrax.checkpoint, policy=policy)
        ... def layer(w, x):
        ...     return jnp.sin(checkpoint_name(x @ w, "hidden"))
    """
    return _Named(frozenset(names_which_can_be_saved))


def save_any_names_but_these(*names_not_to_save):
    """Keeps values that `checkpoint_name` gave any name but these, and nothing else."""
    return _Named(frozenset(names_not_to_save), but_these=True)


def save_anything_except_these_names(*names_not_to_save):
    """Keeps all values: JAX 0.10's policy of this name keeps named ones too, and so does this."""
    return everything_saveable


def save_and_offload_only_these_names(
    *, names_which_can_be_saved, names_which_can_be_offloaded, offload_src, offload_dst
):
    """Keeps values under the names of both collections; the CPU has one memory, so offloading is
    keeping.

    Args:
      names_which_can_be_saved, names_which_can_be_offloaded: names given by `checkpoint_name`.
      offload_src, offload_dst: names of memories, which have no effect.

    Errors: ValueError if a name is in both collections.
    """
    saved, offloaded = set(names_which_can_be_saved), set(names_which_can_be_offloaded)
    if saved & offloaded:
        raise ValueError(
            "save_and_offload_only_these_names: a name is either saved or offloaded, but "
            f"{sorted(saved & offloaded)} are in both names_which_can_be_saved and "
            "names_which_can_be_offloaded"
        )

    verdicts = dict.fromkeys(saved, Saveable)
    verdicts.update(dict.fromkeys(offloaded, Offloadable(offload_src, offload_dst)))

    def named(prim, *_, **params):
        return verdicts.get(params["name"], Recompute) if prim.name == "name" else Recompute

    policy: Any = named
    policy.native = _core.builtin_policy("names", sorted(saved | offloaded))
    return policy


def save_from_both_policies(policy_1, policy_2):
    """Keeps what either of two policies keeps.

    Errors: ValueError, when asked, if one of them returns anything but a bool.
    """

    def both(prim, *avals, **params):
        answers = [asked(prim, *avals, **params) for asked in (policy_1, policy_2)]
        if any(not isinstance(answer, bool) for answer in answers):
            raise ValueError(
                "save_from_both_policies takes policies that return bools, got "
                f"{answers}; write a policy of your own to combine these"
            )
        return True in answers

    policy: Any = both
    native_1, native_2 = (getattr(p, "native", None) for p in (policy_1, policy_2))
    if isinstance(native_1, _core.Policy) and isinstance(native_2, _core.Policy):
        policy.native = _core.either_policy(native_1, native_2)
    return policy


checkpoint_policies = types.SimpleNamespace(
    everything_saveable=everything_saveable,
    nothing_saveable=nothing_saveable,
    dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable,
    dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable,
    offload_dot_with_no_batch_dims=offload_dot_with_no_batch_dims,
    save_anything_except_these_names=save_anything_except_these_names,
    save_any_names_but_these=save_any_names_but_these,
    save_only_these_names=save_only_these_names,
    save_from_both_policies=save_from_both_policies,
    save_and_offload_only_these_names=save_and_offload_only_these_names,
)
