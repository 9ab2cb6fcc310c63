"""Prints the table of a study."""

import xarray as xr
from rich import box
from rich.table import Table
from rich.text import Text

from pausejax.analysis.summaries import SummaryText, summary_text


def summary_table(result: xr.Dataset) -> Table:
    """Per policy and axis value: the figures of the last round over the seeds, to be printed."""
    return printed(summary_text(result))


def printed(text: SummaryText, curves: tuple[str, list[str]] | None = None) -> Table:
    """A summary to be printed; no text of it is markup.

    Args:
      text: the summary.
      curves: a last column, its heading and a cell for each row.
    """
    table = Table(
        title=text.title,
        title_justify="left",
        caption=Text("\n".join(text.notes)) if text.notes else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    first, *others = text.headings
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    last = [[""]] * len(text.rows)
    if curves is not None:
        table.add_column(Text(curves[0]), no_wrap=True)
        last = [[curve] for curve in curves[1]]
    for row, more in zip(text.rows, last, strict=True):
        table.add_row(*map(Text, row), *(more if curves else ()))
    return table
