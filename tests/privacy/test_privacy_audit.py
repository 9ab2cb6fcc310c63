"""Privacy, checked: the noise that training adds, what releases give away, and what the ledger says."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from pausejax import parts, privacy
from pausejax.federated import models
from pausejax.federated.batches import TrainingData
from pausejax.federated.learning import ClientStates, Learning, LocalTraining, Memory, ServerState
from pausejax.federated.tasks import classification
from pausejax.federated.training import Jobs, train
from pausejax.privacy import accounting
from pausejax.privacy.audit import epsilon_lower_bound

SHAPE = (6, 6, 1)
NUM_CLIENTS, PER_CLIENT, RUNS = 6, 25, 3
BUDGET, DECAY = 40.0, 0.04
CLIP_NORMS = [0.02, 0.1, 10.0]
TASK = classification()
MECHANISMS = {clip: {"clip": clip} for clip in privacy.CLIPS} | {"hash": {"noise_generator": "hash"}}

# The noise that training adds


@pytest.fixture(scope="module")
def released():
    """Updates of 18 jobs by mechanism, before and after it, [J, d], and the jobs' ε and Δf."""
    rng = np.random.default_rng(0)
    count = NUM_CLIENTS * PER_CLIENT
    model = models.build("linear", SHAPE, 10)
    data = TrainingData(
        jnp.asarray(rng.integers(0, 256, (count, 36)), jnp.uint8),
        jnp.asarray(rng.integers(0, 10, count), jnp.int32),
        jnp.float32(127.5),
        jnp.float32(127.5),
        jnp.asarray(rng.permutation(count), jnp.int32)[None],
        jnp.arange(0, count, PER_CLIENT, dtype=jnp.int32)[None],
        jnp.full((1, NUM_CLIENTS), PER_CLIENT, jnp.int32),
    )
    run, client = (jnp.asarray(x.ravel(), jnp.int32) for x in np.mgrid[:RUNS, :NUM_CLIENTS])
    num_jobs = RUNS * NUM_CLIENTS
    epsilon = privacy.epsilon_at(1 + jnp.arange(num_jobs), BUDGET, DECAY)
    batch_key, noise_key = (jax.random.split(jax.random.key(stream), num_jobs) for stream in (1, 2))
    number = 1 + jnp.arange(num_jobs)
    jobs = Jobs(run, client, jnp.full(num_jobs, 1 / NUM_CLIENTS), batch_key, noise_key, number)
    sensitivity = jnp.asarray([0.02, 0.1, 0.4])
    hyper = {
        "learning_rate": jnp.full(RUNS, 0.05),
        "sensitivity": sensitivity,
        "budget_decay": jnp.full(RUNS, DECAY),
        "clip_norm": jnp.asarray(CLIP_NORMS),
        "noise_multiplier": jnp.asarray([0.5, 1.0, 3.0]),
    }
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), RUNS))

    def updates(name, budget=BUDGET, **values):
        mechanism = parts.bind(
            parts.find("mechanism", name), {"clients_per_round": 6, **values}, ["budget_decay"]
        )
        given = hyper | {"privacy_budget": jnp.full(RUNS, budget)}
        trained = jax.jit(
            lambda jobs: train(
                Learning(model, TASK, SHAPE, PER_CLIENT, LocalTraining(batch_size=5, lanes=7)),
                mechanism,
                data,
                jnp.zeros(RUNS, jnp.int32),
                params,
                Memory(ClientStates(None, ()), ServerState((), ())),
                given,
                {},
                jobs,
                keep_updates=True,
            )
        )(jobs)
        return np.asarray(trained.updates, np.float64)

    raw = updates("none")
    after = {name: updates("laplace", **mechanism) for name, mechanism in MECHANISMS.items()}
    quiet = {clip: updates("laplace", 1e12, clip=clip) for clip in privacy.CLIPS}
    quiet["hash"] = quiet["coordinate"]
    scale = np.asarray(sensitivity, np.float64)[run] / np.asarray(epsilon, np.float64)
    after["gaussian"], quiet["gaussian"] = updates("gaussian"), updates("central_gaussian")
    return raw, after, quiet, np.asarray(sensitivity, np.float64)[run], scale


@pytest.mark.slow
def test_clipping_holds_for_every_update_of_training(released):
    raw, _, quiet, sensitivity, _ = released
    bound = sensitivity[:, None] / 2
    assert (np.abs(raw) > bound).mean() > 0.1 and (np.abs(raw) < bound).mean() > 0.1
    np.testing.assert_allclose(quiet["coordinate"], np.clip(raw, -bound, bound), rtol=1e-5, atol=1e-7)
    norm = np.abs(raw).sum(1)
    assert (norm > sensitivity / 2).all()
    expected = raw * (sensitivity / 2 / norm)[:, None]
    np.testing.assert_allclose(quiet["vector"], expected, rtol=1e-4, atol=1e-7)
    assert (np.abs(quiet["vector"]).sum(1) <= sensitivity / 2 * (1 + 1e-4)).all()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noise_added_by_training_is_laplace_of_each_clients_scale(released, mechanism):
    _, after, quiet, _, scale = released
    noise = (after[mechanism] - quiet[mechanism]) / scale[:, None]
    # Kolmogorov-Smirnov on 6,660 draws, false alarm rate 1e-4; a scale off by 20% fails it
    assert stats.kstest(noise.ravel(), "laplace").pvalue > 1e-4
    assert stats.kstest(1.2 * noise.ravel(), "laplace").pvalue < 1e-4
    # and for each of the 18 jobs, whose scales differ: false alarm rate 2e-4 together
    assert min(stats.kstest(row, "laplace").pvalue for row in noise) > 1e-5


@pytest.mark.slow
def test_gaussian_mechanisms_clip_in_l2_and_the_local_one_adds_noise_of_its_scale(released):
    raw, after, quiet, _, _ = released
    clip_norm = np.repeat(CLIP_NORMS, NUM_CLIENTS)
    norm = np.sqrt((raw**2).sum(1))
    assert (norm > clip_norm).any() and (norm < clip_norm).any()
    expected = raw * np.minimum(1, clip_norm / norm)[:, None]
    np.testing.assert_allclose(quiet["gaussian"], expected, rtol=1e-4, atol=1e-7)
    multiplier = np.repeat([0.5, 1.0, 3.0], NUM_CLIENTS)
    noise = (after["gaussian"] - quiet["gaussian"]) / (multiplier * clip_norm)[:, None]
    # Kolmogorov-Smirnov, for all 18 jobs together: false alarm rate 2e-4; a scale off by 20 % fails it
    assert min(stats.kstest(row, "norm").pvalue for row in noise) > 1e-5
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(1.2 * noise.ravel(), "norm").pvalue < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [*MECHANISMS, "gaussian"])
def test_noise_is_independent_between_clients_runs_and_coordinates(released, mechanism):
    _, after, quiet, _, _ = released
    signs = np.sign(after[mechanism] - quiet[mechanism])
    pairs = itertools.combinations(range(len(signs)), 2)
    between = np.array([np.mean(signs[a] * signs[b]) for a, b in pairs]) * np.sqrt(signs.shape[1])
    neighbours = np.mean(signs[:, 1:] * signs[:, :-1]) * np.sqrt(signs[:, 1:].size)
    # two-sided z tests at 5 sigma, 154 of them: false alarm rate 9e-5 each time
    assert np.abs(between).max() < 5 and abs(neighbours) < 5


# What releases give away

RELEASES = 300_000
SENSITIVITY = 0.3


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence: must be > 0"):
        epsilon_lower_bound(np.arange(4.0), np.arange(4.0), confidence=confidence)


@pytest.mark.parametrize(
    ("count", "hits", "other_hits"),
    [(50, 30, 3), (50, 50, 0), (50, 50, 10), (50, 17, 5), (90_000, 90_000, 49), (90_000, 90_000, 50)],
)
def test_the_lower_bound_is_that_of_clopper_and_pearson(count, hits, other_hits):
    """Of scores 0 and 1: half of each input chooses the threshold, half tests it, 50 of the other."""
    ones = np.r_[np.ones(hits), np.zeros(count - hits)]
    other = np.r_[np.ones(other_hits), np.zeros(50 - other_hits)]
    found = epsilon_lower_bound(np.r_[ones, ones], np.r_[other, other], confidence=0.98)
    least = stats.binomtest(hits, count).proportion_ci(0.98, "exact").low
    most = stats.binomtest(other_hits, 50).proportion_ci(0.98, "exact").high
    assert found == pytest.approx(max(np.log(least / most), 0), rel=1e-6)
    assert (found > 0) == (hits != 17 and other_hits != 50)


@pytest.mark.parametrize("hits", [0, 1, 2])
def test_the_lower_bound_of_few_hits(hits):
    """The threshold is the score that half of the samples have; of the other half few or none have it."""
    ones = np.r_[np.ones(5), np.ones(hits), np.zeros(5 - hits)]
    found = epsilon_lower_bound(ones, np.zeros(400_000), confidence=0.98)
    least = stats.binomtest(hits, 5).proportion_ci(0.98, "exact").low
    most = stats.binomtest(0, 200_000).proportion_ci(0.98, "exact").high
    assert found == pytest.approx(np.log(max(least / most, 1)), rel=1e-6)
    assert epsilon_lower_bound(np.arange(2.0), np.arange(2.0)) == 0


def audit(first, second, epsilons, clip, seed=0):
    """A lower bound of ε for releases of two updates, [d], once with each of `epsilons`; 99.9% confidence."""
    first, second = jnp.asarray(first, jnp.float32), jnp.asarray(second, jnp.float32)
    clipped = [privacy.clip_update(update, SENSITIVITY, clip) for update in (first, second)]

    def score(key, update):
        """log-likelihood ratio of the two updates, summed over the releases"""
        total = 0.0
        for turn, epsilon in enumerate(epsilons):
            y = privacy.privatize(jax.random.fold_in(key, turn), update, epsilon, SENSITIVITY, clip)
            total += jnp.sum(jnp.abs(y - clipped[1]) - jnp.abs(y - clipped[0])) * epsilon / SENSITIVITY
        return total

    keys = jax.random.split(jax.random.key(seed), (2, RELEASES))
    scores = [jax.jit(jax.vmap(score, (0, None)))(k, u) for k, u in zip(keys, (first, second), strict=True)]
    return epsilon_lower_bound(*map(np.asarray, scores))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_worst_pair_for_one_coordinate_reaches_its_epsilon(epsilon):
    bound = audit([5.0], [-5.0], [epsilon], "coordinate")
    assert 0.85 * epsilon < bound <= epsilon


@pytest.mark.slow
def test_worst_pair_for_a_vector_clipped_as_a_whole_reaches_epsilon():
    epsilon = 1.0
    worst = audit([9.0, 0.0, 0.0, 0.0], [-9.0, 0.0, 0.0, 0.0], [epsilon], "vector")
    assert 0.9 * epsilon < worst <= epsilon
    spread = audit([9.0] * 4, [-9.0] * 4, [epsilon], "vector")
    assert 0.3 * epsilon < spread <= epsilon


def test_vector_clipped_by_coordinate_leaks_the_sum_over_its_coordinates():
    epsilon, d = 0.5, 4
    bound = audit([9.0] * d, [-9.0] * d, [epsilon], "coordinate")
    assert bound > 3 * epsilon
    assert bound <= float(privacy.update_leakage(jnp.float32(epsilon), d, "coordinate"))


def test_neighbours_that_differ_less_give_less_away():
    near = audit([0.03], [-0.03], [1.0], "coordinate")
    assert 0.1 < near <= 0.2 + 1e-6
    assert audit([0.05], [0.05], [1.0], "coordinate") < 0.02


def test_several_participations_reach_the_ledger():
    rounds, budget, decay = 3, 4.0, 0.3
    epsilons = [float(privacy.epsilon_at(jnp.int32(i), budget, decay)) for i in range(1, rounds + 1)]
    ledger = float(privacy.leakage(jnp.int32(rounds), budget, decay))
    bound = audit([9.0], [-9.0], epsilons, "coordinate")
    assert 0.85 * ledger < bound <= ledger
    assert bound > epsilons[0] + epsilons[1]


def test_audit_catches_too_little_noise():
    """Noise of half the scale must be seen as more than the stated ε."""
    rng = np.random.default_rng(0)
    epsilon = 1.0
    scores, others = (rng.laplace(shift, 0.5 / epsilon, 100_000) for shift in (0.5, -0.5))
    assert epsilon_lower_bound(scores, others) > 1.3 * epsilon


def test_audit_is_below_the_truth_as_often_as_it_says():
    """One side of randomized response: ε is known, and 90% bounds fail in at most about 10% of trials."""
    rng = np.random.default_rng(1)
    truth = np.log(0.7 / 0.3)
    bounds = [epsilon_lower_bound(rng.random(400) < 0.7, rng.random(400) < 0.3, 0.9) for _ in range(400)]
    # binomial with p = 0.1, 400 trials: 64 or more has probability 1e-4
    assert sum(bound > truth for bound in bounds) < 64
    assert np.mean(bounds) > 0.5 * truth


# (ε, δ) and Rényi accounting


@pytest.mark.parametrize("clip", privacy.CLIPS)
def test_pure_epsilon_is_the_ledger(clip):
    for count in (0, 1, 37):
        ledger = privacy.update_leakage(privacy.leakage(jnp.int32(count), BUDGET, DECAY), 7, clip)
        pure = accounting.pure_epsilon(count, BUDGET, DECAY, num_parameters=7, clip=clip)
        assert pure == pytest.approx(float(ledger), rel=1e-5)
    one = float(privacy.leakage(jnp.int32(3), BUDGET, DECAY))
    assert accounting.pure_epsilon(3, BUDGET, DECAY, clip=clip) == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.6])
def test_renyi_divergence_is_the_integral(order, epsilon):
    def integrand(y):
        logs = [np.log(0.5 * epsilon) - epsilon * abs(y - centre) for centre in (0.0, 1.0)]
        return np.exp(order * logs[0] + (1 - order) * logs[1])

    value = integrate.quad(
        integrand,
        -300,
        300,
        points=[0, 1],
        limit=400,
    )[0]
    budget = epsilon / (np.expm1(DECAY) * np.exp(-DECAY))
    ours = accounting.renyi_epsilon(1, budget, DECAY, order=order)
    assert ours == pytest.approx(np.log(value) / (order - 1), rel=1e-6)
    several = accounting.renyi_epsilon(3, budget, DECAY, order=order, num_parameters=5)
    singles = [accounting.renyi_epsilon(n, budget, DECAY, order=order) for n in (2, 3)]
    assert several == pytest.approx(5 * singles[1]) and singles[1] > singles[0]


def exact_delta(epsilon_of_one, count, epsilon):
    """δ of `count` Laplace mechanisms of one ε, by convolving the privacy loss on a fine grid."""
    step = epsilon_of_one / 4000
    grid = np.arange(-4000, 4001) * step
    # P[loss <= l] for the Laplace mechanism, loss in [-ε, ε]
    cdf = np.where(grid < epsilon_of_one, 0.5 * np.exp((grid - epsilon_of_one) / 2), 1.0)
    mass = np.diff(cdf, prepend=0.0)
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, mass)
    loss = count * -epsilon_of_one + np.arange(total.size) * step
    return np.sum(total * np.clip(-special.expm1(epsilon - loss), 0, None))


def test_approximate_epsilon_is_between_the_exact_value_and_the_pure_sum():
    pytest.importorskip("dp_accounting")
    epsilon, count, delta = 0.5, 6, 1e-3
    budget = epsilon / (np.expm1(DECAY) * np.exp(-DECAY))
    values = {
        method: accounting.approximate_epsilon(
            1, budget, DECAY, delta=delta, num_parameters=count, method=method
        )
        for method in accounting.METHODS
    }
    assert values["pld"] <= values["renyi"] < count * epsilon
    assert exact_delta(epsilon, count, values["pld"]) == pytest.approx(delta, rel=0.02)
    assert exact_delta(epsilon, count, values["renyi"]) <= delta


def test_approximate_epsilon_is_never_above_the_pure_one():
    pytest.importorskip("dp_accounting")
    for participations, dimension in ((1, 1), (3, 1), (1, 20)):
        arguments = {"num_parameters": dimension, "clip": "coordinate"}
        pure = accounting.pure_epsilon(participations, BUDGET, DECAY, **arguments)
        value = accounting.approximate_epsilon(participations, BUDGET, DECAY, delta=1e-9, **arguments)
        assert 0.5 * pure < value <= pure
    one = accounting.approximate_epsilon(3, BUDGET, DECAY, delta=1e-9)
    assert one == accounting.approximate_epsilon(3, BUDGET, DECAY, delta=1e-9, num_parameters=1)
    whole = accounting.approximate_epsilon(3, BUDGET, DECAY, delta=1e-9, num_parameters=500, clip="vector")
    assert whole <= accounting.pure_epsilon(3, BUDGET, DECAY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.0}, r"delta: must be > 0 and < 1, not 0.0"),
        ({"delta": 1.0}, r"delta: must be > 0 and < 1, not 1.0"),
        ({"privacy_budget": np.inf}, "privacy_budget: must be positive and finite"),
        ({"budget_decay": np.inf}, "budget_decay: must be positive and finite"),
        ({"method": "moments"}, "method: must be one of renyi, pld, not 'moments'"),
        ({"participations": -1}, "participations: must be >= 0"),
        ({"privacy_budget": 0.0}, "privacy_budget: must be positive and finite"),
        ({"num_parameters": 0}, "num_parameters: must be >= 1"),
        ({"clip": "l2"}, "clip: must be one of coordinate, vector, not 'l2'"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = {"participations": 2, "privacy_budget": 1.0, "budget_decay": 0.1, "delta": 1e-5} | changes
    with pytest.raises(ValueError, match=message):
        accounting.approximate_epsilon(
            arguments.pop("participations"),
            arguments.pop("privacy_budget"),
            arguments.pop("budget_decay"),
            **arguments,
        )
    for order in (1.0, np.inf):
        with pytest.raises(ValueError, match="order: must be > 1"):
            accounting.renyi_epsilon(1, 1.0, 0.1, order=order)
    with pytest.raises(ValueError, match="must have 2 samples or more"):
        epsilon_lower_bound(np.ones(1), np.ones(5))


def test_fast_decays_and_many_participations_overflow_nothing():
    """After the first release of e^η = ∞, and after 1,500 of η = 0.5, nothing is left to spend."""
    pytest.importorskip("dp_accounting")
    assert accounting.pure_epsilon(3, 40.0, 800.0) == 40
    assert accounting.pure_epsilon(2000, 40.0, 0.5) == pytest.approx(40)
    assert accounting.renyi_epsilon(3, 4.0, 800.0, order=2.0) == pytest.approx(
        np.log(2 / 3 * np.exp(4.0) + np.exp(-8.0) / 3)
    )
    for method in accounting.METHODS:
        few, many = (
            accounting.approximate_epsilon(count, 1.0, 0.5, delta=1e-5, method=method)
            for count in (200, 2000)
        )
        assert many == pytest.approx(few)
        assert 0 < accounting.approximate_epsilon(3, 1e-200, 800.0, delta=1e-5, method=method) <= 1e-200


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_the_order_may_be_near_one(epsilon):
    """At order 1 it is the Kullback-Leibler divergence of Laplace noise, ε - 1 + e^-ε."""
    found = accounting.renyi_epsilon(1, epsilon / -np.expm1(-1.0), 1.0, order=1 + 1e-9)
    assert found == pytest.approx(epsilon + np.expm1(-epsilon), rel=1e-6)


@pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
def test_a_tiny_divergence_is_not_negative(order):
    for budget in np.geomspace(1e-12, 1e-6, 30):
        assert accounting.renyi_epsilon(2, budget, DECAY, order=order) >= 0
