"""Tables and pictures from a result."""

from pausejax.report.figures import draw, save
from pausejax.report.summary import diverged_runs, summary_table

__all__ = ["diverged_runs", "draw", "save", "summary_table"]
