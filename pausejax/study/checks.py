"""Checks values of any study that must fit together."""

import math
from collections.abc import Iterator, Sequence, Set
from typing import Any

from pausejax.parts import CATEGORIES
from pausejax.study.axes import points, restricted
from pausejax.study.document import SpecError
from pausejax.study.study import Study
from pausejax.study.vocabulary import Say

MAX_RUNS = 2**20
"""Largest number of runs; a plan holds up to 5 kB for each run."""


def check(say: Say, study: Study) -> None:
    """Reports values of a study that contradict each other, each problem once."""
    if (runs := count_runs(study)) > MAX_RUNS:
        labels = [policy.label for policy in study.policies]
        say("policy", labels, f"the study has {runs} runs; must be <= {MAX_RUNS}")
        return
    study.kind.check(say, study)


def refuse_names(study: Study, taken: Set[str]) -> None:
    """Checks that no parameter of a user's part in use has the name of a variable or metric of results.

    Args:
      study: the study.
      taken: the names of variables and metrics.

    Raises:
      SpecError: a parameter has such a name.
    """
    used = {category: values_of(study, CATEGORIES[category].key) for category in study.kind.categories}
    used[study.kind.policy_category] = [policy.algorithm for policy in study.policies]
    for category, names in used.items():
        known = study.parts.of(category)
        for part in (known[name] for name in names if name in known and known[name].outside):
            for parameter in part.parameters.values():
                for name in taken & {parameter.name, *parameter.spellings}:
                    way_out = "results have a variable or metric of this name. Rename the parameter"
                    raise SpecError([f"{part.where}: {name}: {way_out}"])


def count_runs(study: Study) -> int:
    """Returns an upper bound on the number of runs.

    Points that become equal when unread parameters are dropped are counted separately.
    """
    words, count = study.words, 0
    for policy in study.policies:
        names = {name for name in study.axes if words.is_read(name, study.mode, policy.algorithm)}
        product = restricted(study.factors[policy.label], names)
        count += math.prod(len(factor.rows) for factor in product) * len(study.seeds)
    return count


def values_of(study: Study, name: str) -> list[Any]:
    """Returns all distinct values of a parameter."""
    return list(dict.fromkeys(value for (value,) in together(study, (name,))))


def together(study: Study, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yields the combinations of values of some parameters, policy by policy."""
    for factors in study.factors.values():
        for point in points(factors, names):
            yield tuple(point.values())
