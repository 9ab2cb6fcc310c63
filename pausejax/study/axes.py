"""Axes of a study: lists, zipped lists, and ranges that are sampled jointly.

A policy's points are the product of its factors. Each single list and each zipped group of lists is a factor.
All ranges together are one further factor; its rows are the sampled points.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pausejax.parts import Parameter, table

LAWS = ("uniform", "log_uniform", "int_uniform")

SAMPLING: dict[str, Parameter] = table(
    sampling={
        "n": Parameter(
            256, "number of points that are sampled from the ranges for each policy", low=1, high=2**20
        ),
        "method": Parameter(
            "sobol", "method that samples the points", choices=("sobol", "random", "latin_hypercube")
        ),
        "seed": Parameter(0, "seed of the sampled points; the seeds of the runs do not change", low=0),
    }
)
"""Keys of the table [sampling]."""


class Sampling(NamedTuple):
    """Settings by which points are sampled from ranges: the table [sampling] of a spec."""

    n: int
    method: str
    seed: int


@dataclasses.dataclass(frozen=True)
class Range:
    """Axis whose values are sampled from `low` to `high`, both included."""

    law: str
    """Distribution of the values, one of `LAWS`."""
    low: float
    high: float

    def at(self, fractions: np.ndarray) -> list[float] | list[int]:
        """Returns the values at fractions [n] in [0, 1) of the law's cumulative distribution, rounded."""
        if self.law == "int_uniform":
            steps = np.floor(fractions * (self.high - self.low + 1)).astype(np.int64)
            return np.minimum(int(self.low) + steps, int(self.high)).tolist()
        if self.law == "log_uniform":
            low, high = np.log(self.low), np.log(self.high)
            values = np.exp(low + fractions * (high - low))
        else:
            values = self.low + fractions * (self.high - self.low)
        return [self.rounded(value) for value in values.tolist()]

    def rounded(self, value: float) -> float:
        """Returns an integer as it is, and a real value rounded to six significant digits.

        float32 tells values with six digits apart, so a value that is copied from a result into a spec gives
        the same run. The ends of the range may have more digits. No value is rounded out of the range.
        """
        return value if isinstance(value, int) else min(max(float(f"{value:.6g}"), self.low), self.high)


Axis: TypeAlias = tuple[Any, ...] | Range


def range_problem(parameter: Parameter, value: Mapping[str, Any]) -> str | None:
    """Returns why a table such as `{log_uniform = [1, 100]}` is not a valid range of a parameter, or None."""
    if parameter.kind not in (int, float):
        return parameter.problem(value)
    laws = ("int_uniform",) if parameter.kind is int else ("uniform", "log_uniform")
    law = next(iter(value), "")
    if len(value) != 1 or law not in laws:
        return f"a range must be {' or '.join(f'{{{law} = [low, high]}}' for law in laws)}"
    ends = value[law]
    if not isinstance(ends, list) or len(ends) != 2:
        return "a range must have two ends, [low, high]"
    for end in ends:
        if problem := parameter.problem(end):
            return f"an end of the range {problem}"
    low, high = ends
    if np.float32(low) >= np.float32(high):
        return "a range's low end must be below its high end"
    return (
        "the low end must be > 0 for log_uniform" if law == "log_uniform" and np.float32(low) <= 0 else None
    )


def sample(name: str, column: int, sampling: Sampling) -> np.ndarray:
    """Returns one coordinate of the n sampled points: fractions [n] in [0, 1).

    The coordinate depends only on the arguments, not on the points' other coordinates. So two policies with
    the same parameter in the same column have the same values of this parameter. With "sobol" and "random", a
    larger n keeps the first points.

    Args:
      name: the name of the parameter, which seeds the scrambling of the column.
      column: the index of the coordinate, which is a dimension of the Sobol sequence.
      sampling: the number of points, the method and the seed.
    """
    from scipy.stats import qmc  # imported here, because it takes a second to load and few studies sample

    rng = np.random.default_rng([sampling.seed, *name.encode()])
    if sampling.method == "random":
        return rng.random(sampling.n)
    if sampling.method == "latin_hypercube":
        return qmc.LatinHypercube(1, rng=rng).random(sampling.n)[:, 0]
    # Sobol dimensions are scrambled independently. So the scrambling of this column can have its own
    # generator.
    power_of_two = 1 << (sampling.n - 1).bit_length()
    return qmc.Sobol(column + 1, scramble=True, rng=rng).random(power_of_two)[: sampling.n, column]


class Factor(NamedTuple):
    """Group of parameters whose values advance together."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    """Values of the parameters, one row for each point."""


def columns(shared: Mapping[str, Axis], axes: Mapping[str, Axis]) -> dict[str, int]:
    """Returns, for each ranged parameter of a policy, the index of its coordinate in the sampled points.

    Ranges of the sections come first, so that all policies get the same values of these parameters. The
    policy's own ranges follow.

    Args:
      shared: the axes of the sections, in the vocabulary's order.
      axes: the policy's axes, in the same order: its own axes, and those of the sections for other
        parameters.
    """
    first = [name for name, axis in shared.items() if isinstance(axis, Range)]
    own = [name for name, axis in axes.items() if isinstance(axis, Range) and name not in first]
    return {name: column for column, name in enumerate([*first, *own])}


def factors(
    axes: Mapping[str, Axis],
    zipped: Sequence[tuple[str, ...]],
    column: Mapping[str, int],
    sampling: Sampling | None,
) -> tuple[Factor, ...]:
    """Returns the factors whose product is a policy's points, in the order of the axes."""
    ranged = tuple(name for name, axis in axes.items() if isinstance(axis, Range))
    group_of = {name: group for group in (*zipped, ranged) for name in group}
    found: dict[tuple[str, ...], Factor] = {}
    for name in axes:
        group = group_of.get(name, (name,))
        if group not in found:
            values = [_values(member, axes[member], column, sampling) for member in group]
            found[group] = Factor(group, tuple(zip(*values, strict=True)))
    return tuple(found.values())


def _values(name: str, axis: Axis, column: Mapping[str, int], sampling: Sampling | None) -> Sequence[Any]:
    if not isinstance(axis, Range):
        return axis
    assert sampling is not None
    return axis.at(sample(name, column[name], sampling))


def restricted(product: Sequence[Factor], names: Set[str]) -> list[Factor]:
    """Returns the factors restricted to the named parameters, without repeated rows."""
    found = []
    for factor in product:
        places = [place for place, name in enumerate(factor.names) if name in names]
        if places:
            rows = dict.fromkeys(tuple(row[place] for place in places) for row in factor.rows)
            found.append(Factor(tuple(factor.names[place] for place in places), tuple(rows)))
    return found


def points(product: Sequence[Factor], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the distinct points of some parameters; the last factor changes fastest.

    Args:
      product: the factors.
      names: the names of the parameters, which are the keys of each point, in this order.
    """
    kept = restricted(product, set(names))
    place = {name: place for place, name in enumerate(name for factor in kept for name in factor.names)}
    for combination in itertools.product(*(factor.rows for factor in kept)):
        flat = tuple(itertools.chain.from_iterable(combination))
        yield {name: flat[place[name]] for name in names}
