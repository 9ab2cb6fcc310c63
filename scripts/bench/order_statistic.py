"""Measures what a policy would gain by knowing that a round ends with the first m of its n clients.

    python scripts/bench/order_statistic.py

PAUSE maximizes (14), in which the slowest client of the cohort ends the round. Under the ending `first`, the
m-th fastest client ends it. Two oracles know the latency law and play the same draws. The first oracle
maximizes (10) over cohorts of n, like PAUSE with perfect knowledge. The second maximizes the same sum, but
with the expected reward of the m-th fastest client in place of the smallest expected reward.

Prints two figures for each law and each treatment of late clients: the mean duration of rounds and the least
share. The least share is the smallest number of aggregated updates of any client, divided by the mean over
the clients. It is 1 if all clients contribute equally, and 0 if one never contributes. Differences are paired
by seed, with 95 % t intervals over the seeds.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from pausejax import bandit
from pausejax.network import Law, lognormal, shifted_exponential, two_speed

NUM_CLIENTS, CLIENTS_PER_ROUND, SELECTED = 10, 3, 4
ROUNDS, SEEDS, DRAWS, MIN_LATENCY = 300, 20, 4000, 0.05
OBJECTIVE = bandit.Objective(generalization_weight=100.0, generalization_exponent=2.0, privacy_weight=5.0)
COHORTS = np.array(list(itertools.combinations(range(NUM_CLIENTS), SELECTED)))


def rewards(latency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates expected rewards of all cohorts from draws of latencies, [draws, K], seconds.

    Returns:
      The smallest expected reward of each cohort, and the expected reward of its m-th fastest client.
    """
    slowest = (MIN_LATENCY / latency).mean(axis=0)[COHORTS].min(axis=1)
    ends = np.sort(latency[:, COHORTS], axis=2)[:, :, CLIENTS_PER_ROUND - 1]
    return slowest, (MIN_LATENCY / ends).mean(axis=0)


def play(latency: np.ndarray, worth: np.ndarray, late: str) -> tuple[float, float]:
    """Plays an oracle on latencies [rounds, K], seconds.

    Args:
      latency: the latencies of all clients in every round.
      worth: the latency term of each cohort in the oracle's sum.
      late: "released" if late clients count as participants, "stopped" if not.

    Returns:
      The mean duration of rounds in seconds, and the least share of a client in all aggregated updates.
    """
    counts, share = np.zeros(NUM_CLIENTS, np.int32), jnp.full(NUM_CLIENTS, 1 / NUM_CLIENTS)
    arrived, durations = np.zeros(NUM_CLIENTS, int), []
    for round, drawn in enumerate(latency, 1):
        generalization, privacy = _terms(jnp.asarray(counts), jnp.int32(round), share)
        score = OBJECTIVE.generalization_weight * np.asarray(generalization)
        score = (score + OBJECTIVE.privacy_weight * np.asarray(privacy))[COHORTS].mean(axis=1)
        chosen = COHORTS[np.argmax(worth + score)]
        first = chosen[np.argsort(drawn[chosen])[:CLIENTS_PER_ROUND]]
        durations.append(drawn[first].max())
        arrived[first] += 1
        counts[first if late == "stopped" else chosen] += 1
    return float(np.mean(durations)), float(NUM_CLIENTS * arrived.min() / arrived.sum())


@jax.jit
def _terms(counts: jax.Array, round: jax.Array, share: jax.Array) -> tuple[jax.Array, jax.Array]:
    time = bandit.time_of_terms(round, OBJECTIVE.clock)
    return bandit.terms(counts, time, share, SELECTED, OBJECTIVE)


def compare(name: str, law: Law, late: str) -> None:
    """Prints the comparison of both oracles under a law and a treatment of late clients."""
    draw = jax.jit(jax.vmap(law.sample))
    known = np.maximum(np.asarray(draw(jax.random.split(jax.random.key(2**31), DRAWS))), MIN_LATENCY)
    played = []
    for seed in range(SEEDS):
        drawn = np.maximum(np.asarray(draw(jax.random.split(jax.random.key(seed), ROUNDS))), MIN_LATENCY)
        played.append([play(drawn, worth, late) for worth in rewards(known)])
    (slowest, ordered), differences = np.mean(played, axis=0), np.diff(played, axis=1)[:, 0]
    half = stats.t.ppf(0.975, SEEDS - 1) * differences.std(axis=0, ddof=1) / SEEDS**0.5
    for place, what in enumerate(("duration, s", "least share")):
        print(
            f"{name:<12}{late:<10}{what:<12}{slowest[place]:>9.3f}{ordered[place]:>9.3f}"
            f"{differences[:, place].mean():>+9.3f} ± {half[place]:.3f}"
        )


def main() -> None:
    print(f"{'law':<12}{'late':<10}{'mean':<12}{'slowest':>9}{'m-th':>9}{'difference':>12}")
    known = {"num_clients": NUM_CLIENTS, "min_latency": MIN_LATENCY}
    laws = {
        "two_speed": two_speed(**known),
        "lognormal": lognormal(**known, latency_deviation=1.0),
        "exponential": shifted_exponential(**known),
    }
    for name, law in laws.items():
        for late in ("released", "stopped"):
            compare(name, law, late)


if __name__ == "__main__":
    main()
