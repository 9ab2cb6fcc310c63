"""Rounds of ensemble federated learning: the stream that the clients see, and the scan over rounds."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from pausejax.ensemble.policies import ENSEMBLE_POLICIES, Hyper, make_policy
from pausejax.ensemble.policy import Feedback
from pausejax.ensemble.pool import Pool
from pausejax.ensemble.record import Outcome, add_round, new_record, summary

NUM_CLIENTS = 100


class Runs(NamedTuple):
    """R runs that differ in these alone; each is a scalar or an array [R]."""

    seed: np.ndarray
    learning_rate: np.ndarray
    """η > 0."""
    exploration_rate: np.ndarray
    """ξ in (0, 1)."""
    budget: np.ndarray
    """B, in units of the largest model's cost; at least 1, (a3)."""
    uplink: np.ndarray
    """b_t / b_ℓ: how many losses the clients can report in a round, all together; at least K + 1."""
    spending: np.ndarray | float = 1.0
    """FedBoost's expected cost of a round over the budget, in (0, 1]."""


class _Shared(NamedTuple):
    """What the runs of one chunk have in common."""

    table: jax.Array
    """float32 [n, K + 1]: predictions, then the target."""
    parameters: jax.Array
    """int32 [K]."""
    stream_loss: jax.Array
    """float32 [K], each model's mean loss over the stream."""
    seeds: jax.Array
    """uint32 [S], the different seeds of the chunk."""
    order: jax.Array
    """int32 [S, n], the order in which each seed's stream visits the rows."""


def one_pass(num_rows: int, num_clients: int = NUM_CLIENTS) -> int:
    """The rounds after which the clients have seen every row of the stream: ceil(n / N)."""
    return -(-num_rows // num_clients)


def simulate(
    pool: Pool,
    policy: str,
    runs: Runs,
    *,
    rounds: int | None = None,
    num_clients: int = NUM_CLIENTS,
    record_every: int = 1,
    lanes: int = 128,
    progress: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray]:
    """Simulates R runs of one policy on one pool.

    The rows of the stream are dealt to the clients in an order that depends on the seed alone; in each round
    every client meets its next row (from the beginning again when the rows are used up), and those drawn for
    the round report on theirs: a uniform subset of floor(uplink / (models sent + 1)) clients. Randomness
    depends on a run's seed and the round only, so all policies and settings of one seed meet the same stream.

    Args:
      pool: K experts and their predictions on n rows.
      policy: one of `ENSEMBLE_POLICIES`.
      runs: the settings, scalars or [R].
      rounds: T; one pass over the stream if not given.
      num_clients: N, at most n.
      record_every: a divisor of T; the record holds every such round.
      lanes: how many runs each device advances together; it changes speed and memory, and no run's draws.
      progress: called after each chunk of runs with the number of runs that are done.

    Returns:
      Arrays [R, T / record_every] for the rounds record_every, 2 record_every, ...: `mse` (running mean, as
      in the paper), `best_expert_mse` (of the best model so far, in hindsight), `regret` (10),
      `realized_regret` (the same with the losses incurred), `regret_bound` (11; efl_fg only),
      `violations` (share of rounds over the budget), `cost` (mean sent per round, largest model = 1),
      `reports` (sum of |C_t|); and int32 [R, K] `sent_counts`.

    Raises:
      ValueError: a setting out of range.
    """
    if policy not in ENSEMBLE_POLICIES:
        raise ValueError(f"policy: unknown {policy!r}; allowed: {', '.join(ENSEMBLE_POLICIES)}")
    count, num_models = pool.predictions.shape
    if not 1 <= num_clients <= count:
        raise ValueError(f"num_clients: {num_clients} is not between 1 and the stream's {count} rows")
    rounds = one_pass(count, num_clients) if rounds is None else rounds
    if rounds < 1 or record_every < 1 or rounds % record_every:
        raise ValueError(f"record_every: {record_every} does not divide {rounds} rounds")
    if rounds * num_clients >= 2**31:
        raise ValueError(f"rounds: {rounds} rounds of {num_clients} clients exceed 2^31 samples")
    if lanes < 1:
        raise ValueError(f"lanes: {lanes} is not positive")
    runs = check_runs(runs, num_models)
    hyper = Hyper(
        runs.learning_rate.astype(np.float32),
        runs.exploration_rate.astype(np.float32),
        # Sums of model sizes are integers, so the budget may be rounded down to one.
        np.minimum(np.floor(runs.budget * pool.parameters.max()), pool.parameters.sum()).astype(np.int32),
        runs.uplink.astype(np.int32),
        runs.spending.astype(np.float32),
    )
    table = jnp.asarray(np.concatenate([pool.predictions, pool.targets[:, None]], axis=1))
    stream_loss = jnp.mean(jnp.square(pool.predictions - pool.targets[:, None]), axis=0)

    # Runs of one budget need about as many steps to build a graph, and runs of one seed share its draws of
    # clients, so they are kept together. The last chunk is filled up with copies of its last run: every chunk
    # then has one shape, and one compiled program serves them all.
    order = np.lexsort((runs.seed, runs.budget))
    mesh = Mesh(np.array(jax.local_devices()[: len(order)]), ("runs",))
    width = mesh.size * min(lanes, -(-len(order) // mesh.size))
    chunks = np.split(np.pad(order, (0, -len(order) % width), "edge"), -(-len(order) // width))
    num_seeds = max(len(np.unique(runs.seed[chunk])) for chunk in chunks)
    results = []
    for chunk in chunks:
        seeds, seed_index = np.unique(runs.seed[chunk], return_inverse=True)
        seeds = jnp.asarray(np.pad(seeds, (0, num_seeds - len(seeds)), "edge"), jnp.uint32)
        out = _simulate(
            _Shared(table, jnp.asarray(pool.parameters), stream_loss, seeds, _stream_order(seeds, count)),
            Hyper(*(jnp.asarray(field[chunk]) for field in hyper)),
            jnp.asarray(seed_index, jnp.int32),
            mesh=mesh,
            policy=policy,
            rounds=rounds,
            num_clients=num_clients,
            record_every=record_every,
            max_uplink=int(runs.uplink.max()),
        )
        results.append({name: np.moveaxis(np.asarray(array), -1, 0) for name, array in out.items()})
        if progress:
            progress(min(width, len(order) - width * (len(results) - 1)))
    place = np.argsort(order)
    return {name: np.concatenate([r[name] for r in results])[place] for name in results[0]}


def check_runs(runs: Runs, num_models: int) -> Runs:
    """The settings as arrays of one length; a ValueError names the first that is out of range."""
    runs = Runs(*np.broadcast_arrays(*(np.atleast_1d(np.asarray(field)) for field in runs)))
    conditions = (
        ("seed", (runs.seed >= 0) & (runs.seed < 2**32), "an integer from 0 to 2^32 - 1"),
        ("learning_rate", runs.learning_rate > 0, "positive"),
        ("exploration_rate", (runs.exploration_rate > 0) & (runs.exploration_rate < 1), "between 0 and 1"),
        ("budget", runs.budget >= 1, "at least 1, the cost of the dearest model (condition (a3))"),
        ("spending", (runs.spending > 0) & (runs.spending <= 1), "positive and at most 1"),
        ("uplink", runs.uplink > num_models, f"at least {num_models + 1}, one client's report on all models"),
    )
    for name, valid, wanted in conditions:
        if not valid.all():
            raise ValueError(f"{name}: {getattr(runs, name)[~valid][0]} is not {wanted}")
    return runs


@partial(jax.jit, static_argnums=1)
def _stream_order(seeds: jax.Array, count: int) -> jax.Array:
    return jax.vmap(lambda seed: jax.random.permutation(jax.random.key(seed), count))(seeds)


@partial(jax.jit, static_argnames=("mesh", "policy", "rounds", "num_clients", "record_every", "max_uplink"))
def _simulate(
    shared: _Shared, hyper: Hyper, seed_index: jax.Array, *, mesh: Mesh, **static: int | str
) -> dict[str, jax.Array]:
    """Each device plays its own share of the runs; they never communicate."""
    runs, common = PartitionSpec("runs"), PartitionSpec()
    return jax.shard_map(
        partial(_play, **static),
        mesh=mesh,
        in_specs=(common, runs, runs),
        out_specs=PartitionSpec(None, "runs"),
        check_vma=False,
    )(shared, hyper, seed_index)


def _play(
    shared: _Shared,
    hyper: Hyper,
    seed_index: jax.Array,
    *,
    policy: str,
    rounds: int,
    num_clients: int,
    record_every: int,
    max_uplink: int,
) -> dict[str, jax.Array]:
    rules = make_policy(policy, parameters=shared.parameters, stream_loss=shared.stream_loss, hyper=hyper)
    seed_keys = jax.vmap(jax.random.key)(shared.seeds)
    num_rows = shared.order.shape[1]
    max_reporting = min(num_clients, max_uplink // (rules.min_sent + 1))

    def play(round_number: jax.Array, carry: tuple) -> tuple:
        state, record = carry
        keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, round_number)))(seed_keys)
        choice = rules.select(keys[seed_index, 0], state)
        reporting = jnp.minimum(
            hyper.uplink // (jnp.sum(choice.sent, axis=0, dtype=jnp.int32) + 1), num_clients
        )
        clients = _draw_clients(keys[:, 1], num_clients, max_reporting)[:, seed_index]
        row = shared.order[seed_index[None], ((round_number - 1) * num_clients + clients) % num_rows]
        sample = jnp.moveaxis(shared.table[row], -1, 0)
        predictions, targets = sample[:-1], sample[-1]
        active = jnp.arange(max_reporting, dtype=jnp.int32)[:, None] < reporting[None]

        def over_clients(values: jax.Array) -> jax.Array:
            """Sums [..., n, R] over the clients of the round."""
            return jnp.sum(jnp.where(active, values, 0.0), axis=-2)

        residual = jnp.sum(choice.mixing[:, None] * predictions, axis=0) - targets
        loss = over_clients(jnp.square(residual))
        model_loss = over_clients(jnp.square(predictions - targets[None]))
        feedback = Feedback(
            model_loss=jnp.where(choice.sent, model_loss, 0.0),
            ensemble_loss=loss,
            gradient=jnp.where(choice.sent, over_clients(2 * residual[None] * predictions), 0.0),
            num_clients=reporting,
        )
        outcome = Outcome(
            loss=loss,
            expected_loss=over_clients(rules.expected_loss(choice, predictions, targets)),
            model_loss=model_loss,
            bound=rules.regret_bound(choice, round_number, reporting) if rules.regret_bound else None,
            num_clients=reporting,
        )
        record = add_round(record, choice, outcome, shared.parameters, hyper.budget)
        return rules.update(state, choice, feedback), record

    def segment(carry: tuple, index: jax.Array) -> tuple:
        first = index * record_every + 1
        carry = lax.fori_loop(first, first + record_every, play, carry)
        return carry, summary(carry[1], first + record_every - 1, bounded=rules.regret_bound is not None)

    start = (rules.init(), new_record(len(shared.parameters), len(seed_index)))
    (_, record), series = lax.scan(segment, start, jnp.arange(rounds // record_every, dtype=jnp.int32))
    return {**series, "sent_counts": record.sent_counts}


def _draw_clients(keys: jax.Array, num_clients: int, count: int) -> jax.Array:
    """The first `count` clients of a uniformly random order, int32 [count, S], from S keys."""
    draws = jax.vmap(lambda key: jax.random.uniform(key, (num_clients,)))(keys)
    return lax.top_k(draws, count)[1].T
