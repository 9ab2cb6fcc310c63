"""The rivals beyond the paper against plain versions that know nothing of JAX."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pausejax.policies.bandit_generalization import bandit_generalization
from pausejax.policies.base import Clients, Feedback, View
from pausejax.policies.cs_ucb import cs_ucb
from pausejax.policies.fedcs import fedcs
from pausejax.policies.oort import oort, total_utility
from pausejax.policies.power_of_choice import power_of_choice


def latencies(rounds, num_clients, seed=0):
    rng = np.random.default_rng(seed)
    return np.maximum(0.05, rng.uniform(0.1, 0.9, num_clients) + 0.1 * rng.normal(size=(rounds, num_clients)))


# CS-UCB and the bandit for generalization


def plain_bandit(latency, m, choose, clock):
    """Counts and means in float64; `choose(ucb, counts, t)` names the members."""
    num_clients = latency.shape[1]
    counts, total = np.zeros(num_clients), np.zeros(num_clients)
    for row, now in enumerate(latency):
        time = row if clock == "paper" else row + 1
        with np.errstate(divide="ignore", invalid="ignore"):
            width = np.sqrt((m + 1) * math.log(max(time, 1)) / counts)
            ucb = np.where(counts > 0, total / counts + width, np.inf)
        members = choose(ucb, counts, time)
        yield members
        counts[members] += 1
        total[members] += 0.05 / now[members]


@pytest.mark.parametrize(
    ("num_clients", "m", "clock"), [(7, 3, "paper"), (6, 2, "reference"), (4, 4, "paper"), (1, 1, "paper")]
)
def test_cs_ucb_takes_the_largest_bounds(play, num_clients, m, clock):
    latency = latencies(60, num_clients)
    policy = cs_ucb(num_clients=num_clients, clients_per_round=m, clock=clock)
    members, weights, _ = play(policy, latency)

    def choose(ucb, counts, time):
        return np.sort(np.argsort(-ucb, kind="stable")[:m])

    np.testing.assert_array_equal(members, list(plain_bandit(latency, m, choose, clock)))
    np.testing.assert_allclose(weights, 1 / m, rtol=1e-6)


@pytest.mark.parametrize(("alpha", "clock"), [(0.0, "paper"), (0.5, "reference"), (100.0, "paper")])
def test_bandit_for_generalization_is_the_best_of_all_sets(play, alpha, clock):
    num_clients, m, beta = 6, 2, 2.5
    latency = latencies(40, num_clients, seed=2)
    share = np.array([0.3, 0.1, 0.22, 0.05, 0.16, 0.17])
    policy = bandit_generalization(
        num_clients=num_clients,
        clients_per_round=m,
        generalization_weight=alpha,
        generalization_exponent=beta,
        clock=clock,
    )
    members, _, _ = play(policy, latency, data_share=share)
    values = []

    def choose(ucb, counts, time):
        gap = m * share - (counts / time if time else 0)
        g = np.abs(gap) ** beta * np.sign(gap)
        sets = [list(s) for s in itertools.combinations(range(num_clients), m)]

        def key(chosen):
            finite = ucb[chosen][np.isfinite(ucb[chosen])]
            everyone_new = len(finite) == 0
            return everyone_new, (0 if everyone_new else finite.min()) + alpha / m * g[chosen].sum()

        played = sorted(members[len(values)].tolist())
        best = max(map(key, sets))
        values.append((key(played), best))
        return played

    list(plain_bandit(latency, m, choose, clock))
    for (played_new, played), (best_new, best) in values:
        assert played_new == best_new
        assert played == pytest.approx(best, rel=1e-5, abs=1e-5)


# FedCS


@pytest.mark.parametrize("deadline", [0.0, 0.3])
def test_fedcs_takes_the_fastest_that_meet_the_deadline(play, deadline):
    latency = latencies(30, 9)
    share = np.random.default_rng(1).dirichlet(np.ones(9))
    policy = fedcs(num_clients=9, clients_per_round=4, deadline=deadline)
    members, weights, _ = play(policy, latency, data_share=share)
    for row, now in enumerate(latency):
        in_time = [k for k in np.argsort(now, kind="stable")[:4] if now[k] <= deadline]
        expected = in_time or [int(np.argmin(now))]
        assert members[row][: len(expected)].tolist() == expected
        assert (members[row][len(expected) :] == -1).all() and not weights[row][len(expected) :].any()
        np.testing.assert_allclose(
            weights[row][: len(expected)], share[expected] / share[expected].sum(), rtol=1e-5
        )


def test_fedcs_takes_who_needs_all_the_time_there_is(play):
    latency = np.array([[0.75, 0.25, 0.5, 0.25]])
    members, _, _ = play(fedcs(num_clients=4, clients_per_round=4, deadline=0.5), latency)
    assert members.tolist() == [[1, 3, 2, -1]]


def test_fedcs_asks_uniform_candidates(play):
    policy = fedcs(num_clients=8, clients_per_round=2, num_candidates=3)
    members, _, _ = play(policy, np.tile(np.linspace(0.1, 0.8, 8), (600, 1)))
    # the two fastest of three uniform candidates
    sets = list(itertools.combinations(range(8), 3))
    probability = np.array([sum(k in s[:2] for s in sets) for k in range(8)]) / len(sets)
    counts = np.bincount(members.ravel(), minlength=8)
    assert counts[7] == 0
    # two-sided z test at 5 sigma for 7 clients: false alarm rate 4e-6
    error = np.abs(counts - 600 * probability)
    assert (error <= 5 * np.sqrt(600 * probability * (1 - probability))).all()


# Power-of-Choice


def test_power_of_choice_among_all_takes_the_largest_losses(play):
    rng = np.random.default_rng(0)
    loss = rng.integers(0, 5, (40, 8)).astype(float)
    policy = power_of_choice(num_clients=8, clients_per_round=3, num_candidates=8)
    members, weights, _ = play(policy, latencies(40, 8), loss=loss, data_share=rng.dirichlet(np.ones(8)))
    for row in range(40):
        expected = np.sort(np.argsort(-loss[row], kind="stable")[:3])
        np.testing.assert_array_equal(members[row], expected)
    np.testing.assert_allclose(weights, 1 / 3, rtol=1e-6)


def test_power_of_choice_draws_candidates_by_share_without_replacement():
    share = np.array([0.5, 0.3, 0.15, 0.05])
    policy = power_of_choice(num_clients=4, clients_per_round=2, num_candidates=2)
    clients = Clients(jnp.asarray(share, jnp.float32), jnp.ones(4))
    view = View(jnp.int32(1), jnp.ones(4), lambda clients: jnp.zeros(clients.shape))
    keys = jax.random.split(jax.random.key(1), 20_000)
    members = np.asarray(jax.jit(jax.vmap(lambda key: policy.select(key, clients, view).members))(keys))
    pairs = list(itertools.combinations(range(4), 2))
    probability = [
        share[i] * share[j] / (1 - share[i]) + share[j] * share[i] / (1 - share[j]) for i, j in pairs
    ]
    counts = [np.sum((members == pair).all(1)) for pair in pairs]
    # chi-squared goodness of fit, false alarm rate 1e-4
    assert stats.chisquare(counts, np.array(probability) * 20_000).pvalue > 1e-4


def test_power_of_choice_by_default_asks_twice_as_many(play):
    loss = np.tile(np.arange(10.0), (300, 1))
    policy = power_of_choice(num_clients=10, clients_per_round=2)
    members, _, _ = play(policy, latencies(300, 10), loss=loss)
    # the second largest of 4 of 10 is at least the third of all
    assert members.min() == 2
    assert 0.3 < (members[:, 1] == 9).mean() < 0.5


# Oort


class PlainOort:
    """Utilities, speeds and the pacer, in float64 and one client at a time."""

    def __init__(self, share, step, window, penalty):
        self.size = share * len(share)
        self.utility, self.latency, self.last = {}, {}, {}
        self.preferred, self.step, self.window, self.penalty = step, step, window, penalty
        self.gains = []

    def total(self, round):
        result = {}
        for k, utility in self.utility.items():
            value = utility + math.sqrt(0.1 * math.log(round) / self.last[k])
            if self.latency[k] > self.preferred:
                value *= (self.preferred / self.latency[k]) ** self.penalty
            result[k] = value
        return result

    def update(self, round, members, latency, loss):
        for k in members:
            self.utility[k], self.latency[k], self.last[k] = self.size[k] * loss[k], latency[k], round
        self.gains.append(sum(self.utility[k] for k in members))
        w = self.window
        if round % w == 0 and round > w and sum(self.gains[-2 * w : -w]) > sum(self.gains[-w:]):
            self.preferred += self.step


@pytest.mark.parametrize("seed", range(2))
def test_oort_follows_the_plain_version(play, seed):
    rng = np.random.default_rng(seed)
    num_clients, m, rounds = 12, 4, 40
    share = rng.dirichlet(np.full(num_clients, 3.0))
    latency = latencies(rounds, num_clients, seed)
    # losses fall, so that the pacer has work to do
    loss = rng.gamma(2.0, 1.0, (rounds, num_clients)) * np.linspace(3, 0.3, rounds)[:, None]
    policy = oort(num_clients=num_clients, clients_per_round=m, pacer_step=0.2, pacer_window=5)
    members, weights, states = play(policy, latency, data_share=share, loss=loss, seed=seed)
    plain = PlainOort(share, 0.2, 5, 2.0)
    grown = 0
    for row in range(rounds):
        round, state = row + 1, states[row]
        total = plain.total(round)
        ours = np.asarray(jax.jit(total_utility)(state, np.int32(round), 2.0))
        for k, value in total.items():
            assert ours[k] == pytest.approx(value, rel=1e-4)
        assert float(state.preferred_latency) == pytest.approx(plain.preferred, rel=1e-5)

        chosen = members[row].tolist()
        assert len(set(chosen)) == m and chosen == sorted(chosen) and min(chosen) >= 0
        np.testing.assert_allclose(weights[row], share[chosen] / share[chosen].sum(), rtol=1e-5)
        exploited = [k for k in chosen if k in total]
        wanted = round_half_even((1 - max(0.9 * 0.98**row, 0.2)) * m)
        unseen = num_clients - len(total)
        assert len(exploited) == min(max(wanted, m - unseen), len(total))
        if exploited:
            cut_off = 0.95 * sorted(total.values(), reverse=True)[len(exploited) - 1]
            assert all(total[k] >= cut_off * (1 - 1e-4) for k in exploited)
        before = plain.preferred
        plain.update(round, chosen, latency[row], loss[row])
        grown += plain.preferred > before
    assert grown > 2


def round_half_even(value):
    return round(np.float32(value).item())


@pytest.mark.parametrize(("m", "utility"), [(1, [1.0, 0.96, 0.98, 0.5]), (2, [4.0, 1.0, 0.95, 0.5])])
def test_oort_without_exploration_exploits_in_proportion_to_utility(m, utility):
    """Of those that have 95 % of the m-th largest utility, one after the other by their size."""
    num_clients, utility = 4, np.array(utility)
    policy = oort(num_clients=num_clients, clients_per_round=m, straggler_penalty=0.0)
    clients = Clients(jnp.full(num_clients, 0.25), jnp.ones(num_clients))
    state = policy.init(jax.random.key(0), clients)._replace(
        utility=jnp.asarray(utility, jnp.float32),
        last_round=jnp.full(num_clients, 10),
        latency=jnp.ones(4),
    )
    view = View(jnp.int32(1), jnp.ones(num_clients), lambda clients: jnp.zeros(clients.shape))
    keys = jax.random.split(jax.random.key(3), 30_000)
    members = np.asarray(jax.jit(jax.vmap(lambda key: policy.select(key, state, view).members))(keys))
    sets = list(itertools.combinations(range(3), m))
    counts = [np.sum((members == chosen).all(1)) for chosen in sets]
    share = utility[:3] / utility[:3].sum()
    expected = [
        sum(
            np.prod(share[list(o)] / (1 - np.cumsum([0, *share[list(o)][:-1]])))
            for o in itertools.permutations(s)
        )
        for s in sets
    ]
    # chi-squared goodness of fit, false alarm rate 1e-4
    assert sum(counts) == 30_000 and stats.chisquare(counts, 30_000 * np.array(expected)).pvalue > 1e-4


def test_oort_learns_of_those_who_have_reported_alone():
    """Pads, updates that were lost and broken losses; a window no worse than the last."""
    policy = oort(num_clients=4, clients_per_round=4, pacer_step=0.3, pacer_window=1)
    share = jnp.asarray([0.1, 0.2, 0.3, 0.4])
    state = policy.init(jax.random.key(0), Clients(share, jnp.ones(4)))
    assert state.preferred_latency == np.float32(0.3)
    view = View(jnp.int32(1), jnp.ones(4), lambda clients: jnp.zeros(clients.shape))
    members, loss = jnp.asarray([0, 1, 2, -1]), jnp.asarray([2.0, 7.0, jnp.nan, 9.0])
    arrived = jnp.asarray([True, False, True, True])
    feedback = Feedback(members, jnp.arange(1.0, 5.0), *[loss] * 3, jnp.zeros((4, 0)), arrived)

    @jax.jit
    def update(state, round, feedback):
        return policy.update(state, view._replace(round=round), feedback)

    expected = ((1, [0.8, 0.0], 0.3), (2, [0.8, 0.0], 0.3), (3, [0.4, 0.0], 0.6))
    for round, window, preferred in expected:
        if round == 3:
            feedback = feedback._replace(loss_rms=loss / 2)
        state = update(state, np.int32(round), feedback)
        np.testing.assert_allclose(state.window, window, rtol=1e-6)
        np.testing.assert_allclose(state.preferred_latency, preferred, rtol=1e-6)
    np.testing.assert_allclose(state.utility, [0.4, 0, 0, 0], rtol=1e-6)
    assert state.latency.tolist() == [1, 0, 3, 0] and state.last_round.tolist() == [3, 0, 3, 0]


def test_oort_explores_uniformly():
    policy = oort(num_clients=6, clients_per_round=2)
    clients = Clients(jnp.asarray([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]), jnp.linspace(0.1, 1.0, 6))
    state = policy.init(jax.random.key(0), clients)
    view = View(jnp.int32(1), jnp.ones(6), lambda clients: jnp.zeros(clients.shape))
    keys = jax.random.split(jax.random.key(3), 30_000)
    members = np.asarray(jax.jit(jax.vmap(lambda key: policy.select(key, state, view).members))(keys))
    pairs = [np.sum((members == pair).all(1)) for pair in itertools.combinations(range(6), 2)]
    # chi-squared goodness of fit, false alarm rate 1e-4
    assert sum(pairs) == 30_000 and stats.chisquare(pairs).pvalue > 1e-4


def test_oort_keeps_distinct_members_when_losses_are_broken():
    policy = oort(num_clients=4, clients_per_round=3)
    state = policy.init(jax.random.key(0), Clients(jnp.full(4, 0.25), jnp.ones(4)))
    view = View(jnp.int32(1), jnp.ones(4), lambda clients: jnp.zeros(clients.shape))
    broken = jnp.full(3, jnp.nan)
    feedback = Feedback(jnp.array([1, 2, 3]), jnp.ones(3), jnp.ones(3), broken, broken, jnp.zeros((3, 0)))

    @jax.jit
    def second_cohort(state, feedback):
        state = policy.update(state, view, feedback)
        return policy.select(jax.random.key(1), state, view._replace(round=jnp.int32(2)))

    cohort = second_cohort(state, feedback)
    assert len(set(cohort.members.tolist())) == 3 and 0 in cohort.members.tolist()
    assert np.isfinite(cohort.weights).all()


# All of them


@pytest.mark.parametrize(
    ("constructor", "name", "values"),
    [
        (fedcs, "deadline", [0.2, 0.9]),
        (oort, "straggler_penalty", [0.0, 5.0]),
        (oort, "exploration", [0.0, 1.0]),
    ],
)
def test_traced_parameters_under_vmap_equal_numbers(constructor, name, values):
    clients = Clients(jnp.full(6, 1 / 6), jnp.ones(6))
    latency = jnp.linspace(0.1, 0.8, 6)
    view = View(jnp.int32(7), latency, lambda clients: jnp.zeros(clients.shape))
    key = jax.random.key(2)

    def select(value):
        policy = constructor(num_clients=6, clients_per_round=3, **{name: value})
        state = policy.init(key, clients)
        if constructor is oort:
            state = state._replace(
                last_round=jnp.array([1, 2, 3, 4, 0, 0]), utility=jnp.arange(6.0), latency=latency
            )
        return policy.select(key, state, view).members

    together = jax.jit(jax.vmap(select))(jnp.asarray(values))
    alone = [np.asarray(jax.jit(select, static_argnums=0)(value)) for value in values]
    np.testing.assert_array_equal(together, alone)
    assert (alone[0] != alone[1]).any()


@pytest.mark.parametrize(
    ("constructor", "options", "message"),
    [
        (
            fedcs,
            {"num_candidates": 2},
            r"num_candidates: must be 0, or from clients_per_round = 3 to num_clients = 9, not 2",
        ),
        (
            power_of_choice,
            {"num_candidates": 10},
            r"num_candidates: must be 0, or from clients_per_round = 3 to num_clients = 9, not 10",
        ),
        (oort, {"pacer_window": 0}, "pacer_window: must be at least 1, not 0"),
        (cs_ucb, {"clock": "wall"}, "clock: must be one of paper, reference, not 'wall'"),
    ],
)
def test_bad_arguments_are_named(constructor, options, message):
    with pytest.raises(ValueError, match=message):
        constructor(num_clients=9, clients_per_round=3, **options)
