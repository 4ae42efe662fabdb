"""`pjit`, an older name of `jit`, under which functions run over the mesh of `with mesh:`.

Within that context all arguments and results are on the mesh: those of which `None` is said are copies on each
device, as are results of which nothing is said and nothing follows from arguments. Elsewhere it is `jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ferrax._src.core.inlining import Inline
from ferrax._src.core.mesh import Mesh, concrete_mesh, mesh_of_specs
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placements import placement
from ferrax._src.core.primitive_params import UNSPECIFIED
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.transforms import layouts, placed_jit
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util


def _entered() -> Mesh | None:
    mesh = mesh_of_specs()
    return mesh if isinstance(mesh, Mesh) and not mesh.empty and concrete_mesh().empty else None


class _OverMesh(layouts.FormattedFunction):
    """A jitted function that runs over the mesh of `with mesh:`."""

    @property
    def _again(self) -> Any:
        return _again

    def _meant(self, where, asked):
        mesh = _entered()
        if where is None and mesh is not None and asked:
            return NamedSharding(mesh, PartitionSpec())
        return where

    def _rest(self):
        mesh = _entered()
        return None if mesh is None else NamedSharding(mesh, PartitionSpec())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mesh = _entered()
        if mesh is not None:
            for leaf in tree_util.tree_leaves((args, kwargs)):
                known, committed = placement(leaf)
                if committed and known._device_assignment != tuple(mesh.devices.flat):
                    raise ValueError(
                        f"pjit: incompatible devices: an argument is on {known}, and the "
                        f"mesh in use is {mesh} over other "
                        "devices: use ferrax.device_put"
                    )
        return super().__call__(*args, **kwargs)


def _again(*fields: Any) -> _OverMesh:
    return _OverMesh(*fields)


_OverMesh.__name__ = _OverMesh.__qualname__ = "PjitFunction"


def pjit(
    fun: Callable[..., Any],
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool | Inline = False,
    compiler_options: Any = None,
) -> Any:
    """As `ferrax.jit`, and within `with mesh:` over the devices of that mesh.

    Args: as of `jit`, with its errors; `None` among shardings stands, within `with mesh:`, for a copy on each device.
    ValueError, too, for arguments that were put on other devices than those of the mesh.

    Example:
        >>> from ferrax.experimental.pjit import pjit
        >>> with ferrax.sharding.Mesh(ferrax.devices()[:1], ("x",)):
        ...     pjit(jnp.sin, in_shardings=ferrax.P("x"))(jnp.zeros(2))
        Array([0., 0.], dtype=float32)
    """
    said = [None if where is UNSPECIFIED else where for where in (in_shardings, out_shardings)]
    placed_jit.check_leaves(said[0], "in_shardings")
    placed_jit.check_leaves(said[1], "out_shardings")
    options: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "inline": inline,
        "compiler_options": compiler_options,
    }
    if device is not None or backend is not None:
        return jit(fun, in_shardings=said[0], out_shardings=said[1], device=device, backend=backend, **options)
    asked = in_shardings is not UNSPECIFIED, out_shardings is not UNSPECIFIED
    return _OverMesh(jit(fun, **options), said[0], said[1], asked=asked)
