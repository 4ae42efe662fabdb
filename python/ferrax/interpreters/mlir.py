"""Lowerings of primitives, as functions of existing operations."""

from ferrax._src.base import public as _public
from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax._src.core.lowering import lower_fun as lower_fun, register_lowering as register_lowering

__getattr__ = _absent(
    __name__,
    _group(
        "ConstantHandler DEVICE_TO_DEVICE_TYPE LoweringParameters LoweringResult "
        "LoweringRuleContext Mesh ModuleContext RECV_FROM_HOST_TYPE SEND_TO_HOST_TYPE "
        "SPMDAxisContext ShapePolyLoweringState ShardingContext Token TokenSet Value "
        "aval_to_ir_type aval_to_ir_types core_call_lowering dense_int_array "
        "dense_int_elements dtype_to_ir_type emit_python_callback flatten_ir_types "
        "flatten_ir_values i32_attr i64_attr ir_attribute ir_constant ir_constants "
        "ir_tree_registry ir_type_handlers jaxpr_subcomp lower_jaxpr_to_fun "
        "lower_jaxpr_to_module lowerable_effects make_ir_context merge_mlir_modules "
        "module_to_bytecode module_to_string register_constant_handler shape_tensor "
        "token_type unflatten_ir_values_like_types",
        "there is no MLIR here. Lower a primitive to a function of existing operations: "
        "mlir.register_lowering(prim, mlir.lower_fun(function, multiple_results=...))",
    ),
)

_public.export(__name__)
