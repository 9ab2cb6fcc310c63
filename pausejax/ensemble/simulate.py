"""Simulates many runs of one ensemble policy on one pool in one function call."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pausejax.ensemble.loop import StaticConfig, World, advance, start, stream_order
from pausejax.ensemble.policies import Hyper
from pausejax.ensemble.pool import Pool
from pausejax.parts import registered_parts
from pausejax.parts.parameter import LARGEST, SMALLEST
from pausejax.parts.traces import forget_changed

NUM_CLIENTS = 100


class Runs(NamedTuple):
    """Settings of R runs; each field is a scalar or an array [R]."""

    seed: np.ndarray
    learning_rate: np.ndarray
    """η, from 1e-15 to 1e15."""
    exploration_rate: np.ndarray
    """ξ, from 1e-15 to less than 1."""
    budget: np.ndarray
    """B, in units of the largest model's cost; at least 1, (a3)."""
    uplink: np.ndarray
    """b_t / b_ℓ: the number of losses that all clients together can report in a round; from K + 1 to
    2^31 - 1."""
    spending: np.ndarray | float = 1.0
    """FedBoost's expected cost of a round over the budget, from 1e-15 to 1."""


def one_pass(num_rows: int, num_clients: int = NUM_CLIENTS) -> int:
    """Returns the number of rounds after which the clients have seen every row of the stream: ceil(n / N)."""
    return -(-int(num_rows) // int(num_clients))


def reads_too_many_rows(rounds: int, num_clients: int) -> bool:
    """Returns whether a run reads 2^31 rows or more of the data stream, which int32 can't count."""
    return int(rounds) * int(num_clients) >= 2**31


def simulate(
    pool: Pool,
    policy: str,
    runs: Runs,
    *,
    rounds: int | None = None,
    num_clients: int = NUM_CLIENTS,
    record_every: int = 1,
) -> dict[str, np.ndarray]:
    """Simulates R runs of one policy on one pool with one call of the compiled program.

    The rows of the stream are distributed to the clients in an order that depends only on the seed. In each
    round every client gets its next row. After the last row the stream starts again. A uniform subset of
    floor(uplink / (models sent + 1)) clients reports the losses on its rows. Randomness depends only on a
    run's seed and the round, so all policies and settings with one seed have the same stream.

    Args:
      pool: the pool of K experts, with their predictions on n rows.
      policy: the name of a registered ensemble policy, such as those of `ENSEMBLE_POLICIES`.
      runs: the settings, scalars or [R]. The policy's own parameters have their defaults.
      rounds: T, the number of rounds; one pass over the stream if not given.
      num_clients: N, the number of clients, at most n.
      record_every: the rounds between two recorded rounds, a divisor of T.

    Returns:
      Arrays [R, T / record_every] for the rounds record_every, 2 record_every, ...:

      - `mse`: the running mean squared error, as in the paper
      - `best_expert_mse`: the MSE of the best model so far, in hindsight
      - `regret`: EFL-FG (10)
      - `realized_regret`: the regret of the incurred losses
      - `regret_bound`: EFL-FG (11); only of efl_fg
      - `violations`: the share of rounds over the budget
      - `cost`: the mean cost sent per round, in units of the largest model
      - `reports`: the sum of |C_t|

      Also `sent_counts`, int32 [R, K]: the number of rounds in which each model was sent.

    Raises:
      ValueError: a setting is out of range.
    """
    known = registered_parts().of("ensemble_policy")
    if policy not in known:
        raise ValueError(f"policy: must be one of {', '.join(known)}, not {policy!r}")
    count, num_models = pool.predictions.shape
    if not 1 <= num_clients <= count:
        raise ValueError(
            f"num_clients: must be from 1 to {count}, the rows of the data stream, not {num_clients}"
        )
    rounds = one_pass(count, num_clients) if rounds is None else rounds
    if rounds < 1 or record_every < 1 or rounds % record_every:
        raise ValueError(
            f"record_every: must be >= 1 and divide rounds = {rounds}, which must be >= 1, not {record_every}"
        )
    if reads_too_many_rows(rounds, num_clients):
        raise ValueError(f"rounds: {rounds} rounds times {num_clients} clients must be < 2^31")
    runs = check_runs(runs, num_models)
    # `Runs` has no values for a policy's own parameters.
    own: dict[str, Any] = {
        name: np.full(runs.seed.shape, parameter.default, np.float32)
        for name, parameter in known[policy].parameters.items()
        if parameter.traced and name not in Hyper._fields
    }
    hyper = hyper_of(runs, pool)._replace(own=own)
    forget_changed([("ensemble_policy", policy)])
    config = StaticConfig(
        known[policy], rounds, num_clients, record_every, rounds // record_every, int(runs.uplink.max())
    )

    # Copies of the last run give all devices equally many runs.
    mesh = Mesh(np.array(jax.local_devices()[: len(runs.seed)]), ("runs",))
    hyper = jax.tree.map(lambda field: jnp.pad(field, (0, -len(field) % mesh.size), "edge"), hyper)
    seed = np.pad(runs.seed, (0, -len(runs.seed) % mesh.size), "edge")
    world, seed_index = world_of(pool, seed, len(np.unique(seed)))
    state = start(config, world, hyper)
    _, series = advance(config, mesh, world, hyper, seed_index, state, jnp.int32(1), jnp.int32(rounds))
    found = {name: np.moveaxis(np.asarray(array), 1, 0)[: len(runs.seed)] for name, array in series.items()}
    return {**found, "sent_counts": found["sent_counts"][:, -1]}


def hyper_of(runs: Runs, pool: Pool) -> Hyper:
    """Converts checked settings to the program's hyper-parameters, [R] each."""
    largest = pool.parameters.max()
    # Sums of model sizes are integers, so the budget may be rounded down to an integer. The tolerance is for
    # products such as 2.3 · 100, which are slightly below an integer in float64.
    whole = np.minimum(np.floor(runs.budget * largest * (1 + 1e-9)), pool.parameters.sum())
    # FedBoost multiplies the rounded budget by `spending`; its expected cost must not be rounded.
    expected_cost = np.minimum(runs.spending * runs.budget, len(pool.parameters)) * largest
    # The arrays stay NumPy arrays until they are put on the devices.
    arrays: tuple[Any, ...] = (
        runs.learning_rate.astype(np.float32),
        runs.exploration_rate.astype(np.float32),
        whole.astype(np.int32),
        runs.uplink.astype(np.int32),
        np.asarray(expected_cost / whole, np.float32),
    )
    return Hyper(*arrays)


def world_of(pool: Pool, seed: np.ndarray, num_seeds: int) -> tuple[World, jax.Array]:
    """Returns the arrays that runs share, and the index of each run's seed in the distinct seeds, int32 [R].

    Args:
      pool: the pool.
      seed: int [R], the seeds of the runs.
      num_seeds: the number of different seeds to which the arrays are padded.
    """
    seeds, seed_index = np.unique(seed, return_inverse=True)
    padded = jnp.asarray(np.pad(seeds, (0, num_seeds - len(seeds)), "edge"), jnp.uint32)
    squared = jnp.square(pool.predictions - pool.targets[:, None])
    world = World(
        table=jnp.asarray(np.concatenate([pool.predictions, pool.targets[:, None]], axis=1)),
        parameters=jnp.asarray(pool.parameters),
        stream_loss=jnp.mean(squared, axis=0),
        seeds=padded,
        order=stream_order(padded, len(pool.targets)),
    )
    return world, jnp.asarray(seed_index, jnp.int32)


def check_runs(runs: Runs, num_models: int) -> Runs:
    """Checks settings, and returns them as arrays of the same length.

    Raises:
      ValueError: a setting is out of range; the message names the first such setting.
    """
    runs = Runs(*np.broadcast_arrays(*(np.atleast_1d(np.asarray(field)) for field in runs)))
    real = ("learning_rate", "exploration_rate", "budget", "spending")
    runs = runs._replace(**{name: getattr(runs, name).astype(np.float64) for name in real})
    conditions: tuple[tuple[str, Any, str], ...] = (
        (
            "seed",
            (runs.seed >= 0) & (runs.seed < 2**32) & (runs.seed % 1 == 0),
            "an integer from 0 to 2^32 - 1",
        ),
        (
            "learning_rate",
            (runs.learning_rate >= SMALLEST) & (runs.learning_rate <= LARGEST),
            f"from {SMALLEST:g} to {LARGEST:g}",
        ),
        (
            "exploration_rate",
            (runs.exploration_rate >= SMALLEST) & (runs.exploration_rate < 1 - 2**-25),
            f">= {SMALLEST:g} and, in float32, < 1",
        ),
        (
            "budget",
            runs.budget >= 1,
            ">= 1, the cost of the most expensive model, by condition (a3) of EFL-FG",
        ),
        ("spending", (runs.spending >= SMALLEST) & (runs.spending <= 1), f"from {SMALLEST:g} to 1"),
        (
            "uplink",
            (runs.uplink >= num_models + 1) & (runs.uplink < 2**31),
            f"from {num_models + 1}, the most losses that a client reports, to 2^31 - 1",
        ),
    )
    for name, valid, wanted in conditions:
        if not valid.all():
            raise ValueError(f"{name}: must be {wanted}, not {getattr(runs, name)[~valid][0]}")
    return runs
