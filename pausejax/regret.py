"""Computes three regrets of a policy against the oracle, which knows μ, and the paper's bounds on them.

The oracle (10) is `best_set` with μ in place of ucb. It always selects `clients_per_round` clients.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax import bandit
from pausejax.selection import best_set


class Regrets(NamedTuple):
    """Reward and regrets of one round, float32 scalars; cumulative regret is the sum over rounds."""

    reward: jax.Array
    """Reward r(S_t, t), (9)."""
    regret: jax.Array
    """Regret r(G_t, t) - r(S_t, t), (15), of the policy's set S_t against the oracle's set G_t.

    The rewards of both sets are computed from the same drawn latencies and the policy's history.
    """
    pseudo_regret: jax.Array
    """Regret C^G(G_t, t) - C^G(S_t, t), with μ in place of drawn speeds; >= 0 for cohorts of m clients."""
    regret_own_history: jax.Array
    """Regret r(G'_t, t) - r(S_t, t), where the oracle's set G'_t is chosen and scored on the oracle's own
    history."""


def init(num_clients: int) -> jax.Array:
    """Returns the oracle's participation counts before the first round, int32 [K], all 0."""
    return jnp.zeros(num_clients, jnp.int32)


def step(
    oracle_counts: jax.Array,
    counts: jax.Array,
    members: jax.Array,
    time: jax.Array,
    *,
    mean_reward: jax.Array,
    latency_reward: jax.Array,
    data_share: jax.Array,
    clients_per_round: int,
    objective: bandit.Objective,
    available: jax.Array | None = None,
    completes: jax.Array | None = None,
) -> tuple[jax.Array, Regrets]:
    """Scores one round, and updates the counts of the oracle that has its own history.

    Args:
      oracle_counts: int32 [K], the oracle's counts, from `init` or the last step.
      counts: int32 [K], T_k of the policy before the round.
      members: int32 [n], the policy's set, of any size; -1 pads.
      time: scalar, the time of the terms, from `bandit.time_of_terms`.
      mean_reward: float32 [K], μ_k = E[τ_min / τ_k], from `network.expected_reward`.
      latency_reward: float32 [K], τ_min / τ of this round, of all clients.
      data_share: float32 [K], |D_k| / |D|.
      clients_per_round: m.
      objective: the objective of the reward (9); ζ and the clock are not read.
      available: bool [K], clients that policy and oracle may select; None if all clients are available.
      completes: bool [K], clients whose participation counts if they are selected; None for all clients.

    Returns:
      The oracle's next counts, and the round's regrets.
    """
    m = clients_per_round

    def terms(counts: jax.Array) -> tuple[jax.Array, jax.Array]:
        return bandit.terms(counts, time, data_share, m, objective)

    def oracle_set(counts: jax.Array) -> jax.Array:
        score = bandit.score(*terms(counts), m, **objective.weights)
        mask = {} if available is None else {"available": available}
        return best_set(mean_reward, score, m, **mask).members

    def reward(speed: jax.Array, counts: jax.Array, members: jax.Array) -> jax.Array:
        return bandit.set_reward(speed, *terms(counts), members, **objective.weights)

    # The best sets for both histories are searched in one vmapped call.
    best, own_best = jax.vmap(oracle_set)(jnp.stack([counts, oracle_counts]))
    played = reward(latency_reward, counts, members)
    regrets = Regrets(
        reward=played,
        regret=reward(latency_reward, counts, best) - played,
        pseudo_regret=reward(mean_reward, counts, best) - reward(mean_reward, counts, members),
        regret_own_history=reward(latency_reward, oracle_counts, own_best) - played,
    )
    slot = own_best
    if available is not None or completes is not None:
        counted = own_best >= 0 if completes is None else (own_best >= 0) & completes[own_best]
        slot = jnp.where(counted, own_best, oracle_counts.shape[0])
    return oracle_counts.at[slot].add(1, mode="drop"), regrets


def selection_gap(
    clients_per_round: int,
    time: jax.Array,
    objective: bandit.Objective,
    data_share: jax.Array,
    history: bandit.BanditState,
    members: jax.Array,
    available: jax.Array | None,
) -> jax.Array:
    """Returns the maximum of (14) minus the value of a cohort, scalar; NaN while a client is unexplored.

    Unavailable clients are not in the maximum and do not count as unexplored. The arguments are those of
    `step`; `history` is the state of the bandit before the round.
    """
    m = clients_per_round
    ucb = bandit.ucb(history.mean_reward, history.counts, time, m, objective.exploitation_gain)
    g, p = bandit.terms(history.counts, time, data_share, m, objective)
    mask = {} if available is None else {"available": available}
    best = best_set(ucb, bandit.score(g, p, m, **objective.weights), m, **mask).members
    reached, most = (bandit.set_reward(ucb, g, p, chosen, **objective.weights) for chosen in (members, best))
    unexplored = jnp.isinf(ucb) if available is None else jnp.isinf(ucb) & available
    return jnp.where(unexplored.any(), jnp.nan, most - reached)


def smallest_gap(expected: jax.Array) -> jax.Array:
    """Computes δ, the smallest difference between two clients' expectations, float32; +inf for one client.

    The paper defines δ on E[τ_k] (§II-A). The proof of (17) needs the gap in μ_k instead, because (A.16)
    compares μ_b - μ_B with 2 sqrt((m + 1) log(n) / l). Pass `network.expected_reward` for a bound that the
    proof supports, or `network.expected_latency` for the definition as printed.

    Args:
      expected: float32 [K], an expectation for each client.
    """
    return jnp.min(jnp.diff(jnp.sort(expected)), initial=jnp.inf)


def gap_bound(
    mean_reward: jax.Array, generalization_weight: jax.Array | float, privacy_weight: jax.Array | float
) -> jax.Array:
    """Computes Lemma 1's bound on Δ_max, 2α + γ + max μ - min μ, (16).

    The paper prints a second max in place of the min. The bound assumes g in [-1, 1], and so
    m |D_k| / |D| <= 1 for every client. It bounds gaps of expected rewards: a realized gap may exceed the
    bound by at most 1 - (max μ - min μ).

    Args:
      mean_reward: float32 [K], μ_k.
      generalization_weight: α.
      privacy_weight: γ.
    """
    return 2 * generalization_weight + privacy_weight + jnp.max(mean_reward) - jnp.min(mean_reward)


def largest_gap(regret: jax.Array) -> jax.Array:
    """Returns the largest regret of a round over the last axis; NaN is ignored.

    It is the observed counterpart of Δ_max.
    """
    return jnp.nanmax(regret, axis=-1)


def regret_bound(
    rounds: jax.Array,
    num_clients: int,
    m: int,
    largest_gap: jax.Array | float,
    smallest_gap: jax.Array | float,
) -> jax.Array:
    """Computes Theorem 3's bound, K (Δ_max + δ) (4 (m + 1) log(n) / δ² + 1 + 2π²/3), (17), for ζ = 1.

    The bound is for PAUSE. The appendix has 4π²/3 in its last line. Since Σ 1/t² is π²/6, the constant in
    the theorem is right.

    Args:
      rounds: n >= 1, any shape.
      num_clients: K, the number of clients.
      m: clients per round.
      largest_gap: Δ_max, from (16) or from `largest_gap`.
      smallest_gap: δ > 0.
    """
    log_rounds = jnp.log(jnp.asarray(rounds, jnp.float32))
    per_client = 4 * (m + 1) * log_rounds / smallest_gap**2 + 1 + 2 * math.pi**2 / 3
    return num_clients * (largest_gap + smallest_gap) * per_client
