"""Whether a run has a parameter is a fact of its own: -1, "", False and the like are values as any others."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pausejax
from pausejax import analysis, kinds
from pausejax.analysis import schema
from pausejax.analysis.quantities import Metric
from pausejax.analysis.settings import has
from pausejax.plotting.grid import arrange, lines
from pausejax.plotting.sweeps import heat_maps
from pausejax.results import export, labels
from pausejax.study.plan import make_plan

POLICY = """
import jax.numpy as jnp
import pausejax
from pausejax.policies import cohort, memoryless

@pausejax.policy
def own(*, clients_per_round: int, total: float = 1.0, steps: int = 0, word: str = "a", flag: bool = True):
    def select(key, state, view):
        return cohort(jnp.arange(clients_per_round, dtype=jnp.int32), state.data_share)
    return memoryless(select)
"""
AXES = {"total": [1.0, 3.0, -1.0], "steps": [2, -1], "word": ["a", ""], "flag": [True, False]}
METRIC = "elapsed"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Every combination of the axes of `own` and one of `random`, which has none of them; two seeds each.

    The simulated time of a run is its place.
    """
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(POLICY)
    spec = {
        "mode": "bandit",
        "rounds": 2,
        "seeds": 2,
        "use": ["own.py"],
        "policy": [{"name": "own", **AXES}, {"name": "random"}],
    }
    plan = make_plan(kinds.parse(spec, folder=folder))
    known = plan.study.outputs.variables
    names = known.keys()
    runs = len(plan.runs)
    arrays = labels.blank(known, names, runs, {"round": 2, "client": 30, "slot": 3})
    arrays["elapsed"][:] = np.arange(runs)[:, None]
    return labels.merge(plan, [(range(runs), arrays)])


def kept(result):
    """How many runs of each policy."""
    names, counts = np.unique(result["policy"].values, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in AXES for value in AXES[name]])
def test_runs_are_selected_by_any_value_and_rivals_without_the_parameter_stay(whole, name, value):
    share = 48 // len(AXES[name])
    assert kept(analysis.select(whole, {name: value})) == {"own": share, "random": 2}
    chosen = analysis.select(whole, {name: value}, policy="own")
    assert kept(chosen) == {"own": share} and set(chosen[name].values.tolist()) == {value}


def test_what_a_run_has_survives_what_is_done_with_a_result(whole, tmp_path):
    figures = analysis.finals(whole)
    parts = [figures.isel(run=slice(0, 7)), figures.isel(run=slice(7, None))]
    pausejax.save(whole, tmp_path / "saved")
    some = [
        whole,
        figures,
        whole[["elapsed"]],
        xr.concat(parts, "run"),
        pausejax.open(tmp_path / "saved"),
        whole.isel(run=slice(None, None, -1)).sortby("policy"),
    ]
    for result in some:
        own = result["policy"].values == "own"
        for name in AXES:
            np.testing.assert_array_equal(has(result, name), own)
    assert not has(whole.isel(run=-1), "total") and has(whole.isel(run=0), "total")


def test_settings_are_told_apart_and_named_by_all_that_they_have(whole):
    labels = [line.label for line in lines(whole)]
    assert len(labels) == len(set(labels)) == 25 and labels[-1] == "random"
    assert "own, total = -1, steps = -1, word = , flag = False" in labels
    found = analysis.mean_ci(whole, METRIC)
    assert found["label"].values.tolist() == labels
    np.testing.assert_allclose(found["mean"].values, np.arange(25) * 2 + 0.5)
    np.testing.assert_array_equal(has(found, "steps"), found["policy"].values == "own")
    # Averaged over policies, -1 and the lack of it are still two things.
    found = analysis.mean_ci(whole, METRIC, over=("seed", "policy", "total", "word", "flag"))
    assert found["steps"].values[has(found, "steps")].tolist() == [2, -1]
    assert found["label"].values.tolist() == ["steps = 2", "steps = -1", "all runs"]


def test_the_worst_value_may_win_and_be_compared(whole):
    low = analysis.select(whole, total=-1.0)
    found = analysis.verdict(analysis.select(low, policy="own"), METRIC)
    assert found.settings == 8 and found.best["label"].item().startswith("own, total = -1, steps = 2")
    assert found.difference["mean"].item() == -2
    gap = analysis.paired_difference(
        whole, {"policy": "own", "total": -1.0}, {"policy": "own", "total": 1.0}, METRIC
    )
    assert gap.sizes["setting"] == 8 and set(gap["mean"].values.tolist()) == {32.0}
    assert analysis.paired_difference(whole, "own", "random", METRIC).sizes["setting"] == 24


@pytest.mark.parametrize("name", AXES)
def test_the_best_of_each_value_has_a_place_for_those_without_it(whole, name):
    """Fillings (-1, "", False) are values of others here, and are no reason to be compared with them."""
    found = analysis.best(whole, METRIC, per=name, maximize=False)
    winners = found["mean"].values[has(found, name)], found["policy"].values[~has(found, name)]
    frame = analysis.to_dataframe(whole)
    own = frame[frame["policy"] == "own"].groupby([*AXES, "policy"], as_index=False)[METRIC].mean()
    expected = own.groupby(name)[METRIC].min()
    assert (
        dict(zip(found[name].values[has(found, name)].tolist(), winners[0], strict=True))
        == expected.to_dict()
    )
    assert winners[1].tolist() == ["random"]


@pytest.mark.parametrize("name", sorted(schema.COLUMNS))
def test_no_axis_is_called_as_a_column_of_tables(whole, name):
    axes = json.dumps([*AXES, name])
    other = whole.assign_attrs(axes=axes).assign_coords({name: ("run", np.arange(whole.sizes["run"]))})
    for asked in (analysis.summary, lambda result: analysis.curves(result, METRIC)):
        with pytest.raises(ValueError, match=f"axis {name}: tables have a column of this name"):
            asked(other)


def test_tables_of_other_tools_have_nothing_where_there_is_nothing(whole, tmp_path):
    runs = analysis.to_dataframe(whole)
    own = runs["policy"] == "own"
    for name, values in AXES.items():
        assert runs[name][own].unique().tolist() == values and runs[name][~own].isna().all()
    assert "unread_parameters" not in runs
    export.export(whole, tmp_path / "runs.parquet")
    again = pd.read_parquet(tmp_path / "runs.parquet")
    assert again["steps"][own].tolist() == runs["steps"][own].tolist() and again["word"][~own].isna().all()


def test_charts_have_a_line_a_cell_and_a_panel_for_every_value(whole):
    grid = arrange(whole, ["total", "steps"])
    titles = {panel.title: [line.label for line in panel.lines] for panel in grid.panels}
    names = [f"total = {value}" for value in (-1, 1, 3)]
    assert titles == {"own, steps = -1": names, "own, steps = 2": names, "random": ["random"]}
    metric = Metric(METRIC, "last", False, "s", "", name=METRIC)
    charts = heat_maps(analysis.finals(whole, [METRIC]), [metric])
    assert list(charts) == ["heatmap_elapsed_own"]  # the other policy has no axis
    panel = next(
        panel
        for panel in charts["heatmap_elapsed_own"].panels
        if {panel.x.label, panel.y.label} == {"steps", "total"}
    )
    cells = panel.cells if panel.y.label == "steps" else panel.cells.T
    np.testing.assert_allclose(cells, [[43.5, 11.5, 27.5], [35.5, 3.5, 19.5]])
