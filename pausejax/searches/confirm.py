"""The winner once more, on seeds that no choice has seen: what is left of it when luck is taken out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis.intervals import interval
from pausejax.searches.find import Found
from pausejax.searches.goal import figures_at
from pausejax.searches.space import Setting
from pausejax.study import spec
from pausejax.study.study import Study

DEFAULT = "default"


class Compared(NamedTuple):
    """One setting on fresh seeds."""

    label: str
    setting: Setting
    figures: np.ndarray
    """float64 [seeds, figures]."""
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """Of the 95 % interval, [figures]."""
    lead: np.ndarray
    lead_low: np.ndarray
    lead_high: np.ndarray
    """The first setting's figures minus this one's, paired by seed, [figures]; NaN for the first itself."""


def contenders(found: Found) -> dict[str, Setting]:
    """The best setting and the second, or the first of the front; and that of the parameters' defaults."""
    best = found.best(2 if len(found.goal.metrics) == 1 else 6)
    several = len(found.goal.metrics) > 1
    labels = [f"front {place + 1}" for place in range(len(best))] if several else ["best", "second"]
    chosen = {label: one.setting for label, one in zip(labels, best, strict=False)}
    default = found.space.defaults()
    if default.key not in {setting.key for setting in chosen.values()}:
        chosen[DEFAULT] = default
    return chosen


def confirmation(found: Found, seeds: int) -> Study:
    """A plain study of the contenders on fresh seeds, up to the horizon.

    Defaults that do not fit the rest of the spec are left out of it.
    """
    study = found.study
    first = max(study.seeds) + 1
    own = {name for dims in found.space.dimensions.values() for d in dims for name in d.names}
    own |= {name for policy in study.policies for name in policy.axes}
    document: dict[str, Any] = {
        key: _without(value, own, study) if isinstance(value, Mapping) else value
        for key, value in study.document.items()
        if key not in ("zip", "policy", "seeds", "sampling")
    }
    document["seeds"] = list(range(first, first + seeds))
    tables = {
        label: {
            "name": setting.algorithm,
            "label": label,
            **{name: value for name, value in setting.values.items() if name in own},
        }
        for label, setting in contenders(found).items()
    }

    def parsed(labels: Iterable[str]) -> Study:
        whole = {**document, "policy": [tables[label] for label in labels]}
        return spec.parse(whole, (study.kind,), source="the best on fresh seeds", folder=study.folder)

    try:
        return parsed(tables)
    except spec.SpecError:
        return parsed(label for label in tables if label != DEFAULT)


def compare(found: Found, result: xr.Dataset) -> list[Compared]:
    """The contenders by their result, the first of them first.

    Args:
      found: the search.
      result: of the study that `confirmation` gives.
    """
    goal = found.goal
    arrays = {str(name): variable.values for name, variable in result.data_vars.items()}
    figures = figures_at(found.study, goal, arrays, goal.rungs[-1])
    labels = result["policy"].values
    compared: list[Compared] = []
    for label, setting in contenders(found).items():
        own = figures[labels == label]
        if not len(own):
            continue
        means = interval(own.T)
        lead = interval((compared[0].figures - own).T if compared else np.full(own.T.shape, np.nan))
        compared.append(
            Compared(label, setting, own, means.mean, means.low, means.high, lead.mean, lead.low, lead.high)
        )
    return compared


def _without(table: Mapping[str, Any], names: set[str], study: Study) -> dict[str, Any]:
    aliases = study.words.aliases
    return {key: value for key, value in table.items() if aliases.get(key, key) not in names}


def changed(compared: Sequence[Compared], found: Found) -> tuple[str, ...]:
    """The parameters that the search chose."""
    own = {name for dims in found.space.dimensions.values() for d in dims for name in d.names}
    there = {name for one in compared for name in one.setting.values}
    return tuple(name for name in found.study.words.parameters if name in own & there)
