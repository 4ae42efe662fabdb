"""No public function takes an argument that it does not look at: what is accepted has a meaning."""

import ast
import functools
import pkgutil
import types
from pathlib import Path

import ferrax
import ferrax.experimental.checkify
import ferrax.experimental.jet
import ferrax.experimental.ode
import ferrax.extend

PACKAGE = Path(ferrax.__file__).parent


def public_functions():
    """Functions written in Python that public modules export, and methods of such classes: their
    names by their code, and the parameters that a wrapper of theirs reads."""
    found, seen, wrapped = {}, set(), {}

    def note(name, value):
        wrappers = []
        while hasattr(value, "__wrapped__"):
            wrappers.append(value)
            value = value.__wrapped__
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            return
        if isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, types.FunctionType):
            if Path(value.__code__.co_filename).is_relative_to(PACKAGE):
                found.setdefault(value.__code__, name)
                for wrapper in wrappers:
                    if isinstance(wrapper, types.FunctionType):
                        wrapped.setdefault(value.__code__, set()).update(read(wrapper.__code__))
        elif isinstance(value, type) and value.__module__.startswith("ferrax") and value not in seen:
            seen.add(value)
            for key, member in vars(value).items():
                if not key.startswith("_") or key in ("__init__", "__call__"):
                    note(f"{name}.{key}", member)

    modules = [ferrax]
    for info in pkgutil.walk_packages(ferrax.__path__, "ferrax."):
        if "._" not in info.name:
            modules.append(__import__(info.name, fromlist=["_"]))
    for module in modules:
        for key in dir(module):
            if not key.startswith("_"):
                note(f"{module.__name__}.{key}", getattr(module, key))
    return found, wrapped


@functools.cache
def definitions(path):
    """The functions of a file by the line on which their code begins."""
    kinds = (ast.FunctionDef, ast.Lambda)
    nodes = [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, kinds)]
    lines = {}
    for node in nodes:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        lines.setdefault((first, getattr(node, "name", "<lambda>")), node)
    return lines


def parameters(code):
    args = definitions(code.co_filename)[code.co_firstlineno, code.co_name].args
    names = [arg.arg for arg in args.posonlyargs + args.args + args.kwonlyargs]
    return names + [arg.arg for arg in (args.vararg, args.kwarg) if arg]


def read(code):
    """The parameters of a function that its body reads."""
    node = definitions(code.co_filename)[code.co_firstlineno, code.co_name]
    body = node.body if isinstance(node.body, list) else [node.body]
    names = {
        name.id
        for statement in body
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    }
    return names.intersection(parameters(code))


def refuses(code):
    """Whether the function raises whatever it is given."""
    body = definitions(code.co_filename)[code.co_firstlineno, code.co_name].body
    statements = body if isinstance(body, list) else [body]
    last = statements[-1]
    return isinstance(last, ast.Raise) and all(isinstance(s, ast.Expr) for s in statements[:-1])


HINT = "a promise about the arguments, without which the result is right too"
COPY = "arrays are immutable: whether memory is shared cannot be seen"
MAGMA = "a library for GPUs: which one computes"
PROTOCOL = "others of this signature read it"
MPI = "how processes find and wait for each other, which MPI does"
LAPACK = "SciPy writes over operands, looks for infinities and NaN, or takes another routine; nothing to do here"
TILES = "how a GPU or a TPU divides the work, or is told of it; here that is the compiler's business"
KERNELS = {
    "core_map": "cost_estimate metadata", "emit_pipeline": "dimension_semantics no_pipelining tiling "
    "trace_scopes", "flash_attention": "debug", "get_default": "batch_size d_model kv_len num_heads q_seq_len",
    "gmm": "interpret", "tgmm": "interpret", "layer_norm": "interpret num_stages num_warps",
    "rms_norm": "interpret num_stages num_warps", "softmax": "debug interpret num_warps",
    **dict.fromkeys(("gqa", "mqa"), "block_h debug grid interpret k_splits num_stages num_warps"),
    "mha": "debug grid interpret num_stages num_warps",
    "paged_attention": "debug inline_seq_dim interpret k_splits num_stages num_warps",
    **dict.fromkeys(("make_masked_mha_reference", "make_masked_mqa_reference"), "backward_impl"),
    **dict.fromkeys(
        ("make_splash_mha", "make_splash_mqa"),
        "downcast_smem_data head_shards interpret q_seq_shards residual_checkpoint_name",
    ),
    **dict.fromkeys(("process_dynamic_mask", "process_dynamic_mask_dkv"), "shrink_grid"),
    "attention_reference": "custom_type", "load": "cache_modifier eviction_policy volatile", "store": "eviction_policy",
    "max_contiguous": "values", "reciprocal": "approx full_range", "delay": "nanos", "touch": "ref",
    "trace_value": "label value", "with_memory_space_constraint": "memory_space",
    "einshape": "assert_is_tile_preserving", "semaphore_signal": "core_index",
    **dict.fromkeys(("force_tpu_interpret_mode", "set_tpu_interpret_mode"), "params"),
}  # fmt: skip
# Parameters that change nothing, and why.
EXCEPTIONS = {
    ("jit", "keep_unused"): "arguments that are not used are always kept, and cost nothing",
    ("scan", "_split_transpose"): "how the transpose is computed, not what; there is one way",
    ("nan_to_num", "copy"): COPY,
    ("unique", "sorted"): "a permission not to sort, of which no use is made",
    ("intersect1d", "assume_unique"): HINT,
    ("setxor1d", "assume_unique"): HINT,
    ("isin", "assume_unique"): HINT,
    ("histogram_bin_edges", "weights"): "NumPy's has it for estimators, which are refused",
    ("str_short", "short_dtypes mesh_axis_types"): PROTOCOL,
    ("dce", "_live_ins"): "a rule that primitives may redefine",
    ("staging", "_trace _source_info"): "a rule that primitives may redefine",
    ("top_k", "is_stable sorted"): "a permission to order less, of which no use is made",
    ("lexsort", "batch_size"): "how many keys are sorted at a time; one sort takes all",
    ("serialize", "arrays tensorstore_specs on_commit_callback"): "abstract methods",
    ("deserialize", "shardings tensorstore_specs global_shapes dtypes"): "abstract methods",
    ("qr", "use_magma"): MAGMA,
    ("schur", "select_callable"): "JAX's reads it neither: eigenvalues cannot be sorted",
    ("eigh_tridiagonal", "key"): "JAX's draws first vectors by it; nothing is random here",
    ("expm_frechet", "method"): "JAX's reads it neither",
    ("solve", "overwrite_a overwrite_b debug check_finite"): LAPACK,
    ("solve_triangular", "overwrite_b debug check_finite"): LAPACK,
    ("eigh", "overwrite_a overwrite_b turbo check_finite"): LAPACK,
    ("qr", "overwrite_a lwork check_finite"): LAPACK,
    ("qr_multiply", "overwrite_a overwrite_c"): LAPACK,
    ("svd", "overwrite_a check_finite lapack_driver"): LAPACK,
    ("rsf2csf", "check_finite"): LAPACK,
    **{(name, "overwrite_b check_finite"): LAPACK for name in ("cho_solve", "lu_solve")},
    **{(name, "overwrite_a check_finite"): LAPACK
       for name in ("cho_factor", "cholesky", "det", "hessenberg", "inv", "lu", "lu_factor")},
    ("vq", "check_finite"): "values of traced arrays raise no errors",
    ("check_compatible_aval", "aval_shape"): PROTOCOL,
    ("call_impl", "params"): PROTOCOL,
    ("user_context", "traceback"): "equations have the line of the user's code that makes them",
    ("summarize", "num_frames"): "the largest number of frames; there is one",
    ("debug_info", "signature"): "the function's own, which is at hand here",
    ("flatten_axes", "kws"): "the wording of a message",
    ("register_backend_cache", "for_what"): "a description",
    ("get_opaque_trace_state", "convention"): "JAX's reads it neither",
    ("find_top_trace", "_"): "JAX's reads it neither",
    ("__init__", "args"): PROTOCOL,
    ("_no_index", "indices"): PROTOCOL,
    **{(f"{kind}_shardings_jax", "mesh"): "files say nothing of where arrays are" for kind in ("in", "out")},
    ("abstract_eval_fun", "debug_info"): "the function's own, which is at hand here",
    ("tree_unflatten", "children aux_data"): PROTOCOL,
    ("transpose", "axes"): PROTOCOL,
    ("sum", "args kwargs"): PROTOCOL,
    ("bcoo_gather", "unique_indices indices_are_sorted"): HINT,
    ("bcoo_gather", "fill_value"): "of modes that are refused",
    ("create_token", "_"): "JAX's reads it neither",
    ("buffer_callback", "command_buffer_compatible"): "a promise for GPUs",
    ("is_high", "avals params"): PROTOCOL,
    ("is_effectful", "params"): PROTOCOL,
    ("sparsify", "use_tracer"): "JAX has two ways of one meaning; there is one",
    ("initialize", "initialization_timeout coordinator_bind_address"): MPI,
    ("__init__", "kwargs value"): PROTOCOL,
    ("accum", "x"): "what it is made for: nothing is kept",
    ("check", "arg_tys"): PROTOCOL,
    ("remat", "_policy"): PROTOCOL,
    ("shard", "manual_axes check_vma"): PROTOCOL,
    ("unshard", "check_vma"): PROTOCOL,
    ("make_error_array", "aval message"): "it raises",
    ("start_transfer_server", "args kwargs"): "it raises",
    ("get_profiled_instructions_proto", "tensorboard_dir"): "it raises",
    **dict.fromkeys(KERNELS.items(), TILES),
}


def test_parameters_of_public_functions_are_read():
    allowed = {(name, p) for name, parameters in EXCEPTIONS for p in parameters.split()}
    functions, wrapped = public_functions()
    assert len(functions) > 700
    found = {
        (code.co_name, parameter): name
        for code, name in functions.items()
        if not refuses(code)
        for parameter in set(parameters(code)) - read(code) - wrapped.get(code, set()) - {"self", "cls"}
    }
    assert not {key: name for key, name in found.items() if key not in allowed}
    assert not allowed - found.keys(), "these are read now"
