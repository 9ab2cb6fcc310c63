"""The scripts behind the docs' figures: each runs small, and its numbers are held against plain ones."""

import csv
import importlib.util
import itertools
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pausejax.ensemble import make_pool
from pausejax.searches.halving import Shown
from pausejax.searches.search import Ended

from .analysis import made_up

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def load(name):
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    module.main()


@pytest.mark.slow
def test_theorem_4_ends_where_its_chain_does(monkeypatch, tmp_path):
    """Exact probabilities against a chain stepped by hand, simulated ones within five standard errors."""
    script = load("theorem4")
    monkeypatch.setattr(script, "CHAINS", 2000)
    monkeypatch.setattr(script, "SIMULATED_STEPS", 60)
    for survey in ("survey", "survey_ties", "search"):
        monkeypatch.setattr(script, survey, list)
    shares, simulate = {}, script.simulate
    monkeypatch.setattr(script, "simulate", lambda *given: shares.setdefault(given[3], simulate(*given)))
    arguments = ("--clients", 4, "--per-round", 2, "--round", 20, "--steps", 60, "--divisors", 0, 5)
    run(script, monkeypatch, "--out", tmp_path, *arguments)
    assert (tmp_path / "theorem4.png").read_bytes()[1:4] == b"PNG"
    terms = [x[-1] for x in script.play(4, 2, 20, (100.0, 5.0, 1.0))]
    adjacency, energy, constant = script.graph(terms, 2, (100.0, 5.0, 1.0))
    ucb, g, p = terms
    sets = list(itertools.combinations(range(4), 2))
    value = [min(ucb[list(s)]) + sum((100 * g + 5 * p)[list(s)]) / 2 for s in sets]
    np.testing.assert_allclose(np.sort(energy), np.sort(value), rtol=1e-5)
    chance = np.full(6, 1 / 6)
    degree = adjacency.sum(axis=1)
    for step in range(1, 61):
        accept = np.exp(np.minimum(0, (energy[None] - energy[:, None]) * 5 * np.log(step + 1) / constant))
        move = adjacency * accept / degree[:, None]
        chance = chance @ (move + np.diag(1 - move.sum(axis=1)))
    with (tmp_path / "theorem4.csv").open() as file:
        rows = list(csv.DictReader(file))
    (last,) = (row for row in rows if float(row["divisor"]) == 5 and int(row["step"]) == 60)
    at_best = chance[energy > energy.max() - 1e-5].sum()
    assert float(last["current"]) == pytest.approx(at_best, rel=1e-4)
    assert 0.2 < at_best < 1 and float(last["best"]) >= float(last["current"])
    error = np.sqrt(at_best * (1 - at_best) / 2000)
    assert abs(shares[5.0][0][-1] - at_best) < 5 * error + 1e-3
    found = json.loads((tmp_path / "theorem4.json").read_text())
    assert found["sets"] == 6 and found["constant"] == pytest.approx(constant)


def test_comparison_at_equal_latency_is_paired_by_seed(monkeypatch, tmp_path, capsys):
    rng, rounds = np.random.default_rng(0), 100
    network = rng.normal(0, 0.1, 4)
    rows = [("PAUSE", seed) for seed in range(4)] + [("random", seed) for seed in (3, 1, 0, 2)]
    noise = {("random", seed): 0.001 * seed for seed in range(4)}
    accuracy = np.array([network[s] + 0.5 + 0.1 * (p == "PAUSE") + noise.get((p, s), 0) for p, s in rows])
    evaluated = np.array([50, 100])
    leaked = np.array([1.0 if p == "PAUSE" else 0.25 for p, _ in rows])[:, None] * np.arange(1, rounds + 1)
    result = xr.Dataset(
        {
            "test_accuracy": (("run", "eval"), np.stack([accuracy, accuracy + 0.2], axis=1)),
            "elapsed": (("run", "round"), np.tile(np.arange(1.0, rounds + 1), (8, 1))),
            "max_leakage": (("run", "round"), leaked),
        },
        {
            "policy": ("run", [p for p, _ in rows]),
            "algorithm": ("run", [p for p, _ in rows]),
            "seed": ("run", [s for _, s in rows]),
            "identity": ("run", [f"{p}{s}" for p, s in rows]),
            "round": np.arange(1, rounds + 1),
            "eval_round": ("eval", evaluated),
        },
        {"axes": "[]", "mode": "training"},
    )
    made_up.store(result, tmp_path)
    run(load("compare_at_equal_latency"), monkeypatch, tmp_path, "--of", "PAUSE", "--times", 60, 100)
    shown = capsys.readouterr().out.splitlines()
    differences = 10 - 0.1 * np.arange(4)
    half = stats.t.ppf(0.975, 3) * differences.std(ddof=1) / 2
    assert (
        f"| random | +{differences.mean():.1f} ± {half:.1f} | +{differences.mean():.1f} ± {half:.1f} |"
        in shown
    )
    assert "| random | +15.0 ± 0.0 | +37.5 ± 0.0 | +75.0 ± 0.0 | +75.0 ± 0.0 |" in shown


def test_table_1_experiments_score_the_pool_that_they_are_about(monkeypatch, capsys):
    """On made-up pools: one perfect model among wrong ones, whose cost decides what a round may send."""
    script = load("ensemble_table1")
    rng = np.random.default_rng(0)
    targets = rng.random(200)
    predictions = np.clip(targets[:, None] + np.r_[0, np.full(21, 0.4)], 0, 1)
    monkeypatch.setattr(script, "SEEDS", np.arange(3))

    class Made:
        def __call__(self, name, setting):
            cost = 1.0 if setting.kernel_cost is None else setting.kernel_cost
            return make_pool(predictions, targets, [round(1000 * cost)] * 20 + [400, 1000])

    error, over = script.play(Made()("bias", script.Setting("")), "efl_fg", script.Setting(""))
    assert error.shape == over.shape == (3,) and (over == 0).all()
    # Per cent of squares: no ensemble is worse than its worst model.
    assert (error > 0).all() and (error < 1e3 * 0.4**2).all()
    script.violation_fractions()
    monkeypatch.setattr(script, "PAPER", {"bias": script.PAPER["bias"]})
    script.compare(Made(), "efl_fg", [script.Setting("as shipped")])
    shown = capsys.readouterr().out
    # T = ceil(0.9 · 7750 / 100) = 70 rounds, 16 of which are 22.86 %.
    assert "bias: 16/70 = 22.86 %; printed 22.86 %" in shown
    assert f"bias {error.mean():6.2f} ± {error.std(ddof=1):5.2f}" in shown


@pytest.mark.parametrize("name", ["bench/selection", "bench/annealing"])
def test_benchmarks_measure_decisions_of_the_middle_of_a_run(name):
    """(13), (8) and (7) in float64 from the counts and means that are drawn."""
    script, k, m, t = load(name), 12, 3, 300
    rng = np.random.default_rng(4)
    favour = np.where(np.arange(k) < k // 2, 3.0, 1.0) * rng.uniform(0.7, 1.3, k)
    counts = rng.poisson(favour / favour.sum() * m * t) + 1
    mean = np.clip(0.3 * favour + rng.normal(0, 0.02, k), 0, 1)
    lag = m / k - counts / t
    ucb = mean + np.sqrt((m + 1) * np.log(t) / counts)
    g, p = np.sign(lag) * lag**2, np.exp(-0.04 * counts)
    found = script.terms(k, m, 4)
    expected = (ucb, g, p) if len(found) == 3 else (ucb, (100 * g + 5 * p) / m)
    for ours, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-6)


def test_slopes_are_exponents():
    selection, annealing = load("bench/selection"), load("bench/annealing")
    sizes = [300, 1000, 3000, 10_000]
    rows = [{"selector": "best_set", "clients": k, "cpu_seconds": 1e-6 * k**1.5} for k in sizes]
    rows += [
        {"selector": "brute_force", "clients": k, "cpu_seconds": 1e-3 * 1.4**k} for k in (12, 24, 30, 36)
    ]
    fitted = selection.slopes(rows)
    assert fitted["best_set_exponent_from_1000"] == pytest.approx(1.5)
    assert fitted["brute_force_factor_per_client_from_24"] == pytest.approx(1.4)
    rows = [{"clients": k, "exact_seconds": 3.0 * k**0.75} for k in (30, *sizes)]
    rows[0]["exact_seconds"] = 100.0
    assert annealing.slopes(rows) == {"exact_seconds": pytest.approx(0.75)}


def test_a_sets_neighbours_are_counted_as_they_are():
    """|A| (K - m) + (m - |A|) |U| against every swap, tried out."""
    script, rng = load("bench/annealing"), np.random.default_rng(1)
    for _ in range(20):
        values = [rng.permutation(9) for _ in range(3)]
        members = np.sort(rng.choice(9, 4, replace=False))
        first = {int(members[np.argmin(x[members])]) for x in values}
        swaps = [
            (leaving, entering)
            for leaving in members
            for entering in set(range(9)) - set(members)
            if leaving in first or any(x[entering] < x[members].min() for x in values)
        ]
        assert script.neighbourhood_size(values, members) == len(swaps)


def test_a_bench_of_studies_counts_rounds_and_runs(monkeypatch, tmp_path):
    script = load("bench/simulation")
    monkeypatch.setattr(script, "STUDIES", {"small": {"mode": "bandit", "policy": [{"name": "random"}]}})
    clock = itertools.count()
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(script.time, name, lambda: 0.5 * next(clock))
    run(script, monkeypatch, "--runs", 2, "--rounds", 12, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    (row,) = found["studies"]["small"]
    # The clocks, wall and CPU in turn, advance by half a second a look: a second from look to look of one.
    assert row["rounds_times_runs_per_s"] == row["rounds_times_runs_per_cpu_s"] == 24.0
    assert row["runs"] == 2 and row["compile_s"] == 1.0 and found["rounds"] == 12


def test_a_benchs_calls_are_whole(monkeypatch):
    """What is timed is the whole batch: each run of it has an answer of its own."""
    script = load("bench/selection")
    ucb, score = script.batch(12, 3, 70)
    assert ucb.shape == score.shape == (70, 12)
    np.testing.assert_array_equal(ucb[64:], ucb[:6])
    assert len(np.unique(np.asarray(ucb[:64]), axis=0)) == 64
    timed = []
    monkeypatch.setattr(script, "cpu_seconds", lambda call, *inputs: timed.append(call(*inputs)) or 7.0)
    assert script.measure(script.best_set, 12, 3, 5) == 7 / 5
    (chosen,) = timed
    assert chosen.members.shape == (5, 3)
    for members, u, s in zip(np.asarray(chosen.members), ucb, score, strict=False):
        sets = np.array(list(itertools.combinations(range(12), 3)))
        u, s = np.asarray(u, float), np.asarray(s, float)
        best = (u[sets].min(axis=1) + s[sets].sum(axis=1)).max()
        assert u[members].min() + s[members].sum() == pytest.approx(best, abs=1e-5)


def test_a_shuffled_game_numbers_its_clients_at_random():
    """The first rounds try the clients in their order, so each one's latency shows who has which number."""
    game = load("bench/selection").play(4, 1, 4, gain=1.0, privacy_weight=5.0, shuffled=True)
    latency = np.asarray(game(jnp.arange(3))[0])
    means = np.array([0.125, 0.2, 0.8, 0.9])
    for seed in range(3):
        key = jax.random.key(seed)
        number = np.asarray(jax.random.permutation(key, 4))
        draws = (jax.random.normal(jax.random.fold_in(key, t), (4,)) for t in range(1, 5))
        drawn = np.stack([np.maximum(0.05, means + 0.05 * np.asarray(draw)) for draw in draws])
        np.testing.assert_allclose(latency[seed], drawn[:, number][np.arange(4), np.arange(4)], rtol=1e-5)


def test_the_regret_of_value_per_second_is_what_enumeration_finds():
    script = load("beyond_pause")
    rng = np.random.default_rng(0)
    mu = np.array([0.5, 0.3, 0.1, 0.08, 0.06], np.float32)
    selected = np.stack([[rng.choice(5, 2, replace=False) for _ in range(30)] for _ in range(2)])
    found = script.value_regret(selected, mu, 10.0, 0.04)
    sets = np.array(list(itertools.combinations(range(5), 2)))
    for run, chosen in enumerate(selected):
        counts = np.zeros(5)
        for round, members in enumerate(chosen):
            value = np.exp(-0.4 * (counts - counts.min()))
            rate = mu[sets].min(axis=1) * value[sets].sum(axis=1)
            own = mu[members].min() * value[members].sum()
            assert found[run, round] == pytest.approx(rate.max() - own, abs=1e-6)
            counts[members] += 1


def test_a_search_has_the_best_so_far_as_its_incumbent():
    script = load("bench/search")
    ended = [(10.0, (1, 0.5)), (30.0, (2, 0.1)), (60.0, (2, 0.7)), (100.0, (2, 0.6))]
    shown = [
        (spent, Ended(n, None, ((rung, Shown((v,))),), None, 1, 1, ""))
        for n, (spent, (rung, v)) in enumerate(ended)
    ]
    found = {share: one.number for share, one in script.incumbents(shown, 100.0)}
    assert found == {0.125: 0, 0.25: 0, 0.5: 1, 1.0: 2}


def test_a_grid_has_the_middles_of_equal_parts():
    script = load("bench/search")
    assert script.spread("uniform", [0.0, 1.0], 2) == [0.25, 0.75]
    assert script.spread("log_uniform", [1.0, 16.0], 2) == [2.0, 8.0]
