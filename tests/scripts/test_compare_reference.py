"""The comparison with the paper's logged curves: intervals, pairing, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from ..analysis import made_up
from ..programs import load

ROUNDS = 40


@pytest.fixture(scope="module")
def script():
    return load("scripts/compare_reference.py")


def result(folder, policies, seeds, accuracy):
    """A result whose accuracies are given, [policy, seed, round]; one second a round."""
    runs = [(policy, seed) for policy in policies for seed in seeds]
    run = [name for name, _ in runs]
    shape = (len(runs), ROUNDS)
    rounds = np.arange(1, ROUNDS + 1)
    dataset = xr.Dataset(
        {
            "test_accuracy": (("run", "eval"), accuracy.reshape(shape)),
            "elapsed": (("run", "round"), np.broadcast_to(rounds * 1.0, shape)),
            "max_leakage": (("run", "round"), np.broadcast_to(rounds * 0.5, shape)),
        },
        {
            "policy": ("run", run),
            "algorithm": ("run", [policies[name] for name in run]),
            "seed": ("run", [seed for _, seed in runs]),
            "identity": ("run", [f"{name} {seed}" for name, seed in runs]),
            "private": ("run", [True] * len(runs)),
            "round": rounds,
            "eval_round": ("eval", rounds),
        },
        {"axes": json.dumps([]), "mode": "training"},
    )
    made_up.store(dataset, folder)
    return str(folder)


def test_differences_are_paired_by_seed_and_curves_are_smoothed(script, tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    network = rng.normal(0, 0.1, (5, 1))  # what all policies of a seed share
    pause = 0.7 + network + np.zeros((5, ROUNDS))
    # The same seeds in another order: pairing by position would widen the interval a hundredfold.
    random = (0.6 + network + rng.normal(0, 1e-4, (5, ROUNDS)))[::-1]
    first = result(tmp_path / "a", {"PAUSE": "pause"}, range(5), pause)
    second = result(tmp_path / "b", {"random": "random"}, range(4, -1, -1), random)
    ours = 70.0 + 100 * network.mean()
    half = stats.t.ppf(0.975, 4) * 100 * network.std(ddof=1) * np.sqrt(1.2)
    curves = tmp_path / "curves.csv"
    logged = {"pause": (ours + 0.98 * half, 0.5), "random": (ours + 9 * half, 0.6)}
    rows = [
        ("s", policy, n, accuracy / 100, n * 1.0, leakage * n)
        for policy, (accuracy, leakage) in logged.items()
        for n in range(1, 31)
    ]
    names = ["scenario", "policy", "round", "test_accuracy", "elapsed", "max_leakage"]
    pd.DataFrame(rows, columns=names).to_csv(curves)
    arguments = ["x", first, second, "--scenario", "s", "--reference", str(curves), "--times", "12", "39"]
    picture = tmp_path / "p.png"
    monkeypatch.setattr("sys.argv", [*arguments, "--rounds", "20", "41", "--picture", str(picture)])
    script.main()
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()
    ]
    (own, theirs) = [row for row in lines if len(row) == 11 and row[0] in ("PAUSE", "random")]
    assert own[1] == "30" and own[4] == "yes" and own[7] == "yes" and own[10] == "yes"
    assert theirs[4] == "**no**" and theirs[7] == "yes" and theirs[10] == "**no**"
    (difference,) = [row for row in lines if row and row[0] == "PAUSE − random"]
    assert difference == ["PAUSE − random", "5", "+10.0 ± 0.0", "+10.0 ± 0.0", "+0.0 ± 0.0", "–"]
    assert picture.read_bytes()[1:4] == b"PNG"


def test_accuracies_are_means_over_ten_rounds(script, tmp_path):
    ramp = np.arange(ROUNDS)[None] / 100.0
    folder = result(tmp_path / "a", {"PAUSE": "pause"}, [0], ramp)
    smoothed = script.load([folder])["PAUSE"]["test_accuracy"].values[0]
    np.testing.assert_allclose(smoothed[20], ramp[0, 11:21].mean())
    np.testing.assert_allclose(smoothed[0], 0.0)


def test_prediction_interval_covers_a_new_run_as_often_as_it_says(script):
    """4,000 repetitions: 0.95 ± 0.0034 (one deviation); below 0.935 or above 0.965 once in 100,000."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(4000):
        samples = rng.normal(size=6)
        low, high = script.prediction(samples[:5])
        hits += low <= samples[5] <= high
    assert 0.935 < hits / 4000 < 0.965


def test_leakages_may_be_those_of_a_study_of_the_same_cohorts(script, tmp_path):
    seeds, accuracy = range(3), np.zeros((3, ROUNDS))
    in_the_clear = script.load([result(tmp_path / "a", {"PAUSE": "pause"}, seeds, accuracy)])["PAUSE"]
    chosen = (("run", "round", "slot"), np.arange(3 * ROUNDS).reshape(3, ROUNDS, 1))
    found = {"PAUSE": in_the_clear.assign(selected=chosen, max_leakage=in_the_clear["max_leakage"] + np.inf)}
    ledger = in_the_clear.assign(selected=chosen).isel(run=[2, 0, 1]).drop_vars("test_accuracy")
    made_up.store(ledger, tmp_path / "same")
    kept = script.with_ledger(found, str(tmp_path / "same"))["PAUSE"]
    np.testing.assert_array_equal(kept["max_leakage"], in_the_clear["max_leakage"])
    np.testing.assert_array_equal(kept["test_accuracy"], in_the_clear["test_accuracy"])
    made_up.store(ledger.assign(selected=ledger["selected"] + 1), tmp_path / "others")
    with pytest.raises(SystemExit, match="others: PAUSE: must select the same clients"):
        script.with_ledger(found, str(tmp_path / "others"))
