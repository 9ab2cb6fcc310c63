"""Rounds with absent and failing clients, replayed in NumPy from the keys of seed and round."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import bandit, network, parts, privacy
from pausejax.clients import loop as simulation
from pausejax.clients.conditions import NetworkDraw, close_round
from pausejax.clients.inputs import StaticConfig, World
from pausejax.devices import SHARED, SPLIT, put, runs_mesh
from pausejax.policies.base import Cohort

K, M, ROUNDS, FLOOR, BUDGET = 6, 2, 40, 0.05, 40.0
OBJECTIVE = {f.name: f.default for f in dataclasses.fields(bandit.Objective) if f.name != "clock"}
SEEDS = (3, 8)
LATENCY, AVAILABILITY, FAILURE = 0, 3, 4
"""The purposes of the draws in a round."""
OF_STUDIES = {"min_latency": FLOOR, "budget_decay": OBJECTIVE["budget_decay"]}


def simulate(
    policy, availability="always", stage=None, *, probability=0.0, files=None, selection_gap=False, **traced
):
    """Plays one run per seed in mode "bandit"; the final state and the records, [rounds, R]."""
    known = {
        "num_clients": K,
        "clients_per_round": M,
        "annealing_steps": 20,
        "num_parameters": 0,
        "clock": "paper",
    }

    def bound(category, name):
        part = parts.registered_parts().get(category, name)
        of_studies = {name: parts.Parameter(value, traced=True) for name, value in OF_STUDIES.items()}
        return parts.bind(part, known, {**part.parameters, **of_studies})

    config = StaticConfig(
        policy=bound("policy", policy),
        law=bound("latency", "two_speed"),
        availability=bound("availability", availability),
        ending=bound("ending", "all"),
        mechanism=bound("mechanism", "laplace"),
        num_clients=K,
        clients_per_round=M,
        clock="paper",
        rounds_per_call=ROUNDS,
        eval_every=1,
        selection_gap=selection_gap,
        failure_stage=stage,
    )
    values = {**OF_STUDIES, "privacy_budget": BUDGET, "failure_probability": probability, **OBJECTIVE}
    for chosen in (config.policy, config.law, config.availability):
        own = [name for name in chosen.traced if name not in values and name not in (files or {})]
        values |= {name: chosen.part.parameters[name].default for name in own}
    hyper = {name: jnp.full(2, value, jnp.float32) for name, value in (values | traced).items()}
    world = World(
        seed=jnp.asarray(SEEDS, jnp.uint32),
        data_share=jnp.full((2, K), 1 / K),
        partition=jnp.zeros(2, jnp.int32),
        files=files or {},
        data=None,
        test=None,
    )
    state = simulation.start(config, world, hyper)
    mesh = runs_mesh(2)
    own = put((world.seed, world.data_share, world.partition), mesh, SPLIT)
    shared = put((world.files, world.data, world.test), mesh, SHARED)
    return simulation.advance(
        config,
        mesh,
        World(*own, *shared),
        put(hyper, mesh, SPLIT),
        put(state, mesh, SPLIT),
        jnp.int32(1),
        jnp.int32(ROUNDS),
    )


def drawn(seed, purpose):
    """Uniform draws of every round and client of a seed, [rounds, K]."""
    key = jax.random.key(seed)
    keys = [jax.random.fold_in(jax.random.fold_in(key, t), purpose) for t in range(1, ROUNDS + 1)]
    return np.stack([np.asarray(jax.random.uniform(key, (K,))) for key in keys])


# By the bandit, and by losses and updates. Masks are met by every policy in tests/policies/test_available.py.
SORTS = ("pause", "clustered_similarity")
REST = sorted(set(parts.registered_parts().of("policy")) - set(SORTS))


@pytest.mark.parametrize("policy", [*SORTS, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)])
def test_everyone_plays_among_the_available(policy):
    _, record = simulate(policy, "bernoulli", availability_probability=0.3)
    for run, seed in enumerate(SEEDS):
        available = drawn(seed, AVAILABILITY) < np.float32(0.3)
        np.testing.assert_array_equal(record.available_count[:, run], available.sum(axis=1))
        for row, mask in zip(np.asarray(record.selected)[:, run], available, strict=True):
            there = row[row >= 0]
            assert len(set(there)) == len(there) and mask[there].all() and (len(there) > 0 or not mask.any())


@pytest.mark.slow
def test_nobody_there_is_an_empty_round_of_one_minimum_latency():
    file = np.ones((4, K), np.float32)
    file[1] = 0
    files = {"availability_file": jnp.asarray(file)}
    state, record = simulate("pause", "availability_trace", files=files, selection_gap=True)
    empty = np.arange(ROUNDS) % 4 == 1
    assert (np.asarray(record.selected)[empty] == -1).all()
    assert (np.asarray(record.round_latency)[empty] == np.float32(FLOOR)).all()
    for name in ("reward", "regret", "pseudo_regret", "regret_own_history", "selection_gap"):
        values = np.asarray(getattr(record, name))
        assert (values[empty] == 0).all()
        assert np.isfinite(values).all() or name == "selection_gap"
    assert (np.asarray(state.bandit.counts).sum(axis=1) == M * (~empty).sum()).all()
    assert (np.asarray(state.oracle).sum(axis=1) == M * (~empty).sum()).all()


@pytest.mark.slow
def test_pseudo_regret_is_against_an_oracle_that_sees_the_same_availability():
    _, record = simulate("pause", "markov", departure_probability=0.4, selection_gap=True)
    assert (np.asarray(record.pseudo_regret) >= -1e-5).all()
    gap = np.asarray(record.selection_gap)
    assert np.isfinite(gap).any() and (np.abs(gap[np.isfinite(gap)]) < 1e-5).all()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before_release", "after_release"])
def test_failures_spend_privacy_if_the_update_had_left(stage):
    state, record = simulate("random", stage=stage, probability=0.4)
    plain_state, plain = simulate("random")
    np.testing.assert_array_equal(record.selected, plain.selected)
    np.testing.assert_array_equal(record.round_latency, plain.round_latency)
    for run, seed in enumerate(SEEDS):
        fails = drawn(seed, FAILURE) < np.float32(0.4)
        chosen = np.zeros((ROUNDS, K), bool)
        np.put_along_axis(chosen, np.asarray(record.selected)[:, run], True, axis=1)
        np.testing.assert_array_equal(record.failed_count[:, run], (chosen & fails).sum(axis=1))
        counted = chosen if stage == "after_release" else chosen & ~fails
        np.testing.assert_array_equal(state.bandit.counts[run], counted.sum(axis=0))
        leaked = np.asarray(privacy.leakage(np.cumsum(counted, axis=0).astype(np.float32), BUDGET, 0.04))
        most = np.asarray(record.max_releases)[:, run]
        np.testing.assert_allclose(
            privacy.leakage(most.astype(np.float32), BUDGET, 0.04), leaked.max(axis=1), rtol=1e-5
        )
    same = (np.asarray(state.oracle) == np.asarray(plain_state.oracle)).all()
    assert same == (stage == "after_release")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before_release", "after_release"])
def test_if_nobody_fails_the_possibility_changes_no_selection(stage):
    state, record = simulate("pause", stage=stage, probability=0.0)
    plain_state, plain = simulate("pause")
    np.testing.assert_array_equal(record.selected, plain.selected)
    np.testing.assert_array_equal(state.bandit.counts, plain_state.bandit.counts)
    np.testing.assert_allclose(record.regret, plain.regret, atol=1e-5)
    assert not np.asarray(record.failed_count).any()


def test_weights_are_shared_out_among_those_who_arrive():
    members = jnp.array([[0, 2, 3], [1, 2, -1], [4, -1, -1]])
    weights = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    fails = jnp.array([[False, True, True, False, False], [False] * 5, [True] * 5])
    latency = jnp.ones((3, 5), jnp.float32)
    for stage, counted in (("before_release", [0, -1, 3]), ("after_release", [0, 2, 3])):
        config = SimpleNamespace(
            build_ending=lambda *_: network.all_clients(),
            failure_stage=stage,
            waits_for_all=True,
            trusts_server=False,
            max_at_work=0,
            late="stopped",
        )

        def closed(members, weights, latency, fails, config=config):
            drawn = NetworkDraw(latency, None, fails, ())
            return close_round(config, {}, {"min_latency": 0.1}, Cohort(members, weights), drawn, None)

        found = jax.vmap(closed)(members, weights, latency, fails)
        assert found.aggregated.members.tolist() == [[0, -1, 3], [1, 2, -1], [-1, -1, -1]]
        np.testing.assert_allclose(
            found.aggregated.weights, [[2 / 3, 0, 1 / 3], [0.5, 0.5, 0], [0, 0, 0]], rtol=1e-6
        )
        assert found.arrived.tolist() == [[True, False, True], [True, True, False], [False] * 3]
        assert found.released[0].tolist() == counted
