"""How much each parameter mattered among the settings of a search, and whether the trials can tell."""

from typing import NamedTuple

import numpy as np

from pausejax.analysis.intervals import interval
from pausejax.searches.record import Record, Trial

LEAST = 20
"""Settings that a model is fitted to; fewer tell nothing."""
_FOLDS, _REPEATS, _TREES = 5, 4, 60


class Importance(NamedTuple):
    """Of the parameters, for one metric."""

    names: tuple[str, ...]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """What part of the metric's variance is no longer predicted when a parameter is shuffled, [names], with
    its 95 % interval over the settings."""
    predicted: float
    """What part of the variance is predicted for settings that the model has not seen."""
    settings: int


def importance(record: Record, metric: int = 0) -> Importance | None:
    """The parameters by how much the metric of settings that came to the end depends on them.

    Trees are fitted to the ranks of the metric and asked about settings that they have not seen, as these are
    and with one parameter shuffled among them (Breiman 2001, permutation importance). A parameter that does
    not matter has an interval around 0. A search goes where it is good, so this is what matters there, not on
    all of the ranges.

    Returns:
      None: fewer than `LEAST` settings came to the end.
    """
    ends = record.ends
    if len(ends) < LEAST:
        return None
    from sklearn.ensemble import ExtraTreesRegressor  # for whoever asks

    table = _table(record, ends)
    values = record.points(ends)[:, metric]
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
    target = (ranks - ranks.mean()) / ranks.std()
    rng = np.random.default_rng(0)
    plain = np.zeros(len(ends))
    shuffled = np.zeros((len(ends), table.shape[1]))
    for repeat in range(_REPEATS):
        for fold in np.array_split(rng.permutation(len(ends)), _FOLDS):
            known = np.setdiff1d(np.arange(len(ends)), fold)
            trees = ExtraTreesRegressor(_TREES, min_samples_leaf=2, random_state=repeat)
            trees.fit(table[known], target[known])
            plain[fold] += (target[fold] - trees.predict(table[fold])) ** 2
            for column in range(table.shape[1]):
                other = table[fold]
                other[:, column] = table[rng.choice(len(ends), len(fold)), column]
                shuffled[fold, column] += (target[fold] - trees.predict(other)) ** 2
    lost = interval(((shuffled - plain[:, None]) / _REPEATS).T)
    names = tuple(dimension.name for dimension in record.dimensions)
    return Importance(names, lost.mean, lost.low, lost.high, 1.0 - plain.mean() / _REPEATS, len(ends))


def _table(record: Record, trials: list[Trial]) -> np.ndarray:
    """The settings as numbers, [trials, dimensions]; words by their places, what does not apply below all."""
    columns = []
    for dimension in record.dimensions:
        own = [trial.values.get(dimension.name) for trial in trials]
        if all(value is None or isinstance(value, int | float) for value in own):
            numbers = np.array([np.nan if value is None else float(value) for value in own])
            numbers = np.log(numbers) if dimension.log else numbers
        else:
            words = {word: place for place, word in enumerate(sorted({str(value) for value in own}))}
            numbers = np.array([np.nan if value is None else words[str(value)] for value in own])
        least = np.nanmin(numbers) if np.isfinite(numbers).any() else 0.0
        columns.append(np.where(np.isnan(numbers), least - 1.0, numbers))
    return np.stack(columns, axis=1)
