"""Attention, normalisation and grouped products of `pallas.ops` are those of JAX, or of plain operations."""

import functools

import jax
import jax.experimental.pallas.ops.gpu.attention as jax_mha
import jax.experimental.pallas.ops.gpu.decode_attention as jax_decode
import jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask as jax_masks
import jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info as jax_mask_info
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental.pallas.ops.gpu import (
    attention,
    decode_attention,
    layer_norm,
    paged_attention,
    rms_norm,
    softmax,
)
from ferrax.experimental.pallas.ops.tpu import (
    example_kernel,
    flash_attention,
    matmul,
    megablox,
    splash_attention,
)
from ferrax.experimental.pallas.ops.tpu.megablox.gmm import tgmm
from ferrax.experimental.pallas.ops.tpu.paged_attention import (
    paged_attention as tpu_paged,
    quantization_utils,
    util,
)
from ferrax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as masks,
    splash_attention_mask_info as mask_info,
)

close = functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)


def floats(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def plain(q, k, v, seen=True, bias=0.0, scale=1.0, cap=None, sink=None):
    """Attention of `(..., T, D)` with all logits at once, and the logarithm of the sums. A query that sees no
    key gives the mean of all."""
    logits = (jnp.einsum("...td,...sd->...ts", q, k) + bias) * scale
    if cap is not None:
        logits = jnp.tanh(logits / cap) * cap
    logits = jnp.where(seen, logits, -1e30)
    level = ferrax.nn.logsumexp(logits, -1)
    out = jnp.einsum("...ts,...sd->...td", ferrax.nn.softmax(logits, -1), v)
    if sink is not None:
        out, level = out * jnp.exp(level - jnp.logaddexp(level, sink))[..., None], jnp.logaddexp(level, sink)
    return out, level


# Of GPUs.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mha(causal, segments, dtype):
    q, k, v = (floats(2, 32, 2, 16, seed=n, dtype=dtype) for n in range(3))
    ids = np.repeat([[0, 1], [2, 3]], 16, 1).astype(np.int32) if segments else None
    sizes = {"block_q": 16, "block_k": 8, "block_q_dkv": 16, "block_kv_dkv": 16, "block_q_dq": 16, "block_kv_dq": 16}

    def loss(module, np_, q, k, v):
        out = module.mha(
            q, k, v, ids, sm_scale=0.3, causal=causal, block_sizes=module.BlockSizes(**sizes), interpret=True
        )
        return np_.sum(np_.sin(out.astype("float32"))), out

    want = jax.value_and_grad(functools.partial(loss, jax_mha, jax.numpy), (0, 1, 2), has_aux=True)(q, k, v)
    found = ferrax.value_and_grad(functools.partial(loss, attention, jnp), (0, 1, 2), has_aux=True)(q, k, v)
    near = close if dtype == "float32" else functools.partial(np.testing.assert_allclose, atol=2e-2)
    assert found[0][1].dtype == dtype
    for x, y in zip(ferrax.tree.leaves(found), jax.tree.leaves(want)):
        near(np.asarray(x, np.float32), np.asarray(y, np.float32))


def test_mha_residuals_and_references():
    q, k, v = (floats(1, 16, 2, 8, seed=n) for n in range(3))
    sizes = {"block_q": 16, "block_k": 8}
    found = attention.mha(
        q, k, v, None, causal=True, block_sizes=attention.BlockSizes(**sizes), return_residuals=True
    )
    want = jax_mha.mha(
        q, k, v, None, causal=True, block_sizes=jax_mha.BlockSizes(**sizes), return_residuals=True, interpret=True
    )
    for x, y in zip(found, want):
        close(x, y)
    ids = np.repeat([[0, 1]], 8, 1).astype(np.int32)
    close(attention.mha_reference(q, k, v, ids, 0.5, True), jax_mha.mha_reference(q, k, v, ids, 0.5, True))
    batched = ferrax.vmap(lambda q: attention.mha(q, k, v, ids))(np.stack([q, 2 * q]))
    close(batched[1], attention.mha_reference(2 * q, k, v, ids))


def test_mha_of_what_does_not_fit():
    q, k = floats(1, 16, 2, 8), floats(1, 16, 2, 4)
    with pytest.raises(ValueError, match="features"):
        attention.mha(q, k, q, None)
    with pytest.raises(ValueError, match="does not divide"):
        attention.mha(q, q, q, None, block_sizes=attention.BlockSizes(10, 16))
    with pytest.raises(ValueError, match="backward_pass_impl"):
        attention.mha(q, q, q, None, backward_pass_impl="cuda")
    sizes = attention.BlockSizes(16, 16)
    loss = lambda q, **kwargs: attention.mha(q, q, q, None, block_sizes=sizes, **kwargs).sum()  # noqa: E731
    with pytest.raises(ValueError, match="all block sizes"):
        ferrax.grad(loss)(q)
    close(ferrax.grad(lambda q: loss(q, backward_pass_impl="xla"))(q).shape, q.shape)
    with pytest.raises(ValueError, match="no derivatives"):
        ferrax.grad(lambda q: attention.mha(q, q, q, None, return_residuals=True)[0].sum())(q)


@pytest.mark.parametrize("start, stop", [(None, None), (3, None), (None, 40), (np.array([3, 30]), np.array([40, 30]))])
@pytest.mark.parametrize("residuals", [False, True])
def test_decode_attention(start, stop, residuals):
    q, k, v = floats(2, 4, 8), floats(2, 64, 2, 8, seed=1), floats(2, 64, 2, 8, seed=2)
    start, stop = (x if x is None else np.asarray(x, np.int32) for x in (start, stop))
    options = {"k_splits": 4, "return_residuals": residuals, "normalize_output": not residuals}
    want = jax_decode.gqa(q, k, v, start, stop, interpret=True, **options)
    found = decode_attention.gqa(q, k, v, start, stop, **options)
    jax.tree.map(close, ferrax.tree.leaves(found), jax.tree.leaves(want))
    want = jax_decode.mqa(q, k[:, :, 0], v[:, :, 0], start, stop, interpret=True, **options)
    found = ferrax.jit(functools.partial(decode_attention.mqa, **options))(q, k[:, :, 0], v[:, :, 0], start, stop)
    jax.tree.map(close, ferrax.tree.leaves(found), jax.tree.leaves(want))
    if start is None or start.ndim == 0:
        close(decode_attention.gqa_reference(q, k, v, start, stop), jax_decode.gqa_reference(q, k, v, start, stop))


def pages(batch, groups, size, seed=0):
    """Queries, pages of keys and of values, and a table of 4 pages for each sequence."""
    shape = (groups, 4 * batch, size, 8)
    table = np.random.default_rng(seed).permutation(4 * batch).reshape(batch, 4).astype(np.int32)
    return floats(batch, 4, 8), floats(*shape, seed=1), floats(*shape, seed=2), table


@pytest.mark.parametrize("cap", [None, 2.0])
def test_paged_attention(cap):
    q, k, v, table = pages(3, 2, 4)
    lengths = np.array([5, 16, 0], np.int32)
    in_order = [np.swapaxes(x[:, table], 0, 1).reshape(3, 2, 16, 8) for x in (k, v)]
    seen = (np.arange(16) < lengths[:, None])[:, None, None]
    want = np.array(plain(q.reshape(3, 2, 2, 8), *in_order, seen, cap=cap)[0]).reshape(q.shape)
    want[2] = 0
    found = paged_attention.paged_attention(q, k, v, table, lengths, attn_logits_soft_cap=cap)
    close(found, want)
    found = tpu_paged(q, k, v, lengths, table, attn_logits_soft_cap=cap, pages_per_compute_block=2)
    close(found, want)
    reference = util.grouped_query_attention_reference(q, *in_order, lengths, cap)
    close(reference[:2], want[:2])
    k8, v8 = quantization_utils.quantize_to_int8(k), quantization_utils.quantize_to_int8(v)
    found = tpu_paged(q, k8, v8, lengths, table, attn_logits_soft_cap=cap, pages_per_compute_block=4)
    np.testing.assert_allclose(found, want, atol=0.05)
    scales = [np.asarray(x.scales)[..., 0] / 127.5 for x in (k8, v8)]
    gpu = paged_attention.paged_attention(q, k8.weight, v8.weight, table, lengths, *scales, attn_logits_soft_cap=cap)
    close(gpu, found, atol=1e-4)
    close(ferrax.grad(lambda q: tpu_paged(q, k, v, lengths, table, pages_per_compute_block=1).sum())(q)[2], 0)


def test_pages_that_do_not_fit():
    q, k, v, table = pages(2, 2, 4)
    lengths = np.array([5, 16], np.int32)
    with pytest.raises(ValueError, match="multiple of 16"):
        paged_attention.paged_attention(q, k, v, table, lengths, block_h=8)
    with pytest.raises(ValueError, match="share"):
        paged_attention.paged_attention(q[:, :3], k, v, table, lengths)
    with pytest.raises(ValueError, match="features"):
        paged_attention.paged_attention(q[..., :4], k, v, table, lengths)
    with pytest.raises(ValueError, match="int32"):
        tpu_paged(q, k, v, lengths.astype(np.uint8), table, pages_per_compute_block=2)
    with pytest.raises(ValueError, match="megacore_mode"):
        tpu_paged(q, k, v, lengths, table, pages_per_compute_block=2, megacore_mode="x")
    with pytest.raises(ValueError, match="do not divide"):
        tpu_paged(q, k, v, lengths, table, pages_per_compute_block=3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normalisation(dtype):
    x, w, b = jnp.asarray(floats(2, 3, 10), dtype), jnp.asarray(floats(10, seed=1), dtype), jnp.ones(10, dtype)
    atol = 1e-5 if dtype == "float32" else 5e-2
    near = lambda x, y: np.testing.assert_allclose(  # noqa: E731
        np.asarray(x, np.float32), np.asarray(y, np.float32), atol=atol, rtol=atol
    )
    near(softmax.softmax(x), ferrax.nn.softmax(x.astype("float32"), -1))
    with pytest.raises(NotImplementedError, match="last axis"):
        softmax.softmax(x, axis=0)
    for function, reference in (
        (layer_norm.layer_norm, layer_norm.layer_norm_reference), (rms_norm.rms_norm, rms_norm.rms_norm_reference)
    ):
        assert function(x, w, b).dtype == dtype
        near(function(x, w, b), reference(*(y.astype("float32") for y in (x, w, b))))
        loss = lambda f: lambda *xs: jnp.sin(f(*xs).astype("float32")).sum()  # noqa: E731
        found = ferrax.grad(loss(function), (0, 1, 2))(x, w, b)
        want = ferrax.grad(loss(reference), (0, 1, 2))(*(y.astype("float32") for y in (x, w, b)))
        for got, wanted in zip(found, want):
            near(got, wanted)
        with pytest.raises(ValueError, match="weight and bias"):
            function(x, w[:3], b)
        with pytest.raises(ValueError, match="backward_pass_impl"):
            function(x, w, b, backward_pass_impl="x")


# Of TPUs.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", [4, 5, 128])
def test_flash_attention(causal, block):
    q, k, v = floats(2, 2, 6, 8), floats(2, 2, 11, 8, seed=1), floats(2, 2, 11, 8, seed=2)
    ab = floats(2, 2, 6, 11, seed=3)
    ids = flash_attention.SegmentIds(np.arange(12).reshape(2, 6) % 2, np.arange(22).reshape(2, 11) % 2)
    sizes = flash_attention.BlockSizes(8, block, block, 1)

    def found(q, k, v, ab):
        return flash_attention.flash_attention(q, k, v, ab, ids, causal=causal, sm_scale=0.7, block_sizes=sizes)

    seen = (ids.q[:, None, :, None] == ids.kv[:, None, None]) & (~causal | np.tri(6, 11, dtype=bool))

    def want(q, k, v, ab):
        return plain(q, k, v, seen, ab, 0.7)[0]

    close(found(q, k, v, ab), want(q, k, v, ab), atol=1e-4)
    loss = lambda f: lambda *xs: jnp.sin(f(*xs)).sum()  # noqa: E731
    for x, y in zip(*(ferrax.grad(loss(f), (0, 1, 2, 3))(q, k, v, ab) for f in (found, want))):
        close(x, y, atol=1e-4)
    second = lambda f: ferrax.grad(lambda q: jnp.sum(ferrax.grad(loss(f))(q, k, v, ab) ** 2))(q)  # noqa: E731
    close(second(found), second(want), atol=1e-3)
    if not causal:
        close(
            flash_attention.mha_reference_no_custom_vjp(q, k, v, ab, ids, sm_scale=0.7), found(q, k, v, ab), atol=1e-4
        )


def test_flash_attention_of_what_does_not_fit():
    q = floats(1, 2, 4, 8)
    flash = flash_attention.flash_attention
    with pytest.raises(ValueError, match="as many heads"):
        flash(q, q[:, :1], q[:, :1])
    with pytest.raises(ValueError, match="features"):
        flash(q, q[..., :4], q)
    with pytest.raises(NotImplementedError, match="pad v"):
        flash(q, q, q[..., :4])
    with pytest.raises(ValueError, match="ab"):
        flash(q, q, q, q)
    with pytest.raises(ValueError, match="segment_ids"):
        flash(q, q, q, None, flash_attention.SegmentIds(np.zeros((1, 3)), np.zeros((1, 4))))
    with pytest.raises(ValueError, match="does not divide"):
        flash_attention.BlockSizes(8, 8, 3, 1)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("tile", [2, 3, 128])
@pytest.mark.parametrize("offset, count", [(None, 4), (1, 2)])
def test_gmm(transposed, tile, offset, count):
    sizes = np.array([3, 0, 5, 2], np.int32)
    x, w = floats(10, 4), floats(count, 4, 3, seed=1)
    first = offset or 0
    group = np.repeat(np.arange(4), sizes)
    own = (group >= first) & (group < first + count)

    def want(x, w):
        rows = jnp.einsum("mk,mkn->mn", x, w[np.clip(group - first, 0, count - 1)])
        return jnp.where(own[:, None], rows, 0)

    def found(x, w, out=None):
        w = jnp.swapaxes(w, 1, 2) if transposed else w
        at = None if offset is None else jnp.int32(offset)
        return megablox.gmm(x, w, sizes, jnp.float32, (tile, 4, 4), at, out, transposed)

    close(found(x, w), want(x, w))
    loss = lambda f: lambda *xs: jnp.sin(f(*xs)).sum()  # noqa: E731
    for got, wanted in zip(*(ferrax.jit(ferrax.grad(loss(f), (0, 1)))(x, w) for f in (found, want))):
        close(got, wanted)
    kept = floats(10, 3, seed=2)
    close(found(x, w, kept), jnp.where(own[:, None], want(x, w), kept))
    y = floats(10, 3, seed=3)
    at = None if offset is None else jnp.int32(offset)
    outer = tgmm(x.T, y, sizes, tiling=(tile, 1, 1), group_offset=at, num_actual_groups=count)
    close(outer, np.stack([x[group == first + g].T @ y[group == first + g] for g in range(count)]))


def test_gmm_of_what_does_not_fit():
    x, w, sizes = floats(4, 2), floats(1, 2, 3), np.array([4], np.int32)
    with pytest.raises(ValueError, match="float32 or bfloat16"):
        megablox.gmm(x.astype(np.float16), w, sizes)
    with pytest.raises(ValueError, match="int32"):
        megablox.gmm(x, w, sizes.astype(np.uint32))
    with pytest.raises(ValueError, match="2 axes"):
        megablox.gmm(x[0], w, sizes)
    with pytest.raises(ValueError, match="no tiles"):
        megablox.gmm(x, w, sizes, tiling=lambda m, k, n: None)
    with pytest.raises(ValueError, match="no product"):
        megablox.gmm(x, w, sizes, transpose_rhs=True)


def test_matmul_and_double():
    x, y = floats(8, 12), floats(12, 4, seed=1)
    close(matmul.matmul(x, y, block_shape=(4, 2), block_k=3), x @ y)
    ints = np.arange(16, dtype=np.int8).reshape(4, 4)
    assert matmul.matmul(ints, ints, block_shape=(2, 4), block_k=4, out_dtype=jnp.int32).dtype == np.int32
    with pytest.raises(ValueError, match="do not divide"):
        matmul.matmul(x, y, block_shape=(3, 2), block_k=3)
    with pytest.raises(TypeError, match="out_dtype"):
        matmul.matmul(x, ints, block_shape=(1, 1))
    close(example_kernel.double(x), 2 * x)


# Of masks.


@pytest.mark.parametrize("make", ["rule", "numpy", "traced"])
@pytest.mark.parametrize("heads", [1, 2])
def test_splash_attention(make, heads):
    q, k, v = floats(4, 8, 8), floats(heads, 12, 8, seed=1), floats(heads, 12, 8, seed=2)
    rule = masks.LocalMask((8, 12), (3, 2), 1)
    mask = masks.MultiHeadMask([rule] * 4)
    if make == "numpy":
        mask = masks.MultiHeadMask([masks.CausalMask((8, 12))] + [masks.NumpyMask(rule[:, :])] * 3)
    dense = mask[:, :, :]
    ids = splash_attention.SegmentIds(np.arange(8) // 4, np.arange(12) // 6)
    sinks = floats(4)
    sizes = splash_attention.BlockSizes(8, 5)

    def found(q, k, v, sinks):
        kernel = splash_attention.make_splash_mha_single_device(
            jnp.asarray(dense) if make == "traced" else mask, block_sizes=sizes, attn_logits_soft_cap=3.0,
            save_residuals=True,
        )  # fmt: skip
        out, (level,) = kernel(q, k, v, ids, sinks)
        return out, level

    seen = dense & (ids.q[:, None] == ids.kv)

    def want(q, k, v, sinks):
        k, v = (jnp.repeat(x, 4 // heads, 0) for x in (k, v))
        return plain(q, k, v, seen, cap=3.0, sink=sinks[:, None])

    for x, y in zip(found(q, k, v, sinks), want(q, k, v, sinks)):
        close(x, y)
    loss = lambda f: lambda *xs: sum(jnp.sin(x).sum() for x in f(*xs))  # noqa: E731
    for x, y in zip(*(ferrax.jit(ferrax.grad(loss(f), (0, 1, 2, 3)))(q, k, v, sinks) for f in (found, want))):
        close(x, y)
    reference = splash_attention.make_masked_mha_reference(mask, attn_logits_soft_cap=3.0)(q, k, v, ids, sinks)
    close(reference, found(q, k, v, sinks)[0])
    if heads == 1:
        mqa = splash_attention.make_splash_mqa_single_device(mask)
        close(ferrax.vmap(mqa)(q[None], k, v), plain(q, k, v, dense)[0][None])
    leaves, tree = ferrax.tree.flatten(splash_attention.make_splash_mha_single_device(mask))
    assert len(leaves) == 1 and tree.unflatten(leaves)(q, k, v).shape == q.shape


def on_both(make):
    return make(masks), make(jax_masks)


MASKS = {
    "causal": lambda m: [m.CausalMask((32, 48))],
    "shared by heads": lambda m: [m.CausalMask((32, 48), 8)] * 4,
    "two to a shard": lambda m: [m.CausalMask((32, 48)), m.LocalMask((32, 48), (8, 4), 0)] * 2,
    "one to a shard": lambda m: [m.CausalMask((32, 48))] * 2 + [m.LocalMask((32, 48), (8, None), 4)] * 2,
    "full": lambda m: [m.FullMask((32, 48))] * 2,
    "random": lambda m: [m.NumpyMask(m.make_random_mask((32, 48), 0.99, seed)) for seed in (1, 2)],
    "one random": lambda m: [m.NumpyMask(m.make_random_mask((32, 48), 0.995, 3))] * 2,
    "chunked or local": lambda m: [m.ChunkedCausalMask((32, 48), 8) | m.LocalMask((32, 48), (2, 2), 0)] * 2,
    "empty": lambda m: [m.NumpyMask(np.zeros((32, 48), bool))] * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("shards", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("function", ["process_mask", "process_mask_dkv"])
def test_mask_info(name, shards, function):
    own, other = on_both(MASKS[name])
    shards = (min(shards[0], len(own)), shards[1])
    for shrink in (True, False):
        options = {"head_shards": shards[0], "q_seq_shards": shards[1], "shrink_grid": shrink and name not in ("empty", "full")}
        found, rule = getattr(mask_info, function)(masks.MultiHeadMask(own), (8, 16), **options)
        want, wanted_rule = getattr(jax_mask_info, function)(jax_masks.MultiHeadMask(other), (8, 16), **options)
        assert (rule is None) == (wanted_rule is None)
        for x, y in zip(found, want):
            assert (x is None) == (y is None)
            if y is not None:
                assert np.asarray(x).dtype == np.asarray(y).dtype
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("shards", [(1, 1), (2, 2)])
@pytest.mark.parametrize("function", ["process_dynamic_mask", "process_dynamic_mask_dkv"])
@pytest.mark.parametrize("narrow", [True, False])
def test_mask_info_of_arrays(shards, function, narrow):
    dense = np.stack([masks.make_random_mask((32, 48), 0.99, seed) for seed in range(4)])
    dense[1, :8] = True
    options = {"head_shards": shards[0], "q_seq_shards": shards[1], "downcast_smem_data": narrow}
    found = ferrax.jit(lambda x: getattr(mask_info, function)(x, (8, 16), **options)[0][:4])(dense)
    want = getattr(jax_mask_info, function)(jax.numpy.asarray(dense), (8, 16), **options)[0]
    for x, y in zip(found, want[:4]):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_masks_compare_and_refuse():
    one, two = masks.CausalMask((8, 8)), masks.CausalMask((8, 8), 1)
    assert one == masks.CausalMask((8, 8)) and hash(one) == hash(masks.CausalMask((8, 8))) and one != two
    assert (one | two) == (masks.CausalMask((8, 8)) | two) and (one & two) != (one | two)
    np.testing.assert_array_equal((one & two)[2:4, :], one[2:4, :] & two[2:4, :])
    np.testing.assert_array_equal(
        masks.make_random_mask((9, 9), 0.4, 5), jax_masks.make_random_mask((9, 9), 0.4, 5)
    )
    for wrong, error in (
        (lambda: bool(one), NotImplementedError), (lambda: one | masks.FullMask((8, 4)), ValueError),
        (lambda: one[0], (NotImplementedError, TypeError)), (lambda: one[::2, :], NotImplementedError),
        (lambda: masks.MultiHeadMask([]), ValueError), (lambda: masks.MultiHeadMask([np.ones((2, 2))]), ValueError),
        (lambda: masks.MultiHeadMask([masks.MultiHeadMask([one])]), ValueError),
        (lambda: masks.NumpyMask(np.ones((2, 2))), ValueError), (lambda: masks.FullMask([2, 2]), ValueError),
        (lambda: masks.ChunkedCausalMask((4, 4), 0), ValueError), (lambda: masks.CausalMask((6, 6), 0, 2), ValueError),
        (lambda: mask_info.process_mask(masks.MultiHeadMask([one]), (3, 8)), ValueError),
        (lambda: mask_info.process_dynamic_mask(jnp.ones((1, 8, 8)), (4, 4)), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            wrong()
