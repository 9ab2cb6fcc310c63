"""The scripts behind the docs' figures: each runs small, and its numbers are held against plain ones."""

import csv
import itertools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.ensemble import make_pool

from .programs import load


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    module.main()


@pytest.mark.slow
def test_theorem_4_ends_where_its_chain_does(monkeypatch, tmp_path):
    """Exact probabilities against a chain stepped by hand, simulated ones within five standard errors."""
    script = load("scripts/theorem4.py")
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


@pytest.mark.slow
def test_table_1_experiments_score_the_pool_that_they_are_about(monkeypatch, capsys):
    """On made-up pools: one perfect model among wrong ones, whose cost decides what a round may send."""
    script = load("scripts/ensemble_table1.py")
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


def test_benchmarks_measure_decisions_of_the_middle_of_a_run():
    """(13), (8) and (7) in float64 from the counts and means that are drawn."""
    script, k, m, t = load("scripts/bench/selection.py"), 12, 3, 300
    rng = np.random.default_rng(4)
    favour = np.where(np.arange(k) < k // 2, 3.0, 1.0) * rng.uniform(0.7, 1.3, k)
    counts = rng.poisson(favour / favour.sum() * m * t) + 1
    mean = np.clip(0.3 * favour + rng.normal(0, 0.02, k), 0, 1)
    lag = m / k - counts / t
    ucb = mean + np.sqrt((m + 1) * np.log(t) / counts)
    g, p = np.sign(lag) * lag**2, np.exp(-0.04 * counts)
    found = [*script.middle_of_a_run(k, m, 4), script.terms(k, m, 4)[1]]
    for ours, plain in zip(found, (ucb, g, p, (100 * g + 5 * p) / m), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-6)


def test_slopes_are_exponents():
    selection, annealing = load("scripts/bench/selection.py"), load("scripts/bench/annealing.py")
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
    script, rng = load("scripts/bench/annealing.py"), np.random.default_rng(1)
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


@pytest.mark.slow
def test_a_shuffled_game_numbers_its_clients_at_random():
    """The first rounds try the clients in their order, so each one's latency shows who has which number."""
    game = load("scripts/bench/selection.py").play(4, 1, 4, gain=1.0, privacy_weight=5.0, shuffled=True)
    latency = np.asarray(game(jnp.arange(3))[0])
    means = np.array([0.125, 0.2, 0.8, 0.9])
    for seed in range(3):
        key = jax.random.key(seed)
        number = np.asarray(jax.random.permutation(key, 4))
        draws = (jax.random.normal(jax.random.fold_in(key, t), (4,)) for t in range(1, 5))
        drawn = np.stack([np.maximum(0.05, means + 0.05 * np.asarray(draw)) for draw in draws])
        np.testing.assert_allclose(latency[seed], drawn[:, number][np.arange(4), np.arange(4)], rtol=1e-5)


def test_the_regret_of_value_per_second_is_what_enumeration_finds():
    script = load("scripts/beyond_pause.py")
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
    script = load("scripts/bench/search.py")
    tried = [({"x": number}, worth) for number, worth in enumerate([0.5, 0.1, 0.7, 0.6])]
    assert list(script.incumbents(tried)) == [(0.25, {"x": 0}), (0.5, {"x": 0}), (1.0, {"x": 2})]


def test_a_grid_has_the_middles_of_equal_parts():
    script = load("scripts/bench/search.py")
    assert script.spread("uniform", [0.0, 1.0], 2) == [0.25, 0.75]
    assert script.spread("log_uniform", [1.0, 16.0], 2) == [2.0, 8.0]
