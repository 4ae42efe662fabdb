"""Orbax: trees saved and restored, as they are and as types; a manager of steps; arrays over a mesh; an asynchronous
checkpointer."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from report import done, report

tree = {
    "weights": jnp.arange(12.0).reshape(3, 4),
    "layers": [jnp.ones(3, jnp.bfloat16), jnp.int32(7)],
    "numpy": np.arange(5),
    "steps": 3,
}


def shown(tree):
    return [f"{type(x).__name__} {np.asarray(x).dtype} {np.asarray(x).tolist()}" for x in jax.tree.leaves(tree)]


types = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
with tempfile.TemporaryDirectory() as folder:
    with ocp.StandardCheckpointer() as saver:
        saver.save(f"{folder}/tree", tree)
        saver.wait_until_finished()
        report("as it was", shown(saver.restore(f"{folder}/tree", tree)))
        report("by types", shown(saver.restore(f"{folder}/tree", types)))

    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(f"{folder}/steps", options=options) as manager:
        for step in range(4):
            moved = jax.tree.map(lambda x, step=step: x + step, tree)
            manager.save(
                step, args=ocp.args.Composite(state=ocp.args.StandardSave(moved), notes=ocp.args.JsonSave({"step": step}))
            )
        manager.wait_until_finished()
        report("kept steps", list(manager.all_steps()))
        found = manager.restore(
            manager.latest_step(),
            args=ocp.args.Composite(state=ocp.args.StandardRestore(types), notes=ocp.args.JsonRestore()),
        )
        report("latest step", [*shown(found.state), str(found.notes)])

    mesh = jax.make_mesh((1,), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.P("x"))
    divided = {"x": jax.device_put(jnp.arange(8.0), sharding)}
    with ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()) as saver:
        saver.save(f"{folder}/divided", args=ocp.args.PyTreeSave(divided))
        saver.wait_until_finished()
        how = {"x": ocp.ArrayRestoreArgs(sharding=sharding, dtype=jnp.float32)}
        found = saver.restore(f"{folder}/divided", args=ocp.args.PyTreeRestore(divided, restore_args=how))
    report("divided", found["x"])
    report("where", str(found["x"].sharding.spec))
done()
