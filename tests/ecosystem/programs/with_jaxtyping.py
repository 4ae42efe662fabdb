"""jaxtyping: shapes and dtypes of arrays, tracers and trees are checked while functions run."""

import jax
import jax.numpy as jnp
import jaxtyping
from beartype import beartype
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped, jaxtyped
from report import done, report


@jaxtyped(typechecker=beartype)
def product(a: Float[Array, "n k"], b: Float[Array, "k m"]) -> Float[Array, "n m"]:
    return a @ b


@jaxtyped(typechecker=beartype)
def norm(tree: PyTree[Float[Array, "..."], "T"]) -> Float[Array, ""]:
    return jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(tree)))


@jaxtyped(typechecker=beartype)
def draw(key: Key[Array, ""], n: int) -> Shaped[Array, "_"]:
    return jax.random.normal(key, (n,))


a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
report("product", product(a, b))
report("jit", jax.jit(product)(a, b))
report("vmap", jax.vmap(product, in_axes=(None, 0))(a, jnp.ones((5, 3, 4))))
report("gradient", jax.grad(lambda a: product(a, b).sum())(a))
report("norm", norm({"x": a, "y": (b,)}))
report("draw", draw(jax.random.key(0), 3))
said = []
for call in (
    lambda: product(a, a),
    lambda: product(a.astype(int), b),
    lambda: jax.jit(product)(a, jnp.ones((4, 4))),
    lambda: norm({"x": jnp.arange(3)}),
    lambda: draw(jax.random.PRNGKey(0), 3),
):
    try:
        call()
        said.append("passed")
    except jaxtyping.TypeCheckError as error:
        said.append(type(error).__name__)
report("errors", said)
kinds = [
    Float,
    Int,
    Bool,
    Key,
    jaxtyping.Float16,
    jaxtyping.BFloat16,
    jaxtyping.UInt8,
    jaxtyping.Complex,
]
values = [
    jnp.float32(1), jnp.int8(1), jnp.asarray(True), jax.random.key(0),
    jnp.float16(1), jnp.bfloat16(1), jnp.uint8(1), jnp.complex64(1),
]  # fmt: skip
report(
    "kinds", [" ".join(k.__name__ for k in kinds if isinstance(v, k[Array, "..."])) for v in values]
)
report("outside", [str(isinstance(value, Float[Array, ""])) for value in (1.0, "a", jnp.ones(2))])
done()
