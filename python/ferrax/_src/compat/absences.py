"""What a program reads that uses a name which ferrax lacks: the name in JAX, and what there is instead.

The error is an AttributeError, so that `hasattr` and `getattr` with a default answer as they do for
any module. Python drops the text of that where the name is imported (`from jax import x`): there
it is an ImportError.
"""

from __future__ import annotations

import dis
import importlib
import sys
import types
from typing import Any

from ferrax._src.base import jax_version
from ferrax._src.compat import names

REMOVED = "it was removed from JAX before 0.10.2; use {}"

# By the name in JAX: of modules and of what is in them.
INSTEAD = {
    "jax.tree_map": REMOVED.format("jax.tree.map"),
    "jax.tree_leaves": REMOVED.format("jax.tree.leaves"),
    "jax.tree_flatten": REMOVED.format("jax.tree.flatten"),
    "jax.tree_unflatten": REMOVED.format("jax.tree.unflatten"),
    "jax.tree_structure": REMOVED.format("jax.tree.structure"),
    "jax.tree_transpose": REMOVED.format("jax.tree.transpose"),
    "jax.tree_multimap": REMOVED.format("jax.tree.map"),
    "jax.device_put_replicated": REMOVED.format("jax.device_put with a sharding"),
    "jax.device_put_sharded": REMOVED.format("jax.device_put with a sharding"),
    "jax.linear_util": REMOVED.format("jax.extend.linear_util"),
    "jax.abstract_arrays": REMOVED.format("jax.core.ShapedArray"),
    "jax.pxla": REMOVED.format("jax.sharding"),
    "jax.xla": REMOVED.format("jax.extend"),
    "jax.lib.xla_bridge": REMOVED.format("jax.extend.backend"),
    "jax.lib.xla_client": REMOVED.format("jax.extend.backend and jax.ffi"),
    "jax.lib.xla_extension": REMOVED.format("jax.errors and jax.extend.backend"),
    "jax.core.mapped_aval": REMOVED.format("jax.extend.core.mapped_aval"),
    "jax.core.unmapped_aval": REMOVED.format("jax.extend.core.unmapped_aval"),
    "jax.core.get_aval": REMOVED.format("jax.typeof"),
    "jax.array_ref": REMOVED.format("jax.new_ref"),
    "jax.ArrayRef": REMOVED.format("jax.Ref"),
    "jax.experimental.enable_x64": REMOVED.format("jax.enable_x64"),
    "jax.experimental.disable_x64": REMOVED.format("jax.enable_x64(False)"),
    "jax.experimental.host_callback": REMOVED.format(
        "jax.pure_callback, jax.experimental.io_callback or jax.debug.callback"
    ),
    "jax.experimental.maps": REMOVED.format("jax.vmap and jax.shard_map"),
    "jax.experimental.mosaic": "it is for accelerators that ferrax has not; use jax.numpy and jax.lax",
    "jax.experimental.jax2tf": "ferrax has no TensorFlow; jax.export saves compiled functions",
    "jax.experimental.EArray": "arrays are of dtypes that ferrax knows",
    "jax.experimental.primal_tangent_dtype": "tangents have the dtype of what they are of; "
    "jax.custom_jvp and jax.custom_vjp may compute with another",
    "jax.extend.lowering": "programs are compiled by ferrax itself; jax.ffi adds functions of other languages",
    "jax.extend.mlir": "programs are not MLIR; jax.make_jaxpr and jax.jit(f).lower(x).as_text() show them",
    "jax.extend.pallas": "kernels are compiled by ferrax itself; use jax.experimental.pallas",
    "jax.extend.sharding": "shardings are not XLA's; use jax.sharding.NamedSharding",
    "jax.extend.xla": "programs are compiled by ferrax itself, not by XLA",
    "jax.tools": "programs are not XLA's; jax.export saves compiled functions",
    "jax.sharding.no_collectives": "over explicit axes nothing is exchanged that no operation asks for; look at the "
    "compiled function's as_text() for what is",
    "jax.lax.psum_scatter_start": "collectives are not split in two halves; use jax.lax.psum_scatter",
    "jax.interpreters.batching.zero_if_mapped": "jaxprs are batched by jax.vmap(jax.core.jaxpr_as_fun(jaxpr))",
    "jax.interpreters.batching.batch_jaxpr_axes": "jaxprs are batched by jax.vmap(jax.core.jaxpr_as_fun(jaxpr))",
    "jax.interpreters.batching.batch_subtrace": "functions are batched by jax.vmap",
    "jax.interpreters.ad.backward_pass": "linear jaxprs are transposed by "
    "jax.linear_transpose(jax.core.jaxpr_as_fun(jaxpr), *types)",
}  # fmt: skip

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def message(path: str, name: str) -> str:
    """What is said of the name `name` of JAX's module `path`."""
    text = f"ferrax, which answers for JAX {jax_version.of_process()} here, has no {path}.{name}"
    instead = INSTEAD.get(f"{path}.{name}")
    if instead is None and (path + ".").startswith(("jax._src.", "jaxlib.")):
        instead = "the name is private to JAX"
    return f"{text}: {instead}" if instead else text


def _imports_from(frame: types.FrameType) -> bool:
    """Whether the frame is at `from module import name`."""
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM if frame.f_lasti >= 0 else False


class Absent:
    """The `__getattr__` of a module while imports of `jax` mean ferrax, which is `path` in JAX."""

    def __init__(self, module: types.ModuleType, path: str):
        self.module, self.path = module, path
        self.own = vars(module).get("__getattr__")

    def __call__(self, name: str) -> Any:
        path, said = self.path, None
        if self.own is not None and not names.is_hidden(path, name):
            try:
                return self.own(name)
            except AttributeError as error:
                said = str(error).partition(": ")[2]
        text = message(path, name)
        if said and f"{path}.{name}" not in INSTEAD:
            text = f"{text}: {said}"
        if name[:2] != "__" and _imports_from(sys._getframe(1)):
            # Python looked for a module of this name in ferrax; somebody's finder may have it as JAX's.
            try:
                return importlib.import_module(f"{path}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{path}.{name}":
                    raise
            raise ImportError(text, name=path, path=getattr(self.module, "__file__", None))
        raise AttributeError(text, name=name, obj=self.module)

    def remove(self) -> None:
        """The module is again as it was."""
        if self.own is None:
            del self.module.__getattr__
        else:
            self.module.__getattr__ = self.own  # type: ignore[method-assign]  # of a module, no method


def explain(module: types.ModuleType, path: str) -> None:
    """From now on a name that the module lacks is called by its name in JAX, where this is `path`, and it
    lacks those that the followed version of JAX has not."""
    names.hide(module, path)
    if not isinstance(vars(module).get("__getattr__"), Absent):
        module.__getattr__ = Absent(module, path)  # type: ignore[method-assign]  # of a module, no method


def leave(module: types.ModuleType, path: str) -> None:
    """Undoes `explain`."""
    names.show(module, path)
    fallback = vars(module).get("__getattr__")
    if isinstance(fallback, Absent):
        fallback.remove()
