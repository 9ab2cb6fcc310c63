"""`select` against plain masks, and what it says about what is not there."""

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import analysis


@pytest.fixture
def made():
    """Runs of three policies; γ went through float32, and `uniform` has none."""
    gamma = np.array([0.1, 5.0, 0.1, 5.0, np.nan, 0.1], np.float32).astype(float)
    return xr.Dataset(
        {"elapsed": ("run", np.arange(6.0))},
        {
            "policy": ("run", ["PAUSE", "PAUSE", "cold", "cold", "uniform", "PAUSE"]),
            "algorithm": ("run", ["pause", "pause", "sa_pause", "sa_pause", "random", "pause"]),
            "seed": ("run", [0, 0, 0, 0, 0, 1]),
            "privacy_weight": ("run", gamma),
            "annealing_steps": ("run", [-1, -1, 10, 50, -1, -1]),
            "private": ("run", [True, True, True, False, True, True]),
            "unread_parameters": ("run", ["annealing_steps"] * 2 + [""] * 2 + ["annealing_steps"] * 2),
        },
        {
            "axes": '["privacy_weight"]',
            "parameters": '{"privacy_weight": [["gamma"], "γ"], "annealing_steps": [["J"], "J"],'
            ' "private": [[], ""], "budget_decay": [["eta"], "η"]}',
        },
    )


def test_tiny_values_are_told_apart(made):
    tiny = made.assign_coords(privacy_weight=("run", np.arange(1, 7) * 1e-10))
    assert analysis.select(tiny, gamma=3e-10)["elapsed"].values.tolist() == [2]


def test_a_value_matches_up_to_the_rounding_of_float32_only(made):
    found = analysis.select(made, gamma=0.1)["elapsed"].values.tolist()  # stored as float32, 1.5e-8 too large
    assert found == [0, 2, 4, 5]  # run 4 has no γ
    with pytest.raises(ValueError, match=r"gamma = 0.1000005: no run has this value"):
        analysis.select(made, gamma=0.1000005)


def test_of_many_values_that_are_there_five_are_named():
    rng = np.random.default_rng(0)
    sampled = xr.Dataset(
        {"elapsed": ("run", np.arange(512.0))},
        {
            "policy": ("run", ["a"] * 512),
            "seed": ("run", [0] * 512),
            "gamma": ("run", rng.permutation(512) + 1),
        },
        {"axes": '["gamma"]', "parameters": '{"gamma": [[], ""]}'},
    )
    listed = r"known: 1, 2, 3, 4, 5, … \(512 in all\)$"
    with pytest.raises(
        ValueError, match=f"gamma = 1000: no run has this value; did you mean 512[?] {listed}"
    ):
        analysis.select(sampled, gamma=1000)
    with pytest.raises(ValueError, match=r"no run has gamma = 1000; known: (\d+, ){5}… \(512 in all\)$"):
        analysis.paired_difference(sampled, "a", {"policy": "a", "gamma": 1000}, sampled.elapsed)


@pytest.mark.parametrize("wanted", [20261124, [20261124], slice(20261124, 20261124)])
def test_seeds_that_are_dates_are_told_apart(made, wanted):
    dated = made.assign_coords(seed=("run", 20261121 + np.arange(6)))
    assert analysis.select(dated, seed=wanted)["elapsed"].values.tolist() == [3]
    assert analysis.select(dated, {"seed": "20261124"})["elapsed"].values.tolist() == [3]


def test_the_very_value_hides_values_that_are_close(made):
    close = made.assign_coords(privacy_weight=("run", [1.0, 1.000001, 2.0, 3.0, 4.0, 5.0]))
    assert analysis.select(close, gamma=1.0)["elapsed"].values.tolist() == [0]
    assert analysis.select(close, gamma=1.000001)["elapsed"].values.tolist() == [1]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"policy": "PAUSE"}, [0, 1, 5]),
        ({"algorithm": ["pause", "random"]}, [0, 1, 4, 5]),
        ({"policy": "PAUSE", "gamma": 5.0}, [1]),
        ({"policy": "PAUSE", "γ": 0.1}, [0, 5]),
        ({"privacy_weight": 0.1}, [0, 2, 4, 5]),  # the rival that has no γ stays
        ({"policy": ["PAUSE", "cold"], "privacy_weight": 0.1}, [0, 2, 5]),
        ({"gamma": np.array([0.1, 5.0]), "seed": range(1)}, [0, 1, 2, 3, 4]),
        ({"policy": ("cold",), "J": 10}, [2]),
        ({"J": slice(None, 20)}, [0, 1, 2, 4, 5]),
        ({"policy": "cold", "J": slice(10, 50)}, [2, 3]),
        ({"policy": ["PAUSE", "cold"], "gamma": slice(0.1, 1)}, [0, 2, 5]),
        ({"seed": slice(0, 0)}, [0, 1, 2, 3, 4]),
        ({"private": False}, [3]),
        ({"seed": np.int64(1)}, [5]),
    ],
)
def test_runs_that_have_the_values_in_their_order(made, wanted, places):
    xr.testing.assert_identical(analysis.select(made, **wanted), made.isel(run=places))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"gama": 5.0}, "'gama': is no label of this result's runs; did you mean 'gamma'?; known: policy,"),
        ({"eta": 1.0}, "'eta': is no label of this result's runs"),
        ({"elapsed": 1.0}, "'elapsed': is no label"),
        (
            {"policy": "pause"},
            "policy = 'pause': no run has this value; did you mean 'PAUSE'? known: 'PAUSE', ",
        ),
        ({"gamma": 5.001}, "gamma = 5.001: no run has this value; did you mean 5? known: 0.1, 5"),
        ({"gamma": [5.0, 25.0]}, "gamma = 25: no run has this value; did you mean 5?"),
        ({"gamma": "5"}, "gamma = '5': no run has this value; known: 0.1, 5"),
        ({"gamma": slice(6, None)}, "gamma = slice(6, None): no run has this value"),
        ({"policy": slice("a", "b")}, "must be slice(low, high) with numbers"),
        ({"J": -1}, "J = -1: no run has this value; did you mean 10? known: 10, 50"),
        ({"gamma": []}, "gamma = []: must list one value or more"),
        (
            {"gamma": 5.0, "seed": 1},
            "gamma = 5: no run with seed = 1 has this value; did you mean 0.1? known: 0.1",
        ),
        ({"policy": ["PAUSE", "uniform"], "J": 10}, "J = 10: no run with policy = ['PAUSE', 'uniform'] has"),
        ({"policy": "PAUSE", "J": 10}, "has this value; these runs have no value of it"),
        ({"policy": ["PAUSE", "cold"], "J": [10, 50], "seed": 1}, "policy = 'cold': no run with J"),
    ],
)
def test_what_is_not_there_is_said_and_nothing_dropped_silently(made, wanted, said):
    with pytest.raises(ValueError) as caught:
        pausejax.select(made, **wanted)
    assert said in str(caught.value)


def test_what_is_no_result_is_refused(made):
    with pytest.raises(ValueError, match="must have the dimension run"):
        analysis.select(made.isel(run=0), policy="PAUSE")


def test_figures_of_the_whole_are_those_of_the_selection(result):
    one = analysis.finals(analysis.select(result, gamma=5.0, policy="pause"))
    xr.testing.assert_identical(one, analysis.select(analysis.finals(result), gamma=5.0, policy="pause"))
