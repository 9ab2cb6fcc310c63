"""What a curve is, before anybody draws it: numbers alone, which other tools may show as they like."""

from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import mean_curves
from pausejax.analysis.mean_curves import resample, smooth
from pausejax.analysis.metrics import RUNNING
from pausejax.report import asked
from pausejax.report.levels import Measure
from pausejax.report.statistics import band, without_diverged

Clock = Literal["rounds", "latency"]
CLOCKS: dict[Clock, str] = {"rounds": "round", "latency": "simulated time (s)"}
"""What curves are drawn against, and how its axis is labelled."""


class Series(NamedTuple):
    """A mean over seeds with its 95 % band, float64 [n] each."""

    label: str
    x: np.ndarray
    """Rounds, or seconds of simulated time."""
    mean: np.ndarray
    low: np.ndarray
    """NaN where one run alone is no band."""
    high: np.ndarray


class Samples(NamedTuple):
    """Curves of single runs on common places."""

    x: np.ndarray
    """[n]."""
    values: np.ndarray
    """[runs, n]."""
    seeds: np.ndarray
    """int [runs]."""


def samples_of(
    runs: xr.Dataset, measure: Measure | str, clock: Clock = "rounds", smoothing: int = 1
) -> Samples:
    """A measure of some runs after every round or evaluation, scaled as pictures show it.

    Args:
      runs: of a result; nothing but the measure's variable and the clock is read of them.
      measure: with a curve, see `has_curve`; or its name, as `pausejax report --measure` takes it.
      clock: "rounds", or "latency" for simulated time.
      smoothing: window of the trailing mean over evaluations; what is recorded every round is left as it is.

    Raises:
      ValueError: there is no such measure, or it has no curve.
    """
    if isinstance(measure, str):
        runs, (measure,) = asked.chosen(runs, [measure])
        if not has_curve(runs, measure):
            raise ValueError(f"measure: {measure.name}: is one figure for a run and has no curve")
    runs = without_diverged(runs) if measure.learned else runs
    array = runs[measure.variable]
    values = measure.scale * RUNNING[measure.running](array.values)
    evaluated = array.dims[1] == "eval"
    if evaluated:
        values = smooth(values, smoothing)
    rounds = runs["eval_round" if evaluated else "round"].values
    seeds = runs["seed"].values if "seed" in runs.coords else np.arange(runs.sizes["run"])
    if clock == "rounds":
        return Samples(rounds, values, seeds)
    times = runs["elapsed"].values[:, np.searchsorted(runs["round"].values, rounds)]
    there = (np.isfinite(times) & ~np.isnan(values)).any(axis=1)
    return Samples(*resample(times[there], values[there]), seeds[there])


def series_of(
    runs: xr.Dataset, measure: Measure | str, clock: Clock = "rounds", smoothing: int = 1, label: str = ""
) -> Series:
    """The mean curve of some runs; arguments as for `samples_of`.

    Runs of one seed (of several settings, where a line stands for more than one) are averaged first: the band
    is over seeds, and of one seed there is none.
    """
    return summarized(label, samples_of(runs, measure, clock, smoothing))


def summarized(label: str, samples: Samples) -> Series:
    """The mean and band of some curves."""
    values = per_seed(samples.values, samples.seeds)
    if not values.size:
        return Series(label, *(np.zeros(0) for _ in range(4)))
    with np.errstate(invalid="ignore"):  # infinite values
        mean, half_width = band(values)
    return Series(label, np.asarray(samples.x), mean, mean - half_width, mean + half_width)


def per_seed(values: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Means over the runs of each seed, [seeds, ...]."""
    distinct, owner = np.unique(seeds, return_inverse=True)
    if len(distinct) == len(seeds):
        return values
    counts = np.bincount(owner)
    summed = np.zeros((len(distinct), *values.shape[1:]))
    np.add.at(summed, owner, values)
    return summed / counts.reshape(-1, *(1,) * (values.ndim - 1))


def has_curve(result: xr.Dataset, measure: Measure) -> bool:
    """Whether a measure has a value after every round or evaluation, and not only at the end of a run."""
    return mean_curves.has_curve(result, measure.variable, measure.running)


def clocks_of(result: xr.Dataset) -> list[Clock]:
    """What a result's curves can be drawn against."""
    return ["rounds", "latency"] if "elapsed" in result else ["rounds"]
