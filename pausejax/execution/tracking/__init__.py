"""Reports finished runs to an experiment tracker, while a study is under way.

A study calls a tracker's `start` once. It calls `runs_finished` after each written part of the result, and
then `finish`. `pausejax run` calls `attach` when the pages are drawn.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

from pausejax.execution.tracking.mlflow import MlflowTracker
from pausejax.execution.tracking.runs import Tracker
from pausejax.execution.tracking.tensorboard import TensorBoardTracker
from pausejax.execution.tracking.wandb import WandbTracker
from pausejax.results.exchange import outdated
from pausejax.results.folder import Folder

__all__ = [
    "TRACKERS",
    "MlflowTracker",
    "TensorBoardTracker",
    "Tracker",
    "WandbTracker",
    "attach_files",
    "make",
]


TRACKERS: dict[str, Callable[..., Tracker]] = {
    "mlflow": MlflowTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}
"""The constructor of each tracker by name. It takes the argument `unnamed`; `make` calls it."""


def make(name: str, unnamed: str = "pausejax") -> Tracker:
    """Returns a new tracker.

    Args:
      name: the tracker's name, a key of `TRACKERS`.
      unnamed: the name that the tracker uses for a study without a name.

    Raises:
      ValueError: there is no such tracker, or its extra is not installed.
    """
    if name not in TRACKERS:
        raise ValueError(f"tracker = {name!r}: must be one of {', '.join(TRACKERS)}")
    return TRACKERS[name](unnamed=unnamed)


def attach_files(tracker: Tracker, directory: str) -> None:
    """Passes the spec, the page and the pictures of a study to a tracker, unless the folder is under a URL.

    Files that are older than the result are left out: they show fewer runs.

    If the tracker fails, the function only warns, because the study is finished already.
    """
    folder = Folder(directory)
    if not folder.is_local:
        return
    patterns, old = ("spec.toml", "report.html", "*.png"), outdated(folder, folder)
    found = sorted(path for pattern in patterns for path in Path(folder.path()).glob(pattern))
    files = [path for path in found if path.name not in old]
    try:
        tracker.attach(files)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        warnings.warn(f"the study's files could not be sent to the tracker: {reason}", stacklevel=2)
