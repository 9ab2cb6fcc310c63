"""Tables and pictures from a result."""

import xarray as xr
from matplotlib.figure import Figure

from pausejax.report import ensemble, figures, many, paper
from pausejax.report.figures import save
from pausejax.report.summary import diverged_runs, summary_table


def draw(result: xr.Dataset, *, smoothing: int = 1) -> dict[str, Figure]:
    """All pictures that a result has the data for, by file name; `smoothing` as in `figures.draw`."""
    if many.is_many(result):
        return many.draw(result)
    if result.attrs["mode"] == "ensemble":
        return ensemble.draw(result)
    return figures.draw(result, smoothing=smoothing) | paper.draw(result)


__all__ = ["diverged_runs", "draw", "save", "summary_table"]
