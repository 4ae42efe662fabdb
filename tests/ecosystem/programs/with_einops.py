"""einops: a small vision transformer's patches and attention, einsum and packing, in jit and grad."""

import einops
import jax
import jax.numpy as jnp
from report import done, report

images = jax.random.normal(jax.random.key(0), (4, 8, 8, 3))
weights = jax.random.normal(jax.random.key(1), (3, 48, 16)) / 7


def attention(weights, images):
    tokens = einops.rearrange(images, "b (h p) (w q) c -> b (h w) (p q c)", p=4, q=4)
    q, k, v = einops.einsum(weights, tokens, "three f d, b n f -> three b n d")
    q, k, v = (einops.rearrange(x, "b n (heads d) -> b heads n d", heads=2) for x in (q, k, v))
    scores = jax.nn.softmax(einops.einsum(q, k, "b h i d, b h j d -> b h i j") / 8**0.5)
    mixed = einops.einsum(scores, v, "b h i j, b h j d -> b h i d")
    mixed = einops.rearrange(mixed, "b heads n d -> b n (heads d)")
    return einops.reduce(mixed, "b n d -> b", "mean")


report("attention", attention(weights, images))
report("jit", jax.jit(attention)(weights, images))
report("gradient", jax.grad(lambda w: jnp.sum(attention(w, images) ** 2))(weights))
report("repeat", einops.repeat(images[0, :2, :2], "h w c -> (h 2) (w 3) c"))
for reduction in ("sum", "mean", "max", "min"):
    report(reduction, einops.reduce(images, "b (h p) (w q) c -> h w c", reduction, p=2, q=2))
packed, shapes = einops.pack([images[:, 0, 0], images[:, 0]], "b *")
report("packed", packed)
report("unpacked", einops.unpack(packed, shapes, "b *")[1])
report("shape", str(einops.parse_shape(images, "b h w _")))
try:
    einops.rearrange(images, "b (h p) w c -> b h p w c", p=3)
except einops.EinopsError as error:
    report("error", type(error).__name__)
done()
