"""What is left of JAX's module of this name: nothing that means something here."""

from ferrax._src.base.absent import absent as _absent, group as _group

__getattr__ = _absent(
    __name__,
    _group(
        "create_compile_options",
        "programs are compiled by ferrax itself, not by XLA",
    )
    | _group(
        "Mesh MeshPspec PartitionSpec thread_resources ArrayMapping UNSPECIFIED",
        "ferrax.sharding has what there is of shardings",
    ),
)
