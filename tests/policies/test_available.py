"""Every policy under masks: whom it may choose, how many, and what it does where everyone is there."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pausejax import bandit, parts
from pausejax.policies.base import first_of
from pausejax.policies.clustered import draw
from pausejax.policies.pause import pause

K, M, ROUNDS = 9, 3, 50
POLICIES = sorted(parts.registered_parts().of("policy"))
MAY_TAKE_FEWER = {"fedcs", "clustered_size", "clustered_similarity"}


@functools.cache
def build(name, **changes):
    given = {"num_clients": K, "clients_per_round": M, "num_parameters": 2, "min_latency": 0.05}
    values = given | {"budget_decay": 0.04, "annealing_steps": 20} | changes
    return parts.registered_parts().get("policy", name).build(**values)


def world(seed=0):
    """What `play` takes, and masks of every density: nobody and everyone are among them."""
    rng = np.random.default_rng(seed)
    density = rng.choice([0.0, 0.15, 0.3, 0.6, 0.9, 1.0], (ROUNDS, 1))
    surroundings = {
        "data_share": rng.dirichlet(np.full(K, 2.0)),
        "loss": rng.gamma(2.0, 1.0, (ROUNDS, K)),
        "update": rng.normal(size=(ROUNDS, K, 2)),
    }
    return rng.uniform(0.05, 1.0, (ROUNDS, K)), surroundings, rng.random((ROUNDS, K)) < density


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_only_the_available_are_chosen_and_all_of_them_if_they_are_few(name, play):
    latency, surroundings, available = world()
    members, weights, _ = play(build(name), latency, available=available, **surroundings)
    wanted = K if name == "fedavg" else M
    for row, weight, mask in zip(members, weights, available, strict=True):
        there = row[row >= 0]
        assert (row[: len(there)] >= 0).all(), "pads stand at the end"
        assert len(set(there)) == len(there) and mask[there].all()
        assert (weight[: len(there)] > 0).all() and not weight[len(there) :].any()
        assert weight.sum() == pytest.approx(1.0 if len(there) else 0.0, abs=1e-5)
        most = min(wanted, mask.sum())
        assert 1 <= len(there) <= most if name in MAY_TAKE_FEWER and most else len(there) == most


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_mask_of_everyone_changes_no_bit(name, play):
    latency, surroundings, _ = world(1)
    without = play(build(name), latency, **surroundings)
    everyone = play(build(name), latency, available=np.ones((ROUNDS, K), bool), **surroundings)
    chex.assert_trees_all_equal(without, everyone)


@pytest.mark.parametrize("name", ["fastest", "cs_ucb", "random"])
def test_one_client(name, play):
    available = np.array([[True], [False], [True]])
    one = build(name, num_clients=1, clients_per_round=1)
    members, weights, _ = play(one, np.ones((3, 1)), available=available)
    assert members.ravel().tolist() == [0, -1, 0] and weights.ravel().tolist() == [1.0, 0.0, 1.0]


def test_a_study_is_told_which_policies_read_losses_and_updates():
    built = {name: build(name) for name in POLICIES}
    assert {name for name in POLICIES if built[name].needs_updates} == {"clustered_similarity"}
    assert {name for name in POLICIES if built[name].needs_learning} == {
        "clustered_similarity",
        "oort",
        "power_of_choice",
    }


@pytest.mark.parametrize("name", ["pause", "value_per_second"])
def test_a_cohort_has_from_one_client_to_all_of_them(name):
    for m in (1, K):
        build(name, clients_per_round=m)
    for m in (0, K + 1):
        with pytest.raises(
            ValueError, match=f"clients_per_round: must be from 1 to num_clients = {K}, not {m}"
        ):
            build(name, clients_per_round=m)


@pytest.mark.parametrize("selector", ["exact", "brute"])
def test_pause_plays_an_argmax_over_the_available(selector, play):
    latency, surroundings, available = world(2)
    objective = bandit.Objective(generalization_weight=3.0, privacy_weight=1.0)
    policy = pause(num_clients=K, clients_per_round=M, objective=objective, selector=selector)
    members, _, states = play(policy, latency, available=available, **surroundings)
    share, checked = surroundings["data_share"], 0
    for t in range(1, ROUNDS + 1):
        counts, mean = (np.asarray(x, np.float64) for x in states[t - 1].bandit)
        there = np.flatnonzero(available[t - 1])
        if len(there) <= M or counts[there].min() == 0:
            continue
        ucb = mean + np.sqrt((M + 1) * np.log(t - 1) / counts.clip(1))
        lag = M * share - counts / (t - 1)
        score = (3 * np.abs(lag) ** 2 * np.sign(lag) + np.exp(-0.04 * counts)) / M
        values = {s: ucb[list(s)].min() + score[list(s)].sum() for s in itertools.combinations(there, M)}
        assert values[tuple(members[t - 1])] == pytest.approx(max(values.values()), abs=1e-5)
        checked += 1
    assert checked > 10


def test_rows_of_a_scheme_draw_by_their_probabilities_among_the_available():
    scheme = jnp.array([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.25, 0.75]])
    available = jnp.array([False, True, True, False])
    cohorts = jax.jit(jax.vmap(lambda key: draw(key, scheme, available)))(
        jax.random.split(jax.random.key(0), 20_000)
    )
    pairs = np.asarray(cohorts.members)
    assert {tuple(row) for row in pairs} == {(1, 2), (2, -1)}
    # row 1 draws client 1 half the time, row 2 always client 2: an exact binomial test, false alarm rate 1e-4
    assert stats.binomtest(int((pairs[:, 0] == 1).sum()), 20_000, 0.5).pvalue > 1e-4
    first_alone = jnp.array([True, False, False, False])
    nobody = jax.jit(draw)(jax.random.key(0), scheme, first_alone)
    assert nobody.members.tolist() == [0, -1] and nobody.weights.tolist() == [1.0, 0.0]


SIZES = [(1, 1), (2, 1), (3, 3), (6, 4), (11, 2), (11, 8)]
first = jax.jit(first_of, static_argnums=1)


@pytest.mark.parametrize("seed", range(5))
def test_first_of_takes_the_first_that_are_available(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        size, m = SIZES[int(rng.integers(len(SIZES)))]
        order, mask = rng.permutation(size).astype(np.int32), rng.random(size) < rng.random()
        expected = sorted([k for k in order if mask[k]][:m])
        ours = np.asarray(first(order, m, mask))
        assert ours.dtype == np.int32 and ours.tolist() == expected + [-1] * (m - len(expected))
