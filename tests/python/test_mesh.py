"""Meshes, specs and shardings as values, and the arrays that are put over meshes."""

import pickle

import numpy as np
import pytest
from oracle import attempt, same

import ferrax
import ferrax.numpy as jnp


def named(S):
    """What most tests ask for: the module of shardings, specs, the device, an Auto and an Explicit mesh
    of one device, and a mesh of eight that are not said."""
    sharding = S.jax.sharding
    device = S.jax.devices()[0]
    auto = sharding.Mesh(np.array([[device]]), ("x", "y"))
    explicit = S.jax.make_mesh((1,), ("x",))
    abstract = sharding.AbstractMesh((2, 4), ("x", "y"))
    return sharding, sharding.PartitionSpec, device, auto, explicit, abstract


def outcomes(S, *cases):
    """What each case gives: text, or the name of the error's class."""
    found = [attempt(lambda S, case=case: repr(case()), S) for case in cases]
    return [getattr(outcome, "name", outcome) for outcome in found]


@same
def test_specs(S):
    _, P, *_ = named(S)
    return outcomes(
        S,
        lambda: P(("x",), [], ["x", "y"], None, P.UNCONSTRAINED),
        lambda: (P("x") is P(["x"]), P("x") == ("x",), P("x") == P("x", None), len(P("x", None))),
        lambda: (P("x") + P("y"), P("x") + ("y",), ("y",) + P("x"), P("x")[0], list(P("x", "y"))),
        lambda: P("x") + ["y"],
        lambda: (P("x", "y").index(("y",)), P("x").count("x"), P("x").partitions),
        lambda: (
            P("x", unreduced={"y"}),
            P(None, reduced={"z"}),
            P(unreduced={"z"}, reduced={"x"}),
        ),
        lambda: P("x").update(partitions=("y",), unreduced={"x"}),
        lambda: pickle.loads(pickle.dumps(P("x", unreduced={"y"}))) is P("x", unreduced={"y"}),
        lambda: P("x", unreduced={"x"}),
        lambda: P(unreduced={"x"}, reduced={"x"}),
        lambda: P(unreduced="x"),
        lambda: P(unreduced={None}),
        lambda: P("x", unreduced={"y"})[0],
        lambda: list(P("x", unreduced={"y"})),
        lambda: P("x", unreduced={"y"}) + ("z",),
        lambda: type("Other", (P,), {}),
    )


@same
def test_meshes(S):
    sharding, _, device, auto, explicit, abstract = named(S)
    Mesh, AbstractMesh, AxisType = sharding.Mesh, sharding.AbstractMesh, sharding.AxisType
    return outcomes(
        S,
        lambda: (auto, str(auto), explicit, str(explicit), explicit.abstract_mesh, abstract),
        lambda: (Mesh([device], "x"), Mesh(device, ()), S.jax.make_mesh((1, 1), ("x", "y"))),
        lambda: Mesh([device], ("x",)) is Mesh(np.array([device]), "x"),
        lambda: (explicit is S.jax.make_mesh((1,), ("x",)), explicit == Mesh([device], ("x",))),
        lambda: (auto.shape, auto.axis_sizes, auto.axis_names, auto.size, auto.empty, auto.device_ids),
        lambda: (auto.local_devices, auto.local_mesh is auto, auto.is_multi_process, auto.is_scalar),
        lambda: [
            (m.are_all_axes_auto, m.are_all_axes_explicit, m.are_all_axes_manual, m.auto_axes,
             m.explicit_axes, m.manual_axes)
            for m in (auto, explicit, abstract, AbstractMesh((), ()))
        ],
        lambda: (abstract.shape_tuple, abstract.abstract_mesh is abstract, AbstractMesh((), ()).empty),
        lambda: abstract.update(axis_names=("a", "b"), abstract_device=None),
        lambda: abstract.update_axis_types({"x": AxisType.Manual}),
        lambda: explicit.update(axis_types=(AxisType.Auto,)),
        lambda: (abstract == AbstractMesh((2, 4), ("x", "y")), pickle.loads(pickle.dumps(abstract))),
        lambda: sharding.AbstractDevice("cpu", None, "cpu"),
        lambda: abstract.devices,
        lambda: abstract.local_mesh,
        lambda: abstract.__enter__(),
        lambda: Mesh([device], ("x", "y")),
        lambda: Mesh([device], (None,)),
        lambda: Mesh([device], ("x",), axis_types="auto"),
        lambda: Mesh([device], ("x",), axis_types=(AxisType.Auto,) * 2),
        lambda: AbstractMesh((2, 4), ("x",)),
        lambda: S.jax.make_mesh((2,), ("x",)),
        lambda: S.jax.make_mesh((1,), ("x", "y")),
    )  # fmt: skip


@same
def test_named_shardings(S):
    sharding, P, device, auto, explicit, abstract = named(S)
    Named, Single = sharding.NamedSharding, sharding.SingleDeviceSharding
    x = Named(auto, P("x"))
    return outcomes(
        S,
        lambda: (x, Named(abstract, P("x")), Named(auto, P(), memory_kind="pinned_host")),
        lambda: (x == Named(auto, P("x")), x == Named(auto, P("x", None)), x == Single(device)),
        lambda: hash(x) == hash(Named(auto, P("x"))),
        lambda: [
            Named(abstract, s).shard_shape((16, 8)) for s in (P("x", "y"), P(("y", "x")), P())
        ],
        lambda: [Named(abstract, s).is_fully_replicated for s in (P("x"), P(), P(None, "y"))],
        lambda: [Named(abstract, s).replicated_axes == {"y"} for s in (P("x"), P())],
        lambda: Named(explicit, P(unreduced={"x"})).is_fully_replicated,
        lambda: (
            x.num_devices,
            Named(abstract, P()).num_devices,
            x.memory_kind,
            x._device_assignment,
        ),
        lambda: (
            x.device_set,
            x.addressable_devices,
            x.is_fully_addressable,
            x.has_addressable_devices,
        ),
        lambda: (x.devices_indices_map((4, 3)), Named(auto, P()).devices_indices_map(())),
        lambda: (x.is_equivalent_to(Single(device), 1), Single(device).is_equivalent_to(x, 3)),
        lambda: Named(abstract, P("x")).is_equivalent_to(Named(abstract, P("x", None)), 2),
        lambda: Named(abstract, P("x")).is_equivalent_to(Named(abstract, P(None, "x")), 2),
        lambda: Named(auto, P("x")).is_equivalent_to(
            Named(auto, P("x"), memory_kind="pinned_host"), 1
        ),
        lambda: (
            x.with_memory_kind("unpinned_host"),
            x.update(spec=P("y")),
            x.update(mesh=explicit),
        ),
        lambda: sharding.make_single_device_sharding(device, memory_kind="pinned_host"),
        lambda: Named(abstract, P("x", "y")).shard_shape((4, 7)),
        lambda: Named(abstract, P()).device_set,
        lambda: Named(abstract, P()).devices_indices_map((2,)),
        lambda: Named(abstract, P()).is_fully_addressable,
        lambda: Named(auto, P("z")),
        lambda: Named(auto, P("x", "x")),
        lambda: Named(auto, P(("x", "y"), "y")),
        lambda: Named(explicit, P(P.UNCONSTRAINED)),
        lambda: Named(auto, P(unreduced={"x"})),
        lambda: Named(explicit, P(reduced={"y"})),
        lambda: Named(auto, ("x",)),
        lambda: Named(auto, None),
        lambda: Named(None, P()),
        lambda: Named(auto, P("x"), memory_kind="disk"),
        lambda: x.with_memory_kind("disk"),
        lambda: x.check_compatible_aval(()),
    )


@same
def test_manual_axes(S):
    Manual = S.jax.sharding.ManualAxisType
    mesh = S.jax.sharding.AbstractMesh((2, 4), ("x", "y"), (S.jax.sharding.AxisType.Manual,) * 2)
    one = Manual(varying=frozenset({"x"}), reduced=frozenset({"z"}))
    return outcomes(
        S,
        lambda: (Manual(), Manual(unreduced=frozenset({"x"})), one.to_ct_mat().unreduced, one.empty),
        lambda: (Manual().empty, one.invarying(mesh), len(one.vur), one == one.update(), hash(one) == hash(one)),
        lambda: pickle.loads(pickle.dumps(one)) == one,
        lambda: Manual(varying=frozenset({"x"}), unreduced=frozenset({"x"})),
        lambda: Manual(varying=frozenset({"x"}), reduced=frozenset({"x"})),
        lambda: Manual(frozenset({"x"})),
    )


def test_tiles_of_several_devices():
    made = ferrax.devices()
    mesh = ferrax.sharding.Mesh(np.array(made).reshape(2, 4), ("x", "y"))
    indices = ferrax.NamedSharding(mesh, ferrax.P(("y", "x"))).devices_indices_map((16,))
    # The first name is the major one: device 1 has x=0, y=1, and so the third of eight parts.
    assert [indices[device][0].start for device in made] == [0, 4, 8, 12, 2, 6, 10, 14]
    copies = ferrax.NamedSharding(mesh, ferrax.P(None, "x"))
    assert [copies._replica_ids(2)[device] for device in made] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert copies.devices_indices_map((3, 4))[made[5]] == (slice(None), slice(2, 4))
    turned = ferrax.sharding.Mesh(np.array(made).reshape(2, 4).T, ("y", "x"))
    same_devices = ferrax.NamedSharding(turned, ferrax.P(None, "x"))
    assert not copies.is_equivalent_to(same_devices, 2)


@same
def test_arrays_keep_the_place_that_they_were_put_in(S):
    sharding, P, device, auto, explicit, abstract = named(S)
    Named = sharding.NamedSharding
    x = S.jnp.arange(6.0).reshape(2, 3)
    put = S.jax.device_put(x, Named(auto, P("x")))
    shard = put.addressable_shards[0]
    tree = S.jax.device_put({"a": x, "b": [1, x]}, {"a": Named(auto, P("x")), "b": None})
    host = S.jax.device_put(put, S.jax.memory.Space.Host)
    return outcomes(
        S,
        lambda: (x.sharding, x.committed, x.device, x.devices(), x.format),
        lambda: (put.sharding, put.committed, put.device, put.devices(), put.format),
        lambda: (put.is_fully_replicated, put.is_fully_addressable, len(put.global_shards)),
        lambda: (repr(shard), shard.index, shard.replica_id, shard.device, shard.data.sharding),
        lambda: (put.addressable_data(0).sharding, put, put + 1),
        lambda: (tree["a"].sharding, tree["b"][1].committed),
        lambda: (S.jax.device_put(x, device).committed, S.jax.device_put(put, None).sharding),
        lambda: (S.jax.device_put(x, put.format).sharding, host.sharding.memory_kind),
        lambda: S.jax.device_put(S.jax.random.key(0), Named(auto, P())).sharding,
        lambda: S.jax.ShapeDtypeStruct.like(put).sharding,
        lambda: S.jax.device_put(x, Named(auto, P("x", None, None))),
        lambda: S.jax.device_put(x, Named(abstract, P("x"))),
        lambda: S.jax.device_put(x, P("x")),
        lambda: S.jax.device_put(x, "cpu"),
        lambda: S.jax.device_put([x], [device, device]),
    )


@same
def test_types_name_explicit_axes(S):
    sharding, P, device, auto, explicit, _ = named(S)
    Named = sharding.NamedSharding
    mesh = sharding.AbstractMesh((2, 4), ("x", "y"), (sharding.AxisType.Explicit,) * 2)
    x = S.jnp.ones((4, 8))
    typed = S.jax.typeof(S.jax.device_put(x, Named(explicit, P("x"))))
    struct = S.jax.ShapeDtypeStruct((4,), np.float32, sharding=Named(explicit, P("x")))
    aval = S.jax.core.ShapedArray
    return outcomes(
        S,
        lambda: (typed, str(typed), typed.sharding, typed == S.jax.typeof(x)),
        lambda: S.jax.typeof(S.jax.device_put(x, Named(auto, P("x")))).sharding,
        lambda: aval((4, 8), np.float32, sharding=Named(mesh, P(None, ("x", "y")))),
        lambda: aval((4, 8), np.float32, sharding=Named(mesh, P(("x", "y")))),
        lambda: aval((4, 8), np.float32, sharding=Named(mesh, P(None, "y", unreduced={"x"}))),
        lambda: (struct, struct.update(sharding=None)),
        lambda: S.jax.ShapeDtypeStruct((4,), np.float32, sharding="x"),
        lambda: S.jax.ShapeDtypeStruct((4,), np.float32, sharding=P("x")),
    )


@same
def test_arrays_made_of_parts(S):
    sharding, P, device, auto, explicit, _ = named(S)
    put = sharding.NamedSharding(auto, P("x"))
    data, x = np.arange(6.0, dtype=np.float32).reshape(2, 3), S.jnp.ones((2, 3))
    of_callback = S.jax.make_array_from_callback
    of_parts, of_local = (
        S.jax.make_array_from_single_device_arrays, S.jax.make_array_from_process_local_data,
    )  # fmt: skip
    made = of_callback((2, 3), put, lambda index: data[index])
    return made, outcomes(
        S,
        lambda: (made.sharding, made.committed, of_callback((2, 3), put, lambda index: x).sharding),
        lambda: of_callback((2, 3), put, lambda index: data, dtype=np.int32),
        lambda: of_callback((2, 3), put, lambda index: data[:1]),
        lambda: of_callback((2, 3), device, lambda index: data),
        lambda: of_parts((2, 3), put, [x]).sharding,
        lambda: of_parts((3, 3), put, [x]),
        lambda: of_parts((2, 3), put, [x, x]),
        lambda: of_parts((2, 3), put, []),
        lambda: of_parts((2, 3), put, x),
        lambda: of_parts((2, 3), put, [data]),
        lambda: (of_local(put, data).sharding, of_local(put, {"a": data}, (2, 3))["a"].sharding),
        lambda: of_local(put, data, (4, 3)),
    )


@same
def test_the_mesh_in_use(S):
    sharding, P, device, auto, explicit, abstract = named(S)
    x = S.jnp.ones((2, 3))
    found = [sharding.get_mesh(), sharding.get_abstract_mesh()]
    with S.jax.set_mesh(explicit):
        found += [sharding.get_mesh(), sharding.get_abstract_mesh()]
        found += [S.jax.device_put(x, P("x")).sharding]
        found += [S.jax.ShapeDtypeStruct((2,), np.float32, sharding=P("x")).sharding]
        traced = []

        def note(x):
            traced.append(sharding.get_abstract_mesh())
            return x

        noted = S.jax.jit(note)
        noted(x)
        inside = outcomes(S, lambda: S.jax.jit(lambda: sharding.get_mesh())())
        with S.jax.set_mesh(auto):
            found += [sharding.get_mesh()]
            noted(x)
        found += [sharding.get_mesh()]
    with sharding.use_abstract_mesh(abstract):
        found += [sharding.get_abstract_mesh()]
        inside += outcomes(
            S, lambda: sharding.use_abstract_mesh(explicit.abstract_mesh).__enter__()
        )
    with pytest.warns(DeprecationWarning), auto:
        found += [sharding.get_mesh()]
    return repr(found + traced + [sharding.get_mesh()]), inside, outcomes(
        S,
        lambda: S.jax.set_mesh(abstract),
        lambda: sharding.use_abstract_mesh(explicit),
        lambda: S.jax.jit(lambda x: S.jax.set_mesh(explicit))(x),
    )  # fmt: skip


def test_the_table_of_places_is_as_long_as_there_are_places():
    from ferrax._src.core import placements

    where = ferrax.sharding.SingleDeviceSharding(ferrax.devices()[0], memory_kind="pinned_host")
    first = ferrax.device_put(jnp.ones(3), where)
    before = len(placements._placements)
    arrays = [ferrax.device_put(jnp.ones(n), where) + 1 for n in range(10)]
    assert len(placements._placements) == before
    assert {x.sharding for x in (first, *arrays)} == {where}


def test_putting_an_array_somewhere_copies_nothing():
    x = jnp.arange(6.0)
    put = ferrax.device_put(x, ferrax.NamedSharding(ferrax.make_mesh((1,), ("x",)), ferrax.P("x")))
    assert put is not x and put.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert ferrax.device_put(put, put.sharding) is put and not x.committed
    loaded = pickle.loads(pickle.dumps(put.sharding))
    assert loaded == put.sharding and loaded.mesh is put.sharding.mesh
