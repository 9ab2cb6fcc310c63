"""Whole studies: the invariants of every run, reproducibility by identity, and the number of compilations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import pausejax
from pausejax import analysis, kinds, measured, network, parts
from pausejax.clients import loop as simulation
from pausejax.selection import best_set

K, M, ROUNDS, SEEDS = 10, 2, 13, 2
BUDGET, DECAY = 50.0, 0.1
SMALL = {
    "num_clients": K,
    "clients_per_round": M,
    "rounds": ROUNDS,
    "eval_every": 5,
    "model": "linear",
    "train_samples": 300,
    "privacy_budget": BUDGET,
    "budget_decay": DECAY,
}
POLICIES_BY_NAME = parts.registered_parts().of("policy")
POLICIES = ["pause", "random", "fastest", "fedavg", {"name": "fedavg", "private": False}]


@pytest.fixture(scope="module")
def result():
    return pausejax.simulate(POLICIES, seeds=SEEDS, **SMALL)


def finite_model(seen):
    return jnp.all(jnp.isfinite(ravel_pytree(seen.params)[0])).astype(jnp.float32)


def runs_of(result, policy):
    return result.isel(run=np.flatnonzero(result["policy"].values == policy))


def by_round(selected):
    """[round, K] participation of one run."""
    return np.stack([np.bincount(row[row >= 0], minlength=K) for row in selected])


def test_every_cohort_has_m_distinct_clients_or_all(result):
    for policy in np.unique(result["policy"].values):
        joined = np.stack([by_round(run) for run in runs_of(result, policy)["selected"].values])
        assert joined.max() == 1
        assert (joined.sum(axis=2) == (K if policy.startswith("fedavg") else M)).all()


def test_counts_equal_the_selections(result):
    for run in range(result.sizes["run"]):
        joined = by_round(result["selected"].values[run])
        np.testing.assert_array_equal(joined.sum(axis=0), result["counts"].values[run])


def test_leakage_follows_the_ledger_and_stays_below_the_budget(result):
    for run in range(result.sizes["run"]):
        leaked = result["max_leakage"].values[run]
        if result["policy"].values[run] == "fedavg_no_privacy":
            assert np.isposinf(leaked).all()
            continue
        counts = np.cumsum(by_round(result["selected"].values[run]), axis=0)
        expected = BUDGET * (1 - np.exp(-DECAY * counts)).max(axis=1)
        np.testing.assert_allclose(leaked, expected, rtol=1e-5)
        assert (leaked <= BUDGET).all()
        d = 64 * 10 + 10
        np.testing.assert_allclose(result["max_leakage_update"].values[run], d * expected, rtol=1e-5)


def test_elapsed_is_the_running_sum_of_the_slowest_clients(result):
    np.testing.assert_allclose(
        result["elapsed"].values, np.cumsum(result["round_latency"].values, axis=1, dtype=float), rtol=1e-6
    )
    assert (result["round_latency"].values >= 0.05).all()


def test_pause_visits_every_client_once_in_the_first_rounds(result):
    first = runs_of(result, "pause")["selected"].values[:, : K // M, :M]
    np.testing.assert_array_equal(
        np.sort(first.reshape(SEEDS, -1), axis=1), np.tile(np.arange(K), (SEEDS, 1))
    )


def test_fastest_takes_the_fastest_in_expectation(result):
    selected = runs_of(result, "fastest")["selected"].values
    assert (selected[..., :M] == np.arange(M)).all() and (selected[..., M:] == -1).all()


def test_policies_meet_the_same_network(result):
    """FedAvg sees every client's latency, so its maximum bounds everybody's with the same seed and round."""
    slowest = runs_of(result, "fedavg")["round_latency"].values
    np.testing.assert_array_equal(slowest, runs_of(result, "fedavg_no_privacy")["round_latency"].values)
    for policy in ("pause", "random", "fastest"):
        assert (runs_of(result, policy)["round_latency"].values <= slowest).all()


def test_evaluations_are_every_fifth_round_and_the_last(result):
    np.testing.assert_array_equal(result["eval_round"], [5, 10, 13])
    assert np.isfinite(result["test_accuracy"].values).all()
    accuracy = runs_of(result, "fedavg_no_privacy")["test_accuracy"].values
    assert (accuracy[:, -1] > 0.75).all()


def test_coordinates_stand_once_and_carry_their_symbols(result):
    np.testing.assert_array_equal(result["budget_decay"], np.full(result.sizes["run"], DECAY))
    assert result["budget_decay"].attrs["symbol"] == "η" and not {"eta", "η"} & set(result.coords)
    # What xarray and its plots write on axes and in tables.
    assert all(coordinate.attrs["long_name"] for coordinate in result.coords.values())
    assert len(np.unique(result["identity"])) == result.sizes["run"]


def test_pause_replays_in_numpy(result):
    """Drives (12)-(14), the reward (9) and the regrets by hand from the recorded rounds of one seed."""
    runs = runs_of(result, "pause").isel(run=1)
    law = network.two_speed(num_clients=K, min_latency=0.05)
    mu = np.asarray(jax.jit(lambda: network.expected_reward(law, 0.05))(), np.float64)
    counts, mean = np.zeros(K, int), np.zeros(K)
    share = np.full(K, 1 / K)
    for t in range(1, ROUNDS + 1):
        key = jax.random.fold_in(jax.random.key(int(runs["seed"])), t)
        latency = np.asarray(law.sample(jax.random.fold_in(key, 0)), np.float64)
        used = counts / (t - 1) if t > 1 else np.zeros(K)
        lag = M * share - used
        g, p = np.sign(lag) * lag**2, np.exp(-DECAY * counts)
        bound = mean + np.sqrt((M + 1) * np.log(max(t - 1, 1)) / np.maximum(counts, 1))
        bound = np.where(counts > 0, bound, np.inf)
        score = (100 * g + 5 * p) / M
        chosen = runs["selected"].values[t - 1][:M]
        if counts.min() > 0:
            sets = best_set(jnp.asarray(bound, jnp.float32), jnp.asarray(score, jnp.float32), M)
            assert bound[chosen].min() + score[chosen].sum() == pytest.approx(float(sets.value), abs=1e-5)
        oracle = np.asarray(
            best_set(jnp.asarray(mu, jnp.float32), jnp.asarray(score, jnp.float32), M).members
        )

        def value(x, members, score=score):
            return x[members].min() + score[members].sum()

        reward = value(0.05 / latency, chosen)
        assert float(runs["round_latency"][t - 1]) == pytest.approx(latency[chosen].max(), rel=1e-6)
        assert float(runs["reward"][t - 1]) == pytest.approx(reward, abs=2e-5)
        assert float(runs["regret"][t - 1]) == pytest.approx(value(0.05 / latency, oracle) - reward, abs=4e-5)
        gap = value(mu, oracle) - value(mu, chosen)
        assert float(runs["pseudo_regret"][t - 1]) == pytest.approx(gap, abs=4e-5)
        mean[chosen] = (counts[chosen] * mean[chosen] + 0.05 / latency[chosen]) / (counts[chosen] + 1)
        counts[chosen] += 1


@pytest.mark.slow
def test_same_study_twice_and_one_more_axis_value_change_nothing():
    """Bit for bit on a CPU, where jobs of one width are trained the same whoever else is there."""
    result = pausejax.simulate(["random", "pause"], seeds=SEEDS, **SMALL)
    wider = pausejax.simulate(
        ["random", "pause"], seeds=[5, 1, 0], generalization_weight=[100.0, 3.0], **SMALL
    )
    known = dict(zip(result["identity"].values.tolist(), range(result.sizes["run"]), strict=True))
    common = [name for name in wider["identity"].values.tolist() if name in known]
    assert len(common) == 2 * SEEDS
    place = {name: i for i, name in enumerate(wider["identity"].values.tolist())}
    for name in common:
        for variable in ("selected", "round_latency", "test_accuracy", "train_loss"):
            old = result[variable].values[known[name]]
            new = wider[variable].values[place[name]]
            if variable == "selected":
                old = old[:, : new.shape[1]]
            np.testing.assert_array_equal(old, new, err_msg=variable)


def test_one_compilation_serves_every_traced_value(monkeypatch):
    """Counts what XLA is asked to compile, not what the planner believes."""
    names = []
    original = jax.stages.Lowered.compile

    def counting(lowered, *arguments, **options):
        names.append(lowered)
        return original(lowered, *arguments, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counting)
    axes = {
        "generalization_weight": [1.0, 2.0],
        "generalization_exponent": [1.5, 2.0],
        "privacy_weight": [1.0, 2.0],
        "exploitation_gain": [1.0, 3.0],
        "budget_decay": [0.1, 0.2],
        "min_latency": [0.05, 0.06],
        "latency_deviation": [0.05, 0.1],
    }
    small = {"rounds": 30, "seeds": 2, "num_clients": K}
    together = {"zip": [list(axes)]}
    result = pausejax.simulate(
        "pause", mode="bandit", clients_per_round=[M, M + 1], **small, **axes, **together
    )
    assert result.sizes["run"] == 2 * 2 * 2
    assert len(names) == 2
    assert all(len(np.unique(result[name])) == 2 for name in axes)

    names.clear()
    play_traces = simulation.advance._cache_size()
    axes = {"learning_rate": [0.01, 0.02], "privacy_budget": [10.0, 20.0], "sensitivity": [0.01, 0.02]}
    pausejax.simulate("random", model="linear", clients_per_round=M, train_samples=300, **small, **axes)
    assert len(names) == 1
    # The compiled program is called directly: the jitted function never compiles behind it.
    assert simulation.advance._cache_size() == play_traces


@pytest.mark.slow
def test_chunks_of_a_group_share_a_program_and_give_the_same_numbers(monkeypatch):
    options = {"mode": "bandit", "rounds": 20, "seeds": 7, "num_clients": K, "clients_per_round": M}
    whole = pausejax.simulate("pause", **options)
    monkeypatch.setattr(measured, "max_width", lambda _: 3)
    parts = pausejax.simulate("pause", **options)
    np.testing.assert_array_equal(whole["identity"], parts["identity"])
    np.testing.assert_array_equal(whole["selected"], parts["selected"])
    np.testing.assert_allclose(whole["reward"], parts["reward"], rtol=1e-5)


def test_bandit_mode_selects_as_training_does(result):
    options = {k: v for k, v in SMALL.items() if k not in ("model", "train_samples", "eval_every")}
    alone = pausejax.simulate("pause", mode="bandit", seeds=SEEDS, **options)
    for variable in ("round_latency", "reward", "max_leakage", "regret"):
        np.testing.assert_allclose(alone[variable], runs_of(result, "pause")[variable], rtol=1e-4, atol=1e-5)
    assert "test_accuracy" not in alone


@pytest.mark.slow
def test_selection_gap_is_what_enumeration_finds():
    k, m, rounds, gain = 6, 2, 40, 2.5
    found = pausejax.simulate(
        ["pause", "random"],
        mode="bandit",
        rounds=rounds,
        num_clients=k,
        clients_per_round=m,
        exploitation_gain=gain,
        selection_gap=True,
    )
    exact, other = found["selection_gap"].values
    assert np.isnan(exact[: k // m]).all() and (np.abs(exact[k // m :]) < 1e-5).all()
    law = network.two_speed(num_clients=k, min_latency=0.05)
    counts, mean, checked = np.zeros(k, int), np.zeros(k), 0
    for t in range(1, rounds + 1):
        chosen = found["selected"].values[1, t - 1]
        if counts.min() > 0:
            bound = gain * mean + np.sqrt((m + 1) * np.log(t - 1) / counts)
            lag = m / k - counts / (t - 1)
            score = (100 * np.sign(lag) * lag**2 + 5 * np.exp(-0.04 * counts)) / m
            values = [
                bound[list(s)].min() + score[list(s)].sum() for s in itertools.combinations(range(k), m)
            ]
            gap = max(values) - (bound[chosen].min() + score[chosen].sum())
            assert other[t - 1] == pytest.approx(gap, abs=2e-5)
            checked += 1
        else:
            assert np.isnan(other[t - 1])
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), t), 0)
        reward = 0.05 / np.asarray(law.sample(key), np.float64)
        mean[chosen] = (counts[chosen] * mean[chosen] + reward[chosen]) / (counts[chosen] + 1)
        counts[chosen] += 1
    assert checked > 20


def test_every_chart_has_its_lines(result):
    charts = kinds.charts(result, smoothing=2)
    shown = {name: [one.label for one in chart.panels[0].series] for name, chart in charts.items()}
    everybody = ["pause", "random", "fastest", "fedavg", "fedavg_no_privacy"]
    assert shown["test_accuracy_vs_time"] == shown["test_accuracy_vs_round"] == everybody
    limit = (f"budget ε̄ = {BUDGET:g} per coordinate", BUDGET)
    for against, across in (("round", "round"), ("time", "simulated time (s)")):
        (panel,) = charts[f"max_leakage_vs_{against}"].panels
        assert (panel.x.label, panel.y.label) == (across, "maximum leakage ε (per coordinate)")
        drawn = [one.label for one in panel.series if np.isfinite(one.y).any()]
        assert drawn == everybody[:-1] and panel.levels in ((), (limit,))
        assert "fedavg_no_privacy (2 of 2 runs)" in panel.note
    regrets = [shown[f"cumulative_{kind}_vs_round"] for kind in ("regret", "pseudo_regret")]
    assert regrets == [everybody[:3]] * 2
    assert [panel.title for panel in charts["participation"].panels] == everybody[:3]
    styles = {(one.label, one.style) for c in charts.values() for panel in c.panels for one in panel.series}
    assert sorted(styles) == sorted((label, place) for place, label in enumerate(everybody))
    assert kinds.omitted(result)[0].endswith(": fedavg, fedavg_no_privacy")
    accuracy = charts["test_accuracy_vs_round"].panels[0].series[0].y
    expected = runs_of(result, "pause")["test_accuracy"].values.mean(axis=0)
    np.testing.assert_allclose(accuracy[0], 100 * expected[0], rtol=1e-6)
    np.testing.assert_allclose(accuracy[2], 100 * expected[1:].mean(), rtol=1e-6)


def decided_by(selected, clock):
    """What each cohort of seed 0 loses in (14) at the terms of a clock, float64, once all are seen."""
    k, m, share = 6, 2, 1 / 6
    law = network.two_speed(num_clients=k, min_latency=0.05)
    counts, total = np.zeros(k), np.zeros(k)
    sets = np.array(list(itertools.combinations(range(k), m)))
    for t, members in enumerate(selected, 1):
        time = t - 1 if clock == "paper" else t
        if counts.min() > 0:
            ucb = total / counts + np.sqrt((m + 1) * np.log(time) / counts)
            lag = m * share - counts / time
            score = (100 * np.sign(lag) * lag**2 + 5 * np.exp(-0.04 * counts)) / m
            best = (ucb[sets].min(axis=1) + score[sets].sum(axis=1)).max()
            yield best - ucb[members].min() - score[members].sum()
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), t), 0)
        counts[members] += 1
        total[members] += (0.05 / np.asarray(law.sample(key), np.float64))[members]


@pytest.mark.slow
def test_every_clock_decides_by_its_own_terms():
    both = pausejax.simulate(
        "pause", mode="bandit", rounds=60, clock=["paper", "reference"], num_clients=6, clients_per_round=2
    )
    selected = dict(zip(both["clock"].values.tolist(), both["selected"].values, strict=True))
    for clock, other in (("paper", "reference"), ("reference", "paper")):
        assert max(decided_by(selected[clock], clock)) < 1e-5
        assert max(decided_by(selected[clock], other)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 26])
def test_any_number_of_rounds_is_played_exactly(rounds):
    found = pausejax.simulate("random", mode="bandit", rounds=rounds, num_clients=4, clients_per_round=2)
    assert found["counts"].values.sum() == 2 * rounds
    assert (found["selected"].values >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(POLICIES_BY_NAME))
def test_every_policy_plays_in_the_simulator(policy):
    """The shared suite: valid ascending cohorts, counts that add up, and a model that learns."""
    found = pausejax.simulate(policy, seeds=2, **{**SMALL, "rounds": 30, "learning_rate": 0.02})
    selected = found["selected"].values
    joined = np.stack([by_round(run) for run in selected])
    assert joined.max() == 1 and (joined.sum(axis=2) >= 1).all()
    np.testing.assert_array_equal(joined.sum(axis=1), found["counts"].values)
    key = np.where(selected < 0, K, selected)
    assert (np.diff(key, axis=2) >= 0).all()
    assert (found["diverged_round"].values == 0).all()
    assert (found["test_accuracy"].values[:, -1] > 0.3).all()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before_release", pytest.param("after_release", marks=pytest.mark.slow)])
def test_a_model_that_no_update_reaches_stays_as_it_is(stage):
    found = pausejax.simulate(
        "oort",
        seeds=2,
        failure_probability=1.0,
        failure_stage=stage,
        **{**SMALL, "rounds": 6, "eval_every": 2},
    )
    for name in ("test_accuracy", "test_loss"):
        values = found[name].values
        np.testing.assert_array_equal(values, np.broadcast_to(values[:, :1], values.shape))
    assert np.isnan(found["train_loss"]).all() and (found["failed_count"] == M).all()
    assert (found["counts"].sum("client") == 6 * M).all()
    spent = found["max_leakage"].values[:, -1]
    assert (spent == 0).all() if stage == "before_release" else (spent > 0).all()


@pytest.mark.slow
def test_a_diverged_run_is_marked_and_its_neighbours_keep_their_numbers(own_parts):
    """The round is the first whose model is not finite, as a quantity of one's own sees it."""

    parts.quantity()(finite_model)
    wild, calm = (
        pausejax.simulate(
            {"name": "fedavg", "private": False, "optimizer": "sgd", "max_steps": 1},
            seeds=1,
            learning_rate=[0.01, other],
            quantities=["finite_model"],
            **{**SMALL, "rounds": 6, "model": "mlp"},
        )
        for other in (1e15, 0.02)
    )
    broken = wild["finite_model"].values == 0
    assert broken.any(axis=1).tolist() == [False, True]
    first = int(broken[1].argmax()) + 1
    assert wild["diverged_round"].values.tolist() == [0, first] and first > 1
    assert not calm["diverged_round"].values.any()
    assert np.isnan(wild["test_accuracy"].values[1]).any()
    np.testing.assert_array_equal(wild["test_accuracy"].values[0], calm["test_accuracy"].values[0])


@pytest.mark.slow
def test_a_run_with_a_nan_loss_at_finite_weights_is_marked(own_parts, tmp_path):
    """One client's personal layers become NaN. Krum leaves out its update, so shared layers are finite."""

    parts.quantity()(finite_model)
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), 30)
    inputs = rng.normal(size=(180, 5)).astype(np.float32)
    targets = (inputs @ rng.normal(size=5)).astype(np.float32)
    scale = np.where(owner == 0, 300, 1).astype(np.float32)
    np.savez(
        tmp_path / "scales.npz",
        x_train=inputs * scale[:, None],
        y_train=targets * scale,
        owner_train=owner,
        x_test=inputs,
        y_test=targets,
    )
    result = pausejax.simulate(
        {"name": "random", "federated_algorithm": "fedper", "private": False},
        dataset="npz",
        data_file=str(tmp_path / "scales.npz"),
        seeds=2,
        rounds=12,
        eval_every=3,
        num_clients=6,
        clients_per_round=4,
        partition="natural",
        task="regression",
        model="mlp",
        optimizer="sgd",
        learning_rate=0.01,
        batch_size=5,
        aggregator="krum",
        held_out_share=0.2,
        client_metrics=True,
        quantities=["finite_model"],
    )
    lost = np.isnan(result["test_loss"].values)
    assert lost.any(axis=1).all() and (result["finite_model"].values == 1).all()
    first = result["eval_round"].values[lost.argmax(axis=1)]
    assert result["diverged_round"].values.tolist() == first.tolist()
    figures = analysis.finals(result)
    assert np.isnan(figures["test_rmse"]).all() and np.isnan(figures["worst_client_rmse"]).all()
    # The client has samples, so it is not left out as one without samples is.
    assert np.isinf(result["client_rmse"].values[:, 0]).all()
    assert np.isfinite(result["client_rmse"].values[:, 1:]).all()


def test_traces_from_a_file(tmp_path):
    trace = np.random.default_rng(0).uniform(0.1, 1.0, (40, 5))
    np.savetxt(tmp_path / "trace.csv", trace, delimiter=",")
    found = pausejax.simulate(
        "random",
        mode="bandit",
        rounds=30,
        num_clients=5,
        clients_per_round=5,
        latency="trace",
        trace_file=str(tmp_path / "trace.csv"),
    )
    known = trace.max(axis=1).astype(np.float32)
    assert np.isin(found["round_latency"].values, known).all()
    with pytest.raises(pausejax.SpecError, match=r"^network\.trace_file = .* must have 6 columns"):
        pausejax.simulate(
            "random",
            mode="bandit",
            num_clients=6,
            latency="trace",
            trace_file=str(tmp_path / "trace.csv"),
        )


def test_too_many_clients_for_the_data_is_refused_before_any_compute():
    with pytest.raises(pausejax.SpecError, match=r"data\.partition"):
        pausejax.simulate("random", num_clients=1000)
