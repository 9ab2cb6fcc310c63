"""Prints the table of a study in the terminal."""

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pausejax.analysis.summaries import SummaryText


def print_summary(console: Console, text: SummaryText) -> None:
    """Prints the table of a study, with a row for each setting.

    If the console is too narrow for all metrics, the table is divided: each part has the labels and some of
    the metrics. So all labels and numbers are whole. Texts are not read as markup.
    """
    label_width = max(cell_len(row[0]) for row in (text.headings, *text.rows))
    metrics = list(range(1, len(text.headings)))
    if _width(console, _table(text, metrics, label_width)) > console.width:
        label_width = min(label_width, console.width // 3)
    while metrics:
        for count in range(len(metrics), 0, -1):
            table = _table(text, metrics[:count], label_width)
            if _width(console, table) <= console.width:
                break
        metrics = metrics[count:]
        if metrics:
            table.caption = None
        console.print(table)


def _width(console: Console, table: Table) -> int:
    """Returns the width at which no cell of a table is cut, in characters."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _table(text: SummaryText, columns: list[int], label_width: int) -> Table:
    """Returns a table with the labels of a summary and some of its other columns.

    Args:
      text: the summary.
      columns: indices of the columns.
      label_width: width of the column of labels, in characters; longer labels have several lines.
    """
    table = Table(
        title=text.title,
        title_justify="left",
        caption=Text("\n".join(text.notes)) if text.notes else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column(text.headings[0], overflow="fold", min_width=label_width, max_width=label_width)
    for column in columns:
        table.add_column(Text(text.headings[column]), justify="right", overflow="fold")
    for row in text.rows:
        table.add_row(*(Text(row[column]) for column in (0, *columns)))
    return table
