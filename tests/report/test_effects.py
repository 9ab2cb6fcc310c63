"""Main effects: the means that are drawn, their bands, and who has a line where."""

import numpy as np

from pausejax.report.effects import main_effects
from pausejax.report.levels import Measure

from .made import crossed, runs_of, with_figures

LOSS, TIME = Measure("loss", "loss of a test on everything", scale=2), Measure("time", "time")


def finals(rows):
    """Figures that say of which run they are."""
    number = np.arange(1.0, len(rows) + 1)
    return with_figures(runs_of(rows), loss=number, time=10 * number)


ROWS = [
    *crossed(policy=["b", "a"], gamma=[3.0, 1.0, 2.0], model=["small", "big"]),
    *crossed(policy=["c"], model=["big"]),
]
"""Runs 1 to 6 of b, 7 to 12 of a, and 13 of c, which lacks γ."""


def test_each_policy_has_a_line_of_means_where_it_has_the_axis():
    panels = np.array(main_effects(finals(ROWS), [LOSS, TIME]).axes).reshape(2, 2)
    expected = {
        # γ = 1, 2, 3: b's runs are 3 and 4, 5 and 6, 1 and 2.
        (0, 0): {"b": ([1, 2, 3], [7, 11, 3]), "a": ([1, 2, 3], [19, 23, 15])},
        (1, 1): {"b": ([0, 1], [40, 30]), "a": ([0, 1], [100, 90]), "c": ([0], [130])},
    }
    for place, lines in expected.items():
        found = {line.get_label(): line for line in panels[place].get_lines()}
        assert list(found) == list(lines)
        for name, points in lines.items():
            np.testing.assert_allclose(found[name].get_data(), points)


def test_a_band_is_around_its_line():
    rows = crossed(gamma=[1.0, 2.0], seed=[0, 1])
    figure = main_effects(finals(rows), [LOSS])
    (panel,) = figure.axes
    (band,) = panel.collections
    # Two seeds that differ by 1, scaled by 2: t of one degree of freedom, 12.706, times 1.
    at, edges = band.get_paths()[0].vertices.T
    for x, mean in ((1, 3), (2, 7)):
        ends = edges[at == x].min(), edges[at == x].max()
        np.testing.assert_allclose(ends, (mean - 12.706, mean + 12.706), atol=1e-3)
