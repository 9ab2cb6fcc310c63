"""Plays rounds of ensemble federated learning: draws the clients' stream and scans over the rounds."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from pausejax.ensemble.policies import Hyper, make_policy
from pausejax.ensemble.policy import EnsemblePolicy, Feedback
from pausejax.ensemble.record import Outcome, Record, add_round, new_record, summary
from pausejax.parts import Part


@dataclasses.dataclass(frozen=True)
class StaticConfig:
    """Static settings of `advance`. JAX compiles a program for each distinct `StaticConfig`."""

    policy: Part
    rounds: int
    """T, the number of rounds."""
    num_clients: int
    """N, the number of clients."""
    record_every: int
    """The rounds per record, a divisor of T."""
    records_per_call: int
    """The number of records that one call computes. Rounds beyond T are skipped."""
    max_uplink: int
    """The largest number of losses that the clients of any run may report in a round."""
    statics: tuple[tuple[str, Any], ...] = ()
    """The values of the policy's parameters that are not traced, by name."""


class World(NamedTuple):
    """Arrays that the runs of a call share."""

    table: jax.Array
    """float32 [n, K + 1]: the predictions of the K models, then the target."""
    parameters: jax.Array
    """int32 [K], model sizes."""
    stream_loss: jax.Array
    """float32 [K], each model's mean loss over the stream."""
    seeds: jax.Array
    """uint32 [S], the different seeds of the runs."""
    order: jax.Array
    """int32 [S, n], the order in which each seed's stream visits the rows."""


class State(NamedTuple):
    """State of all runs between two rounds; the first axis is that of the R runs."""

    policy: Any
    record: Record


def _runs_first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), tree)


def _runs_last(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), tree)


def rules_of(config: StaticConfig, world: World, hyper: Hyper) -> EnsemblePolicy:
    """Returns the ensemble policy of all runs, with the hyper-parameters of each run."""
    return make_policy(
        config.policy,
        parameters=world.parameters,
        stream_loss=world.stream_loss,
        hyper=hyper,
        statics=dict(config.statics),
    )


@partial(jax.jit, static_argnums=0)
def start(config: StaticConfig, world: World, hyper: Hyper) -> State:
    """Returns the state of all runs before round 1."""
    rules = rules_of(config, world, hyper)
    return _runs_first(State(rules.init(), new_record(len(world.parameters), len(hyper.budget))))


@partial(jax.jit, static_argnums=1)
def stream_order(seeds: jax.Array, count: int) -> jax.Array:
    """Returns int32 [S, n], the order in which each seed's stream visits its rows."""
    return jax.vmap(lambda seed: jax.random.permutation(jax.random.key(seed), count))(seeds)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=5)
def advance(
    config: StaticConfig,
    mesh: Mesh,
    world: World,
    hyper: Hyper,
    seed_index: jax.Array,
    state: State,
    first_round: jax.Array,
    last_round: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    """Plays the rounds of up to `records_per_call` records. Each device plays its own share of the runs.

    Args:
      config: the static settings.
      mesh: the mesh of devices, static; the size of its one axis "runs" divides R.
      world: the arrays that the runs share, the same on all devices.
      hyper: the hyper-parameters, [R] each.
      seed_index: int32 [R], the index of each run's seed in `world.seeds`.
      state: the state before `first_round`; its buffers are donated.
      first_round: int32 scalar, 1 plus a multiple of `record_every`.
      last_round: int32 scalar, the last round to play; records beyond it have no meaning.

    Returns:
      The next state, and each series of `record.summary`, [records_per_call, R].

    Raises:
      AssertionError: while tracing, the runs' settings have different lengths or wrong types.
    """
    *known, own = hyper
    chex.assert_equal_shape([*known, *own.values(), seed_index])
    chex.assert_type([*known, seed_index], [float, float, int, int, float, int])
    runs, common = PartitionSpec("runs"), PartitionSpec()
    return jax.shard_map(
        partial(_advance, config),
        mesh=mesh,
        in_specs=(common, runs, runs, runs, common, common),
        out_specs=(runs, PartitionSpec(None, "runs")),
        check_vma=False,
    )(world, hyper, seed_index, state, first_round, last_round)


def _advance(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    seed_index: jax.Array,
    state: State,
    first_round: jax.Array,
    last_round: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    rules = rules_of(config, world, hyper)
    num_clients = config.num_clients
    seed_keys = jax.vmap(jax.random.key)(world.seeds)
    num_rows = world.order.shape[1]
    max_reporting = min(num_clients, config.max_uplink // (rules.min_sent + 1))

    def play_round(round_number: jax.Array, carry: tuple) -> tuple:
        state, record = carry
        keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, round_number)))(seed_keys)
        choice = rules.select(keys[seed_index, 0], state)
        choice = choice._replace(mixing=jnp.where(choice.sent, choice.mixing, 0.0))
        num_sent = jnp.maximum(jnp.sum(choice.sent, axis=0, dtype=jnp.int32), rules.min_sent)
        reporting = jnp.minimum(hyper.uplink // (num_sent + 1), num_clients)
        clients = _draw_clients(keys[:, 1], num_clients, max_reporting)[:, seed_index]
        row = world.order[seed_index[None], ((round_number - 1) * num_clients + clients) % num_rows]
        sample = jnp.moveaxis(world.table[row], -1, 0)
        predictions, targets = sample[:-1], sample[-1]
        active = jnp.arange(max_reporting, dtype=jnp.int32)[:, None] < reporting[None]

        def over_clients(values: jax.Array) -> jax.Array:
            """Sums `values`, [..., n, R], over the clients that report in the round."""
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
        record = add_round(record, choice, outcome, world.parameters, hyper.budget)
        return rules.update(state, choice, feedback), record

    def record(carry: tuple, index: jax.Array) -> tuple:
        first = first_round + index * config.record_every
        end = jnp.where(first <= last_round, first + config.record_every, first)
        with jax.named_scope("rounds"):
            carry = lax.fori_loop(first, end, play_round, carry)
        last = first + config.record_every - 1
        return carry, summary(carry[1], last, bounded=rules.regret_bound is not None)

    carry: tuple = tuple(_runs_last(state))
    series: dict[str, jax.Array]
    carry, series = lax.scan(record, carry, jnp.arange(config.records_per_call, dtype=jnp.int32))
    return _runs_first(State(*carry)), series


def _draw_clients(keys: jax.Array, num_clients: int, count: int) -> jax.Array:
    """Returns the first `count` clients of a uniformly random order, int32 [count, S], from S keys."""
    draws = jax.vmap(lambda key: jax.random.uniform(key, (num_clients,)))(keys)
    return lax.top_k(draws, count)[1].T
