"""What the examples share: their command line, Adam, pictures and the check at the end."""

import argparse
import pathlib
import sys

import matplotlib

import ferrax as jax
import ferrax.numpy as jnp

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)


def options(description, **more):
    """The command line: `--small` for a run of some seconds, whose result is checked all the same.

    `more` has further options: a number, which is taken if no other is given, or the words to choose from, of which
    the first is.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a run of some seconds")
    for name, value in more.items():
        words = value if isinstance(value, tuple) else None
        default = value[0] if words else value
        parser.add_argument(f"--{name}", type=type(default), default=default, choices=words)
    return parser.parse_args()


def folder():
    """`out/NAME` for the script that runs."""
    path = pathlib.Path("out") / pathlib.Path(sys.argv[0]).stem
    path.mkdir(parents=True, exist_ok=True)
    return path


def save(figure, name):
    """Writes a picture and says where it is."""
    path = folder() / name
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"wrote {path}")


def check(what, value, low=float("-inf"), high=float("inf")):
    """Prints a figure, and ends the program unless it lies within its bounds."""
    value = float(value)
    print(f"{what}: {value:.4g}")
    if not low <= value <= high:
        sys.exit(f"expected {what} between {low:g} and {high:g}")


def adam(loss, rate, decay_1=0.9, decay_2=0.999, epsilon=1e-8):
    """`start(parameters)` gives a state, `step(state, *batch)` the next state and the loss; the first
    part of a state is the parameters. (Kingma & Ba, Adam, 2015, algorithm 1.)"""

    def start(parameters):
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        return parameters, zeros, zeros, jnp.float32(0)

    @jax.jit
    def step(state, *batch):
        parameters, first, second, count = state
        value, gradients = jax.value_and_grad(loss)(parameters, *batch)
        count = count + 1
        first = jax.tree.map(lambda m, g: decay_1 * m + (1 - decay_1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: decay_2 * v + (1 - decay_2) * g * g, second, gradients)
        scale = rate * jnp.sqrt(1 - decay_2**count) / (1 - decay_1**count)
        parameters = jax.tree.map(
            lambda p, m, v: p - scale * m / (jnp.sqrt(v) + epsilon), parameters, first, second
        )
        return (parameters, first, second, count), value

    return start, step


def dense(key, fan_in, fan_out):
    """Weights of variance 1 / fan_in, and a bias of zeros."""
    return {"w": jax.random.normal(key, (fan_in, fan_out)) * fan_in**-0.5, "b": jnp.zeros(fan_out)}


def apply_dense(layer, x):
    return x @ layer["w"] + layer["b"]
