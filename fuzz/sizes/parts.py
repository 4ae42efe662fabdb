"""A program as each device of a mesh runs it: its inputs are cut at random, its parts are run as `shard_map`, and
put together.
"""

import numpy as np

SIZES, NAMES = (4, 2), ("x", "y")
DEVICES = 8
# The variable of the environment that asks for it in the processes that look at programs.
ASKED = "FERRAX_FUZZ_PARTS"


def cuts(jax, shape, rng):
    """A spec at random whose parts are equal."""
    free, entries = list(rng.permutation(len(NAMES))), []
    for size in shape:
        names: list[str] = []
        while free and size and size % SIZES[free[-1]] == 0 and rng.random() < 0.6:
            axis = free.pop()
            names.append(NAMES[axis])
            size //= SIZES[axis]
        entries.append(tuple(names) or None)
    return jax.P(*entries)


def on_parts(subject, arrays, seed):
    """The function that takes all inputs, and how they are cut, as text."""
    from ferrax._src.parallel.partition import partition
    from ferrax._src.parallel.shard_map_primitive import shard_map_p

    jax, rng = subject.jax, np.random.default_rng(seed)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:DEVICES]).reshape(SIZES), NAMES)
    specs = [cuts(jax, array.shape, rng) for array in arrays]
    closed = subject.compiled.trace(*arrays).jaxpr
    ins = [jax.NamedSharding(mesh, spec) for spec in specs] + [None] * len(closed.consts)
    params, consts, _ = partition(closed.jaxpr._to_program(), mesh, ins)
    whole = jax.jit(lambda *given: shard_map_p.bind(*given, *closed.consts, *consts, **params))
    return whole, f"inputs cut as {', '.join(map(str, specs))} over {dict(zip(NAMES, SIZES))}"
