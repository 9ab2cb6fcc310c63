"""Tables and pictures from a result."""

import xarray as xr
from matplotlib.figure import Figure
from rich.table import Table

from pausejax.report import ensemble, figures, paper, summary
from pausejax.report.figures import save
from pausejax.report.summary import diverged_runs


def draw(result: xr.Dataset, *, smoothing: int = 1) -> dict[str, Figure]:
    """All pictures that a result has the data for, by file name; `smoothing` as in `figures.draw`."""
    if result.attrs["mode"] == "ensemble":
        return ensemble.draw(result)
    return figures.draw(result, smoothing=smoothing) | paper.draw(result)


def summary_table(result: xr.Dataset) -> Table:
    """The table at the end of a run: one row per policy and axis value."""
    return (
        ensemble.summary_table(result)
        if result.attrs["mode"] == "ensemble"
        else summary.summary_table(result)
    )


__all__ = ["diverged_runs", "draw", "save", "summary_table"]
