"""jraph: a graph network over a padded batch of graphs, and its gradient."""

import jax
import jax.numpy as jnp
import jraph
import numpy as np
from report import done, report


def graph(nodes, edges, seed):
    rng = np.random.default_rng(seed)
    return jraph.GraphsTuple(
        nodes=rng.normal(size=(nodes, 4)).astype(np.float32),
        edges=rng.normal(size=(edges, 3)).astype(np.float32),
        senders=rng.integers(0, nodes, edges),
        receivers=rng.integers(0, nodes, edges),
        n_node=np.array([nodes]),
        n_edge=np.array([edges]),
        globals=np.ones((1, 2), np.float32),
    )


batch = jraph.batch_np([graph(5, 7, 0), graph(3, 4, 1)])
batch = jraph.pad_with_graphs(batch, n_node=12, n_edge=16, n_graph=4)
keys = jax.random.split(jax.random.key(0), 3)
sizes = {"edge": (3 + 4 + 4 + 2, 8), "node": (4 + 8 + 8 + 2, 8), "global": (8 + 8 + 2, 2)}
params = {name: jax.random.normal(key, size) / 4 for (name, size), key in zip(sizes.items(), keys)}


def network(params):
    def layer(name):
        return lambda *parts: jnp.tanh(jnp.concatenate(parts, axis=-1) @ params[name])

    return jraph.GraphNetwork(layer("edge"), layer("node"), layer("global"))


@jax.jit
def loss(params, batch):
    out = network(params)(batch)
    mask = jraph.get_graph_padding_mask(batch)
    return jnp.sum(jnp.where(mask[:, None], out.globals, 0) ** 2)


report("loss", loss(params, batch))
gradient = jax.grad(loss)(params, batch)
for name in gradient:
    report(f"gradient of {name}", gradient[name])
convolved = jraph.GraphConvolution(lambda n: n @ jnp.eye(4, 2), add_self_edges=True)(batch)
report("convolution", convolved.nodes)
attended = jraph.GAT(
    attention_query_fn=lambda n: n * 0.5,
    attention_logit_fn=lambda s, r, e: jnp.sum(s * r, axis=-1, keepdims=True),
    node_update_fn=lambda n: n,
)(batch._replace(edges=None))
report("attention", attended.nodes)
report("sizes", [str(g.n_node) for g in jraph.unbatch(jraph.unpad_with_graphs(batch))])
done()
