"""Python functions and objects where arrays are: calls, what is said of types, threads, and tracing."""

import gc
import threading

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental.colocated_python import (
    colocated_cpu_devices,
    colocated_python,
    colocated_python_class,
)
from ferrax.experimental.colocated_python.serialization import DeviceList

CPU = ferrax.devices("cpu")


@colocated_python
def reverse(tree, *, plus=0):
    """Not a function of ferrax's: NumPy and Python."""
    return {key: jnp.asarray(np.asarray(x)[::-1] + np.asarray(plus)) for key, x in tree.items()}


def test_calls_and_names():
    found = reverse({"a": jnp.arange(3)}, plus=jnp.int32(2))
    np.testing.assert_array_equal(found["a"], [4, 3, 2])
    assert reverse.__name__ == "reverse" and reverse.__doc__.startswith("Not a function")


def test_devices_and_meshes():
    assert colocated_cpu_devices(tuple(CPU)) == CPU
    mesh = ferrax.make_mesh((1,), ("x",))
    assert colocated_cpu_devices(mesh) == mesh
    make = colocated_python(lambda: jnp.ones(2))
    with pytest.raises(ValueError, match="No devices found"):
        make()
    assert make.specialize(devices=CPU[-1:])().devices() == {CPU[-1]}


def test_types_that_were_said():
    spec = ferrax.ShapeDtypeStruct((3,), jnp.int32)
    said = reverse.specialize(in_specs=(({"a": spec},), {}), out_specs_fn=lambda tree: tree)
    np.testing.assert_array_equal(said({"a": jnp.arange(3)})["a"], [2, 1, 0])
    for wrong in ({"b": jnp.arange(3)}, {"a": jnp.arange(4)}, {"a": jnp.ones(3)}):
        with pytest.raises(ValueError, match="arguments"):
            said(wrong)
    wrong = reverse.specialize(out_specs_fn=lambda tree: {"a": ferrax.ShapeDtypeStruct((2,), jnp.int32)})
    with pytest.raises(ValueError, match="results"):
        wrong({"a": jnp.arange(3)})
    with pytest.raises(ValueError, match="already"):
        said.specialize(out_specs_fn=lambda x: x)
    with pytest.raises(TypeError, match="out_specs_fn"):
        reverse.specialize(out_specs_fn=3)


def test_in_traced_functions():
    tree = {"a": jnp.arange(3)}
    with pytest.raises(TypeError, match="out_specs_fn"):
        ferrax.jit(reverse)(tree)
    said = reverse.specialize(out_specs_fn=lambda tree: tree)
    np.testing.assert_array_equal(ferrax.jit(lambda t: said(t)["a"] * 2)(tree), [4, 2, 0])


def test_threads_run_at_the_same_time():
    barrier = threading.Barrier(3)

    @colocated_python
    def wait(x):
        barrier.wait(timeout=20)
        return x

    threads = [threading.Thread(target=wait, args=(jnp.ones(1),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not barrier.broken


def test_objects():
    made, gone = [], []

    @colocated_python_class
    class Total:
        """A sum."""

        def __init__(self, start, *, scale=1):
            made.append(start)
            self.total, self.scale = start, scale

        def __del__(self):
            gone.append(self.total)

        def add(self, x):
            self.total = self.total + np.asarray(x) * self.scale
            return jnp.asarray(self.total)

        def fetch(self):
            return jnp.asarray(self.total)

    unused = Total(7)
    del unused
    gc.collect()
    assert (made, gone) == ([], [])
    total = Total(5, scale=2)
    assert Total.__doc__ == "A sum." and made == []
    assert int(total.add(jnp.int32(1))) == 7 and int(total.add(jnp.int32(2))) == 11
    with pytest.raises(ValueError, match="No devices found"):
        total.fetch()
    total.fetch = total.fetch.specialize(devices=CPU[:1])
    assert int(total.fetch()) == 11 and made == [5]
    del total
    gc.collect()
    assert [int(x) for x in gone] == [11]
    with pytest.raises(TypeError, match="class"):
        colocated_python_class(3)


def test_device_lists():
    cpu = tuple(ferrax.devices("cpu"))
    found = DeviceList(cpu)
    assert found == cpu and hash(found) == hash(DeviceList(list(cpu))) and found.is_fully_addressable
    assert found.addressable_device_list == cpu and found.default_memory_kind in found.memory_kinds
    assert DeviceList(()).memory_kinds == () and DeviceList(()).default_memory_kind is None
