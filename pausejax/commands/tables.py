"""Makes the table of a study for the terminal."""

import xarray as xr
from rich import box
from rich.table import Table
from rich.text import Text

from pausejax.analysis.summaries import summary_text


def summary_table(result: xr.Dataset) -> Table:
    """Returns the table of a study for printing, with a row for each setting.

    Its texts are not read as markup.
    """
    text = summary_text(result)
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
    for row in text.rows:
        table.add_row(*map(Text, row))
    return table
