"""What is read off a search: its table, its record on disk, and its charts."""

import contextlib

import numpy as np
import pytest

from pausejax.results.folder import Folder
from pausejax.searches import report
from pausejax.searches.goal import Row
from pausejax.searches.report import Dimension, Metric, Record
from pausejax.searches.result import _interval
from pausejax.searches.search_file import RECORD

WHOLE, ONE_LEFT = np.zeros(3, bool), np.array([True, True, False])


@pytest.mark.parametrize(
    ("mean", "reach", "lost", "said"),
    [
        (0.5, 0.1, WHOLE, "50.0 [40.0, 60.0]"),
        (0.5, np.nan, ONE_LEFT, "50.0 (1/3)"),
        (0.5, 0.1, ~ONE_LEFT, "50.0 [40.0, 60.0] (2/3)"),
        (0.5, np.nan, WHOLE[:1], "50.0"),
        (np.nan, np.nan, ONE_LEFT | True, "–"),
    ],
)
def test_survivors_are_counted_and_one_seed_has_no_interval(mean, reach, lost, said):
    ends = [np.array([value]) for value in (mean, mean - reach, mean + reach)]
    assert _interval(*ends, 0, 100.0, ".1f", lost) == said


def record(values, figures, broken=()):
    """A search over alpha and a word, of settings and what they came to, [trials, metrics]."""
    trials = tuple(
        Row(number, "pause", {"alpha": alpha, "word": word}, 50, dict(enumerate_names(row)), number in broken)
        for number, ((alpha, word), row) in enumerate(zip(values, figures, strict=True))
    )
    metrics = tuple(Metric(name, name, 1.0, ".3g", True) for name, _ in enumerate_names(figures[0]))
    dimensions = (Dimension("alpha", "α", True), Dimension("word", "", False))
    return Record("a search", "most m0", "all", metrics, dimensions, trials, ("setting",), (), "on seeds", ())


def enumerate_names(row):
    return [(f"m{place}", value) for place, value in enumerate(row)]


def test_a_record_is_read_as_it_was_written(tmp_path):
    folder = Folder(tmp_path)
    assert Record.read(folder) is None
    whole = record([(1.0, "a"), (2.0, "b")], [(0.5, 1.0), (0.25, None)])
    whole.write(folder)
    assert Record.read(folder) == whole
    for damage in ("", "[]", "{}", '{"trials": 3}'):
        (tmp_path / RECORD).write_text(damage)
        with pytest.raises(ValueError, match="is damaged"):
            Record.read(folder)


def test_no_altered_record_is_believed(tmp_path):
    """A digit may be another digit: the values of a setting, or what it came to."""
    whole, folder = record([(1.0, "a")], [(0.5,)]), Folder(tmp_path)
    whole.write(folder)
    text = (tmp_path / RECORD).read_bytes()
    for place in range(len(text)):
        (tmp_path / RECORD).write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        with contextlib.suppress(ValueError):  # a flipped space between two words changes nothing
            assert Record.read(folder) == whole


def test_the_front_is_of_settings_that_keep_the_constraints_and_have_every_value():
    rows = [(float(place + 1), "a") for place in range(7)]
    figures = [(1.0, 5.0), (2.0, 4.0), (3.0, 3.0), (2.0, 2.0), (0.0, 0.0), (None, 1.0), (9.0, 9.0)]
    drawn = report.charts(record(rows, figures, broken={6}))
    assert set(drawn) == {"search_history", "search_slices", "search_front"}
    (panel,) = drawn["search_front"].panels
    beaten, front, border = panel.series
    # The second metric is across; both should be large, so the border begins with the largest across.
    assert list(zip(border.x, border.y, strict=True)) == [(5, 1), (4, 2), (3, 3)] and border.mark == "step"
    assert (front.x.tolist(), front.y.tolist()) == ([5, 4, 3], [1, 2, 3])
    assert front.names == tuple(f"{n}: pause, α = {n + 1}, word = a" for n in range(3))
    assert list(zip(beaten.x, beaten.y, strict=True)) == [(2, 2), (0, 0)] and len(beaten.names) == 2


def test_the_best_so_far_is_of_settings_that_count():
    drawn = report.charts(record([(1.0, "a")] * 4, [(2.0,), (9.0,), (None,), (3.0,)], broken={1}))
    found = {one.label: one for one in drawn["search_history"].panels[0].series}
    best, crossed, points = (found[label] for label in ("best so far", "break a constraint", "settings"))
    assert (best.x.tolist(), best.y.tolist()) == ([0, 3], [2.0, 3.0])
    assert (crossed.mark, crossed.x.tolist(), crossed.y.tolist()) == ("cross", [1], [9.0])
    np.testing.assert_array_equal([points.x, points.y], [[0, 2, 3], [2, np.nan, 3]])


def test_slices_have_places_for_words_and_the_number_in_colour():
    rows = [(1.0, "b"), (10.0, "a"), (100.0, "b")]
    alpha, word = report.charts(record(rows, [(2.0,), (9.0,), (3.0,)]))["search_slices"].panels
    assert (alpha.x.label, alpha.x.scale) == ("alpha α", "log") and word.x.names == ("a", "b")
    assert alpha.series[0].x.tolist() == [1, 10, 100] and word.series[0].x.tolist() == [1, 0, 1]
    for panel in (alpha, word):
        assert panel.series[0].y.tolist() == [2, 9, 3] and panel.series[0].color.tolist() == [0, 1, 2]


def test_a_fixed_value_of_0_is_drawn_beside_a_logarithmic_range():
    rows = [(10.0, "b"), (0.0, "a"), (0.5, "b")]
    chart = report.charts(record(rows, [(2.0,), (9.0,), (3.0,)]))["search_slices"]
    axis = chart.panels[0].x
    assert (axis.scale, axis.linear) == ("symlog", 0.5)
    figure = chart.figure()
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    assert low <= 0 and high >= 10


def test_the_table_of_settings_has_units():
    whole = record([(1.0, "a")], [(0.25,)])
    share = Metric("m0", "share of rounds (%)", 100.0, ".3g", True)
    table = report._settings(whole._replace(metrics=(share,)))
    assert table.rows[0][table.headings.index("share of rounds (%)")] == "25"


def test_settings_without_a_value_are_drawn_as_nothing():
    drawn = report.charts(record([(1.0, "a")], [(None,)]))
    assert set(drawn) == {"search_history", "search_slices"}
    assert all(chart.encode("png")[1:4] == b"PNG" for chart in drawn.values())


def test_settings_without_a_place_are_counted():
    found = report.charts(
        record([(1.0, "a"), (2.0, "b"), (3.0, "a")], [(1.0, 2.0), (np.inf, 1.0), (np.nan, 3.0)])
    )
    assert found["search_history"].panels[0].note.startswith("2 of 3 settings have no finite value")
    assert found["search_history"].panels[1].note == ""
    assert "2 of 3 settings have no finite value" in found["search_slices"].panels[0].note
    assert "2 of 3 settings have no finite value of every metric" in found["search_front"].panels[0].note
