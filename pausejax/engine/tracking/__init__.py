"""Reports finished runs to an experiment tracker, while a study is under way.

A tracker is any object with the three methods of `Tracker`. Whoever simulates calls `start` once, then
`runs_finished` for each part of the result after it has been written, then `finish`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import xarray as xr

from pausejax.engine.tracking.mlflow import MlflowTracker
from pausejax.engine.tracking.tensorboard import TensorBoardTracker
from pausejax.engine.tracking.wandb import WandbTracker


class Tracker(Protocol):
    """What a study calls."""

    def start(self, study: Mapping[str, str]) -> None:
        """Before the first run; the attributes that the result will carry: name, mode, spec, versions, axes.

        Raises:
          ValueError: the tracker can't be reached.
        """

    def runs_finished(self, result: xr.Dataset) -> None:
        """After each chunk: the result of its runs alone, laid out as the whole."""

    def finish(self) -> None:
        """After the last run."""


TRACKERS: dict[str, Callable[[], Tracker]] = {
    "mlflow": MlflowTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}
"""Name -> constructor; `make` knows what is in here."""


def make(name: str) -> Tracker:
    """The tracker of a name.

    Raises:
      ValueError: no such tracker, or its extra is not installed.
    """
    if name not in TRACKERS:
        raise ValueError(f"tracker = {name!r}: must be one of {', '.join(TRACKERS)}")
    return TRACKERS[name]()
