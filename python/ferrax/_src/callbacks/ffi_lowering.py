"""`ffi_lowering`: the lowering of a primitive that calls a handler of another language.

In: the target, orders of axes, attributes; out: a rule for `mlir.register_lowering`, which gets the types of
results from the primitive. What it records is what `ffi_call` does, at the same cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferrax._src.callbacks.ffi_calls import ffi_call
from ferrax._src.core.layout import Layout
from ferrax._src.core.lowering import LoweredFunction, LoweringContext

# Of what XLA's custom calls take beside operands.
_OPTIONS = {"api_version", "has_side_effect", "operand_output_aliases"}


class FfiOp:
    """A call of a handler that was recorded: `results` are its values."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results


def _major_to_minor(layouts):
    """Layouts of lowerings are from the smallest steps to the largest, those of calls the other way."""
    if layouts is None:
        return None
    return [
        layout if layout is None or isinstance(layout, Layout) else tuple(layout)[::-1] for layout in layouts
    ]


def build_ffi_lowering_function(
    call_target_name: str,
    *,
    operand_layouts: Sequence[Any] | None = None,
    result_layouts: Sequence[Any] | None = None,
    backend_config: Mapping[str, Any] | str | None = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> Callable[..., Any]:
    """As `ffi_lowering`, but what the function gives has the results as `results`.

    Args:
      call_target_name: the name under which the handler is registered.
      operand_layouts, result_layouts, backend_config, skip_ffi_layout_processing, lowering_args: as for
        `ffi_lowering`.

    Errors: those of `ffi_lowering`.

    >>> function = ferrax.ffi.build_ffi_lowering_function("my_norm")
    """
    unknown = sorted(set(lowering_args) - _OPTIONS)
    if unknown:
        raise NotImplementedError(
            f"ffi_lowering of {call_target_name}: {', '.join(unknown)} is said to XLA alone. Types of results are "
            f"those that the primitive's abstract evaluation gives; known are {', '.join(sorted(_OPTIONS))}"
        )
    if isinstance(backend_config, str) or not isinstance(backend_config or {}, Mapping):
        raise ValueError(
            f"ffi_lowering of {call_target_name}: backend_config is a dict of attributes, got {backend_config!r}"
        )

    def lower(context, *operands, **params):
        if not isinstance(context, LoweringContext):
            raise TypeError(
                f"the lowering of {call_target_name} is called with a context and operands: register it by "
                "mlir.register_lowering, or call jax.ffi.ffi_call"
            )
        laid = not skip_ffi_layout_processing
        call = ffi_call(
            call_target_name,
            context.avals_out,
            has_side_effect=bool(lowering_args.get("has_side_effect")),
            input_layouts=_major_to_minor(operand_layouts) if laid else None,
            output_layouts=_major_to_minor(result_layouts) if laid else None,
            input_output_aliases=dict(lowering_args.get("operand_output_aliases") or {}),
            custom_call_api_version=lowering_args.get("api_version", 4),
        )
        return FfiOp(call(*operands, **{**(backend_config or {}), **params}))

    return lower


def ffi_lowering(
    call_target_name: str,
    *,
    operand_layouts: Sequence[Any] | None = None,
    result_layouts: Sequence[Any] | None = None,
    backend_config: Mapping[str, Any] | str | None = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> Any:
    """The lowering of a primitive that calls a registered handler: a rule for `mlir.register_lowering`.

    A rule of the user's may call it, too, with the context that it is called with: to pass other parameters.

    Args:
      call_target_name: the name under which the handler is registered (`register_ffi_target`).
      operand_layouts, result_layouts: for each array None, a `Layout`, or its axes from the *smallest* steps in
        memory to the largest, other than for `ffi_call`; arrays lie row by row otherwise.
      backend_config: a dict of attributes; parameters of the primitive are attributes beside them.
      skip_ffi_layout_processing: whether layouts are left out of account.
      lowering_args: `has_side_effect`, `operand_output_aliases` (for the number of an operand, that of the result in
        the same memory) and `api_version`, which is 4.

    Errors: NotImplementedError for other arguments and versions; ValueError for a `backend_config` that is no dict;
    those of `ffi_call` where the primitive is compiled.

    >>> norm_p = ferrax.core.Primitive("my_norm")
    >>> _ = norm_p.def_abstract_eval(lambda x: x)
    >>> rule = ferrax.ffi.ffi_lowering("my_norm")
    >>> _ = ferrax.interpreters.mlir.register_lowering(norm_p, rule)
    """
    build = build_ffi_lowering_function(
        call_target_name,
        operand_layouts=operand_layouts,
        result_layouts=result_layouts,
        backend_config=backend_config,
        skip_ffi_layout_processing=skip_ffi_layout_processing,
        **lowering_args,
    )

    def ffi_rule(context, *operands, **params):
        return build(context, *operands, **params).results

    return LoweredFunction(ffi_rule, True, takes_context=True)
