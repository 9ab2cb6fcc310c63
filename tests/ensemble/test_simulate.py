"""Whole simulations: against NumPy, by identity, and over a million rounds."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.ensemble import Runs, make_pool, one_pass, simulate
from pausejax.ensemble.efl_fg import efl_fg
from pausejax.ensemble.loop import _draw_clients
from pausejax.ensemble.simulate import check_runs, hyper_of, world_of

from . import oracle

SIZES = np.array([40, 40, 10, 25, 3, 40, 17], np.int32)


def small_pool(rows=230, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.random(rows)
    noise = np.array([0.02, 0.1, 0.1, 0.3, 0.5, 0.02, 0.8])
    predictions = np.clip(targets[:, None] + noise * rng.standard_normal((rows, 7)), 0, 1)
    return make_pool(predictions, targets, SIZES)


POOL = small_pool()
RUNS = Runs(
    seed=np.array([3, 0, 3, 7, 0]),
    learning_rate=np.array([0.02, 0.1, 0.3, 0.05, 0.2]),
    exploration_rate=np.array([0.1, 0.3, 0.1, 0.5, 0.05]),
    budget=np.array([1.0, 2.5, 3.0, 1.7, 10.0]),
    uplink=np.array([8, 12, 30, 20, 25]),
    spending=np.array([1.0, 0.9, 1.0, 0.5, 1.0]),
)


def replay_efl_fg(pool, run, rounds, num_clients):
    """One run in float64; only the random draws are shared with the library."""
    seed, rate, exploration, budget, uplink = (field[run] for field in RUNS[:5])
    predictions, targets = pool.predictions.astype(float), pool.targets.astype(float)
    key = jax.random.key(seed)
    order = np.asarray(jax.random.permutation(key, len(targets)))
    learner = oracle.EflFg(SIZES, int(budget * 40), np.float32(rate), np.float32(exploration))
    error = loss = expected = reports = cost = bound = model_error = 0.0
    model_loss, series = np.zeros(len(SIZES)), []
    for t in range(1, rounds + 1):
        policy_key, client_key = jax.random.split(jax.random.fold_in(key, t))
        graph, _, p, q = learner.look()
        if t == 1:
            bound = np.log(len(SIZES) * graph.sum(axis=1)) / rate
        node = int(np.searchsorted(np.cumsum(p), float(jax.random.uniform(policy_key)), side="right"))
        clients = int(uplink // (graph[node].sum() + 1))
        draws = np.asarray(jax.random.uniform(client_key, (num_clients,)))
        chosen = np.argsort(-draws, kind="stable")[: min(clients, num_clients)]
        rows = order[((t - 1) * num_clients + chosen) % len(targets)]
        x, y, n = predictions[rows], targets[rows], len(rows)
        ensembles = np.stack([learner.ensemble(k) for k in range(len(SIZES))])
        expected += (p * ((x @ ensembles.T - y[:, None]) ** 2).sum(axis=0)).sum()
        inverse = (ensembles / q).sum(axis=1)
        bound = bound + exploration * (1 - rate / 2 * n**2) + rate / 2 * (len(SIZES) + inverse) * n**2
        ensemble_loss = learner.learn(node, x, y)
        loss += ensemble_loss
        error += ensemble_loss / n
        model_loss += ((x - y[:, None]) ** 2).sum(axis=0)
        reports += n
        cost += SIZES[graph[node]].sum() / 40
        best = model_loss.argmin()
        model_error = model_error + ((x - y[:, None]) ** 2).mean(axis=0)
        series.append(
            (
                error / t,
                expected - model_loss[best],
                loss - model_loss[best],
                bound[best],
                cost / t,
                reports,
                model_error.min() / t,
            )
        )
    return np.array(series).T


def test_efl_fg_equals_a_plain_simulation():
    rounds, num_clients = 60, 20
    out = simulate(POOL, "efl_fg", RUNS, rounds=rounds, num_clients=num_clients)
    names = ("mse", "regret", "realized_regret", "regret_bound", "cost", "reports", "best_expert_mse")
    for run in range(5):
        for name, expected in zip(names, replay_efl_fg(POOL, run, rounds, num_clients), strict=True):
            np.testing.assert_allclose(out[name][run], expected, rtol=2e-4, atol=2e-4, err_msg=name)


@pytest.mark.slow
def test_the_bound_holds_where_another_policy_breaks_it():
    """EFL-FG (11), with small steps and many rounds of one client: who does not learn lies above it."""
    rounds = 2000
    targets = np.full(50, 0.0)
    pool = make_pool(np.stack([targets + 1.0, targets], axis=1), targets, [10, 10])
    runs = Runs(np.arange(4), 0.03, 0.03, 1.0, 3)
    options = {"rounds": rounds, "num_clients": 1, "record_every": rounds // 10}
    ours = simulate(pool, "efl_fg", runs, **options)
    assert (ours["regret"] <= ours["regret_bound"]).all()
    uniform = simulate(pool, "uniform_affordable", runs, **options)
    assert (uniform["regret"][:, -1] > ours["regret_bound"][:, -1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["efl_fg", "fedboost_weighted"])
def test_a_run_depends_on_its_own_settings_alone(policy):
    """Alone, in another order, beside other runs: the same models are sent."""
    together = simulate(POOL, policy, RUNS, rounds=40, num_clients=20, record_every=8)
    turned = np.array([4, 2, 0, 1, 3])
    shuffled = simulate(
        POOL,
        policy,
        Runs(*(f[turned] for f in RUNS)),
        rounds=40,
        num_clients=20,
        record_every=8,
    )
    alone = simulate(POOL, policy, Runs(*(f[2] for f in RUNS)), rounds=40, num_clients=20, record_every=8)
    for name, values in together.items():
        compare = np.testing.assert_array_equal if name == "sent_counts" else np.testing.assert_allclose
        options = {} if name == "sent_counts" else {"rtol": 1e-4, "atol": 1e-4}
        compare(shuffled[name], values[turned], err_msg=name, **options)
        compare(alone[name][0], values[2], err_msg=name, **options)


@pytest.mark.slow
def test_policies_of_one_seed_meet_the_same_stream():
    """The best expert's error is that of the stream, so it agrees where as many clients report."""
    one = simulate(POOL, "exp3", RUNS, rounds=30, num_clients=20)
    other = simulate(POOL, "best_expert", RUNS, rounds=30, num_clients=20)
    np.testing.assert_allclose(one["best_expert_mse"], other["best_expert_mse"], rtol=1e-5)


def replay_mirror_descent(policy, run, rounds, num_clients):
    """One run of FedBoost, or of all models, in float64: its losses, cost, reports and regrets."""
    seed, rate, _, budget, uplink, spending = (field[run] for field in RUNS)
    x, y = POOL.predictions.astype(float), POOL.targets.astype(float)
    key = jax.random.key(seed)
    order = np.asarray(jax.random.permutation(key, len(y)))
    gamma = np.ones(len(SIZES))
    if policy == "fedboost":
        wanted = min(spending * budget, SIZES.sum() / 40)
        gamma = oracle.inclusion_probability(SIZES / 40, wanted, np.ones(len(SIZES)))
    slope = model_loss = np.zeros(len(SIZES))
    error = cost = reports = over = loss = expected = 0.0
    for t in range(1, rounds + 1):
        policy_key, client_key = jax.random.split(jax.random.fold_in(key, t))
        sent = np.asarray(jax.random.uniform(policy_key, (len(SIZES),))) < gamma
        weight = np.exp(-rate * (slope - slope.min()))
        mixture = weight / weight.sum()
        count = min(int(uplink // (sent.sum() + 1)), num_clients)
        draws = np.asarray(jax.random.uniform(client_key, (num_clients,)))
        chosen = np.argsort(-draws, kind="stable")[:count]
        rows = order[((t - 1) * num_clients + chosen) % len(y)]
        residual = x[rows] @ (sent * mixture / gamma) - y[rows]
        losses = ((x[rows] - y[rows][:, None]) ** 2).sum(axis=0)
        loss, error = loss + (residual**2).sum(), error + (residual**2).mean()
        model_loss = model_loss + losses
        spread = ((mixture * x[rows]) ** 2 * (1 - gamma) / gamma).sum()
        expected += ((x[rows] @ mixture - y[rows]) ** 2).sum() + spread
        gradient = sent * (2 * residual[:, None] * x[rows]).mean(axis=0)
        slope = slope + (gradient if policy == "fedboost" else losses)
        used = SIZES[sent].sum()
        cost, reports, over = cost + used / 40, reports + count, over + (used > budget * 40)
    best = model_loss.min()
    return error / rounds, cost / rounds, reports, over / rounds, loss - best, expected - best


@pytest.mark.slow
def test_policies_without_a_budget_violate_it():
    for policy in ("fedboost", "all_experts"):
        out = simulate(POOL, policy, RUNS, rounds=100, num_clients=20, record_every=100)
        assert out["violations"][:4].max() > 0.2
        names = ("mse", "cost", "reports", "violations", "realized_regret", "regret")
        for run in range(5):
            expected = replay_mirror_descent(policy, run, 100, 20)
            found = [out[name][run, -1] for name in names]
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{policy} {run}")
    assert (out["violations"][:, -1] == [1, 1, 1, 1, 0]).all()


def test_record_every_thins_the_series():
    every = simulate(POOL, "exp3", RUNS, rounds=30, num_clients=20)
    some = simulate(POOL, "exp3", RUNS, rounds=30, num_clients=20, record_every=10)
    for name in ("mse", "regret", "reports"):
        np.testing.assert_allclose(some[name], every[name][:, 9::10], rtol=1e-5, atol=1e-5)


def test_clients_are_drawn_uniformly_without_replacement():
    """Chi-square over 20 clients, 4 of them drawn 5,000 times; false-alarm rate below 1e-4."""
    clients = np.asarray(_draw_clients(jax.random.split(jax.random.key(0), 5000), 20, 4))
    assert all(len(set(column)) == 4 for column in clients.T)
    counts = np.bincount(clients.ravel(), minlength=20)
    assert ((counts - 1000) ** 2 / 1000).sum() < 55
    first = np.bincount(clients[0], minlength=20)
    assert ((first - 250) ** 2 / 250).sum() < 55


def test_large_sums_do_not_change_a_choice():
    """What a million rounds add to every model alike leaves graph and probabilities as they are."""
    policy = efl_fg(
        parameters=jnp.asarray(SIZES),
        budget=jnp.array([60, 90]),
        learning_rate=jnp.array([0.001, 0.1]),
        exploration_rate=jnp.array([0.01, 0.1]),
    )
    rng = np.random.default_rng(0)
    small = jnp.asarray(np.round(rng.random((7, 2)) * 64) / 64, jnp.float32)
    zero = policy.init()
    near = zero._replace(
        model_loss=zero.model_loss._replace(high=small), ensemble_loss=zero.ensemble_loss._replace(high=small)
    )
    far = near._replace(
        model_loss=near.model_loss._replace(high=jnp.full((7, 2), 2.0**30), low=small),
        ensemble_loss=near.ensemble_loss._replace(high=jnp.full((7, 2), 2.0**30), low=small),
    )
    keys = jax.random.split(jax.random.key(0), 2)
    select = jax.jit(policy.select)
    chex.assert_trees_all_equal(select(keys, near), select(keys, far))


@pytest.mark.slow
def test_a_million_rounds_stay_finite_and_find_the_best():
    targets = np.full(40, 0.5)
    predictions = targets[:, None] + np.array([0.1, 0.3, 0.45, 0.1001])[None]
    pool = make_pool(predictions, targets, [4, 3, 2, 4])
    rounds = 10**6
    runs = Runs(np.arange(2), rounds**-0.5, rounds**-0.5, 1.0, 10)
    for policy in ("efl_fg", "exp3", "fedboost_weighted"):
        out = simulate(pool, policy, runs, rounds=rounds, num_clients=5, record_every=rounds // 10)
        for name, values in out.items():
            assert np.isfinite(values).all(), (policy, name)
        if policy != "fedboost_weighted":
            assert (out["mse"][:, -1] < 0.0115).all()
            # Models 0 and 3 differ by 2e-5 in loss; the two worse ones are left to exploration.
            assert (out["sent_counts"][:, 1:3].sum(axis=1) < 0.05 * rounds).all()


@pytest.mark.parametrize(
    ("field", "least", "most", "refused"),
    [
        ("seed", 0, 2**32 - 1, (-1, 2**32, 1.5)),
        ("learning_rate", 1e-15, 1e15, (0.0, 1e-50, 1e50, np.nan)),
        ("exploration_rate", 1e-15, 0.999, (0.0, 1.0, 1e-50, 1e50, 1 - 2**-25)),
        ("budget", 1.0, 1e9, (0.999,)),
        ("spending", 1e-15, 1.0, (0.0, 1.001)),
        ("uplink", 8, 2**31 - 1, (7, 7.5, 2**31, 2**32 + 50)),
    ],
)
def test_settings_reach_their_limits_and_no_further(field, least, most, refused):
    good = Runs(0, 0.1, 0.1, 3.0, 20)
    checked = check_runs(good._replace(**{field: np.array([least, most])}), 7)
    assert getattr(checked, field).tolist() == [least, most]
    for value in refused:
        with pytest.raises(ValueError, match=rf"^{field}: must be .*, not {re.escape(str(value))}"):
            check_runs(good._replace(**{field: np.array([least, value])}), 7)


def test_rates_that_half_precision_rounds_to_0_or_infinity_are_refused():
    good = Runs(0, 0.1, 0.1, 3.0, 20)
    for field in ("learning_rate", "exploration_rate", "spending"):
        with pytest.raises(ValueError, match=f"^{field}: must be .*, not 0.0"):
            check_runs(good._replace(**{field: np.float16(0)}), 7)
    with pytest.raises(ValueError, match=r"^learning_rate: must be .*, not inf"):
        check_runs(good._replace(learning_rate=np.float16(np.inf)), 7)


def test_budgets_are_whole_parameters_and_no_more_than_all():
    runs = check_runs(RUNS._replace(budget=np.array([1.0, 1.02, 1.03, 2.5, 1e9])), 7)
    found = hyper_of(runs, POOL)
    assert found.budget.tolist() == [40, 40, 41, 100, SIZES.sum()]
    # FedBoost's expected cost is not rounded, and covers all models at most.
    np.testing.assert_allclose(
        np.multiply(found.spending, found.budget), 40 * np.array([1.0, 0.918, 1.03, 1.25, 7]), rtol=1e-6
    )


def test_a_budget_may_be_the_cost_of_all_models():
    """In float64, 2.3 · 100 is less than 230."""
    pool = make_pool(POOL.predictions[:, :3], POOL.targets, [100, 100, 30])
    runs = check_runs(RUNS._replace(budget=np.full(5, 2.3)), 3)
    assert hyper_of(runs, pool).budget.tolist() == [230] * 5


def test_a_stream_has_an_order_for_each_seed_and_a_loss_for_each_model():
    world, place = world_of(POOL, np.array([5, 2, 5, 9]), 4)
    assert world.seeds.tolist() == [2, 5, 9, 9] and place.tolist() == [1, 0, 1, 2]
    for seed, order in zip(world.seeds.tolist(), world.order, strict=True):
        np.testing.assert_array_equal(order, jax.random.permutation(jax.random.key(seed), 230))
    squares = (POOL.predictions.astype(np.float64) - POOL.targets[:, None]) ** 2
    np.testing.assert_allclose(world.stream_loss, squares.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(world.table[:, -1], POOL.targets)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_clients": 230}, "seed: must be an integer from 0 .*, not -1"),
        ({"num_clients": 231}, "num_clients: must be from 1 to 230, .*, not 231"),
        ({"num_clients": 0}, "num_clients: must be from 1 to 230, .*, not 0"),
        ({"rounds": 1}, "seed: must be an integer from 0 .*, not -1"),
        ({"rounds": 0}, "record_every: must be >= 1 and divide rounds = 0"),
        ({"rounds": 5, "record_every": 0}, "record_every: must be >= 1 and divide rounds = 5"),
        ({"rounds": 2**27 - 1, "num_clients": 16}, "seed: must be an integer from 0 .*, not -1"),
        ({"rounds": 2**27, "num_clients": 16}, "rounds: 134217728 rounds times 16 clients must be"),
    ],
)
def test_a_study_reaches_its_limits_and_no_further(options, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        simulate(POOL, "efl_fg", Runs(-1, 0.1, 0.1, 3.0, 20), **options)


def test_one_pass_shows_every_row():
    assert one_pass(230, 20) == 12
    assert one_pass(230, 230) == 1
    assert one_pass(6951) == 70
    assert simulate(POOL, "exp3", RUNS, num_clients=20)["mse"].shape[1] == 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictions": np.full((3, 2), 1.5)}, "predictions: must be from 0 to 1, not 1.5"),
        ({"predictions": np.full((3, 2), np.nan)}, "predictions: must be from 0 to 1, not nan"),
        ({"targets": np.array([0.1, -0.2, 0.3])}, "targets: must be from 0 to 1, not -0.2"),
        ({"parameters": [3, 0]}, "parameters: must be integers > 0"),
        ({"parameters": [2**62, 2**62]}, "parameters: must be integers > 0"),
        ({"parameters": [3.5, 1.0]}, "parameters: must be integers > 0"),
        ({"parameters": [2**30, 2**30]}, "parameters: .* sum < 2.31"),
        ({"parameters": [3]}, "predictions, targets, parameters: must have the shapes"),
        ({"targets": np.full(4, 0.5)}, "predictions, targets, parameters: must have the shapes"),
        (
            {"predictions": np.full(3, 0.5), "parameters": []},
            "predictions, targets, parameters: must have the shapes",
        ),
        ({"predictions": np.zeros((3, 0)), "parameters": []}, "predictions: must have entries"),
        ({"names": ["one"]}, "names: must have 2 entries, one for each model, not 1"),
    ],
)
def test_bad_pools_are_named(change, message):
    good = {"predictions": np.full((3, 2), 0.5), "targets": np.full(3, 0.5), "parameters": [3, 2]}
    with pytest.raises(ValueError, match=message):
        make_pool(**{**good, **change})


def test_a_pool_may_have_models_of_one_parameter_and_perfect_ones():
    pool = make_pool(np.array([[0.0, 1.0]]), np.ones(1), [1, 2])
    assert pool.names == ("model 0", "model 1") and pool.costs.tolist() == [0.5, 1.0]
