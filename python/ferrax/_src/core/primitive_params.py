"""Parameters of the native core's equations as JAX names and types them, and back.

The native core keeps what computation needs. A walker of jaxprs sees more, and in other types:
parameters that are the same in every equation here (`accuracy=None`, `sharding=None`), dimension
numbers as one tuple, enumerations for strings, jaxprs for programs. `native` takes both forms, so
that an equation's parameters can be bound again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src.base import effects
from ferrax._src.base.extended_dtypes import REGISTERED, REGISTERED_BY_NAME
from ferrax._src.base.jax_version import follows
from ferrax._src.core import named_axes, scan_params
from ferrax._src.core.inlining import Inline
from ferrax._src.core.op_types import (
    ConvDimensionNumbers,
    FftType,
    GatherDimensionNumbers,
    GatherScatterMode,
    Precision,
    RoundingMethod,
    ScatterDimensionNumbers,
    precision_name,
)

# What each equation of these has beside the native parameters.
_ADDED = {
    **{op: dict.fromkeys(row["shown"]) for op, row in _core.op_rows().items() if row["shown"]},
    **dict.fromkeys(
        ("broadcast_in_dim", "convert_element_type", "iota", "reshape"), {"sharding": None}
    ),
    **dict.fromkeys(
        ("conv_general_dilated", "dot_general", "reduce_sum"), {"out_sharding": None}
    ),
    **dict.fromkeys(("eigh", "svd"), {"algorithm": None, "subset_by_index": None}),
    **dict.fromkeys(("geqp3", "qr"), {"use_magma": None}),
    "eig": {"implementation": None},
    "schur": {"select_callable": None, "sort_eig_vals": False},
}  # fmt: skip

# What equations have where JAX 0.12 is followed, beside these.
_ADDED_SINCE_0_12: dict[str, dict[str, Any]] = {
    "top_k": {"is_stable": True},
    **dict.fromkeys(("reduce_max", "reduce_min"), {"out_sharding": None}),
}

# Parameters of JAX's primitives that the native core has no use for.
_IGNORED = frozenset(
    {
        "accuracy", "sharding", "out_sharding", "in_shardings", "out_shardings", "in_layouts",
        "out_layouts", "donated_invars", "ctx_mesh", "keep_unused", "compiler_options_kvs",
        "linear", "use_magma", "_split_transpose", "input_dtype", "update_jaxpr", "update_consts", "out_trees",
    }
)  # fmt: skip

SCATTERS = {
    "scatter": None,
    "scatter_add": "add",
    "scatter_sub": "sub",
    "scatter_mul": "mul",
    "scatter_min": "min",
    "scatter_max": "max",
}
# Ops whose primitives JAX names otherwise.
NAMES = {op: op.replace("_", "-") for op in SCATTERS}


class UnspecifiedValue:
    """The sharding of an argument for which none was asked for."""

    def __repr__(self):
        return "UnspecifiedValue"


UNSPECIFIED = UnspecifiedValue()


def shown(op: str, params: dict, operands, num_outputs: int) -> dict:
    """The parameters of an equation, whose operands have these types, as walkers see them.
    Programs among them are jaxprs already."""
    rule = SHOWN.get(op)
    if rule is not None:
        params = rule(op, params, operands, num_outputs)
    params = params | _ADDED.get(op, {})
    if op in _ADDED_SINCE_0_12 and follows(0, 12):
        params = dict(sorted((params | _ADDED_SINCE_0_12[op]).items()))
    return params


def native(op: str, params: dict) -> dict:
    """The parameters as the native core takes them."""
    whole = WHOLE.get(op)
    if whole is not None:
        params = whole(params)
    params = {key: native_value(value) for key, value in params.items() if key not in _IGNORED}
    rule = NATIVE.get(op)
    return params if rule is None else rule(params)


def native_value(value):
    """A parameter with programs for jaxprs."""
    if hasattr(value, "_to_program"):
        return value._to_program()
    if isinstance(value, (tuple, list)):
        return tuple(native_value(item) for item in value)
    return value


def _gather_mode(params):
    return GatherScatterMode.from_any(params.pop("mode"))


def _shown_gather(op, params, operands, num_outputs):
    numbers = GatherDimensionNumbers(*map(params.pop, GatherDimensionNumbers._fields))
    mode = _gather_mode(params)
    return {"dimension_numbers": numbers, **params, "mode": mode}


def shown_scatter(params) -> dict:
    """The parameters of a scatter without the function that it combines elements with."""
    numbers = ScatterDimensionNumbers(*map(params.pop, ScatterDimensionNumbers._fields))
    mode = _gather_mode(params)
    return {"dimension_numbers": numbers, **params, "mode": mode}


def _native_indexing(params):
    numbers = params.pop("dimension_numbers", None)
    if numbers is not None:
        gathers = "slice_sizes" in params
        kind = GatherDimensionNumbers if gathers else ScatterDimensionNumbers
        params |= dict(zip(kind._fields, map(tuple, numbers)))
    mode = params.get("mode")
    if mode is not None and not isinstance(mode, str):
        params["mode"] = mode.core_name
    return params


def _shown_precision(op, params, operands, num_outputs):
    """That of both operands, which the kernels have one of."""
    name = params["precision"]
    return params | {"precision": None if name is None else (Precision(name),) * 2}


def _native_precision(params):
    if "precision" in params:
        params["precision"] = precision_name(params["precision"])
    return params


def _shown_convolution(op, params, operands, num_outputs):
    params = _shown_precision(op, params, operands, num_outputs)
    return params | {"dimension_numbers": ConvDimensionNumbers(*params["dimension_numbers"])}


def _native_convolution(params):
    return params | {
        "dimension_numbers": tuple(map(tuple, params["dimension_numbers"])),
        "precision": precision_name(params.get("precision")),
    }


def _shown_jit(op, params, operands, num_outputs):
    ins, given_up = len(operands), params["program"]._donated()
    return {
        "jaxpr": params["program"],
        "in_shardings": (UNSPECIFIED,) * ins,
        "out_shardings": (UNSPECIFIED,) * num_outputs,
        "in_layouts": (None,) * ins,
        "out_layouts": (None,) * num_outputs,
        "donated_invars": (*given_up, *[False] * (ins - len(given_up))),
        "ctx_mesh": None,
        "name": params["name"],
        "keep_unused": False,
        "inline": Inline.AUTO if follows(0, 12) else params["inline"],
        "compiler_options_kvs": (),
    }


def _native_jit(params):
    if "jaxpr" in params:
        params["program"] = params.pop("jaxpr")
    return params | {"inline": params.get("inline") in (True, Inline.JAX_EARLY)}


def _shown_scan(op, params, operands, num_outputs):
    return scan_params.followed(params, len(operands), num_outputs)


def _shown_while(op, params, operands, num_outputs):
    if params["max_steps"] is None:
        del params["max_steps"]
    order = ("cond_nconsts", "cond_jaxpr", "body_nconsts", "body_jaxpr")
    return {key: params[key] for key in (*order, *params.keys() - set(order))}


def _native_while(params):
    return {"max_steps": None} | params


def _shown_remat(op, params, operands, num_outputs):
    # An open jaxpr cannot hold the constants that a program from a file may have.
    closed = params["jaxpr"]
    return params if closed.consts else params | {"jaxpr": closed.open}


def _shown_conj(op, params, operands, num_outputs):
    return {"input_dtype": np.dtype(operands[0].dtype)}


def _shown_round(op, params, operands, num_outputs):
    return {"rounding_method": RoundingMethod(params["rounding_method"])}


def _shown_fft(op, params, operands, num_outputs):
    return params | {"fft_type": FftType(params["fft_type"])}


def _native_top_k(params):
    return {key: value for key, value in params.items() if key != "is_stable"}


def _native_fft(params):
    return params | {"fft_type": int(params["fft_type"])}


def _shown_key(op, params, operands, num_outputs):
    return params | {"impl": REGISTERED_BY_NAME.get(params["impl"], params["impl"])}


def _native_key(params):
    impl = params["impl"]
    return params | {"impl": REGISTERED[impl][1] if impl in REGISTERED else getattr(impl, "name", impl)}


def _native_mul(params):
    dtype = params.pop("out_dtype", None)
    if dtype is not None:
        raise NotImplementedError(
            f"mul: out_dtype={dtype} is not available; convert the operands with "
            "convert_element_type"
        )
    return params


def _native_decomposition(op, params):
    # Every name of an algorithm means the one that there is.
    params.pop("algorithm", None)
    value = params.pop("subset_by_index", None)
    if value is not None:
        raise NotImplementedError(
            f"{op}: subset_by_index={value!r} is no parameter of the primitive here: bind it with "
            f"None, or call lax.linalg.{op}"
        )
    return params


def _native_eig(params):
    value = params.pop("implementation", None)
    if value is not None and getattr(value, "value", value) != "lapack":
        raise ValueError(f"eig: implementation={value!r} is not supported on CPU; pass None")
    return params


def _native_schur(params):
    params.pop("select_callable", None)
    if params.pop("sort_eig_vals", False):
        raise NotImplementedError("schur: eigenvalues cannot be sorted; pass sort_eig_vals=False")
    return params


# The parameter of each collective that names its axes, and whether there is a tuple of them.
_AXIS_PARAMS = {
    **dict.fromkeys(
        ("psum", "psum_invariant", "unreduced_psum", "pmax", "pmin", "pvary", "preduced", "reduced_vary_cast",
         "vary_unreduced_cast"), ("axes", True)),
    **dict.fromkeys(
        ("ppermute", "all_gather", "all_gather_invariant", "all_gather_reduced", "reduce_scatter",
         "unreduced_reduce_scatter"), ("axis_name", True)),
    **dict.fromkeys(("all_to_all", "pbroadcast", "axis_index"), ("axis_name", False)),
}  # fmt: skip


def has_axes(op) -> bool:
    """Whether the effects of an equation of this op are over named axes, which its parameters tell."""
    return op in _AXIS_PARAMS


def axis_effects(op, params) -> set:
    """The effects of an equation with these parameters, as JAX has them, over named axes."""
    if not has_axes(op):
        return set()
    names = named_axes.as_names(params[_AXIS_PARAMS[op][0]])
    return {effects.NamedAxisEffect(name) for name in names}


def _shown_collective(op, params, operands, num_outputs):
    param, several = _AXIS_PARAMS[op]
    names = tuple(map(named_axes.from_text, named_axes.as_names(params[param])))
    params = params | {param: names if several else names[0]}
    if op == "all_to_all":
        del params["axis_size"]
    return params


def _native_collective(op, params):
    param, several = _AXIS_PARAMS[op]
    names = named_axes.as_names(params[param])
    texts = tuple(map(named_axes.text, names))
    params = params | {param: texts if several else texts[0]}
    if op == "all_to_all":
        params["axis_size"] = named_axes.size_of(names[0], op)
    return params


# Rules by op. Modules above that know of jaxprs and of rules of derivatives add theirs.
SHOWN = {
    "conv_general_dilated": _shown_convolution,
    "dot_general": _shown_precision,
    "gather": _shown_gather,
    "jit": _shown_jit,
    "scan": _shown_scan,
    "while": _shown_while,
    "remat2": _shown_remat,
    "conj": _shown_conj,
    "round": _shown_round,
    "fft": _shown_fft,
    "random_seed": _shown_key,
    "random_wrap": _shown_key,
    **dict.fromkeys(_AXIS_PARAMS, _shown_collective),
}

# By op, what makes of all parameters those that the native core has a use for, where they mean something together.
WHOLE: dict[str, Callable[[dict], dict]] = {}

NATIVE: dict[str, Callable[[dict], dict]] = {
    "conv_general_dilated": _native_convolution,
    "dot_general": _native_precision,
    "gather": _native_indexing,
    **dict.fromkeys(SCATTERS, _native_indexing),
    "jit": _native_jit,
    "scan": scan_params.counted,
    "while": _native_while,
    "fft": _native_fft,
    "top_k": _native_top_k,
    "random_seed": _native_key,
    "random_wrap": _native_key,
    "mul": _native_mul,
    **{op: functools.partial(_native_decomposition, op) for op in ("eigh", "svd")},
    "eig": _native_eig,
    "schur": _native_schur,
    **{op: functools.partial(_native_collective, op) for op in _AXIS_PARAMS},
}
