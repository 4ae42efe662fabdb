"""Source maps of jaxprs: lines of the program for places in the text, and JAX's file format."""

import inspect

import pytest
from jax._src import sourcemap as theirs

import ferrax
import ferrax.numpy as jnp
from ferrax._src.interop.source_maps import _differences
from ferrax.experimental import source_mapper


def _program(x, y):
    z = x * y
    z = ferrax.lax.scan(
        lambda c, _: (jnp.sin(c), None), z, None, length=3
    )[0]
    return ferrax.jit(lambda a: a - 1)(z)


def _dump():
    (dump,) = source_mapper.generate_sourcemaps(_program, source_mapper.filter_passes("jaxpr"))(1.0, 2.0)
    return dump


def test_equations_are_of_their_lines():
    dump = _dump()
    assert dump.pass_name == "jaxpr" and dump.source_map.sources == [__file__]
    text, first = dump.generated_code.split("\n"), inspect.getsourcelines(_program)[1] - 1
    assert len(dump.source_map.mappings) == len(text) + 1
    found, number = {}, 0
    for line, segments in zip(text, dump.source_map.mappings):
        column = 0
        for column_step, source, number_step, _ in segments:
            assert source == 0
            column, number = column + column_step, number + number_step
            found[line[column:].split("[")[0].split()[0]] = number - first
    assert found["mul"] == 1 and found["sub"] == 5
    assert found["sin"] == 3 and 2 <= found["scan"] <= 4


def test_files_are_those_of_jax():
    ours = _dump().source_map
    back = theirs.SourceMap.from_json(ours.to_json())
    assert [list(map(tuple, line)) for line in back.mappings] == [list(line) for line in ours.mappings]
    assert list(back.sources) == list(ours.sources)
    many = [[(5, 0, 100, 3), (9, 2, 0, 70)], [], [(0, 1, 3000, 0), (1, 0, 2, 1)]]
    reference = theirs.SourceMap(version=3, sources=["a", "b", "c"], sources_content=[], mappings=many, names=[])
    assert source_mapper.SourceMap.from_json(reference.to_json()).mappings == many
    mine = source_mapper.SourceMap(3, ["a", "b", "c"], [], many, [])
    assert mine.to_json() == reference.to_json()
    made = theirs.MappingsGenerator()
    for line in many:
        made.new_group()
        for segment in line:
            made.new_segment(*segment)
    assert _differences(many) == made.mappings()
    for bad in ('{"version": 2, "sources": [], "mappings": ""}', '{"version": 3, "sources": [], "mappings": "g"}', "x"):
        with pytest.raises(ValueError):
            source_mapper.SourceMap.from_json(bad)


def test_passes():
    own = source_mapper.Pass("own", lambda folder, f, args, kwargs, **options: (args, options), lambda made, **_: made)
    run = source_mapper.generate_sourcemaps(_program, [own, own], level=3)
    assert run(1, 2) == [((1, 2), {"level": 3})] * 2
    with pytest.raises(ValueError, match="already"):
        source_mapper.register_pass(source_mapper.all_passes()[0])
    assert source_mapper.filter_passes("hlo") == []
