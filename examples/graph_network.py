"""Labels spread over a graph: which digit is it, when 5 in 100 have a label?

A graph convolutional network (Kipf & Welling, 2017) on the graph of each image's ten nearest
neighbours; messages are summed at their targets by `segment_sum`.
"""

import numpy as np
from common import adam, apply_dense, check, dense, options, pyplot, save
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp

HIDDEN, LABELLED = 64, 90


def load_graph():
    """Features f32[N, 64], labels i32[N], and the edges as sources, targets and weights."""
    digits = load_digits()
    features = (digits.data / 16).astype(np.float32)
    graph = kneighbors_graph(features, 10)
    graph = graph.maximum(graph.T).tocoo()
    sources, targets = graph.row.astype(np.int32), graph.col.astype(np.int32)
    degrees = np.bincount(targets, minlength=len(features)) + 1.0
    # Each node has an edge to itself, and the weights are those of the normalised Laplacian.
    itself = np.arange(len(features), dtype=np.int32)
    sources, targets = np.concatenate([sources, itself]), np.concatenate([targets, itself])
    weights = (degrees[sources] * degrees[targets]) ** -0.5
    return features, digits.target.astype(np.int32), (sources, targets, weights.astype(np.float32))


def spread(values, edges):
    """Weighted sums of the values of each node's neighbours: [N, D]."""
    sources, targets, weights = edges
    messages = weights[:, None] * values[sources]
    return jax.ops.segment_sum(messages, targets, num_segments=values.shape[0])


def logits(parameters, features, edges):
    hidden = jax.nn.relu(apply_dense(parameters["first"], spread(features, edges)))
    return apply_dense(parameters["second"], spread(hidden, edges))


def main():
    steps = 100 if options(__doc__).small else 400
    features, labels, edges = load_graph()
    order = np.random.default_rng(0).permutation(len(labels))
    known, unknown = order[:LABELLED], order[LABELLED:]

    def loss(parameters):
        scores = jax.nn.log_softmax(logits(parameters, features, edges))[known]
        decay = sum(jnp.sum(layer["w"] ** 2) for layer in parameters.values())
        return 1e-4 * decay - jnp.mean(jnp.take_along_axis(scores, labels[known, None], axis=1))

    keys = jax.random.split(jax.random.key(0))
    start, step = adam(loss, rate=1e-2)
    state = start({"first": dense(keys[0], 64, HIDDEN), "second": dense(keys[1], HIDDEN, 10)})
    right = jax.jit(lambda p: jnp.argmax(logits(p, features, edges), axis=1) == labels)
    accuracies = []
    for _ in tqdm(range(steps), desc="training", unit="step"):
        state, _ = step(state)
        accuracies.append(float(jnp.mean(right(state[0])[unknown])))
    alone = np.linalg.norm(features[unknown, None] - features[None, known], axis=-1)
    nearest = np.mean(labels[known][np.argmin(alone, axis=1)] == labels[unknown])
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(accuracies, label="graph network")
    axes.axhline(nearest, color="C1", label="the nearest labelled image")
    axes.set(xlabel="step", ylabel="accuracy", title=f"{LABELLED} labels for {len(labels)} images")
    axes.legend()
    save(figure, "accuracy.png")
    check("accuracy of the nearest labelled image", nearest)
    check("accuracy of the network", accuracies[-1], low=nearest + 0.02)


if __name__ == "__main__":
    main()
