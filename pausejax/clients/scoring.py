"""What one round of one run was worth: reward, regrets, and the gap in (14)."""

import jax
import jax.numpy as jnp

from pausejax import bandit, regret, selection


def score_round(
    round: jax.Array,
    objective: bandit.Objective,
    mean_reward: jax.Array,
    latency_reward: jax.Array,
    data_share: jax.Array,
    seen: bandit.BanditState,
    genie_counts: jax.Array,
    members: jax.Array,
    available: jax.Array | None,
    completes: jax.Array | None,
    *,
    clients_per_round: int,
    selection_gap: bool,
) -> tuple[jax.Array, regret.Regrets, jax.Array]:
    """One run's genie after the round, the reward (9) and regrets of its cohort, and its gap in (14).

    Arguments as for `regret.step`; `seen` is the policy's history before the round.
    """
    time = bandit.time_of_terms(round, objective.clock)
    genie_counts, regrets = regret.step(
        genie_counts,
        seen.counts,
        members,
        time,
        mean_reward=mean_reward,
        latency_reward=latency_reward,
        data_share=data_share,
        clients_per_round=clients_per_round,
        objective=objective,
        available=available,
        completes=completes,
    )
    if not selection_gap:
        return genie_counts, regrets, jnp.float32(jnp.nan)
    return (
        genie_counts,
        regrets,
        _gap(clients_per_round, time, objective, data_share, seen, members, available),
    )


def _gap(
    m: int,
    time: jax.Array,
    objective: bandit.Objective,
    data_share: jax.Array,
    seen: bandit.BanditState,
    members: jax.Array,
    available: jax.Array | None,
) -> jax.Array:
    """How much (14) loses with these members against its maximum; NaN while a client is unexplored.

    Both are over those who are available.
    """
    ucb = bandit.ucb(seen.mean_reward, seen.counts, time, m, objective.exploitation_gain)
    g, p = bandit.terms(seen.counts, time, data_share, m, objective)
    mask = {} if available is None else {"available": available}
    best = selection.best_set(ucb, bandit.score(g, p, m, **objective.weights), m, **mask).members
    reached, most = (bandit.set_reward(ucb, g, p, chosen, **objective.weights) for chosen in (members, best))
    unexplored = jnp.isinf(ucb) if available is None else jnp.isinf(ucb) & available
    return jnp.where(unexplored.any(), jnp.nan, most - reached)
