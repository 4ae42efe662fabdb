"""What is left of JAX's module of this name: nothing that means something here."""

from ferrax._src.absent import absent, group

__getattr__ = absent(
    __name__,
    group(
        "create_compile_options",
        "programs are compiled by ferrax itself, not by XLA",
    )
    | group(
        "Mesh MeshPspec PartitionSpec thread_resources ArrayMapping UNSPECIFIED",
        "ferrax.sharding has what there is of shardings",
    ),
)
