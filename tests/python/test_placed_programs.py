"""Programs over several devices that look at how their values are divided, beside JAX's: inspected shardings,
partitioned callbacks, functions that say themselves what each device does."""

import numpy as np
import pytest
from oracle import module, same
from test_many_devices import mesh_of
from test_mesh import outcomes

import ferrax

A = np.arange(64, dtype=np.float32).reshape(8, 8)


def over(S, *spec):
    return S.jax.NamedSharding(mesh_of(S, (4, 2), ("x", "y")), S.jax.P(*spec))


def put(S, x, *spec):
    return S.jax.device_put(x, over(S, *spec))


class Looks:
    """Shardings that programs called back with, by name; `seen` sorts them, for branches have no order."""

    def __init__(self, S):
        self.S, self.found = S, []

    def __call__(self, name, x):
        self.S.jax.debug.inspect_array_sharding(x, callback=lambda where: self.found.append((name, str(where.spec))))
        return x

    def seen(self, f, *args, **options):
        self.found = []
        self.S.jax.jit(f, **options)(*args)
        self.S.jax.effects_barrier()
        return sorted(self.found)


# --------------------------------------------------------------------------------------------
# inspect_array_sharding


@same
def test_shardings_within_programs(S):
    look, jnp = Looks(S), S.jnp

    def f(x):
        total = look("sum", x.sum(0))
        turned = look("turned", x.T)
        return look("zeros and it", jnp.zeros(8) + total) @ look("twice", turned * 2)

    return [look.seen(f, put(S, A, *spec)) for spec in (("x", "y"), ("y",), (None, "x"), (("x", "y"),))]


@same
def test_shardings_within_loops_and_branches(S):
    look, lax = Looks(S), S.jax.lax

    def scanned(x):
        return lax.scan(lambda c, a: (look("c", c) + look("a", a), look("s", a * c)), x[0], x)

    def looped(x):
        return lax.while_loop(lambda c: look("cond", c * 2)[0, 0] < 3, lambda c: look("body", c + 1), x)

    def chosen(x):
        return lax.cond(x[0, 0] > 0, lambda x: look("true", x.T).T, lambda x: look("false", x + 1), x)

    def nested(x):
        return lax.scan(lambda c, a: lax.scan(lambda d, b: (d + look("b", b), d), c, a), x[0, 0], x)

    @S.jax.custom_jvp
    def ruled(x):
        return look("ruled", x) + 1

    ruled.defjvp(lambda primals, tangents: (ruled(*primals), tangents[0]))
    called = S.jax.checkpoint(lambda x: look("kept", S.jax.jit(lambda x: look("called", x))(x * 2)))
    x = put(S, A, None, "y")
    deep = put(S, A.reshape(2, 4, 8), None, None, "x")
    return [look.seen(f, x) for f in (scanned, looped, chosen, ruled, called)] + [look.seen(nested, deep)]


@same
def test_shardings_in_transformed_programs(S):
    look, jax = Looks(S), S.jax
    mesh = mesh_of(S, (4, 2), ("x", "y"))
    x = put(S, A, "x", "y")
    mapped = jax.shard_map(lambda x: look("part", x), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))
    return (
        look.seen(jax.grad(lambda x: (look("g", x) ** 2).sum()), x),
        look.seen(jax.vmap(lambda x: look("v", x) * 2), x),
        look.seen(mapped, x),
    )


@same
def test_what_is_said_of_results_counts(S):
    look, lax = Looks(S), S.jax.lax
    constrained = lambda x: lax.with_sharding_constraint(look("before", x * 2), over(S, None, "x"))  # noqa: E731
    return (
        look.seen(lambda x: look("o", x * 2), A, out_shardings=over(S, "x")),
        look.seen(lambda x: look("p", S.jnp.cos(x)).T, A, out_shardings=over(S, "x", "y")),
        look.seen(constrained, A),
    )


@same
def test_programs_are_inspected_once_for_each_layout(S):
    look = Looks(S)
    f = S.jax.jit(lambda x: look("x", x * 2))
    for spec in (("x",), ("x",), ("y",), ("x",)):
        f(put(S, A, *spec))
    return look.found


@same
def test_loops_that_are_not_jitted_are_inspected(S):
    look = Looks(S)
    S.jax.lax.scan(lambda c, a: (c + look("a", a), a), S.jnp.zeros(8), put(S, A, None, "y"))
    look("eager", put(S, A, "x"))
    return sorted(look.found)


def test_inspected_without_a_mesh():
    look = []
    ferrax.jit(lambda x: ferrax.debug.inspect_array_sharding(x, callback=look.append))(A)
    assert [type(where) for where in look] == [ferrax.sharding.SingleDeviceSharding]


def test_traced_values_are_drawn(capsys):
    draw = ferrax.debug.visualize_array_sharding
    x = ferrax.device_put(A, over_ferrax("x", "y"))
    draw(x)
    eager = capsys.readouterr().out
    ferrax.jit(lambda x: draw(x * 2))(x)
    assert capsys.readouterr().out == eager and "CPU 7" in eager


def over_ferrax(*spec):
    mesh = ferrax.sharding.Mesh(np.array(ferrax.devices("cpu")[:8]).reshape(4, 2), ("x", "y"))
    return ferrax.NamedSharding(mesh, ferrax.P(*spec))


def test_a_key_in_a_loop_cannot_be_asked():
    def turn(c):
        key = ferrax.random.key(3)
        ferrax.debug.inspect_array_sharding(key, callback=print)
        return c + 1

    with pytest.raises(NotImplementedError, match="key_data"):
        ferrax.jit(lambda x: ferrax.lax.while_loop(lambda c: c[0, 0] < 3, turn, x))(
            ferrax.device_put(A, over_ferrax("x"))
        )


# --------------------------------------------------------------------------------------------
# Partitioned callbacks


def printed(S, f, *args):
    """What each call was given, in any order."""
    calls = []
    note = lambda *xs, **more: calls.append(repr([np.asarray(x).tolist() for x in (*xs, *more.values())]))  # noqa: E731
    S.jax.jit(lambda *args: f(lambda *xs, **more: S.jax.debug.callback(note, *xs, partitioned=True, **more), *args))(*args)
    S.jax.effects_barrier()
    return sorted(calls)


@same
def test_each_device_is_called_with_its_parts(S):
    row = np.arange(4, dtype=np.float32)
    return (
        printed(S, lambda call, x: call(x), put(S, A, "x", "y")),
        printed(S, lambda call, x: call(x.sum(0), 3, last=x.T), put(S, A, "x", "y")),
        printed(S, lambda call, x: call(x), put(S, row, "x")),
        printed(S, lambda call, x: call(x), put(S, np.float32(1))),
        printed(S, lambda call, x: call(x), row),
    )


@same
def test_each_lane_and_step_is_called_by_each_device(S):
    lax, vmap = S.jax.lax, S.jax.vmap

    def steps(call, x):
        return lax.scan(lambda c, a: (call(a), (c, a))[1], 0.0, x)

    small = A[:4, :4]
    return (
        printed(S, steps, put(S, A[:2], None, "y")),
        printed(S, lambda call, x: vmap(call)(x), put(S, small, "x", "y")),
        printed(S, lambda call, x: vmap(vmap(call))(x), put(S, A.reshape(2, 4, 8), None, None, "x")),
        printed(S, lambda call, x, y: vmap(call, (0, 1))(x, y), put(S, small, None, "y"), put(S, small, "x")),
    )


@same
def test_printed_by_each_device(S):
    prints = S.jax.jit(lambda x: S.jax.debug.print("{}", x, partitioned=True))
    ordered = S.jax.jit(lambda x: S.jax.debug.print("{}", x, partitioned=True, ordered=True))
    prints(put(S, A, "x"))
    S.jax.effects_barrier()
    return outcomes(S, lambda: ordered(put(S, A, "x")))


def test_the_parts_come_in_the_order_of_the_mesh(capsys):
    f = ferrax.jit(lambda x: ferrax.debug.print("{}", x, partitioned=True))
    for _ in range(2):
        f(ferrax.device_put(np.arange(4), over_ferrax("x")))
        assert capsys.readouterr().out == "[0]\n[0]\n[1]\n[1]\n[2]\n[2]\n[3]\n[3]\n"
    f(np.arange(4))
    assert capsys.readouterr().out == "[0 1 2 3]\n"


def test_programs_that_ask_keep_their_ways():
    def f(x, ref, scale):
        ferrax.debug.callback(calls.append, x, partitioned=True)
        ref[...] += x.sum()
        return scale * x

    calls = []
    jitted = ferrax.jit(f, static_argnums=2, donate_argnums=0)
    x = ferrax.device_put(A, over_ferrax("x"))
    ref = ferrax.new_ref(np.float32(1))
    y = jitted(x, ref, 3)
    assert x.is_deleted() and len(calls) == 8 and float(ref[...]) == 1 + A.sum()
    assert np.array_equal(y, 3 * A) and y.sharding.spec == ferrax.P("x")


def test_earlier_effects_happen_once(capsys):
    def f(x):
        ferrax.debug.print("first")
        ferrax.debug.print("second", partitioned=True)
        return x

    f = ferrax.jit(f)
    x = ferrax.device_put(A, over_ferrax("x"))
    f(x), f(x)
    assert capsys.readouterr().out.split() == (["first"] + ["second"] * 8) * 2


# --------------------------------------------------------------------------------------------
# custom_partitioning


class Divided:
    """A function with rules, which notes what `partition` is called with."""

    def __init__(self, S, fun, rule, lower=None, specs=None, **options):
        self.S, self.calls = S, []
        partitioning = module(S, "experimental.custom_partitioning")
        self.f = partitioning.custom_partitioning(fun)

        def partition(mesh, args, results):
            self.calls.append([(x.shape, str(x.sharding.spec)) for x in S.jax.tree.leaves((args, results))])
            found = [S.jax.tree.map(lambda x: x.sharding, tree) for tree in (results, args)]
            if specs is not None:
                found = [S.jax.tree.map(lambda spec: S.jax.NamedSharding(mesh, spec), tree) for tree in specs(S.jax.P)]
            return mesh, lower or fun, *found

        self.f.def_partition(partition, sharding_rule=rule, **options)

    def __call__(self, *args, around=lambda f: f, **options):
        self.calls.clear()
        results = self.S.jax.jit(around(self.f), **options)(*args)
        return results, [str(getattr(x.sharding, "spec", None)) for x in self.S.jax.tree.leaves(results)], [*self.calls]


@same
def test_partitions_see_what_was_found(S):
    jnp = S.jnp
    double = Divided(S, lambda x: x * 2, "i j -> i j")
    turn = Divided(S, jnp.transpose, "i j -> j i")
    lines = Divided(S, lambda x: jnp.flip(x, -1), "... i -> ... i", need_replication_factors=("i",))
    x, rows = put(S, A, "x", "y"), put(S, A, "x")
    constrained = lambda f: lambda x: S.jax.lax.with_sharding_constraint(f(x * 2), over(S, "y"))  # noqa: E731
    return (
        double(x), double(A), double(rows, around=lambda f: lambda x: f(f(x) * 2) + 1), turn(x),
        double(A, around=constrained), lines(put(S, A.reshape(4, 2, 8), "x", "y")),
    )  # fmt: skip


@same
def test_parts_of_functions_of_several_arrays(S):
    jnp, lax = S.jnp, S.jax.lax
    product = Divided(S, lambda a, b: jnp.matmul(a, b), "i j, j k -> i k", reduction_factors=("j",))
    total = Divided(
        S, lambda x: x.sum(0), "i j -> j", lambda x: lax.psum(x.sum(0), "x"), lambda P: (P("y"), (P("x", "y"),)),
        reduction_factors=("i",),
    )  # fmt: skip
    both = Divided(S, lambda x: (x + 1, x.sum(1)), "i j -> i j, i", lambda x: (x + 1, lax.psum(x.sum(1), "y")))
    merged = Divided(S, lambda x: x.reshape(64), "i j -> (i j)", lambda x: x.reshape(-1))
    rows = put(S, A, "x")
    return product(rows, A), product(A, put(S, A, None, "y")), total(put(S, A, "x", "y")), both(put(S, A, "x", "y")), (
        merged(rows)
    )


@same
def test_partitions_in_loops_and_maps(S):
    jax, lax = S.jax, S.jax.lax
    one = Divided(S, lambda x: x * 2, "i -> i")
    two = Divided(S, lambda x: x * 2, "i j -> i j")
    mesh, P = mesh_of(S, (4, 2), ("x", "y")), S.jax.P
    x = put(S, A, "x", "y")
    scanned = lambda f: lambda x: lax.scan(lambda c, a: (c + f(a), None), S.jnp.zeros(8), x)[0]  # noqa: E731
    mapped = lambda f: jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)  # noqa: E731
    return (
        one(put(S, A, None, "x"), around=scanned),
        two(x, around=lambda f: lambda x: lax.cond(x[0, 0] > 1, f, lambda x: x, x)),
        two(x, around=mapped),
    )


def test_partitions_that_do_not_fit():
    from ferrax.experimental.custom_partitioning import custom_partitioning

    x = ferrax.device_put(A, over_ferrax("x", "y"))
    where = lambda *spec: over_ferrax(*spec)  # noqa: E731

    def run(answer, rule="i j -> i j"):
        f = custom_partitioning(lambda x: x)
        f.def_partition(lambda mesh, args, result: answer(mesh), sharding_rule=rule)
        return ferrax.jit(f)(x)

    for answer, match in (
        (lambda mesh: (mesh, lambda x: x, where("x"), (where("x", "y"),)), "Mismatch in result shapes"),
        (lambda mesh: (mesh, lambda x: x, 3, (where(),)), "must return shardings of the results, got 3"),
        (lambda mesh: (mesh, lambda x: x, where(), (where(), where())), "shardings of the arguments"),
        (lambda mesh: (mesh, 3, where(), (where(),)), "a Mesh and a function"),
        (lambda mesh: mesh, "must return the mesh"),
    ):
        with pytest.raises(ValueError, match=match):
            run(answer)
    for rule, match in (("i -> i", "operand 0 has 1 axes"), ("i j, k -> i j", "has 2 operands")):
        with pytest.raises(ValueError, match=match):
            run(lambda mesh: None, rule)
    old = custom_partitioning(lambda x: x)
    old.def_partition(lambda *args: None, infer_sharding_from_operands=lambda *args: None)
    with pytest.raises(NotImplementedError, match="provide sharding_rule"):
        ferrax.jit(old)(x)


def test_divided_functions_are_differentiated_and_batched_as_they_are():
    from ferrax.experimental.custom_partitioning import custom_partitioning

    f = custom_partitioning(lambda x, scale=2: scale * x)
    f.def_partition(lambda *args: None, sharding_rule="i ->i")
    x = ferrax.numpy.ones(4)
    assert ferrax.grad(lambda x: f(x).sum())(x).tolist() == [2.0] * 4
    assert ferrax.vmap(f)(ferrax.numpy.ones((2, 4))).tolist() == [[2.0] * 4] * 2
    assert ferrax.linear_transpose(f, x)(x)[0].tolist() == [2.0] * 4
    assert f(x, scale=3).tolist() == [3.0] * 4


def test_compiled_ahead_of_time():
    calls = []

    def f(x):
        ferrax.debug.inspect_array_sharding(x.T, callback=lambda where: calls.append(where.spec))
        ferrax.debug.callback(lambda x: calls.append(x.shape), x, partitioned=True)
        return x.T

    x = ferrax.device_put(A, over_ferrax("x", "y"))
    lowered = ferrax.jit(f).lower(x)
    assert calls == []
    compiled = lowered.compile()
    assert calls == [ferrax.P("y", "x")]
    assert compiled.output_shardings.spec == ferrax.P("y", "x")
    assert compiled(x).sharding.spec == ferrax.P("y", "x")
    assert calls[1:] == [(2, 4)] * 8
