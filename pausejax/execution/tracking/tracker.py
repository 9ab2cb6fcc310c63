"""What a study calls while it is played."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr


class Tracker:
    """Base class of trackers, which does nothing: override the methods that you need."""

    def start(self, study: Mapping[str, str]) -> None:
        """Begins a study, before its first run.

        Args:
          study: the attributes that the result will carry: name, mode, spec, versions, axes; and under
            `runs.VARYING` the parameters whose values differ between runs, as JSON.

        Raises:
          ValueError: the tracker can't be reached.
        """

    def runs_finished(self, result: xr.Dataset) -> None:
        """Logs the runs of a batch.

        Args:
          result: of these runs alone, laid out as the whole.
        """

    def finish(self) -> None:
        """Ends the study, after its last run or where it is stopped."""

    def attach(self, files: Sequence[Path]) -> None:
        """Keeps files of the study: its spec, its page, its pictures."""
