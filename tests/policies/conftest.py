"""Plays a policy alone: latencies, losses and updates are given, and what it selects is returned."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.policies.base import Clients, Feedback, View


def _play(
    policy,
    latency,
    *,
    data_share=None,
    loss=None,
    update=None,
    available=None,
    min_latency=0.05,
    seed=0,
):
    """Plays one round per row of `latency`, [T, K], under jit.

    Args:
      policy: any.
      latency: [T, K].
      data_share: [K]; equal by default.
      loss: [T, K], each client's loss in each round, 1 by default: on all its data, and the root of the mean
        square over its minibatches. Their mean is half of it.
      update: [T, K, d]; without, updates are empty.
      available: bool [T, K]; without, there is no mask.
      min_latency: τ_min.
      seed: of the policy's keys.

    Returns:
      members [T, n], weights [T, n], and the list of states, before the first round and after each.
    """
    rounds, num_clients = latency.shape
    share = np.full(num_clients, 1 / num_clients) if data_share is None else data_share
    share, latency = np.asarray(share, np.float32), np.asarray(latency, np.float32)
    loss = np.ones_like(latency) if loss is None else np.asarray(loss, np.float32)
    update = np.zeros((rounds, num_clients, 0), np.float32) if update is None else np.float32(update)
    key = jax.random.key(seed)
    clients = Clients(jnp.asarray(share), jnp.asarray(latency.mean(axis=0)))

    init, one_round = _compiled(policy, min_latency)
    states = [init(key, clients)]
    cohorts = []
    for row in range(rounds):
        mask = None if available is None else np.asarray(available[row])
        told = (latency[row], loss[row], update[row], mask)
        cohort, state = one_round(key, states[-1], np.int32(row + 1), *told)
        assert jax.tree.structure(state) == jax.tree.structure(states[-1])
        cohorts.append(jax.tree.map(np.asarray, cohort))
        states.append(state)
    return np.stack([c.members for c in cohorts]), np.stack([c.weights for c in cohorts]), states


@functools.cache
def _compiled(policy, min_latency):
    """`init` and a round of a policy; played twice, it is traced once."""

    @jax.jit
    def one_round(key, state, round, latency, loss, update, available):
        view = View(round, latency, lambda clients: loss[clients], available)
        cohort = policy.select(jax.random.fold_in(key, round), state, view)
        there = jnp.maximum(cohort.members, 0)
        feedback = Feedback(
            cohort.members,
            latency[there],
            min_latency / latency[there],
            loss[there] / 2,
            loss[there],
            update[there],
        )
        return cohort, policy.update(state, view, feedback)

    return jax.jit(policy.init), one_round


@pytest.fixture
def play():
    return _play
