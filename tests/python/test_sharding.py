"""Where arrays live."""

import pickle

import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp


@same
def test_where_an_array_lives(S):
    x = S.jnp.ones((2, 3))
    where = x.sharding
    device = S.jax.devices()[0]
    again = S.jax.sharding.SingleDeviceSharding(device)
    return (
        where == again, hash(where) == hash(again), where != device,
        where.shard_shape((2, 3)), where.num_devices, where.device_set == {device},
        where.devices_indices_map((2, 3)) == {device: (slice(None), slice(None))},
        where.is_fully_replicated, where.is_fully_addressable, where.is_equivalent_to(again, 2),
        S.jax.device_put(x, again), S.jax.device_put({"a": x}, device)["a"].sharding == where,
    )  # fmt: skip


def test_errors_of_places():
    with pytest.raises(TypeError, match="requires a device"):
        ferrax.sharding.SingleDeviceSharding("cpu")
    with pytest.raises(ValueError, match="virtual"):
        ferrax.sharding.SingleDeviceSharding(ferrax.devices()[0], memory_kind="virtual")
    for name in ("device", "src"):
        with pytest.raises(ValueError, match=f"device_put: {name} must be None, a device"):
            ferrax.device_put(1.0, **{name: "cpu"})
    with pytest.raises(ValueError, match="donate and may_alias"):
        ferrax.device_put(1.0, donate=True, may_alias=True)
    with pytest.raises(ValueError):
        ferrax.device_put({"a": 1.0}, {"b": ferrax.devices()[0]})
    with pytest.raises(AttributeError, match="no attribute 'sharding'"):
        ferrax.jit(lambda x: x.sharding)(1.0)
    assert pickle.loads(pickle.dumps(jnp.ones(2).sharding)) == jnp.ones(2).sharding
