"""Small multiples: as many rows as their panels fill."""

import pytest

from pausejax.report.curves import figure
from pausejax.report.grid import Grid, Panel
from pausejax.report.statistics import Line

from .made import sampled


@pytest.mark.parametrize(
    ("panels", "columns", "rows"), [(2, 2, 1), (4, 2, 2), (5, 2, 3), (6, 2, 3), (7, 3, 3)]
)
def test_rows_are_as_many_as_the_panels_fill(panels, columns, rows):
    line = Line("pause", "", sampled(2, 1)[0])
    grid = Grid(tuple(Panel(f"panel {number}", (line,)) for number in range(panels)), columns)
    places = [axes.get_subplotspec() for axes in figure(lambda axes, curves: None, grid).axes]
    assert {place.get_gridspec().get_geometry() for place in places} == {(rows, columns)}
