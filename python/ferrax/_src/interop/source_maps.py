"""`ferrax.experimental.source_mapper`: from which line of a program each equation of a jaxpr is.

In: a function and arguments. Out: the jaxpr's text, and a source map of revision 3 (ECMA-426): for each line of the
text segments of a column there, and the number of a file, a line and a column in it, all from zero. Equations are found
in the text in the order in which it is written, where a jaxpr within an equation comes after that one's name. Cost:
linear in the text.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ferrax._src.core.jaxpr import jaxprs_in_params
from ferrax._src.tracing.staging import make_jaxpr

__all__ = [
    "Pass", "SourceMap", "SourceMapDump", "all_passes", "canonicalize_filename", "filter_passes", "generate_sourcemaps",
    "register_pass",
]  # fmt: skip

Segment = tuple[int, ...]

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _encoded(number: int) -> str:
    """A number in base 64: five bits a digit, the lowest first, in which the very lowest is the sign."""
    rest, text = (abs(number) << 1) | (number < 0), ""
    while True:
        rest, digit = rest >> 5, rest & 31
        text += _DIGITS[digit | (32 if rest else 0)]
        if not rest:
            return text


def _numbers(text: str) -> Iterator[int]:
    """The numbers that `_encoded` made a text of. Errors: ValueError for other texts."""
    value = shift = 0
    for letter in text:
        digit = _DIGITS.index(letter)
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            yield -(value >> 1) if value & 1 else value >> 1
            value = shift = 0
    if shift:
        raise ValueError(f"a segment of a source map is cut off: {text!r}")


@dataclasses.dataclass(frozen=True)
class SourceMap:
    """A source map: `sources` are names of files, `mappings` a list of segments for each line of the text. Numbers of a
    segment are those by which it differs from the segment before, its column from that of the one before in its line.

    >>> from ferrax.experimental.source_mapper import SourceMap
    >>> text = SourceMap(3, ["a.py"], [], [[(2, 0, 7, 1)], []], []).to_json()
    >>> SourceMap.from_json(text).mappings
    [[(2, 0, 7, 1)], []]
    """

    version: int
    sources: Sequence[str]
    sources_content: Sequence[str]
    mappings: Sequence[Sequence[Segment]]
    names: Sequence[str]

    def to_json(self) -> str:
        """The text of a file."""
        lines = [",".join("".join(map(_encoded, segment)) for segment in line) for line in self.mappings]
        parts = {"version": self.version, "sources": list(self.sources), "sourcesContent": list(self.sources_content)}
        return json.dumps(parts | {"names": list(self.names), "mappings": ";".join(lines)})

    @classmethod
    def from_json(cls, json_data: str) -> SourceMap:
        """The map that `to_json` made a text of. Errors: ValueError for texts that are none, and other revisions."""
        found = json.loads(json_data)
        if found.get("version") != 3:
            raise ValueError(f"expected a source map of revision 3, got {found.get('version')}")
        lines = [
            [tuple(_numbers(text)) for text in filter(None, line.split(","))]
            for line in found["mappings"].split(";")
        ]
        return cls(3, found["sources"], found.get("sourcesContent", []), lines, found.get("names", []))


def _differences(lines: Sequence[Sequence[Segment]]) -> list[list[Segment]]:
    """Of segments with places, those that files have."""
    before, result = [0] * 4, list[list[Segment]]()
    for line in lines:
        before[0] = 0
        result.append([])
        for segment in line:
            result[-1].append(tuple(now - then for now, then in zip(segment, before)))
            before = list(segment)
    return result


@dataclasses.dataclass(frozen=True, slots=True)
class SourceMapDump:
    """A text, `generated_code`, where it is from, `source_map`, and what made it, `pass_name`.

    >>> from ferrax.experimental import source_mapper
    >>> dump, = source_mapper.generate_sourcemaps(jnp.sin, source_mapper.filter_passes("jaxpr"))(1.0)
    >>> dump.generated_code
    '{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }'
    """

    source_map: SourceMap
    generated_code: str
    pass_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """What makes a text of a function: `compile_fn(folder, f, args, kwargs)` makes something of the function, and
    `generate_dump(something)` a `SourceMapDump` of that.

    >>> from ferrax.experimental import source_mapper
    >>> [each.name for each in source_mapper.filter_passes("jaxpr")]
    ['jaxpr']
    """

    name: str
    compile_fn: Callable[..., Any]
    generate_dump: Callable[..., SourceMapDump]


_passes: dict[str, Pass] = {}


def register_pass(pass_: Pass) -> None:
    """Makes a pass known by its name. Errors: ValueError for a name that is known.

    Args: pass_: the pass.

    >>> from ferrax.experimental import source_mapper
    >>> source_mapper.register_pass(source_mapper.all_passes()[0])
    Traceback (most recent call last):
        ...
    ValueError: register_pass: there is a pass 'jaxpr' already...
    """
    if pass_.name in _passes:
        raise ValueError(f"register_pass: there is a pass {pass_.name!r} already")
    _passes[pass_.name] = pass_


def all_passes() -> list[Pass]:
    """The passes that are known: "jaxpr", and those of the user.

    >>> from ferrax.experimental import source_mapper
    >>> source_mapper.all_passes()[0].name
    'jaxpr'
    """
    return list(_passes.values())


def filter_passes(regex: str) -> list[Pass]:
    """The passes whose names begin with what a regular expression says.

    Args: regex: the expression. JAX's passes "hlo:..." are of XLA and not here.

    >>> from ferrax.experimental import source_mapper
    >>> source_mapper.filter_passes("hlo")
    []
    """
    return [each for each in _passes.values() if re.match(regex, each.name)]


def canonicalize_filename(file_name: str) -> str:
    """The name `file_name` of a file as source maps have it: as it is.

    >>> from ferrax.experimental import source_mapper
    >>> source_mapper.canonicalize_filename("/a/b.py")
    '/a/b.py'
    """
    return file_name


def generate_sourcemaps(f: Callable[..., Any], passes: Sequence[Pass], **pass_kwargs: Any) -> Callable[..., Any]:
    """A function from arguments of `f` to a list with a `SourceMapDump` of each pass.

    Args:
        f: the function.
        passes: what `filter_passes` returns.
        pass_kwargs: options of passes, which each gets.

    >>> from ferrax.experimental import source_mapper
    >>> f = source_mapper.generate_sourcemaps(lambda x: x + 1, source_mapper.all_passes())
    >>> len(f(1.0)[0].source_map.sources)
    1
    """

    def wrapper(*args: Any, **kwargs: Any) -> list[SourceMapDump]:
        made: dict[Any, Any] = {}
        for each in passes:
            if each.compile_fn not in made:
                made[each.compile_fn] = each.compile_fn(None, f, args, kwargs, **pass_kwargs)
        return [each.generate_dump(made[each.compile_fn], **pass_kwargs) for each in passes]

    return wrapper


def _traced(folder, f, args, kwargs, **options):
    return make_jaxpr(f)(*args, **kwargs)


def _equations(jaxpr) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from _equations(getattr(inner, "jaxpr", inner))


def _of_jaxpr(closed, **options) -> SourceMapDump:
    text, at = str(closed), 0
    sources: dict[str, int] = {}
    lines: list[list[Segment]] = [[] for _ in range(text.count("\n") + 2)]
    for eqn in _equations(closed.open):
        found = re.compile(rf"(?:= |let\s+|; |\n\s*)({re.escape(eqn.primitive.name)})(?=[\s\[])").search(text, at)
        if found is None:
            # Not written out: the parameters of some equations are shown by name.
            continue
        at = found.start(1)
        place = re.match(r"(.*):(\d+)", eqn.source_info.line or "")
        if place is None:
            continue
        number = sources.setdefault(canonicalize_filename(place.group(1)), len(sources))
        before = text[:at]
        column = at - (before.rfind("\n") + 1)
        lines[before.count("\n")].append((column, number, int(place.group(2)) - 1, 0))
        at = found.end(1)
    return SourceMapDump(SourceMap(3, list(sources), [], _differences(lines), []), text, "jaxpr")


register_pass(Pass("jaxpr", _traced, _of_jaxpr))
