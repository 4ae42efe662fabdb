"""Rules that say which axes of a function's operands and results go together: factors.

A rule is a pair of lists, for each operand and result the factors of its axes; written `"i j, j k -> i k"`,
where `(a b)` is an axis that two factors make and `...` stands for the axes in front. Factors of one name
are divided alike. The notation is that of Shardy's sharding rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

# In a rule, the axes that come before those that are named.
BATCHING = "…"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_TOKEN = re.compile(rf"\s*([A-Za-z][A-Za-z0-9_]*|{BATCHING}\d*|[(),])")


def _check_name(what, factor) -> None:
    if not isinstance(factor, str) or not _NAME.match(factor):
        raise ValueError(f"{what}: a factor is a name that begins with a letter, got {factor!r}")


class CompoundFactor(tuple):
    """Factors of a rule that make one axis together, the first the major one.

    Errors: ValueError for fewer than two, and for what are no names.

    >>> from ferrax.experimental.custom_partitioning import CompoundFactor
    >>> CompoundFactor("i", "j")
    ('i', 'j')
    """

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError(f"CompoundFactor: at least two factors are needed, got {factors}")
        for factor in factors:
            _check_name("CompoundFactor", factor)
        return super().__new__(cls, factors)


class ArrayMapping(tuple):
    """The factors of the axes of an array, in a rule.

    Errors: ValueError for what are no names or `CompoundFactor`s, and for `BATCHING` but in front.

    >>> from ferrax.experimental.custom_partitioning import ArrayMapping
    >>> ArrayMapping("i", "j")
    ('i', 'j')
    """

    def __new__(cls, *factors: str | CompoundFactor) -> ArrayMapping:
        for place, factor in enumerate(factors):
            if isinstance(factor, CompoundFactor):
                continue
            if isinstance(factor, str) and factor.startswith(BATCHING):
                if place or not (factor[1:].isdigit() or factor == BATCHING):
                    raise ValueError(f"ArrayMapping: {factor!r} stands for the axes in front, got {factors}")
                continue
            _check_name("ArrayMapping", factor)
        return super().__new__(cls, factors)


class SdyShardingRule:
    """Which axes of operands and results go together.

    Args:
        operand_mappings, result_mappings: an `ArrayMapping` for each.
        reduction_factors: tuple of the factors that results are sums (or the like) over.
        need_replication_factors: of those that are not divided.
        permutation_factors: of those whose parts go from device to device.
        factor_sizes: sizes of the factors that are parts of axes only.

    Errors: ValueError for factors that no mapping has, that are of two kinds or have sizes that they should
    not have, and for missing sizes.

    >>> from ferrax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule
    >>> SdyShardingRule((ArrayMapping("i"),), (ArrayMapping("i"),)).result_mappings
    (('i',),)
    """

    def __init__(
        self, operand_mappings: Sequence[ArrayMapping], result_mappings: Sequence[ArrayMapping], *,
        reduction_factors: tuple[str, ...] = (), need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (), **factor_sizes: int,
    ) -> None:
        self.operand_mappings = tuple(operand_mappings)
        self.result_mappings = tuple(result_mappings)
        self.factor_sizes = factor_sizes
        self.reduction_factors = reduction_factors
        self.need_replication_factors = need_replication_factors
        self.permutation_factors = permutation_factors
        axes = [axis for array in self.operand_mappings + self.result_mappings for axis in array]
        whole = {axis for axis in axes if isinstance(axis, str)}
        parts = {part for axis in axes if not isinstance(axis, str) for part in axis} - whole
        for factor in factor_sizes:
            if factor not in parts:
                why = "is a whole axis, of known size" if factor in whole else "is in no mapping"
                raise ValueError(f"SdyShardingRule: factor {factor}, which has a size, {why}")
        for factor in sorted(parts - set(factor_sizes)):
            raise ValueError(f"SdyShardingRule: factor {factor} is a part of axes only: give its size")
        kinds: dict[str, str] = {}
        for kind in ("reduction_factors", "need_replication_factors", "permutation_factors"):
            factors = getattr(self, kind)
            if not isinstance(factors, tuple):
                raise ValueError(f"SdyShardingRule: {kind} must be a tuple of factors, got {factors!r}")
            for factor in factors:
                if factor not in whole | parts:
                    raise ValueError(f"SdyShardingRule: {kind} has {factor}, which is in no mapping")
                if factor in kinds:
                    raise ValueError(f"SdyShardingRule: {factor} is in {kinds[factor]} and in {kind}")
                kinds[factor] = kind

    def __str__(self) -> str:
        said = "".join(
            f" {kind}={factors}"
            for kind in ("reduction_factors", "need_replication_factors", "permutation_factors")
            if (factors := getattr(self, kind))
        )
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes}{said})"


def factors_of(
    rule: SdyShardingRule, operands: Sequence[Sequence[int]], results: Sequence[Sequence[int]]
) -> tuple[dict[str, int], list[list[tuple[str, ...]]]]:
    """The factors of a rule for arrays of these shapes: their sizes, and for each operand and result those of each
    axis, the major one first. A factor of several axes has the size of the smallest.

    Errors: ValueError where the rule does not fit the shapes.
    """
    for what, mappings, shapes in (
        ("operands", rule.operand_mappings, operands), ("results", rule.result_mappings, results),
    ):  # fmt: skip
        if len(mappings) != len(shapes):
            raise ValueError(
                f"sharding_rule: the rule has {len(mappings)} {what}, and the function has {len(shapes)}"
            )
    sizes: dict[str, int] = {}
    ranks: dict[str, int] = {}
    all_axes = []
    for number, (mapping, shape) in enumerate(
        zip(rule.operand_mappings + rule.result_mappings, (*operands, *results))
    ):
        what = f"operand {number}" if number < len(operands) else f"result {number - len(operands)}"
        axes = _axes(mapping, shape, what, ranks)
        for factors, size in zip(axes, shape):
            if len(factors) == 1:
                _size(sizes, factors[0], size)
            for factor in factors if len(factors) > 1 else ():
                _size(sizes, factor, rule.factor_sizes.get(factor))
        all_axes.append((what, axes, shape))
    for what, axes, shape in all_axes:
        for factors, size in zip(axes, shape):
            if len(factors) > 1 and math.prod(sizes[factor] for factor in factors) != size:
                raise ValueError(
                    f"sharding_rule: {what} has an axis of size {size}, and its factors are of sizes "
                    f"{', '.join(f'{factor}={sizes[factor]}' for factor in factors)}"
                )
    return sizes, [axes for _, axes, _ in all_axes]


def _axes(mapping, shape, what, ranks) -> list[tuple[str, ...]]:
    """The factors of each axis; `ranks` are those that groups of axes in front had before."""
    named = [axis for axis in mapping if not _is_group(axis)]
    front: list[tuple[str, ...]] = []
    if len(named) < len(mapping):
        count = max(len(shape) - len(named), 0)
        if ranks.setdefault(mapping[0], count) != count:
            raise ValueError(
                f"sharding_rule: ... stands for {ranks[mapping[0]]} axes of one array and for {count} of {what}"
            )
        front = [(f"{mapping[0]} {number}",) for number in range(count)]
    axes = front + [(axis,) if isinstance(axis, str) else tuple(axis) for axis in named]
    if len(axes) != len(shape):
        raise ValueError(
            f"sharding_rule: {what} has {len(axes)} axes by the rule, and {len(shape)} in the function, of shape "
            f"{tuple(shape)}"
        )
    return axes


def _is_group(axis) -> bool:
    return isinstance(axis, str) and axis.startswith(BATCHING)


def _size(sizes, factor, size) -> None:
    known = sizes.get(factor)
    if size is None or known == size:
        return
    if known is not None and factor.startswith(BATCHING):
        raise ValueError(f"sharding_rule: axes that ... stands for are of sizes {known} and {size}")
    sizes[factor] = size if known is None else min(known, size)


def rule_of_text(
    text: str, reduction_factors: tuple[str, ...], need_replication_factors: tuple[str, ...],
    permutation_factors: tuple[str, ...], **factor_sizes: int,
) -> SdyShardingRule:
    """The rule that is written so.

    Errors: TypeError for other than text; ValueError for what is no rule, and as `SdyShardingRule`.
    """
    if not isinstance(text, str):
        raise TypeError(f"sharding_rule: must be text or an SdyShardingRule, got {text!r}")
    sides = text.replace("...", BATCHING).split("->")
    if len(sides) != 2:
        raise ValueError(f"sharding_rule: one -> separates operands from results, got {text!r}")
    operands, results = (_mappings(side, text) for side in sides)
    return SdyShardingRule(
        operands, results, reduction_factors=reduction_factors,
        need_replication_factors=need_replication_factors, permutation_factors=permutation_factors,
        **factor_sizes,
    )  # fmt: skip


def _mappings(side, text) -> tuple[ArrayMapping, ...]:
    """The mappings of one side of a rule."""
    arrays: list[list] = [[]]
    compound: list[str] | None = None
    place, side = 0, side.rstrip()
    while place < len(side):
        token = _TOKEN.match(side, place)
        if token is None:
            raise ValueError(f"sharding_rule: there is no meaning of {side[place:].lstrip()!r} in {text!r}")
        place = token.end()
        word = f"{BATCHING}0" if token[1] == BATCHING else token[1]
        if word in "()" and (word == "(") != (compound is None) or word == "," and compound is not None:
            raise ValueError(f"sharding_rule: brackets do not fit each other in {text!r}")
        if word == "(":
            compound = []
        elif word == ")":
            arrays[-1].append(CompoundFactor(*(compound or ())))
            compound = None
        elif word == ",":
            arrays.append([])
        else:
            (arrays[-1] if compound is None else compound).append(word)
    if compound is not None:
        raise ValueError(f"sharding_rule: brackets do not fit each other in {text!r}")
    return tuple(ArrayMapping(*factors) for factors in arrays)
