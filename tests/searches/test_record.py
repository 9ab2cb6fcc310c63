"""What is read off a search: its record on disk, which parameters mattered, how good a front is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.results.folder import Folder
from pausejax.searches import pictures
from pausejax.searches.importance import importance
from pausejax.searches.record import FILE, Dimension, Figure, Record, Trial
from pausejax.searches.volume import hypervolume


def record(values, metrics, dimensions, outcome="finished"):
    """A search with the given settings, [trials, dimensions], and what they showed, [trials, metrics]."""
    names = [dimension.name for dimension in dimensions]
    trials = tuple(
        Trial(
            place, "pause", dict(zip(names, row, strict=True)), outcome, 50, 100 * place, 50.0, shown, False
        )
        for place, (row, shown) in enumerate(zip(values, metrics, strict=True))
    )
    figures = tuple(Figure(f"m{place}", f"m{place}", 1.0, ".3g", True) for place in range(len(metrics[0])))
    return Record(
        "a search",
        "most m0",
        "all",
        figures,
        tuple(dimensions),
        (50.0,),
        trials,
        ("setting",),
        (),
        "on seeds",
    )


def made(worth, count=120):
    """Settings of three parameters, and what a function of them shows."""
    rng = np.random.default_rng(5)
    rows = list(
        zip(
            np.exp(rng.uniform(0, 7, count)),
            rng.uniform(0, 1, count),
            rng.choice(["a", "b"], count),
            strict=True,
        )
    )
    rows = [(float(a), float(b), str(c)) for a, b, c in rows]
    dimensions = [Dimension("alpha", "α", True), Dimension("beta", "", False), Dimension("word", "", False)]
    return record(rows, [(float(worth(*row, rng)),) for row in rows], dimensions)


def test_what_matters_has_an_interval_beside_0_and_what_does_not_around_it():
    found = importance(made(lambda a, b, c, rng: np.sin(np.log(a) / 2) + 2 * (c == "a") + 0.1 * rng.normal()))
    assert found.names == ("alpha", "beta", "word") and found.predicted > 0.7
    assert found.low[0] > 0.02 and found.low[2] > 0.5
    assert found.low[1] < 0 < found.high[1] or abs(found.mean[1]) < 0.01


def test_of_noise_nothing_is_predicted():
    found = importance(made(lambda a, b, c, rng: rng.normal()))
    assert found.predicted < 0.1
    assert (found.low < 0.05).all()


def test_few_settings_tell_nothing():
    assert importance(made(lambda a, b, c, rng: a, count=19)) is None


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3), st.data())
def test_the_volume_of_a_front_is_that_of_the_cells_it_dominates(dimensions, data):
    points = data.draw(st.lists(st.tuples(*[st.integers(0, 4)] * dimensions), min_size=1, max_size=7))
    cells = sum(
        any(all(value > place for value, place in zip(point, cell, strict=True)) for point in points)
        for cell in itertools.product(range(4), repeat=dimensions)
    )
    assert hypervolume(np.array(points, float), np.zeros(dimensions)) == pytest.approx(cells)


def test_a_record_is_read_as_it_was_written(tmp_path):
    folder = Folder(tmp_path)
    assert Record.read(folder) is None
    rows = [(1.0, "a"), (2.0, "b")]
    whole = record(
        rows, [(0.5, 1.0), (0.25, 2.0)], [Dimension("alpha", "α", True), Dimension("word", "", False)]
    )
    whole.write(folder)
    assert Record.read(folder) == whole
    gone = whole._replace(trials=(whole.trials[0]._replace(figures=(float("nan"), 1.0)),))
    gone.write(folder)
    assert np.isnan(Record.read(folder).trials[0].figures[0])
    for damage in ("", "[]", "{}", '{"trials": 3}'):
        (tmp_path / FILE).write_text(damage)
        with pytest.raises(ValueError, match="is damaged"):
            Record.read(folder)


def test_several_objectives_have_a_front_and_its_volume():
    rows = [(float(place), "a") for place in range(6)]
    shown = [(1.0, 5.0), (2.0, 4.0), (3.0, 3.0), (2.0, 2.0), (0.0, 0.0), (float("nan"), 1.0)]
    found = record(rows, shown, [Dimension("alpha", "α", False), Dimension("word", "", False)])
    drawn = pictures.draw(found)
    assert set(drawn) == {
        "search_history",
        "search_slices",
        "search_parallel",
        "search_front",
        "search_volume",
    }
    line = drawn["search_volume"].axes[0].lines[0].get_ydata()
    assert (np.diff(line) >= 0).all()
    # In units of the box from the worst to the best: cells of a third by a fifth.
    assert line[-1] == pytest.approx((1 / 3) + (1 / 3) * (4 / 5) + (1 / 3) * (3 / 5))
    front = drawn["search_front"].axes[0].lines[1]
    assert sorted(front.get_ydata()) == [1.0, 2.0, 3.0]


def test_settings_that_never_came_to_a_rung_are_drawn_as_nothing():
    found = record([(1.0,)], [(float("nan"),)], [Dimension("alpha", "α", True)], outcome="budget")
    nothing = found._replace(trials=(found.trials[0]._replace(rung=None),))
    assert set(pictures.draw(nothing)) == {"search_history", "search_slices"}
