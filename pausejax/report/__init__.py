"""Tables and pictures from a result, and the numbers that they are drawn from."""

from pausejax.report.grid import arrange
from pausejax.report.series import series_of
from pausejax.report.style import save
from pausejax.report.summary import diverged_runs, summary_table
from pausejax.report.unshown import left_out

__all__ = ["arrange", "diverged_runs", "left_out", "save", "series_of", "summary_table"]
