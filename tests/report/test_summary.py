"""The cells of a summary: what is counted, what is left out, what is said of it."""

import numpy as np
import pytest

from pausejax.analysis.quantities import Metric
from pausejax.report.summary import _measured, cell


@pytest.mark.parametrize(
    ("samples", "said"),
    [([np.inf] * 3, "∞"), ([2.0], "2.0"), ([1.0, 2.0, 3.0], "2.0 ± 2.5")],
)
def test_a_cell_is_a_mean_with_its_interval(samples, said):
    assert cell(np.asarray(samples), ".1f") == said


@pytest.mark.parametrize(
    ("learned", "values", "said"),
    [
        (True, [1.0, np.nan, 1.0], "1.0 ± 0.0 (2/3)"),
        (True, [1.0, 1.0], "1.0 ± 0.0"),
        (False, [1.0, np.nan, 1.0], "1.0 ± 0.0"),
        (True, [np.nan], "–"),
    ],
)
def test_what_diverged_models_learned_is_left_out_and_counted(learned, values, said):
    metric = Metric("test_loss", "final", False, "1", "of a test", learned=learned, shown=".1f")
    assert _measured(np.asarray(values), metric) == said
