"""Tables and pictures from a result."""

from pausejax.report.curves import save
from pausejax.report.summary import diverged_runs, summary_table

__all__ = ["diverged_runs", "save", "summary_table"]
