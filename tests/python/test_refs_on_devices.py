"""Mutable arrays and what they are made of: parts on devices, placements, types that stand for them, kinds."""

import jax
import numpy as np
import pytest
from oracle import FERRAX, compare
from ref_cases import same

import ferrax
import ferrax.numpy as jnp
from ferrax._src.state import opened

KIND = "no_grad_no_remat"


def mesh(s, explicit=False):
    kinds = s.jax.sharding.AxisType
    return s.jax.make_mesh((4,), ("i",), axis_types=(kinds.Explicit if explicit else kinds.Auto,))


def divided(s, explicit=False):
    """A mutable array of which each of four devices has two elements."""
    where = s.jax.sharding.NamedSharding(mesh(s, explicit), s.jax.P("i"))
    return s.jax.new_ref(s.jax.device_put(s.jnp.arange(8.0), where))


def add_index(s, ref, x):
    ref[...] += s.lax.axis_index("i") * x
    return ref[...] * 2


def add_to_view(s, ref, x):
    ref.at[1:][...] += x
    return


# The function, the specs of its arguments and of its results.
BODIES = {
    "parts": (add_index, (("i",), ()), ("i",)),
    "view inside": (add_to_view, (("i",), ()), None),
    "whole, read": (lambda s, ref, x: ref[...] * x, ((), ()), ()),
    "whole, written": (lambda s, ref, x: ref.__setitem__(0, x), ((), ()), None),
    "a tree": (lambda s, tree, x: tree["ref"].addupdate(tree["x"] * x), (("i",), ()), None),
}


@pytest.mark.parametrize("name", BODIES)
@same
def test_shard_map_of_refs(s, name):
    body, ins, outs = BODIES[name]
    P = s.jax.P
    ref, x = divided(s), 2.0
    function = s.jax.shard_map(
        lambda *args: body(s, *args),
        mesh=mesh(s),
        in_specs=tuple(P(*spec) for spec in ins),
        out_specs=None if outs is None else P(*outs),
    )
    if name == "a tree":
        ref = {"ref": ref, "x": s.jnp.arange(8.0)}
    if name == "a tree" and s.name == "jax":
        # JAX's refs have the function `addupdate` alone.
        return None, s.jnp.arange(8.0) * 3
    out = s.jax.jit(function)(ref, x)
    held = ref["ref"] if name == "a tree" else ref
    return out, held[...]


def test_shard_map_of_refs_eagerly_and_under_transformations():
    def function(ref, x):
        ref[...] += x
        return ref[...] * x

    parts = ferrax.shard_map(function, mesh=mesh(FERRAX), in_specs=ferrax.P("i"), out_specs=ferrax.P("i"))
    ref, x = divided(FERRAX), jnp.arange(8.0)
    assert parts(ref, x).tolist() == (2 * x * x).tolist()
    assert ref[...].tolist() == (2 * x).tolist() and ref.sharding.spec == ferrax.P("i")

    def loss(x):
        own = ferrax.new_ref(x)
        return (parts(own, x * x) * own[...]).sum()

    expected = jax.grad(lambda x: (((x + x * x) * x * x) * (x + x * x)).sum())(np.arange(8, dtype=np.float32))
    for g in (ferrax.grad(loss), ferrax.jit(ferrax.grad(loss))):
        compare(g(x), expected)
    batches = ferrax.vmap(loss)(jnp.stack([x, 2 * x]))
    compare(batches, jnp.stack([loss(x), loss(2 * x)]))


def test_refs_that_shard_map_refuses():
    def over(f, spec, outs=None):
        return ferrax.shard_map(f, mesh=mesh(FERRAX), in_specs=spec, out_specs=outs)

    P, ref, x = ferrax.P, divided(FERRAX), jnp.arange(4.0)
    with pytest.raises(ValueError, match="may differ there"):
        over(lambda r, x: r.__setitem__(0, x[0]), (P(), P("i")))(ref, x)
    with pytest.raises(ValueError, match="at both v and w"):
        over(lambda v, w: None, P("i"))(ref, ref)
    with pytest.raises(ValueError, match="the result has a mutable array"):
        over(lambda v: v, P("i"), P("i"))(ref)
    with pytest.raises(NotImplementedError, match="a view of a mutable array is whole on all devices"):
        over(lambda v: None, P("i"))(ref.at[:4])
    assert ref[...].tolist() == list(range(8))


@pytest.mark.parametrize("at", ["slice", "traced", "indices"])
def test_views_as_arguments_of_shard_map(at):
    ref = ferrax.new_ref(jnp.arange(10.0))
    one = ferrax.shard_map(
        lambda view, x: view.addupdate(x), mesh=mesh(FERRAX), in_specs=ferrax.P(), out_specs=None
    )

    @ferrax.jit
    def f(ref, i):
        view = ref.at[{"slice": slice(2, 4), "traced": i, "indices": i + jnp.array([0, 1])}[at]]
        one(view, jnp.full(view.shape, 5.0))
        return view[...]

    expected = np.arange(10.0)
    expected[2 : 3 if at == "traced" else 4] += 5
    f(ref, 2)
    assert ref[...].tolist() == expected.tolist()


def views(ref, i):
    return [
        ref.at[1:3], ref.at[i], ref.at[:, i], ref.at[jnp.array([0, 2])], ref.at[::2, 1].at[0], ref.reshape(2, 12).at[0],
        ref.T, ref.bitcast(jnp.int32),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(8))
def test_views_as_nodes_of_trees(number):
    ref = ferrax.new_ref(jnp.arange(24.0).reshape(4, 6))
    i = jnp.int32(1)
    change = ferrax.jit(lambda view, x: view.__setitem__(..., view[...] * x))
    view = views(ref, i)[number]
    expected = view[...] * 6
    for x in (2, 3):
        # Another view of the same kind is the same tree.
        change(*opened((views(ref, i)[number], x)))
    assert view[...].tolist() == expected.tolist() and change.stats().traces == 1
    assert ferrax.tree.leaves(view) == [view] and opened((1, None)) == (1, None)


@same
def test_placements(s):
    ref = divided(s)
    before = [str(x.sharding.spec) for x in (ref, ref[...], s.jax.freeze(ref))]
    ref[0] = 5.0
    s.jax.jit(lambda r: r.__setitem__(1, 7.0))(ref)
    ref[...] = ref[...] + s.jnp.arange(8.0)
    inner = s.jax.jit(lambda: ref[...])()
    unplaced = s.jax.new_ref(1.0)
    single = s.jax.sharding.SingleDeviceSharding
    return before, str(ref.sharding.spec), inner.sharding == ref.sharding, ref.committed, isinstance(
        unplaced.sharding, single
    )


@pytest.mark.parametrize("explicit", [False, True])
@same
def test_types_say_how_refs_are_divided(s, explicit):
    found = []

    @s.jax.jit
    def f(ref):
        found.append(str(s.jax.typeof(ref).sharding.spec))
        found.append(str(s.jax.typeof(ref[...]).sharding.spec))
        return ref[...] + 1

    ref = divided(s, explicit)
    with s.jax.set_mesh(mesh(s, explicit)):
        f(ref)
    ty = s.jax.typeof(ref)
    return found, str(ty.sharding.spec), ty.size, ty.memory_space


# Types


def increment(x):
    x[...] += 1


@pytest.mark.parametrize("make", ["struct", "type"])
def test_functions_are_traced_for_types_of_refs(make):
    struct = ferrax.ShapeDtypeStruct((3,), jnp.float32, is_ref=True)
    ty = struct if make == "struct" else ferrax.typeof(ferrax.new_ref(jnp.zeros(3)))
    compiled = ferrax.jit(increment).lower(ty).compile()
    ref = ferrax.new_ref(jnp.zeros(3))
    compiled(ref)
    assert ref[...].tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="a mutable array as argument 0, got an array"):
        compiled(jnp.zeros(3))
    with pytest.raises(TypeError, match="argument 0 of type"):
        compiled(ferrax.new_ref(jnp.zeros(4)))
    assert [eqn.primitive.name for eqn in ferrax.make_jaxpr(increment)(ty).eqns] == ["add"]
    for function in (lambda x: x[:2], ferrax.jit(lambda x: x[:2])):
        assert ferrax.eval_shape(function, ty) == ferrax.ShapeDtypeStruct((2,), jnp.float32)


@same
def test_structs_of_refs(s):
    struct = s.jax.ShapeDtypeStruct((3,), np.dtype("int32"), is_ref=True)
    other = s.jax.ShapeDtypeStruct((3,), np.dtype("int32"))
    where = s.jax.sharding.NamedSharding(mesh(s), s.jax.P("i"))
    placed = s.jax.ShapeDtypeStruct((8,), np.dtype("float32"), sharding=where, is_ref=True)
    ref = divided(s)
    s.jax.jit(increment).lower(placed).compile()(ref)
    same = struct == other, struct == struct.update(weak_type=False), struct.update(is_ref=False) == other
    return repr(struct), struct.is_ref, other.is_ref, same, ref[...]


def test_a_type_of_keys_stands_for_no_ref():
    keys = ferrax.ShapeDtypeStruct((), ferrax.random.key(0).dtype, is_ref=True)
    with pytest.raises(NotImplementedError, match="a type of keys"):
        ferrax.eval_shape(lambda x: x[...], keys)


# Kinds


def write_and_use(x, ref):
    ref[...] = x * 2
    return x * ref[...]


def how(s, name):
    jit, grad, remat = s.jax.jit, s.jax.grad, s.jax.remat
    return {
        "grad": grad(write_and_use),
        "jit outside": jit(grad(write_and_use)),
        "closed over": lambda x, ref: grad(lambda x: write_and_use(x, ref))(x),
        "jit, closed over": lambda x, ref: grad(jit(lambda x: write_and_use(x, ref)))(x),
        "remat, closed over": lambda x, ref: grad(remat(lambda x: write_and_use(x, ref)))(x),
        "scan": lambda x, ref: grad(
            lambda x: s.lax.scan(lambda c, _: (write_and_use(c, ref), None), x, None, length=2)[0]
        )(x),
        "jvp": lambda x, ref: s.jax.jvp(lambda x: write_and_use(x, ref), (x,), (1.0,)),
        "second": grad(grad(write_and_use)),
    }[name]


@pytest.mark.parametrize(
    "name",
    ["grad", "jit outside", "closed over", "jit, closed over", "remat, closed over", "scan", "jvp", "second"],
)
@same
def test_what_passes_through_has_no_derivative(s, name):
    ref = s.jax.new_ref(np.float32(1.0), kind=KIND)
    return how(s, name)(3.0, ref), ref[...]


def test_kinds_of_arguments_of_jit_and_remat():
    # JAX refuses the first two.
    for wrap in (ferrax.jit, ferrax.remat, lambda f: ferrax.jit(ferrax.remat(f))):
        ref = ferrax.new_ref(1.0, kind=KIND)
        assert ferrax.grad(wrap(lambda x, ref: write_and_use(x, ref)))(3.0, ref) == 6 and ref[...] == 6


def test_a_jitted_function_is_for_refs_of_one_kind_where_it_matters():
    def plain():
        return ferrax.new_ref(1.0)

    def passing():
        return ferrax.new_ref(1.0, kind=KIND)

    first = ferrax.jit(lambda x, ref: write_and_use(x, ref))
    first(3.0, plain())
    assert first(3.0, passing()) == 18
    with pytest.raises(NotImplementedError, match="argument ref, which is written to.* kind='no_grad_no_remat'"):
        ferrax.grad(first)(3.0, passing())
    second = ferrax.jit(ferrax.grad(write_and_use))
    assert second(3.0, passing()) == 6
    with pytest.raises(NotImplementedError, match="traced for one of kind='no_grad_no_remat'"):
        second(3.0, plain())
    # What is only read is the same for both.
    third = ferrax.jit(lambda x, ref: x * ref[...])
    assert third(3.0, plain()) == 3 and ferrax.grad(third)(3.0, passing()) == 1


# Rules


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", ["twice", "returned", "returned, an option beside"])
@pytest.mark.raises("ValueError")
@same
def test_custom_vjp_without_derivatives(s, name, jitted):
    options = {"nondiff_argnums": (0,)} if "option" in name else {}

    def f(*args):
        return args[-1] if "returned" in name else None

    def two(a, b):
        return f(a, b)

    def one(a):
        return f(a)

    function = s.jax.custom_vjp(one if name == "returned" else two, **options)
    function.defvjp(lambda *args: (None, None), lambda *args: (None, None))
    ref = s.jax.new_ref(0.0)
    if jitted:
        function = s.jax.jit(function, static_argnums=(0,) if options else ())
    return function(*{"twice": (ref, ref), "returned": (ref,)}.get(name, ("an option", ref)))
