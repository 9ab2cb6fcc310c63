"""What trackers are told of a run, whichever they are: its parameters, its figures, what it learned when."""

import importlib
from collections.abc import Collection, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pausejax.analysis import finals
from pausejax.analysis.quantities import objectives_in, parameters_in
from pausejax.analysis.settings import applies


class Point(NamedTuple):
    """A number of a run in one of its rounds."""

    name: str
    value: float
    round: int


class Told(NamedTuple):
    """A run."""

    identity: str
    policy: str
    algorithm: str
    seed: int
    parameters: Mapping[str, Any]
    """Those that its policy reads, and the seed."""
    points: tuple[Point, ...]
    """Finite numbers: the metrics of `analysis.finals`, and what is learned at each evaluated round."""

    @property
    def title(self) -> str:
        return f"{self.policy}, seed {self.seed}"


def runs_of(result: xr.Dataset, known: Collection[str] = ()) -> Iterator[Told]:
    """The runs of a result that a tracker does not know.

    Args:
      result: of some runs, as a study hands it to its tracker.
      known: identities.
    """
    figures = finals(result).load()
    learned = objectives_in(result)[0]
    curve = learned if learned in result and result[learned].dims[1:] == ("eval",) else None
    parameters = [name for name in parameters_in(result) if name in result.coords]
    for place in range(figures.sizes["run"]):
        run = figures.isel(run=place)
        identity = str(run["identity"].values)
        if identity in known:
            continue
        seed, last = int(run["seed"]), int(run.get("rounds_played", 0))
        values = {"seed": seed, **{name: run[name].values.item() for name in parameters}}
        points = [Point(str(name), float(run[name]), last) for name in run.data_vars if name != curve]
        if curve:
            rounds, measured = result["eval_round"].values, result[curve].values[place]
            points += [Point(curve, float(m), int(r)) for r, m in zip(rounds, measured, strict=True)]
        yield Told(
            identity,
            str(run["policy"].values),
            str(run["algorithm"].values),
            seed,
            {name: value for name, value in values.items() if applies(value)},
            tuple(point for point in points if np.isfinite(point.value)),
        )


def module(tracker: str, name: str) -> ModuleType:
    """The library of a tracker.

    Raises:
      ValueError: it is not installed; says how to.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ValueError(f"tracker {tracker}: is not installed; pip install 'pausejax[{tracker}]'") from None
